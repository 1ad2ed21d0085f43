/* data_decode turns the fields of one record into one row of features: numbers into rows of dense
 * features, values into 64-bit keys. One decoder per part of a batch. */
#ifndef SHOAL_DATA_DECODE_H
#define SHOAL_DATA_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include "data/data_parse.h"

struct data_ragged { /* keys of a feature with any number of values, one row after the other */
    uint64_t *keys;
    float *weights; /* NULL when the feature has none */
    size_t capacity;
    size_t weights_capacity;
    size_t used;
};

struct data_rows_out { /* arrays by row of the whole batch; unwanted ones NULL */
    float *label;
    float *weight;
    uint64_t *group;
    float **dense;     /* by dense feature: rows x width */
    uint64_t **keys;   /* by categorical feature: of single ones */
    uint32_t **counts; /* by categorical feature: how many values, of the others */
};

struct data_crossing { /* scratch: the values of a cross's sides */
    uint64_t *values;
    size_t capacity;
};

/* Writes row `row` (ragged values are appended, one struct per categorical feature). 0; 1 + fault,
 * with nothing appended; or SHOAL_ENOMEM. */
int data_decode_row(const struct data_spec *spec, const struct data_raw *raws, bool label_optional,
                    const struct data_rows_out *out, uint32_t row, struct data_ragged *ragged,
                    struct data_crossing *crossing);

#endif
