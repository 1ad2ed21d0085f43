/* job_plan says what a job will take before it is started: its tables and their shards, memory, and the
 * work and traffic of a step. Sizes of tables follow from the job alone; what depends on the data
 * (lengths of histories, distinct values of dynamic tables) is found by reading up to
 * PLAN_EXAMPLES_MAX examples. Nothing is trained and nothing is written. */
#ifndef SHOAL_TRAIN_JOB_PLAN_H
#define SHOAL_TRAIN_JOB_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "store/store.h"
#include "train/job.h"

struct job_plan_table {
    const char *name; /* borrowed from the plan's model */
    enum store_kind kind;
    const char *rule;
    uint64_t rows; /* dynamic: expected */
    uint32_t cols;
    uint32_t shards;
    struct store_bytes bytes;
    uint64_t touched_bytes; /* of these: pages that the data will have touched */
    double keys_per_step; /* unique ones of a batch; dense: 0 */
};

struct job_plan {
    struct job_plan_table *tables;
    uint32_t tables_count;
    uint32_t batch_rows;
    uint64_t examples_read; /* to find out about the data; 0: the data is not there */
    bool all_read;          /* that was all of it */
    uint64_t parameters;    /* floats that are trained */
    uint64_t table_bytes;
    uint64_t other_bytes; /* program, input windows, activations */
    uint64_t memory_bytes;
    double flops_per_step;
    double bytes_per_step; /* pulled and pushed: what would cross a network */
    struct model *model;
};

int job_plan_make(const struct job *job, struct job_plan *plan_out, struct err *err);
void job_plan_fini(struct job_plan *plan);

void job_plan_json(const struct job_plan *plan, struct str *json);
void job_plan_text(const struct job_plan *plan, struct str *text);

#endif
