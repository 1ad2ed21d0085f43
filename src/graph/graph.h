/* graph is a computation as plain data: nodes in order, each an operation on float32 matrices made
 * by earlier nodes. It is built once, with the number of rows left open (a batch, the occurrences
 * of a feature, the unique keys of a table), differentiated, and then run many times by an executor
 * (graph/exec.h). It owns its nodes and names and nothing else: no values, no threads, no I/O.
 *
 *     graph_id x = graph_numeric(g, 0, 784);
 *     graph_id w = graph_param(g, "output/weight", 784, 10, init_glorot_uniform(784, 10));
 *     graph_id b = graph_vector(g, "output/bias", 10, init_constant(0));
 *     graph_id loss = graph_softmax_loss(g, graph_dense(g, x, w, b, GRAPH_LINEAR), graph_label(g),
 *                                        graph_weight(g));
 *     if (graph_differentiate(g, loss, err) != 0) ...
 *
 * (1) A node's inputs come before it. (2) Every node's shape fits its inputs: checked when it is
 * added, also when a graph is read from bytes. (3) Nodes are never changed or removed once added.
 * A call that cannot be done (shapes that do not fit, no memory) adds nothing, returns GRAPH_NONE
 * and is remembered; calls on GRAPH_NONE return GRAPH_NONE; graph_check tells the first failure.
 * So a model is written without a check on every line.
 * A graph belongs to the thread that builds it; once built it is read only and may be shared. */
#ifndef SHOAL_GRAPH_GRAPH_H
#define SHOAL_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/init.h"

struct graph;

typedef uint32_t graph_id; /* a node of a graph */
#define GRAPH_NONE 0u      /* no node: an input left out, or a call that failed */

/* How many rows a matrix has. */
enum graph_rows {
    GRAPH_FIXED,       /* `of` rows */
    GRAPH_BATCH,       /* one per example */
    GRAPH_OCCURRENCES, /* one per occurrence in categorical feature `of` */
    GRAPH_UNIQUE,      /* one per unique key in key list `of` of the batch */
    GRAPH_CHUNKS,      /* one per fixed chunk of examples: partial sums */
    GRAPH_ROWS_COUNT
};

struct graph_shape {
    enum graph_rows rows;
    uint32_t of;
    uint32_t cols;
};

enum graph_act { GRAPH_LINEAR, GRAPH_RELU, GRAPH_SIGMOID, GRAPH_TANH, GRAPH_ACT_COUNT };
enum graph_combine { GRAPH_SUM, GRAPH_MEAN, GRAPH_SQRTN, GRAPH_COMBINE_COUNT };

int graph_create(struct graph **graph_out, struct err *err);
void graph_destroy(struct graph *graph); /* NULL is a no-op. */

/* 0, or the first call on this graph that failed and why. */
int graph_check(const struct graph *graph, struct err *err);

/* Nodes added from here on carry this device and start their name with this prefix. NULL: back to
 * "/device:CPU:0" and "". Copied. */
void graph_set_device(struct graph *graph, const char *device);
void graph_set_scope(struct graph *graph, const char *prefix);
/* Names a node, for messages and fetches by name. Parameters and tables have theirs already. */
graph_id graph_name(struct graph *graph, graph_id node, const char *name);

/* Leaves. Parameters and tables are numbered from 0 in the order they are added; a second one of
 * the same name is an error. */
graph_id graph_param(struct graph *graph, const char *name, uint32_t rows, uint32_t cols,
                     struct init init);
graph_id graph_vector(struct graph *graph, const char *name, uint32_t cols,
                      struct init init); /* a bias: 1 x cols here, one dimension in checkpoints */
/* The rows of an embedding table that a batch needs: unique keys x dim. Several tables may share a
 * key list (batch.tables[keys]): the wide and the deep part of one feature. */
graph_id graph_table(struct graph *graph, const char *name, uint32_t keys, uint32_t dim,
                     struct init init);
/* Categorical feature batch.ids[feature], whose slots are of key list `keys`. single: every row
 * has exactly one occurrence (offsets NULL). Input of gather, pool and attention only. */
graph_id graph_ids(struct graph *graph, uint32_t feature, uint32_t keys, bool single);
graph_id graph_numeric(struct graph *graph, uint32_t feature, uint32_t width); /* batch.dense[] */
graph_id graph_label(struct graph *graph);                                     /* batch x 1 */
graph_id graph_weight(struct graph *graph);                                    /* batch x 1 */

/* Lookups. table: graph_table, ids: graph_ids of the same key list. */
graph_id graph_gather(struct graph *graph, graph_id table, graph_id ids); /* single only */
graph_id graph_pool(struct graph *graph, graph_id table, graph_id ids, enum graph_combine combine);

/* DIN's attention (Zhou et al., KDD '18) over ragged histories: per occurrence h of the row and the
 * row's target t, concat(h, h-t, t, h*t) goes through layers_count dense layers (weight, bias,
 * weight, bias, ...; ReLU between, the last of width 1), softmax within the row, weighted sum of
 * h: batch x dim. A row without occurrences gives zeros. Two hidden layers run as one fused
 * operation; other depths are put together from graph_attention_input, graph_dense and
 * graph_attention_pool. */
graph_id graph_attention(struct graph *graph, graph_id table, graph_id ids, graph_id target,
                         const graph_id *layers, uint32_t layers_count);
graph_id graph_attention_input(struct graph *graph, graph_id table, graph_id ids, graph_id target);
graph_id graph_attention_pool(struct graph *graph, graph_id table, graph_id ids, graph_id scores);

/* Dense algebra. bias may be GRAPH_NONE. */
graph_id graph_dense(struct graph *graph, graph_id x, graph_id weight, graph_id bias,
                     enum graph_act act);
graph_id graph_matmul(struct graph *graph, graph_id x, graph_id weight);
graph_id graph_act(struct graph *graph, graph_id x, enum graph_act act);
/* Element by element. b may also be 1 x cols (the same row for all) or have one column. */
graph_id graph_add(struct graph *graph, graph_id a, graph_id b);
graph_id graph_sub(struct graph *graph, graph_id a, graph_id b);
graph_id graph_mul(struct graph *graph, graph_id a, graph_id b);
graph_id graph_add_n(struct graph *graph, const graph_id *nodes, uint32_t count);
graph_id graph_scale(struct graph *graph, graph_id x, float factor);
graph_id graph_concat(struct graph *graph, const graph_id *nodes, uint32_t count); /* columns */
graph_id graph_slice(struct graph *graph, graph_id x, uint32_t col, uint32_t cols);
/* Zero with probability rate, else divided by 1 - rate; the identity outside training. */
graph_id graph_dropout(struct graph *graph, graph_id x, float rate);
graph_id graph_sum(struct graph *graph, graph_id x); /* over columns: rows x 1 */
graph_id graph_mean(struct graph *graph, graph_id x);

/* Interactions of fields. x is fields * dim columns.
 * fm: 1/2 sum_k ((sum_f x_fk)^2 - sum_f x_fk^2): rows x 1 (Rendle, ICDM '10).
 * dots: x_f . x_g for g < f, in rows of the lower triangle: rows x fields (fields - 1) / 2. */
graph_id graph_fm(struct graph *graph, graph_id x, uint32_t dim);
graph_id graph_dots(struct graph *graph, graph_id x, uint32_t dim);

/* Losses, 1 x 1: sum over rows of weight * loss / sum of weights. weight may be GRAPH_NONE. */
graph_id graph_sigmoid_loss(struct graph *graph, graph_id logit, graph_id label, graph_id weight);
graph_id graph_softmax_loss(struct graph *graph, graph_id logits, graph_id label, graph_id weight);
graph_id graph_squared_loss(struct graph *graph, graph_id x, graph_id label, graph_id weight);
/* factor / 2 * sum of squares of a parameter, to be added to a loss. */
graph_id graph_l2(struct graph *graph, graph_id param, float factor);
graph_id graph_softmax(struct graph *graph, graph_id logits); /* by row, for probabilities */

/* Adds the nodes that compute the gradient of `loss` (1 x 1) by every parameter and table that it
 * depends on. Once per graph. */
int graph_differentiate(struct graph *graph, graph_id loss, struct err *err);
graph_id graph_loss(const struct graph *graph);                       /* GRAPH_NONE before */
graph_id graph_param_grad(const struct graph *graph, uint32_t param); /* NONE: no dependence */
graph_id graph_table_grad(const struct graph *graph, uint32_t table);

/* Inspection. Borrowed until the graph is destroyed. */
struct graph_variable {
    const char *name;
    graph_id node;
    uint32_t rows; /* parameter: rows, 0: a vector of cols; table: its key list */
    uint32_t cols;
    struct init init;
};
uint32_t graph_params_count(const struct graph *graph);
const struct graph_variable *graph_param_at(const struct graph *graph, uint32_t param);
uint32_t graph_tables_count(const struct graph *graph);
const struct graph_variable *graph_table_at(const struct graph *graph, uint32_t table);
uint32_t graph_nodes_count(const struct graph *graph); /* nodes are 1 .. count */
struct graph_shape graph_shape_of(const struct graph *graph, graph_id node);
const char *graph_op_name(const struct graph *graph, graph_id node); /* "dense" */
const char *graph_name_of(const struct graph *graph, graph_id node); /* its op if unnamed */
const char *graph_device_of(const struct graph *graph, graph_id node);
graph_id graph_find(const struct graph *graph, const char *name); /* GRAPH_NONE: no such node */

/* As bytes: magic, version, nodes. Caller owns *bytes_out (mem_free). Damaged or foreign bytes are
 * SHOAL_ECORRUPT; what is read fits (1) to (3). */
int graph_encode(const struct graph *graph, uint8_t **bytes_out, size_t *count_out,
                 struct err *err);
int graph_decode(const uint8_t *bytes, size_t count, struct graph **graph_out, struct err *err);

/* Cuts a graph by device into parts that can each run to the end as soon as all it receives is
 * there, in the order given. An edge between parts becomes a send node in one and a receive node in
 * the other with the same number. Where work goes back and forth between two devices there are
 * several parts of one device. */
struct graph_send {
    graph_id node; /* of the part: the send node, whose value leaves as ... */
    uint32_t edge;
};
struct graph_part {
    struct graph *graph; /* owned by the list */
    const char *device;  /* borrowed from the cut graph */
    uint32_t level;      /* parts are in the order of levels */
    uint32_t *receives;  /* edges, in the order of the part's receive nodes */
    size_t receives_capacity;
    uint32_t receives_count;
    struct graph_send *sends;
    size_t sends_capacity;
    uint32_t sends_count;
    graph_id *nodes; /* by node of the cut graph: its node here, or GRAPH_NONE */
};
struct graph_parts {
    struct graph_part *parts;
    uint32_t count;
    uint32_t edges_count;
};
int graph_cut(const struct graph *graph, struct graph_parts *parts_out, struct err *err);
void graph_parts_fini(struct graph_parts *parts);

#endif
