#include "store/store_bench.h"

#include "../tests/test.h"
#include "base/mem.h"

/* A small run of each benchmark checks its own results and gives sensible figures. */
TEST(small_runs)
{
    const struct store_bench_opts opts = {.rows = 20000, .keys = 1000, .repeats = 3};
    struct store_bench_result result;
    struct err err;
    CHECK_OK(store_bench_lookup(&opts, &result, &err));
    CHECK_INT(result.repeats, 3);
    CHECK(result.rows_per_second_median > 0);
    CHECK_OK(store_bench_push(&opts, &result, &err));
    CHECK(result.rows_per_second_median > 0);
    const struct store_bench_opts grow = {.rows = 300000, .keys = 1000};
    CHECK_OK(store_bench_grow(&grow, &result, &err));
    CHECK(result.held_bytes_per_row > 12);
    CHECK(result.held_bytes_per_row < 20);
    CHECK(result.request_ms_max > 0);
    CHECK_INT(mem_bytes(MEM_STORE), 0);
}

TEST(wrong_sizes_are_refused)
{
    const struct store_bench_opts wrong[] = {
        {.rows = 10, .keys = 11},
        {.rows = 100, .keys = 10, .repeats = STORE_BENCH_REPEATS_MAX + 1},
    };
    struct store_bench_result result;
    struct err err;
    for (int i = 0; i < 2; i++) {
        CHECK_INT(store_bench_lookup(&wrong[i], &result, &err), SHOAL_EINVAL);
        CHECK_INT(store_bench_push(&wrong[i], &result, &err), SHOAL_EINVAL);
        CHECK_INT(store_bench_grow(&wrong[i], &result, &err), SHOAL_EINVAL);
    }
    const struct store_bench_opts many = {.rows = 100, .keys = 60, .repeats = 2};
    CHECK_INT(store_bench_push(&many, &result, &err), SHOAL_EINVAL);
    CHECK_INT(mem_bytes(MEM_STORE), 0);
}
