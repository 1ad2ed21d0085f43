#include "cluster/chief.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "cluster/chief_own.h"

static_assert(CHIEF_LEASES_MAX >= JOB_TASKS_MAX, "every worker may have a lease");

static uint64_t now(const struct chief *chief)
{
    return chief->opts.env.now_ns(chief->opts.env.ctx);
}

/* ---- Create ---- */

static int check_opts(const struct chief_opts *opts, struct err *err)
{
    const struct cluster *cluster = &opts->cluster;
    if (cluster->ps_count == 0 || cluster->ps_count > JOB_TASKS_MAX ||
        cluster->workers_count == 0 || cluster->workers_count > JOB_TASKS_MAX) {
        return err_set(err, SHOAL_EINVAL, "%u ps and %u workers; each may be 1 to %u",
                       cluster->ps_count, cluster->workers_count, JOB_TASKS_MAX);
    }
    if (opts->sync_replicas > CHIEF_LEASES_MAX) {
        return err_set(err, SHOAL_EINVAL, "%u gradients a step, at most %u", opts->sync_replicas,
                       CHIEF_LEASES_MAX);
    }
    if (opts->batch_size == 0 || (opts->discipline == CHIEF_SYNC && opts->steps_max == 0)) {
        return err_set(err, SHOAL_EINVAL, "a job without batch size or end");
    }
    return 0;
}

static int allocate(struct chief *chief, struct err *err)
{
    const struct cluster *cluster = &chief->opts.cluster;
    const uint32_t workers = cluster->workers_count;
    chief->tasks = mem_alloc_array(MEM_CLUSTER, cluster_tasks(cluster), sizeof *chief->tasks);
    chief->askers = mem_alloc_array(MEM_CLUSTER, workers, sizeof *chief->askers);
    chief->known = mem_alloc_array(MEM_CLUSTER, cluster->ps_count, sizeof *chief->known);
    chief->truth.leases =
        mem_alloc_array(MEM_CLUSTER, CHIEF_LEASES_MAX, sizeof *chief->truth.leases);
    chief->wanted = chief->opts.sync_replicas != 0 ? chief->opts.sync_replicas : workers;
    chief->slots = chief->wanted > workers ? chief->wanted : workers;
    chief->arrived = mem_alloc_array(MEM_CLUSTER, chief->slots, sizeof *chief->arrived);
    chief->set = mem_alloc_array(MEM_CLUSTER, chief->slots, sizeof *chief->set);
    chief->room = mem_alloc_array(MEM_CLUSTER, CHIEF_RECORD_WORDS_MAX, sizeof *chief->room);
    chief->last.words = mem_alloc_array(MEM_CLUSTER, CHIEF_RECORD_WORDS_MAX, 8);
    chief->pending.words = mem_alloc_array(MEM_CLUSTER, CHIEF_RECORD_WORDS_MAX, 8);
    const bool is_whole = chief->tasks != NULL && chief->askers != NULL && chief->known != NULL &&
                          chief->truth.leases != NULL && chief->arrived != NULL &&
                          chief->set != NULL && chief->room != NULL && chief->last.words != NULL &&
                          chief->pending.words != NULL;
    return is_whole ? 0 : err_set(err, SHOAL_ENOMEM, "no memory for the chief");
}

int chief_create(const struct chief_opts *opts, struct chief **chief_out, struct err *err)
{
    int rc = check_opts(opts, err);
    if (rc != 0) return rc;
    struct chief *chief = mem_alloc(MEM_CLUSTER, sizeof *chief);
    if (chief == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for the chief");
    chief->opts = *opts;
    rc = allocate(chief, err);
    if (rc == 0) rc = chief_replay(chief, err);
    if (rc != 0) {
        chief_destroy(chief);
        return rc;
    }
    chief->phase_ns = now(chief);
    for (uint32_t task = 0; task < cluster_tasks(&opts->cluster); task++) {
        chief->tasks[task].heard_ns = chief->phase_ns;
        chief->tasks[task].alive = task != CLUSTER_CHIEF;
    }
    if (chief->epoch == 0) {
        const uint64_t words[] = {opts->cluster.ps_count, opts->cluster.workers_count,
                                  opts->discipline};
        chief_journal(chief, CHIEF_RECORD_JOB, words, 3, false);
    }
    chief->opts.env.wake(chief->opts.env.ctx, chief->phase_ns + opts->heartbeat_ns);
    *chief_out = chief;
    return 0;
}

void chief_destroy(struct chief *chief)
{
    if (chief == NULL) return;
    mem_free(chief->tasks);
    mem_free(chief->askers);
    mem_free(chief->known);
    mem_free(chief->truth.leases);
    mem_free(chief->arrived);
    mem_free(chief->set);
    mem_free(chief->room);
    mem_free(chief->last.words);
    mem_free(chief->pending.words);
    mem_free(chief);
}

/* ---- Phases and epochs ---- */

void chief_send(const struct chief *chief, struct msg *msg, uint32_t to)
{
    msg->from = CLUSTER_CHIEF;
    msg->to = to;
    msg->epoch = chief->epoch;
    msg->incarnation = chief->opts.incarnation;
    chief->opts.env.send(chief->opts.env.ctx, msg);
}

static void tell_world(const struct chief *chief, uint32_t task)
{
    const bool is_rolled = chief->opts.discipline == CHIEF_SYNC && chief->last.words_count > 0;
    struct msg msg = {.type = MSG_WORLD,
                      .world = {.phase = chief->phase,
                                .told = chief->tasks[task].incarnation,
                                .checkpoint = chief->last.id,
                                .step = is_rolled ? chief->last.words[2] : 0,
                                .leases_below = chief_leases_below(chief)}};
    if (chief->status.failure == 0) chief_send(chief, &msg, task);
}

static void tell_all(const struct chief *chief)
{
    for (uint32_t task = 1; task < cluster_tasks(&chief->opts.cluster); task++) {
        if (chief->tasks[task].incarnation != 0) tell_world(chief, task);
    }
}

static void set_phase(struct chief *chief, enum chief_phase phase)
{
    static const bool allowed[4][4] = {
        [CHIEF_GATHER] = {[CHIEF_LOAD] = true},
        [CHIEF_LOAD] = {[CHIEF_LOAD] = true, [CHIEF_RUN] = true},
        [CHIEF_RUN] = {[CHIEF_LOAD] = true, [CHIEF_END] = true},
    };
    ASSERT(allowed[chief->phase][phase]);
    chief->phase = phase;
    chief->phase_ns = now(chief);
    tell_all(chief);
}

/* Every ps goes back to the last checkpoint (5). */
static void begin_epoch(struct chief *chief)
{
    const uint32_t ps_count = chief->opts.cluster.ps_count;
    const uint64_t done = chief->truth.done;
    struct err err = {0};
    chief->epoch++;
    uint64_t words[3 + JOB_TASKS_MAX] = {chief->epoch, chief->token, chief->last.id};
    for (uint32_t ps = 0; ps < ps_count; ps++) {
        struct chief_task *task = &chief->tasks[cluster_ps(ps)];
        words[3 + ps] = chief->known[ps] = task->incarnation;
        task->committed = 0;
    }
    chief_journal(chief, CHIEF_RECORD_EPOCH, words, 3 + ps_count, true);
    if (chief_truth_read(chief, chief->last.words, chief->last.words_count, &err) != 0) {
        chief->status.failure = err.code;
    }
    chief->pending.id = 0;
    chief_sync_reset(chief);
    for (uint32_t i = 0; i < chief->opts.cluster.workers_count; i++) {
        chief->askers[i] = (struct chief_asker){.is_fresh = true};
    }
    const uint64_t rolled_back = done - chief->truth.done;
    chief->status.rolled_back += rolled_back;
    env_logf(&chief->opts.env, "new epoch epoch=%llu checkpoint=%llu rolled_back_steps=%llu",
             (unsigned long long)chief->epoch, (unsigned long long)chief->last.id,
             (unsigned long long)rolled_back);
    set_phase(chief, CHIEF_LOAD);
}

/* What a ps that has come or changed means for the phase. */
static void look_at_ps(struct chief *chief)
{
    bool is_new = chief->epoch == 0;
    bool is_loaded = true;
    for (uint32_t ps = 0; ps < chief->opts.cluster.ps_count; ps++) {
        const struct chief_task *task = &chief->tasks[cluster_ps(ps)];
        if (task->incarnation == 0) {
            if (chief->phase == CHIEF_GATHER) return;
            continue;
        }
        if (task->incarnation != chief->known[ps]) is_new = true;
        if (task->loaded != chief->epoch) is_loaded = false;
    }
    if (chief->phase == CHIEF_END) return;
    if (is_new && chief->epoch != 0 && !env_keeps(&chief->opts.env, ENV_RULE_INCARNATION)) {
        is_new = false;
    }
    if (is_new) {
        begin_epoch(chief);
        return;
    }
    if (chief->phase == CHIEF_GATHER) set_phase(chief, CHIEF_LOAD);
    if (chief->phase == CHIEF_LOAD && is_loaded) {
        set_phase(chief, CHIEF_RUN);
        if (chief->is_committing) chief_sync_commit_all(chief);
        chief_round_off(chief);
    }
}

/* ---- Checkpoints and the end ---- */

bool chief_is_pending_marked(const struct chief *chief)
{
    for (uint32_t ps = 0; ps < chief->opts.cluster.ps_count; ps++) {
        if (!chief->tasks[cluster_ps(ps)].marked) return false;
    }
    return true;
}

static bool is_pending_written(const struct chief *chief)
{
    for (uint32_t ps = 0; ps < chief->opts.cluster.ps_count; ps++) {
        if (!chief->tasks[cluster_ps(ps)].written) return false;
    }
    return true;
}

static void send_saves(const struct chief *chief)
{
    struct msg msg = {.type = MSG_SAVE, .save = {.checkpoint = chief->pending.id}};
    for (uint32_t ps = 0; ps < chief->opts.cluster.ps_count; ps++) {
        if (!chief->tasks[cluster_ps(ps)].written) chief_send(chief, &msg, cluster_ps(ps));
    }
}

/* Progress first, then the shards (4). */
static void begin_checkpoint(struct chief *chief)
{
    struct chief_saved *pending = &chief->pending;
    pending->id = ++chief->token;
    pending->words_count = chief_truth_write(chief, pending->words);
    memmove(pending->words + 1, pending->words, pending->words_count * 8);
    pending->words[0] = pending->id;
    chief_journal(chief, CHIEF_RECORD_SAVE, pending->words, pending->words_count + 1, true);
    memmove(pending->words, pending->words + 1, pending->words_count * 8);
    chief->pending_ns = now(chief);
    for (uint32_t ps = 0; ps < chief->opts.cluster.ps_count; ps++) {
        struct chief_task *task = &chief->tasks[cluster_ps(ps)];
        task->marked = task->written = false;
    }
    if (chief->status.failure == 0) send_saves(chief);
}

void chief_saved_take(struct chief *chief)
{
    const struct chief_saved last = chief->last;
    chief->last = chief->pending;
    chief->pending = last;
    chief->pending.id = 0;
}

static bool is_all_done(const struct chief *chief)
{
    struct chief_span span;
    const struct chief_truth *truth = &chief->truth;
    if (chief->opts.discipline == CHIEF_SYNC) {
        return truth->done == chief->opts.steps_max && !chief->is_committing;
    }
    if (truth->leases_count > 0) return false;
    return (chief->opts.steps_max != 0 && truth->granted == chief->opts.steps_max) ||
           !chief->opts.lease(chief->opts.ctx, truth->leases_next, &span);
}

void chief_round_off(struct chief *chief)
{
    if (chief->phase != CHIEF_RUN || chief->pending.id != 0 || chief->status.failure != 0) return;
    if (chief->opts.discipline == CHIEF_SYNC && chief->is_committing) return;
    const uint64_t saved = chief->last.words_count > 0 ? chief->last.words[2] : 0;
    const uint64_t unsaved = chief->truth.done - saved;
    const bool is_over = is_all_done(chief);
    if (is_over && unsaved == 0) {
        chief_journal(chief, CHIEF_RECORD_END, NULL, 0, true);
        if (chief->status.failure == 0) set_phase(chief, CHIEF_END);
        return;
    }
    const uint64_t every = chief->opts.checkpoint_steps;
    if (is_over || (every != 0 && unsaved >= every)) begin_checkpoint(chief);
}

static void on_saved(struct chief *chief, const struct msg *msg)
{
    struct chief_task *task = &chief->tasks[msg->from];
    if (msg->epoch != chief->epoch || chief->phase != CHIEF_RUN) return;
    if (chief->pending.id == 0 || msg->saved.checkpoint != chief->pending.id) return;
    task->marked = true;
    task->written = task->written || msg->saved.written != 0;
    if (chief->opts.discipline == CHIEF_SYNC) chief_sync_name(chief);
    if (!is_pending_written(chief)) return;
    if (!env_keeps(&chief->opts.env, ENV_RULE_CUT)) {
        chief->pending.words_count = chief_truth_write(chief, chief->pending.words);
    }
    chief_journal(chief, CHIEF_RECORD_SAVED, &chief->pending.id, 1, true);
    if (chief->status.failure != 0) return;
    chief_saved_take(chief);
    chief_round_off(chief);
}

/* ---- Members ---- */

/* False for the voice of one that was replaced. */
static bool meet(struct chief *chief, const struct msg *msg)
{
    const struct cluster *cluster = &chief->opts.cluster;
    struct chief_task *task = &chief->tasks[msg->from];
    if (msg->incarnation == 0 || msg->incarnation < task->incarnation) return false;
    const bool is_new = msg->incarnation != task->incarnation;
    task->heard_ns = now(chief);
    task->alive = true;
    if (!is_new) return true;
    *task = (struct chief_task){
        .incarnation = msg->incarnation, .heard_ns = task->heard_ns, .alive = true};
    if (cluster_is_ps(cluster, msg->from)) look_at_ps(chief);
    if (cluster_is_worker(cluster, msg->from)) {
        const uint32_t worker = msg->from - cluster_worker(cluster, 0);
        if (chief->askers[worker].holder_incarnation != msg->incarnation) {
            chief_orphan(chief, worker);
        }
        chief->askers[worker] = (struct chief_asker){.is_fresh = true,
                                                     .clock = chief->askers[worker].clock,
                                                     .holder_incarnation = msg->incarnation};
    }
    return true;
}

static void on_hello(struct chief *chief, const struct msg *msg)
{
    struct chief_task *task = &chief->tasks[msg->from];
    task->ended = msg->hello.ended != 0;
    if (cluster_is_ps(&chief->opts.cluster, msg->from)) {
        task->loaded = msg->hello.loaded;
        if (task->loaded == chief->epoch && chief->epoch != 0 &&
            task->incarnation == chief->known[msg->from - 1]) {
            if (task->committed < msg->hello.committed) task->committed = msg->hello.committed;
            chief_sync_adopt(chief, task->committed);
        }
        look_at_ps(chief);
    }
    tell_world(chief, msg->from);
    chief_sync_advance(chief);
    chief_serve(chief);
}

void chief_receive(struct chief *chief, const struct msg *msg)
{
    const struct cluster *cluster = &chief->opts.cluster;
    if (msg->from == CLUSTER_CHIEF || msg->from >= cluster_tasks(cluster)) return;
    if (chief->status.failure != 0 || !meet(chief, msg)) return;
    const bool is_ps = cluster_is_ps(cluster, msg->from);
    if (msg->type == MSG_HELLO) on_hello(chief, msg);
    if (msg->type == MSG_ASK && !is_ps) chief_ask(chief, msg);
    if (msg->type == MSG_SAVED && is_ps) on_saved(chief, msg);
    if (msg->type == MSG_COMMITTED && is_ps && msg->epoch == chief->epoch) {
        struct chief_task *task = &chief->tasks[msg->from];
        if (task->committed <= msg->committed.step) task->committed = msg->committed.step + 1;
        chief_sync_advance(chief);
    }
}

static void bury(struct chief *chief, uint32_t task)
{
    char name[CLUSTER_NAME_MAX];
    chief->tasks[task].alive = false;
    env_logf(&chief->opts.env, "%s is silent: given up",
             cluster_task_name(&chief->opts.cluster, task, name));
    if (!cluster_is_worker(&chief->opts.cluster, task)) return; /* A ps must come back. */
    const uint32_t worker = task - cluster_worker(&chief->opts.cluster, 0);
    chief->status.deaths++;
    chief_orphan(chief, worker);
    chief->askers[worker].is_parked = false;
    chief->askers[worker].has_request = false; /* If it comes back, it is answered anew. */
    chief->askers[worker].is_fresh = true;
}

void chief_tick(struct chief *chief)
{
    const uint64_t at = now(chief);
    bool is_anyone_left = false;
    for (uint32_t task = 1; task < cluster_tasks(&chief->opts.cluster); task++) {
        const bool is_silent = at - chief->tasks[task].heard_ns > chief->opts.deadline_ns;
        if (chief->tasks[task].alive && is_silent) bury(chief, task);
        if (chief->tasks[task].alive && !chief->tasks[task].ended) is_anyone_left = true;
    }
    if (chief->phase == CHIEF_END && !is_anyone_left) chief->status.has_ended = true;
    if (chief->phase == CHIEF_RUN && chief->status.failure == 0) {
        if (chief->pending.id != 0) send_saves(chief);
        if (chief->is_committing) chief_sync_commit_all(chief);
        chief_serve(chief);
        chief_round_off(chief);
    }
    chief->opts.env.wake(chief->opts.env.ctx, at + chief->opts.heartbeat_ns);
}

/* ---- Inspect ---- */

struct chief_status chief_status(const struct chief *chief)
{
    struct chief_status status = chief->status;
    status.phase = chief->phase;
    status.epoch = chief->epoch;
    status.checkpoint = chief->last.id;
    status.steps = chief->truth.done;
    status.examples = chief->truth.examples;
    return status;
}

/* What the chief itself waits for from this task. */
static enum wait_why own_wait(const struct chief *chief, uint32_t task, uint64_t *since_out)
{
    const struct chief_task *it = &chief->tasks[task];
    const bool is_ps = cluster_is_ps(&chief->opts.cluster, task);
    *since_out = chief->phase_ns;
    if (chief->phase == CHIEF_END) return it->alive && !it->ended ? WAIT_END : WAIT_NONE;
    if (!is_ps) return WAIT_NONE;
    if (chief->phase == CHIEF_GATHER) return it->incarnation == 0 ? WAIT_JOIN : WAIT_NONE;
    if (!it->alive) return WAIT_JOIN;
    if (chief->phase == CHIEF_LOAD) return it->loaded != chief->epoch ? WAIT_LOAD : WAIT_NONE;
    if (chief->is_committing && it->committed <= chief->truth.done) {
        *since_out = chief->commit_ns;
        return WAIT_COMMIT;
    }
    if (chief->pending.id == 0 || it->written) return WAIT_NONE;
    *since_out = chief->pending_ns;
    return it->marked ? WAIT_SAVE : WAIT_CUT;
}

uint32_t chief_waits(const struct chief *chief, struct wait *waits_out, uint32_t max)
{
    uint32_t count = 0;
    for (uint32_t task = 1; task < cluster_tasks(&chief->opts.cluster) && count < max; task++) {
        struct wait wait = {.who = CLUSTER_CHIEF, .whom = task};
        wait.why = own_wait(chief, task, &wait.since_ns);
        if (wait.why != WAIT_NONE) waits_out[count++] = wait;
    }
    for (uint32_t i = 0; i < chief->opts.cluster.workers_count && count < max; i++) {
        if (chief->askers[i].is_parked) waits_out[count++] = chief->askers[i].wait;
    }
    return count;
}
