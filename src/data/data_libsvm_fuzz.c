/* The input is a libsvm file. */
#include "data/data_fuzz.h"

static const char features[] = "label: {kind: label}\n"
                               "group: {kind: group}\n"
                               "dense: {kind: numeric, width: 16}\n"
                               "sparse: {kind: identity, buckets: 16, weights: value}\n";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const struct data_frame_opts opts = {.format = DATA_LIBSVM};
    fuzz_file(fuzz_spec(features), &opts, bytes, count, NULL, 0);
    return 0;
}
