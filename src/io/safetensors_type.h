/* What the reader and the writer of safetensors share. */
#ifndef SHOAL_IO_SAFETENSORS_TYPE_H
#define SHOAL_IO_SAFETENSORS_TYPE_H

#include <stdbool.h>

#include "io/safetensors.h"

/* Bytes of a tensor by its type and dims; false when that does not fit 64 bits. */
bool safetensors_tensor_bytes(const struct safetensors_tensor *tensor, uint64_t *bytes_out);

#endif
