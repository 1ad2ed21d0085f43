/* metrics measures predictions against labels: streaming (batches come in, memory is bounded),
 * weighted, and mergeable: however the examples are split over parts and in whatever order parts are
 * merged, the result has the same bits (sums are exact, rankings are sorted by value).
 *
 * What is computed, with w the example's weight, y its label, p its prediction:
 *   loss          mean of the loss that the model reports (regularisation included, if it is)
 *   log_loss      mean of -y log p - (1-y) log(1-p), p kept within [1e-7, 1 - 1e-7];
 *                 with classes: mean of -log p[label]
 *   accuracy      share of right answers: binary p > 0.5, classes arg max (the first of equals)
 *   auc           as tf.metrics.auc(num_thresholds=500): trapezoids under the ROC curve at the
 *                 thresholds -1e-7, 1/499, ..., 498/499, 1 + 1e-7, with its 1e-6 in the ratios
 *   auc_exact     ties count half; up to METRICS_EXACT_MAX examples. Beyond it from a histogram with
 *                 8192 bins per factor of two of p, and said to be approximate
 *   gauc          per-group AUC averaged by the weight of the group's impressions; groups with one
 *                 class are left out and counted. Up to METRICS_GROUPED_MAX examples; beyond it from
 *                 the groups whose hash is below a bound (an unbiased sample), said to be approximate
 *   calibration   mean predicted / mean observed
 *   ndcg          NDCG@k, label as relevance, mean over the groups that have a positive (each group
 *                 counts once, whatever its weight). Without groups the whole set is one list, as
 *                 long as it is held exactly
 *   squared_error mean of (p - y)^2
 * An example of weight 0 counts in `examples` and nowhere else.
 *
 * One thread at a time; use one per thread and merge. After an error from add or merge the object
 * can only be destroyed. */
#ifndef SHOAL_TRAIN_METRICS_H
#define SHOAL_TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum metrics_task {
    METRICS_BINARY,    /* predictions are probabilities of label 1 */
    METRICS_CLASSES,   /* predictions are rows x classes probabilities, labels are class numbers */
    METRICS_REGRESSION /* predictions and labels are any numbers */
};

struct metrics;

struct metrics_opts {
    enum metrics_task task;
    uint32_t classes;     /* METRICS_CLASSES only, at least 2 */
    uint32_t ndcg_k;      /* 0: 10 */
    bool grouped;         /* batches come with groups (METRICS_BINARY only) */
    uint64_t exact_max;   /* 0: METRICS_EXACT_MAX; tests use less */
    uint64_t grouped_max; /* 0: METRICS_GROUPED_MAX */
};

int metrics_create(const struct metrics_opts *opts, struct metrics **metrics_out, struct err *err);
void metrics_destroy(struct metrics *metrics); /* NULL is a no-op. */

struct metrics_batch {
    uint32_t rows;
    const float *labels;
    const float *predictions; /* rows; METRICS_CLASSES: rows x classes */
    const float *weights;     /* rows; NULL: all 1 */
    const uint64_t *groups;   /* rows; NULL unless the metrics are grouped */
    const float *losses;      /* rows; NULL: `loss` is the batch's weighted mean */
    double loss;
};

/* SHOAL_ENAN for a prediction, label or loss that is not finite, SHOAL_EINVAL for one out of its
 * range (a probability outside [0,1], a class number too large, a weight < 0): with row and value. */
int metrics_add(struct metrics *metrics, const struct metrics_batch *batch, struct err *err);

/* Adds what `from` has seen; both were made with the same options. */
int metrics_merge(struct metrics *into, const struct metrics *from, struct err *err);

struct metrics_result { /* NaN: not defined for this task or these examples */
    enum metrics_task task;
    bool grouped;
    uint64_t examples;
    double loss, auc, auc_exact, gauc, log_loss, accuracy, calibration, ndcg, squared_error;
    bool auc_exact_approximate; /* more examples than are held */
    bool gauc_approximate;      /* gauc and ndcg come from a sample of the groups */
    uint64_t groups;            /* that gauc is the mean of */
    uint64_t groups_left_out;   /* with one class only */
    uint32_t ndcg_k;
};

/* More may be added afterwards. Needs memory for sorting: SHOAL_ENOMEM. */
int metrics_compute(struct metrics *metrics, struct metrics_result *result_out, struct err *err);

/* One JSON object. Keys are stable: those above that the task has (null where not defined),
 * `examples`; `auc_exact_approximate`, `gauc_approximate` only when true; with groups `gauc_groups`,
 * `gauc_groups_left_out`. */
void metrics_write_json(const struct metrics_result *result, struct str *json);

/* The same facts for people: "loss 0.4312  auc 0.7123  ... (1,280 examples)". */
void metrics_write_text(const struct metrics_result *result, struct str *text);

#endif
