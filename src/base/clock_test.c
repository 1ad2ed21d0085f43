#include "base/clock.h"

#include <time.h>

#include "../tests/test.h"

/* The monotonic clock never runs back and counts nanoseconds. */
TEST(monotonic_clock_goes_forward)
{
    const uint64_t start = clock_now_ns();
    uint64_t last = start;
    while (last - start < 2000000) {
        const uint64_t now = clock_now_ns();
        CHECK(now >= last);
        last = now;
    }
}

TEST(wall_clock_is_the_wall_clock)
{
    CHECK_NEAR(clock_now_secs(), (double)time(NULL), 2);
}
