/* isa declares what the files compiled once per instruction set offer each other and the table
 * (kern_isa.c): every function of struct kern, under its name with the instruction set appended;
 * kern.h has the contracts. Included only by *_isa.c. */
#ifndef SHOAL_TENSOR_ISA_H
#define SHOAL_TENSOR_ISA_H

#include "tensor/kern.h"
#include "tensor/simd.h"

#define gemm_isa ISA_NAME(gemm)
#define attn_forward_isa ISA_NAME(attn_forward)
#define attn_backward_isa ISA_NAME(attn_backward)
#define add_isa ISA_NAME(add)
#define mul_isa ISA_NAME(mul)
#define axpy_isa ISA_NAME(axpy)
#define scale_isa ISA_NAME(scale)
#define sum_parts_isa ISA_NAME(sum_parts)
#define copy_rows_isa ISA_NAME(copy_rows)
#define act_forward_isa ISA_NAME(act_forward)
#define act_backward_isa ISA_NAME(act_backward)
#define col_sums_isa ISA_NAME(col_sums)
#define sum_squares_isa ISA_NAME(sum_squares)
#define is_finite_isa ISA_NAME(is_finite)
#define dropout_forward_isa ISA_NAME(dropout_forward)
#define dropout_backward_isa ISA_NAME(dropout_backward)
#define gather_isa ISA_NAME(gather)
#define pool_forward_isa ISA_NAME(pool_forward)
#define pool_backward_isa ISA_NAME(pool_backward)
#define rows_grad_isa ISA_NAME(rows_grad)
#define loss_sigmoid_isa ISA_NAME(loss_sigmoid)
#define loss_softmax_isa ISA_NAME(loss_softmax)
#define loss_squared_isa ISA_NAME(loss_squared)
#define fm_forward_isa ISA_NAME(fm_forward)
#define fm_backward_isa ISA_NAME(fm_backward)
#define dot_forward_isa ISA_NAME(dot_forward)
#define dot_backward_isa ISA_NAME(dot_backward)
#define update_isa ISA_NAME(update)
#define update_rows_isa ISA_NAME(update_rows)
#define lamb_direction_isa ISA_NAME(lamb_direction)
#define delay_compensate_isa ISA_NAME(delay_compensate)
#define moving_average_isa ISA_NAME(moving_average)

void gemm_isa(const struct kern_gemm *job);
void attn_forward_isa(const struct kern_attn *attn, const struct kern_attn_in *in, float *out,
                      size_t ldout, float *save, float *scratch);
void attn_backward_isa(const struct kern_attn *attn, const struct kern_attn_in *in,
                       const struct kern_attn_grad *grad, float *scratch);
void add_isa(size_t n, const float *x, const float *y, float *out);
void mul_isa(size_t n, const float *x, const float *y, float *out);
void axpy_isa(size_t n, float alpha, const float *x, float *y);
void scale_isa(size_t n, float alpha, float *x);
void sum_parts_isa(size_t parts, size_t n, const float *x, size_t ld, float *out);
void copy_rows_isa(size_t rows, size_t width, const float *src, size_t ldsrc, float *dst,
                   size_t lddst, bool add);
void act_forward_isa(enum kern_act act, size_t rows, size_t width, const float *x, size_t ldx,
                     const float *bias, float *y, size_t ldy);
void act_backward_isa(enum kern_act act, size_t rows, size_t width, const float *y, size_t ldy,
                      const float *dy, size_t lddy, float *dx, size_t lddx);
void col_sums_isa(size_t rows, size_t width, const float *x, size_t ldx, float *out);
double sum_squares_isa(size_t n, const float *x);
bool is_finite_isa(size_t n, const float *x);
void dropout_forward_isa(const struct kern_dropout *dropout, size_t n, const float *x, float *y,
                         uint32_t *bits);
void dropout_backward_isa(float rate, size_t n, const uint32_t *bits, const float *dy, float *dx);
void gather_isa(size_t rows, size_t width, const float *table, size_t ldtable,
                const uint32_t *slots, float *dst, size_t lddst);
void pool_forward_isa(enum kern_pool pool, size_t width, const struct batch_ids *ids,
                      uint32_t row_begin, uint32_t row_end, const float *table, size_t ldtable,
                      float *out, size_t ldout);
void pool_backward_isa(enum kern_pool pool, size_t width, const struct batch_ids *ids,
                       uint32_t row_begin, uint32_t row_end, const float *dout, size_t lddout,
                       float *doccs, size_t lddoccs);
void rows_grad_isa(size_t width, const struct batch_keys *keys, uint32_t slot_begin,
                   uint32_t slot_end, const struct kern_occ_source *sources, uint32_t sources_count,
                   float *out, size_t ldout);
double loss_sigmoid_isa(size_t rows, const float *logit, const float *label, const float *weight,
                        float scale, float *prob, float *dlogit);
double loss_softmax_isa(size_t rows, size_t classes, const float *logit, size_t ldlogit,
                        const float *label, const float *weight, float scale, float *prob,
                        size_t ldprob, float *dlogit, size_t lddlogit);
double loss_squared_isa(size_t rows, const float *value, const float *label, const float *weight,
                        float scale, float *dvalue);
void fm_forward_isa(size_t rows, size_t fields, size_t e, const float *x, size_t ldx, float *out,
                    size_t ldout);
void fm_backward_isa(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                     const float *dout, size_t lddout, float *dx, size_t lddx);
void dot_forward_isa(size_t rows, size_t fields, size_t e, const float *x, size_t ldx, float *out,
                     size_t ldout);
void dot_backward_isa(size_t rows, size_t fields, size_t e, const float *x, size_t ldx,
                      const float *dout, size_t lddout, float *dx, size_t lddx);
void update_isa(const struct kern_update *update, size_t n, float *value, float *slot0,
                float *slot1, const float *grad);
void update_rows_isa(const struct kern_update *update, size_t rows, size_t dim, size_t ldslot,
                     float *const *row, const float *grad, size_t ldgrad);
void lamb_direction_isa(const struct kern_update *update, float m_scale, float v_scale, size_t n,
                        const float *value, float *m, float *v, const float *grad, float *direction,
                        double norms[2]);
void delay_compensate_isa(size_t n, float lambda, const float *grad, const float *now,
                          const float *then, float *out);
void moving_average_isa(size_t n, float decay, const float *value, float *average);

#endif
