/* data_batcher makes a batch of features out of raw records: it parses them with the caller's team in
 * parts of 64 rows, drops broken ones, puts the parts together and finds the unique keys of every
 * table. It knows nothing of files: also for records that come over a wire.
 *
 * (1) The batch depends on the records alone, not on the team.
 * (2) It has two sets of arrays: a batch stays valid until the next but one is made.
 * One call at a time, by the thread that owns the team. */
#ifndef SHOAL_DATA_BATCHER_H
#define SHOAL_DATA_BATCHER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/team.h"
#include "data/data_parse.h"
#include "tensor/batch.h"

#define DATA_PART_ROWS 64u

struct data_piece { /* one raw record */
    const uint8_t *bytes;
    uint32_t count;
    uint32_t file;   /* for reports */
    uint64_t offset; /* for reports */
};

struct data_broken { /* a record that was left out */
    uint32_t index;  /* in the pieces given */
    enum data_fault fault;
};

struct data_batcher_opts {
    const struct data_spec *spec;     /* borrowed */
    const struct data_layout *layout; /* borrowed */
    uint32_t rows_max;
    bool label_optional;
};

struct data_batcher;
int data_batcher_create(const struct data_batcher_opts *opts, struct data_batcher **batcher_out,
                        struct err *err);

/* pieces: `count` records, at most rows_max; index: NULL, or which pieces to take, in which order
 * (count of them). The batch may have fewer rows, even none: *broken_out lists what was left out, in
 * order, valid until the next call. */
int data_batcher_make(struct data_batcher *batcher, struct team *team,
                      const struct data_piece *pieces, const uint32_t *index, uint32_t count,
                      const struct batch **batch_out, const struct data_broken **broken_out,
                      uint32_t *broken_count_out, struct err *err);
void data_batcher_destroy(struct data_batcher *batcher); /* NULL is a no-op */

/* The invariants of tensor/batch.h hold: offsets rise, slots and occurrences fit their keys, keys are
 * unique and inside their table. O(occurrences * log). */
bool data_batch_ok(const struct batch *batch, const struct data_schema *schema);

#endif
