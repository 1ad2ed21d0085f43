#include "train/grads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tensor/kern.h"

/* Rows as they came, and after grads_finish the sums: unique keys, ascending. */
struct table {
    uint32_t cols;
    uint32_t count;
    uint32_t unique_count;
    uint64_t *keys;
    float *rows;
    uint64_t *unique_keys;
    float *unique_rows;
    struct order *order;
    size_t keys_capacity, rows_capacity, unique_keys_capacity, unique_rows_capacity, order_capacity;
};

struct order {
    uint64_t key;
    uint32_t row;
};

struct grads {
    const struct kern *kern;
    uint32_t params_count;
    uint32_t tables_count;
    uint64_t *param_sizes;
    float **params;
    struct table *tables;
};

int grads_create(const struct grads_opts *opts, struct grads **grads_out, struct err *err)
{
    struct grads *grads = mem_alloc(MEM_TRAIN, sizeof *grads);
    if (grads == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for gradients");
    grads->kern = kern_default();
    grads->params = mem_alloc_array(MEM_TRAIN, opts->params_count, sizeof *grads->params);
    grads->param_sizes = mem_alloc_array(MEM_TRAIN, opts->params_count, sizeof(uint64_t));
    grads->tables = mem_alloc_array(MEM_TRAIN, opts->tables_count, sizeof *grads->tables);
    bool ok = grads->params != NULL && grads->param_sizes != NULL && grads->tables != NULL;
    if (ok) {
        grads->params_count = opts->params_count;
        grads->tables_count = opts->tables_count;
        for (uint32_t t = 0; t < opts->tables_count; t++) {
            grads->tables[t].cols = opts->table_cols[t];
        }
    }
    for (uint32_t p = 0; ok && p < opts->params_count; p++) {
        grads->param_sizes[p] = opts->param_sizes[p];
        grads->params[p] = mem_alloc_array(MEM_TRAIN, opts->param_sizes[p], sizeof(float));
        ok = grads->params[p] != NULL;
    }
    if (!ok) {
        grads_destroy(grads);
        return err_set(err, SHOAL_ENOMEM, "no memory for gradients of %u parameters",
                       opts->params_count);
    }
    *grads_out = grads;
    return 0;
}

void grads_destroy(struct grads *grads)
{
    if (grads == NULL) return;
    for (uint32_t p = 0; grads->params != NULL && p < grads->params_count; p++) {
        mem_free(grads->params[p]);
    }
    for (uint32_t t = 0; grads->tables != NULL && t < grads->tables_count; t++) {
        mem_free(grads->tables[t].keys);
        mem_free(grads->tables[t].rows);
        mem_free(grads->tables[t].unique_keys);
        mem_free(grads->tables[t].unique_rows);
        mem_free(grads->tables[t].order);
    }
    mem_free(grads->params);
    mem_free(grads->param_sizes);
    mem_free(grads->tables);
    mem_free(grads);
}

void grads_clear(struct grads *grads)
{
    for (uint32_t p = 0; p < grads->params_count; p++) {
        memset(grads->params[p], 0, grads->param_sizes[p] * sizeof(float));
    }
    for (uint32_t t = 0; t < grads->tables_count; t++) grads->tables[t].count = 0;
}

float *const *grads_params(struct grads *grads)
{
    return grads->params;
}

int grads_add_rows(struct grads *grads, uint32_t table_index, const uint64_t *keys,
                   const float *rows, uint32_t count, uint32_t stride, struct err *err)
{
    ASSERT(table_index < grads->tables_count);
    struct table *table = &grads->tables[table_index];
    const size_t want = (size_t)table->count + count;
    if (want > UINT32_MAX ||
        mem_grow(MEM_TRAIN, (void **)&table->keys, &table->keys_capacity, want, sizeof(uint64_t)) !=
            0 ||
        mem_grow(MEM_TRAIN, (void **)&table->rows, &table->rows_capacity, want * table->cols,
                 sizeof(float)) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for %zu gradient rows", want);
    }
    memcpy(table->keys + table->count, keys, count * sizeof *keys);
    grads->kern->copy_rows(count, table->cols, rows, stride,
                           table->rows + (size_t)table->count * table->cols, table->cols, false);
    table->count = (uint32_t)want;
    return 0;
}

static int compare_order(const void *a, const void *b)
{
    const struct order *x = a;
    const struct order *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row; /* keeps the order they came in */
}

static int sum_equal_keys(struct grads *grads, struct table *table, struct err *err)
{
    const size_t count = table->count;
    const size_t cols = table->cols;
    if (mem_grow(MEM_TRAIN, (void **)&table->order, &table->order_capacity, count,
                 sizeof *table->order) != 0 ||
        mem_grow(MEM_TRAIN, (void **)&table->unique_keys, &table->unique_keys_capacity, count,
                 sizeof(uint64_t)) != 0 ||
        mem_grow(MEM_TRAIN, (void **)&table->unique_rows, &table->unique_rows_capacity,
                 count * cols, sizeof(float)) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for %zu gradient rows", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        table->order[i] = (struct order){.key = table->keys[i], .row = i};
    }
    if (count > 0) qsort(table->order, count, sizeof *table->order, compare_order);
    table->unique_count = 0;
    for (size_t i = 0; i < count; i++) {
        const float *row = table->rows + table->order[i].row * cols;
        if (i > 0 && table->order[i].key == table->order[i - 1].key) {
            float *sum = table->unique_rows + (table->unique_count - 1) * cols;
            grads->kern->add(cols, sum, row, sum);
        } else {
            memcpy(table->unique_rows + table->unique_count * cols, row, cols * sizeof(float));
            table->unique_keys[table->unique_count++] = table->order[i].key;
        }
    }
    return 0;
}

/* In order of parameters, then tables, keys ascending: one fixed order. */
static double norm_of(const struct grads *grads)
{
    double squares = 0;
    for (uint32_t p = 0; p < grads->params_count; p++) {
        squares += grads->kern->sum_squares(grads->param_sizes[p], grads->params[p]);
    }
    for (uint32_t t = 0; t < grads->tables_count; t++) {
        const struct table *table = &grads->tables[t];
        squares += grads->kern->sum_squares((size_t)table->unique_count * table->cols,
                                            table->unique_rows);
    }
    return sqrt(squares);
}

static void scale_all(struct grads *grads, double scale)
{
    if (scale == 1) return;
    for (uint32_t p = 0; p < grads->params_count; p++) {
        grads->kern->scale(grads->param_sizes[p], (float)scale, grads->params[p]);
    }
    for (uint32_t t = 0; t < grads->tables_count; t++) {
        const struct table *table = &grads->tables[t];
        grads->kern->scale((size_t)table->unique_count * table->cols, (float)scale,
                           table->unique_rows);
    }
}

int grads_finish(struct grads *grads, double scale, double norm_max, double *norm_out,
                 struct err *err)
{
    for (uint32_t t = 0; t < grads->tables_count; t++) {
        const int rc = sum_equal_keys(grads, &grads->tables[t], err);
        if (rc != 0) return rc;
    }
    const double norm = norm_of(grads) * scale;
    if (norm_max > 0 && norm > norm_max) scale *= norm_max / norm;
    scale_all(grads, scale);
    if (norm_out != NULL) *norm_out = norm;
    return 0;
}

struct grads_rows grads_rows(const struct grads *grads, uint32_t table_index)
{
    ASSERT(table_index < grads->tables_count);
    const struct table *table = &grads->tables[table_index];
    return (struct grads_rows){.keys = table->unique_keys,
                               .rows = table->unique_rows,
                               .count = table->unique_count};
}
