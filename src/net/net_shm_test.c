#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../tests/test.h"
#include "base/mem.h"
#include "net/net_carrier.h"

static struct err err;

#define RING 4096u

/* A side of a connection whose other end is a plain socket. */
static struct net_carrier *make_stream(int *other_out)
{
    int pair[2];
    struct net_carrier *stream = NULL;
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_OK(net_stream_create(pair[0], "unix", &stream, &err));
    *other_out = pair[1];
    return stream;
}

/* Memory from outside is taken only if it has the size that was told, and nobody can shrink it; a
 * descriptor to wake by only if it is an eventfd that does not block. */
TEST(memory_from_outside_is_checked)
{
    int other = -1;
    struct net_carrier *stream = make_stream(&other);
    struct net_carrier *shm = NULL;
    int sealed = -1;
    CHECK_OK(net_shm_make(RING, &sealed, &err));
    const int wake = eventfd(0, EFD_NONBLOCK);
    const int blocking = eventfd(0, 0);
    const int unsealed = memfd_create("x", MFD_ALLOW_SEALING);
    CHECK_INT(ftruncate(unsealed, 4096 + 2 * RING), 0);
    const int file = open("file", O_RDWR | O_CREAT, 0600);
    CHECK_INT(ftruncate(file, 4096 + 2 * RING), 0);
    const struct {
        const char *name;
        int memory;
        int wake;
        uint64_t ring;
        const char *want;
    } rows[] = {
        {"another size", sealed, wake, 2 * RING, "not 20480 bytes"},
        {"no power of two", sealed, wake, RING + 1, "4097"},
        {"too small", sealed, wake, 1024, "1024"},
        {"huge", sealed, wake, (uint64_t)1 << 62, "ring of"},
        {"not sealed", unsealed, wake, RING, "not sealed"},
        {"a file", file, wake, RING, "not sealed"},
        {"no memory", wake, wake, RING, "bytes"},
        {"a file to wake by", sealed, file, RING, "no eventfd"},
        {"one that blocks", sealed, blocking, RING, "no eventfd"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int rc =
            net_shm_create(stream, rows[i].memory, rows[i].wake, rows[i].ring, true, &shm, &err);
        if (rc != SHOAL_EPROTO) test_fail(__FILE__, __LINE__, "%s: %d", rows[i].name, rc);
        CHECK_HAS(err.text, rows[i].want);
    }
    mem_fail_nth(1);
    CHECK_INT(net_shm_create(stream, sealed, wake, RING, true, &shm, &err), SHOAL_ENOMEM);
    mem_fail_nth(0);
    CHECK_INT(ftruncate(sealed, 0), -1); /* the seal holds */
    CHECK_OK(net_shm_create(stream, sealed, wake, RING, true, &shm, &err));
    shm->ops->close(shm);
    CHECK_INT(fcntl(sealed, F_GETFD), -1); /* it took them over */
    CHECK_INT(fcntl(wake, F_GETFD), -1);
    close(blocking);
    close(unsealed);
    close(file);
    close(other);
    CHECK_INT(mem_bytes(MEM_NET), 0);
}

/* Two carriers over one memory: bytes go both ways, sleepers are woken, and what was written before
 * the end can still be read after it. */
TEST(bytes_go_both_ways_and_the_end_comes_last)
{
    int pair[2];
    struct net_carrier *streams[2];
    struct net_carrier *ends[2];
    int memory = -1;
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_OK(net_shm_make(RING, &memory, &err));
    const int wakes[2] = {eventfd(0, EFD_NONBLOCK), eventfd(0, EFD_NONBLOCK)};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(net_stream_create(pair[i], "unix", &streams[i], &err));
        /* Each gets the other's eventfd. */
        CHECK_OK(net_shm_create(streams[i], i == 0 ? dup(memory) : memory, dup(wakes[1 - i]), RING,
                                i == 0, &ends[i], &err));
    }
    char bytes[8] = "";
    uint64_t count = 0;
    for (int i = 0; i < 2; i++) {
        const struct net_carrier_ops *ops = ends[i]->ops;
        CHECK_INT(ops->recv(ends[1 - i], &(struct iovec){bytes, 8}, 1, &err), 0);
        CHECK(!ops->arm(ends[1 - i], false));
        CHECK_INT(ops->send(ends[i], &(struct iovec){(void *)"hello", 5}, 1, &err), 5);
        CHECK_INT(read(wakes[1 - i], &count, sizeof count), 8);
        CHECK(ops->is_ready(ends[1 - i], false));
        CHECK_INT(ops->recv(ends[1 - i], &(struct iovec){bytes, 8}, 1, &err), 5);
        CHECK(memcmp(bytes, "hello", 5) == 0);
        CHECK_INT(ops->send(ends[i], &(struct iovec){(void *)"x", 1}, 1, &err), 1);
        CHECK_INT(read(wakes[1 - i], &count, sizeof count), -1); /* awake: no wake-up */
        ops->disarm(ends[1 - i]);
    }
    const struct net_carrier_ops *ops = ends[0]->ops;
    ops->notice(ends[0]); /* nothing has happened to the socket */
    ops->close(ends[1]);
    ops->notice(ends[0]);
    CHECK_INT(ops->recv(ends[0], &(struct iovec){bytes, 8}, 1, &err), 1);
    CHECK_INT(ops->recv(ends[0], &(struct iovec){bytes, 8}, 1, &err), SHOAL_END);
    CHECK_INT(ops->send(ends[0], &(struct iovec){bytes, 8}, 1, &err), SHOAL_EPEER);
    ops->close(ends[0]);
    close(wakes[0]);
    close(wakes[1]);
    CHECK_INT(mem_bytes(MEM_NET), 0);
}
