/* Cutting a graph by device. A node's level is how often a path to it changes device at most; nodes
 * of one device and level form a part. Edges between parts go up in level, so parts can be run one
 * after the other in the order of levels, each to its end. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "graph/graph_node.h"

struct cut {
    const struct graph *graph;
    struct err *err;
    uint32_t *device; /* by node */
    uint32_t *level;
    uint32_t *part; /* by node: index in parts */
    struct graph_parts parts;
    size_t parts_capacity;
};

/* What has no value of its own, or is the batch's, is there in every part that uses it. */
static bool is_copied(enum op_code op)
{
    return op == OP_IDS || op == OP_NUMERIC || op == OP_LABEL || op == OP_WEIGHT || op == OP_SPARSE;
}

/* How high an input lifts its reader; a sparse description stands for what it describes. */
static uint32_t lift(const struct cut *cut, graph_id input, uint32_t device)
{
    const struct graph *graph = cut->graph;
    if (node_at(graph, input)->op == OP_SPARSE) input = node_input(graph, input, 0);
    if (is_copied(node_at(graph, input)->op)) return 0;
    return cut->level[input] + (cut->device[input] != device);
}

static void find_levels(struct cut *cut)
{
    const struct graph *graph = cut->graph;
    for (graph_id id = 1; id <= graph->nodes_count; id++) {
        const struct node *node = node_at(graph, id);
        /* An extra output is where the node is that writes it. */
        cut->device[id] =
            node->op == OP_OUTPUT ? cut->device[node_input(graph, id, 0)] : node->device;
        for (uint32_t i = 0; i < node->inputs_count; i++) {
            const uint32_t level = lift(cut, node_input(graph, id, i), cut->device[id]);
            if (level > cut->level[id]) cut->level[id] = level;
        }
    }
}

static int find_part(struct cut *cut, uint32_t device, uint32_t level, uint32_t *part_out)
{
    struct graph_parts *parts = &cut->parts;
    for (uint32_t i = 0; i < parts->count; i++) {
        if (parts->parts[i].level == level &&
            strcmp(parts->parts[i].device, cut->graph->devices[device]) == 0) {
            *part_out = i;
            return 0;
        }
    }
    if (mem_grow(MEM_GRAPH, (void **)&parts->parts, &cut->parts_capacity, parts->count + 1u,
                 sizeof *parts->parts) != 0) {
        return SHOAL_ENOMEM;
    }
    struct graph_part *part = &parts->parts[parts->count];
    *part = (struct graph_part){.device = cut->graph->devices[device], .level = level};
    *part_out = parts->count++;
    part->nodes = mem_alloc_array(MEM_GRAPH, cut->graph->nodes_count + 1u, sizeof *part->nodes);
    if (part->nodes == NULL) return SHOAL_ENOMEM;
    return graph_create(&part->graph, NULL);
}

/* Levels are visited in order, so the list of parts is in order. */
static int find_parts(struct cut *cut)
{
    uint32_t level_max = 0;
    for (graph_id id = 1; id <= cut->graph->nodes_count; id++) {
        if (cut->level[id] > level_max) level_max = cut->level[id];
    }
    for (uint32_t level = 0; level <= level_max; level++) {
        for (graph_id id = 1; id <= cut->graph->nodes_count; id++) {
            if (cut->level[id] != level || is_copied(node_at(cut->graph, id)->op)) continue;
            const int rc = find_part(cut, cut->device[id], level, &cut->part[id]);
            if (rc != 0) return rc;
        }
    }
    return 0;
}

static int add_edge(struct cut *cut, graph_id id, uint32_t to)
{
    struct graph_part *from = &cut->parts.parts[cut->part[id]];
    struct graph_part *part = &cut->parts.parts[to];
    const uint32_t edge = cut->parts.edges_count++;
    const graph_id send = node_add(from->graph, &(struct node_spec){.op = OP_SEND,
                                                                    .inputs = &from->nodes[id],
                                                                    .inputs_count = 1,
                                                                    .attrs = {edge}});
    part->nodes[id] =
        node_add(part->graph, &(struct node_spec){.op = OP_RECEIVE,
                                                  .attrs = {part->graph->receives_count, edge},
                                                  .shape = node_at(cut->graph, id)->shape});
    if (send == GRAPH_NONE) return graph_check(from->graph, cut->err);
    if (part->nodes[id] == GRAPH_NONE) return graph_check(part->graph, cut->err);
    if (mem_grow(MEM_GRAPH, (void **)&from->sends, &from->sends_capacity, from->sends_count + 1u,
                 sizeof *from->sends) != 0 ||
        mem_grow(MEM_GRAPH, (void **)&part->receives, &part->receives_capacity,
                 part->receives_count + 1u, sizeof *part->receives) != 0) {
        return SHOAL_ENOMEM;
    }
    from->sends[from->sends_count++] = (struct graph_send){.node = send, .edge = edge};
    part->receives[part->receives_count++] = edge;
    return 0;
}

static int copy_node(struct cut *cut, graph_id id, uint32_t to);

/* Makes an input there in a part: it is, or it is copied, or it is received. */
static int bring(struct cut *cut, graph_id input, uint32_t to)
{
    if (cut->parts.parts[to].nodes[input] != GRAPH_NONE) return 0;
    if (is_copied(node_at(cut->graph, input)->op)) return copy_node(cut, input, to);
    ASSERT(cut->part[input] != to);
    return add_edge(cut, input, to);
}

/* Copies go one level deep: what is copied has inputs that are values or leaves (sparse), or none. */
static int copy_node(struct cut *cut, graph_id id, uint32_t to)
{
    const struct node *node = node_at(cut->graph, id);
    struct graph_part *part = &cut->parts.parts[to];
    graph_id *inputs = mem_alloc_array(MEM_GRAPH, node->inputs_count + 1u, sizeof *inputs);
    if (inputs == NULL) return SHOAL_ENOMEM;
    int rc = 0;
    for (uint32_t i = 0; i < node->inputs_count && rc == 0; i++) {
        rc = bring(cut, node_input(cut->graph, id, i), to);
        inputs[i] = part->nodes[node_input(cut->graph, id, i)];
    }
    if (rc == 0) {
        graph_set_device(part->graph, part->device);
        if (node->op == OP_PARAM) {
            part->nodes[id] =
                graph_add_variable(part->graph, OP_PARAM, &cut->graph->params[node->attrs[0]]);
        } else if (node->op == OP_TABLE) {
            part->nodes[id] =
                graph_add_variable(part->graph, OP_TABLE, &cut->graph->tables[node->attrs[0]]);
        } else {
            struct node_spec spec = {.op = node->op,
                                     .inputs = inputs,
                                     .inputs_count = node->inputs_count,
                                     .number = node->number,
                                     .shape = node->shape};
            memcpy(spec.attrs, node->attrs, sizeof spec.attrs);
            part->nodes[id] = node_add(part->graph, &spec);
            if (node->name != NULL) graph_name(part->graph, part->nodes[id], node->name);
        }
    }
    mem_free(inputs);
    return rc == 0 && part->nodes[id] == GRAPH_NONE ? graph_check(part->graph, cut->err) : rc;
}

static int fill_parts(struct cut *cut)
{
    int rc = 0;
    for (graph_id id = 1; id <= cut->graph->nodes_count && rc == 0; id++) {
        if (is_copied(node_at(cut->graph, id)->op)) continue;
        rc = copy_node(cut, id, cut->part[id]);
    }
    for (uint32_t i = 0; i < cut->parts.count && rc == 0; i++) {
        rc = graph_check(cut->parts.parts[i].graph, cut->err);
    }
    return rc;
}

int graph_cut(const struct graph *graph, struct graph_parts *parts_out, struct err *err)
{
    int rc = graph_check(graph, err);
    if (rc != 0) return rc;
    const size_t nodes = (size_t)graph->nodes_count + 1;
    struct cut cut = {.graph = graph,
                      .err = err,
                      .device = mem_alloc_array(MEM_GRAPH, nodes, sizeof *cut.device),
                      .level = mem_alloc_array(MEM_GRAPH, nodes, sizeof *cut.level),
                      .part = mem_alloc_array(MEM_GRAPH, nodes, sizeof *cut.part)};
    if (graph->receives_count > 0) {
        rc = err_set(err, SHOAL_EINVAL, "a part of a cut graph is not cut again");
    } else if (cut.device == NULL || cut.level == NULL || cut.part == NULL) {
        rc = SHOAL_ENOMEM;
    } else {
        find_levels(&cut);
        rc = find_parts(&cut);
        if (rc == 0) rc = fill_parts(&cut);
    }
    mem_free(cut.device);
    mem_free(cut.level);
    mem_free(cut.part);
    if (rc != 0) {
        graph_parts_fini(&cut.parts);
        return rc == SHOAL_ENOMEM ? err_set(err, rc, "no memory to cut a graph") : rc;
    }
    *parts_out = cut.parts;
    return 0;
}

void graph_parts_fini(struct graph_parts *parts)
{
    for (uint32_t i = 0; i < parts->count; i++) {
        struct graph_part *part = &parts->parts[i];
        graph_destroy(part->graph);
        mem_free(part->receives);
        mem_free(part->sends);
        mem_free(part->nodes);
    }
    mem_free(parts->parts);
    *parts = (struct graph_parts){0};
}
