#include "base/str.h"

#include <float.h>
#include <jansson.h>
#include <stdlib.h>

#include "../tests/test.h"
#include "base/mem.h"

/* Texts of any length are joined whole. */
TEST(add_and_printf_join)
{
    struct str str = {0};
    str_add(&str, "");
    CHECK_STR(str.text, "");
    str_add(&str, "a");
    str_printf(&str, "%s-%d", "b", 7);
    str_add_bytes(&str, "cd", 1);
    CHECK_STR(str.text, "ab-7c");
    for (int i = 0; i < 1000; i++) str_printf(&str, "%d,", i);
    CHECK_INT(str.bytes, strlen(str.text));
    CHECK(!str.failed);
    str_clear(&str);
    CHECK_STR(str.text, "");
    CHECK_INT(str.bytes, 0);
    str_fini(&str);
    CHECK(str.text == NULL);
    str_fini(&str);
}

/* Commas stand where they must, in nested objects and lists, and a new line starts afresh. */
TEST(json_is_separated)
{
    struct str str = {0};
    str_json_open(&str, '{');
    str_json_key(&str, "a");
    str_json_open(&str, '[');
    str_json_u64(&str, 1);
    str_json_i64(&str, -2);
    str_json_open(&str, '[');
    str_json_close(&str, ']');
    str_json_open(&str, '{');
    str_json_close(&str, '}');
    str_json_close(&str, ']');
    str_json_key(&str, "b");
    str_json_bool(&str, true);
    str_json_key(&str, "c");
    str_json_null(&str);
    str_json_key(&str, "d");
    str_json_string(&str, "x", 1);
    str_json_close(&str, '}');
    CHECK_STR(str.text, "{\"a\": [1, -2, [], {}], \"b\": true, \"c\": null, \"d\": \"x\"}");
    str_add(&str, "\n");
    str_json_open(&str, '{');
    CHECK_HAS(str.text, "}\n{");
    str_fini(&str);
}

static const char *json_of(const char *text, size_t bytes)
{
    static struct str str;
    str_clear(&str);
    str_json_string(&str, text, bytes);
    return str.text;
}

/* Any bytes make valid JSON. */
TEST(json_strings_are_escaped)
{
    CHECK_STR(json_of("a\"b\\c\n\t\r\b\f", 10), "\"a\\\"b\\\\c\\n\\t\\r\\b\\f\"");
    CHECK_STR(json_of("\x01\x1f\x7f\0z", 5), "\"\\u0001\\u001f\\u007f\\u0000z\"");
    CHECK_STR(json_of("\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x9f", 9),
              "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x9f\"");
    CHECK_STR(json_of("\xff\xc3", 2), "\"\\ufffd\\ufffd\"");            /* no UTF-8, cut short */
    CHECK_STR(json_of("\xc0\x80", 2), "\"\\ufffd\\ufffd\"");            /* overlong */
    CHECK_STR(json_of("\xed\xa0\x80", 3), "\"\\ufffd\\ufffd\\ufffd\""); /* surrogate */
    CHECK_STR(json_of("\xf4\x90\x80\x80", 1), "\"\\ufffd\"");           /* beyond Unicode */
    char all[256];
    for (int i = 0; i < 256; i++) all[i] = (char)i;
    json_t *read = json_loads(json_of(all, sizeof all), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    CHECK(read != NULL);
    json_decref(read);
}

/* Numbers are short and read back as the same bits; what is no number is null. */
TEST(json_numbers_read_back)
{
    static const struct {
        double value;
        const char *want;
    } rows[] = {{0, "0"},
                {0.1, "0.1"},
                {-1.5, "-1.5"},
                {1e300, "1e+300"},
                {1.0 / 3, "0.3333333333333333"},
                {123456789, "123456789"},
                {NAN, "null"},
                {INFINITY, "null"}};
    struct str str = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str_clear(&str);
        str_json_f64(&str, rows[i].value);
        CHECK_STR(str.text, rows[i].want);
    }
    static const double hard[] = {DBL_MIN, DBL_MAX,   DBL_EPSILON,
                                  5e-324,  0.1 + 0.2, 9007199254740993.0};
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) {
        str_clear(&str);
        str_json_f64(&str, hard[i]);
        CHECK(strtod(str.text, NULL) == hard[i]);
    }
    str_clear(&str);
    str_json_f32(&str, 0.1f);
    CHECK_STR(str.text, "0.1");
    static const float hard32[] = {FLT_MIN, FLT_MAX, 1.0f / 3, 16777217.0f, 1e-45f};
    for (size_t i = 0; i < sizeof hard32 / sizeof *hard32; i++) {
        str_clear(&str);
        str_json_f32(&str, hard32[i]);
        CHECK(strtof(str.text, NULL) == hard32[i]);
        CHECK(str.bytes <= 14);
    }
    str_clear(&str);
    str_json_f32(&str, -INFINITY);
    CHECK_STR(str.text, "null");
    str_fini(&str);
}

/* A word finds what it is a misspelling of, and nothing else. */
TEST(nearest_finds_misspellings)
{
    static const char *const choices[] = {"optimizer", "max_steps", "seed", "threads", "log_steps"};
    static const struct {
        const char *word, *want;
    } rows[] = {{"optimiser", "optimizer"},
                {"maxsteps", "max_steps"},
                {"sede", "seed"},
                {"SEED", "seed"},
                {"thread", "threads"},
                {"logs_step", "log_steps"},
                {"banana", NULL},
                {"x", NULL},
                {"", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *got = str_nearest(rows[i].word, choices, 5);
        if (rows[i].want == NULL) {
            CHECK(got == NULL);
        } else {
            CHECK_STR(got, rows[i].want);
        }
    }
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    CHECK(str_nearest(longest, choices, 5) == NULL);
    const char *const long_choices[] = {longest};
    CHECK(str_nearest("aaa", long_choices, 1) == NULL);
    CHECK(str_nearest("seed", choices, 0) == NULL);
}

/* Counts and bytes as people read them. */
TEST(counts_and_bytes_are_readable)
{
    char buffer[32];
    CHECK_STR(str_count(0, buffer), "0");
    CHECK_STR(str_count(999, buffer), "999");
    CHECK_STR(str_count(1000, buffer), "1,000");
    CHECK_STR(str_count(1234567, buffer), "1,234,567");
    CHECK_STR(str_count(UINT64_MAX, buffer), "18,446,744,073,709,551,615");
    CHECK_STR(str_bytes(0, buffer), "0 bytes");
    CHECK_STR(str_bytes(1023, buffer), "1023 bytes");
    CHECK_STR(str_bytes(1536, buffer), "1.5 KiB");
    CHECK_STR(str_bytes(1048575, buffer), "1.0 MiB");
    CHECK_STR(str_bytes((uint64_t)3 << 30, buffer), "3.0 GiB");
    CHECK_STR(str_bytes(UINT64_MAX, buffer), "16.0 EiB");
}

/* After a failed allocation the string says so, keeps what fit, and takes no more. */
TEST(failed_allocation_sticks)
{
    for (uint64_t nth = 1;; nth++) {
        struct str str = {0};
        mem_fail_nth(nth);
        for (int i = 0; i < 200; i++) str_json_u64(&str, (uint64_t)i);
        const bool failed = mem_fail_nth(0);
        CHECK(str.failed == failed);
        const size_t bytes = str.bytes;
        str_add(&str, "more");
        CHECK_INT(str.bytes, failed ? bytes : bytes + 4);
        str_fini(&str);
        if (!failed) break;
    }
}
