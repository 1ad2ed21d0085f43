#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "io/safetensors.h"

/* What is accepted holds what the header of the module promises, and every byte can be read. */
static void check_file(const struct safetensors *file, const uint8_t *bytes, size_t count)
{
    const uint32_t tensors = safetensors_count(file);
    const uint8_t *next = tensors > 0 ? safetensors_at(file, 0)->bytes : bytes + count;
    uint32_t crc = 0;
    for (uint32_t i = 0; i < tensors; i++) {
        const struct safetensors_tensor *tensor = safetensors_at(file, i);
        uint64_t want = safetensors_type_bytes(tensor->type);
        ASSERT(tensor->dims_count <= SAFETENSORS_DIMS_MAX);
        for (uint32_t d = 0; d < tensor->dims_count; d++) want *= tensor->dims[d];
        ASSERT(tensor->bytes_count == want);
        ASSERT(tensor->bytes == next);
        ASSERT(safetensors_find(file, tensor->name) == tensor);
        crc = hash_crc32c(crc, tensor->bytes, (size_t)tensor->bytes_count);
        next += tensor->bytes_count;
    }
    ASSERT(next == bytes + count);
    const char *value = safetensors_metadata(file, "format");
    ASSERT(value == NULL || strlen(value) < count);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct err err = {0};
    struct safetensors *file = NULL;
    const int rc = safetensors_open_memory(bytes, count, &file, &err);
    if (rc == 0) {
        check_file(file, bytes, count);
        safetensors_close(file);
    } else {
        ASSERT(rc == SHOAL_ECORRUPT || rc == SHOAL_ELIMIT);
        ASSERT(err.text[0] != '\0');
    }
    return 0;
}
