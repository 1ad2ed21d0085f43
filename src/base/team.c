#include "base/team.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"

/* A round of work is announced by raising `round`, and reported done by lowering `busy` to zero.
 * Both are waited for by a short spin, then a futex; `sleepers` says whether a wake-up is needed.
 */
struct team {
    uint32_t threads_count; /* set at create, then read only */
    uint32_t spins_max;     /* set at create, then read only */
    pthread_t *threads;

    team_part_cb *cb; /* written by thread 0 before `round` is raised (release), then read only */
    void *ctx;
    uint32_t parts_count;
    bool stop;

    _Alignas(64) _Atomic uint32_t round;
    _Atomic uint32_t round_sleepers;
    _Alignas(64) _Atomic uint32_t busy; /* threads other than 0 that are not done */
    _Atomic uint32_t busy_sleepers;
};

struct start {
    struct team *team;
    uint32_t thread;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Returns once *word != value. The sleeper count is raised before the futex re-checks the word, and
 * the waker changes the word before it reads the count: one of the two sees the other (seq_cst). */
static void wait_until_not(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers,
                           uint32_t spins_max)
{
    for (uint32_t spin = 0; spin < spins_max; spin++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return;
        _mm_pause();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == value) {
        atomic_fetch_add(sleepers, 1);
        futex_wait(word, value);
        atomic_fetch_sub(sleepers, 1);
    }
}

static void run_share(struct team *team, uint32_t thread)
{
    const uint64_t parts = team->parts_count;
    const uint32_t first =
        (uint32_t)((parts * thread + team->threads_count - 1) / team->threads_count);
    const uint32_t last =
        (uint32_t)((parts * (thread + 1) + team->threads_count - 1) / team->threads_count);
    for (uint32_t part = first; part < last; part++) team->cb(team->ctx, part, thread);
}

static void *thread_main(void *arg)
{
    const struct start start = *(struct start *)arg;
    mem_free(arg);
    struct team *team = start.team;
    uint32_t seen = 0;
    for (;;) {
        wait_until_not(&team->round, seen, &team->round_sleepers, team->spins_max);
        seen++;
        if (team->stop) return NULL;
        run_share(team, start.thread);
        if (atomic_fetch_sub(&team->busy, 1) == 1 && atomic_load(&team->busy_sleepers) != 0) {
            futex_wake(&team->busy);
        }
    }
}

static void announce(struct team *team)
{
    atomic_fetch_add(&team->round, 1);
    if (atomic_load(&team->round_sleepers) != 0) futex_wake(&team->round);
}

static uint32_t cores_usable(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    const int count = CPU_COUNT(&set);
    return count < 1 ? 1 : (uint32_t)count;
}

int team_create(uint32_t threads_count, struct team **team_out, struct err *err)
{
    const uint32_t cores = cores_usable();
    if (threads_count == 0) threads_count = cores < TEAM_THREADS_MAX ? cores : TEAM_THREADS_MAX;
    if (threads_count > TEAM_THREADS_MAX) {
        return err_set(err, SHOAL_ELIMIT, "%u threads, at most %u", threads_count,
                       TEAM_THREADS_MAX);
    }
    struct team *team = mem_alloc(MEM_BASE, sizeof *team);
    if (team == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a thread team");
    team->threads_count = 1;
    team->spins_max = threads_count <= cores ? 20000 : 0;
    team->threads = mem_alloc_array(MEM_BASE, threads_count, sizeof *team->threads);
    int rc = team->threads == NULL ? err_set(err, SHOAL_ENOMEM, "no memory for a thread team") : 0;
    while (rc == 0 && team->threads_count < threads_count) {
        struct start *start = mem_alloc(MEM_BASE, sizeof *start);
        if (start == NULL) {
            rc = err_set(err, SHOAL_ENOMEM, "no memory for a thread team");
            break;
        }
        *start = (struct start){.team = team, .thread = team->threads_count};
        const int failed =
            pthread_create(&team->threads[team->threads_count], NULL, thread_main, start);
        if (failed != 0) {
            mem_free(start);
            rc = err_set_errno(err, failed, "start thread %u of %u", team->threads_count,
                               threads_count);
        } else {
            team->threads_count++;
        }
    }
    if (rc != 0) {
        team_destroy(team);
        return rc;
    }
    *team_out = team;
    return 0;
}

void team_run(struct team *team, uint32_t parts_count, team_part_cb *cb, void *ctx)
{
    if (team == NULL || team->threads_count == 1 || parts_count <= 1) {
        for (uint32_t part = 0; part < parts_count; part++) cb(ctx, part, 0);
        return;
    }
    team->cb = cb;
    team->ctx = ctx;
    team->parts_count = parts_count;
    atomic_store(&team->busy, team->threads_count - 1);
    announce(team);
    run_share(team, 0);
    for (;;) {
        const uint32_t busy = atomic_load(&team->busy);
        if (busy == 0) break;
        wait_until_not(&team->busy, busy, &team->busy_sleepers, team->spins_max);
    }
}

uint32_t team_threads(const struct team *team)
{
    return team == NULL ? 1 : team->threads_count;
}

void team_destroy(struct team *team)
{
    if (team == NULL) return;
    team->stop = true;
    if (team->threads_count > 1) announce(team);
    for (uint32_t thread = 1; thread < team->threads_count; thread++) {
        pthread_join(team->threads[thread], NULL);
    }
    mem_free(team->threads);
    mem_free(team);
}
