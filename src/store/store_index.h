/* store_index maps 64-bit hashes to 32-bit row numbers for one shard of a dynamic table. Entries lie
 * in ascending order of hash in one array with gaps (linear probing in Robin-Hood order, which for a
 * position that grows with the hash is simply sorted order):
 *
 *     home(hash) = hash * capacity / 2^64      an entry stands at its home or after it, with no gap
 *     | 17 | 23 | 30 |    | 51 | 52 |    |     between; no wrap-around, but some room at the end
 *
 * A lookup starts at home and goes on while the entry there is smaller. Walking the array gives the
 * rows in hash order: the same for the same set of keys, whatever their history.
 *
 * The caller's hash must be bijective (hash_mix64), so hashes are compared instead of keys, and every
 * value is legal. An entry is 12 bytes: ~hash, row + 1. Zeroed pages are empty entries: nothing is
 * cleared when memory is mapped.
 *
 * Growth, by 1/24, is incremental. Hashes up to `moved_to` live in the new array, the others in the
 * old one; each insert moves the next few entries, and old pages are given back as they fall behind:
 *
 *     old  [ given back | stale | entries > moved_to ..... ]
 *     new  [ entries <= moved_to | not touched yet ............ ]
 *
 * (1) An array holds at most 0.86 of its capacity: 14.0 bytes a row when full, 14.5 right after a
 *     growth, plus a page or two. (Fuller is slower: lookups pass 3 entries at 0.86, 6 at 0.915.)
 * (2) An insert moves at most MOVES_PER_INSERT entries: no call takes long.
 * (3) Pages of the old array are given back only below home(moved_to): a lookup or insert above
 *     moved_to never looks there.
 * One thread writes; any number read while nobody does. */
#ifndef SHOAL_STORE_INDEX_H
#define SHOAL_STORE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

#define STORE_INDEX_NONE UINT32_MAX
#define STORE_INDEX_ENTRY_BYTES 12u
#define STORE_INDEX_AHEAD 4u /* entries that a lookup reads in any case */

struct store_index_array {
    uint8_t *entries; /* NULL: none */
    uint64_t capacity;
    uint64_t room;     /* entries past capacity, for the last homes */
    size_t bytes;      /* of the whole block */
    size_t given_back; /* bytes at its front */
    size_t joined;     /* bytes at its front that are on huge pages */
    bool is_mapped;    /* by mem_map, else by mem_alloc */
};

enum { STORE_INDEX_NOW, STORE_INDEX_OLD };

struct store_index {
    struct store_index_array arrays[2]; /* the old one has entries while growing */
    uint64_t moved_to; /* growing: the last hash moved; else UINT64_MAX, so that none is above it */
    uint64_t old_next; /* growing: no unmoved entry stands before this position */
    uint64_t count;
};

void store_index_init(struct store_index *index); /* Empty: needs no memory. */
void store_index_fini(struct store_index *index); /* An all-zero one is a no-op. */

static inline uint64_t store_index_home(const struct store_index_array *array, uint64_t hash)
{
    return (uint64_t)(((unsigned __int128)hash * array->capacity) >> 64);
}

/* Where a lookup starts, for prefetching; NULL when empty. It reads this line and often the next. */
static inline const uint8_t *store_index_start(const struct store_index *index, uint64_t hash)
{
    /* Chosen without a branch: half-way through a growth it could not be predicted. */
    const struct store_index_array *array = &index->arrays[hash > index->moved_to];
    if (array->entries == NULL) return NULL;
    return array->entries + store_index_home(array, hash) * STORE_INDEX_ENTRY_BYTES;
}

/* The row of a hash, from where store_index_start said; STORE_INDEX_NONE if it is not there. */
static inline uint32_t store_index_find_from(const uint8_t *entry, uint64_t hash)
{
    if (entry == NULL) return STORE_INDEX_NONE;
    uint64_t stored[STORE_INDEX_AHEAD];
    /* The first few without branches, since where a search ends cannot be predicted: smaller entries
     * stand before larger ones and gaps, so counting them finds the place. */
    for (size_t i = 0; i < STORE_INDEX_AHEAD; i++) {
        memcpy(&stored[i], entry + i * STORE_INDEX_ENTRY_BYTES, sizeof stored[i]);
    }
    const size_t smaller = (size_t)(stored[0] > ~hash) + (size_t)(stored[1] > ~hash) +
                           (size_t)(stored[2] > ~hash) + (size_t)(stored[3] > ~hash);
    entry += smaller * STORE_INDEX_ENTRY_BYTES;
    uint64_t found = 0;
    for (;; entry += STORE_INDEX_ENTRY_BYTES) {
        memcpy(&found, entry, sizeof found);
        if (__builtin_expect(found <= ~hash, 1)) break;
    }
    uint32_t row_plus_one = 0;
    memcpy(&row_plus_one, entry + sizeof found, sizeof row_plus_one);
    return found == ~hash ? row_plus_one - 1 : STORE_INDEX_NONE;
}

static inline uint32_t store_index_find(const struct store_index *index, uint64_t hash)
{
    return store_index_find_from(store_index_start(index, hash), hash);
}

/* The hash must not be there; row < STORE_INDEX_NONE. SHOAL_ENOMEM leaves the index as it was. */
int store_index_insert(struct store_index *index, uint64_t hash, uint32_t row);

/* Returns the row, STORE_INDEX_NONE if it was not there. Memory is kept for later inserts. */
uint32_t store_index_remove(struct store_index *index, uint64_t hash);

/* Walks all entries in hash order; start with a zeroed cursor. False at the end. Nothing may be
 * written during a walk. */
struct store_index_cursor {
    uint64_t position;
    bool in_old;
};
bool store_index_next(const struct store_index *index, struct store_index_cursor *cursor,
                      uint64_t *hash_out, uint32_t *row_out);

/* Joins a block of pages of an array that is not growing to a huge page (lookups in a large index are
 * a fifth faster for it); false when there is none. Between requests. */
bool store_index_tend(struct store_index *index);

/* Bytes held. */
size_t store_index_bytes(const struct store_index *index);

/* Bytes that an index of `count` entries may hold at most. */
uint64_t store_index_bytes_plan(uint64_t count);

bool store_index_ok(const struct store_index *index); /* O(capacity) */

#endif
