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
    float score; /* AUC: the probability that made the label; else what the best guess scores */
    float label;
};

enum data_gen_best {
    DATA_GEN_AUC,      /* of the scores against the labels */
    DATA_GEN_ACCURACY, /* mean of the scores: 1 when the best guess is right */
    DATA_GEN_LOSS      /* mean of the scores: squared error of the best guess */
};

/* One kind of data; the generator is what create makes. */
struct data_gen_kind_ops {
    const char *name;
    const char *suffix; /* of its files: "tfrecord" */
    uint64_t rows;      /* defaults */
    uint64_t eval_rows;
    uint32_t files;
    enum data_gen_best best;
    int (*create)(const struct data_gen_opts *opts, void **generator_out, struct err *err);
    /* Appends the row, whole, as its file format has it. */
    void (*row)(const void *generator, bool eval, uint64_t row, struct data_gen_buffer *out,
                struct data_gen_truth *truth_out);
    void (*destroy)(void *generator);
};

extern const struct data_gen_kind_ops data_gen_din_ops;
extern const struct data_gen_kind_ops data_gen_slices_ops;
extern const struct data_gen_kind_ops data_gen_criteo_ops;
extern const struct data_gen_kind_ops data_gen_linear_ops;

/* The step of base/rand.h under which a row draws its numbers. */
static inline uint64_t data_gen_step(bool eval, uint64_t row)
{
    return (eval ? (uint64_t)1 << 56 : 0) | row;
}

#endif
