#include "train/metrics.h"

#include <jansson.h>
#include <stdlib.h>

#include "../tests/test.h"
#include "base/mem.h"
#include "train/metrics_rank.h"

static struct err err;
static uint64_t random_state = 7;

static uint32_t next_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static float next_unit(void)
{
    return (float)(next_random() & 0xffffff) / 16777216.0f;
}

static struct metrics *made(const struct metrics_opts *opts)
{
    struct metrics *metrics = NULL;
    CHECK_OK(metrics_create(opts, &metrics, &err));
    return metrics;
}

static struct metrics_result computed(struct metrics *metrics)
{
    struct metrics_result result;
    CHECK_OK(metrics_compute(metrics, &result, &err));
    return result;
}

/* The result of one batch in one go. */
static struct metrics_result measured(const struct metrics_opts *opts,
                                      const struct metrics_batch *batch)
{
    struct metrics *metrics = made(opts);
    CHECK_OK(metrics_add(metrics, batch, &err));
    const struct metrics_result result = computed(metrics);
    metrics_destroy(metrics);
    return result;
}

static float *floats_of(const json_t *list)
{
    float *values = calloc(json_array_size(list) + 1, sizeof *values);
    CHECK(values != NULL);
    for (size_t i = 0; i < json_array_size(list); i++) {
        values[i] = (float)json_number_value(json_array_get(list, i));
    }
    return values;
}

static void golden_check(const json_t *entry, const char *key, double got)
{
    const json_t *want = json_object_get(entry, key);
    if (!json_is_number(want) || !(fabs(got - json_number_value(want)) <= 1e-6)) {
        test_fail(__FILE__, __LINE__, "golden/metrics.json, entry \"%s\", %s: got %.9g, want %.9g",
                  json_string_value(json_object_get(entry, "name")), key, got,
                  json_number_value(want));
    }
}

TEST(golden_numbers_are_reached)
{
    json_error_t why;
    json_t *root = json_load_file(test_path("golden/metrics.json"), 0, &why);
    if (root == NULL) test_fail(__FILE__, __LINE__, "golden/metrics.json: %s", why.text);
    CHECK(json_array_size(root) > 0);
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *entry = json_array_get(root, i);
        const json_t *labels = json_object_get(entry, "labels");
        float *label_values = floats_of(labels);
        float *predictions = floats_of(json_object_get(entry, "predictions"));
        const struct metrics_result result =
            measured(&(struct metrics_opts){.task = METRICS_BINARY},
                     &(struct metrics_batch){.rows = (uint32_t)json_array_size(labels),
                                             .labels = label_values,
                                             .predictions = predictions});
        golden_check(entry, "auc_500", result.auc);
        golden_check(entry, "auc_exact", result.auc_exact);
        golden_check(entry, "log_loss", result.log_loss);
        free(label_values);
        free(predictions);
    }
    json_decref(root);
}

/* Exact AUC is the share of pairs in the right order, by brute force, weighted. */
TEST(exact_auc_equals_counting_pairs)
{
    enum { ROWS = 300 };
    float labels[ROWS], predictions[ROWS], weights[ROWS];
    for (int i = 0; i < ROWS; i++) {
        labels[i] = (float)(next_random() % 2);
        predictions[i] = (float)(next_random() % 20) / 19; /* many ties */
        weights[i] = (float)(next_random() % 5);           /* zeros too */
    }
    double right = 0;
    double pairs = 0;
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < ROWS; j++) {
            if (labels[i] != 1 || labels[j] != 0) continue;
            const double weight = (double)weights[i] * (double)weights[j];
            pairs += weight;
            if (predictions[i] > predictions[j]) right += weight;
            if (predictions[i] == predictions[j]) right += weight / 2;
        }
    }
    const struct metrics_result result = measured(
        &(struct metrics_opts){.task = METRICS_BINARY},
        &(struct metrics_batch){
            .rows = ROWS, .labels = labels, .predictions = predictions, .weights = weights});
    CHECK_NEAR(result.auc_exact, right / pairs, 1e-12);
}

/* tf.metrics.auc compares as floats: each threshold counts as reached only when strictly above. */
TEST(auc_by_thresholds_follows_the_definition_at_the_thresholds)
{
    enum { ROWS = 3 * 500 };
    float labels[ROWS], predictions[ROWS], weights[ROWS];
    for (int i = 0; i < ROWS; i++) {
        const float at = (float)((double)(i / 3) / 499);
        predictions[i] = i % 3 == 0 ? at : nextafterf(at, i % 3 == 1 ? 0 : 1);
        predictions[i] = fminf(fmaxf(predictions[i], 0), 1);
        labels[i] = (float)(next_random() % 3 == 0);
        weights[i] = 0.25f + next_unit();
    }
    double area = 0;
    double last[2] = {0, 0};
    for (int t = 0; t < 500; t++) {
        const float threshold = t == 0     ? -1e-7f
                                : t == 499 ? (float)(1 + 1e-7)
                                           : (float)((double)t / 499);
        double sums[2][2] = {{0, 0}, {0, 0}}; /* [label][above] */
        for (int i = 0; i < ROWS; i++) {
            sums[labels[i] != 0][predictions[i] > threshold] += (double)weights[i];
        }
        const double y = (sums[1][1] + 1e-6) / (sums[1][0] + sums[1][1] + 1e-6);
        const double x = sums[0][1] / (sums[0][0] + sums[0][1] + 1e-6);
        if (t > 0) area += (last[0] - x) * (last[1] + y) / 2;
        last[0] = x;
        last[1] = y;
    }
    const struct metrics_result result = measured(
        &(struct metrics_opts){.task = METRICS_BINARY},
        &(struct metrics_batch){
            .rows = ROWS, .labels = labels, .predictions = predictions, .weights = weights});
    CHECK_NEAR(result.auc, area, 1e-12);
}

TEST(small_sets_give_the_numbers_done_by_hand)
{
    const float labels[] = {1, 0, 1, 0};
    const float predictions[] = {0.8f, 0.6f, 0.5f, 0.25f};
    const float weights[] = {1, 2, 1, 0};
    const float losses[] = {1, 2, 3, 100};
    const uint64_t groups[] = {1, 1, 2, 2};
    struct metrics_batch batch = {.rows = 4, .labels = labels, .predictions = predictions};
    struct metrics_opts opts = {.task = METRICS_BINARY};
    struct metrics_result result = measured(&opts, &batch);
    CHECK_NEAR(result.auc_exact, 0.75, 0);
    CHECK_NEAR(result.accuracy, 0.5, 0); /* 0.5 is not above a half */
    CHECK_NEAR(result.calibration, 2.15 / 2, 1e-7);
    CHECK_NEAR(result.ndcg, (1 + 0.5) / (1 + 1 / log2(3)), 1e-12);
    CHECK_NEAR(result.log_loss, -(log(0.8) + log(0.4) + log(0.5) + log(0.75)) / 4, 1e-7);

    batch.weights = weights;
    batch.losses = losses;
    batch.groups = groups;
    opts.grouped = true;
    result = measured(&opts, &batch);
    CHECK_INT(result.examples, 4);
    CHECK_NEAR(result.loss, (1 + 2 * 2 + 3) / 4.0, 1e-15);
    CHECK_NEAR(result.accuracy, 0.25, 0);
    CHECK_NEAR(result.gauc, 1, 0); /* group 2 has one class left: its negative weighs nothing */
    CHECK_INT(result.groups, 1);
    CHECK_INT(result.groups_left_out, 1);
}

TEST(gauc_is_weighted_by_impressions)
{
    /* Group 5: 2 rows, AUC 0; group 9: 4 rows, AUC 0.75; group 0: one class. */
    const float labels[] = {1, 0, 1, 1, 0, 0, 1};
    const float predictions[] = {0.1f, 0.9f, 0.9f, 0.4f, 0.6f, 0.2f, 0.5f};
    const uint64_t groups[] = {5, 5, 9, 9, 9, 9, 0};
    const struct metrics_result result =
        measured(&(struct metrics_opts){.task = METRICS_BINARY, .grouped = true, .ndcg_k = 1},
                 &(struct metrics_batch){
                     .rows = 7, .labels = labels, .predictions = predictions, .groups = groups});
    CHECK_NEAR(result.gauc, (2 * 0.0 + 4 * 0.75) / 6, 1e-15);
    CHECK_INT(result.groups, 2);
    CHECK_INT(result.groups_left_out, 1);
    CHECK_NEAR(result.ndcg, 2 / 3.0, 1e-15); /* of three groups two have a positive on top */
}

TEST(ndcg_shares_the_places_of_equal_predictions)
{
    uint64_t list[] = {rank_pack(0.1f, false, 1), rank_pack(0.7f, false, 1),
                       rank_pack(0.7f, true, 1), rank_pack(0.7f, false, 1)};
    const double places = 1 + 1 / log2(3) + 1 / log2(4);
    CHECK_NEAR(rank_ndcg(list, 4, 10), places / 3, 1e-15);
    CHECK_NEAR(rank_ndcg(list, 4, 2), (1 + 1 / log2(3)) / 3, 1e-15);
    CHECK(isnan(rank_ndcg(list, 2, 2)));
    CHECK(isnan(rank_ndcg(list, 0, 1)));
}

TEST(classes_and_regression_have_their_own_metrics)
{
    const float labels[] = {0, 2, 1};
    const float predictions[] = {0.5f, 0.5f, 0, 0.1f, 0.1f, 0.8f, 0.9f, 0.1f, 0};
    const struct metrics_result classes =
        measured(&(struct metrics_opts){.task = METRICS_CLASSES, .classes = 3},
                 &(struct metrics_batch){
                     .rows = 3, .labels = labels, .predictions = predictions, .loss = 0.5});
    CHECK_NEAR(classes.accuracy, 2 / 3.0, 1e-15); /* the first of equals is the answer */
    CHECK_NEAR(classes.log_loss, -(log(0.5) + log(0.8) + log(0.1)) / 3, 1e-7);
    CHECK_NEAR(classes.loss, 0.5, 0);
    CHECK(isnan(classes.auc));
    const struct metrics_result regression =
        measured(&(struct metrics_opts){.task = METRICS_REGRESSION},
                 &(struct metrics_batch){.rows = 3, .labels = labels, .predictions = predictions});
    CHECK_NEAR(regression.squared_error, (0.25 + 2.25 + 1) / 3, 1e-15);

    struct str json = {0};
    metrics_write_json(&regression, &json);
    CHECK_STR(json.text, "{\"loss\": 0, \"squared_error\": 1.1666666666666667, \"examples\": 3}");
    str_fini(&json);
}

/* Any split over any number of parts, merged in any order, gives the same bits; below the bounds of
 * what is held and above them. */
TEST(any_split_gives_the_same_bits)
{
    enum { ROWS = 4000, PARTS = 5 };
    static float labels[ROWS], predictions[ROWS], weights[ROWS], losses[ROWS];
    static uint64_t groups[ROWS];
    for (int i = 0; i < ROWS; i++) {
        labels[i] = (float)(next_random() % 4 == 0);
        predictions[i] = next_unit() * next_unit();
        weights[i] = next_unit() * 10;
        losses[i] = next_unit() / 3;
        groups[i] = next_random() % 200;
    }
    const uint64_t bounds[] = {0, ROWS, ROWS - 1, 100, 1};
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        const struct metrics_opts opts = {.task = METRICS_BINARY,
                                          .grouped = true,
                                          .exact_max = bounds[b],
                                          .grouped_max = bounds[b]};
        struct metrics_batch all = {.rows = ROWS,
                                    .labels = labels,
                                    .predictions = predictions,
                                    .weights = weights,
                                    .groups = groups,
                                    .losses = losses};
        const struct metrics_result want = measured(&opts, &all);
        CHECK_INT(want.auc_exact_approximate, b >= 2);
        CHECK_INT(want.gauc_approximate, b >= 2);
        for (int round = 0; round < 5; round++) {
            struct metrics *parts[PARTS];
            for (int p = 0; p < PARTS; p++) parts[p] = made(&opts);
            for (int i = 0; i < ROWS; i++) {
                const struct metrics_batch one = {.rows = 1,
                                                  .labels = labels + i,
                                                  .predictions = predictions + i,
                                                  .weights = weights + i,
                                                  .groups = groups + i,
                                                  .losses = losses + i};
                CHECK_OK(metrics_add(parts[next_random() % PARTS], &one, &err));
            }
            for (int p = 1; p < PARTS; p++) {
                const int into = round % 2 == 0 ? 0 : p;
                CHECK_OK(metrics_merge(parts[into], parts[into == 0 ? p : p - 1], &err));
            }
            struct metrics *whole = parts[round % 2 == 0 ? 0 : PARTS - 1];
            for (int again = 0; again < 2; again++) { /* computing changes nothing */
                const struct metrics_result got = computed(whole);
                CHECK(got.examples == want.examples && got.groups == want.groups);
                CHECK(got.groups_left_out == want.groups_left_out);
                CHECK(memcmp(&got.loss, &want.loss, 8 * sizeof(double)) == 0);
                CHECK(got.auc_exact_approximate == want.auc_exact_approximate);
                CHECK(got.gauc_approximate == want.gauc_approximate);
            }
            for (int p = 0; p < PARTS; p++) metrics_destroy(parts[p]);
        }
    }
}

/* Beyond the bound the histogram stays close to the exact number, and the result says so. */
TEST(approximate_numbers_are_close_and_said_to_be)
{
    enum { ROWS = 20000 };
    static float labels[ROWS], predictions[ROWS];
    static uint64_t groups[ROWS];
    for (int i = 0; i < ROWS; i++) {
        predictions[i] = 0.05f * next_unit();
        labels[i] = (float)(next_unit() < 4 * predictions[i]);
        groups[i] = next_random() % 2000;
    }
    struct metrics_opts opts = {.task = METRICS_BINARY, .grouped = true};
    const struct metrics_batch batch = {
        .rows = ROWS, .labels = labels, .predictions = predictions, .groups = groups};
    const struct metrics_result exact = measured(&opts, &batch);
    opts.exact_max = 10;
    opts.grouped_max = ROWS / 2;
    const struct metrics_result near = measured(&opts, &batch);
    CHECK_NEAR(near.auc_exact, exact.auc_exact, 1e-5);
    CHECK_NEAR(near.gauc, exact.gauc, 0.03);
    CHECK(near.groups + near.groups_left_out < exact.groups + exact.groups_left_out);
    struct str json = {0};
    metrics_write_json(&near, &json);
    CHECK_HAS(json.text, "\"auc_exact_approximate\": true");
    CHECK_HAS(json.text, "\"gauc_approximate\": true");
    str_clear(&json);
    metrics_write_text(&near, &json);
    CHECK_HAS(json.text, "(approximate)");
    str_fini(&json);
}

TEST(wrong_values_are_refused_with_their_row)
{
    static const struct {
        const char *name;
        enum metrics_task task;
        float label, prediction, weight;
        double loss;
        int want;
        const char *text;
    } cases[] = {
        {"edges", METRICS_BINARY, 1, 1, 0, 0, 0, ""},
        {"negative zero", METRICS_BINARY, 0, -0.0f, 1, 0, 0, ""},
        {"probability above 1", METRICS_BINARY, 1, 1.5f, 1, 0, SHOAL_EINVAL, "row 1 is 1.5"},
        {"probability below 0", METRICS_BINARY, 1, -0.5f, 1, 0, SHOAL_EINVAL, "-0.5"},
        {"label -1", METRICS_BINARY, -1, 0.5f, 1, 0, SHOAL_EINVAL, "label of row 1 is -1"},
        {"NaN prediction", METRICS_BINARY, 1, NAN, 1, 0, SHOAL_ENAN, "probability of row 1"},
        {"NaN label", METRICS_REGRESSION, NAN, 1, 1, 0, SHOAL_ENAN, "label of row 1"},
        {"infinite prediction", METRICS_REGRESSION, 1, INFINITY, 1, 0, SHOAL_ENAN, "inf"},
        {"negative weight", METRICS_BINARY, 1, 0.5f, -1, 0, SHOAL_EINVAL, "weight of row 1 is -1"},
        {"largest weight", METRICS_BINARY, 1, 0.5f, 4294967296.0f, 0, 0, ""},
        {"weight too large", METRICS_BINARY, 1, 0.5f, 4294967808.0f, 0, SHOAL_EINVAL, "weight"},
        {"NaN loss", METRICS_BINARY, 1, 0.5f, 1, NAN, SHOAL_ENAN, "loss of row 0"},
        {"class too large", METRICS_CLASSES, 2, 0.5f, 1, 0, SHOAL_EINVAL, "class of row 1 is 2"},
        {"half a class", METRICS_CLASSES, 0.5f, 0.5f, 1, 0, SHOAL_EINVAL, "whole number"},
        {"a score", METRICS_CLASSES, 1, 3, 1, 0, SHOAL_EINVAL, "probability of row 1"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct metrics *metrics = made(&(struct metrics_opts){.task = cases[c].task, .classes = 2});
        const float labels[] = {0, cases[c].label};
        const float predictions[] = {0, cases[c].task == METRICS_CLASSES ? 0 : cases[c].prediction,
                                     0, cases[c].prediction};
        const float weights[] = {1, cases[c].weight};
        err.text[0] = 0;
        const int got = metrics_add(metrics,
                                    &(struct metrics_batch){.rows = 2,
                                                            .labels = labels,
                                                            .predictions = predictions,
                                                            .weights = weights,
                                                            .loss = cases[c].loss},
                                    &err);
        if (got != cases[c].want || strstr(err.text, cases[c].text) == NULL) {
            test_fail(__FILE__, __LINE__, "%s: got %d \"%s\"", cases[c].name, got, err.text);
        }
        metrics_destroy(metrics);
    }
    struct metrics *metrics = NULL;
    CHECK_INT(metrics_create(&(struct metrics_opts){.task = METRICS_CLASSES, .classes = 1},
                             &metrics, &err),
              SHOAL_EINVAL);
    CHECK_INT(metrics_create(&(struct metrics_opts){.ndcg_k = 1001}, &metrics, &err), SHOAL_ELIMIT);
}

/* No examples, or one class only: what is not defined is null, nothing breaks. */
TEST(empty_and_one_sided_sets_are_fine)
{
    struct str json = {0};
    const struct metrics_result none =
        measured(&(struct metrics_opts){.grouped = true}, &(struct metrics_batch){.rows = 0});
    metrics_write_json(&none, &json);
    CHECK_STR(json.text,
              "{\"loss\": null, \"auc\": null, \"auc_exact\": null, \"gauc\": null, "
              "\"log_loss\": null, \"accuracy\": null, \"calibration\": null, \"ndcg\": null, "
              "\"gauc_groups\": 0, \"gauc_groups_left_out\": 0, \"ndcg_k\": 10, \"examples\": 0}");
    str_fini(&json);
    const float labels[] = {0, 0};
    const float predictions[] = {0.5f, 0.1f};
    const struct metrics_result one_class =
        measured(&(struct metrics_opts){.task = METRICS_BINARY},
                 &(struct metrics_batch){.rows = 2, .labels = labels, .predictions = predictions});
    CHECK(isnan(one_class.auc_exact));
    CHECK(isnan(one_class.calibration));
    CHECK_NEAR(one_class.accuracy, 1, 0);
    CHECK_NEAR(one_class.auc, 1, 1e-6); /* as TensorFlow: every recall is 1 */
}

static int scenario(void)
{
    const struct metrics_opts opts = {.grouped = true, .exact_max = 3};
    const float labels[] = {0, 1, 0};
    const float predictions[] = {0.5f, 0.1f, 0.2f};
    const uint64_t groups[] = {1, 2, 2};
    const struct metrics_batch batch = {
        .rows = 3, .labels = labels, .predictions = predictions, .groups = groups};
    struct metrics *parts[2] = {NULL, NULL};
    struct metrics_result result;
    int rc = metrics_create(&opts, &parts[0], &err);
    if (rc == 0) rc = metrics_create(&opts, &parts[1], &err);
    if (rc == 0) rc = metrics_add(parts[0], &batch, &err);
    if (rc == 0) rc = metrics_compute(parts[0], &result, &err);
    if (rc == 0) rc = metrics_add(parts[1], &batch, &err);
    if (rc == 0) rc = metrics_merge(parts[0], parts[1], &err);
    if (rc == 0) rc = metrics_compute(parts[0], &result, &err);
    metrics_destroy(parts[0]);
    metrics_destroy(parts[1]);
    return rc;
}

TEST(every_failed_allocation_is_an_error)
{
    for (uint64_t nth = 1;; nth++) {
        mem_fail_nth(nth);
        const int rc = scenario();
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        CHECK_INT(mem_bytes(MEM_TRAIN), 0);
        if (!failed) break;
    }
}
