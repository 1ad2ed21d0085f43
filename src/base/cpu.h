/* cpu says which instruction set the kernels use: the best this machine has, or what the
 * environment variable SHOAL_ISA=plain|avx2|avx512 pins. Decided once, at the first call. */
#ifndef SHOAL_BASE_CPU_H
#define SHOAL_BASE_CPU_H

#include "base/err.h"

enum cpu_isa { CPU_PLAIN, CPU_AVX2, CPU_AVX512, CPU_ISA_COUNT };

/* The instruction set in force. */
enum cpu_isa cpu_isa(void);

/* SHOAL_ECONFIG when SHOAL_ISA is not a known name or not available here. For the CLI's start. */
int cpu_isa_check(struct err *err);

const char *cpu_isa_name(enum cpu_isa isa); /* "avx2" */

#endif
