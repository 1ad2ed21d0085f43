#include "store/store_pool.h"

#include "../tests/test.h"
#include "base/mem.h"

/* Chunks are aligned, zeroed, apart from each other, and hold as many rows as said. */
TEST(chunks)
{
    const size_t row_bytes[] = {4, 12, 128, 132, 4096, 100000};
    for (size_t k = 0; k < sizeof row_bytes / sizeof *row_bytes; k++) {
        struct err err;
        struct store_pool *pool = NULL;
        CHECK_OK(store_pool_create(row_bytes[k], 0, 16, &pool, &err));
        const size_t bytes = row_bytes[k] << store_pool_chunk_bits(pool);
        CHECK(bytes <= 32768 || bytes == row_bytes[k]);
        for (int i = 0; i < 50; i++) {
            uint8_t *chunk = store_pool_chunk(pool);
            CHECK(chunk != NULL);
            CHECK_INT((uintptr_t)chunk % 64, 0);
            for (size_t b = 0; b < bytes; b += 511) CHECK_INT(chunk[b], 0);
            memset(chunk, 0xff, bytes);
        }
        store_pool_destroy(pool);
        CHECK_INT(mem_bytes(MEM_STORE), 0);
    }
    store_pool_destroy(NULL);
}

/* A known number of rows is mapped at once, in chunks no larger than needed. */
TEST(known_rows)
{
    struct err err;
    struct store_pool *pool = NULL;
    CHECK_OK(store_pool_create(16, 8, 1, &pool, &err));
    CHECK_INT(store_pool_chunk_bits(pool), 3);
    CHECK(mem_bytes(MEM_STORE) < 16384);
    store_pool_destroy(pool);
    CHECK_OK(store_pool_create(128, 100000, 16, &pool, &err));
    const size_t before = mem_bytes(MEM_STORE);
    for (int i = 0; i < 16 * 391; i++) CHECK(store_pool_chunk(pool) != NULL);
    CHECK_INT(mem_bytes(MEM_STORE), before);
    store_pool_destroy(pool);
}

/* Upkeep goes over all that was handed out, once, and changes nothing. */
TEST(tend)
{
    struct err err;
    struct store_pool *pool = NULL;
    CHECK_OK(store_pool_create(1024, 0, 4, &pool, &err));
    CHECK(!store_pool_tend(pool));
    uint8_t *chunks[1500];
    uint32_t joined = 0;
    for (int i = 0; i < 1500; i++) {
        chunks[i] = store_pool_chunk(pool);
        CHECK(chunks[i] != NULL);
        memset(chunks[i], i % 251, 32768);
        if (i % 4 == 0) joined += store_pool_tend(pool) ? 1 : 0;
    }
    while (store_pool_tend(pool)) joined++;
    CHECK(joined >= 10);
    for (int i = 0; i < 1500; i++) {
        for (int b = 0; b < 32768; b += 1021) CHECK_INT(chunks[i][b], i % 251);
    }
    store_pool_destroy(pool);
}

TEST(nth_allocation_fails)
{
    for (uint64_t nth = 1;; nth++) {
        struct store_pool *pool = NULL;
        mem_fail_nth(nth);
        int rc = store_pool_create(128, 1000, 2, &pool, NULL);
        for (int i = 0; rc == 0 && i < 100; i++) {
            if (store_pool_chunk(pool) == NULL) rc = SHOAL_ENOMEM;
        }
        const bool failed = mem_fail_nth(0);
        if (failed) CHECK_INT(rc, SHOAL_ENOMEM);
        store_pool_destroy(pool);
        CHECK_INT(mem_bytes(MEM_STORE), 0);
        if (!failed) break;
    }
}
