#include "cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/mem.h"

const char *cluster_task_name(const struct cluster *cluster, uint32_t task,
                              char buffer[CLUSTER_NAME_MAX])
{
    if (cluster_is_ps(cluster, task)) {
        snprintf(buffer, CLUSTER_NAME_MAX, "ps/%u", task - 1);
    } else if (cluster_is_worker(cluster, task)) {
        snprintf(buffer, CLUSTER_NAME_MAX, "worker/%u", task - 1 - cluster->ps_count);
    } else {
        snprintf(buffer, CLUSTER_NAME_MAX, "chief");
    }
    return buffer;
}

const char *wait_why_text(enum wait_why why)
{
    static const char *const texts[] = {
#define X(name, text) text,
        WAIT_LIST(X)
#undef X
    };
    ASSERT(why < WAIT_WHY_COUNT);
    return texts[why];
}

struct weight {
    uint64_t bytes;
    uint32_t shard;
};

static int heavier_first(const void *a, const void *b)
{
    const struct weight *x = a;
    const struct weight *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->shard < y->shard ? -1 : 1;
}

struct load {
    uint64_t bytes;
    uint32_t shards;
};

static bool is_lighter(const struct load *a, const struct load *b)
{
    return a->bytes < b->bytes || (a->bytes == b->bytes && a->shards < b->shards);
}

int cluster_place(const uint64_t *bytes, uint32_t shards_count, uint32_t ps_count, uint32_t *ps_out)
{
    ASSERT(ps_count > 0);
    struct weight *weights = mem_alloc_array(MEM_CLUSTER, shards_count, sizeof *weights);
    struct load *loads = mem_alloc_array(MEM_CLUSTER, ps_count, sizeof *loads);
    if (weights == NULL || loads == NULL) {
        mem_free(weights);
        mem_free(loads);
        return SHOAL_ENOMEM;
    }
    for (uint32_t i = 0; i < shards_count; i++) weights[i] = (struct weight){bytes[i], i};
    qsort(weights, shards_count, sizeof *weights, heavier_first);
    for (uint32_t i = 0; i < shards_count; i++) {
        uint32_t best = 0;
        for (uint32_t ps = 1; ps < ps_count; ps++) {
            if (is_lighter(&loads[ps], &loads[best])) best = ps;
        }
        loads[best].bytes += weights[i].bytes;
        loads[best].shards++;
        ps_out[weights[i].shard] = best;
    }
    mem_free(weights);
    mem_free(loads);
    return 0;
}
