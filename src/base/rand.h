/* rand is counter-based: Philox4x32-10 (Salmon et al., SC '11). A value is a pure function of
 * (seed, what, step, index), so that any thread, process or restarted run draws the same, on any
 * machine and under any SHOAL_ISA. `what` names the use (RAND_DROPOUT, ...) so that uses never
 * share numbers. Pure functions, any thread.
 *
 * Two ways to count. A *block* is the four words of one counter: rand_philox, rand_u64, rand_below
 * and rand_normal take the number of a block. An *element* is one word: element i is word i % 4 of
 * block i / 4; the fills and rand_truncated_normal take the number of an element, so that cutting a
 * range anywhere gives the same values. */
#ifndef SHOAL_BASE_RAND_H
#define SHOAL_BASE_RAND_H

#include <stddef.h>
#include <stdint.h>

enum rand_what {
    RAND_INIT = 1, /* initial values: step = hash of the table's name (and key), index = element */
    RAND_DROPOUT,  /* what + layer number << 8; step = global step, index = row * width + column */
    RAND_SHUFFLE,  /* leases and file order: step = epoch << 32 | lease, index = position */
    RAND_GEN,      /* synthetic data */
    RAND_TEST,
    RAND_USER
};

/* The bare generator, as published: ten rounds over a 128-bit counter with a 64-bit key. */
void rand_philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Four 32-bit values. key = mix of (seed, what), counter = (index, step). */
void rand_philox(uint64_t seed, uint32_t what, uint64_t step, uint64_t index, uint32_t out[4]);

/* Elements index_first .. index_first + count - 1, many at a time: for tight loops. */
void rand_philox_fill(uint64_t seed, uint32_t what, uint64_t step, uint64_t index_first,
                      size_t count, uint32_t *out);

uint64_t rand_u64(uint64_t seed, uint32_t what, uint64_t step, uint64_t index);

/* Uniform in 0 .. bound-1 without bias worth the name (at most bound / 2^64); bound 0 is a bug. */
uint64_t rand_below(uint64_t seed, uint32_t what, uint64_t step, uint64_t index, uint64_t bound);

/* Uniform in [0,1) with 24 bits, from the top of a 32-bit value. */
static inline float rand_unit(uint32_t bits)
{
    return (float)(bits >> 8) * (1.0f / 16777216.0f);
}

/* Standard normal from two words of the block (Box-Muller with our own log, sin and cos: the same
 * bits on every machine). */
float rand_normal(uint64_t seed, uint32_t what, uint64_t step, uint64_t index);

/* Standard normal, mean 0 and deviation 1 before cutting, given |x| < 2: the distribution that
 * redrawing until |x| < 2 has, by inverting its distribution function, so that one element gives
 * one value. */
float rand_truncated_normal(uint64_t seed, uint32_t what, uint64_t step, uint64_t index);
void rand_truncated_normal_fill(uint64_t seed, uint32_t what, uint64_t step, uint64_t index_first,
                                size_t count, float *out);

/* A permutation of 0..count-1 (Fisher-Yates), the same for the same (seed, what, step). */
void rand_permutation(uint64_t seed, uint32_t what, uint64_t step, uint32_t *items, uint32_t count);

#endif
