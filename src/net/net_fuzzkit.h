/* net_fuzzkit mends streams for fuzz targets: a mutation hardly ever finds a checksum, so what lies
 * behind one would not be reached. For fuzz targets only. */
#ifndef SHOAL_NET_FUZZKIT_H
#define SHOAL_NET_FUZZKIT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"
#include "net/net_frame.h"

static inline void net_fuzz_put_sum(uint8_t *at, const uint8_t *bytes, size_t count)
{
    const uint32_t sum = hash_crc32c(0, bytes, count);
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(sum >> (8 * i));
}

/* Longer inputs say nothing new. */
#define NET_FUZZ_BYTES_MAX ((size_t)1 << 24)

/* Gives every header its magic, version and checksum, with lengths that fit now and then, and the meta
 * parts of greetings theirs. */
static inline void net_fuzz_mend(uint8_t *bytes, size_t count)
{
    size_t at = 0;
    while (count - at >= NET_HEADER_BYTES) {
        struct net_header header;
        memcpy(bytes + at, "SHOL\1", 6);
        bytes[at + 42] &= 1;
        bytes[at + 43] = 0;
        memset(bytes + at + 34, 0, 6);
        net_fuzz_put_sum(bytes + at + NET_HEADER_BYTES - 4, bytes + at, NET_HEADER_BYTES - 4);
        if (net_header_decode(bytes + at, &header) != NET_OK) return;
        at += NET_HEADER_BYTES;
        if (header.meta_bytes > count - at) return;
        if (header.type >= NET_TYPE_OWN && header.meta_bytes >= 4) {
            net_fuzz_put_sum(bytes + at + header.meta_bytes - 4, bytes + at, header.meta_bytes - 4);
        }
        at += header.meta_bytes;
        if (header.body_bytes > count - at) return;
        at += (size_t)header.body_bytes;
    }
}

#endif
