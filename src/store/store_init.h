/* store_init draws first values: a pure function of (seed, table name, row key, column), so that a
 * row is born the same on any machine, at any time, by any thread. What to draw is tensor's struct
 * init; here are its names in job files and the drawing. A dense tensor is one row, of key 0. */
#ifndef SHOAL_STORE_INIT_H
#define SHOAL_STORE_INIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "tensor/init.h"

/* Reads map[key] for a table of rows x cols: a name, or a map with a number:
 *   zeros   {type: constant, value: 0.5}   {type: uniform, limit: 0.05}   glorot_uniform
 *   he_uniform   {type: normal, deviation: 0.01}   {type: truncated_normal, deviation: 0.01}
 * Defaults: limit 0.05; deviation of normal 0.05, of truncated_normal 1 / sqrt(cols) as TensorFlow's
 * embedding_column. rows 0 (a dynamic table): glorot and he take cols for it. Absent: *init stays. */
int store_init_read(const struct config_node *map, const char *key, uint64_t rows, uint32_t cols,
                    struct init *init, struct err *err);

/* The values of a table are keyed by its name. */
struct store_init {
    struct init init;
    uint64_t seed;
    uint64_t name_hash;
};

struct store_init store_init_of(struct init init, uint64_t seed, const char *name);

/* Elements first .. first + count of the row of a key. */
void store_init_fill(const struct store_init *draw, uint64_t key, uint64_t first, size_t count,
                     float *out);

#endif
