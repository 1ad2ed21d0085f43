/* The processes and what they run: the real machines over an env of ours, and the toy model.
 *
 * Example x has a row of its own in table "item" and shares one of 16 rows of table "user". Its gradient
 * is -unit in both, with learning rate 1: an item's value counts how often it was trained on. In sync
 * the unit is 840, which all sums of up to 8 examples divide: averages are whole numbers too. */
#include <string.h>

#include "base/assert.h"
#include "sim/sim_own.h"

enum { HEARTBEAT_MS = 40, RETRY_MS = 15, DEADLINE_MS = 250 };

float sim_unit(const struct sim_plan *plan)
{
    return plan->discipline == CHIEF_SYNC ? 840.0f : 1.0f;
}

uint32_t sim_slots(const struct sim_plan *plan)
{
    const uint32_t workers = plan->cluster.workers_count;
    return plan->replicas > workers ? plan->replicas : workers;
}

bool sim_lease(void *ctx, uint64_t lease, struct chief_span *span_out)
{
    const struct sim_plan *plan = &((struct sim *)ctx)->plan;
    const uint64_t leases = (plan->examples - 1) / plan->lease_examples + 1;
    if (lease >= leases * plan->passes) return false;
    span_out->first = lease % leases * plan->lease_examples;
    const uint64_t left = plan->examples - span_out->first;
    span_out->examples = left < plan->lease_examples ? left : plan->lease_examples;
    return true;
}

/* Now and then a worker is out of data: weight 0. */
struct chief_span sim_batch(void *ctx, uint64_t step, uint32_t slot)
{
    const struct sim_plan *plan = &((struct sim *)ctx)->plan;
    const uint64_t number = step * sim_slots(plan) + slot;
    if (number % 11 == 10) return (struct chief_span){0};
    const uint64_t first = number * plan->batch_size % plan->examples;
    const uint64_t left = plan->examples - first;
    return (struct chief_span){first, left < plan->batch_size ? left : plan->batch_size};
}

/* ---- The toy model ---- */

static int toy_input(void *ctx, const struct msg_work *work, struct ps_batch *batch_out,
                     struct err *err)
{
    (void)err;
    struct sim_task *task = ctx;
    struct sim_toy *toy = &task->toy;
    const float unit = sim_unit(&task->sim->plan);
    uint32_t users = 0;
    ASSERT(work->count <= SIM_BATCH_MAX);
    toy->work = *work;
    for (uint32_t i = 0; i < work->count; i++) {
        const uint64_t example = work->first + i;
        const uint64_t user = example % SIM_USERS;
        toy->items[i] = example;
        toy->item_gradients[2 * i] = -unit;
        toy->item_gradients[2 * i + 1] = -unit * (float)(example % 7);
        uint32_t at = 0;
        while (at < users && toy->users[at] != user) at++;
        if (at == users) {
            toy->users[users] = user;
            toy->user_gradients[users++] = 0;
        }
        toy->user_gradients[at] -= unit;
    }
    toy->tables[0] = (struct ps_batch_table){
        0, (uint32_t)work->count, 2, toy->items, toy->item_rows, toy->item_gradients};
    toy->tables[1] =
        (struct ps_batch_table){1, users, 1, toy->users, toy->user_rows, toy->user_gradients};
    *batch_out = (struct ps_batch){SIM_TABLES, toy->tables};
    return 0;
}

static void toy_compute(void *ctx, const struct msg_work *work, uint64_t request)
{
    struct sim_task *task = ctx;
    struct sim *sim = task->sim;
    (void)work;
    for (uint32_t i = 0; i < task->toy.tables[0].count; i++) {
        if (task->toy.item_rows[2 * i + 1] ==
            task->toy.item_rows[2 * i] * (float)(task->toy.items[i] % 7)) {
            continue;
        }
        sim_fail(sim, "row of example %llu was pulled torn",
                 (unsigned long long)task->toy.items[i]);
    }
    const uint64_t slow = sim_chance(sim, 50) ? 40 : 1; /* a straggler now and then */
    sim_queue(sim,
              (struct sim_event){.at_ns = sim->now_ns + sim_between(sim, 200, 4000) * 1000 * slow,
                                 .kind = SIM_COMPUTED,
                                 .task = task->task,
                                 .generation = sim->nodes[task->node].generation,
                                 .number = request});
}

/* ---- The env ---- */

static uint64_t env_now(void *ctx)
{
    return ((struct sim_task *)ctx)->sim->now_ns;
}

static uint64_t env_random(void *ctx)
{
    return sim_random(((struct sim_task *)ctx)->sim);
}

static void env_send(void *ctx, const struct msg *msg)
{
    sim_send(((struct sim_task *)ctx)->sim, msg);
}

static void env_wake(void *ctx, uint64_t at_ns)
{
    struct sim_task *task = ctx;
    task->wake_ns = at_ns;
    sim_queue(task->sim, (struct sim_event){.at_ns = at_ns,
                                            .kind = SIM_WAKE,
                                            .task = task->task,
                                            .generation = task->sim->nodes[task->node].generation});
}

static void env_log(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

static struct env make_env(struct sim_task *task)
{
    return (struct env){.ctx = task,
                        .now_ns = env_now,
                        .random = env_random,
                        .send = env_send,
                        .wake = env_wake,
                        .journal_append = sim_journal_append,
                        .journal_read = sim_journal_read,
                        .journal_cut = sim_journal_cut,
                        .log = env_log,
                        .rules_off = task->sim->opts.rules_off};
}

/* ---- Processes ---- */

static int start_chief(struct sim *sim, struct sim_task *task, struct err *err)
{
    const struct sim_plan *plan = &sim->plan;
    const struct chief_opts opts = {.env = make_env(task),
                                    .cluster = plan->cluster,
                                    .incarnation = sim->now_ns + 1,
                                    .discipline = plan->discipline,
                                    .staleness = plan->staleness,
                                    .sync_replicas = plan->replicas,
                                    .batch_size = plan->batch_size,
                                    .steps_max = plan->steps_max,
                                    .checkpoint_steps = plan->checkpoint_steps,
                                    .heartbeat_ns = RETRY_MS * SIM_MS,
                                    .deadline_ns = DEADLINE_MS * SIM_MS,
                                    .lease = sim_lease,
                                    .batch = sim_batch,
                                    .ctx = sim};
    return chief_create(&opts, &task->chief, err);
}

static int start_task(struct sim *sim, struct sim_task *task, struct err *err)
{
    const struct cluster *cluster = &sim->plan.cluster;
    if (task->task == CLUSTER_CHIEF) return start_chief(sim, task, err);
    if (cluster_is_ps(cluster, task->task)) {
        const struct ps_server_opts opts = {.env = make_env(task),
                                            .index = task->task - cluster_ps(0),
                                            .incarnation = sim->now_ns + 1,
                                            .heartbeat_ns = HEARTBEAT_MS * SIM_MS,
                                            .load = sim_load,
                                            .save = sim_save,
                                            .ctx = task};
        return ps_server_create(&opts, &task->server, err);
    }
    const struct ps_worker_opts opts = {.env = make_env(task),
                                        .cluster = *cluster,
                                        .index = task->task - cluster_worker(cluster, 0),
                                        .incarnation = sim->now_ns + 1,
                                        .heartbeat_ns = HEARTBEAT_MS * SIM_MS,
                                        .retry_ns = RETRY_MS * SIM_MS,
                                        .route = sim->route,
                                        .input = toy_input,
                                        .compute = toy_compute,
                                        .ctx = task};
    return ps_worker_create(&opts, &task->worker, err);
}

void sim_node_start(struct sim *sim, uint32_t node)
{
    struct err err = {0};
    sim->nodes[node].is_up = true;
    for (uint32_t i = 0; i < cluster_tasks(&sim->plan.cluster); i++) {
        struct sim_task *task = &sim->tasks[i];
        if (task->node != node) continue;
        const int rc = start_task(sim, task, &err);
        if (rc == SHOAL_ENOMEM) sim->failure = rc;
        if (rc != 0) sim_fail(sim, "task %u does not start: %s", i, err.text);
    }
}

static void count_server(struct sim *sim, const struct ps_server *server)
{
    const struct ps_server_stats *stats = ps_server_stats(server);
    sim->result.pushes_applied += stats->applied;
    sim->result.pushes_repeated += stats->repeated;
    sim->result.pushes_stale += stats->stale;
    sim->result.gradients_dropped += stats->dropped;
    sim->result.staleness_mean += (double)stats->staleness_sum;
    if (stats->staleness_max > sim->result.staleness_max) {
        sim->result.staleness_max = stats->staleness_max;
    }
}

/* Also how a process ends well. */
void sim_node_crash(struct sim *sim, uint32_t node)
{
    for (uint32_t i = 0; i < cluster_tasks(&sim->plan.cluster); i++) {
        struct sim_task *task = &sim->tasks[i];
        if (task->node != node) continue;
        if (task->chief != NULL) {
            sim->result.rolled_back_steps += chief_status(task->chief).rolled_back;
        }
        if (task->server != NULL) count_server(sim, task->server);
        chief_destroy(task->chief);
        ps_server_destroy(task->server);
        ps_worker_destroy(task->worker);
        task->chief = NULL;
        task->server = NULL;
        task->worker = NULL;
    }
    sim->nodes[node].is_up = false;
    sim->nodes[node].generation++;
    sim_disk_crash(sim, node);
}

void sim_task_receive(struct sim_task *task, const struct msg *msg)
{
    if (task->chief != NULL) chief_receive(task->chief, msg);
    if (task->server != NULL) ps_server_receive(task->server, msg);
    if (task->worker != NULL) ps_worker_receive(task->worker, msg);
}

void sim_task_tick(struct sim_task *task)
{
    if (task->chief != NULL) chief_tick(task->chief);
    if (task->server != NULL) ps_server_tick(task->server);
    if (task->worker != NULL) ps_worker_tick(task->worker);
}

/* The chief's process ends with the chief; the others when they have heard that the job is over. */
void sim_node_look(struct sim *sim, uint32_t node)
{
    bool has_ended = true;
    for (uint32_t i = 0; i < cluster_tasks(&sim->plan.cluster); i++) {
        const struct sim_task *task = &sim->tasks[i];
        if (task->node != node) continue;
        if (task->chief != NULL && !chief_status(task->chief).has_ended) has_ended = false;
        if (task->server != NULL && !ps_server_has_ended(task->server)) has_ended = false;
        if (task->worker != NULL && !ps_worker_has_ended(task->worker)) {
            has_ended = has_ended && task->node == sim->tasks[CLUSTER_CHIEF].node;
        }
    }
    if (!has_ended) return;
    if (node == sim->tasks[CLUSTER_CHIEF].node) sim_check_end(sim);
    sim->nodes[node].has_ended = true;
    sim_node_crash(sim, node);
}
