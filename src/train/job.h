/* job is a whole job file, checked: where the data is, what its columns become, which model, how it
 * is trained. Each layer reads its own part; what is left is here. Nothing is started or written
 * before all of it has been read, so a mistake costs nothing.
 * Read only once loaded; texts are borrowed from the config, which the job owns. */
#ifndef SHOAL_TRAIN_JOB_H
#define SHOAL_TRAIN_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "data/data.h"
#include "data/data_spec.h"
#include "store/store_rule.h"

enum job_strategy { JOB_PS, JOB_ALLREDUCE, JOB_HYBRID, JOB_AVERAGE };
enum job_discipline { JOB_ASYNC, JOB_SYNC, JOB_SSP, JOB_DC_ASYNC };

struct job_train { /* `train:` */
    enum job_strategy strategy;
    enum job_discipline discipline;
    uint64_t max_steps;        /* 0: no limit */
    uint64_t seed;             /* 1 */
    uint64_t checkpoint_steps; /* 1000; 0: not by steps */
    double checkpoint_secs;    /* 0: not by time */
    uint32_t keep;             /* 10 checkpoints */
    uint64_t log_steps;        /* 100 */
    uint64_t summary_steps;    /* 100; 0: no event files */
    uint32_t threads;          /* 0: all cores */
    uint32_t accumulate;       /* batches added before an update: 1 */
    double average_decay;      /* of the moving average; 0: none */
    double clip_norm;          /* global norm; 0: none */
    const char *init_from;     /* NULL: none */
    struct store_rule rule;    /* `optimizer:` */
    const struct config_node *optimizers; /* by table or layer name; NULL: none */
};

struct job_eval { /* `eval:` */
    uint64_t steps;       /* batches; 0: all */
    double throttle_secs; /* at new checkpoints while training, at least so far apart: 60 */
    bool each_epoch;      /* also after each epoch */
    uint32_t ndcg;        /* k of NDCG@k, with a group feature: 10 */
};

struct job {
    struct config *config;
    const char *model_dir;
    const struct config_node *model;
    struct data_spec *spec;
    struct data_settings data;
    struct job_train train;
    struct job_eval eval;
};

/* Reads PATH with the --set assignments applied in order. */
int job_load(const char *path, const char *const *sets, size_t sets_count, struct job **job_out,
             struct err *err);
/* The same from text; `name` stands for the path in errors. */
int job_parse(const char *name, const char *text, const char *const *sets, size_t sets_count,
              struct job **job_out, struct err *err);

/* The update rule of a variable. `optimizers:` may name it ("hidden/0/weight", "item") or any folder
 * above it ("hidden"); the longest name wins. Else the model's wish (the name of a rule, with the
 * job's schedule; NULL: none), else `optimizer:`. */
int job_rule_of(const struct job *job, const char *name, const char *wish,
                struct store_rule *rule_out, struct err *err);

/* Where the job file says by which rule a variable moves: the place of a mistake in it. */
const struct config_node *job_rule_node(const struct job *job, const char *name);

/* SHOAL_ECONFIG for a name in `optimizers:` that is none of the model's variables, nor a folder. */
int job_check_rules(const struct job *job, const char *const *names, size_t count, struct err *err);

void job_destroy(struct job *job); /* NULL is a no-op */

#endif
