/* Matrix products and activations.
 *     Y = act(X W + b)   dZ = dY * act'(Y)   dX = dZ W^T   dW = X^T dZ   db = column sums of dZ */
#include <string.h>

#include "graph/graph_node.h"

/* Weights of more floats than this do not stay in a core's cache from one chunk of rows to the next:
 * such a product is better cut into tiles over the whole batch, with a barrier around it. */
#define DENSE_ROWS_WEIGHT_MAX (64u * 1024u)

static const enum kern_act acts[GRAPH_ACT_COUNT] = {
    [GRAPH_LINEAR] = KERN_NONE,
    [GRAPH_RELU] = KERN_RELU,
    [GRAPH_SIGMOID] = KERN_SIGMOID,
    [GRAPH_TANH] = KERN_TANH,
};

/* inputs: x, weight, bias or nothing. attrs: activation. */
static const char *dense_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    const struct graph_shape x = node_at(graph, inputs[0])->shape;
    const struct graph_shape weight = node_at(graph, inputs[1])->shape;
    if (x.cols == 0) return "ids are not a matrix";
    if (weight.rows != GRAPH_FIXED) return "the weight must have a fixed shape";
    if (weight.of != x.cols) return "the weight's rows must be the input's columns";
    if (node->inputs_count == 3 &&
        !shape_is(node_at(graph, inputs[2])->shape, GRAPH_FIXED, 1, weight.cols)) {
        return "the bias must be 1 x the weight's columns";
    }
    if (node->attrs[0] >= GRAPH_ACT_COUNT) return "unknown activation";
    node->shape = x;
    node->shape.cols = weight.cols;
    return NULL;
}

static void dense_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const struct node node = *node_at(graph, id);
    const graph_id x = node_input(graph, id, 0);
    const graph_id weight = node_input(graph, id, 1);
    graph_id dz = dy;
    if (node.attrs[0] != GRAPH_LINEAR) {
        const graph_id inputs[] = {dy, id};
        dz = node_add(graph, &(struct node_spec){.op = OP_ACT_GRAD,
                                                 .inputs = inputs,
                                                 .inputs_count = 2,
                                                 .attrs = {node.attrs[0]}});
    }
    if (grads_wanted(grads, x)) grads_add(grads, x, node_add2(graph, OP_MATMUL_NT, dz, weight));
    if (grads_wanted(grads, weight)) {
        grads_add(grads, weight, node_add2(graph, OP_MATMUL_TN, x, dz));
    }
    if (node.inputs_count == 3) {
        const graph_id bias = node_input(graph, id, 2);
        if (grads_wanted(grads, bias)) grads_add(grads, bias, node_add1(graph, OP_COL_SUMS, dz));
    }
}

static struct kern_gemm dense_job(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    const struct view *weight = call_input(call, 1);
    return (struct kern_gemm){
        .a = view_row(x, call->first),
        .lda = x->stride,
        .b = weight->data,
        .ldb = weight->stride,
        .c = call->out,
        .ldc = call->stride,
        .m = call->last - call->first,
        .n = call->node->shape.cols,
        .k = call_node(call, 0)->shape.cols,
        .bias = call->node->inputs_count == 3 ? call_input(call, 2)->data : NULL,
        .act = acts[call->node->attrs[0]],
    };
}

static void dense_run(const struct op_call *call)
{
    const struct kern_gemm job = dense_job(call);
    call->kern->gemm(&job);
}

static uint32_t dense_parts(const struct op_call *call)
{
    const struct kern_gemm job = dense_job(call);
    return kern_gemm_parts(&job);
}

static void dense_part(const struct op_call *call, uint32_t part)
{
    const struct kern_gemm job = dense_job(call);
    const struct kern_gemm tile = kern_gemm_part(&job, part);
    call->kern->gemm(&tile);
}

static bool weight_is_large(const struct graph *graph, const struct node *node)
{
    const struct graph_shape weight = node_at(graph, graph->inputs[node->inputs_first + 1])->shape;
    return (uint64_t)weight.of * weight.cols > DENSE_ROWS_WEIGHT_MAX;
}

static double weight_flops(const struct graph *graph, const struct node *node,
                           const struct flops_at *at)
{
    const struct graph_shape weight = node_at(graph, graph->inputs[node->inputs_first + 1])->shape;
    return 2.0 * weight.of * weight.cols * shape_rows_at(node->shape, at);
}

/* dX (m,k) = dY (m,n) * W^T, W (k,n). inputs: dY, W. */
static const char *matmul_nt_infer(const struct graph *graph, struct node *node,
                                   const graph_id *inputs)
{
    const struct graph_shape dy = node_at(graph, inputs[0])->shape;
    const struct graph_shape weight = node_at(graph, inputs[1])->shape;
    if (weight.rows != GRAPH_FIXED) return "the weight must have a fixed shape";
    if (weight.cols != dy.cols) return "the columns must be the same";
    if (dy.cols == 0) return "ids are not a matrix";
    node->shape = dy;
    node->shape.cols = weight.of;
    return NULL;
}

static struct kern_gemm matmul_nt_job(const struct op_call *call)
{
    const struct view *dy = call_input(call, 0);
    const struct view *weight = call_input(call, 1);
    return (struct kern_gemm){
        .a = view_row(dy, call->first),
        .lda = dy->stride,
        .b = weight->data,
        .ldb = weight->stride,
        .b_trans = true,
        .c = call->out,
        .ldc = call->stride,
        .m = call->last - call->first,
        .n = call->node->shape.cols,
        .k = call_node(call, 0)->shape.cols,
    };
}

static void matmul_nt_run(const struct op_call *call)
{
    const struct kern_gemm job = matmul_nt_job(call);
    call->kern->gemm(&job);
}

static uint32_t matmul_nt_parts(const struct op_call *call)
{
    const struct kern_gemm job = matmul_nt_job(call);
    return kern_gemm_parts(&job);
}

static void matmul_nt_part(const struct op_call *call, uint32_t part)
{
    const struct kern_gemm job = matmul_nt_job(call);
    const struct kern_gemm tile = kern_gemm_part(&job, part);
    call->kern->gemm(&tile);
}

/* dW (k,n) = X^T * dY, X (m,k), dY (m,n): summed over all rows in order. inputs: X, dY. */
static const char *matmul_tn_infer(const struct graph *graph, struct node *node,
                                   const graph_id *inputs)
{
    const struct graph_shape x = node_at(graph, inputs[0])->shape;
    const struct graph_shape dy = node_at(graph, inputs[1])->shape;
    if (!shape_same_rows(x, dy)) return "the rows must be the same";
    if (x.cols == 0) return "ids are not a matrix";
    node->shape = (struct graph_shape){.rows = GRAPH_FIXED, .of = x.cols, .cols = dy.cols};
    return NULL;
}

static void matmul_tn_run(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    const struct view *dy = call_input(call, 1);
    call->kern->gemm(&(struct kern_gemm){
        .a = x->data + call->first,
        .lda = x->stride,
        .a_trans = true,
        .b = dy->data,
        .ldb = dy->stride,
        .c = call->out,
        .ldc = call->stride,
        .m = call->last - call->first,
        .n = call->node->shape.cols,
        .k = x->rows,
    });
}

static uint32_t matmul_tn_grain(const struct op_call *call)
{
    return (uint32_t)kern_gemm_rows(call->node->shape.cols, call_input(call, 0)->rows);
}

/* inputs: x (m,n). Output 1 x n. */
static const char *col_sums_infer(const struct graph *graph, struct node *node,
                                  const graph_id *inputs)
{
    const struct graph_shape x = node_at(graph, inputs[0])->shape;
    if (x.cols == 0) return "ids are not a matrix";
    node->shape = (struct graph_shape){.rows = GRAPH_FIXED, .of = 1, .cols = x.cols};
    return NULL;
}

static void col_sums_run(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    call->kern->col_sums(x->rows, call->node->shape.cols, x->data, x->stride, call->out);
}

/* inputs: x. attrs: activation. */
static const char *act_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    if (node->attrs[0] >= GRAPH_ACT_COUNT) return "unknown activation";
    node->shape = node_at(graph, inputs[0])->shape;
    return node->shape.cols == 0 ? "ids are not a matrix" : NULL;
}

static void act_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id inputs[] = {dy, id};
    grads_add(grads, node_input(graph, id, 0),
              node_add(graph, &(struct node_spec){.op = OP_ACT_GRAD,
                                                  .inputs = inputs,
                                                  .inputs_count = 2,
                                                  .attrs = {node_at(graph, id)->attrs[0]}}));
}

static void act_run(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    call->kern->act_forward(acts[call->node->attrs[0]], call->last - call->first,
                            call->node->shape.cols, view_row(x, call->first), x->stride, NULL,
                            call->out, call->stride);
}

/* inputs: dy, y. attrs: activation. */
static const char *act_grad_infer(const struct graph *graph, struct node *node,
                                  const graph_id *inputs)
{
    if (node->attrs[0] >= GRAPH_ACT_COUNT) return "unknown activation";
    node->shape = node_at(graph, inputs[0])->shape;
    if (node->shape.cols == 0) return "ids are not a matrix";
    return shape_equal(node->shape, node_at(graph, inputs[1])->shape) ? NULL
                                                                      : "shapes must be the same";
}

static void act_grad_run(const struct op_call *call)
{
    const struct view *dy = call_input(call, 0);
    const struct view *y = call_input(call, 1);
    call->kern->act_backward(acts[call->node->attrs[0]], call->last - call->first,
                             call->node->shape.cols, view_row(y, call->first), y->stride,
                             view_row(dy, call->first), dy->stride, call->out, call->stride);
}

static double matmul_tn_flops(const struct graph *graph, const struct node *node,
                              const struct flops_at *at)
{
    const struct graph_shape x = node_at(graph, graph->inputs[node->inputs_first])->shape;
    return 2.0 * node->shape.of * node->shape.cols * shape_rows_at(x, at);
}

static double col_sums_flops(const struct graph *graph, const struct node *node,
                             const struct flops_at *at)
{
    const struct graph_shape x = node_at(graph, graph->inputs[node->inputs_first])->shape;
    return node->shape.cols * shape_rows_at(x, at);
}

const struct op op_dense = {.name = "dense",
                            .inputs_min = 2,
                            .inputs_max = 3,
                            .infer = dense_infer,
                            .grad = dense_grad,
                            .run = dense_run,
                            .parts = dense_parts,
                            .part = dense_part,
                            .tiled = weight_is_large,
                            .flops = weight_flops};
const struct op op_matmul_nt = {.name = "matmul_nt",
                                .inputs_min = 2,
                                .inputs_max = 2,
                                .infer = matmul_nt_infer,
                                .run = matmul_nt_run,
                                .parts = matmul_nt_parts,
                                .part = matmul_nt_part,
                                .tiled = weight_is_large,
                                .flops = weight_flops};
const struct op op_matmul_tn = {.name = "matmul_tn",
                                .inputs_min = 2,
                                .inputs_max = 2,
                                .infer = matmul_tn_infer,
                                .run = matmul_tn_run,
                                .grain = matmul_tn_grain,
                                .whole = true,
                                .flops = matmul_tn_flops};
const struct op op_col_sums = {.name = "col_sums",
                               .inputs_min = 1,
                               .inputs_max = 1,
                               .infer = col_sums_infer,
                               .run = col_sums_run,
                               .whole = true,
                               .flops = col_sums_flops};
const struct op op_act = {.name = "act",
                          .inputs_min = 1,
                          .inputs_max = 1,
                          .infer = act_infer,
                          .grad = act_grad,
                          .run = act_run,
                          .in_place = true};
const struct op op_act_grad = {.name = "act_grad",
                               .inputs_min = 2,
                               .inputs_max = 2,
                               .infer = act_grad_infer,
                               .run = act_grad_run,
                               .in_place = true};
