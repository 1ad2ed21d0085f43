#include "base/str.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

void str_fini(struct str *str)
{
    mem_free(str->text);
    *str = (struct str){0};
}

void str_clear(struct str *str)
{
    str->bytes = 0;
    str->failed = false;
    if (str->text != NULL) str->text[0] = '\0';
}

/* Room for count more bytes and the NUL; false (and failed) when there is none. */
static bool reserve(struct str *str, size_t count)
{
    if (str->failed) return false;
    size_t want = 0;
    void *text = str->text;
    if (__builtin_add_overflow(str->bytes, count, &want) || want == SIZE_MAX ||
        mem_grow(MEM_BASE, &text, &str->capacity, want + 1, 1) != 0) {
        str->failed = true;
        return false;
    }
    str->text = text;
    return true;
}

void str_add_bytes(struct str *str, const void *bytes, size_t count)
{
    if (!reserve(str, count)) return;
    if (count > 0) memcpy(str->text + str->bytes, bytes, count);
    str->bytes += count;
    str->text[str->bytes] = '\0';
}

void str_add(struct str *str, const char *text)
{
    str_add_bytes(str, text, strlen(text));
}

void str_printf(struct str *str, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    const int needed = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (needed < 0) {
        str->failed = true;
    } else if (reserve(str, (size_t)needed)) {
        vsnprintf(str->text + str->bytes, (size_t)needed + 1, format, again);
        str->bytes += (size_t)needed;
    }
    va_end(again);
}

/* A comma is needed before a new element unless something was just opened or a key announced it. */
static void json_separate(struct str *str)
{
    if (str->bytes == 0) return;
    const char last = str->text[str->bytes - 1];
    if (last == ' ') return; /* after `"key": ` */
    if (strchr("{[\n", last) == NULL) str_add(str, ", ");
}

void str_json_open(struct str *str, char bracket)
{
    ASSERT(bracket == '{' || bracket == '[');
    json_separate(str);
    str_add_bytes(str, &bracket, 1);
}

void str_json_close(struct str *str, char bracket)
{
    ASSERT(bracket == '}' || bracket == ']');
    str_add_bytes(str, &bracket, 1);
}

static void json_quote(struct str *str, const char *text, size_t bytes)
{
    static const char plain_of[] = "\"\\\b\f\n\r\t";
    static const char escape_of[] = "\"\\bfnrt";
    const uint8_t *s = (const uint8_t *)text;
    str_add(str, "\"");
    for (size_t i = 0; i < bytes;) {
        const size_t length = str_utf8_length(s + i, bytes - i);
        const char *special = s[i] == 0 ? NULL : strchr(plain_of, s[i]);
        if (length == 0) {
            str_add(str, "\\ufffd"); /* bytes that are no UTF-8: JSON cannot hold them */
        } else if (special != NULL) {
            str_printf(str, "\\%c", escape_of[special - plain_of]);
        } else if (s[i] < 0x20 || s[i] == 0x7f) {
            str_printf(str, "\\u%04x", s[i]);
        } else {
            str_add_bytes(str, s + i, length);
        }
        i += length == 0 ? 1 : length;
    }
    str_add(str, "\"");
}

void str_json_key(struct str *str, const char *key)
{
    json_separate(str);
    json_quote(str, key, strlen(key));
    str_add(str, ": ");
}

void str_json_string(struct str *str, const char *text, size_t bytes)
{
    json_separate(str);
    json_quote(str, text, bytes);
}

/* The first number of digits that reads back as the same value is the shortest form. */
void str_json_f64(struct str *str, double value)
{
    json_separate(str);
    if (!isfinite(value)) {
        str_add(str, "null");
        return;
    }
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    str_add(str, text);
}

void str_json_f32(struct str *str, float value)
{
    json_separate(str);
    if (!isfinite(value)) {
        str_add(str, "null");
        return;
    }
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    str_add(str, text);
}

void str_json_u64(struct str *str, uint64_t value)
{
    json_separate(str);
    str_printf(str, "%" PRIu64, value);
}

void str_json_i64(struct str *str, int64_t value)
{
    json_separate(str);
    str_printf(str, "%" PRId64, value);
}

void str_json_bool(struct str *str, bool value)
{
    json_separate(str);
    str_add(str, value ? "true" : "false");
}

void str_json_null(struct str *str)
{
    json_separate(str);
    str_add(str, "null");
}

size_t str_utf8_length(const void *bytes, size_t left)
{
    const uint8_t *s = bytes;
    if (s[0] < 0x80) return 1;
    const size_t length = s[0] >= 0xc2 && s[0] <= 0xdf   ? 2
                          : s[0] >= 0xe0 && s[0] <= 0xef ? 3
                          : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                                         : 0;
    if (length == 0 || length > left) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
    }
    const bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    const bool surrogate = s[0] == 0xed && s[1] > 0x9f;
    const bool too_large = s[0] == 0xf4 && s[1] > 0x8f;
    return overlong || surrogate || too_large ? 0 : length;
}

#define WORD_MAX 64 /* longer words get no suggestion */

static size_t min3(size_t a, size_t b, size_t c)
{
    const size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Edits (insert, delete, replace, swap of neighbours) between two words, ignoring case; rows of
 * the usual table, three kept for the swaps. */
static size_t edits(const char *a, size_t a_count, const char *b, size_t b_count)
{
    size_t rows[3][WORD_MAX + 1];
    for (size_t j = 0; j <= b_count; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a_count; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i - 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_count; j++) {
            const int p = tolower((unsigned char)a[i - 1]);
            const int q = tolower((unsigned char)b[j - 1]);
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + (p != q));
            if (i > 1 && j > 1 && p == tolower((unsigned char)b[j - 2]) &&
                q == tolower((unsigned char)a[i - 2])) {
                const size_t swapped = rows[(i - 2) % 3][j - 2] + 1;
                if (swapped < row[j]) row[j] = swapped;
            }
        }
    }
    return rows[a_count % 3][b_count];
}

const char *str_nearest(const char *word, const char *const *choices, size_t count)
{
    const size_t word_count = strnlen(word, WORD_MAX + 1);
    if (word_count > WORD_MAX) return NULL;
    const char *nearest = NULL;
    size_t least = 1 + word_count / 3; /* more edits than this is another word */
    for (size_t i = 0; i < count; i++) {
        const size_t choice_count = strnlen(choices[i], WORD_MAX + 1);
        if (choice_count > WORD_MAX) continue;
        const size_t distance = edits(word, word_count, choices[i], choice_count);
        if (distance >= choice_count || distance > least) continue;
        if (nearest != NULL && distance == least) continue;
        nearest = choices[i];
        least = distance;
    }
    return nearest;
}

char *str_count(uint64_t value, char buffer[32])
{
    char digits[24];
    const int count = snprintf(digits, sizeof digits, "%" PRIu64, value);
    char *end = buffer;
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) *end++ = ',';
        *end++ = digits[i];
    }
    *end = '\0';
    return buffer;
}

char *str_bytes(uint64_t bytes, char buffer[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1023.95 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buffer;
}
