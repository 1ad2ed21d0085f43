#include "base/mem.h"

#include <stdint.h>

#include "../tests/test.h"
#include "base/err.h"

static bool is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

/* Small blocks come from the heap, large ones from mappings: both are zeroed, aligned and counted. */
TEST(blocks_are_zeroed_aligned_and_counted)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, (2u << 20) - 1, 2u << 20, 5u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t bytes = sizes[i] == 0 ? 1 : sizes[i];
        uint8_t *block = mem_alloc(MEM_DATA, sizes[i]);
        CHECK(block != NULL);
        CHECK_INT((uintptr_t)block % 64, 0);
        CHECK(is_zero(block, bytes));
        memset(block, 0xff, bytes);
        CHECK_INT(mem_bytes(MEM_DATA), bytes);
        CHECK_INT(mem_bytes_total(), bytes);
        mem_free(block);
        CHECK_INT(mem_bytes_total(), 0);
    }
    mem_free(NULL);
}

TEST(sizes_that_overflow_are_refused)
{
    CHECK(mem_alloc(MEM_BASE, SIZE_MAX) == NULL);
    CHECK(mem_alloc_array(MEM_BASE, SIZE_MAX / 2, 3) == NULL);
    CHECK(mem_alloc_array(MEM_BASE, (size_t)1 << 32, (size_t)1 << 32) == NULL);
    CHECK_INT(mem_bytes_total(), 0);
}

TEST(realloc_keeps_what_was_there_and_zeroes_the_rest)
{
    uint8_t *block = mem_realloc(MEM_IO, NULL, 100);
    CHECK(block != NULL);
    memset(block, 7, 100);
    block = mem_realloc(MEM_IO, block, 3u << 20);
    CHECK_INT(block[99], 7);
    CHECK(is_zero(block + 100, (3u << 20) - 100));
    block = mem_realloc(MEM_IO, block, 10);
    CHECK_INT(block[9], 7);
    CHECK_INT(mem_bytes(MEM_IO), 10);
    mem_fail_nth(1);
    CHECK(mem_realloc(MEM_IO, block, 1000) == NULL);
    CHECK_INT(block[9], 7);
    mem_free(block);
}

TEST(grow_doubles_and_leaves_all_as_it_was_when_it_fails)
{
    void *items = NULL;
    size_t capacity = 0;
    CHECK_INT(mem_grow(MEM_BASE, &items, &capacity, 1, 4), 0);
    CHECK_INT(capacity, 8);
    CHECK_INT(mem_grow(MEM_BASE, &items, &capacity, 9, 4), 0);
    CHECK_INT(capacity, 16);
    void *before = items;
    CHECK_INT(mem_grow(MEM_BASE, &items, &capacity, 16, 4), 0);
    CHECK(items == before);
    CHECK_INT(mem_grow(MEM_BASE, &items, &capacity, SIZE_MAX, 4), SHOAL_ENOMEM);
    CHECK_INT(mem_grow(MEM_BASE, &items, &capacity, SIZE_MAX / 8, 4096), SHOAL_ENOMEM);
    mem_fail_nth(1);
    CHECK_INT(mem_grow(MEM_BASE, &items, &capacity, 17, 4), SHOAL_ENOMEM);
    CHECK(items == before);
    CHECK_INT(capacity, 16);
    mem_free(items);
}

TEST(strings_are_copied)
{
    char *whole = mem_strdup(MEM_BASE, "shoal");
    char *part = mem_strndup(MEM_BASE, "shoal", 2);
    CHECK_STR(whole, "shoal");
    CHECK_STR(part, "sh");
    mem_free(whole);
    mem_free(part);
}

TEST(the_nth_call_fails_once_and_is_reported)
{
    mem_fail_nth(2);
    void *first = mem_alloc(MEM_BASE, 1);
    CHECK(first != NULL);
    CHECK(mem_alloc(MEM_BASE, 1) == NULL);
    void *third = mem_alloc(MEM_BASE, 1);
    CHECK(third != NULL);
    CHECK(mem_fail_nth(0));
    CHECK(!mem_fail_nth(0));
    mem_free(first);
    mem_free(third);
}
