/* Pushes: gradients into embedding tables, in phases, each cut over the team by a fixed rule.
 *
 *   check    gradients finite (if asked), work not fenced off, shards that have it already set aside
 *   locate   by key range: the row of each key, noting keys that have none
 *   make     by shard, in key order: the missing rows; only here an index changes
 *   apply    by key range: rows are distinct, so ranges do not meet; nothing can fail any more
 *   record   by shard: version and ledger
 *
 * All that can fail comes before `apply` (invariant 5 of store.h). A row made for a push that then
 * fails holds its initial value, which is what a pull of an absent key answers anyway. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "store/store_table.h"

/* Rows looked up ahead of, and updated at a time. */
#define BLOCK 16u
#define LINE_FLOATS 16u
#define PREFETCH_LINES_MAX 16u

struct push_ctx {
    struct table *table;
    const struct store_push *push;
    struct store_rule_step step;
    float **rows;             /* by key */
    uint32_t *missing;        /* by part: numbers of the keys without a row */
    uint32_t *missing_counts; /* by part */
    uint32_t *by_shard;       /* the same, sorted by shard */
    uint32_t *shard_starts;   /* shards + 1 */
    const float *zeros;       /* adam's sweep: a gradient of nothing */
    struct store_pushed *pushed;
    _Atomic bool is_bad; /* relaxed: read after the team's barrier */
};

static uint32_t parts_of(uint32_t count)
{
    return (count + STORE_PART_KEYS - 1) / STORE_PART_KEYS;
}

static uint32_t part_end(uint32_t count, uint32_t first)
{
    return count - first < STORE_PART_KEYS ? count : first + STORE_PART_KEYS;
}

/* ---- Check ---- */

static void check_part(void *arg, uint32_t part, uint32_t thread)
{
    (void)thread;
    struct push_ctx *ctx = arg;
    const uint32_t first = part * STORE_PART_KEYS;
    const uint32_t end = part_end(ctx->push->count, first);
    const size_t cols = ctx->table->cols;
    if (!ctx->step.kern->is_finite((end - first) * cols, ctx->push->gradients + first * cols)) {
        atomic_store_explicit(&ctx->is_bad, true, memory_order_relaxed);
    }
}

static int check_finite(struct push_ctx *ctx, struct team *team, struct err *err)
{
    if (!ctx->push->check_finite) return 0;
    team_run(team, parts_of(ctx->push->count), check_part, ctx);
    if (!atomic_load_explicit(&ctx->is_bad, memory_order_relaxed)) return 0;
    return err_set(err, SHOAL_ENAN, "table %s: a gradient of step %llu is not finite",
                   ctx->table->name, (unsigned long long)ctx->push->step);
}

/* ---- Locate ---- */

static uint32_t shard_of_key(const struct table *table, uint64_t key)
{
    if (table->kind == STORE_FIXED) return (uint32_t)(key & (table->shards_count - 1));
    return table_shard_of_hash(table, hash_mix64(key));
}

static void locate_part(void *arg, uint32_t part, uint32_t thread)
{
    (void)thread;
    struct push_ctx *ctx = arg;
    const struct table *table = ctx->table;
    const uint32_t first = part * STORE_PART_KEYS;
    const uint32_t end = part_end(ctx->push->count, first);
    const uint64_t *keys = ctx->push->keys;
    table_find_rows(table, keys + first, end - first, ctx->rows + first);
    uint32_t missing = 0;
    for (uint32_t i = first; i < end; i++) {
        const bool is_repeated = ctx->pushed->shards_repeated > 0 &&
                                 table->shards[shard_of_key(table, keys[i])].is_repeated;
        if (is_repeated) {
            ctx->rows[i] = NULL;
        } else if (ctx->rows[i] == NULL) {
            ctx->missing[first + missing++] = i;
        }
    }
    ctx->missing_counts[part] = missing;
}

/* ---- Make ---- */

static void make_shard_rows(void *arg, uint32_t shard, uint32_t thread)
{
    (void)thread;
    struct push_ctx *ctx = arg;
    for (uint32_t i = ctx->shard_starts[shard]; i < ctx->shard_starts[shard + 1]; i++) {
        const uint32_t number = ctx->by_shard[i];
        /* A key that stands twice in a push is a bug of the caller; here it finds the row made. */
        float *row = table_find_row(ctx->table, ctx->push->keys[number]);
        if (row == NULL && table_make_row(ctx->table, ctx->push->keys[number], &row) != 0) {
            atomic_store_explicit(&ctx->is_bad, true, memory_order_relaxed);
            return;
        }
        ctx->rows[number] = row;
    }
}

/* Sorts the missing keys by shard, keeping their order, and makes their rows. */
static int make_rows(struct push_ctx *ctx, struct team *team, uint32_t *made_out, struct err *err)
{
    const struct table *table = ctx->table;
    const uint32_t parts = parts_of(ctx->push->count);
    uint32_t *starts = ctx->shard_starts;
    memset(starts, 0, (table->shards_count + 1) * sizeof *starts);
    uint32_t missing = 0;
    for (uint32_t part = 0; part < parts; part++) {
        for (uint32_t i = 0; i < ctx->missing_counts[part]; i++) {
            const uint32_t number = ctx->missing[part * STORE_PART_KEYS + i];
            starts[shard_of_key(table, ctx->push->keys[number])]++;
        }
        missing += ctx->missing_counts[part];
    }
    *made_out = missing;
    if (missing == 0) return 0;
    uint32_t sum = 0;
    for (uint32_t shard = 0; shard <= table->shards_count; shard++) {
        sum += starts[shard];
        starts[shard] = sum; /* Its end: filled from the back, it becomes the start. */
    }
    for (uint32_t part = parts; part-- > 0;) {
        for (uint32_t i = ctx->missing_counts[part]; i-- > 0;) {
            const uint32_t number = ctx->missing[part * STORE_PART_KEYS + i];
            ctx->by_shard[--starts[shard_of_key(table, ctx->push->keys[number])]] = number;
        }
    }
    team_run(team, table->shards_count, make_shard_rows, ctx);
    if (!atomic_load_explicit(&ctx->is_bad, memory_order_relaxed)) return 0;
    return err_set(err, SHOAL_ENOMEM, "table %s: no memory for %u new rows", table->name, missing);
}

/* ---- Apply ---- */

/* always_inline: gcc takes a function that only prefetches for one without effect. */
__attribute__((always_inline)) static inline void prefetch_rows(float *const *rows, uint32_t count,
                                                                uint32_t floats)
{
    uint32_t lines = (floats + LINE_FLOATS - 1) / LINE_FLOATS;
    if (lines > PREFETCH_LINES_MAX) lines = PREFETCH_LINES_MAX;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t line = 0; rows[i] != NULL && line < lines; line++) {
            __builtin_prefetch(rows[i] + line * LINE_FLOATS, 1, 3);
        }
    }
}

/* Rows that do not count yet are counted and left out; their age counts from here. */
static void admit(const struct push_ctx *ctx, uint32_t first, uint32_t count)
{
    const struct table *table = ctx->table;
    for (uint32_t i = first; i < first + count; i++) {
        float *row = ctx->rows[i];
        if (row == NULL) continue;
        const uint32_t seen = row_mark(row, table->count_at);
        if (seen < UINT32_MAX) row_set_mark(row, table->count_at, seen + 1);
        if (row_is_admitted(table, row)) continue;
        if (table->step_at != 0) {
            row_set_mark(row, table->step_at, (uint32_t)ctx->push->step + 1);
        }
        ctx->rows[i] = NULL;
    }
}

/* Brings the average up to the step before this one: the value stood still since the row's own. */
static void average_catch_up(const struct table *table, float *row, uint64_t step)
{
    const uint64_t last = row_mark(row, table->step_at);
    if (step <= last) return;
    const double left = table_decay(table->opts.average_decay, step - last);
    float *average = row + (size_t)table->average_part * table->cols;
    for (uint32_t i = 0; i < table->cols; i++) {
        average[i] = (float)((double)row[i] + left * ((double)average[i] - (double)row[i]));
    }
}

/* A row has moved: so does its average, and it is as young as this step. */
static void mark_row(const struct push_ctx *ctx, float *row)
{
    const struct table *table = ctx->table;
    if (table->average_part != 0) {
        ctx->step.kern->moving_average(table->cols, (float)table->opts.average_decay, row,
                                       row + (size_t)table->average_part * table->cols);
    }
    /* Late work does not turn the clock back. */
    if (row_mark(row, table->step_at) <= ctx->push->step) {
        row_set_mark(row, table->step_at, (uint32_t)ctx->push->step + 1);
    }
}

static void apply_one(const struct push_ctx *ctx, uint32_t number)
{
    const struct table *table = ctx->table;
    float *row = ctx->rows[number];
    const size_t cols = table->cols;
    const float *pulled = ctx->push->pulled;
    store_rule_apply(&ctx->step, cols, row, row + cols, row + 2 * cols,
                     ctx->push->gradients + number * cols,
                     pulled == NULL ? NULL : pulled + number * cols);
    if (ctx->step.needs_finish) {
        store_rule_finish(&ctx->step, cols, row, row + cols, row + 2 * cols);
    }
}

/* Rows first .. first + count, none NULL. */
static void apply_run(const struct push_ctx *ctx, uint32_t first, uint32_t count)
{
    const struct table *table = ctx->table;
    const size_t cols = table->cols;
    for (uint32_t i = first; table->average_part != 0 && i < first + count; i++) {
        average_catch_up(table, ctx->rows[i], ctx->push->step);
    }
    if (ctx->push->pulled != NULL || ctx->step.needs_finish) {
        for (uint32_t i = first; i < first + count; i++) apply_one(ctx, i);
    } else {
        ctx->step.kern->update_rows(&ctx->step.update, count, cols, cols, ctx->rows + first,
                                    ctx->push->gradients + first * cols, cols);
    }
    for (uint32_t i = first; table->step_at != 0 && i < first + count; i++) {
        mark_row(ctx, ctx->rows[i]);
    }
}

static void apply_part(void *arg, uint32_t part, uint32_t thread)
{
    (void)thread;
    const struct push_ctx *ctx = arg;
    const uint32_t first = part * STORE_PART_KEYS;
    const uint32_t end = part_end(ctx->push->count, first);
    const uint32_t stride = ctx->table->stride;
    for (uint32_t at = first; at < end; at += BLOCK) {
        const uint32_t count = end - at < BLOCK ? end - at : BLOCK;
        const uint32_t next = at + count;
        if (at == first) prefetch_rows(ctx->rows + at, count, stride);
        prefetch_rows(ctx->rows + next, end - next < BLOCK ? end - next : BLOCK, stride);
        if (ctx->table->count_at != 0) admit(ctx, at, count);
        for (uint32_t i = at; i < next;) {
            uint32_t run = i;
            while (run < next && ctx->rows[run] != NULL) run++;
            if (run > i) apply_run(ctx, i, run - i);
            i = run + 1;
        }
    }
}

/* TensorFlow's adam decays m and v of all rows and moves all rows; those without a gradient get one
 * of zero. The sweep is by shard; rows of this push are marked in the shard's bits of `touched`. */
struct sweep_ctx {
    struct push_ctx *push;
    uint64_t **touched; /* by shard: a bit per row */
};

static void sweep_shard(void *arg, uint32_t number, uint32_t thread)
{
    (void)thread;
    const struct sweep_ctx *sweep = arg;
    const struct push_ctx *ctx = sweep->push;
    struct table *table = ctx->table;
    struct shard *shard = &table->shards[number];
    const size_t cols = table->cols;
    if (shard->is_repeated) return;
    for (uint32_t row = 0; row < shard->rows_used; row++) {
        const bool is_touched = (sweep->touched[number][row / 64] >> (row % 64) & 1) != 0;
        if (is_touched) continue;
        float *values = table_row(table, shard, row);
        ctx->step.kern->update(&ctx->step.update, cols, values, values + cols, values + 2 * cols,
                               ctx->zeros);
        if (table->step_at != 0) mark_row(ctx, values);
    }
}

/* The bits are laid out shard after shard in one block. */
static int sweep_prepare(struct push_ctx *ctx, struct sweep_ctx *sweep, void **block_out,
                         struct err *err)
{
    const struct table *table = ctx->table;
    size_t words = 0;
    for (uint32_t i = 0; i < table->shards_count; i++) words += table->shards[i].rows_used / 64 + 1;
    const size_t pointers = table->shards_count * sizeof(uint64_t *);
    uint8_t *block = mem_alloc(MEM_STORE, pointers + words * 8 + table->cols * sizeof(float));
    if (block == NULL) return err_set(err, SHOAL_ENOMEM, "table %s: no memory", table->name);
    sweep->push = ctx;
    sweep->touched = (uint64_t **)block;
    uint64_t *bits = (uint64_t *)(block + pointers);
    for (uint32_t i = 0; i < table->shards_count; i++) {
        sweep->touched[i] = bits;
        bits += table->shards[i].rows_used / 64 + 1;
    }
    ctx->zeros = (const float *)bits;
    for (uint32_t i = 0; i < ctx->push->count; i++) {
        const struct row_place place = table_find(table, ctx->push->keys[i]);
        ASSERT(place.shard < table->shards_count);
        sweep->touched[place.shard][place.row / 64] |= (uint64_t)1 << (place.row % 64);
    }
    *block_out = block;
    return 0;
}

/* ---- The whole ---- */

static int take_scratch(struct push_ctx *ctx, struct err *err)
{
    struct table *table = ctx->table;
    struct table_scratch *scratch = &table->scratch;
    const size_t count = ctx->push->count;
    const size_t parts = parts_of(ctx->push->count);
    const size_t smalls = parts + table->shards_count + 1;
    if (mem_grow(MEM_STORE, (void **)&scratch->rows, &scratch->rows_capacity, count,
                 sizeof *scratch->rows) != 0 ||
        mem_grow(MEM_STORE, (void **)&scratch->missing, &scratch->missing_capacity,
                 parts * STORE_PART_KEYS + count, sizeof *scratch->missing) != 0 ||
        mem_grow(MEM_STORE, (void **)&scratch->parts, &scratch->parts_capacity, smalls,
                 sizeof *scratch->parts) != 0) {
        return err_set(err, SHOAL_ENOMEM, "table %s: no memory for a push of %zu keys", table->name,
                       count);
    }
    ctx->rows = scratch->rows;
    ctx->missing = scratch->missing;
    ctx->by_shard = scratch->missing + parts * STORE_PART_KEYS;
    ctx->missing_counts = scratch->parts;
    ctx->shard_starts = scratch->parts + parts;
    return 0;
}

static int keep_old(struct push_ctx *ctx, bool sweeps, struct err *err)
{
    if (sweeps) return cut_keep_all_rows(ctx->table, err);
    return cut_keep_rows(ctx->table, ctx->push->keys, ctx->push->count, err);
}

int store_push(struct store *store, const struct store_push *push, struct team *team,
               struct store_pushed *pushed_out, struct err *err)
{
    struct store_pushed pushed = {0};
    struct push_ctx ctx = {.push = push, .pushed = &pushed};
    struct sweep_ctx sweep = {0};
    void *sweep_block = NULL;
    int rc = table_of(store, push->table, false, &ctx.table, err);
    if (rc != 0) return rc;
    rc = table_check_keys(ctx.table, push->keys, push->count, err);
    if (rc != 0) return rc;
    store_rule_step(&ctx.table->opts.rule, push->step, &ctx.step);
    rc = check_finite(&ctx, team, err);
    if (rc != 0) return rc;
    rc = table_check_work(ctx.table, &push->work, &pushed.shards_repeated, err);
    if (rc != 0) return rc;
    pushed.shards_applied = ctx.table->shards_count - pushed.shards_repeated;
    rc = take_scratch(&ctx, err);
    if (rc != 0) return rc;
    const uint32_t parts = parts_of(push->count);
    team_run(team, parts, locate_part, &ctx);
    rc = make_rows(&ctx, team, &pushed.rows_made, err);
    if (rc != 0) return rc;
    const bool sweeps = ctx.table->opts.rule.type == STORE_ADAM;
    rc = keep_old(&ctx, sweeps, err);
    if (rc != 0) return rc;
    if (sweeps) rc = sweep_prepare(&ctx, &sweep, &sweep_block, err);
    if (rc != 0) return rc;
    team_run(team, parts, apply_part, &ctx);
    if (sweeps) team_run(team, ctx.table->shards_count, sweep_shard, &sweep);
    mem_free(sweep_block);
    table_record_work(ctx.table, &push->work);
    if (pushed_out != NULL) *pushed_out = pushed;
    return 0;
}
