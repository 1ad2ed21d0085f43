/* The input is a TFRecord file, compressed or not. */
#include "data/data_fuzz.h"

static const char features[] = "label: {kind: label}\n"
                               "x: {kind: numeric, width: 4}\n";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const struct data_frame_opts opts = {.format = DATA_TFRECORD};
    fuzz_file(fuzz_spec(features), &opts, bytes, count, NULL, 0);
    return 0;
}
