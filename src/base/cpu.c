#include "base/cpu.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[CPU_ISA_COUNT] = {"plain", "avx2", "avx512"};

static enum cpu_isa best(void)
{
    /* Each level needs all that the Makefile compiles it with; f16c, which clang cannot ask for,
     * came before avx2 in every line of processors. */
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi2");
    if (!avx2) return CPU_PLAIN;
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? CPU_AVX512 : CPU_AVX2;
}

/* CPU_ISA_COUNT when it is no name. */
static enum cpu_isa by_name(const char *name)
{
    int isa = 0;
    while (isa < CPU_ISA_COUNT && strcmp(names[isa], name) != 0) isa++;
    return (enum cpu_isa)isa;
}

enum cpu_isa cpu_isa(void)
{
    /* -1: not decided yet. Relaxed is enough: every thread that decides decides the same. */
    static _Atomic int decided = -1;
    int isa = atomic_load_explicit(&decided, memory_order_relaxed);
    if (isa >= 0) return (enum cpu_isa)isa;
    isa = (int)best();
    const char *pinned = getenv("SHOAL_ISA");
    if (pinned != NULL && (int)by_name(pinned) < isa) isa = (int)by_name(pinned);
    atomic_store_explicit(&decided, isa, memory_order_relaxed);
    return (enum cpu_isa)isa;
}

int cpu_isa_check(struct err *err)
{
    const char *pinned = getenv("SHOAL_ISA");
    if (pinned == NULL) return 0;
    const enum cpu_isa isa = by_name(pinned);
    if (isa == CPU_ISA_COUNT) {
        return err_set(err, SHOAL_ECONFIG, "SHOAL_ISA=%s: plain, avx2 or avx512 is wanted", pinned);
    }
    if (isa > best()) {
        return err_set(err, SHOAL_ECONFIG, "SHOAL_ISA=%s: this machine has %s at most", pinned,
                       names[best()]);
    }
    return 0;
}

const char *cpu_isa_name(enum cpu_isa isa)
{
    return (unsigned)isa < CPU_ISA_COUNT ? names[isa] : "unknown";
}
