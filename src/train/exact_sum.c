#include "train/exact_sum.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

#define LOWEST_EXPONENT (-384)
#define TOO_LARGE 0x1p350
/* A digit grows by less than 2^32 per addition: after 2^30 of them it is still below 2^63. */
#define PENDING_MAX (1u << 30)

static_assert(LOWEST_EXPONENT + 32 * EXACT_SUM_DIGITS >= 350 + 32, "the largest sums must fit");

/* Afterwards every digit but the last is in [0, 2^32): one form for each value. The last one keeps
 * the sign. */
static void normalise(struct exact_sum *sum)
{
    int64_t carry = 0;
    for (int i = 0; i < EXACT_SUM_DIGITS - 1; i++) {
        const int64_t digit = sum->digits[i] + carry;
        sum->digits[i] = digit & 0xffffffff;
        carry = digit >> 32; /* arithmetic: borrows from the next digit when negative */
    }
    sum->digits[EXACT_SUM_DIGITS - 1] += carry;
    sum->pending = 0;
}

void exact_sum_add(struct exact_sum *sum, double value)
{
    if (!(fabs(value) < TOO_LARGE)) {
        sum->special += isnan(value) ? value : copysign(INFINITY, value);
        return;
    }
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7ff);
    if (exponent == 0) return; /* zero, or less than 2^-1022: keeps (1) */
    /* |value| = mantissa * 2^(exponent - 1075) */
    uint64_t mantissa = (bits & 0xfffffffffffffu) | (uint64_t)1 << 52;
    int position = exponent - 1075 - LOWEST_EXPONENT;
    if (position < 0) { /* Keeps (1). */
        mantissa = position > -64 ? mantissa >> -position : 0;
        position = 0;
    }
    const unsigned __int128 wide = (unsigned __int128)mantissa << (position % 32);
    const int64_t sign = value < 0 ? -1 : 1;
    int64_t *digit = sum->digits + position / 32;
    ASSERT(position / 32 + 2 < EXACT_SUM_DIGITS);
    digit[0] += sign * (int64_t)(uint32_t)wide;
    digit[1] += sign * (int64_t)(uint32_t)(wide >> 32);
    digit[2] += sign * (int64_t)(uint32_t)(wide >> 64);
    if (++sum->pending == PENDING_MAX) normalise(sum);
}

void exact_sum_merge(struct exact_sum *into, const struct exact_sum *from)
{
    struct exact_sum other = *from;
    normalise(&other);
    normalise(into);
    for (int i = 0; i < EXACT_SUM_DIGITS; i++) into->digits[i] += other.digits[i];
    normalise(into);
    into->special += other.special;
}

double exact_sum_value(const struct exact_sum *sum)
{
    if (sum->special != 0) return sum->special; /* true for NaN too */
    struct exact_sum whole = *sum;
    normalise(&whole);
    const bool negative = whole.digits[EXACT_SUM_DIGITS - 1] < 0;
    if (negative) {
        for (int i = 0; i < EXACT_SUM_DIGITS; i++) whole.digits[i] = -whole.digits[i];
        normalise(&whole);
    }
    int top = EXACT_SUM_DIGITS - 1;
    while (top > 2 && whole.digits[top] == 0) top--;
    /* The top three digits have at least 65 significant bits unless they are the last ones; one
     * sticky bit for all below makes the conversion round as if it saw everything. */
    unsigned __int128 head = (unsigned __int128)(uint64_t)whole.digits[top] << 64 |
                             (unsigned __int128)(uint64_t)whole.digits[top - 1] << 32 |
                             (unsigned __int128)(uint64_t)whole.digits[top - 2];
    for (int i = 0; i < top - 2; i++) head |= whole.digits[i] != 0;
    const double value = ldexp((double)head, LOWEST_EXPONENT + 32 * (top - 2));
    return negative ? -value : value;
}
