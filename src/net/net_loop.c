#include "net/net_loop.h"

#include <errno.h>
#include <immintrin.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "base/mem.h"

#define EVENTS_MAX 64
/* While rings keep the loop busy, the kernel is asked for other events only this often. */
#define KERNEL_LAG_NS 500000u

struct net_loop {
    int epoll_fd; /* set at create, then read only */
    int wake_fd;
    uint64_t spin_ns;

    /* loop thread */
    uint64_t now_ns;
    uint64_t kernel_asked_ns;
    struct net_timers timers;
    struct net_later *later_first;
    struct net_later *later_last;
    struct net_poller *pollers;
    uint32_t watches_count; /* beside the eventfd's */
    struct epoll_event events[EVENTS_MAX];
    int events_count; /* of the batch that is being handed out */
    bool is_turning;

    pthread_t thread;
    bool has_thread; /* by those who call start and stop */
    _Atomic(const void *) owner;

    /* any thread */
    _Alignas(64) _Atomic(struct net_post *) posted; /* newest first */
    _Atomic uint32_t asleep;
    _Atomic bool stop;

    _Atomic uint64_t turns; /* relaxed: counters only */
    _Atomic uint64_t sleeps;
    _Atomic uint64_t kernel_waits;
    _Atomic uint64_t wakes;
};

/* Its address names the thread. */
static _Thread_local char this_thread;

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

bool net_loop_is_mine(const struct net_loop *loop)
{
    return atomic_load_explicit(&loop->owner, memory_order_relaxed) == &this_thread;
}

static void take_over(struct net_loop *loop)
{
    atomic_store_explicit(&loop->owner, &this_thread, memory_order_relaxed);
}

uint64_t net_loop_spin_ns(uint32_t tasks_on_host)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    return tasks_on_host <= (uint32_t)CPU_COUNT(&set) ? NET_SPIN_NS_MAX : 0;
}

int net_loop_create(const struct net_loop_opts *opts, struct net_loop **loop_out, struct err *err)
{
    if (opts->spin_ns > NET_SPIN_NS_MAX) {
        return err_set(err, SHOAL_EINVAL, "a loop that spins %llu ns, at most %u",
                       (unsigned long long)opts->spin_ns, NET_SPIN_NS_MAX);
    }
    struct net_loop *loop = mem_alloc(MEM_NET, sizeof *loop);
    if (loop == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a loop");
    loop->spin_ns = opts->spin_ns;
    loop->now_ns = loop->kernel_asked_ns = clock_now_ns();
    loop->wake_fd = -1;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd >= 0) loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* Edge-triggered: every write wakes, and nobody has to read the counter. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    if (loop->wake_fd < 0 || epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) != 0) {
        const int failed = errno;
        net_loop_destroy(loop);
        return err_set_errno(err, failed, "make a loop");
    }
    take_over(loop);
    *loop_out = loop;
    return 0;
}

/* ---- what a turn does ------------------------------------------------------------------------- */

static bool run_posts(struct net_loop *loop)
{
    if (atomic_load_explicit(&loop->posted, memory_order_relaxed) == NULL) return false;
    struct net_post *newest = atomic_exchange_explicit(&loop->posted, NULL, memory_order_acquire);
    struct net_post *oldest = NULL;
    while (newest != NULL) {
        struct net_post *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct net_post *post = oldest;
        oldest = post->next;
        post->run(post);
    }
    return true;
}

void net_loop_destroy(struct net_loop *loop)
{
    if (loop == NULL) return;
    ASSERT(!loop->has_thread);
    ASSERT(loop->pollers == NULL && loop->watches_count == 0);
    run_posts(loop); /* their owners wait for it */
    if (loop->wake_fd >= 0) close(loop->wake_fd);
    if (loop->epoll_fd >= 0) close(loop->epoll_fd);
    mem_free(loop);
}

static bool run_timers(struct net_loop *loop)
{
    bool any = false;
    struct net_timer *timer = NULL;
    while ((timer = net_timers_pop(&loop->timers, loop->now_ns)) != NULL) {
        timer->run(timer);
        any = true;
    }
    return any;
}

static bool run_pollers(struct net_loop *loop)
{
    bool any = false;
    struct net_poller *next = NULL;
    for (struct net_poller *poller = loop->pollers; poller != NULL; poller = next) {
        next = poller->next; /* A poller may take itself out, no other. */
        any |= poller->poll(poller);
    }
    return any;
}

/* Those that ask again while they run come in the next turn, so that nobody is starved. */
static bool run_later(struct net_loop *loop)
{
    struct net_later *last = loop->later_last;
    if (last == NULL) return false;
    for (;;) {
        struct net_later *later = loop->later_first;
        if (later == NULL) return true;
        loop->later_first = later->next;
        if (loop->later_first == NULL) loop->later_last = NULL;
        const bool was_last = later == last;
        later->is_waiting = false;
        later->next = NULL;
        later->run(later);
        if (was_last) return true;
    }
}

static bool work(struct net_loop *loop)
{
    loop->now_ns = clock_now_ns();
    bool any = run_posts(loop);
    any |= run_timers(loop);
    any |= run_pollers(loop);
    any |= run_later(loop);
    return any;
}

/* Asks the kernel what happened, waiting for at most timeout_ms (-1: no limit). */
static void ask_kernel(struct net_loop *loop, int timeout_ms)
{
    count(&loop->kernel_waits);
    const int got = epoll_wait(loop->epoll_fd, loop->events, EVENTS_MAX, timeout_ms);
    ASSERT(got >= 0 || errno == EINTR);
    loop->events_count = got < 0 ? 0 : got;
    loop->now_ns = loop->kernel_asked_ns = clock_now_ns();
}

/* Hands out what the kernel said; whether it said anything. */
static bool hand_out(struct net_loop *loop)
{
    const bool any = loop->events_count > 0;
    for (int i = 0; i < loop->events_count; i++) {
        struct net_watch *watch = loop->events[i].data.ptr; /* NULL: the eventfd, or taken out */
        if (watch != NULL) watch->run(watch, loop->events[i].events);
    }
    loop->events_count = 0;
    return any | run_later(loop);
}

/* Looks for work for a while; whether there was some. */
static bool spin(struct net_loop *loop, uint64_t until_ns)
{
    if (loop->spin_ns == 0) return false;
    const uint64_t limit_ns =
        loop->now_ns + loop->spin_ns < until_ns ? loop->now_ns + loop->spin_ns : until_ns;
    while (loop->now_ns < limit_ns) {
        for (int i = 0; i < 8; i++) _mm_pause();
        if (work(loop)) return true;
        if (loop->pollers != NULL) continue;
        ask_kernel(loop, 0);
        if (hand_out(loop)) return true;
    }
    return false;
}

/* The time to sleep, rounded up: a timer that fires early would make the loop turn for nothing. */
static int sleep_ms(const struct net_loop *loop, uint64_t until_ns)
{
    const uint64_t next_ns = net_timers_next_ns(&loop->timers);
    const uint64_t due_ns = next_ns < until_ns ? next_ns : until_ns;
    if (due_ns == UINT64_MAX) return -1;
    if (due_ns <= loop->now_ns) return 0;
    const uint64_t ms = (due_ns - loop->now_ns + 999999) / 1000000;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

/* The flags go down again before anything is handed out: callbacks may change the list. */
static void sleep_until(struct net_loop *loop, uint64_t until_ns)
{
    atomic_store(&loop->asleep, 1); /* seq_cst here and below, as the essay says */
    bool is_work = loop->later_first != NULL;
    for (struct net_poller *poller = loop->pollers; poller != NULL; poller = poller->next) {
        is_work |= poller->arm(poller);
    }
    is_work |= atomic_load(&loop->posted) != NULL;
    is_work |= atomic_load(&loop->stop);
    if (!is_work) count(&loop->sleeps);
    ask_kernel(loop, is_work ? 0 : sleep_ms(loop, until_ns));
    atomic_store_explicit(&loop->asleep, 0, memory_order_relaxed);
    for (struct net_poller *poller = loop->pollers; poller != NULL; poller = poller->next) {
        poller->disarm(poller);
    }
}

void net_loop_turn(struct net_loop *loop, uint64_t until_ns)
{
    ASSERT(net_loop_is_mine(loop));
    ASSERT(!loop->is_turning);
    loop->is_turning = true;
    count(&loop->turns);
    if (work(loop)) {
        if (loop->now_ns - loop->kernel_asked_ns > KERNEL_LAG_NS) {
            ask_kernel(loop, 0);
            hand_out(loop);
        }
    } else if (!spin(loop, until_ns)) {
        sleep_until(loop, until_ns);
        hand_out(loop);
    }
    loop->is_turning = false;
}

static void *thread_main(void *arg)
{
    struct net_loop *loop = arg;
    take_over(loop);
    while (!atomic_load(&loop->stop)) net_loop_turn(loop, UINT64_MAX);
    run_posts(loop);
    return NULL;
}

int net_loop_start(struct net_loop *loop, struct err *err)
{
    ASSERT(!loop->has_thread);
    ASSERT(net_loop_is_mine(loop));
    atomic_store(&loop->stop, false);
    atomic_store_explicit(&loop->owner, NULL, memory_order_relaxed); /* the thread takes over */
    const int failed = pthread_create(&loop->thread, NULL, thread_main, loop);
    if (failed != 0) {
        take_over(loop);
        return err_set_errno(err, failed, "start the thread of a loop");
    }
    pthread_setname_np(loop->thread, "net");
    loop->has_thread = true;
    return 0;
}

static void wake(struct net_loop *loop)
{
    if (atomic_load(&loop->asleep) == 0 || atomic_exchange(&loop->asleep, 0) == 0) return;
    count(&loop->wakes);
    const uint64_t one = 1;
    while (write(loop->wake_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

void net_loop_stop(struct net_loop *loop)
{
    if (!loop->has_thread) return;
    ASSERT(!net_loop_is_mine(loop));
    atomic_store(&loop->stop, true);
    wake(loop);
    pthread_join(loop->thread, NULL);
    loop->has_thread = false;
    take_over(loop);
}

/* ---- work from elsewhere ---------------------------------------------------------------------- */

void net_loop_post(struct net_loop *loop, struct net_post *post)
{
    ASSERT(post->run != NULL);
    struct net_post *newest = atomic_load_explicit(&loop->posted, memory_order_relaxed);
    do {
        post->next = newest;
    } while (!atomic_compare_exchange_weak(&loop->posted, &newest, post)); /* seq_cst: essay */
    wake(loop);
}

void net_loop_later(struct net_loop *loop, struct net_later *later)
{
    ASSERT(net_loop_is_mine(loop));
    if (later->is_waiting) return;
    later->is_waiting = true;
    later->next = NULL;
    if (loop->later_last != NULL) {
        loop->later_last->next = later;
    } else {
        loop->later_first = later;
    }
    loop->later_last = later;
}

void net_loop_forget(struct net_loop *loop, struct net_later *later)
{
    if (!later->is_waiting) return;
    struct net_later *before = NULL;
    struct net_later **link = &loop->later_first;
    while (*link != later) {
        before = *link;
        link = &before->next;
    }
    *link = later->next;
    if (loop->later_last == later) loop->later_last = before;
    later->is_waiting = false;
}

struct call {
    struct net_post post;
    void (*cb)(void *ctx);
    void *ctx;
    pthread_mutex_t lock; /* guards is_done */
    pthread_cond_t done;
    bool is_done;
};

static void run_call(struct net_post *post)
{
    struct call *call = (struct call *)post; /* its first member */
    call->cb(call->ctx);
    pthread_mutex_lock(&call->lock);
    call->is_done = true;
    pthread_cond_signal(&call->done);
    pthread_mutex_unlock(&call->lock);
}

void net_loop_call(struct net_loop *loop, void (*cb)(void *ctx), void *ctx)
{
    if (net_loop_is_mine(loop)) {
        cb(ctx);
        return;
    }
    struct call call = {.post.run = run_call, .cb = cb, .ctx = ctx};
    pthread_mutex_init(&call.lock, NULL);
    pthread_cond_init(&call.done, NULL);
    net_loop_post(loop, &call.post);
    pthread_mutex_lock(&call.lock);
    while (!call.is_done) pthread_cond_wait(&call.done, &call.lock);
    pthread_mutex_unlock(&call.lock);
    pthread_cond_destroy(&call.done);
    pthread_mutex_destroy(&call.lock);
}

/* ---- timers, descriptors, pollers ------------------------------------------------------------- */

uint64_t net_loop_now(const struct net_loop *loop)
{
    return loop->now_ns;
}

void net_loop_timer_set(struct net_loop *loop, struct net_timer *timer, uint64_t due_ns)
{
    ASSERT(net_loop_is_mine(loop));
    net_timer_set(&loop->timers, timer, due_ns);
}

void net_loop_timer_clear(struct net_loop *loop, struct net_timer *timer)
{
    ASSERT(net_loop_is_mine(loop));
    net_timer_clear(&loop->timers, timer);
}

int net_loop_watch(struct net_loop *loop, struct net_watch *watch, uint32_t events, struct err *err)
{
    ASSERT(net_loop_is_mine(loop));
    ASSERT(watch->run != NULL);
    if (watch->is_added && watch->events == events) return 0;
    struct epoll_event event = {.events = events, .data.ptr = watch};
    const int what = watch->is_added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(loop->epoll_fd, what, watch->fd, &event) != 0) {
        return err_set_errno(err, errno, "watch descriptor %d", watch->fd);
    }
    if (!watch->is_added) loop->watches_count++;
    watch->is_added = true;
    watch->events = events;
    return 0;
}

void net_loop_unwatch(struct net_loop *loop, struct net_watch *watch)
{
    ASSERT(net_loop_is_mine(loop));
    if (!watch->is_added) return;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->is_added = false;
    loop->watches_count--;
    /* What the kernel has said of it in this batch is not handed out any more. */
    for (int i = 0; i < loop->events_count; i++) {
        if (loop->events[i].data.ptr == watch) loop->events[i].data.ptr = NULL;
    }
}

void net_loop_add_poller(struct net_loop *loop, struct net_poller *poller)
{
    ASSERT(net_loop_is_mine(loop));
    ASSERT(!poller->is_added);
    poller->next = loop->pollers;
    poller->is_added = true;
    loop->pollers = poller;
}

void net_loop_remove_poller(struct net_loop *loop, struct net_poller *poller)
{
    ASSERT(net_loop_is_mine(loop));
    if (!poller->is_added) return;
    struct net_poller **link = &loop->pollers;
    while (*link != poller) link = &(*link)->next;
    *link = poller->next;
    poller->is_added = false;
}

int net_loop_wake_fd(const struct net_loop *loop)
{
    return loop->wake_fd;
}

void net_loop_stats(const struct net_loop *loop, struct net_loop_stats *stats_out)
{
    *stats_out = (struct net_loop_stats){
        .turns = atomic_load_explicit(&loop->turns, memory_order_relaxed),
        .sleeps = atomic_load_explicit(&loop->sleeps, memory_order_relaxed),
        .kernel_waits = atomic_load_explicit(&loop->kernel_waits, memory_order_relaxed),
        .wakes = atomic_load_explicit(&loop->wakes, memory_order_relaxed),
    };
}
