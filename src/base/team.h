/* team is a fixed set of threads that run the parts of one piece of work together. Work is cut
 * into parts by the caller's rule (never by the number of threads), each part is run exactly once,
 * and team_run returns when all are done: so the same parts give the same bits on any team.
 *
 * (1) Part p is first offered to thread p * threads / parts, so that neighbouring parts, and the
 * same parts of the next round, stay on one thread's cache. A thread that is done takes what others
 * have not begun: `thread` is for scratch memory alone, never for results. (2) Thread 0 is the
 * caller. Only the creating thread may call team_run; no nesting. (3) What was written before
 * team_run is seen by every part, and what the parts wrote is seen after it.
 * Waiting spins briefly while the machine has a core for each thread, then sleeps. */
#ifndef SHOAL_BASE_TEAM_H
#define SHOAL_BASE_TEAM_H

#include <stdint.h>

#include "base/err.h"

struct team;

typedef void team_part_cb(void *ctx, uint32_t part, uint32_t thread);

/* threads_count 0: as many as the process may use (sched_getaffinity). SHOAL_ELIMIT beyond
 * TEAM_THREADS_MAX. */
int team_create(uint32_t threads_count, struct team **team_out, struct err *err);

/* Runs cb for parts 0 .. parts_count-1, with denormal numbers taken as zero. team NULL: all on the
 * calling thread. A round costs about a microsecond: a part is worth it from some ten thousand
 * operations up. */
void team_run(struct team *team, uint32_t parts_count, team_part_cb *cb, void *ctx);

uint32_t team_threads(const struct team *team); /* NULL: 1. */

void team_destroy(struct team *team); /* NULL is a no-op. */

#endif
