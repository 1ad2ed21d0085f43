/* Synchronous steps. A step has `slots` gradients, slot s made by worker s % workers; when `wanted` of
 * them lie on every ps, the chief names the set, and every ps commits just that:
 *
 *     worker            chief                      ps
 *       | PUSH (step, slot) ----------------------->|   kept aside
 *       |<---------------------------------- PUSHED |
 *       | ASK (done) ---->|                         |
 *       |                 | journal: set            |
 *       |                 | COMMIT (step, set) ---->|   sum in slot order / examples, applied once
 *       |                 |<------------- COMMITTED |
 *       |<- WORK (step+1) |                         | */
#include <string.h>

#include "base/assert.h"
#include "cluster/chief_own.h"

void chief_sync_reset(struct chief *chief)
{
    memset(chief->arrived, 0, chief->slots * sizeof *chief->arrived);
    chief->arrived_count = 0;
    chief->is_committing = false;
}

void chief_sync_commit_all(struct chief *chief)
{
    struct msg msg = {.type = MSG_COMMIT,
                      .list = chief->set,
                      .list_count = chief->wanted,
                      .commit = {.step = chief->truth.done}};
    for (uint32_t ps = 0; ps < chief->opts.cluster.ps_count; ps++) {
        if (chief->tasks[cluster_ps(ps)].committed > chief->truth.done) continue;
        chief_send(chief, &msg, cluster_ps(ps));
    }
}

static void begin_commit(struct chief *chief)
{
    chief->is_committing = true;
    chief->commit_ns = chief->opts.env.now_ns(chief->opts.env.ctx);
}

static uint64_t set_examples(const struct chief *chief)
{
    uint64_t examples = 0;
    for (uint32_t i = 0; i < chief->wanted; i++) {
        examples +=
            chief->opts.batch(chief->opts.ctx, chief->truth.done, (uint32_t)chief->set[i]).examples;
    }
    return examples;
}

void chief_sync_name(struct chief *chief)
{
    uint64_t words[2 + CHIEF_LEASES_MAX];
    if (chief->phase != CHIEF_RUN || chief->is_committing) return;
    if (chief->arrived_count < chief->wanted) return;
    if (chief->pending.id != 0 && !chief_is_pending_marked(chief)) return; /* the cut comes first */
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < chief->slots && count < chief->wanted; slot++) {
        if (chief->arrived[slot]) chief->set[count++] = slot;
    }
    ASSERT(count == chief->wanted);
    words[0] = chief->truth.done;
    words[1] = chief->truth.examples;
    memcpy(words + 2, chief->set, count * sizeof *words);
    chief_journal(chief, CHIEF_RECORD_COMMIT, words, 2 + count, chief->wanted < chief->slots);
    if (chief->status.failure != 0) return;
    begin_commit(chief);
    chief_sync_commit_all(chief);
}

/* The set of a step is known; that a later one was named says that this one is committed. */
void chief_sync_replay(struct chief *chief, const uint64_t *words, uint64_t words_count)
{
    chief_sync_reset(chief);
    chief->truth.done = words[0];
    chief->truth.examples = words[1];
    memcpy(chief->set, words + 2, (words_count - 2) * sizeof *words);
    chief->is_committing = true;
}

/* Where every gradient counts the set need not be durable: if one ps has committed a step, all
 * gradients of it lie on all of them. */
void chief_sync_adopt(struct chief *chief, uint64_t committed)
{
    const uint64_t known = chief->truth.done + (chief->is_committing ? 1 : 0);
    if (chief->opts.discipline != CHIEF_SYNC || committed <= known) return;
    if (chief->wanted < chief->slots) return;
    chief_sync_reset(chief);
    chief->truth.done = committed - 1;
    for (uint32_t slot = 0; slot < chief->slots; slot++) chief->set[slot] = slot;
    begin_commit(chief);
    chief_sync_commit_all(chief);
}

void chief_sync_arrive(struct chief *chief, const struct msg_ask *ask)
{
    if (ask->stream >= chief->slots || ask->number > chief->truth.done) return;
    if (ask->number < chief->truth.done || chief->is_committing) {
        /* Too late, unless it is in the set and its report came again from a new incarnation. */
        chief->status.dropped += ask->number < chief->truth.done ? 1 : 0;
        return;
    }
    if (chief->arrived[ask->stream]) return;
    chief->arrived[ask->stream] = true;
    chief->arrived_count++;
    chief_sync_name(chief);
}

void chief_sync_advance(struct chief *chief)
{
    if (!chief->is_committing || chief->phase != CHIEF_RUN) return;
    for (uint32_t i = 0; i < chief->opts.cluster.ps_count; i++) {
        if (chief->tasks[cluster_ps(i)].committed <= chief->truth.done) return;
    }
    chief->truth.examples += set_examples(chief);
    chief->truth.done++;
    chief_sync_reset(chief);
    chief_round_off(chief);
    chief_serve(chief);
}

static uint32_t first_ps_behind(const struct chief *chief)
{
    for (uint32_t ps = 0; ps < chief->opts.cluster.ps_count; ps++) {
        if (chief->tasks[cluster_ps(ps)].committed <= chief->truth.done) return cluster_ps(ps);
    }
    return CLUSTER_CHIEF;
}

bool chief_sync_find(struct chief *chief, uint32_t worker, struct msg_work *work_out,
                     struct wait *wait_out)
{
    const uint32_t workers = chief->opts.cluster.workers_count;
    if (chief->is_committing || chief->truth.done == chief->opts.steps_max) {
        wait_out->why = chief->is_committing ? WAIT_COMMIT : WAIT_END;
        wait_out->whom = chief->is_committing ? first_ps_behind(chief) : CLUSTER_CHIEF;
        return false;
    }
    for (uint32_t slot = worker; slot < chief->slots; slot += workers) {
        if (chief->arrived[slot]) continue;
        const struct chief_span span = chief->opts.batch(chief->opts.ctx, chief->truth.done, slot);
        *work_out = (struct msg_work){.kind = MSG_WORK_STEP,
                                      .stream = slot,
                                      .number = chief->truth.done,
                                      .ticket = chief->truth.done,
                                      .first = span.first,
                                      .count = span.examples};
        return true;
    }
    wait_out->why = WAIT_GRADIENT;
    for (uint32_t slot = 0; slot < chief->slots; slot++) {
        if (chief->arrived[slot]) continue;
        wait_out->whom = cluster_worker(&chief->opts.cluster, slot % workers);
        break;
    }
    return false;
}
