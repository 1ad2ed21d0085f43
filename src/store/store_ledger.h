/* store_ledger is what a shard has applied: for each stream of work (a lease, a worker) the last
 * piece. It makes a push that comes twice harmless and one that comes too late refused. A shard sees
 * only the work that touches it, so numbers may skip; they never go back. Owned by its shard. */
#ifndef SHOAL_STORE_LEDGER_H
#define SHOAL_STORE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "store/store.h"

struct store_ledger {
    struct store_work *streams; /* the last applied of each */
    uint32_t count;
    uint32_t last; /* where the last search ended: streams come in runs */
    size_t capacity;
};

void store_ledger_fini(struct store_ledger *ledger);

enum store_verdict { STORE_APPLY, STORE_REPEATED };

/* What to do with a piece of work: apply it, or nothing since it is done. Makes room, so that
 * store_ledger_record cannot fail. SHOAL_ESTALE: fenced off by a newer token; SHOAL_ELIMIT: too many
 * streams; SHOAL_ENOMEM. */
int store_ledger_check(struct store_ledger *ledger, const struct store_work *work,
                       enum store_verdict *verdict_out, struct err *err);

/* The work is done (again). Only after store_ledger_check of the same. */
void store_ledger_record(struct store_ledger *ledger, const struct store_work *work);

void store_ledger_retire(struct store_ledger *ledger, uint64_t lease);

/* Replaces all. */
int store_ledger_restore(struct store_ledger *ledger, const struct store_work *streams,
                         uint32_t count, struct err *err);

bool store_ledger_ok(const struct store_ledger *ledger);

#endif
