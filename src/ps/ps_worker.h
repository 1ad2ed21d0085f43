/* ps_worker is the half of a worker that talks: it asks the chief for a batch, pulls the rows that the
 * batch needs (one message per ps for all tables), lets the caller compute, pushes the gradients, and
 * reports the batch as done when every ps has answered. Whatever is not answered is sent again.
 *
 *                  WORK             rows here          computed            all answered
 *   JOIN --> ASK ---------> PULL ------------> COMPUTE ----------> PUSH ----------------> ASK
 *             ^ |                                                    |
 *             | +-- WAIT: says for whom          fenced off: the lease is another's
 *             +------------------------------------------------------+
 *   from any: a new epoch -> ASK (what was at hand is forgotten); the job is over -> END
 *
 * (1) One batch at a time; answers that belong to another request are not looked at.
 * (2) The next batch of a lease is asked for only when every ps has this one: so a shard that has batch
 *     k proves that all shards have what comes before k.
 *
 * Threads: one. */
#ifndef SHOAL_PS_WORKER_H
#define SHOAL_PS_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cluster/cluster.h"
#include "cluster/env.h"
#include "cluster/msg.h"
#include "ps/ps_route.h"

struct ps_batch_table {
    uint32_t table;
    uint32_t count;
    uint32_t cols;
    const uint64_t *keys;   /* unique */
    float *rows;            /* count x cols; filled by the pull */
    const float *gradients; /* count x cols; read after ps_worker_computed */
};

/* Memory is the caller's and stays until the next input. */
struct ps_batch {
    uint32_t tables_count;
    const struct ps_batch_table *tables;
};

struct ps_worker_opts {
    struct env env;
    struct cluster cluster;
    uint32_t index;
    uint64_t incarnation;
    uint64_t heartbeat_ns;
    uint64_t retry_ns; /* after which a request is repeated */
    const struct ps_route *route;
    /* What the batch of `work` needs. */
    int (*input)(void *ctx, const struct msg_work *work, struct ps_batch *batch_out,
                 struct err *err);
    /* The rows are there; the caller computes and calls ps_worker_computed, now or later. */
    void (*compute)(void *ctx, const struct msg_work *work, uint64_t request);
    void *ctx;
};

struct ps_worker;

int ps_worker_create(const struct ps_worker_opts *opts, struct ps_worker **worker_out,
                     struct err *err);
void ps_worker_destroy(struct ps_worker *worker); /* NULL is a no-op. */

void ps_worker_receive(struct ps_worker *worker, const struct msg *msg);
void ps_worker_tick(struct ps_worker *worker);
/* The gradients of that request are there; nothing happens if it has been given up meanwhile. */
void ps_worker_computed(struct ps_worker *worker, uint64_t request);

struct ps_worker_stats {
    uint64_t batches;  /* reported as done */
    uint64_t examples; /* of them */
    uint64_t fenced;   /* batches given up since the lease is another's */
    uint64_t repeats;  /* requests sent again */
    int failure;       /* input failed: the code; the worker stands still */
    struct err failure_text;
};
const struct ps_worker_stats *ps_worker_stats(const struct ps_worker *worker);

bool ps_worker_has_ended(const struct ps_worker *worker);
/* For whom the worker waits, for what, since when; WAIT_NONE while it computes. */
struct wait ps_worker_wait(const struct ps_worker *worker);

#endif
