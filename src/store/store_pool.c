#include "store/store_pool.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"

#define PAGE_BYTES ((size_t)4096)
#define CHUNK_BYTES_MAX ((size_t)32 << 10)
#define MAPPING_BYTES_MIN ((size_t)256 << 10)
#define MAPPING_BYTES_MAX ((size_t)256 << 20)

struct mapping {
    uint8_t *start;
    size_t bytes;
};

struct store_pool {
    size_t chunk_bytes; /* set at create, then read only */
    uint32_t chunk_bits;
    pthread_mutex_t lock; /* guards all below; mem_* may be called under it */
    struct mapping *mappings;
    size_t mappings_count;
    size_t mappings_capacity;
    size_t mapped_bytes;
    size_t last_used;    /* bytes of the last mapping that are handed out */
    size_t join_mapping; /* where the next block to join is; between requests only */
    size_t join_at;
};

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Appends a mapping. Called with the lock held (or before others know the pool). */
static int map_more(struct store_pool *pool, size_t bytes)
{
    bytes = round_up(bytes, PAGE_BYTES);
    if (mem_grow(MEM_STORE, (void **)&pool->mappings, &pool->mappings_capacity,
                 pool->mappings_count + 1, sizeof *pool->mappings) != 0) {
        return SHOAL_ENOMEM;
    }
    uint8_t *start = mem_map(MEM_STORE, bytes);
    if (start == NULL) return SHOAL_ENOMEM;
    pool->mappings[pool->mappings_count++] = (struct mapping){start, bytes};
    pool->mapped_bytes += bytes;
    pool->last_used = 0;
    return 0;
}

int store_pool_create(size_t row_bytes, uint64_t shard_rows, uint32_t shards,
                      struct store_pool **pool_out, struct err *err)
{
    ASSERT(row_bytes > 0);
    struct store_pool *pool = mem_alloc(MEM_STORE, sizeof *pool);
    if (pool == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for rows");
    const size_t rows_wanted = shard_rows == 0 ? SIZE_MAX : (size_t)shard_rows;
    while ((row_bytes << (pool->chunk_bits + 1)) <= CHUNK_BYTES_MAX &&
           ((size_t)1 << pool->chunk_bits) < rows_wanted) {
        pool->chunk_bits++;
    }
    pool->chunk_bytes = round_up(row_bytes << pool->chunk_bits, 64);
    pthread_mutex_init(&pool->lock, NULL);
    const uint64_t chunk_rows = (uint64_t)1 << pool->chunk_bits;
    const size_t chunks = (size_t)((shard_rows + chunk_rows - 1) / chunk_rows * shards);
    if (chunks > 0 && map_more(pool, chunks * pool->chunk_bytes) != 0) {
        store_pool_destroy(pool);
        return err_set(err, SHOAL_ENOMEM, "no memory for %u x %llu rows of %zu bytes", shards,
                       (unsigned long long)shard_rows, row_bytes);
    }
    *pool_out = pool;
    return 0;
}

uint32_t store_pool_chunk_bits(const struct store_pool *pool)
{
    return pool->chunk_bits;
}

/* An eighth of what there is, so that little is mapped in vain. */
static size_t next_mapping_bytes(const struct store_pool *pool)
{
    size_t bytes = pool->mapped_bytes / 8;
    if (bytes < MAPPING_BYTES_MIN) bytes = MAPPING_BYTES_MIN;
    if (bytes > MAPPING_BYTES_MAX) bytes = MAPPING_BYTES_MAX;
    return bytes < pool->chunk_bytes ? pool->chunk_bytes : bytes;
}

void *store_pool_chunk(struct store_pool *pool)
{
    uint8_t *chunk = NULL;
    pthread_mutex_lock(&pool->lock);
    const size_t last_bytes =
        pool->mappings_count == 0 ? 0 : pool->mappings[pool->mappings_count - 1].bytes;
    if (pool->last_used + pool->chunk_bytes <= last_bytes ||
        map_more(pool, next_mapping_bytes(pool)) == 0) {
        chunk = pool->mappings[pool->mappings_count - 1].start + pool->last_used;
        pool->last_used += pool->chunk_bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    return chunk;
}

bool store_pool_tend(struct store_pool *pool)
{
    for (; pool->join_mapping < pool->mappings_count; pool->join_mapping++, pool->join_at = 0) {
        const struct mapping *mapping = &pool->mappings[pool->join_mapping];
        const bool is_last = pool->join_mapping == pool->mappings_count - 1;
        const size_t used = is_last ? pool->last_used : mapping->bytes;
        if (pool->join_at + MEM_HUGE_BYTES <= used) {
            mem_join(mapping->start + pool->join_at);
            pool->join_at += MEM_HUGE_BYTES;
            return true;
        }
        if (is_last) break;
    }
    return false;
}

void store_pool_destroy(struct store_pool *pool)
{
    if (pool == NULL) return;
    for (size_t i = 0; i < pool->mappings_count; i++) {
        mem_unmap(MEM_STORE, pool->mappings[i].start, pool->mappings[i].bytes);
    }
    mem_free(pool->mappings);
    pthread_mutex_destroy(&pool->lock);
    mem_free(pool);
}
