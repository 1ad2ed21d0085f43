/* net_bytes writes and reads little-endian fields one by one, within bounds. A cursor that ran over
 * its end stays `failed` and reads zeros, so that a caller checks once at the end. */
#ifndef SHOAL_NET_BYTES_H
#define SHOAL_NET_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct net_writer {
    uint8_t *at;
    uint8_t *end;
    bool failed;
};

struct net_cursor {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

static inline void net_put(struct net_writer *writer, const void *bytes, size_t count)
{
    if (writer->failed || (size_t)(writer->end - writer->at) < count) {
        writer->failed = true;
        return;
    }
    if (count > 0) memcpy(writer->at, bytes, count);
    writer->at += count;
}

static inline void net_put_uint(struct net_writer *writer, uint64_t value, size_t count)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    net_put(writer, bytes, count);
}

static inline void net_get(struct net_cursor *cursor, void *bytes, size_t count)
{
    if (cursor->failed || (size_t)(cursor->end - cursor->at) < count) {
        cursor->failed = true;
        memset(bytes, 0, count);
        return;
    }
    if (count > 0) memcpy(bytes, cursor->at, count);
    cursor->at += count;
}

static inline uint64_t net_get_uint(struct net_cursor *cursor, size_t count)
{
    uint8_t bytes[8];
    uint64_t value = 0;
    net_get(cursor, bytes, count);
    for (size_t i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

#endif
