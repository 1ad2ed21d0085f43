/* The bulk Philox kernel, one per instruction set (rand_isa.c); rand.c is the only caller. */
#ifndef SHOAL_BASE_RAND_KERNEL_H
#define SHOAL_BASE_RAND_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* The multipliers and key increments of Philox4x32. */
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u
#define PHILOX_ROUNDS 10

/* Blocks made at least; a group is 4 * RAND_GROUP words. */
#define RAND_GROUP 16

/* groups * RAND_GROUP blocks from number block_first on. */
typedef void rand_fill_fn(uint64_t key, uint64_t step, uint64_t block_first, size_t groups,
                          uint32_t *out);

rand_fill_fn rand_fill_plain;
rand_fill_fn rand_fill_avx2;
rand_fill_fn rand_fill_avx512;

#endif
