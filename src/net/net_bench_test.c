#include "net/net_bench.h"

#include "../tests/test.h"

static struct err err;

/* Every carrier gives figures for small and large bodies; over shared memory the kernel is hardly
 * asked for bulk. */
TEST(every_carrier_is_measured)
{
    for (int carrier = NET_BENCH_TCP; carrier <= NET_BENCH_SHM; carrier++) {
        struct net_bench_opts opts = {
            .carrier = (enum net_bench_carrier)carrier, .bytes = 8, .repeats = 1};
        struct net_bench_result result;
        CHECK_OK(net_bench_round_trip(&opts, &result, &err));
        CHECK(result.median > 0 && result.median < 100000);
        printf("%s round trip of 8 bytes: %.1f us\n",
               net_bench_carrier_name((enum net_bench_carrier)carrier), result.median);
        opts.bytes = 1 << 20;
        CHECK_OK(net_bench_bandwidth(&opts, &result, &err));
        CHECK(result.median > 1e6);
        printf("%s bandwidth of 1 MiB: %.2f GB/s, %.2f waits in the kernel a frame\n",
               net_bench_carrier_name((enum net_bench_carrier)carrier), result.median / 1e9,
               result.kernel_waits_per_frame);
    }
}

TEST(sizes_out_of_bounds_are_refused)
{
    struct net_bench_result result;
    struct net_bench_opts opts = {.repeats = NET_BENCH_REPEATS_MAX + 1};
    CHECK_INT(net_bench_round_trip(&opts, &result, &err), SHOAL_EINVAL);
}
