/* exec runs a graph on batches. It owns the plan (which nodes, in which order, in which memory) and
 * the memory; the graph, parameters, pulled rows and batch are borrowed.
 *
 * Work is done in stages with a barrier between them. In a row stage every thread takes chunks of
 * EXEC_CHUNK_ROWS examples through all its operations, so that what one writes is still in cache
 * when the next one reads it; in a tile stage operations that sum over rows, or whose weights are
 * large, are cut into tiles of their output. All cuts follow from shapes and batch alone:
 *
 * (1) The same bits for any team. (2) No memory is allocated in a run unless the batch has more
 * occurrences or unique keys than any before it. (3) Parameters may be changed by the sink while
 * the run goes on: a block is delivered after its last use.
 *
 * The thread that created the team runs it; a run at a time. */
#ifndef SHOAL_GRAPH_EXEC_H
#define SHOAL_GRAPH_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/team.h"
#include "graph/graph.h"
#include "tensor/batch.h"

#define EXEC_CHUNK_ROWS 64u /* fixed: it is part of what the bits of a sum depend on */

struct exec;

struct exec_opts {
    const struct graph *graph; /* borrowed until exec_destroy */
    struct team *team;         /* borrowed; NULL: the caller alone */
    uint32_t batch_max;        /* rows of a batch, at most */
    uint64_t seed;             /* of dropout */
    bool train;                /* also all gradients, with dropout; else forward only */
    const graph_id *fetches;   /* nodes whose values will be asked for */
    uint32_t fetches_count;
};

int exec_create(const struct exec_opts *opts, struct exec **exec_out, struct err *err);
void exec_destroy(struct exec *exec); /* NULL is a no-op. */

struct exec_value { /* rows x cols floats, `stride` floats from row to row */
    const float *values;
    uint32_t rows;
    uint32_t cols;
    uint32_t stride;
};

/* A block of a parameter's gradient: elements first .. first + count - 1. Called by many threads
 * at once, for disjoint blocks; all blocks of all parameters come exactly once a run, cut the same
 * way every time. The gradient is borrowed for the call. */
typedef void exec_sink_cb(void *ctx, uint32_t param, size_t first, size_t count, const float *grad,
                          uint32_t thread);

struct exec_feed {
    const struct batch *batch;         /* may be NULL for a graph of fixed shapes alone */
    const float *const *params;        /* by parameter */
    const float *const *tables;        /* by table: unique keys x dim, pulled */
    const struct exec_value *received; /* by receive node of a cut graph */
    uint64_t step;                     /* for dropout */
    uint64_t row_base;   /* this batch's rows are numbered from here: worker * batch */
    double weight_total; /* what losses are divided by; 0: this batch's weights */
    exec_sink_cb *sink;  /* NULL: gradients go to grads */
    void *sink_ctx;
    float *const *grads; /* by parameter, for training without a sink */
    bool add;            /* add to grads instead of overwriting */
};

/* SHOAL_ENAN: loss or a gradient is not finite; the message names the tensor. When it is the loss,
 * nothing has been delivered. */
int exec_run(struct exec *exec, const struct exec_feed *feed, struct err *err);

/* Of the last run; borrowed until the next. The node must have been fetched (or be the loss). */
struct exec_value exec_value(const struct exec *exec, graph_id node);
double exec_loss(const struct exec *exec);
/* Gradient rows of a table's unique keys. rows is 0 when the loss does not depend on it. */
struct exec_value exec_table_grad(const struct exec *exec, uint32_t table);

/* What a run of `rows` examples takes, for plans: multiply-adds count two. Occurrences are assumed
 * `per_row` for each ragged feature. */
double exec_flops(const struct exec *exec, uint32_t rows, double per_row);
size_t exec_bytes(const struct exec *exec); /* memory now held */

#endif
