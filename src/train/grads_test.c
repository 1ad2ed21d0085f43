#include "train/grads.h"

#include "../tests/test.h"
#include "base/mem.h"

static struct grads *make(void)
{
    struct err err = {0};
    struct grads *grads = NULL;
    const uint64_t sizes[] = {3, 1};
    const uint32_t cols[] = {2};
    CHECK_OK(grads_create(&(struct grads_opts){.params_count = 2,
                                               .tables_count = 1,
                                               .param_sizes = sizes,
                                               .table_cols = cols},
                          &grads, &err));
    return grads;
}

/* Rows of equal keys are summed, keys come out ascending, and all is scaled. */
TEST(rows_of_equal_keys_are_summed)
{
    struct err err = {0};
    struct grads *grads = make();
    grads_clear(grads);
    const uint64_t first[] = {9, 2};
    const float first_rows[] = {1, 2, 3, 4};
    const uint64_t second[] = {2, UINT64_MAX, 0};
    const float second_rows[] = {10, 20, -1, 30, 40, -1, 50, 60, -1}; /* stride 3 */
    CHECK_OK(grads_add_rows(grads, 0, first, first_rows, 2, 2, &err));
    CHECK_OK(grads_add_rows(grads, 0, second, second_rows, 3, 3, &err));
    grads_params(grads)[0][1] = 8;
    CHECK_OK(grads_finish(grads, 0.5, 0, NULL, &err));
    const struct grads_rows rows = grads_rows(grads, 0);
    const uint64_t keys[] = {0, 2, 9, UINT64_MAX};
    const float want[] = {25, 30, 6.5f, 12, 0.5f, 1, 15, 20};
    CHECK_INT(rows.count, 4);
    for (int i = 0; i < 4; i++) CHECK(rows.keys[i] == keys[i]);
    for (int i = 0; i < 8; i++) CHECK_NEAR(rows.rows[i], want[i], 0);
    CHECK_NEAR(grads_params(grads)[0][1], 4, 0);
    grads_clear(grads);
    CHECK_OK(grads_finish(grads, 1, 0, NULL, &err));
    CHECK_INT(grads_rows(grads, 0).count, 0);
    grads_destroy(grads);
}

/* A norm above the limit is brought down to it, one below is left alone. */
TEST(global_norm_is_clipped)
{
    struct err err = {0};
    struct grads *grads = make();
    double norm = 0;
    const uint64_t key = 5;
    const float row[] = {4, 4};
    for (int large = 0; large <= 1; large++) {
        grads_clear(grads);
        grads_params(grads)[0][0] = 4;
        grads_params(grads)[1][0] = 4;
        CHECK_OK(grads_add_rows(grads, 0, &key, row, 1, 2, &err));
        CHECK_OK(grads_finish(grads, 1, large ? 2 : 100, &norm, &err));
        CHECK_NEAR(norm, 8, 1e-6);
        CHECK_NEAR(grads_params(grads)[0][0], large ? 1 : 4, 1e-6);
        CHECK_NEAR(grads_rows(grads, 0).rows[1], large ? 1 : 4, 1e-6);
    }
    grads_destroy(grads);
}

/* Out of memory anywhere is an error, and nothing leaks. */
TEST(every_allocation_may_fail)
{
    for (uint64_t nth = 1;; nth++) {
        struct err err = {0};
        struct grads *grads = NULL;
        const uint64_t sizes[] = {3};
        const uint32_t cols[] = {1};
        const uint64_t keys[] = {1, 2};
        const float rows[] = {1, 2};
        const size_t before = mem_bytes_total();
        mem_fail_nth(nth);
        int rc = grads_create(&(struct grads_opts){.params_count = 1,
                                                   .tables_count = 1,
                                                   .param_sizes = sizes,
                                                   .table_cols = cols},
                              &grads, &err);
        if (rc == 0) rc = grads_add_rows(grads, 0, keys, rows, 2, 1, &err);
        if (rc == 0) rc = grads_finish(grads, 1, 0, NULL, &err);
        grads_destroy(grads);
        CHECK_INT(mem_bytes_total(), before);
        if (!mem_fail_nth(0)) {
            CHECK_INT(rc, 0);
            break;
        }
        CHECK_INT(rc, SHOAL_ENOMEM);
    }
}
