/* A small model with every kind of table, for the tests of checkpoints and of inspect. */
#ifndef SHOAL_TRAIN_CHECKPOINT_FIXTURE_H
#define SHOAL_TRAIN_CHECKPOINT_FIXTURE_H

#include "../tests/test.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/store.h"

static const uint64_t fixture_words[] = {0, 5, 77, UINT64_MAX, (uint64_t)1 << 63, 123456789, 6};
enum { FIXTURE_WORDS = sizeof fixture_words / sizeof *fixture_words };

static inline void fixture_add(struct store *store, const struct store_table_opts *opts)
{
    struct err err;
    uint32_t table = 0;
    CHECK_OK(store_table_add(store, opts, &table, &err));
}

/* Tables without any push. */
static inline struct store *fixture_create(void)
{
    struct err err;
    struct store *store = NULL;
    CHECK_OK(store_create(&(struct store_opts){.seed = 3}, &store, &err));
    const struct store_rule adagrad = store_rule_default(STORE_ADAGRAD, 0.1);
    const struct store_rule adam = store_rule_default(STORE_LAZY_ADAM, 0.1);
    const struct store_rule sgd = store_rule_default(STORE_SGD, 0.1);
    const struct init uniform = {.kind = INIT_UNIFORM, .value = 0.05f};
    fixture_add(store, &(struct store_table_opts){"hidden/0/weight", STORE_DENSE, .rows = 6,
                                                  .cols = 5, .init = uniform, .rule = adagrad});
    fixture_add(store, &(struct store_table_opts){"hidden/0/bias", STORE_DENSE, .rows = 1,
                                                  .cols = 5, .init = uniform, .rule = sgd});
    fixture_add(store, &(struct store_table_opts){"output/weight", STORE_DENSE, .rows = 5,
                                                  .cols = 3, .shards = 3, .init = uniform,
                                                  .rule = adagrad, .average_decay = 0.5});
    fixture_add(store, &(struct store_table_opts){"user_id/embedding", STORE_FIXED, .rows = 10,
                                                  .cols = 3, .init = uniform, .rule = adagrad});
    fixture_add(store, &(struct store_table_opts){"item/embedding", STORE_FIXED, .rows = 11,
                                                  .cols = 2, .shards = 4, .init = uniform,
                                                  .rule = adam, .average_decay = 0.5});
    fixture_add(store, &(struct store_table_opts){"word/embedding", STORE_DYNAMIC, .cols = 2,
                                                  .shards = 4, .init = uniform, .rule = adam,
                                                  .admit_count = 2, .evict_steps = 100});
    return store;
}

/* One step of training on every table, with gradients that depend on `step`. */
static inline void fixture_train(struct store *store, uint64_t step)
{
    struct err err;
    static const uint64_t few[] = {1, 4, 7, 9};
    float gradients[64];
    for (int i = 0; i < 64; i++) gradients[i] = (float)((i * 7 + (int)step * 3) % 11) - 5;
    for (uint32_t table = 0; table < store_tables_count(store); table++) {
        const struct store_table_info info = store_table_info(store, table);
        const struct store_work work = {.kind = STORE_WORK_STEP, .stream = 0, .number = step};
        if (info.kind == STORE_DENSE) {
            const struct store_dense_push push = {.table = table, .work = work, .step = step};
            CHECK_OK(store_dense_push(store, &push, gradients, NULL, NULL, &err));
        } else {
            const bool is_fixed = info.kind == STORE_FIXED;
            const struct store_push push = {.table = table,
                                            .count = is_fixed ? 4 : FIXTURE_WORDS,
                                            .work = work,
                                            .step = step,
                                            .keys = is_fixed ? few : fixture_words,
                                            .gradients = gradients};
            CHECK_OK(store_push(store, &push, NULL, NULL, &err));
        }
    }
}

static inline struct store *fixture_trained(uint64_t steps)
{
    struct store *store = fixture_create();
    for (uint64_t step = 1; step <= steps; step++) fixture_train(store, step);
    return store;
}

/* Everything in the store as text: equal texts are equal states. */
static inline void fixture_dump(struct store *store, struct str *text)
{
    struct err err;
    struct store_cut *cut = NULL;
    CHECK_OK(store_cut_begin(store, &cut, &err));
    for (uint32_t table = 0; table < store_tables_count(store); table++) {
        const struct store_table_info info = store_table_info(store, table);
        for (uint32_t shard = 0; shard < info.shards; shard++) {
            struct store_shard state;
            CHECK_OK(store_cut_shard(cut, table, shard, &state, &err));
            str_printf(text, "%s %u rows %llu first %llu version %llu", info.name, shard,
                       (unsigned long long)state.rows, (unsigned long long)state.first,
                       (unsigned long long)state.version);
            for (uint32_t i = 0; i < state.streams_count; i++) {
                const struct store_work *work = &state.streams[i];
                str_printf(text, " [%d %llu %llu %llu]", (int)work->kind,
                           (unsigned long long)work->stream, (unsigned long long)work->token,
                           (unsigned long long)work->number);
            }
            str_add(text, "\n");
            const uint32_t width = info.kind == STORE_DENSE ? 1 : info.cols;
            for (uint64_t row = 0; row < state.rows; row++) {
                uint64_t key = 0;
                float parts[STORE_PARTS_MAX][64];
                uint32_t step = 0;
                uint32_t count = 0;
                struct store_cut_read read = {.first = row, .count = 1};
                for (uint32_t p = 0; p < info.parts; p++) read.parts[p] = parts[p];
                if (info.kind != STORE_DENSE) read.keys = &key;
                if (info.has_steps && info.kind != STORE_DENSE) read.steps = &step;
                if (info.has_counts) read.counts = &count;
                CHECK_OK(store_cut_read(cut, &read, &err));
                str_printf(text, "  %llu %u %u:", (unsigned long long)key, step, count);
                for (uint32_t p = 0; p < info.parts; p++) {
                    for (uint32_t c = 0; c < width; c++)
                        str_printf(text, " %a", (double)parts[p][c]);
                }
                str_add(text, "\n");
            }
        }
    }
    store_cut_end(cut);
    CHECK(!text->failed);
}

static inline void fixture_check_equal(struct store *got, struct store *want)
{
    struct str got_text = {0};
    struct str want_text = {0};
    fixture_dump(got, &got_text);
    fixture_dump(want, &want_text);
    CHECK(want_text.text != NULL);
    CHECK_STR(got_text.text, want_text.text);
    str_fini(&got_text);
    str_fini(&want_text);
}

#endif
