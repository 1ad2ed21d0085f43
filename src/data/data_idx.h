/* data_idx knows the element types of IDX files. */
#ifndef SHOAL_DATA_IDX_H
#define SHOAL_DATA_IDX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    DATA_IDX_U8 = 0x08,
    DATA_IDX_I8,
    DATA_IDX_I16 = 0x0b,
    DATA_IDX_I32,
    DATA_IDX_F32,
    DATA_IDX_F64
};

/* 0: no such type. */
static inline size_t data_idx_bytes(uint8_t type)
{
    switch (type) {
    case DATA_IDX_U8:
    case DATA_IDX_I8: return 1;
    case DATA_IDX_I16: return 2;
    case DATA_IDX_I32:
    case DATA_IDX_F32: return 4;
    case DATA_IDX_F64: return 8;
    default: return 0;
    }
}

/* One element, stored big-endian. */
static inline double data_idx_number(uint8_t type, const uint8_t *bytes)
{
    uint64_t bits = 0;
    float single = 0;
    double number = 0;
    for (size_t i = 0; i < data_idx_bytes(type); i++) bits = bits << 8 | bytes[i];
    const uint32_t low = (uint32_t)bits;
    switch (type) {
    case DATA_IDX_I8: return (int8_t)low;
    case DATA_IDX_I16: return (int16_t)low;
    case DATA_IDX_I32: return (int32_t)low;
    case DATA_IDX_F32: memcpy(&single, &low, 4); return (double)single;
    case DATA_IDX_F64: memcpy(&number, &bits, 8); return number;
    default: return low;
    }
}

#endif
