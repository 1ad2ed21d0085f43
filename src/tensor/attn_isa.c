/* DIN's attention over ragged histories, forward and backward, without ever forming the
 * concatenation. With the rows of w0 in four blocks H, D, T, P for h, h - t, t and h * t:
 *
 *     concat(h, h - t, t, h * t) w0  =  h M + t (T - D),     M = H + D + diag(t) P   (e,a0)
 *
 * M is made once for each row of the batch and serves all its positions. Backward, with dz the
 * gradient before the first ReLU, d = sum over positions of dz and S = sum of h^T dz (e,a0):
 *
 *     dH = sum over rows of S        dT = sum of t^T d        dD = dH - dT
 *     dP = sum of diag(t) S          dh = dz M^T + p dout     dt = d (T - D)^T + row sums of S * P
 *
 * so no product is wider than e x a0. S is kept turned (a0,e): then t and dt are vectors beside it
 * and there are no sums across lanes. The small second layer runs over all positions of a block of
 * rows at once, as matrix products.
 *
 * What forward keeps, in three planes over the batch's occurrences: z0 (a0), z1 (a1), p (1). The
 * planes are overwritten by backward with dz0, dz1 and the gradient of the scores. */
#include "tensor/isa.h"

#include <string.h>

#include "base/assert.h"

#define BLOCK 64 /* rows of the batch whose positions share a product */

#if defined(ISA_avx512)
#define TILE 8 /* positions at a time: sums of one vector, or two */
#else
#define TILE 4
#endif

/* Weights as the loops like them. Widths padded to whole vectors: ep, ap. */
struct work {
    size_t e;
    size_t a0;
    size_t a1;
    size_t ep;
    size_t ap;
    float *hd;        /* H + D (e,ap) */
    float *p;         /* P (e,ap) */
    float *td;        /* T - D (e,a0) */
    float *hd_turned; /* (a0,ep) */
    float *p_turned;  /* (a0,ep) */
    float *w1_turned; /* (a1,a0) */
    float *m;         /* M (e,ap), or turned (a0,ep), of one row */
    float *s;         /* S turned (a0,ep), of one row */
    float *t;         /* one target, padded (ep) */
    float *bias;      /* t (T - D) + b0 (BLOCK,a0); backward: d */
    float *sum_h;     /* dH turned (a0,ep) */
    float *sum_p;     /* dP turned (a0,ep) */
    float *sum_t;     /* dT (e,a0) */
    float *sum_1;     /* sums of b1, w2 (2,a1) */
};

static size_t padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

static float *carve(float **scratch, size_t count)
{
    float *piece = *scratch;
    *scratch += padded(count);
    return piece;
}

static void work_init(const struct kern_attn *attn, float *scratch, struct work *work)
{
    const size_t e = attn->e;
    const size_t a0 = attn->a0;
    const size_t ep = padded(e);
    const size_t ap = padded(a0);
    float *const start = scratch;
    *work = (struct work){.e = e, .a0 = a0, .a1 = attn->a1, .ep = ep, .ap = ap};
    work->hd = carve(&scratch, e * ap);
    work->p = carve(&scratch, e * ap);
    work->td = carve(&scratch, e * a0);
    work->hd_turned = carve(&scratch, a0 * ep);
    work->p_turned = carve(&scratch, a0 * ep);
    work->w1_turned = carve(&scratch, a0 * attn->a1);
    work->m = carve(&scratch, ep * ap);
    work->s = carve(&scratch, a0 * ep);
    work->t = carve(&scratch, ep);
    work->bias = carve(&scratch, BLOCK * a0);
    work->sum_h = carve(&scratch, a0 * ep);
    work->sum_p = carve(&scratch, a0 * ep);
    work->sum_t = carve(&scratch, e * a0);
    work->sum_1 = carve(&scratch, 2 * (size_t)attn->a1);
    ASSERT((size_t)(scratch - start) <= kern_attn_scratch_count(attn));
}

static void work_weights(const struct kern_attn *attn, struct work *work)
{
    const size_t e = work->e;
    const size_t a0 = work->a0;
    const float *h = attn->w0;
    const float *d = h + e * a0;
    const float *t = d + e * a0;
    const float *p = t + e * a0;
    memset(work->hd, 0, e * work->ap * sizeof(float));
    memset(work->p, 0, e * work->ap * sizeof(float));
    for (size_t i = 0; i < e; i++) {
        add_isa(a0, h + i * a0, d + i * a0, work->hd + i * work->ap);
        memcpy(work->p + i * work->ap, p + i * a0, a0 * sizeof(float));
        FOR_LANES(j, k, a0)
        vf_store_tail(work->td + i * a0 + j,
                      vf_sub(vf_load_tail(t + i * a0 + j, k), vf_load_tail(d + i * a0 + j, k)), k);
    }
}

static void work_turned(const struct kern_attn *attn, struct work *work)
{
    const size_t turned = work->a0 * work->ep * sizeof(float);
    memset(work->hd_turned, 0, turned);
    memset(work->p_turned, 0, turned);
    memset(work->sum_h, 0, turned);
    memset(work->sum_p, 0, turned);
    memset(work->sum_1, 0, 2 * work->a1 * sizeof(float));
    memset(work->t, 0, work->ep * sizeof(float));
    for (size_t i = 0; i < work->e; i++) {
        for (size_t j = 0; j < work->a0; j++) {
            work->hd_turned[j * work->ep + i] = work->hd[i * work->ap + j];
            work->p_turned[j * work->ep + i] = work->p[i * work->ap + j];
        }
    }
    for (size_t i = 0; i < work->a0; i++)
        for (size_t j = 0; j < work->a1; j++)
            work->w1_turned[j * work->a0 + i] = attn->w1[i * work->a1 + j];
}

/* The positions of one row, and of a block of rows: they are contiguous. */
struct span {
    size_t begin;
    size_t end;
};

INLINE struct span span_of(const struct batch_ids *history, size_t row_begin, size_t row_end)
{
    if (history->offsets == NULL) return (struct span){row_begin, row_end};
    return (struct span){history->offsets[row_begin], history->offsets[row_end]};
}

INLINE const float *row_of(const struct kern_attn_in *in, size_t occ)
{
    return in->rows + in->history->slots[occ] * in->ldrows;
}

/* sums[i] += x[i] (k) times columns of m (k, ...), for np positions and nv vectors of columns. */
INLINE void tile_product(size_t np, size_t nv, size_t k, const float *const x[TILE], const float *m,
                         size_t ldm, vf sums[TILE][2])
{
    for (size_t l = 0; l < k; l++) {
        vf mv[2];
        for (size_t v = 0; v < nv; v++) mv[v] = vf_load(m + l * ldm + v * VF);
        for (size_t i = 0; i < np; i++) {
            const vf xv = vf_set(x[i][l]);
            for (size_t v = 0; v < nv; v++) sums[i][v] = vf_fma(xv, mv[v], sums[i][v]);
        }
    }
}

/* to[i] = relu(x[i] m + c), or to[i] += x[i] m without c; one strip of nv vectors of columns. */
INLINE void strip_product(size_t np, size_t nv, size_t k, const float *const x[TILE],
                          const float *m, size_t ldm, const float *c, size_t width, float *to,
                          size_t ldto)
{
    vf sums[TILE][2];
    for (size_t i = 0; i < np; i++)
        for (size_t v = 0; v < nv; v++)
            sums[i][v] =
                vf_load_tail(c != NULL ? c + v * VF : to + i * ldto + v * VF, width - v * VF);
    tile_product(np, nv, k, x, m, ldm, sums);
    for (size_t i = 0; i < np; i++)
        for (size_t v = 0; v < nv; v++)
            vf_store_tail(to + i * ldto + v * VF,
                          c != NULL ? vf_max(sums[i][v], vf_zero()) : sums[i][v], width - v * VF);
}

INLINE void product(size_t np, size_t k, const float *const x[TILE], const float *m, size_t ldm,
                    const float *c, size_t width, float *to, size_t ldto)
{
    for (size_t j = 0; j < width; j += 2 * VF) {
        const float *cj = c == NULL ? NULL : c + j;
        if (width - j > VF) {
            strip_product(np, 2, k, x, m + j, ldm, cj, width - j, to + j, ldto);
        } else {
            strip_product(np, 1, k, x, m + j, ldm, cj, width - j, to + j, ldto);
        }
    }
}

INLINE void product_any(size_t np, size_t k, const float *const x[TILE], const float *m, size_t ldm,
                        const float *c, size_t width, float *to, size_t ldto)
{
    switch (np) { /* So that each count of positions has its own unrolled loop. */
    case 1:
        product(1, k, x, m, ldm, c, width, to, ldto);
        break;
    case 2:
        product(2, k, x, m, ldm, c, width, to, ldto);
        break;
    case 3:
        product(3, k, x, m, ldm, c, width, to, ldto);
        break;
#if TILE == 8
    case 4:
        product(4, k, x, m, ldm, c, width, to, ldto);
        break;
    case 5:
        product(5, k, x, m, ldm, c, width, to, ldto);
        break;
    case 6:
        product(6, k, x, m, ldm, c, width, to, ldto);
        break;
    case 7:
        product(7, k, x, m, ldm, c, width, to, ldto);
        break;
#endif
    default:
        product(TILE, k, x, m, ldm, c, width, to, ldto);
        break;
    }
}

/* z0 of all positions of one row. */
INLINE void row_first_layer(const struct work *work, size_t e, size_t a0,
                            const struct kern_attn_in *in, struct span span, const float *t,
                            const float *bias, float *z0)
{
    const size_t ap = work->ap;
    for (size_t i = 0; i < e; i++) {
        const vf ti = vf_set(t[i]);
        for (size_t j = 0; j < a0; j += VF) {
            const size_t at = i * ap + j;
            vf_store(work->m + at, vf_fma(ti, vf_load(work->p + at), vf_load(work->hd + at)));
        }
    }
    for (size_t i = span.begin; i < span.end; i += TILE) {
        const size_t np = span.end - i < TILE ? span.end - i : TILE;
        const float *h[TILE];
        for (size_t q = 0; q < np; q++) h[q] = row_of(in, i + q);
        product_any(np, e, h, work->m, ap, bias, a0, z0 + i * a0, a0);
    }
}

/* s = z1 w2 + b2. */
static void scores(size_t count, size_t a1, const float *z1, const float *w2, float b2, float *s)
{
    for (size_t i = 0; i < count; i++) {
        vf sum = vf_zero();
        FOR_LANES(j, k, a1)
        sum = vf_fma(vf_load_tail(z1 + i * a1 + j, k), vf_load_tail(w2 + j, k), sum);
        s[i] = vf_sum(sum) + b2;
    }
}

static void softmax(size_t count, float *s)
{
    float max = s[0];
    for (size_t i = 1; i < count; i++) max = s[i] > max ? s[i] : max;
    vf sums = vf_zero();
    FOR_LANES(i, k, count)
    {
        const vf x = vf_exp(vf_sub(vf_load_tail(s + i, k), vf_set(max)));
        vf_store_tail(s + i, x, k);
        sums = vf_add(sums, k >= VF ? x : vf_loadn(s + i, k));
    }
    scale_isa(count, 1 / vf_sum(sums), s);
}

/* out = sum over positions of p h. */
INLINE void weighted_sum(size_t e, const struct kern_attn_in *in, struct span span, const float *p,
                         float *out)
{
    FOR_LANES(j, k, e)
    {
        vf sum = vf_zero();
        for (size_t i = span.begin; i < span.end; i++)
            sum = vf_fma(vf_set(p[i]), vf_load_tail(row_of(in, i) + j, k), sum);
        vf_store_tail(out + j, sum, k);
    }
}

/* Where the planes of `save` begin. */
struct planes {
    float *z0;
    float *z1;
    float *p;
};

static struct planes planes_of(const struct kern_attn *attn, const struct kern_attn_in *in,
                               float *save)
{
    ASSERT(save != NULL);
    const size_t count = in->history->count;
    float *z1 = save + count * attn->a0;
    return (struct planes){.z0 = save, .z1 = z1, .p = z1 + count * attn->a1};
}

static void second_layer(const struct kern_attn *attn, struct span span,
                         const struct planes *planes)
{
    const size_t count = span.end - span.begin;
    float *z1 = planes->z1 + span.begin * attn->a1;
    gemm_isa(&(struct kern_gemm){.a = planes->z0 + span.begin * attn->a0,
                                 .lda = attn->a0,
                                 .b = attn->w1,
                                 .ldb = attn->a1,
                                 .c = z1,
                                 .ldc = attn->a1,
                                 .m = count,
                                 .n = attn->a1,
                                 .k = attn->a0,
                                 .bias = attn->b1,
                                 .act = KERN_RELU});
    scores(count, attn->a1, z1, attn->w2, attn->b2[0], planes->p + span.begin);
}

INLINE void forward_block(const struct kern_attn *attn, const struct kern_attn_in *in, size_t e,
                          size_t a0, size_t row, size_t rows, const struct work *work,
                          const struct planes *planes, float *out, size_t ldout)
{
    const float *target = in->target + row * in->ldtarget;
    gemm_isa(&(struct kern_gemm){.a = target,
                                 .lda = in->ldtarget,
                                 .b = work->td,
                                 .ldb = a0,
                                 .c = work->bias,
                                 .ldc = a0,
                                 .m = rows,
                                 .n = a0,
                                 .k = e,
                                 .bias = attn->b0});
    for (size_t i = 0; i < rows; i++)
        row_first_layer(work, e, a0, in, span_of(in->history, row + i, row + i + 1),
                        target + i * in->ldtarget, work->bias + i * a0, planes->z0);
    second_layer(attn, span_of(in->history, row, row + rows), planes);
    for (size_t i = 0; i < rows; i++) {
        const struct span span = span_of(in->history, row + i, row + i + 1);
        if (span.begin < span.end) softmax(span.end - span.begin, planes->p + span.begin);
        weighted_sum(e, in, span, planes->p, out + (row + i) * ldout);
    }
}

void attn_forward_isa(const struct kern_attn *attn, const struct kern_attn_in *in, float *out,
                      size_t ldout, float *save, float *scratch)
{
    struct work work;
    work_init(attn, scratch, &work);
    work_weights(attn, &work);
    const struct planes planes = planes_of(attn, in, save);
    for (size_t row = in->row_begin; row < in->row_end; row += BLOCK) {
        const size_t rows = in->row_end - row < BLOCK ? in->row_end - row : BLOCK;
        if (attn->e == 16 && attn->a0 == 16) { /* Sizes that the compiler then knows. */
            forward_block(attn, in, 16, 16, row, rows, &work, &planes, out, ldout);
        } else {
            forward_block(attn, in, attn->e, attn->a0, row, rows, &work, &planes, out, ldout);
        }
    }
}

/* Through the softmax: p becomes the gradient of the score, dh starts as p dout. */
INLINE void row_softmax_backward(size_t e, const struct kern_attn_in *in, struct span span,
                                 const float *dout, float *p, float *dh, size_t lddh, float *mean)
{
    weighted_sum(e, in, span, p, mean);
    vf product = vf_zero();
    FOR_LANES(j, k, e)
    product = vf_fma(vf_load_tail(mean + j, k), vf_load_tail(dout + j, k), product);
    const float average = vf_sum(product);
    for (size_t i = span.begin; i < span.end; i++) {
        const float *h = row_of(in, i);
        vf dot = vf_zero();
        FOR_LANES(j, k, e)
        {
            const vf d = vf_load_tail(dout + j, k);
            dot = vf_fma(vf_load_tail(h + j, k), d, dot);
            vf_store_tail(dh + i * lddh + j, vf_mul(vf_set(p[i]), d), k);
        }
        p[i] *= vf_sum(dot) - average;
    }
}

/* z1 becomes dz1; sums of b1, w2 and b2 grow. */
static void second_layer_scores(size_t count, size_t a1, const float *w2, float *z1,
                                const float *ds, float *sum_b1, float *sum_w2, float *sum_b2)
{
    FOR_LANES(j, k, a1)
    {
        const vf w = vf_load_tail(w2 + j, k);
        vf b1 = vf_load_tail(sum_b1 + j, k);
        vf dw2 = vf_load_tail(sum_w2 + j, k);
        for (size_t i = 0; i < count; i++) {
            const vf d = vf_set(ds[i]);
            const vf z = vf_load_tail(z1 + i * a1 + j, k);
            const vf dz = vf_keep(vf_gt(z, vf_zero()), vf_mul(d, w));
            dw2 = vf_fma(d, z, dw2);
            b1 = vf_add(b1, dz);
            vf_store_tail(z1 + i * a1 + j, dz, k);
        }
        vf_store_tail(sum_b1 + j, b1, k);
        vf_store_tail(sum_w2 + j, dw2, k);
    }
    for (size_t i = 0; i < count; i++) *sum_b2 += ds[i];
}

static void second_layer_backward(const struct kern_attn *attn, const struct work *work,
                                  struct span span, const struct planes *planes, float *dw1,
                                  float *sum_b2)
{
    const size_t count = span.end - span.begin;
    float *z0 = planes->z0 + span.begin * work->a0;
    float *z1 = planes->z1 + span.begin * work->a1;
    second_layer_scores(count, work->a1, attn->w2, z1, planes->p + span.begin, work->sum_1,
                        work->sum_1 + work->a1, sum_b2);
    gemm_isa(&(struct kern_gemm){.a = z0,
                                 .lda = work->a0,
                                 .a_trans = true,
                                 .b = z1,
                                 .ldb = work->a1,
                                 .c = dw1,
                                 .ldc = work->a1,
                                 .m = work->a0,
                                 .n = work->a1,
                                 .k = count,
                                 .add = true});
    gemm_isa(&(struct kern_gemm){.a = z1,
                                 .lda = work->a1,
                                 .b = work->w1_turned,
                                 .ldb = work->a0,
                                 .c = z0,
                                 .ldc = work->a0,
                                 .m = count,
                                 .n = work->a0,
                                 .k = work->a1,
                                 .mask = z0,
                                 .ldmask = work->a0});
}

/* S turned, and d: sums over the row's positions of dz^T h and of dz. GROUP rows of S at a time
 * stay in registers. */
#if defined(ISA_avx512)
#define GROUP 16
#else
#define GROUP 4
#endif

INLINE void outer_group(size_t group, size_t nv, const struct kern_attn_in *in, struct span span,
                        size_t a, size_t a0, size_t j, size_t width, const float *dz, float *s,
                        size_t lds)
{
    vf sums[GROUP][2];
    for (size_t g = 0; g < group; g++)
        for (size_t v = 0; v < nv; v++) sums[g][v] = vf_zero();
    for (size_t i = span.begin; i < span.end; i++) {
        const float *h = row_of(in, i) + j;
        vf hv[2];
        for (size_t v = 0; v < nv; v++) hv[v] = vf_load_tail(h + v * VF, width - v * VF);
        for (size_t g = 0; g < group; g++) {
            const vf d = vf_set(dz[i * a0 + a + g]);
            for (size_t v = 0; v < nv; v++) sums[g][v] = vf_fma(d, hv[v], sums[g][v]);
        }
    }
    for (size_t g = 0; g < group; g++)
        for (size_t v = 0; v < nv; v++) vf_store(s + (a + g) * lds + j + v * VF, sums[g][v]);
}

INLINE void row_outer(size_t e, size_t a0, const struct kern_attn_in *in, struct span span,
                      const float *dz, float *s, size_t lds, float *d)
{
    size_t a = 0;
    for (; a + GROUP <= a0; a += GROUP) {
        for (size_t j = 0; j < e; j += 2 * VF) {
            if (e - j > VF) {
                outer_group(GROUP, 2, in, span, a, a0, j, e - j, dz, s, lds);
            } else {
                outer_group(GROUP, 1, in, span, a, a0, j, e - j, dz, s, lds);
            }
        }
    }
    for (; a < a0; a++)
        for (size_t j = 0; j < e; j += VF) outer_group(1, 1, in, span, a, a0, j, e - j, dz, s, lds);
    FOR_LANES(j, k, a0)
    {
        vf sum = vf_zero();
        for (size_t i = span.begin; i < span.end; i++)
            sum = vf_add(sum, vf_load_tail(dz + i * a0 + j, k));
        vf_store_tail(d + j, sum, k);
    }
}

/* One row, from dz0: dh, the row's share of dH and dP, and the part of dt that S gives. */
INLINE void row_first_backward(const struct work *work, size_t e, size_t a0,
                               const struct kern_attn_in *in, struct span span, const float *t,
                               const float *dz, float *dh, size_t lddh, float *d, float *dt,
                               bool dt_add)
{
    const size_t ep = work->ep;
    memcpy(work->t, t, e * sizeof(float));
    row_outer(e, a0, in, span, dz, work->s, ep, d);
    FOR_LANES(j, k, e)
    {
        const vf tj = vf_load(work->t + j);
        vf sum = vf_zero();
        for (size_t a = 0; a < a0; a++) {
            const size_t at = a * ep + j;
            const vf s = vf_load(work->s + at);
            const vf p = vf_load(work->p_turned + at);
            vf_store(work->m + at, vf_fma(tj, p, vf_load(work->hd_turned + at)));
            vf_store(work->sum_h + at, vf_add(vf_load(work->sum_h + at), s));
            vf_store(work->sum_p + at, vf_fma(tj, s, vf_load(work->sum_p + at)));
            sum = vf_fma(s, p, sum);
        }
        if (dt_add) sum = vf_add(sum, vf_load_tail(dt + j, k));
        vf_store_tail(dt + j, sum, k);
    }
    for (size_t i = span.begin; i < span.end; i += TILE) {
        const size_t np = span.end - i < TILE ? span.end - i : TILE;
        const float *z[TILE];
        for (size_t q = 0; q < np; q++) z[q] = dz + (i + q) * a0;
        product_any(np, a0, z, work->m, ep, NULL, e, dh + i * lddh, lddh);
    }
}

INLINE void backward_block(const struct kern_attn *attn, const struct kern_attn_in *in,
                           const struct kern_attn_grad *grad, size_t e, size_t a0, size_t row,
                           size_t rows, const struct work *work, const struct planes *planes,
                           float *dw1, float *sum_b2)
{
    const float *target = in->target + row * in->ldtarget;
    float *dt = grad->dtarget + row * grad->lddtarget;
    for (size_t i = 0; i < rows; i++)
        row_softmax_backward(e, in, span_of(in->history, row + i, row + i + 1),
                             grad->dout + (row + i) * grad->lddout, planes->p, grad->dhistory,
                             grad->lddhistory, work->t);
    second_layer_backward(attn, work, span_of(in->history, row, row + rows), planes, dw1, sum_b2);
    memset(work->t, 0, work->ep * sizeof(float));
    for (size_t i = 0; i < rows; i++)
        row_first_backward(work, e, a0, in, span_of(in->history, row + i, row + i + 1),
                           target + i * in->ldtarget, planes->z0, grad->dhistory, grad->lddhistory,
                           work->bias + i * a0, dt + i * grad->lddtarget, grad->dtarget_add);
    gemm_isa(&(struct kern_gemm){.a = work->bias,
                                 .lda = a0,
                                 .b = work->td,
                                 .ldb = a0,
                                 .b_trans = true,
                                 .c = dt,
                                 .ldc = grad->lddtarget,
                                 .m = rows,
                                 .n = e,
                                 .k = a0,
                                 .add = true});
    gemm_isa(&(struct kern_gemm){.a = target,
                                 .lda = in->ldtarget,
                                 .a_trans = true,
                                 .b = work->bias,
                                 .ldb = a0,
                                 .c = work->sum_t,
                                 .ldc = a0,
                                 .m = e,
                                 .n = a0,
                                 .k = rows,
                                 .add = true});
}

/* The sums in the order and form of the weights. */
static void write_first_layer(const struct work *work, float *dw0)
{
    const size_t e = work->e;
    const size_t a0 = work->a0;
    for (size_t i = 0; i < e; i++) {
        for (size_t j = 0; j < a0; j++) {
            const float h = work->sum_h[j * work->ep + i];
            const float t = work->sum_t[i * a0 + j];
            dw0[i * a0 + j] = h;
            dw0[(e + i) * a0 + j] = h - t;
            dw0[(2 * e + i) * a0 + j] = t;
            dw0[(3 * e + i) * a0 + j] = work->sum_p[j * work->ep + i];
        }
    }
}

void attn_backward_isa(const struct kern_attn *attn, const struct kern_attn_in *in,
                       const struct kern_attn_grad *grad, float *scratch)
{
    struct work work;
    work_init(attn, scratch, &work);
    work_weights(attn, &work);
    work_turned(attn, &work);
    memset(work.sum_t, 0, work.e * work.a0 * sizeof(float));
    const struct planes planes = planes_of(attn, in, grad->save);
    float *db0 = grad->dweights + 4 * work.e * work.a0;
    float *dw1 = db0 + work.a0;
    float *db1 = dw1 + work.a0 * work.a1;
    float *db2 = db1 + 2 * work.a1;
    memset(db0, 0, (size_t)(db2 + 1 - db0) * sizeof(float));
    for (size_t row = in->row_begin; row < in->row_end; row += BLOCK) {
        const size_t rows = in->row_end - row < BLOCK ? in->row_end - row : BLOCK;
        if (attn->e == 16 && attn->a0 == 16) {
            backward_block(attn, in, grad, 16, 16, row, rows, &work, &planes, dw1, db2);
        } else {
            backward_block(attn, in, grad, attn->e, attn->a0, row, rows, &work, &planes, dw1, db2);
        }
        for (size_t i = 0; i < rows; i++) add_isa(work.a0, work.bias + i * work.a0, db0, db0);
    }
    memcpy(db1, work.sum_1, 2 * work.a1 * sizeof(float));
    write_first_layer(&work, grad->dweights);
}
