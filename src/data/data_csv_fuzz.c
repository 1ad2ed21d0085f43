/* The input is a csv file; its first byte says whether it has a header. */
#include "data/data_fuzz.h"

static const char features[] =
    "label: {kind: label, column: 0}\n"
    "a: {kind: hash, buckets: 97, column: 1}\n"
    "x: {kind: numeric, width: 2, column: 2}\n"
    "h: {kind: hash, buckets: 97, combiner: sum, column: 4, split: \"|\"}\n"
    "d: {kind: identity, buckets: 50, column: 1, default: 0}\n";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0) return 0;
    const struct data_frame_opts opts = {
        .format = DATA_CSV, .delimiter = ',', .header = (bytes[0] & 1) != 0};
    fuzz_file(fuzz_spec(features), &opts, bytes + 1, count - 1, NULL, 0);
    return 0;
}
