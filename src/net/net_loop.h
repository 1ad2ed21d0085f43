/* net_loop is one thread's wait for everything at once: file descriptors (epoll), timers, work that
 * other threads post, and memory shared with other processes (pollers). It owns no connection; it
 * calls those who do.
 *
 * A turn does the work there is; when there is none it looks again for spin_ns, then sleeps until
 * something happens. Whoever brings work looks at a flag first and makes a system call only when the
 * loop sleeps, so a loop that is awake is given work by plain stores:
 *
 *     loop                                      poster (thread or process)
 *     asleep := 1                               put work
 *     fence; is there work? -> do not sleep     fence; asleep? -> asleep := 0, write the eventfd
 *     epoll_wait
 *
 * Each writes before it reads what the other writes, so one of the two sees the other.
 *
 * Threads: the loop belongs to the thread that created it until net_loop_start gives it a thread of
 * its own; net_loop_stop gives it back. All calls are for the owner, except where it says "any
 * thread". Callbacks run on the owner, one at a time, and may call everything but net_loop_turn. */
#ifndef SHOAL_NET_LOOP_H
#define SHOAL_NET_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "net/net_timer.h"

struct net_loop;

struct net_loop_opts {
    uint64_t
        spin_ns; /* how long to look for work before sleeping, at most NET_SPIN_NS_MAX; default 0 */
};

/* spin_ns for a host with this many tasks: 0 when they are more than the cores we may use. */
uint64_t net_loop_spin_ns(uint32_t tasks_on_host);

int net_loop_create(const struct net_loop_opts *opts, struct net_loop **loop_out, struct err *err);
/* Stopped, everything taken out; posts that are left run now. NULL is a no-op. */
void net_loop_destroy(struct net_loop *loop);

/* Gives the loop a thread of its own, which turns until net_loop_stop. */
int net_loop_start(struct net_loop *loop, struct err *err);
/* Returns when the thread has ended; what was posted before has run. Not started: no-op. */
void net_loop_stop(struct net_loop *loop);

/* One turn on the caller's thread: waits for something to do, at most until until_ns (clock_now_ns;
 * 0: does not wait). Only while the loop has no thread of its own. */
void net_loop_turn(struct net_loop *loop, uint64_t until_ns);

/* Whether this thread owns the loop. Any thread. */
bool net_loop_is_mine(const struct net_loop *loop);

/* ---- work from elsewhere ---------------------------------------------------------------------- */

/* The caller owns the node and keeps it until `run` has been called; it must not be posted twice
 * before that. `run` may free or post it again. */
struct net_post {
    void (*run)(struct net_post *post);
    struct net_post *next; /* the loop's */
};

/* Any thread: runs the node on the loop's thread, in the order of posting. */
void net_loop_post(struct net_loop *loop, struct net_post *post);

/* Runs the node at the end of this turn, before the loop sleeps. A node that waits already stays
 * where it is, so a caller may ask as often as it likes. */
struct net_later {
    void (*run)(struct net_later *later);
    struct net_later *next; /* the loop's */
    bool is_waiting;
};
void net_loop_later(struct net_loop *loop, struct net_later *later);
void net_loop_forget(struct net_loop *loop, struct net_later *later); /* not waiting: no-op */

/* Any thread: runs cb(ctx) on the loop's thread and returns when it has; on that thread itself, or
 * when the loop has no thread of its own and the caller owns it, at once. */
void net_loop_call(struct net_loop *loop, void (*cb)(void *ctx), void *ctx);

/* ---- timers ----------------------------------------------------------------------------------- */

uint64_t net_loop_now(const struct net_loop *loop); /* clock_now_ns of this turn */
void net_loop_timer_set(struct net_loop *loop, struct net_timer *timer, uint64_t due_ns);
void net_loop_timer_clear(struct net_loop *loop, struct net_timer *timer); /* not set: no-op */

/* ---- file descriptors ------------------------------------------------------------------------- */

struct net_watch {
    int fd;
    void (*run)(struct net_watch *watch, uint32_t events);
    uint32_t events; /* the loop's: what is asked for now */
    bool is_added;   /* the loop's */
};

/* Calls run when one of the EPOLL* events (level-triggered) holds; 0 asks for errors only. Called
 * again it changes what is asked for. */
int net_loop_watch(struct net_loop *loop, struct net_watch *watch, uint32_t events,
                   struct err *err);
/* After this run is not called any more. Before the descriptor is closed. Not added: no-op. */
void net_loop_unwatch(struct net_loop *loop, struct net_watch *watch);

/* ---- shared memory ---------------------------------------------------------------------------- */

struct net_poller {
    /* Does the work there is; whether there was any. */
    bool (*poll)(struct net_poller *poller);
    /* The loop is about to sleep: tell the other side, then whether there is work after all. */
    bool (*arm)(struct net_poller *poller);
    /* The loop is awake. */
    void (*disarm)(struct net_poller *poller);
    struct net_poller *next; /* the loop's */
    bool is_added;
};
void net_loop_add_poller(struct net_loop *loop, struct net_poller *poller);
void net_loop_remove_poller(struct net_loop *loop, struct net_poller *poller); /* not in: no-op */

/* An eventfd: another process that writes to it wakes the loop. Stays the loop's. */
int net_loop_wake_fd(const struct net_loop *loop);

/* How often the loop has slept, and how often it asked the kernel for events. Any thread. */
struct net_loop_stats {
    uint64_t turns;
    uint64_t sleeps;
    uint64_t kernel_waits; /* calls of epoll_wait, sleeping or not */
    uint64_t wakes;        /* eventfd writes to ourselves, by posters */
};
void net_loop_stats(const struct net_loop *loop, struct net_loop_stats *stats_out);

#endif
