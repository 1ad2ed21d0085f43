#include "data/data_text.h"

#include <stdlib.h>

#include "../tests/test.h"

TEST(integers_are_written_as_c_would)
{
    const int64_t numbers[] = {0, 1, -1, 9, 10, 12345, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char got[24] = {0}, want[24];
        got[data_text_of_i64(numbers[i], got)] = '\0';
        snprintf(want, sizeof want, "%lld", (long long)numbers[i]);
        CHECK_STR(got, want);
    }
}

/* Every number is the double that strtod gives, quick way or slow. */
TEST(numbers_are_read_exactly)
{
    const char *const texts[] = {"0",
                                 "1",
                                 "-1.5",
                                 "0.1",
                                 "123456789012345678",
                                 "1e10",
                                 "-2.5e-3",
                                 "1E+2",
                                 ".5",
                                 "5.",
                                 "9007199254740993",
                                 "0.30000000000000004",
                                 "1e-320",
                                 "3.4028235e38",
                                 "+7"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double got = 0;
        if (!data_text_to_f64(texts[i], strlen(texts[i]), &got)) {
            test_fail(__FILE__, __LINE__, "%s is not read", texts[i]);
        }
        CHECK(got == strtod(texts[i], NULL));
    }
    double got = 0;
    CHECK(data_text_to_f64(" 2 \r", 4, &got));
    CHECK(got == 2);
}

TEST(what_is_no_number_is_refused)
{
    const char *const texts[] = {"", " ", "-", "1x", "x1", "1 2", "1.2.3", "e5", "0x", "--1", "."};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double number = 0;
        int64_t integer = 0;
        if (data_text_to_f64(texts[i], strlen(texts[i]), &number) ||
            data_text_to_i64(texts[i], strlen(texts[i]), &integer)) {
            test_fail(__FILE__, __LINE__, "\"%s\" is read as a number", texts[i]);
        }
    }
}

TEST(integers_are_read_up_to_their_limits)
{
    int64_t got = 0;
    CHECK(data_text_to_i64("9223372036854775807", 19, &got));
    CHECK(got == INT64_MAX);
    CHECK(data_text_to_i64("-9223372036854775808", 20, &got));
    CHECK(got == INT64_MIN);
    CHECK(!data_text_to_i64("9223372036854775808", 19, &got));
    CHECK(!data_text_to_i64("-9223372036854775809", 20, &got));
    CHECK(!data_text_to_i64("99999999999999999999", 20, &got));
    CHECK(!data_text_to_i64("7.0", 3, &got));
}
