/* Read before every file that `make lint` analyses: what the analyzer cannot see across files. */
#include "base/err.h"

/* An error that is set is returned: the code, never 0. */
#define err_set(err, code, ...) ((err_set)((err), (code), __VA_ARGS__), (int)(code))
