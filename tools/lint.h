/* Read before every file that `make lint` analyses: what the analyzer cannot see across files.
 * What sets an error returns it: a negative code, never 0. */
#include "base/config.h"
#include "base/err.h"

static inline int lint_failed(int rc)
{
    if (rc >= 0) __builtin_unreachable();
    return rc;
}

#define err_set(...) lint_failed((err_set)(__VA_ARGS__))
#define err_set_errno(...) lint_failed((err_set_errno)(__VA_ARGS__))
#define err_wrap(...) lint_failed((err_wrap)(__VA_ARGS__))
#define config_error(...) lint_failed((config_error)(__VA_ARGS__))
