#include "store/store_schedule.h"

#include <jansson.h>

#include "../tests/test.h"

/* Reads "decay: {...}" as a job file would have it. */
static int parse(const char *text, double learning_rate, struct store_schedule *schedule,
                 struct err *err)
{
    struct config *config = NULL;
    *schedule = (struct store_schedule){.learning_rate = learning_rate};
    int rc = config_parse("job.yaml", text, &config, err);
    if (rc == 0) rc = store_schedule_parse(config_get(config_root(config), "decay"), schedule, err);
    config_destroy(config);
    return rc;
}

/* Every schedule of the golden file gives TensorFlow's rates within 1e-6. */
TEST(golden_schedules)
{
    json_error_t json_error;
    json_t *golden = json_load_file(test_path("golden/schedules.json"), 0, &json_error);
    if (golden == NULL) test_fail(__FILE__, __LINE__, "schedules.json: %s", json_error.text);
    const double base = json_number_value(json_object_get(golden, "learning_rate"));
    const json_t *steps = json_object_get(golden, "steps");
    const char *name = NULL;
    json_t *entry = NULL;
    int compared = 0;
    json_object_foreach(golden, name, entry)
    {
        const json_t *settings = json_object_get(entry, "settings");
        if (settings == NULL) continue;
        /* A JSON map is a YAML map; the type is the name up to its first underscore. */
        char *body = json_dumps(settings, JSON_COMPACT);
        char text[1024];
        snprintf(text, sizeof text, "decay: {\"type\": \"%.*s\", %s", (int)strcspn(name, "_"), name,
                 body + 1);
        free(body);
        struct err err;
        struct store_schedule schedule;
        CHECK_OK(parse(text, base, &schedule, &err));
        for (size_t i = 0; i < json_array_size(steps); i++) {
            const json_int_t step = json_integer_value(json_array_get(steps, i));
            const double want =
                json_number_value(json_array_get(json_object_get(entry, "values"), i));
            const double got = store_schedule_at(&schedule, (uint64_t)step);
            if (fabs(got - want) > 1e-6 * fabs(want)) {
                test_fail(__FILE__, __LINE__,
                          "schedules.json: %s at step %lld: got %.9g, want %.9g", name,
                          (long long)step, got, want);
            }
            compared++;
        }
    }
    CHECK(compared >= 5);
    json_decref(golden);
}

/* No `decay` at all is a constant rate. */
TEST(constant)
{
    struct store_schedule schedule = {.learning_rate = 0.5};
    CHECK_INT(store_schedule_parse(NULL, &schedule, NULL), 0);
    CHECK_NEAR(store_schedule_at(&schedule, 0), 0.5, 0);
    CHECK_NEAR(store_schedule_at(&schedule, UINT64_MAX), 0.5, 0);
}

/* The rate changes after the boundary step, not at it. */
TEST(piecewise_boundaries)
{
    struct err err;
    struct store_schedule schedule;
    CHECK_OK(parse("decay: {type: piecewise, boundaries: [10, 20], values: [3, 2, 1]}", 9,
                   &schedule, &err));
    const struct {
        uint64_t step;
        double want;
    } cases[] = {{0, 3}, {10, 3}, {11, 2}, {20, 2}, {21, 1}, {1000000, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_NEAR(store_schedule_at(&schedule, cases[i].step), cases[i].want, 0);
    }
}

/* A warm-up rises in a line from its start to the base rate, then what it wraps takes over. */
TEST(warm_up)
{
    struct err err;
    struct store_schedule schedule;
    CHECK_OK(parse("decay: {type: warmup, steps: 10, start: 0.1, then: {type: exponential, "
                   "rate: 0.5, steps: 10}}",
                   1, &schedule, &err));
    CHECK_NEAR(store_schedule_at(&schedule, 0), 0.1, 1e-12);
    CHECK_NEAR(store_schedule_at(&schedule, 5), 0.55, 1e-12);
    CHECK_NEAR(store_schedule_at(&schedule, 10), 0.5, 1e-12);
    CHECK_NEAR(store_schedule_at(&schedule, 20), 0.25, 1e-12);
    CHECK_OK(parse("decay: {type: warmup, steps: 4}", 1, &schedule, &err));
    CHECK_NEAR(store_schedule_at(&schedule, 0), 0, 0);
    CHECK_NEAR(store_schedule_at(&schedule, 4), 1, 0);
}

/* With `cycle` a polynomial starts over, stretched, instead of staying at its end. */
TEST(polynomial_cycle)
{
    struct err err;
    struct store_schedule schedule;
    CHECK_OK(
        parse("decay: {type: polynomial, steps: 10, end: 0, cycle: true}", 1, &schedule, &err));
    CHECK_NEAR(store_schedule_at(&schedule, 0), 1, 1e-12);
    CHECK_NEAR(store_schedule_at(&schedule, 5), 0.5, 1e-12);
    CHECK_NEAR(store_schedule_at(&schedule, 15), 0.25, 1e-12);
}

/* Each mistake is named with its place. */
TEST(mistakes)
{
    const struct {
        const char *text;
        const char *want;
    } cases[] = {
        {"decay: 0.9", "job.yaml:1:8: "},
        {"decay: {rate: 0.9}", "type"},
        {"decay: {type: exponentail, rate: 0.9, steps: 1}", "exponential"},
        {"decay: {type: exponential, rate: 0.9}", "steps"},
        {"decay: {type: exponential, steps: 10}", "rate"},
        {"decay: {type: exponential, rate: 0.9, steps: 0}", "steps"},
        {"decay: {type: cosine, steps: 10, rate: 0.9}", "rate"},
        {"decay: {type: piecewise, boundaries: [1, 2], values: [1, 2]}", "need 3"},
        {"decay: {type: piecewise, boundaries: [2, 1], values: [1, 2, 3]}", "ascend"},
        {"decay: {type: piecewise, values: [1]}", "boundaries"},
        {"decay: {type: warmup, steps: 5, then: {type: warmup, steps: 5}}", "warm-up"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct store_schedule schedule;
        CHECK_INT(parse(cases[i].text, 1, &schedule, &err), SHOAL_ECONFIG);
        CHECK_HAS(err.text, "job.yaml:1:");
        CHECK_HAS(err.text, cases[i].want);
    }
}
