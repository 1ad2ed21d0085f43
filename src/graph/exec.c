#include "graph/exec.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "graph/exec_plan.h"

#define TILE_ROWS 1024u         /* rows of one part of a tile stage, where an op has no wish */
#define DELIVER_ELEMENTS 16384u /* of a gradient that is there already */

struct arena { /* memory of one plan_group */
    float *floats;
    size_t bytes;
    uint32_t rows_capacity;
};

/* What the parts of a stage are: those of item 0, then those of item 1, ... */
struct item {
    struct op_call call;
    const struct plan_task *task; /* of the last stage */
    uint32_t parts_before;
    uint32_t parts;
    uint32_t grain;
};

struct exec {
    struct plan plan;
    const struct graph *graph;
    const struct kern **kerns; /* by device of the graph */
    const struct kern *kern;   /* of the CPU: for what the executor does itself */
    struct team *team;
    uint32_t batch_max;
    uint64_t seed;
    uint32_t dense_needed; /* the batch must have so many of each */
    uint32_t ids_needed;
    uint32_t keys_needed;
    bool needs_label;
    bool needs_batch;

    struct arena *arenas; /* by group */
    struct view *views;   /* by node */
    struct item *items;   /* of the stage that runs */
    uint32_t items_count;
    float **scratch; /* by thread */
    size_t scratch_floats;
    _Atomic bool *bad_params; /* by parameter: its gradient was not finite */
    _Atomic bool *bad_tables;

    /* Of the run that goes on or was last. */
    const struct exec_feed *feed;
    uint32_t rows;
    double weight_total;
};

/* ---- Making ---- */

/* The kernels of a device: the part of its name after "device:", CPU when it has none. Another kind
 * of device is another line here. NULL: none. */
static const struct kern *kern_of(const char *device)
{
    const char *kind = strstr(device, "device:");
    if (kind == NULL || strncmp(kind, "device:CPU", 10) == 0) return kern_default();
    return NULL;
}

static int find_kerns(struct exec *exec, struct err *err)
{
    const struct graph *graph = exec->graph;
    exec->kerns = mem_alloc_array(MEM_GRAPH, graph->devices_count, sizeof *exec->kerns);
    if (exec->kerns == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for an executor");
    for (uint32_t i = 0; i < graph->devices_count; i++) exec->kerns[i] = kern_of(graph->devices[i]);
    for (graph_id id = 1; id <= graph->nodes_count; id++) {
        const uint32_t device = node_at(graph, id)->device;
        if (!exec->plan.needed[id] || exec->kerns[device] != NULL) continue;
        return err_set(err, SHOAL_EINVAL, "%s is on %s, and there are kernels for CPU only",
                       graph_name_of(graph, id), graph->devices[device]);
    }
    return 0;
}

/* What the needed leaves ask of a batch. */
static void find_needs(struct exec *exec)
{
    for (graph_id id = 1; id <= exec->graph->nodes_count; id++) {
        const struct node *node = node_at(exec->graph, id);
        if (!exec->plan.needed[id]) continue;
        uint32_t *count = node->op == OP_NUMERIC ? &exec->dense_needed
                          : node->op == OP_IDS   ? &exec->ids_needed
                                                 : NULL;
        if (count != NULL && node->attrs[0] >= *count) *count = node->attrs[0] + 1;
        if (node->shape.rows == GRAPH_UNIQUE && node->shape.of >= exec->keys_needed) {
            exec->keys_needed = node->shape.of + 1;
        }
        exec->needs_label |= node->op == OP_LABEL;
        exec->needs_batch |= node->shape.rows != GRAPH_FIXED;
    }
}

static size_t scratch_wanted(const struct exec *exec)
{
    size_t floats = 16;
    for (graph_id id = 1; id <= exec->graph->nodes_count; id++) {
        const struct node *node = node_at(exec->graph, id);
        const struct op *op = op_of(node->op);
        if (!exec->plan.needed[id] || op->scratch == NULL) continue;
        const size_t own = op->scratch(exec->graph, node);
        if (own > floats) floats = own;
    }
    return floats;
}

static int grow_scratch(struct exec *exec, size_t floats)
{
    if (floats <= exec->scratch_floats) return 0;
    floats = (floats + 31) / 16 * 16;
    for (uint32_t thread = 0; thread < team_threads(exec->team); thread++) {
        float *fresh = mem_alloc_array(MEM_GRAPH, floats, sizeof *fresh);
        if (fresh == NULL) return SHOAL_ENOMEM;
        mem_free(exec->scratch[thread]);
        exec->scratch[thread] = fresh;
    }
    exec->scratch_floats = floats;
    return 0;
}

static int grow_arena(struct exec *exec, uint32_t group, uint32_t rows)
{
    struct arena *arena = &exec->arenas[group];
    if (rows <= arena->rows_capacity) return 0;
    /* A quarter more, so that batches that differ a little do not each allocate; whole cache lines
     * for any stride. */
    const bool bounded = exec->plan.groups[group].rows != GRAPH_OCCURRENCES &&
                         exec->plan.groups[group].rows != GRAPH_UNIQUE;
    const uint64_t capacity = bounded ? rows : (uint64_t)rows + rows / 4;
    const uint64_t rounded = (capacity + 15) / 16 * 16;
    if (rounded > UINT32_MAX) return SHOAL_ELIMIT;
    float *floats =
        mem_alloc_array(MEM_GRAPH, rounded, exec->plan.groups[group].floats * sizeof *floats);
    if (floats == NULL) return SHOAL_ENOMEM;
    mem_free(arena->floats);
    *arena = (struct arena){.floats = floats,
                            .bytes = rounded * exec->plan.groups[group].floats * sizeof *floats,
                            .rows_capacity = (uint32_t)rounded};
    return 0;
}

static int alloc_all(struct exec *exec)
{
    const struct plan *plan = &exec->plan;
    const struct graph *graph = exec->graph;
    const size_t items = (size_t)graph->nodes_count + 1;
    exec->arenas = mem_alloc_array(MEM_GRAPH, plan->groups_count + 1u, sizeof *exec->arenas);
    exec->views = mem_alloc_array(MEM_GRAPH, items, sizeof *exec->views);
    exec->items = mem_alloc_array(MEM_GRAPH, items + graph->params_count, sizeof *exec->items);
    exec->scratch = mem_alloc_array(MEM_GRAPH, team_threads(exec->team), sizeof *exec->scratch);
    exec->bad_params = mem_alloc_array(MEM_GRAPH, graph->params_count + 1u, sizeof(_Atomic bool));
    exec->bad_tables = mem_alloc_array(MEM_GRAPH, graph->tables_count + 1u, sizeof(_Atomic bool));
    if (exec->arenas == NULL || exec->views == NULL || exec->items == NULL ||
        exec->scratch == NULL || exec->bad_params == NULL || exec->bad_tables == NULL) {
        return SHOAL_ENOMEM;
    }
    if (grow_scratch(exec, scratch_wanted(exec)) != 0) return SHOAL_ENOMEM;
    for (uint32_t group = 0; group < plan->groups_count; group++) {
        const enum graph_rows rows = plan->groups[group].rows;
        const uint32_t count = rows == GRAPH_BATCH    ? exec->batch_max
                               : rows == GRAPH_CHUNKS ? exec->batch_max / EXEC_CHUNK_ROWS + 1
                               : rows == GRAPH_FIXED  ? 1
                                                      : 0;
        if (grow_arena(exec, group, count) != 0) return SHOAL_ENOMEM;
    }
    return 0;
}

int exec_create(const struct exec_opts *opts, struct exec **exec_out, struct err *err)
{
    if (opts->batch_max > DATA_BATCH_MAX) {
        return err_set(err, SHOAL_ELIMIT, "a batch of %u rows, at most %u", opts->batch_max,
                       DATA_BATCH_MAX);
    }
    int rc = graph_check(opts->graph, err);
    if (rc != 0) return rc;
    struct exec *exec = mem_alloc(MEM_GRAPH, sizeof *exec);
    if (exec == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for an executor");
    exec->graph = opts->graph;
    exec->kern = kern_default();
    exec->team = opts->team;
    exec->batch_max = opts->batch_max;
    exec->seed = opts->seed;
    rc = plan_init(&exec->plan, opts->graph, opts->train, opts->fetches, opts->fetches_count, err);
    if (rc == 0) rc = find_kerns(exec, err);
    if (rc == 0) {
        find_needs(exec);
        if (alloc_all(exec) != 0) {
            rc = err_set(err, SHOAL_ENOMEM, "no memory to run a graph of %u nodes on %u rows",
                         opts->graph->nodes_count, opts->batch_max);
        }
    }
    if (rc != 0) {
        exec_destroy(exec);
        return rc;
    }
    *exec_out = exec;
    return 0;
}

void exec_destroy(struct exec *exec)
{
    if (exec == NULL) return;
    for (uint32_t i = 0; exec->arenas != NULL && i < exec->plan.groups_count; i++) {
        mem_free(exec->arenas[i].floats);
    }
    for (uint32_t i = 0; exec->scratch != NULL && i < team_threads(exec->team); i++) {
        mem_free(exec->scratch[i]);
    }
    mem_free(exec->kerns);
    mem_free(exec->arenas);
    mem_free(exec->views);
    mem_free(exec->items);
    mem_free(exec->scratch);
    mem_free((void *)exec->bad_params);
    mem_free((void *)exec->bad_tables);
    plan_fini(&exec->plan);
    mem_free(exec);
}

/* ---- Feeding ---- */

static uint32_t rows_of(const struct exec *exec, enum graph_rows rows, uint32_t of)
{
    const struct batch *batch = exec->feed->batch;
    switch (rows) {
    case GRAPH_FIXED: return of;
    case GRAPH_BATCH: return exec->rows;
    case GRAPH_OCCURRENCES: return batch->ids[of].count;
    case GRAPH_UNIQUE: return batch->tables[of].keys_count;
    default: return (exec->rows + EXEC_CHUNK_ROWS - 1) / EXEC_CHUNK_ROWS;
    }
}

static int check_ids(const struct exec *exec, const struct batch *batch, struct err *err)
{
    for (graph_id id = 1; id <= exec->graph->nodes_count; id++) {
        const struct node *node = node_at(exec->graph, id);
        if (node->op != OP_IDS || !exec->plan.needed[id]) continue;
        const struct batch_ids *ids = &batch->ids[node->attrs[0]];
        const bool single = node->attrs[2] != 0;
        if (single != (ids->offsets == NULL) || (single && ids->count != batch->rows)) {
            return err_set(err, SHOAL_EMISMATCH,
                           "categorical feature %u: the graph expects %s in each row",
                           node->attrs[0], single ? "one value" : "any number of values");
        }
    }
    return 0;
}

static int check_feed(const struct exec *exec, const struct exec_feed *feed, struct err *err)
{
    const struct batch *batch = feed->batch;
    if (exec->graph->receives_count > 0 && feed->received == NULL) {
        return err_set(err, SHOAL_EINVAL, "the graph receives %u values and none were given",
                       exec->graph->receives_count);
    }
    if (exec->plan.train && feed->sink == NULL && feed->grads == NULL) {
        return err_set(err, SHOAL_EINVAL, "training needs a sink or memory for gradients");
    }
    if (batch == NULL) {
        return exec->needs_batch ? err_set(err, SHOAL_EINVAL, "the graph needs a batch") : 0;
    }
    if (batch->rows > exec->batch_max) {
        return err_set(err, SHOAL_EINVAL, "a batch of %u rows, planned for at most %u", batch->rows,
                       exec->batch_max);
    }
    if (batch->dense_count < exec->dense_needed || batch->ids_count < exec->ids_needed ||
        batch->tables_count < exec->keys_needed) {
        return err_set(err, SHOAL_EMISMATCH,
                       "the batch has %u numeric features, %u categorical ones and %u key lists; "
                       "the graph needs %u, %u and %u",
                       batch->dense_count, batch->ids_count, batch->tables_count,
                       exec->dense_needed, exec->ids_needed, exec->keys_needed);
    }
    if (exec->needs_label && batch->label == NULL) {
        return err_set(err, SHOAL_EINVAL, "the graph needs labels and the batch has none");
    }
    return check_ids(exec, batch, err);
}

/* Where a leaf lies in what was fed. The graph only reads leaves. */
static struct view leaf_view(const struct exec *exec, const struct node *node)
{
    const struct exec_feed *feed = exec->feed;
    struct view view = {.stride = node->shape.cols,
                        .rows = rows_of(exec, node->shape.rows, node->shape.of)};
    const float *data = NULL;
    switch (node->op) {
    case OP_PARAM: data = feed->params[node->attrs[0]]; break;
    case OP_TABLE: data = feed->tables[node->attrs[0]]; break;
    case OP_NUMERIC: data = feed->batch->dense[node->attrs[0]]; break;
    case OP_LABEL: data = feed->batch->label; break;
    case OP_WEIGHT: data = feed->batch->weight; break;
    case OP_RECEIVE:
        data = feed->received[node->attrs[0]].values;
        view.stride = feed->received[node->attrs[0]].stride;
        break;
    default: break;
    }
    view.data = (float *)(uintptr_t)data;
    return view;
}

static int check_received(const struct exec *exec, struct err *err)
{
    for (graph_id id = 1; id <= exec->graph->nodes_count; id++) {
        const struct node *node = node_at(exec->graph, id);
        if (node->op != OP_RECEIVE || !exec->plan.needed[id]) continue;
        const struct exec_value *value = &exec->feed->received[node->attrs[0]];
        const uint32_t rows = rows_of(exec, node->shape.rows, node->shape.of);
        if (value->rows != rows || value->cols != node->shape.cols) {
            return err_set(err, SHOAL_EMISMATCH, "received %u x %u values for %s, not %u x %u",
                           value->rows, value->cols, graph_name_of(exec->graph, id), rows,
                           node->shape.cols);
        }
    }
    return 0;
}

static int place_values(struct exec *exec, struct err *err)
{
    const struct plan *plan = &exec->plan;
    for (uint32_t group = 0; group < plan->groups_count; group++) {
        const struct plan_group *kind = &plan->groups[group];
        const uint32_t rows = kind->rows == GRAPH_FIXED ? 1 : rows_of(exec, kind->rows, kind->of);
        const int rc = grow_arena(exec, group, rows);
        if (rc != 0) return err_set(err, rc, "no memory for %u rows", rows);
    }
    for (graph_id id = 1; id <= exec->graph->nodes_count; id++) {
        if (!plan->needed[id]) continue;
        uint32_t col = 0;
        const graph_id root = plan_root(plan, id, &col);
        const struct node *node = node_at(exec->graph, root);
        if (plan_is_leaf(exec->graph, root)) {
            exec->views[id] = leaf_view(exec, node);
            if (col > 0) exec->views[id].data += col;
        } else if (plan->slot[root] != PLAN_NO_SLOT) {
            const struct plan_slot *slot = &plan->slots[plan->slot[root]];
            const struct arena *arena = &exec->arenas[slot->group];
            const bool fixed = node->shape.rows == GRAPH_FIXED;
            exec->views[id] = (struct view){
                .data = arena->floats + slot->offset * (fixed ? 1 : arena->rows_capacity) + col,
                .stride = fixed ? node->shape.cols : slot->stride,
                .rows = rows_of(exec, node->shape.rows, node->shape.of)};
        }
    }
    return 0;
}

/* In double and in order: one sum, the same on any team. */
static double weights_sum(const struct exec_feed *feed)
{
    if (feed->weight_total > 0.0 || feed->batch == NULL) return feed->weight_total;
    if (feed->batch->weight == NULL) return feed->batch->rows;
    double sum = 0.0;
    for (uint32_t row = 0; row < feed->batch->rows; row++) sum += (double)feed->batch->weight[row];
    return sum;
}

/* ---- Running ---- */

static struct op_call make_call(const struct exec *exec, graph_id id)
{
    const struct node *node = node_at(exec->graph, id);
    const struct view *view = &exec->views[id];
    return (struct op_call){.graph = exec->graph,
                            .node = node,
                            .inputs = &exec->graph->inputs[node->inputs_first],
                            .views = exec->views,
                            .out = view->data,
                            .stride = view->stride,
                            .last = rows_of(exec, node->shape.rows, node->shape.of),
                            .extras = &exec->plan.extras[id * OP_EXTRAS_MAX],
                            .feed = exec->feed,
                            .kern = exec->kerns[node->device],
                            .seed = exec->seed,
                            .weight_total = exec->weight_total};
}

static void run_chunk(void *ctx, uint32_t part, uint32_t thread)
{
    struct exec *exec = ctx;
    const uint32_t row_first = part * EXEC_CHUNK_ROWS;
    const uint32_t row_last =
        exec->rows - row_first < EXEC_CHUNK_ROWS ? exec->rows : row_first + EXEC_CHUNK_ROWS;
    for (uint32_t i = 0; i < exec->items_count; i++) {
        struct op_call call = exec->items[i].call;
        const struct graph_shape shape = call.node->shape;
        if (shape.rows == GRAPH_OCCURRENCES) {
            const uint32_t *offsets = exec->feed->batch->ids[shape.of].offsets;
            call.first = offsets[row_first];
            call.last = offsets[row_last];
        } else {
            call.first = shape.rows == GRAPH_CHUNKS ? part : row_first;
            call.last = shape.rows == GRAPH_CHUNKS ? part + 1 : row_last;
        }
        call.row_first = row_first;
        call.row_last = row_last;
        call.chunk = part;
        call.out += call.first * call.stride;
        call.scratch = exec->scratch[thread];
        op_of(call.node->op)->run(&call);
    }
}

static uint32_t find_item(const struct exec *exec, uint32_t part)
{
    uint32_t low = 0;
    uint32_t high = exec->items_count - 1;
    while (low < high) { /* the last item that begins at or before the part */
        const uint32_t middle = (low + high + 1) / 2;
        if (exec->items[middle].parts_before <= part) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static void deliver(struct exec *exec, uint32_t param, size_t first, size_t count,
                    const float *grad, uint32_t thread)
{
    const struct exec_feed *feed = exec->feed;
    if (!exec->kern->is_finite(count, grad)) {
        atomic_store_explicit(&exec->bad_params[param], true, memory_order_relaxed);
        return;
    }
    if (feed->sink != NULL) {
        feed->sink(feed->sink_ctx, param, first, count, grad, thread);
    } else if (feed->add) {
        float *sum = feed->grads[param] + first;
        exec->kern->add(count, sum, grad, sum);
    } else if (grad != feed->grads[param] + first) {
        memcpy(feed->grads[param] + first, grad, count * sizeof *grad);
    }
}

/* A block of rows of a gradient: computed where it is wanted, or in this thread's scratch. */
static void compute_block(struct exec *exec, const struct item *item, struct op_call *call,
                          uint32_t thread)
{
    const struct exec_feed *feed = exec->feed;
    const uint32_t param = item->task->variable;
    const size_t cols = call->node->shape.cols;
    const size_t first = call->first * cols;
    const bool direct = feed->sink == NULL && !feed->add;
    call->out = direct ? feed->grads[param] + first : exec->scratch[thread];
    call->stride = cols;
    op_of(call->node->op)->run(call);
    deliver(exec, param, first, (call->last - call->first) * cols, call->out, thread);
}

static void check_rows(struct exec *exec, const struct item *item, const struct op_call *call)
{
    const size_t cols = call->node->shape.cols;
    for (uint32_t row = call->first; row < call->last; row++) {
        if (exec->kern->is_finite(cols, call->out + row * call->stride)) continue;
        atomic_store_explicit(&exec->bad_tables[item->task->variable], true, memory_order_relaxed);
        return;
    }
}

static void run_tile(void *ctx, uint32_t part, uint32_t thread)
{
    struct exec *exec = ctx;
    const struct item *item = &exec->items[find_item(exec, part)];
    struct op_call call = item->call;
    const struct op *op = op_of(call.node->op);
    const uint32_t own = part - item->parts_before;
    call.scratch = exec->scratch[thread];
    if (item->task != NULL && item->task->kind == FINAL_DELIVER) {
        const size_t elements = (size_t)call.last * call.node->shape.cols;
        const size_t first = (size_t)own * DELIVER_ELEMENTS;
        const size_t count =
            elements - first < DELIVER_ELEMENTS ? elements - first : DELIVER_ELEMENTS;
        deliver(exec, item->task->variable, first, count, call.out + first, thread);
        return;
    }
    if (item->grain == 0) {
        op->part(&call, own);
        return;
    }
    call.first = own * item->grain;
    if (call.last - call.first > item->grain) call.last = call.first + item->grain;
    if (item->task != NULL && item->task->kind == FINAL_CHECK) {
        check_rows(exec, item, &call);
    } else if (item->task != NULL) {
        compute_block(exec, item, &call, thread);
    } else {
        call.out += call.first * call.stride;
        op->run(&call);
    }
}

/* How an item is cut: by its own rule (grain 0), or every `grain` rows. */
static void cut_item(struct item *item)
{
    const struct op *op = op_of(item->call.node->op);
    const enum plan_final kind = item->task == NULL ? FINAL_SPARSE : item->task->kind;
    item->grain = TILE_ROWS;
    if (kind == FINAL_DELIVER) {
        const uint64_t elements = (uint64_t)item->call.last * item->call.node->shape.cols;
        item->parts = (uint32_t)((elements + DELIVER_ELEMENTS - 1) / DELIVER_ELEMENTS);
        return;
    }
    if (kind == FINAL_SPARSE && op->parts != NULL) {
        item->grain = 0;
        item->parts = op->parts(&item->call);
        return;
    }
    if (kind != FINAL_CHECK && op->grain != NULL) item->grain = op->grain(&item->call);
    item->parts = (item->call.last + item->grain - 1) / item->grain;
}

static uint32_t cut_items(struct exec *exec)
{
    uint32_t parts = 0;
    for (uint32_t i = 0; i < exec->items_count; i++) {
        struct item *item = &exec->items[i];
        cut_item(item);
        item->parts_before = parts;
        parts += item->parts;
    }
    return parts;
}

static void run_stage(struct exec *exec, const struct plan_stage *stage)
{
    exec->items_count = stage->count;
    for (uint32_t i = 0; i < stage->count; i++) {
        exec->items[i] = (struct item){.call = make_call(exec, exec->plan.order[stage->first + i])};
    }
    if (stage->rows) {
        team_run(exec->team, rows_of(exec, GRAPH_CHUNKS, 0), run_chunk, exec);
    } else {
        team_run(exec->team, cut_items(exec), run_tile, exec);
    }
}

/* The last stage: gradients leave. */
static int run_tasks(struct exec *exec, struct err *err)
{
    const struct plan *plan = &exec->plan;
    size_t block_floats = 0;
    exec->items_count = plan->tasks_count;
    for (uint32_t i = 0; i < plan->tasks_count; i++) {
        const struct plan_task *task = &plan->tasks[i];
        struct item *item = &exec->items[i];
        *item = (struct item){.call = make_call(exec, task->node), .task = task};
        if (task->kind == FINAL_SPARSE) item->call.not_finite = &exec->bad_tables[task->variable];
    }
    const uint32_t parts = cut_items(exec);
    for (uint32_t i = 0; i < plan->tasks_count; i++) {
        const struct item *item = &exec->items[i];
        if (item->task->kind != FINAL_COMPUTE) continue;
        const uint32_t rows = item->grain < item->call.last ? item->grain : item->call.last;
        const size_t floats = (size_t)rows * item->call.node->shape.cols;
        if (floats > block_floats) block_floats = floats;
    }
    if (grow_scratch(exec, block_floats) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for a block of %zu gradients", block_floats);
    }
    team_run(exec->team, parts, run_tile, exec);
    return 0;
}

/* ---- What is not finite ---- */

static bool view_is_finite(const struct exec *exec, graph_id id)
{
    const struct view *view = &exec->views[id];
    const size_t cols = node_at(exec->graph, id)->shape.cols;
    for (uint32_t row = 0; row < view->rows; row++) {
        if (!exec->kern->is_finite(cols, view_row(view, row))) return false;
    }
    return true;
}

/* The first thing fed that is not finite, as " (... holds ...)": the likely cause. */
static const char *find_cause(const struct exec *exec, char text[GRAPH_NAME_BYTES_MAX + 64])
{
    text[0] = '\0';
    for (graph_id id = 1; id <= exec->graph->nodes_count; id++) {
        const enum op_code op = node_at(exec->graph, id)->op;
        if (!exec->plan.needed[id] || op == OP_IDS || !plan_is_leaf(exec->graph, id) ||
            exec->views[id].data == NULL || view_is_finite(exec, id)) {
            continue;
        }
        snprintf(text, GRAPH_NAME_BYTES_MAX + 64, " (%s%s holds a value that is not finite)",
                 op == OP_NUMERIC ? "a feature: " : "", graph_name_of(exec->graph, id));
        break;
    }
    return text;
}

static int report_loss(const struct exec *exec, struct err *err)
{
    char cause[GRAPH_NAME_BYTES_MAX + 64];
    return err_set(err, SHOAL_ENAN, "the loss is not finite: %g%s", exec_loss(exec),
                   find_cause(exec, cause));
}

static int report_gradients(const struct exec *exec, struct err *err)
{
    const struct graph *graph = exec->graph;
    const char *name = NULL;
    for (uint32_t i = graph->tables_count; i-- > 0;) {
        if (exec->bad_tables[i]) name = graph->tables[i].name;
    }
    for (uint32_t i = graph->params_count; i-- > 0;) {
        if (exec->bad_params[i]) name = graph->params[i].name;
    }
    if (name == NULL) return 0;
    char cause[GRAPH_NAME_BYTES_MAX + 64];
    return err_set(err, SHOAL_ENAN, "the gradient of %s is not finite%s", name,
                   find_cause(exec, cause));
}

int exec_run(struct exec *exec, const struct exec_feed *feed, struct err *err)
{
    int rc = check_feed(exec, feed, err);
    if (rc != 0) return rc;
    exec->feed = feed;
    exec->rows = feed->batch == NULL ? 0 : feed->batch->rows;
    exec->weight_total = weights_sum(feed);
    rc = check_received(exec, err);
    if (rc == 0) rc = place_values(exec, err);
    if (rc != 0) return rc;
    for (uint32_t i = 0; i < exec->plan.stages_count; i++) run_stage(exec, &exec->plan.stages[i]);
    if (!exec->plan.train) return 0;

    if (!isfinite(exec_loss(exec))) return report_loss(exec, err);
    for (uint32_t i = 0; i < exec->graph->params_count; i++) exec->bad_params[i] = false;
    for (uint32_t i = 0; i < exec->graph->tables_count; i++) exec->bad_tables[i] = false;
    rc = run_tasks(exec, err);
    return rc != 0 ? rc : report_gradients(exec, err);
}

/* ---- Looking ---- */

struct exec_value exec_value(const struct exec *exec, graph_id node)
{
    ASSERT(node != GRAPH_NONE);
    ASSERT(node <= exec->graph->nodes_count);
    const struct view *view = &exec->views[node];
    return (struct exec_value){.values = view->data,
                               .rows = view->rows,
                               .cols = node_at(exec->graph, node)->shape.cols,
                               .stride = (uint32_t)view->stride};
}

double exec_loss(const struct exec *exec)
{
    const graph_id loss = exec->graph->loss;
    return loss == GRAPH_NONE || exec->views[loss].data == NULL ? NAN
                                                                : (double)*exec->views[loss].data;
}

struct exec_value exec_table_grad(const struct exec *exec, uint32_t table)
{
    const graph_id grad = graph_table_grad(exec->graph, table);
    if (grad == GRAPH_NONE || !exec->plan.train) return (struct exec_value){0};
    return exec_value(exec, grad);
}

double exec_flops(const struct exec *exec, uint32_t rows, double per_row)
{
    const struct flops_at at = {.rows = rows, .occurrences = rows * per_row};
    double flops = 0.0;
    for (graph_id id = 1; id <= exec->graph->nodes_count; id++) {
        const struct node *node = node_at(exec->graph, id);
        const struct op *op = op_of(node->op);
        if (!exec->plan.needed[id] || op->run == NULL) continue;
        flops += op->flops != NULL ? op->flops(exec->graph, node, &at)
                                   : shape_rows_at(node->shape, &at) * node->shape.cols;
    }
    return flops;
}

size_t exec_bytes(const struct exec *exec)
{
    size_t bytes = team_threads(exec->team) * exec->scratch_floats * sizeof(float);
    for (uint32_t i = 0; i < exec->plan.groups_count; i++) bytes += exec->arenas[i].bytes;
    return bytes;
}
