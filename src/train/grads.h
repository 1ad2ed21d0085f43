/* grads holds whole gradients between the executor and the store, for what cannot work block by
 * block: clipping by global norm, and adding up several batches before an update. Gradients are sums
 * over examples, divided by all their weights at the end: k batches added up are one batch of k
 * times the size. Rows of embedding tables are added by key, in the order they came.
 * One thread (which may lend its team). */
#ifndef SHOAL_TRAIN_GRADS_H
#define SHOAL_TRAIN_GRADS_H

#include <stdint.h>

#include "base/err.h"

struct grads;

struct grads_opts {
    uint32_t params_count;
    uint32_t tables_count;
    const uint64_t *param_sizes; /* elements, by parameter */
    const uint32_t *table_cols;  /* by table */
};

int grads_create(const struct grads_opts *opts, struct grads **grads_out, struct err *err);
void grads_destroy(struct grads *grads); /* NULL is a no-op. */

/* Forgets everything. */
void grads_clear(struct grads *grads);

/* By parameter, for the executor to write or add to. */
float *const *grads_params(struct grads *grads);

/* Adds rows to a table's gradient: keys unique within the call. */
int grads_add_rows(struct grads *grads, uint32_t table, const uint64_t *keys, const float *rows,
                   uint32_t count, uint32_t stride, struct err *err);

/* Sums rows of equal keys, multiplies all by `scale`, then, where norm_max > 0 and the norm of
 * everything together exceeds it, by norm_max / norm (tf.clip_by_global_norm, with the rows of equal
 * keys summed first). *norm_out is the norm before clipping. */
int grads_finish(struct grads *grads, double scale, double norm_max, double *norm_out,
                 struct err *err);

/* After grads_finish: unique keys, ascending, and their rows. */
struct grads_rows {
    const uint64_t *keys;
    const float *rows;
    uint32_t count;
};
struct grads_rows grads_rows(const struct grads *grads, uint32_t table);

#endif
