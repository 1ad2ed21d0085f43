#include "store/store_rule.h"

#include <jansson.h>
#include <stdlib.h>

#include "../tests/test.h"
#include "base/rand.h"
#include "store/store.h"

static int parse(const char *text, struct store_rule *rule, struct err *err)
{
    struct config *config = NULL;
    int rc = config_parse("job.yaml", text, &config, err);
    if (rc == 0) {
        rc = store_rule_parse(config_get(config_root(config), "optimizer"), rule, err);
    }
    config_destroy(config);
    return rc;
}

/* ---- Golden ---- */

enum { ROWS_MAX = 64, COLS_MAX = 16 };

struct matrix {
    size_t rows;
    size_t cols;
    float values[ROWS_MAX * COLS_MAX];
};

static struct matrix matrix_of(const json_t *json)
{
    struct matrix matrix = {.rows = json_array_size(json),
                            .cols = json_array_size(json_array_get(json, 0))};
    CHECK(matrix.rows > 0 && matrix.rows <= ROWS_MAX);
    CHECK(matrix.cols > 0 && matrix.cols <= COLS_MAX);
    for (size_t r = 0; r < matrix.rows; r++) {
        for (size_t c = 0; c < matrix.cols; c++) {
            const json_t *number = json_array_get(json_array_get(json, r), c);
            matrix.values[r * matrix.cols + c] = (float)json_number_value(number);
        }
    }
    return matrix;
}

static void check_golden(const char *rule, const char *form, size_t step, const float *got,
                         const struct matrix *want)
{
    double largest = 0;
    for (size_t i = 0; i < want->rows * want->cols; i++) {
        largest = fmax(largest, fabs((double)want->values[i]));
    }
    for (size_t i = 0; i < want->rows * want->cols; i++) {
        const double difference = fabs((double)got[i] - (double)want->values[i]);
        if (difference <= 1e-6 * largest) continue;
        test_fail(__FILE__, __LINE__,
                  "update_rules.json: %s %s step %zu element %zu: got %.9g, want %.9g", rule, form,
                  step, i, (double)got[i], (double)want->values[i]);
    }
}

/* A store with one table of the golden start's shape, under a rule. */
static struct store *golden_store(const struct matrix *start, enum store_kind kind,
                                  const struct store_rule *rule)
{
    struct err err;
    struct store *store = NULL;
    uint32_t table = 0;
    CHECK_OK(store_create(&(struct store_opts){0}, &store, &err));
    CHECK_OK(store_table_add(store,
                             &(struct store_table_opts){.name = "w",
                                                        .kind = kind,
                                                        .rows = start->rows,
                                                        .cols = (uint32_t)start->cols,
                                                        .rule = *rule,
                                                        .shards = 2},
                             &table, &err));
    CHECK_INT(table, 0);
    return store;
}

static void golden_dense(const char *name, const struct store_rule *rule, const json_t *golden,
                         const json_t *want)
{
    struct err err;
    const struct matrix start = matrix_of(json_object_get(golden, "start"));
    struct store *store = golden_store(&start, STORE_DENSE, rule);
    CHECK_OK(store_assign_dense(store, 0, 0, 0, start.rows * start.cols, start.values, &err));
    const json_t *gradients = json_object_get(golden, "dense_gradients");
    for (size_t step = 0; step < json_array_size(gradients); step++) {
        const struct matrix gradient = matrix_of(json_array_get(gradients, step));
        CHECK_OK(store_dense_push(store, &(struct store_dense_push){.step = step}, gradient.values,
                                  NULL, NULL, &err));
        const struct matrix after = matrix_of(json_array_get(want, step));
        check_golden(name, "dense", step, store_dense_values(store, 0, false), &after);
    }
    store_destroy(store);
}

/* Duplicate rows of one gradient are summed before the rule is applied: that is the caller's part. */
static uint32_t join_rows(const json_t *rows, const struct matrix *gradient, uint64_t *keys,
                          float *joined)
{
    uint32_t count = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const uint64_t key = (uint64_t)json_integer_value(json_array_get(rows, i));
        uint32_t at = 0;
        while (at < count && keys[at] != key) at++;
        for (size_t c = 0; c < gradient->cols; c++) {
            float *sum = &joined[at * gradient->cols + c];
            *sum = (at == count ? 0 : *sum) + gradient->values[i * gradient->cols + c];
        }
        if (at == count) keys[count++] = key;
    }
    return count;
}

static void golden_sparse(const char *name, const struct store_rule *rule, const json_t *golden,
                          const json_t *want)
{
    struct err err;
    const struct matrix start = matrix_of(json_object_get(golden, "start"));
    struct store *store = golden_store(&start, STORE_FIXED, rule);
    uint64_t all[ROWS_MAX];
    for (size_t i = 0; i < start.rows; i++) all[i] = i;
    struct matrix got = start;
    CHECK_OK(store_assign_rows(
        store,
        &(struct store_rows){.count = (uint32_t)start.rows, .keys = all, .parts = {got.values}},
        &err));
    const json_t *gradients = json_object_get(golden, "sparse_gradients");
    for (size_t step = 0; step < json_array_size(gradients); step++) {
        const struct matrix gradient = matrix_of(json_array_get(gradients, step));
        const json_t *rows = json_array_get(json_object_get(golden, "sparse_rows"), step);
        uint64_t keys[ROWS_MAX];
        float joined[ROWS_MAX * COLS_MAX];
        const uint32_t count = join_rows(rows, &gradient, keys, joined);
        CHECK_OK(store_push(
            store,
            &(struct store_push){.count = count, .step = step, .keys = keys, .gradients = joined},
            NULL, NULL, &err));
        CHECK_OK(store_pull(
            store,
            &(struct store_pull){.count = (uint32_t)start.rows, .keys = all, .rows = got.values},
            NULL, &err));
        const struct matrix after = matrix_of(json_array_get(want, step));
        check_golden(name, "sparse", step, got.values, &after);
    }
    store_destroy(store);
}

/* Every rule of the golden file, dense and sparse, gives TensorFlow's weights after each step. */
TEST(golden_update_rules)
{
    json_error_t json_error;
    json_t *golden = json_load_file(test_path("golden/update_rules.json"), 0, &json_error);
    if (golden == NULL) test_fail(__FILE__, __LINE__, "update_rules.json: %s", json_error.text);
    const char *name = NULL;
    json_t *entry = NULL;
    int compared = 0;
    json_object_foreach(json_object_get(golden, "rules"), name, entry)
    {
        char *settings = json_dumps(json_object_get(entry, "settings"), JSON_COMPACT);
        char text[1024];
        snprintf(text, sizeof text, "optimizer: %s", settings);
        free(settings);
        struct err err;
        struct store_rule rule;
        CHECK_OK(parse(text, &rule, &err));
        golden_dense(name, &rule, golden, json_object_get(entry, "dense"));
        golden_sparse(name, &rule, golden, json_object_get(entry, "sparse"));
        compared++;
    }
    CHECK(compared >= 1);
    json_decref(golden);
}

/* ---- A float64 reference of every rule ---- */

struct reference {
    double w;
    double s0;
    double s1;
};

static double sign_of(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}

static double clamp(double x, double limit)
{
    return limit > 0 ? fmax(-limit, fmin(limit, x)) : x;
}

static void reference_ftrl(const struct store_rule *rule, double lr, struct reference *r, double g)
{
    const double p = -(double)rule->power;
    const double sum = r->s0 + g * g;
    r->s1 += g - (pow(sum, p) - pow(r->s0, p)) / lr * r->w;
    r->s0 = sum;
    const double l1 = (double)rule->l1;
    r->w = fabs(r->s1) > l1
               ? (sign_of(r->s1) * l1 - r->s1) / (pow(sum, p) / lr + 2 * (double)rule->l2)
               : 0;
}

/* One element; LAMB's direction is left in *direction and w unmoved. */
static void reference_step(const struct store_rule *rule, uint64_t step, struct reference *r,
                           double g, double *direction)
{
    const double lr = store_schedule_at(&rule->schedule, step);
    const double b1 = (double)rule->beta1;
    const double b2 = (double)rule->beta2;
    const double t = (double)step + 1;
    g = clamp(g, (double)rule->clip_value);
    if (rule->type == STORE_FTRL) {
        reference_ftrl(rule, lr, r, g);
        return;
    }
    g += (double)rule->l2 * r->w + (double)rule->l1 * sign_of(r->w);
    const double mu = (double)rule->momentum;
    switch (rule->type) {
    case STORE_SGD: r->w -= lr * g; return;
    case STORE_MOMENTUM:
        r->s0 = mu * r->s0 + g;
        r->w -= lr * r->s0;
        return;
    case STORE_NESTEROV:
        r->s0 = mu * r->s0 + g;
        r->w -= lr * (g + mu * r->s0);
        return;
    case STORE_ADAGRAD:
        r->s0 += g * g;
        r->w -= lr * g / sqrt(r->s0);
        return;
    case STORE_RMSPROP:
        r->s0 += (g * g - r->s0) * (1 - (double)rule->rho);
        r->s1 = mu * r->s1 + lr * g / sqrt(r->s0 + (double)rule->epsilon);
        r->w -= r->s1;
        return;
    default: break;
    }
    r->s0 += (g - r->s0) * (1 - b1);
    r->s1 += (g * g - r->s1) * (1 - b2);
    const double m = r->s0 / (1 - pow(b1, t));
    const double v = r->s1 / (1 - pow(b2, t));
    const double decay = (double)rule->weight_decay;
    if (rule->type == STORE_LAMB) {
        *direction = m / (sqrt(v) + (double)rule->epsilon) + decay * r->w;
        return;
    }
    /* TensorFlow's epsilon stands beside the uncorrected root. */
    const double lr_t = lr * sqrt(1 - pow(b2, t)) / (1 - pow(b1, t));
    const double old = r->w;
    r->w -= lr_t * r->s0 / (sqrt(r->s1) + (double)rule->epsilon);
    if (rule->type == STORE_ADAMW) r->w -= lr * decay * old;
}

static void reference_block(const struct store_rule *rule, uint64_t step, struct reference *block,
                            size_t count, const float *gradient)
{
    double directions[256];
    double w2 = 0;
    double d2 = 0;
    for (size_t i = 0; i < count; i++) {
        reference_step(rule, step, &block[i], (double)gradient[i], &directions[i]);
    }
    if (rule->type != STORE_LAMB) return;
    for (size_t i = 0; i < count; i++) {
        w2 += block[i].w * block[i].w;
        d2 += directions[i] * directions[i];
    }
    const double trust = w2 > 0 && d2 > 0 ? sqrt(w2 / d2) : 1;
    const double lr = store_schedule_at(&rule->schedule, step);
    for (size_t i = 0; i < count; i++) block[i].w -= lr * trust * directions[i];
}

enum { COUNT = 37, STEPS = 25 };

static void check_rule(const struct store_rule *rule)
{
    struct reference reference[COUNT];
    float value[COUNT];
    float slots[STORE_SLOTS_MAX][COUNT] = {{0}};
    const uint32_t slots_count = store_rule_slots(rule);
    for (int i = 0; i < COUNT; i++) {
        value[i] = rand_normal(3, RAND_TEST, 1, (uint64_t)i);
        for (uint32_t s = 0; s < slots_count; s++) slots[s][i] = store_rule_slot_initial(rule, s);
        reference[i] =
            (struct reference){(double)value[i], (double)slots[0][i], (double)slots[1][i]};
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        float gradient[COUNT];
        for (int i = 0; i < COUNT; i++) {
            gradient[i] = rand_normal(3, RAND_TEST, 2 + step, (uint64_t)i);
        }
        struct store_rule_step now;
        store_rule_step(rule, step, &now);
        store_rule_apply(&now, COUNT, value, slots_count > 0 ? slots[0] : NULL,
                         slots_count > 1 ? slots[1] : NULL, gradient, NULL);
        if (now.needs_finish) store_rule_finish(&now, COUNT, value, slots[0], slots[1]);
        reference_block(rule, step, reference, COUNT, gradient);
        for (int i = 0; i < COUNT; i++) {
            if (fabs((double)value[i] - reference[i].w) <= 2e-5 * (1 + fabs(reference[i].w))) {
                continue;
            }
            test_fail(__FILE__, __LINE__, "%s step %llu element %d: got %.9g, want %.9g",
                      store_rule_name(rule->type), (unsigned long long)step, i, (double)value[i],
                      reference[i].w);
        }
    }
}

/* Every rule follows its formula in double precision for 25 steps: plain, and with clipping,
 * penalties and a schedule. */
TEST(every_rule_against_float64)
{
    for (int type = 0; type < STORE_RULE_COUNT; type++) {
        struct store_rule rule = store_rule_default((enum store_rule_type)type, 0.02);
        check_rule(&rule);
        rule.clip_value = 0.7f;
        rule.l1 = 0.01f;
        rule.l2 = 0.05f;
        if (type == STORE_ADAMW || type == STORE_LAMB) rule.weight_decay = 0.1f;
        rule.schedule.type = STORE_EXPONENTIAL;
        rule.schedule.rate = 0.5;
        rule.schedule.steps = 10;
        check_rule(&rule);
    }
}

/* Delay compensation moves the gradient by lambda g^2 (now - pulled) before anything else. */
TEST(delay_compensation)
{
    enum { MANY = 2500 };
    struct store_rule rule = store_rule_default(STORE_SGD, 0.5);
    rule.delay_lambda = 0.25f;
    struct store_rule_step step;
    store_rule_step(&rule, 0, &step);
    static float value[MANY];
    static float pulled[MANY];
    static float gradient[MANY];
    static double want[MANY];
    for (uint64_t i = 0; i < MANY; i++) {
        value[i] = rand_normal(4, RAND_TEST, 1, i);
        pulled[i] = rand_normal(4, RAND_TEST, 2, i);
        gradient[i] = rand_normal(4, RAND_TEST, 3, i);
        const double g = (double)gradient[i];
        want[i] =
            (double)value[i] - 0.5 * (g + 0.25 * g * g * ((double)value[i] - (double)pulled[i]));
    }
    store_rule_apply(&step, MANY, value, NULL, NULL, gradient, pulled);
    for (int i = 0; i < MANY; i++) CHECK_NEAR(value[i], want[i], 2e-6);
}

/* ---- Reading ---- */

TEST(parse_of_all_settings)
{
    struct err err;
    struct store_rule rule;
    CHECK_OK(parse("optimizer: {type: adagrad, learning_rate: 0.1, initial_accumulator: 0.2, "
                   "clip_value: 5, l2: 1e-4, decay: {type: exponential, rate: 0.9, steps: 10000}}",
                   &rule, &err));
    CHECK_INT(rule.type, STORE_ADAGRAD);
    CHECK_NEAR(rule.initial_accumulator, 0.2f, 0);
    CHECK_NEAR(rule.clip_value, 5, 0);
    CHECK_NEAR(rule.l2, 1e-4f, 0);
    CHECK_INT(rule.schedule.type, STORE_EXPONENTIAL);
    CHECK_NEAR(store_schedule_at(&rule.schedule, 10000), 0.09, 1e-9);
    CHECK_OK(parse("optimizer: {type: rmsprop, learning_rate: 0.1, decay: 0.8}", &rule, &err));
    CHECK_NEAR(rule.rho, 0.8f, 0);
    CHECK_INT(rule.schedule.type, STORE_CONSTANT);
    CHECK_OK(parse("optimizer: {type: rmsprop, rho: 0.7, learning_rate: 0.1, decay: {type: cosine, "
                   "steps: 5}}",
                   &rule, &err));
    CHECK_NEAR(rule.rho, 0.7f, 0);
    CHECK_INT(rule.schedule.type, STORE_COSINE);
}

TEST(mistakes)
{
    const struct {
        const char *text;
        const char *want;
    } cases[] = {
        {"optimizer: adam", "job.yaml:1:12: "},
        {"optimizer: {learning_rate: 0.1}", "type"},
        {"optimizer: {type: adma, learning_rate: 0.1}", "adam"},
        {"optimizer: {type: adam}", "learning_rate"},
        {"optimizer: {type: adam, learning_rate: -1}", "learning_rate"},
        {"optimizer: {type: sgd, learning_rate: 0.1, momentum: 0.9}", "momentum"},
        {"optimizer: {type: adam, learning_rate: 0.1, beta1: 1}", "beta1"},
        {"optimizer: {type: adam, learning_rate: 0.1, decay: 0.9}", "decay"},
        {"optimizer: {type: rmsprop, learning_rate: 0.1, decay: 2}", "decay"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct store_rule rule;
        CHECK_INT(parse(cases[i].text, &rule, &err), SHOAL_ECONFIG);
        CHECK_HAS(err.text, "job.yaml:1:");
        CHECK_HAS(err.text, cases[i].want);
    }
}

/* Slots have the names that checkpoints use. */
TEST(slots)
{
    const struct store_rule adagrad = store_rule_default(STORE_ADAGRAD, 1);
    CHECK_INT(store_rule_slots(&adagrad), 1);
    CHECK_STR(store_rule_slot_name(&adagrad, 0), "adagrad");
    CHECK_NEAR(store_rule_slot_initial(&adagrad, 0), 0.1f, 0);
    const struct store_rule rmsprop = store_rule_default(STORE_RMSPROP, 1);
    CHECK_NEAR(store_rule_slot_initial(&rmsprop, 0), 1, 0);
    CHECK_NEAR(store_rule_slot_initial(&rmsprop, 1), 0, 0);
    const struct store_rule sgd = store_rule_default(STORE_SGD, 1);
    CHECK_INT(store_rule_slots(&sgd), 0);
}
