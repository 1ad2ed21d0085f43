/* Interactions between fields: the factorisation machine's second order (Rendle, ICDM '10) and
 * DLRM's dot products (Naumov et al., 2019). x is rows x (fields * dim), fields side by side. */
#include "base/bounds.h"
#include "graph/graph_node.h"

/* attrs: dim. */
static const char *fields_fault(struct graph_shape x, uint32_t dim)
{
    if (x.cols == 0) return "ids are not a matrix";
    if (dim == 0 || x.cols % dim != 0) return "the columns must be a multiple of dim";
    if (x.cols / dim < 2) return "two fields or more are needed";
    return NULL;
}

static uint64_t pairs_of(uint64_t fields)
{
    return fields * (fields - 1) / 2;
}

static const char *fm_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    const char *fault = fields_fault(node->shape, node->attrs[0]);
    node->shape.cols = 1;
    return fault;
}

static const char *dots_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    const char *fault = fields_fault(node->shape, node->attrs[0]);
    if (fault != NULL) return fault;
    const uint64_t pairs = pairs_of(node->shape.cols / node->attrs[0]);
    if (pairs > GRAPH_COLS_MAX) return "too many pairs of fields";
    node->shape.cols = (uint32_t)pairs;
    return NULL;
}

static void add_grad_node(struct graph *graph, graph_id id, graph_id dy, enum op_code op,
                          struct grads *grads)
{
    const graph_id x = node_input(graph, id, 0);
    const graph_id inputs[] = {x, dy};
    grads_add(grads, x,
              node_add(graph, &(struct node_spec){.op = op,
                                                  .inputs = inputs,
                                                  .inputs_count = 2,
                                                  .attrs = {node_at(graph, id)->attrs[0]}}));
}

static void fm_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    add_grad_node(graph, id, dy, OP_FM_GRAD, grads);
}

static void dots_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    add_grad_node(graph, id, dy, OP_DOTS_GRAD, grads);
}

/* inputs: x, dy. attrs: dim. */
static const char *fm_grad_infer(const struct graph *graph, struct node *node,
                                 const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    const struct graph_shape dy = node_at(graph, inputs[1])->shape;
    if (!shape_same_rows(node->shape, dy) || dy.cols != 1) return "the gradient has another shape";
    return fields_fault(node->shape, node->attrs[0]);
}

static const char *dots_grad_infer(const struct graph *graph, struct node *node,
                                   const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    const struct graph_shape dy = node_at(graph, inputs[1])->shape;
    const char *fault = fields_fault(node->shape, node->attrs[0]);
    if (fault != NULL) return fault;
    if (!shape_same_rows(node->shape, dy) ||
        dy.cols != pairs_of(node->shape.cols / node->attrs[0])) {
        return "the gradient has another shape";
    }
    return NULL;
}

struct fields {
    const struct view *x;
    size_t rows;
    size_t count;
    size_t dim;
};

static struct fields fields_of(const struct op_call *call)
{
    const size_t dim = call->node->attrs[0];
    return (struct fields){.x = call_input(call, 0),
                           .rows = call->last - call->first,
                           .count = call_node(call, 0)->shape.cols / dim,
                           .dim = dim};
}

static void fm_run(const struct op_call *call)
{
    const struct fields f = fields_of(call);
    call->kern->fm_forward(f.rows, f.count, f.dim, view_row(f.x, call->first), f.x->stride,
                           call->out, call->stride);
}

static void fm_grad_run(const struct op_call *call)
{
    const struct fields f = fields_of(call);
    const struct view *dy = call_input(call, 1);
    call->kern->fm_backward(f.rows, f.count, f.dim, view_row(f.x, call->first), f.x->stride,
                            view_row(dy, call->first), dy->stride, call->out, call->stride);
}

static void dots_run(const struct op_call *call)
{
    const struct fields f = fields_of(call);
    call->kern->dot_forward(f.rows, f.count, f.dim, view_row(f.x, call->first), f.x->stride,
                            call->out, call->stride);
}

static void dots_grad_run(const struct op_call *call)
{
    const struct fields f = fields_of(call);
    const struct view *dy = call_input(call, 1);
    call->kern->dot_backward(f.rows, f.count, f.dim, view_row(f.x, call->first), f.x->stride,
                             view_row(dy, call->first), dy->stride, call->out, call->stride);
}

static double fm_flops(const struct graph *graph, const struct node *node,
                       const struct flops_at *at)
{
    return 4.0 * node_at(graph, graph->inputs[node->inputs_first])->shape.cols * at->rows;
}

static double dots_flops(const struct graph *graph, const struct node *node,
                         const struct flops_at *at)
{
    const double cols = node_at(graph, graph->inputs[node->inputs_first])->shape.cols;
    return cols * cols / node->attrs[0] * at->rows;
}

const struct op op_fm = {.name = "fm",
                         .inputs_min = 1,
                         .inputs_max = 1,
                         .infer = fm_infer,
                         .grad = fm_grad,
                         .run = fm_run,
                         .flops = fm_flops};
const struct op op_fm_grad = {.name = "fm_grad",
                              .inputs_min = 2,
                              .inputs_max = 2,
                              .infer = fm_grad_infer,
                              .run = fm_grad_run,
                              .flops = fm_flops};
const struct op op_dots = {.name = "dots",
                           .inputs_min = 1,
                           .inputs_max = 1,
                           .infer = dots_infer,
                           .grad = dots_grad,
                           .run = dots_run,
                           .flops = dots_flops};
const struct op op_dots_grad = {.name = "dots_grad",
                                .inputs_min = 2,
                                .inputs_max = 2,
                                .infer = dots_grad_infer,
                                .run = dots_grad_run,
                                .flops = dots_flops};
