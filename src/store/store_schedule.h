/* store_schedule is the learning rate as a function of the global step, as TensorFlow's decays
 * define it. A plain value: no memory, no threads. Steps count the updates applied before, so the
 * first update is made with the rate of step 0. r is the base rate:
 *
 *   constant     r
 *   exponential  r * rate ^ (step / steps); staircase: step / steps rounded down
 *   polynomial   (r - end) * (1 - min(step, steps) / steps) ^ power + end; cycle: `steps` is
 *                multiplied until it is not below step
 *   cosine       r * ((1 - alpha) * (1 + cos(pi * min(step, steps) / steps)) / 2 + alpha)
 *   piecewise    values[i] for the first i with step <= boundaries[i], else the last value: the rate
 *                changes after the boundary step, not at it. r is not used
 *   warm-up      before any of these: start + (r - start) * step / warmup_steps while
 *                step < warmup_steps; from then on what it wraps, at the same (unshifted) step */
#ifndef SHOAL_STORE_SCHEDULE_H
#define SHOAL_STORE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bounds.h"
#include "base/config.h"
#include "base/err.h"

enum store_schedule_type {
    STORE_CONSTANT,
    STORE_EXPONENTIAL,
    STORE_POLYNOMIAL,
    STORE_COSINE,
    STORE_PIECEWISE,
    STORE_SCHEDULE_COUNT
};

struct store_schedule {
    enum store_schedule_type type;
    double learning_rate; /* r */
    double rate;
    double steps;
    double end;
    double power;
    double alpha;
    bool staircase;
    bool cycle;
    double warmup_start;
    double warmup_steps; /* 0: no warm-up */
    uint32_t boundaries_count;
    double boundaries[STORE_BOUNDARIES_MAX];
    double values[STORE_BOUNDARIES_MAX + 1];
};

/* The rate of the update that follows `step` applied ones. */
double store_schedule_at(const struct store_schedule *schedule, uint64_t step);

/* Reads a `decay:` map into *schedule, whose learning_rate the caller has set and which must be
 * STORE_CONSTANT; NULL leaves it so. Forms:
 *   {type: exponential, rate: 0.9, steps: 1000, staircase: true}
 *   {type: polynomial, steps: 1000, end: 0.001, power: 2, cycle: false}
 *   {type: cosine, steps: 1000, alpha: 0.1}
 *   {type: piecewise, boundaries: [100, 1000], values: [0.1, 0.05, 0.01]}
 *   {type: warmup, steps: 100, start: 0, then: {...}}
 * Defaults as TensorFlow's: end 0.0001, power 1, alpha 0, start 0.
 * SHOAL_ECONFIG with line and column. */
int store_schedule_parse(const struct config_node *decay, struct store_schedule *schedule,
                         struct err *err);

#endif
