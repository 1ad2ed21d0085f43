/* The checkers. They look at messages, at the stores and, at the end, at what the last checkpoint would
 * load: never at what the machines believe, except for the clocks of ssp. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "sim/sim_own.h"

typedef unsigned long long ull;

void sim_fail(struct sim *sim, const char *format, ...)
{
    va_list args;
    if (sim->check.is_failed) return;
    sim->check.is_failed = true;
    va_start(args, format);
    vsnprintf(sim->check.failure, sizeof sim->check.failure, format, args);
    va_end(args);
}

static float value_of(const struct store *store, uint32_t table, uint64_t key)
{
    float row[2] = {0};
    const struct store_pull pull = {.table = table, .count = 1, .keys = &key, .rows = row};
    const int rc = store_pull(store, &pull, NULL, NULL);
    ASSERT(rc == 0);
    return row[0];
}

/* ---- What should be ---- */

/* How often every example is to be trained on: leases in order, as long as there are steps. */
static void expect_leased(struct sim *sim, double *items, double *users)
{
    const struct sim_plan *plan = &sim->plan;
    uint64_t left = plan->steps_max;
    struct chief_span span;
    for (uint64_t lease = 0; left > 0 && sim_lease(sim, lease, &span); lease++) {
        for (uint64_t first = 0; left > 0 && first < span.examples; first += plan->batch_size) {
            left--;
            for (uint64_t i = first; i < first + plan->batch_size && i < span.examples; i++) {
                items[span.first + i] += 1;
                users[(span.first + i) % SIM_USERS] += 1;
            }
        }
    }
}

/* The named sets of the first `steps` steps. */
static void expect_steps(struct sim *sim, uint64_t steps, double *items, double *users)
{
    for (uint64_t step = 0; step < steps; step++) {
        uint64_t total = 0;
        const uint32_t count = sim->check.sets[step].count;
        for (uint32_t i = 0; i < count; i++) {
            total += sim_batch(sim, step, (uint32_t)sim->check.sets[step].slots[i]).examples;
        }
        for (uint32_t i = 0; i < count; i++) {
            const struct chief_span span =
                sim_batch(sim, step, (uint32_t)sim->check.sets[step].slots[i]);
            for (uint64_t x = span.first; x < span.first + span.examples; x++) {
                items[x] += 840.0 / (double)total;
                users[x % SIM_USERS] += 840.0 / (double)total;
            }
        }
    }
}

/* ---- Messages ---- */

static void check_set(struct sim *sim, const struct msg *msg)
{
    const uint64_t step = msg->commit.step;
    if (step >= SIM_STEPS_MAX || msg->list_count > SIM_TASKS_MAX) {
        sim_fail(sim, "step %llu of %u slots", (ull)step, msg->list_count);
        return;
    }
    const bool is_same =
        sim->check.sets[step].count == msg->list_count &&
        memcmp(sim->check.sets[step].slots, msg->list, msg->list_count * sizeof *msg->list) == 0;
    if (sim->check.sets[step].epoch == msg->epoch && !is_same) {
        sim_fail(sim, "step %llu: two sets were named", (ull)step);
    }
    sim->check.sets[step].epoch = msg->epoch;
    sim->check.sets[step].count = msg->list_count;
    memcpy(sim->check.sets[step].slots, msg->list, msg->list_count * sizeof *msg->list);
}

static void check_bound(struct sim *sim, uint32_t worker)
{
    const struct chief *chief = sim->tasks[CLUSTER_CHIEF].chief;
    uint64_t mine = 0;
    if (chief == NULL || !chief_clock(chief, worker, &mine)) return;
    for (uint32_t other = 0; other < sim->plan.cluster.workers_count; other++) {
        uint64_t clock = 0;
        if (!chief_clock(chief, other, &clock) || mine <= clock + sim->plan.staleness) continue;
        sim_fail(sim, "worker/%u is %llu batches ahead of worker/%u; %llu are allowed", worker,
                 (ull)(mine - clock), other, (ull)sim->plan.staleness);
    }
}

static void check_grant(struct sim *sim, const struct msg *msg)
{
    const uint64_t token = msg->work.token;
    if (msg->work.kind != MSG_WORK_BATCH) return;
    if (token >= SIM_TOKENS_MAX) {
        sim_fail(sim, "token %llu", (ull)token);
        return;
    }
    const uint64_t lease = msg->work.stream + 1;
    const uint64_t holder = msg->to;
    if (sim->check.holders[token].lease == 0) {
        sim->check.holders[token].lease = lease;
        sim->check.holders[token].incarnation = holder;
    } else if (sim->check.holders[token].lease != lease ||
               sim->check.holders[token].incarnation != holder) {
        sim_fail(sim, "token %llu was given twice", (ull)token);
    }
    if (sim->plan.discipline == CHIEF_SSP) {
        check_bound(sim, msg->to - cluster_worker(&sim->plan.cluster, 0));
    }
}

static void check_epoch(struct sim *sim, uint64_t epoch)
{
    if (epoch <= sim->check.epoch) return;
    sim->check.epoch = epoch;
    memset(sim->check.acked, 0, sizeof sim->check.acked);
    memset(sim->check.tokens_seen, 0, sizeof sim->check.tokens_seen);
    sim->check.leases_below = 0;
}

/* Rows of a push that a ps says it has are there, and no older token came after a newer one. */
static void check_push(struct sim *sim, const struct msg *push, uint64_t status)
{
    const struct sim_plan *plan = &sim->plan;
    const struct store *store = ps_server_store(sim->tasks[push->to].server);
    const uint64_t leases = (plan->examples - 1) / plan->lease_examples + 1;
    const uint64_t lease = push->push.stream;
    if (push->push.kind != MSG_WORK_BATCH || status > MSG_REPEATED || lease >= SIM_LEASES_MAX)
        return;
    uint32_t shards_before = 0;
    for (uint32_t table = 0; table < SIM_TABLES; table++) {
        for (uint32_t b = 0; b < push->blocks_count; b++) {
            const struct msg_block *block = &push->blocks[b];
            for (uint32_t i = 0; block->table == table && i < block->count; i++) {
                const uint64_t key = block->keys[i];
                uint64_t *seen =
                    &sim->check.tokens_seen[lease]
                                           [shards_before + ps_route_shard(sim->route, table, key)];
                if (push->push.token < *seen && lease >= sim->check.leases_below) {
                    sim_fail(sim, "lease %llu: token %llu was taken after %llu", (ull)lease,
                             (ull)push->push.token, (ull)*seen);
                }
                if (push->push.token > *seen) *seen = push->push.token;
                if (table == 0 && push->epoch == sim->check.epoch) {
                    sim->check.acked[lease / leases][key] = true;
                }
                if (table == 0 && value_of(store, 0, key) < 1) {
                    sim_fail(sim, "example %llu was acknowledged, not trained", (ull)key);
                }
            }
        }
        shards_before += store_table_info(store, table).shards;
    }
}

void sim_check_sent(struct sim *sim, const struct msg *msg)
{
    if (msg->from == CLUSTER_CHIEF) check_epoch(sim, msg->epoch);
    if (msg->type == MSG_WORLD && msg->world.leases_below > sim->check.leases_below) {
        sim->check.leases_below = msg->world.leases_below;
    }
    if (msg->type == MSG_COMMIT) check_set(sim, msg);
    if (msg->type == MSG_WORK) check_grant(sim, msg);
    if (msg->type == MSG_PUSHED && sim->handling != NULL && sim->handling->type == MSG_PUSH) {
        check_push(sim, sim->handling, msg->pushed.status);
    }
}

/* ---- Stores ---- */

void sim_check_rows(struct sim *sim)
{
    const struct sim_plan *plan = &sim->plan;
    if (plan->discipline == CHIEF_SYNC || sim->check.epoch == 0) return;
    for (uint64_t x = 0; x < plan->examples; x++) {
        const struct sim_task *task = &sim->tasks[cluster_ps(ps_route_ps(sim->route, 0, x))];
        if (task->server == NULL || ps_server_epoch(task->server) != sim->check.epoch) continue;
        uint64_t acked = 0;
        for (uint64_t pass = 0; pass < plan->passes; pass++) acked += sim->check.acked[pass][x];
        const double value = (double)value_of(ps_server_store(task->server), 0, x);
        if (value < (double)acked) {
            sim_fail(sim, "example %llu: %llu pushes were acknowledged, %g are there", (ull)x,
                     (ull)acked, value);
        }
        if (value > (double)plan->passes) {
            sim_fail(sim, "example %llu was trained %g times in %llu passes", (ull)x, value,
                     (ull)plan->passes);
        }
    }
}

void sim_check_end(struct sim *sim)
{
    double items[SIM_EXAMPLES_MAX] = {0};
    double users[SIM_USERS] = {0};
    struct store *stores[SIM_PS_MAX] = {NULL};
    const struct sim_plan *plan = &sim->plan;
    const struct chief_status status = chief_status(sim->tasks[CLUSTER_CHIEF].chief);
    sim->result.steps = status.steps;
    sim->result.examples = status.examples;
    sim->result.epochs = status.epoch;
    if (plan->discipline == CHIEF_SYNC) {
        expect_steps(sim, plan->steps_max, items, users);
    } else {
        expect_leased(sim, items, users);
    }
    for (uint32_t ps = 0; ps < plan->cluster.ps_count; ps++) {
        struct ps_state state = {0};
        struct err err = {0};
        if (sim_load_of(sim, ps, status.checkpoint, &stores[ps], &state, &err) != 0) {
            sim_fail(sim, "the last checkpoint does not load: %s", err.text);
            goto out;
        }
    }
    for (uint64_t x = 0; x < plan->examples; x++) {
        const double value = (double)value_of(stores[ps_route_ps(sim->route, 0, x)], 0, x);
        if (value != items[x]) {
            sim_fail(sim, "example %llu: %g trained, %g expected", (ull)x, value, items[x]);
        }
    }
    for (uint64_t user = 0; user < SIM_USERS; user++) {
        const double value = (double)value_of(stores[ps_route_ps(sim->route, 1, user)], 1, user);
        if (value != users[user]) {
            sim_fail(sim, "user %llu: %g trained, %g expected", (ull)user, value, users[user]);
        }
    }
out:
    for (uint32_t ps = 0; ps < plan->cluster.ps_count; ps++) store_destroy(stores[ps]);
}

void sim_check_hang(struct sim *sim)
{
    char who[CLUSTER_NAME_MAX] = "nobody";
    char whom[CLUSTER_NAME_MAX] = "nobody";
    struct wait waits[1] = {{.why = WAIT_NONE}};
    const struct chief *chief = sim->tasks[CLUSTER_CHIEF].chief;
    if (chief != NULL && chief_waits(chief, waits, 1) > 0) {
        cluster_task_name(&sim->plan.cluster, waits[0].who, who);
        cluster_task_name(&sim->plan.cluster, waits[0].whom, whom);
    }
    sim_fail(sim, "does not end: %s waits for %s, for %s", who, whom, wait_why_text(waits[0].why));
}
