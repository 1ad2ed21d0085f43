#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "train/events.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Every point that is found lies within the message. */
static int check_point(void *ctx, const struct events_point *point, struct err *err)
{
    (void)err;
    const uint8_t *const *range = ctx;
    const uint8_t *tag = (const uint8_t *)point->tag;
    if (tag < range[0] || tag > range[1] || point->tag_bytes > (size_t)(range[1] - tag)) abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const uint8_t *range[] = {bytes, bytes + count};
    events_decode(bytes, count, check_point, range, NULL);
    return 0;
}
