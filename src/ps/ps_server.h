/* ps_server is the half of a parameter server that decides: it holds a store, answers pulls, applies
 * pushes, keeps the gradients of a synchronous step aside until the chief names the set, and loads and
 * saves when the chief says. A state machine over an env; bytes of checkpoints are the caller's.
 *
 * (1) It answers only in the epoch whose state it has loaded.
 * (2) Leased work goes to the store under its name, (lease, token, batch): each shard applies it once.
 *     The names of leases that are done are forgotten; below `leases_below` all is done, so a late push
 *     is answered as one that was repeated. The mark is saved with the shards.
 * (3) A synchronous step is one push of the store, named by the step: the sum over the named slots in
 *     slot order, divided by their examples.
 *
 * Threads: one. */
#ifndef SHOAL_PS_SERVER_H
#define SHOAL_PS_SERVER_H

#include <stdint.h>

#include "base/bounds.h"
#include "base/err.h"
#include "cluster/cluster.h"
#include "cluster/env.h"
#include "cluster/msg.h"
#include "store/store.h"

/* Saved and loaded beside the store's shards. */
struct ps_state {
    uint64_t leases_below;
    uint64_t version; /* pushes applied */
};

struct ps_server_opts {
    struct env env;
    uint32_t index;
    uint64_t incarnation;
    uint64_t heartbeat_ns;
    /* The store as it was in a checkpoint; 0: as it is born. Ownership of the store goes to the server. */
    int (*load)(void *ctx, uint64_t checkpoint, struct store **store_out,
                struct ps_state *state_out, struct err *err);
    /* Marks the cut now; when it is on disk, the caller calls ps_server_written. */
    int (*save)(void *ctx, uint64_t checkpoint, struct store *store, const struct ps_state *state,
                struct err *err);
    void *ctx;
};

struct ps_server;

int ps_server_create(const struct ps_server_opts *opts, struct ps_server **server_out,
                     struct err *err);
void ps_server_destroy(struct ps_server *server); /* NULL is a no-op. */

void ps_server_receive(struct ps_server *server, const struct msg *msg);
void ps_server_tick(struct ps_server *server);
void ps_server_written(struct ps_server *server, uint64_t checkpoint);

struct ps_server_stats {
    uint64_t pulls;
    uint64_t applied;  /* pushes; synchronous: steps */
    uint64_t repeated; /* had been applied already */
    uint64_t stale;    /* fenced off, or of another epoch */
    uint64_t dropped;  /* gradients that came too late or were not named */
    uint64_t failed;   /* could not be applied; the last reason is in `failure` */
    struct err failure;
    uint64_t staleness[PS_STALENESS_MAX + 1]; /* pushes by how many came between pull and push */
    uint64_t staleness_sum;
    uint64_t staleness_max;
};
const struct ps_server_stats *ps_server_stats(const struct ps_server *server);

bool ps_server_has_ended(const struct ps_server *server);
uint64_t ps_server_epoch(const struct ps_server *server); /* loaded; 0: none */
/* Borrowed until the next message; NULL before the first load. */
const struct store *ps_server_store(const struct ps_server *server);

#endif
