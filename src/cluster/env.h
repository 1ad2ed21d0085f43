/* env is all that a task of the cluster may do to the world: clock, random numbers, messages, one
 * wake-up, a small durable journal, log lines. The protocol (chief, ps server, worker) is state
 * machines over it: a message or a wake-up goes in, messages come out, nothing blocks. There is one
 * env over sockets and files and one in the simulator (src/sim).
 *
 * Messages may be lost, repeated, late and out of order: whoever sends a request sends it again until
 * it is answered, and whoever gets one may have had it before. */
#ifndef SHOAL_CLUSTER_ENV_H
#define SHOAL_CLUSTER_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct msg;

/* Rules of the protocol that the simulator can switch off, one at a time, to show that its checkers
 * would notice. Real tasks keep them all. */
#define ENV_RULE_LIST(X)                                                                           \
    X(NAMES, "names", "a shard applies each name once")                                            \
    X(FENCE, "fence", "older tokens of a lease are refused")                                       \
    X(EPOCH, "epoch", "a ps refuses pushes of another epoch")                                      \
    X(SET, "set", "a synchronous step commits just the named set")                                 \
    X(JOURNAL, "journal", "grants and sets are durable before they are told")                      \
    X(RESEND, "resend", "a successor sends the unfinished batch again")                            \
    X(BOUND, "bound", "ssp: nobody runs too far ahead")                                            \
    X(RETIRED, "retired", "a lease that is done stays done when its name is forgotten")            \
    X(INCARNATION, "incarnation", "a ps that has lost its memory means a new epoch")               \
    X(ACKS, "acks", "a batch is done when every ps has answered")                                  \
    X(CUT, "cut", "progress is recorded before the shards are cut")

enum env_rule {
#define X(name, word, text) ENV_RULE_##name,
    ENV_RULE_LIST(X)
#undef X
        ENV_RULES_COUNT
};

struct env {
    void *ctx;
    uint64_t (*now_ns)(void *ctx); /* never runs back */
    uint64_t (*random)(void *ctx);
    /* The message is borrowed for the call; it may get lost. */
    void (*send)(void *ctx, const struct msg *msg);
    /* The machine's tick is called at this time or soon after; a later call replaces an earlier. */
    void (*wake)(void *ctx, uint64_t at_ns);
    /* Appends to the journal; with `sync` it and all before it survive any crash when this returns. */
    int (*journal_append)(void *ctx, const void *bytes, size_t count, bool sync, struct err *err);
    /* All that the journal holds; borrowed until the next append. */
    int (*journal_read)(void *ctx, const uint8_t **bytes_out, size_t *count_out, struct err *err);
    /* Keeps the first `count` bytes: a record torn by a crash must not stand before what comes next. */
    int (*journal_cut)(void *ctx, size_t count, struct err *err);
    void (*log)(void *ctx, const char *text);
    uint32_t rules_off; /* simulator only: bit ENV_RULE_x set means the rule is not kept */
};

static inline bool env_keeps(const struct env *env, enum env_rule rule)
{
    return (env->rules_off >> rule & 1) == 0;
}

/* Formats and logs a line of at most 255 bytes. */
void env_logf(const struct env *env, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *env_rule_word(enum env_rule rule); /* "fence" */
const char *env_rule_text(enum env_rule rule);

#endif
