#include "net/net_timer.h"

#include "../tests/test.h"
#include "base/rand.h"

static void never(struct net_timer *timer)
{
    (void)timer;
}

/* Whatever was set, moved and cleared, timers come out in the order of their times. */
TEST(timers_come_out_in_order)
{
    enum { COUNT = 500 };
    static struct net_timer timer[COUNT];
    struct net_timers timers = {0};
    size_t set = 0;
    for (uint64_t turn = 0; turn < 4000; turn++) {
        struct net_timer *one = &timer[rand_below(1, RAND_TEST, 0, turn, COUNT)];
        one->run = never;
        if (one->is_set && rand_below(1, RAND_TEST, 1, turn, 3) == 0) {
            net_timer_clear(&timers, one);
            set--;
        } else {
            if (!one->is_set) set++;
            net_timer_set(&timers, one, rand_below(1, RAND_TEST, 2, turn, 100));
        }
        CHECK(net_timers_ok(&timers));
    }
    CHECK(set > 100);
    uint64_t last = 0;
    for (uint64_t now = 0; now < 100; now++) {
        struct net_timer *one = NULL;
        while ((one = net_timers_pop(&timers, now)) != NULL) {
            CHECK_INT(one->due_ns, now);
            CHECK(!one->is_set && one->due_ns >= last);
            last = one->due_ns;
            set--;
            CHECK(net_timers_ok(&timers));
        }
        CHECK(net_timers_next_ns(&timers) > now);
    }
    CHECK_INT(set, 0);
    CHECK(timers.root == NULL);
}

TEST(none_is_due_before_its_time)
{
    struct net_timers timers = {0};
    struct net_timer timer = {.run = never};
    CHECK(net_timers_next_ns(&timers) == UINT64_MAX);
    net_timer_clear(&timers, &timer);
    net_timer_set(&timers, &timer, 10);
    CHECK(net_timers_pop(&timers, 9) == NULL);
    net_timer_set(&timers, &timer, 20);
    CHECK(net_timers_pop(&timers, 19) == NULL);
    CHECK(net_timers_pop(&timers, 20) == &timer);
    CHECK(net_timers_pop(&timers, UINT64_MAX) == NULL);
}
