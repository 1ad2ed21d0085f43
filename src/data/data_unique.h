/* data_unique finds the distinct keys of one table in a batch: for every occurrence which of them it
 * is (slots), and for every key its occurrences in ascending order (tensor/batch.h). Keys are in the
 * order of their first occurrence, so they depend on the batch alone.
 *
 * A fixed table of moderate size is mapped directly (an array by key); others through a small hash
 * table. Owned by one thread at a time; allocation only in data_unique_reserve. */
#ifndef SHOAL_DATA_UNIQUE_H
#define SHOAL_DATA_UNIQUE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct data_unique {
    uint64_t rows; /* of the table; 0: any key */
    uint32_t *map; /* direct: by key; else open addressing. slot + 1, 0 empty */
    size_t map_count;
    uint32_t *counts; /* by slot: occurrences, then where the next one goes */
    size_t counts_capacity;
};

struct data_unique_out { /* one batch's arrays, at least occs_count (+ 1) long */
    uint64_t *keys;
    uint32_t *slots;       /* by occurrence */
    uint32_t *occ_offsets; /* keys_count + 1 */
    uint32_t *occs;
    size_t capacity;
    uint32_t keys_count;
    uint32_t occs_count;
};

struct data_unique_run { /* keys of some occurrences, one after the other */
    const uint64_t *keys;
    uint32_t count;
};

int data_unique_init(struct data_unique *unique, uint64_t rows, struct err *err);
/* Room for so many occurrences. */
int data_unique_reserve(struct data_unique *unique, struct data_unique_out *out, size_t occs_count,
                        struct err *err);
/* All occurrences are those of the runs in order; at most what was reserved. */
void data_unique_run(struct data_unique *unique, const struct data_unique_run *runs,
                     uint32_t runs_count, struct data_unique_out *out);
void data_unique_fini(struct data_unique *unique);
void data_unique_out_fini(struct data_unique_out *out);

#endif
