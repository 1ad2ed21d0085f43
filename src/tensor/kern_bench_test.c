#include "tensor/kern_bench.h"

#include "../tests/test.h"
#include "base/mem.h"

struct seen {
    uint32_t cases;
    bool sound;
};

static void note(void *ctx, const struct kern_bench_result *result)
{
    struct seen *seen = ctx;
    seen->cases++;
    seen->sound &= result->median > 0 && result->min <= result->max && result->repeats == 1;
}

/* Every kind of case gives figures, and a name picks those that have it. */
TEST(bench_reports_the_cases_asked_for)
{
    static const char *const names[] = {"512x64x16", "attention", "adagrad", "dropout", "sigmoid"};
    static const uint32_t cases[] = {3, 2, 1, 1, 2};
    for (int i = 0; i < 5; i++) {
        struct err err;
        struct seen seen = {.sound = true};
        CHECK_OK(kern_bench(&(struct kern_bench_opts){.only = names[i], .repeats = 1}, note, &seen,
                            &err));
        CHECK_INT(seen.cases, cases[i]);
        CHECK(seen.sound);
    }
}

TEST(bench_without_memory_says_so)
{
    for (uint64_t nth = 1; nth <= 2; nth++) {
        struct err err;
        struct seen seen = {.sound = true};
        mem_fail_nth(nth);
        CHECK_INT(kern_bench(&(struct kern_bench_opts){.only = "none"}, note, &seen, &err),
                  SHOAL_ENOMEM);
        CHECK(mem_fail_nth(0));
        CHECK_INT(mem_bytes(MEM_TENSOR), 0);
    }
}
