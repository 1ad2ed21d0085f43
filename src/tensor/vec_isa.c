/* Elementwise kernels and sums over arrays and rows: everything limited by memory rather than by
 * arithmetic. */
#include "tensor/isa.h"

#include <string.h>

#include "base/rand.h"

void add_isa(size_t n, const float *x, const float *y, float *out)
{
    FOR_LANES(i, k, n)
    vf_store_tail(out + i, vf_add(vf_load_tail(x + i, k), vf_load_tail(y + i, k)), k);
}

void mul_isa(size_t n, const float *x, const float *y, float *out)
{
    FOR_LANES(i, k, n)
    vf_store_tail(out + i, vf_mul(vf_load_tail(x + i, k), vf_load_tail(y + i, k)), k);
}

void axpy_isa(size_t n, float alpha, const float *x, float *y)
{
    const vf a = vf_set(alpha);
    FOR_LANES(i, k, n)
    vf_store_tail(y + i, vf_fma(a, vf_load_tail(x + i, k), vf_load_tail(y + i, k)), k);
}

void scale_isa(size_t n, float alpha, float *x)
{
    const vf a = vf_set(alpha);
    FOR_LANES(i, k, n) vf_store_tail(x + i, vf_mul(a, vf_load_tail(x + i, k)), k);
}

/* Columns in strips of four vectors, so that four chains of additions run side by side. */
#define STRIP (4 * VF)

void sum_parts_isa(size_t parts, size_t n, const float *x, size_t ld, float *out)
{
    size_t j = 0;
    for (; j + STRIP <= n; j += STRIP) {
        vf sums[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        for (size_t p = 0; p < parts; p++)
            for (size_t v = 0; v < 4; v++)
                sums[v] = vf_add(sums[v], vf_load(x + p * ld + j + v * VF));
        for (size_t v = 0; v < 4; v++) vf_store(out + j + v * VF, sums[v]);
    }
    for (; j < n; j += VF) {
        vf sum = vf_zero();
        for (size_t p = 0; p < parts; p++) sum = vf_add(sum, vf_load_tail(x + p * ld + j, n - j));
        vf_store_tail(out + j, sum, n - j);
    }
}

void col_sums_isa(size_t rows, size_t width, const float *x, size_t ldx, float *out)
{
    sum_parts_isa(rows, width, x, ldx, out);
}

void copy_rows_isa(size_t rows, size_t width, const float *src, size_t ldsrc, float *dst,
                   size_t lddst, bool add)
{
    for (size_t i = 0; i < rows; i++, src += ldsrc, dst += lddst) {
        if (add) {
            add_isa(width, src, dst, dst);
        } else {
            FOR_LANES(j, k, width) vf_store_tail(dst + j, vf_load_tail(src + j, k), k);
        }
    }
}

INLINE vf act_of(enum kern_act act, vf x)
{
    switch (act) {
    case KERN_NONE: break;
    case KERN_RELU: return vf_relu(x);
    case KERN_SIGMOID: return vf_sigmoid(x);
    case KERN_TANH: return vf_tanh(x);
    }
    return x;
}

INLINE void act_rows(enum kern_act act, size_t rows, size_t width, const float *x, size_t ldx,
                     const float *bias, float *y, size_t ldy)
{
    for (size_t i = 0; i < rows; i++, x += ldx, y += ldy) {
        FOR_LANES(j, k, width)
        {
            vf v = vf_load_tail(x + j, k);
            if (bias != NULL) v = vf_add(v, vf_load_tail(bias + j, k));
            vf_store_tail(y + j, act_of(act, v), k);
        }
    }
}

void act_forward_isa(enum kern_act act, size_t rows, size_t width, const float *x, size_t ldx,
                     const float *bias, float *y, size_t ldy)
{
    switch (act) {
    case KERN_NONE: act_rows(KERN_NONE, rows, width, x, ldx, bias, y, ldy); break;
    case KERN_RELU: act_rows(KERN_RELU, rows, width, x, ldx, bias, y, ldy); break;
    case KERN_SIGMOID: act_rows(KERN_SIGMOID, rows, width, x, ldx, bias, y, ldy); break;
    case KERN_TANH: act_rows(KERN_TANH, rows, width, x, ldx, bias, y, ldy); break;
    }
}

/* dy times the slope, which each activation has in terms of its output y. */
INLINE vf slope_times(enum kern_act act, vf y, vf dy)
{
    switch (act) {
    case KERN_NONE: break;
    case KERN_RELU: return vf_keep(vf_gt(y, vf_zero()), dy);
    case KERN_SIGMOID: return vf_mul(dy, vf_mul(y, vf_sub(vf_set(1.0f), y)));
    case KERN_TANH: return vf_mul(dy, vf_fnma(y, y, vf_set(1.0f)));
    }
    return dy;
}

void act_backward_isa(enum kern_act act, size_t rows, size_t width, const float *y, size_t ldy,
                      const float *dy, size_t lddy, float *dx, size_t lddx)
{
    for (size_t i = 0; i < rows; i++, y += ldy, dy += lddy, dx += lddx) {
        FOR_LANES(j, k, width)
        {
            const vf out = vf_load_tail(y + j, k);
            vf_store_tail(dx + j, slope_times(act, out, vf_load_tail(dy + j, k)), k);
        }
    }
}

/* Squares are summed in float32 over SQUARES values per lane at most, those sums in double. */
#define SQUARES 16

double sum_squares_isa(size_t n, const float *x)
{
    double total = 0;
    for (size_t i = 0; i < n; i += SQUARES * VF) {
        const size_t piece = n - i < SQUARES * VF ? n - i : SQUARES * VF;
        vf sums[2] = {vf_zero(), vf_zero()};
        FOR_LANES(j, k, piece)
        {
            const vf v = vf_load_tail(x + i + j, k);
            sums[j / VF % 2] = vf_fma(v, v, sums[j / VF % 2]);
        }
        total += (double)vf_sum(vf_add(sums[0], sums[1]));
    }
    return total;
}

/* x * 0 is 0 for finite x and NaN otherwise, and NaN stays NaN in a sum. */
bool is_finite_isa(size_t n, const float *x)
{
    vf sums[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    size_t i = 0;
    for (; i + STRIP <= n; i += STRIP)
        for (size_t v = 0; v < 4; v++)
            sums[v] = vf_fma(vf_load(x + i + v * VF), vf_zero(), sums[v]);
    for (; i < n; i += VF) sums[0] = vf_fma(vf_load_tail(x + i, n - i), vf_zero(), sums[0]);
    const float sum = vf_sum(vf_add(vf_add(sums[0], sums[1]), vf_add(sums[2], sums[3])));
    return sum == 0;
}

/* Random words are drawn 256 at a time. A block of bits is gathered in one word and written when it
 * is whole; 256 and VF both go into 32. */
#define DRAW 256

static void dropout_block(float rate, float factor, size_t n, const uint32_t *words, const float *x,
                          float *y, uint32_t *bits)
{
    const vf unit = vf_set(1.0f / 16777216.0f);
    for (size_t i = 0; i < n; i += 32) {
        uint32_t kept = 0;
        const size_t piece = n - i < 32 ? n - i : 32;
        FOR_LANES(j, k, piece)
        {
            const vf u = vf_mul(vi_to_float(vi_shru(vi_load(words + i + j), 8)), unit);
            const vm keep = vf_ge(u, vf_set(rate));
            const vf v = vf_mul(vf_load_tail(x + i + j, k), vf_set(factor));
            vf_store_tail(y + i + j, vf_keep(keep, v), k);
            kept |= vm_bits(keep) << j;
        }
        if (piece < 32) kept &= (1u << piece) - 1;
        if (bits != NULL) bits[i / 32] = kept;
    }
}

void dropout_forward_isa(const struct kern_dropout *dropout, size_t n, const float *x, float *y,
                         uint32_t *bits)
{
    uint32_t words[DRAW + VF];
    memset(words, 0, sizeof words);
    const float factor = 1 / (1 - dropout->rate);
    for (size_t i = 0; i < n; i += DRAW) {
        const size_t piece = n - i < DRAW ? n - i : DRAW;
        rand_philox_fill(dropout->seed, dropout->what, dropout->step, dropout->index + i, piece,
                         words);
        dropout_block(dropout->rate, factor, piece, words, x + i, y + i,
                      bits == NULL ? NULL : bits + i / 32);
    }
}

void dropout_backward_isa(float rate, size_t n, const uint32_t *bits, const float *dy, float *dx)
{
    const vf factor = vf_set(1 / (1 - rate));
    FOR_LANES(i, k, n)
    {
        const vm keep = vm_from_bits(bits[i / 32] >> i % 32);
        vf_store_tail(dx + i, vf_keep(keep, vf_mul(vf_load_tail(dy + i, k), factor)), k);
    }
}
