/* msg is what tasks say to each other: a struct of borrowed pointers, and the one codec that turns it
 * into bytes and back. No I/O, no memory of its own.
 *
 * Every message has the same shape: who to whom, epoch, incarnation of the sender, number of the
 * request; then a few fields that are its type's own (all 64 bits wide), a list of numbers, and blocks
 * of keys and rows by table. Bytes are little-endian, every part starts at a multiple of 8, so that a
 * decoded message points into the bytes it came from:
 *
 *     magic u32 | type u16 | fields u16 | from u32 | to u32 | epoch | incarnation | request
 *     list_count u32 | blocks_count u32 | fields ... | list ...
 *     per block: table u32 | count u32 | cols u32 | flags u32 (1: keys, 2: rows) | keys | rows, padded
 *
 * If you add a message, add it to MSG_LIST; codec, names and fuzz target follow from it. */
#ifndef SHOAL_CLUSTER_MSG_H
#define SHOAL_CLUSTER_MSG_H

#include <stddef.h>
#include <stdint.h>

#include "base/bounds.h"
#include "base/err.h"

/* task -> chief, as heartbeat and after every change: I am here. */
#define MSG_HELLO_FIELDS(F)                                                                        \
    F(loaded)    /* ps: epoch whose state it holds */                                              \
    F(committed) /* ps: synchronous steps committed */                                             \
    F(ended)     /* has heard that the job is over */
/* chief -> task: the state of the world; the epoch is the header's. */
#define MSG_WORLD_FIELDS(F)                                                                        \
    F(phase)                                                                                       \
    F(told)         /* incarnation of the task that this is said to: not to its successor */       \
    F(checkpoint)   /* what a ps that has not loaded this epoch loads; 0: initial values */        \
    F(step)         /* synchronous steps that checkpoint holds */                                  \
    F(leases_below) /* every lease below is done: its names may be forgotten */
/* worker -> chief: I have done this; what next? */
#define MSG_ASK_FIELDS(F)                                                                          \
    F(kind)   /* enum msg_work_kind of what is done; MSG_WORK_WAIT: nothing */                     \
    F(stream) /* lease; slot of a step */                                                          \
    F(token)                                                                                       \
    F(number) /* batch of the lease; step */
/* chief -> worker. */
#define MSG_WORK_FIELDS(F)                                                                         \
    F(kind)                                                                                        \
    F(stream)                                                                                      \
    F(token)                                                                                       \
    F(number)                                                                                      \
    F(ticket)                                                                                      \
    F(first) /* example of the data that the batch starts with */                                  \
    F(count) /* examples; may be 0 in a step */                                                    \
    F(why)   /* MSG_WORK_WAIT: enum wait_why, and for which task */                                \
    F(whom)
/* worker -> ps: blocks of keys. ps -> worker: blocks of rows in the same order. */
#define MSG_PULL_FIELDS(F) F(unused)
#define MSG_ROWS_FIELDS(F) F(version) /* pushes that this ps has applied */
/* worker -> ps: gradients, named by the work that made them. */
#define MSG_PUSH_FIELDS(F)                                                                         \
    F(kind)                                                                                        \
    F(stream)                                                                                      \
    F(token)                                                                                       \
    F(number)                                                                                      \
    F(ticket)                                                                                      \
    F(version)                         /* at which its rows were pulled */                         \
    F(count)                           /* examples */
#define MSG_PUSHED_FIELDS(F) F(status) /* enum msg_status */
/* chief -> ps: this step is the sum of the slots in the list. ps -> chief: done. */
#define MSG_COMMIT_FIELDS(F) F(step)
#define MSG_COMMITTED_FIELDS(F) F(step)
/* chief -> ps: mark a cut and write it. ps -> chief: marked (0), written (1). */
#define MSG_SAVE_FIELDS(F) F(checkpoint)
#define MSG_SAVED_FIELDS(F)                                                                        \
    F(checkpoint)                                                                                  \
    F(written)

#define MSG_LIST(X)                                                                                \
    X(HELLO, hello)                                                                                \
    X(WORLD, world)                                                                                \
    X(ASK, ask)                                                                                    \
    X(WORK, work)                                                                                  \
    X(PULL, pull)                                                                                  \
    X(ROWS, rows)                                                                                  \
    X(PUSH, push)                                                                                  \
    X(PUSHED, pushed)                                                                              \
    X(COMMIT, commit)                                                                              \
    X(COMMITTED, committed)                                                                        \
    X(SAVE, save)                                                                                  \
    X(SAVED, saved)

enum msg_type {
#define X(type, member) MSG_##type,
    MSG_LIST(X)
#undef X
        MSG_TYPES_COUNT
};

#define F(name) uint64_t name;
#define X(type, member)                                                                            \
    struct msg_##member {                                                                          \
        MSG_##type##_FIELDS(F)                                                                     \
    };
MSG_LIST(X)
#undef X
#undef F

#define MSG_FIELDS_MAX 16u

enum msg_work_kind { MSG_WORK_WAIT, MSG_WORK_BATCH, MSG_WORK_STEP };
enum msg_status { MSG_DONE, MSG_REPEATED, MSG_STALE, MSG_FAILED };

struct msg_block {
    uint32_t table;
    uint32_t count;
    uint32_t cols;        /* of rows; 0 without */
    const uint64_t *keys; /* NULL: none (rows in the order of the request) */
    const float *rows;    /* count x cols; NULL: none */
};

struct msg {
    enum msg_type type;
    uint32_t from;
    uint32_t to;
    uint64_t epoch;
    uint64_t incarnation; /* of the sender */
    uint64_t request;
    uint32_t list_count;
    uint32_t blocks_count;
    const uint64_t *list;
    const struct msg_block *blocks;
    union {
#define X(type, member) struct msg_##member member;
        MSG_LIST(X)
#undef X
        uint64_t fields[MSG_FIELDS_MAX];
    };
};

const char *msg_type_name(enum msg_type type); /* "push" */

/* Bytes that msg_encode writes; a multiple of 8. */
size_t msg_bytes(const struct msg *msg);
void msg_encode(const struct msg *msg, uint8_t *bytes_out);

/* Reads a message out of bytes that start at a multiple of 8; it points into them, and its blocks are
 * the caller's array. SHOAL_EPROTO for anything msg_encode would not have written, SHOAL_ELIMIT for
 * more blocks than there is room for. */
int msg_decode(const uint8_t *bytes, size_t count, struct msg_block *blocks, uint32_t blocks_max,
               struct msg *msg_out, struct err *err);

#endif
