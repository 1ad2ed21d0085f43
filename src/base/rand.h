/* rand is counter-based: Philox4x32-10 (Salmon et al., SC '11). A value is a pure function of
 * (seed, what, step, index), so that any thread, process or restarted run draws the same.
 * `what` names the use (RAND_DROPOUT, ...) so that uses never share numbers. */
#ifndef SHOAL_BASE_RAND_H
#define SHOAL_BASE_RAND_H

#include <stdint.h>

enum rand_what {
    RAND_INIT = 1, /* initial values: step = hash of the table's name, index = element or key */
    RAND_DROPOUT,  /* what + layer number << 8; step = global step, index = row * width + column */
    RAND_SHUFFLE,  /* leases and file order: step = epoch << 32 | lease, index = position */
    RAND_GEN,      /* synthetic data */
    RAND_TEST,
    RAND_USER
};

/* Four 32-bit values. key = (seed, what), counter = (step, index). */
void rand_philox(uint64_t seed, uint32_t what, uint64_t step, uint64_t index, uint32_t out[4]);

uint64_t rand_u64(uint64_t seed, uint32_t what, uint64_t step, uint64_t index);
uint64_t rand_below(uint64_t seed, uint32_t what, uint64_t step, uint64_t index, uint64_t bound);

/* Uniform in [0,1) with 24 bits, from the top of a 32-bit value. */
static inline float rand_unit(uint32_t bits)
{
    return (float)(bits >> 8) * (1.0f / 16777216.0f);
}

/* Standard normal from two of the four words (Box-Muller with our own log, sin and cos: the same
 * bits on every machine); truncated: redrawn from the next words while |x| >= 2. */
float rand_normal(uint64_t seed, uint32_t what, uint64_t step, uint64_t index);
float rand_truncated_normal(uint64_t seed, uint32_t what, uint64_t step, uint64_t index);

/* A permutation of 0..count-1 (Fisher-Yates), the same for the same (seed, what, step). */
void rand_permutation(uint64_t seed, uint32_t what, uint64_t step, uint32_t *items, uint32_t count);

#endif
