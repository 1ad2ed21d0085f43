#include "net/net_ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "../tests/test.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/rand.h"

struct pair {
    struct net_ring_shared shared;
    uint8_t *data;
    struct net_ring writer;
    struct net_ring reader;
};

static void pair_init(struct pair *pair, uint64_t size)
{
    memset(&pair->shared, 0, sizeof pair->shared);
    pair->data = malloc((size_t)size);
    CHECK(pair->data != NULL);
    net_ring_init(&pair->writer, &pair->shared, pair->data, size);
    net_ring_init(&pair->reader, &pair->shared, pair->data, size);
}

static uint8_t byte_at(uint64_t position)
{
    return (uint8_t)hash_mix64(position);
}

static bool unused;

/* Pieces of any size, over many rounds of the ring, in several parts: the bytes come out in order. */
TEST(bytes_come_out_in_order)
{
    struct pair pair;
    pair_init(&pair, 4096);
    uint8_t in[6000];
    uint8_t out[6000];
    uint64_t written = 0;
    uint64_t read = 0;
    for (uint64_t turn = 0; turn < 3000; turn++) {
        const size_t want = (size_t)rand_below(1, RAND_TEST, 0, turn, sizeof in + 1);
        const size_t cut = (size_t)rand_below(1, RAND_TEST, 1, turn, want + 1);
        for (size_t i = 0; i < want; i++) in[i] = byte_at(written + i);
        const struct iovec from[3] = {{in, cut}, {in, 0}, {in + cut, want - cut}};
        const int64_t put = net_ring_write(&pair.writer, from, 3, &unused);
        CHECK(put >= 0 && put <= (int64_t)want);
        written += (uint64_t)put;
        CHECK(written - read <= 4096);
        const size_t most = (size_t)rand_below(1, RAND_TEST, 2, turn, sizeof out + 1);
        const struct iovec to[2] = {{out, most / 2}, {out + most / 2, most - most / 2}};
        const int64_t got = net_ring_read(&pair.reader, to, 2, &unused);
        CHECK_INT(got, most < written - read ? most : written - read);
        for (int64_t i = 0; i < got; i++) CHECK_INT(out[i], byte_at(read + (uint64_t)i));
        read += (uint64_t)got;
        CHECK_INT(net_ring_can_read(&pair.reader), read < written);
    }
    CHECK(written > 1000000);
    free(pair.data);
}

/* A side that sleeps is woken once: the reader by the first bytes, the writer when half is free. */
TEST(sleepers_are_woken_once_and_when_it_pays)
{
    struct pair pair;
    pair_init(&pair, 4096);
    uint8_t bytes[4096] = {0};
    const struct iovec one = {bytes, 1};
    const struct iovec all = {bytes, 4096};
    const struct iovec most = {bytes, 1500};
    bool wake = false;
    CHECK_INT(net_ring_write(&pair.writer, &one, 1, &wake), 1);
    CHECK(!wake);
    CHECK(net_ring_arm_reader(&pair.reader)); /* There is a byte: do not sleep. */
    CHECK_INT(net_ring_read(&pair.reader, &one, 1, &wake), 1);
    CHECK(!net_ring_arm_reader(&pair.reader));
    CHECK_INT(net_ring_write(&pair.writer, &one, 1, &wake), 1);
    CHECK(wake);
    wake = false;
    CHECK_INT(net_ring_write(&pair.writer, &one, 1, &wake), 1);
    CHECK(!wake);
    net_ring_disarm_reader(&pair.reader);

    CHECK_INT(net_ring_write(&pair.writer, &all, 1, &wake), 4094);
    CHECK(!net_ring_can_write(&pair.writer));
    CHECK(!net_ring_arm_writer(&pair.writer));
    CHECK_INT(net_ring_read(&pair.reader, &most, 1, &wake), 1500);
    CHECK(!wake); /* 1500 of 4096 are free: not half. */
    CHECK_INT(net_ring_read(&pair.reader, &most, 1, &wake), 1500);
    CHECK(wake);
    CHECK(net_ring_can_write(&pair.writer));
    net_ring_disarm_writer(&pair.writer);
    free(pair.data);
}

/* Counters that cannot be are noticed by either side and nothing is moved beyond the data. */
TEST(impossible_counters_are_refused)
{
    struct pair pair;
    pair_init(&pair, 4096);
    uint8_t bytes[10] = {0};
    const struct iovec part = {bytes, sizeof bytes};
    static const uint64_t heads[] = {4097, UINT64_MAX, (uint64_t)1 << 63};
    for (size_t i = 0; i < 3; i++) {
        atomic_store(&pair.shared.head, heads[i]);
        CHECK(net_ring_can_read(&pair.reader));
        CHECK_INT(net_ring_read(&pair.reader, &part, 1, &unused), SHOAL_ECORRUPT);
    }
    atomic_store(&pair.shared.head, 0);
    atomic_store(&pair.shared.tail, 1);
    CHECK(net_ring_can_write(&pair.writer));
    CHECK_INT(net_ring_write(&pair.writer, &part, 1, &unused), SHOAL_ECORRUPT);
    free(pair.data);
}

enum { STREAM_BYTES = 8 << 20 };

static void *write_all(void *arg)
{
    struct pair *pair = arg;
    static uint8_t bytes[100000];
    uint64_t at = 0;
    while (at < STREAM_BYTES) {
        size_t count =
            sizeof bytes < STREAM_BYTES - at ? sizeof bytes : (size_t)(STREAM_BYTES - at);
        for (size_t i = 0; i < count; i++) bytes[i] = byte_at(at + i);
        size_t done = 0;
        while (done < count) {
            const struct iovec part = {bytes + done, count - done};
            const int64_t put = net_ring_write(&pair->writer, &part, 1, &unused);
            CHECK(put >= 0);
            done += (size_t)put;
            if (put == 0) sched_yield();
        }
        at += count;
    }
    return NULL;
}

/* Two threads at once: what is read is what was written. */
TEST(two_threads_at_once)
{
    struct pair pair;
    pair_init(&pair, 65536);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, write_all, &pair), 0);
    static uint8_t bytes[70000];
    uint64_t at = 0;
    while (at < STREAM_BYTES) {
        const struct iovec part = {bytes, sizeof bytes};
        bool wake = false;
        const int64_t got = net_ring_read(&pair.reader, &part, 1, &wake);
        CHECK(got >= 0);
        for (int64_t i = 0; i < got; i++) CHECK_INT(bytes[i], byte_at(at + (uint64_t)i));
        at += (uint64_t)got;
        if (got == 0) sched_yield();
    }
    pthread_join(thread, NULL);
    free(pair.data);
}
