/* ps_route says which ps has a key: table -> shard (by the store's rule) -> ps (cluster_place over the
 * bytes of all shards). Worked out from the tables and the number of ps alone, so that every task gets
 * the same. Read only after create. */
#ifndef SHOAL_PS_ROUTE_H
#define SHOAL_PS_ROUTE_H

#include <stdint.h>

#include "base/err.h"
#include "store/store.h"

struct ps_route;

/* Embedding tables only: SHOAL_EINVAL for a dense one. */
int ps_route_create(const struct store_table_opts *tables, uint32_t tables_count, uint32_t ps_count,
                    struct ps_route **route_out, struct err *err);
void ps_route_destroy(struct ps_route *route); /* NULL is a no-op. */

uint32_t ps_route_shard(const struct ps_route *route, uint32_t table, uint64_t key);
uint32_t ps_route_ps(const struct ps_route *route, uint32_t table, uint64_t key);
uint32_t ps_route_ps_count(const struct ps_route *route);
uint32_t ps_route_tables_count(const struct ps_route *route);

#endif
