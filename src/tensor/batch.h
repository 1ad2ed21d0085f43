/* What a batch of features looks like in memory once data has read it and before graph computes on
 * it: plain arrays, no ownership. Occurrences are numbered per table: those of its first feature
 * (row by row), then those of the second, and so on.
 *
 *   feature:  offsets[row] .. offsets[row+1]  are the feature's own occurrences of that row;
 *             slots[i] is which of the table's unique keys occurrence i is.
 *   table:    keys[slot]; occs[occ_offsets[slot] .. occ_offsets[slot+1]] are the table's occurrence
 *             numbers of that key, ascending, so that gradients are summed in one fixed order.
 *             A feature's occurrence i has the table-wide number occ_base + i.
 *
 * No padding is stored anywhere. A row with nothing in a `pad` sequence holds the pad key once. */
#ifndef SHOAL_TENSOR_BATCH_H
#define SHOAL_TENSOR_BATCH_H

#include <stdint.h>

struct batch_ids {
    const uint32_t *offsets; /* rows + 1; NULL when every row has exactly one occurrence */
    const uint32_t *slots;
    const float *weights; /* per occurrence; NULL: all 1 */
    uint32_t count;       /* occurrences of this feature */
    uint32_t occ_base;
};

struct batch_keys {
    const uint64_t *keys; /* unique, in an order that depends on the batch alone */
    const uint32_t *occ_offsets;
    const uint32_t *occs;
    uint32_t keys_count;
    uint32_t occs_count;
};

struct batch {
    uint32_t rows;
    const float *label;         /* rows; NULL when predicting without labels */
    const float *weight;        /* rows; NULL: all 1 */
    const uint64_t *group;      /* rows; NULL: none */
    const float *const *dense;  /* by numeric feature: rows x width */
    const struct batch_ids *ids;   /* by categorical feature */
    const struct batch_keys *tables; /* by table */
    uint32_t dense_count;
    uint32_t ids_count;
    uint32_t tables_count;
};

#endif
