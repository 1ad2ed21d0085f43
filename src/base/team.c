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

/* Thread 0 opens a round, the others enter it when they see it, and all take parts until none is
 * left. Thread 0 then closes the round to those who have not come yet and waits for those inside.
 * So a thread whose core is busy with something else is never waited for, only a part that has been
 * begun is. All of that is one word, the gate:
 *
 *     | round number (23 bits) | open (1) | threads inside (8) |
 *
 * The round number may wrap: a thread that slept through all of them misses a round, no more. */
#define GATE_INSIDE 0xffu
#define GATE_OPEN 0x100u
#define GATE_ROUND 0x200u
static_assert(TEAM_THREADS_MAX - 1 <= GATE_INSIDE, "all but thread 0 fit inside the gate");

/* The parts of one thread that nobody has begun. Own line: others look in only when they are done. */
struct share {
    _Alignas(64) _Atomic uint64_t next; /* 64 bits: threads that find it empty may count past end */
    uint32_t end;
};

struct team {
    uint32_t threads_count; /* set at create, then read only */
    uint64_t spin_cycles;   /* set at create, then read only */
    pthread_t *threads;

    /* Written by thread 0 while the gate is closed and nobody is inside; read by those inside. */
    struct share *shares; /* one a thread */
    team_part_cb *cb;
    void *ctx;
    bool stop;

    _Alignas(64) _Atomic uint32_t gate;
    _Atomic uint32_t sleepers; /* threads that need a wake-up when the gate changes for them */
};

/* How long to spin before sleeping: some 100 us. Phases of a step follow each other faster than
 * that, and a sleep and its wake-up cost about a tenth of it. */
#define SPIN_CYCLES 250000u

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

/* Returns once the gate is not `value`. The sleeper count is raised before the futex looks at the
 * gate again, and a waker changes the gate before it reads the count: one of the two sees the other
 * (seq_cst). */
static void wait_for_change(struct team *team, uint32_t value)
{
    const uint64_t start = team->spin_cycles > 0 ? __rdtsc() : 0;
    while (team->spin_cycles > 0 && __rdtsc() - start < team->spin_cycles) {
        if (atomic_load_explicit(&team->gate, memory_order_relaxed) != value) return;
        _mm_pause();
    }
    atomic_fetch_add(&team->sleepers, 1);
    futex_wait(&team->gate, value);
    atomic_fetch_sub(&team->sleepers, 1);
}

static void wake_sleepers(struct team *team)
{
    if (atomic_load(&team->sleepers) != 0) futex_wake(&team->gate);
}

/* Own parts first, then what is left of the others. Relaxed is enough to hand out numbers: the gate
 * orders everything else. */
static void run_shares(struct team *team, uint32_t thread)
{
    for (uint32_t i = 0; i < team->threads_count; i++) {
        struct share *share = &team->shares[(thread + i) % team->threads_count];
        while (atomic_load_explicit(&share->next, memory_order_relaxed) < share->end) {
            const uint64_t part = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
            if (part >= share->end) break;
            team->cb(team->ctx, (uint32_t)part, thread);
        }
    }
}

static void set_shares(struct team *team, uint32_t parts_count)
{
    const uint64_t threads = team->threads_count;
    uint64_t first = 0;
    for (uint64_t thread = 0; thread < threads; thread++) {
        struct share *share = &team->shares[thread];
        atomic_store_explicit(&share->next, first, memory_order_relaxed);
        first = (parts_count * (thread + 1) + threads - 1) / threads;
        share->end = (uint32_t)first;
    }
    ASSERT(first == parts_count);
}

/* Parts run with denormal numbers taken as zero: Adam's moments fade into them where gradients stay
 * zero, and each operation on one costs a hundred ordinary ones. On every thread alike, so that the
 * bits do not depend on who runs a part. Returns the mode that was in force. */
static uint32_t flush_denormals(void)
{
    enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 };
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(before | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    return before;
}

static void *thread_main(void *arg)
{
    const struct start start = *(struct start *)arg;
    mem_free(arg);
    flush_denormals();
    struct team *team = start.team;
    uint32_t done = 0; /* the round that this thread was in last; the first is 1 */
    for (;;) {
        uint32_t gate = atomic_load(&team->gate);
        if ((gate & GATE_OPEN) == 0 || gate / GATE_ROUND == done) {
            wait_for_change(team, gate);
            continue;
        }
        if (!atomic_compare_exchange_strong(&team->gate, &gate, gate + 1)) continue;
        done = gate / GATE_ROUND;
        const bool stop = team->stop;
        if (!stop) run_shares(team, start.thread);
        /* The last one out of a closed gate: thread 0 may be asleep. */
        const uint32_t left = atomic_fetch_sub(&team->gate, 1) - 1;
        if ((left & (GATE_OPEN | GATE_INSIDE)) == 0) wake_sleepers(team);
        if (stop) return NULL;
    }
}

static void open_gate(struct team *team)
{
    ASSERT((atomic_load_explicit(&team->gate, memory_order_relaxed) & (GATE_OPEN | GATE_INSIDE)) ==
           0);
    atomic_fetch_add(&team->gate, GATE_ROUND | GATE_OPEN);
    wake_sleepers(team);
}

/* Returns when nobody is inside and nobody can come in. */
static void close_gate(struct team *team)
{
    uint32_t gate = atomic_fetch_sub(&team->gate, GATE_OPEN) - GATE_OPEN;
    while ((gate & GATE_INSIDE) != 0) {
        wait_for_change(team, gate);
        gate = atomic_load(&team->gate);
    }
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
    team->spin_cycles = threads_count <= cores ? SPIN_CYCLES : 0;
    team->threads = mem_alloc_array(MEM_BASE, threads_count, sizeof *team->threads);
    team->shares = mem_alloc_array(MEM_BASE, threads_count, sizeof *team->shares);
    int rc = team->threads == NULL || team->shares == NULL
                 ? err_set(err, SHOAL_ENOMEM, "no memory for a thread team")
                 : 0;
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
    const uint32_t mode = flush_denormals(); /* The caller's thread is only lent to us. */
    if (team == NULL || team->threads_count == 1 || parts_count <= 1) {
        for (uint32_t part = 0; part < parts_count; part++) cb(ctx, part, 0);
    } else {
        team->cb = cb;
        team->ctx = ctx;
        set_shares(team, parts_count);
        open_gate(team);
        run_shares(team, 0);
        close_gate(team);
    }
    _mm_setcsr(mode);
}

uint32_t team_threads(const struct team *team)
{
    return team == NULL ? 1 : team->threads_count;
}

void team_destroy(struct team *team)
{
    if (team == NULL) return;
    team->stop = true;
    if (team->threads_count > 1) open_gate(team); /* for good: all come in and see `stop` */
    for (uint32_t thread = 1; thread < team->threads_count; thread++) {
        pthread_join(team->threads[thread], NULL);
    }
    mem_free(team->shares);
    mem_free(team->threads);
    mem_free(team);
}
