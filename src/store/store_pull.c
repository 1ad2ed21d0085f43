/* Pulls: rows out of embedding tables. A request is cut into parts of STORE_PART_KEYS keys; a part
 * first finds its rows, then copies them, asking for memory ahead of need in both, since a large
 * table is not in any cache. */
#include "base/assert.h"
#include "base/mem.h"
#include "store/store_table.h"

/* Rows under way. */
#define AHEAD 24u
#define LINE_FLOATS 16u
#define PREFETCH_LINES_MAX 8u

struct pull_ctx {
    const struct table *table;
    const struct store_pull *pull;
};

/* always_inline: gcc takes a function that only prefetches for one without effect and leaves out its
 * calls. */
__attribute__((always_inline)) static inline void prefetch_row(const float *row, uint32_t cols)
{
    const uint32_t lines = (cols + LINE_FLOATS - 1) / LINE_FLOATS;
    for (uint32_t i = 0; i < lines && i < PREFETCH_LINES_MAX; i++) {
        __builtin_prefetch(row + i * LINE_FLOATS, 0, 2);
    }
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

static void pull_part(void *arg, uint32_t part, uint32_t thread)
{
    (void)thread;
    const struct pull_ctx *ctx = arg;
    const uint32_t cols = ctx->table->cols;
    const uint32_t first = part * STORE_PART_KEYS;
    const uint32_t left = ctx->pull->count - first;
    const uint32_t count = left < STORE_PART_KEYS ? left : STORE_PART_KEYS;
    float *rows[STORE_PART_KEYS];
    table_find_rows(ctx->table, ctx->pull->keys + first, count, rows);
    for (uint32_t i = 0; i < count && i < AHEAD; i++) prefetch_row(rows[i], cols);
    for (uint32_t i = 0; i < count; i++) {
        if (i + AHEAD < count) prefetch_row(rows[i + AHEAD], cols);
        answer(ctx, first + i, rows[i]);
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
    team_run(team, parts, pull_part, &ctx);
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
