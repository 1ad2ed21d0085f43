/* Reverse-mode differentiation: walks the nodes backwards from the loss; each hands its gradient to
 * its inputs by adding nodes. What a node receives from several users is added up once all of them
 * have been visited. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "graph/graph_node.h"

struct gift { /* one gradient given to a node */
    graph_id grad;
    uint32_t next; /* in gifts, + 1; 0: the last */
};

struct grads {
    struct graph *graph;
    uint32_t nodes_count; /* of the forward graph */
    bool *wanted;         /* by node: depends on a parameter or table */
    uint32_t *first;      /* by node: in gifts, + 1 */
    struct gift *gifts;
    size_t gifts_capacity;
    uint32_t gifts_count;
    graph_id *list; /* scratch: the gifts of one node */
    size_t list_capacity;
};

bool grads_wanted(const struct grads *grads, graph_id input)
{
    return grads->wanted[input];
}

void grads_add(struct grads *grads, graph_id input, graph_id grad)
{
    if (grad == GRAPH_NONE || !grads->wanted[input]) return;
    if (mem_grow(MEM_GRAPH, (void **)&grads->gifts, &grads->gifts_capacity,
                 (size_t)grads->gifts_count + 1, sizeof *grads->gifts) != 0) {
        graph_fail(grads->graph, SHOAL_ENOMEM, "no memory for a gradient");
        return;
    }
    grads->gifts[grads->gifts_count++] = (struct gift){.grad = grad, .next = grads->first[input]};
    grads->first[input] = grads->gifts_count;
}

/* The gradients given to a node, in the order they were given, into grads->list. */
static uint32_t take(struct grads *grads, graph_id id)
{
    uint32_t count = 0;
    for (uint32_t at = grads->first[id]; at != 0; at = grads->gifts[at - 1].next) count++;
    if (mem_grow(MEM_GRAPH, (void **)&grads->list, &grads->list_capacity, (size_t)count + 1,
                 sizeof *grads->list) != 0) {
        graph_fail(grads->graph, SHOAL_ENOMEM, "no memory for a gradient");
        return 0;
    }
    uint32_t left = count;
    for (uint32_t at = grads->first[id]; at != 0; at = grads->gifts[at - 1].next) {
        grads->list[--left] = grads->gifts[at - 1].grad;
    }
    return count;
}

static uint32_t feature_of(const struct graph *graph, graph_id sparse)
{
    return node_at(graph, node_input(graph, sparse, 1))->attrs[0];
}

/* Two sparse gradients of one feature become one. */
static graph_id join(struct graph *graph, graph_id a, graph_id b)
{
    const graph_id sum = graph_add(graph, node_input(graph, a, 0), node_input(graph, b, 0));
    return node_add2(graph, OP_SPARSE, sum, node_input(graph, a, 1));
}

/* Sorts by feature, joining those of the same one. Returns how many are left. */
static uint32_t join_by_feature(struct graph *graph, graph_id *list, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        graph_id sparse = list[i];
        const uint32_t feature = feature_of(graph, sparse);
        uint32_t at = 0;
        while (at < kept && feature_of(graph, list[at]) < feature) at++;
        if (at < kept && feature_of(graph, list[at]) == feature) {
            sparse = join(graph, list[at], sparse);
            if (sparse == GRAPH_NONE) return 0;
            list[at] = sparse;
        } else {
            memmove(&list[at + 1], &list[at], (kept - at) * sizeof *list);
            list[at] = sparse;
            kept++;
        }
    }
    return kept;
}

/* Sparse gradients first, then what is left, keeping the order within each. Returns how many sparse
 * ones there are. */
static uint32_t sparse_first(const struct graph *graph, graph_id *list, uint32_t count)
{
    uint32_t sparse = 0;
    for (uint32_t i = 0; i < count; i++) {
        const graph_id id = list[i];
        if (node_at(graph, id)->op != OP_SPARSE) continue;
        memmove(&list[sparse + 1], &list[sparse], (i - sparse) * sizeof *list);
        list[sparse++] = id;
    }
    return sparse;
}

/* One node for the sum of all gradients given to a node; GRAPH_NONE when there are none. */
static graph_id total(struct grads *grads, graph_id id)
{
    struct graph *graph = grads->graph;
    uint32_t count = take(grads, id);
    if (count == 0) return GRAPH_NONE;
    uint32_t sparse = sparse_first(graph, grads->list, count);
    if (sparse > 0) {
        const uint32_t others = count - sparse;
        const uint32_t joined = join_by_feature(graph, grads->list, sparse);
        if (joined == 0) return GRAPH_NONE;
        grads->list[0] = node_add(graph, &(struct node_spec){.op = OP_SPARSE_SUM,
                                                             .inputs = grads->list,
                                                             .inputs_count = joined});
        memmove(&grads->list[1], &grads->list[sparse], others * sizeof *grads->list);
        count = 1 + others;
    }
    return graph_add_n(graph, grads->list, count);
}

static int grads_init(struct grads *grads, struct graph *graph)
{
    const uint32_t count = graph->nodes_count;
    *grads = (struct grads){.graph = graph, .nodes_count = count};
    grads->wanted = mem_alloc_array(MEM_GRAPH, (size_t)count + 1, sizeof *grads->wanted);
    grads->first = mem_alloc_array(MEM_GRAPH, (size_t)count + 1, sizeof *grads->first);
    if (grads->wanted == NULL || grads->first == NULL) return SHOAL_ENOMEM;
    for (graph_id id = 1; id <= count; id++) {
        const struct node *node = node_at(graph, id);
        grads->wanted[id] = node->op == OP_PARAM || node->op == OP_TABLE;
        for (uint32_t i = 0; i < node->inputs_count; i++) {
            grads->wanted[id] |= grads->wanted[node_input(graph, id, i)];
        }
    }
    return 0;
}

static void grads_fini(struct grads *grads)
{
    mem_free(grads->wanted);
    mem_free(grads->first);
    mem_free(grads->gifts);
    mem_free(grads->list);
}

/* Nodes of a gradient carry the device of what they are the gradient of. */
static void walk(struct grads *grads, graph_id loss)
{
    struct graph *graph = grads->graph;
    const uint32_t device = graph->device;
    for (graph_id id = loss; id >= 1 && graph->failure.code == 0; id--) {
        if (!grads->wanted[id]) continue;
        graph->device = node_at(graph, id)->device;
        const graph_id dy = total(grads, id);
        if (dy == GRAPH_NONE) continue;
        const struct node *node = node_at(graph, id);
        const struct op *op = op_of(node->op);
        if (node->op == OP_PARAM) {
            graph->param_grads[node->attrs[0]] = dy;
        } else if (node->op == OP_TABLE) {
            graph->table_grads[node->attrs[0]] = dy;
        } else if (op->grad == NULL) {
            graph_fail(graph, SHOAL_EINVAL, "%s cannot be differentiated", op->name);
        } else {
            op->grad(graph, id, dy, grads);
        }
    }
    graph->device = device;
}

int graph_differentiate(struct graph *graph, graph_id loss, struct err *err)
{
    if (graph_check(graph, err) != 0) return graph_check(graph, err);
    if (graph->loss != GRAPH_NONE) return err_set(err, SHOAL_EINVAL, "differentiated already");
    if (loss == GRAPH_NONE || loss > graph->nodes_count ||
        !shape_is_scalar(node_at(graph, loss)->shape)) {
        return err_set(err, SHOAL_EINVAL, "a loss must be one number (1 x 1)");
    }
    struct grads grads;
    graph->param_grads =
        mem_alloc_array(MEM_GRAPH, (size_t)graph->params_count + 1, sizeof *graph->param_grads);
    graph->table_grads =
        mem_alloc_array(MEM_GRAPH, (size_t)graph->tables_count + 1, sizeof *graph->table_grads);
    if (grads_init(&grads, graph) != 0 || graph->param_grads == NULL ||
        graph->table_grads == NULL) {
        graph_fail(graph, SHOAL_ENOMEM, "no memory for gradients");
    } else if (!grads.wanted[loss]) {
        graph_fail(graph, SHOAL_EINVAL, "the loss depends on no parameter and no table");
    } else {
        const graph_id one =
            node_add(graph, &(struct node_spec){.op = OP_CONSTANT, .number = 1.0f});
        grads_add(&grads, loss, one);
        walk(&grads, loss);
        graph->loss = loss;
    }
    grads_fini(&grads);
    return graph_check(graph, err);
}
