#include <immintrin.h>
#include <string.h>

#include "base/rand_kernel.h"

/* Integers only, so every instruction set gives the same bits. A 32-bit word of a block sits in the
 * low half of a 64-bit lane, one lane a block: the multiplication of 32 by 32 to 64 bits then gives
 * both halves of Philox's product at once, and reads only the low halves of its inputs, so that
 * what gathers in the high halves never matters until the end. */

#if defined(ISA_avx512)
typedef __m512i vec;
#define MUL _mm512_mul_epu32
#elif defined(ISA_avx2)
typedef __m256i vec;
#define MUL _mm256_mul_epu32
#else
typedef __m128i vec;
#define MUL _mm_mul_epu32
#endif

typedef uint64_t lanes __attribute__((vector_size(sizeof(vec)), may_alias));
#define LANES (sizeof(vec) / 8)
#define SETS (RAND_GROUP / LANES < 2 ? 1 : 2) /* in flight together, to hide latency */

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

static inline lanes mul(lanes a, uint64_t b)
{
    return (lanes)MUL((vec)a, (vec)((lanes){0} + b));
}

/* SETS * LANES blocks from number `first` on. */
static inline void fill_sets(uint64_t key, uint64_t step, uint64_t first, uint32_t *out)
{
    lanes c0[SETS], c1[SETS], c2[SETS], c3[SETS];
    for (size_t set = 0; set < SETS; set++) {
        lanes number;
        for (size_t lane = 0; lane < LANES; lane++) number[lane] = set * LANES + lane;
        number += first;
        c0[set] = number;
        c1[set] = number >> 32;
        c2[set] = (lanes){0} + step;
        c3[set] = c2[set] >> 32;
    }
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        for (size_t set = 0; set < SETS; set++) {
            const lanes product0 = mul(c0[set], PHILOX_M0);
            const lanes product1 = mul(c2[set], PHILOX_M1);
            c0[set] = (product1 >> 32) ^ c1[set] ^ k0;
            c1[set] = product1;
            c2[set] = (product0 >> 32) ^ c3[set] ^ k1;
            c3[set] = product0;
        }
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    for (size_t set = 0; set < SETS; set++) {
        uint64_t low[LANES], high[LANES]; /* words 0 and 1, words 2 and 3 of each block */
        const lanes words01 = (c0[set] & 0xffffffffu) | (c1[set] << 32);
        const lanes words23 = (c2[set] & 0xffffffffu) | (c3[set] << 32);
        memcpy(low, &words01, sizeof low);
        memcpy(high, &words23, sizeof high);
        for (size_t lane = 0; lane < LANES; lane++, out += 4) {
            memcpy(out, &low[lane], 8);
            memcpy(out + 2, &high[lane], 8);
        }
    }
}

void JOIN(rand_fill_, ISA)(uint64_t key, uint64_t step, uint64_t block_first, size_t groups,
                           uint32_t *out)
{
    const size_t blocks = groups * RAND_GROUP;
    for (size_t block = 0; block < blocks; block += SETS * LANES, out += 4 * SETS * LANES) {
        fill_sets(key, step, block_first + block, out);
    }
}
