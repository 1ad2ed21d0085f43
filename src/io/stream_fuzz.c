#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "io/stream.h"

/* A small file may unpack to a very large one: look at the first part of it. */
#define BYTES_MAX ((uint64_t)4 << 20)

struct digest {
    uint64_t bytes;
    uint32_t crc;
    int rc;
};

/* Reads by peeks of want bytes, checking the promises of the header on the way. */
static struct digest read_by(const uint8_t *input, size_t count, size_t want)
{
    struct err err = {0};
    struct stream *stream = NULL;
    struct digest digest = {0};
    ASSERT(stream_open_memory(input, count, &stream, &err) == 0);
    while (digest.bytes < BYTES_MAX) {
        const uint8_t *bytes = NULL;
        size_t have = 0;
        digest.rc = stream_peek(stream, want, &bytes, &have, &err);
        if (digest.rc != 0 || have == 0) break;
        ASSERT(stream_offset(stream) == digest.bytes);
        const size_t used =
            have < BYTES_MAX - digest.bytes ? have : (size_t)(BYTES_MAX - digest.bytes);
        digest.crc = hash_crc32c(digest.crc, bytes, used);
        digest.bytes += used;
        stream_skip(stream, used);
    }
    if (digest.rc != 0) {
        const uint8_t *bytes = NULL;
        size_t have = 1;
        ASSERT(digest.rc == SHOAL_ECORRUPT);
        ASSERT(stream_damage(stream) != NULL);
        ASSERT(stream_peek(stream, want, &bytes, &have, &err) == 0); /* told once, then the end */
        ASSERT(have == 0);
    }
    stream_close(stream);
    return digest;
}

/* However the bytes are asked for, they are the same, and so is how they end. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const struct digest a = read_by(bytes, count, 1);
    const struct digest b = read_by(bytes, count, 70000);
    ASSERT(a.bytes == b.bytes);
    ASSERT(a.crc == b.crc);
    ASSERT(a.rc == b.rc);
    return 0;
}
