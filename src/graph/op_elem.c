/* Element by element: sums, products, dropout, sums over columns, softmax by row. */
#include "base/bounds.h"
#include "base/rand.h"
#include "graph/graph_node.h"

/* ---- add, sub, mul of a with b, where b may be repeated over a's rows or columns ---- */

enum spread { SPREAD_NONE, SPREAD_ROWS, SPREAD_COLS, SPREAD_ALL, SPREAD_IMPOSSIBLE };

static enum spread spread_of(struct graph_shape a, struct graph_shape b)
{
    if (shape_equal(a, b)) return SPREAD_NONE;
    if (shape_is(b, GRAPH_FIXED, 1, a.cols)) return a.cols == 1 ? SPREAD_ALL : SPREAD_ROWS;
    if (shape_same_rows(a, b) && b.cols == 1) return SPREAD_COLS;
    if (shape_is_scalar(b)) return SPREAD_ALL;
    return SPREAD_IMPOSSIBLE;
}

static const char *binary_infer(const struct graph *graph, struct node *node,
                                const graph_id *inputs)
{
    const struct graph_shape a = node_at(graph, inputs[0])->shape;
    const struct graph_shape b = node_at(graph, inputs[1])->shape;
    if (a.cols == 0 || b.cols == 0) return "ids are not a matrix";
    if (spread_of(a, b) == SPREAD_IMPOSSIBLE) {
        return "the second must have the first's shape, or be one row, one column or one number";
    }
    node->shape = a;
    return NULL;
}

/* b's part of a gradient that has a's shape. */
static graph_id unspread(struct graph *graph, graph_id grad, struct graph_shape b)
{
    if (grad == GRAPH_NONE) return GRAPH_NONE;
    switch (spread_of(node_at(graph, grad)->shape, b)) {
    case SPREAD_ROWS: return node_add1(graph, OP_COL_SUMS, grad);
    case SPREAD_COLS: return graph_sum(graph, grad);
    case SPREAD_ALL: return node_add1(graph, OP_COL_SUMS, graph_sum(graph, grad));
    default: return grad;
    }
}

static void add_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id a = node_input(graph, id, 0);
    const graph_id b = node_input(graph, id, 1);
    if (grads_wanted(grads, a)) grads_add(grads, a, dy);
    if (grads_wanted(grads, b)) {
        grads_add(grads, b, unspread(graph, dy, node_at(graph, b)->shape));
    }
}

static void sub_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id a = node_input(graph, id, 0);
    const graph_id b = node_input(graph, id, 1);
    if (grads_wanted(grads, a)) grads_add(grads, a, dy);
    if (grads_wanted(grads, b)) {
        const graph_id db = unspread(graph, dy, node_at(graph, b)->shape);
        grads_add(grads, b, graph_scale(graph, db, -1.0f));
    }
}

static void mul_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id a = node_input(graph, id, 0);
    const graph_id b = node_input(graph, id, 1);
    if (grads_wanted(grads, a)) grads_add(grads, a, graph_mul(graph, dy, b));
    if (grads_wanted(grads, b)) {
        grads_add(grads, b, unspread(graph, graph_mul(graph, dy, a), node_at(graph, b)->shape));
    }
}

/* One row of a with one row of b, or with one number (b_step 0). */
static void binary_row(enum op_code op, size_t cols, const float *a, const float *b, size_t b_step,
                       float *out)
{
    for (size_t c = 0; c < cols; c++) {
        const float y = b[c * b_step];
        out[c] = op == OP_ADD ? a[c] + y : op == OP_SUB ? a[c] - y : a[c] * y;
    }
}

static void binary_run(const struct op_call *call)
{
    const struct view *a = call_input(call, 0);
    const struct view *b = call_input(call, 1);
    const size_t cols = call->node->shape.cols;
    const enum spread spread = spread_of(call_node(call, 0)->shape, call_node(call, 1)->shape);
    const bool b_fixed = spread == SPREAD_ROWS || spread == SPREAD_ALL;
    const bool b_number = spread == SPREAD_COLS || spread == SPREAD_ALL;
    for (uint32_t row = call->first; row < call->last; row++) {
        const float *x = view_row(a, row);
        const float *y = view_row(b, b_fixed ? 0 : row);
        float *out = call->out + (row - call->first) * call->stride;
        if (b_number || call->node->op == OP_SUB) {
            binary_row(call->node->op, cols, x, y, b_number ? 0 : 1, out);
        } else if (call->node->op == OP_ADD) {
            call->kern->add(cols, x, y, out);
        } else {
            call->kern->mul(cols, x, y, out);
        }
    }
}

/* ---- sum of many of one shape, scale ---- */

static const char *add_n_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    if (node->shape.cols == 0) return "ids are not a matrix";
    for (uint32_t i = 1; i < node->inputs_count; i++) {
        if (!shape_equal(node->shape, node_at(graph, inputs[i])->shape)) {
            return "shapes must be the same";
        }
    }
    return NULL;
}

static void add_n_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const uint32_t count = node_at(graph, id)->inputs_count;
    for (uint32_t i = 0; i < count; i++) {
        const graph_id input = node_input(graph, id, i);
        if (grads_wanted(grads, input)) grads_add(grads, input, dy);
    }
}

static void add_n_run(const struct op_call *call)
{
    for (uint32_t i = 0; i < call->node->inputs_count; i++) {
        const struct view *x = call_input(call, i);
        const float *src = view_row(x, call->first);
        if (i == 0 && src == call->out) continue; /* In place. */
        call->kern->copy_rows(call->last - call->first, call->node->shape.cols, src, x->stride,
                              call->out, call->stride, i > 0);
    }
}

static const char *same_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    return node->shape.cols == 0 ? "ids are not a matrix" : NULL;
}

/* number: the factor. */
static void scale_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const struct node *up = node_at(graph, dy);
    const float factor = node_at(graph, id)->number;
    const graph_id dx =
        up->op == OP_CONSTANT
            ? node_add(graph, &(struct node_spec){.op = OP_CONSTANT, .number = up->number * factor})
            : graph_scale(graph, dy, factor);
    grads_add(grads, node_input(graph, id, 0), dx);
}

static void scale_run(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    const float factor = call->node->number;
    for (uint32_t row = call->first; row < call->last; row++) {
        binary_row(OP_MUL, call->node->shape.cols, view_row(x, row), &factor, 0,
                   call->out + (row - call->first) * call->stride);
    }
}

/* ---- columns side by side, and some of them ---- */

static const char *concat_infer(const struct graph *graph, struct node *node,
                                const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    uint64_t cols = 0;
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        const struct graph_shape shape = node_at(graph, inputs[i])->shape;
        if (shape.cols == 0) return "ids are not a matrix";
        if (!shape_same_rows(node->shape, shape)) return "the rows must be the same";
        cols += shape.cols;
    }
    if (cols > GRAPH_COLS_MAX) return "too many columns";
    node->shape.cols = (uint32_t)cols;
    return NULL;
}

static void concat_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const uint32_t count = node_at(graph, id)->inputs_count;
    uint32_t col = 0;
    for (uint32_t i = 0; i < count; i++) {
        const graph_id input = node_input(graph, id, i);
        const uint32_t cols = node_at(graph, input)->shape.cols;
        if (grads_wanted(grads, input)) grads_add(grads, input, graph_slice(graph, dy, col, cols));
        col += cols;
    }
}

/* Inputs that the plan put where they belong are there already. */
static void concat_run(const struct op_call *call)
{
    size_t col = 0;
    for (uint32_t i = 0; i < call->node->inputs_count; i++) {
        const struct view *x = call_input(call, i);
        const size_t cols = call_node(call, i)->shape.cols;
        const float *src = view_row(x, call->first);
        if (src != call->out + col) {
            call->kern->copy_rows(call->last - call->first, cols, src, x->stride, call->out + col,
                                  call->stride, false);
        }
        col += cols;
    }
}

/* attrs: first column, columns. A view of its input. */
static const char *slice_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    if (node->attrs[0] > node->shape.cols || node->attrs[1] > node->shape.cols - node->attrs[0]) {
        return "the slice is outside";
    }
    node->shape.cols = node->attrs[1];
    return NULL;
}

static void slice_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id x = node_input(graph, id, 0);
    const uint32_t cols = node_at(graph, x)->shape.cols;
    grads_add(grads, x,
              node_add(graph, &(struct node_spec){.op = OP_PAD,
                                                  .inputs = &dy,
                                                  .inputs_count = 1,
                                                  .attrs = {node_at(graph, id)->attrs[0], cols}}));
}

/* attrs: first column, columns in all. Zeros around. */
static const char *pad_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    if (node->shape.cols == 0) return "ids are not a matrix";
    if (node->attrs[0] > node->attrs[1] || node->shape.cols > node->attrs[1] - node->attrs[0]) {
        return "the slice is outside";
    }
    node->shape.cols = node->attrs[1];
    return NULL;
}

static void pad_run(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    const uint32_t first = call->node->attrs[0];
    const uint32_t width = call_node(call, 0)->shape.cols;
    for (uint32_t row = call->first; row < call->last; row++) {
        const float *src = view_row(x, row);
        float *out = call->out + (row - call->first) * call->stride;
        for (uint32_t c = 0; c < call->node->shape.cols; c++) {
            out[c] = c >= first && c - first < width ? src[c - first] : 0.0f;
        }
    }
}

/* ---- dropout: attrs: layer, number: rate. Output 1: a bit per element, kept or not ---- */

static const char *dropout_infer(const struct graph *graph, struct node *node,
                                 const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    if (node->shape.rows != GRAPH_BATCH) return "dropout works on rows of the batch";
    if (!(node->number >= 0.0f && node->number < 1.0f)) return "the rate must be in [0, 1)";
    return node->shape.cols == 0 ? "ids are not a matrix" : NULL;
}

static const char *dropout_extra(const struct graph *graph, const struct node *node,
                                 uint32_t number, struct graph_shape *shape_out)
{
    (void)graph;
    if (number != 1) return "no such output";
    *shape_out = (struct graph_shape){.rows = GRAPH_BATCH, .cols = (node->shape.cols + 31) / 32};
    return NULL;
}

static void dropout_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id inputs[] = {dy, node_extra(graph, id, 1)};
    grads_add(grads, node_input(graph, id, 0),
              node_add(graph, &(struct node_spec){.op = OP_DROPOUT_GRAD,
                                                  .inputs = inputs,
                                                  .inputs_count = 2,
                                                  .number = node_at(graph, id)->number}));
}

static void dropout_run(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    const struct view *bits = call_extra(call, 1);
    const size_t cols = call->node->shape.cols;
    struct kern_dropout dropout = {.seed = call->seed,
                                   .step = call->feed->step,
                                   .what = RAND_DROPOUT + (call->node->attrs[0] << 8),
                                   .rate = call->node->number};
    for (uint32_t row = call->first; row < call->last; row++) {
        dropout.index = (call->feed->row_base + row) * cols;
        call->kern->dropout_forward(&dropout, cols, view_row(x, row),
                                    call->out + (row - call->first) * call->stride,
                                    bits == NULL ? NULL : (uint32_t *)(void *)view_row(bits, row));
    }
}

static const char *dropout_grad_infer(const struct graph *graph, struct node *node,
                                      const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    const struct graph_shape bits = node_at(graph, inputs[1])->shape;
    if (node->shape.rows != GRAPH_BATCH) return "dropout works on rows of the batch";
    if (!shape_same_rows(node->shape, bits)) return "the rows must be the same";
    if (bits.cols != (node->shape.cols + 31) / 32) return "a bit for each element is needed";
    if (!(node->number >= 0.0f && node->number < 1.0f)) return "the rate must be in [0, 1)";
    return node->shape.cols == 0 ? "ids are not a matrix" : NULL;
}

static void dropout_grad_run(const struct op_call *call)
{
    const struct view *dy = call_input(call, 0);
    const struct view *bits = call_input(call, 1);
    for (uint32_t row = call->first; row < call->last; row++) {
        call->kern->dropout_backward(call->node->number, call->node->shape.cols,
                                     (const uint32_t *)(const void *)view_row(bits, row),
                                     view_row(dy, row),
                                     call->out + (row - call->first) * call->stride);
    }
}

/* ---- sum over columns, and its gradient ---- */

static const char *sum_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    if (node->shape.cols == 0) return "ids are not a matrix";
    node->shape.cols = 1;
    return NULL;
}

static void sum_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id x = node_input(graph, id, 0);
    const uint32_t cols = node_at(graph, x)->shape.cols;
    grads_add(
        grads, x,
        node_add(graph, &(struct node_spec){
                            .op = OP_SPREAD, .inputs = &dy, .inputs_count = 1, .attrs = {cols}}));
}

static void sum_run(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    const uint32_t cols = call_node(call, 0)->shape.cols;
    for (uint32_t row = call->first; row < call->last; row++) {
        const float *src = view_row(x, row);
        float sum = 0.0f;
        for (uint32_t c = 0; c < cols; c++) sum += src[c];
        call->out[(row - call->first) * call->stride] = sum;
    }
}

/* attrs: columns. */
static const char *spread_infer(const struct graph *graph, struct node *node,
                                const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    if (node->shape.cols != 1) return "one column is spread over many";
    node->shape.cols = node->attrs[0];
    return NULL;
}

static void spread_run(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    for (uint32_t row = call->first; row < call->last; row++) {
        const float value = *view_row(x, row);
        float *out = call->out + (row - call->first) * call->stride;
        for (uint32_t c = 0; c < call->node->shape.cols; c++) out[c] = value;
    }
}

/* ---- softmax by row ---- */

static void softmax_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    grads_add(grads, node_input(graph, id, 0), node_add2(graph, OP_SOFTMAX_GRAD, dy, id));
}

/* The loss kernel's by-product, with a label that is always possible. */
static void softmax_run(const struct op_call *call)
{
    static const float label = 0.0f;
    const struct view *x = call_input(call, 0);
    for (uint32_t row = call->first; row < call->last; row++) {
        call->kern->loss_softmax(1, call->node->shape.cols, view_row(x, row), x->stride, &label,
                                 NULL, 1.0f, call->out + (row - call->first) * call->stride,
                                 call->stride, NULL, 0);
    }
}

/* inputs: dy, y. dx = y (dy - sum(dy y)). */
static const char *softmax_grad_infer(const struct graph *graph, struct node *node,
                                      const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    if (node->shape.cols == 0) return "ids are not a matrix";
    return shape_equal(node->shape, node_at(graph, inputs[1])->shape) ? NULL
                                                                      : "shapes must be the same";
}

static void softmax_grad_run(const struct op_call *call)
{
    const uint32_t cols = call->node->shape.cols;
    for (uint32_t row = call->first; row < call->last; row++) {
        const float *dy = view_row(call_input(call, 0), row);
        const float *y = view_row(call_input(call, 1), row);
        float *out = call->out + (row - call->first) * call->stride;
        float dot = 0.0f;
        for (uint32_t c = 0; c < cols; c++) dot += dy[c] * y[c];
        for (uint32_t c = 0; c < cols; c++) out[c] = y[c] * (dy[c] - dot);
    }
}

const struct op op_add = {.name = "add",
                          .inputs_min = 2,
                          .inputs_max = 2,
                          .infer = binary_infer,
                          .grad = add_grad,
                          .run = binary_run,
                          .in_place = true};
const struct op op_sub = {.name = "sub",
                          .inputs_min = 2,
                          .inputs_max = 2,
                          .infer = binary_infer,
                          .grad = sub_grad,
                          .run = binary_run,
                          .in_place = true};
const struct op op_mul = {.name = "mul",
                          .inputs_min = 2,
                          .inputs_max = 2,
                          .infer = binary_infer,
                          .grad = mul_grad,
                          .run = binary_run,
                          .in_place = true};
const struct op op_add_n = {.name = "add_n",
                            .inputs_min = 1,
                            .inputs_max = GRAPH_INPUTS_MAX,
                            .infer = add_n_infer,
                            .grad = add_n_grad,
                            .run = add_n_run,
                            .in_place = true};
const struct op op_scale = {.name = "scale",
                            .inputs_min = 1,
                            .inputs_max = 1,
                            .infer = same_infer,
                            .grad = scale_grad,
                            .run = scale_run,
                            .in_place = true};
const struct op op_concat = {.name = "concat",
                             .inputs_min = 1,
                             .inputs_max = GRAPH_INPUTS_MAX,
                             .infer = concat_infer,
                             .grad = concat_grad,
                             .run = concat_run};
const struct op op_slice = {
    .name = "slice", .inputs_min = 1, .inputs_max = 1, .infer = slice_infer, .grad = slice_grad};
const struct op op_pad = {
    .name = "pad", .inputs_min = 1, .inputs_max = 1, .infer = pad_infer, .run = pad_run};
const struct op op_dropout = {.name = "dropout",
                              .inputs_min = 1,
                              .inputs_max = 1,
                              .infer = dropout_infer,
                              .extra = dropout_extra,
                              .grad = dropout_grad,
                              .run = dropout_run,
                              .in_place = true};
const struct op op_dropout_grad = {.name = "dropout_grad",
                                   .inputs_min = 2,
                                   .inputs_max = 2,
                                   .infer = dropout_grad_infer,
                                   .run = dropout_grad_run,
                                   .in_place = true};
const struct op op_sum = {.name = "sum",
                          .inputs_min = 1,
                          .inputs_max = 1,
                          .infer = sum_infer,
                          .grad = sum_grad,
                          .run = sum_run};
const struct op op_spread = {
    .name = "spread", .inputs_min = 1, .inputs_max = 1, .infer = spread_infer, .run = spread_run};
const struct op op_softmax = {.name = "softmax",
                              .inputs_min = 1,
                              .inputs_max = 1,
                              .infer = same_infer,
                              .grad = softmax_grad,
                              .run = softmax_run};
const struct op op_softmax_grad = {.name = "softmax_grad",
                                   .inputs_min = 2,
                                   .inputs_max = 2,
                                   .infer = softmax_grad_infer,
                                   .run = softmax_grad_run};
