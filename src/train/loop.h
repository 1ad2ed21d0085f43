/* loop trains a run to its end: steps, log lines, checkpoints, summaries, evaluations, and the report
 * of where the time went. It stops at max_steps, at the end of the data, when asked to, or at an
 * error; in all but the last case the last step is saved. */
#ifndef SHOAL_TRAIN_LOOP_H
#define SHOAL_TRAIN_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"
#include "train/metrics.h"
#include "train/run.h"

/* Before a step (step NULL) and after it. Not 0: stop after this step. */
typedef int loop_hook_cb(void *ctx, const struct trainer_step *step);

struct loop_opts {
    FILE *json;               /* an object per line of log, epoch and evaluation; NULL: none */
    bool progress;            /* the live line, or plain ones, on standard error */
    const atomic_bool *stop;  /* set by a signal handler; NULL: never */
    uint64_t started_ns;      /* of the process, for `seconds`; 0: now */
    loop_hook_cb *before;     /* NULL: none */
    loop_hook_cb *after;
    void *hook_ctx;
};

struct loop_result {
    uint64_t steps;     /* the global step reached */
    uint64_t steps_run; /* of them in this run */
    uint64_t examples;  /* trained on in this run */
    uint64_t epochs;    /* completed in this run */
    double seconds;
    double loss; /* of the last step; NaN: no step was made */
    bool interrupted;
    bool has_eval;
    struct metrics_result eval;
    bool has_test;
    struct metrics_result test; /* of `data.test`, in the end */
    uint64_t records_skipped;
    double train_seconds;  /* without start-up, checkpoints and evaluations */
    uint64_t memory_bytes; /* that the process had at most */
    double phase_share[TRAINER_PHASE_COUNT]; /* of seconds */
    double save_share;
    double eval_share;
};

/* SHOAL_EINTR when it was asked to stop: the checkpoint is saved, the result filled in, and the
 * error says how to go on. */
int loop_train(struct run *run, const struct loop_opts *opts, struct loop_result *result_out,
               struct err *err);

/* The last object of `shoal train --json`, and the same facts for people. */
void loop_result_json(const struct loop_result *result, const char *model_dir, struct str *json);
void loop_result_text(const struct loop_result *result, const char *model_dir, struct str *text);

#endif
