/* exec_plan decides, once per executor, what is computed, in which order, and where it lies:
 *
 *   needed   nodes that the loss, the gradients or a fetch depend on
 *   stages   groups of nodes with a barrier between them (graph/exec.h); the last one delivers
 *            gradients, so that nothing reads a parameter after it
 *   slots    memory by kind of rows; a slot is used again when its value is read no more
 *
 * Views: a slice lies inside its input, an input of concat inside the concat, dropout outside
 * training is its input. `parent` and `col` say inside what; roots have a slot or are leaves.
 *
 * (1) Values in one slot never live at the same time: from the first write of any part of it to the
 *     last read, counted in places of the order; all nodes of a tile stage share one place.
 * (2) Values that share a slot have the same kind of rows and stride, so in a row stage a chunk
 *     touches only its own rows of the slot, whatever other chunks are doing. */
#ifndef SHOAL_GRAPH_EXEC_PLAN_H
#define SHOAL_GRAPH_EXEC_PLAN_H

#include "graph/graph_node.h"

#define PLAN_NO_SLOT UINT32_MAX

struct plan_stage {
    bool rows;
    uint32_t first; /* in order */
    uint32_t count;
};

/* What the last stage does for a parameter or a table. */
enum plan_final {
    FINAL_COMPUTE, /* computes the gradient of a parameter block by block, and delivers */
    FINAL_DELIVER, /* delivers a gradient that is there */
    FINAL_SPARSE,  /* sums the gradient of a table's rows, checking it */
    FINAL_CHECK    /* checks a gradient of a table that is there */
};

struct plan_task {
    enum plan_final kind;
    uint32_t variable; /* parameter or table */
    graph_id node;
};

/* Memory of one kind of rows. */
struct plan_group {
    enum graph_rows rows;
    uint32_t of;
    size_t floats; /* per row, all slots of the group together; fixed: in all */
};

struct plan_slot {
    uint32_t group;
    uint32_t stride; /* fixed: elements in all */
    uint32_t free_from;
    size_t offset; /* in floats per row of the group */
};

struct plan {
    const struct graph *graph;
    bool train;
    bool *needed;
    graph_id *parent; /* GRAPH_NONE: a root */
    uint32_t *col;    /* inside the parent */
    uint32_t *slot;   /* of roots */
    graph_id *extras; /* OP_EXTRAS_MAX per node: wanted output nodes */

    graph_id *order;
    uint32_t order_count;
    struct plan_stage *stages;
    size_t stages_capacity;
    uint32_t stages_count;
    struct plan_task *tasks;
    uint32_t tasks_count;

    struct plan_slot *slots;
    size_t slots_capacity;
    uint32_t slots_count;
    struct plan_group *groups;
    size_t groups_capacity;
    uint32_t groups_count;
};

/* fetches as in exec_opts. */
int plan_init(struct plan *plan, const struct graph *graph, bool train, const graph_id *fetches,
              uint32_t fetches_count, struct err *err);
void plan_fini(struct plan *plan);

/* The root of a node's memory; adds the columns on the way to *col. */
graph_id plan_root(const struct plan *plan, graph_id id, uint32_t *col);

bool plan_is_leaf(const struct graph *graph, graph_id id);

#endif
