#include "ps/ps_server.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "cluster/chief.h"
#include "ps/ps_sum.h"

struct ps_server {
    struct ps_server_opts opts;
    struct store *store;
    struct ps_state state;
    uint64_t loaded; /* epoch; 0: none */
    uint64_t committed;
    uint64_t marked;  /* the last checkpoint whose cut was marked */
    uint64_t written; /* the last that is on disk */
    bool has_ended;
    struct ps_sum *sum;
    struct msg_block *blocks; /* of an answer */
    size_t blocks_capacity;
    float *rows;
    size_t rows_capacity;
    struct ps_server_stats stats;
};

static void send(const struct ps_server *server, struct msg *msg, uint32_t to)
{
    msg->from = cluster_ps(server->opts.index);
    msg->to = to;
    msg->epoch = server->loaded;
    msg->incarnation = server->opts.incarnation;
    server->opts.env.send(server->opts.env.ctx, msg);
}

static void say_hello(const struct ps_server *server)
{
    struct msg msg = {.type = MSG_HELLO,
                      .hello = {.loaded = server->loaded,
                                .committed = server->committed,
                                .ended = server->has_ended}};
    send(server, &msg, CLUSTER_CHIEF);
}

int ps_server_create(const struct ps_server_opts *opts, struct ps_server **server_out,
                     struct err *err)
{
    struct ps_server *server = mem_alloc(MEM_CLUSTER, sizeof *server);
    if (server == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a server");
    server->opts = *opts;
    const int rc = ps_sum_create(&server->sum, err);
    if (rc != 0) {
        ps_server_destroy(server);
        return rc;
    }
    ps_server_tick(server);
    *server_out = server;
    return 0;
}

void ps_server_destroy(struct ps_server *server)
{
    if (server == NULL) return;
    store_destroy(server->store);
    ps_sum_destroy(server->sum);
    mem_free(server->blocks);
    mem_free(server->rows);
    mem_free(server);
}

/* ---- Pull ---- */

static int pull_block(struct ps_server *server, const struct msg_block *block, uint32_t index,
                      size_t *rows_used, struct err *err)
{
    if (block->table >= store_tables_count(server->store) || block->keys == NULL) {
        return err_set(err, SHOAL_EPROTO, "pull of table %u", block->table);
    }
    const uint32_t cols = store_table_info(server->store, block->table).cols;
    const size_t want = *rows_used + (size_t)block->count * cols;
    if (mem_grow(MEM_CLUSTER, (void **)&server->rows, &server->rows_capacity, want,
                 sizeof *server->rows) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for an answer of %zu floats", want);
    }
    const struct store_pull pull = {.table = block->table,
                                    .count = block->count,
                                    .keys = block->keys,
                                    .rows = server->rows + *rows_used};
    server->blocks[index] =
        (struct msg_block){.table = block->table, .count = block->count, .cols = cols};
    *rows_used = want;
    return store_pull(server->store, &pull, NULL, err);
}

static int on_pull(struct ps_server *server, const struct msg *msg, struct err *err)
{
    size_t rows_used = 0;
    if (mem_grow(MEM_CLUSTER, (void **)&server->blocks, &server->blocks_capacity, msg->blocks_count,
                 sizeof *server->blocks) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for an answer");
    }
    for (uint32_t i = 0; i < msg->blocks_count; i++) {
        const int rc = pull_block(server, &msg->blocks[i], i, &rows_used, err);
        if (rc != 0) return rc;
    }
    rows_used = 0; /* Only now do the rows stay where they are. */
    for (uint32_t i = 0; i < msg->blocks_count; i++) {
        server->blocks[i].rows = server->rows + rows_used;
        rows_used += (size_t)server->blocks[i].count * server->blocks[i].cols;
    }
    server->stats.pulls++;
    struct msg answer = {.type = MSG_ROWS,
                         .request = msg->request,
                         .blocks = server->blocks,
                         .blocks_count = msg->blocks_count,
                         .rows = {.version = server->state.version}};
    send(server, &answer, msg->from);
    return 0;
}

/* ---- Push ---- */

static void count_staleness(struct ps_server *server, uint64_t version)
{
    const uint64_t behind = server->state.version - version;
    struct ps_server_stats *stats = &server->stats;
    stats->staleness[behind < PS_STALENESS_MAX ? behind : PS_STALENESS_MAX]++;
    stats->staleness_sum += behind;
    if (behind > stats->staleness_max) stats->staleness_max = behind;
}

static int push_block(struct ps_server *server, const struct msg_push *push,
                      const struct msg_block *block, bool *is_applied, struct err *err)
{
    const struct env *env = &server->opts.env;
    struct store_push one = {
        .table = block->table,
        .count = block->count,
        .work = {.kind = env_keeps(env, ENV_RULE_NAMES) ? STORE_WORK_LEASE : STORE_WORK_NONE,
                 .stream = push->stream,
                 .token = env_keeps(env, ENV_RULE_FENCE) ? push->token : 0,
                 .number = push->number},
        .step = push->ticket,
        .keys = block->keys,
        .gradients = block->rows,
        .check_finite = true};
    struct store_pushed pushed = {0};
    if (block->table >= store_tables_count(server->store) || block->keys == NULL ||
        block->rows == NULL || block->cols != store_table_info(server->store, block->table).cols) {
        return err_set(err, SHOAL_EPROTO, "push to table %u: %u columns", block->table,
                       block->cols);
    }
    const int rc = store_push(server->store, &one, NULL, &pushed, err);
    *is_applied = *is_applied || pushed.shards_applied > 0;
    return rc;
}

static enum msg_status push_batch(struct ps_server *server, const struct msg *msg)
{
    struct err err = {0};
    bool is_applied = false;
    const bool is_retired = msg->push.stream < server->state.leases_below;
    if (is_retired && env_keeps(&server->opts.env, ENV_RULE_RETIRED)) {
        server->stats.repeated++;
        return MSG_REPEATED;
    }
    for (uint32_t i = 0; i < msg->blocks_count; i++) {
        const int rc = push_block(server, &msg->push, &msg->blocks[i], &is_applied, &err);
        if (rc == SHOAL_ESTALE) {
            server->stats.stale++;
            return MSG_STALE;
        }
        if (rc != 0) {
            server->stats.failed++;
            server->stats.failure = err;
            return MSG_FAILED;
        }
    }
    if (!is_applied) {
        server->stats.repeated++;
        return MSG_REPEATED;
    }
    count_staleness(server, msg->push.version);
    server->state.version++;
    server->stats.applied++;
    return MSG_DONE;
}

static enum msg_status push_step(struct ps_server *server, const struct msg *msg)
{
    if (msg->push.number < server->committed) {
        server->stats.dropped++;
        return MSG_STALE;
    }
    struct err err = {0};
    if (msg->push.number > server->committed || ps_sum_keep(server->sum, msg, &err) != 0) {
        server->stats.failed++;
        server->stats.failure = err;
        return MSG_FAILED;
    }
    return MSG_DONE;
}

static void on_push(struct ps_server *server, const struct msg *msg)
{
    struct msg answer = {.type = MSG_PUSHED, .request = msg->request};
    answer.pushed.status =
        msg->push.kind == MSG_WORK_STEP ? push_step(server, msg) : push_batch(server, msg);
    send(server, &answer, msg->from);
}

/* ---- Synchronous steps ---- */

static int commit(struct ps_server *server, const struct msg *msg, struct err *err)
{
    const uint64_t *slots = msg->list;
    uint32_t slots_count = msg->list_count;
    uint64_t all[64];
    if (!env_keeps(&server->opts.env, ENV_RULE_SET)) {
        slots_count = ps_sum_count(server->sum);
        ASSERT(slots_count <= sizeof all / sizeof all[0]);
        for (uint32_t i = 0; i < slots_count; i++) all[i] = ps_sum_slot(server->sum, i);
        slots = all;
    }
    for (uint32_t i = 0; i < slots_count; i++) {
        if (!ps_sum_has(server->sum, slots[i]) || (i > 0 && slots[i] <= slots[i - 1])) {
            if (env_keeps(&server->opts.env, ENV_RULE_SET)) {
                return err_set(err, SHOAL_EPROTO, "step %llu: no gradient of slot %llu",
                               (unsigned long long)msg->commit.step, (unsigned long long)slots[i]);
            }
        }
    }
    const int rc =
        ps_sum_apply(server->sum, slots, slots_count, msg->commit.step, server->store, err);
    if (rc != 0) return rc;
    server->stats.dropped += ps_sum_count(server->sum) - slots_count;
    server->stats.applied++;
    server->state.version++;
    server->committed = msg->commit.step + 1;
    ps_sum_clear(server->sum);
    return 0;
}

static int on_commit(struct ps_server *server, const struct msg *msg, struct err *err)
{
    if (msg->commit.step > server->committed) return 0; /* of a chief that knows more: cannot be */
    if (msg->commit.step == server->committed) {
        const int rc = commit(server, msg, err);
        if (rc != 0) return rc;
    }
    struct msg answer = {.type = MSG_COMMITTED, .committed = {.step = msg->commit.step}};
    send(server, &answer, msg->from);
    return 0;
}

/* ---- Loading and saving ---- */

static int on_world(struct ps_server *server, const struct msg *msg, struct err *err)
{
    if (msg->world.told != server->opts.incarnation) return 0;
    if (msg->world.phase == CHIEF_END) {
        const bool is_news = !server->has_ended;
        server->has_ended = true;
        if (is_news) say_hello(server);
        return 0;
    }
    if (msg->epoch > server->loaded && msg->world.phase != CHIEF_GATHER) {
        struct store *store = NULL;
        struct ps_state state = {0};
        const int rc =
            server->opts.load(server->opts.ctx, msg->world.checkpoint, &store, &state, err);
        if (rc != 0)
            return err_wrap(err, "load checkpoint %llu", (unsigned long long)msg->world.checkpoint);
        store_destroy(server->store);
        server->store = store;
        server->state = state;
        server->loaded = msg->epoch;
        server->committed = msg->world.step;
        server->marked = server->written = 0;
        ps_sum_clear(server->sum);
        say_hello(server);
        return 0;
    }
    if (msg->epoch != server->loaded) return 0;
    while (server->state.leases_below < msg->world.leases_below) {
        store_lease_retire(server->store, server->state.leases_below++);
    }
    return 0;
}

static int on_save(struct ps_server *server, const struct msg *msg, struct err *err)
{
    const uint64_t checkpoint = msg->save.checkpoint;
    if (checkpoint < server->marked) return 0;
    if (checkpoint > server->marked) {
        const int rc =
            server->opts.save(server->opts.ctx, checkpoint, server->store, &server->state, err);
        if (rc != 0) return rc;
        server->marked = checkpoint;
    }
    struct msg answer = {
        .type = MSG_SAVED,
        .saved = {.checkpoint = checkpoint, .written = server->written == checkpoint}};
    send(server, &answer, CLUSTER_CHIEF);
    return 0;
}

void ps_server_written(struct ps_server *server, uint64_t checkpoint)
{
    if (checkpoint != server->marked) return; /* of an epoch that is over */
    server->written = checkpoint;
    struct msg msg = {.type = MSG_SAVED, .saved = {.checkpoint = checkpoint, .written = 1}};
    send(server, &msg, CLUSTER_CHIEF);
}

/* ---- Messages ---- */

void ps_server_receive(struct ps_server *server, const struct msg *msg)
{
    struct err err = {0};
    int rc = 0;
    const bool is_ours = server->loaded != 0 && msg->epoch == server->loaded;
    const bool is_taken = is_ours || (server->loaded != 0 && msg->type == MSG_PUSH &&
                                      !env_keeps(&server->opts.env, ENV_RULE_EPOCH));
    if (msg->type == MSG_WORLD) {
        rc = on_world(server, msg, &err);
    } else if (!is_taken) {
        server->stats.stale++;
    } else if (msg->type == MSG_PULL) {
        rc = on_pull(server, msg, &err);
    } else if (msg->type == MSG_PUSH) {
        on_push(server, msg);
    } else if (msg->type == MSG_COMMIT) {
        rc = on_commit(server, msg, &err);
    } else if (msg->type == MSG_SAVE) {
        rc = on_save(server, msg, &err);
    }
    if (rc == 0) return;
    server->stats.failed++;
    server->stats.failure = err;
    env_logf(&server->opts.env, "%s: %s", msg_type_name(msg->type), err.text);
}

void ps_server_tick(struct ps_server *server)
{
    const struct env *env = &server->opts.env;
    say_hello(server);
    env->wake(env->ctx, env->now_ns(env->ctx) + server->opts.heartbeat_ns);
}

/* ---- Inspect ---- */

const struct ps_server_stats *ps_server_stats(const struct ps_server *server)
{
    return &server->stats;
}

bool ps_server_has_ended(const struct ps_server *server)
{
    return server->has_ended;
}

uint64_t ps_server_epoch(const struct ps_server *server)
{
    return server->loaded;
}

const struct store *ps_server_store(const struct ps_server *server)
{
    return server->store;
}
