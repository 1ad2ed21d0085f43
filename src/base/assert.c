#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void assert_fail(const char *expression, const char *file, int line)
{
    fprintf(stderr, "shoal: %s:%d: a bug in shoal: this must hold: %s\n", file, line, expression);
    fflush(stderr);
    abort();
}
