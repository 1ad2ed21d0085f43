/* net_bench measures net between two processes, as `shoal bench net` reports it: the round trip of a
 * request whose body comes back, and the bandwidth of bodies that go one way. It forks, so the caller
 * must have no threads. Bytes that arrive are checked: a wrong one is an error, not a figure. */
#ifndef SHOAL_NET_BENCH_H
#define SHOAL_NET_BENCH_H

#include <stdint.h>

#include "base/err.h"

enum net_bench_carrier { NET_BENCH_TCP, NET_BENCH_TLS, NET_BENCH_SHM };
const char *net_bench_carrier_name(enum net_bench_carrier carrier); /* "tcp" */

#define NET_BENCH_REPEATS_MAX 64u

struct net_bench_opts {
    enum net_bench_carrier carrier;
    uint64_t bytes;      /* of a body; default 65536 */
    uint64_t ring_bytes; /* of shared memory; default NET_RING_BYTES_DEFAULT */
    uint32_t repeats;    /* default 7 */
    uint32_t tasks;      /* on this host: more than cores do not spin; default 2 */
};

struct net_bench_result {
    uint32_t repeats;
    double value[NET_BENCH_REPEATS_MAX]; /* per repeat: microseconds, or bytes a second */
    double median;
    double kernel_waits_per_frame; /* epoll_wait calls of the sender, a measure of system calls */
};

/* Microseconds from a request to its reply, one at a time. */
int net_bench_round_trip(const struct net_bench_opts *opts, struct net_bench_result *result_out,
                         struct err *err);
/* Bytes a second of one-way bodies, several in flight, all received where they belong. */
int net_bench_bandwidth(const struct net_bench_opts *opts, struct net_bench_result *result_out,
                        struct err *err);

#endif
