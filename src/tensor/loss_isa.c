/* Losses and their gradients. Each row's loss is computed in float32 and summed in double, in the
 * order of rows, so that the sum does not depend on the vector's length. */
#include "tensor/isa.h"

INLINE vf weight_of(const float *weight, size_t i, size_t k)
{
    return weight == NULL ? vf_set(1.0f) : vf_load_tail(weight + i, k);
}

/* Lanes added to the total one after another. */
INLINE double add_lanes(double total, vf x, size_t k)
{
    float lane[VF];
    vf_store(lane, x);
    for (size_t i = 0; i < k && i < VF; i++) total += (double)lane[i];
    return total;
}

double loss_sigmoid_isa(size_t rows, const float *logit, const float *label, const float *weight,
                        float scale, float *prob, float *dlogit)
{
    double total = 0;
    FOR_LANES(i, k, rows)
    {
        const vf x = vf_load_tail(logit + i, k);
        const vf y = vf_load_tail(label + i, k);
        const vf w = weight_of(weight, i, k);
        const vf p = vf_sigmoid(x);
        const vf loss = vf_add(vf_fnma(x, y, vf_relu(x)), vf_softplus_tail(x));
        total = add_lanes(total, vf_mul(w, loss), k);
        if (prob != NULL) vf_store_tail(prob + i, p, k);
        if (dlogit != NULL)
            vf_store_tail(dlogit + i, vf_mul(vf_sub(p, y), vf_mul(w, vf_set(scale))), k);
    }
    return total;
}

/* exp(x - max) into `to`; returns the sum. */
INLINE float exp_row(size_t classes, const float *x, float max, float *to)
{
    vf sum = vf_zero();
    FOR_LANES(j, k, classes)
    {
        const vf e = vf_exp(vf_sub(vf_load_tail(x + j, k), vf_set(max)));
        vf_store_tail(to + j, e, k);
        sum = vf_add(sum, k >= VF ? e : vf_loadn(to + j, k));
    }
    return vf_sum(sum);
}

INLINE float max_of(size_t n, const float *x)
{
    vf max = vf_set(x[0]);
    size_t j = 0;
    for (; j + VF <= n; j += VF) max = vf_max(vf_load(x + j), max);
    float most = vf_max_lanes(max);
    for (; j < n; j++) most = x[j] > most ? x[j] : most;
    return most;
}

/* log(sum of exp(x - max)) + max - x[label]; the exponentials go through `prob` or `dlogit` where
 * one is wanted, else through a buffer piece by piece. */
double loss_softmax_isa(size_t rows, size_t classes, const float *logit, size_t ldlogit,
                        const float *label, const float *weight, float scale, float *prob,
                        size_t ldprob, float *dlogit, size_t lddlogit)
{
    enum { PIECE = 256 };
    float piece[PIECE];
    double total = 0;
    for (size_t i = 0; i < rows && classes > 0; i++) {
        const float *x = logit + i * ldlogit;
        const float w = weight == NULL ? 1 : weight[i];
        const bool legal = label[i] >= 0 && label[i] < (float)classes;
        const size_t want = legal ? (size_t)label[i] : 0;
        const float max = max_of(classes, x);
        float *exps = prob != NULL     ? prob + i * ldprob
                      : dlogit != NULL ? dlogit + i * lddlogit
                                       : NULL;
        float sum = 0;
        if (exps != NULL) {
            sum = exp_row(classes, x, max, exps);
        } else {
            for (size_t j = 0; j < classes; j += PIECE)
                sum += exp_row(classes - j < PIECE ? classes - j : PIECE, x + j, max, piece);
        }
        float log_sum[VF];
        vf_store(log_sum, vf_log(vf_set(sum)));
        const double over = (double)max - (double)x[want];
        total += legal ? (double)w * ((double)log_sum[0] + over) : (double)__builtin_nanf("");
        if (exps == NULL) continue;
        const vf share = vf_set(1 / sum);
        const vf factor = vf_set(w * scale);
        FOR_LANES(j, k, classes)
        {
            const vf p = vf_mul(vf_load_tail(exps + j, k), share);
            if (prob != NULL) vf_store_tail(prob + i * ldprob + j, p, k);
            if (dlogit != NULL) vf_store_tail(dlogit + i * lddlogit + j, vf_mul(p, factor), k);
        }
        if (dlogit != NULL) dlogit[i * lddlogit + want] -= w * scale;
    }
    return total;
}

double loss_squared_isa(size_t rows, const float *value, const float *label, const float *weight,
                        float scale, float *dvalue)
{
    double total = 0;
    FOR_LANES(i, k, rows)
    {
        const vf d = vf_sub(vf_load_tail(value + i, k), vf_load_tail(label + i, k));
        const vf w = weight_of(weight, i, k);
        total = add_lanes(total, vf_mul(w, vf_mul(d, d)), k);
        if (dvalue != NULL)
            vf_store_tail(dvalue + i, vf_mul(vf_add(d, d), vf_mul(w, vf_set(scale))), k);
    }
    return total;
}
