/* DIN's attention over ragged histories: the fused form for two hidden layers, and the two ends of
 * the general form, between which any dense layers may stand. */
#include <math.h>
#include <string.h>

#include "base/bounds.h"
#include "graph/graph_node.h"

/* What table, ids and target have in common in all forms. */
static const char *history_fault(const struct graph *graph, graph_id table, graph_id ids)
{
    const struct node *rows = node_at(graph, table);
    const struct node *list = node_at(graph, ids);
    if (rows->shape.rows != GRAPH_UNIQUE) return "the first must be a table";
    if (list->op != OP_IDS) return "the second must be ids";
    if (list->attrs[1] != rows->shape.of) return "the ids are of another key list";
    if (list->attrs[2] != 0) return "a history has any number of ids";
    return NULL;
}

static const char *target_fault(const struct graph *graph, graph_id table, graph_id target)
{
    const uint32_t dim = node_at(graph, table)->shape.cols;
    return shape_is(node_at(graph, target)->shape, GRAPH_BATCH, 0, dim)
               ? NULL
               : "the target must be batch x the table's columns";
}

/* ---- fused: inputs: table, ids, target, w0, b0, w1, b1, w2, b2. Output 1: kept for backward ---- */

static struct kern_attn attention_sizes(const struct graph *graph, const graph_id *inputs)
{
    return (struct kern_attn){.e = node_at(graph, inputs[0])->shape.cols,
                              .a0 = node_at(graph, inputs[3])->shape.cols,
                              .a1 = node_at(graph, inputs[5])->shape.cols};
}

static const char *attention_fault(const struct graph *graph, const graph_id *inputs)
{
    const char *fault = history_fault(graph, inputs[0], inputs[1]);
    if (fault == NULL) fault = target_fault(graph, inputs[0], inputs[2]);
    if (fault != NULL) return fault;
    const struct kern_attn attn = attention_sizes(graph, inputs);
    const struct graph_shape want[] = {
        {GRAPH_FIXED, 4 * attn.e, attn.a0}, {GRAPH_FIXED, 1, attn.a0},
        {GRAPH_FIXED, attn.a0, attn.a1},    {GRAPH_FIXED, 1, attn.a1},
        {GRAPH_FIXED, attn.a1, 1},          {GRAPH_FIXED, 1, 1},
    };
    for (uint32_t i = 0; i < 6; i++) {
        if (!shape_equal(node_at(graph, inputs[3 + i])->shape, want[i])) {
            return "layers must be 4 dim x a, 1 x a, a x b, 1 x b, b x 1, 1 x 1";
        }
    }
    if (kern_attn_grad_count(&attn) > GRAPH_COLS_MAX) return "the layers are too large";
    return NULL;
}

static const char *attention_infer(const struct graph *graph, struct node *node,
                                   const graph_id *inputs)
{
    const char *fault = attention_fault(graph, inputs);
    if (fault != NULL) return fault;
    node->shape = node_at(graph, inputs[2])->shape;
    return NULL;
}

static const char *attention_extra(const struct graph *graph, const struct node *node,
                                   uint32_t number, struct graph_shape *shape_out)
{
    if (number != 1) return "no such output";
    const graph_id *inputs = &graph->inputs[node->inputs_first];
    const struct kern_attn attn = attention_sizes(graph, inputs);
    *shape_out = ids_shape(node_at(graph, inputs[1]), (uint32_t)kern_attn_save_width(&attn));
    return NULL;
}

/* The gradient of each layer is a range of columns of what attention_grad sums per chunk. */
static void attention_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    graph_id inputs[11];
    for (uint32_t i = 0; i < 9; i++) inputs[i] = node_input(graph, id, i);
    inputs[9] = node_extra(graph, id, 1);
    inputs[10] = dy;
    const graph_id dhistory = node_add(
        graph, &(struct node_spec){.op = OP_ATTENTION_GRAD, .inputs = inputs, .inputs_count = 11});
    if (grads_wanted(grads, inputs[0])) {
        grads_add(grads, inputs[0], node_add2(graph, OP_SPARSE, dhistory, inputs[1]));
    }
    if (grads_wanted(grads, inputs[2])) {
        grads_add(grads, inputs[2], node_extra(graph, dhistory, 1));
    }
    const graph_id dlayers = node_extra(graph, dhistory, 2);
    uint32_t col = 0;
    for (uint32_t i = 3; i < 9; i++) {
        const struct graph_shape shape = node_at(graph, inputs[i])->shape;
        if (grads_wanted(grads, inputs[i])) {
            grads_add(grads, inputs[i],
                      node_add(graph, &(struct node_spec){.op = OP_SUM_CHUNKS,
                                                          .inputs = &dlayers,
                                                          .inputs_count = 1,
                                                          .attrs = {col, shape.of, shape.cols}}));
        }
        col += shape.of * shape.cols;
    }
}

static struct kern_attn attention_layers(const struct op_call *call)
{
    struct kern_attn attn = attention_sizes(call->graph, call->inputs);
    attn.w0 = call_input(call, 3)->data;
    attn.b0 = call_input(call, 4)->data;
    attn.w1 = call_input(call, 5)->data;
    attn.b1 = call_input(call, 6)->data;
    attn.w2 = call_input(call, 7)->data;
    attn.b2 = call_input(call, 8)->data;
    return attn;
}

static struct kern_attn_in attention_in(const struct op_call *call)
{
    const struct view *table = call_input(call, 0);
    const struct view *target = call_input(call, 2);
    return (struct kern_attn_in){.rows = table->data,
                                 .ldrows = table->stride,
                                 .history = call_ids(call, 1),
                                 .target = target->data,
                                 .ldtarget = target->stride,
                                 .row_begin = call->row_first,
                                 .row_end = call->row_last};
}

static void attention_run(const struct op_call *call)
{
    const struct kern_attn attn = attention_layers(call);
    const struct kern_attn_in in = attention_in(call);
    const struct view *save = call_extra(call, 1);
    call->kern->attn_forward(&attn, &in, call->out - call->row_first * call->stride, call->stride,
                             save == NULL ? NULL : save->data, call->scratch);
}

static size_t attention_scratch(const struct graph *graph, const struct node *node)
{
    const struct kern_attn attn = attention_sizes(graph, &graph->inputs[node->inputs_first]);
    return kern_attn_scratch_count(&attn);
}

static double attention_flops(const struct graph *graph, const struct node *node,
                              const struct flops_at *at)
{
    const struct kern_attn attn = attention_sizes(graph, &graph->inputs[node->inputs_first]);
    const double e = attn.e;
    const double a0 = attn.a0;
    const double a1 = attn.a1;
    /* Per occurrence h (W1 + W2 + diag(t) W4), the other layers, the sum; per row the matrix. */
    return 2.0 * (e * a0 + a0 * a1 + a1 + e) * at->occurrences + 4.0 * e * a0 * at->rows;
}

/* inputs: those of attention, what it kept, dy. Output: gradient of each occurrence; 1: of the
 * target; 2: of the layers, a row per chunk. */
static const char *attention_grad_infer(const struct graph *graph, struct node *node,
                                        const graph_id *inputs)
{
    const char *fault = attention_fault(graph, inputs);
    if (fault == NULL) fault = target_fault(graph, inputs[0], inputs[10]);
    if (fault != NULL) return fault;
    const struct kern_attn attn = attention_sizes(graph, inputs);
    const struct node *ids = node_at(graph, inputs[1]);
    if (!shape_equal(node_at(graph, inputs[9])->shape,
                     ids_shape(ids, (uint32_t)kern_attn_save_width(&attn)))) {
        return "what forward kept has another shape";
    }
    node->shape = ids_shape(ids, attn.e);
    return NULL;
}

static const char *attention_grad_extra(const struct graph *graph, const struct node *node,
                                        uint32_t number, struct graph_shape *shape_out)
{
    const graph_id *inputs = &graph->inputs[node->inputs_first];
    const struct kern_attn attn = attention_sizes(graph, inputs);
    if (number == 1) {
        *shape_out = node_at(graph, inputs[2])->shape;
    } else {
        *shape_out = (struct graph_shape){.rows = GRAPH_CHUNKS,
                                          .cols = (uint32_t)kern_attn_grad_count(&attn)};
    }
    return NULL;
}

/* What nobody asked for is written to scratch. */
static void attention_grad_run(const struct op_call *call)
{
    const struct kern_attn attn = attention_layers(call);
    const struct kern_attn_in in = attention_in(call);
    const struct view *dtarget = call_extra(call, 1);
    const struct view *dlayers = call_extra(call, 2);
    const struct view *dout = call_input(call, 10);
    float *unwanted = call->scratch + kern_attn_scratch_count(&attn);
    const struct kern_attn_grad grad = {
        .dout = dout->data,
        .lddout = dout->stride,
        .save = call_input(call, 9)->data,
        .dhistory = call->out - call->first * call->stride,
        .lddhistory = call->stride,
        .dtarget = dtarget == NULL ? unwanted - call->row_first * attn.e : dtarget->data,
        .lddtarget = dtarget == NULL ? attn.e : dtarget->stride,
        .dweights =
            dlayers == NULL ? unwanted + EXEC_CHUNK_ROWS * attn.e : view_row(dlayers, call->chunk),
    };
    call->kern->attn_backward(&attn, &in, &grad, call->scratch);
}

static size_t attention_grad_scratch(const struct graph *graph, const struct node *node)
{
    const struct kern_attn attn = attention_sizes(graph, &graph->inputs[node->inputs_first]);
    return kern_attn_scratch_count(&attn) + EXEC_CHUNK_ROWS * attn.e + kern_attn_grad_count(&attn);
}

static double attention_grad_flops(const struct graph *graph, const struct node *node,
                                   const struct flops_at *at)
{
    return 2.0 * attention_flops(graph, node, at);
}

/* ---- general: the input of the layers, concat(h, h - t, t, h * t): a row per occurrence ---- */

static uint32_t occurrences_begin(const struct op_call *call, uint32_t index, uint32_t row)
{
    return call_ids(call, index)->offsets[row];
}

static const char *attention_input_infer(const struct graph *graph, struct node *node,
                                         const graph_id *inputs)
{
    const char *fault = history_fault(graph, inputs[0], inputs[1]);
    if (fault == NULL) fault = target_fault(graph, inputs[0], inputs[2]);
    if (fault != NULL) return fault;
    const uint32_t dim = node_at(graph, inputs[0])->shape.cols;
    if (dim > GRAPH_COLS_MAX / 4) return "too many columns";
    node->shape = ids_shape(node_at(graph, inputs[1]), 4 * dim);
    return NULL;
}

static void attention_input_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id inputs[] = {node_input(graph, id, 0), node_input(graph, id, 1),
                               node_input(graph, id, 2), dy};
    const graph_id dhistory = node_add(
        graph,
        &(struct node_spec){.op = OP_ATTENTION_INPUT_GRAD, .inputs = inputs, .inputs_count = 4});
    if (grads_wanted(grads, inputs[0])) {
        grads_add(grads, inputs[0], node_add2(graph, OP_SPARSE, dhistory, inputs[1]));
    }
    if (grads_wanted(grads, inputs[2])) {
        grads_add(grads, inputs[2], node_extra(graph, dhistory, 1));
    }
}

static void attention_input_run(const struct op_call *call)
{
    const struct view *table = call_input(call, 0);
    const uint32_t *slots = call_ids(call, 1)->slots;
    const uint32_t dim = call_node(call, 0)->shape.cols;
    float *out = call->out;
    for (uint32_t row = call->row_first; row < call->row_last; row++) {
        const float *t = view_row(call_input(call, 2), row);
        const uint32_t end = occurrences_begin(call, 1, row + 1);
        for (uint32_t i = occurrences_begin(call, 1, row); i < end; i++, out += call->stride) {
            const float *h = view_row(table, slots[i]);
            for (uint32_t c = 0; c < dim; c++) {
                out[c] = h[c];
                out[dim + c] = h[c] - t[c];
                out[2 * dim + c] = t[c];
                out[3 * dim + c] = h[c] * t[c];
            }
        }
    }
}

/* inputs: table, ids, target, dy. Output: gradient of each occurrence; 1: of the target. */
static const char *attention_input_grad_infer(const struct graph *graph, struct node *node,
                                              const graph_id *inputs)
{
    const char *fault = attention_input_infer(graph, node, inputs);
    if (fault != NULL) return fault;
    if (!shape_equal(node_at(graph, inputs[3])->shape, node->shape)) {
        return "the gradient has another shape";
    }
    node->shape.cols /= 4;
    return NULL;
}

static const char *attention_input_grad_extra(const struct graph *graph, const struct node *node,
                                              uint32_t number, struct graph_shape *shape_out)
{
    if (number != 1) return "no such output";
    *shape_out = node_at(graph, graph->inputs[node->inputs_first + 2])->shape;
    return NULL;
}

static void attention_input_grad_run(const struct op_call *call)
{
    const struct view *table = call_input(call, 0);
    const struct view *dy = call_input(call, 3);
    const struct view *dtarget = call_extra(call, 1);
    const uint32_t *slots = call_ids(call, 1)->slots;
    const uint32_t dim = call->node->shape.cols;
    float *out = call->out;
    for (uint32_t row = call->row_first; row < call->row_last; row++) {
        const float *t = view_row(call_input(call, 2), row);
        float *dt = dtarget == NULL ? call->scratch : view_row(dtarget, row);
        memset(dt, 0, dim * sizeof *dt);
        const uint32_t end = occurrences_begin(call, 1, row + 1);
        for (uint32_t i = occurrences_begin(call, 1, row); i < end; i++, out += call->stride) {
            const float *h = view_row(table, slots[i]);
            const float *d = view_row(dy, i);
            for (uint32_t c = 0; c < dim; c++) {
                out[c] = d[c] + d[dim + c] + d[3 * dim + c] * t[c];
                dt[c] += d[2 * dim + c] - d[dim + c] + d[3 * dim + c] * h[c];
            }
        }
    }
}

static size_t row_scratch(const struct graph *graph, const struct node *node)
{
    (void)graph;
    return node->shape.cols;
}

/* ---- general: softmax of the scores within a row, weighted sum. Output 1: the softmax ---- */

static const char *attention_pool_infer(const struct graph *graph, struct node *node,
                                        const graph_id *inputs)
{
    const char *fault = history_fault(graph, inputs[0], inputs[1]);
    if (fault != NULL) return fault;
    if (!shape_equal(node_at(graph, inputs[2])->shape, ids_shape(node_at(graph, inputs[1]), 1))) {
        return "a score for each occurrence is needed";
    }
    node->shape =
        (struct graph_shape){.rows = GRAPH_BATCH, .cols = node_at(graph, inputs[0])->shape.cols};
    return NULL;
}

static const char *attention_pool_extra(const struct graph *graph, const struct node *node,
                                        uint32_t number, struct graph_shape *shape_out)
{
    if (number != 1) return "no such output";
    *shape_out = node_at(graph, graph->inputs[node->inputs_first + 2])->shape;
    return NULL;
}

static void attention_pool_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id table = node_input(graph, id, 0);
    const graph_id ids = node_input(graph, id, 1);
    const graph_id scores = node_input(graph, id, 2);
    const graph_id inputs[] = {table, ids, node_extra(graph, id, 1), dy};
    const graph_id dhistory = node_add(
        graph,
        &(struct node_spec){.op = OP_ATTENTION_POOL_GRAD, .inputs = inputs, .inputs_count = 4});
    if (grads_wanted(grads, table)) {
        grads_add(grads, table, node_add2(graph, OP_SPARSE, dhistory, ids));
    }
    if (grads_wanted(grads, scores)) grads_add(grads, scores, node_extra(graph, dhistory, 1));
}

/* The largest score of a row, and the sum of exp(score - largest). */
static float row_exp_sum(const struct view *scores, uint32_t begin, uint32_t end, float *top_out)
{
    float top = -INFINITY;
    for (uint32_t i = begin; i < end; i++) top = fmaxf(top, *view_row(scores, i));
    float sum = 0.0f;
    for (uint32_t i = begin; i < end; i++) sum += expf(*view_row(scores, i) - top);
    *top_out = top;
    return sum;
}

static void attention_pool_run(const struct op_call *call)
{
    const struct view *table = call_input(call, 0);
    const struct view *scores = call_input(call, 2);
    const struct view *kept = call_extra(call, 1);
    const uint32_t *slots = call_ids(call, 1)->slots;
    const uint32_t dim = call->node->shape.cols;
    for (uint32_t row = call->row_first; row < call->row_last; row++) {
        float *out = call->out + (row - call->row_first) * call->stride;
        const uint32_t begin = occurrences_begin(call, 1, row);
        const uint32_t end = occurrences_begin(call, 1, row + 1);
        float top;
        const float sum = row_exp_sum(scores, begin, end, &top);
        memset(out, 0, dim * sizeof *out);
        for (uint32_t i = begin; i < end; i++) {
            const float p = expf(*view_row(scores, i) - top) / sum;
            if (kept != NULL) *view_row(kept, i) = p;
            call->kern->axpy(dim, p, view_row(table, slots[i]), out);
        }
    }
}

/* inputs: table, ids, softmax, dy. Output: gradient of each occurrence; 1: of the scores.
 * dh = p dy;  dp = h . dy;  ds = p (dp - sum of p dp over the row). */
static const char *attention_pool_grad_infer(const struct graph *graph, struct node *node,
                                             const graph_id *inputs)
{
    const char *fault = attention_pool_infer(graph, node, inputs);
    if (fault != NULL) return fault;
    if (!shape_equal(node_at(graph, inputs[3])->shape, node->shape)) {
        return "the gradient has another shape";
    }
    node->shape = ids_shape(node_at(graph, inputs[1]), node->shape.cols);
    return NULL;
}

static void attention_pool_grad_run(const struct op_call *call)
{
    const struct view *table = call_input(call, 0);
    const struct view *p = call_input(call, 2);
    const struct view *dscores = call_extra(call, 1);
    const uint32_t *slots = call_ids(call, 1)->slots;
    const uint32_t dim = call->node->shape.cols;
    float *out = call->out;
    for (uint32_t row = call->row_first; row < call->row_last; row++) {
        const float *dy = view_row(call_input(call, 3), row);
        const uint32_t begin = occurrences_begin(call, 1, row);
        const uint32_t end = occurrences_begin(call, 1, row + 1);
        float mean = 0.0f;
        for (uint32_t i = begin; i < end; i++, out += call->stride) {
            const float *h = view_row(table, slots[i]);
            const float weight = *view_row(p, i);
            float dot = 0.0f;
            for (uint32_t c = 0; c < dim; c++) {
                dot += h[c] * dy[c];
                out[c] = weight * dy[c];
            }
            if (dscores != NULL) *view_row(dscores, i) = dot;
            mean += weight * dot;
        }
        for (uint32_t i = begin; dscores != NULL && i < end; i++) {
            float *d = view_row(dscores, i);
            *d = *view_row(p, i) * (*d - mean);
        }
    }
}

const struct op op_attention = {.name = "attention",
                                .inputs_min = 9,
                                .inputs_max = 9,
                                .infer = attention_infer,
                                .extra = attention_extra,
                                .extras_alone = true,
                                .grad = attention_grad,
                                .run = attention_run,
                                .scratch = attention_scratch,
                                .flops = attention_flops};
const struct op op_attention_grad = {.name = "attention_grad",
                                     .inputs_min = 11,
                                     .inputs_max = 11,
                                     .infer = attention_grad_infer,
                                     .extra = attention_grad_extra,
                                     .run = attention_grad_run,
                                     .scratch = attention_grad_scratch,
                                     .flops = attention_grad_flops};
const struct op op_attention_input = {.name = "attention_input",
                                      .inputs_min = 3,
                                      .inputs_max = 3,
                                      .infer = attention_input_infer,
                                      .grad = attention_input_grad,
                                      .run = attention_input_run};
const struct op op_attention_input_grad = {.name = "attention_input_grad",
                                           .inputs_min = 4,
                                           .inputs_max = 4,
                                           .infer = attention_input_grad_infer,
                                           .extra = attention_input_grad_extra,
                                           .run = attention_input_grad_run,
                                           .scratch = row_scratch};
const struct op op_attention_pool = {.name = "attention_pool",
                                     .inputs_min = 3,
                                     .inputs_max = 3,
                                     .infer = attention_pool_infer,
                                     .extra = attention_pool_extra,
                                     .grad = attention_pool_grad,
                                     .run = attention_pool_run};
const struct op op_attention_pool_grad = {.name = "attention_pool_grad",
                                          .inputs_min = 4,
                                          .inputs_max = 4,
                                          .infer = attention_pool_grad_infer,
                                          .extra = attention_pool_extra,
                                          .run = attention_pool_grad_run};
