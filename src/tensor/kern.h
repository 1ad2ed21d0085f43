/* kern is the table of compute kernels: small functions over plain pointers and counts, one table
 * per instruction set. Graph and store find a kernel through the table and never name an
 * instruction set; another device would be another table.
 *
 *     const struct kern *kern = kern_default();
 *     kern->gemm(&(struct kern_gemm){ .a = x, .lda = 784, .b = w, .ldb = 500, .c = y, .ldc = 500,
 *                                     .m = 32, .n = 500, .k = 784, .bias = b, .act = KERN_RELU });
 *
 * (1) No kernel allocates, locks, keeps state or starts threads: all may run on many threads at
 * once. (2) Float32, row-major. `ld*` is the distance between rows in floats. No alignment is asked
 * for; 64-byte aligned rows are fastest. Outputs do not overlap inputs unless it says "in place".
 * (3) The same inputs give the same bits on one table, and cutting work between rows (or, for gemm,
 *     between rows and columns) never changes a bit: an element of an output is computed by one
 *     fixed sequence of operations. What sums over rows says in which order.
 * (4) Counts may be 0. Sizes are checked by the caller (graph), not here.
 *
 * kern_ref holds a naive version of each, with sums in double: what the tests compare with. */
#ifndef SHOAL_TENSOR_KERN_H
#define SHOAL_TENSOR_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "tensor/batch.h"

enum kern_act { KERN_NONE, KERN_RELU, KERN_SIGMOID, KERN_TANH };

enum kern_pool { KERN_SUM, KERN_MEAN, KERN_SQRTN };

/* ---- Matrix product ----------------------------------------------------------------------------
 * C (m,n) = A (m,k) * B (k,n), or C += with `add`; then `bias` is added to every row, `act`
 * applied, and elements are zeroed where `mask` (m,n) is not above 0 (backward through ReLU: mask =
 * its output). For the backward pass of Y = X W: dX = dY * W^T (b_trans) and dW = X^T * dY
 * (a_trans). An element is one chain of fused multiply-adds in the order of k, so any cut of m and
 * n into separate calls gives the same bits. */
struct kern_gemm {
    const float *a;
    const float *b;
    float *c;
    size_t lda;
    size_t ldb;
    size_t ldc;
    size_t m;
    size_t n;
    size_t k;
    bool a_trans; /* A is stored (k,m) */
    bool b_trans; /* B is stored (n,k) */
    bool add;
    const float *bias; /* (n); NULL: none */
    enum kern_act act;
    const float *mask; /* NULL: none */
    size_t ldmask;
};

/* How the product is best cut into parts for a team, from its shape alone, and the job of one part.
 * Parts are disjoint tiles of C in row-major order of tiles. */
uint32_t kern_gemm_parts(const struct kern_gemm *job);
struct kern_gemm kern_gemm_part(const struct kern_gemm *job, uint32_t part);

/* Rows of C that make a good part when C must be produced as contiguous row ranges: weight
 * gradients, handed on block by block. A multiple of what the kernels like; at least 1. */
size_t kern_gemm_rows(size_t n, size_t k);

/* ---- Attention over ragged histories (DIN) -----------------------------------------------------
 * For history position i of row b, with h = rows[slots[i]] (e) and t = target[b] (e):
 *     z0 = relu(concat(h, h - t, t, h * t) * w0 + b0)     w0 (4e,a0)
 *     z1 = relu(z0 * w1 + b1)                             w1 (a0,a1)
 *     s  = z1 * w2 + b2                                   w2 (a1)
 *     p  = softmax of s over the row's positions
 *     out[b] = sum over positions of p * h; zeros for a row without positions. */
struct kern_attn {
    uint32_t e;
    uint32_t a0;
    uint32_t a1;
    const float *w0;
    const float *b0;
    const float *w1;
    const float *b1;
    const float *w2;
    const float *b2;
};

struct kern_attn_in {
    const float *rows; /* unique embedding rows (u,e) */
    size_t ldrows;
    const struct batch_ids *history; /* offsets, slots; weights are not used */
    const float *target;             /* (b,e) */
    size_t ldtarget;
    uint32_t row_begin; /* the rows of the batch to compute; pointers are to row 0 */
    uint32_t row_end;
};

/* Floats that forward keeps for backward, per occurrence; the buffer has history->count times it.
 */
static inline size_t kern_attn_save_width(const struct kern_attn *attn)
{
    return ((size_t)attn->a0 + 15) / 16 * 16 + ((size_t)attn->a1 + 15) / 16 * 16 + 16;
}

/* Floats of one gradient block: w0, b0, w1, b1, w2, b2 in this order. */
static inline size_t kern_attn_grad_count(const struct kern_attn *attn)
{
    return 4 * (size_t)attn->e * attn->a0 + attn->a0 + (size_t)attn->a0 * attn->a1 +
           2 * (size_t)attn->a1 + 1;
}

/* Floats of scratch that forward and backward need per call. */
size_t kern_attn_scratch_count(const struct kern_attn *attn);

struct kern_attn_grad {
    const float *dout; /* (b,e) */
    size_t lddout;
    float *save;     /* what forward kept; overwritten for the rows asked for */
    float *dhistory; /* (occurrences,e), overwritten for the rows asked for */
    size_t lddhistory;
    float *dtarget; /* (b,e), overwritten or added to */
    size_t lddtarget;
    bool dtarget_add;
    float *dweights; /* kern_attn_grad_count floats, overwritten: the sum over these rows */
};

/* ---- Gradients of embedding rows ---------------------------------------------------------------
 * Where the gradients of a table's occurrences lie, feature by feature: occurrence occ_base + i of
 * the table, i < count, is row i of `grad`. */
struct kern_occ_source {
    const float *grad;
    size_t ld;
    uint32_t occ_base;
    uint32_t count;
};

/* ---- Update rules ------------------------------------------------------------------------------
 * As TensorFlow defines them; w is the value, g the gradient after `scale`, clip and l1/l2:
 *     g = clamp(grad * scale, -clip, clip) + l2 * w + l1 * sign(w)           (clip 0: none)
 *     sgd       w -= lr g
 *     momentum  a = momentum a + g;  w -= lr a
 *     nesterov  a = momentum a + g;  w -= lr (g + momentum a)
 *     adagrad   a += g^2;  w -= lr g / sqrt(a)
 *     rmsprop   s += (g^2 - s)(1 - beta2);  a = momentum a + lr g / sqrt(s + epsilon);  w -= a
 *     adam      m += (g - m)(1 - beta1);  v += (g^2 - v)(1 - beta2);
 *               w -= lr m / (sqrt(v) + epsilon) + decay w
 *               where lr already holds sqrt(1 - beta2^t) / (1 - beta1^t), and decay (adamw) the
 *               learning rate times the weight decay
 *     ftrl      b = a + g^2;  z += g - (b^-power - a^-power) / lr w;  a = b;
 *               w = |z| > l1 ? (sign(z) l1 - z) / (b^-power / lr + 2 l2) : 0
 *               (l1 and l2 act here and not on g)
 * Slots in order: momentum, nesterov: a. adagrad: a. rmsprop: s, a. adam: m, v. ftrl: a, z. */
enum kern_rule {
    KERN_SGD,
    KERN_MOMENTUM,
    KERN_NESTEROV,
    KERN_ADAGRAD,
    KERN_RMSPROP,
    KERN_ADAM,
    KERN_FTRL,
    KERN_RULE_COUNT
};

struct kern_update {
    enum kern_rule rule;
    float lr;
    float scale; /* of the gradient; 1 for none */
    float clip;
    float l1;
    float l2;
    float momentum;
    float beta1;
    float beta2;
    float epsilon;
    float decay;
    float power; /* ftrl's learning_rate_power, usually -0.5 */
};

/* Slots that a rule keeps: 0, 1 or 2. */
uint32_t kern_rule_slots(enum kern_rule rule);

/* ---- Random bits -------------------------------------------------------------------------------
 * Element i of a call has the number index + i; it uses word (number % 4) of
 * rand_philox(seed, what, step, number / 4). Kept if rand_unit(word) >= rate. */
struct kern_dropout {
    uint64_t seed;
    uint64_t step;
    uint64_t index;
    uint32_t what;
    float rate;
};

struct kern {
    const char *name;

    /* -- Products -- */
    void (*gemm)(const struct kern_gemm *job);

    /* -- Attention. save: kern_attn_save_width per occurrence, NULL where no backward follows;
     * scratch: kern_attn_scratch_count floats. -- */
    void (*attn_forward)(const struct kern_attn *attn, const struct kern_attn_in *in, float *out,
                         size_t ldout, float *save, float *scratch);
    void (*attn_backward)(const struct kern_attn *attn, const struct kern_attn_in *in,
                          const struct kern_attn_grad *grad, float *scratch);

    /* -- Elementwise, flat; out may be x or y. -- */
    void (*add)(size_t n, const float *x, const float *y, float *out);
    void (*mul)(size_t n, const float *x, const float *y, float *out);
    void (*axpy)(size_t n, float alpha, const float *x, float *y); /* y += alpha x */
    void (*scale)(size_t n, float alpha, float *x);                /* x *= alpha */

    /* out = the sum of `parts` arrays of n floats at distance ld, added in order. */
    void (*sum_parts)(size_t parts, size_t n, const float *x, size_t ld, float *out);

    /* Copies rows x width between strided buffers (concat and its inverse); `add`: dst += src. */
    void (*copy_rows)(size_t rows, size_t width, const float *src, size_t ldsrc, float *dst,
                      size_t lddst, bool add);

    /* y = act(x + bias), in place allowed. bias NULL: none. */
    void (*act_forward)(enum kern_act act, size_t rows, size_t width, const float *x, size_t ldx,
                        const float *bias, float *y, size_t ldy);
    /* dx = dy * act'(.), from the output y; in place allowed (dx = dy). */
    void (*act_backward)(enum kern_act act, size_t rows, size_t width, const float *y, size_t ldy,
                         const float *dy, size_t lddy, float *dx, size_t lddx);

    /* out[j] = sum over rows in order, of x[row][j]. */
    void (*col_sums)(size_t rows, size_t width, const float *x, size_t ldx, float *out);
    double (*sum_squares)(size_t n, const float *x);
    bool (*is_finite)(size_t n, const float *x);

    /* y = x where kept, times 1 / (1 - rate), else 0; bit i % 32 of bits[i / 32] says kept.
     * In place allowed. bits NULL: not wanted. Backward is dx = dy the same way, from the bits. */
    void (*dropout_forward)(const struct kern_dropout *dropout, size_t n, const float *x, float *y,
                            uint32_t *bits);
    void (*dropout_backward)(float rate, size_t n, const uint32_t *bits, const float *dy,
                             float *dx);

    /* -- Embedding rows -- */
    /* dst[i] = table[slots[i]], for i < rows. */
    void (*gather)(size_t rows, size_t width, const float *table, size_t ldtable,
                   const uint32_t *slots, float *dst, size_t lddst);
    /* out[b] = combination of the rows of b's occurrences, for b in row_begin..row_end (pointers
     * are to row 0): sum of w h; mean: / sum of w; sqrtn: / sqrt(sum of w^2). Nothing there: zeros.
     */
    void (*pool_forward)(enum kern_pool pool, size_t width, const struct batch_ids *ids,
                         uint32_t row_begin, uint32_t row_end, const float *table, size_t ldtable,
                         float *out, size_t ldout);
    /* doccs[i] = dout[b] times the factor that occurrence i had. */
    void (*pool_backward)(enum kern_pool pool, size_t width, const struct batch_ids *ids,
                          uint32_t row_begin, uint32_t row_end, const float *dout, size_t lddout,
                          float *doccs, size_t lddoccs);
    /* out[slot] = sum of the gradients of its occurrences, in order of occurrence number, for slots
     * slot_begin..slot_end (out is row 0). sources ascend by occ_base; occurrences that no source
     * covers count as zero. */
    void (*rows_grad)(size_t width, const struct batch_keys *keys, uint32_t slot_begin,
                      uint32_t slot_end, const struct kern_occ_source *sources,
                      uint32_t sources_count, float *out, size_t ldout);

    /* -- Losses: return the sum over rows of weight * loss, in double, in row order. weight
     * NULL: 1. d = weight * scale * derivative; NULL: not wanted. -- */
    /* prob (NULL: not wanted) gets the sigmoid. */
    double (*loss_sigmoid)(size_t rows, const float *logit, const float *label, const float *weight,
                           float scale, float *prob, float *dlogit);
    /* label holds class numbers; an impossible one gives NaN. prob (NULL: not wanted) the softmax.
     */
    double (*loss_softmax)(size_t rows, size_t classes, const float *logit, size_t ldlogit,
                           const float *label, const float *weight, float scale, float *prob,
                           size_t ldprob, float *dlogit, size_t lddlogit);
    /* (value - label)^2. */
    double (*loss_squared)(size_t rows, const float *value, const float *label, const float *weight,
                           float scale, float *dvalue);

    /* -- Interactions. x is (rows, fields * e), fields side by side. -- */
    /* Factorisation machine: out[b] = sum over pairs i < j of x_i . x_j. */
    void (*fm_forward)(size_t rows, size_t fields, size_t e, const float *x, size_t ldx, float *out,
                       size_t ldout);
    void (*fm_backward)(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                        const float *dout, size_t lddout, float *dx, size_t lddx);
    /* DLRM: out[b] = x_i . x_j for i = 1 .. fields-1, j < i. */
    void (*dot_forward)(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                        float *out, size_t ldout);
    void (*dot_backward)(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                         const float *dout, size_t lddout, float *dx, size_t lddx);

    /* -- Updates. Slots that the rule has not are not touched and may be NULL. -- */
    void (*update)(const struct kern_update *update, size_t n, float *value, float *slot0,
                   float *slot1, const float *grad);
    /* rows[i] points to a row: value (dim), then its slots, each ldslot floats after the last. */
    void (*update_rows)(const struct kern_update *update, size_t rows, size_t dim, size_t ldslot,
                        float *const *row, const float *grad, size_t ldgrad);
    /* LAMB's first half over one block: m and v move as in adam (m_scale = 1 / (1 - beta1^t),
     * v_scale = 1 / (1 - beta2^t)); direction = m' / (sqrt(v') + epsilon) + decay w. Adds the
     * squares of w and of direction to norms[0] and norms[1]. The second half is axpy. */
    void (*lamb_direction)(const struct kern_update *update, float m_scale, float v_scale, size_t n,
                           const float *value, float *m, float *v, const float *grad,
                           float *direction, double norms[2]);
    /* out = g + lambda g^2 (w_now - w_then), in place allowed (out = g): delay compensation. */
    void (*delay_compensate)(size_t n, float lambda, const float *grad, const float *now,
                             const float *then, float *out);
    /* average += (1 - decay) (value - average). */
    void (*moving_average)(size_t n, float decay, const float *value, float *average);
};

/* The table of an instruction set, which this machine must have. */
const struct kern *kern_get(enum cpu_isa isa);

/* The table of cpu_isa(). */
const struct kern *kern_default(void);

extern const struct kern kern_ref;

#endif
