/* store holds the tables of one process: parameters, their slots, and the rules that move them. It is
 * what a trainer embeds and what a parameter server serves. It does no I/O, starts no thread (a team
 * is lent to the calls that can use one) and never waits. Requests are structs of borrowed pointers,
 * answers go to the caller's memory: a server decodes a frame into the same structs.
 *
 * Tables (made once, then never removed):
 *   dense    a tensor rows x cols. Values are one array that the graph reads in place, each slot
 *            another. Cut into shards: contiguous ranges of elements of comparable size.
 *   fixed    rows of `cols` floats for the keys 0 .. rows-1. Shard = key % shards.
 *   dynamic  the same for any 64-bit keys. A row is made when first pushed to; until then a pull
 *            answers the initial value. Shard = the top bits of hash_mix64(key).
 *
 * (1) How many shards a table has depends on its declared size alone (store_shards_rule), never on
 *     threads or servers.
 * (2) An embedding row is value then slots, contiguous, and never moves. Beyond values and slots a
 *     dynamic table takes at most 16 bytes a row (store_index.h), a fixed one a bit.
 * (3) The same requests in the same order leave the same bits, whatever the team. Pulls are cut by
 *     key range. So are the updates of a push, since keys are unique and rows independent; what
 *     changes a shard's index (a new row) is done by one part per shard, in key order.
 * (4) Each shard applies the work named in a push once and in order (struct store_work), and keeps
 *     what it has applied as part of its state, saved and loaded with it.
 * (5) A push either applies in whole or, when it fails, changes no value: rows are found or made
 *     before the first one moves.
 *
 * Threads: one thread calls; the exceptions are store_dense_apply, and pulls and reads among
 * themselves, which any threads may make at once while nothing is written. */
#ifndef SHOAL_STORE_H
#define SHOAL_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bounds.h"
#include "base/err.h"
#include "base/team.h"
#include "store/store_rule.h"
#include "tensor/init.h"

struct store;

enum store_kind { STORE_DENSE, STORE_FIXED, STORE_DYNAMIC };

struct store_opts {
    uint64_t seed;
};

int store_create(const struct store_opts *opts, struct store **store_out, struct err *err);
void store_destroy(struct store *store); /* NULL is a no-op. */

/* ---- Tables ------------------------------------------------------------------------------------ */

struct store_table_opts {
    const char *name; /* copied; part of what seeds the initial values */
    enum store_kind kind;
    uint64_t rows; /* dense, fixed; of a dynamic table: how many are expected, for the plan only */
    uint32_t cols; /* columns, or the width of an embedding */
    uint32_t shards;  /* 0: by rule */
    struct init init; /* of the values */
    struct store_rule rule;
    double average_decay; /* moving average of the values; 0: none */
    uint32_t admit_count; /* dynamic: pushes before a key's row counts; 0 or 1: the first */
    uint64_t evict_steps; /* dynamic: rows not pushed for this many steps may go; 0: never */
    uint64_t rows_max;    /* dynamic: beyond this the rows unused for longest go; 0: no limit */
};

/* The shards that a table of this kind and size gets: dense one per STORE_SHARD_BYTES of values;
 * fixed 1 up to STORE_SHARD_BYTES, then 16; dynamic 16. */
uint32_t store_shards_rule(const struct store_table_opts *opts);

/* SHOAL_EEXIST for a name that is there, SHOAL_EINVAL for sizes out of bounds or plain adam on a
 * dynamic table, SHOAL_ENOMEM. *table_out is the table's number: 0, 1, ... in order of making. */
int store_table_add(struct store *store, const struct store_table_opts *opts, uint32_t *table_out,
                    struct err *err);

struct store_table_info {
    const char *name; /* borrowed, like the rest of what is pointed to */
    enum store_kind kind;
    uint64_t rows; /* declared; dynamic: made so far */
    uint32_t cols;
    uint32_t shards;
    uint32_t parts; /* arrays of the table's shape: value, slots, average */
    const struct store_rule *rule;
    uint64_t pushes; /* applied to any shard, summed */
    double average_decay;
    bool has_steps;  /* each row has a 32-bit step (average, eviction) */
    bool has_counts; /* each row has a 32-bit count (admission) */
};

uint32_t store_tables_count(const struct store *store);
struct store_table_info store_table_info(const struct store *store, uint32_t table);

/* SHOAL_ENOENT when there is no such table. */
int store_table_find(const struct store *store, const char *name, uint32_t *table_out,
                     struct err *err);

/* Part 0 is the value (""); then the rule's slots ("adagrad"), then "average" if kept. NULL past the
 * last. As in checkpoints: <name>, <name>/<part>. */
const char *store_part_name(const struct store *store, uint32_t table, uint32_t part);

/* ---- Embedding tables --------------------------------------------------------------------------- */

struct store_pull {
    uint32_t table;
    uint32_t count;
    const uint64_t *keys;
    float *rows;   /* out: count x cols */
    bool averaged; /* the moving average instead of the value; needs average_decay */
    uint64_t step; /* averaged: steps done so far (an untouched row's average still moves) */
};

/* SHOAL_EINVAL for a key outside a fixed table. */
int store_pull(const struct store *store, const struct store_pull *pull, struct team *team,
               struct err *err);

/* The name of the work that made a push. A lease's batches are numbered upwards; tokens fence: a new
 * holder of the lease comes with a higher token, and older ones are refused from then on. In `sync`
 * and in one process work is named by (step, worker). */
enum store_work_kind { STORE_WORK_NONE, STORE_WORK_LEASE, STORE_WORK_STEP };

struct store_work {
    enum store_work_kind kind; /* STORE_WORK_NONE: unnamed, always applied */
    uint64_t stream;           /* lease, or worker index */
    uint64_t token;            /* lease's; 0 for a step */
    uint64_t number;           /* batch number, or step */
};

struct store_push {
    uint32_t table;
    uint32_t count;
    struct store_work work;
    uint64_t step;          /* the ticket: learning rate and Adam's t come from it */
    const uint64_t *keys;   /* unique */
    const float *gradients; /* count x cols */
    const float *pulled;    /* count x cols, for delay compensation; NULL: none */
    bool check_finite;      /* SHOAL_ENAN, naming the table, before anything is applied */
};

struct store_pushed {
    uint32_t shards_applied;
    uint32_t shards_repeated; /* had this work already: nothing done, nothing wrong */
    uint32_t rows_made;
};

/* SHOAL_ESTALE for work that is fenced off. pushed_out may be NULL. */
int store_push(struct store *store, const struct store_push *push, struct team *team,
               struct store_pushed *pushed_out, struct err *err);

/* Forgets a lease that is recorded as done: its name can no longer come. */
void store_lease_retire(struct store *store, uint64_t lease);

/* Removes rows as evict_steps and rows_max say, at `step`. SHOAL_EBUSY while a cut is open. */
int store_evict(struct store *store, uint32_t table, uint64_t step, uint64_t *rows_out,
                struct err *err);

/* ---- Dense tables ------------------------------------------------------------------------------- */

/* The values (or their moving average, NULL if none is kept), rows x cols, in place. Valid for the
 * life of the store. */
const float *store_dense_values(const struct store *store, uint32_t table, bool averaged);

struct store_dense_push {
    uint32_t table;
    struct store_work work;
    uint64_t step;
    bool check_finite;
};

/* A dense update comes in pieces, so that it can be applied while the gradients are still in cache:
 * begin, then apply for disjoint ranges of elements from any threads at once, then end. Shards that
 * had the work already ignore the pieces. Between begin and end every element is given at most
 * once. */
int store_dense_begin(struct store *store, const struct store_dense_push *push, struct err *err);

/* SHOAL_ENAN (check_finite) leaves this piece unapplied; others may have been. Any thread. */
int store_dense_apply(struct store *store, uint32_t table, uint64_t first, uint64_t count,
                      const float *gradients, const float *pulled, struct err *err);

/* Finishes rules that need whole blocks (LAMB), moves the average, raises the version. */
void store_dense_end(struct store *store, uint32_t table, struct team *team);

/* The three in one, cut over the team: all elements of the table. */
int store_dense_push(struct store *store, const struct store_dense_push *push,
                     const float *gradients, const float *pulled, struct team *team,
                     struct err *err);

/* ---- Assign and fetch --------------------------------------------------------------------------- */

/* Rows of an embedding: sets or reads parts outright. parts[i] is count x cols for part i; NULL:
 * left as it is (a row made now: initial), or not wanted. Assign makes dynamic rows; fetch answers
 * initial values for absent ones. */
struct store_rows {
    uint32_t table;
    uint32_t count;
    const uint64_t *keys;
    float *parts[STORE_PARTS_MAX];
    uint32_t *steps;  /* has_steps; NULL allowed */
    uint32_t *counts; /* has_counts; NULL allowed */
};

int store_assign_rows(struct store *store, const struct store_rows *rows, struct err *err);
int store_fetch_rows(const struct store *store, const struct store_rows *rows, struct err *err);

/* Elements first .. first + count of a dense part. */
int store_assign_dense(struct store *store, uint32_t table, uint32_t part, uint64_t first,
                       uint64_t count, const float *values, struct err *err);
int store_fetch_dense(const struct store *store, uint32_t table, uint32_t part, uint64_t first,
                      uint64_t count, float *values, struct err *err);

/* ---- Saving and loading, shard by shard ---------------------------------------------------------
 * A cut is the state of all tables at one moment. It is marked at once; its shards are then read in
 * any order and pieces of any size, between other requests: rows that change meanwhile keep their
 * old state for the cut. A shard's rows are in ascending order of key (as signed numbers); a dense
 * shard's "rows" are its elements. Loading is store_assign_* from any layout, then the shards'
 * states. */

struct store_shard {
    uint64_t version; /* updates applied */
    uint64_t rows;    /* dense: elements */
    uint64_t first;   /* dense: first element */
    uint32_t streams_count;
    const struct store_work *streams; /* the last applied of each stream; borrowed */
};

struct store_cut;

/* SHOAL_EBUSY when one is open. */
int store_cut_begin(struct store *store, struct store_cut **cut_out, struct err *err);

/* Starts reading a shard and is done with the one before. */
int store_cut_shard(struct store_cut *cut, uint32_t table, uint32_t shard,
                    struct store_shard *shard_out, struct err *err);

/* Rows first .. first + count of that shard; each pointer may be NULL. */
struct store_cut_read {
    uint64_t first;
    uint32_t count;
    uint64_t *keys;
    float *parts[STORE_PARTS_MAX];
    uint32_t *steps;
    uint32_t *counts;
};
int store_cut_read(struct store_cut *cut, const struct store_cut_read *read, struct err *err);

void store_cut_end(struct store_cut *cut); /* NULL is a no-op. */

/* A shard's state now, and setting it (version and streams) after a load. */
struct store_shard store_shard_state(const struct store *store, uint32_t table, uint32_t shard);
int store_shard_restore(struct store *store, uint32_t table, uint32_t shard,
                        const struct store_shard *state, struct err *err);

/* ---- Memory ------------------------------------------------------------------------------------- */

/* A bit of upkeep, to be called between requests: joins one block of small pages to a huge page, which
 * makes pulls and pushes of large tables a third faster. Takes half a millisecond; false when there is
 * nothing (more) to do. Never needed for being right. */
bool store_tend(struct store *store);

struct store_bytes {
    uint64_t values;
    uint64_t slots; /* and averages, steps, counts */
    uint64_t index; /* all else: index, directories, unused room */
};

struct store_bytes store_table_bytes(const struct store *store, uint32_t table);

/* What a table of opts would hold with `rows` rows (dense and fixed: all declared ones). */
struct store_bytes store_bytes_plan(const struct store_table_opts *opts, uint64_t rows);

/* Checks every invariant of every table; slow. For tests and ASSERT_SLOW. */
bool store_ok(const struct store *store);

#endif
