/* inspect_tensor sums up the elements of a tensor of any type, from bytes that need no alignment. */
#ifndef SHOAL_TRAIN_INSPECT_TENSOR_H
#define SHOAL_TRAIN_INSPECT_TENSOR_H

#include <stdint.h>

#include "io/safetensors.h"

struct inspect_tensor {
    double min; /* of the finite elements; NaN when there are none */
    double max;
    double mean;
    uint64_t not_finite; /* NaN and infinities */
};

struct inspect_tensor inspect_tensor(const struct safetensors_tensor *tensor);

#endif
