/* Pulls: rows out of embedding tables. A request is cut into parts of STORE_PART_KEYS keys. Within a
 * part memory is asked for ahead of need in two stages, since a large table is not in any cache: key
 * i + 2 AHEAD gets its index lines fetched, key i + AHEAD is looked up and gets its row fetched, and
 * the row of key i is copied. So some thirty misses are under way at any time. */
#include "base/assert.h"
#include "base/mem.h"
#include "store/store_table.h"

#define AHEAD 16u
#define RING 64u /* a power of two above 2 AHEAD */
static_assert(RING >= 2 * AHEAD, "the ring holds what is under way");

#define LINE_FLOATS 16u
#define PREFETCH_LINES_MAX 8u

struct pull_ctx {
    const struct table *table;
    const struct store_pull *pull;
};

/* To the second cache: with the first one's few line buffers left to the copying this measures 10 %
 * faster. */
static void prefetch(const void *address)
{
    __builtin_prefetch(address, 0, 2);
}

static void prefetch_row(const float *row, uint32_t floats)
{
    const uint32_t lines = (floats + LINE_FLOATS - 1) / LINE_FLOATS;
    for (uint32_t i = 0; i < lines && i < PREFETCH_LINES_MAX; i++) prefetch(row + i * LINE_FLOATS);
}

/* Small constant sizes become vector moves; a call to memcpy costs as much as the row. */
static void copy_row(float *restrict to, const float *restrict from, uint32_t cols)
{
    for (; cols >= 16; cols -= 16, to += 16, from += 16) memcpy(to, from, 64);
    for (; cols >= 4; cols -= 4, to += 4, from += 4) memcpy(to, from, 16);
    for (uint32_t i = 0; i < cols; i++) to[i] = from[i];
}

/* The average of a row that was last touched at its own step has moved on since: by then its value
 * stood still, so average - value has shrunk by decay at each step. */
static void read_average(const struct table *table, const float *row, uint64_t step, float *to)
{
    const uint64_t last = row_mark(row, table->step_at);
    const double left = table_decay(table->opts.average_decay, step > last ? step - last : 0);
    const float *average = row + (size_t)table->average_part * table->cols;
    for (uint32_t i = 0; i < table->cols; i++) {
        to[i] = (float)((double)row[i] + left * ((double)average[i] - (double)row[i]));
    }
}

static void answer(const struct pull_ctx *ctx, uint32_t number, const float *row)
{
    const struct table *table = ctx->table;
    float *to = ctx->pull->rows + (size_t)number * table->cols;
    if (row == NULL || !row_is_admitted(table, row)) {
        store_init_fill(&table->draw, ctx->pull->keys[number], 0, table->cols, to);
    } else if (ctx->pull->averaged) {
        read_average(table, row, ctx->pull->step, to);
    } else {
        copy_row(to, row, table->cols);
    }
}

static void part_range(const struct pull_ctx *ctx, uint32_t part, uint32_t *first, uint32_t *end)
{
    const uint32_t count = ctx->pull->count;
    *first = part * STORE_PART_KEYS;
    *end = count - *first < STORE_PART_KEYS ? count : *first + STORE_PART_KEYS;
}

static void pull_dynamic(void *arg, uint32_t part, uint32_t thread)
{
    (void)thread;
    const struct pull_ctx *ctx = arg;
    const struct table *table = ctx->table;
    const uint64_t *keys = ctx->pull->keys;
    struct {
        uint64_t hash; /* as in the shard's index */
        const uint8_t *start;
        const struct shard *shard;
        const float *row;
    } ring[RING];
    uint32_t first = 0;
    uint32_t end = 0;
    part_range(ctx, part, &first, &end);
    for (uint32_t i = first; i < end + 2 * AHEAD; i++) {
        if (i < end) {
            const uint64_t hash = hash_mix64(keys[i]);
            const struct shard *shard = &table->shards[table_shard_of_hash(table, hash)];
            ring[i % RING].shard = shard;
            ring[i % RING].hash = hash << table->shard_bits;
            ring[i % RING].start = store_index_start(&shard->index, hash << table->shard_bits);
            prefetch(ring[i % RING].start);
            prefetch(ring[i % RING].start + 60);
        }
        if (i >= first + AHEAD && i < end + AHEAD) {
            const uint32_t at = (i - AHEAD) % RING;
            const uint32_t row = store_index_find_from(ring[at].start, ring[at].hash);
            ring[at].row = NULL;
            if (row != STORE_INDEX_NONE) {
                ring[at].row = table_row(table, ring[at].shard, row);
                prefetch_row(ring[at].row, table->cols);
            }
        }
        if (i >= first + 2 * AHEAD) answer(ctx, i - 2 * AHEAD, ring[(i - 2 * AHEAD) % RING].row);
    }
}

static void pull_fixed(void *arg, uint32_t part, uint32_t thread)
{
    (void)thread;
    const struct pull_ctx *ctx = arg;
    const struct table *table = ctx->table;
    const float *ring[RING];
    uint32_t first = 0;
    uint32_t end = 0;
    part_range(ctx, part, &first, &end);
    for (uint32_t i = first; i < end + AHEAD; i++) {
        if (i < end) {
            const float *row = table_find_row(table, ctx->pull->keys[i]);
            if (row != NULL) prefetch_row(row, table->cols);
            ring[i % RING] = row;
        }
        if (i >= first + AHEAD) answer(ctx, i - AHEAD, ring[(i - AHEAD) % RING]);
    }
}

int store_pull(const struct store *store, const struct store_pull *pull, struct team *team,
               struct err *err)
{
    struct table *table = NULL;
    int rc = table_of(store, pull->table, false, &table, err);
    if (rc != 0) return rc;
    rc = table_check_keys(table, pull->keys, pull->count, err);
    if (rc != 0) return rc;
    if (pull->averaged && table->average_part == 0) {
        return err_set(err, SHOAL_EINVAL, "table %s keeps no moving average", table->name);
    }
    struct pull_ctx ctx = {table, pull};
    const uint32_t parts = (pull->count + STORE_PART_KEYS - 1) / STORE_PART_KEYS;
    team_run(team, parts, table->kind == STORE_FIXED ? pull_fixed : pull_dynamic, &ctx);
    return 0;
}

/* ---- Assign and fetch ---- */

static int check_rows(const struct store *store, const struct store_rows *rows,
                      struct table **table_out, struct err *err)
{
    struct table *table = NULL;
    int rc = table_of(store, rows->table, false, &table, err);
    if (rc != 0) return rc;
    rc = table_check_keys(table, rows->keys, rows->count, err);
    if (rc != 0) return rc;
    for (uint32_t part = table->parts_count; part < STORE_PARTS_MAX; part++) {
        if (rows->parts[part] == NULL) continue;
        return err_set(err, SHOAL_EINVAL, "table %s has %u parts, not %u", table->name,
                       table->parts_count, part + 1);
    }
    if ((rows->steps != NULL && table->step_at == 0) ||
        (rows->counts != NULL && table->count_at == 0)) {
        return err_set(err, SHOAL_EINVAL, "table %s keeps no %s", table->name,
                       table->step_at == 0 ? "steps" : "counts");
    }
    *table_out = table;
    return 0;
}

int store_assign_rows(struct store *store, const struct store_rows *rows, struct err *err)
{
    struct table *table = NULL;
    int rc = check_rows(store, rows, &table, err);
    for (uint32_t i = 0; rc == 0 && i < rows->count; i++) {
        float *row = table_find_row(table, rows->keys[i]);
        if (row == NULL && table_make_row(table, rows->keys[i], &row) != 0) {
            rc = err_set(err, SHOAL_ENOMEM, "table %s: no memory for another row", table->name);
        }
    }
    if (rc == 0) rc = cut_keep_rows(table, rows->keys, rows->count, err);
    if (rc != 0) return rc;
    const size_t cols = table->cols;
    for (uint32_t i = 0; i < rows->count; i++) {
        float *row = table_find_row(table, rows->keys[i]);
        ASSERT(row != NULL);
        for (uint32_t part = 0; part < table->parts_count; part++) {
            const float *from = rows->parts[part];
            if (from != NULL) memcpy(row + part * cols, from + i * cols, cols * sizeof(float));
        }
        if (rows->steps != NULL) row_set_mark(row, table->step_at, rows->steps[i]);
        if (rows->counts != NULL) row_set_mark(row, table->count_at, rows->counts[i]);
    }
    return 0;
}

int store_fetch_rows(const struct store *store, const struct store_rows *rows, struct err *err)
{
    struct table *table = NULL;
    int rc = check_rows(store, rows, &table, err);
    if (rc != 0) return rc;
    float *initial = mem_alloc_array(MEM_STORE, table->stride, sizeof *initial);
    if (initial == NULL) return err_set(err, SHOAL_ENOMEM, "table %s: no memory", table->name);
    const size_t cols = table->cols;
    for (uint32_t i = 0; i < rows->count; i++) {
        const float *row = table_find_row(table, rows->keys[i]);
        if (row == NULL) {
            table_fill_row(table, rows->keys[i], initial);
            row = initial;
        }
        for (uint32_t part = 0; part < table->parts_count; part++) {
            float *to = rows->parts[part];
            if (to != NULL) memcpy(to + i * cols, row + part * cols, cols * sizeof(float));
        }
        if (rows->steps != NULL) rows->steps[i] = row_mark(row, table->step_at);
        if (rows->counts != NULL) rows->counts[i] = row_mark(row, table->count_at);
    }
    mem_free(initial);
    return 0;
}
