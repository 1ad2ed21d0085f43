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
 * and there are no sums across lanes. The small second layer works on VF positions at a time, of
 * whatever rows, turned so that a lane is a position; backward computes it again rather than keep it.
 *
 * What forward keeps, in two planes over the batch's occurrences: z0 (a0) and p (1). Backward
 * overwrites them with dz and the gradient of the scores. Without a place to keep them, forward
 * works on PIECE positions at a time in its scratch. */
#include "tensor/isa.h"

#include <string.h>

#include "base/assert.h"

#define BLOCK 64  /* rows of the batch that are worked on together */
#define PIECE 512 /* positions that are, when nothing is kept */

#if defined(ISA_avx512)
#define TILE 8 /* positions at a time, so that their sums and M, 16 vectors, stay in registers */
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
    float *m;         /* M (e,ap), or turned (a0,ep), of one row */
    float *t;         /* one target, padded (ep) */
    float *bias;      /* t (T - D) + b0 (BLOCK,a0); backward: d */
    float *z0_turned; /* of VF positions (ap,16) */
    float *z1_turned; /* of VF positions (a1,16) */
    float *sum_h;     /* dH turned (a0,ep) */
    float *sum_p;     /* dP turned (a0,ep) */
    float *sum_t;     /* dT (e,a0) */
    float *sum_w1;    /* turned (a1,ap) */
    float *sum_b1;    /* by lane (a1,16) */
    float *sum_w2;    /* by lane (a1,16) */
    float *sum_b2;    /* by lane (16) */
    float *piece;     /* the planes of PIECE positions */
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
    work->m = carve(&scratch, ep * ap);
    work->t = carve(&scratch, ep);
    work->bias = carve(&scratch, BLOCK * a0);
    work->z0_turned = carve(&scratch, ap * 16);
    work->z1_turned = carve(&scratch, (size_t)attn->a1 * 16);
    work->sum_h = carve(&scratch, a0 * ep);
    work->sum_p = carve(&scratch, a0 * ep);
    work->sum_t = carve(&scratch, e * a0);
    work->sum_w1 = carve(&scratch, attn->a1 * ap);
    work->sum_b1 = carve(&scratch, (size_t)attn->a1 * 16);
    work->sum_w2 = carve(&scratch, (size_t)attn->a1 * 16);
    work->sum_b2 = carve(&scratch, 16);
    work->piece = carve(&scratch, PIECE * (a0 + 1));
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

static void work_backward(struct work *work)
{
    const size_t turned = work->a0 * work->ep * sizeof(float);
    memset(work->hd_turned, 0, turned);
    memset(work->p_turned, 0, turned);
    memset(work->t, 0, work->ep * sizeof(float));
    memset(work->sum_h, 0, (size_t)(work->piece - work->sum_h) * sizeof(float)); /* all sums */
    for (size_t i = 0; i < work->e; i++) {
        for (size_t j = 0; j < work->a0; j++) {
            work->hd_turned[j * work->ep + i] = work->hd[i * work->ap + j];
            work->p_turned[j * work->ep + i] = work->p[i * work->ap + j];
        }
    }
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

/* A matrix of k rows that the products of one row of the batch share. Where it fits, its rows are
 * held in registers instead of memory. */
struct matrix {
    const float *at; /* (k,ld), padded to whole vectors */
    size_t ld;
    vf held[VF == 16 ? 16 : 1];
};

#define HELD(k, width) (VF == 16 && (k) == 16 && (width) == 16)

/* sums[i] += x[i] (k) times columns of m from j on, for np positions and nv vectors of columns. */
INLINE void tile_product(size_t np, size_t nv, size_t k, bool held, const float *const x[TILE],
                         const struct matrix *m, size_t j, vf sums[TILE][2])
{
    for (size_t l = 0; l < k; l++) {
        vf mv[2];
        for (size_t v = 0; v < nv; v++)
            mv[v] = held ? m->held[l] : vf_load(m->at + l * m->ld + j + v * VF);
        for (size_t i = 0; i < np; i++) {
            const vf xv = vf_set(x[i][l]);
            for (size_t v = 0; v < nv; v++) sums[i][v] = vf_fma(xv, mv[v], sums[i][v]);
        }
    }
}

/* to[i] = relu(x[i] m + c), or to[i] += x[i] m without c; one strip of nv vectors of columns. */
INLINE void strip_product(size_t np, size_t nv, size_t k, const float *const x[TILE],
                          const struct matrix *m, size_t j, const float *c, size_t width, float *to,
                          size_t ldto)
{
    vf sums[TILE][2];
    for (size_t i = 0; i < np; i++) {
        for (size_t v = 0; v < nv; v++) {
            const size_t at = j + v * VF;
            sums[i][v] = vf_load_tail(c != NULL ? c + at : to + i * ldto + at, width - at);
        }
    }
    tile_product(np, nv, k, HELD(k, width), x, m, j, sums);
    for (size_t i = 0; i < np; i++) {
        for (size_t v = 0; v < nv; v++) {
            const size_t at = j + v * VF;
            const vf sum = c != NULL ? vf_relu(sums[i][v]) : sums[i][v];
            vf_store_tail(to + i * ldto + at, sum, width - at);
        }
    }
}

INLINE void product(size_t np, size_t k, const float *const x[TILE], const struct matrix *m,
                    const float *c, size_t width, float *to, size_t ldto)
{
    for (size_t j = 0; j < width; j += 2 * VF) {
        if (width - j > VF) {
            strip_product(np, 2, k, x, m, j, c, width, to, ldto);
        } else {
            strip_product(np, 1, k, x, m, j, c, width, to, ldto);
        }
    }
}

/* How many positions to take next when `left` are left. Few sizes, as each has its own unrolled
 * loops. */
INLINE size_t tile_of(size_t left)
{
    return left >= TILE ? TILE : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

INLINE void product_any(size_t np, size_t k, const float *const x[TILE], const struct matrix *m,
                        const float *c, size_t width, float *to, size_t ldto)
{
    switch (np) {
    case 1: product(1, k, x, m, c, width, to, ldto); break;
    case 2: product(2, k, x, m, c, width, to, ldto); break;
    case 4: product(4, k, x, m, c, width, to, ldto); break;
#if TILE > 4
    case TILE: product(TILE, k, x, m, c, width, to, ldto); break;
#endif
    default: break;
    }
}

/* z0 of all positions of one row. */
INLINE void row_first_layer(const struct work *work, size_t e, size_t a0,
                            const struct kern_attn_in *in, struct span span, const float *t,
                            const float *bias, float *z0)
{
    const size_t ap = work->ap;
    struct matrix m = {.at = work->m, .ld = ap};
    for (size_t i = 0; i < e; i++) {
        const vf ti = vf_set(t[i]);
        for (size_t j = 0; j < a0; j += VF) {
            const size_t at = i * ap + j;
            const vf x = vf_fma(ti, vf_load(work->p + at), vf_load(work->hd + at));
            if (HELD(e, a0)) {
                m.held[i] = x;
            } else {
                vf_store(work->m + at, x);
            }
        }
    }
    for (size_t i = span.begin, np; i < span.end; i += np) {
        np = tile_of(span.end - i);
        const float *h[TILE] = {NULL};
        for (size_t q = 0; q < np; q++) h[q] = row_of(in, i + q);
        product_any(np, e, h, &m, bias, a0, z0 + i * a0, a0);
    }
}

/* n positions (count,a0), n <= VF, turned so that a lane is a position (ap,VF), and back. */
INLINE void turn(size_t n, size_t a0, const float *z0, float *turned)
{
    for (size_t a = 0; a < a0; a += VF) {
        vf square[VF];
        for (size_t i = 0; i < VF; i++)
            square[i] = i < n ? vf_load_tail(z0 + i * a0 + a, a0 - a) : vf_zero();
        vf_transpose(square);
        for (size_t i = 0; i < VF; i++) vf_store(turned + (a + i) * VF, square[i]);
    }
}

INLINE void turn_back(size_t n, size_t a0, const float *turned, float *z0)
{
    for (size_t a = 0; a < a0; a += VF) {
        vf square[VF];
        for (size_t i = 0; i < VF; i++) square[i] = vf_load(turned + (a + i) * VF);
        vf_transpose(square);
        for (size_t i = 0; i < n; i++) vf_store_tail(z0 + i * a0 + a, square[i], a0 - a);
    }
}

/* to[u] = c[u] + sum over l of w[u ldw + l ldl] x[l], for units u of a layer, EIGHT at a time; x
 * and `to` are turned, c NULL: zeros. */
#define EIGHT 8

INLINE void layer_units(size_t units, size_t k, const float *w, size_t ldw, size_t ldl,
                        const float *c, const float *x, float *to)
{
    vf sums[EIGHT];
    for (size_t u = 0; u < units; u++) sums[u] = vf_set(c == NULL ? 0 : c[u]);
    for (size_t l = 0; l < k; l++) {
        const vf xl = vf_load(x + l * VF);
        for (size_t u = 0; u < units; u++)
            sums[u] = vf_fma(vf_set(w[u * ldw + l * ldl]), xl, sums[u]);
    }
    for (size_t u = 0; u < units; u++) vf_store(to + u * VF, sums[u]);
}

INLINE void layer(size_t units, size_t k, const float *w, size_t ldw, size_t ldl, const float *c,
                  const float *x, float *to)
{
    size_t u = 0;
    for (; u + EIGHT <= units; u += EIGHT)
        layer_units(EIGHT, k, w + u * ldw, ldw, ldl, c == NULL ? NULL : c + u, x, to + u * VF);
    for (; u < units; u++)
        layer_units(1, k, w + u * ldw, ldw, ldl, c == NULL ? NULL : c + u, x, to + u * VF);
}

/* Scores of n positions from their z0. Leaves z0 and the second layer before its ReLU turned. */
INLINE vf group_scores(const struct kern_attn *attn, const struct work *work, size_t n, size_t a0,
                       size_t a1, const float *z0)
{
    turn(n, a0, z0, work->z0_turned);
    layer(a1, a0, attn->w1, 1, a1, attn->b1, work->z0_turned, work->z1_turned);
    vf score = vf_set(attn->b2[0]);
    for (size_t j = 0; j < a1; j++) {
        const vf z1 = vf_relu(vf_load(work->z1_turned + j * VF));
        score = vf_fma(vf_set(attn->w2[j]), z1, score);
    }
    return score;
}

/* What the scores of a softmax came to: each p is exp(s - max) / sum. */
struct norm {
    float max;
    float sum;
};

/* Up to nv vectors of scores, in registers. */
INLINE struct norm softmax_short(size_t nv, size_t count, float *s)
{
    vf x[3];
    vf max = vf_set(-__builtin_inff());
    for (size_t v = 0; v < nv; v++) {
        const size_t k = count - v * VF;
        x[v] = vf_load_tail(s + v * VF, k);
        max = vf_max(max, k >= VF ? x[v] : vf_select(vm_first(k), x[v], max));
    }
    const float most = vf_max_lanes(max);
    vf sums = vf_zero();
    for (size_t v = 0; v < nv; v++) {
        const size_t k = count - v * VF;
        x[v] = vf_exp(vf_sub(x[v], vf_set(most)));
        sums = vf_add(sums, k >= VF ? x[v] : vf_keep(vm_first(k), x[v]));
    }
    const float sum = vf_sum(sums);
    const vf share = vf_set(1 / sum);
    for (size_t v = 0; v < nv; v++) vf_store_tail(s + v * VF, vf_mul(x[v], share), count - v * VF);
    return (struct norm){.max = most, .sum = sum};
}

static struct norm softmax_long(size_t count, float *s)
{
    vf max = vf_set(s[0]);
    vf sums = vf_zero();
    FOR_LANES(i, k, count)
    {
        const vf x = vf_load_tail(s + i, k);
        max = vf_max(max, k >= VF ? x : vf_select(vm_first(k), x, max));
    }
    const float most = vf_max_lanes(max);
    FOR_LANES(i, k, count)
    {
        const vf x = vf_exp(vf_sub(vf_load_tail(s + i, k), vf_set(most)));
        vf_store_tail(s + i, x, k);
        sums = vf_add(sums, k >= VF ? x : vf_keep(vm_first(k), x));
    }
    const float sum = vf_sum(sums);
    scale_isa(count, 1 / sum, s);
    return (struct norm){.max = most, .sum = sum};
}

INLINE struct norm softmax(size_t count, float *s)
{
    if (count <= VF) return softmax_short(1, count, s);
    if (count <= 2 * VF) return softmax_short(2, count, s);
    if (count <= 3 * VF) return softmax_short(3, count, s);
    return softmax_long(count, s);
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

/* z0 and p by occurrence number; `first` is the number of the first that there is room for. */
struct planes {
    float *z0;
    float *p;
};

static struct planes planes_of(const struct kern_attn *attn, size_t count, size_t first,
                               float *memory)
{
    return (struct planes){.z0 = memory - first * attn->a0, .p = memory + count * attn->a0 - first};
}

/* z0 and scores of the positions of `rows` rows. */
INLINE void block_scores(const struct kern_attn *attn, const struct kern_attn_in *in, size_t e,
                         size_t a0, size_t a1, size_t row, size_t rows, const struct work *work,
                         const struct planes *planes)
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
    const struct span span = span_of(in->history, row, row + rows);
    for (size_t i = span.begin; i < span.end; i += VF) {
        const size_t n = span.end - i < VF ? span.end - i : VF;
        vf_store_tail(planes->p + i, group_scores(attn, work, n, a0, a1, planes->z0 + i * a0), n);
    }
}

INLINE void forward_rows(const struct kern_attn *attn, const struct kern_attn_in *in, size_t e,
                         size_t a0, size_t a1, size_t row, size_t rows, const struct work *work,
                         const struct planes *planes, float *out, size_t ldout)
{
    block_scores(attn, in, e, a0, a1, row, rows, work, planes);
    for (size_t i = 0; i < rows; i++) {
        const struct span span = span_of(in->history, row + i, row + i + 1);
        if (span.begin < span.end) (void)softmax(span.end - span.begin, planes->p + span.begin);
        weighted_sum(e, in, span, planes->p, out + (row + i) * ldout);
    }
}

static void forward_block(const struct kern_attn *attn, const struct kern_attn_in *in, size_t row,
                          size_t rows, const struct work *work, const struct planes *planes,
                          float *out, size_t ldout)
{
    if (attn->e == 16 && attn->a0 == 16 &&
        attn->a1 == 8) { /* Sizes that the compiler then knows. */
        forward_rows(attn, in, 16, 16, 8, row, rows, work, planes, out, ldout);
    } else {
        forward_rows(attn, in, attn->e, attn->a0, attn->a1, row, rows, work, planes, out, ldout);
    }
}

static float exp_of(float x)
{
    float lane[VF];
    vf_store(lane, vf_exp(vf_set(x)));
    return lane[0];
}

/* One row of more than PIECE positions with nothing kept: piece by piece, each by itself, joined by
 * the share that each has of the whole softmax. */
static void forward_long(const struct kern_attn *attn, const struct kern_attn_in *in, size_t row,
                         struct span span, const struct work *work, float *out)
{
    struct norm all = {.max = -__builtin_inff(), .sum = 0};
    memset(out, 0, attn->e * sizeof(float));
    for (size_t begin = span.begin; begin < span.end; begin += PIECE) {
        const size_t end = span.end - begin < PIECE ? span.end : begin + PIECE;
        const struct batch_ids ids = {.offsets = (uint32_t[2]){(uint32_t)begin, (uint32_t)end},
                                      .slots = in->history->slots};
        struct kern_attn_in piece = *in;
        piece.history = &ids;
        piece.target += row * in->ldtarget;
        const struct planes planes = planes_of(attn, PIECE, begin, work->piece);
        block_scores(attn, &piece, attn->e, attn->a0, attn->a1, 0, 1, work, &planes);
        const struct norm norm = softmax(end - begin, planes.p + begin);
        weighted_sum(attn->e, &piece, (struct span){begin, end}, planes.p, work->t);
        const float max = norm.max > all.max ? norm.max : all.max;
        const float before = all.sum * exp_of(all.max - max);
        const float here = norm.sum * exp_of(norm.max - max);
        all = (struct norm){.max = max, .sum = before + here};
        scale_isa(attn->e, before / all.sum, out);
        axpy_isa(attn->e, here / all.sum, work->t, out);
    }
}

/* As many rows from `row` on as there is room for positions; at least one. */
static size_t rows_in_piece(const struct batch_ids *history, size_t row, size_t rows)
{
    const size_t begin = span_of(history, row, row).begin;
    while (rows > 1 && span_of(history, row, row + rows).end - begin > PIECE) rows--;
    return rows;
}

void attn_forward_isa(const struct kern_attn *attn, const struct kern_attn_in *in, float *out,
                      size_t ldout, float *save, float *scratch)
{
    struct work work;
    work_init(attn, scratch, &work);
    work_weights(attn, &work);
    for (size_t row = in->row_begin, rows; row < in->row_end; row += rows) {
        rows = in->row_end - row < BLOCK ? in->row_end - row : BLOCK;
        if (save == NULL) rows = rows_in_piece(in->history, row, rows);
        const struct span span = span_of(in->history, row, row + rows);
        const struct planes planes = save == NULL ? planes_of(attn, PIECE, span.begin, work.piece)
                                                  : planes_of(attn, in->history->count, 0, save);
        if (save == NULL && span.end - span.begin > PIECE) {
            forward_long(attn, in, row, span, &work, out + row * ldout);
        } else {
            forward_block(attn, in, row, rows, &work, &planes, out, ldout);
        }
    }
}

/* Through the softmax: p becomes the gradient of the score, dh starts as p dout. The products h dout
 * wait in the first column of dh until their mean is known. */
INLINE void row_softmax_backward(size_t e, const struct kern_attn_in *in, struct span span,
                                 const float *dout, float *p, float *dh, size_t lddh)
{
    float mean = 0;
    for (size_t i = span.begin; i < span.end; i++) {
        const float *h = row_of(in, i);
        vf dot = vf_zero();
        FOR_LANES(j, k, e)
        dot = vf_fma(vf_load_tail(h + j, k), vf_load_tail(dout + j, k), dot);
        dh[i * lddh] = vf_sum(dot);
        mean += p[i] * dh[i * lddh];
    }
    for (size_t i = span.begin; i < span.end; i++) {
        const float ds = p[i] * (dh[i * lddh] - mean);
        FOR_LANES(j, k, e)
        vf_store_tail(dh + i * lddh + j, vf_mul(vf_set(p[i]), vf_load_tail(dout + j, k)), k);
        p[i] = ds;
    }
}

/* sum_w1[j] += z1_turned[j][i] z0[i] over n positions: units j .. j + units, nv vectors of z0. */
INLINE void outer_units(const struct work *work, size_t units, size_t nv, size_t n, size_t a0,
                        size_t j, size_t a, const float *z0)
{
    vf sums[EIGHT][2];
    float *to = work->sum_w1 + j * work->ap + a;
    for (size_t u = 0; u < units; u++)
        for (size_t v = 0; v < nv; v++) sums[u][v] = vf_load(to + u * work->ap + v * VF);
    for (size_t i = 0; i < n; i++) {
        vf z[2];
        for (size_t v = 0; v < nv; v++)
            z[v] = vf_load_tail(z0 + i * a0 + a + v * VF, a0 - a - v * VF);
        for (size_t u = 0; u < units; u++) {
            const vf d = vf_set(work->z1_turned[(j + u) * VF + i]);
            for (size_t v = 0; v < nv; v++) sums[u][v] = vf_fma(d, z[v], sums[u][v]);
        }
    }
    for (size_t u = 0; u < units; u++)
        for (size_t v = 0; v < nv; v++) vf_store(to + u * work->ap + v * VF, sums[u][v]);
}

/* Through the second layer for n positions: z0 becomes dz, the sums of w1, b1, w2, b2 grow. */
INLINE void group_backward(const struct kern_attn *attn, const struct work *work, size_t n,
                           size_t a0, size_t a1, float *z0, const float *ds)
{
    (void)group_scores(attn, work, n, a0, a1, z0);
    const vf d = vf_load_tail(ds, n);
    vf_store(work->sum_b2, vf_add(vf_load(work->sum_b2), d));
    for (size_t j = 0; j < a1; j++) {
        const size_t at = j * VF;
        const vf z1 = vf_relu(vf_load(work->z1_turned + at));
        const vf dz1 = vf_keep(vf_gt(z1, vf_zero()), vf_mul(d, vf_set(attn->w2[j])));
        vf_store(work->sum_w2 + at, vf_fma(d, z1, vf_load(work->sum_w2 + at)));
        vf_store(work->sum_b1 + at, vf_add(vf_load(work->sum_b1 + at), dz1));
        vf_store(work->z1_turned + at, dz1);
    }
    for (size_t a = 0; a < a0; a += VF) {
        size_t j = 0;
        for (; j + EIGHT <= a1; j += EIGHT) outer_units(work, EIGHT, 1, n, a0, j, a, z0);
        for (; j < a1; j++) outer_units(work, 1, 1, n, a0, j, a, z0);
    }
    float dz[EIGHT * VF];
    for (size_t a = 0; a < a0; a += EIGHT) {
        const size_t units = a0 - a < EIGHT ? a0 - a : EIGHT;
        layer(units, a1, attn->w1 + a * a1, a1, 1, NULL, work->z1_turned, dz);
        for (size_t u = 0; u < units; u++) {
            float *z = work->z0_turned + (a + u) * VF;
            vf_store(z, vf_keep(vf_gt(vf_load(z), vf_zero()), vf_load(dz + u * VF)));
        }
    }
    turn_back(n, a0, work->z0_turned, z0);
}

/* GROUP rows of S turned at a time are summed in registers and used up at once. */
#if defined(ISA_avx512)
#define GROUP 16
#else
#define GROUP 4
#endif

/* Rows a .. a + group of S turned, the sums over the row's positions of dz h, nv vectors of columns
 * from j on; dH and dP grow by them, dt by their products with P, and M turned is made. */
INLINE void outer_group(const struct work *work, size_t group, size_t nv, size_t e, size_t a0,
                        const struct kern_attn_in *in, struct span span, size_t a, size_t j,
                        const float *dz, struct matrix *m, vf dt[2])
{
    vf sums[GROUP][2];
    for (size_t g = 0; g < group; g++)
        for (size_t v = 0; v < nv; v++) sums[g][v] = vf_zero();
    for (size_t i = span.begin; i < span.end; i++) {
        const float *h = row_of(in, i) + j;
        vf hv[2];
        for (size_t v = 0; v < nv; v++) hv[v] = vf_load_tail(h + v * VF, e - j - v * VF);
        for (size_t g = 0; g < group; g++) {
            const vf d = vf_set(dz[i * a0 + a + g]);
            for (size_t v = 0; v < nv; v++) sums[g][v] = vf_fma(d, hv[v], sums[g][v]);
        }
    }
    for (size_t g = 0; g < group; g++) {
        for (size_t v = 0; v < nv; v++) {
            const size_t at = (a + g) * work->ep + j + v * VF;
            const vf t = vf_load(work->t + j + v * VF);
            const vf p = vf_load(work->p_turned + at);
            const vf x = vf_fma(t, p, vf_load(work->hd_turned + at));
            if (HELD(a0, e)) {
                m->held[a + g] = x;
            } else {
                vf_store(work->m + at, x);
            }
            vf_store(work->sum_h + at, vf_add(vf_load(work->sum_h + at), sums[g][v]));
            vf_store(work->sum_p + at, vf_fma(t, sums[g][v], vf_load(work->sum_p + at)));
            dt[v] = vf_fma(sums[g][v], p, dt[v]);
        }
    }
}

INLINE void outer_strip(const struct work *work, size_t nv, size_t e, size_t a0,
                        const struct kern_attn_in *in, struct span span, size_t j, const float *dz,
                        struct matrix *m, float *dt, bool dt_add)
{
    vf sums[2];
    for (size_t v = 0; v < nv; v++)
        sums[v] = dt_add ? vf_load_tail(dt + j + v * VF, e - j - v * VF) : vf_zero();
    size_t a = 0;
    for (; a + GROUP <= a0; a += GROUP)
        outer_group(work, GROUP, nv, e, a0, in, span, a, j, dz, m, sums);
    for (; a < a0; a++) outer_group(work, 1, nv, e, a0, in, span, a, j, dz, m, sums);
    for (size_t v = 0; v < nv; v++) vf_store_tail(dt + j + v * VF, sums[v], e - j - v * VF);
}

/* One row, from dz: d, dh, the row's share of dH and dP, and the part of dt that S gives. */
INLINE void row_first_backward(const struct work *work, size_t e, size_t a0,
                               const struct kern_attn_in *in, struct span span, const float *t,
                               const float *dz, float *dh, size_t lddh, float *d, float *dt,
                               bool dt_add)
{
    struct matrix m = {.at = work->m, .ld = work->ep};
    FOR_LANES(j, k, e) vf_store_tail(work->t + j, vf_load_tail(t + j, k), k);
    for (size_t j = 0; j < e; j += 2 * VF) {
        if (e - j > VF) {
            outer_strip(work, 2, e, a0, in, span, j, dz, &m, dt, dt_add);
        } else {
            outer_strip(work, 1, e, a0, in, span, j, dz, &m, dt, dt_add);
        }
    }
    FOR_LANES(j, k, a0)
    {
        vf sum = vf_zero();
        for (size_t i = span.begin; i < span.end; i++)
            sum = vf_add(sum, vf_load_tail(dz + i * a0 + j, k));
        vf_store_tail(d + j, sum, k);
    }
    for (size_t i = span.begin, np; i < span.end; i += np) {
        np = tile_of(span.end - i);
        const float *z[TILE] = {NULL};
        for (size_t q = 0; q < np; q++) z[q] = dz + (i + q) * a0;
        product_any(np, a0, z, &m, NULL, e, dh + i * lddh, lddh);
    }
}

INLINE void backward_rows(const struct kern_attn *attn, const struct kern_attn_in *in,
                          const struct kern_attn_grad *grad, size_t e, size_t a0, size_t a1,
                          size_t row, size_t rows, const struct work *work,
                          const struct planes *planes)
{
    const float *target = in->target + row * in->ldtarget;
    float *dt = grad->dtarget + row * grad->lddtarget;
    for (size_t i = 0; i < rows; i++)
        row_softmax_backward(e, in, span_of(in->history, row + i, row + i + 1),
                             grad->dout + (row + i) * grad->lddout, planes->p, grad->dhistory,
                             grad->lddhistory);
    const struct span span = span_of(in->history, row, row + rows);
    for (size_t i = span.begin; i < span.end; i += VF)
        group_backward(attn, work, span.end - i < VF ? span.end - i : VF, a0, a1,
                       planes->z0 + i * a0, planes->p + i);
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

static void write_second_layer(const struct work *work, float *dw1)
{
    float *db1 = dw1 + work->a0 * work->a1;
    float *dw2 = db1 + work->a1;
    for (size_t j = 0; j < work->a1; j++) {
        for (size_t i = 0; i < work->a0; i++)
            dw1[i * work->a1 + j] = work->sum_w1[j * work->ap + i];
        db1[j] = vf_sum(vf_load(work->sum_b1 + j * VF));
        dw2[j] = vf_sum(vf_load(work->sum_w2 + j * VF));
    }
    dw2[work->a1] = vf_sum(vf_load(work->sum_b2));
}

void attn_backward_isa(const struct kern_attn *attn, const struct kern_attn_in *in,
                       const struct kern_attn_grad *grad, float *scratch)
{
    struct work work;
    work_init(attn, scratch, &work);
    work_weights(attn, &work);
    work_backward(&work);
    ASSERT(grad->save != NULL);
    const struct planes planes = planes_of(attn, in->history->count, 0, grad->save);
    float *db0 = grad->dweights + 4 * work.e * work.a0;
    memset(db0, 0, work.a0 * sizeof(float));
    for (size_t row = in->row_begin; row < in->row_end; row += BLOCK) {
        const size_t rows = in->row_end - row < BLOCK ? in->row_end - row : BLOCK;
        if (attn->e == 16 && attn->a0 == 16 && attn->a1 == 8) {
            backward_rows(attn, in, grad, 16, 16, 8, row, rows, &work, &planes);
        } else {
            backward_rows(attn, in, grad, work.e, work.a0, work.a1, row, rows, &work, &planes);
        }
        for (size_t i = 0; i < rows; i++) add_isa(work.a0, work.bias + i * work.a0, db0, db0);
    }
    write_first_layer(&work, grad->dweights);
    write_second_layer(&work, db0 + work.a0);
}
