/* A small batch with every kind of feature, for the tests of this layer: single and ragged ids
 * (empty rows and rows of one key many times among them), weights, numbers, labels.
 *
 *   ids 0  single, key list 0       ids 2  ragged, weighted, key list 1
 *   ids 1  ragged, key list 0       ids 3  single, key list 1
 *   dense 0  5 wide, dense 1  1 wide
 */
#ifndef SHOAL_GRAPH_FIXTURE_H
#define SHOAL_GRAPH_FIXTURE_H

#include "base/rand.h"
#include "graph/exec.h"
#include "../tests/test.h"

#define FIX_ROWS 150 /* three chunks, the last one short */
#define FIX_OCCS (FIX_ROWS * 6)
#define FIX_KEYS 23
#define FIX_VARS 16
#define FIX_FLOATS 68000 /* of one variable: 260 x 260 fit */

struct fixture {
    float label[FIX_ROWS];
    float classes[FIX_ROWS];
    float weight[FIX_ROWS];
    float dense[2][FIX_ROWS * 5];
    const float *dense_list[2];
    uint32_t offsets[4][FIX_ROWS + 1];
    uint32_t slots[4][FIX_OCCS];
    float occ_weights[FIX_OCCS];
    uint64_t keys[2][FIX_KEYS];
    uint32_t occ_offsets[2][FIX_KEYS + 1];
    uint32_t occs[2][2 * FIX_OCCS];
    struct batch_ids ids[4];
    struct batch_keys tables[2];
    struct batch batch;

    float param[FIX_VARS][FIX_FLOATS];
    float param_grad[FIX_VARS][FIX_FLOATS];
    float table[FIX_VARS][FIX_KEYS * 16];
    const float *params[FIX_VARS];
    float *grads[FIX_VARS];
    const float *rows[FIX_VARS];
};

static inline float fix_random(uint32_t what, uint32_t index)
{
    uint32_t bits[4];
    rand_philox(7, RAND_TEST, what, index, bits);
    return 2.0f * rand_unit(bits[0]) - 1.0f;
}

static inline uint32_t fix_below(uint32_t what, uint32_t index, uint32_t bound)
{
    return (uint32_t)rand_below(11, RAND_TEST, what, index, bound);
}

/* Occurrences by key, in ascending order: what data's unique phase makes. */
static inline void fix_index_keys(struct fixture *fix, uint32_t list, const uint32_t *features)
{
    uint32_t *offsets = fix->occ_offsets[list];
    memset(offsets, 0, sizeof fix->occ_offsets[list]);
    uint32_t base = 0;
    for (uint32_t f = 0; f < 2; f++) {
        struct batch_ids *ids = &fix->ids[features[f]];
        ids->occ_base = base;
        base += ids->count;
        for (uint32_t i = 0; i < ids->count; i++) offsets[ids->slots[i] + 1]++;
    }
    for (uint32_t key = 0; key < FIX_KEYS; key++) offsets[key + 1] += offsets[key];
    uint32_t next[FIX_KEYS];
    memcpy(next, offsets, sizeof next);
    for (uint32_t f = 0; f < 2; f++) {
        const struct batch_ids *ids = &fix->ids[features[f]];
        for (uint32_t i = 0; i < ids->count; i++) {
            fix->occs[list][next[ids->slots[i]]++] = ids->occ_base + i;
        }
    }
    for (uint32_t key = 0; key < FIX_KEYS; key++) fix->keys[list][key] = 1000 + key;
    fix->tables[list] = (struct batch_keys){.keys = fix->keys[list],
                                            .occ_offsets = offsets,
                                            .occs = fix->occs[list],
                                            .keys_count = FIX_KEYS,
                                            .occs_count = base};
}

static inline void fix_init(struct fixture *fix, uint32_t rows)
{
    memset(fix, 0, sizeof *fix);
    for (uint32_t row = 0; row < rows; row++) {
        fix->label[row] = (float)fix_below(1, row, 2);
        fix->classes[row] = (float)fix_below(2, row, 3);
        fix->weight[row] = 0.5f + (float)fix_below(3, row, 4);
    }
    for (uint32_t i = 0; i < rows * 5; i++) fix->dense[0][i] = fix_random(4, i);
    for (uint32_t i = 0; i < rows; i++) fix->dense[1][i] = fix_random(5, i);
    for (uint32_t f = 0; f < 4; f++) {
        const bool single = f == 0 || f == 3;
        uint32_t count = 0;
        for (uint32_t row = 0; row < rows; row++) {
            const uint32_t more = single ? 1 : fix_below(6 + f, row, 6);
            for (uint32_t i = 0; i < more; i++) {
                fix->slots[f][count] = fix_below(10 + f, count, FIX_KEYS);
                if (f == 2) fix->occ_weights[count] = 0.5f + fix_random(20, count) * 0.4f;
                count++;
            }
            fix->offsets[f][row + 1] = count;
        }
        fix->ids[f] = (struct batch_ids){.offsets = single ? NULL : fix->offsets[f],
                                         .slots = fix->slots[f],
                                         .count = count,
                                         .weights = f == 2 ? fix->occ_weights : NULL};
    }
    fix_index_keys(fix, 0, (const uint32_t[]){0, 1});
    fix_index_keys(fix, 1, (const uint32_t[]){2, 3});
    fix->dense_list[0] = fix->dense[0];
    fix->dense_list[1] = fix->dense[1];
    for (uint32_t v = 0; v < FIX_VARS; v++) {
        for (uint32_t i = 0; i < FIX_FLOATS; i++) {
            /* A few thousand random numbers, again and again. */
            fix->param[v][i] = i < 5003 ? 0.5f * fix_random(30 + v, i) : fix->param[v][i - 5003];
        }
        for (uint32_t i = 0; i < FIX_KEYS * 16; i++) {
            fix->table[v][i] = 0.5f * fix_random(60 + v, i);
        }
        fix->params[v] = fix->param[v];
        fix->rows[v] = fix->table[v];
        fix->grads[v] = fix->param_grad[v];
    }
    fix->batch = (struct batch){.rows = rows,
                                .label = fix->label,
                                .weight = fix->weight,
                                .dense = fix->dense_list,
                                .ids = fix->ids,
                                .tables = fix->tables,
                                .dense_count = 2,
                                .ids_count = 4,
                                .tables_count = 2};
}

static inline struct exec_feed fix_feed(const struct fixture *fix)
{
    return (struct exec_feed){.batch = &fix->batch,
                              .params = fix->params,
                              .tables = fix->rows,
                              .grads = fix->grads,
                              .step = 3};
}

#endif
