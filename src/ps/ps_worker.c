#include "ps/ps_worker.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "cluster/chief.h"

enum worker_state { JOIN, ASK, PULL, COMPUTE, PUSH, END, STATES_COUNT };

struct part { /* the keys of one table that one ps has: a range of keys[] and places[] */
    uint32_t first;
    uint32_t count;
};

struct ps_worker {
    struct ps_worker_opts opts;
    enum worker_state state;
    uint64_t state_ns;
    uint64_t epoch;
    uint64_t request;
    uint64_t hello_ns;
    uint64_t sent_ns;
    struct msg_ask done;  /* what the next ASK reports */
    struct msg_work work; /* at hand in PULL, COMPUTE, PUSH */
    struct wait parked;   /* in ASK: what the chief said */
    struct ps_batch batch;
    struct part *parts; /* ps x table of the batch */
    size_t parts_capacity;
    uint64_t *keys; /* of the batch, by table, then by ps */
    size_t keys_capacity;
    uint32_t *places; /* where each key is in its table */
    size_t places_capacity;
    float *rows; /* gradients of one message */
    size_t rows_capacity;
    struct msg_block *blocks; /* of one message */
    size_t blocks_capacity;
    bool *is_asked;    /* by ps: takes part in what goes on */
    bool *is_answered; /* by ps */
    uint64_t *versions;
    struct ps_worker_stats stats;
};

static uint64_t now(const struct ps_worker *worker)
{
    return worker->opts.env.now_ns(worker->opts.env.ctx);
}

static void set_state(struct ps_worker *worker, enum worker_state state)
{
    static const bool allowed[STATES_COUNT][STATES_COUNT] = {
        [JOIN] = {[ASK] = true, [END] = true},
        [ASK] = {[ASK] = true, [PULL] = true, [END] = true},
        [PULL] = {[ASK] = true, [COMPUTE] = true, [END] = true},
        [COMPUTE] = {[ASK] = true, [PUSH] = true, [END] = true},
        [PUSH] = {[ASK] = true, [END] = true},
    };
    ASSERT(allowed[worker->state][state]);
    worker->state = state;
    worker->state_ns = now(worker);
    worker->sent_ns = worker->state_ns;
}

static void send(const struct ps_worker *worker, struct msg *msg, uint32_t to)
{
    msg->from = cluster_worker(&worker->opts.cluster, worker->opts.index);
    msg->to = to;
    msg->epoch = worker->epoch;
    msg->incarnation = worker->opts.incarnation;
    worker->opts.env.send(worker->opts.env.ctx, msg);
}

static void say_hello(struct ps_worker *worker)
{
    struct msg msg = {.type = MSG_HELLO, .hello = {.ended = worker->state == END}};
    worker->hello_ns = now(worker);
    send(worker, &msg, CLUSTER_CHIEF);
}

int ps_worker_create(const struct ps_worker_opts *opts, struct ps_worker **worker_out,
                     struct err *err)
{
    struct ps_worker *worker = mem_alloc(MEM_CLUSTER, sizeof *worker);
    if (worker == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a worker");
    const uint32_t ps_count = opts->cluster.ps_count;
    worker->opts = *opts;
    worker->is_asked = mem_alloc_array(MEM_CLUSTER, ps_count, sizeof *worker->is_asked);
    worker->is_answered = mem_alloc_array(MEM_CLUSTER, ps_count, sizeof *worker->is_answered);
    worker->versions = mem_alloc_array(MEM_CLUSTER, ps_count, sizeof *worker->versions);
    if (worker->is_asked == NULL || worker->is_answered == NULL || worker->versions == NULL) {
        ps_worker_destroy(worker);
        return err_set(err, SHOAL_ENOMEM, "no memory for a worker");
    }
    /* Requests of two incarnations must not meet. */
    worker->request = opts->env.random(opts->env.ctx) >> 1;
    worker->state_ns = now(worker);
    ps_worker_tick(worker);
    *worker_out = worker;
    return 0;
}

void ps_worker_destroy(struct ps_worker *worker)
{
    if (worker == NULL) return;
    mem_free(worker->parts);
    mem_free(worker->keys);
    mem_free(worker->places);
    mem_free(worker->rows);
    mem_free(worker->blocks);
    mem_free(worker->is_asked);
    mem_free(worker->is_answered);
    mem_free(worker->versions);
    mem_free(worker);
}

/* ---- Cutting a batch by ps ---- */

static struct part *part_of(const struct ps_worker *worker, uint32_t ps, uint32_t index)
{
    return &worker->parts[(size_t)ps * worker->batch.tables_count + index];
}

/* The keys of a table go to keys[first ...], those of each ps together, in order. */
static void cut_table(struct ps_worker *worker, uint32_t index, uint32_t first)
{
    const struct ps_batch_table *table = &worker->batch.tables[index];
    const uint32_t ps_count = worker->opts.cluster.ps_count;
    for (uint32_t i = 0; i < table->count; i++) {
        part_of(worker, ps_route_ps(worker->opts.route, table->table, table->keys[i]), index)
            ->count++;
    }
    for (uint32_t ps = 0; ps < ps_count; ps++) {
        struct part *part = part_of(worker, ps, index);
        part->first = first;
        first += part->count;
        part->count = 0;
    }
    for (uint32_t i = 0; i < table->count; i++) {
        const uint32_t ps = ps_route_ps(worker->opts.route, table->table, table->keys[i]);
        struct part *part = part_of(worker, ps, index);
        worker->keys[part->first + part->count] = table->keys[i];
        worker->places[part->first + part->count++] = i;
    }
}

static int cut_batch(struct ps_worker *worker, struct err *err)
{
    const uint32_t tables = worker->batch.tables_count;
    const size_t parts = (size_t)tables * worker->opts.cluster.ps_count;
    size_t keys = 0;
    size_t floats = 0;
    for (uint32_t i = 0; i < tables; i++) {
        keys += worker->batch.tables[i].count;
        floats += (size_t)worker->batch.tables[i].count * worker->batch.tables[i].cols;
    }
    if (mem_grow(MEM_CLUSTER, (void **)&worker->parts, &worker->parts_capacity, parts,
                 sizeof *worker->parts) != 0 ||
        mem_grow(MEM_CLUSTER, (void **)&worker->keys, &worker->keys_capacity, keys,
                 sizeof *worker->keys) != 0 ||
        mem_grow(MEM_CLUSTER, (void **)&worker->places, &worker->places_capacity, keys,
                 sizeof *worker->places) != 0 ||
        mem_grow(MEM_CLUSTER, (void **)&worker->rows, &worker->rows_capacity, floats,
                 sizeof *worker->rows) != 0 ||
        mem_grow(MEM_CLUSTER, (void **)&worker->blocks, &worker->blocks_capacity, tables,
                 sizeof *worker->blocks) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for a batch of %zu keys", keys);
    }
    if (parts > 0) memset(worker->parts, 0, parts * sizeof *worker->parts);
    uint32_t first = 0;
    for (uint32_t i = 0; i < tables; i++) {
        cut_table(worker, i, first);
        first += worker->batch.tables[i].count;
    }
    return 0;
}

static bool has_keys(const struct ps_worker *worker, uint32_t ps)
{
    for (uint32_t i = 0; i < worker->batch.tables_count; i++) {
        if (part_of(worker, ps, i)->count > 0) return true;
    }
    return false;
}

/* ---- Requests ---- */

static void ask(struct ps_worker *worker)
{
    struct msg msg = {.type = MSG_ASK, .request = worker->request, .ask = worker->done};
    send(worker, &msg, CLUSTER_CHIEF);
}

static void begin_ask(struct ps_worker *worker, const struct msg_ask *done)
{
    worker->done = *done;
    worker->request++;
    worker->parked = (struct wait){.why = WAIT_WORK, .whom = CLUSTER_CHIEF};
    set_state(worker, ASK);
    ask(worker);
}

/* The gradients of one table for one ps, out of their places, into rows. */
static const float *gather(struct ps_worker *worker, uint32_t index, const struct part *part,
                           size_t *rows_used)
{
    const struct ps_batch_table *table = &worker->batch.tables[index];
    float *rows = worker->rows + *rows_used;
    for (uint32_t i = 0; i < part->count; i++) {
        memcpy(rows + (size_t)i * table->cols,
               table->gradients + (size_t)worker->places[part->first + i] * table->cols,
               table->cols * sizeof *rows);
    }
    *rows_used += (size_t)part->count * table->cols;
    return rows;
}

static void send_to_ps(struct ps_worker *worker, uint32_t ps)
{
    const bool is_push = worker->state == PUSH;
    size_t rows_used = 0;
    struct msg msg = {.type = is_push ? MSG_PUSH : MSG_PULL,
                      .request = worker->request,
                      .blocks = worker->blocks};
    for (uint32_t i = 0; i < worker->batch.tables_count; i++) {
        const struct ps_batch_table *table = &worker->batch.tables[i];
        const struct part *part = part_of(worker, ps, i);
        if (part->count == 0) continue;
        worker->blocks[msg.blocks_count++] =
            (struct msg_block){.table = table->table,
                               .count = part->count,
                               .cols = is_push ? table->cols : 0,
                               .keys = worker->keys + part->first,
                               .rows = is_push ? gather(worker, i, part, &rows_used) : NULL};
    }
    if (is_push) {
        msg.push = (struct msg_push){.kind = worker->work.kind,
                                     .stream = worker->work.stream,
                                     .token = worker->work.token,
                                     .number = worker->work.number,
                                     .ticket = worker->work.ticket,
                                     .version = worker->versions[ps],
                                     .count = worker->work.count};
    }
    send(worker, &msg, cluster_ps(ps));
}

static void send_to_all(struct ps_worker *worker)
{
    for (uint32_t ps = 0; ps < worker->opts.cluster.ps_count; ps++) {
        if (worker->is_asked[ps] && !worker->is_answered[ps]) send_to_ps(worker, ps);
    }
}

static bool is_all_answered(const struct ps_worker *worker)
{
    bool is_any = false;
    bool is_all = true;
    for (uint32_t ps = 0; ps < worker->opts.cluster.ps_count; ps++) {
        if (!worker->is_asked[ps]) continue;
        is_any = is_any || worker->is_answered[ps];
        is_all = is_all && worker->is_answered[ps];
    }
    if (worker->state == PUSH && !env_keeps(&worker->opts.env, ENV_RULE_ACKS)) return is_any;
    return is_all;
}

static void begin_compute(struct ps_worker *worker)
{
    set_state(worker, COMPUTE);
    worker->opts.compute(worker->opts.ctx, &worker->work, worker->request);
}

static void finish_batch(struct ps_worker *worker)
{
    const struct msg_work *work = &worker->work;
    const struct msg_ask done = {
        .kind = work->kind, .stream = work->stream, .token = work->token, .number = work->number};
    worker->stats.batches++;
    worker->stats.examples += work->count;
    begin_ask(worker, &done);
}

/* In a synchronous step every ps hears of every slot, be it of no rows; else only who has some. */
static void begin_exchange(struct ps_worker *worker, enum worker_state state)
{
    worker->request++;
    set_state(worker, state);
    for (uint32_t ps = 0; ps < worker->opts.cluster.ps_count; ps++) {
        const bool is_told = state == PUSH && worker->work.kind == MSG_WORK_STEP;
        worker->is_asked[ps] = is_told || has_keys(worker, ps);
        worker->is_answered[ps] = false;
    }
    send_to_all(worker);
}

void ps_worker_computed(struct ps_worker *worker, uint64_t request)
{
    if (worker->state != COMPUTE || request != worker->request) return;
    begin_exchange(worker, PUSH);
    if (is_all_answered(worker)) finish_batch(worker);
}

/* ---- Answers ---- */

static void on_work(struct ps_worker *worker, const struct msg *msg)
{
    if (worker->state != ASK || msg->request != worker->request) return;
    if (msg->epoch != worker->epoch) return;
    if (msg->work.kind == MSG_WORK_WAIT) {
        if (msg->work.why < WAIT_WHY_COUNT && msg->work.why != WAIT_NONE) {
            worker->parked.why = (enum wait_why)msg->work.why;
            worker->parked.whom = (uint32_t)msg->work.whom;
        }
        return;
    }
    worker->work = msg->work;
    struct err *err = &worker->stats.failure_text;
    int rc = worker->opts.input(worker->opts.ctx, &worker->work, &worker->batch, err);
    if (rc == 0) rc = cut_batch(worker, err);
    if (rc != 0) {
        worker->stats.failure = rc;
        env_logf(&worker->opts.env, "input: %s", err->text);
        return;
    }
    begin_exchange(worker, PULL);
    if (is_all_answered(worker)) begin_compute(worker);
}

/* False when the answer is not of what was asked. */
static bool scatter(struct ps_worker *worker, uint32_t ps, const struct msg *msg)
{
    uint32_t at = 0;
    for (uint32_t pass = 0; pass < 2; pass++) { /* First look, then copy. */
        at = 0;
        for (uint32_t i = 0; i < worker->batch.tables_count; i++) {
            const struct ps_batch_table *table = &worker->batch.tables[i];
            const struct part *part = part_of(worker, ps, i);
            if (part->count == 0) continue;
            if (at == msg->blocks_count) return false;
            const struct msg_block *block = &msg->blocks[at++];
            if (block->table != table->table || block->count != part->count ||
                block->cols != table->cols || block->rows == NULL) {
                return false;
            }
            for (uint32_t k = 0; pass == 1 && k < part->count; k++) {
                memcpy(table->rows + (size_t)worker->places[part->first + k] * table->cols,
                       block->rows + (size_t)k * table->cols, table->cols * sizeof(float));
            }
        }
        if (at != msg->blocks_count) return false;
    }
    return true;
}

static void on_rows(struct ps_worker *worker, uint32_t ps, const struct msg *msg)
{
    if (worker->state != PULL || worker->is_answered[ps]) return;
    if (!scatter(worker, ps, msg)) return;
    worker->is_answered[ps] = true;
    worker->versions[ps] = msg->rows.version;
    if (is_all_answered(worker)) begin_compute(worker);
}

static void on_pushed(struct ps_worker *worker, uint32_t ps, const struct msg *msg)
{
    if (worker->state != PUSH || msg->pushed.status == MSG_FAILED) return;
    if (msg->pushed.status == MSG_STALE && worker->work.kind == MSG_WORK_BATCH) {
        worker->stats.fenced++;
        begin_ask(worker, &(struct msg_ask){.kind = MSG_WORK_WAIT});
        return;
    }
    worker->is_answered[ps] = true;
    if (is_all_answered(worker)) finish_batch(worker);
}

static void on_world(struct ps_worker *worker, const struct msg *msg)
{
    if (msg->world.told != worker->opts.incarnation) return;
    if (msg->world.phase == CHIEF_END) {
        if (worker->state == END) return;
        set_state(worker, END);
        say_hello(worker);
        return;
    }
    if (worker->state == END || msg->epoch < worker->epoch) return;
    const bool is_new = msg->epoch > worker->epoch;
    worker->epoch = msg->epoch;
    if (msg->world.phase != CHIEF_RUN && !is_new) return;
    if (is_new || worker->state == JOIN) {
        begin_ask(worker, &(struct msg_ask){.kind = MSG_WORK_WAIT});
    }
}

void ps_worker_receive(struct ps_worker *worker, const struct msg *msg)
{
    if (msg->from == CLUSTER_CHIEF) {
        if (msg->type == MSG_WORLD) on_world(worker, msg);
        if (msg->type == MSG_WORK) on_work(worker, msg);
        return;
    }
    if (!cluster_is_ps(&worker->opts.cluster, msg->from)) return;
    if (msg->request != worker->request || msg->epoch != worker->epoch) return;
    const uint32_t ps = msg->from - cluster_ps(0);
    if (msg->type == MSG_ROWS) on_rows(worker, ps, msg);
    if (msg->type == MSG_PUSHED) on_pushed(worker, ps, msg);
}

void ps_worker_tick(struct ps_worker *worker)
{
    const uint64_t at = now(worker);
    if (worker->hello_ns == 0 || at - worker->hello_ns >= worker->opts.heartbeat_ns) {
        say_hello(worker);
    }
    if (at - worker->sent_ns >= worker->opts.retry_ns) {
        worker->sent_ns = at;
        worker->stats.repeats++;
        if (worker->state == ASK) ask(worker);
        if (worker->state == PULL || worker->state == PUSH) send_to_all(worker);
    }
    worker->opts.env.wake(worker->opts.env.ctx, at + worker->opts.retry_ns);
}

/* ---- Inspect ---- */

const struct ps_worker_stats *ps_worker_stats(const struct ps_worker *worker)
{
    return &worker->stats;
}

bool ps_worker_has_ended(const struct ps_worker *worker)
{
    return worker->state == END;
}

struct wait ps_worker_wait(const struct ps_worker *worker)
{
    struct wait wait = {.who = cluster_worker(&worker->opts.cluster, worker->opts.index),
                        .since_ns = worker->state_ns};
    if (worker->state == JOIN) wait.why = WAIT_WORK;
    if (worker->state == ASK) {
        wait.why = worker->parked.why;
        wait.whom = worker->parked.whom;
    }
    if (worker->state != PULL && worker->state != PUSH) return wait;
    wait.why = worker->state == PULL ? WAIT_ROWS : WAIT_PUSHED;
    for (uint32_t ps = 0; ps < worker->opts.cluster.ps_count; ps++) {
        if (!worker->is_asked[ps] || worker->is_answered[ps]) continue;
        wait.whom = cluster_ps(ps);
        break;
    }
    return wait;
}
