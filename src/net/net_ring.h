/* net_ring is one direction of a stream of bytes in memory that two processes share: one writes, one
 * reads, no system call. It does not wait; sides that sleep say so in a flag, and the other one is
 * told by the functions here when it has to wake them.
 *
 *     shared line 1 (the writer's): head, writer_asleep      data: size bytes, a power of two
 *     shared line 2 (the reader's): tail, reader_asleep
 *
 * (1) tail <= head <= tail + size; both only grow. (2) The writer touches data[head .. tail + size),
 * the reader data[tail .. head), modulo size. (3) Each side keeps its own counter in its own memory
 * and checks what it reads of the other's: a broken peer costs the connection, nothing else. */
#ifndef SHOAL_NET_RING_H
#define SHOAL_NET_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct net_ring_shared {
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint32_t writer_asleep;
    _Alignas(64) _Atomic uint64_t tail;
    _Atomic uint32_t reader_asleep;
};

/* One side's view of a ring. Plain memory of that side, one thread. */
struct net_ring {
    struct net_ring_shared *shared;
    uint8_t *data;
    uint64_t size;
    uint64_t mine;      /* the writer's head or the reader's tail */
    uint64_t theirs;    /* the other counter as last seen */
    uint64_t unchecked; /* bytes moved since the other's flag was last looked at */
};

void net_ring_init(struct net_ring *ring, struct net_ring_shared *shared, void *data,
                   uint64_t size);

/* Bytes moved, 0 when the ring is full (or empty), negative (SHOAL_ECORRUPT) when the other side broke
 * (1). *wake_out: the other side sleeps, and there is enough for it to do: wake it. */
int64_t net_ring_write(struct net_ring *ring, const struct iovec *parts, size_t parts_count,
                       bool *wake_out);
int64_t net_ring_read(struct net_ring *ring, const struct iovec *parts, size_t parts_count,
                      bool *wake_out);

/* Whether it is worth while to write (enough is free), or to read (there is a byte). A broken ring is
 * worth while: the next call says so. */
bool net_ring_can_write(struct net_ring *ring);
bool net_ring_can_read(struct net_ring *ring);

/* The side is about to sleep until it can write (read); whether it can after all. */
bool net_ring_arm_writer(struct net_ring *ring);
bool net_ring_arm_reader(struct net_ring *ring);
void net_ring_disarm_writer(struct net_ring *ring);
void net_ring_disarm_reader(struct net_ring *ring);

#endif
