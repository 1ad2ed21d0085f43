#include "net/net_ring.h"

#include <string.h>

#include "base/assert.h"
#include "base/err.h"

/* Bytes are shown to the other side in pieces, so that both work at the same time. */
#define PIECE_BYTES ((size_t)32 << 10)
/* A sleeper is woken at the end of a call, and within it after so many bytes: earlier wake-ups would
 * make two tasks on one core take turns for every piece. */
#define WAKE_BYTES ((uint64_t)256 << 10)

void net_ring_init(struct net_ring *ring, struct net_ring_shared *shared, void *data, uint64_t size)
{
    ASSERT(size > 0 && (size & (size - 1)) == 0);
    *ring = (struct net_ring){.shared = shared, .data = data, .size = size};
}

/* What the writer may write, or -1: the reader's counter is impossible. */
static int64_t room(struct net_ring *ring)
{
    ring->theirs = atomic_load(&ring->shared->tail);
    const uint64_t used = ring->mine - ring->theirs;
    return used > ring->size ? -1 : (int64_t)(ring->size - used);
}

static int64_t filled(struct net_ring *ring)
{
    ring->theirs = atomic_load(&ring->shared->head);
    const uint64_t used = ring->theirs - ring->mine;
    return used > ring->size ? -1 : (int64_t)used;
}

/* Where the writer goes on: a quarter, so that it does not run after every piece that is read. The
 * reader wakes it at half, which is more, and gets there when it empties the ring. */
static bool is_enough_room(const struct net_ring *ring, int64_t bytes)
{
    return bytes < 0 || (uint64_t)bytes >= ring->size / 4;
}

/* The other side sleeps and nobody else is going to wake it. Seq_cst throughout: we store our counter,
 * then read their flag; they store their flag, then read our counter; so one of us sees the other. */
static bool must_wake(_Atomic uint32_t *asleep)
{
    return atomic_load(asleep) != 0 && atomic_exchange(asleep, 0) != 0;
}

/* Between looks at the flag a plain release is enough, and cheaper. */
static void show_head(struct net_ring *ring, bool *wake_out, bool at_end)
{
    if (!at_end && ring->unchecked < WAKE_BYTES) {
        atomic_store_explicit(&ring->shared->head, ring->mine, memory_order_release);
        return;
    }
    atomic_store(&ring->shared->head, ring->mine);
    ring->unchecked = 0;
    *wake_out |= must_wake(&ring->shared->reader_asleep);
}

static void show_tail(struct net_ring *ring, bool *wake_out, bool at_end)
{
    if (!at_end) {
        atomic_store_explicit(&ring->shared->tail, ring->mine, memory_order_release);
        return;
    }
    atomic_store(&ring->shared->tail, ring->mine);
    if (filled(ring) > (int64_t)(ring->size / 2)) return;
    *wake_out |= must_wake(&ring->shared->writer_asleep);
}

/* One piece at the ring's own position: at most to the end of the data. */
static size_t piece(const struct net_ring *ring, size_t bytes, int64_t possible)
{
    const uint64_t to_end = ring->size - (ring->mine & (ring->size - 1));
    uint64_t most = to_end < (uint64_t)possible ? to_end : (uint64_t)possible;
    if (most > PIECE_BYTES) most = PIECE_BYTES;
    return bytes < most ? bytes : (size_t)most;
}

int64_t net_ring_write(struct net_ring *ring, const struct iovec *parts, size_t parts_count,
                       bool *wake_out)
{
    int64_t written = 0;
    int64_t possible = room(ring);
    size_t unshown = 0;
    for (size_t i = 0; i < parts_count; i++) {
        const uint8_t *from = parts[i].iov_base;
        size_t left = parts[i].iov_len;
        while (left > 0) {
            if (possible == 0) possible = room(ring);
            if (possible <= 0) goto out;
            const size_t step = piece(ring, left, possible);
            memcpy(ring->data + (ring->mine & (ring->size - 1)), from, step);
            from += step;
            left -= step;
            possible -= (int64_t)step;
            ring->mine += step;
            ring->unchecked += step;
            written += (int64_t)step;
            unshown += step;
            if (unshown < PIECE_BYTES) continue;
            show_head(ring, wake_out, false);
            unshown = 0;
        }
    }
out:
    if (possible < 0) return SHOAL_ECORRUPT;
    if (written > 0) show_head(ring, wake_out, true);
    return written;
}

int64_t net_ring_read(struct net_ring *ring, const struct iovec *parts, size_t parts_count,
                      bool *wake_out)
{
    int64_t taken = 0;
    int64_t possible = filled(ring);
    size_t unshown = 0;
    for (size_t i = 0; i < parts_count; i++) {
        uint8_t *to = parts[i].iov_base;
        size_t left = parts[i].iov_len;
        while (left > 0) {
            if (possible == 0) possible = filled(ring);
            if (possible <= 0) goto out;
            const size_t step = piece(ring, left, possible);
            memcpy(to, ring->data + (ring->mine & (ring->size - 1)), step);
            to += step;
            left -= step;
            possible -= (int64_t)step;
            ring->mine += step;
            taken += (int64_t)step;
            unshown += step;
            if (unshown < PIECE_BYTES) continue;
            show_tail(ring, wake_out, false);
            unshown = 0;
        }
    }
out:
    if (possible < 0) return SHOAL_ECORRUPT;
    if (taken > 0) show_tail(ring, wake_out, true);
    return taken;
}

bool net_ring_can_write(struct net_ring *ring)
{
    return is_enough_room(ring, room(ring));
}

bool net_ring_can_read(struct net_ring *ring)
{
    return filled(ring) != 0;
}

/* Stores the flag, then looks at the other's counter: see must_wake. */
bool net_ring_arm_writer(struct net_ring *ring)
{
    atomic_store(&ring->shared->writer_asleep, 1);
    return net_ring_can_write(ring);
}

bool net_ring_arm_reader(struct net_ring *ring)
{
    atomic_store(&ring->shared->reader_asleep, 1);
    return net_ring_can_read(ring);
}

void net_ring_disarm_writer(struct net_ring *ring)
{
    atomic_store_explicit(&ring->shared->writer_asleep, 0, memory_order_relaxed);
}

void net_ring_disarm_reader(struct net_ring *ring)
{
    atomic_store_explicit(&ring->shared->reader_asleep, 0, memory_order_relaxed);
}
