/* Eviction: rows of a dynamic table that have not been pushed to for long. Off unless asked for. What
 * goes depends on the rows' steps and keys alone, so runs repeat. */
#include <stdlib.h>

#include "base/mem.h"
#include "store/store_table.h"

static int compare_steps(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a;
    const uint32_t right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* What may stay: rows with step >= least; of those with step == least, all but the first `tied` in
 * hash order. */
struct limits {
    uint64_t least;
    uint64_t tied;
};

static uint64_t rows_of(const struct table *table)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < table->shards_count; i++) rows += table->shards[i].index.count;
    return rows;
}

static void collect_steps(const struct table *table, uint32_t *steps)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < table->shards_count; i++) {
        const struct shard *shard = &table->shards[i];
        struct store_index_cursor cursor = {0};
        uint64_t hash = 0;
        uint32_t row = 0;
        while (store_index_next(&shard->index, &cursor, &hash, &row)) {
            steps[found++] = row_mark(table_row(table, shard, row), table->step_at);
        }
    }
}

static int find_limits(const struct table *table, uint64_t step, struct limits *limits,
                       struct err *err)
{
    *limits = (struct limits){0};
    const uint64_t age = table->opts.evict_steps;
    /* A row's step is one more than that of its last push. */
    if (age > 0 && step > age) limits->least = step - age + 1;
    const uint64_t rows = rows_of(table);
    const uint64_t rows_max = table->opts.rows_max;
    if (rows_max == 0 || rows <= rows_max) return 0;
    uint32_t *steps = mem_alloc_array(MEM_STORE, rows, sizeof *steps);
    if (steps == NULL) return err_set(err, SHOAL_ENOMEM, "table %s: no memory", table->name);
    collect_steps(table, steps);
    qsort(steps, rows, sizeof *steps, compare_steps);
    const uint64_t first_kept = rows - rows_max;
    const uint32_t least = steps[first_kept];
    if (least >= limits->least) {
        uint64_t below = first_kept;
        while (below > 0 && steps[below - 1] == least) below--;
        *limits = (struct limits){.least = least, .tied = first_kept - below};
    }
    mem_free(steps);
    return 0;
}

/* Removes from a shard what has to go; *tied counts down. */
static int evict_shard(struct table *table, struct shard *shard, const struct limits *limits,
                       uint64_t *tied, uint64_t *removed, struct err *err)
{
    uint64_t *hashes = NULL;
    size_t capacity = 0;
    size_t count = 0;
    int rc = 0;
    struct store_index_cursor cursor = {0};
    uint64_t hash = 0;
    uint32_t row = 0;
    while (rc == 0 && store_index_next(&shard->index, &cursor, &hash, &row)) {
        const uint32_t step = row_mark(table_row(table, shard, row), table->step_at);
        const bool is_tied = step == limits->least && *tied > 0;
        if (step >= limits->least && !is_tied) continue;
        if (is_tied) --*tied;
        rc = mem_grow(MEM_STORE, (void **)&hashes, &capacity, count + 1, sizeof *hashes);
        if (rc == 0) hashes[count++] = hash;
    }
    if (rc == 0) {
        rc = mem_grow(MEM_STORE, (void **)&shard->free_rows, &shard->free_capacity,
                      shard->free_count + count, sizeof *shard->free_rows);
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        shard->free_rows[shard->free_count++] = store_index_remove(&shard->index, hashes[i]);
        ++*removed;
    }
    mem_free(hashes);
    return rc == 0 ? 0 : err_set(err, SHOAL_ENOMEM, "table %s: no memory", table->name);
}

int store_evict(struct store *store, uint32_t number, uint64_t step, uint64_t *rows_out,
                struct err *err)
{
    struct table *table = NULL;
    int rc = table_of(store, number, false, &table, err);
    if (rc != 0) return rc;
    if (store->cut != NULL) {
        return err_set(err, SHOAL_EBUSY, "table %s: a snapshot is being read", table->name);
    }
    uint64_t removed = 0;
    if (table->opts.evict_steps > 0 || table->opts.rows_max > 0) {
        struct limits limits;
        rc = find_limits(table, step, &limits, err);
        uint64_t tied = limits.tied;
        for (uint32_t i = 0; rc == 0 && i < table->shards_count; i++) {
            rc = evict_shard(table, &table->shards[i], &limits, &tied, &removed, err);
        }
    }
    if (rc == 0) *rows_out = removed;
    return rc;
}
