/* kern_bench measures the kernels on the shapes of the reference jobs, as `shoal bench kernels`
 * reports them. One thread, the table in force (SHOAL_ISA). */
#ifndef SHOAL_TENSOR_KERN_BENCH_H
#define SHOAL_TENSOR_KERN_BENCH_H

#include <stdint.h>

#include "base/err.h"

#define KERN_BENCH_REPEATS_MAX 101u

struct kern_bench_opts {
    const char *only; /* run the cases whose name contains it; NULL: all */
    uint32_t repeats; /* default 15 */
};

struct kern_bench_result {
    const char *name; /* "gemm 512x784x500 forward", borrowed for the call */
    const char *unit; /* "GFLOP/s", "us", "ns/element" */
    double median;
    double min;
    double max;
    uint32_t repeats;
};

typedef void kern_bench_cb(void *ctx, const struct kern_bench_result *result);

int kern_bench(const struct kern_bench_opts *opts, kern_bench_cb *cb, void *ctx, struct err *err);

#endif
