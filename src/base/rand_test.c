#include "base/rand.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../tests/test.h"
#include "base/cpu.h"
#include "base/hash.h"

/* The generator gives the known answers of its authors (Random123's kat_vectors, philox4x32 10). */
TEST(philox_gives_the_published_answers)
{
    static const struct {
        const char *name;
        uint32_t counter[4], key[2], want[4];
    } rows[] = {
        {"zeros", {0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {"ones",
         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {"pi",
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t got[4];
        rand_philox_block(rows[i].counter, rows[i].key, got);
        if (memcmp(got, rows[i].want, sizeof got) != 0) {
            test_fail(__FILE__, __LINE__, "%s: got %08x %08x %08x %08x", rows[i].name, got[0],
                      got[1], got[2], got[3]);
        }
    }
}

/* Another seed, use, step or index is another value. */
TEST(every_part_of_the_name_matters)
{
    const uint64_t base = rand_u64(1, RAND_TEST, 2, 3);
    CHECK(base == rand_u64(1, RAND_TEST, 2, 3));
    CHECK(base != rand_u64(2, RAND_TEST, 2, 3));
    CHECK(base != rand_u64(1, RAND_GEN, 2, 3));
    CHECK(base != rand_u64(1, RAND_TEST, 3, 3));
    CHECK(base != rand_u64(1, RAND_TEST, 2, 4));
    CHECK(base != rand_u64(1, RAND_TEST, (uint64_t)2 << 32, 3));
    CHECK(base != rand_u64(1, RAND_TEST, 2, (uint64_t)3 << 32));
}

/* A fill is the words of the blocks in order, wherever it starts and ends, also where the index
 * passes 32 bits. */
TEST(fill_equals_single_blocks)
{
    static const uint64_t firsts[] = {0, 1, 2, 3, 4, 63, 64, 1001, 0x3fffffff0u, 0x3ffffffffu};
    static const size_t counts[] = {0, 1, 3, 4, 5, 63, 64, 65, 128, 200, 1000};
    enum { GUARD = 0x5a5a5a5a };
    for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            uint32_t got[1001];
            got[counts[c]] = GUARD;
            rand_philox_fill(7, RAND_TEST, 9, firsts[f], counts[c], got);
            CHECK_INT(got[counts[c]], GUARD);
            for (size_t i = 0; i < counts[c]; i++) {
                const uint64_t element = firsts[f] + i;
                uint32_t block[4];
                rand_philox(7, RAND_TEST, 9, element / 4, block);
                CHECK_INT(got[i], block[element % 4]);
            }
        }
    }
}

#define DIGEST 0x687a022b34d2a633u

/* A checksum of all kinds of values: what every instruction set must agree on. */
static uint64_t digest(void)
{
    static uint32_t words[4099];
    static float values[4099];
    rand_philox_fill(3, RAND_TEST, 1, 2, 4099, words);
    rand_truncated_normal_fill(3, RAND_TEST, 1, 2, 4099, values);
    uint64_t sum =
        hash_fingerprint64(words, sizeof words) ^ hash_fingerprint64(values, sizeof values);
    for (uint64_t i = 0; i < 100; i++) {
        const float normal = rand_normal(3, RAND_TEST, 1, i);
        sum = hash_fingerprint_cat64(sum, hash_fingerprint64(&normal, sizeof normal));
    }
    return sum;
}

/* The same bits under every instruction set that this machine has, and on every machine: the digest
 * is part of what a seed means. */
TEST(values_are_the_same_under_every_isa)
{
    for (int isa = CPU_PLAIN; isa < CPU_ISA_COUNT; isa++) {
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            struct err err = {0};
            setenv("SHOAL_ISA", cpu_isa_name((enum cpu_isa)isa), 1);
            if (cpu_isa_check(&err) != 0) _exit(0); /* not on this machine */
            const unsigned long long got = digest();
            if (got == DIGEST) _exit(0);
            fprintf(stderr, "  %s: digest %#llx\n", cpu_isa_name((enum cpu_isa)isa), got);
            _exit(1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* rand_unit covers [0,1) and never reaches 1. */
TEST(unit_is_half_open)
{
    CHECK(rand_unit(0) == 0.0f);
    CHECK(rand_unit(UINT32_MAX) < 1.0f);
    CHECK_NEAR(rand_unit(0x80000000u), 0.5, 0);
}

/* rand_below stays below, reaches everything, evenly. */
TEST(below_is_even)
{
    uint32_t counts[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) counts[rand_below(1, RAND_TEST, 0, i, 7)]++;
    for (int i = 0; i < 7; i++) CHECK(counts[i] > 9500 && counts[i] < 10500);
    for (uint64_t i = 0; i < 100; i++) CHECK_INT(rand_below(1, RAND_TEST, 0, i, 1), 0);
    CHECK(rand_below(1, RAND_TEST, 0, 0, UINT64_MAX) < UINT64_MAX);
}

/* Mean, variance and kurtosis of many values. */
struct moments {
    double mean, variance, fourth, largest;
};

static struct moments moments_of(const float *values, size_t count)
{
    struct moments m = {0};
    for (size_t i = 0; i < count; i++) {
        const double x = values[i];
        m.mean += x / (double)count;
        m.variance += x * x / (double)count;
        m.fourth += x * x * x * x / (double)count;
        if (fabs(x) > m.largest) m.largest = fabs(x);
    }
    return m;
}

#define MANY 400000

/* rand_normal has the moments of the normal distribution, and its tails. */
TEST(normal_is_normal)
{
    static float values[MANY];
    for (uint64_t i = 0; i < MANY; i++) values[i] = rand_normal(5, RAND_TEST, 0, i);
    const struct moments m = moments_of(values, MANY);
    CHECK_NEAR(m.mean, 0, 0.01);
    CHECK_NEAR(m.variance, 1, 0.01);
    CHECK_NEAR(m.fourth, 3, 0.06);
    CHECK(m.largest > 4 && m.largest < 7);
}

/* Its logarithm, root and cosine are those of libm to float precision: recompute some values. */
TEST(normal_agrees_with_libm)
{
    for (uint64_t i = 0; i < 10000; i++) {
        uint32_t words[4];
        rand_philox(5, RAND_TEST, 0, i, words);
        const double u = ((double)words[0] + 1) / 4294967296.0;
        const double want = sqrt(-2 * log(u)) * cos(2 * M_PI * (double)words[1] / 4294967296.0);
        CHECK_NEAR(rand_normal(5, RAND_TEST, 0, i), want, 1e-6);
    }
}

/* The truncated normal stays below 2 and has the moments of the normal given |x| < 2; single values
 * are those of the fill. */
TEST(truncated_normal_has_its_moments)
{
    static float values[MANY];
    rand_truncated_normal_fill(5, RAND_TEST, 0, 3, MANY, values);
    const struct moments m = moments_of(values, MANY);
    CHECK_NEAR(m.mean, 0, 0.005);
    CHECK_NEAR(m.variance, 0.7737413, 0.005);
    CHECK_NEAR(m.fourth, 1.4161891, 0.02);
    CHECK(m.largest < 2 && m.largest > 1.9995);
    for (uint64_t i = 0; i < 1000; i++) {
        CHECK(values[i] == rand_truncated_normal(5, RAND_TEST, 0, 3 + i));
    }
}

/* The truncated normal's quantiles are right all along, not only on average: by the distribution
 * function, sorted into tenths. */
TEST(truncated_normal_has_its_quantiles)
{
    static float values[MANY];
    uint32_t tenths[10] = {0};
    rand_truncated_normal_fill(6, RAND_TEST, 1, 0, MANY, values);
    const double reach = erf(sqrt(2));
    for (size_t i = 0; i < MANY; i++) {
        const double p = 0.5 + 0.5 * erf((double)values[i] / sqrt(2)) / reach;
        CHECK(p >= 0 && p <= 1);
        tenths[p < 1 ? (int)(p * 10) : 9]++;
    }
    for (int i = 0; i < 10; i++) CHECK(tenths[i] > MANY / 10 - 900 && tenths[i] < MANY / 10 + 900);
}

/* A permutation has every number once, repeats for the same name, and differs for another. */
TEST(permutation_has_everything_once)
{
    static uint32_t items[1000], again[1000];
    bool seen[1000] = {0};
    rand_permutation(1, RAND_SHUFFLE, 5, items, 1000);
    for (int i = 0; i < 1000; i++) {
        CHECK(items[i] < 1000 && !seen[items[i]]);
        seen[items[i]] = true;
    }
    rand_permutation(1, RAND_SHUFFLE, 5, again, 1000);
    CHECK(memcmp(items, again, sizeof items) == 0);
    rand_permutation(1, RAND_SHUFFLE, 6, again, 1000);
    CHECK(memcmp(items, again, sizeof items) != 0);
    rand_permutation(1, RAND_SHUFFLE, 5, again, 0);
    rand_permutation(1, RAND_SHUFFLE, 5, again, 1);
    CHECK_INT(again[0], 0);
}
