#include "net/net_loop.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../tests/test.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "base/mem.h"

static struct err err;

static struct net_loop *make(uint64_t spin_ns)
{
    struct net_loop *loop = NULL;
    CHECK_OK(net_loop_create(&(struct net_loop_opts){.spin_ns = spin_ns}, &loop, &err));
    return loop;
}

struct counted {
    struct net_post post;
    uint64_t order;
    uint64_t *next_wanted;
    _Atomic uint64_t *done;
};

static void run_counted(struct net_post *post)
{
    struct counted *counted = (struct counted *)post;
    CHECK_INT(counted->order, *counted->next_wanted);
    ++*counted->next_wanted;
    atomic_fetch_add(counted->done, 1);
}

enum { POSTS = 20000 };

struct poster {
    struct net_loop *loop;
    struct counted *posts;
};

static void *post_all(void *arg)
{
    struct poster *poster = arg;
    for (size_t i = 0; i < POSTS; i++) net_loop_post(poster->loop, &poster->posts[i].post);
    return NULL;
}

/* What several threads post runs once, in each thread's order, and a loop that is awake is not
 * woken. */
TEST(posts_run_once_in_order)
{
    struct net_loop *loop = make(0);
    CHECK_OK(net_loop_start(loop, &err));
    CHECK(!net_loop_is_mine(loop));
    enum { THREADS = 2 };
    pthread_t thread[THREADS];
    struct poster poster[THREADS];
    uint64_t next[THREADS] = {0};
    _Atomic uint64_t done = 0;
    for (int i = 0; i < THREADS; i++) {
        poster[i].loop = loop;
        poster[i].posts = mem_alloc_array(MEM_NET, POSTS, sizeof *poster[i].posts);
        CHECK(poster[i].posts != NULL);
        for (size_t j = 0; j < POSTS; j++) {
            poster[i].posts[j] = (struct counted){{.run = run_counted}, j, &next[i], &done};
        }
        CHECK_INT(pthread_create(&thread[i], NULL, post_all, &poster[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    net_loop_stop(loop);
    CHECK(net_loop_is_mine(loop));
    CHECK_INT(atomic_load(&done), THREADS * POSTS);
    struct net_loop_stats stats;
    net_loop_stats(loop, &stats);
    CHECK(stats.wakes < THREADS * POSTS);
    net_loop_destroy(loop);
    for (int i = 0; i < THREADS; i++) mem_free(poster[i].posts);
    CHECK_INT(mem_bytes(MEM_NET), 0);
}

static void set_flag(void *ctx)
{
    *(bool *)ctx = true;
}

/* A call returns after it has run on the loop's thread, or at once when there is none. */
TEST(calls_have_run_when_they_return)
{
    struct net_loop *loop = make(0);
    bool flag = false;
    net_loop_call(loop, set_flag, &flag);
    CHECK(flag);
    CHECK_OK(net_loop_start(loop, &err));
    for (int i = 0; i < 100; i++) {
        flag = false;
        net_loop_call(loop, set_flag, &flag);
        CHECK(flag);
    }
    net_loop_stop(loop);
    net_loop_stop(loop);
    net_loop_destroy(loop);
    net_loop_destroy(NULL);
}

struct alarm_clock {
    struct net_timer timer;
    struct net_loop *loop;
    int rung;
};

static void ring(struct net_timer *timer)
{
    struct alarm_clock *clock = (struct alarm_clock *)timer;
    CHECK(clock_now_ns() >= timer->due_ns);
    CHECK(net_loop_now(clock->loop) >= timer->due_ns);
    if (++clock->rung < 3) net_loop_timer_set(clock->loop, timer, timer->due_ns + 1000000);
}

/* Timers fire at their time, not before, may set themselves again, and a cleared one never fires. */
TEST(timers_fire_when_due)
{
    struct net_loop *loop = make(0);
    const uint64_t start = clock_now_ns();
    struct alarm_clock a = {{.run = ring}, loop, 0};
    struct alarm_clock b = {{.run = ring}, loop, 0};
    net_loop_timer_set(loop, &a.timer, start + 3000000);
    net_loop_timer_set(loop, &b.timer, start + 1000000);
    net_loop_timer_clear(loop, &b.timer);
    while (a.rung < 3) net_loop_turn(loop, UINT64_MAX);
    const uint64_t took = clock_now_ns() - start;
    CHECK(took >= 5000000 && took < 2000000000);
    CHECK_INT(b.rung, 0);
    const uint64_t before = clock_now_ns();
    net_loop_turn(loop, before + 2000000);
    CHECK(clock_now_ns() >= before + 2000000);
    net_loop_turn(loop, 0);
    net_loop_destroy(loop);
}

struct pipe_end {
    struct net_watch watch;
    struct net_loop *loop;
    struct pipe_end *other;
    int seen;
};

static void take_both_out(struct net_watch *watch, uint32_t events)
{
    struct pipe_end *end = (struct pipe_end *)watch;
    CHECK((events & EPOLLIN) != 0);
    end->seen++;
    net_loop_unwatch(end->loop, watch);
    net_loop_unwatch(end->loop, &end->other->watch);
}

/* A watch that was taken out by another in the same batch is not called. */
TEST(watches_taken_out_are_not_called)
{
    struct net_loop *loop = make(0);
    int one[2];
    int two[2];
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, one), 0);
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, two), 0);
    struct pipe_end a = {{.fd = one[0], .run = take_both_out}, loop, NULL, 0};
    struct pipe_end b = {{.fd = two[0], .run = take_both_out}, loop, &a, 0};
    a.other = &b;
    CHECK_OK(net_loop_watch(loop, &a.watch, EPOLLIN, &err));
    CHECK_OK(net_loop_watch(loop, &b.watch, 0, &err));
    CHECK_OK(net_loop_watch(loop, &b.watch, EPOLLIN, &err));
    CHECK_INT(write(one[1], "x", 1), 1);
    CHECK_INT(write(two[1], "x", 1), 1);
    net_loop_turn(loop, UINT64_MAX);
    net_loop_turn(loop, 0);
    CHECK_INT(a.seen + b.seen, 1);
    struct net_watch bad = {.fd = 9999, .run = take_both_out};
    CHECK(net_loop_watch(loop, &bad, EPOLLIN, &err) != 0);
    net_loop_destroy(loop);
    for (int i = 0; i < 2; i++) {
        close(one[i]);
        close(two[i]);
    }
}

struct again {
    struct net_later later;
    struct net_loop *loop;
    int runs;
};

static void run_again(struct net_later *later)
{
    struct again *again = (struct again *)later;
    again->runs++;
    net_loop_later(again->loop, later);
}

/* What asks for later runs, once for any number of asks; what asks again does not keep the loop from
 * other work; what was forgotten does not run. */
TEST(later_runs_before_the_loop_sleeps)
{
    struct net_loop *loop = make(0);
    struct again a = {{.run = run_again}, loop, 0};
    struct again b = {{.run = run_again}, loop, 0};
    net_loop_later(loop, &a.later);
    net_loop_later(loop, &a.later);
    net_loop_later(loop, &b.later);
    for (int i = 1; i <= 5; i++) {
        net_loop_turn(loop, UINT64_MAX);
        CHECK(a.runs >= i && a.runs <= 2 * i);
        CHECK_INT(b.runs, a.runs);
    }
    const int before = b.runs;
    net_loop_forget(loop, &b.later);
    net_loop_turn(loop, UINT64_MAX);
    CHECK_INT(b.runs, before);
    CHECK(a.runs > before);
    const int after = a.runs;
    net_loop_forget(loop, &a.later);
    net_loop_forget(loop, &a.later);
    net_loop_turn(loop, 0);
    CHECK_INT(a.runs, after);
    net_loop_destroy(loop);
}

/* An idle loop sleeps: it takes no time of the processor, spinning or not. */
TEST(idle_loop_sleeps)
{
    struct net_loop *loop = make(NET_SPIN_NS_MAX);
    CHECK_OK(net_loop_start(loop, &err));
    struct rusage before;
    struct rusage after;
    getrusage(RUSAGE_SELF, &before);
    usleep(300000);
    getrusage(RUSAGE_SELF, &after);
    const long used_us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
                         (after.ru_utime.tv_usec - before.ru_utime.tv_usec) +
                         (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 +
                         (after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    CHECK(used_us < 3000);
    struct net_loop_stats stats;
    net_loop_stats(loop, &stats);
    CHECK(stats.sleeps < 5);
    net_loop_stop(loop);
    net_loop_destroy(loop);
}

TEST(spinning_is_bounded_and_only_where_there_are_cores)
{
    CHECK_INT(net_loop_spin_ns(1), NET_SPIN_NS_MAX);
    CHECK_INT(net_loop_spin_ns(1000000), 0);
    struct net_loop *loop = NULL;
    CHECK_INT(net_loop_create(&(struct net_loop_opts){.spin_ns = NET_SPIN_NS_MAX + 1}, &loop, &err),
              SHOAL_EINVAL);
}

/* Failing allocations and descriptors leave nothing behind. */
TEST(create_fails_cleanly)
{
    struct net_loop *loop = NULL;
    mem_fail_nth(1);
    CHECK_INT(net_loop_create(&(struct net_loop_opts){0}, &loop, &err), SHOAL_ENOMEM);
    mem_fail_nth(0);
    const int next = dup(0);
    close(next);
    for (rlim_t fds = (rlim_t)next; fds < (rlim_t)next + 2; fds++) {
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){fds, 1024});
        CHECK(net_loop_create(&(struct net_loop_opts){0}, &loop, &err) != 0);
        CHECK_HAS(err.text, "loop");
    }
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){1024, 1024});
    CHECK_INT(dup(0), next);
    CHECK_INT(mem_bytes(MEM_NET), 0);
}
