/* data_gen_kinds is the inside of data_gen: each kind of data makes one row at a time, as a pure
 * function of (seed, part, row), so that rows can be made by any thread in any order. */
#ifndef SHOAL_DATA_GEN_KINDS_H
#define SHOAL_DATA_GEN_KINDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/data_tools.h"

/* Bytes that grow; `failed` stays true after a failed allocation. */
struct data_gen_buffer {
    uint8_t *bytes;
    size_t capacity;
    size_t used;
    bool failed;
};

/* Room for `count` more bytes: where they go, NULL when there is no memory. */
uint8_t *data_gen_room(struct data_gen_buffer *buffer, size_t count);

struct data_gen_truth { /* of one row */
    float
        score; /* din: the probability that made the label; slices: 1 when the best guess is right */
    float label;
};

struct data_gen_din;
int data_gen_din_create(const struct data_gen_opts *opts, struct data_gen_din **din_out,
                        struct err *err);
/* Appends the row as a whole TFRecord. */
void data_gen_din_row(const struct data_gen_din *din, bool eval, uint64_t row,
                      struct data_gen_buffer *out, struct data_gen_truth *truth_out);
void data_gen_din_destroy(struct data_gen_din *din);

struct data_gen_slices;
int data_gen_slices_create(const struct data_gen_opts *opts, struct data_gen_slices **slices_out,
                           struct err *err);
/* Appends the row as a line: the label, then 64 numbers. */
void data_gen_slices_row(const struct data_gen_slices *slices, bool eval, uint64_t row,
                         struct data_gen_buffer *out, struct data_gen_truth *truth_out);
void data_gen_slices_destroy(struct data_gen_slices *slices);

#endif
