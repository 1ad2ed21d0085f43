/* Leaves: what comes from outside (parameters, tables, the batch, another part of a cut graph), and
 * nodes that only point at others' values. */
#include "base/bounds.h"
#include "graph/graph_node.h"

struct graph_shape ids_shape(const struct node *ids, uint32_t cols)
{
    if (ids->attrs[2] != 0) return (struct graph_shape){.rows = GRAPH_BATCH, .cols = cols};
    return (struct graph_shape){.rows = GRAPH_OCCURRENCES, .of = ids->attrs[0], .cols = cols};
}

/* attrs: number of the parameter. The shape is given. */
static const char *param_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    (void)inputs;
    if (node->attrs[0] != graph->params_count) return "parameters must be numbered in order";
    return node->shape.rows == GRAPH_FIXED ? NULL : "a parameter has a fixed number of rows";
}

/* attrs: number of the table. The shape is given. */
static const char *table_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    (void)inputs;
    if (node->attrs[0] != graph->tables_count) return "tables must be numbered in order";
    return node->shape.rows == GRAPH_UNIQUE ? NULL : "a table's rows are unique keys";
}

/* attrs: feature, key list, single. */
static const char *ids_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    (void)graph, (void)inputs;
    if (node->attrs[0] >= GRAPH_FEATURES_MAX) return "too many categorical features";
    if (node->attrs[1] >= GRAPH_FEATURES_MAX) return "too many key lists";
    if (node->attrs[2] > 1) return "single is yes or no";
    node->shape = ids_shape(node, 0);
    return NULL;
}

/* attrs: feature, width. */
static const char *numeric_infer(const struct graph *graph, struct node *node,
                                 const graph_id *inputs)
{
    (void)graph, (void)inputs;
    if (node->attrs[0] >= GRAPH_FEATURES_MAX) return "too many numeric features";
    node->shape = (struct graph_shape){.rows = GRAPH_BATCH, .cols = node->attrs[1]};
    return NULL;
}

static const char *column_infer(const struct graph *graph, struct node *node,
                                const graph_id *inputs)
{
    (void)graph, (void)inputs;
    node->shape = (struct graph_shape){.rows = GRAPH_BATCH, .cols = 1};
    return NULL;
}

/* attrs: number of the receive node in its graph, number of the edge. The shape is given. */
static const char *receive_infer(const struct graph *graph, struct node *node,
                                 const graph_id *inputs)
{
    (void)inputs;
    return node->attrs[0] == graph->receives_count ? NULL : "receives must be numbered in order";
}

/* number: the value. */
static const char *constant_infer(const struct graph *graph, struct node *node,
                                  const graph_id *inputs)
{
    (void)graph, (void)inputs;
    node->shape = (struct graph_shape){.rows = GRAPH_FIXED, .of = 1, .cols = 1};
    return NULL;
}

static void constant_run(const struct op_call *call)
{
    if (call->first < call->last) call->out[0] = call->node->number;
}

/* attrs: number of the edge. A view of its input. */
static const char *send_infer(const struct graph *graph, struct node *node, const graph_id *inputs)
{
    node->shape = node_at(graph, inputs[0])->shape;
    return node->shape.cols == 0 ? "ids cannot be sent" : NULL;
}

/* attrs: which output. Written by its input when that runs. */
static const char *output_infer(const struct graph *graph, struct node *node,
                                const graph_id *inputs)
{
    const struct node *of = node_at(graph, inputs[0]);
    const struct op *op = op_of(of->op);
    if (op->extra == NULL) return "has only one output";
    if (node->attrs[0] < 1 || node->attrs[0] > OP_EXTRAS_MAX) return "no such output";
    for (graph_id id = inputs[0] + 1; id <= graph->nodes_count; id++) {
        const struct node *other = node_at(graph, id);
        if (other->op == OP_OUTPUT && node_input(graph, id, 0) == inputs[0] &&
            other->attrs[0] == node->attrs[0]) {
            return "that output has a node already";
        }
    }
    return op->extra(graph, of, node->attrs[0], &node->shape);
}

const struct op op_param = {.name = "param", .infer = param_infer};
const struct op op_table = {.name = "table", .infer = table_infer};
const struct op op_ids = {.name = "ids", .infer = ids_infer};
const struct op op_numeric = {.name = "numeric", .infer = numeric_infer};
const struct op op_label = {.name = "label", .infer = column_infer};
const struct op op_weight = {.name = "weight", .infer = column_infer};
const struct op op_receive = {.name = "receive", .infer = receive_infer};
const struct op op_constant = {.name = "constant", .infer = constant_infer, .run = constant_run};
const struct op op_send = {.name = "send", .inputs_min = 1, .inputs_max = 1, .infer = send_infer};
const struct op op_output = {
    .name = "output", .inputs_min = 1, .inputs_max = 1, .infer = output_infer};
