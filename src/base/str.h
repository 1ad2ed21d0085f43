/* str is a growable string, and the writer of our JSON. After a failed allocation it holds what fit
 * and `failed` stays true, so that a caller may check once at the end. */
#ifndef SHOAL_BASE_STR_H
#define SHOAL_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct str {
    char *text; /* NUL-terminated when not NULL */
    size_t bytes;
    size_t capacity;
    bool failed;
};

void str_fini(struct str *str);
void str_clear(struct str *str);
void str_add(struct str *str, const char *text);
void str_add_bytes(struct str *str, const void *bytes, size_t count);
void str_printf(struct str *str, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* JSON: str_json_key("a") writes `"a": ` with a comma before it where one is needed, looking at
 * what stands before (a line break starts a new document). Numbers have the fewest digits, from 6,
 * that read back as the same value; NaN and infinities become null, as JSON has none. Bytes that
 * are no UTF-8 become U+FFFD. */
void str_json_open(struct str *str, char bracket);  /* '{' or '['; comma as needed */
void str_json_close(struct str *str, char bracket); /* '}' or ']' */
void str_json_key(struct str *str, const char *key);
void str_json_string(struct str *str, const char *text, size_t bytes);
void str_json_f64(struct str *str, double value);
void str_json_f32(struct str *str, float value);
void str_json_u64(struct str *str, uint64_t value);
void str_json_i64(struct str *str, int64_t value);
void str_json_bool(struct str *str, bool value);
void str_json_null(struct str *str);

/* Bytes of the UTF-8 character at the front of left (> 0) bytes; 0 when it is none (RFC 3629). */
size_t str_utf8_length(const void *bytes, size_t left);

/* The nearest of `choices` to `word` by edit distance, NULL when none is near. */
const char *str_nearest(const char *word, const char *const *choices, size_t count);

/* "1,234,567" and "1.2 GiB" into buffer (which is returned). */
char *str_count(uint64_t value, char buffer[32]);
char *str_bytes(uint64_t bytes, char buffer[32]);

#endif
