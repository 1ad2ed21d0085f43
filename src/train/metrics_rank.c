#include "train/metrics_rank.h"

#include <math.h>

#include "base/assert.h"

enum { DIGITS_MAX = 16 }; /* bytes of the longest item */

/* Least significant byte first; all histograms in one reading, and a byte that is the same in all
 * items (weights of 1, the top of predictions) costs no pass. */
uint64_t *rank_sort(uint64_t *items, uint64_t *temp, size_t count, uint32_t words)
{
    ASSERT(words == 1 || words == 2);
    size_t starts[DIGITS_MAX][256];
    memset(starts, 0, sizeof starts);
    for (size_t i = 0; i < count * words; i++) {
        const size_t first_digit = i % words * 8;
        for (uint32_t byte = 0; byte < 8; byte++) {
            starts[first_digit + byte][items[i] >> (8 * byte) & 0xff]++;
        }
    }
    for (uint32_t digit = 0; count > 0 && digit < words * 8; digit++) {
        const uint32_t word = digit / 8;
        const uint32_t shift = digit % 8 * 8;
        size_t *start = starts[digit];
        if (start[items[word] >> shift & 0xff] == count) continue;
        size_t sum = 0;
        for (int value = 0; value < 256; value++) {
            const size_t here = start[value];
            start[value] = sum;
            sum += here;
        }
        for (size_t i = 0; i < count; i++) {
            const uint64_t *item = items + i * words;
            uint64_t *to = temp + start[item[word] >> shift & 0xff]++ * words;
            to[0] = item[0];
            if (words == 2) to[1] = item[1];
        }
        uint64_t *swap = items;
        items = temp;
        temp = swap;
    }
    return items;
}

double rank_auc(const uint64_t *sorted, size_t count)
{
    double area = 0; /* sum over positives of the negatives below them */
    double positives = 0;
    double negatives = 0;
    for (size_t i = 0; i < count;) {
        const uint32_t tie = rank_prediction_bits(sorted[i]);
        double tie_positives = 0;
        double tie_negatives = 0;
        for (; i < count && rank_prediction_bits(sorted[i]) == tie; i++) {
            const double weight = (double)rank_weight(sorted[i]);
            if (rank_is_positive(sorted[i])) {
                tie_positives += weight;
            } else {
                tie_negatives += weight;
            }
        }
        area += tie_positives * (negatives + 0.5 * tie_negatives);
        positives += tie_positives;
        negatives += tie_negatives;
    }
    return positives > 0 && negatives > 0 ? area / (positives * negatives) : NAN;
}

static double discounts(uint64_t first_place, uint64_t end_place)
{
    double sum = 0;
    for (uint64_t place = first_place; place < end_place; place++) {
        sum += 1 / log2((double)place + 2); /* places count from 0 here */
    }
    return sum;
}

double rank_ndcg(const uint64_t *sorted, size_t count, uint32_t k)
{
    ASSERT(k >= 1);
    uint64_t relevant = 0;
    for (size_t i = 0; i < count; i++) relevant += rank_is_positive(sorted[i]);
    if (relevant == 0) return NAN;
    double gained = 0;
    for (size_t end = count; end > 0 && count - end < k;) {
        const uint32_t tie = rank_prediction_bits(sorted[end - 1]);
        const uint64_t first_place = count - end;
        uint64_t tie_relevant = 0;
        for (; end > 0 && rank_prediction_bits(sorted[end - 1]) == tie; end--) {
            tie_relevant += rank_is_positive(sorted[end - 1]);
        }
        const uint64_t end_place = count - end;
        gained += (double)tie_relevant / (double)(end_place - first_place) *
                  discounts(first_place, end_place < k ? end_place : k);
    }
    return gained / discounts(0, relevant < k ? relevant : k);
}
