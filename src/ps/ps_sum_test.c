#include "ps/ps_sum.h"

#include "base/mem.h"
#include "../tests/test.h"

static struct store *make_store(void)
{
    struct err err = {0};
    struct store *store = NULL;
    uint32_t table = 0;
    const struct store_table_opts opts = {.name = "t",
                                          .kind = STORE_FIXED,
                                          .rows = 8,
                                          .cols = 1,
                                          .init = init_constant(0),
                                          .rule = store_rule_default(STORE_SGD, 1.0)};
    CHECK_OK(store_create(&(struct store_opts){.seed = 1}, &store, &err));
    CHECK_OK(store_table_add(store, &opts, &table, &err));
    return store;
}

static float value_of(const struct store *store, uint64_t key)
{
    struct err err = {0};
    float row = 0;
    const struct store_pull pull = {.table = 0, .count = 1, .keys = &key, .rows = &row};
    CHECK_OK(store_pull(store, &pull, NULL, &err));
    return row;
}

static int keep(struct ps_sum *sum, uint64_t slot, uint64_t examples, uint32_t cols,
                const float *rows, struct err *err)
{
    static const uint64_t keys[] = {1, 2};
    const struct msg_block block = {.count = 2, .cols = cols, .keys = keys, .rows = rows};
    const struct msg msg = {.type = MSG_PUSH,
                            .blocks = &block,
                            .blocks_count = 1,
                            .push = {.stream = slot, .count = examples}};
    return ps_sum_keep(sum, &msg, err);
}

/* The named slots are added in their order and divided by all their examples; others do not count, a
 * slot counts once, and a step that comes twice changes nothing. */
TEST(the_named_set_is_averaged_over_examples)
{
    struct err err = {0};
    struct ps_sum *sum = NULL;
    struct store *store = make_store();
    CHECK_OK(ps_sum_create(&sum, &err));
    CHECK_OK(keep(sum, 2, 3, 1, (const float[]){-8, -4}, &err));
    CHECK_OK(keep(sum, 0, 1, 1, (const float[]){-4, 0}, &err));
    CHECK_OK(keep(sum, 0, 1, 1, (const float[]){-400, -400}, &err));
    CHECK_OK(keep(sum, 1, 9, 1, (const float[]){-99, -99}, &err));
    CHECK_INT(ps_sum_count(sum), 3);
    const uint64_t slots[] = {0, 2};
    CHECK_OK(ps_sum_apply(sum, slots, 2, 5, store, &err));
    CHECK_OK(ps_sum_apply(sum, slots, 2, 5, store, &err));
    CHECK(value_of(store, 1) == 3);
    CHECK(value_of(store, 2) == 1);
    CHECK(value_of(store, 3) == 0);
    ps_sum_destroy(sum);
    store_destroy(store);
}

/* Nobody had data: nothing moves. Rows of the wrong width are refused. */
TEST(no_examples_and_wrong_rows)
{
    struct err err = {0};
    struct ps_sum *sum = NULL;
    struct store *store = make_store();
    const uint64_t slot = 0;
    CHECK_OK(ps_sum_create(&sum, &err));
    CHECK_OK(keep(sum, 0, 0, 1, (const float[]){-8, -4}, &err));
    CHECK_OK(ps_sum_apply(sum, &slot, 1, 0, store, &err));
    CHECK(value_of(store, 1) == 0);
    ps_sum_clear(sum);
    CHECK(!ps_sum_has(sum, 0));
    CHECK_OK(keep(sum, 0, 1, 2, (const float[]){1, 2, 3, 4}, &err));
    CHECK_INT(ps_sum_apply(sum, &slot, 1, 0, store, &err), SHOAL_EPROTO);
    ps_sum_destroy(sum);
    store_destroy(store);
}

TEST(keeping_survives_lack_of_memory)
{
    for (uint64_t nth = 1;; nth++) {
        struct err err = {0};
        struct ps_sum *sum = NULL;
        mem_fail_nth(nth);
        int rc = ps_sum_create(&sum, &err);
        if (rc == 0) rc = keep(sum, 0, 1, 1, (const float[]){1, 1}, &err);
        const bool has_failed = mem_fail_nth(0);
        ps_sum_destroy(sum);
        CHECK_INT(mem_bytes(MEM_CLUSTER), 0);
        if (!has_failed) break;
        CHECK_INT(rc, SHOAL_ENOMEM);
    }
}
