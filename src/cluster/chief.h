/* chief keeps the small truth of a job: who is in the cluster, the epoch, who has which lease with which
 * token, the step, the last checkpoint. A state machine: chief_receive and chief_tick go in, messages
 * go out through the env. It never sees a parameter.
 *
 *            all ps here, as journalled
 *   GATHER ------------------------------> LOAD ----- all ps loaded -----> RUN ---- all done ----> END
 *      |                                    ^ |                             |
 *      +--- all ps here, one is new --------+ +<-- a ps lost its memory: ---+
 *           or the job is new: new epoch           new epoch, roll back
 *
 * (1) What the chief tells others to rely on is in the journal, synced, before it is told: epochs,
 *     tokens, leases that are done, sets of synchronous steps (unless every gradient counts: then there
 *     is nothing to choose). A restarted chief goes on from there; nothing is rolled back.
 * (2) A lease has one holder with one token; a new holder has a higher token than any before. Progress
 *     of a lease is what its holder has reported; the journal may know less, in which case batches are
 *     sent again, and shards that have them say so.
 * (3) A lease's number says what it covers, for ever: after a rollback it is granted again as it was.
 * (4) Progress is recorded before the shards mark their cut, so a checkpoint's shards have all that its
 *     progress says, perhaps more; what they have more is saved with them and not applied again.
 *     (So leased work need not pause for a cut; synchronous steps do, between two commits.)
 * (5) A new epoch begins if and only if a ps comes with a new incarnation: its memory is gone, so every
 *     ps goes back to the last checkpoint, and so do progress and step. Tokens and tickets do not.
 * (6) Whoever waits is in chief_waits: for whom, for what, since when.
 *
 * Threads: one. */
#ifndef SHOAL_CLUSTER_CHIEF_H
#define SHOAL_CLUSTER_CHIEF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cluster/cluster.h"
#include "cluster/env.h"
#include "cluster/msg.h"

enum chief_discipline { CHIEF_ASYNC, CHIEF_SSP, CHIEF_SYNC };
enum chief_phase { CHIEF_GATHER, CHIEF_LOAD, CHIEF_RUN, CHIEF_END };

/* What a lease covers: examples first .. first + examples of the data. */
struct chief_span {
    uint64_t first;
    uint64_t examples;
};

struct chief_opts {
    struct env env;
    struct cluster cluster;
    uint64_t incarnation; /* higher than that of any chief before */
    enum chief_discipline discipline;
    uint64_t staleness;        /* ssp: batches that a worker may be ahead of the slowest */
    uint32_t sync_replicas;    /* sync: gradients a step; 0: one per worker */
    uint32_t batch_size;       /* examples */
    uint64_t steps_max;        /* sync: required; else 0 is no limit */
    uint64_t checkpoint_steps; /* 0: one at the end */
    uint64_t heartbeat_ns;     /* tasks say hello this often; requests are repeated as often */
    uint64_t deadline_ns;      /* a task not heard for this long counts as dead */
    /* The span of a lease (3); false when there is none. Unused in sync. */
    bool (*lease)(void *ctx, uint64_t lease, struct chief_span *span_out);
    /* sync: the batch of a slot in a step; examples may be 0. */
    struct chief_span (*batch)(void *ctx, uint64_t step, uint32_t slot);
    void *ctx;
};

struct chief;

/* Reads the journal: an empty one is a new job. SHOAL_EMISMATCH for that of another cluster. */
int chief_create(const struct chief_opts *opts, struct chief **chief_out, struct err *err);
void chief_destroy(struct chief *chief); /* NULL is a no-op. */

void chief_receive(struct chief *chief, const struct msg *msg);
void chief_tick(struct chief *chief);

struct chief_status {
    enum chief_phase phase;
    uint64_t epoch;
    uint64_t checkpoint;  /* the last that is whole; 0: none yet */
    uint64_t steps;       /* updates that count: batches done, synchronous steps */
    uint64_t examples;    /* trained on, each once per pass over the data */
    uint64_t dropped;     /* gradients that came too late for their step */
    uint64_t rolled_back; /* steps, by all new epochs of this process */
    uint64_t deaths;      /* workers given up */
    bool has_ended;       /* everyone alive knows that the job is over */
    int failure;          /* the journal could not be written: the code; the chief stands still */
};
struct chief_status chief_status(const struct chief *chief);

/* At most `max` waits; returns how many. */
uint32_t chief_waits(const struct chief *chief, struct wait *waits_out, uint32_t max);

/* ssp: batches that a worker has finished, as counted for the bound; false when it has no lease. */
bool chief_clock(const struct chief *chief, uint32_t worker, uint64_t *clock_out);

#endif
