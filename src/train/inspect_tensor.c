#include "train/inspect_tensor.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"

static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 0x1f;
    const int fraction = bits & 0x3ff;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == 0) return sign * ldexp(fraction, -24);
    if (exponent == 0x1f) return fraction != 0 ? NAN : sign * INFINITY;
    return sign * ldexp(fraction + 0x400, exponent - 25);
}

static double bfloat_value(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value = 0;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

#define CASE(code, type, value_of)                                                                 \
    case code: {                                                                                   \
        type element;                                                                              \
        memcpy(&element, bytes, sizeof element);                                                   \
        return value_of(element);                                                                  \
    }

static double element_value(enum safetensors_type type, const uint8_t *bytes)
{
    switch (type) {
        CASE(SAFETENSORS_F32, float, (double))
        CASE(SAFETENSORS_F64, double, (double))
        CASE(SAFETENSORS_I64, int64_t, (double))
        CASE(SAFETENSORS_U64, uint64_t, (double))
        CASE(SAFETENSORS_I32, int32_t, (double))
        CASE(SAFETENSORS_U32, uint32_t, (double))
        CASE(SAFETENSORS_U8, uint8_t, (double))
        CASE(SAFETENSORS_BOOL, uint8_t, (double))
        CASE(SAFETENSORS_I8, int8_t, (double))
        CASE(SAFETENSORS_I16, int16_t, (double))
        CASE(SAFETENSORS_U16, uint16_t, (double))
        CASE(SAFETENSORS_F16, uint16_t, half_value)
        CASE(SAFETENSORS_BF16, uint16_t, bfloat_value)
    case SAFETENSORS_TYPE_COUNT: break;
    }
    ASSERT(type < SAFETENSORS_TYPE_COUNT);
    return NAN;
}

struct inspect_tensor inspect_tensor(const struct safetensors_tensor *tensor)
{
    struct inspect_tensor summary = {.min = NAN, .max = NAN, .mean = NAN};
    const uint32_t size = safetensors_type_bytes(tensor->type);
    const uint64_t count = tensor->bytes_count / size;
    const uint8_t *bytes = tensor->bytes;
    double min = INFINITY;
    double max = -INFINITY;
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double value = element_value(tensor->type, bytes + i * size);
        if (!isfinite(value)) {
            summary.not_finite++;
            continue;
        }
        if (value < min) min = value;
        if (value > max) max = value;
        sum += value;
    }
    if (summary.not_finite == count) return summary;
    summary.min = min;
    summary.max = max;
    summary.mean = sum / (double)(count - summary.not_finite);
    return summary;
}
