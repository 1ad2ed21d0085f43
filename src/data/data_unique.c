#include "data/data_unique.h"

#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"

static bool is_direct(const struct data_unique *unique)
{
    return unique->rows != 0 && unique->rows <= DATA_DIRECT_ROWS_MAX;
}

int data_unique_init(struct data_unique *unique, uint64_t rows, struct err *err)
{
    *unique = (struct data_unique){.rows = rows};
    if (!is_direct(unique)) return 0;
    unique->map = mem_alloc_array(MEM_DATA, rows, sizeof *unique->map);
    unique->map_count = rows;
    return unique->map != NULL ? 0
                               : err_set(err, SHOAL_ENOMEM, "no memory for a map of %llu rows",
                                         (unsigned long long)rows);
}

static int reserve_out(struct data_unique_out *out, size_t want)
{
    size_t keys = out->capacity;
    size_t slots = out->capacity;
    size_t occs = out->capacity;
    size_t offsets = out->capacity;
    if (want <= out->capacity) return 0;
    if (mem_grow(MEM_DATA, (void **)&out->keys, &keys, want, sizeof *out->keys) != 0 ||
        mem_grow(MEM_DATA, (void **)&out->slots, &slots, want, sizeof *out->slots) != 0 ||
        mem_grow(MEM_DATA, (void **)&out->occs, &occs, want, sizeof *out->occs) != 0 ||
        mem_grow(MEM_DATA, (void **)&out->occ_offsets, &offsets, want, sizeof *out->occ_offsets)) {
        return SHOAL_ENOMEM;
    }
    ASSERT(keys == slots && keys == occs && keys == offsets);
    out->capacity = keys;
    return 0;
}

int data_unique_reserve(struct data_unique *unique, struct data_unique_out *out, size_t occs_count,
                        struct err *err)
{
    size_t want = 1024;
    while (want < occs_count * 2) want *= 2;
    int rc = reserve_out(out, occs_count + 1);
    if (rc == 0) {
        rc = mem_grow(MEM_DATA, (void **)&unique->counts, &unique->counts_capacity, occs_count + 1,
                      sizeof *unique->counts);
    }
    if (rc == 0 && !is_direct(unique) && want > unique->map_count) {
        mem_free(unique->map);
        unique->map_count = 0;
        unique->map = mem_alloc_array(MEM_DATA, want, sizeof *unique->map);
        if (unique->map == NULL) {
            rc = SHOAL_ENOMEM;
        } else {
            unique->map_count = want;
        }
    }
    return rc == 0 ? 0
                   : err_set(err, SHOAL_ENOMEM, "no memory for %zu keys of a batch", occs_count);
}

/* Slots of one run through the direct map. Returns how many keys there are now. */
static uint32_t add_direct(uint32_t *map, uint32_t *counts, uint64_t *keys, uint32_t keys_count,
                           const struct data_unique_run *run, uint32_t *slots)
{
    for (uint32_t i = 0; i < run->count; i++) {
        const uint64_t key = run->keys[i];
        uint32_t slot = map[key];
        if (__builtin_expect(slot == 0, 0)) {
            keys[keys_count] = key;
            counts[keys_count] = 0;
            slot = ++keys_count;
            map[key] = slot;
        }
        counts[slot - 1]++;
        slots[i] = slot - 1;
    }
    return keys_count;
}

/* The same through open addressing; the product's high bits choose the place. */
static uint32_t add_hashed(const struct data_unique *unique, size_t mask, uint64_t *keys,
                           uint32_t keys_count, const struct data_unique_run *run, uint32_t *slots)
{
    for (uint32_t i = 0; i < run->count; i++) {
        const uint64_t key = run->keys[i];
        size_t at = (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & mask;
        uint32_t slot = unique->map[at];
        while (slot != 0 && keys[slot - 1] != key) {
            at = (at + 1) & mask;
            slot = unique->map[at];
        }
        if (slot == 0) {
            keys[keys_count] = key;
            unique->counts[keys_count] = 0;
            slot = ++keys_count;
            unique->map[at] = slot;
        }
        unique->counts[slot - 1]++;
        slots[i] = slot - 1;
    }
    return keys_count;
}

/* Counts become offsets, and occurrences go to their key's place in ascending order. */
static void sort_occs(uint32_t *counts, struct data_unique_out *out)
{
    uint32_t offset = 0;
    for (uint32_t slot = 0; slot < out->keys_count; slot++) {
        const uint32_t count = counts[slot];
        out->occ_offsets[slot] = offset;
        counts[slot] = offset;
        offset += count;
    }
    out->occ_offsets[out->keys_count] = offset;
    ASSERT(offset == out->occs_count);
    for (uint32_t occ = 0; occ < out->occs_count; occ++) out->occs[counts[out->slots[occ]]++] = occ;
}

void data_unique_run(struct data_unique *unique, const struct data_unique_run *runs,
                     uint32_t runs_count, struct data_unique_out *out)
{
    uint32_t keys_count = 0;
    uint32_t occs_count = 0;
    uint32_t total = 0;
    for (uint32_t i = 0; i < runs_count; i++) total += runs[i].count;
    ASSERT(total < out->capacity || total == 0);
    size_t mask = 1023;
    if (!is_direct(unique)) {
        while (mask + 1 < 2 * (size_t)total) mask = mask * 2 + 1;
        ASSERT(mask < unique->map_count);
        memset(unique->map, 0, (mask + 1) * sizeof *unique->map);
    }
    for (uint32_t i = 0; i < runs_count; i++) {
        uint32_t *slots = out->slots + occs_count;
        keys_count =
            is_direct(unique)
                ? add_direct(unique->map, unique->counts, out->keys, keys_count, &runs[i], slots)
                : add_hashed(unique, mask, out->keys, keys_count, &runs[i], slots);
        occs_count += runs[i].count;
    }
    out->keys_count = keys_count;
    out->occs_count = occs_count;
    sort_occs(unique->counts, out);
    if (!is_direct(unique)) return;
    for (uint32_t slot = 0; slot < keys_count; slot++) unique->map[out->keys[slot]] = 0;
}

void data_unique_fini(struct data_unique *unique)
{
    mem_free(unique->map);
    mem_free(unique->counts);
    *unique = (struct data_unique){0};
}

void data_unique_out_fini(struct data_unique_out *out)
{
    mem_free(out->keys);
    mem_free(out->slots);
    mem_free(out->occs);
    mem_free(out->occ_offsets);
    *out = (struct data_unique_out){0};
}
