/* bench_train measures whole training steps on data that is already in memory, as `shoal bench din`
 * and `shoal bench mlp` report them: the job of bench/peers/torch, step for step. Finding the unique
 * keys of a batch is part of a step; parsing and hashing are not (see data_bench_input). */
#ifndef SHOAL_TRAIN_BENCH_TRAIN_H
#define SHOAL_TRAIN_BENCH_TRAIN_H

#include <stdint.h>

#include "base/err.h"
#include "train/trainer.h"

#define BENCH_REPEATS_MAX 64u

struct bench_train_opts {
    uint64_t items;    /* din: rows of the item table; 0: 100 */
    bool dynamic;      /* din: users and items in dynamic tables */
    uint32_t batch;    /* 0: 512 */
    uint32_t threads;  /* 0: 1 */
    uint32_t repeats;  /* 0: 9 */
    uint32_t steps;    /* of a repeat; 0: about 0.3 s of them */
};

struct bench_train_result {
    uint32_t repeats;
    uint32_t steps; /* of a repeat */
    double examples_per_second[BENCH_REPEATS_MAX];
    double examples_per_second_median;
    double loss; /* of the last step */
    double phase_share[TRAINER_PHASE_COUNT];
};

/* DIN of docs/architecture.md: batch 512, histories of 1 to 20, Adagrad. */
int bench_din(const struct bench_train_opts *opts, struct bench_train_result *result_out,
              struct err *err);
/* 784-500-500-10, Adam. */
int bench_mlp(const struct bench_train_opts *opts, struct bench_train_result *result_out,
              struct err *err);

#endif
