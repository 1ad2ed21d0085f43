/* What the kernel tests share: every table that this machine can run, arrays that end exactly where
 * they should (so that the address sanitizer sees a step too far) and comparisons that say where.
 * Included only by tests. */
#ifndef SHOAL_TENSOR_KERN_CHECK_H
#define SHOAL_TENSOR_KERN_CHECK_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/test.h"
#include "base/rand.h"
#include "tensor/kern.h"

#define UNUSED __attribute__((unused))

UNUSED static bool has_isa(enum cpu_isa isa)
{
    if (isa == CPU_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (isa == CPU_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return true;
}

/* for (const struct kern *kern over the tables that can run here) */
#define EACH_KERN(kern)                                                                            \
    for (enum cpu_isa isa_ = CPU_PLAIN; isa_ < CPU_ISA_COUNT; isa_++)                              \
        for (const struct kern *kern = has_isa(isa_) ? kern_get(isa_) : NULL; kern != NULL;        \
             kern = NULL)

#define ARRAYS_MAX 256
static void *arrays[ARRAYS_MAX];
static size_t arrays_count;

/* Uninitialised bytes, freed by arrays_free. */
UNUSED static void *array_bytes(size_t bytes)
{
    CHECK(arrays_count < ARRAYS_MAX);
    void *array = malloc(bytes + 1);
    CHECK(array != NULL);
    return arrays[arrays_count++] = array;
}

/* n floats, uniform in -1..1, the same for the same seed. */
UNUSED static float *array_random(size_t n, uint64_t seed)
{
    float *array = array_bytes(n * sizeof *array);
    for (size_t i = 0; i < n; i++)
        array[i] = (float)((double)rand_u64(seed, RAND_TEST, 0, i) * 0x1p-63 - 1);
    return array;
}

UNUSED static float *array_copy(size_t n, const float *from)
{
    float *array = array_bytes(n * sizeof *array);
    memcpy(array, from, n * sizeof *array);
    return array;
}

UNUSED static void arrays_free(void)
{
    while (arrays_count > 0) free(arrays[--arrays_count]);
}

/* Every |got - want| <= tolerance (1 + |want|). */
UNUSED static void check_close(const char *what, const struct kern *kern, size_t n,
                               const float *got, const float *want, double tolerance)
{
    for (size_t i = 0; i < n; i++) {
        const double error = fabs((double)got[i] - (double)want[i]);
        if (!(error <= tolerance * (1 + fabs((double)want[i]))))
            test_fail(__FILE__, __LINE__, "%s %s[%zu] of %zu: got %.9g, want %.9g", kern->name,
                      what, i, n, (double)got[i], (double)want[i]);
    }
}

#endif
