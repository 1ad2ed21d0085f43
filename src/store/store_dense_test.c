#include "../tests/test.h"
#include "base/mem.h"
#include "base/rand.h"
#include "store/store.h"

static struct store *store_with(const struct store_table_opts *opts)
{
    struct err err;
    struct store *store = NULL;
    uint32_t table = 0;
    CHECK_OK(store_create(&(struct store_opts){.seed = 5}, &store, &err));
    CHECK_OK(store_table_add(store, opts, &table, &err));
    return store;
}

static void fill(uint64_t step, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) values[i] = rand_normal(9, RAND_TEST, step, i);
}

enum { ROWS = 211, COLS = 97, COUNT = ROWS * COLS };

static struct store_table_opts tensor(enum store_rule_type type, uint32_t shards)
{
    return (struct store_table_opts){.name = "hidden/0/weight",
                                     .kind = STORE_DENSE,
                                     .rows = ROWS,
                                     .cols = COLS,
                                     .shards = shards,
                                     .init = init_glorot_uniform(ROWS, COLS),
                                     .rule = store_rule_default(type, 0.1)};
}

/* Shards are contiguous, cover every element once and are of comparable size. */
TEST(shards_cover_the_tensor)
{
    for (uint32_t shards = 1; shards <= 7; shards++) {
        const struct store_table_opts opts = tensor(STORE_SGD, shards);
        struct store *store = store_with(&opts);
        uint64_t next = 0;
        for (uint32_t i = 0; i < shards; i++) {
            const struct store_shard shard = store_shard_state(store, 0, i);
            CHECK_INT(shard.first, next);
            CHECK(shard.rows <= COUNT / shards + 16);
            next += shard.rows;
        }
        CHECK_INT(next, COUNT);
        store_destroy(store);
    }
}

/* Pieces of any size in any order give the bits of the whole, on any team and with any number of
 * shards (but for LAMB, whose blocks are the shards). */
TEST(pieces_give_the_bits_of_the_whole)
{
    struct err err;
    struct team *team = NULL;
    CHECK_OK(team_create(3, &team, &err));
    static float gradients[COUNT];
    for (int type = 0; type < STORE_RULE_COUNT; type++) {
        struct store_table_opts opts = tensor((enum store_rule_type)type, 1);
        struct store *whole = store_with(&opts);
        if (type != STORE_LAMB) opts.shards = 3;
        struct store *pieces = store_with(&opts);
        for (uint64_t step = 0; step < 4; step++) {
            fill(step, gradients, COUNT);
            const struct store_dense_push push = {.step = step, .check_finite = true};
            CHECK_OK(store_dense_push(whole, &push, gradients, NULL, team, &err));
            CHECK_OK(store_dense_begin(pieces, &push, &err));
            const uint64_t cuts[] = {COUNT, 20000, 7777, 100, 3, 0};
            for (int i = 0; i < 5; i++) {
                CHECK_OK(store_dense_apply(pieces, 0, cuts[i + 1], cuts[i] - cuts[i + 1],
                                           gradients + cuts[i + 1], NULL, &err));
            }
            store_dense_end(pieces, 0, NULL);
        }
        const float *a = store_dense_values(whole, 0, false);
        const float *b = store_dense_values(pieces, 0, false);
        if (memcmp(a, b, COUNT * sizeof(float)) != 0) {
            test_fail(__FILE__, __LINE__, "%s differs",
                      store_rule_name((enum store_rule_type)type));
        }
        store_destroy(whole);
        store_destroy(pieces);
    }
    team_destroy(team);
}

/* TensorFlow's ExponentialMovingAverage: average -= (1 - decay)(average - value) after each step. */
TEST(moving_average)
{
    struct store_table_opts opts = tensor(STORE_ADAM, 2);
    opts.average_decay = 0.75;
    struct store *store = store_with(&opts);
    struct err err;
    static double want[COUNT];
    static float gradients[COUNT];
    const float *values = store_dense_values(store, 0, false);
    const float *average = store_dense_values(store, 0, true);
    for (int i = 0; i < COUNT; i++) want[i] = (double)values[i];
    for (uint64_t step = 0; step < 10; step++) {
        fill(step, gradients, COUNT);
        CHECK_OK(store_dense_push(store, &(struct store_dense_push){.step = step}, gradients, NULL,
                                  NULL, &err));
        for (int i = 0; i < COUNT; i++) want[i] -= 0.25 * (want[i] - (double)values[i]);
        for (int i = 0; i < COUNT; i++) CHECK_NEAR(average[i], want[i], 1e-6);
    }
    store_destroy(store);
    opts = tensor(STORE_SGD, 1);
    store = store_with(&opts);
    CHECK(store_dense_values(store, 0, true) == NULL);
    store_destroy(store);
}

/* Work that a shard has had is ignored there; the version counts what was applied. */
TEST(work_is_applied_once)
{
    struct store_table_opts opts = tensor(STORE_SGD, 2);
    opts.init = init_constant(0);
    struct store *store = store_with(&opts);
    struct err err;
    const struct store_dense_push push = {.work = {STORE_WORK_STEP, 0, 0, 7}};
    const struct store_shard had = {.version = 9, .streams_count = 1, .streams = &push.work};
    CHECK_OK(store_shard_restore(store, 0, 0, &had, &err));
    static float ones[COUNT];
    for (int i = 0; i < COUNT; i++) ones[i] = 1;
    for (int i = 0; i < 2; i++) CHECK_OK(store_dense_push(store, &push, ones, NULL, NULL, &err));
    const float *values = store_dense_values(store, 0, false);
    const uint64_t second = store_shard_state(store, 0, 1).first;
    CHECK_NEAR(values[0], 0, 0);
    CHECK_NEAR(values[second - 1], 0, 0);
    CHECK_NEAR(values[second], -0.1f, 0);
    CHECK_NEAR(values[COUNT - 1], -0.1f, 0);
    CHECK_INT(store_shard_state(store, 0, 0).version, 9);
    CHECK_INT(store_shard_state(store, 0, 1).version, 1);
    store_destroy(store);
}

/* A gradient that is not finite is refused by name; in pieces, its piece is, and the work does not
 * count as done. */
TEST(gradients_that_are_not_finite)
{
    const struct store_table_opts opts = tensor(STORE_SGD, 1);
    struct store *store = store_with(&opts);
    static float gradients[COUNT];
    gradients[COUNT - 1] = NAN;
    const struct store_dense_push push = {.check_finite = true, .work = {STORE_WORK_STEP, 0, 0, 1}};
    struct err err = {0};
    CHECK_INT(store_dense_push(store, &push, gradients, NULL, NULL, &err), SHOAL_ENAN);
    CHECK_HAS(err.text, "hidden/0/weight");
    CHECK_OK(store_dense_begin(store, &push, &err));
    CHECK_OK(store_dense_apply(store, 0, 0, 100, gradients, NULL, &err));
    CHECK_INT(store_dense_apply(store, 0, 100, COUNT - 100, gradients + 100, NULL, &err),
              SHOAL_ENAN);
    CHECK_INT(store_dense_apply(store, 0, COUNT, 1, gradients, NULL, &err), SHOAL_EINVAL);
    store_dense_end(store, 0, NULL);
    CHECK_INT(store_shard_state(store, 0, 0).version, 0);
    CHECK_INT(store_shard_state(store, 0, 0).streams_count, 0);
    store_destroy(store);
}

TEST(assign_and_fetch)
{
    const struct store_table_opts opts = tensor(STORE_MOMENTUM, 3);
    struct store *store = store_with(&opts);
    struct err err;
    static float values[COUNT];
    static float got[COUNT];
    for (uint32_t part = 0; part < 2; part++) {
        fill(part, values, COUNT);
        CHECK_OK(store_assign_dense(store, 0, part, 10, COUNT - 10, values, &err));
        CHECK_OK(store_fetch_dense(store, 0, part, 10, COUNT - 10, got, &err));
        CHECK(memcmp(values, got, (COUNT - 10) * sizeof(float)) == 0);
    }
    CHECK_INT(store_assign_dense(store, 0, 2, 0, 1, values, &err), SHOAL_EINVAL);
    CHECK_INT(store_fetch_dense(store, 0, 0, COUNT, 1, got, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "hidden/0/weight");
    const struct store_bytes bytes = store_table_bytes(store, 0);
    const struct store_bytes plan = store_bytes_plan(&opts, 0);
    CHECK_INT(bytes.values, COUNT * sizeof(float));
    CHECK_INT(plan.values, bytes.values);
    CHECK_INT(plan.slots, bytes.slots);
    store_destroy(store);
}

TEST(nth_allocation_fails)
{
    const struct store_table_opts opts = tensor(STORE_ADAM, 2);
    for (uint64_t nth = 1;; nth++) {
        struct store *store = NULL;
        uint32_t table = 0;
        static float gradients[COUNT];
        mem_fail_nth(nth);
        int rc = store_create(&(struct store_opts){0}, &store, NULL);
        if (rc == 0) rc = store_table_add(store, &opts, &table, NULL);
        const struct store_dense_push push = {.work = {STORE_WORK_STEP, 0, 0, 1}};
        if (rc == 0) rc = store_dense_push(store, &push, gradients, NULL, NULL, NULL);
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        store_destroy(store);
        CHECK_INT(mem_bytes(MEM_STORE), 0);
        if (!failed) break;
    }
}
