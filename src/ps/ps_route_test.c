#include "ps/ps_route.h"

#include "base/mem.h"
#include "../tests/test.h"

static const struct store_table_opts tables[] = {
    {.name = "item", .kind = STORE_DYNAMIC, .rows = 1000, .cols = 16, .shards = 16},
    {.name = "user", .kind = STORE_FIXED, .rows = 3000, .cols = 4, .shards = 4},
};

/* Every key has one ps, and the keys of a table with many shards spread evenly. */
TEST(keys_spread_over_the_ps)
{
    struct err err = {0};
    struct ps_route *route = NULL;
    uint32_t held[3] = {0};
    CHECK_OK(ps_route_create(tables, 2, 3, &route, &err));
    CHECK_INT(ps_route_tables_count(route), 2);
    CHECK_INT(ps_route_ps_count(route), 3);
    for (uint64_t key = 0; key < 3000; key++) {
        CHECK(ps_route_shard(route, 0, key) < 16);
        CHECK_INT(ps_route_shard(route, 1, key), key % 4);
        held[ps_route_ps(route, 0, key)]++;
    }
    for (uint32_t ps = 0; ps < 3; ps++) CHECK_NEAR(held[ps] / 3000.0, 1.0 / 3, 0.08);
    ps_route_destroy(route);
}

TEST(dense_tables_are_refused)
{
    struct err err = {0};
    struct ps_route *route = NULL;
    const struct store_table_opts dense = {.name = "w", .kind = STORE_DENSE, .rows = 2, .cols = 2};
    CHECK_INT(ps_route_create(&dense, 1, 1, &route, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "table w");
}

TEST(creating_survives_lack_of_memory)
{
    for (uint64_t nth = 1;; nth++) {
        struct err err = {0};
        struct ps_route *route = NULL;
        mem_fail_nth(nth);
        const int rc = ps_route_create(tables, 2, 3, &route, &err);
        const bool has_failed = mem_fail_nth(0);
        if (rc == 0) ps_route_destroy(route);
        CHECK_INT(mem_bytes(MEM_CLUSTER), 0);
        if (!has_failed) break;
        CHECK_INT(rc, SHOAL_ENOMEM);
    }
}
