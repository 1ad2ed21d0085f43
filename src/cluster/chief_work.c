/* Who gets which batch: leases with tokens, tickets, and the bound of ssp. */
#include "base/assert.h"
#include "cluster/chief_own.h"

#define TICKETS_BLOCK 256u /* reserved by one journal record */

/* ---- Leases ---- */

struct chief_lease *chief_lease_find(struct chief *chief, uint64_t id)
{
    for (uint32_t i = 0; i < chief->truth.leases_count; i++) {
        if (chief->truth.leases[i].id == id) return &chief->truth.leases[i];
    }
    return NULL;
}

struct chief_lease *chief_lease_open(struct chief *chief)
{
    struct chief_truth *truth = &chief->truth;
    const uint64_t left =
        chief->opts.steps_max == 0 ? UINT64_MAX : chief->opts.steps_max - truth->granted;
    struct chief_lease lease = {.id = truth->leases_next, .holder = CHIEF_NOBODY};
    if (left == 0 || truth->leases_count == CHIEF_LEASES_MAX) return NULL;
    if (!chief->opts.lease(chief->opts.ctx, lease.id, &lease.span)) return NULL;
    ASSERT(lease.span.examples > 0);
    lease.batches = (lease.span.examples - 1) / chief->opts.batch_size + 1;
    if (lease.batches > left) lease.batches = left;
    truth->leases_next++;
    truth->granted += lease.batches;
    truth->leases[truth->leases_count] = lease;
    return &truth->leases[truth->leases_count++];
}

static struct chief_span batch_span(const struct chief *chief, const struct chief_lease *lease,
                                    uint64_t number)
{
    const uint64_t size = chief->opts.batch_size;
    const uint64_t left = lease->span.examples - number * size;
    return (struct chief_span){lease->span.first + number * size, left < size ? left : size};
}

void chief_lease_close(struct chief *chief, struct chief_lease *lease)
{
    struct chief_truth *truth = &chief->truth;
    const struct chief_span last = batch_span(chief, lease, lease->batches - 1);
    truth->done += lease->batches - lease->done;
    truth->examples += last.first + last.examples - lease->span.first;
    chief_journal(chief, CHIEF_RECORD_DONE, &lease->id, 1, true);
    for (struct chief_lease *next = lease + 1; next < truth->leases + truth->leases_count; next++) {
        next[-1] = *next;
    }
    truth->leases_count--;
}

uint64_t chief_leases_below(const struct chief *chief)
{
    const struct chief_truth *truth = &chief->truth;
    return truth->leases_count > 0 ? truth->leases[0].id : truth->leases_next;
}

void chief_orphan(struct chief *chief, uint32_t worker)
{
    for (uint32_t i = 0; i < chief->truth.leases_count; i++) {
        struct chief_lease *lease = &chief->truth.leases[i];
        if (lease->holder == worker) lease->holder = CHIEF_NOBODY;
    }
}

static struct chief_lease *lease_of(struct chief *chief, uint32_t holder)
{
    for (uint32_t i = 0; i < chief->truth.leases_count; i++) {
        if (chief->truth.leases[i].holder == holder) return &chief->truth.leases[i];
    }
    return NULL;
}

/* The journal has it before anyone is told (1). */
static void grant(struct chief *chief, struct chief_lease *lease, uint32_t worker)
{
    const uint64_t incarnation =
        chief->tasks[cluster_worker(&chief->opts.cluster, worker)].incarnation;
    if (lease->token != 0 && !env_keeps(&chief->opts.env, ENV_RULE_RESEND) &&
        lease->done + 1 < lease->batches) {
        lease->done++;
        lease->has_ticket = false;
    }
    lease->token = ++chief->token;
    lease->holder = worker;
    chief->askers[worker].holder_incarnation = incarnation;
    const uint64_t words[] = {lease->id, lease->token, worker, incarnation, lease->done};
    chief_journal(chief, CHIEF_RECORD_GRANT, words, 5, true);
}

static void lease_progress(struct chief *chief, uint32_t worker, const struct msg_ask *ask)
{
    struct chief_lease *lease = chief_lease_find(chief, ask->stream);
    if (lease == NULL || lease->holder != worker || lease->token != ask->token) return;
    if (ask->number < lease->done || ask->number >= lease->batches) return;
    chief->truth.done += ask->number + 1 - lease->done;
    lease->done = ask->number + 1;
    lease->has_ticket = false;
    chief->askers[worker].clock++;
    if (lease->done == lease->batches) chief_lease_close(chief, lease);
}

/* ---- Who may go on ---- */

bool chief_clock(const struct chief *chief, uint32_t worker, uint64_t *clock_out)
{
    for (uint32_t i = 0; i < chief->truth.leases_count; i++) {
        if (chief->truth.leases[i].holder != worker) continue;
        *clock_out = chief->askers[worker].clock;
        return true;
    }
    return false;
}

/* The worker with a lease that has done least; CHIEF_NOBODY when none has a lease. */
static uint32_t slowest(const struct chief *chief, uint64_t *clock_out)
{
    uint32_t found = CHIEF_NOBODY;
    *clock_out = UINT64_MAX;
    for (uint32_t worker = 0; worker < chief->opts.cluster.workers_count; worker++) {
        uint64_t clock = 0;
        if (!chief_clock(chief, worker, &clock) || clock >= *clock_out) continue;
        *clock_out = clock;
        found = worker;
    }
    return found;
}

/* A worker that joins, or had nothing to do, starts level with the slowest. */
static void take_place(struct chief *chief, uint32_t worker)
{
    struct chief_asker *asker = &chief->askers[worker];
    uint64_t clock = 0;
    if (asker->is_fresh && slowest(chief, &clock) != CHIEF_NOBODY) asker->clock = clock;
    asker->is_fresh = false;
}

static bool is_too_far(struct chief *chief, uint32_t worker, struct wait *wait_out)
{
    uint64_t clock = 0;
    if (chief->opts.discipline != CHIEF_SSP || !env_keeps(&chief->opts.env, ENV_RULE_BOUND)) {
        return false;
    }
    const uint32_t last = slowest(chief, &clock);
    if (last == CHIEF_NOBODY || chief->askers[worker].clock <= clock + chief->opts.staleness) {
        return false;
    }
    wait_out->why = WAIT_SLOWEST;
    wait_out->whom = cluster_worker(&chief->opts.cluster, last);
    return true;
}

static uint64_t next_ticket(struct chief *chief)
{
    if (chief->ticket == chief->tickets_reserved) {
        chief->tickets_reserved += TICKETS_BLOCK;
        chief_journal(chief, CHIEF_RECORD_TICKETS, &chief->tickets_reserved, 1, true);
    }
    return chief->ticket++;
}

/* The worker's own lease, that of one who died, or the next of the data. */
static bool lease_find(struct chief *chief, uint32_t worker, struct msg_work *work_out,
                       struct wait *wait_out)
{
    struct chief_asker *asker = &chief->askers[worker];
    take_place(chief, worker);
    if (is_too_far(chief, worker, wait_out)) return false;
    struct chief_lease *lease = lease_of(chief, worker);
    if (lease == NULL) {
        lease = lease_of(chief, CHIEF_NOBODY);
        if (lease == NULL) lease = chief_lease_open(chief);
        if (lease == NULL) {
            const bool is_over = chief->truth.leases_count == 0;
            wait_out->why = is_over ? WAIT_END : WAIT_LEASE;
            wait_out->whom =
                is_over ? CLUSTER_CHIEF
                        : cluster_worker(&chief->opts.cluster, chief->truth.leases[0].holder);
            asker->is_fresh = true;
            return false;
        }
        grant(chief, lease, worker);
    }
    if (!lease->has_ticket) lease->ticket = next_ticket(chief);
    lease->has_ticket = true;
    const struct chief_span span = batch_span(chief, lease, lease->done);
    *work_out = (struct msg_work){.kind = MSG_WORK_BATCH,
                                  .stream = lease->id,
                                  .token = lease->token,
                                  .number = lease->done,
                                  .ticket = lease->ticket,
                                  .first = span.first,
                                  .count = span.examples};
    return true;
}

/* ---- Requests ---- */

static void answer(struct chief *chief, uint32_t worker)
{
    const struct chief_asker *asker = &chief->askers[worker];
    struct msg msg = {.type = MSG_WORK, .request = asker->request, .work = asker->answer};
    if (chief->status.failure != 0) return; /* What is not in the journal is not told. */
    chief_send(chief, &msg, cluster_worker(&chief->opts.cluster, worker));
}

static void serve_one(struct chief *chief, uint32_t worker)
{
    struct chief_asker *asker = &chief->askers[worker];
    struct wait wait = asker->wait;
    const bool is_found = chief->opts.discipline == CHIEF_SYNC
                              ? chief_sync_find(chief, worker, &asker->answer, &wait)
                              : lease_find(chief, worker, &asker->answer, &wait);
    if (is_found) {
        asker->is_parked = false;
        answer(chief, worker);
        return;
    }
    const bool is_news = wait.why != asker->wait.why || wait.whom != asker->wait.whom;
    if (!is_news) return;
    asker->wait = wait;
    asker->answer = (struct msg_work){.kind = MSG_WORK_WAIT, .why = wait.why, .whom = wait.whom};
    answer(chief, worker);
}

void chief_serve(struct chief *chief)
{
    if (chief->phase != CHIEF_RUN) return;
    for (uint32_t worker = 0; worker < chief->opts.cluster.workers_count; worker++) {
        if (chief->askers[worker].is_parked) serve_one(chief, worker);
    }
}

void chief_ask(struct chief *chief, const struct msg *msg)
{
    const uint32_t worker = msg->from - cluster_worker(&chief->opts.cluster, 0);
    struct chief_asker *asker = &chief->askers[worker];
    if (chief->phase != CHIEF_RUN || msg->epoch != chief->epoch) return;
    if (asker->has_request && msg->request < asker->request) return;
    if (asker->has_request && msg->request == asker->request) {
        answer(chief, worker);
        return;
    }
    asker->has_request = true;
    asker->request = msg->request;
    asker->is_parked = true;
    asker->wait = (struct wait){.who = msg->from,
                                .whom = CLUSTER_CHIEF,
                                .since_ns = chief->opts.env.now_ns(chief->opts.env.ctx)};
    asker->answer = (struct msg_work){.kind = MSG_WORK_WAIT};
    if (msg->ask.kind == MSG_WORK_BATCH && chief->opts.discipline != CHIEF_SYNC) {
        lease_progress(chief, worker, &msg->ask);
    }
    if (msg->ask.kind == MSG_WORK_STEP && chief->opts.discipline == CHIEF_SYNC) {
        chief_sync_arrive(chief, &msg->ask);
    }
    chief_serve(chief);
    chief_round_off(chief);
}
