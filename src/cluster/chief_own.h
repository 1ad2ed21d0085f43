/* chief_own is what the files of the chief share: its state, and the verbs between them. */
#ifndef SHOAL_CLUSTER_CHIEF_OWN_H
#define SHOAL_CLUSTER_CHIEF_OWN_H

#include "cluster/chief.h"

#define CHIEF_NOBODY UINT32_MAX

struct chief_task {
    uint64_t incarnation; /* 0: not seen */
    uint64_t heard_ns;
    bool alive;
    bool ended;
    uint64_t loaded;    /* ps: epoch */
    uint64_t committed; /* ps: steps, in this epoch */
    bool marked;        /* ps: the pending checkpoint's cut */
    bool written;       /* ps: the pending checkpoint */
};

struct chief_lease {
    uint64_t id;
    struct chief_span span;
    uint64_t batches;
    uint64_t done;  /* batches */
    uint64_t token; /* 0: not granted since the rollback */
    uint32_t holder;
    uint64_t ticket; /* of batch `done`, when has_ticket */
    bool has_ticket;
};

/* What a rollback takes back. */
struct chief_truth {
    uint64_t leases_next; /* the first never granted */
    uint64_t granted;     /* batches of all leases so far */
    uint64_t done;        /* batches; synchronous steps */
    uint64_t examples;
    uint32_t leases_count;
    struct chief_lease *leases; /* in progress, by id */
};

struct chief_asker { /* a worker's request */
    uint64_t request;
    bool has_request;
    bool is_parked;
    struct wait wait;       /* while parked */
    struct msg_work answer; /* the last, to be repeated */
    uint64_t clock;
    bool is_fresh; /* has no place in the order of clocks yet */
    uint64_t holder_incarnation;
};

/* The last whole checkpoint, and one being written: progress as journal words. */
struct chief_saved {
    uint64_t id;
    uint64_t words_count;
    uint64_t *words; /* CHIEF_RECORD_WORDS_MAX */
};

struct chief {
    struct chief_opts opts;
    enum chief_phase phase;
    uint64_t phase_ns; /* since when */
    uint64_t epoch;
    struct chief_task *tasks;
    struct chief_asker *askers;
    uint64_t *known; /* incarnations of the ps in this epoch */
    struct chief_truth truth;
    uint64_t token; /* the highest given: tokens and checkpoints share one counter */
    uint64_t ticket;
    uint64_t tickets_reserved;
    uint32_t slots;  /* sync: gradients made for a step */
    uint32_t wanted; /* of which so many count */
    bool *arrived;
    uint64_t *set; /* the slots that count, ascending, while committing */
    uint32_t arrived_count;
    bool is_committing;
    uint64_t commit_ns;
    struct chief_saved last;
    struct chief_saved pending; /* id 0: none */
    uint64_t pending_ns;
    bool is_replaying;
    uint64_t *room; /* CHIEF_RECORD_WORDS_MAX: of the record being written or read */
    struct chief_status status;
};

/* ---- chief.c ---- */
void chief_send(const struct chief *chief, struct msg *msg, uint32_t to);
bool chief_is_pending_marked(const struct chief *chief);
void chief_saved_take(struct chief *chief); /* the pending checkpoint is whole */
/* Begins a checkpoint if one is due, ends the job if all is done. */
void chief_round_off(struct chief *chief);

/* ---- chief_work.c ---- */
void chief_ask(struct chief *chief, const struct msg *msg);
void chief_serve(struct chief *chief); /* answers whoever can be answered by now */
void chief_orphan(struct chief *chief, uint32_t worker);
struct chief_lease *chief_lease_find(struct chief *chief, uint64_t id);
struct chief_lease *chief_lease_open(struct chief *chief); /* NULL: no more */
void chief_lease_close(struct chief *chief, struct chief_lease *lease);
uint64_t chief_leases_below(const struct chief *chief);

/* ---- chief_sync.c ---- */
void chief_sync_arrive(struct chief *chief, const struct msg_ask *ask);
bool chief_sync_find(struct chief *chief, uint32_t worker, struct msg_work *work_out,
                     struct wait *wait_out);
void chief_sync_reset(struct chief *chief);
void chief_sync_replay(struct chief *chief, const uint64_t *words, uint64_t words_count);
void chief_sync_name(struct chief *chief); /* names the set if enough are there */
void chief_sync_commit_all(struct chief *chief);
void chief_sync_advance(struct chief *chief); /* the step is done if every ps has committed it */
/* A ps has committed more than the (restarted) chief knows of. */
void chief_sync_adopt(struct chief *chief, uint64_t committed);

/* ---- chief_journal.c ---- */
enum chief_record {
    CHIEF_RECORD_JOB = 1, /* ps, workers, discipline */
    CHIEF_RECORD_EPOCH,   /* epoch, token, checkpoint, incarnations of the ps */
    CHIEF_RECORD_GRANT,   /* lease, token, worker, its incarnation, done */
    CHIEF_RECORD_DONE,    /* lease */
    CHIEF_RECORD_TICKETS, /* given out below this */
    CHIEF_RECORD_COMMIT,  /* step, examples before it, slots */
    CHIEF_RECORD_SAVE,    /* checkpoint, progress */
    CHIEF_RECORD_SAVED,   /* checkpoint */
    CHIEF_RECORD_END,
};

/* After a failure the chief stands still (status.failure). */
void chief_journal(struct chief *chief, enum chief_record type, const uint64_t *words,
                   uint64_t words_count, bool sync);
int chief_replay(struct chief *chief, struct err *err);
/* Progress as words, and back. */
uint64_t chief_truth_write(const struct chief *chief, uint64_t *words_out);
int chief_truth_read(struct chief *chief, const uint64_t *words, uint64_t words_count,
                     struct err *err);

#endif
