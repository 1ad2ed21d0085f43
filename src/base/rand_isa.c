#include "base/rand_kernel.h"

/* Integers only, so every instruction set gives the same bits. Word w of block b is lane b of the
 * array cw: each line below is one vector operation over a group of blocks. */

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

static inline uint32_t high(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

void JOIN(rand_fill_, ISA)(uint64_t key, uint64_t step, uint64_t block_first, size_t groups,
                           uint32_t *out)
{
    for (size_t group = 0; group < groups; group++, out += 4 * RAND_GROUP) {
        uint32_t c0[RAND_GROUP], c1[RAND_GROUP], c2[RAND_GROUP], c3[RAND_GROUP];
        const uint64_t first = block_first + group * RAND_GROUP;
        for (uint32_t b = 0; b < RAND_GROUP; b++) {
            c0[b] = (uint32_t)first + b;
            c1[b] = (uint32_t)(first >> 32) + (c0[b] < b); /* carry */
            c2[b] = (uint32_t)step;
            c3[b] = (uint32_t)(step >> 32);
        }
        uint32_t k0 = (uint32_t)key;
        uint32_t k1 = (uint32_t)(key >> 32);
        for (int round = 0; round < PHILOX_ROUNDS; round++) {
            for (uint32_t b = 0; b < RAND_GROUP; b++) {
                const uint32_t high0 = high(PHILOX_M0, c0[b]);
                const uint32_t high1 = high(PHILOX_M1, c2[b]);
                const uint32_t low0 = PHILOX_M0 * c0[b];
                const uint32_t low1 = PHILOX_M1 * c2[b];
                c0[b] = high1 ^ c1[b] ^ k0;
                c1[b] = low1;
                c2[b] = high0 ^ c3[b] ^ k1;
                c3[b] = low0;
            }
            k0 += PHILOX_W0;
            k1 += PHILOX_W1;
        }
        for (uint32_t b = 0; b < RAND_GROUP; b++) {
            out[4 * b + 0] = c0[b];
            out[4 * b + 1] = c1[b];
            out[4 * b + 2] = c2[b];
            out[4 * b + 3] = c3[b];
        }
    }
}
