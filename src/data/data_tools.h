/* data_tools is what `shoal data gen|cat|stat` and `shoal bench input` do, behind the flags. */
#ifndef SHOAL_DATA_TOOLS_H
#define SHOAL_DATA_TOOLS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"
#include "base/team.h"
#include "data/data.h"

enum data_gen_kind {
    DATA_GEN_DIN,    /* click logs with histories: tf.train.Example in TFRecord */
    DATA_GEN_SLICES, /* 64 numbers, label 0..9: CSV */
    DATA_GEN_CRITEO, /* label, 13 counts, 26 words, many of them missing: TSV as Criteo's */
    DATA_GEN_LINEAR, /* x1, x2, y = 2 x1 - 3 x2 + 0.5 + noise: CSV */
    DATA_GEN_KIND_COUNT
};
const char *data_gen_kind_name(enum data_gen_kind kind); /* "din" */
enum data_compress { DATA_PLAIN, DATA_GZIP, DATA_ZSTD };

/* 0 means the default in the comment; rows and files have one for each kind (data_gen_kinds.h). */
struct data_gen_opts {
    enum data_gen_kind kind;
    enum data_compress compress;
    const char *out;      /* folder, made when missing */
    uint64_t rows;
    uint64_t eval_rows;
    uint64_t users;       /* 10,000 */
    uint64_t items;       /* 90 */
    uint32_t history_max; /* longest history: 20 */
    uint32_t history_min; /* 0 */
    uint32_t files;       /* of the training part: 8 / 10; the eval part has a fourth of them */
    uint64_t seed;
};

struct data_gen_result {
    uint64_t rows;
    uint64_t eval_rows;
    uint32_t files;
    uint32_t eval_files;
    uint64_t bytes;
    double best; /* din: AUC of the true probabilities on the eval part; slices: best accuracy */
    double click_rate; /* mean label of the eval part */
    double seconds;
};

/* Writes OUT/train-00000-of-00008.tfrecord ... and OUT/eval-...; the same bytes for the same options
 * on any team. Existing files of these names are replaced; leftovers of another count removed. */
int data_gen(const struct data_gen_opts *opts, struct team *team,
             struct data_gen_result *result_out, struct err *err);
/* As one JSON object / as lines for people. */
void data_gen_report(const struct data_gen_opts *opts, const struct data_gen_result *result,
                     bool json, struct str *out);

struct data_look_opts {       /* of cat and stat */
    const char *const *paths; /* files or globs, "-" is standard input */
    uint32_t paths_count;
    enum data_format format; /* DATA_AUTO: found out */
    bool header;             /* csv, tsv: first line names the columns */
    char delimiter;          /* 0: by format */
    uint64_t rows_max;       /* cat: stop after so many; 0: all */
    bool json;               /* stat: one JSON object instead of tables */
    uint32_t top;            /* stat: how many of the most frequent values to show; 0: 5 */
};

/* One JSON object per record to out. Broken ones are reported through the log and passed over. */
int data_cat(const struct data_look_opts *opts, FILE *out, struct err *err);

/* Counts records, skipped ones by reason, values, lengths; however damaged, it prints. */
int data_stat(const struct data_look_opts *opts, struct str *out, struct err *err);

struct data_bench_result {
    uint64_t examples;
    uint64_t bytes;
    double seconds;
    double examples_per_second;
};

/* Reads TFRecord files (pattern; NULL: made in a temporary folder, histories of 1 to 20, `rows`
 * examples) into batches of DIN's features with the team, all of the data once, after one pass to
 * fill the page cache. */
int data_bench_input(const char *pattern, uint64_t rows, struct team *team,
                     struct data_bench_result *result_out, struct err *err);

#endif
