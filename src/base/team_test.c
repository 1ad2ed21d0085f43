#include "base/team.h"

#include <sched.h>
#include <stdatomic.h>

#include "../tests/test.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "base/mem.h"

static struct team *make_team(uint32_t threads_count)
{
    struct err err = {0};
    struct team *team = NULL;
    CHECK_OK(team_create(threads_count, &team, &err));
    return team;
}

/* Each part has a counter of its own: no atomics, so that the thread sanitizer sees a part that is
 * run twice or whose writes are not ordered before the end of the round. */
struct counters {
    uint32_t runs[1000];
    uint32_t threads_count;
};

static void count_run(void *ctx, uint32_t part, uint32_t thread)
{
    struct counters *counters = ctx;
    CHECK(thread < counters->threads_count);
    counters->runs[part]++;
}

/* Every part is run exactly once, whatever the numbers of parts and threads. */
TEST(every_part_runs_once)
{
    static const uint32_t parts[] = {0, 1, 2, 3, 7, 64, 999, 1000};
    for (uint32_t threads = 1; threads <= 5; threads++) {
        struct team *team = make_team(threads);
        CHECK_INT(team_threads(team), threads);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            struct counters counters = {.threads_count = threads};
            team_run(team, parts[i], count_run, &counters);
            team_run(team, parts[i], count_run, &counters);
            for (uint32_t part = 0; part < 1000; part++) {
                CHECK_INT(counters.runs[part], part < parts[i] ? 2 : 0);
            }
        }
        team_destroy(team);
    }
}

/* No team is a team of the caller alone. */
TEST(no_team_runs_on_the_caller)
{
    struct counters counters = {.threads_count = 1};
    CHECK_INT(team_threads(NULL), 1);
    team_run(NULL, 10, count_run, &counters);
    for (uint32_t part = 0; part < 10; part++) CHECK_INT(counters.runs[part], 1);
    team_destroy(NULL);
}

/* Zero asks for all cores that the process may use. */
TEST(zero_threads_means_all_cores)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    struct team *team = make_team(0);
    CHECK_INT(team_threads(team), CPU_COUNT(&set));
    team_destroy(team);
}

struct sums {
    float parts[64];
    float scale;
};

static void sum_part(void *ctx, uint32_t part, uint32_t thread)
{
    (void)thread;
    struct sums *sums = ctx;
    float sum = sums->parts[part];
    for (int i = 1; i < 100; i++) sum += sums->scale / (float)(i + (int)part);
    sums->parts[part] = sum;
}

static float run_sums(struct team *team)
{
    struct sums sums = {.scale = 1};
    for (int round = 0; round < 50; round++) {
        team_run(team, 64, sum_part, &sums);
        float total = 0;
        for (int part = 0; part < 64; part++) total += sums.parts[part];
        sums.scale = 1 / total; /* each round depends on all parts of the one before */
    }
    return sums.scale;
}

/* The same parts give the same bits on any team, and each round sees all of the one before. */
TEST(results_are_the_same_for_any_thread_count)
{
    const float want = run_sums(NULL);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct team *team = make_team(threads);
        const float got = run_sums(team);
        CHECK(memcmp(&got, &want, sizeof got) == 0);
        team_destroy(team);
    }
}

struct held {
    _Atomic uint32_t others_done;
    uint32_t parts;
};

static void hold_first(void *ctx, uint32_t part, uint32_t thread)
{
    (void)thread;
    struct held *held = ctx;
    if (part > 0) {
        atomic_fetch_add(&held->others_done, 1);
        return;
    }
    while (atomic_load(&held->others_done) < held->parts - 1) sched_yield();
}

/* A thread that is held up loses its other parts to those that are free: part 0 here ends only
 * after all others have. */
TEST(free_threads_take_over_what_is_left)
{
    struct team *team = make_team(2);
    for (int round = 0; round < 100; round++) {
        struct held held = {.parts = 50};
        team_run(team, 50, hold_first, &held);
        CHECK_INT(atomic_load(&held.others_done), 49);
    }
    team_destroy(team);
}

static void do_nothing(void *ctx, uint32_t part, uint32_t thread)
{
    (void)ctx;
    (void)part;
    (void)thread;
}

/* 100,000 rounds are over before the test's deadline, also on a team larger than the machine. */
TEST(rounds_are_quick)
{
    static const uint32_t threads[] = {2, 8};
    for (int i = 0; i < 2; i++) {
        struct team *team = make_team(threads[i]);
        const uint64_t start = clock_now_ns();
        for (int round = 0; round < 100000; round++) team_run(team, 4, do_nothing, NULL);
        const double ns = (double)(clock_now_ns() - start) / 100000;
        printf("  a round of %u threads: %.0f ns\n", threads[i], ns);
        team_destroy(team);
    }
}

/* Bounds: the largest team is refused one beyond, with the numbers. */
TEST(too_many_threads_are_refused)
{
    struct err err = {0};
    struct team *team = NULL;
    CHECK_INT(team_create(TEAM_THREADS_MAX + 1, &team, &err), SHOAL_ELIMIT);
    CHECK_STR(err.text, "257 threads, at most 256");
    CHECK(team == NULL);
}

/* Whichever allocation fails, create says so and leaves nothing behind. */
TEST(create_survives_every_failed_allocation)
{
    for (uint64_t nth = 1;; nth++) {
        struct err err = {0};
        struct team *team = NULL;
        const size_t bytes = mem_bytes_total();
        mem_fail_nth(nth);
        const int rc = team_create(3, &team, &err);
        if (!mem_fail_nth(0)) {
            CHECK_INT(rc, 0);
            team_destroy(team);
            break;
        }
        CHECK_INT(rc, SHOAL_ENOMEM);
        CHECK(team == NULL);
        CHECK_INT(mem_bytes_total(), bytes);
    }
}

static void halve_smallest(void *ctx, uint32_t part, uint32_t thread)
{
    (void)thread;
    volatile float smallest = 1.17549435e-38f; /* FLT_MIN: half of it is denormal */
    ((float *)ctx)[part] = smallest * 0.5f;
}

/* Denormal results are zero on every thread of a team, and the caller's own mode is left alone. */
TEST(denormals_are_flushed_while_parts_run)
{
    float got[64];
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct team *team = make_team(threads);
        team_run(team, 64, halve_smallest, got);
        for (int i = 0; i < 64; i++) CHECK(got[i] == 0.0f);
        team_destroy(team);
    }
    halve_smallest(got, 0, 0);
    CHECK(got[0] != 0.0f);
}
