/* mem hands out memory and counts it by tag, so that a run can say where its bytes are and a test
 * can make the nth allocation fail. Thread safe. Memory is zeroed and aligned to 64 bytes.
 * Large blocks (mem_alloc of 2 MiB and more) are mapped with huge pages asked for. */
#ifndef SHOAL_BASE_MEM_H
#define SHOAL_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mem_tag {
    MEM_BASE,
    MEM_CONFIG,
    MEM_IO,
    MEM_TENSOR,
    MEM_GRAPH,
    MEM_STORE,
    MEM_DATA,
    MEM_NET,
    MEM_CLUSTER, /* cluster, ps */
    MEM_MODEL,
    MEM_TRAIN,
    MEM_SIM,
    MEM_CLI,
    MEM_TAG_COUNT
};

/* Zeroed, 64-byte aligned. NULL when out of memory (or when a test asked for it). bytes 0 is 1. */
void *mem_alloc(enum mem_tag tag, size_t bytes);

/* count * size, checked for overflow. */
void *mem_alloc_array(enum mem_tag tag, size_t count, size_t size);

/* Keeps min(old, new) bytes; what is new is zeroed. On failure the old block stays valid. */
void *mem_realloc(enum mem_tag tag, void *block, size_t bytes);

char *mem_strdup(enum mem_tag tag, const char *text);
char *mem_strndup(enum mem_tag tag, const char *text, size_t bytes);

void mem_free(void *block); /* NULL is a no-op. */

/* Whole pages, zeroed, for structures that give memory back piece by piece. Starts at a multiple of
 * MEM_HUGE_BYTES if it is at least so large, else of the page size. Pages take memory when they are
 * first touched; what is counted under the tag is the whole range. NULL when there is none. */
#define MEM_HUGE_BYTES ((size_t)2 << 20)
void *mem_map(enum mem_tag tag, size_t bytes);
/* Joins MEM_HUGE_BYTES of pages at start (a multiple of it) to one huge page. Takes half a
 * millisecond, and longer on a machine that has to look for free memory. Where it cannot be done the
 * pages stay as they are. */
void mem_join(void *start);
/* Gives back any whole pages of a mapping; bytes 0 is a no-op. */
void mem_unmap(enum mem_tag tag, void *start, size_t bytes);

/* Bytes now held under a tag / in all. */
size_t mem_bytes(enum mem_tag tag);
size_t mem_bytes_total(void);

/* Test only: the nth call from now (1 = the next) fails; 0 turns it off. Returns whether the
 * failure that was asked for before has happened. */
bool mem_fail_nth(uint64_t nth);

/* Makes *items hold at least want elements of size bytes, doubling. 0 or SHOAL_ENOMEM. */
int mem_grow(enum mem_tag tag, void **items, size_t *capacity, size_t want, size_t size);

#endif
