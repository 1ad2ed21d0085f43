#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/err.h"

/* Every block has a 64-byte header, so that free knows its size and tag and the caller's part stays
 * aligned to a cache line. */
struct header {
    size_t bytes;  /* of the caller's part */
    size_t mapped; /* whole mapping, 0 when from malloc */
    uint32_t tag;
    uint32_t magic;
    void *start; /* of the mapping */
    uint8_t pad[32];
};
static_assert(sizeof(struct header) == 64, "the caller's part must stay aligned");

#define MAGIC 0x5ea11ab5u
#define HUGE_BYTES MEM_HUGE_BYTES
#define PAGE_BYTES ((size_t)4096) /* x86-64 */

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1; glibc 2.36 does not name it everywhere */
#endif

static _Atomic size_t tag_bytes[MEM_TAG_COUNT]; /* relaxed: counters only */
static _Atomic uint64_t fail_countdown;
static _Atomic bool fail_happened;

static bool must_fail(void)
{
    uint64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left != 0) {
        if (atomic_compare_exchange_weak_explicit(&fail_countdown, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            if (left == 1) atomic_store_explicit(&fail_happened, true, memory_order_relaxed);
            return left == 1;
        }
    }
    return false;
}

static struct header *header_of(void *block)
{
    struct header *header = (struct header *)block - 1;
    ASSERT(header->magic == MAGIC);
    return header;
}

static struct header *map_block(size_t bytes)
{
    /* The header sits in the last 64 bytes before a huge-page boundary; the caller's part starts on
     * the boundary. The slack in front is never touched, so it costs no memory. */
    const size_t whole = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES + 2 * HUGE_BYTES;
    uint8_t *start = mmap(NULL, whole, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return NULL;
    const uintptr_t boundary =
        ((uintptr_t)start + sizeof(struct header) + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    madvise((void *)boundary, bytes, MADV_HUGEPAGE);
    struct header *header = (struct header *)boundary - 1;
    header->mapped = whole;
    header->start = start;
    return header;
}

void *mem_alloc(enum mem_tag tag, size_t bytes)
{
    ASSERT((unsigned)tag < MEM_TAG_COUNT);
    if (bytes == 0) bytes = 1;
    if (bytes > SIZE_MAX / 4 || must_fail()) return NULL;
    struct header *header = NULL;
    if (bytes >= HUGE_BYTES) {
        header = map_block(bytes);
    } else {
        const size_t whole = (bytes + sizeof *header + 63) / 64 * 64;
        header = aligned_alloc(64, whole);
        if (header != NULL) memset(header, 0, whole);
    }
    if (header == NULL) return NULL;
    header->bytes = bytes;
    header->tag = tag;
    header->magic = MAGIC;
    atomic_fetch_add_explicit(&tag_bytes[tag], bytes, memory_order_relaxed);
    return header + 1;
}

void *mem_alloc_array(enum mem_tag tag, size_t count, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    return mem_alloc(tag, bytes);
}

void *mem_realloc(enum mem_tag tag, void *block, size_t bytes)
{
    if (block == NULL) return mem_alloc(tag, bytes);
    const size_t old_bytes = header_of(block)->bytes;
    void *moved = mem_alloc(tag, bytes);
    if (moved == NULL) return NULL;
    memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
    mem_free(block);
    return moved;
}

char *mem_strndup(enum mem_tag tag, const char *text, size_t bytes)
{
    char *copy = mem_alloc(tag, bytes + 1);
    if (copy != NULL) memcpy(copy, text, bytes);
    return copy;
}

char *mem_strdup(enum mem_tag tag, const char *text)
{
    return mem_strndup(tag, text, strlen(text));
}

void mem_free(void *block)
{
    if (block == NULL) return;
    struct header *header = header_of(block);
    atomic_fetch_sub_explicit(&tag_bytes[header->tag], header->bytes, memory_order_relaxed);
    header->magic = 0;
    if (header->mapped != 0) {
        munmap(header->start, header->mapped);
    } else {
        free(header);
    }
}

void *mem_map(enum mem_tag tag, size_t bytes)
{
    ASSERT((unsigned)tag < MEM_TAG_COUNT);
    ASSERT(bytes % PAGE_BYTES == 0);
    if (bytes == 0 || bytes > SIZE_MAX / 4 || must_fail()) return NULL;
    const size_t slack = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    uint8_t *start = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return NULL;
    if (slack > 0) {
        /* Keep the aligned middle and give back what is before and after it. */
        uint8_t *aligned =
            (uint8_t *)(((uintptr_t)start + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
        const size_t before = (size_t)(aligned - start);
        if (before > 0) munmap(start, before);
        if (before < slack) munmap(aligned + bytes, slack - before);
        start = aligned;
    }
    atomic_fetch_add_explicit(&tag_bytes[tag], bytes, memory_order_relaxed);
    return start;
}

void mem_join(void *start)
{
    ASSERT((uintptr_t)start % HUGE_BYTES == 0);
    madvise(start, HUGE_BYTES, MADV_COLLAPSE); /* A hint: kernels before 6.1 do not know it. */
}

void mem_unmap(enum mem_tag tag, void *start, size_t bytes)
{
    ASSERT((unsigned)tag < MEM_TAG_COUNT);
    ASSERT((uintptr_t)start % PAGE_BYTES == 0);
    ASSERT(bytes % PAGE_BYTES == 0);
    if (bytes == 0) return;
    munmap(start, bytes);
    atomic_fetch_sub_explicit(&tag_bytes[tag], bytes, memory_order_relaxed);
}

size_t mem_bytes(enum mem_tag tag)
{
    return atomic_load_explicit(&tag_bytes[tag], memory_order_relaxed);
}

size_t mem_bytes_total(void)
{
    size_t total = 0;
    for (int tag = 0; tag < MEM_TAG_COUNT; tag++) total += mem_bytes((enum mem_tag)tag);
    return total;
}

bool mem_fail_nth(uint64_t nth)
{
    const bool happened = atomic_exchange_explicit(&fail_happened, false, memory_order_relaxed);
    atomic_store_explicit(&fail_countdown, nth, memory_order_relaxed);
    return happened;
}

int mem_grow(enum mem_tag tag, void **items, size_t *capacity, size_t want, size_t size)
{
    if (want <= *capacity) return 0;
    size_t grown = *capacity < 8 ? 8 : *capacity;
    while (grown < want) {
        if (grown > SIZE_MAX / 2) return SHOAL_ENOMEM;
        grown *= 2;
    }
    size_t bytes = 0;
    if (__builtin_mul_overflow(grown, size, &bytes)) return SHOAL_ENOMEM;
    void *moved = mem_realloc(tag, *items, bytes);
    if (moved == NULL) return SHOAL_ENOMEM;
    *items = moved;
    *capacity = grown;
    return 0;
}
