/* A test program is a list of TESTs; each runs in a process of its own with a deadline and an empty
 * temporary folder as its working directory, so that none can hang or disturb another.
 *
 *     TEST(pull_of_absent_key_answers_initial_value) { ... CHECK_INT(got, want); ... }
 *
 * Run with names as arguments to run only tests whose name contains one of them. */
#ifndef SHOAL_TEST_H
#define SHOAL_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TEST(name)                                                                                 \
    static void test_##name(void);                                                                 \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        test_register(#name, test_##name);                                                         \
    }                                                                                              \
    static void test_##name(void)

void test_register(const char *name, void (*run)(void));

/* Ends the test as failed, with where and why. */
_Noreturn void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A path under the repository's tests/ folder, from SHOAL_TESTS (set by tests/run); golden/... is in
 * the folder GOLDEN where that is set, and a test that fails names the golden files it asked for.
 * Valid until eight calls later. */
const char *test_path(const char *relative);

#define CHECK(expression)                                                                          \
    ((expression) ? (void)0 : test_fail(__FILE__, __LINE__, "%s", #expression))

/* For calls that return 0 or an error and fill `err`. */
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        const int check_rc = (call);                                                               \
        if (check_rc != 0) test_fail(__FILE__, __LINE__, "%s: %d: %s", #call, check_rc, err.text); \
    } while (0)

#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        const long long check_got = (long long)(got);                                              \
        const long long check_want = (long long)(want);                                            \
        if (check_got != check_want)                                                               \
            test_fail(__FILE__, __LINE__, "%s: got %lld, want %lld", #got, check_got, check_want); \
    } while (0)

#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *check_got = (got);                                                             \
        const char *check_want = (want);                                                           \
        if (check_got == NULL || strcmp(check_got, check_want) != 0)                               \
            test_fail(__FILE__, __LINE__, "%s: got \"%s\", want \"%s\"", #got,                     \
                      check_got == NULL ? "(null)" : check_got, check_want);                       \
    } while (0)

/* The haystack contains the needle. */
#define CHECK_HAS(got, want)                                                                       \
    do {                                                                                           \
        const char *check_got = (got);                                                             \
        const char *check_want = (want);                                                           \
        if (strstr(check_got, check_want) == NULL)                                                 \
            test_fail(__FILE__, __LINE__, "%s: \"%s\" is not in \"%s\"", #got, check_want,         \
                      check_got);                                                                  \
    } while (0)

#define CHECK_NEAR(got, want, tolerance)                                                           \
    do {                                                                                           \
        const double check_got = (double)(got);                                                    \
        const double check_want = (double)(want);                                                  \
        if (!(fabs(check_got - check_want) <= (double)(tolerance)))                                \
            test_fail(__FILE__, __LINE__, "%s: got %.9g, want %.9g within %g", #got, check_got,    \
                      check_want, (double)(tolerance));                                            \
    } while (0)

#endif
