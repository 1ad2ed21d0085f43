/* metrics_rank holds the pure parts of the ranking metrics: scored examples packed into 64 bits,
 * their sort, and exact AUC and NDCG of a sorted list. No state, no allocation, no threads.
 *
 *     63            32   31     30            0
 *     +---------------+-------+---------------+
 *     | prediction    | label | weight        |    prediction in [0,1] and weight >= 0 as the bits of
 *     +---------------+-------+---------------+    their floats: for such, bit order is number order
 *
 * Sorting the packed words is a total order of what matters: two examples that compare equal are the
 * same, so what is computed over the sorted list never depends on the order they came in. */
#ifndef SHOAL_TRAIN_METRICS_RANK_H
#define SHOAL_TRAIN_METRICS_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* prediction in [0, 1], weight >= 0 and finite. */
static inline uint64_t rank_pack(float prediction, bool positive, float weight)
{
    prediction += 0.0f; /* -0 becomes 0 */
    uint32_t prediction_bits = 0;
    uint32_t weight_bits = 0;
    memcpy(&prediction_bits, &prediction, sizeof prediction_bits);
    memcpy(&weight_bits, &weight, sizeof weight_bits);
    return (uint64_t)prediction_bits << 32 | (uint64_t)positive << 31 | (weight_bits & 0x7fffffffu);
}

static inline uint32_t rank_prediction_bits(uint64_t packed)
{
    return (uint32_t)(packed >> 32);
}

static inline bool rank_is_positive(uint64_t packed)
{
    return (packed >> 31 & 1) != 0;
}

static inline float rank_weight(uint64_t packed)
{
    const uint32_t bits = (uint32_t)packed & 0x7fffffffu;
    float weight = 0;
    memcpy(&weight, &bits, sizeof weight);
    return weight;
}

/* Sorts count items of `words` 64-bit words each (1 or 2), ascending, the last word being the most
 * significant. temp has the same size; the result is in the returned one of the two. */
uint64_t *rank_sort(uint64_t *items, uint64_t *temp, size_t count, uint32_t words);

/* The weighted share of (positive, negative) pairs in the right order, ties counting half: the area
 * under the ROC curve, exactly. NaN where a class is missing. sorted ascending. */
double rank_auc(const uint64_t *sorted, size_t count);

/* NDCG@k with relevance 0 or 1 and discount 1/log2(place + 1). Equal predictions share the mean
 * discount of their places (McSherry and Najork, ECIR '08): the expectation over their orders.
 * Weights play no part. NaN where nothing is relevant. sorted ascending; k >= 1. */
double rank_ndcg(const uint64_t *sorted, size_t count, uint32_t k);

#endif
