#include "tensor/kern_check.h"

#include <jansson.h>

static const char *const names[KERN_RULE_COUNT] = {"sgd",     "momentum", "nesterov", "adagrad",
                                                   "rmsprop", "adam",     "ftrl"};

static struct kern_update update_of(enum kern_rule rule, uint32_t extra)
{
    return (struct kern_update){
        .rule = rule,
        .lr = 0.1f,
        .scale = extra & 1 ? 0.5f : 1,
        .clip = extra & 2 ? 0.3f : 0,
        .l1 = extra & 4 ? 0.01f : 0,
        .l2 = extra & 4 ? 0.02f : 0,
        .momentum = 0.9f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .epsilon = 1e-7f,
        .decay = rule == KERN_ADAM && extra & 8 ? 0.01f : 0,
        .power = extra & 16 ? -0.4f : -0.5f,
    };
}

/* Slots that are sums of squares start above 0; the others anywhere. */
static void slots_init(enum kern_rule rule, size_t n, float *slot0, float *slot1)
{
    for (size_t i = 0; i < n; i++) {
        if (rule >= KERN_ADAGRAD && rule != KERN_ADAM) slot0[i] = fabsf(slot0[i]) + 0.1f;
        if (rule == KERN_ADAM) slot1[i] = fabsf(slot1[i]) + 0.01f;
    }
}

/* Every rule over arrays, with every mixture of clipping, scaling and regularisation. */
TEST(update_equals_reference)
{
    static const size_t sizes[] = {0, 1, 5, 16, 33, 100};
    EACH_KERN(kern)
    {
        for (enum kern_rule rule = KERN_SGD; rule < KERN_RULE_COUNT; rule++) {
            for (uint32_t c = 0; c < 32 * 6; c++) {
                const struct kern_update update = update_of(rule, c / 6);
                const size_t n = sizes[c % 6];
                const float *grad = array_random(n, 4);
                float *p[2][3];
                for (int i = 0; i < 3; i++) p[0][i] = array_random(n, (uint64_t)i);
                slots_init(rule, n, p[0][1], p[0][2]);
                for (int i = 0; i < 3; i++) p[1][i] = array_copy(n, p[0][i]);
                const uint32_t slots = kern_rule_slots(rule);
                for (int i = 0; i < 2; i++)
                    (i ? kern : &kern_ref)
                        ->update(&update, n, p[i][0], slots > 0 ? p[i][1] : NULL,
                                 slots > 1 ? p[i][2] : NULL, grad);
                for (int i = 0; i < 3; i++)
                    check_close(names[rule], kern, n, p[1][i], p[0][i], 2e-6);
                arrays_free();
            }
        }
    }
}

/* The same over scattered rows: exactly what the form over arrays gives for each. */
TEST(update_rows_equals_update)
{
    static const size_t dims[] = {1, 4, 7, 16, 20};
    enum { ROWS = 20 };
    EACH_KERN(kern)
    {
        for (enum kern_rule rule = KERN_SGD; rule < KERN_RULE_COUNT; rule++) {
            for (uint32_t c = 0; c < 8 * 5; c++) {
                const struct kern_update update = update_of(rule, c / 5);
                const size_t dim = dims[c % 5], ldslot = dim + (c & 1);
                const size_t floats = (kern_rule_slots(rule)) * ldslot + dim;
                const float *grad = array_random(ROWS * (dim + 1), 1);
                float *rows[ROWS];
                float *want[ROWS];
                for (size_t i = 0; i < ROWS; i++) {
                    rows[i] = array_random(floats, i + 10);
                    for (size_t j = dim; j < floats; j++) rows[i][j] = fabsf(rows[i][j]) + 0.1f;
                    want[i] = array_copy(floats, rows[i]);
                    kern->update(&update, dim, want[i], want[i] + ldslot, want[i] + 2 * ldslot,
                                 grad + i * (dim + 1));
                }
                kern->update_rows(&update, ROWS, dim, ldslot, rows, grad, dim + 1);
                for (size_t i = 0; i < ROWS; i++)
                    CHECK(memcmp(rows[i], want[i], floats * sizeof(float)) == 0);
                arrays_free();
            }
        }
    }
}

TEST(lamb_direction_equals_reference)
{
    EACH_KERN(kern)
    {
        const size_t n = 203;
        struct kern_update update = update_of(KERN_ADAM, 8);
        const float *value = array_random(n, 1);
        const float *grad = array_random(n, 2);
        float *m[2] = {array_random(n, 3), array_random(n, 3)};
        float *v[2] = {array_random(n, 4), array_random(n, 4)};
        float *direction[2] = {array_random(n, 5), array_random(n, 5)};
        double norms[2][2] = {{1, 2}, {1, 2}};
        for (int i = 0; i < 2; i++) {
            slots_init(KERN_ADAM, n, m[i], v[i]);
            (i ? kern : &kern_ref)
                ->lamb_direction(&update, 1.5f, 2.5f, n, value, m[i], v[i], grad, direction[i],
                                 norms[i]);
        }
        check_close("m", kern, n, m[1], m[0], 1e-6);
        check_close("v", kern, n, v[1], v[0], 1e-6);
        check_close("direction", kern, n, direction[1], direction[0], 2e-6);
        CHECK_NEAR(norms[1][0], norms[0][0], 1e-5 * norms[0][0]);
        CHECK_NEAR(norms[1][1], norms[0][1], 1e-5 * norms[0][1]);
        arrays_free();
    }
}

static float number(const json_t *object, const char *key, float otherwise)
{
    const json_t *value = json_object_get(object, key);
    return value == NULL ? otherwise : (float)json_number_value(value);
}

static void matrix(const json_t *rows, float *to)
{
    for (size_t i = 0; i < json_array_size(rows); i++)
        for (size_t j = 0; j < json_array_size(json_array_get(rows, i)); j++)
            *to++ = (float)json_number_value(json_array_get(json_array_get(rows, i), j));
}

/* Adam's learning rate with its bias correction, at t = step + 1. */
static float adam_rate(const json_t *settings, float lr, size_t step)
{
    const double t = (double)step + 1;
    const double beta1 = json_number_value(json_object_get(settings, "beta1"));
    const double beta2 = json_number_value(json_object_get(settings, "beta2"));
    return (float)((double)lr * sqrt(1 - pow(beta2, t)) / (1 - pow(beta1, t)));
}

/* Eight steps from TensorFlow's start give TensorFlow's weights after each, dense gradients. */
TEST(rules_equal_tensorflow)
{
    enum { N = 18, STEPS = 8 };
    json_error_t error;
    json_t *golden = json_load_file(test_path("golden/update_rules.json"), 0, &error);
    if (golden == NULL) test_fail(__FILE__, __LINE__, "%s", error.text);
    EACH_KERN(kern)
    {
        for (enum kern_rule rule = KERN_SGD; rule < KERN_RULE_COUNT; rule++) {
            const json_t *job = json_object_get(json_object_get(golden, "rules"), names[rule]);
            const json_t *settings = json_object_get(job, "settings");
            float w[N], grad[N], want[N], slot0[N], slot1[N];
            matrix(json_object_get(golden, "start"), w);
            for (int i = 0; i < N; i++) {
                slot0[i] = rule == KERN_RMSPROP ? 1 : number(settings, "initial_accumulator", 0);
                slot1[i] = 0;
            }
            const float lr = number(settings, "learning_rate", 0);
            struct kern_update update = {
                .rule = rule,
                .lr = lr,
                .scale = 1,
                .momentum = number(settings, "momentum", 0),
                .l1 = number(settings, "l1", 0),
                .l2 = number(settings, "l2", 0),
                .beta1 = number(settings, "beta1", 0),
                .beta2 = number(settings, rule == KERN_RMSPROP ? "decay" : "beta2", 0),
                .epsilon = number(settings, "epsilon", 0),
                .power = number(settings, "learning_rate_power", 0),
            };
            for (size_t step = 0; step < STEPS; step++) {
                if (rule == KERN_ADAM) update.lr = adam_rate(settings, lr, step);
                matrix(json_array_get(json_object_get(golden, "dense_gradients"), step), grad);
                matrix(json_array_get(json_object_get(job, "dense"), step), want);
                kern->update(&update, N, w, slot0, slot1, grad);
                check_close(names[rule], kern, N, w, want, 1e-6);
            }
        }
    }
    json_decref(golden);
}
