/* exact_sum adds doubles without rounding, so that any order and any split of the same values gives
 * the same bits: what merged metrics need. It is a fixed-point number of 24 digits of 32 bits
 * (Kulisch's accumulator, shortened): lowest bit 2^-384, highest 2^383.
 *
 *     digit:   0                12               23
 *     weight:  2^-384   ...     2^0      ...     2^352
 *
 * (1) Each value is cut to a multiple of 2^-384 by itself, so what is lost never depends on the
 * others. (2) Values of 2^350 and more, infinities and NaN make the sum not finite for good.
 * A plain value: zeroed is the empty sum; copy it freely. One thread at a time. */
#ifndef SHOAL_TRAIN_EXACT_SUM_H
#define SHOAL_TRAIN_EXACT_SUM_H

#include <stdint.h>

#define EXACT_SUM_DIGITS 24

struct exact_sum {
    int64_t digits[EXACT_SUM_DIGITS]; /* each carries up to 31 spare bits until normalised */
    double special;                   /* sum of what is too large or not finite; 0 when none */
    uint64_t pending;                 /* additions since the digits were last normalised */
};

void exact_sum_add(struct exact_sum *sum, double value);
void exact_sum_merge(struct exact_sum *into, const struct exact_sum *from);

/* The sum rounded once, to nearest. */
double exact_sum_value(const struct exact_sum *sum);

#endif
