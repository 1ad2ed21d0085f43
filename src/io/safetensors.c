#include "io/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "io/file.h"
#include "io/safetensors_type.h"

/* The layout:
 *
 *     8 bytes   length n of the header, little-endian
 *     n bytes   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
 *                "__metadata__": {"key": "value"}}, padded with spaces
 *     the rest  the bytes of the tensors; data_offsets count from here */

struct safetensors {
    struct io_map map; /* of our own; empty when the bytes are borrowed */
    json_t *header;    /* owns the names and the metadata */
    json_t *metadata;  /* borrowed from header; NULL: none */
    uint32_t count;
    struct safetensors_tensor *tensors; /* by offset */
    const struct safetensors_tensor **by_name;
};

static const struct {
    const char *name;
    uint32_t bytes;
} types[SAFETENSORS_TYPE_COUNT] = {
    [SAFETENSORS_F32] = {"F32", 4},   [SAFETENSORS_F64] = {"F64", 8},
    [SAFETENSORS_I64] = {"I64", 8},   [SAFETENSORS_U64] = {"U64", 8},
    [SAFETENSORS_I32] = {"I32", 4},   [SAFETENSORS_U32] = {"U32", 4},
    [SAFETENSORS_U8] = {"U8", 1},     [SAFETENSORS_F16] = {"F16", 2},
    [SAFETENSORS_BF16] = {"BF16", 2}, [SAFETENSORS_BOOL] = {"BOOL", 1},
    [SAFETENSORS_I8] = {"I8", 1},     [SAFETENSORS_I16] = {"I16", 2},
    [SAFETENSORS_U16] = {"U16", 2}};

const char *safetensors_type_name(enum safetensors_type type)
{
    ASSERT((unsigned)type < SAFETENSORS_TYPE_COUNT);
    return types[type].name;
}

uint32_t safetensors_type_bytes(enum safetensors_type type)
{
    ASSERT((unsigned)type < SAFETENSORS_TYPE_COUNT);
    return types[type].bytes;
}

bool safetensors_tensor_bytes(const struct safetensors_tensor *tensor, uint64_t *bytes_out)
{
    uint64_t bytes = types[tensor->type].bytes;
    for (uint32_t i = 0; i < tensor->dims_count; i++) {
        if (__builtin_mul_overflow(bytes, tensor->dims[i], &bytes)) return false;
    }
    *bytes_out = bytes;
    return true;
}

/* A whole number from 0 up; false when it is anything else. */
static bool read_count(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool read_type(const json_t *value, enum safetensors_type *out)
{
    const char *name = json_string_value(value);
    for (int type = 0; name != NULL && type < SAFETENSORS_TYPE_COUNT; type++) {
        if (strcmp(types[type].name, name) == 0) {
            *out = (enum safetensors_type)type;
            return true;
        }
    }
    return false;
}

/* One entry of the header; its bytes are data_offsets of the data_count bytes at data. */
static int read_tensor(const char *name, const json_t *entry, const uint8_t *data,
                       uint64_t data_count, struct safetensors_tensor *out, struct err *err)
{
    struct safetensors_tensor tensor = {.name = name};
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!read_type(json_object_get(entry, "dtype"), &tensor.type)) {
        return err_set(err, SHOAL_ECORRUPT, "tensor \"%.100s\": unknown dtype", name);
    }
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_DIMS_MAX) {
        return err_set(err, SHOAL_ECORRUPT, "tensor \"%.100s\": the shape is no list of at most %d",
                       name, SAFETENSORS_DIMS_MAX);
    }
    tensor.dims_count = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor.dims_count; i++) {
        if (!read_count(json_array_get(shape, i), &tensor.dims[i])) {
            return err_set(err, SHOAL_ECORRUPT, "tensor \"%.100s\": dimension %u is no count", name,
                           i);
        }
    }
    uint64_t first = 0;
    uint64_t end = 0;
    if (json_array_size(offsets) != 2 || !read_count(json_array_get(offsets, 0), &first) ||
        !read_count(json_array_get(offsets, 1), &end) || first > end || end > data_count) {
        return err_set(err, SHOAL_ECORRUPT, "tensor \"%.100s\": data_offsets outside the file",
                       name);
    }
    if (!safetensors_tensor_bytes(&tensor, &tensor.bytes_count) ||
        tensor.bytes_count != end - first) {
        return err_set(err, SHOAL_ECORRUPT, "tensor \"%.100s\": shape and data_offsets disagree",
                       name);
    }
    tensor.bytes = data + first;
    *out = tensor;
    return 0;
}

/* By place, the empty before the others at the same place, so that gaps and overlaps show. */
static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *p = a;
    const struct safetensors_tensor *q = b;
    if (p->bytes != q->bytes) return (uintptr_t)p->bytes < (uintptr_t)q->bytes ? -1 : 1;
    if (p->bytes_count != q->bytes_count) return p->bytes_count < q->bytes_count ? -1 : 1;
    return strcmp(p->name, q->name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct safetensors_tensor *const *)a)->name,
                  (*(const struct safetensors_tensor *const *)b)->name);
}

static int check_places(const struct safetensors *file, const uint8_t *data, uint64_t data_count,
                        struct err *err)
{
    const uint8_t *next = data;
    for (uint32_t i = 0; i < file->count; i++) {
        const struct safetensors_tensor *tensor = &file->tensors[i];
        if (tensor->bytes != next) {
            return err_set(err, SHOAL_ECORRUPT, "tensor \"%.100s\": %s before it", tensor->name,
                           (uintptr_t)tensor->bytes < (uintptr_t)next ? "overlaps the one"
                                                                      : "a gap");
        }
        next += tensor->bytes_count;
    }
    if (next != data + data_count) {
        return err_set(err, SHOAL_ECORRUPT, "%llu bytes after the last tensor",
                       (unsigned long long)(data + data_count - next));
    }
    return 0;
}

static int check_metadata(const json_t *metadata, struct err *err)
{
    if (metadata == NULL) return 0;
    if (!json_is_object(metadata)) {
        return err_set(err, SHOAL_ECORRUPT, "__metadata__ is no object");
    }
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
    {
        if (!json_is_string(value)) {
            return err_set(err, SHOAL_ECORRUPT, "__metadata__ \"%.100s\" is no string", key);
        }
    }
    return 0;
}

static int read_tensors(struct safetensors *file, const uint8_t *data, uint64_t data_count,
                        struct err *err)
{
    file->metadata = json_object_get(file->header, "__metadata__");
    int rc = check_metadata(file->metadata, err);
    if (rc != 0) return rc;
    const size_t count = json_object_size(file->header) - (file->metadata != NULL);
    if (count > SAFETENSORS_TENSORS_MAX) {
        return err_set(err, SHOAL_ELIMIT, "%zu tensors, at most %u", count,
                       SAFETENSORS_TENSORS_MAX);
    }
    file->tensors = mem_alloc_array(MEM_IO, count, sizeof *file->tensors);
    file->by_name = mem_alloc_array(MEM_IO, count, sizeof *file->by_name);
    if (file->tensors == NULL || file->by_name == NULL) {
        return err_set(err, SHOAL_ENOMEM, "no memory for %zu tensors", count);
    }
    const char *name = NULL;
    json_t *entry = NULL;
    json_object_foreach(file->header, name, entry)
    {
        if (entry == file->metadata) continue;
        rc = read_tensor(name, entry, data, data_count, &file->tensors[file->count], err);
        if (rc != 0) return rc;
        file->count++;
    }
    ASSERT(file->count == count);
    qsort(file->tensors, count, sizeof *file->tensors, compare_places);
    for (uint32_t i = 0; i < file->count; i++) file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, count, sizeof *file->by_name, compare_names);
    return check_places(file, data, data_count, err);
}

static int read_file(struct safetensors *file, const uint8_t *bytes, size_t count, struct err *err)
{
    if (count < 8) return err_set(err, SHOAL_ECORRUPT, "%zu bytes are too few for a header", count);
    uint64_t header_bytes = 0;
    for (int i = 0; i < 8; i++) header_bytes |= (uint64_t)bytes[i] << (8 * i);
    if (header_bytes > count - 8 || header_bytes > SAFETENSORS_HEADER_MAX) {
        return err_set(err, SHOAL_ECORRUPT, "a header of %llu bytes in a file of %zu",
                       (unsigned long long)header_bytes, count);
    }
    /* The format asks for '{' first, so that files of other kinds are told apart at once. */
    if (header_bytes == 0 || bytes[8] != '{') {
        return err_set(err, SHOAL_ECORRUPT, "the header does not start with {");
    }
    json_error_t where;
    file->header =
        json_loadb((const char *)bytes + 8, (size_t)header_bytes, JSON_REJECT_DUPLICATES, &where);
    if (file->header == NULL) {
        return err_set(err, SHOAL_ECORRUPT, "the header is no JSON: byte %d: %s", where.position,
                       where.text);
    }
    return read_tensors(file, bytes + 8 + header_bytes, count - 8 - header_bytes, err);
}

int safetensors_open_memory(const void *bytes, size_t count, struct safetensors **file_out,
                            struct err *err)
{
    struct safetensors *file = mem_alloc(MEM_IO, sizeof *file);
    if (file == NULL) return err_set(err, SHOAL_ENOMEM, "no memory to read tensors");
    const int rc = read_file(file, bytes, count, err);
    if (rc != 0) {
        safetensors_close(file);
        return rc;
    }
    *file_out = file;
    return 0;
}

int safetensors_open(const char *path, struct safetensors **file_out, struct err *err)
{
    struct io_map map = {0};
    int rc = io_map_open(path, &map, err);
    if (rc != 0) return rc;
    rc = safetensors_open_memory(map.bytes, map.count, file_out, err);
    if (rc != 0) {
        io_map_close(&map);
        err_wrap(err, "read %s", path);
        return rc;
    }
    (*file_out)->map = map;
    return 0;
}

uint32_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *file, uint32_t index)
{
    ASSERT(index < file->count);
    return &file->tensors[index];
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
    if (file->count == 0) return NULL;
    const struct safetensors_tensor wanted = {.name = name};
    const struct safetensors_tensor *key = &wanted;
    const struct safetensors_tensor **found =
        bsearch(&key, file->by_name, file->count, sizeof *file->by_name, compare_names);
    return found == NULL ? NULL : *found;
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
    return json_string_value(json_object_get(file->metadata, key));
}

void safetensors_close(struct safetensors *file)
{
    if (file == NULL) return;
    json_decref(file->header);
    mem_free(file->by_name);
    mem_free(file->tensors);
    io_map_close(&file->map);
    mem_free(file);
}
