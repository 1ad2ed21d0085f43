#include "store/store.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "store/store_table.h"

int store_create(const struct store_opts *opts, struct store **store_out, struct err *err)
{
    struct store *store = mem_alloc(MEM_STORE, sizeof *store);
    if (store == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a store");
    store->seed = opts->seed;
    *store_out = store;
    return 0;
}

void store_destroy(struct store *store)
{
    if (store == NULL) return;
    store_cut_end(store->cut);
    for (size_t i = 0; i < store->tables_count; i++) table_destroy(store->tables[i]);
    mem_free(store->tables);
    mem_free(store);
}

int store_table_add(struct store *store, const struct store_table_opts *opts, uint32_t *table_out,
                    struct err *err)
{
    uint32_t there = 0;
    if (opts->name != NULL && store_table_find(store, opts->name, &there, NULL) == 0) {
        return err_set(err, SHOAL_EEXIST, "table %s is there already", opts->name);
    }
    if (store->tables_count == STORE_TABLES_MAX) {
        return err_set(err, SHOAL_ELIMIT, "table %s: %u tables, no more are allowed", opts->name,
                       STORE_TABLES_MAX);
    }
    if (store->cut != NULL) {
        return err_set(err, SHOAL_EBUSY, "table %s: a snapshot is being read", opts->name);
    }
    if (mem_grow(MEM_STORE, (void **)&store->tables, &store->tables_capacity,
                 store->tables_count + 1, sizeof *store->tables) != 0) {
        return err_set(err, SHOAL_ENOMEM, "table %s: no memory", opts->name);
    }
    const int rc = table_create(opts, store->seed, &store->tables[store->tables_count], err);
    if (rc == 0) *table_out = (uint32_t)store->tables_count++;
    return rc;
}

int table_of(const struct store *store, uint32_t number, bool is_dense, struct table **table_out,
             struct err *err)
{
    if (number >= store->tables_count) {
        return err_set(err, SHOAL_EINVAL, "table number %u, there are %zu", number,
                       store->tables_count);
    }
    struct table *table = store->tables[number];
    if ((table->kind == STORE_DENSE) != is_dense) {
        return err_set(err, SHOAL_EINVAL, "table %s is %s", table->name,
                       is_dense ? "an embedding, not a dense tensor"
                                : "a dense tensor, not an embedding");
    }
    *table_out = table;
    return 0;
}

uint32_t store_tables_count(const struct store *store)
{
    return (uint32_t)store->tables_count;
}

static uint64_t rows_made(const struct table *table)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < table->shards_count; i++) rows += table->shards[i].index.count;
    return rows;
}

struct store_table_info store_table_info(const struct store *store, uint32_t number)
{
    ASSERT(number < store->tables_count);
    const struct table *table = store->tables[number];
    struct store_table_info info = {
        .name = table->name,
        .kind = table->kind,
        .rows = table->kind == STORE_DYNAMIC ? rows_made(table) : table->rows,
        .cols = table->cols,
        .shards = table->shards_count,
        .parts = table->parts_count,
        .rule = &table->opts.rule,
        .average_decay = table->opts.average_decay,
        .has_steps = table->step_at != 0,
        .has_counts = table->count_at != 0,
    };
    for (uint32_t i = 0; i < table->shards_count; i++) info.pushes += table->shards[i].version;
    return info;
}

int store_table_find(const struct store *store, const char *name, uint32_t *table_out,
                     struct err *err)
{
    for (size_t i = 0; i < store->tables_count; i++) {
        if (strcmp(store->tables[i]->name, name) != 0) continue;
        *table_out = (uint32_t)i;
        return 0;
    }
    return err_set(err, SHOAL_ENOENT, "there is no table %s", name);
}

const char *store_part_name(const struct store *store, uint32_t number, uint32_t part)
{
    ASSERT(number < store->tables_count);
    const struct table *table = store->tables[number];
    if (part >= table->parts_count) return NULL;
    if (part == 0) return "";
    if (part == table->average_part) return "average";
    return store_rule_slot_name(&table->opts.rule, part - 1);
}

void store_lease_retire(struct store *store, uint64_t lease)
{
    for (size_t t = 0; t < store->tables_count; t++) {
        struct table *table = store->tables[t];
        for (uint32_t i = 0; i < table->shards_count; i++) {
            store_ledger_retire(&table->shards[i].ledger, lease);
        }
    }
}

static bool tend_table(struct table *table)
{
    for (uint32_t i = 0; i < table->shards_count; i++) {
        if (store_index_tend(&table->shards[i].index)) return true;
    }
    /* A dynamic table has used what its pool handed out. A fixed one may never use all of it, but a
     * large one does for all we know. */
    const bool is_used = table->kind == STORE_DYNAMIC || table->rows >= STORE_HUGE_ROWS_MIN;
    return table->pool != NULL && is_used && store_pool_tend(table->pool);
}

bool store_tend(struct store *store)
{
    for (size_t i = 0; i < store->tables_count; i++) {
        if (tend_table(store->tables[i])) return true;
    }
    return false;
}

struct store_shard store_shard_state(const struct store *store, uint32_t number, uint32_t shard)
{
    ASSERT(number < store->tables_count);
    const struct table *table = store->tables[number];
    ASSERT(shard < table->shards_count);
    const struct shard *state = &table->shards[shard];
    const uint64_t rows[] = {[STORE_DENSE] = state->elements,
                             [STORE_FIXED] = state->rows_used,
                             [STORE_DYNAMIC] = state->index.count};
    return (struct store_shard){.version = state->version,
                                .rows = rows[table->kind],
                                .first = state->first,
                                .streams_count = state->ledger.count,
                                .streams = state->ledger.streams};
}

int store_shard_restore(struct store *store, uint32_t number, uint32_t shard,
                        const struct store_shard *state, struct err *err)
{
    ASSERT(number < store->tables_count);
    struct table *table = store->tables[number];
    if (shard >= table->shards_count) {
        return err_set(err, SHOAL_EMISMATCH, "table %s: shard %u, there are %u", table->name, shard,
                       table->shards_count);
    }
    const int rc = store_ledger_restore(&table->shards[shard].ledger, state->streams,
                                        state->streams_count, err);
    if (rc != 0) return err == NULL ? rc : err_wrap(err, "table %s shard %u", table->name, shard);
    table->shards[shard].version = state->version;
    return 0;
}

#define PAGE_BYTES ((uint64_t)4096)

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

struct store_bytes store_table_bytes(const struct store *store, uint32_t number)
{
    const struct store_table_info info = store_table_info(store, number);
    const struct table *table = store->tables[number];
    const uint64_t row_values = info.cols * sizeof(float);
    const uint64_t row_bytes = table->stride * sizeof(float);
    struct store_bytes bytes = {.values = info.rows * row_values,
                                .slots = info.rows * (row_bytes - row_values),
                                .index = sizeof *table + strlen(table->name) + 1};
    for (uint32_t i = 0; i < table->shards_count; i++) {
        const struct shard *shard = &table->shards[i];
        bytes.index += sizeof *shard + store_index_bytes(&shard->index) +
                       shard->chunks_capacity * sizeof *shard->chunks +
                       shard->free_capacity * sizeof *shard->free_rows +
                       shard->ledger.capacity * sizeof *shard->ledger.streams;
        if (shard->made != NULL) bytes.index += ((uint64_t)shard->rows_used + 63) / 64 * 8;
        /* A started page, and rows that were evicted. */
        const uint64_t used = shard->rows_used * row_bytes;
        if (table->kind == STORE_DYNAMIC) {
            bytes.index += round_up(used, PAGE_BYTES) - shard->index.count * row_bytes;
        }
    }
    const struct table_scratch *scratch = &table->scratch;
    bytes.index += scratch->rows_capacity * sizeof *scratch->rows +
                   scratch->missing_capacity * sizeof *scratch->missing +
                   scratch->parts_capacity * sizeof *scratch->parts;
    return bytes;
}

struct store_bytes store_bytes_plan(const struct store_table_opts *opts, uint64_t rows)
{
    if (opts->kind != STORE_DYNAMIC) rows = opts->rows;
    const uint64_t cols_bytes = opts->cols * sizeof(float);
    const bool has_average = opts->average_decay > 0;
    const bool is_embedding = opts->kind != STORE_DENSE;
    const bool has_step = has_average || opts->evict_steps > 0 || opts->rows_max > 0;
    uint64_t slots = (store_rule_slots(&opts->rule) + (has_average ? 1 : 0)) * cols_bytes;
    if (is_embedding && has_step) slots += sizeof(uint32_t);
    if (is_embedding && opts->admit_count > 1) slots += sizeof(uint32_t);
    const uint32_t shards = opts->shards == 0 ? store_shards_rule(opts) : opts->shards;
    struct store_bytes bytes = {.values = rows * cols_bytes, .slots = rows * slots};
    bytes.index = sizeof(struct table) + shards * sizeof(struct shard);
    if (opts->kind == STORE_FIXED) bytes.index += rows / 8;
    if (opts->kind == STORE_DYNAMIC) bytes.index += shards * store_index_bytes_plan(rows / shards);
    return bytes;
}

bool store_ok(const struct store *store)
{
    for (size_t i = 0; i < store->tables_count; i++) {
        if (!table_ok(store->tables[i])) return false;
    }
    return true;
}
