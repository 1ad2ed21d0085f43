#include "graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "graph/graph_node.h"

#define DEVICE_DEFAULT "/device:CPU:0"

const struct op *op_of(enum op_code code)
{
    static const struct op *const ops[OP_COUNT] = {
#define X(code, name) [OP_##code] = &op_##name,
        OP_LIST(X)
#undef X
    };
    return (uint32_t)code < OP_COUNT ? ops[code] : NULL;
}

graph_id graph_fail(struct graph *graph, int code, const char *format, ...)
{
    if (graph->failure.code != 0) return GRAPH_NONE; /* The first one tells. */
    va_list args;
    va_start(args, format);
    char text[ERR_TEXT_MAX];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    err_set(&graph->failure, code, "%s", text);
    return GRAPH_NONE;
}

int graph_create(struct graph **graph_out, struct err *err)
{
    struct graph *graph = mem_alloc(MEM_GRAPH, sizeof *graph);
    if (graph == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a graph");
    graph_set_device(graph, NULL);
    if (graph->failure.code != 0) {
        const int rc = graph_check(graph, err);
        graph_destroy(graph);
        return rc;
    }
    *graph_out = graph;
    return 0;
}

void graph_destroy(struct graph *graph)
{
    if (graph == NULL) return;
    for (uint32_t id = 1; id <= graph->nodes_count; id++) mem_free(graph->nodes[id].name);
    for (uint32_t i = 0; i < graph->devices_count; i++) mem_free(graph->devices[i]);
    mem_free(graph->nodes);
    mem_free(graph->inputs);
    mem_free(graph->devices);
    mem_free(graph->scope);
    mem_free(graph->params);
    mem_free(graph->tables);
    mem_free(graph->param_grads);
    mem_free(graph->table_grads);
    mem_free(graph);
}

int graph_check(const struct graph *graph, struct err *err)
{
    if (graph->failure.code == 0) return 0;
    return err_set(err, graph->failure.code, "%s", graph->failure.text);
}

void graph_set_device(struct graph *graph, const char *device)
{
    if (device == NULL) device = DEVICE_DEFAULT;
    for (uint32_t i = 0; i < graph->devices_count; i++) {
        if (strcmp(graph->devices[i], device) == 0) {
            graph->device = i;
            return;
        }
    }
    if (graph->devices_count == GRAPH_DEVICES_MAX || strlen(device) > GRAPH_NAME_BYTES_MAX) {
        graph_fail(graph, SHOAL_ELIMIT, "device %.40s: at most %u devices, names of %u bytes",
                   device, GRAPH_DEVICES_MAX, GRAPH_NAME_BYTES_MAX);
        return;
    }
    if (mem_grow(MEM_GRAPH, (void **)&graph->devices, &graph->devices_capacity,
                 graph->devices_count + 1u, sizeof *graph->devices) != 0 ||
        (graph->devices[graph->devices_count] = mem_strdup(MEM_GRAPH, device)) == NULL) {
        graph_fail(graph, SHOAL_ENOMEM, "no memory for device %s", device);
        return;
    }
    graph->device = graph->devices_count++;
}

void graph_set_scope(struct graph *graph, const char *prefix)
{
    mem_free(graph->scope);
    graph->scope = NULL;
    if (prefix == NULL || prefix[0] == '\0') return;
    graph->scope = mem_strdup(MEM_GRAPH, prefix);
    if (graph->scope == NULL) graph_fail(graph, SHOAL_ENOMEM, "no memory for scope %s", prefix);
}

/* The scope and the name, owned by the caller; NULL after a failure that has been recorded. */
static char *full_name(struct graph *graph, const char *name)
{
    const char *scope = graph->scope == NULL ? "" : graph->scope;
    const size_t bytes = strlen(scope) + strlen(name);
    if (bytes == 0 || bytes > GRAPH_NAME_BYTES_MAX) {
        graph_fail(graph, SHOAL_ELIMIT, "the name \"%s%.40s\" must have 1 to %u bytes", scope, name,
                   GRAPH_NAME_BYTES_MAX);
        return NULL;
    }
    char *text = mem_alloc(MEM_GRAPH, bytes + 1);
    if (text == NULL) {
        graph_fail(graph, SHOAL_ENOMEM, "no memory for the name %s", name);
        return NULL;
    }
    memcpy(text, scope, strlen(scope));
    memcpy(text + strlen(scope), name, strlen(name));
    return text;
}

graph_id graph_name(struct graph *graph, graph_id node, const char *name)
{
    if (node == GRAPH_NONE) return GRAPH_NONE;
    ASSERT(node <= graph->nodes_count);
    char *text = full_name(graph, name);
    if (text == NULL) return GRAPH_NONE;
    const graph_id other = graph_find(graph, text);
    if (other != GRAPH_NONE && other != node) {
        graph_fail(graph, SHOAL_EEXIST, "there are two nodes named %s", text);
        mem_free(text);
        return GRAPH_NONE;
    }
    mem_free(graph->nodes[node].name);
    graph->nodes[node].name = text;
    return node;
}

/* ---- Adding nodes ---- */

static void describe_shape(struct graph_shape shape, char text[64])
{
    static const char *const rows[GRAPH_ROWS_COUNT] = {"", "batch", "occurrences", "unique",
                                                       "chunks"};
    if (shape.rows == GRAPH_FIXED) {
        snprintf(text, 64, "%u x %u", shape.of, shape.cols);
    } else {
        snprintf(text, 64, "%s(%u) x %u", rows[shape.rows], shape.of, shape.cols);
    }
}

static graph_id refuse(struct graph *graph, const struct node_spec *spec, const char *why)
{
    char text[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < spec->inputs_count && i < 4; i++) {
        char shape[64];
        describe_shape(node_at(graph, spec->inputs[i])->shape, shape);
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%s", i == 0 ? "" : ", ", shape);
        if (used >= sizeof text) break;
    }
    return graph_fail(graph, SHOAL_EINVAL, "%s(%s): %s", op_of(spec->op)->name, text, why);
}

static const char *shape_fault(struct graph_shape shape, bool matrix)
{
    if (shape.rows >= GRAPH_ROWS_COUNT) return "unknown kind of rows";
    if (shape.rows == GRAPH_FIXED && (shape.of < 1 || shape.of > GRAPH_FIXED_ROWS_MAX)) {
        return "too many rows";
    }
    if (shape.rows != GRAPH_FIXED && shape.of >= GRAPH_FEATURES_MAX) return "too many features";
    if (matrix && shape.cols < 1) return "no columns";
    if (shape.cols > GRAPH_COLS_MAX) return "too many columns";
    if (shape.rows == GRAPH_FIXED && (uint64_t)shape.of * shape.cols > GRAPH_PARAM_ELEMENTS_MAX) {
        return "too many elements";
    }
    return NULL;
}

graph_id node_add(struct graph *graph, const struct node_spec *spec)
{
    const struct op *op = op_of(spec->op);
    ASSERT(op != NULL);
    if (graph->failure.code != 0) return GRAPH_NONE;
    for (uint32_t i = 0; i < spec->inputs_count; i++) {
        if (spec->inputs[i] == GRAPH_NONE || spec->inputs[i] > graph->nodes_count) {
            return graph_fail(graph, SHOAL_EINVAL, "%s: input %u is missing", op->name, i);
        }
    }
    if (spec->inputs_count < op->inputs_min || spec->inputs_count > op->inputs_max) {
        return graph_fail(graph, SHOAL_EINVAL, "%s: %u inputs, not %u to %u", op->name,
                          spec->inputs_count, op->inputs_min, op->inputs_max);
    }
    if (graph->nodes_count == GRAPH_NODES_MAX) {
        return graph_fail(graph, SHOAL_ELIMIT, "more than %u nodes", GRAPH_NODES_MAX);
    }
    struct node node = {.op = spec->op,
                        .shape = spec->shape,
                        .number = spec->number,
                        .inputs_first = graph->inputs_count,
                        .inputs_count = spec->inputs_count,
                        .device = graph->device};
    memcpy(node.attrs, spec->attrs, sizeof node.attrs);
    const char *fault = op->infer(graph, &node, spec->inputs);
    if (fault == NULL) fault = shape_fault(node.shape, spec->op != OP_IDS);
    if (fault != NULL) return refuse(graph, spec, fault);

    const size_t inputs_want = (size_t)graph->inputs_count + spec->inputs_count;
    if (mem_grow(MEM_GRAPH, (void **)&graph->nodes, &graph->nodes_capacity,
                 (size_t)graph->nodes_count + 2, sizeof *graph->nodes) != 0 ||
        mem_grow(MEM_GRAPH, (void **)&graph->inputs, &graph->inputs_capacity, inputs_want + 1,
                 sizeof *graph->inputs) != 0) {
        return graph_fail(graph, SHOAL_ENOMEM, "no memory for node %u", graph->nodes_count + 1);
    }
    for (uint32_t i = 0; i < spec->inputs_count; i++) {
        graph->inputs[graph->inputs_count++] = spec->inputs[i];
    }
    graph->nodes[++graph->nodes_count] = node;
    graph->receives_count += spec->op == OP_RECEIVE;
    return graph->nodes_count;
}

graph_id node_add1(struct graph *graph, enum op_code op, graph_id a)
{
    return node_add(graph, &(struct node_spec){.op = op, .inputs = &a, .inputs_count = 1});
}

graph_id node_add2(struct graph *graph, enum op_code op, graph_id a, graph_id b)
{
    const graph_id inputs[] = {a, b};
    return node_add(graph, &(struct node_spec){.op = op, .inputs = inputs, .inputs_count = 2});
}

graph_id node_extra(struct graph *graph, graph_id node, uint32_t number)
{
    return node_add(graph,
                    &(struct node_spec){
                        .op = OP_OUTPUT, .inputs = &node, .inputs_count = 1, .attrs = {number}});
}

/* ---- Leaves ---- */

graph_id graph_add_variable(struct graph *graph, enum op_code op,
                            const struct graph_variable *variable)
{
    ASSERT(op == OP_PARAM || op == OP_TABLE);
    const bool is_param = op == OP_PARAM;
    struct graph_variable **list = is_param ? &graph->params : &graph->tables;
    size_t *capacity = is_param ? &graph->params_capacity : &graph->tables_capacity;
    uint32_t *count = is_param ? &graph->params_count : &graph->tables_count;
    if (mem_grow(MEM_GRAPH, (void **)list, capacity, (size_t)*count + 1, sizeof **list) != 0) {
        return graph_fail(graph, SHOAL_ENOMEM, "no memory for %s", variable->name);
    }
    const struct graph_shape shape = {
        .rows = is_param ? GRAPH_FIXED : GRAPH_UNIQUE,
        .of = is_param && variable->rows == 0 ? 1 : variable->rows,
        .cols = variable->cols,
    };
    const graph_id id =
        node_add(graph, &(struct node_spec){.op = op, .attrs = {*count}, .shape = shape});
    if (id == GRAPH_NONE) return GRAPH_NONE;
    if (graph_name(graph, id, variable->name) == GRAPH_NONE) return GRAPH_NONE;
    struct graph_variable *added = &(*list)[(*count)++];
    *added = *variable;
    added->name = graph->nodes[id].name;
    added->node = id;
    return id;
}

graph_id graph_param(struct graph *graph, const char *name, uint32_t rows, uint32_t cols,
                     struct init init)
{
    if (rows == 0) return graph_fail(graph, SHOAL_EINVAL, "parameter %.99s has no rows", name);
    return graph_add_variable(
        graph, OP_PARAM,
        &(struct graph_variable){.name = name, .rows = rows, .cols = cols, .init = init});
}

graph_id graph_vector(struct graph *graph, const char *name, uint32_t cols, struct init init)
{
    return graph_add_variable(graph, OP_PARAM,
                              &(struct graph_variable){.name = name, .cols = cols, .init = init});
}

graph_id graph_table(struct graph *graph, const char *name, uint32_t keys, uint32_t dim,
                     struct init init)
{
    return graph_add_variable(
        graph, OP_TABLE,
        &(struct graph_variable){.name = name, .rows = keys, .cols = dim, .init = init});
}

/* Leaves of the batch are made once and found again. */
static graph_id find_leaf(const struct graph *graph, enum op_code op, uint32_t feature)
{
    for (graph_id id = 1; id <= graph->nodes_count; id++) {
        const struct node *node = node_at(graph, id);
        if (node->op == op && node->attrs[0] == feature && node->device == graph->device) return id;
    }
    return GRAPH_NONE;
}

static graph_id add_leaf(struct graph *graph, const struct node_spec *spec)
{
    const graph_id there = find_leaf(graph, spec->op, spec->attrs[0]);
    if (there == GRAPH_NONE) return node_add(graph, spec);
    const struct node *node = node_at(graph, there);
    if (memcmp(node->attrs, spec->attrs, sizeof node->attrs) != 0) {
        return graph_fail(graph, SHOAL_EINVAL, "%s %u was described in two ways",
                          op_of(spec->op)->name, spec->attrs[0]);
    }
    return there;
}

graph_id graph_ids(struct graph *graph, uint32_t feature, uint32_t keys, bool single)
{
    return add_leaf(graph, &(struct node_spec){.op = OP_IDS, .attrs = {feature, keys, single}});
}

graph_id graph_numeric(struct graph *graph, uint32_t feature, uint32_t width)
{
    return add_leaf(graph, &(struct node_spec){.op = OP_NUMERIC, .attrs = {feature, width}});
}

graph_id graph_label(struct graph *graph)
{
    return add_leaf(graph, &(struct node_spec){.op = OP_LABEL});
}

graph_id graph_weight(struct graph *graph)
{
    return add_leaf(graph, &(struct node_spec){.op = OP_WEIGHT});
}

/* ---- Operations: each builder names its op, inputs and attributes; infer does the checking ---- */

graph_id graph_gather(struct graph *graph, graph_id table, graph_id ids)
{
    return node_add2(graph, OP_GATHER, table, ids);
}

graph_id graph_pool(struct graph *graph, graph_id table, graph_id ids, enum graph_combine combine)
{
    const graph_id inputs[] = {table, ids};
    return node_add(graph,
                    &(struct node_spec){
                        .op = OP_POOL, .inputs = inputs, .inputs_count = 2, .attrs = {combine}});
}

graph_id graph_attention_input(struct graph *graph, graph_id table, graph_id ids, graph_id target)
{
    const graph_id inputs[] = {table, ids, target};
    return node_add(
        graph, &(struct node_spec){.op = OP_ATTENTION_INPUT, .inputs = inputs, .inputs_count = 3});
}

graph_id graph_attention_pool(struct graph *graph, graph_id table, graph_id ids, graph_id scores)
{
    const graph_id inputs[] = {table, ids, scores};
    return node_add(
        graph, &(struct node_spec){.op = OP_ATTENTION_POOL, .inputs = inputs, .inputs_count = 3});
}

graph_id graph_attention(struct graph *graph, graph_id table, graph_id ids, graph_id target,
                         const graph_id *layers, uint32_t layers_count)
{
    if (layers_count == 0) return graph_fail(graph, SHOAL_EINVAL, "attention without layers");
    if (layers_count == 3) {
        graph_id inputs[9] = {table, ids, target};
        memcpy(inputs + 3, layers, 6 * sizeof *layers);
        return node_add(
            graph, &(struct node_spec){.op = OP_ATTENTION, .inputs = inputs, .inputs_count = 9});
    }
    graph_id x = graph_attention_input(graph, table, ids, target);
    for (uint32_t i = 0; i < layers_count; i++) {
        const enum graph_act act = i + 1 < layers_count ? GRAPH_RELU : GRAPH_LINEAR;
        x = graph_dense(graph, x, layers[2 * i], layers[2 * i + 1], act);
    }
    return graph_attention_pool(graph, table, ids, x);
}

graph_id graph_dense(struct graph *graph, graph_id x, graph_id weight, graph_id bias,
                     enum graph_act act)
{
    const graph_id inputs[] = {x, weight, bias};
    return node_add(graph, &(struct node_spec){.op = OP_DENSE,
                                               .inputs = inputs,
                                               .inputs_count = bias == GRAPH_NONE ? 2 : 3,
                                               .attrs = {act}});
}

graph_id graph_matmul(struct graph *graph, graph_id x, graph_id weight)
{
    return graph_dense(graph, x, weight, GRAPH_NONE, GRAPH_LINEAR);
}

graph_id graph_act(struct graph *graph, graph_id x, enum graph_act act)
{
    return node_add(
        graph, &(struct node_spec){.op = OP_ACT, .inputs = &x, .inputs_count = 1, .attrs = {act}});
}

graph_id graph_add(struct graph *graph, graph_id a, graph_id b)
{
    return node_add2(graph, OP_ADD, a, b);
}

graph_id graph_sub(struct graph *graph, graph_id a, graph_id b)
{
    return node_add2(graph, OP_SUB, a, b);
}

graph_id graph_mul(struct graph *graph, graph_id a, graph_id b)
{
    return node_add2(graph, OP_MUL, a, b);
}

graph_id graph_add_n(struct graph *graph, const graph_id *nodes, uint32_t count)
{
    if (count == 1) return nodes[0];
    return node_add(graph,
                    &(struct node_spec){.op = OP_ADD_N, .inputs = nodes, .inputs_count = count});
}

graph_id graph_scale(struct graph *graph, graph_id x, float factor)
{
    return node_add(graph, &(struct node_spec){
                               .op = OP_SCALE, .inputs = &x, .inputs_count = 1, .number = factor});
}

graph_id graph_concat(struct graph *graph, const graph_id *nodes, uint32_t count)
{
    if (count == 1) return nodes[0];
    return node_add(graph,
                    &(struct node_spec){.op = OP_CONCAT, .inputs = nodes, .inputs_count = count});
}

graph_id graph_slice(struct graph *graph, graph_id x, uint32_t col, uint32_t cols)
{
    return node_add(
        graph,
        &(struct node_spec){.op = OP_SLICE, .inputs = &x, .inputs_count = 1, .attrs = {col, cols}});
}

graph_id graph_dropout(struct graph *graph, graph_id x, float rate)
{
    if (rate == 0.0f) return x;
    uint32_t layer = 0; /* Each dropout draws its own numbers. */
    for (graph_id id = 1; id <= graph->nodes_count; id++) {
        layer += node_at(graph, id)->op == OP_DROPOUT;
    }
    return node_add(
        graph,
        &(struct node_spec){
            .op = OP_DROPOUT, .inputs = &x, .inputs_count = 1, .attrs = {layer}, .number = rate});
}

graph_id graph_sum(struct graph *graph, graph_id x)
{
    return node_add1(graph, OP_SUM, x);
}

graph_id graph_mean(struct graph *graph, graph_id x)
{
    if (x == GRAPH_NONE || x > graph->nodes_count) return node_add1(graph, OP_SUM, x);
    return graph_scale(graph, graph_sum(graph, x), 1.0f / (float)node_at(graph, x)->shape.cols);
}

graph_id graph_fm(struct graph *graph, graph_id x, uint32_t dim)
{
    return node_add(
        graph, &(struct node_spec){.op = OP_FM, .inputs = &x, .inputs_count = 1, .attrs = {dim}});
}

graph_id graph_dots(struct graph *graph, graph_id x, uint32_t dim)
{
    return node_add(
        graph, &(struct node_spec){.op = OP_DOTS, .inputs = &x, .inputs_count = 1, .attrs = {dim}});
}

/* A loss is summed per chunk of rows, then over the chunks in order. */
static graph_id add_loss(struct graph *graph, uint32_t kind, graph_id x, graph_id label,
                         graph_id weight)
{
    const graph_id inputs[] = {x, label, weight};
    const graph_id rows =
        node_add(graph, &(struct node_spec){.op = OP_LOSS,
                                            .inputs = inputs,
                                            .inputs_count = weight == GRAPH_NONE ? 2 : 3,
                                            .attrs = {kind}});
    return node_add1(graph, OP_LOSS_SUM, rows);
}

graph_id graph_sigmoid_loss(struct graph *graph, graph_id logit, graph_id label, graph_id weight)
{
    return add_loss(graph, LOSS_SIGMOID, logit, label, weight);
}

graph_id graph_softmax_loss(struct graph *graph, graph_id logits, graph_id label, graph_id weight)
{
    return add_loss(graph, LOSS_SOFTMAX, logits, label, weight);
}

graph_id graph_squared_loss(struct graph *graph, graph_id x, graph_id label, graph_id weight)
{
    return add_loss(graph, LOSS_SQUARED, x, label, weight);
}

graph_id graph_l2(struct graph *graph, graph_id param, float factor)
{
    return node_add(graph, &(struct node_spec){
                               .op = OP_L2, .inputs = &param, .inputs_count = 1, .number = factor});
}

graph_id graph_softmax(struct graph *graph, graph_id logits)
{
    return node_add1(graph, OP_SOFTMAX, logits);
}

/* ---- Inspection ---- */

graph_id graph_loss(const struct graph *graph)
{
    return graph->loss;
}

graph_id graph_param_grad(const struct graph *graph, uint32_t param)
{
    ASSERT(param < graph->params_count);
    return graph->param_grads == NULL ? GRAPH_NONE : graph->param_grads[param];
}

graph_id graph_table_grad(const struct graph *graph, uint32_t table)
{
    ASSERT(table < graph->tables_count);
    return graph->table_grads == NULL ? GRAPH_NONE : graph->table_grads[table];
}

uint32_t graph_params_count(const struct graph *graph)
{
    return graph->params_count;
}

const struct graph_variable *graph_param_at(const struct graph *graph, uint32_t param)
{
    ASSERT(param < graph->params_count);
    return &graph->params[param];
}

uint32_t graph_tables_count(const struct graph *graph)
{
    return graph->tables_count;
}

const struct graph_variable *graph_table_at(const struct graph *graph, uint32_t table)
{
    ASSERT(table < graph->tables_count);
    return &graph->tables[table];
}

uint32_t graph_nodes_count(const struct graph *graph)
{
    return graph->nodes_count;
}

struct graph_shape graph_shape_of(const struct graph *graph, graph_id node)
{
    ASSERT(node != GRAPH_NONE);
    ASSERT(node <= graph->nodes_count);
    return graph->nodes[node].shape;
}

const char *graph_op_name(const struct graph *graph, graph_id node)
{
    ASSERT(node <= graph->nodes_count);
    return op_of(graph->nodes[node].op)->name;
}

const char *graph_name_of(const struct graph *graph, graph_id node)
{
    ASSERT(node != GRAPH_NONE);
    ASSERT(node <= graph->nodes_count);
    const char *name = graph->nodes[node].name;
    return name == NULL ? graph_op_name(graph, node) : name;
}

const char *graph_device_of(const struct graph *graph, graph_id node)
{
    ASSERT(node <= graph->nodes_count);
    return graph->devices[graph->nodes[node].device];
}

graph_id graph_find(const struct graph *graph, const char *name)
{
    for (graph_id id = 1; id <= graph->nodes_count; id++) {
        const char *own = graph->nodes[id].name;
        if (own != NULL && strcmp(own, name) == 0) return id;
    }
    return GRAPH_NONE;
}
