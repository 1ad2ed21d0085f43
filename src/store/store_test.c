#include "store/store.h"

#include "../tests/test.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rand.h"

enum { COLS = 4 };

static struct store *store_with(const struct store_table_opts *opts)
{
    struct err err;
    struct store *store = NULL;
    uint32_t table = 1;
    CHECK_OK(store_create(&(struct store_opts){.seed = 5}, &store, &err));
    CHECK_OK(store_table_add(store, opts, &table, &err));
    CHECK_INT(table, 0);
    return store;
}

static struct store_table_opts embedding(enum store_kind kind, enum store_rule_type type)
{
    return (struct store_table_opts){.name = "user",
                                     .kind = kind,
                                     .rows = kind == STORE_FIXED ? 5000 : 0,
                                     .cols = COLS,
                                     .shards = 4,
                                     .init = init_truncated_normal(0.5),
                                     .rule = store_rule_default(type, 0.1)};
}

static void pull(const struct store *store, const uint64_t *keys, uint32_t count, float *rows)
{
    struct err err;
    const struct store_pull request = {.count = count, .keys = keys, .rows = rows};
    CHECK_OK(store_pull(store, &request, NULL, &err));
}

static void push(struct store *store, const uint64_t *keys, uint32_t count, uint64_t step,
                 const float *gradients)
{
    struct err err;
    const struct store_push request = {
        .count = count, .step = step, .keys = keys, .gradients = gradients};
    CHECK_OK(store_push(store, &request, NULL, NULL, &err));
}

static uint64_t word(uint64_t step, uint64_t i)
{
    return rand_u64(9, RAND_TEST, step, i);
}

static void fill(uint64_t step, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) values[i] = rand_normal(9, RAND_TEST, step, i);
}

/* ---- Tables ---- */

TEST(wrong_tables_are_refused)
{
    struct store_table_opts good = embedding(STORE_FIXED, STORE_SGD);
    struct store *store = store_with(&good);
    const struct {
        const char *name;
        struct store_table_opts opts;
        int want;
        const char *text;
    } cases[] = {
        {"twice", good, SHOAL_EEXIST, "user"},
        {"no name", {.kind = STORE_DENSE, .rows = 1, .cols = 1}, SHOAL_EINVAL, "name"},
        {"no columns", {.name = "a", .rows = 1}, SHOAL_EINVAL, "width 0"},
        {"wide",
         {.name = "a", .kind = STORE_FIXED, .rows = 1, .cols = STORE_COLS_MAX + 1},
         SHOAL_EINVAL,
         "width"},
        {"no rows", {.name = "a", .kind = STORE_FIXED, .cols = 1}, SHOAL_EINVAL, "0 rows"},
        {"large", {.name = "a", .rows = STORE_ELEMENTS_MAX, .cols = 2}, SHOAL_EINVAL, "elements"},
        {"shards",
         {.name = "a", .rows = 1, .cols = 1, .shards = STORE_SHARDS_MAX + 1},
         SHOAL_EINVAL,
         "shards"},
        {"three shards",
         {.name = "a", .kind = STORE_DYNAMIC, .cols = 1, .shards = 3},
         SHOAL_EINVAL,
         "power of two"},
        {"average", {.name = "a", .rows = 1, .cols = 1, .average_decay = 1}, SHOAL_EINVAL, "decay"},
        {"eviction", {.name = "a", .rows = 1, .cols = 1, .rows_max = 1}, SHOAL_EINVAL, "dynamic"},
        {"adam",
         {.name = "a", .kind = STORE_DYNAMIC, .cols = 1, .rule = {.type = STORE_ADAM}},
         SHOAL_EINVAL,
         "lazy_adam"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        uint32_t table = 0;
        const int rc = store_table_add(store, &cases[i].opts, &table, &err);
        if (rc != cases[i].want) test_fail(__FILE__, __LINE__, "%s: %d", cases[i].name, rc);
        CHECK_HAS(err.text, cases[i].text);
    }
    CHECK_INT(store_tables_count(store), 1);
    store_destroy(store);
    store_destroy(NULL);
    CHECK_INT(mem_bytes(MEM_STORE), 0);
}

/* Shards follow from the declared size alone. */
TEST(shards_by_rule)
{
    const struct {
        struct store_table_opts opts;
        uint32_t want;
    } cases[] = {
        {{.kind = STORE_DENSE, .rows = 1, .cols = 1}, 1},
        {{.kind = STORE_DENSE, .rows = 1024, .cols = 1024}, 1},
        {{.kind = STORE_DENSE, .rows = 1025, .cols = 1024}, 2},
        {{.kind = STORE_DENSE, .rows = (uint64_t)1 << 24, .cols = 1024}, STORE_SHARDS_MAX},
        {{.kind = STORE_FIXED, .rows = 65536, .cols = 16}, 1},
        {{.kind = STORE_FIXED, .rows = 65537, .cols = 16}, 16},
        {{.kind = STORE_DYNAMIC, .cols = 16}, 16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(store_shards_rule(&cases[i].opts), cases[i].want);
    }
}

TEST(names_of_tables_and_parts)
{
    struct store_table_opts opts = embedding(STORE_FIXED, STORE_FTRL);
    opts.average_decay = 0.9;
    struct store *store = store_with(&opts);
    uint32_t table = 7;
    struct err err = {0};
    CHECK_OK(store_table_find(store, "user", &table, &err));
    CHECK_INT(table, 0);
    CHECK_INT(store_table_find(store, "item", &table, &err), SHOAL_ENOENT);
    CHECK_HAS(err.text, "item");
    const char *const parts[] = {"", "accum", "linear", "average"};
    for (uint32_t i = 0; i < 4; i++) CHECK_STR(store_part_name(store, 0, i), parts[i]);
    CHECK(store_part_name(store, 0, 4) == NULL);
    const struct store_table_info info = store_table_info(store, 0);
    CHECK_STR(info.name, "user");
    CHECK_INT(info.rows, 5000);
    CHECK_INT(info.parts, 4);
    CHECK(info.has_steps);
    CHECK(!info.has_counts);
    store_destroy(store);
}

/* ---- Rows ---- */

/* Until it is pushed to, a row is its initial value, and making it does not change it. */
TEST(rows_are_born_the_same)
{
    for (int kind = STORE_FIXED; kind <= STORE_DYNAMIC; kind++) {
        const struct store_table_opts opts = embedding((enum store_kind)kind, STORE_ADAGRAD);
        struct store *store = store_with(&opts);
        const uint64_t keys[] = {0, 1, 4999, 77};
        float before[4 * COLS];
        float after[4 * COLS];
        const float nothing[4 * COLS] = {0};
        pull(store, keys, 4, before);
        CHECK(memcmp(before, before + COLS, COLS * sizeof(float)) != 0);
        push(store, keys, 4, 0, nothing);
        pull(store, keys, 4, after);
        CHECK(memcmp(before, after, sizeof before) == 0);
        CHECK_INT(store_table_info(store, 0).rows, kind == STORE_FIXED ? 5000 : 4);
        CHECK(store_ok(store));
        store_destroy(store);
    }
}

/* Every 64-bit key is legal in a dynamic table, and only 0 .. rows-1 in a fixed one. */
TEST(the_ends_of_the_key_range)
{
    const uint64_t ends[] = {0, UINT64_MAX, (uint64_t)1 << 63, 1, hash_unmix64(UINT64_MAX)};
    struct store_table_opts opts = embedding(STORE_DYNAMIC, STORE_SGD);
    opts.init = init_constant(1);
    struct store *store = store_with(&opts);
    float rows[5 * COLS];
    for (int i = 0; i < 5 * COLS; i++) rows[i] = (float)i;
    push(store, ends, 5, 0, rows);
    pull(store, ends, 5, rows);
    for (int i = 0; i < 5 * COLS; i++) CHECK_NEAR(rows[i], 1 - 0.1f * (float)i, 1e-6);
    store_destroy(store);

    opts = embedding(STORE_FIXED, STORE_SGD);
    store = store_with(&opts);
    const uint64_t past[] = {4999, 5000};
    struct err err = {0};
    const struct store_pull request = {.count = 2, .keys = past, .rows = rows};
    CHECK_INT(store_pull(store, &request, NULL, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "5000");
    const struct store_push put = {.count = 2, .keys = past, .gradients = rows};
    CHECK_INT(store_push(store, &put, NULL, NULL, &err), SHOAL_EINVAL);
    store_destroy(store);
}

TEST(wrong_requests_are_refused)
{
    const struct store_table_opts opts = embedding(STORE_DYNAMIC, STORE_SGD);
    struct store *store = store_with(&opts);
    struct err err = {0};
    uint32_t dense = 0;
    CHECK_OK(store_table_add(store, &(struct store_table_opts){.name = "w", .rows = 2, .cols = 2},
                             &dense, &err));
    float row[COLS] = {0};
    const uint64_t key = 1;
    struct store_pull request = {.table = 2, .count = 1, .keys = &key, .rows = row};
    CHECK_INT(store_pull(store, &request, NULL, &err), SHOAL_EINVAL);
    request.table = dense;
    CHECK_INT(store_pull(store, &request, NULL, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "dense");
    request.table = 0;
    request.averaged = true;
    CHECK_INT(store_pull(store, &request, NULL, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "average");
    request = (struct store_pull){.count = STORE_KEYS_MAX + 1, .keys = &key, .rows = row};
    CHECK_INT(store_pull(store, &request, NULL, &err), SHOAL_ELIMIT);
    CHECK_INT(store_dense_begin(store, &(struct store_dense_push){.table = 0}, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "embedding");
    struct store_rows rows = {.count = 1, .keys = &key, .parts = {row, row}};
    CHECK_INT(store_assign_rows(store, &rows, &err), SHOAL_EINVAL);
    uint32_t mark = 0;
    rows = (struct store_rows){.count = 1, .keys = &key, .steps = &mark};
    CHECK_INT(store_fetch_rows(store, &rows, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "steps");
    store_destroy(store);
}

/* A plain model of a table under sgd: key -> value, in arrays. */
enum { PLAIN_KEYS = 3000 };

/* Random pulls and pushes give what a plain map gives, whatever the kind, with growth on the way. */
TEST(random_requests_against_a_plain_map)
{
    for (int kind = STORE_FIXED; kind <= STORE_DYNAMIC; kind++) {
        const struct store_table_opts opts = embedding((enum store_kind)kind, STORE_SGD);
        struct store *store = store_with(&opts);
        static float plain[PLAIN_KEYS][COLS];
        static uint64_t keys[PLAIN_KEYS];
        for (uint64_t i = 0; i < PLAIN_KEYS; i++) {
            keys[i] = kind == STORE_FIXED ? i : word(1, i);
        }
        pull(store, keys, PLAIN_KEYS, &plain[0][0]);
        for (uint64_t step = 0; step < 200; step++) {
            enum { MANY = 64 };
            uint64_t asked[MANY];
            float gradients[MANY * COLS];
            float rows[MANY * COLS];
            const uint64_t first = rand_below(3, RAND_TEST, 4, step, PLAIN_KEYS - 64 * 40);
            for (uint64_t i = 0; i < MANY; i++) asked[i] = keys[first + i * 40];
            fill(100 + step, gradients, MANY * COLS);
            push(store, asked, MANY, step, gradients);
            pull(store, asked, MANY, rows);
            for (uint64_t i = 0; i < MANY; i++) {
                for (int c = 0; c < COLS; c++) {
                    float *value = &plain[first + i * 40][c];
                    *value -= 0.1f * gradients[i * COLS + (uint64_t)c];
                    CHECK_NEAR(rows[i * COLS + (uint64_t)c], *value, 1e-5);
                }
            }
        }
        CHECK(store_ok(store));
        store_destroy(store);
    }
}

/* One run of pulls and pushes on a team; all bits of the table at the end. */
static void run_on_team(uint32_t threads, enum store_kind kind, enum store_rule_type type,
                        float *parts_out)
{
    enum { MANY = 5000 };
    struct err err;
    struct team *team = NULL;
    CHECK_OK(team_create(threads, &team, &err));
    struct store_table_opts opts = embedding(kind, type);
    opts.average_decay = 0.9;
    struct store *store = store_with(&opts);
    static uint64_t keys[MANY];
    static float rows[MANY * COLS];
    for (uint64_t step = 0; step < 6; step++) {
        for (uint64_t i = 0; i < MANY; i++) {
            keys[i] = kind == STORE_FIXED ? (i * 7 + step) % 5000 : word(step / 2, i);
        }
        const struct store_pull get = {.count = MANY, .keys = keys, .rows = rows};
        CHECK_OK(store_pull(store, &get, team, &err));
        const struct store_push put = {
            .count = MANY, .step = step * 3, .keys = keys, .gradients = rows, .check_finite = true};
        CHECK_OK(store_push(store, &put, team, NULL, &err));
    }
    CHECK(store_ok(store));
    struct store_rows all = {.count = MANY, .keys = keys};
    for (uint32_t part = 0; part < 2; part++) all.parts[part] = parts_out + part * MANY * COLS;
    CHECK_OK(store_fetch_rows(store, &all, &err));
    store_destroy(store);
    team_destroy(team);
}

/* Any number of threads gives the same bits. */
TEST(the_same_bits_on_any_team)
{
    static float one[2 * 5000 * COLS];
    static float more[2 * 5000 * COLS];
    const enum store_rule_type types[] = {STORE_ADAGRAD, STORE_LAMB, STORE_LAZY_ADAM};
    for (int kind = STORE_FIXED; kind <= STORE_DYNAMIC; kind++) {
        for (size_t i = 0; i < 3; i++) {
            run_on_team(1, (enum store_kind)kind, types[i], one);
            for (uint32_t threads = 2; threads <= 3; threads++) {
                run_on_team(threads, (enum store_kind)kind, types[i], more);
                CHECK(memcmp(one, more, sizeof one) == 0);
            }
        }
    }
    run_on_team(1, STORE_FIXED, STORE_ADAM, one);
    run_on_team(3, STORE_FIXED, STORE_ADAM, more);
    CHECK(memcmp(one, more, sizeof one) == 0);
}

/* ---- Exactly once ---- */

/* A push that comes twice moves nothing the second time; one that is fenced off is refused. */
TEST(work_is_applied_once)
{
    struct store_table_opts opts = embedding(STORE_DYNAMIC, STORE_SGD);
    opts.init = init_constant(0);
    struct store *store = store_with(&opts);
    const uint64_t keys[] = {1, 2, 3};
    float gradients[3 * COLS];
    float rows[3 * COLS];
    for (int i = 0; i < 3 * COLS; i++) gradients[i] = 1;
    struct store_push put = {
        .count = 3, .keys = keys, .gradients = gradients, .work = {STORE_WORK_LEASE, 9, 2, 0}};
    struct store_pushed pushed;
    struct err err = {0};
    CHECK_OK(store_push(store, &put, NULL, &pushed, &err));
    CHECK_INT(pushed.shards_applied, 4);
    CHECK_INT(pushed.rows_made, 3);
    CHECK_OK(store_push(store, &put, NULL, &pushed, &err));
    CHECK_INT(pushed.shards_applied, 0);
    CHECK_INT(pushed.shards_repeated, 4);
    pull(store, keys, 3, rows);
    CHECK_NEAR(rows[0], -0.1f, 0);
    put.work.token = 1;
    put.work.number = 5;
    CHECK_INT(store_push(store, &put, NULL, &pushed, &err), SHOAL_ESTALE);
    CHECK_HAS(err.text, "lease 9");
    store_lease_retire(store, 9);
    CHECK_OK(store_push(store, &put, NULL, &pushed, &err));
    CHECK_INT(pushed.shards_applied, 4);
    store_destroy(store);
}

/* Shards that have the work already are left out one by one: half of them restored as having it. */
TEST(each_shard_knows_its_own_work)
{
    struct store_table_opts opts = embedding(STORE_FIXED, STORE_SGD);
    opts.init = init_constant(0);
    struct store *store = store_with(&opts);
    const struct store_work work = {STORE_WORK_STEP, 0, 0, 4};
    struct err err;
    for (uint32_t shard = 0; shard < 2; shard++) {
        const struct store_shard state = {.version = 3, .streams_count = 1, .streams = &work};
        CHECK_OK(store_shard_restore(store, 0, shard, &state, &err));
    }
    CHECK_INT(store_shard_restore(store, 0, 4, &(struct store_shard){0}, &err), SHOAL_EMISMATCH);
    uint64_t keys[8];
    float ones[8 * COLS];
    float rows[8 * COLS];
    for (uint64_t i = 0; i < 8; i++) keys[i] = i;
    for (int i = 0; i < 8 * COLS; i++) ones[i] = 1;
    const struct store_push put = {.count = 8, .keys = keys, .gradients = ones, .work = work};
    struct store_pushed pushed;
    CHECK_OK(store_push(store, &put, NULL, &pushed, &err));
    CHECK_INT(pushed.shards_applied, 2);
    CHECK_INT(pushed.shards_repeated, 2);
    pull(store, keys, 8, rows);
    for (uint64_t i = 0; i < 8; i++) CHECK_NEAR(rows[i * COLS], i % 4 < 2 ? 0 : -0.1f, 0);
    CHECK_INT(store_shard_state(store, 0, 0).version, 3);
    CHECK_INT(store_shard_state(store, 0, 3).version, 1);
    CHECK_INT(store_shard_state(store, 0, 3).streams_count, 1);
    store_destroy(store);
}

/* A gradient that is not finite is found before anything moves, and the table is named. */
TEST(gradients_that_are_not_finite)
{
    const struct store_table_opts opts = embedding(STORE_DYNAMIC, STORE_SGD);
    struct store *store = store_with(&opts);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        const uint64_t keys[] = {1, 2};
        const float gradients[2 * COLS] = {[5] = bad[i]};
        const struct store_push put = {
            .count = 2, .keys = keys, .gradients = gradients, .check_finite = true};
        struct err err = {0};
        CHECK_INT(store_push(store, &put, NULL, NULL, &err), SHOAL_ENAN);
        CHECK_HAS(err.text, "user");
        CHECK_INT(store_table_info(store, 0).rows, 0);
    }
    store_destroy(store);
}

/* ---- Moving average ---- */

/* The average of every row, touched or not, is what decaying it at each step gives. */
TEST(average_of_sparse_rows)
{
    for (int kind = STORE_FIXED; kind <= STORE_DYNAMIC; kind++) {
        for (int type = 0; type < STORE_RULE_COUNT; type++) {
            if (kind == STORE_DYNAMIC && type == STORE_ADAM) continue;
            struct store_table_opts opts =
                embedding((enum store_kind)kind, (enum store_rule_type)type);
            opts.average_decay = 0.8;
            struct store *store = store_with(&opts);
            enum { KEYS = 12 };
            uint64_t keys[KEYS];
            double want[KEYS * COLS];
            float rows[KEYS * COLS];
            for (uint64_t i = 0; i < KEYS; i++) keys[i] = i * 3;
            pull(store, keys, KEYS, rows);
            for (int i = 0; i < KEYS * COLS; i++) want[i] = (double)rows[i];
            for (uint64_t step = 0; step < 20; step++) {
                uint64_t some[KEYS];
                float gradients[KEYS * COLS];
                uint32_t count = 0;
                for (uint64_t i = 0; i < KEYS; i++) {
                    if (word(step, i) % 4 == 0) some[count++] = keys[i];
                }
                fill(300 + step, gradients, KEYS * COLS);
                push(store, some, count, step, gradients);
                pull(store, keys, KEYS, rows);
                for (int i = 0; i < KEYS * COLS; i++) {
                    want[i] += (1 - 0.8) * ((double)rows[i] - want[i]);
                }
                struct err err;
                const struct store_pull get = {
                    .count = KEYS, .keys = keys, .rows = rows, .averaged = true, .step = step + 1};
                CHECK_OK(store_pull(store, &get, NULL, &err));
                for (int i = 0; i < KEYS * COLS; i++) CHECK_NEAR(rows[i], want[i], 2e-6);
            }
            store_destroy(store);
        }
    }
}

/* ---- Admission and eviction ---- */

/* A key counts from its third push on; before, a pull answers its initial value. */
TEST(admission_by_count)
{
    struct store_table_opts opts = embedding(STORE_DYNAMIC, STORE_SGD);
    opts.init = init_constant(2);
    opts.admit_count = 3;
    struct store *store = store_with(&opts);
    const uint64_t keys[] = {5, 6};
    float ones[2 * COLS];
    float rows[2 * COLS];
    for (int i = 0; i < 2 * COLS; i++) ones[i] = 1;
    for (uint64_t step = 0; step < 4; step++) {
        push(store, keys, step == 1 ? 1 : 2, step, ones);
        pull(store, keys, 2, rows);
        CHECK_NEAR(rows[0], step < 2 ? 2 : step == 2 ? 1.9f : 1.8f, 1e-6);
        CHECK_NEAR(rows[COLS], step < 3 ? 2 : 1.9f, 1e-6);
    }
    uint32_t counts[2];
    struct err err;
    CHECK_OK(store_fetch_rows(
        store, &(struct store_rows){.count = 2, .keys = keys, .counts = counts}, &err));
    CHECK_INT(counts[0], 4);
    CHECK_INT(counts[1], 3);
    store_destroy(store);
}

TEST(eviction_by_age_and_size)
{
    struct store_table_opts opts = embedding(STORE_DYNAMIC, STORE_SGD);
    opts.init = init_constant(0);
    opts.evict_steps = 10;
    opts.rows_max = 250;
    struct store *store = store_with(&opts);
    float ones[100 * COLS];
    for (int i = 0; i < 100 * COLS; i++) ones[i] = 1;
    struct err err;
    for (uint64_t step = 0; step < 40; step++) {
        uint64_t keys[100];
        for (uint64_t i = 0; i < 100; i++) keys[i] = i == 0 ? 0 : step * 100 + i;
        push(store, keys, 100, step, ones);
        uint64_t gone = 0;
        CHECK_OK(store_evict(store, 0, step + 1, &gone, &err));
        const uint64_t left = store_table_info(store, 0).rows;
        CHECK_INT(left, step == 0 ? 100 : step == 1 ? 199 : 250);
        CHECK(store_ok(store));
    }
    const uint64_t keys[] = {0, 3999, 101};
    float rows[3 * COLS];
    pull(store, keys, 3, rows);
    CHECK_NEAR(rows[0], -4, 1e-5); /* Pushed every time: never gone. */
    CHECK_NEAR(rows[COLS], -0.1, 1e-6);
    CHECK_NEAR(rows[2 * COLS], 0, 0); /* Long gone: initial again. */
    uint64_t gone = 0;
    CHECK_OK(store_evict(store, 0, 49, &gone, &err));
    CHECK_INT(gone, 150); /* The rows of the steps before the last. */
    CHECK_OK(store_evict(store, 0, 50, &gone, &err));
    CHECK_INT(store_table_info(store, 0).rows, 0);
    CHECK(store_ok(store));
    /* Numbers of rows are used again: nothing grows. */
    const struct store_bytes before = store_table_bytes(store, 0);
    push(store, keys, 3, 60, ones);
    const struct store_bytes after = store_table_bytes(store, 0);
    CHECK_INT(after.index + after.values + after.slots, before.index);
    store_destroy(store);
}

/* ---- Assign, fetch, memory ---- */

TEST(assign_and_fetch_all_parts)
{
    struct store_table_opts opts = embedding(STORE_DYNAMIC, STORE_FTRL);
    opts.average_decay = 0.5;
    struct store *store = store_with(&opts);
    const uint64_t keys[] = {11, 22};
    float parts[4][2 * COLS];
    float got[4][2 * COLS];
    uint32_t steps[] = {3, 4};
    uint32_t got_steps[2];
    for (uint64_t p = 0; p < 4; p++) fill(p, parts[p], 2 * COLS);
    struct err err;
    struct store_rows rows = {.count = 2, .keys = keys, .steps = steps};
    for (int p = 0; p < 4; p++) rows.parts[p] = parts[p];
    CHECK_OK(store_assign_rows(store, &rows, &err));
    rows.steps = got_steps;
    for (int p = 0; p < 4; p++) rows.parts[p] = got[p];
    CHECK_OK(store_fetch_rows(store, &rows, &err));
    CHECK(memcmp(parts, got, sizeof got) == 0);
    CHECK(memcmp(steps, got_steps, sizeof steps) == 0);
    /* An absent row is fetched as it would be born, and not made by that. */
    const uint64_t absent = 33;
    float value[COLS];
    pull(store, &absent, 1, value);
    rows = (struct store_rows){.count = 1, .keys = &absent, .parts = {got[0], got[1]}};
    CHECK_OK(store_fetch_rows(store, &rows, &err));
    CHECK(memcmp(value, got[0], sizeof value) == 0);
    CHECK_NEAR(got[1][0], 0.1f, 0);
    CHECK_INT(store_table_info(store, 0).rows, 2);
    store_destroy(store);
}

/* The plan says what a table then holds, and a dynamic row costs at most 16 bytes more than its
 * values and slots. */
TEST(bytes_held_and_planned)
{
    struct store_table_opts opts = {.name = "t",
                                    .kind = STORE_DYNAMIC,
                                    .cols = 16,
                                    .rule = store_rule_default(STORE_ADAGRAD, 0.1)};
    struct store *store = store_with(&opts);
    enum { MANY = 1000, TIMES = 500 };
    static uint64_t keys[MANY];
    static float zeros[MANY * 16];
    for (uint64_t t = 0; t < TIMES; t++) {
        for (uint64_t i = 0; i < MANY; i++) keys[i] = word(t, i);
        push(store, keys, MANY, 0, zeros);
    }
    const uint64_t rows = (uint64_t)MANY * TIMES;
    const struct store_bytes held = store_table_bytes(store, 0);
    const struct store_bytes plan = store_bytes_plan(&opts, rows);
    CHECK_INT(held.values, rows * 64);
    CHECK_INT(held.slots, rows * 64);
    CHECK(held.index <= rows * 16);
    CHECK_INT(plan.values, held.values);
    CHECK_INT(plan.slots, held.slots);
    CHECK(plan.index >= held.index * 85 / 100);
    CHECK(plan.index <= held.index * 115 / 100);
    store_destroy(store);
    CHECK_INT(mem_bytes(MEM_STORE), 0);
}

/* ---- Out of memory ---- */

/* A store, a table and a push; whichever of their allocations fails, no value has moved. */
static void push_failing(const struct store_table_opts *opts, uint64_t nth, bool *failed_out)
{
    enum { MANY = 600 };
    static uint64_t keys[MANY];
    static float gradients[MANY * COLS];
    static float got[MANY * COLS];
    static float want[MANY * COLS];
    for (uint64_t i = 0; i < MANY; i++) keys[i] = i * 3;
    fill(1, gradients, MANY * COLS);
    const struct store_push put = {
        .count = MANY, .keys = keys, .gradients = gradients, .work = {STORE_WORK_STEP, 0, 0, 1}};
    struct store *store = NULL;
    uint32_t table = 0;
    struct err err = {0};
    mem_fail_nth(nth);
    int rc = store_create(&(struct store_opts){.seed = 5}, &store, &err);
    if (rc == 0) rc = store_table_add(store, opts, &table, &err);
    const bool is_made = rc == 0;
    if (is_made) rc = store_push(store, &put, NULL, NULL, &err);
    *failed_out = mem_fail_nth(0);
    CHECK_INT(rc, *failed_out ? SHOAL_ENOMEM : 0);
    if (is_made) {
        CHECK(store_ok(store));
        struct store *fresh = store_with(opts);
        if (!*failed_out) CHECK_OK(store_push(fresh, &put, NULL, NULL, &err));
        pull(store, keys, MANY, got);
        pull(fresh, keys, MANY, want);
        CHECK(memcmp(want, got, sizeof want) == 0);
        store_destroy(fresh);
    }
    store_destroy(store);
    CHECK_INT(mem_bytes(MEM_STORE), 0);
}

TEST(nth_allocation_fails)
{
    const struct store_table_opts cases[] = {embedding(STORE_FIXED, STORE_ADAM),
                                             embedding(STORE_DYNAMIC, STORE_ADAGRAD)};
    for (int i = 0; i < 2; i++) {
        bool failed = true;
        for (uint64_t nth = 1; failed; nth++) push_failing(&cases[i], nth, &failed);
    }
}
