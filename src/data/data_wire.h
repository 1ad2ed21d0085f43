/* data_wire reads the protobuf wire format, forward, never past `end`. */
#ifndef SHOAL_DATA_WIRE_H
#define SHOAL_DATA_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* At most ten bytes; false when cut short or longer. */
static inline bool wire_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    const uint8_t *p = *at;
    if (p < end && *p < 0x80) {
        *out = *p;
        *at = p + 1;
        return true;
    }
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70 && p < end; shift += 7) {
        const uint8_t byte = *p++;
        value |= (uint64_t)(byte & 0x7f) << (shift & 63);
        if (byte < 0x80) {
            *out = value;
            *at = p;
            return true;
        }
    }
    return false;
}

/* A length and that many bytes. */
static inline bool wire_bytes(const uint8_t **at, const uint8_t *end, const uint8_t **bytes_out,
                              size_t *count_out)
{
    uint64_t count = 0;
    if (!wire_varint(at, end, &count) || count > (uint64_t)(end - *at)) return false;
    *bytes_out = *at;
    *count_out = (size_t)count;
    *at += count;
    return true;
}

/* Steps over the value of a field whose tag has been read. Groups are refused. */
static inline bool wire_skip(const uint8_t **at, const uint8_t *end, uint64_t tag)
{
    uint64_t unused = 0;
    const uint8_t *bytes = NULL;
    size_t count = 0;
    switch (tag & 7) {
    case WIRE_VARINT: return wire_varint(at, end, &unused);
    case WIRE_BYTES: return wire_bytes(at, end, &bytes, &count);
    case WIRE_FIXED64: count = 8; break;
    case WIRE_FIXED32: count = 4; break;
    default: return false;
    }
    if ((size_t)(end - *at) < count) return false;
    *at += count;
    return true;
}

#endif
