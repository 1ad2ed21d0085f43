/* Dense tables: whole tensors, updated in pieces from any threads. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "store/store_table.h"

/* Elements that a part of a whole-table pass handles: a fixed cut. */
#define PART_ELEMENTS ((uint64_t)16384)

static uint64_t elements_of(const struct table *table)
{
    return table->rows * table->cols;
}

static uint32_t parts_of(const struct table *table)
{
    return (uint32_t)((elements_of(table) + PART_ELEMENTS - 1) / PART_ELEMENTS);
}

static const struct table *dense_of(const struct store *store, uint32_t number)
{
    struct table *table = NULL;
    const int rc = table_of(store, number, true, &table, NULL);
    ASSERT(rc == 0);
    return table;
}

const float *store_dense_values(const struct store *store, uint32_t number, bool averaged)
{
    const struct table *table = dense_of(store, number);
    if (averaged && table->average_part == 0) return NULL;
    return table->dense[averaged ? table->average_part : 0];
}

int store_dense_begin(struct store *store, const struct store_dense_push *push, struct err *err)
{
    struct table *table = NULL;
    int rc = table_of(store, push->table, true, &table, err);
    if (rc != 0) return rc;
    ASSERT(!table->is_pushing);
    uint32_t repeated = 0;
    rc = table_check_work(table, &push->work, &repeated, err);
    if (rc == 0) rc = cut_keep_dense(table, err);
    if (rc != 0) return rc;
    store_rule_step(&table->opts.rule, push->step, &table->step);
    table->work = push->work;
    table->check_finite = push->check_finite;
    table->is_pushing = true;
    atomic_store_explicit(&table->is_bad, false, memory_order_relaxed);
    return 0;
}

/* The slot's array, or NULL if the rule has no such slot. */
static float *slot_of(const struct table *table, uint32_t slot)
{
    return slot < table->slots_count ? table->dense[1 + slot] : NULL;
}

static float *slot_at(const struct table *table, uint32_t slot, uint64_t element)
{
    float *values = slot_of(table, slot);
    return values == NULL ? NULL : values + element;
}

int store_dense_apply(struct store *store, uint32_t number, uint64_t first, uint64_t count,
                      const float *gradients, const float *pulled, struct err *err)
{
    struct table *table = NULL;
    const int rc = table_of(store, number, true, &table, err);
    if (rc != 0) return rc;
    const uint64_t elements = elements_of(table);
    ASSERT(table->is_pushing);
    if (first > elements || count > elements - first) {
        return err_set(err, SHOAL_EINVAL, "table %s: elements %llu + %llu of %llu", table->name,
                       (unsigned long long)first, (unsigned long long)count,
                       (unsigned long long)elements);
    }
    if (table->check_finite && !table->step.kern->is_finite(count, gradients)) {
        atomic_store_explicit(&table->is_bad, true, memory_order_relaxed);
        return err_set(err, SHOAL_ENAN, "table %s: a gradient is not finite", table->name);
    }
    /* All shards but the last have the same number of elements. */
    const uint64_t each = table->shards[0].elements;
    for (uint64_t at = first; at < first + count;) {
        const struct shard *shard = &table->shards[at / each];
        const uint64_t shard_end = shard->first + shard->elements;
        const uint64_t end = first + count < shard_end ? first + count : shard_end;
        if (!shard->is_repeated) {
            store_rule_apply(&table->step, end - at, table->dense[0] + at, slot_at(table, 0, at),
                             slot_at(table, 1, at), gradients + (at - first),
                             pulled == NULL ? NULL : pulled + (at - first));
        }
        at = end;
    }
    return 0;
}

static void finish_shard(void *arg, uint32_t number, uint32_t thread)
{
    (void)thread;
    struct table *table = arg;
    const struct shard *shard = &table->shards[number];
    if (shard->is_repeated) return;
    store_rule_finish(&table->step, shard->elements, table->dense[0] + shard->first,
                      slot_at(table, 0, shard->first), slot_at(table, 1, shard->first));
}

static void average_part(void *arg, uint32_t part, uint32_t thread)
{
    (void)thread;
    struct table *table = arg;
    const uint64_t first = part * PART_ELEMENTS;
    const uint64_t left = elements_of(table) - first;
    table->step.kern->moving_average(left < PART_ELEMENTS ? left : PART_ELEMENTS,
                                     (float)table->opts.average_decay, table->dense[0] + first,
                                     table->dense[table->average_part] + first);
}

void store_dense_end(struct store *store, uint32_t number, struct team *team)
{
    struct table *table = NULL;
    const int rc = table_of(store, number, true, &table, NULL);
    ASSERT(rc == 0);
    ASSERT(table->is_pushing);
    table->is_pushing = false;
    if (atomic_load_explicit(&table->is_bad, memory_order_relaxed)) return;
    bool all_repeated = true;
    for (uint32_t i = 0; i < table->shards_count; i++) {
        all_repeated = all_repeated && table->shards[i].is_repeated;
    }
    if (table->step.needs_finish) team_run(team, table->shards_count, finish_shard, table);
    if (table->average_part != 0 && !all_repeated) {
        team_run(team, parts_of(table), average_part, table);
    }
    table_record_work(table, &table->work);
}

struct whole_ctx {
    struct store *store;
    uint32_t number;
    uint64_t elements;
    const float *gradients;
    const float *pulled;
};

static void apply_part(void *arg, uint32_t part, uint32_t thread)
{
    (void)thread;
    const struct whole_ctx *ctx = arg;
    const uint64_t first = part * PART_ELEMENTS;
    const uint64_t left = ctx->elements - first;
    /* A refused piece is remembered by the table. */
    (void)store_dense_apply(ctx->store, ctx->number, first,
                            left < PART_ELEMENTS ? left : PART_ELEMENTS, ctx->gradients + first,
                            ctx->pulled == NULL ? NULL : ctx->pulled + first, NULL);
}

int store_dense_push(struct store *store, const struct store_dense_push *push,
                     const float *gradients, const float *pulled, struct team *team,
                     struct err *err)
{
    struct table *table = NULL;
    int rc = table_of(store, push->table, true, &table, err);
    if (rc != 0) return rc;
    const uint64_t elements = elements_of(table);
    if (push->check_finite && !kern_default()->is_finite(elements, gradients)) {
        return err_set(err, SHOAL_ENAN, "table %s: a gradient of step %llu is not finite",
                       table->name, (unsigned long long)push->step);
    }
    struct store_dense_push checked = *push;
    checked.check_finite = false;
    rc = store_dense_begin(store, &checked, err);
    if (rc != 0) return rc;
    struct whole_ctx ctx = {store, push->table, elements, gradients, pulled};
    team_run(team, parts_of(table), apply_part, &ctx);
    store_dense_end(store, push->table, team);
    return 0;
}

static int check_range(const struct store *store, uint32_t number, uint32_t part, uint64_t first,
                       uint64_t count, struct table **table_out, struct err *err)
{
    const int rc = table_of(store, number, true, table_out, err);
    if (rc != 0) return rc;
    const struct table *table = *table_out;
    const uint64_t elements = elements_of(table);
    if (part < table->parts_count && first <= elements && count <= elements - first) return 0;
    return err_set(err, SHOAL_EINVAL,
                   "table %s: elements %llu + %llu of part %u, it has %llu in %u parts",
                   table->name, (unsigned long long)first, (unsigned long long)count, part,
                   (unsigned long long)elements, table->parts_count);
}

int store_assign_dense(struct store *store, uint32_t number, uint32_t part, uint64_t first,
                       uint64_t count, const float *values, struct err *err)
{
    struct table *table = NULL;
    int rc = check_range(store, number, part, first, count, &table, err);
    if (rc == 0) rc = cut_keep_dense(table, err);
    if (rc != 0) return rc;
    memcpy(table->dense[part] + first, values, count * sizeof *values);
    return 0;
}

int store_fetch_dense(const struct store *store, uint32_t number, uint32_t part, uint64_t first,
                      uint64_t count, float *values, struct err *err)
{
    struct table *table = NULL;
    const int rc = check_range(store, number, part, first, count, &table, err);
    if (rc != 0) return rc;
    memcpy(values, table->dense[part] + first, count * sizeof *values);
    return 0;
}
