#include "base/cpu.h"

#include <stdlib.h>

#include "../tests/test.h"

/* Without a pin the best instruction set is taken, and the check is content. */
TEST(unpinned_takes_the_best)
{
    struct err err = {0};
    unsetenv("SHOAL_ISA");
    CHECK_OK(cpu_isa_check(&err));
    const enum cpu_isa isa = cpu_isa();
    CHECK(isa >= CPU_PLAIN && isa < CPU_ISA_COUNT);
    CHECK((isa >= CPU_AVX2) == (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                __builtin_cpu_supports("bmi2")));
}

/* A pin holds from the first call on. */
TEST(pin_holds)
{
    struct err err = {0};
    setenv("SHOAL_ISA", "plain", 1);
    CHECK_OK(cpu_isa_check(&err));
    CHECK_INT(cpu_isa(), CPU_PLAIN);
    unsetenv("SHOAL_ISA");
    CHECK_INT(cpu_isa(), CPU_PLAIN);
}

/* A pin that is no name is refused with the names. */
TEST(unknown_pin_is_refused)
{
    struct err err = {0};
    setenv("SHOAL_ISA", "sse9", 1);
    CHECK_INT(cpu_isa_check(&err), SHOAL_ECONFIG);
    CHECK_STR(err.text, "SHOAL_ISA=sse9: plain, avx2 or avx512 is wanted");
}

/* A pin above what the machine has is refused by the check; cpu_isa stays with what works. */
TEST(pin_above_the_machine_is_refused)
{
    struct err err = {0};
    if (__builtin_cpu_supports("avx512f")) return; /* nothing above it here */
    setenv("SHOAL_ISA", "avx512", 1);
    CHECK_INT(cpu_isa_check(&err), SHOAL_ECONFIG);
    CHECK_HAS(err.text, "at most");
    CHECK(cpu_isa() < CPU_AVX512);
}

TEST(names)
{
    CHECK_STR(cpu_isa_name(CPU_PLAIN), "plain");
    CHECK_STR(cpu_isa_name(CPU_AVX2), "avx2");
    CHECK_STR(cpu_isa_name(CPU_AVX512), "avx512");
    CHECK_STR(cpu_isa_name(CPU_ISA_COUNT), "unknown");
}
