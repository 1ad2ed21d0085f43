#include "train/metrics.h"

#include <math.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/hash.h"
#include "base/mem.h"
#include "train/exact_sum.h"
#include "train/metrics_rank.h"

/* Weights by threshold and by bin are summed as fixed-point numbers with 64 bits after the point:
 * exact for weights of 2^-40 and more, cut one by one below that, so never dependent on order. */
typedef unsigned __int128 weight_sum;

enum { THRESHOLDS = 500 };

/* Bins of the approximate AUC: the top 22 bits of a prediction's float. */
#define BIN_SHIFT 10
#define BINS ((0x3f800000u >> BIN_SHIFT) + 1) /* 1.0 is in the last one */

#define LOG_LOSS_EPSILON 1e-7 /* what the reference clips predictions by */

struct metrics {
    struct metrics_opts opts; /* set at create, then read only */
    float thresholds[THRESHOLDS];

    uint64_t examples;
    struct exact_sum weight; /* of all examples; the others are sums of weight times the value */
    struct exact_sum loss;
    struct exact_sum log_loss;
    struct exact_sum correct;
    struct exact_sum predicted;
    struct exact_sum observed;
    struct exact_sum squared;

    /* [b]: weight of the examples whose prediction is above exactly b thresholds. */
    weight_sum positives[THRESHOLDS + 1];
    weight_sum negatives[THRESHOLDS + 1];

    /* Every example, packed (metrics_rank.h), until there are more than exact_max; from then on the
     * bins: positives, then negatives. */
    uint64_t *held;
    size_t held_count;
    size_t held_capacity;
    weight_sum *bins;

    /* Pairs (packed, group) of the groups whose hash starts with sample_bits zeros. The fewest bits
     * with which all examples seen fit grouped_max: that depends on the examples alone. */
    uint64_t *grouped;
    size_t grouped_count; /* in pairs */
    size_t grouped_capacity;
    uint32_t sample_bits;
};

static int no_memory(struct err *err, uint64_t examples)
{
    return err_set(err, SHOAL_ENOMEM, "no memory for the metrics of %llu examples",
                   (unsigned long long)examples);
}

int metrics_create(const struct metrics_opts *opts, struct metrics **metrics_out, struct err *err)
{
    if (opts->task == METRICS_CLASSES && opts->classes < 2) {
        return err_set(err, SHOAL_EINVAL, "metrics of %u classes, at least 2", opts->classes);
    }
    if (opts->ndcg_k > METRICS_NDCG_K_MAX) {
        return err_set(err, SHOAL_ELIMIT, "NDCG@%u, at most %u", opts->ndcg_k, METRICS_NDCG_K_MAX);
    }
    struct metrics *metrics = mem_alloc(MEM_TRAIN, sizeof *metrics);
    if (metrics == NULL) return no_memory(err, 0);
    metrics->opts = *opts;
    if (opts->task != METRICS_BINARY) metrics->opts.grouped = false;
    if (opts->ndcg_k == 0) metrics->opts.ndcg_k = 10;
    if (opts->exact_max == 0) metrics->opts.exact_max = METRICS_EXACT_MAX;
    if (opts->grouped_max == 0) metrics->opts.grouped_max = METRICS_GROUPED_MAX;
    metrics->thresholds[0] = (float)-1e-7;
    for (int i = 1; i < THRESHOLDS - 1; i++) {
        metrics->thresholds[i] = (float)((double)i / (THRESHOLDS - 1));
    }
    metrics->thresholds[THRESHOLDS - 1] = (float)(1 + 1e-7);
    *metrics_out = metrics;
    return 0;
}

void metrics_destroy(struct metrics *metrics)
{
    if (metrics == NULL) return;
    mem_free(metrics->held);
    mem_free(metrics->bins);
    mem_free(metrics->grouped);
    mem_free(metrics);
}

static weight_sum weight_fixed(float weight)
{
    return (weight_sum)((double)weight * 0x1p64);
}

static double weight_value(weight_sum sum)
{
    return (double)sum * 0x1p-64;
}

/* How many thresholds the prediction is above: near prediction * 499, then stepped to the right one
 * as floats compare, which is what TensorFlow does. */
static uint32_t thresholds_below(const struct metrics *metrics, float prediction)
{
    uint32_t count = (uint32_t)(prediction * (THRESHOLDS - 1));
    while (count < THRESHOLDS && prediction > metrics->thresholds[count]) count++;
    while (count > 0 && !(prediction > metrics->thresholds[count - 1])) count--;
    return count;
}

static void bin_add(struct metrics *metrics, uint64_t packed)
{
    const uint32_t bin = rank_prediction_bits(packed) >> BIN_SHIFT;
    ASSERT(bin < BINS);
    metrics->bins[bin + (rank_is_positive(packed) ? 0 : BINS)] += weight_fixed(rank_weight(packed));
}

/* From here on examples are counted in bins. */
static int held_to_bins(struct metrics *metrics, struct err *err)
{
    metrics->bins = mem_alloc_array(MEM_TRAIN, 2 * (size_t)BINS, sizeof *metrics->bins);
    if (metrics->bins == NULL) return no_memory(err, metrics->examples);
    for (size_t i = 0; i < metrics->held_count; i++) bin_add(metrics, metrics->held[i]);
    mem_free(metrics->held);
    metrics->held = NULL;
    metrics->held_count = metrics->held_capacity = 0;
    return 0;
}

static int hold(struct metrics *metrics, uint64_t packed, struct err *err)
{
    if (metrics->bins == NULL && metrics->held_count == metrics->opts.exact_max) {
        const int rc = held_to_bins(metrics, err);
        if (rc != 0) return rc;
    }
    if (metrics->bins != NULL) {
        bin_add(metrics, packed);
        return 0;
    }
    if (mem_grow(MEM_TRAIN, (void **)&metrics->held, &metrics->held_capacity,
                 metrics->held_count + 1, sizeof *metrics->held) != 0) {
        return no_memory(err, metrics->examples);
    }
    metrics->held[metrics->held_count++] = packed;
    return 0;
}

static bool is_sampled(const struct metrics *metrics, uint64_t group)
{
    const uint32_t bits = metrics->sample_bits;
    return bits == 0 || hash_mix64(group) >> (64 - bits) == 0;
}

/* Keeps the pairs that are still in the sample. */
static void grouped_thin(struct metrics *metrics)
{
    size_t kept = 0;
    for (size_t i = 0; i < metrics->grouped_count; i++) {
        const uint64_t *pair = metrics->grouped + 2 * i;
        if (!is_sampled(metrics, pair[1])) continue;
        metrics->grouped[2 * kept] = pair[0];
        metrics->grouped[2 * kept + 1] = pair[1];
        kept++;
    }
    metrics->grouped_count = kept;
}

static int hold_grouped(struct metrics *metrics, uint64_t packed, uint64_t group, struct err *err)
{
    if (!is_sampled(metrics, group)) return 0;
    if (mem_grow(MEM_TRAIN, (void **)&metrics->grouped, &metrics->grouped_capacity,
                 metrics->grouped_count + 1, 2 * sizeof *metrics->grouped) != 0) {
        return no_memory(err, metrics->examples);
    }
    metrics->grouped[2 * metrics->grouped_count] = packed;
    metrics->grouped[2 * metrics->grouped_count + 1] = group;
    metrics->grouped_count++;
    while (metrics->grouped_count > metrics->opts.grouped_max && metrics->sample_bits < 64) {
        metrics->sample_bits++;
        grouped_thin(metrics);
    }
    return 0;
}

static int row_check(const char *what, float value, float min, float max, uint32_t row,
                     struct err *err)
{
    if (!isfinite(value)) {
        return err_set(err, SHOAL_ENAN, "metrics: %s of row %u is %g", what, row, (double)value);
    }
    if (value < min || value > max) {
        return err_set(err, SHOAL_EINVAL, "metrics: %s of row %u is %g, allowed are %g to %g", what,
                       row, (double)value, (double)min, (double)max);
    }
    return 0;
}

static int add_binary(struct metrics *metrics, const struct metrics_batch *batch, uint32_t row,
                      float weight, struct err *err)
{
    const float label = batch->labels[row];
    const float prediction = batch->predictions[row];
    int rc = row_check("the label", label, 0, 1, row, err);
    if (rc == 0) rc = row_check("the probability", prediction, 0, 1, row, err);
    if (rc != 0 || weight == 0) return rc;
    const double w = (double)weight;
    const double y = (double)label;
    const bool positive = label != 0; /* as TensorFlow casts labels */
    double p = (double)prediction;
    exact_sum_add(&metrics->predicted, w * p);
    exact_sum_add(&metrics->observed, w * y);
    if ((p > 0.5) == positive) exact_sum_add(&metrics->correct, w);
    p = fmin(fmax(p, LOG_LOSS_EPSILON), 1 - LOG_LOSS_EPSILON);
    double loss = 0;
    if (y != 0) loss -= y * log(p);
    if (y != 1) loss -= (1 - y) * log(1 - p);
    exact_sum_add(&metrics->log_loss, w * loss);

    weight_sum *by_threshold = positive ? metrics->positives : metrics->negatives;
    by_threshold[thresholds_below(metrics, prediction)] += weight_fixed(weight);
    const uint64_t packed = rank_pack(prediction, positive, weight);
    rc = hold(metrics, packed, err);
    if (rc == 0 && metrics->opts.grouped) {
        rc = hold_grouped(metrics, packed, batch->groups[row], err);
    }
    return rc;
}

static int add_classes(struct metrics *metrics, const struct metrics_batch *batch, uint32_t row,
                       float weight, struct err *err)
{
    const uint32_t classes = metrics->opts.classes;
    const float *predictions = batch->predictions + (size_t)row * classes;
    const float label = batch->labels[row];
    int rc = row_check("the class", label, 0, (float)(classes - 1), row, err);
    if (rc != 0) return rc;
    const uint32_t want = (uint32_t)label;
    if ((float)want != label) {
        return err_set(err, SHOAL_EINVAL, "metrics: the class of row %u is %g, not a whole number",
                       row, (double)label);
    }
    uint32_t best = 0;
    for (uint32_t c = 0; c < classes; c++) {
        /* A soft maximum may sum to a little more than 1. */
        rc = row_check("a probability", predictions[c], 0, 1.00001f, row, err);
        if (rc != 0) return rc;
        if (predictions[c] > predictions[best]) best = c;
    }
    if (weight == 0) return 0;
    if (best == want) exact_sum_add(&metrics->correct, (double)weight);
    const double p = fmin(fmax((double)predictions[want], LOG_LOSS_EPSILON), 1);
    exact_sum_add(&metrics->log_loss, -(double)weight * log(p));
    return 0;
}

static int add_regression(struct metrics *metrics, const struct metrics_batch *batch, uint32_t row,
                          float weight, struct err *err)
{
    int rc = row_check("the label", batch->labels[row], -INFINITY, INFINITY, row, err);
    if (rc == 0) {
        rc = row_check("the prediction", batch->predictions[row], -INFINITY, INFINITY, row, err);
    }
    if (rc != 0 || weight == 0) return rc;
    const double off = (double)batch->predictions[row] - (double)batch->labels[row];
    exact_sum_add(&metrics->squared, (double)weight * (off * off));
    return 0;
}

static int add_row(struct metrics *metrics, const struct metrics_batch *batch, uint32_t row,
                   struct err *err)
{
    const float weight = batch->weights == NULL ? 1 : batch->weights[row];
    int rc = row_check("the weight", weight, 0, METRICS_WEIGHT_MAX, row, err);
    if (rc != 0) return rc;
    const double loss = batch->losses == NULL ? batch->loss : (double)batch->losses[row];
    if (!isfinite(loss)) {
        return err_set(err, SHOAL_ENAN, "metrics: the loss of row %u is %g", row, loss);
    }
    metrics->examples++;
    if (weight > 0) {
        exact_sum_add(&metrics->weight, (double)weight);
        exact_sum_add(&metrics->loss, (double)weight * loss);
    }
    switch (metrics->opts.task) {
    case METRICS_BINARY: return add_binary(metrics, batch, row, weight, err);
    case METRICS_CLASSES: return add_classes(metrics, batch, row, weight, err);
    case METRICS_REGRESSION: return add_regression(metrics, batch, row, weight, err);
    }
    ASSERT(false); /* No other task is made. */
    return 0;
}

int metrics_add(struct metrics *metrics, const struct metrics_batch *batch, struct err *err)
{
    ASSERT(batch->rows == 0 || (batch->labels != NULL && batch->predictions != NULL));
    ASSERT(batch->rows == 0 || batch->groups != NULL || !metrics->opts.grouped);
    int rc = 0;
    for (uint32_t row = 0; rc == 0 && row < batch->rows; row++) {
        rc = add_row(metrics, batch, row, err);
    }
    return rc;
}

static int merge_held(struct metrics *into, const struct metrics *from, struct err *err)
{
    int rc = 0;
    if (from->bins != NULL) {
        if (into->bins == NULL) rc = held_to_bins(into, err);
        for (size_t i = 0; rc == 0 && i < 2 * (size_t)BINS; i++) into->bins[i] += from->bins[i];
    }
    for (size_t i = 0; rc == 0 && i < from->held_count; i++) rc = hold(into, from->held[i], err);
    return rc;
}

static int merge_grouped(struct metrics *into, const struct metrics *from, struct err *err)
{
    if (from->sample_bits > into->sample_bits) {
        into->sample_bits = from->sample_bits;
        grouped_thin(into);
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->grouped_count; i++) {
        rc = hold_grouped(into, from->grouped[2 * i], from->grouped[2 * i + 1], err);
    }
    return rc;
}

int metrics_merge(struct metrics *into, const struct metrics *from, struct err *err)
{
    ASSERT(into != from);
    ASSERT(into->opts.task == from->opts.task && into->opts.grouped == from->opts.grouped);
    ASSERT(into->opts.classes == from->opts.classes);
    into->examples += from->examples;
    exact_sum_merge(&into->weight, &from->weight);
    exact_sum_merge(&into->loss, &from->loss);
    exact_sum_merge(&into->log_loss, &from->log_loss);
    exact_sum_merge(&into->correct, &from->correct);
    exact_sum_merge(&into->predicted, &from->predicted);
    exact_sum_merge(&into->observed, &from->observed);
    exact_sum_merge(&into->squared, &from->squared);
    for (int i = 0; i <= THRESHOLDS; i++) {
        into->positives[i] += from->positives[i];
        into->negatives[i] += from->negatives[i];
    }
    const int rc = merge_held(into, from, err);
    return rc == 0 ? merge_grouped(into, from, err) : rc;
}

/* tensorflow/python/ops/metrics_impl.py, auc(): curve ROC, summation trapezoidal. */
static double auc_by_thresholds(const struct metrics *metrics)
{
    const double epsilon = 1e-6;
    weight_sum positives = 0;
    weight_sum negatives = 0;
    for (int i = 0; i <= THRESHOLDS; i++) {
        positives += metrics->positives[i];
        negatives += metrics->negatives[i];
    }
    double area = 0;
    double last_x = 0;
    double last_y = 0;
    weight_sum true_positives = positives;
    weight_sum false_positives = negatives;
    for (int i = 0; i < THRESHOLDS; i++) {
        true_positives -= metrics->positives[i];
        false_positives -= metrics->negatives[i];
        const double x = weight_value(false_positives) / (weight_value(negatives) + epsilon);
        const double y =
            (weight_value(true_positives) + epsilon) / (weight_value(positives) + epsilon);
        if (i > 0) area += (last_x - x) * (last_y + y) / 2;
        last_x = x;
        last_y = y;
    }
    return area;
}

static double auc_by_bins(const struct metrics *metrics)
{
    double area = 0;
    weight_sum positives = 0;
    weight_sum negatives = 0;
    for (uint32_t bin = 0; bin < BINS; bin++) {
        const weight_sum bin_negatives = metrics->bins[BINS + bin];
        area += weight_value(metrics->bins[bin]) *
                (weight_value(negatives) + 0.5 * weight_value(bin_negatives));
        positives += metrics->bins[bin];
        negatives += bin_negatives;
    }
    if (positives == 0 || negatives == 0) return NAN;
    return area / (weight_value(positives) * weight_value(negatives));
}

/* Exact AUC, and NDCG of the whole set where there are no groups. */
static int compute_ranking(struct metrics *metrics, struct metrics_result *result, struct err *err)
{
    if (metrics->bins != NULL) {
        result->auc_exact = auc_by_bins(metrics);
        result->auc_exact_approximate = true;
        return 0;
    }
    const size_t count = metrics->held_count;
    uint64_t *temp = mem_alloc_array(MEM_TRAIN, count, sizeof *temp);
    if (temp == NULL) return no_memory(err, metrics->examples);
    const uint64_t *sorted = rank_sort(metrics->held, temp, count, 1);
    result->auc_exact = rank_auc(sorted, count);
    if (!metrics->opts.grouped) result->ndcg = rank_ndcg(sorted, count, metrics->opts.ndcg_k);
    mem_free(temp);
    return 0;
}

static int compute_groups(struct metrics *metrics, struct metrics_result *result, struct err *err)
{
    const size_t count = metrics->grouped_count;
    uint64_t *temp = mem_alloc_array(MEM_TRAIN, count, 2 * sizeof *temp);
    if (temp == NULL) return no_memory(err, metrics->examples);
    uint64_t *sorted = rank_sort(metrics->grouped, temp, count, 2);
    uint64_t *list = sorted == temp ? metrics->grouped : temp; /* free now: one group's examples */
    double area = 0;
    double area_weight = 0;
    double gained = 0;
    uint64_t lists = 0;
    for (size_t i = 0; i < count;) {
        const uint64_t group = sorted[2 * i + 1];
        size_t members = 0;
        double weight = 0;
        for (; i < count && sorted[2 * i + 1] == group; i++) {
            list[members++] = sorted[2 * i];
            weight += (double)rank_weight(sorted[2 * i]);
        }
        const double auc = rank_auc(list, members);
        const double ndcg = rank_ndcg(list, members, metrics->opts.ndcg_k);
        if (isnan(auc)) {
            result->groups_left_out++;
        } else {
            result->groups++;
            area += weight * auc;
            area_weight += weight;
        }
        if (isnan(ndcg)) continue;
        gained += ndcg;
        lists++;
    }
    if (area_weight > 0) result->gauc = area / area_weight;
    if (lists > 0) result->ndcg = gained / (double)lists;
    result->gauc_approximate = metrics->sample_bits > 0;
    if (sorted == temp) { /* `list` has overwritten what the metrics hold */
        memcpy(metrics->grouped, sorted, count * 2 * sizeof *sorted);
    }
    mem_free(temp);
    return 0;
}

static double mean(const struct exact_sum *sum, const struct exact_sum *by)
{
    const double divisor = exact_sum_value(by);
    return divisor > 0 ? exact_sum_value(sum) / divisor : NAN;
}

int metrics_compute(struct metrics *metrics, struct metrics_result *result_out, struct err *err)
{
    struct metrics_result result = {
        .task = metrics->opts.task,
        .grouped = metrics->opts.grouped,
        .examples = metrics->examples,
        .loss = mean(&metrics->loss, &metrics->weight),
        .auc = NAN,
        .auc_exact = NAN,
        .gauc = NAN,
        .log_loss = mean(&metrics->log_loss, &metrics->weight),
        .accuracy = mean(&metrics->correct, &metrics->weight),
        .calibration = mean(&metrics->predicted, &metrics->observed),
        .ndcg = NAN,
        .squared_error = mean(&metrics->squared, &metrics->weight),
        .ndcg_k = metrics->opts.ndcg_k,
    };
    int rc = 0;
    if (metrics->opts.task == METRICS_BINARY && metrics->examples > 0) {
        result.auc = auc_by_thresholds(metrics);
        rc = compute_ranking(metrics, &result, err);
        if (rc == 0 && metrics->opts.grouped) rc = compute_groups(metrics, &result, err);
    }
    if (rc == 0) *result_out = result;
    return rc;
}

/* One row per metric: which tasks have it. Both writers go by this table. */
struct shown {
    const char *key;
    double value;
    bool has;
    bool approximate;
};
enum { SHOWN_MAX = 9 };

static void shown_list(const struct metrics_result *result, struct shown shown[SHOWN_MAX])
{
    const bool binary = result->task == METRICS_BINARY;
    const bool classes = result->task == METRICS_CLASSES;
    const bool regression = result->task == METRICS_REGRESSION;
    const struct shown all[SHOWN_MAX] = {
        {"loss", result->loss, true, false},
        {"auc", result->auc, binary, false},
        {"auc_exact", result->auc_exact, binary, result->auc_exact_approximate},
        {"gauc", result->gauc, binary && result->grouped, result->gauc_approximate},
        {"log_loss", result->log_loss, binary || classes, false},
        {"accuracy", result->accuracy, binary || classes, false},
        {"calibration", result->calibration, binary, false},
        {"ndcg", result->ndcg, binary, result->gauc_approximate},
        {"squared_error", result->squared_error, regression, false},
    };
    memcpy(shown, all, sizeof all);
}

void metrics_write_json(const struct metrics_result *result, struct str *json)
{
    struct shown shown[SHOWN_MAX];
    shown_list(result, shown);
    str_json_open(json, '{');
    for (int i = 0; i < SHOWN_MAX; i++) {
        if (!shown[i].has) continue;
        str_json_key(json, shown[i].key);
        str_json_f64(json, shown[i].value);
    }
    if (result->auc_exact_approximate) {
        str_json_key(json, "auc_exact_approximate");
        str_json_bool(json, true);
    }
    if (result->gauc_approximate) {
        str_json_key(json, "gauc_approximate");
        str_json_bool(json, true);
    }
    if (result->task == METRICS_BINARY && result->grouped) {
        str_json_key(json, "gauc_groups");
        str_json_u64(json, result->groups);
        str_json_key(json, "gauc_groups_left_out");
        str_json_u64(json, result->groups_left_out);
    }
    if (result->task == METRICS_BINARY) {
        str_json_key(json, "ndcg_k");
        str_json_u64(json, result->ndcg_k);
    }
    str_json_key(json, "examples");
    str_json_u64(json, result->examples);
    str_json_close(json, '}');
}

void metrics_write_text(const struct metrics_result *result, struct str *text)
{
    struct shown shown[SHOWN_MAX];
    shown_list(result, shown);
    for (int i = 0; i < SHOWN_MAX; i++) {
        if (!shown[i].has) continue;
        str_printf(text, "%s ", shown[i].key);
        if (isnan(shown[i].value)) {
            str_add(text, "undefined  ");
        } else {
            str_printf(text, "%.6g%s  ", shown[i].value,
                       shown[i].approximate ? " (approximate)" : "");
        }
    }
    char count[32];
    str_printf(text, "(%s examples", str_count(result->examples, count));
    if (result->task == METRICS_BINARY && result->grouped) {
        str_printf(text, ", %s groups", str_count(result->groups, count));
        str_printf(text, ", %s left out", str_count(result->groups_left_out, count));
    }
    str_add(text, ")");
}
