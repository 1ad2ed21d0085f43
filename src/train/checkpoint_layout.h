/* checkpoint_layout says which tensors a shard of a table has in its file, in which order and shape:
 * the one place that writer, loader and export share. */
#ifndef SHOAL_TRAIN_CHECKPOINT_LAYOUT_H
#define SHOAL_TRAIN_CHECKPOINT_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "io/safetensors.h"
#include "train/checkpoint.h"

enum layout_role { LAYOUT_KEYS, LAYOUT_PART, LAYOUT_STEPS, LAYOUT_COUNTS };

struct layout_tensor {
    enum layout_role role;
    uint32_t part; /* of LAYOUT_PART */
    enum safetensors_type type;
    uint32_t row_bytes; /* of a row; of an element where the table is dense */
};

/* Keys come first (they want 8-byte alignment), then parts, steps, counts. */
#define LAYOUT_TENSORS_MAX (STORE_PARTS_MAX + 3)

/* The index-th tensor of any shard of the table; false past the last. */
bool layout_tensor_at(const struct checkpoint_table *table, uint32_t index,
                      struct layout_tensor *tensor_out);

/* Its name in the file of a shard, replacing what is in name; shards 1 is the whole tensor. */
void layout_tensor_name(const struct checkpoint_table *table, const struct layout_tensor *tensor,
                        uint32_t shard, uint32_t shards, struct str *name);

/* Its shape with `rows` rows (dense: elements) in one of `shards` shards. The whole of a dense
 * rows x cols tensor is two-dimensional, save that a bias of one row is a plain list as elsewhere. */
void layout_tensor_shape(const struct checkpoint_table *table, const struct layout_tensor *tensor,
                         uint64_t rows, uint32_t shards, struct safetensors_tensor *shape_out);

/* Tensors declared for one file. Zeroed is empty; owns the names. */
struct layout_list {
    struct safetensors_tensor *tensors;
    uint32_t count;
    size_t capacity;
};

/* Adds all tensors of a shard with `rows` rows (shards 1: of the whole table). */
int layout_list_add(struct layout_list *list, const struct checkpoint_table *table, uint32_t shard,
                    uint32_t shards, uint64_t rows, struct err *err);
void layout_list_fini(struct layout_list *list);

#endif
