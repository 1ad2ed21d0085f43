/* The input is a file of images and one of labels; the first byte says where the second begins. */
#include "data/data_fuzz.h"

static const char features[] = "label: {kind: label}\n"
                               "image: {kind: numeric, width: 4}\n";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0) return 0;
    const struct data_frame_opts opts = {.format = DATA_IDX, .labels_optional = true};
    const size_t images = (size_t)bytes[0] < count - 1 ? bytes[0] : count - 1;
    fuzz_file(fuzz_spec(features), &opts, bytes + 1, images, bytes + 1 + images,
              count - 1 - images);
    return 0;
}
