#include "base/rand.h"

#include <string.h>

#include "base/assert.h"
#include "base/cpu.h"
#include "base/hash.h"
#include "base/rand_kernel.h"

void rand_philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t product0 = (uint64_t)PHILOX_M0 * c0;
        const uint64_t product1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Bijective in the seed for each `what`, and in `what` for each seed: uses never share a key. */
static uint64_t key_of(uint64_t seed, uint32_t what)
{
    return hash_mix64(seed ^ hash_mix64(what));
}

void rand_philox(uint64_t seed, uint32_t what, uint64_t step, uint64_t index, uint32_t out[4])
{
    const uint64_t key = key_of(seed, what);
    rand_philox_block((const uint32_t[4]){(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)step,
                                          (uint32_t)(step >> 32)},
                      (const uint32_t[2]){(uint32_t)key, (uint32_t)(key >> 32)}, out);
}

static rand_fill_fn *fill_fn(void)
{
    static rand_fill_fn *const table[CPU_ISA_COUNT] = {[CPU_PLAIN] = rand_fill_plain,
                                                       [CPU_AVX2] = rand_fill_avx2,
                                                       [CPU_AVX512] = rand_fill_avx512};
    return table[cpu_isa()];
}

#define GROUP_WORDS (4 * RAND_GROUP)

void rand_philox_fill(uint64_t seed, uint32_t what, uint64_t step, uint64_t index_first,
                      size_t count, uint32_t *out)
{
    rand_fill_fn *fill = fill_fn();
    const uint64_t key = key_of(seed, what);
    uint64_t block = index_first / 4;
    size_t skip = (size_t)(index_first % 4);
    if (skip == 0 && count >= GROUP_WORDS) {
        const size_t groups = count / GROUP_WORDS;
        fill(key, step, block, groups, out);
        block += groups * RAND_GROUP;
        out += groups * GROUP_WORDS;
        count -= groups * GROUP_WORDS;
    }
    /* What is short or starts inside a block goes through a buffer, group by group. */
    while (count > 0) {
        uint32_t group[GROUP_WORDS];
        fill(key, step, block, 1, group);
        const size_t piece = count < GROUP_WORDS - skip ? count : GROUP_WORDS - skip;
        memcpy(out, group + skip, piece * sizeof *out);
        block += RAND_GROUP;
        out += piece;
        count -= piece;
        skip = 0;
    }
}

uint64_t rand_u64(uint64_t seed, uint32_t what, uint64_t step, uint64_t index)
{
    uint32_t words[4];
    rand_philox(seed, what, step, index, words);
    return (uint64_t)words[1] << 32 | words[0];
}

/* The high half of 64 random bits times the bound (Lemire 2019, without the rejection). */
static uint64_t scale_below(uint64_t bits, uint64_t bound)
{
    __extension__ typedef unsigned __int128 u128;
    return (uint64_t)((u128)bits * bound >> 64);
}

uint64_t rand_below(uint64_t seed, uint32_t what, uint64_t step, uint64_t index, uint64_t bound)
{
    ASSERT(bound > 0);
    return scale_below(rand_u64(seed, what, step, index), bound);
}

/* Natural logarithm of x in (0, 1]: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), and
 * log m = 2 atanh((m - 1) / (m + 1)) by its series, |z| < 0.172: good to the last bits. */
static double log_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    const double z = (m - 1) / (m + 1);
    const double z2 = z * z;
    double sum = 0;
    for (int k = 19; k >= 1; k -= 2) sum = sum * z2 + 1.0 / k;
    return 2 * z * sum + exponent * 0.69314718055994531;
}

/* Square root by Newton from a bit-trick start: five steps reach double precision. */
static double sqrt_of(double x)
{
    if (x <= 0) return 0;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits >> 1) + 0x1ff8000000000000u;
    double root;
    memcpy(&root, &bits, sizeof root);
    for (int i = 0; i < 5; i++) root = 0.5 * (root + x / root);
    return root;
}

/* cos(2 pi turn) for turn in [0, 1): folded to an eighth of a turn, then a Taylor series. */
static double cos_of_turn(double turn)
{
    double quarter = turn * 4; /* 0 .. 4 */
    double sign = 1;
    if (quarter >= 2) quarter = 4 - quarter; /* cos is even around half a turn */
    if (quarter > 1) {
        quarter = 2 - quarter;
        sign = -1;
    }
    const double x = quarter * 1.5707963267948966;
    const double x2 = x * x;
    double sum = 0;
    for (int k = 20; k >= 2; k -= 2) sum = (sum + 1) * -x2 / (k * (k - 1));
    return sign * (1 + sum);
}

float rand_normal(uint64_t seed, uint32_t what, uint64_t step, uint64_t index)
{
    uint32_t words[4];
    rand_philox(seed, what, step, index, words);
    const double u = ((double)words[0] + 1) * (1.0 / 4294967296.0); /* (0, 1] */
    const double turn = (double)words[1] * (1.0 / 4294967296.0);
    return (float)(sqrt_of(-2 * log_of(u)) * cos_of_turn(turn));
}

/* Four at a time, in the registers that every machine has: kernels compiled per instruction set
 * would fuse multiplications and additions, and initial values would differ between machines. */
typedef uint32_t words4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float values4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t counts4 __attribute__((vector_size(16)));

/* The quantile of the normal cut at |x| < 2: x = sqrt(2) erfinv(y), y = erf(sqrt(2)) * u with u
 * uniform in (-1, 1). x / y is a smooth even function of y; this rational fit in 1 - y^2 (5/5, at
 * Chebyshev points) is within 4e-7 of it on that range, and has no cancelling terms. */
static values4 truncated_of(words4 bits)
{
    const values4 k = __builtin_convertvector((counts4)(bits >> 8), values4);
    const values4 y = (k - 8388607.5f) * (0.954499736f / 8388608.0f);
    const values4 s = 1.0f - y * y;
    values4 p = 36.0477149f * s + 831.470443f;
    p = p * s + 2102.24158f;
    p = p * s + 1166.88692f;
    p = p * s + 150.833827f;
    p = p * s + 3.12769406f;
    values4 q = 110.607993f * s + 996.667690f;
    q = q * s + 1602.42905f;
    q = q * s + 648.491172f;
    q = q * s + 64.2141168f;
    q = q * s + 1.0f;
    return y * (p / q);
}

float rand_truncated_normal(uint64_t seed, uint32_t what, uint64_t step, uint64_t index)
{
    uint32_t words[4];
    rand_philox(seed, what, step, index / 4, words);
    return truncated_of((words4){words[index % 4]})[0];
}

void rand_truncated_normal_fill(uint64_t seed, uint32_t what, uint64_t step, uint64_t index_first,
                                size_t count, float *out)
{
    uint32_t words[8 * GROUP_WORDS] = {0};
    const size_t words_max = sizeof words / sizeof *words;
    while (count > 0) {
        const size_t piece = count < words_max ? count : words_max;
        rand_philox_fill(seed, what, step, index_first, piece, words);
        size_t i = 0;
        for (; i + 4 <= piece; i += 4) {
            *(values4 *)(out + i) = truncated_of(*(const words4 *)(words + i));
        }
        const values4 rest = truncated_of(*(const words4 *)(words + (i < words_max ? i : 0)));
        for (size_t lane = 0; i + lane < piece; lane++) out[i + lane] = rest[lane];
        index_first += piece;
        out += piece;
        count -= piece;
    }
}

void rand_permutation(uint64_t seed, uint32_t what, uint64_t step, uint32_t *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) items[i] = i;
    for (uint32_t left = count; left > 1; left--) {
        const uint32_t pick = (uint32_t)rand_below(seed, what, step, left, left);
        const uint32_t swap = items[left - 1];
        items[left - 1] = items[pick];
        items[pick] = swap;
    }
}
