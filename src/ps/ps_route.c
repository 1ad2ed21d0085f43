#include "ps/ps_route.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cluster/cluster.h"

struct route_table {
    enum store_kind kind;
    uint32_t shards;
    uint32_t shard_bits;
    uint32_t first; /* of its shards in owners */
};

struct ps_route {
    uint32_t tables_count;
    uint32_t ps_count;
    struct route_table *tables;
    uint32_t *owners; /* ps by shard */
};

static int place(struct ps_route *route, const struct store_table_opts *tables, uint32_t shards)
{
    uint64_t *bytes = mem_alloc_array(MEM_CLUSTER, shards, sizeof *bytes);
    route->owners = mem_alloc_array(MEM_CLUSTER, shards, sizeof *route->owners);
    int rc = bytes == NULL || route->owners == NULL ? SHOAL_ENOMEM : 0;
    for (uint32_t i = 0; rc == 0 && i < route->tables_count; i++) {
        const struct route_table *table = &route->tables[i];
        const struct store_bytes all = store_bytes_plan(&tables[i], tables[i].rows);
        const uint64_t each = (all.values + all.slots + all.index) / table->shards;
        for (uint32_t shard = 0; shard < table->shards; shard++) bytes[table->first + shard] = each;
    }
    if (rc == 0) rc = cluster_place(bytes, shards, route->ps_count, route->owners);
    mem_free(bytes);
    return rc;
}

int ps_route_create(const struct store_table_opts *tables, uint32_t tables_count, uint32_t ps_count,
                    struct ps_route **route_out, struct err *err)
{
    struct ps_route *route = mem_alloc(MEM_CLUSTER, sizeof *route);
    uint32_t shards = 0;
    int rc = SHOAL_ENOMEM;
    if (route == NULL) goto out;
    route->tables_count = tables_count;
    route->ps_count = ps_count;
    route->tables = mem_alloc_array(MEM_CLUSTER, tables_count, sizeof *route->tables);
    if (route->tables == NULL) goto out;
    for (uint32_t i = 0; i < tables_count; i++) {
        struct route_table *table = &route->tables[i];
        if (tables[i].kind == STORE_DENSE) {
            rc = err_set(err, SHOAL_EINVAL, "table %s: dense tables have no keys", tables[i].name);
            goto out_told;
        }
        table->kind = tables[i].kind;
        table->shards = tables[i].shards != 0 ? tables[i].shards : store_shards_rule(&tables[i]);
        table->first = shards;
        while (1u << table->shard_bits < table->shards) table->shard_bits++;
        ASSERT(1u << table->shard_bits == table->shards);
        shards += table->shards;
    }
    rc = place(route, tables, shards);
    if (rc != 0) goto out;
    *route_out = route;
    return 0;
out:
    err_set(err, rc, "no memory to place %u tables", tables_count);
out_told:
    ps_route_destroy(route);
    return rc;
}

void ps_route_destroy(struct ps_route *route)
{
    if (route == NULL) return;
    mem_free(route->tables);
    mem_free(route->owners);
    mem_free(route);
}

/* The rule is the store's: see store.h. */
uint32_t ps_route_shard(const struct ps_route *route, uint32_t table, uint64_t key)
{
    ASSERT(table < route->tables_count);
    const struct route_table *it = &route->tables[table];
    if (it->kind == STORE_FIXED) return (uint32_t)(key & (it->shards - 1));
    return it->shard_bits == 0 ? 0 : (uint32_t)(hash_mix64(key) >> (64 - it->shard_bits));
}

uint32_t ps_route_ps(const struct ps_route *route, uint32_t table, uint64_t key)
{
    return route->owners[route->tables[table].first + ps_route_shard(route, table, key)];
}

uint32_t ps_route_ps_count(const struct ps_route *route)
{
    return route->ps_count;
}

uint32_t ps_route_tables_count(const struct ps_route *route)
{
    return route->tables_count;
}
