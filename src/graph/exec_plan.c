#include "graph/exec_plan.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define FOREVER UINT32_MAX

bool plan_is_leaf(const struct graph *graph, graph_id id)
{
    switch (node_at(graph, id)->op) {
    case OP_PARAM:
    case OP_TABLE:
    case OP_IDS:
    case OP_NUMERIC:
    case OP_LABEL:
    case OP_WEIGHT:
    case OP_RECEIVE: return true;
    default: return false;
    }
}

/* Dropout does nothing outside training: a view. */
static bool is_view(const struct plan *plan, graph_id id)
{
    const enum op_code op = node_at(plan->graph, id)->op;
    if (op == OP_SLICE || op == OP_SEND) return true;
    return !plan->train && (op == OP_DROPOUT || op == OP_DROPOUT_GRAD);
}

static bool is_run(const struct plan *plan, graph_id id)
{
    return plan->needed[id] && op_of(node_at(plan->graph, id)->op)->run != NULL &&
           !is_view(plan, id);
}

/* Can be computed chunk by chunk of the batch. */
static bool is_rows(const struct plan *plan, graph_id id)
{
    const struct node *node = node_at(plan->graph, id);
    const struct op *op = op_of(node->op);
    if (op->whole || node->shape.rows == GRAPH_FIXED || node->shape.rows == GRAPH_UNIQUE) {
        return false;
    }
    return op->tiled == NULL || !op->tiled(plan->graph, node);
}

/* ---- needed ---- */

static void mark_needed(struct plan *plan)
{
    const struct graph *graph = plan->graph;
    for (graph_id id = graph->nodes_count; id >= 1; id--) {
        if (!plan->needed[id]) continue;
        const struct node *node = node_at(graph, id);
        for (uint32_t i = 0; i < node->inputs_count; i++) {
            /* The bits of a dropout that did not happen. */
            if (is_view(plan, id) && i > 0) continue;
            plan->needed[node_input(graph, id, i)] = true;
        }
        if (node->op == OP_OUTPUT) {
            plan->extras[node_input(graph, id, 0) * OP_EXTRAS_MAX + node->attrs[0] - 1] = id;
        }
    }
}

/* ---- the last stage ---- */

/* users[id]: how many needed nodes read it, how often it is fetched, and of how many variables it is
 * the gradient. */
static void count_users(const struct plan *plan, const graph_id *fetches, uint32_t fetches_count,
                        uint32_t *users)
{
    const struct graph *graph = plan->graph;
    for (graph_id id = 1; id <= graph->nodes_count; id++) {
        if (!plan->needed[id]) continue;
        for (uint32_t i = 0; i < node_at(graph, id)->inputs_count; i++) {
            users[node_input(graph, id, i)]++;
        }
    }
    for (uint32_t i = 0; i < fetches_count; i++) users[fetches[i]]++;
    for (uint32_t i = 0; i < graph->params_count; i++) users[graph_param_grad(graph, i)]++;
    for (uint32_t i = 0; i < graph->tables_count; i++) users[graph_table_grad(graph, i)]++;
}

/* A gradient that is computed by rows from values that are not parameters, and that nobody else
 * reads, is computed and delivered in one go. Keeps invariant (3) of graph/exec.h. */
static bool is_deliverable(const struct plan *plan, const uint32_t *users, graph_id id)
{
    const struct graph *graph = plan->graph;
    const struct node *node = node_at(graph, id);
    if (users[id] > 1) return false;
    if (node->op != OP_MATMUL_TN && node->op != OP_COL_SUMS && node->op != OP_SUM_CHUNKS) {
        return false;
    }
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        uint32_t col = 0;
        const graph_id root = plan_root(plan, node_input(graph, id, i), &col);
        if (node_at(graph, root)->op == OP_PARAM) return false;
    }
    return true;
}

static void add_task(struct plan *plan, enum plan_final kind, uint32_t variable, graph_id node,
                     bool *is_final)
{
    is_final[node] = kind == FINAL_COMPUTE || kind == FINAL_SPARSE;
    plan->tasks[plan->tasks_count++] =
        (struct plan_task){.kind = kind, .variable = variable, .node = node};
}

static void add_tasks(struct plan *plan, const uint32_t *users, bool *is_final)
{
    const struct graph *graph = plan->graph;
    for (uint32_t param = 0; param < graph->params_count; param++) {
        const graph_id grad = graph_param_grad(graph, param);
        if (grad == GRAPH_NONE) continue;
        const bool compute = is_deliverable(plan, users, grad);
        add_task(plan, compute ? FINAL_COMPUTE : FINAL_DELIVER, param, grad, is_final);
    }
    for (uint32_t table = 0; table < graph->tables_count; table++) {
        const graph_id grad = graph_table_grad(graph, table);
        if (grad == GRAPH_NONE) continue;
        const bool sum = users[grad] == 1 && node_at(graph, grad)->op == OP_SPARSE_SUM;
        add_task(plan, sum ? FINAL_SPARSE : FINAL_CHECK, table, grad, is_final);
    }
}

/* ---- stages ---- */

/* A node that is not run is there when its inputs are; a view, when what it shows is. */
static bool is_ready(const struct plan *plan, const bool *done, graph_id id)
{
    const struct node *node = node_at(plan->graph, id);
    const uint32_t count = is_view(plan, id) ? 1 : node->inputs_count;
    for (uint32_t i = 0; i < count; i++) {
        if (!done[node_input(plan->graph, id, i)]) return false;
    }
    return true;
}

/* Adds what can run now to a new stage; row nodes may follow each other in it, tile nodes may not.
 * Returns whether there was any. */
static int add_stage(struct plan *plan, bool rows, bool *done, const bool *is_final, bool *any_out)
{
    const struct graph *graph = plan->graph;
    const uint32_t first = plan->order_count;
    for (graph_id id = 1; id <= graph->nodes_count; id++) {
        if (done[id] || !plan->needed[id] || is_final[id] || !is_ready(plan, done, id)) continue;
        if (!is_run(plan, id)) {
            done[id] = true;
        } else if (is_rows(plan, id) == rows) {
            plan->order[plan->order_count++] = id;
            done[id] = rows;
        }
    }
    for (uint32_t i = first; i < plan->order_count; i++) done[plan->order[i]] = true;
    *any_out = plan->order_count > first;
    if (!*any_out) return 0;
    if (mem_grow(MEM_GRAPH, (void **)&plan->stages, &plan->stages_capacity,
                 (size_t)plan->stages_count + 1, sizeof *plan->stages) != 0) {
        return SHOAL_ENOMEM;
    }
    plan->stages[plan->stages_count++] =
        (struct plan_stage){.rows = rows, .first = first, .count = plan->order_count - first};
    return 0;
}

static int add_stages(struct plan *plan, bool *done, const bool *is_final)
{
    bool rows_any = true;
    bool tiles_any = true;
    while (rows_any || tiles_any) {
        int rc = add_stage(plan, true, done, is_final, &rows_any);
        if (rc == 0) rc = add_stage(plan, false, done, is_final, &tiles_any);
        if (rc != 0) return rc;
    }
    for (graph_id id = 1; id <= plan->graph->nodes_count; id++) {
        ASSERT(!plan->needed[id] || done[id] || is_final[id]);
    }
    return 0;
}

/* ---- memory ---- */

graph_id plan_root(const struct plan *plan, graph_id id, uint32_t *col)
{
    while (plan->parent[id] != GRAPH_NONE) {
        *col += plan->col[id];
        id = plan->parent[id];
    }
    return id;
}

/* Slices lie in what they are sliced from; inputs of a concat are written into it directly unless
 * they are leaves, views, or in another one already. */
static void set_parents(struct plan *plan)
{
    const struct graph *graph = plan->graph;
    for (graph_id id = 1; id <= graph->nodes_count; id++) {
        const struct node *node = node_at(graph, id);
        if (!plan->needed[id]) continue;
        if (is_view(plan, id)) {
            plan->parent[id] = node_input(graph, id, 0);
            plan->col[id] = node->op == OP_SLICE ? node->attrs[0] : 0;
        }
        if (node->op != OP_CONCAT) continue;
        uint32_t col = 0;
        for (uint32_t i = 0; i < node->inputs_count; i++) {
            const graph_id input = node_input(graph, id, i);
            const bool writes = is_run(plan, input) || node_at(graph, input)->op == OP_OUTPUT;
            if (writes && plan->parent[input] == GRAPH_NONE) {
                plan->parent[input] = id;
                plan->col[input] = col;
            }
            col += node_at(graph, input)->shape.cols;
        }
    }
}

/* Rows that are a multiple of 4 KB apart would fall into the same few cache sets. */
static uint32_t stride_of(struct graph_shape shape)
{
    if (shape.rows == GRAPH_FIXED) return shape.of * shape.cols;
    if (shape.cols <= 8) return shape.cols;
    const uint32_t stride = (shape.cols + 15) / 16 * 16;
    return stride % 256 == 0 ? stride + 16 : stride;
}

static int find_group(struct plan *plan, struct graph_shape shape, uint32_t *group_out)
{
    const uint32_t of = shape.rows == GRAPH_FIXED ? 0 : shape.of;
    for (uint32_t i = 0; i < plan->groups_count; i++) {
        if (plan->groups[i].rows == shape.rows && plan->groups[i].of == of) {
            *group_out = i;
            return 0;
        }
    }
    if (mem_grow(MEM_GRAPH, (void **)&plan->groups, &plan->groups_capacity,
                 (size_t)plan->groups_count + 1, sizeof *plan->groups) != 0) {
        return SHOAL_ENOMEM;
    }
    *group_out = plan->groups_count;
    plan->groups[plan->groups_count++] = (struct plan_group){.rows = shape.rows, .of = of};
    return 0;
}

/* Keeps (2) for values that are not laid out by rows. */
static bool lies_alone(const struct graph *graph, graph_id id)
{
    const struct node *node = node_at(graph, id);
    return node->op == OP_OUTPUT &&
           op_of(node_at(graph, node_input(graph, id, 0))->op)->extras_alone;
}

/* A free slot of the size of a node, or a new one. */
static int take_slot(struct plan *plan, graph_id id, uint32_t from, uint32_t until)
{
    const struct graph_shape shape = node_at(plan->graph, id)->shape;
    const bool alone = lies_alone(plan->graph, id);
    uint32_t *slot_out = &plan->slot[id];
    uint32_t group = 0;
    if (find_group(plan, shape, &group) != 0) return SHOAL_ENOMEM;
    const uint32_t stride = stride_of(shape);
    if (alone) until = FOREVER;
    for (uint32_t i = 0; i < plan->slots_count && !alone; i++) {
        struct plan_slot *slot = &plan->slots[i];
        if (slot->group == group && slot->stride == stride && slot->free_from <= from) {
            slot->free_from = until;
            *slot_out = i;
            return 0;
        }
    }
    if (mem_grow(MEM_GRAPH, (void **)&plan->slots, &plan->slots_capacity,
                 (size_t)plan->slots_count + 1, sizeof *plan->slots) != 0) {
        return SHOAL_ENOMEM;
    }
    struct plan_group *owner = &plan->groups[group];
    *slot_out = plan->slots_count;
    plan->slots[plan->slots_count++] = (struct plan_slot){
        .group = group, .stride = stride, .free_from = until, .offset = owner->floats};
    /* Slots of fixed size start on a cache line; the others do since row counts are rounded up. */
    owner->floats += shape.rows == GRAPH_FIXED ? (stride + 15) / 16 * 16 : stride;
    return 0;
}

struct lives { /* by node, in places of the order; only roots count */
    uint32_t *from;
    uint32_t *until; /* one past the place of the last read */
    uint32_t *place;
};

static void extend(const struct plan *plan, struct lives *lives, graph_id id, uint32_t from,
                   uint32_t until)
{
    uint32_t col = 0;
    const graph_id root = plan_root(plan, id, &col);
    if (from < lives->from[root]) lives->from[root] = from;
    if (until > lives->until[root]) lives->until[root] = until;
}

/* Reads through a view, a sparse description or an extra output count as reads of what they show. */
static void extend_reads(const struct plan *plan, struct lives *lives, graph_id id, uint32_t until)
{
    const struct graph *graph = plan->graph;
    const struct node *node = node_at(graph, id);
    for (uint32_t i = 0; i < node->inputs_count; i++) {
        const graph_id input = node_input(graph, id, i);
        extend(plan, lives, input, FOREVER, until);
        if (node_at(graph, input)->op == OP_SPARSE) {
            extend(plan, lives, node_input(graph, input, 0), FOREVER, until);
        }
    }
}

static void find_lives(const struct plan *plan, struct lives *lives, const bool *is_final,
                       const graph_id *fetches, uint32_t fetches_count)
{
    const struct graph *graph = plan->graph;
    memset(lives->from, 0xff, ((size_t)graph->nodes_count + 1) * sizeof *lives->from);
    for (uint32_t s = 0; s < plan->stages_count; s++) {
        const struct plan_stage *stage = &plan->stages[s];
        for (uint32_t i = stage->first; i < stage->first + stage->count; i++) {
            const graph_id id = plan->order[i];
            /* Nodes of a tile stage run at the same time: they live through all of it. */
            const uint32_t from = stage->rows ? i : stage->first;
            const uint32_t until = stage->rows ? i + 1 : stage->first + stage->count;
            lives->place[id] = from;
            extend(plan, lives, id, from, until);
            extend_reads(plan, lives, id, until);
            for (uint32_t n = 0; n < OP_EXTRAS_MAX; n++) {
                const graph_id extra = plan->extras[id * OP_EXTRAS_MAX + n];
                if (extra != GRAPH_NONE) extend(plan, lives, extra, from, until);
            }
        }
    }
    for (graph_id id = 1; id <= graph->nodes_count; id++) {
        if (plan->needed[id] && is_final[id]) {
            extend(plan, lives, id, plan->order_count, FOREVER);
            extend_reads(plan, lives, id, FOREVER);
        }
    }
    for (uint32_t i = 0; i < plan->tasks_count; i++) {
        extend(plan, lives, plan->tasks[i].node, FOREVER, FOREVER);
    }
    for (uint32_t i = 0; i < fetches_count; i++) {
        extend(plan, lives, fetches[i], FOREVER, FOREVER);
    }
}

/* The output of an op that allows it takes over its first input's slot when this is the last read. */
static bool take_over(struct plan *plan, const struct lives *lives, graph_id id)
{
    const struct graph *graph = plan->graph;
    const struct node *node = node_at(graph, id);
    if (!op_of(node->op)->in_place || !is_rows(plan, id)) return false;
    const graph_id input = node_input(graph, id, 0);
    if (plan->parent[input] != GRAPH_NONE || plan->slot[input] == PLAN_NO_SLOT) return false;
    if (!shape_equal(node_at(graph, input)->shape, node->shape)) return false;
    if (lives->until[input] != lives->place[id] + 1) return false;
    for (uint32_t i = 1; i < node->inputs_count; i++) {
        uint32_t col = 0;
        if (plan_root(plan, node_input(graph, id, i), &col) == input) return false;
    }
    plan->slot[id] = plan->slot[input];
    plan->slots[plan->slot[id]].free_from = lives->until[id];
    return true;
}

/* Gives every root that is written a slot, in the order of their first writes. */
static int assign_slots(struct plan *plan, const struct lives *lives, const bool *computed_at_end)
{
    const struct graph *graph = plan->graph;
    for (uint32_t place = 0; place <= plan->order_count; place++) {
        for (graph_id id = 1; id <= graph->nodes_count; id++) {
            if (lives->from[id] != place || plan->parent[id] != GRAPH_NONE || !plan->needed[id] ||
                plan_is_leaf(graph, id) || computed_at_end[id]) {
                continue;
            }
            if (lives->place[id] == place && is_run(plan, id) && take_over(plan, lives, id)) {
                continue;
            }
            if (take_slot(plan, id, place, lives->until[id]) != 0) return SHOAL_ENOMEM;
        }
    }
    return 0;
}

/* ---- putting it together ---- */

struct scratch { /* of the planner itself; by node */
    uint32_t *users;
    bool *done;
    bool *is_final;
    bool *computed_at_end; /* never stored: delivered block by block */
    struct lives lives;
};

static void scratch_fini(struct scratch *scratch)
{
    mem_free(scratch->users);
    mem_free(scratch->done);
    mem_free(scratch->is_final);
    mem_free(scratch->computed_at_end);
    mem_free(scratch->lives.from);
    mem_free(scratch->lives.until);
    mem_free(scratch->lives.place);
}

static bool scratch_init(struct scratch *scratch, size_t nodes)
{
    *scratch = (struct scratch){0};
    scratch->users = mem_alloc_array(MEM_GRAPH, nodes, sizeof *scratch->users);
    scratch->done = mem_alloc_array(MEM_GRAPH, nodes, sizeof *scratch->done);
    scratch->is_final = mem_alloc_array(MEM_GRAPH, nodes, sizeof *scratch->is_final);
    scratch->computed_at_end = mem_alloc_array(MEM_GRAPH, nodes, sizeof(bool));
    scratch->lives.from = mem_alloc_array(MEM_GRAPH, nodes, sizeof *scratch->lives.from);
    scratch->lives.until = mem_alloc_array(MEM_GRAPH, nodes, sizeof *scratch->lives.until);
    scratch->lives.place = mem_alloc_array(MEM_GRAPH, nodes, sizeof *scratch->lives.place);
    return scratch->users != NULL && scratch->done != NULL && scratch->is_final != NULL &&
           scratch->computed_at_end != NULL && scratch->lives.from != NULL &&
           scratch->lives.until != NULL && scratch->lives.place != NULL;
}

static bool plan_alloc(struct plan *plan, size_t nodes)
{
    const struct graph *graph = plan->graph;
    plan->needed = mem_alloc_array(MEM_GRAPH, nodes, sizeof *plan->needed);
    plan->parent = mem_alloc_array(MEM_GRAPH, nodes, sizeof *plan->parent);
    plan->col = mem_alloc_array(MEM_GRAPH, nodes, sizeof *plan->col);
    plan->slot = mem_alloc_array(MEM_GRAPH, nodes, sizeof *plan->slot);
    plan->extras = mem_alloc_array(MEM_GRAPH, nodes * OP_EXTRAS_MAX, sizeof *plan->extras);
    plan->order = mem_alloc_array(MEM_GRAPH, nodes, sizeof *plan->order);
    plan->tasks = mem_alloc_array(MEM_GRAPH, (size_t)graph->params_count + graph->tables_count + 1,
                                  sizeof *plan->tasks);
    return plan->needed != NULL && plan->parent != NULL && plan->col != NULL &&
           plan->slot != NULL && plan->extras != NULL && plan->order != NULL && plan->tasks != NULL;
}

static int build(struct plan *plan, struct scratch *scratch, const graph_id *fetches,
                 uint32_t fetches_count)
{
    const struct graph *graph = plan->graph;
    memset(plan->slot, 0xff, ((size_t)graph->nodes_count + 1) * sizeof *plan->slot);
    for (uint32_t i = 0; i < fetches_count; i++) plan->needed[fetches[i]] = true;
    if (plan->train) {
        plan->needed[graph->loss] = true;
        for (uint32_t i = 0; i < graph->params_count; i++) {
            plan->needed[graph_param_grad(graph, i)] = true;
        }
        for (uint32_t i = 0; i < graph->tables_count; i++) {
            plan->needed[graph_table_grad(graph, i)] = true;
        }
        plan->needed[GRAPH_NONE] = false;
    }
    mark_needed(plan);
    set_parents(plan);
    if (plan->train) {
        count_users(plan, fetches, fetches_count, scratch->users);
        add_tasks(plan, scratch->users, scratch->is_final);
    }
    if (add_stages(plan, scratch->done, scratch->is_final) != 0) return SHOAL_ENOMEM;
    find_lives(plan, &scratch->lives, scratch->is_final, fetches, fetches_count);
    if (plan->train) extend(plan, &scratch->lives, graph->loss, FOREVER, FOREVER);
    for (uint32_t i = 0; i < plan->tasks_count; i++) {
        const struct plan_task *task = &plan->tasks[i];
        scratch->computed_at_end[task->node] = task->kind == FINAL_COMPUTE;
    }
    return assign_slots(plan, &scratch->lives, scratch->computed_at_end);
}

int plan_init(struct plan *plan, const struct graph *graph, bool train, const graph_id *fetches,
              uint32_t fetches_count, struct err *err)
{
    *plan = (struct plan){.graph = graph, .train = train};
    if (train && graph->loss == GRAPH_NONE) {
        return err_set(err, SHOAL_EINVAL, "training needs a graph that has been differentiated");
    }
    for (uint32_t i = 0; i < fetches_count; i++) {
        const graph_id id = fetches[i];
        if (id == GRAPH_NONE || id > graph->nodes_count || node_at(graph, id)->shape.cols == 0 ||
            node_at(graph, id)->op == OP_SPARSE) {
            return err_set(err, SHOAL_EINVAL, "node %u has no value to fetch", id);
        }
    }
    struct scratch scratch;
    const size_t nodes = (size_t)graph->nodes_count + 1;
    const bool there = scratch_init(&scratch, nodes) && plan_alloc(plan, nodes);
    const int rc = there ? build(plan, &scratch, fetches, fetches_count) : SHOAL_ENOMEM;
    scratch_fini(&scratch);
    if (rc == 0) return 0;
    plan_fini(plan);
    return err_set(err, rc, "no memory to plan a graph of %u nodes", graph->nodes_count);
}

void plan_fini(struct plan *plan)
{
    mem_free(plan->needed);
    mem_free(plan->parent);
    mem_free(plan->col);
    mem_free(plan->slot);
    mem_free(plan->extras);
    mem_free(plan->order);
    mem_free(plan->stages);
    mem_free(plan->tasks);
    mem_free(plan->slots);
    mem_free(plan->groups);
    *plan = (struct plan){0};
}
