/* graph_node is the inside of a graph, for this layer alone: nodes, and the table of operations.
 * An operation is a `struct op`: how its shape follows from its inputs, which nodes compute its
 * gradient, and how rows of it are computed. Adding one means: a line in OP_LIST, a struct op in
 * the op_*.c of its family, a builder in graph.c, a case in graph_grad_test.c. */
#ifndef SHOAL_GRAPH_NODE_H
#define SHOAL_GRAPH_NODE_H

#include "graph/exec.h"
#include "graph/graph.h"
#include "tensor/kern.h"

/* The order is part of the byte format: append, never move. */
#define OP_LIST(X)                                                                                 \
    X(PARAM, param)                                                                                \
    X(TABLE, table)                                                                                \
    X(IDS, ids)                                                                                    \
    X(NUMERIC, numeric)                                                                            \
    X(LABEL, label)                                                                                \
    X(WEIGHT, weight)                                                                              \
    X(RECEIVE, receive)                                                                            \
    X(CONSTANT, constant)                                                                          \
    X(SEND, send)                                                                                  \
    X(OUTPUT, output)                                                                              \
    X(GATHER, gather)                                                                              \
    X(POOL, pool)                                                                                  \
    X(POOL_GRAD, pool_grad)                                                                        \
    X(SPARSE, sparse)                                                                              \
    X(SPARSE_SUM, sparse_sum)                                                                      \
    X(ATTENTION, attention)                                                                        \
    X(ATTENTION_GRAD, attention_grad)                                                              \
    X(ATTENTION_INPUT, attention_input)                                                            \
    X(ATTENTION_INPUT_GRAD, attention_input_grad)                                                  \
    X(ATTENTION_POOL, attention_pool)                                                              \
    X(ATTENTION_POOL_GRAD, attention_pool_grad)                                                    \
    X(DENSE, dense)                                                                                \
    X(MATMUL_NT, matmul_nt)                                                                        \
    X(MATMUL_TN, matmul_tn)                                                                        \
    X(COL_SUMS, col_sums)                                                                          \
    X(ACT, act)                                                                                    \
    X(ACT_GRAD, act_grad)                                                                          \
    X(ADD, add)                                                                                    \
    X(SUB, sub)                                                                                    \
    X(MUL, mul)                                                                                    \
    X(ADD_N, add_n)                                                                                \
    X(SCALE, scale)                                                                                \
    X(CONCAT, concat)                                                                              \
    X(SLICE, slice)                                                                                \
    X(PAD, pad)                                                                                    \
    X(DROPOUT, dropout)                                                                            \
    X(DROPOUT_GRAD, dropout_grad)                                                                  \
    X(SUM, sum)                                                                                    \
    X(SPREAD, spread)                                                                              \
    X(FM, fm)                                                                                      \
    X(FM_GRAD, fm_grad)                                                                            \
    X(DOTS, dots)                                                                                  \
    X(DOTS_GRAD, dots_grad)                                                                        \
    X(LOSS, loss)                                                                                  \
    X(LOSS_SUM, loss_sum)                                                                          \
    X(L2, l2)                                                                                      \
    X(SOFTMAX, softmax)                                                                            \
    X(SOFTMAX_GRAD, softmax_grad)                                                                  \
    X(SUM_CHUNKS, sum_chunks)

enum op_code {
    OP_NONE,
#define X(code, name) OP_##code,
    OP_LIST(X)
#undef X
        OP_COUNT
};

/* What attributes mean is said with each op. */
struct node {
    enum op_code op;
    struct graph_shape shape;
    uint32_t inputs_first; /* in graph->inputs */
    uint32_t inputs_count;
    uint32_t attrs[3];
    float number;
    uint32_t device; /* in graph->devices */
    char *name;      /* NULL: op and number */
};

struct graph {
    struct node *nodes; /* nodes[0] is not used */
    size_t nodes_capacity;
    uint32_t nodes_count; /* without nodes[0] */
    graph_id *inputs;
    size_t inputs_capacity;
    uint32_t inputs_count;
    char **devices;
    size_t devices_capacity;
    uint32_t devices_count;
    uint32_t device; /* of nodes added from now on */
    char *scope;

    struct graph_variable *params;
    size_t params_capacity;
    uint32_t params_count;
    struct graph_variable *tables;
    size_t tables_capacity;
    uint32_t tables_count;
    uint32_t receives_count;

    graph_id loss;
    graph_id *param_grads; /* set by graph_differentiate */
    graph_id *table_grads;

    struct err failure; /* of the first call that failed */
};

/* Rows and columns of a value at run time. */
struct view {
    float *data; /* leaves are only read */
    size_t stride;
    uint32_t rows;
};

/* Rows first .. last-1 of one node, to be computed. */
struct op_call {
    const struct graph *graph;
    const struct node *node;
    const graph_id *inputs;
    const struct view *views; /* by node */
    float *out;               /* row `first` of the output */
    size_t stride;
    uint32_t first; /* in rows of the node's own kind */
    uint32_t last;
    uint32_t row_first; /* the examples that these rows belong to, in a row stage */
    uint32_t row_last;
    uint32_t chunk;         /* row_first / EXEC_CHUNK_ROWS */
    const graph_id *extras; /* output nodes of this node by number, GRAPH_NONE: not wanted */
    const struct exec_feed *feed;
    const struct kern *kern;
    float *scratch; /* this thread's, as large as op.scratch asked for */
    uint64_t seed;
    double weight_total;
    _Atomic bool *not_finite; /* to be set by ops that check what they wrote */
};

#define OP_EXTRAS_MAX 2u /* outputs of an op beyond its first, numbered 1 .. */

enum loss_kind { LOSS_SIGMOID, LOSS_SOFTMAX, LOSS_SQUARED, LOSS_KIND_COUNT };

struct grads; /* collects gradients, graph_diff.c */

/* A batch as a plan sees it. */
struct flops_at {
    double rows;
    double occurrences; /* of each ragged feature */
};

static inline double shape_rows_at(struct graph_shape shape, const struct flops_at *at)
{
    switch (shape.rows) {
    case GRAPH_FIXED: return shape.of;
    case GRAPH_BATCH: return at->rows;
    case GRAPH_CHUNKS: return at->rows / EXEC_CHUNK_ROWS;
    default: return at->occurrences;
    }
}

struct op {
    const char *name;
    uint32_t inputs_min;
    uint32_t inputs_max;
    /* Fills node->shape from inputs and attributes. NULL, or why it cannot be. */
    const char *(*infer)(const struct graph *graph, struct node *node, const graph_id *inputs);
    /* The shape of output `number` (1 ..) beyond the first, or why there is none. NULL: has none. */
    const char *(*extra)(const struct graph *graph, const struct node *node, uint32_t number,
                         struct graph_shape *shape_out);
    /* Hands grads_add the gradient of each input that wants one. NULL: cannot be differentiated. */
    void (*grad)(struct graph *graph, graph_id id, graph_id dy, struct grads *grads);
    /* Computes rows of the output. NULL: nothing to compute (leaves, views, descriptions). */
    void (*run)(const struct op_call *call);
    /* Sums over rows of its inputs, or reads others' rows: never part of a row stage. */
    bool whole;
    /* Lays out its extra outputs in its own way, not by rows: they share their memory with nothing. */
    bool extras_alone;
    /* The output may lie where input 0 does, when that is not needed any more. */
    bool in_place;
    /* Rows of the output that make one part of a tile stage. NULL: TILE_ROWS. */
    uint32_t (*grain)(const struct op_call *call);
    /* A cut of its own, instead of rows; used in a tile stage. Both or none. */
    uint32_t (*parts)(const struct op_call *call);
    void (*part)(const struct op_call *call, uint32_t part);
    /* A row op for which tiles are better: large weights. NULL: never. */
    bool (*tiled)(const struct graph *graph, const struct node *node);
    /* Floats of scratch that a thread needs. NULL: none. */
    size_t (*scratch)(const struct graph *graph, const struct node *node);
    /* Multiply-adds (as two) and other operations of a whole batch. NULL: one per element. */
    double (*flops)(const struct graph *graph, const struct node *node, const struct flops_at *at);
};

#define X(code, name) extern const struct op op_##name;
OP_LIST(X)
#undef X

const struct op *op_of(enum op_code code); /* NULL when there is no such op */

static inline const struct node *node_at(const struct graph *graph, graph_id id)
{
    return &graph->nodes[id];
}

static inline graph_id node_input(const struct graph *graph, graph_id id, uint32_t index)
{
    return graph->inputs[graph->nodes[id].inputs_first + index];
}

static inline bool shape_is(struct graph_shape shape, enum graph_rows rows, uint32_t of,
                            uint32_t cols)
{
    return shape.rows == rows && shape.of == of && shape.cols == cols;
}

static inline bool shape_equal(struct graph_shape a, struct graph_shape b)
{
    return shape_is(a, b.rows, b.of, b.cols);
}

static inline bool shape_same_rows(struct graph_shape a, struct graph_shape b)
{
    return a.rows == b.rows && a.of == b.of;
}

static inline bool shape_is_scalar(struct graph_shape shape)
{
    return shape_is(shape, GRAPH_FIXED, 1, 1);
}

/* Adds a node: checks inputs and shape, or records the failure and returns GRAPH_NONE. attrs may be
 * NULL (zeros). `shape` is used by ops whose shape does not follow from their inputs. */
struct node_spec {
    enum op_code op;
    const graph_id *inputs;
    uint32_t inputs_count;
    uint32_t attrs[3];
    float number;
    struct graph_shape shape;
};
graph_id node_add(struct graph *graph, const struct node_spec *spec);

/* Shorthands for gradients and builders. */
graph_id node_add1(struct graph *graph, enum op_code op, graph_id a);
graph_id node_add2(struct graph *graph, enum op_code op, graph_id a, graph_id b);
graph_id node_extra(struct graph *graph, graph_id node, uint32_t number);

/* Records the first failure of the graph; returns GRAPH_NONE. */
graph_id graph_fail(struct graph *graph, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A variable of either kind; name, rows (0: a vector), cols and init are read. */
graph_id graph_add_variable(struct graph *graph, enum op_code op,
                            const struct graph_variable *variable);

/* Whether input `index` of the node being differentiated wants a gradient; and giving it. */
bool grads_wanted(const struct grads *grads, graph_id input);
void grads_add(struct grads *grads, graph_id input, graph_id grad);

static inline const struct view *call_input(const struct op_call *call, uint32_t index)
{
    return &call->views[call->inputs[index]];
}

static inline const struct node *call_node(const struct op_call *call, uint32_t index)
{
    return &call->graph->nodes[call->inputs[index]];
}

/* NULL when that output is not wanted. */
static inline const struct view *call_extra(const struct op_call *call, uint32_t number)
{
    const graph_id id = call->extras[number - 1];
    return id == GRAPH_NONE ? NULL : &call->views[id];
}

static inline const struct batch_ids *call_ids(const struct op_call *call, uint32_t index)
{
    return &call->feed->batch->ids[call_node(call, index)->attrs[0]];
}

static inline float *view_row(const struct view *view, uint32_t row)
{
    return view->data + row * view->stride;
}

/* The rows of an ids node's occurrences: batch rows when it is single. */
struct graph_shape ids_shape(const struct node *ids, uint32_t cols);

#endif
