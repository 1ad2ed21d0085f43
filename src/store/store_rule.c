#include "store/store_rule.h"

#include <math.h>
#include <stddef.h>

#include "base/assert.h"

/* What each type is made of: the kernel, its slots, the settings it takes (`type`, `learning_rate`,
 * `decay` and `clip_value` go with all). */
enum {
    SET_MOMENTUM = 1 << 0,
    SET_RHO = 1 << 1,
    SET_BETA1 = 1 << 2,
    SET_BETA2 = 1 << 3,
    SET_EPSILON = 1 << 4,
    SET_ACCUMULATOR = 1 << 5,
    SET_POWER = 1 << 6,
    SET_WEIGHT_DECAY = 1 << 7,
    SET_PENALTIES = 1 << 8,
    SETS_ADAM = SET_BETA1 | SET_BETA2 | SET_EPSILON | SET_PENALTIES,
};

static const struct kind {
    const char *name;
    enum kern_rule rule;
    uint32_t slots_count;
    const char *slots[STORE_SLOTS_MAX];
    uint32_t sets;
} kinds[STORE_RULE_COUNT] = {
    [STORE_SGD] = {"sgd", KERN_SGD, 0, {NULL}, SET_PENALTIES},
    [STORE_MOMENTUM] = {"momentum", KERN_MOMENTUM, 1, {"momentum"}, SET_MOMENTUM | SET_PENALTIES},
    [STORE_NESTEROV] = {"nesterov", KERN_NESTEROV, 1, {"momentum"}, SET_MOMENTUM | SET_PENALTIES},
    [STORE_ADAGRAD] = {"adagrad", KERN_ADAGRAD, 1, {"adagrad"}, SET_ACCUMULATOR | SET_PENALTIES},
    [STORE_RMSPROP] = {"rmsprop",
                       KERN_RMSPROP,
                       2,
                       {"rms", "momentum"},
                       SET_MOMENTUM | SET_RHO | SET_EPSILON | SET_PENALTIES},
    [STORE_ADAM] = {"adam", KERN_ADAM, 2, {"m", "v"}, SETS_ADAM},
    [STORE_ADAMW] = {"adamw", KERN_ADAM, 2, {"m", "v"}, SETS_ADAM | SET_WEIGHT_DECAY},
    [STORE_LAZY_ADAM] = {"lazy_adam", KERN_ADAM, 2, {"m", "v"}, SETS_ADAM},
    [STORE_FTRL] =
        {"ftrl", KERN_FTRL, 2, {"accum", "linear"}, SET_ACCUMULATOR | SET_POWER | SET_PENALTIES},
    [STORE_LAMB] = {"lamb", KERN_ADAM, 2, {"m", "v"}, SETS_ADAM | SET_WEIGHT_DECAY},
};

struct store_rule store_rule_default(enum store_rule_type type, double learning_rate)
{
    ASSERT((unsigned)type < STORE_RULE_COUNT);
    return (struct store_rule){
        .type = type,
        .schedule = {.learning_rate = learning_rate},
        .momentum = type == STORE_RMSPROP ? 0.0f : 0.9f,
        .rho = 0.9f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .epsilon = type == STORE_RMSPROP ? 1e-10f
                   : type == STORE_LAMB  ? 1e-6f
                                         : 1e-8f,
        .initial_accumulator = 0.1f,
        .power = -0.5f,
        .weight_decay = type == STORE_ADAMW ? 0.01f : 0.0f,
    };
}

/* Numbers by name: which types have them and what they may be. */
static const struct setting {
    const char *key;
    uint32_t sets; /* 0: all types */
    double min;
    double max;
    size_t offset;
} settings[] = {
    {"momentum", SET_MOMENTUM, 0, 1, offsetof(struct store_rule, momentum)},
    {"rho", SET_RHO, 0, 1, offsetof(struct store_rule, rho)},
    {"beta1", SET_BETA1, 0, 0.9999999, offsetof(struct store_rule, beta1)},
    {"beta2", SET_BETA2, 0, 0.9999999, offsetof(struct store_rule, beta2)},
    {"epsilon", SET_EPSILON, 0, 1, offsetof(struct store_rule, epsilon)},
    {"initial_accumulator", SET_ACCUMULATOR, 0, 1e6,
     offsetof(struct store_rule, initial_accumulator)},
    {"learning_rate_power", SET_POWER, -10, 0, offsetof(struct store_rule, power)},
    {"weight_decay", SET_WEIGHT_DECAY, 0, 1e3, offsetof(struct store_rule, weight_decay)},
    {"l1", SET_PENALTIES, 0, 1e6, offsetof(struct store_rule, l1)},
    {"l2", SET_PENALTIES, 0, 1e6, offsetof(struct store_rule, l2)},
    {"clip_value", 0, 0, 1e30, offsetof(struct store_rule, clip_value)},
};
#define SETTINGS_COUNT (sizeof settings / sizeof *settings)

static bool has_setting(enum store_rule_type type, const struct setting *setting)
{
    return setting->sets == 0 || (kinds[type].sets & setting->sets) != 0;
}

static int check_settings(const struct config_node *optimizer, enum store_rule_type type,
                          struct err *err)
{
    const char *allowed[SETTINGS_COUNT + 3] = {"type", "learning_rate", "decay"};
    size_t count = 3;
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        if (has_setting(type, &settings[i])) allowed[count++] = settings[i].key;
    }
    return config_check_keys(optimizer, allowed, count, err);
}

static int read_settings(const struct config_node *optimizer, struct store_rule *rule,
                         struct err *err)
{
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        const struct setting *setting = &settings[i];
        if (!has_setting(rule->type, setting)) continue;
        float *field = (float *)((char *)rule + setting->offset);
        double number = (double)*field;
        const int rc =
            config_read_f64(optimizer, setting->key, setting->min, setting->max, &number, err);
        if (rc != 0) return rc;
        *field = (float)number;
    }
    return 0;
}

int store_rule_parse(const struct config_node *optimizer, struct store_rule *rule_out,
                     struct err *err)
{
    if (config_kind(optimizer) != CONFIG_MAP) {
        return config_error(optimizer, err,
                            "an optimizer is a map such as {type: adagrad, learning_rate: 0.1}");
    }
    const char *names[STORE_RULE_COUNT];
    for (uint32_t i = 0; i < STORE_RULE_COUNT; i++) names[i] = kinds[i].name;
    uint32_t type = STORE_RULE_COUNT;
    int rc = config_read_choice(optimizer, "type", names, STORE_RULE_COUNT, &type, err);
    if (rc != 0) return rc;
    if (type == STORE_RULE_COUNT) {
        return config_error(optimizer, err, "an optimizer needs a `type`, such as adagrad");
    }
    rc = check_settings(optimizer, (enum store_rule_type)type, err);
    if (rc != 0) return rc;
    const struct config_node *decay = config_get(optimizer, "decay");
    if (config_get(optimizer, "learning_rate") == NULL) {
        return config_error(optimizer, err, "optimizer %s needs a `learning_rate`", names[type]);
    }
    struct store_rule rule = store_rule_default((enum store_rule_type)type, 0);
    rc = config_read_f64(optimizer, "learning_rate", 0, 1e6, &rule.schedule.learning_rate, err);
    if (rc != 0) return rc;
    rc = read_settings(optimizer, &rule, err);
    if (rc != 0) return rc;
    /* TensorFlow calls RMSProp's rho `decay`: a number there is that, a map is the schedule. */
    if (type == STORE_RMSPROP && decay != NULL && config_kind(decay) == CONFIG_SCALAR) {
        double rho = 0;
        rc = config_read_f64(optimizer, "decay", 0, 1, &rho, err);
        rule.rho = (float)rho;
    } else {
        rc = store_schedule_parse(decay, &rule.schedule, err);
    }
    if (rc == 0) *rule_out = rule;
    return rc;
}

const char *store_rule_name(enum store_rule_type type)
{
    ASSERT((unsigned)type < STORE_RULE_COUNT);
    return kinds[type].name;
}

uint32_t store_rule_slots(const struct store_rule *rule)
{
    return kinds[rule->type].slots_count;
}

const char *store_rule_slot_name(const struct store_rule *rule, uint32_t slot)
{
    ASSERT(slot < store_rule_slots(rule));
    return kinds[rule->type].slots[slot];
}

float store_rule_slot_initial(const struct store_rule *rule, uint32_t slot)
{
    ASSERT(slot < store_rule_slots(rule));
    if (slot == 1) return 0;
    if (rule->type == STORE_RMSPROP) return 1;
    const bool accumulates = rule->type == STORE_ADAGRAD || rule->type == STORE_FTRL;
    return accumulates ? rule->initial_accumulator : 0;
}

void store_rule_step(const struct store_rule *rule, uint64_t step, struct store_rule_step *step_out)
{
    const double lr = store_schedule_at(&rule->schedule, step);
    *step_out = (struct store_rule_step){
        .kern = kern_default(),
        .update = {.rule = kinds[rule->type].rule,
                   .lr = (float)lr,
                   .scale = 1,
                   .clip = rule->clip_value,
                   .l1 = rule->l1,
                   .l2 = rule->l2,
                   .momentum = rule->momentum,
                   .beta1 = rule->beta1,
                   .beta2 = rule->type == STORE_RMSPROP ? rule->rho : rule->beta2,
                   .epsilon = rule->epsilon,
                   .power = rule->power},
        .learning_rate = (float)lr,
        .delay_lambda = rule->delay_lambda,
        .needs_finish = rule->type == STORE_LAMB,
    };
    if (kinds[rule->type].rule != KERN_ADAM) return;
    const double t = (double)step + 1;
    const double m_scale = 1 / (1 - pow((double)rule->beta1, t));
    const double v_scale = 1 / (1 - pow((double)rule->beta2, t));
    struct kern_update *update = &step_out->update;
    if (rule->type == STORE_LAMB) {
        step_out->m_scale = (float)m_scale;
        step_out->v_scale = (float)v_scale;
        update->decay = rule->weight_decay;
    } else {
        update->lr = (float)(lr * m_scale / sqrt(v_scale));
        update->decay = rule->type == STORE_ADAMW ? (float)(lr * (double)rule->weight_decay) : 0;
    }
}

/* Elements worked on at a time where a copy of the gradient is needed: fits the first cache. */
#define PIECE 1024u

void store_rule_apply(const struct store_rule_step *step, size_t count, float *value, float *slot0,
                      float *slot1, const float *gradient, const float *pulled)
{
    const struct kern *kern = step->kern;
    const bool is_delayed = pulled != NULL && step->delay_lambda != 0;
    if (!is_delayed && !step->needs_finish) {
        kern->update(&step->update, count, value, slot0, slot1, gradient);
        return;
    }
    float compensated[PIECE];
    float direction[PIECE]; /* Not wanted: store_rule_finish works it out from whole blocks. */
    double norms[2] = {0, 0};
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t piece = count - at < PIECE ? count - at : PIECE;
        const float *g = gradient + at;
        if (is_delayed) {
            kern->delay_compensate(piece, step->delay_lambda, g, value + at, pulled + at,
                                   compensated);
            g = compensated;
        }
        float *s0 = slot0 == NULL ? NULL : slot0 + at;
        float *s1 = slot1 == NULL ? NULL : slot1 + at;
        if (step->needs_finish) {
            kern->lamb_direction(&step->update, step->m_scale, step->v_scale, piece, value + at, s0,
                                 s1, g, direction, norms);
        } else {
            kern->update(&step->update, piece, value + at, s0, s1, g);
        }
    }
}

/* You et al., "Large batch optimization for deep learning", ICLR '20, algorithm 2: the block moves
 * by lr * |w| / |d| * d, where d = m' / (sqrt(v') + epsilon) + decay w; a norm of zero counts as no
 * scaling. */
static float lamb_direction_of(const struct store_rule_step *step, float w, float m, float v)
{
    return m * step->m_scale / (sqrtf(v * step->v_scale) + step->update.epsilon) +
           step->update.decay * w;
}

void store_rule_finish(const struct store_rule_step *step, size_t count, float *value,
                       const float *m, const float *v)
{
    ASSERT(step->needs_finish);
    double value_squares = 0;
    double direction_squares = 0;
    for (size_t i = 0; i < count; i++) {
        const double d = (double)lamb_direction_of(step, value[i], m[i], v[i]);
        value_squares += (double)value[i] * (double)value[i];
        direction_squares += d * d;
    }
    const bool scales = value_squares > 0 && direction_squares > 0;
    const double trust = scales ? sqrt(value_squares) / sqrt(direction_squares) : 1;
    const float move = (float)((double)step->learning_rate * trust);
    for (size_t i = 0; i < count; i++) {
        value[i] -= move * lamb_direction_of(step, value[i], m[i], v[i]);
    }
}
