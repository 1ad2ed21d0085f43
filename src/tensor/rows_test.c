#include "tensor/kern_check.h"

static const size_t widths[] = {1, 2, 3, 4, 5, 8, 12, 16, 17, 32, 40};
#define WIDTHS (sizeof widths / sizeof *widths)
enum { ROWS = 30, UNIQUE = 11 };

/* Ragged ids over UNIQUE rows; some rows are empty. */
static struct batch_ids ids_of(bool weights, uint32_t occ_base)
{
    uint32_t *offsets = array_bytes((ROWS + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (uint32_t i = 0; i < ROWS; i++)
        offsets[i + 1] = offsets[i] + (uint32_t)rand_below(1, RAND_TEST, 0, i + occ_base, 5);
    uint32_t *slots = array_bytes(offsets[ROWS] * sizeof *slots);
    for (uint32_t i = 0; i < offsets[ROWS]; i++)
        slots[i] = (uint32_t)rand_below(1, RAND_TEST, 1, i + occ_base, UNIQUE);
    float *weight = array_random(offsets[ROWS], 3);
    for (uint32_t i = 0; i < offsets[ROWS]; i++) weight[i] = fabsf(weight[i]) + 0.1f;
    return (struct batch_ids){.offsets = offsets,
                              .slots = slots,
                              .count = offsets[ROWS],
                              .weights = weights ? weight : NULL,
                              .occ_base = occ_base};
}

TEST(gather_copies_rows)
{
    EACH_KERN(kern)
    {
        for (size_t w = 0; w < WIDTHS; w++) {
            const size_t width = widths[w];
            const struct batch_ids ids = ids_of(false, 0);
            const float *table = array_random(UNIQUE * (width + 1), 1);
            float *got = array_random(ids.count * (width + 2), 2);
            float *want = array_copy(ids.count * (width + 2), got);
            kern->gather(ids.count, width, table, width + 1, ids.slots, got, width + 2);
            kern_ref.gather(ids.count, width, table, width + 1, ids.slots, want, width + 2);
            check_close("gather", kern, ids.count * (width + 2), got, want, 0);
            arrays_free();
        }
    }
}

/* Every combiner, with and without weights, cut anywhere; one occurrence a row without offsets. */
TEST(pooling_equals_reference)
{
    EACH_KERN(kern)
    {
        for (uint32_t c = 0; c < WIDTHS * 9; c++) {
            const size_t width = widths[c / 9];
            const enum kern_pool pool = (enum kern_pool)(c % 3);
            struct batch_ids ids = ids_of(c / 3 % 3 == 1, 0);
            if (c / 3 % 3 == 2) {
                ids = (struct batch_ids){.slots = ids.slots, .count = ROWS};
                CHECK(ids_of(false, 0).count >= ROWS);
            }
            const float *table = array_random(UNIQUE * width, 1);
            float *got = array_random(ROWS * (width + 1), 2);
            float *want = array_copy(ROWS * (width + 1), got);
            kern->pool_forward(pool, width, &ids, 0, 13, table, width, got, width + 1);
            kern->pool_forward(pool, width, &ids, 13, ROWS, table, width, got, width + 1);
            kern_ref.pool_forward(pool, width, &ids, 0, ROWS, table, width, want, width + 1);
            check_close("pool", kern, ROWS * (width + 1), got, want, 1e-6);
            float *dgot = array_random(ids.count * (width + 1), 4);
            float *dwant = array_copy(ids.count * (width + 1), dgot);
            kern->pool_backward(pool, width, &ids, 0, ROWS, want, width + 1, dgot, width + 1);
            kern_ref.pool_backward(pool, width, &ids, 0, ROWS, want, width + 1, dwant, width + 1);
            check_close("pool'", kern, ids.count * (width + 1), dgot, dwant, 1e-6);
            arrays_free();
        }
    }
}

/* The index from unique key to occurrences, of two features one after another. */
static struct batch_keys keys_of(const struct batch_ids ids[2])
{
    const uint32_t count = ids[0].count + ids[1].count;
    uint32_t *offsets = array_bytes((UNIQUE + 1) * sizeof *offsets);
    uint32_t *occs = array_bytes(count * sizeof *occs);
    uint32_t at = 0;
    for (uint32_t slot = 0; slot < UNIQUE; slot++) {
        offsets[slot] = at;
        for (uint32_t occ = 0; occ < count; occ++) {
            const bool second = occ >= ids[0].count;
            if (ids[second].slots[occ - ids[second].occ_base] == slot) occs[at++] = occ;
        }
    }
    offsets[UNIQUE] = at;
    return (struct batch_keys){
        .occ_offsets = offsets, .occs = occs, .keys_count = UNIQUE, .occs_count = count};
}

/* Gradients of a table's occurrences are summed per unique row from strided sources; occurrences
 * of a feature without a gradient count as nothing. */
TEST(rows_grad_equals_reference)
{
    EACH_KERN(kern)
    {
        for (size_t c = 0; c < WIDTHS * 4; c++) {
            const size_t width = widths[c / 4];
            struct batch_ids ids[2] = {ids_of(false, 0)};
            ids[1] = ids_of(false, ids[0].count);
            const struct batch_keys keys = keys_of(ids);
            const struct kern_occ_source sources[2] = {
                {array_random(ids[0].count * (width + 3), 1), width + 3, 0, ids[0].count},
                {array_random(ids[1].count * width, 2), width, ids[1].occ_base, ids[1].count},
            };
            float *got = array_random(UNIQUE * (width + 1), 3);
            float *want = array_copy(UNIQUE * (width + 1), got);
            const uint32_t from = c % 4 == 2;
            const uint32_t count = c % 4 == 3 ? 0 : c % 4 == 0 ? 2 : 1;
            kern->rows_grad(width, &keys, 0, 5, sources + from, count, got, width + 1);
            kern->rows_grad(width, &keys, 5, UNIQUE, sources + from, count, got, width + 1);
            kern_ref.rows_grad(width, &keys, 0, UNIQUE, sources + from, count, want, width + 1);
            check_close("rows_grad", kern, UNIQUE * (width + 1), got, want, 2e-6);
            arrays_free();
        }
    }
}
