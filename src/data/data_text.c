#include "data/data_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

size_t data_text_of_i64(int64_t integer, char out[24])
{
    char reversed[24];
    size_t count = 0;
    uint64_t rest = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    do {
        reversed[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    if (integer < 0) reversed[count++] = '-';
    for (size_t i = 0; i < count; i++) out[i] = reversed[count - 1 - i];
    ASSERT(count <= 20);
    return count;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void trim(const char **text, size_t *bytes)
{
    while (*bytes > 0 && is_space((*text)[0])) {
        (*text)++;
        (*bytes)--;
    }
    while (*bytes > 0 && is_space((*text)[*bytes - 1])) (*bytes)--;
}

/* What the quick way cannot round exactly goes to strtod (which needs a NUL). */
static bool slow_to_f64(const char *text, size_t bytes, double *out)
{
    char copy[128];
    if (bytes == 0 || bytes >= sizeof copy) return false;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    char *end = NULL;
    const double value = strtod(copy, &end);
    if (end != copy + bytes) return false;
    *out = value;
    return true;
}

static const double powers_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                       1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                       1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Clinger's fast path: digits below 2^53 and a power of ten up to 10^22 are both exact doubles, so
 * that one multiplication or division rounds once, correctly. */
bool data_text_to_f64(const void *text, size_t bytes, double *out)
{
    const char *at = text;
    trim(&at, &bytes);
    const char *start = at;
    const char *end = at + bytes;
    bool negative = false;
    if (at < end && (*at == '-' || *at == '+')) negative = *at++ == '-';
    uint64_t digits = 0;
    int digits_count = 0;
    int scale = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++, digits_count++) {
        digits = digits * 10 + (uint64_t)(*at - '0');
    }
    if (at < end && *at == '.') {
        for (at++; at < end && *at >= '0' && *at <= '9'; at++, digits_count++, scale--) {
            digits = digits * 10 + (uint64_t)(*at - '0');
        }
    }
    if (at != end || digits_count == 0 || digits_count > 18 || digits >= (1ull << 53)) {
        return slow_to_f64(start, bytes, out);
    }
    const double value = (double)digits / powers_of_ten[-scale];
    *out = negative ? -value : value;
    return true;
}

bool data_text_to_i64(const void *text, size_t bytes, int64_t *out)
{
    const char *at = text;
    trim(&at, &bytes);
    const char *end = at + bytes;
    bool negative = false;
    if (at < end && (*at == '-' || *at == '+')) negative = *at++ == '-';
    if (at == end) return false;
    uint64_t value = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return false;
        const uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    if (value > (uint64_t)INT64_MAX + (negative ? 1 : 0)) return false;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}
