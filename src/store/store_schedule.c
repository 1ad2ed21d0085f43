#include "store/store_schedule.h"

#include <math.h>

#include "base/assert.h"
#include "base/mem.h"

static double exponential(const struct store_schedule *s, double step)
{
    const double exponent = step / s->steps;
    return s->learning_rate * pow(s->rate, s->staircase ? floor(exponent) : exponent);
}

static double polynomial(const struct store_schedule *s, double step)
{
    double steps = s->steps;
    if (s->cycle && step > steps) steps *= ceil(step / steps);
    const double left = 1 - fmin(step, steps) / steps;
    return (s->learning_rate - s->end) * pow(left, s->power) + s->end;
}

static double cosine(const struct store_schedule *s, double step)
{
    const double wave = (1 + cos(M_PI * fmin(step, s->steps) / s->steps)) / 2;
    return s->learning_rate * ((1 - s->alpha) * wave + s->alpha);
}

static double piecewise(const struct store_schedule *s, double step)
{
    uint32_t piece = 0;
    while (piece < s->boundaries_count && step > s->boundaries[piece]) piece++;
    return s->values[piece];
}

double store_schedule_at(const struct store_schedule *schedule, uint64_t step)
{
    const double at = (double)step;
    if (at < schedule->warmup_steps) {
        const double start = schedule->warmup_start;
        return start + (schedule->learning_rate - start) * at / schedule->warmup_steps;
    }
    switch (schedule->type) {
    case STORE_EXPONENTIAL: return exponential(schedule, at);
    case STORE_POLYNOMIAL: return polynomial(schedule, at);
    case STORE_COSINE: return cosine(schedule, at);
    case STORE_PIECEWISE: return piecewise(schedule, at);
    default: ASSERT(schedule->type == STORE_CONSTANT); return schedule->learning_rate;
    }
}

#define RATE_MAX 1e6
#define STEPS_MAX 1e15

static int read_piecewise(const struct config_node *decay, struct store_schedule *schedule,
                          struct err *err)
{
    double *boundaries = NULL;
    double *values = NULL;
    size_t boundaries_count = 0;
    size_t values_count = 0;
    int rc = config_read_f64_list(decay, "boundaries", 0, STEPS_MAX, &boundaries, &boundaries_count,
                                  err);
    if (rc != 0) goto out;
    rc = config_read_f64_list(decay, "values", 0, RATE_MAX, &values, &values_count, err);
    if (rc != 0) goto out;
    if (boundaries_count == 0 || boundaries_count > STORE_BOUNDARIES_MAX) {
        rc = config_error(decay, err, "piecewise needs 1 to %u `boundaries`, not %zu",
                          STORE_BOUNDARIES_MAX, boundaries_count);
        goto out;
    }
    if (values_count != boundaries_count + 1) {
        rc = config_error(decay, err, "%zu `boundaries` need %zu `values`, not %zu",
                          boundaries_count, boundaries_count + 1, values_count);
        goto out;
    }
    for (size_t i = 0; i < boundaries_count; i++) {
        if (i > 0 && boundaries[i] <= boundaries[i - 1]) {
            rc = config_error(config_get(decay, "boundaries"), err,
                              "`boundaries` must ascend: %g is after %g", boundaries[i],
                              boundaries[i - 1]);
            goto out;
        }
        schedule->boundaries[i] = boundaries[i];
    }
    for (size_t i = 0; i < values_count; i++) schedule->values[i] = values[i];
    schedule->boundaries_count = (uint32_t)boundaries_count;
out:
    mem_free(boundaries);
    mem_free(values);
    return rc;
}

/* The settings of each kind, `type` and `steps` apart. */
#define ALLOWED_MAX 5u
enum {
    KIND_CONSTANT,
    KIND_EXPONENTIAL,
    KIND_POLYNOMIAL,
    KIND_COSINE,
    KIND_PIECEWISE,
    KIND_WARMUP,
    KIND_COUNT
};
static const char *const kinds[KIND_COUNT] = {"constant", "exponential", "polynomial",
                                              "cosine",   "piecewise",   "warmup"};
static const char *const allowed[KIND_COUNT][ALLOWED_MAX] = {
    {"type"},
    {"type", "steps", "rate", "staircase"},
    {"type", "steps", "end", "power", "cycle"},
    {"type", "steps", "alpha"},
    {"type", "boundaries", "values"},
    {"type", "steps", "start", "then"},
};

static int read_kind(const struct config_node *decay, uint32_t *kind, struct err *err)
{
    if (config_kind(decay) != CONFIG_MAP) {
        return config_error(decay, err,
                            "`decay` is a map such as {type: exponential, rate: 0.9, "
                            "steps: 10000}");
    }
    int rc = config_read_choice(decay, "type", kinds, KIND_COUNT, kind, err);
    if (rc != 0) return rc;
    if (*kind == KIND_COUNT) return config_error(decay, err, "`decay` needs a `type`");
    size_t count = 0;
    while (count < ALLOWED_MAX && allowed[*kind][count] != NULL) count++;
    return config_check_keys(decay, allowed[*kind], count, err);
}

static int read_steps(const struct config_node *decay, uint32_t kind, double *steps,
                      struct err *err)
{
    if (config_get(decay, "steps") == NULL) {
        return config_error(decay, err, "%s decay needs `steps`", kinds[kind]);
    }
    return config_read_f64(decay, "steps", 1, STEPS_MAX, steps, err);
}

/* Everything but warm-up. */
static int read_decay(const struct config_node *decay, uint32_t kind,
                      struct store_schedule *schedule, struct err *err)
{
    schedule->type = (enum store_schedule_type)kind;
    if (kind == KIND_CONSTANT) return 0;
    if (kind == KIND_PIECEWISE) return read_piecewise(decay, schedule, err);
    int rc = read_steps(decay, kind, &schedule->steps, err);
    if (rc != 0) return rc;
    schedule->end = 0.0001;
    schedule->power = 1;
    if (kind == KIND_EXPONENTIAL && config_get(decay, "rate") == NULL) {
        return config_error(decay, err, "exponential decay needs a `rate`");
    }
    const struct {
        const char *key;
        double max;
        double *out;
    } numbers[] = {{"rate", 10, &schedule->rate},
                   {"end", RATE_MAX, &schedule->end},
                   {"power", 100, &schedule->power},
                   {"alpha", 1, &schedule->alpha}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        rc = config_read_f64(decay, numbers[i].key, 0, numbers[i].max, numbers[i].out, err);
        if (rc != 0) return rc;
    }
    rc = config_read_bool(decay, "staircase", &schedule->staircase, err);
    return rc != 0 ? rc : config_read_bool(decay, "cycle", &schedule->cycle, err);
}

int store_schedule_parse(const struct config_node *decay, struct store_schedule *schedule,
                         struct err *err)
{
    ASSERT(schedule->type == STORE_CONSTANT);
    if (decay == NULL) return 0;
    uint32_t kind = KIND_COUNT;
    int rc = read_kind(decay, &kind, err);
    if (rc != 0) return rc;
    if (kind == KIND_WARMUP) {
        rc = read_steps(decay, kind, &schedule->warmup_steps, err);
        if (rc == 0) {
            rc = config_read_f64(decay, "start", 0, RATE_MAX, &schedule->warmup_start, err);
        }
        decay = config_get(decay, "then");
        if (rc != 0 || decay == NULL) return rc;
        kind = KIND_COUNT;
        rc = read_kind(decay, &kind, err);
        if (rc == 0 && kind == KIND_WARMUP) {
            rc = config_error(decay, err, "a warm-up cannot follow a warm-up");
        }
        if (rc != 0) return rc;
    }
    return read_decay(decay, kind, schedule, err);
}
