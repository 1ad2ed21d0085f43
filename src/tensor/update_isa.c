/* Update rules, one pass over value, slots and gradient. Each rule is one function on vectors
 * (`apply`); the loops over arrays and over rows are made from it for each rule, with and without
 * the clipping and l1/l2 terms that most jobs do not have. */
#include "tensor/isa.h"

/* One vector of a parameter and its slots. */
struct lane {
    vf w;
    vf s0;
    vf s1;
};

INLINE vf sign_times(float x, vf w) /* x sign(w), 0 where w is 0 */
{
    const vf s = vf_with_sign(vf_set(x), w);
    return vf_keep(vf_gt(vf_abs(w), vf_zero()), s);
}

INLINE vf gradient(const struct kern_update *u, bool bare, vf w, vf grad)
{
    vf g = vf_mul(grad, vf_set(u->scale));
    if (bare) return g;
    if (u->clip > 0) g = vf_min(vf_set(u->clip), vf_max(vf_set(-u->clip), g)); /* NaN stays */
    if (u->rule == KERN_FTRL) return g;
    return vf_add(vf_fma(vf_set(u->l2), w, g), sign_times(u->l1, w));
}

/* x^-power, most often a square root. */
INLINE vf ftrl_power(float power, vf x)
{
    return power == -0.5f ? vf_sqrt(x) : vf_exp(vf_mul(vf_set(-power), vf_log(x)));
}

INLINE struct lane ftrl(const struct kern_update *u, struct lane p, vf g)
{
    const vf sum = vf_fma(g, g, p.s0);
    const vf power = ftrl_power(u->power, sum);
    const vf sigma = vf_div(vf_sub(power, ftrl_power(u->power, p.s0)), vf_set(u->lr));
    p.s1 = vf_fnma(sigma, p.w, vf_add(p.s1, g));
    p.s0 = sum;
    const vf over = vf_add(vf_div(power, vf_set(u->lr)), vf_set(2 * u->l2));
    const vf pulled = vf_sub(vf_with_sign(vf_set(u->l1), p.s1), p.s1);
    p.w = vf_keep(vf_gt(vf_abs(p.s1), vf_set(u->l1)), vf_div(pulled, over));
    return p;
}

INLINE struct lane apply(enum kern_rule rule, bool bare, const struct kern_update *u, struct lane p,
                         vf grad)
{
    const vf lr = vf_set(u->lr);
    const vf g = gradient(u, bare, p.w, grad);
    switch (rule) {
    case KERN_SGD: p.w = vf_fnma(lr, g, p.w); break;
    case KERN_MOMENTUM:
        p.s0 = vf_fma(vf_set(u->momentum), p.s0, g);
        p.w = vf_fnma(lr, p.s0, p.w);
        break;
    case KERN_NESTEROV:
        p.s0 = vf_fma(vf_set(u->momentum), p.s0, g);
        p.w = vf_fnma(lr, vf_fma(vf_set(u->momentum), p.s0, g), p.w);
        break;
    case KERN_ADAGRAD:
        p.s0 = vf_fma(g, g, p.s0);
        p.w = vf_sub(p.w, vf_div(vf_mul(lr, g), vf_sqrt(p.s0)));
        break;
    case KERN_RMSPROP:
        p.s0 = vf_fma(vf_fma(g, g, vf_sub(vf_zero(), p.s0)), vf_set(1 - u->beta2), p.s0);
        p.s1 = vf_fma(vf_set(u->momentum), p.s1,
                      vf_div(vf_mul(lr, g), vf_sqrt(vf_add(p.s0, vf_set(u->epsilon)))));
        p.w = vf_sub(p.w, p.s1);
        break;
    case KERN_ADAM: {
        p.s0 = vf_fma(vf_sub(g, p.s0), vf_set(1 - u->beta1), p.s0);
        p.s1 = vf_fma(vf_fma(g, g, vf_sub(vf_zero(), p.s1)), vf_set(1 - u->beta2), p.s1);
        const vf move = vf_div(vf_mul(lr, p.s0), vf_add(vf_sqrt(p.s1), vf_set(u->epsilon)));
        p.w = vf_sub(p.w, bare ? move : vf_fma(vf_set(u->decay), p.w, move));
        break;
    }
    case KERN_FTRL: p = ftrl(u, p, g); break;
    case KERN_RULE_COUNT: break;
    }
    return p;
}

INLINE bool is_bare(const struct kern_update *u)
{
    return u->clip <= 0 && u->decay == 0 && (u->rule == KERN_FTRL || (u->l1 == 0 && u->l2 == 0));
}

INLINE void update_lanes(enum kern_rule rule, bool bare, const struct kern_update *u, size_t n,
                         float *value, float *slot0, float *slot1, const float *grad)
{
    const bool has0 = rule != KERN_SGD;
    const bool has1 = rule == KERN_RMSPROP || rule == KERN_ADAM || rule == KERN_FTRL;
    FOR_LANES(i, k, n)
    {
        struct lane p = {.w = vf_load_tail(value + i, k), .s0 = vf_zero(), .s1 = vf_zero()};
        if (has0) p.s0 = vf_load_tail(slot0 + i, k);
        if (has1) p.s1 = vf_load_tail(slot1 + i, k);
        p = apply(rule, bare, u, p, vf_load_tail(grad + i, k));
        vf_store_tail(value + i, p.w, k);
        if (has0) vf_store_tail(slot0 + i, p.s0, k);
        if (has1) vf_store_tail(slot1 + i, p.s1, k);
    }
}

/* Calls body(rule, bare) with both constants. */
#define WITH_RULE(u, body)                                                                         \
    switch ((u)->rule) {                                                                           \
    case KERN_SGD: WITH_BARE(u, body, KERN_SGD) break;                                             \
    case KERN_MOMENTUM: WITH_BARE(u, body, KERN_MOMENTUM) break;                                   \
    case KERN_NESTEROV: WITH_BARE(u, body, KERN_NESTEROV) break;                                   \
    case KERN_ADAGRAD: WITH_BARE(u, body, KERN_ADAGRAD) break;                                     \
    case KERN_RMSPROP: WITH_BARE(u, body, KERN_RMSPROP) break;                                     \
    case KERN_ADAM: WITH_BARE(u, body, KERN_ADAM) break;                                           \
    case KERN_FTRL: WITH_BARE(u, body, KERN_FTRL) break;                                           \
    case KERN_RULE_COUNT: break;                                                                   \
    }
#define WITH_BARE(u, body, rule)                                                                   \
    if (is_bare(u)) {                                                                              \
        body(rule, true);                                                                          \
    } else {                                                                                       \
        body(rule, false);                                                                         \
    }

void update_isa(const struct kern_update *update, size_t n, float *value, float *slot0,
                float *slot1, const float *grad)
{
    const struct kern_update u = *update; /* A copy, so that stores cannot change it. */
#define BODY(rule, bare) update_lanes(rule, bare, &u, n, value, slot0, slot1, grad)
    WITH_RULE(&u, BODY)
#undef BODY
}

/* Rows are scattered: those to come are asked for while one is worked on. */
#define ROWS_AHEAD 8

INLINE void update_each(enum kern_rule rule, bool bare, const struct kern_update *u, size_t rows,
                        size_t dim, size_t ldslot, float *const *row, const float *grad,
                        size_t ldgrad)
{
    const size_t floats = (1 + kern_rule_slots(rule)) * ldslot;
    for (size_t i = 0; i < rows; i++, grad += ldgrad) {
        if (i + ROWS_AHEAD < rows)
            for (size_t j = 0; j < floats; j += 16) __builtin_prefetch(row[i + ROWS_AHEAD] + j, 1);
        float *value = row[i];
        update_lanes(rule, bare, u, dim, value, value + ldslot, value + 2 * ldslot, grad);
    }
}

void update_rows_isa(const struct kern_update *update, size_t rows, size_t dim, size_t ldslot,
                     float *const *row, const float *grad, size_t ldgrad)
{
    const struct kern_update u = *update;
    if (dim == 16) {
#define BODY(rule, bare) update_each(rule, bare, &u, rows, 16, ldslot, row, grad, ldgrad)
        WITH_RULE(&u, BODY)
#undef BODY
    } else {
#define BODY(rule, bare) update_each(rule, bare, &u, rows, dim, ldslot, row, grad, ldgrad)
        WITH_RULE(&u, BODY)
#undef BODY
    }
}

void lamb_direction_isa(const struct kern_update *update, float m_scale, float v_scale, size_t n,
                        const float *value, float *m, float *v, const float *grad, float *direction,
                        double norms[2])
{
    const struct kern_update u = *update;
    FOR_LANES(i, k, n)
    {
        const vf w = vf_load_tail(value + i, k);
        struct lane p = {.w = w, .s0 = vf_load_tail(m + i, k), .s1 = vf_load_tail(v + i, k)};
        p = apply(KERN_ADAM, false, &u, p, vf_load_tail(grad + i, k));
        vf_store_tail(m + i, p.s0, k);
        vf_store_tail(v + i, p.s1, k);
        const vf root = vf_sqrt(vf_mul(p.s1, vf_set(v_scale)));
        const vf move = vf_div(vf_mul(p.s0, vf_set(m_scale)), vf_add(root, vf_set(u.epsilon)));
        vf_store_tail(direction + i, vf_fma(vf_set(u.decay), w, move), k);
    }
    norms[0] += sum_squares_isa(n, value);
    norms[1] += sum_squares_isa(n, direction);
}

void delay_compensate_isa(size_t n, float lambda, const float *grad, const float *now,
                          const float *then, float *out)
{
    FOR_LANES(i, k, n)
    {
        const vf g = vf_load_tail(grad + i, k);
        const vf moved = vf_sub(vf_load_tail(now + i, k), vf_load_tail(then + i, k));
        vf_store_tail(out + i, vf_fma(vf_mul(vf_set(lambda), vf_mul(g, g)), moved, g), k);
    }
}

void moving_average_isa(size_t n, float decay, const float *value, float *average)
{
    FOR_LANES(i, k, n)
    {
        const vf a = vf_load_tail(average + i, k);
        const vf d = vf_sub(vf_load_tail(value + i, k), a);
        vf_store_tail(average + i, vf_fma(vf_set(1 - decay), d, a), k);
    }
}
