/* Read before every file that `make lint` analyses: what the analyzer cannot see across files. */
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/err.h"
#include "base/mem.h"

/* What sets an error returns it: a negative code, never 0. */
static inline int lint_failed(int rc)
{
    if (rc >= 0) __builtin_unreachable();
    return rc;
}

#define err_set(...) lint_failed((err_set)(__VA_ARGS__))
#define err_set_errno(...) lint_failed((err_set_errno)(__VA_ARGS__))
#define err_wrap(...) lint_failed((err_wrap)(__VA_ARGS__))
#define config_error(...) lint_failed((config_error)(__VA_ARGS__))

/* Memory comes zeroed, and may be NULL. */
#define mem_alloc(tag, bytes) ((void)(tag), calloc(1, (bytes)))
#define mem_alloc_array(tag, count, size) ((void)(tag), calloc((count), (size)))
#define mem_strdup(tag, text) ((void)(tag), strdup(text))
#define mem_strndup(tag, text, bytes) ((void)(tag), strndup((text), (bytes)))
