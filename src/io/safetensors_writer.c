#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/safetensors_type.h"

/* Tensors of whole cache lines start on cache lines when the file is mapped. */
#define HEADER_ALIGN 64

struct safetensors_writer {
    struct io_writer *file;
    uint64_t bytes_left; /* of all tensors, still to be given */
};

/* The header's text, and the bytes that all tensors have together. */
static int make_header(const struct safetensors_tensor *tensors, uint32_t count,
                       const char *const *metadata, struct str *text, uint64_t *bytes_out,
                       struct err *err)
{
    uint64_t offset = 0;
    str_json_open(text, '{');
    if (metadata != NULL && metadata[0] != NULL) {
        str_json_key(text, "__metadata__");
        str_json_open(text, '{');
        for (; metadata[0] != NULL; metadata += 2) {
            str_json_key(text, metadata[0]);
            str_json_string(text, metadata[1], strlen(metadata[1]));
        }
        str_json_close(text, '}');
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        uint64_t end = 0;
        ASSERT(tensors[i].dims_count <= SAFETENSORS_DIMS_MAX);
        if (!safetensors_tensor_bytes(&tensors[i], &bytes) ||
            __builtin_add_overflow(offset, bytes, &end) || end > INT64_MAX) {
            return err_set(err, SHOAL_ELIMIT, "tensor \"%.100s\" is too large", tensors[i].name);
        }
        str_json_key(text, tensors[i].name);
        str_json_open(text, '{');
        str_json_key(text, "dtype");
        const char *type = safetensors_type_name(tensors[i].type);
        str_json_string(text, type, strlen(type));
        str_json_key(text, "shape");
        str_json_open(text, '[');
        for (uint32_t d = 0; d < tensors[i].dims_count; d++) str_json_u64(text, tensors[i].dims[d]);
        str_json_close(text, ']');
        str_json_key(text, "data_offsets");
        str_json_open(text, '[');
        str_json_u64(text, offset);
        str_json_u64(text, end);
        str_json_close(text, ']');
        str_json_close(text, '}');
        offset = end;
    }
    str_json_close(text, '}');
    while (!text->failed && (text->bytes + 8) % HEADER_ALIGN != 0) str_add(text, " ");
    if (text->failed)
        return err_set(err, SHOAL_ENOMEM, "no memory for a header of %u tensors", count);
    *bytes_out = offset;
    return 0;
}

static int write_header(struct io_writer *file, const struct str *text, struct err *err)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)text->bytes >> (8 * i));
    const int rc = io_writer_write(file, length, sizeof length, err);
    return rc != 0 ? rc : io_writer_write(file, text->text, text->bytes, err);
}

int safetensors_writer_open(const char *path, const struct safetensors_tensor *tensors,
                            uint32_t count, const char *const *metadata,
                            struct safetensors_writer **writer_out, struct err *err)
{
    struct str text = {0};
    struct safetensors_writer *writer = mem_alloc(MEM_IO, sizeof *writer);
    int rc = writer == NULL ? err_set(err, SHOAL_ENOMEM, "write %s: no memory", path) : 0;
    if (rc == 0) rc = make_header(tensors, count, metadata, &text, &writer->bytes_left, err);
    if (rc == 0 && (text.bytes > SAFETENSORS_HEADER_MAX || count > SAFETENSORS_TENSORS_MAX)) {
        rc = err_set(err, SHOAL_ELIMIT, "write %s: %u tensors, a header of %zu bytes", path, count,
                     text.bytes);
    }
    if (rc == 0) rc = io_writer_open(path, &writer->file, err);
    if (rc == 0) rc = write_header(writer->file, &text, err);
    str_fini(&text);
    if (rc != 0) {
        safetensors_writer_abandon(writer);
        return rc;
    }
    *writer_out = writer;
    return 0;
}

int safetensors_writer_write(struct safetensors_writer *writer, const void *bytes, size_t count,
                             struct err *err)
{
    ASSERT(count <= writer->bytes_left);
    writer->bytes_left -= count;
    return io_writer_write(writer->file, bytes, count, err);
}

int safetensors_writer_close(struct safetensors_writer *writer, uint64_t *bytes_out,
                             uint32_t *crc32c_out, struct err *err)
{
    ASSERT(writer->bytes_left == 0);
    const uint64_t bytes = io_writer_bytes(writer->file);
    const uint32_t crc32c = io_writer_crc32c(writer->file);
    const int rc = io_writer_close(writer->file, err);
    writer->file = NULL;
    safetensors_writer_abandon(writer);
    if (rc != 0) return rc;
    if (bytes_out != NULL) *bytes_out = bytes;
    if (crc32c_out != NULL) *crc32c_out = crc32c;
    return 0;
}

void safetensors_writer_abandon(struct safetensors_writer *writer)
{
    if (writer == NULL) return;
    io_writer_abandon(writer->file);
    mem_free(writer);
}
