/* Losses and sums over chunks.
 *
 * A loss is computed in the row stage, together with its derivative, which costs next to nothing
 * there: each chunk of rows leaves one double, and loss_sum adds them in order. So backward starts
 * before the loss itself is known. */
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "graph/graph_node.h"

/* inputs: logits, label, weight or nothing. attrs: kind. Output: a double per chunk, as two floats;
 * 1: derivative by the logits, divided by the sum of weights. */
static const char *loss_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    const struct graph_shape x = node_at(graph, inputs[0])->shape;
    if (node->attrs[0] >= LOSS_KIND_COUNT) return "unknown loss";
    if (x.rows != GRAPH_BATCH) return "a loss is taken over rows of the batch";
    if (x.cols == 0) return "ids are not a matrix";
    if (node->attrs[0] == LOSS_SOFTMAX ? x.cols < 2 : x.cols != 1) {
        return node->attrs[0] == LOSS_SOFTMAX ? "softmax needs two columns or more"
                                              : "one column is needed";
    }
    if (node_at(graph, inputs[1])->op != OP_LABEL) return "the second must be the label";
    if (node->inputs_count == 3 && node_at(graph, inputs[2])->op != OP_WEIGHT) {
        return "the third must be the weight";
    }
    node->shape = (struct graph_shape){.rows = GRAPH_CHUNKS, .cols = 2};
    return NULL;
}

static const char *loss_extra(const struct graph *graph, const struct node *node, uint32_t number,
                              struct graph_shape *shape_out)
{
    if (number != 1) return "no such output";
    *shape_out = node_at(graph, graph->inputs[node->inputs_first])->shape;
    return NULL;
}

/* dy is what loss_sum hands on: the derivative by the sum, a number. */
static void loss_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    graph_id d = node_extra(graph, id, 1);
    const struct node *factor = node_at(graph, dy);
    if (factor->op == OP_CONSTANT) {
        if (factor->number != 1.0f) d = graph_scale(graph, d, factor->number);
    } else {
        d = graph_mul(graph, d, dy);
    }
    grads_add(grads, node_input(graph, id, 0), d);
}

/* The kernels want single columns without gaps; elsewhere than in a concat they have none. */
struct column {
    float values[EXEC_CHUNK_ROWS];
};

static const float *column_of(const struct view *view, uint32_t first, uint32_t rows,
                              struct column *column)
{
    if (view->stride == 1) return view->data + first;
    ASSERT(rows <= EXEC_CHUNK_ROWS);
    for (uint32_t row = 0; row < rows; row++) column->values[row] = *view_row(view, first + row);
    return column->values;
}

static void loss_run(const struct op_call *call)
{
    const uint32_t first = call->row_first;
    const uint32_t rows = call->row_last - first;
    const struct view *x = call_input(call, 0);
    const struct view *dx = call_extra(call, 1);
    const float *label = call_input(call, 1)->data + first;
    const float *weight = call->node->inputs_count == 3 ? call->feed->batch->weight : NULL;
    if (weight != NULL) weight += first;
    const float scale = call->weight_total > 0.0 ? (float)(1.0 / call->weight_total) : 0.0f;
    const uint32_t kind = call->node->attrs[0];
    struct column dense;
    struct column d_dense;
    double sum;
    if (kind == LOSS_SOFTMAX) {
        sum = call->kern->loss_softmax(
            rows, call_node(call, 0)->shape.cols, view_row(x, first), x->stride, label, weight,
            scale, NULL, 0, dx == NULL ? NULL : view_row(dx, first), dx == NULL ? 0 : dx->stride);
    } else {
        const float *logit = column_of(x, first, rows, &dense);
        const bool direct = dx != NULL && dx->stride == 1;
        float *d = dx == NULL ? NULL : direct ? dx->data + first : d_dense.values;
        sum = kind == LOSS_SIGMOID
                  ? call->kern->loss_sigmoid(rows, logit, label, weight, scale, NULL, d)
                  : call->kern->loss_squared(rows, logit, label, weight, scale, d);
        for (uint32_t row = 0; dx != NULL && !direct && row < rows; row++) {
            *view_row(dx, first + row) = d[row];
        }
    }
    memcpy(call->out, &sum, sizeof sum);
}

/* inputs: loss. Output: the mean. */
static const char *loss_sum_infer(const struct graph *graph, struct node *node,
                                  const graph_id *inputs)
{
    if (node_at(graph, inputs[0])->op != OP_LOSS) return "only losses are summed so";
    node->shape = (struct graph_shape){.rows = GRAPH_FIXED, .of = 1, .cols = 1};
    return NULL;
}

static void loss_sum_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    grads_add(grads, node_input(graph, id, 0), dy);
}

static void loss_sum_run(const struct op_call *call)
{
    const struct view *chunks = call_input(call, 0);
    double sum = 0.0;
    for (uint32_t chunk = 0; chunk < chunks->rows; chunk++) {
        double part;
        memcpy(&part, view_row(chunks, chunk), sizeof part);
        sum += part;
    }
    call->out[0] = call->weight_total > 0.0 ? (float)(sum / call->weight_total) : 0.0f;
}

/* inputs: a parameter. number: factor. */
static const char *l2_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    if (node_at(graph, inputs[0])->shape.rows != GRAPH_FIXED) {
        return "the size must be fixed: of a table's rows, a batch has only some";
    }
    node->shape = (struct graph_shape){.rows = GRAPH_FIXED, .of = 1, .cols = 1};
    return NULL;
}

static void l2_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id x = node_input(graph, id, 0);
    const struct node *up = node_at(graph, dy);
    const float factor = node_at(graph, id)->number;
    const graph_id dx = up->op == OP_CONSTANT ? graph_scale(graph, x, factor * up->number)
                                              : graph_mul(graph, graph_scale(graph, x, factor), dy);
    grads_add(grads, x, dx);
}

static void l2_run(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    const uint32_t cols = call_node(call, 0)->shape.cols;
    double sum = 0.0;
    for (uint32_t row = 0; row < x->rows; row++) {
        sum += call->kern->sum_squares(cols, view_row(x, row));
    }
    call->out[0] = (float)(0.5 * call->node->number * sum);
}

/* inputs: partial sums, a row per chunk. attrs: first column, rows and columns of the output, whose
 * elements lie in those columns row by row. */
static const char *sum_chunks_infer(const struct graph *graph, struct node *node,
                                    const graph_id *inputs)
{
    const struct graph_shape x = node_at(graph, inputs[0])->shape;
    if (x.rows != GRAPH_CHUNKS) return "a row per chunk is needed";
    if ((uint64_t)node->attrs[0] + (uint64_t)node->attrs[1] * node->attrs[2] > x.cols) {
        return "the columns are outside";
    }
    node->shape =
        (struct graph_shape){.rows = GRAPH_FIXED, .of = node->attrs[1], .cols = node->attrs[2]};
    return NULL;
}

static void sum_chunks_run(const struct op_call *call)
{
    const struct view *x = call_input(call, 0);
    const size_t cols = call->node->shape.cols;
    const float *src = x->data + call->node->attrs[0] + call->first * cols;
    if (call->stride == cols) {
        call->kern->sum_parts(x->rows, (call->last - call->first) * cols, src, x->stride,
                              call->out);
        return;
    }
    for (uint32_t row = 0; row < call->last - call->first; row++) {
        call->kern->sum_parts(x->rows, cols, src + row * cols, x->stride,
                              call->out + row * call->stride);
    }
}

const struct op op_loss = {.name = "loss",
                           .inputs_min = 2,
                           .inputs_max = 3,
                           .infer = loss_infer,
                           .extra = loss_extra,
                           .grad = loss_grad,
                           .run = loss_run};
const struct op op_loss_sum = {.name = "loss_sum",
                               .inputs_min = 1,
                               .inputs_max = 1,
                               .infer = loss_sum_infer,
                               .grad = loss_sum_grad,
                               .run = loss_sum_run,
                               .whole = true};
const struct op op_l2 = {.name = "l2",
                         .inputs_min = 1,
                         .inputs_max = 1,
                         .infer = l2_infer,
                         .grad = l2_grad,
                         .run = l2_run,
                         .whole = true};
const struct op op_sum_chunks = {.name = "sum_chunks",
                                 .inputs_min = 1,
                                 .inputs_max = 1,
                                 .infer = sum_chunks_infer,
                                 .run = sum_chunks_run,
                                 .whole = true};
