/* ASSERT states what only a bug of ours could break and stays on in release builds. ASSERT_SLOW is
 * for O(n) checkers: on in debug, simulation and fuzz builds (-DSHOAL_SLOW_CHECKS). Neither is ever
 * used on bytes from outside. */
#ifndef SHOAL_BASE_ASSERT_H
#define SHOAL_BASE_ASSERT_H

#include <assert.h> /* static_assert, for those who include this header */

_Noreturn void assert_fail(const char *expression, const char *file, int line);

#define ASSERT(expression)                                                                         \
    (__builtin_expect(!!(expression), 1) ? (void)0 : assert_fail(#expression, __FILE__, __LINE__))

#ifdef SHOAL_SLOW_CHECKS
#define ASSERT_SLOW(expression) ASSERT(expression)
#else
#define ASSERT_SLOW(expression) ((void)sizeof(expression))
#endif

#endif
