/* sim runs a whole cluster (chief, ps, workers) in one thread over a simulated network, disk and clock,
 * everything drawn from one seed: messages are lost, late and repeated, links are cut, processes crash
 * (what was not synced is lost) and come back, or pause and wake up late. The tasks are the real state
 * machines of cluster and ps over a simulated env; the model is a toy whose gradients are integers, so
 * that what was trained can be counted exactly.
 *
 * Checked while it runs and at the end:
 *   no push is applied twice; none is lost that was acknowledged and not rolled back;
 *   no shard applies an older token of a lease after a newer one; no token has two holders;
 *   synchronous steps are exactly the sum of the set that the chief named, once;
 *   every example of a pass is trained once, by the last checkpoint's own bytes;
 *   ssp: nobody is further ahead than allowed; everything ends in bounded time. */
#ifndef SHOAL_SIM_H
#define SHOAL_SIM_H

#include <stdint.h>

#include "base/err.h"

struct sim_opts {
    uint64_t seed;
    uint64_t steps;     /* updates; 0: by the seed */
    uint32_t rules_off; /* bits of enum env_rule that are not kept: the checkers should notice */
};

struct sim_result {
    const char *discipline;
    uint64_t ps;
    uint64_t workers;
    uint64_t messages; /* delivered */
    uint64_t drops;
    uint64_t duplicates;
    uint64_t crashes;
    uint64_t pauses;
    uint64_t partitions;
    uint64_t pushes_applied;
    uint64_t pushes_repeated; /* answered, since they had been applied */
    uint64_t pushes_stale;    /* refused: older token or epoch */
    uint64_t steps;
    uint64_t examples;
    uint64_t epochs;
    uint64_t rolled_back_steps;
    uint64_t gradients_dropped;
    double staleness_mean;
    uint64_t staleness_max;
    double seconds; /* simulated */
};

/* SHOAL_ECORRUPT when a checker found something: the message says what and has the seed. */
int sim_run(const struct sim_opts *opts, struct sim_result *result_out, struct err *err);

#endif
