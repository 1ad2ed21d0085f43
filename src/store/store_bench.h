/* store_bench measures the store as `shoal bench lookup|push|grow` reports it, and checks what it
 * measured: a wrong row is an error, not a figure. One thread. */
#ifndef SHOAL_STORE_BENCH_H
#define SHOAL_STORE_BENCH_H

#include <stdint.h>

#include "base/err.h"

#define STORE_BENCH_REPEATS_MAX 256u

struct store_bench_opts {
    uint64_t rows;    /* of the table; default 10,000,000 (grow: 20,000,000 inserts) */
    uint32_t keys;    /* per request; default 100,000 (grow: 1,000) */
    uint32_t cols;    /* default 16 */
    uint32_t repeats; /* default 9 */
    uint64_t seed;
};

struct store_bench_result {
    uint32_t repeats;
    double rows_per_second[STORE_BENCH_REPEATS_MAX]; /* per repeat */
    double rows_per_second_median;
    /* grow: */
    double request_ms_max;
    double resident_bytes_per_row; /* beyond values and slots, the most seen at any check */
    double held_bytes_per_row;     /* the same by the store's own count */
};

/* Pulls of random present keys, other ones each repeat, from a dynamic table with Adagrad. */
int store_bench_lookup(const struct store_bench_opts *opts, struct store_bench_result *result_out,
                       struct err *err);
/* Adagrad pushes to random present keys. */
int store_bench_push(const struct store_bench_opts *opts, struct store_bench_result *result_out,
                     struct err *err);
/* Inserts only, from empty. */
int store_bench_grow(const struct store_bench_opts *opts, struct store_bench_result *result_out,
                     struct err *err);

#endif
