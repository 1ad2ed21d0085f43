#include "train/checkpoint_layout.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "train/checkpoint_manifest.h"

bool layout_tensor_at(const struct checkpoint_table *table, uint32_t index,
                      struct layout_tensor *tensor_out)
{
    const bool is_dense = table->kind == STORE_DENSE;
    if (table->kind == STORE_DYNAMIC) {
        if (index == 0) {
            *tensor_out = (struct layout_tensor){LAYOUT_KEYS, 0, SAFETENSORS_I64, 8};
            return true;
        }
        index--;
    }
    if (index < table->parts_count) {
        const uint32_t row_bytes = is_dense ? 4 : table->cols * 4;
        *tensor_out = (struct layout_tensor){LAYOUT_PART, index, SAFETENSORS_F32, row_bytes};
        return true;
    }
    index -= table->parts_count;
    const struct layout_tensor steps = {LAYOUT_STEPS, 0, SAFETENSORS_U32, 4};
    const struct layout_tensor counts = {LAYOUT_COUNTS, 0, SAFETENSORS_U32, 4};
    if (is_dense || index >= (uint32_t)table->has_steps + table->has_counts) return false;
    *tensor_out = index == 0 && table->has_steps ? steps : counts;
    return true;
}

void layout_tensor_name(const struct checkpoint_table *table, const struct layout_tensor *tensor,
                        uint32_t shard, uint32_t shards, struct str *name)
{
    ASSERT(tensor->part < table->parts_count);
    const char *part = "";
    switch (tensor->role) {
    case LAYOUT_KEYS: part = "keys"; break;
    case LAYOUT_PART: part = table->parts[tensor->part]; break;
    case LAYOUT_STEPS: part = "steps"; break;
    case LAYOUT_COUNTS: part = "counts"; break;
    }
    checkpoint_tensor_name(name, table->name, part, shard, shards);
}

static bool is_bias(const struct checkpoint_table *table)
{
    static const char bias[] = "bias";
    const size_t length = strlen(table->name);
    const size_t tail = sizeof bias - 1;
    if (table->rows != 1 || length < tail) return false;
    const char *last = table->name + length - tail;
    return strcmp(last, bias) == 0 && (last == table->name || last[-1] == '/');
}

void layout_tensor_shape(const struct checkpoint_table *table, const struct layout_tensor *tensor,
                         uint64_t rows, uint32_t shards, struct safetensors_tensor *shape_out)
{
    struct safetensors_tensor shape = {.type = tensor->type, .dims_count = 1, .dims = {rows}};
    if (tensor->role == LAYOUT_PART && table->kind != STORE_DENSE) {
        shape.dims_count = 2;
        shape.dims[1] = table->cols;
    } else if (tensor->role == LAYOUT_PART && shards == 1) {
        ASSERT(rows == table->rows * table->cols);
        shape.dims_count = is_bias(table) ? 1 : 2;
        shape.dims[0] = is_bias(table) ? table->cols : table->rows;
        shape.dims[1] = table->cols;
    }
    shape.bytes_count = rows * tensor->row_bytes;
    *shape_out = shape;
}

int layout_list_add(struct layout_list *list, const struct checkpoint_table *table, uint32_t shard,
                    uint32_t shards, uint64_t rows, struct err *err)
{
    struct str name = {0};
    struct layout_tensor tensor;
    bool failed = false;
    for (uint32_t i = 0; !failed && layout_tensor_at(table, i, &tensor); i++) {
        void *tensors = list->tensors;
        layout_tensor_name(table, &tensor, shard, shards, &name);
        char *copy = name.failed ? NULL : mem_strdup(MEM_TRAIN, name.text);
        failed = copy == NULL || mem_grow(MEM_TRAIN, &tensors, &list->capacity, list->count + 1,
                                          sizeof *list->tensors) != 0;
        if (failed) {
            mem_free(copy);
        } else {
            list->tensors = tensors;
            layout_tensor_shape(table, &tensor, rows, shards, &list->tensors[list->count]);
            list->tensors[list->count++].name = copy;
        }
    }
    str_fini(&name);
    return failed ? err_set(err, SHOAL_ENOMEM, "no memory for a list of tensors") : 0;
}

void layout_list_fini(struct layout_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) mem_free((void *)(uintptr_t)list->tensors[i].name);
    mem_free(list->tensors);
    *list = (struct layout_list){0};
}
