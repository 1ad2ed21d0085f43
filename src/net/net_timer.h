/* net_timer keeps timers ordered by the absolute time at which they are due: a pairing heap
 * (Fredman, Sedgewick, Sleator, Tarjan 1986). The caller owns the timers, so nothing is allocated
 * and setting one cannot fail. One thread: the loop's.
 * (1) A timer is in at most one heap. (2) No timer is due before the one at the root. */
#ifndef SHOAL_NET_TIMER_H
#define SHOAL_NET_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct net_timer;
typedef void net_timer_cb(struct net_timer *timer);

/* Zeroed with `run` filled in, it is ready; it must not move while it is set. */
struct net_timer {
    net_timer_cb *run;
    uint64_t due_ns;         /* read only: set by net_timer_set */
    struct net_timer *child; /* the rest is the heap's */
    struct net_timer *next;  /* sibling */
    struct net_timer *prev;  /* sibling before, or the parent of a first child */
    bool is_set;
};

struct net_timers {
    struct net_timer *root; /* NULL: none is set */
};

/* A timer that is set already is moved. */
void net_timer_set(struct net_timers *timers, struct net_timer *timer, uint64_t due_ns);
void net_timer_clear(struct net_timers *timers, struct net_timer *timer); /* not set: no-op */

/* When the first is due; UINT64_MAX when there is none. */
uint64_t net_timers_next_ns(const struct net_timers *timers);

/* Takes out and returns the first that is due at now_ns, NULL when none is. */
struct net_timer *net_timers_pop(struct net_timers *timers, uint64_t now_ns);

/* Checks (2) and the links, for tests: O(n). */
bool net_timers_ok(const struct net_timers *timers);

#endif
