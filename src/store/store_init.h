/* store_init gives a parameter its first value: a pure function of (seed, table name, row key,
 * column), so that a row is born the same on any machine, at any time, by any thread. Dense tensors
 * are rows too: element (r, c) is column c of key r.
 *
 *   zeros, constant      value
 *   uniform              [-limit, limit); limit is `value`, default 0.05
 *   glorot_uniform       [-limit, limit), limit = sqrt(6 / (fan_in + fan_out))
 *   he_uniform           [-limit, limit), limit = sqrt(6 / fan_in)
 *   normal               mean 0, standard deviation `value`, default 0.05
 *   truncated_normal     the same cut off at two deviations; default 1 / sqrt(cols), as
 *                        TensorFlow's embedding_column
 * Fans are the shape (rows, cols). A dynamic table has no number of rows: both fans are cols. */
#ifndef SHOAL_STORE_INIT_H
#define SHOAL_STORE_INIT_H

#include <stdint.h>

#include "base/config.h"
#include "base/err.h"

enum store_init_type {
    STORE_INIT_ZEROS,
    STORE_INIT_CONSTANT,
    STORE_INIT_UNIFORM,
    STORE_INIT_GLOROT_UNIFORM,
    STORE_INIT_HE_UNIFORM,
    STORE_INIT_NORMAL,
    STORE_INIT_TRUNCATED_NORMAL,
    STORE_INIT_COUNT
};

struct store_init {
    enum store_init_type type;
    float value; /* 0: the type's default */
};

/* "glorot_uniform". Never NULL. */
const char *store_init_name(enum store_init_type type);

/* Reads map[key]: a name, or {type: normal, value: 0.01}. Absent: *init stays as it is. */
int store_init_read(const struct config_node *map, const char *key, struct store_init *init,
                    struct err *err);

/* What is needed per row, worked out once per table. */
struct store_init_plan {
    enum store_init_type type;
    float scale;
    uint32_t cols;
    uint64_t seed;
    uint64_t name_hash;
};

void store_init_plan(const struct store_init *init, uint64_t seed, const char *name, uint64_t rows,
                     uint32_t cols, struct store_init_plan *plan_out);

/* Writes the initial values of a row: cols floats. */
void store_init_row(const struct store_init_plan *plan, uint64_t key, float *row);

#endif
