/* The naive version of every kernel: what the definitions in kern.h say, with sums in double. Tests
 * compare the fast tables with it; nothing else should use it. */
#include "tensor/kern.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/rand.h"

static double act_ref(enum kern_act act, double x)
{
    switch (act) {
    case KERN_NONE: return x;
    case KERN_RELU: return x <= 0 ? 0 : x; /* NaN stays NaN */
    case KERN_SIGMOID: return 1 / (1 + exp(-x));
    case KERN_TANH: return tanh(x);
    }
    return x;
}

static void gemm_ref(const struct kern_gemm *job)
{
    for (size_t i = 0; i < job->m; i++) {
        for (size_t j = 0; j < job->n; j++) {
            float *c = &job->c[i * job->ldc + j];
            double sum = job->add ? (double)*c : 0;
            for (size_t l = 0; l < job->k; l++) {
                const float a = job->a_trans ? job->a[l * job->lda + i] : job->a[i * job->lda + l];
                const float b = job->b_trans ? job->b[j * job->ldb + l] : job->b[l * job->ldb + j];
                sum += (double)a * (double)b;
            }
            if (job->bias != NULL) sum += (double)job->bias[j];
            sum = act_ref(job->act, sum);
            if (job->mask != NULL && !(job->mask[i * job->ldmask + j] > 0)) sum = 0;
            *c = (float)sum;
        }
    }
}

/* Attention, with the whole concat(h, h - t, t, h * t) formed as the definition has it. */
struct position {
    double *x;  /* (4e) */
    double *z0; /* (a0) */
    double *z1; /* (a1) */
    double score;
};

static void position_forward(const struct kern_attn *attn, const float *h, const float *t,
                             struct position *pos)
{
    const size_t e = attn->e;
    for (size_t i = 0; i < e; i++) {
        pos->x[i] = (double)h[i];
        pos->x[e + i] = (double)h[i] - (double)t[i];
        pos->x[2 * e + i] = (double)t[i];
        pos->x[3 * e + i] = (double)h[i] * (double)t[i];
    }
    for (size_t j = 0; j < attn->a0; j++) {
        double sum = (double)attn->b0[j];
        for (size_t i = 0; i < 4 * e; i++) sum += pos->x[i] * (double)attn->w0[i * attn->a0 + j];
        pos->z0[j] = sum > 0 ? sum : 0;
    }
    pos->score = (double)attn->b2[0];
    for (size_t j = 0; j < attn->a1; j++) {
        double sum = (double)attn->b1[j];
        for (size_t i = 0; i < attn->a0; i++)
            sum += pos->z0[i] * (double)attn->w1[i * attn->a1 + j];
        pos->z1[j] = sum > 0 ? sum : 0;
        pos->score += pos->z1[j] * (double)attn->w2[j];
    }
}

/* One row of the batch: everything that forward and backward share. */
struct history {
    uint32_t begin;
    uint32_t count;
    const float *target;
    struct position *positions;
    double *probs;
    double *block;
};

static const float *history_row(const struct kern_attn_in *in, uint32_t occ)
{
    return in->rows + in->history->slots[occ] * in->ldrows;
}

static void history_init(const struct kern_attn *attn, const struct kern_attn_in *in, uint32_t row,
                         struct history *history)
{
    const uint32_t *offsets = in->history->offsets;
    history->begin = offsets == NULL ? row : offsets[row];
    history->count = offsets == NULL ? 1 : offsets[row + 1] - offsets[row];
    history->target = in->target + row * in->ldtarget;
    const size_t width = 4 * (size_t)attn->e + attn->a0 + attn->a1 + 1;
    history->positions = mem_alloc_array(MEM_TENSOR, history->count + 1, sizeof(struct position));
    history->block = mem_alloc_array(MEM_TENSOR, history->count * width + 1, sizeof(double));
    ASSERT(history->positions != NULL);
    ASSERT(history->block != NULL);
    history->probs = history->block + history->count * (width - 1);
    double max = -INFINITY;
    for (uint32_t i = 0; i < history->count; i++) {
        struct position *pos = &history->positions[i];
        pos->x = history->block + i * (width - 1);
        pos->z0 = pos->x + 4 * (size_t)attn->e;
        pos->z1 = pos->z0 + attn->a0;
        position_forward(attn, history_row(in, history->begin + i), history->target, pos);
        if (pos->score > max) max = pos->score;
    }
    double sum = 0;
    for (uint32_t i = 0; i < history->count; i++)
        sum += history->probs[i] = exp(history->positions[i].score - max);
    for (uint32_t i = 0; i < history->count; i++) history->probs[i] /= sum;
}

static void history_fini(struct history *history)
{
    mem_free(history->positions);
    mem_free(history->block);
}

static void attn_forward_ref(const struct kern_attn *attn, const struct kern_attn_in *in,
                             float *out, size_t ldout, float *save, float *scratch)
{
    (void)save;
    (void)scratch;
    for (uint32_t row = in->row_begin; row < in->row_end; row++) {
        struct history history;
        history_init(attn, in, row, &history);
        for (uint32_t j = 0; j < attn->e; j++) {
            double sum = 0;
            for (uint32_t i = 0; i < history.count; i++)
                sum += history.probs[i] * (double)history_row(in, history.begin + i)[j];
            out[row * ldout + j] = (float)sum;
        }
        history_fini(&history);
    }
}

/* The gradient sums of all rows, in double. */
struct attn_sums {
    double *w0;
    double *b0;
    double *w1;
    double *b1;
    double *w2;
    double *b2;
};

static void position_backward(const struct kern_attn *attn, const struct position *pos,
                              double dscore, struct attn_sums *sums, double *dz0, double *dx)
{
    memset(dz0, 0, attn->a0 * sizeof(double));
    memset(dx, 0, 4 * (size_t)attn->e * sizeof(double));
    sums->b2[0] += dscore;
    for (size_t j = 0; j < attn->a1; j++) {
        sums->w2[j] += dscore * pos->z1[j];
        if (!(pos->z1[j] > 0)) continue;
        const double dz1 = dscore * (double)attn->w2[j];
        sums->b1[j] += dz1;
        for (size_t i = 0; i < attn->a0; i++) {
            sums->w1[i * attn->a1 + j] += dz1 * pos->z0[i];
            if (pos->z0[i] > 0) dz0[i] += dz1 * (double)attn->w1[i * attn->a1 + j];
        }
    }
    for (size_t j = 0; j < attn->a0; j++) {
        sums->b0[j] += dz0[j];
        for (size_t i = 0; i < 4 * (size_t)attn->e; i++) {
            sums->w0[i * attn->a0 + j] += pos->x[i] * dz0[j];
            dx[i] += dz0[j] * (double)attn->w0[i * attn->a0 + j];
        }
    }
}

static void history_backward(const struct kern_attn *attn, const struct kern_attn_in *in,
                             const struct kern_attn_grad *grad, uint32_t row,
                             struct attn_sums *sums, double *buffer)
{
    const size_t e = attn->e;
    double *dx = buffer;
    double *dz0 = dx + 4 * e;
    double *dt = dz0 + attn->a0;
    const float *dout = grad->dout + row * grad->lddout;
    struct history history;
    history_init(attn, in, row, &history);
    double mean = 0; /* of dprob under the softmax */
    for (uint32_t i = 0; i < history.count; i++)
        for (size_t j = 0; j < e; j++)
            mean +=
                history.probs[i] * (double)history_row(in, history.begin + i)[j] * (double)dout[j];
    memset(dt, 0, e * sizeof(double));
    for (uint32_t i = 0; i < history.count; i++) {
        const float *h = history_row(in, history.begin + i);
        double dprob = 0;
        for (size_t j = 0; j < e; j++) dprob += (double)h[j] * (double)dout[j];
        position_backward(attn, &history.positions[i], history.probs[i] * (dprob - mean), sums, dz0,
                          dx);
        float *dh = grad->dhistory + (history.begin + i) * grad->lddhistory;
        for (size_t j = 0; j < e; j++) {
            dh[j] = (float)(dx[j] + dx[e + j] + dx[3 * e + j] * (double)history.target[j] +
                            history.probs[i] * (double)dout[j]);
            dt[j] += dx[2 * e + j] - dx[e + j] + dx[3 * e + j] * (double)h[j];
        }
    }
    float *dtarget = grad->dtarget + row * grad->lddtarget;
    for (size_t j = 0; j < e; j++)
        dtarget[j] = (float)(dt[j] + (grad->dtarget_add ? (double)dtarget[j] : 0));
    history_fini(&history);
}

static void attn_backward_ref(const struct kern_attn *attn, const struct kern_attn_in *in,
                              const struct kern_attn_grad *grad, float *scratch)
{
    (void)scratch;
    const size_t e = attn->e;
    const size_t count = kern_attn_grad_count(attn);
    double *block = mem_alloc_array(MEM_TENSOR, count + 5 * e + attn->a0, sizeof(double));
    ASSERT(block != NULL);
    struct attn_sums sums = {.w0 = block};
    sums.b0 = sums.w0 + 4 * e * attn->a0;
    sums.w1 = sums.b0 + attn->a0;
    sums.b1 = sums.w1 + (size_t)attn->a0 * attn->a1;
    sums.w2 = sums.b1 + attn->a1;
    sums.b2 = sums.w2 + attn->a1;
    for (uint32_t row = in->row_begin; row < in->row_end; row++)
        history_backward(attn, in, grad, row, &sums, block + count);
    for (size_t i = 0; i < count; i++) grad->dweights[i] = (float)block[i];
    mem_free(block);
}

static void add_ref(size_t n, const float *x, const float *y, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = x[i] + y[i];
}

static void mul_ref(size_t n, const float *x, const float *y, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = x[i] * y[i];
}

static void axpy_ref(size_t n, float alpha, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++) y[i] += alpha * x[i];
}

static void scale_ref(size_t n, float alpha, float *x)
{
    for (size_t i = 0; i < n; i++) x[i] *= alpha;
}

static void sum_parts_ref(size_t parts, size_t n, const float *x, size_t ld, float *out)
{
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t p = 0; p < parts; p++) sum += (double)x[p * ld + i];
        out[i] = (float)sum;
    }
}

static void copy_rows_ref(size_t rows, size_t width, const float *src, size_t ldsrc, float *dst,
                          size_t lddst, bool add)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < width; j++)
            dst[i * lddst + j] = src[i * ldsrc + j] + (add ? dst[i * lddst + j] : 0);
}

static void act_forward_ref(enum kern_act act, size_t rows, size_t width, const float *x,
                            size_t ldx, const float *bias, float *y, size_t ldy)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < width; j++)
            y[i * ldy + j] =
                (float)act_ref(act, (double)x[i * ldx + j] + (bias == NULL ? 0 : (double)bias[j]));
}

static void act_backward_ref(enum kern_act act, size_t rows, size_t width, const float *y,
                             size_t ldy, const float *dy, size_t lddy, float *dx, size_t lddx)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < width; j++) {
            const double out = (double)y[i * ldy + j];
            double slope = 1;
            if (act == KERN_RELU) slope = out > 0 ? 1 : 0;
            if (act == KERN_SIGMOID) slope = out * (1 - out);
            if (act == KERN_TANH) slope = 1 - out * out;
            dx[i * lddx + j] = (float)((double)dy[i * lddy + j] * slope);
        }
    }
}

static void col_sums_ref(size_t rows, size_t width, const float *x, size_t ldx, float *out)
{
    sum_parts_ref(rows, width, x, ldx, out);
}

static double sum_squares_ref(size_t n, const float *x)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static bool is_finite_ref(size_t n, const float *x)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static void dropout_forward_ref(const struct kern_dropout *dropout, size_t n, const float *x,
                                float *y, uint32_t *bits)
{
    const float factor = 1 / (1 - dropout->rate);
    if (bits != NULL) memset(bits, 0, (n + 31) / 32 * sizeof *bits);
    for (size_t i = 0; i < n; i++) {
        uint32_t words[4];
        const uint64_t number = dropout->index + i;
        rand_philox(dropout->seed, dropout->what, dropout->step, number / 4, words);
        const bool keep = rand_unit(words[number % 4]) >= dropout->rate;
        y[i] = keep ? x[i] * factor : 0;
        if (bits != NULL && keep) bits[i / 32] |= 1u << i % 32;
    }
}

static void dropout_backward_ref(float rate, size_t n, const uint32_t *bits, const float *dy,
                                 float *dx)
{
    const float factor = 1 / (1 - rate);
    for (size_t i = 0; i < n; i++) dx[i] = bits[i / 32] >> i % 32 & 1 ? dy[i] * factor : 0;
}

static void gather_ref(size_t rows, size_t width, const float *table, size_t ldtable,
                       const uint32_t *slots, float *dst, size_t lddst)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < width; j++) dst[i * lddst + j] = table[slots[i] * ldtable + j];
}

struct span {
    uint32_t begin;
    uint32_t end;
};

static struct span span_of(const struct batch_ids *ids, uint32_t row)
{
    if (ids->offsets == NULL) return (struct span){row, row + 1};
    return (struct span){ids->offsets[row], ids->offsets[row + 1]};
}

static double weight_of(const struct batch_ids *ids, uint32_t occ)
{
    return ids->weights == NULL ? 1 : (double)ids->weights[occ];
}

/* What the pooled sum is divided by. */
static double pool_divisor(enum kern_pool pool, const struct batch_ids *ids, struct span span)
{
    double sum = 0;
    double squares = 0;
    for (uint32_t i = span.begin; i < span.end; i++) {
        sum += weight_of(ids, i);
        squares += weight_of(ids, i) * weight_of(ids, i);
    }
    if (pool == KERN_MEAN) return sum;
    return pool == KERN_SQRTN ? sqrt(squares) : 1;
}

static void pool_forward_ref(enum kern_pool pool, size_t width, const struct batch_ids *ids,
                             uint32_t row_begin, uint32_t row_end, const float *table,
                             size_t ldtable, float *out, size_t ldout)
{
    for (uint32_t row = row_begin; row < row_end; row++) {
        const struct span span = span_of(ids, row);
        const double divisor = pool_divisor(pool, ids, span);
        for (size_t j = 0; j < width; j++) {
            double sum = 0;
            for (uint32_t i = span.begin; i < span.end; i++)
                sum += weight_of(ids, i) * (double)table[ids->slots[i] * ldtable + j];
            out[row * ldout + j] = span.begin == span.end ? 0 : (float)(sum / divisor);
        }
    }
}

static void pool_backward_ref(enum kern_pool pool, size_t width, const struct batch_ids *ids,
                              uint32_t row_begin, uint32_t row_end, const float *dout,
                              size_t lddout, float *doccs, size_t lddoccs)
{
    for (uint32_t row = row_begin; row < row_end; row++) {
        const struct span span = span_of(ids, row);
        const double divisor = pool_divisor(pool, ids, span);
        for (uint32_t i = span.begin; i < span.end; i++)
            for (size_t j = 0; j < width; j++)
                doccs[i * lddoccs + j] =
                    (float)((double)dout[row * lddout + j] * weight_of(ids, i) / divisor);
    }
}

static const float *occ_grad(const struct kern_occ_source *sources, uint32_t count, uint32_t occ)
{
    for (uint32_t i = 0; i < count; i++)
        if (occ >= sources[i].occ_base && occ - sources[i].occ_base < sources[i].count)
            return sources[i].grad + (occ - sources[i].occ_base) * sources[i].ld;
    return NULL;
}

static void rows_grad_ref(size_t width, const struct batch_keys *keys, uint32_t slot_begin,
                          uint32_t slot_end, const struct kern_occ_source *sources,
                          uint32_t sources_count, float *out, size_t ldout)
{
    for (uint32_t slot = slot_begin; slot < slot_end; slot++) {
        for (size_t j = 0; j < width; j++) {
            double sum = 0;
            for (uint32_t i = keys->occ_offsets[slot]; i < keys->occ_offsets[slot + 1]; i++) {
                const float *grad = occ_grad(sources, sources_count, keys->occs[i]);
                if (grad != NULL) sum += (double)grad[j];
            }
            out[slot * ldout + j] = (float)sum;
        }
    }
}

static double loss_sigmoid_ref(size_t rows, const float *logit, const float *label,
                               const float *weight, float scale, float *prob, float *dlogit)
{
    double sum = 0;
    for (size_t i = 0; i < rows; i++) {
        const double x = (double)logit[i];
        const double y = (double)label[i];
        const double w = weight == NULL ? 1 : (double)weight[i];
        const double p = x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
        sum += w * (fmax(x, 0) - x * y + log1p(exp(-fabs(x))));
        if (prob != NULL) prob[i] = (float)p;
        if (dlogit != NULL) dlogit[i] = (float)((p - y) * w * (double)scale);
    }
    return sum;
}

static double loss_softmax_ref(size_t rows, size_t classes, const float *logit, size_t ldlogit,
                               const float *label, const float *weight, float scale, float *prob,
                               size_t ldprob, float *dlogit, size_t lddlogit)
{
    double total = 0;
    for (size_t i = 0; i < rows; i++) {
        const float *x = logit + i * ldlogit;
        const double w = weight == NULL ? 1 : (double)weight[i];
        const bool legal = label[i] >= 0 && label[i] < (float)classes;
        double max = -INFINITY;
        double sum = 0;
        for (size_t j = 0; j < classes; j++) max = fmax(max, (double)x[j]);
        for (size_t j = 0; j < classes; j++) sum += exp((double)x[j] - max);
        const size_t want = legal ? (size_t)label[i] : 0;
        total += legal ? w * (log(sum) + max - (double)x[want]) : (double)NAN;
        for (size_t j = 0; j < classes; j++) {
            const double p = exp((double)x[j] - max) / sum;
            if (prob != NULL) prob[i * ldprob + j] = (float)p;
            if (dlogit != NULL)
                dlogit[i * lddlogit + j] = (float)((p - (j == want ? 1 : 0)) * w * (double)scale);
        }
    }
    return total;
}

static double loss_squared_ref(size_t rows, const float *value, const float *label,
                               const float *weight, float scale, float *dvalue)
{
    double sum = 0;
    for (size_t i = 0; i < rows; i++) {
        const double w = weight == NULL ? 1 : (double)weight[i];
        const double d = (double)value[i] - (double)label[i];
        sum += w * d * d;
        if (dvalue != NULL) dvalue[i] = (float)(2 * d * w * (double)scale);
    }
    return sum;
}

static double dot_of(size_t e, const float *x, const float *y)
{
    double sum = 0;
    for (size_t i = 0; i < e; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

static void fm_forward_ref(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                           float *out, size_t ldout)
{
    for (size_t b = 0; b < rows; b++) {
        double sum = 0;
        for (size_t i = 1; i < fields; i++)
            for (size_t j = 0; j < i; j++)
                sum += dot_of(e, x + b * ldx + i * e, x + b * ldx + j * e);
        out[b * ldout] = (float)sum;
    }
}

static void fm_backward_ref(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                            const float *dout, size_t lddout, float *dx, size_t lddx)
{
    for (size_t b = 0; b < rows; b++) {
        for (size_t i = 0; i < fields; i++) {
            for (size_t l = 0; l < e; l++) {
                double others = 0;
                for (size_t j = 0; j < fields; j++)
                    if (j != i) others += (double)x[b * ldx + j * e + l];
                dx[b * lddx + i * e + l] = (float)(others * (double)dout[b * lddout]);
            }
        }
    }
}

static void dot_forward_ref(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                            float *out, size_t ldout)
{
    for (size_t b = 0; b < rows; b++) {
        float *to = out + b * ldout;
        for (size_t i = 1; i < fields; i++)
            for (size_t j = 0; j < i; j++)
                *to++ = (float)dot_of(e, x + b * ldx + i * e, x + b * ldx + j * e);
    }
}

static void dot_backward_ref(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                             const float *dout, size_t lddout, float *dx, size_t lddx)
{
    for (size_t b = 0; b < rows; b++) {
        for (size_t i = 0; i < fields; i++) {
            for (size_t l = 0; l < e; l++) {
                double sum = 0;
                for (size_t j = 0; j < fields; j++) {
                    if (j == i) continue;
                    const size_t high = i > j ? i : j;
                    const size_t pair = high * (high - 1) / 2 + (i > j ? j : i);
                    sum += (double)dout[b * lddout + pair] * (double)x[b * ldx + j * e + l];
                }
                dx[b * lddx + i * e + l] = (float)sum;
            }
        }
    }
}

static double sign_of(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}

static void update_one(const struct kern_update *u, float *value, float *slot0, float *slot1,
                       float grad)
{
    const double lr = (double)u->lr;
    double w = (double)*value;
    double g = (double)grad * (double)u->scale;
    if (u->clip > 0) g = fmin(fmax(g, -(double)u->clip), (double)u->clip);
    if (u->rule != KERN_FTRL) g += (double)u->l2 * w + (double)u->l1 * sign_of(w);
    double s0 = slot0 == NULL ? 0 : (double)*slot0;
    double s1 = slot1 == NULL ? 0 : (double)*slot1;
    switch (u->rule) {
    case KERN_SGD: w -= lr * g; break;
    case KERN_MOMENTUM:
        s0 = (double)u->momentum * s0 + g;
        w -= lr * s0;
        break;
    case KERN_NESTEROV:
        s0 = (double)u->momentum * s0 + g;
        w -= lr * (g + (double)u->momentum * s0);
        break;
    case KERN_ADAGRAD:
        s0 += g * g;
        w -= lr * g / sqrt(s0);
        break;
    case KERN_RMSPROP:
        s0 += (g * g - s0) * (1 - (double)u->beta2);
        s1 = (double)u->momentum * s1 + lr * g / sqrt(s0 + (double)u->epsilon);
        w -= s1;
        break;
    case KERN_ADAM:
        s0 += (g - s0) * (1 - (double)u->beta1);
        s1 += (g * g - s1) * (1 - (double)u->beta2);
        w -= lr * s0 / (sqrt(s1) + (double)u->epsilon) + (double)u->decay * w;
        break;
    case KERN_FTRL: {
        const double sum = s0 + g * g;
        const double power = pow(sum, -(double)u->power);
        s1 += g - (power - pow(s0, -(double)u->power)) / lr * w;
        s0 = sum;
        w = fabs(s1) > (double)u->l1
                ? (sign_of(s1) * (double)u->l1 - s1) / (power / lr + 2 * (double)u->l2)
                : 0;
        break;
    }
    case KERN_RULE_COUNT: break;
    }
    *value = (float)w;
    if (slot0 != NULL) *slot0 = (float)s0;
    if (slot1 != NULL) *slot1 = (float)s1;
}

static void update_ref(const struct kern_update *update, size_t n, float *value, float *slot0,
                       float *slot1, const float *grad)
{
    const uint32_t slots = kern_rule_slots(update->rule);
    for (size_t i = 0; i < n; i++)
        update_one(update, value + i, slots > 0 ? slot0 + i : NULL, slots > 1 ? slot1 + i : NULL,
                   grad[i]);
}

static void update_rows_ref(const struct kern_update *update, size_t rows, size_t dim,
                            size_t ldslot, float *const *row, const float *grad, size_t ldgrad)
{
    for (size_t i = 0; i < rows; i++)
        update_ref(update, dim, row[i], row[i] + ldslot, row[i] + 2 * ldslot, grad + i * ldgrad);
}

static void lamb_direction_ref(const struct kern_update *update, float m_scale, float v_scale,
                               size_t n, const float *value, float *m, float *v, const float *grad,
                               float *direction, double norms[2])
{
    for (size_t i = 0; i < n; i++) {
        float w = value[i]; /* Its move is thrown away: only m and v are wanted. */
        struct kern_update adam = *update;
        adam.rule = KERN_ADAM;
        update_one(&adam, &w, m + i, v + i, grad[i]);
        const double d = (double)m[i] * (double)m_scale /
                             (sqrt((double)v[i] * (double)v_scale) + (double)update->epsilon) +
                         (double)update->decay * (double)value[i];
        direction[i] = (float)d;
        norms[0] += (double)value[i] * (double)value[i];
        norms[1] += d * d;
    }
}

static void delay_compensate_ref(size_t n, float lambda, const float *grad, const float *now,
                                 const float *then, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = grad[i] + lambda * grad[i] * grad[i] * (now[i] - then[i]);
}

static void moving_average_ref(size_t n, float decay, const float *value, float *average)
{
    for (size_t i = 0; i < n; i++) average[i] += (1 - decay) * (value[i] - average[i]);
}

const struct kern kern_ref = {
    .name = "ref",
    .gemm = gemm_ref,
    .attn_forward = attn_forward_ref,
    .attn_backward = attn_backward_ref,
    .add = add_ref,
    .mul = mul_ref,
    .axpy = axpy_ref,
    .scale = scale_ref,
    .sum_parts = sum_parts_ref,
    .copy_rows = copy_rows_ref,
    .act_forward = act_forward_ref,
    .act_backward = act_backward_ref,
    .col_sums = col_sums_ref,
    .sum_squares = sum_squares_ref,
    .is_finite = is_finite_ref,
    .dropout_forward = dropout_forward_ref,
    .dropout_backward = dropout_backward_ref,
    .gather = gather_ref,
    .pool_forward = pool_forward_ref,
    .pool_backward = pool_backward_ref,
    .rows_grad = rows_grad_ref,
    .loss_sigmoid = loss_sigmoid_ref,
    .loss_softmax = loss_softmax_ref,
    .loss_squared = loss_squared_ref,
    .fm_forward = fm_forward_ref,
    .fm_backward = fm_backward_ref,
    .dot_forward = dot_forward_ref,
    .dot_backward = dot_backward_ref,
    .update = update_ref,
    .update_rows = update_rows_ref,
    .lamb_direction = lamb_direction_ref,
    .delay_compensate = delay_compensate_ref,
    .moving_average = moving_average_ref,
};
