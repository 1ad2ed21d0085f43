/* trainer is one worker with everything in one process: the model, its tables in a store, the team
 * and the open data. It knows how to do one step; when to log, save and evaluate is the loop's
 * business (train/loop.h).
 *
 *     data_next -> store_pull -> exec_run -> store_push        input, pull, compute, push
 *
 * (1) The step is the number of updates applied; the ticket of the next update is that number.
 * (2) Dense gradients go to the store block by block while they are in cache, unless something needs
 *     them whole first: clip_norm, accumulate (train/grads.h).
 * (3) Nothing here depends on the number of threads: the same job gives the same bits.
 *
 * One thread, which is thread 0 of the team. */
#ifndef SHOAL_TRAIN_TRAINER_H
#define SHOAL_TRAIN_TRAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/team.h"
#include "data/data.h"
#include "model/model.h"
#include "store/store.h"
#include "train/job.h"

struct trainer;

enum trainer_phase {
    TRAINER_INPUT, /* decoding, hashing, finding unique keys */
    TRAINER_PULL,
    TRAINER_COMPUTE,
    TRAINER_PUSH,
    TRAINER_WAIT, /* for the reader: files too slow */
    TRAINER_PHASE_COUNT
};
const char *trainer_phase_name(enum trainer_phase phase);

/* Makes model (NULL: the job's; else taken over, also on failure), tables with their initial values,
 * team and executor. The job is borrowed. Opens no data. */
int trainer_create(const struct job *job, struct model *model, struct trainer **trainer_out,
                   struct err *err);
void trainer_destroy(struct trainer *trainer); /* NULL is a no-op. */

/* Opens the training data, at a position from data_position_write (NULL: from the start). */
int trainer_open_data(struct trainer *trainer, const char *position, struct err *err);

/* Reads the next batch. SHOAL_END after the last. */
int trainer_next(struct trainer *trainer, struct data_info *info_out, struct err *err);

/* Instead of trainer_next: the caller's own batch, which must live until it is trained on. */
void trainer_give(struct trainer *trainer, const struct batch *batch);

uint32_t trainer_batch_rows(const struct trainer *trainer); /* of the batch read last; 0: none */

struct trainer_step {
    uint64_t step; /* updates applied, this one too */
    double loss;   /* of the batch (accumulate: of all its batches), before the update */
    double learning_rate;
    uint32_t rows;
    struct data_info info; /* of the last batch used */
};

/* Trains on the batch that was read last; with `accumulate` reads the others itself. SHOAL_ENAN
 * names step and tensor. */
int trainer_step(struct trainer *trainer, struct trainer_step *step_out, struct err *err);

/* State that a checkpoint holds beside the store's. */
uint64_t trainer_global_step(const struct trainer *trainer);
void trainer_set_global_step(struct trainer *trainer, uint64_t step);

/* Borrowed. trainer_data is NULL before trainer_open_data. */
const struct job *trainer_job(const struct trainer *trainer);
const struct model *trainer_model(const struct trainer *trainer);
struct store *trainer_store(struct trainer *trainer);
struct team *trainer_team(struct trainer *trainer);
struct data *trainer_data(struct trainer *trainer);

/* The store's table of a parameter or table of the model's graph. */
uint32_t trainer_param_table(const struct trainer *trainer, uint32_t param);
uint32_t trainer_rows_table(const struct trainer *trainer, uint32_t table);

/* The options a job's model gives the store, by parameter and then by table: for plans, before
 * anything is made. *out is filled; count must be params + tables of the graph. */
int trainer_table_opts(const struct job *job, const struct model *model,
                       struct store_table_opts *out, uint32_t count, struct err *err);

/* Pulls the rows that a batch needs (averaged: their moving average) into buffers that live until
 * the next pull; rows_out[i] is that of the graph's table i. */
int trainer_pull(struct trainer *trainer, const struct batch *batch, bool averaged,
                 const float ***rows_out, struct err *err);
/* By parameter: values, or their moving averages. Borrowed. */
const float *const *trainer_params(struct trainer *trainer, bool averaged);

uint64_t trainer_phase_ns(const struct trainer *trainer, enum trainer_phase phase);
uint64_t trainer_examples(const struct trainer *trainer); /* trained on since create */
size_t trainer_exec_bytes(const struct trainer *trainer);

#endif
