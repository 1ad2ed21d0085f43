/* store_table is the inside of a table, shared by the files of this layer and by nobody else.
 *
 * An embedding row lies in a chunk of the table's pool:
 *     | value (cols) | slot 0 | slot 1 | average | step (u32) | count (u32) |
 * with only those parts that the table keeps and no padding. A shard numbers its rows 0, 1, ... and
 * finds chunk row >> chunk_bits through its directory. A fixed table's row is key / shards; it is
 * `made` once it has been written to. A dynamic table's row stands in the shard's index; if the
 * number of shards is 2^b, the shard is the top b bits of hash_mix64(key) and the index holds the
 * rest, shifted up. */
#ifndef SHOAL_STORE_TABLE_H
#define SHOAL_STORE_TABLE_H

#include <stdatomic.h>

#include "base/hash.h"
#include "store/store.h"
#include "store/store_index.h"
#include "store/store_init.h"
#include "store/store_ledger.h"
#include "store/store_pool.h"

/* Keys that a part of a pull or push handles: a fixed cut, so that results do not depend on the
 * team. */
#define STORE_PART_KEYS 1024u

struct store_cut_shard;

struct shard {
    struct store_index index; /* dynamic */
    float **chunks;           /* embedding: directory */
    size_t chunks_count;
    size_t chunks_capacity;
    uint64_t *made;      /* fixed: a bit per row */
    uint32_t rows_used;  /* row numbers given out; fixed: all */
    uint32_t *free_rows; /* evicted, to be used again */
    size_t free_count;
    size_t free_capacity;
    uint64_t first; /* dense: its range of elements */
    uint64_t elements;
    uint64_t version;
    struct store_ledger ledger;
    bool is_repeated;            /* the push in hand has been applied here already */
    struct store_cut_shard *cut; /* a cut that still needs this shard's old state; NULL: none */
};

/* Working memory of pushes, kept between them. */
struct table_scratch {
    float **rows; /* by key: the row, NULL if there is nothing to do */
    size_t rows_capacity;
    uint32_t *missing; /* numbers of keys without a row, then the same by shard */
    size_t missing_capacity;
    uint32_t *parts; /* missing of each part */
    size_t parts_capacity;
};

struct table {
    char *name;
    enum store_kind kind;
    uint64_t rows;
    uint32_t cols;
    uint32_t shards_count;
    uint32_t shard_bits; /* embedding: log2 of shards_count */
    uint32_t parts_count;
    uint32_t slots_count;
    uint32_t average_part; /* 0: none */
    uint32_t stride;       /* floats from row to row */
    uint32_t step_at;      /* floats into a row; 0: none */
    uint32_t count_at;
    uint32_t chunk_bits;
    struct store_table_opts opts; /* name is the table's */
    struct store_init draw;
    struct store_pool *pool;
    struct shard *shards;
    float *dense[STORE_PARTS_MAX];
    struct table_scratch scratch;

    struct store_rule_step step; /* of the dense push in hand */
    struct store_work work;
    bool is_pushing;
    bool check_finite;
    _Atomic bool is_bad; /* a piece of it was refused; relaxed, read after the team's barrier */
};

struct store {
    uint64_t seed;
    struct table **tables;
    size_t tables_count;
    size_t tables_capacity;
    struct store_cut *cut; /* the open one */
};

int table_create(const struct store_table_opts *opts, uint64_t seed, struct table **table_out,
                 struct err *err);
void table_destroy(struct table *table);
bool table_ok(const struct table *table);

/* The table of a request. SHOAL_EINVAL for a number or kind that is not right. */
int table_of(const struct store *store, uint32_t number, bool is_dense, struct table **table_out,
             struct err *err);

/* Asks every shard whether it has this work already (is_repeated) and counts those that have. */
int table_check_work(struct table *table, const struct store_work *work, uint32_t *repeated_out,
                     struct err *err);

/* The work is applied: raises the versions of the shards that had not had it. */
void table_record_work(struct table *table, const struct store_work *work);

/* ---- Rows of embeddings ---- */

struct row_place {
    uint32_t shard;
    uint32_t row; /* STORE_INDEX_NONE: none */
};

static inline uint32_t table_shard_of_hash(const struct table *table, uint64_t hash)
{
    return table->shard_bits == 0 ? 0 : (uint32_t)(hash >> (64 - table->shard_bits));
}

static inline float *table_row(const struct table *table, const struct shard *shard, uint32_t row)
{
    const size_t in_chunk = row & (((size_t)1 << table->chunk_bits) - 1);
    return shard->chunks[row >> table->chunk_bits] + in_chunk * table->stride;
}

static inline bool shard_is_made(const struct shard *shard, uint32_t row)
{
    return (shard->made[row / 64] >> (row % 64) & 1) != 0;
}

/* Where the row of a key is; a fixed table's key must be in range. A fixed row has a place whether
 * it is made or not. */
static inline struct row_place table_find(const struct table *table, uint64_t key)
{
    struct row_place place;
    if (table->kind == STORE_FIXED) {
        place.shard = (uint32_t)(key & (table->shards_count - 1));
        place.row = (uint32_t)(key >> table->shard_bits);
    } else {
        const uint64_t hash = hash_mix64(key);
        place.shard = table_shard_of_hash(table, hash);
        place.row = store_index_find(&table->shards[place.shard].index, hash << table->shard_bits);
    }
    return place;
}

/* The row of a key; NULL if it is not made. */
static inline float *table_find_row(const struct table *table, uint64_t key)
{
    const struct row_place place = table_find(table, key);
    const struct shard *shard = &table->shards[place.shard];
    if (place.row == STORE_INDEX_NONE) return NULL;
    if (table->kind == STORE_FIXED && !shard_is_made(shard, place.row)) return NULL;
    return table_row(table, shard, place.row);
}

/* The same for many keys. Index lines are asked for ahead of need: some thirty misses are under way
 * at any time. */
void table_find_rows(const struct table *table, const uint64_t *keys, uint32_t count, float **rows);

/* The key of a row of a dynamic shard, from its hash in the index. */
uint64_t table_key_of(const struct table *table, uint32_t shard, uint64_t index_hash);

/* Rows of a fixed table's shard. */
uint64_t table_shard_rows(const struct table *table, uint32_t shard);

/* Makes the row of a key that has none, with initial values. SHOAL_ENOMEM. */
int table_make_row(struct table *table, uint64_t key, float **row_out);

/* Writes the state that a row is born with. */
void table_fill_row(const struct table *table, uint64_t key, float *row);

/* SHOAL_EINVAL naming the first key outside a fixed table. */
int table_check_keys(const struct table *table, const uint64_t *keys, uint32_t count,
                     struct err *err);

static inline uint32_t row_mark(const float *row, uint32_t at)
{
    uint32_t mark = 0;
    memcpy(&mark, row + at, sizeof mark);
    return mark;
}

static inline void row_set_mark(float *row, uint32_t at, uint32_t mark)
{
    memcpy(row + at, &mark, sizeof mark);
}

/* Whether the row counts yet (admission). */
static inline bool row_is_admitted(const struct table *table, const float *row)
{
    return table->count_at == 0 || row_mark(row, table->count_at) >= table->opts.admit_count;
}

/* decay ^ times: what is left of a difference after so many steps. By squaring: no libm, so that
 * runs repeat on any machine. */
double table_decay(double decay, uint64_t times);

/* ---- Cuts: called before a value of a table changes ---- */

/* Keeps the state that these rows (all made) have now, if an open cut still needs it. */
int cut_keep_rows(struct table *table, const uint64_t *keys, uint32_t count, struct err *err);
int cut_keep_all_rows(struct table *table, struct err *err);
int cut_keep_dense(struct table *table, struct err *err);

#endif
