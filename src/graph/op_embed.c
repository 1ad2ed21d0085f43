/* Lookups in embedding tables, and the way back: every occurrence has a gradient row somewhere, and
 * sparse_sum adds those of one key, in the order of occurrences, to the key's row.
 *
 *   gather, pool, attention  --dy-->  sparse (dy, ids): "the rows of dy are this feature's
 *   occurrences"  -->  sparse_sum over all features of the table: unique keys x dim */
#include <stdatomic.h>

#include "base/bounds.h"
#include "graph/graph_node.h"

/* Occurrences whose sum makes one part: 4096 rows of 16 floats are 256 KB. */
#define SPARSE_PART_OCCURRENCES 4096u

static const char *lookup_fault(const struct graph *graph, graph_id table, graph_id ids)
{
    const struct node *rows = node_at(graph, table);
    const struct node *list = node_at(graph, ids);
    if (rows->shape.rows != GRAPH_UNIQUE) return "the first must be a table";
    if (list->op != OP_IDS) return "the second must be ids";
    if (list->attrs[1] != rows->shape.of) return "the ids are of another key list";
    return NULL;
}

/* inputs: table, ids. */
static const char *gather_infer(const struct graph *graph, struct node *node,
                                const graph_id *inputs)
{
    const char *fault = lookup_fault(graph, inputs[0], inputs[1]);
    if (fault != NULL) return fault;
    const struct node *ids = node_at(graph, inputs[1]);
    if (ids->attrs[2] == 0) return "rows may have any number of ids: pool them";
    node->shape = ids_shape(ids, node_at(graph, inputs[0])->shape.cols);
    return NULL;
}

static void gather_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    grads_add(grads, node_input(graph, id, 0),
              node_add2(graph, OP_SPARSE, dy, node_input(graph, id, 1)));
}

static void gather_run(const struct op_call *call)
{
    const struct view *table = call_input(call, 0);
    call->kern->gather(call->last - call->first, call->node->shape.cols, table->data, table->stride,
                       call_ids(call, 1)->slots + call->first, call->out, call->stride);
}

/* inputs: table, ids. attrs: how to combine. */
static const enum kern_pool pools[GRAPH_COMBINE_COUNT] = {
    [GRAPH_SUM] = KERN_SUM,
    [GRAPH_MEAN] = KERN_MEAN,
    [GRAPH_SQRTN] = KERN_SQRTN,
};

static const char *pool_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    const char *fault = lookup_fault(graph, inputs[0], inputs[1]);
    if (fault != NULL) return fault;
    if (node->attrs[0] >= GRAPH_COMBINE_COUNT) return "unknown way to combine";
    if (node_at(graph, inputs[1])->attrs[2] != 0) return "rows have one id each: gather them";
    node->shape =
        (struct graph_shape){.rows = GRAPH_BATCH, .cols = node_at(graph, inputs[0])->shape.cols};
    return NULL;
}

static void pool_grad(struct graph *graph, graph_id id, graph_id dy, struct grads *grads)
{
    const graph_id ids = node_input(graph, id, 1);
    const graph_id inputs[] = {dy, ids};
    const graph_id each =
        node_add(graph, &(struct node_spec){.op = OP_POOL_GRAD,
                                            .inputs = inputs,
                                            .inputs_count = 2,
                                            .attrs = {node_at(graph, id)->attrs[0]}});
    grads_add(grads, node_input(graph, id, 0), node_add2(graph, OP_SPARSE, each, ids));
}

static void pool_run(const struct op_call *call)
{
    const struct view *table = call_input(call, 0);
    call->kern->pool_forward(pools[call->node->attrs[0]], call->node->shape.cols, call_ids(call, 1),
                             call->row_first, call->row_last, table->data, table->stride,
                             call->out - call->row_first * call->stride, call->stride);
}

/* inputs: dy (batch), ids. attrs: how they were combined. Output: a row per occurrence. */
static const char *pool_grad_infer(const struct graph *graph, struct node *node,
                                   const graph_id *inputs)
{
    const struct node *dy = node_at(graph, inputs[0]);
    const struct node *ids = node_at(graph, inputs[1]);
    if (ids->op != OP_IDS) return "the second must be ids";
    if (ids->attrs[2] != 0) return "rows have one id each";
    if (dy->shape.rows != GRAPH_BATCH) return "the first must have the batch's rows";
    if (node->attrs[0] >= GRAPH_COMBINE_COUNT) return "unknown way to combine";
    node->shape = ids_shape(ids, dy->shape.cols);
    return NULL;
}

static void pool_grad_run(const struct op_call *call)
{
    const struct view *dy = call_input(call, 0);
    call->kern->pool_backward(pools[call->node->attrs[0]], call->node->shape.cols,
                              call_ids(call, 1), call->row_first, call->row_last, dy->data,
                              dy->stride, call->out - call->first * call->stride, call->stride);
}

/* inputs: gradient of each occurrence, ids. A description, never computed. */
static const char *sparse_infer(const struct graph *graph, struct node *node,
                                const graph_id *inputs)
{
    const struct node *ids = node_at(graph, inputs[1]);
    if (ids->op != OP_IDS) return "the second must be ids";
    node->shape = node_at(graph, inputs[0])->shape;
    if (node->shape.cols == 0) return "ids are not a matrix";
    if (!shape_same_rows(node->shape, ids_shape(ids, 0))) return "a row per occurrence is needed";
    return NULL;
}

static const struct node *sparse_ids(const struct graph *graph, graph_id sparse)
{
    return node_at(graph, node_input(graph, sparse, 1));
}

/* inputs: sparse gradients of one key list, each feature once, ascending. */
static const char *sparse_sum_infer(const struct graph *graph, struct node *node,
                                    const graph_id *inputs)
{
    const struct node *first = node_at(graph, inputs[0]);
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        const struct node *sparse = node_at(graph, inputs[i]);
        if (sparse->op != OP_SPARSE) return "only sparse gradients can be summed by key";
        if (sparse->shape.cols != first->shape.cols) return "the columns must be the same";
        const struct node *ids = sparse_ids(graph, inputs[i]);
        if (ids->attrs[1] != sparse_ids(graph, inputs[0])->attrs[1]) {
            return "the ids are of another key list";
        }
        if (i > 0 && sparse_ids(graph, inputs[i - 1])->attrs[0] >= ids->attrs[0]) {
            return "the features must ascend";
        }
    }
    node->shape = (struct graph_shape){.rows = GRAPH_UNIQUE,
                                       .of = sparse_ids(graph, inputs[0])->attrs[1],
                                       .cols = first->shape.cols};
    return NULL;
}

static const struct batch_keys *sparse_keys(const struct op_call *call)
{
    return &call->feed->batch->tables[call->node->shape.of];
}

static uint32_t sparse_sum_parts(const struct op_call *call)
{
    const struct batch_keys *keys = sparse_keys(call);
    if (keys->keys_count == 0) return 0;
    return keys->occs_count / SPARSE_PART_OCCURRENCES + 1;
}

/* The first key whose occurrences begin at or after `occurrence`: every key is in just one part. */
static uint32_t key_at(const struct batch_keys *keys, uint64_t occurrence)
{
    uint32_t low = 0;
    uint32_t high = keys->keys_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (keys->occ_offsets[middle] < occurrence) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Sources ascend by their first occurrence whatever the order of features in the batch. */
static void sources_sort(struct kern_occ_source *sources, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const struct kern_occ_source source = sources[i];
        uint32_t at = i;
        for (; at > 0 && sources[at - 1].occ_base > source.occ_base; at--) {
            sources[at] = sources[at - 1];
        }
        sources[at] = source;
    }
}

static void sparse_sum_part(const struct op_call *call, uint32_t part)
{
    const struct batch_keys *keys = sparse_keys(call);
    const uint32_t parts = sparse_sum_parts(call);
    const uint32_t first = key_at(keys, (uint64_t)part * SPARSE_PART_OCCURRENCES);
    const uint32_t last = part + 1 == parts
                              ? keys->keys_count
                              : key_at(keys, (uint64_t)(part + 1) * SPARSE_PART_OCCURRENCES);
    struct kern_occ_source *sources = (struct kern_occ_source *)(void *)call->scratch;
    for (uint32_t i = 0; i < call->node->inputs_count; i++) {
        const graph_id sparse = call->inputs[i];
        const struct view *grad = &call->views[node_input(call->graph, sparse, 0)];
        const struct batch_ids *ids =
            &call->feed->batch->ids[sparse_ids(call->graph, sparse)->attrs[0]];
        sources[i] = (struct kern_occ_source){
            .grad = grad->data, .ld = grad->stride, .occ_base = ids->occ_base, .count = ids->count};
    }
    sources_sort(sources, call->node->inputs_count);
    if (first == last) return;
    const size_t cols = call->node->shape.cols;
    call->kern->rows_grad(cols, keys, first, last, sources, call->node->inputs_count, call->out,
                          call->stride);
    bool finite = true;
    for (uint32_t key = first; key < last; key++) {
        finite &= call->kern->is_finite(cols, call->out + key * call->stride);
    }
    if (!finite) atomic_store_explicit(call->not_finite, true, memory_order_relaxed);
}

static void sparse_sum_run(const struct op_call *call)
{
    const uint32_t parts = sparse_sum_parts(call);
    for (uint32_t part = 0; part < parts; part++) sparse_sum_part(call, part);
}

static size_t sparse_sum_scratch(const struct graph *graph, const struct node *node)
{
    (void)graph;
    return node->inputs_count * sizeof(struct kern_occ_source) / sizeof(float);
}

static double pool_flops(const struct graph *graph, const struct node *node,
                         const struct flops_at *at)
{
    (void)graph;
    return 2.0 * node->shape.cols * at->occurrences;
}

static double sparse_sum_flops(const struct graph *graph, const struct node *node,
                               const struct flops_at *at)
{
    double rows = 0.0;
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        rows += shape_rows_at(node_at(graph, graph->inputs[node->inputs_first + i])->shape, at);
    }
    return rows * node->shape.cols;
}

const struct op op_gather = {.name = "gather",
                             .inputs_min = 2,
                             .inputs_max = 2,
                             .infer = gather_infer,
                             .grad = gather_grad,
                             .run = gather_run};
const struct op op_pool = {.name = "pool",
                           .inputs_min = 2,
                           .inputs_max = 2,
                           .infer = pool_infer,
                           .grad = pool_grad,
                           .run = pool_run,
                           .flops = pool_flops};
const struct op op_pool_grad = {.name = "pool_grad",
                                .inputs_min = 2,
                                .inputs_max = 2,
                                .infer = pool_grad_infer,
                                .run = pool_grad_run};
const struct op op_sparse = {
    .name = "sparse", .inputs_min = 2, .inputs_max = 2, .infer = sparse_infer};
const struct op op_sparse_sum = {.name = "sparse_sum",
                                 .inputs_min = 1,
                                 .inputs_max = GRAPH_INPUTS_MAX,
                                 .infer = sparse_sum_infer,
                                 .run = sparse_sum_run,
                                 .whole = true,
                                 .parts = sparse_sum_parts,
                                 .part = sparse_sum_part,
                                 .scratch = sparse_sum_scratch,
                                 .flops = sparse_sum_flops};
