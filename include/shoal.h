/* shoal.h: the one public header. Everything that the `shoal` binary does can be done from C, and
 * from any language that can call C: opaque handles, plain types, options structs that carry their
 * own size, no global state.
 *
 *     static int build(void *ctx, shoal_graph *g, shoal_error *error)   // a model of one's own
 *     {
 *         shoal_node x = shoal_concat(g, (shoal_node[]){shoal_feature(g, "user_id"),
 *                                                       shoal_feature(g, "item_id")}, 2);
 *         x = shoal_dense(g, "hidden", x, 64, SHOAL_RELU);
 *         return shoal_output(g, shoal_dense(g, "output", x, 1, SHOAL_LINEAR), SHOAL_BINARY, error);
 *     }
 *     shoal_options options = {.size = sizeof options, .build = build};
 *     shoal_session *session = NULL;
 *     int rc = shoal_open("job.yaml", &options, &session, &error);
 *     while (rc == 0 && !shoal_should_stop(session)) {
 *         if ((rc = shoal_next(session, &batch, &error)) != 0) break; // SHOAL_END_OF_DATA: all read
 *         rc = shoal_step(session, &step, &error);
 *     }
 *     shoal_close(session);
 *
 * Functions that can fail return 0 or one of the negative codes below and describe what happened in
 * the caller's shoal_error (which may be NULL). A session belongs to the thread that opened it;
 * shoal_request_stop alone may be called from any thread and from a signal handler. */
#ifndef SHOAL_H
#define SHOAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHOAL_VERSION "0.1.0"

#if defined(__GNUC__)
#define SHOAL_API __attribute__((visibility("default")))
#else
#define SHOAL_API
#endif

/* Error codes; 0 is success. */
enum {
    SHOAL_ERROR_INVALID = -1,
    SHOAL_ERROR_MEMORY = -2,
    SHOAL_ERROR_IO = -3,
    SHOAL_ERROR_NOT_FOUND = -4,
    SHOAL_ERROR_ACCESS = -5,
    SHOAL_ERROR_EXISTS = -6,
    SHOAL_ERROR_LIMIT = -7,
    SHOAL_ERROR_CORRUPT = -8,
    SHOAL_ERROR_CONFIG = -9,
    SHOAL_ERROR_BUSY = -10,
    SHOAL_ERROR_SPACE = -11,
    SHOAL_ERROR_NOT_FINITE = -12,
    SHOAL_ERROR_MISMATCH = -13,
    SHOAL_ERROR_INTERRUPTED = -14,
    SHOAL_END_OF_DATA = -19
};

typedef struct shoal_error {
    int32_t code;
    char text[512];
} shoal_error;

SHOAL_API const char *shoal_version(void);

/* The whole command line, as the binary runs it: shoal_main(3, {"shoal", "train", "job.yaml"}).
 * Returns the exit code. */
SHOAL_API int shoal_main(int argc, char **argv);

/* ---- Graphs: a model of one's own --------------------------------------------------------------
 * Nodes are matrices of floats, one row an example. A call that cannot be done (shapes that do not
 * fit, an unknown feature) returns 0 and is remembered: calls on 0 return 0, and shoal_output tells
 * the first failure. So a model is written without a check on every line. */

typedef struct shoal_graph shoal_graph;
typedef uint32_t shoal_node; /* 0: none */

enum { SHOAL_LINEAR, SHOAL_RELU, SHOAL_SIGMOID, SHOAL_TANH }; /* activations */
enum { SHOAL_BINARY, SHOAL_CLASSES, SHOAL_REGRESSION };       /* what is predicted */
enum { SHOAL_INIT_ZEROS, SHOAL_INIT_GLOROT, SHOAL_INIT_HE };  /* first values of parameters */

/* A feature of the job file: its numbers, or the embedding of its value (of its values, combined as
 * the job file says). */
SHOAL_API shoal_node shoal_feature(shoal_graph *graph, const char *name);
/* The same values looked up in another table of the caller's naming and width (a wide part). */
SHOAL_API shoal_node shoal_feature_in(shoal_graph *graph, const char *name, const char *table,
                                      uint32_t dim);
/* DIN's attention of a sequence feature towards `target` (an embedding of the same width), with
 * hidden layers of these widths. Parameters are named NAME/0/weight, NAME/0/bias, ... */
SHOAL_API shoal_node shoal_attention(shoal_graph *graph, const char *name, const char *feature,
                                     shoal_node target, const uint32_t *units,
                                     uint32_t units_count);

/* A trained matrix of its own; and a dense layer: act(x * NAME/weight + NAME/bias). */
SHOAL_API shoal_node shoal_parameter(shoal_graph *graph, const char *name, uint32_t rows,
                                     uint32_t cols, int init);
SHOAL_API shoal_node shoal_dense(shoal_graph *graph, const char *name, shoal_node x,
                                 uint32_t units, int activation);
SHOAL_API shoal_node shoal_matmul(shoal_graph *graph, shoal_node x, shoal_node parameter);
SHOAL_API shoal_node shoal_activate(shoal_graph *graph, shoal_node x, int activation);
SHOAL_API shoal_node shoal_add(shoal_graph *graph, shoal_node a, shoal_node b);
SHOAL_API shoal_node shoal_sub(shoal_graph *graph, shoal_node a, shoal_node b);
SHOAL_API shoal_node shoal_mul(shoal_graph *graph, shoal_node a, shoal_node b);
SHOAL_API shoal_node shoal_scale(shoal_graph *graph, shoal_node x, float factor);
SHOAL_API shoal_node shoal_concat(shoal_graph *graph, const shoal_node *nodes, uint32_t count);
SHOAL_API shoal_node shoal_slice(shoal_graph *graph, shoal_node x, uint32_t col, uint32_t cols);
SHOAL_API shoal_node shoal_dropout(shoal_graph *graph, shoal_node x, float rate);
SHOAL_API shoal_node shoal_sum(shoal_graph *graph, shoal_node x);  /* over columns */
SHOAL_API shoal_node shoal_mean(shoal_graph *graph, shoal_node x); /* over columns */
SHOAL_API shoal_node shoal_fm(shoal_graph *graph, shoal_node x, uint32_t dim);
SHOAL_API shoal_node shoal_dots(shoal_graph *graph, shoal_node x, uint32_t dim);

/* Columns of a node; 0 for none. */
SHOAL_API uint32_t shoal_width(const shoal_graph *graph, shoal_node node);

/* Says what is predicted (SHOAL_CLASSES: one column per class), and with it the loss. The last call
 * of a build function, which returns its result. */
SHOAL_API int shoal_output(shoal_graph *graph, shoal_node logit, int task, shoal_error *error);

/* ---- Sessions: a job, open --------------------------------------------------------------------- */

typedef struct shoal_session shoal_session;

typedef struct shoal_batch { /* what shoal_next read */
    uint64_t epoch;
    uint32_t rows;
    int32_t epoch_end; /* nothing of this epoch is left after it */
} shoal_batch;

typedef struct shoal_step_result {
    uint64_t step; /* the global step just done */
    double loss;   /* of the batch, before the update */
    double learning_rate;
    uint32_t rows;
} shoal_step_result;

/* Builds the model; see above. */
typedef int shoal_build_fn(void *ctx, shoal_graph *graph, shoal_error *error);
/* Called before a step (result NULL) and after it. Not 0: training stops after this step. */
typedef int shoal_hook_fn(void *ctx, shoal_session *session, const shoal_step_result *result);

typedef struct shoal_options {
    uint32_t size; /* sizeof(shoal_options): which version of this struct it is */
    uint32_t sets_count;
    const char *const *sets; /* "train.max_steps=100", as --set */
    shoal_build_fn *build;   /* NULL: the job file's model */
    void *build_ctx;
    shoal_hook_fn *before_step;
    shoal_hook_fn *after_step;
    void *hook_ctx;
} shoal_options;

/* Reads and checks the job, opens its data, makes the model and its tables, and goes on from the
 * newest checkpoint in model_dir where there is one. options may be NULL. */
SHOAL_API int shoal_open(const char *job_path, const shoal_options *options,
                         shoal_session **session_out, shoal_error *error);

/* One's own loop. shoal_next reads the next batch; shoal_step trains on it. */
SHOAL_API int shoal_next(shoal_session *session, shoal_batch *batch_out, shoal_error *error);
SHOAL_API int shoal_step(shoal_session *session, shoal_step_result *result_out, shoal_error *error);
/* Not 0: max_steps is reached, the data has ended, a hook or shoal_request_stop asked for it. */
SHOAL_API int shoal_should_stop(const shoal_session *session);
SHOAL_API void shoal_request_stop(shoal_session *session);
SHOAL_API uint64_t shoal_global_step(const shoal_session *session);

/* The ready-made loop: logs, checkpoints, summaries, a last evaluation. The result object of
 * `shoal train --json` is put in *json_out (may be NULL; shoal_free). */
SHOAL_API int shoal_train(shoal_session *session, char **json_out, shoal_error *error);

/* Metrics of the evaluation data as JSON (shoal_free); and a checkpoint, now. */
SHOAL_API int shoal_evaluate(shoal_session *session, char **json_out, shoal_error *error);
SHOAL_API int shoal_save(shoal_session *session, shoal_error *error);

/* Values of a table outright. Dense tensors ("hidden/0/weight"): keys NULL, count elements from the
 * first. Embedding tables ("item/embedding"): count keys, dim floats each. */
SHOAL_API int shoal_fetch(shoal_session *session, const char *name, const uint64_t *keys,
                          uint64_t count, float *values_out, shoal_error *error);
SHOAL_API int shoal_assign(shoal_session *session, const char *name, const uint64_t *keys,
                           uint64_t count, const float *values, shoal_error *error);

SHOAL_API void shoal_close(shoal_session *session); /* NULL is a no-op; saves nothing */
SHOAL_API void shoal_free(void *memory);            /* NULL is a no-op */

#ifdef __cplusplus
}
#endif

#endif
