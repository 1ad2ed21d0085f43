/* store_pool is where the rows of one embedding table lie: chunks of equal size, cut from a few large
 * mappings that all shards of the table share, so that unused room does not multiply with shards.
 *
 *     mapping:  | chunk (shard 3) | chunk (shard 0) | chunk (shard 3) | not touched yet ...
 *
 * A chunk never moves and is given back only with the pool. Pages take memory when first touched, and
 * small ones only: a huge page that 20 shards have just started would be wasted, and finding one can
 * take the kernel long. store_pool_tend joins them to huge pages later.
 * Thread safe: shards of a table may grow at once. */
#ifndef SHOAL_STORE_POOL_H
#define SHOAL_STORE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct store_pool;

/* Where the rows are known beforehand (else 0), each of `shards` shards is going to take chunks for
 * shard_rows rows: so much is mapped at once. */
int store_pool_create(size_t row_bytes, uint64_t shard_rows, uint32_t shards,
                      struct store_pool **pool_out, struct err *err);

/* Rows of a chunk are 2^bits. */
uint32_t store_pool_chunk_bits(const struct store_pool *pool);

/* Zeroed rows, aligned to 64 bytes. NULL when out of memory. */
void *store_pool_chunk(struct store_pool *pool);

/* Joins one block of pages whose chunks have been handed out; false when there is none. */
bool store_pool_tend(struct store_pool *pool);

void store_pool_destroy(struct store_pool *pool); /* NULL is a no-op. */

#endif
