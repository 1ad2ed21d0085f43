/* team is a fixed set of threads that run the parts of one piece of work together. Work is cut
 * into parts by the caller's rule (never by the number of threads), each part is run exactly once,
 * and team_run returns when all are done: so the same parts give the same bits on any team.
 *
 * (1) Part p goes to thread p * threads / parts: neighbouring parts stay on one thread's cache.
 * (2) Thread 0 is the caller. Only the creating thread may call team_run; no nesting.
 * Waiting spins briefly while the machine has a core for each thread, then sleeps. */
#ifndef SHOAL_BASE_TEAM_H
#define SHOAL_BASE_TEAM_H

#include <stdint.h>

#include "base/err.h"

struct team;

typedef void team_part_cb(void *ctx, uint32_t part, uint32_t thread);

/* threads_count 0: as many as the process may use (sched_getaffinity). */
int team_create(uint32_t threads_count, struct team **team_out, struct err *err);

/* Runs cb for parts 0 .. parts_count-1. team NULL: all on the calling thread. */
void team_run(struct team *team, uint32_t parts_count, team_part_cb *cb, void *ctx);

uint32_t team_threads(const struct team *team); /* NULL: 1. */

void team_destroy(struct team *team); /* NULL is a no-op. */

#endif
