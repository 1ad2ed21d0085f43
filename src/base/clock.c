#include "base/clock.h"

#include <time.h>

#include "base/assert.h"

uint64_t clock_now_ns(void)
{
    struct timespec now;
    const int rc = clock_gettime(CLOCK_MONOTONIC, &now);
    ASSERT(rc == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double clock_now_secs(void)
{
    struct timespec now;
    const int rc = clock_gettime(CLOCK_REALTIME, &now);
    ASSERT(rc == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
