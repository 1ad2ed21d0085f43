/* safetensors reads and writes the safetensors format: 8 bytes length, a JSON header, then the
 * bytes of each tensor, little-endian, row by row. The header is checked whole before anything is
 * used: lengths against the file, offsets without gap or overlap, shapes against bytes, names
 * unique. SHOAL_ECORRUPT says what does not fit. An open file is read only: any thread. */
#ifndef SHOAL_IO_SAFETENSORS_H
#define SHOAL_IO_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SAFETENSORS_DIMS_MAX 8

enum safetensors_type {
    SAFETENSORS_F32,
    SAFETENSORS_F64,
    SAFETENSORS_I64,
    SAFETENSORS_U64,
    SAFETENSORS_I32,
    SAFETENSORS_U32,
    SAFETENSORS_U8,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_BOOL,
    SAFETENSORS_I8,
    SAFETENSORS_I16,
    SAFETENSORS_U16,
    SAFETENSORS_TYPE_COUNT
};
const char *safetensors_type_name(enum safetensors_type type); /* "F32" */
uint32_t safetensors_type_bytes(enum safetensors_type type);

/* bytes_count may be 0 when writing: it follows from type and dims. A scalar has no dims. */
struct safetensors_tensor {
    const char *name; /* reader: owned by the file */
    enum safetensors_type type;
    uint32_t dims_count;
    uint64_t dims[SAFETENSORS_DIMS_MAX];
    const void *bytes; /* reader: into the mapped file (8-byte aligned is not promised) */
    uint64_t bytes_count;
};

struct safetensors; /* an open file, mapped */
int safetensors_open(const char *path, struct safetensors **file_out, struct err *err);
int safetensors_open_memory(const void *bytes, size_t count, struct safetensors **file_out,
                            struct err *err); /* borrowed */
uint32_t safetensors_count(const struct safetensors *file);
/* In the order of their bytes. */
const struct safetensors_tensor *safetensors_at(const struct safetensors *file, uint32_t index);
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);
/* NULL when there is no such key in __metadata__. */
const char *safetensors_metadata(const struct safetensors *file, const char *key);
void safetensors_close(struct safetensors *file); /* NULL is a no-op */

/* Writing: all tensors are declared first (bytes may be NULL), then each one's bytes are given in
 * the declared order, in pieces of any size. Tensors start 64-byte aligned (padded header). */
struct safetensors_writer;
int safetensors_writer_open(const char *path, const struct safetensors_tensor *tensors,
                            uint32_t count, const char *const *metadata, /* key, value, ..., NULL */
                            struct safetensors_writer **writer_out, struct err *err);
int safetensors_writer_write(struct safetensors_writer *writer, const void *bytes, size_t count,
                             struct err *err);
/* Checks that all was given, fsyncs, frees (also on error). */
int safetensors_writer_close(struct safetensors_writer *writer, uint64_t *bytes_out,
                             uint32_t *crc32c_out, struct err *err);
void safetensors_writer_abandon(struct safetensors_writer *writer);

#endif
