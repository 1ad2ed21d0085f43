#include "base/team.h"

#include <stdatomic.h>

#include "../tests/test.h"
#include "base/bounds.h"
#include "base/mem.h"

#define PARTS_MAX 1000u

struct record {
    _Atomic uint32_t runs[PARTS_MAX];
    uint32_t thread_of[PARTS_MAX];
};

static void note_part(void *ctx, uint32_t part, uint32_t thread)
{
    struct record *record = ctx;
    atomic_fetch_add_explicit(&record->runs[part], 1, memory_order_relaxed);
    record->thread_of[part] = thread;
}

/* Each part runs exactly once, on the thread that the header promises. */
TEST(every_part_runs_once_on_its_thread)
{
    static const uint32_t threads[] = {1, 2, 3, 7};
    static const uint32_t parts[] = {0, 1, 2, 3, 5, 64, PARTS_MAX};
    struct err err = {0};
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        struct team *team = NULL;
        CHECK_OK(team_create(threads[t], &team, &err));
        CHECK_INT(team_threads(team), threads[t]);
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            struct record record = {0};
            team_run(team, parts[p], note_part, &record);
            for (uint32_t part = 0; part < PARTS_MAX; part++) {
                CHECK_INT(record.runs[part], part < parts[p] ? 1 : 0);
                if (part < parts[p] && parts[p] > 1) {
                    CHECK_INT(record.thread_of[part], (uint64_t)part * threads[t] / parts[p]);
                }
            }
        }
        team_destroy(team);
    }
}

TEST(no_team_is_the_caller_alone)
{
    struct record record = {0};
    team_run(NULL, 3, note_part, &record);
    CHECK_INT(record.runs[0] + record.runs[1] + record.runs[2], 3);
    CHECK_INT(team_threads(NULL), 1);
    team_destroy(NULL);
}

static void add_part(void *ctx, uint32_t part, uint32_t thread)
{
    uint64_t *sums = ctx;
    sums[part] += part + 1;
    (void)thread;
}

/* What one round wrote the next one reads, without a lock: the barrier orders them. More threads
 * than cores take the sleeping path. */
TEST(rounds_follow_one_another)
{
    struct err err = {0};
    static const uint32_t threads[] = {2, 5};
    for (size_t t = 0; t < 2; t++) {
        struct team *team = NULL;
        CHECK_OK(team_create(threads[t], &team, &err));
        uint64_t sums[16] = {0};
        for (int round = 0; round < 2000; round++) team_run(team, 16, add_part, sums);
        for (uint32_t part = 0; part < 16; part++) CHECK_INT(sums[part], 2000 * (part + 1));
        team_destroy(team);
    }
}

TEST(zero_threads_means_all_cores_and_too_many_are_refused)
{
    struct err err = {0};
    struct team *team = NULL;
    CHECK_OK(team_create(0, &team, &err));
    CHECK(team_threads(team) >= 1);
    team_destroy(team);
    team = NULL;
    CHECK_INT(team_create(TEAM_THREADS_MAX + 1, &team, &err), SHOAL_ELIMIT);
    CHECK_HAS(err.text, "at most 256");
    CHECK(team == NULL);
}

TEST(failed_allocations_leave_nothing_behind)
{
    struct err err = {0};
    for (uint64_t nth = 1;; nth++) {
        struct team *team = NULL;
        mem_fail_nth(nth);
        const int rc = team_create(3, &team, &err);
        const bool happened = mem_fail_nth(0);
        if (!happened) CHECK_INT(rc, 0);
        if (happened) CHECK_INT(rc, SHOAL_ENOMEM);
        team_destroy(team);
        CHECK_INT(mem_bytes_total(), 0);
        if (!happened) break;
    }
}
