#include "train/exact_sum.h"

#include <stdlib.h>

#include "../tests/test.h"

static uint64_t random_state = 1;

static uint64_t next_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 11;
}

/* Values of very different sizes and both signs. */
static double next_value(void)
{
    const double unit = (double)next_random() * 0x1p-53 - 0.5;
    return ldexp(unit, (int)(next_random() % 200) - 100);
}

TEST(sums_of_values_that_doubles_would_lose_are_exact)
{
    static const struct {
        const char *name;
        double values[5];
        double want;
    } cases[] = {
        {"nothing", {0}, 0},
        {"one", {1.5}, 1.5},
        {"small beside large", {1e100, 1, -1e100}, 1},
        {"smallest of all kept", {0x1p-384, 0x1p-384}, 0x1p-383},
        {"below the lowest bit is cut", {0x1p-385, 0x1p-385}, 0},
        {"negative", {-3, 1}, -2},
        {"cancels", {0.1, 0.2, -0.2, -0.1}, 0},
        {"largest", {0x1.fffffffffffffp349, 0x1.fffffffffffffp349}, 0x1.fffffffffffffp350},
        {"rounds to even once", {1, 0x1p-53, 0}, 1},
        {"sticky bit", {1, 0x1p-53, 0x1p-300}, 0x1.0000000000001p0},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct exact_sum sum = {0};
        for (int i = 0; i < 5; i++) exact_sum_add(&sum, cases[c].values[i]);
        const double got = exact_sum_value(&sum);
        if (got != cases[c].want) {
            test_fail(__FILE__, __LINE__, "%s: got %a, want %a", cases[c].name, got, cases[c].want);
        }
    }
}

/* However the values are ordered and split into parts, the result has the same bits. */
TEST(any_order_and_split_gives_the_same_bits)
{
    enum { COUNT = 3000 };
    static double values[COUNT];
    struct exact_sum whole = {0};
    for (int i = 0; i < COUNT; i++) {
        values[i] = next_value();
        exact_sum_add(&whole, values[i]);
    }
    const double want = exact_sum_value(&whole);
    for (int round = 0; round < 20; round++) {
        for (int i = COUNT - 1; i > 0; i--) {
            const int j = (int)(next_random() % (uint64_t)(i + 1));
            const double swap = values[i];
            values[i] = values[j];
            values[j] = swap;
        }
        struct exact_sum parts[7] = {{{0}, 0, 0}};
        for (int i = 0; i < COUNT; i++) exact_sum_add(&parts[next_random() % 7], values[i]);
        for (int part = 6; part > 0; part--) exact_sum_merge(&parts[part - 1], &parts[part]);
        const double got = exact_sum_value(&parts[0]);
        if (memcmp(&got, &want, sizeof got) != 0) {
            test_fail(__FILE__, __LINE__, "got %a, want %a", got, want);
        }
    }
}

TEST(what_is_not_finite_stays_not_finite)
{
    struct exact_sum sum = {0};
    exact_sum_add(&sum, 1);
    exact_sum_add(&sum, INFINITY);
    CHECK(exact_sum_value(&sum) == INFINITY);
    exact_sum_add(&sum, -INFINITY);
    CHECK(isnan(exact_sum_value(&sum)));
    struct exact_sum other = {0};
    exact_sum_merge(&other, &sum);
    CHECK(isnan(exact_sum_value(&other)));
    struct exact_sum large = {0};
    exact_sum_add(&large, -0x1p350);
    CHECK(exact_sum_value(&large) == -INFINITY);
}
