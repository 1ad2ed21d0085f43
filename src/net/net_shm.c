/* The memory of one connection, a sealed memfd that the listener makes and both map:
 *
 *     | page: 2 x struct net_ring_shared | data, dialer to listener | data, listener to dialer |
 *
 * Seals keep either side from shrinking it under the other. The Unix socket stays open and silent:
 * its end tells that the other process is gone. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "net/net_carrier.h"
#include "net/net_ring.h"

#define CONTROL_BYTES ((size_t)4096)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
/* Not executable, ever: newer kernels may insist on it, older ones do not know the flag. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
static_assert(2 * sizeof(struct net_ring_shared) <= CONTROL_BYTES, "both rings fit the page");

struct shm {
    struct net_carrier base;
    struct net_carrier *stream; /* owned: the Unix socket */
    uint8_t *memory;
    size_t memory_bytes;
    int wake_fd; /* of the other loop */
    struct net_ring out;
    struct net_ring in;
    bool is_gone;     /* the other process has closed the socket */
    bool is_violated; /* or sent bytes through it */
};

static size_t total_bytes(uint64_t ring_bytes)
{
    return CONTROL_BYTES + 2 * (size_t)ring_bytes;
}

static bool size_is_allowed(uint64_t ring_bytes)
{
    return ring_bytes >= NET_RING_BYTES_MIN && ring_bytes <= NET_RING_BYTES_MAX &&
           (ring_bytes & (ring_bytes - 1)) == 0;
}

int net_shm_make(uint64_t ring_bytes, int *memory_fd_out, struct err *err)
{
    ASSERT(size_is_allowed(ring_bytes));
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("shoal-ring", flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) fd = memfd_create("shoal-ring", flags);
    if (fd < 0) return err_set_errno(err, errno, "make shared memory");
    if (ftruncate(fd, (off_t)total_bytes(ring_bytes)) != 0 ||
        fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) != 0) {
        const int failed = errno;
        close(fd);
        return err_set_errno(err, failed, "make %zu bytes of shared memory",
                             total_bytes(ring_bytes));
    }
    *memory_fd_out = fd;
    return 0;
}

/* Whether the descriptor is memory of this size that nobody can shrink. */
static int check_memory(int fd, size_t bytes, struct err *err)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0 || (size_t)stat.st_size != bytes) {
        return err_set(err, SHOAL_EPROTO, "shared memory that is not %zu bytes", bytes);
    }
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS) {
        return err_set(err, SHOAL_EPROTO, "shared memory that is not sealed");
    }
    return 0;
}

/* A write to it must never block: nothing but an eventfd will do. */
static int check_wake(int fd, struct err *err)
{
    char link[64];
    char target[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t bytes = readlink(link, target, sizeof target - 1);
    target[bytes < 0 ? 0 : bytes] = '\0';
    if (strcmp(target, "anon_inode:[eventfd]") != 0 || (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0) {
        return err_set(err, SHOAL_EPROTO, "a descriptor to wake by that is no eventfd");
    }
    return 0;
}

static void wake(struct shm *shm)
{
    const uint64_t one = 1;
    while (write(shm->wake_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

static int64_t shm_send(struct net_carrier *carrier, const struct iovec *parts, size_t parts_count,
                        struct err *err)
{
    struct shm *shm = (struct shm *)carrier;
    if (shm->is_gone) return err_set(err, SHOAL_EPEER, "closed by the other side");
    bool is_asleep = false;
    const int64_t sent = net_ring_write(&shm->out, parts, parts_count, &is_asleep);
    if (is_asleep) wake(shm);
    if (sent < 0) return err_set(err, SHOAL_EPROTO, "the shared ring is broken");
    return sent;
}

static int64_t shm_recv(struct net_carrier *carrier, const struct iovec *parts, size_t parts_count,
                        struct err *err)
{
    struct shm *shm = (struct shm *)carrier;
    bool is_asleep = false;
    const int64_t got = net_ring_read(&shm->in, parts, parts_count, &is_asleep);
    if (is_asleep) wake(shm);
    if (got < 0) return err_set(err, SHOAL_EPROTO, "the shared ring is broken");
    if (got > 0) return got;
    if (shm->is_violated) {
        carrier->refusal = NET_REFUSED_FRAME;
        return err_set(err, SHOAL_EPROTO, "bytes beside the shared ring");
    }
    if (shm->is_gone) return err_set(err, SHOAL_END, "closed by the other side");
    return 0;
}

static bool shm_is_ready(struct net_carrier *carrier, bool wants_out)
{
    struct shm *shm = (struct shm *)carrier;
    return net_ring_can_read(&shm->in) || (wants_out && net_ring_can_write(&shm->out));
}

static bool shm_arm(struct net_carrier *carrier, bool wants_out)
{
    struct shm *shm = (struct shm *)carrier;
    bool is_work = net_ring_arm_reader(&shm->in);
    if (wants_out) is_work |= net_ring_arm_writer(&shm->out);
    return is_work;
}

static void shm_disarm(struct net_carrier *carrier)
{
    struct shm *shm = (struct shm *)carrier;
    net_ring_disarm_reader(&shm->in);
    net_ring_disarm_writer(&shm->out);
}

/* What was written before the end can still be read, so the end is told after it. */
static void shm_notice(struct net_carrier *carrier)
{
    struct shm *shm = (struct shm *)carrier;
    char byte;
    const ssize_t got = recv(carrier->fd, &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    shm->is_gone = true;
    shm->is_violated = got > 0;
}

static void shm_close(struct net_carrier *carrier)
{
    struct shm *shm = (struct shm *)carrier;
    munmap(shm->memory, shm->memory_bytes);
    close(shm->wake_fd);
    shm->stream->ops->close(shm->stream);
    mem_free(shm);
}

static const struct net_carrier_ops shm_ops = {
    .name = "shm",
    .send = shm_send,
    .recv = shm_recv,
    .close = shm_close,
    .is_ready = shm_is_ready,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .notice = shm_notice,
};

static int map(struct shm *shm, int memory_fd, uint64_t ring_bytes, struct err *err)
{
    const size_t bytes = total_bytes(ring_bytes);
    const int rc = check_memory(memory_fd, bytes, err);
    if (rc != 0) return rc;
    /* Populated: a first touch of each page would cost as much as the bytes that go through it. */
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory_fd, 0);
    if (memory == MAP_FAILED) {
        return err_set_errno(err, errno, "map %zu bytes of shared memory", bytes);
    }
    shm->memory = memory;
    shm->memory_bytes = bytes;
    return 0;
}

int net_shm_create(struct net_carrier *stream, int memory_fd, int wake_fd, uint64_t ring_bytes,
                   bool is_dialer, struct net_carrier **carrier_out, struct err *err)
{
    if (!size_is_allowed(ring_bytes)) {
        return err_set(err, SHOAL_EPROTO, "a shared ring of %llu bytes",
                       (unsigned long long)ring_bytes);
    }
    int rc = check_wake(wake_fd, err);
    if (rc != 0) return rc;
    struct shm *shm = mem_alloc(MEM_NET, sizeof *shm);
    if (shm == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a connection");
    rc = map(shm, memory_fd, ring_bytes, err);
    if (rc != 0) {
        mem_free(shm);
        return rc;
    }
    close(memory_fd);
    shm->base.ops = &shm_ops;
    shm->base.fd = stream->fd;
    shm->stream = stream;
    shm->wake_fd = wake_fd;
    struct net_ring_shared *shared = (struct net_ring_shared *)shm->memory;
    uint8_t *data = shm->memory + CONTROL_BYTES;
    const size_t out = is_dialer ? 0 : 1;
    net_ring_init(&shm->out, &shared[out], data + out * ring_bytes, ring_bytes);
    net_ring_init(&shm->in, &shared[1 - out], data + (1 - out) * ring_bytes, ring_bytes);
    *carrier_out = &shm->base;
    return 0;
}
