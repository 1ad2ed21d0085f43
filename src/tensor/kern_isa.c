/* The table of one instruction set. */
#include "tensor/isa.h"

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)

const struct kern ISA_NAME(kern) = {
    .name = STRING(ISA),
    .gemm = gemm_isa,
    .attn_forward = attn_forward_isa,
    .attn_backward = attn_backward_isa,
    .add = add_isa,
    .mul = mul_isa,
    .axpy = axpy_isa,
    .scale = scale_isa,
    .sum_parts = sum_parts_isa,
    .copy_rows = copy_rows_isa,
    .act_forward = act_forward_isa,
    .act_backward = act_backward_isa,
    .col_sums = col_sums_isa,
    .sum_squares = sum_squares_isa,
    .is_finite = is_finite_isa,
    .dropout_forward = dropout_forward_isa,
    .dropout_backward = dropout_backward_isa,
    .gather = gather_isa,
    .pool_forward = pool_forward_isa,
    .pool_backward = pool_backward_isa,
    .rows_grad = rows_grad_isa,
    .loss_sigmoid = loss_sigmoid_isa,
    .loss_softmax = loss_softmax_isa,
    .loss_squared = loss_squared_isa,
    .fm_forward = fm_forward_isa,
    .fm_backward = fm_backward_isa,
    .dot_forward = dot_forward_isa,
    .dot_backward = dot_backward_isa,
    .update = update_isa,
    .update_rows = update_rows_isa,
    .lamb_direction = lamb_direction_isa,
    .delay_compensate = delay_compensate_isa,
    .moving_average = moving_average_isa,
};
