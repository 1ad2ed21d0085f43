#include "sim/sim.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/rand.h"
#include "sim/sim_own.h"

#define END_NS (30000 * SIM_MS) /* whatever happens, all is over by then */

uint64_t sim_random(struct sim *sim)
{
    return rand_u64(sim->opts.seed, RAND_TEST, 0, sim->draws++);
}

uint64_t sim_below(struct sim *sim, uint64_t bound)
{
    return rand_below(sim->opts.seed, RAND_TEST, 1, sim->draws++, bound);
}

uint64_t sim_between(struct sim *sim, uint64_t first, uint64_t last)
{
    return first + sim_below(sim, last - first + 1);
}

bool sim_chance(struct sim *sim, uint32_t permille)
{
    return permille > 0 && sim_below(sim, 1000) < permille;
}

/* ---- The plan ---- */

static void make_plan(struct sim *sim)
{
    struct sim_plan *plan = &sim->plan;
    plan->cluster.ps_count = (uint32_t)sim_between(sim, 1, SIM_PS_MAX);
    plan->cluster.workers_count = (uint32_t)sim_between(sim, 1, SIM_WORKERS_MAX);
    plan->discipline = (enum chief_discipline)sim_below(sim, 3);
    plan->staleness = sim_below(sim, 4);
    plan->batch_size = (uint32_t)sim_between(sim, 1, 4);
    plan->examples = sim_between(sim, 20, 100);
    plan->passes = sim_between(sim, 1, 3);
    plan->lease_examples = sim_between(sim, 4, 16);
    plan->checkpoint_steps = sim_below(sim, 3) == 0 ? 0 : sim_between(sim, 3, 20);
    plan->steps_max = sim->opts.steps != 0   ? sim->opts.steps
                      : sim_chance(sim, 300) ? sim_between(sim, 10, 40)
                                             : SIM_STEPS_MAX;
    if (plan->discipline == CHIEF_SYNC) {
        plan->batch_size = (uint32_t)sim_between(sim, 1, 2);
        plan->replicas = (uint32_t)sim_between(sim, 1, 8 / plan->batch_size);
        if (sim->opts.steps == 0) plan->steps_max = sim_between(sim, 10, 40);
    } else if (sim->opts.steps != 0) {
        plan->batch_size = 1; /* enough examples for as many steps */
        plan->passes = (sim->opts.steps - 1) / plan->examples + 1;
    }
    if (sim_chance(sim, 850)) {
        plan->drop_permille = (uint32_t)sim_below(sim, 100);
        plan->duplicate_permille = (uint32_t)sim_below(sim, 100);
        plan->late_permille = (uint32_t)sim_below(sim, 60);
        plan->fault_ns = sim_between(sim, 20, 300) * SIM_MS;
        plan->faults_end_ns = sim_between(sim, 500, 5000) * SIM_MS;
    }
    sim->tables[0] =
        (struct store_table_opts){.name = "item", .kind = STORE_DYNAMIC, .cols = 2, .shards = 4};
    sim->tables[1] = (struct store_table_opts){
        .name = "user", .kind = STORE_FIXED, .rows = SIM_USERS, .cols = 1, .shards = 4};
    for (uint32_t i = 0; i < SIM_TABLES; i++) {
        sim->tables[i].rule = store_rule_default(STORE_SGD, 1.0);
        sim->tables[i].init = init_constant(0);
    }
}

/* ---- Faults ---- */

static void cut_links(struct sim *sim, uint32_t node)
{
    const uint64_t until = sim->now_ns + sim_between(sim, 20, 600) * SIM_MS;
    sim->result.partitions++;
    for (uint32_t other = 0; other < SIM_TASKS_MAX; other++) {
        if (sim_chance(sim, 300)) continue; /* not from everyone, and one way at times */
        sim->cut_ns[node][other] = until;
        if (sim_chance(sim, 700)) sim->cut_ns[other][node] = until;
    }
}

static void fault(struct sim *sim)
{
    const uint32_t task = (uint32_t)sim_below(sim, cluster_tasks(&sim->plan.cluster));
    const uint32_t node = sim->tasks[task].node;
    const uint64_t kind = sim_below(sim, 10);
    if (sim->now_ns > sim->plan.faults_end_ns) return;
    if (!sim->nodes[node].is_up) {
        /* Down, or done: nothing more can happen to it. */
    } else if (kind < 5) {
        sim->result.crashes++;
        sim_node_crash(sim, node);
        sim_queue(sim, (struct sim_event){.at_ns = sim->now_ns + sim_between(sim, 5, 700) * SIM_MS,
                                          .kind = SIM_RESTART,
                                          .task = node});
    } else if (kind < 8) {
        sim->result.pauses++;
        sim->nodes[node].paused_ns = sim->now_ns + sim_between(sim, 5, 800) * SIM_MS;
    } else {
        cut_links(sim, node);
    }
    sim_queue(sim,
              (struct sim_event){.at_ns = sim->now_ns + 1 + sim_below(sim, 2 * sim->plan.fault_ns),
                                 .kind = SIM_FAULT});
}

/* ---- Running ---- */

static bool is_over(const struct sim *sim)
{
    if (sim->check.is_failed || sim->failure != 0) return true;
    for (uint32_t i = 0; i < cluster_tasks(&sim->plan.cluster); i++) {
        if (!sim->nodes[sim->tasks[i].node].has_ended) return false;
    }
    return true;
}

/* Once the chief has ended well, whoever supervises the processes ends those that did not hear it. */
static void end_the_deaf(struct sim *sim)
{
    if (!sim->nodes[sim->tasks[CLUSTER_CHIEF].node].has_ended) return;
    for (uint32_t i = 0; i < cluster_tasks(&sim->plan.cluster); i++) {
        struct sim_node *node = &sim->nodes[sim->tasks[i].node];
        if (node->has_ended) continue;
        node->has_ended = true;
        sim_node_crash(sim, sim->tasks[i].node);
    }
}

static void handle(struct sim *sim, const struct sim_event *event)
{
    if (event->kind == SIM_FAULT) {
        fault(sim);
        return;
    }
    if (event->kind == SIM_RESTART) {
        if (!sim->nodes[event->task].has_ended) sim_node_start(sim, event->task);
        return;
    }
    struct sim_task *task = &sim->tasks[event->task];
    const struct sim_node *node = &sim->nodes[task->node];
    const bool is_alive = node->is_up && event->generation == node->generation;
    if (event->kind == SIM_DELIVER) sim_deliver(sim, event);
    if (event->kind == SIM_WAKE && is_alive && event->at_ns >= task->wake_ns) sim_task_tick(task);
    if (event->kind == SIM_COMPUTED && is_alive) ps_worker_computed(task->worker, event->number);
    if (event->kind == SIM_WRITTEN && is_alive) {
        sim_written(sim, event->task - cluster_ps(0), event->number);
    }
    if (node->is_up) sim_node_look(sim, task->node);
    end_the_deaf(sim);
}

static bool is_paused(const struct sim *sim, const struct sim_event *event)
{
    if (event->kind == SIM_FAULT || event->kind == SIM_RESTART) return false;
    return sim->nodes[sim->tasks[event->task].node].paused_ns > event->at_ns;
}

static void run(struct sim *sim)
{
    struct sim_event event;
    uint64_t events = 0;
    while (!is_over(sim) && sim_next(sim, &event)) {
        sim->now_ns = event.at_ns;
        if (sim->now_ns > END_NS) {
            sim_check_hang(sim);
        } else if (is_paused(sim, &event)) {
            event.at_ns = sim->nodes[sim->tasks[event.task].node].paused_ns;
            sim_queue(sim, event);
            continue;
        } else {
            handle(sim, &event);
            if (++events % 32 == 0) sim_check_rows(sim);
        }
        mem_free(event.bytes);
    }
    sim->result.seconds = (double)sim->now_ns / 1e9;
}

static int start(struct sim *sim, struct err *err)
{
    const struct cluster *cluster = &sim->plan.cluster;
    make_plan(sim);
    const int rc = ps_route_create(sim->tables, SIM_TABLES, cluster->ps_count, &sim->route, err);
    if (rc != 0) return rc;
    for (uint32_t i = 0; i < cluster_tasks(cluster); i++) {
        /* Worker 0 lives in the chief's process. */
        const bool is_with_chief = i == cluster_worker(cluster, 0);
        sim->tasks[i] =
            (struct sim_task){.sim = sim, .task = i, .node = is_with_chief ? CLUSTER_CHIEF : i};
        if (is_with_chief) continue;
        sim_queue(sim, (struct sim_event){
                           .at_ns = sim_below(sim, 100) * SIM_MS, .kind = SIM_RESTART, .task = i});
    }
    if (sim->plan.fault_ns > 0) {
        sim_queue(sim, (struct sim_event){.at_ns = 120 * SIM_MS, .kind = SIM_FAULT});
    }
    return 0;
}

static void finish(struct sim *sim)
{
    static const char *const names[] = {"async", "ssp", "sync"};
    struct sim_event event;
    while (sim_next(sim, &event)) mem_free(event.bytes);
    for (uint32_t i = 0; i < cluster_tasks(&sim->plan.cluster); i++) {
        if (sim->nodes[i].is_up) sim_node_crash(sim, i);
    }
    struct sim_result *result = &sim->result;
    result->discipline = names[sim->plan.discipline];
    result->ps = sim->plan.cluster.ps_count;
    result->workers = sim->plan.cluster.workers_count;
    if (result->pushes_applied > 0) result->staleness_mean /= (double)result->pushes_applied;
    mem_free(sim->events);
    ps_route_destroy(sim->route);
    sim_disk_fini(sim);
}

int sim_run(const struct sim_opts *opts, struct sim_result *result_out, struct err *err)
{
    if (opts->steps > SIM_STEPS_MAX) {
        return err_set(err, SHOAL_EINVAL, "%llu steps, at most %u", (unsigned long long)opts->steps,
                       SIM_STEPS_MAX);
    }
    struct sim *sim = mem_alloc(MEM_SIM, sizeof *sim);
    if (sim == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for the simulator");
    sim->opts = *opts;
    int rc = start(sim, err);
    if (rc == 0) run(sim);
    finish(sim);
    *result_out = sim->result;
    if (sim->failure != 0) {
        rc = err_set(err, sim->failure, "seed %llu: no memory", (unsigned long long)opts->seed);
    } else if (sim->check.is_failed) {
        rc = err_set(err, SHOAL_ECORRUPT, "seed %llu, %s, at %.3f s: %s",
                     (unsigned long long)opts->seed, sim->result.discipline, sim->result.seconds,
                     sim->check.failure);
    }
    mem_free(sim);
    return rc;
}
