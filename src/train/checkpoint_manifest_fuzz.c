#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint_manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* The input is a manifest without its last line, so that the checksum does not stop everything. What
 * is read is written again, and that must read as the same. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct str text = {0};
    struct str again = {0};
    struct str third = {0};
    struct checkpoint *first = NULL;
    struct checkpoint *second = NULL;
    str_add_bytes(&text, bytes, count);
    checkpoint_manifest_seal(&text);
    if (checkpoint_parse("fuzz", text.text, text.bytes, &first, NULL) == 0) {
        checkpoint_manifest_write(first, &again);
        if (checkpoint_parse("fuzz", again.text, again.bytes, &second, NULL) != 0) abort();
        checkpoint_manifest_write(second, &third);
        if (again.bytes != third.bytes || memcmp(again.text, third.text, again.bytes) != 0) abort();
    }
    checkpoint_close(first);
    checkpoint_close(second);
    str_fini(&text);
    str_fini(&again);
    str_fini(&third);
    return 0;
}
