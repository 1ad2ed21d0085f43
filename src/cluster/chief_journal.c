/* The journal: records of 64-bit words, each with its length and CRC32C before it. A crash may leave a
 * torn record at the end; it was never relied on, and reading stops there. */
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "cluster/chief_own.h"

struct record_head {
    uint32_t crc; /* of the words */
    uint32_t words_count;
};

static uint64_t record_begin(uint64_t *room, enum chief_record type, const uint64_t *words,
                             uint64_t words_count)
{
    room[1] = type;
    if (words_count > 0) memcpy(room + 2, words, words_count * 8);
    const struct record_head head = {.crc = hash_crc32c(0, room + 1, (words_count + 1) * 8),
                                     .words_count = (uint32_t)words_count + 1};
    memcpy(room, &head, sizeof head);
    return (words_count + 2) * 8;
}

void chief_journal(struct chief *chief, enum chief_record type, const uint64_t *words,
                   uint64_t words_count, bool sync)
{
    ASSERT(words_count + 2 <= CHIEF_RECORD_WORDS_MAX);
    if (chief->is_replaying || chief->status.failure != 0) return;
    const bool is_promise = type == CHIEF_RECORD_GRANT || type == CHIEF_RECORD_COMMIT;
    if (is_promise && !env_keeps(&chief->opts.env, ENV_RULE_JOURNAL)) sync = false;
    const uint64_t bytes = record_begin(chief->room, type, words, words_count);
    struct err err = {0};
    chief->status.failure =
        chief->opts.env.journal_append(chief->opts.env.ctx, chief->room, bytes, sync, &err);
    if (chief->status.failure != 0) env_logf(&chief->opts.env, "journal: %s", err.text);
}

uint64_t chief_truth_write(const struct chief *chief, uint64_t *words_out)
{
    const struct chief_truth *truth = &chief->truth;
    uint64_t count = 0;
    words_out[count++] = truth->leases_next;
    words_out[count++] = truth->granted;
    words_out[count++] = truth->done;
    words_out[count++] = truth->examples;
    words_out[count++] = truth->leases_count;
    for (uint32_t i = 0; i < truth->leases_count; i++) {
        words_out[count++] = truth->leases[i].id;
        words_out[count++] = truth->leases[i].batches;
        words_out[count++] = truth->leases[i].done;
    }
    return count;
}

int chief_truth_read(struct chief *chief, const uint64_t *words, uint64_t words_count,
                     struct err *err)
{
    struct chief_truth *truth = &chief->truth;
    if (words_count == 0) { /* before the first checkpoint */
        *truth = (struct chief_truth){.leases = truth->leases};
        return 0;
    }
    const uint64_t leases_count = words_count >= 5 ? words[4] : UINT64_MAX;
    if (leases_count > CHIEF_LEASES_MAX || words_count != 5 + 3 * leases_count) {
        return err_set(err, SHOAL_ECORRUPT, "journal: progress of %llu words",
                       (unsigned long long)words_count);
    }
    *truth = (struct chief_truth){.leases = truth->leases,
                                  .leases_next = words[0],
                                  .granted = words[1],
                                  .done = words[2],
                                  .examples = words[3],
                                  .leases_count = (uint32_t)leases_count};
    for (uint32_t i = 0; i < leases_count; i++) {
        struct chief_lease *lease = &truth->leases[i];
        *lease = (struct chief_lease){.id = words[5 + 3 * i],
                                      .batches = words[6 + 3 * i],
                                      .done = words[7 + 3 * i],
                                      .holder = CHIEF_NOBODY};
        if (!chief->opts.lease(chief->opts.ctx, lease->id, &lease->span)) {
            return err_set(err, SHOAL_EMISMATCH, "journal: the data has no lease %llu",
                           (unsigned long long)lease->id);
        }
    }
    return 0;
}

/* ---- Replay ---- */

static int replay_job(const struct chief *chief, const uint64_t *words, struct err *err)
{
    const struct cluster *cluster = &chief->opts.cluster;
    if (words[0] == cluster->ps_count && words[1] == cluster->workers_count &&
        words[2] == chief->opts.discipline) {
        return 0;
    }
    return err_set(err, SHOAL_EMISMATCH,
                   "the journal is of %llu ps and %llu workers; this job has %u and %u",
                   (unsigned long long)words[0], (unsigned long long)words[1], cluster->ps_count,
                   cluster->workers_count);
}

static int replay_epoch(struct chief *chief, const uint64_t *words, struct err *err)
{
    chief->epoch = words[0];
    chief->token = words[1];
    memcpy(chief->known, words + 3, chief->opts.cluster.ps_count * sizeof *words);
    chief->pending.id = 0;
    chief_sync_reset(chief);
    return chief_truth_read(chief, chief->last.words, chief->last.words_count, err);
}

static int replay_grant(struct chief *chief, const uint64_t *words, struct err *err)
{
    struct chief_lease *lease = chief_lease_find(chief, words[0]);
    if (lease == NULL && words[0] == chief->truth.leases_next) lease = chief_lease_open(chief);
    if (lease == NULL || words[2] >= chief->opts.cluster.workers_count) {
        return err_set(err, SHOAL_ECORRUPT, "journal: grant of lease %llu",
                       (unsigned long long)words[0]);
    }
    lease->token = chief->token = words[1];
    lease->holder = (uint32_t)words[2];
    chief->askers[lease->holder].holder_incarnation = words[3];
    if (words[4] > lease->done) {
        chief->truth.done += words[4] - lease->done;
        lease->done = words[4];
    }
    return 0;
}

static int replay_record(struct chief *chief, const uint64_t *words, uint64_t count,
                         struct err *err)
{
    static const uint8_t words_min[] = {0, 3, 3, 5, 1, 1, 2, 1, 1, 0};
    const uint64_t type = *words++;
    const uint64_t ps_count = chief->opts.cluster.ps_count;
    count--;
    if (type < CHIEF_RECORD_JOB || type > CHIEF_RECORD_END || count < words_min[type] ||
        (type == CHIEF_RECORD_EPOCH && count != 3 + ps_count) ||
        (type == CHIEF_RECORD_COMMIT && count != 2 + (uint64_t)chief->wanted)) {
        return err_set(err, SHOAL_ECORRUPT, "journal: record of type %llu, %llu words",
                       (unsigned long long)type, (unsigned long long)count);
    }
    switch ((enum chief_record)type) {
    case CHIEF_RECORD_JOB: return replay_job(chief, words, err);
    case CHIEF_RECORD_EPOCH: return replay_epoch(chief, words, err);
    case CHIEF_RECORD_GRANT: return replay_grant(chief, words, err);
    case CHIEF_RECORD_DONE: {
        struct chief_lease *lease = chief_lease_find(chief, words[0]);
        if (lease == NULL) return err_set(err, SHOAL_ECORRUPT, "journal: a lease is done twice");
        chief_lease_close(chief, lease);
        return 0;
    }
    case CHIEF_RECORD_TICKETS: chief->ticket = chief->tickets_reserved = words[0]; return 0;
    case CHIEF_RECORD_COMMIT: chief_sync_replay(chief, words, count); return 0;
    case CHIEF_RECORD_SAVE:
        chief->token = chief->pending.id = words[0];
        chief->pending.words_count = count - 1;
        memcpy(chief->pending.words, words + 1, (count - 1) * 8);
        return 0;
    case CHIEF_RECORD_SAVED: chief_saved_take(chief); return 0;
    case CHIEF_RECORD_END: chief->phase = CHIEF_END; return 0;
    }
    return 0;
}

int chief_replay(struct chief *chief, struct err *err)
{
    const uint8_t *bytes = NULL;
    size_t left = 0;
    size_t whole = 0; /* bytes of whole records */
    int rc = chief->opts.env.journal_read(chief->opts.env.ctx, &bytes, &left, err);
    chief->is_replaying = true;
    while (rc == 0 && left >= sizeof(struct record_head)) {
        struct record_head head;
        memcpy(&head, bytes, sizeof head);
        const size_t words_bytes = (size_t)head.words_count * 8;
        if (head.words_count == 0 || head.words_count >= CHIEF_RECORD_WORDS_MAX) break;
        if (left - sizeof head < words_bytes) break;
        memcpy(chief->room, bytes + sizeof head, words_bytes);
        if (hash_crc32c(0, chief->room, words_bytes) != head.crc) break;
        rc = replay_record(chief, chief->room, head.words_count, err);
        bytes += sizeof head + words_bytes;
        left -= sizeof head + words_bytes;
        whole += sizeof head + words_bytes;
    }
    if (rc == 0 && left > 0) rc = chief->opts.env.journal_cut(chief->opts.env.ctx, whole, err);
    chief->is_replaying = false;
    chief->pending.id = 0; /* Its shards may be half written. The next has a number of its own. */
    return rc;
}
