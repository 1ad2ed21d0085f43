/* cluster numbers the tasks of a job: 0 is the chief, then the ps, then the workers. Worker 0 lives in
 * the chief's process, but is a task of its own. */
#ifndef SHOAL_CLUSTER_H
#define SHOAL_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cluster {
    uint32_t ps_count;
    uint32_t workers_count;
};

#define CLUSTER_CHIEF 0u
#define CLUSTER_NAME_MAX 24u

static inline uint32_t cluster_tasks(const struct cluster *cluster)
{
    return 1 + cluster->ps_count + cluster->workers_count;
}

static inline uint32_t cluster_ps(uint32_t index)
{
    return 1 + index;
}

static inline uint32_t cluster_worker(const struct cluster *cluster, uint32_t index)
{
    return 1 + cluster->ps_count + index;
}

static inline bool cluster_is_ps(const struct cluster *cluster, uint32_t task)
{
    return task >= 1 && task <= cluster->ps_count;
}

static inline bool cluster_is_worker(const struct cluster *cluster, uint32_t task)
{
    return task > cluster->ps_count && task < cluster_tasks(cluster);
}

/* "chief", "ps/1", "worker/0" into the buffer, which is returned. */
const char *cluster_task_name(const struct cluster *cluster, uint32_t task,
                              char buffer[CLUSTER_NAME_MAX]);

/* Why somebody waits. */
#define WAIT_LIST(X)                                                                               \
    X(NONE, "nothing")                                                                             \
    X(JOIN, "it to join")                                                                          \
    X(LOAD, "it to load the checkpoint")                                                           \
    X(LEASE, "a lease: all are out")                                                               \
    X(SLOWEST, "the slowest worker")                                                               \
    X(GRADIENT, "its gradient of this step")                                                       \
    X(COMMIT, "it to commit the step")                                                             \
    X(CUT, "it to mark the cut of a checkpoint")                                                   \
    X(SAVE, "it to write its part of a checkpoint")                                                \
    X(END, "it to end")                                                                            \
    X(WORK, "work")                                                                                \
    X(ROWS, "rows")                                                                                \
    X(PUSHED, "a push to be answered")

enum wait_why {
#define X(name, text) WAIT_##name,
    WAIT_LIST(X)
#undef X
        WAIT_WHY_COUNT
};
const char *wait_why_text(enum wait_why why);

/* `who` waits for `whom`, for `why`, since then. */
struct wait {
    uint32_t who;
    uint32_t whom;
    enum wait_why why;
    uint64_t since_ns;
};

/* Which ps has which shard: the heaviest shard first to the ps that has least (then fewest shards,
 * then the lowest index). Depends on its arguments alone, so that every task works out the same.
 * bytes[i] is the weight of shard i; ps_out[i] < ps_count. SHOAL_ENOMEM is the only error. */
int cluster_place(const uint64_t *bytes, uint32_t shards_count, uint32_t ps_count,
                  uint32_t *ps_out);

#endif
