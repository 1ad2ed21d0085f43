/* Cuts: the state of all tables at one moment, read at leisure. Marking a cut notes of each shard how
 * many rows it has and what it has applied; nothing is copied. From then on whoever is about to
 * change a row calls cut_keep_rows, which copies it unless that has been done: a bit per row says so
 * and a small index finds the copy. A dense shard is copied whole before its first change. A shard
 * that has been read needs no more copies.
 *
 * New rows get numbers from the mark up, and nothing is evicted, so a row belongs to the cut just if
 * its number is below the mark. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "store/store_table.h"

struct ordered_row {
    uint64_t key;
    uint32_t row;
};

struct store_cut_shard {
    struct shard *shard;
    uint32_t rows_mark; /* row numbers below this belong to the cut */
    uint64_t rows;      /* how many there are */
    uint64_t version;
    struct store_work *streams;
    uint32_t streams_count;

    uint64_t *is_copied;       /* a bit per row; NULL until the first copy */
    struct store_index copied; /* hash_mix64(row) -> number of the copy */
    float *copies;             /* embedding: stride each */
    size_t copies_capacity;
    float *dense[STORE_PARTS_MAX]; /* dense: the shard's ranges; NULL: not copied */
};

struct store_cut {
    struct store *store;
    struct store_cut_shard **tables; /* by table: its shards */

    struct table *table; /* being read */
    struct store_cut_shard *reading;
    uint32_t shard_number;
    struct ordered_row *order; /* dynamic: rows by key */
};

static void forget_shard(struct store_cut_shard *kept)
{
    if (kept->shard == NULL) return;
    if (kept->shard->cut == kept) kept->shard->cut = NULL;
    mem_free(kept->streams);
    mem_free(kept->is_copied);
    store_index_fini(&kept->copied);
    mem_free(kept->copies);
    for (uint32_t part = 0; part < STORE_PARTS_MAX; part++) mem_free(kept->dense[part]);
    *kept = (struct store_cut_shard){0};
}

void store_cut_end(struct store_cut *cut)
{
    if (cut == NULL) return;
    struct store *store = cut->store;
    for (size_t t = 0; cut->tables != NULL && t < store->tables_count; t++) {
        for (uint32_t i = 0; cut->tables[t] != NULL && i < store->tables[t]->shards_count; i++) {
            forget_shard(&cut->tables[t][i]);
        }
        mem_free(cut->tables[t]);
    }
    mem_free(cut->tables);
    mem_free(cut->order);
    store->cut = NULL;
    mem_free(cut);
}

static int mark_shard(const struct store *store, uint32_t t, uint32_t i,
                      struct store_cut_shard *kept)
{
    const struct store_shard state = store_shard_state(store, t, i);
    struct shard *shard = &store->tables[t]->shards[i];
    kept->shard = shard;
    store_index_init(&kept->copied);
    kept->rows_mark = shard->rows_used;
    kept->rows = state.rows;
    kept->version = state.version;
    kept->streams_count = state.streams_count;
    if (state.streams_count > 0) {
        kept->streams = mem_alloc_array(MEM_STORE, state.streams_count, sizeof *kept->streams);
        if (kept->streams == NULL) return SHOAL_ENOMEM;
        memcpy(kept->streams, state.streams, state.streams_count * sizeof *kept->streams);
    }
    shard->cut = kept;
    return 0;
}

int store_cut_begin(struct store *store, struct store_cut **cut_out, struct err *err)
{
    if (store->cut != NULL) return err_set(err, SHOAL_EBUSY, "a snapshot is being read already");
    struct store_cut *cut = mem_alloc(MEM_STORE, sizeof *cut);
    if (cut == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a snapshot");
    cut->store = store;
    int rc = 0;
    cut->tables = mem_alloc_array(MEM_STORE, store->tables_count, sizeof *cut->tables);
    if (cut->tables == NULL) rc = SHOAL_ENOMEM;
    for (uint32_t t = 0; rc == 0 && t < store->tables_count; t++) {
        const uint32_t shards = store->tables[t]->shards_count;
        ASSERT(!store->tables[t]->is_pushing);
        cut->tables[t] = mem_alloc_array(MEM_STORE, shards, sizeof **cut->tables);
        if (cut->tables[t] == NULL) rc = SHOAL_ENOMEM;
        for (uint32_t i = 0; rc == 0 && i < shards; i++) {
            rc = mark_shard(store, t, i, &cut->tables[t][i]);
        }
    }
    if (rc != 0) {
        store_cut_end(cut);
        return err_set(err, rc, "no memory for a snapshot");
    }
    store->cut = cut;
    *cut_out = cut;
    return 0;
}

/* ---- Keeping old state ---- */

static bool is_copied(const struct store_cut_shard *kept, uint32_t row)
{
    return kept->is_copied != NULL && (kept->is_copied[row / 64] >> (row % 64) & 1) != 0;
}

static int keep_row(const struct table *table, struct store_cut_shard *kept, uint32_t row)
{
    if (row >= kept->rows_mark || is_copied(kept, row)) return 0;
    if (kept->is_copied == NULL) {
        kept->is_copied =
            mem_alloc_array(MEM_STORE, (size_t)kept->rows_mark / 64 + 1, sizeof *kept->is_copied);
        if (kept->is_copied == NULL) return SHOAL_ENOMEM;
    }
    const size_t count = kept->copied.count;
    if (mem_grow(MEM_STORE, (void **)&kept->copies, &kept->copies_capacity, count + 1,
                 table->stride * sizeof *kept->copies) != 0 ||
        store_index_insert(&kept->copied, hash_mix64(row), (uint32_t)count) != 0) {
        return SHOAL_ENOMEM;
    }
    memcpy(kept->copies + count * table->stride, table_row(table, kept->shard, row),
           table->stride * sizeof *kept->copies);
    kept->is_copied[row / 64] |= (uint64_t)1 << (row % 64);
    return 0;
}

static bool is_open(const struct table *table)
{
    for (uint32_t i = 0; i < table->shards_count; i++) {
        if (table->shards[i].cut != NULL) return true;
    }
    return false;
}

static int no_memory(const struct table *table, struct err *err)
{
    return err_set(err, SHOAL_ENOMEM, "table %s: no memory for rows of a snapshot", table->name);
}

int cut_keep_rows(struct table *table, const uint64_t *keys, uint32_t count, struct err *err)
{
    if (!is_open(table)) return 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct row_place place = table_find(table, keys[i]);
        struct store_cut_shard *kept = table->shards[place.shard].cut;
        if (kept == NULL || place.row == STORE_INDEX_NONE) continue;
        if (keep_row(table, kept, place.row) != 0) return no_memory(table, err);
    }
    return 0;
}

int cut_keep_all_rows(struct table *table, struct err *err)
{
    ASSERT(table->kind == STORE_FIXED);
    for (uint32_t i = 0; i < table->shards_count; i++) {
        struct store_cut_shard *kept = table->shards[i].cut;
        for (uint32_t row = 0; kept != NULL && row < kept->rows_mark; row++) {
            if (keep_row(table, kept, row) != 0) return no_memory(table, err);
        }
    }
    return 0;
}

int cut_keep_dense(struct table *table, struct err *err)
{
    for (uint32_t i = 0; i < table->shards_count; i++) {
        struct store_cut_shard *kept = table->shards[i].cut;
        if (kept == NULL || kept->dense[0] != NULL) continue;
        /* Backwards: part 0 says that all are there. */
        for (uint32_t part = table->parts_count; part-- > 0;) {
            if (kept->dense[part] == NULL) {
                kept->dense[part] = mem_alloc_array(MEM_STORE, kept->rows, sizeof(float));
            }
            if (kept->dense[part] == NULL) return no_memory(table, err);
            memcpy(kept->dense[part], table->dense[part] + kept->shard->first,
                   kept->rows * sizeof(float));
        }
    }
    return 0;
}

/* ---- Reading ---- */

/* Radix sort by signed key, 16 bits at a time from the lowest; `other` is as large as `rows`. */
#define DIGIT_BITS 16u
#define DIGITS (1u << DIGIT_BITS)

static uint32_t digit_of(uint64_t key, uint32_t pass)
{
    const uint64_t ascending = key ^ (uint64_t)1 << 63; /* negative ones first */
    return (uint32_t)(ascending >> (pass * DIGIT_BITS)) & (DIGITS - 1);
}

static void sort_by_key(struct ordered_row *rows, struct ordered_row *other, uint64_t count,
                        uint64_t *starts)
{
    for (uint32_t pass = 0; pass < 64 / DIGIT_BITS; pass++) {
        memset(starts, 0, DIGITS * sizeof *starts);
        for (uint64_t i = 0; i < count; i++) starts[digit_of(rows[i].key, pass)]++;
        uint64_t sum = 0;
        for (uint32_t digit = 0; digit < DIGITS; digit++) {
            const uint64_t here = starts[digit];
            starts[digit] = sum;
            sum += here;
        }
        for (uint64_t i = 0; i < count; i++) other[starts[digit_of(rows[i].key, pass)]++] = rows[i];
        struct ordered_row *swap = rows;
        rows = other;
        other = swap;
    }
    static_assert(64 / DIGIT_BITS % 2 == 0, "the result is where the input was");
}

static int order_rows(struct store_cut *cut)
{
    const struct store_cut_shard *kept = cut->reading;
    const uint64_t count = kept->rows;
    struct ordered_row *other = mem_alloc_array(MEM_STORE, count, sizeof *other);
    uint64_t *starts = mem_alloc_array(MEM_STORE, DIGITS, sizeof *starts);
    cut->order = mem_alloc_array(MEM_STORE, count, sizeof *cut->order);
    int rc = SHOAL_ENOMEM;
    if (other == NULL || starts == NULL || cut->order == NULL) goto out;
    struct store_index_cursor cursor = {0};
    uint64_t hash = 0;
    uint64_t found = 0;
    uint32_t row = 0;
    while (store_index_next(&kept->shard->index, &cursor, &hash, &row)) {
        if (row >= kept->rows_mark) continue;
        ASSERT(found < count);
        cut->order[found].key = table_key_of(cut->table, cut->shard_number, hash);
        cut->order[found++].row = row;
    }
    ASSERT(found == count);
    sort_by_key(cut->order, other, count, starts);
    rc = 0;
out:
    mem_free(other);
    mem_free(starts);
    return rc;
}

int store_cut_shard(struct store_cut *cut, uint32_t table, uint32_t shard,
                    struct store_shard *shard_out, struct err *err)
{
    struct store *store = cut->store;
    if (cut->reading != NULL) forget_shard(cut->reading);
    cut->reading = NULL;
    mem_free(cut->order);
    cut->order = NULL;
    if (table >= store->tables_count || shard >= store->tables[table]->shards_count) {
        return err_set(err, SHOAL_EINVAL, "no shard %u of table %u", shard, table);
    }
    struct store_cut_shard *kept = &cut->tables[table][shard];
    if (kept->shard == NULL) {
        return err_set(err, SHOAL_EINVAL, "shard %u of table %s has been read", shard,
                       store->tables[table]->name);
    }
    cut->table = store->tables[table];
    cut->reading = kept;
    cut->shard_number = shard;
    if (cut->table->kind == STORE_DYNAMIC && order_rows(cut) != 0) {
        cut->reading = NULL;
        return no_memory(cut->table, err);
    }
    *shard_out = (struct store_shard){.version = kept->version,
                                      .rows = kept->rows,
                                      .first = kept->shard->first,
                                      .streams_count = kept->streams_count,
                                      .streams = kept->streams};
    return 0;
}

/* The row as it was; `initial` is used for a fixed one that is not made. */
static const float *row_then(const struct store_cut *cut, uint32_t row, uint64_t key,
                             float *initial)
{
    const struct store_cut_shard *kept = cut->reading;
    if (is_copied(kept, row)) {
        const uint32_t copy = store_index_find(&kept->copied, hash_mix64(row));
        return kept->copies + (size_t)copy * cut->table->stride;
    }
    if (cut->table->kind == STORE_FIXED && !shard_is_made(kept->shard, row)) {
        table_fill_row(cut->table, key, initial);
        return initial;
    }
    return table_row(cut->table, kept->shard, row);
}

static void read_dense(const struct store_cut *cut, const struct store_cut_read *read)
{
    const struct store_cut_shard *kept = cut->reading;
    for (uint32_t part = 0; part < cut->table->parts_count; part++) {
        if (read->parts[part] == NULL) continue;
        const float *from = kept->dense[0] != NULL
                                ? kept->dense[part] + read->first
                                : cut->table->dense[part] + kept->shard->first + read->first;
        memcpy(read->parts[part], from, read->count * sizeof *from);
    }
}

int store_cut_read(struct store_cut *cut, const struct store_cut_read *read, struct err *err)
{
    const struct table *table = cut->table;
    ASSERT(cut->reading != NULL);
    ASSERT(read->first <= cut->reading->rows);
    ASSERT(read->count <= cut->reading->rows - read->first);
    if (table->kind == STORE_DENSE) {
        read_dense(cut, read);
        return 0;
    }
    float *initial = mem_alloc_array(MEM_STORE, table->stride, sizeof *initial);
    if (initial == NULL) return no_memory(table, err);
    const size_t cols = table->cols;
    for (uint32_t i = 0; i < read->count; i++) {
        const uint64_t at = read->first + i;
        const bool is_fixed = table->kind == STORE_FIXED;
        const uint64_t key =
            is_fixed ? at * table->shards_count + cut->shard_number : cut->order[at].key;
        const uint32_t number = is_fixed ? (uint32_t)at : cut->order[at].row;
        if (read->keys != NULL) read->keys[i] = key;
        const float *row = row_then(cut, number, key, initial);
        for (uint32_t part = 0; part < table->parts_count; part++) {
            if (read->parts[part] == NULL) continue;
            memcpy(read->parts[part] + i * cols, row + part * cols, cols * sizeof *row);
        }
        if (read->steps != NULL) read->steps[i] = row_mark(row, table->step_at);
        if (read->counts != NULL) read->counts[i] = row_mark(row, table->count_at);
    }
    mem_free(initial);
    return 0;
}
