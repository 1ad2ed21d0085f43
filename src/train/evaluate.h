/* evaluate runs a model forward over the evaluation data and measures it. It uses a trainer's
 * values (their moving averages where the job keeps them), team and pull buffers, so it runs between
 * steps, on the trainer's thread, and changes nothing of it. */
#ifndef SHOAL_TRAIN_EVALUATE_H
#define SHOAL_TRAIN_EVALUATE_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "io/file.h"
#include "train/metrics.h"
#include "train/trainer.h"

struct evaluate;

/* Opens the evaluation data of the trainer's job and plans the forward pass. The trainer is
 * borrowed. SHOAL_ENOENT when the job has no such data. */
int evaluate_create(struct trainer *trainer, struct evaluate **evaluate_out, struct err *err);
/* The same for the files of `data.test`. */
int evaluate_create_test(struct trainer *trainer, struct evaluate **evaluate_out, struct err *err);
void evaluate_destroy(struct evaluate *evaluate); /* NULL is a no-op. */

/* evaluate_run ends with SHOAL_EINTR once the flag (borrowed; NULL: none) is set. */
void evaluate_stop_by(struct evaluate *evaluate, const atomic_bool *stop);

/* Measures `batches` batches from the start (0: all). predictions (NULL: none) gets a line per
 * example in input order: the probability, or those of all classes with spaces between. */
int evaluate_run(struct evaluate *evaluate, uint64_t batches, struct io_writer *predictions,
                 struct metrics_result *result_out, struct err *err);

uint64_t evaluate_skipped(const struct evaluate *evaluate); /* broken records, all runs */

#endif
