/* data_spec is the job file's `features:` map, checked: what each input column becomes. Names are
 * column names of the file unless `column:` says otherwise.
 *
 *   kind        becomes             settings
 *   label       batch.label         default
 *   weight      batch.weight        default (1)
 *   group       batch.group         a string's fingerprint, or the integer
 *   numeric     a dense feature     width (1), default (0), mean + std or min + max, log (log1p)
 *   hash        table of `buckets`  Fingerprint64 % buckets, as to_hash_bucket_fast
 *   bucketize   table               boundaries: how many are <= the value
 *   identity    table of `buckets`  the integer itself; outside: `default`, or a broken record
 *   vocabulary  table               values: [...] or file: PATH (a line each), oov_buckets, default
 *                                   (an index); a word unknown to all of these is left out
 *   cross       table of `buckets`  of: [a, b, ...], as crossed_column: bucketize, identity and
 *                                   vocabulary features by number, others by their raw value
 *   dynamic     table without size  key: the string's fingerprint, or the integer; `embed` required
 *
 * Categorical features also take: embed (dimension; by rule 2^ceil(log2(n^0.25))), table (name of a
 * table shared with other features: all must agree on rows and dimension), default (for a missing
 * value; without it "" or 0), and, to have any number of values in a row, one of
 *   sequence: true   kept in order, with `pad:` (values equal to it are dropped, and a row left with
 *                    none holds it once), max_length (the last so many)
 *   combiner: sum|mean|sqrtn   with `weights: COLUMN` where each value has one
 * csv: column (name or number from 0), split (separator inside the field). `repeat: n` makes
 * features NAME1 .. NAMEn of consecutive columns.
 *
 * Read only once created; any thread. */
#ifndef SHOAL_DATA_SPEC_H
#define SHOAL_DATA_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "base/err.h"

enum data_combiner { DATA_SUM, DATA_MEAN, DATA_SQRTN };

struct data_dense { /* batch.dense[i] */
    const char *name;
    uint32_t width;
};

struct data_ids { /* batch.ids[i] */
    const char *name;
    uint32_t table;              /* index in tables */
    bool single;                 /* exactly one value in each row: batch_ids.offsets is NULL */
    bool sequence;               /* values in order, not to be combined by `combiner` */
    bool weighted;               /* batch_ids.weights is there */
    bool padded;                 /* no row is empty */
    enum data_combiner combiner; /* default mean, as embedding_column */
};

struct data_table { /* batch.tables[i] */
    const char *name;
    uint64_t rows; /* keys are 0 .. rows-1; 0: dynamic, any key */
    uint32_t dim;
};

/* In the job file's order; tables in the order of their first use. */
struct data_schema {
    const struct data_dense *dense;
    const struct data_ids *ids;
    const struct data_table *tables;
    uint32_t dense_count;
    uint32_t ids_count;
    uint32_t tables_count;
    uint32_t dense_width; /* of all dense features together */
    bool has_label;
    bool has_weight;
    bool has_group;
};

struct data_spec;

/* node is the `features:` map; nothing of it is kept. extra_keys (NULL-terminated, may be NULL) are
 * further keys that a feature may have, read by others (e.g. "optimizer"). */
int data_spec_create(const struct config_node *node, const char *const *extra_keys,
                     struct data_spec **spec_out, struct err *err);
const struct data_schema *data_spec_schema(const struct data_spec *spec);

/* Index of the categorical or dense feature of that name, -1 when there is none. */
int data_schema_find_ids(const struct data_schema *schema, const char *name);
int data_schema_find_dense(const struct data_schema *schema, const char *name);

void data_spec_destroy(struct data_spec *spec); /* NULL is a no-op */

/* 2^ceil(log2(values^0.25)), at least 2. */
uint32_t data_default_width(uint64_t values);

#endif
