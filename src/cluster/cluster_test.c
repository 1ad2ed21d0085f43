#include "cluster/cluster.h"

#include "base/mem.h"
#include "../tests/test.h"

/* Three ps hold a third each of shards of mixed size. */
TEST(shares_are_even)
{
    uint64_t bytes[48];
    uint32_t ps[48];
    uint64_t held[3] = {0};
    uint64_t total = 0;
    for (uint32_t i = 0; i < 48; i++) total += bytes[i] = i < 16 ? 1000 : i < 32 ? 640 : 7 * i;
    CHECK_INT(cluster_place(bytes, 48, 3, ps), 0);
    for (uint32_t i = 0; i < 48; i++) held[ps[i]] += bytes[i];
    for (uint32_t i = 0; i < 3; i++) CHECK_NEAR((double)held[i] / (double)total, 1.0 / 3, 0.02);
}

TEST(placing_survives_lack_of_memory)
{
    const uint64_t bytes[] = {1, 2};
    uint32_t ps[2];
    for (uint64_t nth = 1;; nth++) {
        mem_fail_nth(nth);
        const int rc = cluster_place(bytes, 2, 2, ps);
        if (!mem_fail_nth(0)) break;
        CHECK(rc != 0);
    }
    CHECK_INT(mem_bytes(MEM_CLUSTER), 0);
}

TEST(tasks_have_names)
{
    const struct cluster cluster = {.ps_count = 2, .workers_count = 3};
    char name[CLUSTER_NAME_MAX];
    CHECK_INT(cluster_tasks(&cluster), 6);
    CHECK_STR(cluster_task_name(&cluster, CLUSTER_CHIEF, name), "chief");
    CHECK_STR(cluster_task_name(&cluster, cluster_ps(1), name), "ps/1");
    CHECK_STR(cluster_task_name(&cluster, cluster_worker(&cluster, 2), name), "worker/2");
}
