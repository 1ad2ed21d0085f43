#include "../tests/test.h"
#include "base/mem.h"
#include "base/rand.h"
#include "store/store.h"

enum { COLS = 3, DENSE_COUNT = 700, FIXED_ROWS = 90, KEYS = 400 };

/* A dense, a fixed and a dynamic table, with every kind of thing that is saved. */
static struct store *make_store(uint32_t shards)
{
    struct err err;
    struct store *store = NULL;
    CHECK_OK(store_create(&(struct store_opts){.seed = 3}, &store, &err));
    const struct store_table_opts tables[] = {
        {.name = "dense",
         .kind = STORE_DENSE,
         .rows = DENSE_COUNT,
         .cols = 1,
         .shards = shards,
         .init = init_normal(1),
         .rule = store_rule_default(STORE_ADAM, 0.1),
         .average_decay = 0.9},
        {.name = "fixed",
         .kind = STORE_FIXED,
         .rows = FIXED_ROWS,
         .cols = COLS,
         .shards = shards,
         .init = init_normal(1),
         .rule = store_rule_default(STORE_ADAM, 0.1),
         .average_decay = 0.9},
        {.name = "dynamic",
         .kind = STORE_DYNAMIC,
         .cols = COLS,
         .shards = shards,
         .init = init_normal(1),
         .rule = store_rule_default(STORE_ADAGRAD, 0.1),
         .admit_count = 2,
         .evict_steps = 1000},
    };
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t table = 0;
        CHECK_OK(store_table_add(store, &tables[i], &table, &err));
    }
    return store;
}

static uint64_t key_of(uint64_t i)
{
    return rand_u64(8, RAND_TEST, 1, i);
}

/* One step: pushes to all three tables. */
static void train(struct store *store, uint64_t step)
{
    struct err err;
    float gradients[DENSE_COUNT];
    for (uint64_t i = 0; i < DENSE_COUNT; i++)
        gradients[i] = rand_normal(8, RAND_TEST, 10 + step, i);
    const struct store_work work = {STORE_WORK_STEP, 0, 0, step};
    CHECK_OK(store_dense_push(store, &(struct store_dense_push){.step = step, .work = work},
                              gradients, NULL, NULL, &err));
    uint64_t keys[40];
    for (uint64_t i = 0; i < 20; i++) keys[i] = (i * 3 + step) % FIXED_ROWS;
    CHECK_OK(store_push(store,
                        &(struct store_push){.table = 1,
                                             .count = 20,
                                             .step = step,
                                             .keys = keys,
                                             .gradients = gradients,
                                             .work = work},
                        NULL, NULL, &err));
    for (uint64_t i = 0; i < 40; i++) keys[i] = key_of((i * 7 + step * 5) % KEYS);
    CHECK_OK(store_push(store,
                        &(struct store_push){.table = 2,
                                             .count = 40,
                                             .step = step,
                                             .keys = keys,
                                             .gradients = gradients,
                                             .work = work},
                        NULL, NULL, &err));
}

/* Copies the rows of an open shard to another store, a few at a time, training meanwhile. */
static void copy_shard(struct store_cut *cut, uint32_t table, const struct store_shard *shard,
                       struct store *from, struct store *to, uint64_t *step)
{
    struct err err;
    const bool is_dense = table == 0;
    int64_t last = INT64_MIN;
    for (uint64_t first = 0; first < shard->rows;) {
        enum { MANY = 37 };
        const uint32_t count = (uint32_t)(shard->rows - first < MANY ? shard->rows - first : MANY);
        uint64_t keys[MANY];
        uint32_t steps[MANY];
        uint32_t counts[MANY];
        float parts[STORE_PARTS_MAX][MANY * COLS];
        const struct store_table_info info = store_table_info(from, table);
        struct store_cut_read read = {.first = first, .count = count, .keys = keys};
        if (info.has_steps) read.steps = steps;
        if (info.has_counts) read.counts = counts;
        for (uint32_t p = 0; p < info.parts; p++) read.parts[p] = parts[p];
        CHECK_OK(store_cut_read(cut, &read, &err));
        if (is_dense) {
            for (uint32_t p = 0; p < info.parts; p++) {
                CHECK_OK(
                    store_assign_dense(to, table, p, shard->first + first, count, parts[p], &err));
            }
        } else {
            struct store_rows rows = {.table = table,
                                      .count = count,
                                      .keys = keys,
                                      .steps = read.steps,
                                      .counts = read.counts};
            for (uint32_t p = 0; p < info.parts; p++) rows.parts[p] = parts[p];
            CHECK_OK(store_assign_rows(to, &rows, &err));
            for (uint32_t i = 0; i < count; i++) {
                CHECK((int64_t)keys[i] > last || (first == 0 && i == 0));
                last = (int64_t)keys[i];
            }
        }
        first += count;
        if (step != NULL) train(from, (*step)++);
    }
}

/* All of a store by way of a cut; step NULL: nothing changes meanwhile. */
static void copy_store(struct store *from, struct store *to, uint64_t *step)
{
    struct err err;
    struct store_cut *cut = NULL;
    CHECK_OK(store_cut_begin(from, &cut, &err));
    CHECK_INT(store_cut_begin(from, &cut, &err), SHOAL_EBUSY);
    if (step != NULL) train(from, (*step)++);
    for (uint32_t table = 0; table < 3; table++) {
        const uint32_t shards = store_table_info(from, table).shards;
        for (uint32_t i = 0; i < shards; i++) {
            struct store_shard shard;
            CHECK_OK(store_cut_shard(cut, table, i, &shard, &err));
            copy_shard(cut, table, &shard, from, to, step);
            if (shards == store_table_info(to, table).shards) {
                CHECK_OK(store_shard_restore(to, table, i, &shard, &err));
            }
        }
    }
    struct store_shard shard;
    CHECK_INT(store_cut_shard(cut, 0, 0, &shard, &err), SHOAL_EINVAL);
    CHECK_INT(store_cut_shard(cut, 3, 0, &shard, &err), SHOAL_EINVAL);
    store_cut_end(cut);
}

/* Every bit of two stores is the same, and stays so when both train on. */
static void check_same(struct store *a, struct store *b)
{
    struct err err;
    static float left[STORE_PARTS_MAX][KEYS * COLS];
    static float right[STORE_PARTS_MAX][KEYS * COLS];
    for (uint32_t p = 0; p < store_table_info(a, 0).parts; p++) {
        CHECK_OK(store_fetch_dense(a, 0, p, 0, DENSE_COUNT, left[p], &err));
        CHECK_OK(store_fetch_dense(b, 0, p, 0, DENSE_COUNT, right[p], &err));
        CHECK(memcmp(left[p], right[p], DENSE_COUNT * sizeof(float)) == 0);
    }
    for (uint32_t table = 1; table < 3; table++) {
        const uint32_t count = table == 1 ? FIXED_ROWS : KEYS;
        uint64_t keys[KEYS];
        uint32_t left_steps[KEYS];
        uint32_t right_steps[KEYS];
        for (uint64_t i = 0; i < count; i++) keys[i] = table == 1 ? i : key_of(i);
        struct store_rows rows = {.table = table, .count = count, .keys = keys};
        const uint32_t parts = store_table_info(a, table).parts;
        for (uint32_t p = 0; p < parts; p++) rows.parts[p] = left[p];
        rows.steps = left_steps;
        CHECK_OK(store_fetch_rows(a, &rows, &err));
        for (uint32_t p = 0; p < parts; p++) rows.parts[p] = right[p];
        rows.steps = right_steps;
        CHECK_OK(store_fetch_rows(b, &rows, &err));
        for (uint32_t p = 0; p < parts; p++) {
            CHECK(memcmp(left[p], right[p], count * COLS * sizeof(float)) == 0);
        }
        CHECK(memcmp(left_steps, right_steps, count * sizeof *left_steps) == 0);
        CHECK_INT(store_table_info(a, table).rows, store_table_info(b, table).rows);
    }
    CHECK(store_ok(a));
    CHECK(store_ok(b));
}

/* A copy by way of a cut is the store to the last bit, and trains on like it. */
TEST(save_and_load)
{
    struct store *store = make_store(4);
    struct store *copy = make_store(4);
    for (uint64_t step = 0; step < 15; step++) train(store, step);
    copy_store(store, copy, NULL);
    check_same(store, copy);
    for (uint32_t table = 0; table < 3; table++) {
        for (uint32_t i = 0; i < 4; i++) {
            const struct store_shard a = store_shard_state(store, table, i);
            const struct store_shard b = store_shard_state(copy, table, i);
            CHECK_INT(a.version, b.version);
            CHECK_INT(a.streams_count, b.streams_count);
            CHECK_INT(a.streams[0].number, b.streams[0].number);
        }
    }
    for (uint64_t step = 15; step < 25; step++) {
        train(store, step);
        train(copy, step);
    }
    check_same(store, copy);
    store_destroy(store);
    store_destroy(copy);
}

/* What was saved from some shards loads into any other number of them. */
TEST(load_into_another_number_of_shards)
{
    struct store *store = make_store(4);
    for (uint64_t step = 0; step < 15; step++) train(store, step);
    const uint32_t others[] = {1, 2, 16};
    for (int i = 0; i < 3; i++) {
        struct store *copy = make_store(others[i]);
        copy_store(store, copy, NULL);
        check_same(store, copy);
        store_destroy(copy);
    }
    store_destroy(store);
}

/* Training while the cut is read does not show in it. */
TEST(a_cut_does_not_move)
{
    struct store *store = make_store(4);
    struct store *still = make_store(4);
    struct store *copy = make_store(4);
    for (uint64_t step = 0; step < 8; step++) {
        train(store, step);
        train(still, step);
    }
    uint64_t step = 8;
    copy_store(store, copy, &step);
    CHECK(step > 30);
    check_same(still, copy);
    /* And the trained one is what training without a cut gives. */
    for (uint64_t again = 8; again < step; again++) train(still, again);
    check_same(still, store);
    store_destroy(store);
    store_destroy(still);
    store_destroy(copy);
    CHECK_INT(mem_bytes(MEM_STORE), 0);
}

/* While a cut is open nothing is evicted and no table is added; ending it early is fine. */
TEST(what_waits_for_a_cut)
{
    struct store *store = make_store(2);
    struct store_cut *cut = NULL;
    struct err err;
    train(store, 0);
    CHECK_OK(store_cut_begin(store, &cut, &err));
    uint64_t rows = 0;
    CHECK_INT(store_evict(store, 2, 5000, &rows, &err), SHOAL_EBUSY);
    uint32_t table = 0;
    CHECK_INT(store_table_add(store, &(struct store_table_opts){.name = "n", .rows = 1, .cols = 1},
                              &table, &err),
              SHOAL_EBUSY);
    train(store, 1);
    store_cut_end(cut);
    CHECK_OK(store_evict(store, 2, 5000, &rows, &err));
    CHECK(rows > 0);
    CHECK(store_ok(store));
    store_cut_end(NULL);
    CHECK_OK(store_cut_begin(store, &cut, &err));
    store_destroy(store); /* Ends the cut. */
    CHECK_INT(mem_bytes(MEM_STORE), 0);
}

/* Whichever allocation of a cut, of reading it or of a push meanwhile fails, all else goes on. */
TEST(nth_allocation_fails)
{
    for (uint64_t nth = 1;; nth++) {
        struct store *store = make_store(2);
        train(store, 0);
        struct store_cut *cut = NULL;
        struct store_shard shard;
        float value[COLS];
        const uint64_t key = key_of(0);
        const float gradient[COLS] = {1, 1, 1};
        mem_fail_nth(nth);
        int rc = store_cut_begin(store, &cut, NULL);
        for (uint32_t table = 0; rc == 0 && table < 3; table++) {
            if (table == 2) {
                rc = store_push(store,
                                &(struct store_push){
                                    .table = 2, .count = 1, .keys = &key, .gradients = gradient},
                                NULL, NULL, NULL);
            }
            if (rc == 0) rc = store_cut_shard(cut, table, 0, &shard, NULL);
            if (rc == 0) {
                rc = store_cut_read(cut, &(struct store_cut_read){.count = 1, .parts = {value}},
                                    NULL);
            }
        }
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        if (nth > 1 || !failed) store_cut_end(cut);
        train(store, 1);
        CHECK(store_ok(store));
        store_destroy(store);
        CHECK_INT(mem_bytes(MEM_STORE), 0);
        if (!failed) break;
    }
}
