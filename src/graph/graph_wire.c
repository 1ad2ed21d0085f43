/* A graph as bytes, little-endian:
 *
 *   "SGRF" | u32 version | u32 devices | devices x string | u32 nodes | nodes x node
 *   u32 loss | if loss: a u32 node for each parameter, then for each table
 *
 *   node:    u8 op | u16 device | u32 attrs[3] | f32 number | string name | u32 inputs | inputs x u32
 *            given shapes (param, table, receive): u8 rows | u32 of | u32 cols
 *            param, table: u8 init kind | f32 init value | u8 is a vector
 *   string:  u8 bytes | bytes
 *
 * Reading builds the graph with the same calls as a program would, so that what comes out fits the
 * rules of graph.h whatever went in. */
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "graph/graph_node.h"

#define WIRE_MAGIC 0x46524753u /* "SGRF" */
#define WIRE_VERSION 1u
#define WIRE_NODE_BYTES_MIN 24u

static bool has_given_shape(enum op_code op)
{
    return op == OP_PARAM || op == OP_TABLE || op == OP_RECEIVE;
}

/* ---- Writing ---- */

struct writer {
    uint8_t *bytes;
    size_t capacity;
    size_t count;
    bool failed;
};

static void put(struct writer *writer, const void *bytes, size_t count)
{
    if (writer->failed) return;
    if (mem_grow(MEM_GRAPH, (void **)&writer->bytes, &writer->capacity, writer->count + count, 1) !=
        0) {
        writer->failed = true;
        return;
    }
    memcpy(writer->bytes + writer->count, bytes, count);
    writer->count += count;
}

static void put_uint(struct writer *writer, uint32_t value, size_t bytes)
{
    uint8_t out[4];
    for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
    put(writer, out, bytes);
}

static void put_f32(struct writer *writer, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_uint(writer, bits, 4);
}

static void put_string(struct writer *writer, const char *text)
{
    const size_t bytes = text == NULL ? 0 : strlen(text);
    ASSERT(bytes <= GRAPH_NAME_BYTES_MAX);
    put_uint(writer, (uint32_t)bytes, 1);
    if (bytes > 0) put(writer, text, bytes);
}

static void put_node(struct writer *writer, const struct graph *graph, graph_id id)
{
    const struct node *node = node_at(graph, id);
    put_uint(writer, node->op, 1);
    put_uint(writer, node->device, 2);
    for (int i = 0; i < 3; i++) put_uint(writer, node->attrs[i], 4);
    put_f32(writer, node->number);
    put_string(writer, node->name);
    put_uint(writer, node->inputs_count, 4);
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        put_uint(writer, node_input(graph, id, i), 4);
    }
    if (has_given_shape(node->op)) {
        put_uint(writer, node->shape.rows, 1);
        put_uint(writer, node->shape.of, 4);
        put_uint(writer, node->shape.cols, 4);
    }
    if (node->op == OP_PARAM || node->op == OP_TABLE) {
        const struct graph_variable *of =
            node->op == OP_PARAM ? &graph->params[node->attrs[0]] : &graph->tables[node->attrs[0]];
        put_uint(writer, of->init.kind, 1);
        put_f32(writer, of->init.value);
        put_uint(writer, node->op == OP_PARAM && of->rows == 0, 1);
    }
}

int graph_encode(const struct graph *graph, uint8_t **bytes_out, size_t *count_out, struct err *err)
{
    const int rc = graph_check(graph, err);
    if (rc != 0) return rc;
    struct writer writer = {0};
    put_uint(&writer, WIRE_MAGIC, 4);
    put_uint(&writer, WIRE_VERSION, 4);
    put_uint(&writer, graph->devices_count, 4);
    for (uint32_t i = 0; i < graph->devices_count; i++) put_string(&writer, graph->devices[i]);
    put_uint(&writer, graph->nodes_count, 4);
    for (graph_id id = 1; id <= graph->nodes_count; id++) put_node(&writer, graph, id);
    put_uint(&writer, graph->loss, 4);
    for (uint32_t i = 0; graph->loss != GRAPH_NONE && i < graph->params_count; i++) {
        put_uint(&writer, graph->param_grads[i], 4);
    }
    for (uint32_t i = 0; graph->loss != GRAPH_NONE && i < graph->tables_count; i++) {
        put_uint(&writer, graph->table_grads[i], 4);
    }
    if (writer.failed) {
        mem_free(writer.bytes);
        return err_set(err, SHOAL_ENOMEM, "no memory to write a graph of %u nodes",
                       graph->nodes_count);
    }
    *bytes_out = writer.bytes;
    *count_out = writer.count;
    return 0;
}

/* ---- Reading ---- */

struct reader {
    const uint8_t *bytes;
    size_t left;
    bool failed; /* ran out of bytes */
    struct graph *graph;
    graph_id inputs[GRAPH_INPUTS_MAX];
};

static uint32_t get_uint(struct reader *reader, size_t bytes)
{
    if (reader->left < bytes) {
        reader->failed = true;
        reader->left = 0;
        return 0;
    }
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; i++) value |= (uint32_t)reader->bytes[i] << (8 * i);
    reader->bytes += bytes;
    reader->left -= bytes;
    return value;
}

static float get_f32(struct reader *reader)
{
    const uint32_t bits = get_uint(reader, 4);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void get_string(struct reader *reader, char text[GRAPH_NAME_BYTES_MAX + 1])
{
    const uint32_t bytes = get_uint(reader, 1);
    if (reader->left < bytes || memchr(reader->bytes, 0, bytes) != NULL) {
        reader->failed = true;
        reader->left = 0;
    } else {
        memcpy(text, reader->bytes, bytes);
        reader->bytes += bytes;
        reader->left -= bytes;
    }
    text[reader->failed ? 0 : bytes] = '\0';
}

static void add_variable(struct reader *reader, const struct node_spec *spec, const char *name)
{
    struct graph *graph = reader->graph;
    const bool is_param = spec->op == OP_PARAM;
    struct graph_variable variable = {
        .name = name, .rows = spec->shape.of, .cols = spec->shape.cols};
    const uint32_t kind = get_uint(reader, 1);
    variable.init = (struct init){.kind = kind, .value = get_f32(reader)};
    const uint32_t vector = get_uint(reader, 1);
    if (reader->failed) return;
    bool fits = kind < INIT_KIND_COUNT && spec->inputs_count == 0 && name[0] != '\0';
    fits &= spec->shape.rows == (is_param ? GRAPH_FIXED : GRAPH_UNIQUE);
    fits &= spec->attrs[0] == (is_param ? graph->params_count : graph->tables_count);
    fits &= vector == 0 || (vector == 1 && is_param && variable.rows == 1);
    fits &= !is_param || variable.rows > 0;
    if (!fits) {
        graph_fail(graph, SHOAL_ECORRUPT, "a variable that cannot be");
        return;
    }
    if (vector == 1) variable.rows = 0;
    graph_add_variable(graph, spec->op, &variable);
}

/* One node; the graph's own checks refuse what does not fit. */
static void get_node(struct reader *reader)
{
    struct graph *graph = reader->graph;
    struct node_spec spec = {.op = get_uint(reader, 1)};
    char name[GRAPH_NAME_BYTES_MAX + 1];
    const uint32_t device = get_uint(reader, 2);
    for (int i = 0; i < 3; i++) spec.attrs[i] = get_uint(reader, 4);
    spec.number = get_f32(reader);
    get_string(reader, name);
    spec.inputs_count = get_uint(reader, 4);
    if (reader->failed || op_of(spec.op) == NULL || device >= graph->devices_count ||
        spec.inputs_count > GRAPH_INPUTS_MAX || spec.inputs_count > reader->left / 4) {
        graph_fail(graph, SHOAL_ECORRUPT, "a node that cannot be");
        return;
    }
    for (uint32_t i = 0; i < spec.inputs_count; i++) reader->inputs[i] = get_uint(reader, 4);
    spec.inputs = reader->inputs;
    if (has_given_shape(spec.op)) {
        spec.shape.rows = get_uint(reader, 1);
        spec.shape.of = get_uint(reader, 4);
        spec.shape.cols = get_uint(reader, 4);
    }
    graph->device = device;
    if (spec.op == OP_PARAM || spec.op == OP_TABLE) {
        add_variable(reader, &spec, name);
    } else {
        const graph_id id = node_add(graph, &spec);
        if (id != GRAPH_NONE && name[0] != '\0') graph_name(graph, id, name);
    }
}

/* A gradient has the shape of what it is the gradient of. */
static void get_gradients(struct reader *reader)
{
    struct graph *graph = reader->graph;
    const graph_id loss = get_uint(reader, 4);
    if (loss == GRAPH_NONE || graph->failure.code != 0) return;
    if (loss > graph->nodes_count || !shape_is_scalar(node_at(graph, loss)->shape)) {
        graph_fail(graph, SHOAL_ECORRUPT, "a loss that is not one number");
        return;
    }
    graph->param_grads =
        mem_alloc_array(MEM_GRAPH, (size_t)graph->params_count + 1, sizeof(graph_id));
    graph->table_grads =
        mem_alloc_array(MEM_GRAPH, (size_t)graph->tables_count + 1, sizeof(graph_id));
    if (graph->param_grads == NULL || graph->table_grads == NULL) {
        graph_fail(graph, SHOAL_ENOMEM, "no memory for gradients");
        return;
    }
    const uint32_t count = graph->params_count + graph->tables_count;
    for (uint32_t i = 0; i < count; i++) {
        const bool is_param = i < graph->params_count;
        const uint32_t at = is_param ? i : i - graph->params_count;
        const graph_id of = is_param ? graph->params[at].node : graph->tables[at].node;
        const graph_id grad = get_uint(reader, 4);
        if (grad > graph->nodes_count ||
            (grad != GRAPH_NONE &&
             (!shape_equal(node_at(graph, grad)->shape, node_at(graph, of)->shape) ||
              node_at(graph, grad)->op == OP_SPARSE))) {
            graph_fail(graph, SHOAL_ECORRUPT, "a gradient of another shape");
            return;
        }
        (is_param ? graph->param_grads : graph->table_grads)[at] = grad;
    }
    graph->loss = loss;
}

static void get_devices(struct reader *reader)
{
    struct graph *graph = reader->graph;
    const uint32_t count = get_uint(reader, 4);
    if (count < 1 || count > GRAPH_DEVICES_MAX || count > reader->left) {
        graph_fail(graph, SHOAL_ECORRUPT, "%u devices", count);
        return;
    }
    for (uint32_t i = 0; i < count && graph->failure.code == 0 && !reader->failed; i++) {
        char name[GRAPH_NAME_BYTES_MAX + 1];
        get_string(reader, name);
        graph_set_device(graph, name);
        if (graph->devices_count != i + 1) {
            graph_fail(graph, SHOAL_ECORRUPT, "device %u is named twice", i);
        }
    }
}

static int read_all(struct reader *reader, struct err *err)
{
    struct graph *graph = reader->graph;
    if (get_uint(reader, 4) != WIRE_MAGIC) return err_set(err, SHOAL_ECORRUPT, "not a graph");
    const uint32_t version = get_uint(reader, 4);
    if (version != WIRE_VERSION) {
        return err_set(err, SHOAL_ECORRUPT, "a graph of version %u, not %u", version, WIRE_VERSION);
    }
    get_devices(reader);
    const uint32_t nodes = get_uint(reader, 4);
    if (nodes > GRAPH_NODES_MAX || nodes > reader->left / WIRE_NODE_BYTES_MIN) {
        return err_set(err, SHOAL_ECORRUPT, "%u nodes in %zu bytes", nodes, reader->left);
    }
    for (uint32_t i = 0; i < nodes && graph->failure.code == 0 && !reader->failed; i++) {
        get_node(reader);
    }
    if (!reader->failed) get_gradients(reader);
    graph->device = 0;
    if (graph->failure.code == SHOAL_ENOMEM) return graph_check(graph, err);
    if (graph->failure.code != 0) {
        return err_set(err, SHOAL_ECORRUPT, "node %u: %s", graph->nodes_count + 1,
                       graph->failure.text);
    }
    if (reader->failed) return err_set(err, SHOAL_ECORRUPT, "the graph is cut short");
    if (reader->left != 0) {
        return err_set(err, SHOAL_ECORRUPT, "%zu bytes after the graph", reader->left);
    }
    return 0;
}

int graph_decode(const uint8_t *bytes, size_t count, struct graph **graph_out, struct err *err)
{
    struct reader *reader = mem_alloc(MEM_GRAPH, sizeof *reader);
    struct graph *graph = mem_alloc(MEM_GRAPH, sizeof *graph);
    int rc = 0;
    if (reader == NULL || graph == NULL) {
        rc = err_set(err, SHOAL_ENOMEM, "no memory to read a graph");
    } else {
        reader->bytes = bytes;
        reader->left = count;
        reader->graph = graph;
        rc = read_all(reader, err);
    }
    mem_free(reader);
    if (rc != 0) {
        graph_destroy(graph);
        return rc;
    }
    *graph_out = graph;
    return 0;
}
