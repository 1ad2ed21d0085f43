#include "ps/ps_sum.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

struct kept {
    uint8_t *bytes; /* the message that msg and blocks point into */
    struct msg_block *blocks;
    struct msg msg;
};

struct row_ref { /* one row of one slot */
    uint64_t key;
    uint32_t order;
    const float *row;
};

struct ps_sum {
    struct kept *kept;
    size_t kept_count;
    size_t kept_capacity;
    struct row_ref *refs;
    size_t refs_capacity;
    uint64_t *keys;
    size_t keys_capacity;
    float *rows;
    size_t rows_capacity;
};

int ps_sum_create(struct ps_sum **sum_out, struct err *err)
{
    *sum_out = mem_alloc(MEM_CLUSTER, sizeof **sum_out);
    return *sum_out != NULL ? 0 : err_set(err, SHOAL_ENOMEM, "no memory for gradients");
}

static void kept_fini(struct kept *kept)
{
    mem_free(kept->bytes);
    mem_free(kept->blocks);
}

void ps_sum_clear(struct ps_sum *sum)
{
    for (size_t i = 0; i < sum->kept_count; i++) kept_fini(&sum->kept[i]);
    sum->kept_count = 0;
}

void ps_sum_destroy(struct ps_sum *sum)
{
    if (sum == NULL) return;
    ps_sum_clear(sum);
    mem_free(sum->kept);
    mem_free(sum->refs);
    mem_free(sum->keys);
    mem_free(sum->rows);
    mem_free(sum);
}

static const struct kept *find(const struct ps_sum *sum, uint64_t slot)
{
    for (size_t i = 0; i < sum->kept_count; i++) {
        if (sum->kept[i].msg.push.stream == slot) return &sum->kept[i];
    }
    return NULL;
}

bool ps_sum_has(const struct ps_sum *sum, uint64_t slot)
{
    return find(sum, slot) != NULL;
}

uint32_t ps_sum_count(const struct ps_sum *sum)
{
    return (uint32_t)sum->kept_count;
}

uint64_t ps_sum_slot(const struct ps_sum *sum, uint32_t index)
{
    ASSERT(index < sum->kept_count);
    return sum->kept[index].msg.push.stream;
}

int ps_sum_keep(struct ps_sum *sum, const struct msg *push, struct err *err)
{
    if (find(sum, push->push.stream) != NULL) return 0;
    const size_t bytes = msg_bytes(push);
    struct kept kept = {.bytes = mem_alloc(MEM_CLUSTER, bytes),
                        .blocks =
                            mem_alloc_array(MEM_CLUSTER, push->blocks_count, sizeof *kept.blocks)};
    if (kept.bytes == NULL || kept.blocks == NULL ||
        mem_grow(MEM_CLUSTER, (void **)&sum->kept, &sum->kept_capacity, sum->kept_count + 1,
                 sizeof *sum->kept) != 0) {
        kept_fini(&kept);
        return err_set(err, SHOAL_ENOMEM, "no memory to keep a gradient of %zu bytes", bytes);
    }
    msg_encode(push, kept.bytes);
    const int rc = msg_decode(kept.bytes, bytes, kept.blocks, push->blocks_count, &kept.msg, err);
    ASSERT(rc == 0);
    sum->kept[sum->kept_count++] = kept;
    return 0;
}

static int by_key_then_order(const void *a, const void *b)
{
    const struct row_ref *x = a;
    const struct row_ref *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* The rows of a table in all slots, sorted. SHOAL_EPROTO for blocks that are no gradients of it. */
static int collect(struct ps_sum *sum, const uint64_t *slots, uint32_t slots_count, uint32_t table,
                   uint32_t cols, size_t *count_out, struct err *err)
{
    size_t count = 0;
    for (uint32_t order = 0; order < slots_count; order++) {
        const struct kept *kept = find(sum, slots[order]);
        ASSERT(kept != NULL);
        for (uint32_t b = 0; b < kept->msg.blocks_count; b++) {
            const struct msg_block *block = &kept->blocks[b];
            if (block->table != table) continue;
            if (block->keys == NULL || block->rows == NULL || block->cols != cols) {
                return err_set(err, SHOAL_EPROTO, "gradient of table %u: %u columns, not %u", table,
                               block->cols, cols);
            }
            if (mem_grow(MEM_CLUSTER, (void **)&sum->refs, &sum->refs_capacity,
                         count + block->count, sizeof *sum->refs) != 0) {
                return err_set(err, SHOAL_ENOMEM, "no memory to add up gradients");
            }
            for (uint32_t i = 0; i < block->count; i++) {
                sum->refs[count++] =
                    (struct row_ref){block->keys[i], order, block->rows + (size_t)i * cols};
            }
        }
    }
    if (count > 0) qsort(sum->refs, count, sizeof *sum->refs, by_key_then_order);
    *count_out = count;
    return 0;
}

/* One row per key into sum->keys and sum->rows; returns how many. */
static uint32_t add_up(struct ps_sum *sum, size_t refs_count, uint32_t cols, uint64_t examples)
{
    uint32_t keys_count = 0;
    for (size_t i = 0; i < refs_count; i++) {
        const bool is_first = i == 0 || sum->refs[i].key != sum->refs[i - 1].key;
        if (is_first) sum->keys[keys_count++] = sum->refs[i].key;
        float *row = sum->rows + (size_t)(keys_count - 1) * cols;
        for (uint32_t c = 0; c < cols; c++) {
            row[c] = (is_first ? 0 : row[c]) + sum->refs[i].row[c];
        }
    }
    for (size_t i = 0; i < (size_t)keys_count * cols; i++) sum->rows[i] /= (float)examples;
    return keys_count;
}

static int apply_table(struct ps_sum *sum, const uint64_t *slots, uint32_t slots_count,
                       uint64_t examples, struct store_push *push, struct store *store,
                       struct err *err)
{
    const uint32_t cols = store_table_info(store, push->table).cols;
    size_t refs_count = 0;
    int rc = collect(sum, slots, slots_count, push->table, cols, &refs_count, err);
    if (rc != 0 || refs_count == 0) return rc;
    if (mem_grow(MEM_CLUSTER, (void **)&sum->keys, &sum->keys_capacity, refs_count,
                 sizeof *sum->keys) != 0 ||
        mem_grow(MEM_CLUSTER, (void **)&sum->rows, &sum->rows_capacity, refs_count * cols,
                 sizeof *sum->rows) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory to add up gradients");
    }
    push->count = add_up(sum, refs_count, cols, examples);
    push->keys = sum->keys;
    push->gradients = sum->rows;
    return store_push(store, push, NULL, NULL, err);
}

int ps_sum_apply(struct ps_sum *sum, const uint64_t *slots, uint32_t slots_count, uint64_t step,
                 struct store *store, struct err *err)
{
    uint64_t examples = 0;
    for (uint32_t i = 0; i < slots_count; i++) {
        const struct kept *kept = find(sum, slots[i]);
        ASSERT(kept != NULL);
        examples += kept->msg.push.count;
    }
    if (examples == 0) return 0;
    for (uint32_t table = 0; table < store_tables_count(store); table++) {
        struct store_push push = {.table = table,
                                  .work = {.kind = STORE_WORK_STEP, .number = step},
                                  .step = step,
                                  .check_finite = true};
        const int rc = apply_table(sum, slots, slots_count, examples, &push, store, err);
        if (rc != 0) return rc;
    }
    return 0;
}
