/* run is a trainer together with its model directory: what is there is found and loaded, what is
 * learned is saved. It holds the directory's lock, so that no second process writes there.
 *
 * (1) Nothing is made in the file system before job, model and data have been found good.
 * (2) A run that goes on from a checkpoint does exactly what one that was never stopped would do:
 *     model, slots, step and data position come from it; random numbers are functions of the step. */
#ifndef SHOAL_TRAIN_RUN_H
#define SHOAL_TRAIN_RUN_H

#include <stdint.h>

#include "base/err.h"
#include "train/evaluate.h"
#include "train/job.h"
#include "train/trainer.h"

struct run;

/* To train: locks model_dir, goes on from its newest checkpoint, else from `init_from`, else from
 * initial values; opens the data. The job is borrowed; a model (NULL: the job's) is taken over,
 * also on failure. */
int run_open(const struct job *job, struct model *model, struct run **run_out, struct err *err);

/* To evaluate only: loads a checkpoint (a folder; NULL: the newest of model_dir). Takes no lock and
 * opens no training data. */
int run_open_checkpoint(const struct job *job, const char *checkpoint, struct run **run_out,
                        struct err *err);

void run_close(struct run *run); /* NULL is a no-op; saves nothing */

struct trainer *run_trainer(struct run *run);
/* NULL when the job has no evaluation data. */
struct evaluate *run_evaluate(struct run *run);
struct evaluate *run_test(struct run *run); /* of `data.test`; NULL when there is none */

/* The step that the run began at: that of the checkpoint, or 0. */
uint64_t run_first_step(const struct run *run);
uint64_t run_saved_step(const struct run *run); /* UINT64_MAX: nothing saved or loaded yet */

/* A checkpoint of this very moment; keeps the last `keep`. */
int run_save(struct run *run, struct err *err);

#endif
