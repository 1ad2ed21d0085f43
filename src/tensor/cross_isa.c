/* Products between the fields of a row: factorisation machine and DLRM's pairwise dots. */
#include "tensor/isa.h"

/* The sum over pairs is (S^2 - Q) / 2, with S the sum of the fields and Q that of their squares
 * (Rendle 2010, lemma 3.1): linear in the number of fields. */
void fm_forward_isa(size_t rows, size_t fields, size_t e, const float *x, size_t ldx, float *out,
                    size_t ldout)
{
    for (size_t b = 0; b < rows; b++, x += ldx) {
        vf total = vf_zero();
        FOR_LANES(j, k, e)
        {
            vf sum = vf_zero();
            vf squares = vf_zero();
            for (size_t f = 0; f < fields; f++) {
                const vf v = vf_load_tail(x + f * e + j, k);
                sum = vf_add(sum, v);
                squares = vf_fma(v, v, squares);
            }
            total = vf_add(total, vf_sub(vf_mul(sum, sum), squares));
        }
        out[b * ldout] = 0.5f * vf_sum(total);
    }
}

void fm_backward_isa(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                     const float *dout, size_t lddout, float *dx, size_t lddx)
{
    for (size_t b = 0; b < rows; b++, x += ldx, dx += lddx) {
        const vf d = vf_set(dout[b * lddout]);
        FOR_LANES(j, k, e)
        {
            vf sum = vf_zero();
            for (size_t f = 0; f < fields; f++) sum = vf_add(sum, vf_load_tail(x + f * e + j, k));
            for (size_t f = 0; f < fields; f++) {
                const vf v = vf_load_tail(x + f * e + j, k);
                vf_store_tail(dx + f * e + j, vf_mul(d, vf_sub(sum, v)), k);
            }
        }
    }
}

/* Turned fields: VF fields side by side for each of up to DOT_E components. */
#define DOT_E 256

static void turn_fields(size_t have, size_t e, const float *x, size_t ec, float *turned)
{
    for (size_t l = 0; l < ec; l += VF) {
        vf square[VF];
        for (size_t j = 0; j < VF; j++)
            square[j] = j < have ? vf_load_tail(x + j * e + l, ec - l) : vf_zero();
        vf_transpose(square);
        for (size_t i = 0; i < VF; i++) vf_store(turned + (l + i) * VF, square[i]);
    }
}

/* FOUR fields from i on against the turned ones, so that as many chains of additions go side by
 * side; `fields` of them exist. */
#define FOUR 4

INLINE void dot_fields(size_t fields, size_t e, const float *x, size_t i, size_t j0, size_t l0,
                       size_t ec, const float *turned, float *out)
{
    vf sums[FOUR];
    const float *field[FOUR];
    for (size_t q = 0; q < FOUR; q++) {
        sums[q] = vf_zero();
        field[q] = x + (q < fields ? i + q : i) * e + l0;
    }
    for (size_t l = 0; l < ec; l++) {
        const vf t = vf_load(turned + l * VF);
        for (size_t q = 0; q < FOUR; q++) sums[q] = vf_fma(vf_set(field[q][l]), t, sums[q]);
    }
    for (size_t q = 0; q < FOUR && q < fields; q++) {
        const size_t k = i + q - j0;
        float *to = out + (i + q) * (i + q - 1) / 2 + j0;
        vf_store_tail(to, l0 == 0 ? sums[q] : vf_add(sums[q], vf_load_tail(to, k)), k);
    }
}

/* out[i][j] for the fields j0 .. j0 + VF of one row, over components l0 .. l0 + ec. */
static void dot_block(size_t fields, size_t e, const float *x, size_t j0, size_t l0, size_t ec,
                      float *out)
{
    _Alignas(64) float turned[(DOT_E + VF) * VF];
    turn_fields(fields - j0 < VF ? fields - j0 : VF, e, x + j0 * e + l0, ec, turned);
    for (size_t i = j0 + 1; i < fields; i += FOUR)
        dot_fields(fields - i, e, x, i, j0, l0, ec, turned, out);
}

void dot_forward_isa(size_t rows, size_t fields, size_t e, const float *x, size_t ldx, float *out,
                     size_t ldout)
{
    for (size_t b = 0; b < rows; b++, x += ldx, out += ldout)
        for (size_t l0 = 0; l0 == 0 || l0 < e; l0 += DOT_E)
            for (size_t j0 = 0; j0 + 1 < fields; j0 += VF)
                dot_block(fields, e, x, j0, l0, e - l0 < DOT_E ? e - l0 : DOT_E, out);
}

void dot_backward_isa(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                      const float *dout, size_t lddout, float *dx, size_t lddx)
{
    for (size_t b = 0; b < rows; b++, x += ldx, dout += lddout, dx += lddx) {
        for (size_t i = 0; i < fields; i++) {
            FOR_LANES(l, k, e)
            {
                vf sum = vf_zero();
                for (size_t j = 0; j < i; j++)
                    sum = vf_fma(vf_set(dout[i * (i - 1) / 2 + j]), vf_load_tail(x + j * e + l, k),
                                 sum);
                for (size_t j = i + 1; j < fields; j++)
                    sum = vf_fma(vf_set(dout[j * (j - 1) / 2 + i]), vf_load_tail(x + j * e + l, k),
                                 sum);
                vf_store_tail(dx + i * e + l, sum, k);
            }
        }
    }
}
