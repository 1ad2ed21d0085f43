/* data turns files into batches of features: `struct batch` of tensor/batch.h.
 *
 *   job file `features:`  -> struct data_spec      what each column becomes
 *   job file `data:`      -> struct data_settings  where the files are and how they are read
 *   both                  -> struct data           an open data set; data_next gives batches
 *
 * (1) The records of an epoch are cut into leases: windows of at least `shuffle` records (a whole
 *     number of batches), drawn by turns from several open files and permuted by (seed, epoch,
 *     lease). Batches never span leases; only the last lease of an epoch may be short.
 * (2) The sequence of batches depends on the files, the settings and the seed alone: never on the
 *     number of threads or on timing, and it goes on unchanged from a saved position.
 * (3) A broken record is dropped, counted by reason, and the first few are logged; a broken frame
 *     ends its file only. More than `errors_max` of all records stops with SHOAL_ECORRUPT.
 *
 * Threads: a data set owns one reader thread (read, decompress, frame, checksum), which fills a
 * bounded number of windows ahead. All calls are made by one thread at a time; data_next decodes
 * with the caller's team. */
#ifndef SHOAL_DATA_DATA_H
#define SHOAL_DATA_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "base/str.h"
#include "base/team.h"
#include "data/data_spec.h"
#include "tensor/batch.h"

/* Why a record was dropped (or a file ended early). name, text. */
#define DATA_FAULT_LIST(X)                                                                         \
    X(TRUNCATED, "truncated", "the file ends inside a record")                                     \
    X(LENGTH_CRC, "length_crc", "wrong checksum of a record's length")                             \
    X(PAYLOAD_CRC, "payload_crc", "wrong checksum of a record")                                    \
    X(COMPRESSION, "compression", "compressed data is damaged or cut short")                       \
    X(TOO_LONG, "too_long", "a record is longer than the limit")                                   \
    X(HEADER, "header", "the file's header is not what was expected")                              \
    X(MALFORMED, "malformed", "not a well-formed record")                                          \
    X(MISSING, "missing", "a required value is missing")                                           \
    X(TYPE, "type", "a value has the wrong type")                                                  \
    X(VALUES, "values", "a feature has the wrong number of values")                                \
    X(RANGE, "range", "a value is out of range")

enum data_fault {
#define X(code, name, text) DATA_FAULT_##code,
    DATA_FAULT_LIST(X)
#undef X
        DATA_FAULT_COUNT
};
const char *data_fault_name(enum data_fault fault); /* "payload_crc" */
const char *data_fault_text(enum data_fault fault); /* "wrong checksum of a record" */

enum data_format {
    DATA_AUTO, /* by the file's name, then by its first bytes */
    DATA_TFRECORD,
    DATA_CSV,
    DATA_TSV,
    DATA_LIBSVM,
    DATA_IDX,
    DATA_FORMAT_COUNT
};
const char *data_format_name(enum data_format format); /* "tfrecord" */

#define DATA_PATTERNS_MAX 64

struct data_patterns { /* globs, "-" is standard input; text borrowed from the config */
    const char *globs[DATA_PATTERNS_MAX];
    uint32_t count;
};

struct data_rows { /* records first .. last-1 of every file; last 0: to the end */
    uint64_t first;
    uint64_t last;
};

/* The job file's `data:`. Zero means the default named here. */
struct data_settings {
    enum data_format format;
    struct data_patterns train;
    struct data_patterns eval;
    struct data_patterns test; /* measured once, at the end of training */
    struct data_rows train_rows; /* train_rows: [0, 55000] */
    struct data_rows eval_rows;
    uint32_t batch_size; /* 512 */
    uint32_t shuffle;    /* 0: file order */
    uint64_t epochs;     /* set by the reader of the settings: 1; 0 is without end */
    double errors_max;   /* 0.01 when read from a job file that does not say */
    bool header;         /* csv, tsv: the first line names the columns */
    char delimiter;      /* csv: ','; tsv: tab */
    uint32_t index_base; /* libsvm: 1 when read from a job file that does not say */
    uint32_t interleave; /* files read by turns when shuffling: 8 */
    const char *make;    /* the command that makes the data, for the error when it is not there */
};

/* Reads the `data:` map (node may be NULL: all defaults). Extra keys are an error. */
int data_settings_read(const struct config_node *node, struct data_settings *settings_out,
                       struct err *err);

/* --------------------------------------------------------------------------------------------
 * An open data set. */

struct data;

struct data_opts {
    const struct data_spec *spec; /* borrowed until data_close */
    struct data_settings settings;
    bool eval;            /* the eval files and rows, in file order, once; else the train ones */
    bool label_optional;  /* a record without label is not broken; batch.label has NaN there */
    uint64_t seed;        /* of the shuffle */
    uint32_t share_index; /* this worker's files: share_index, + share_count, ... */
    uint32_t share_count; /* 0: 1 */
    const char *position; /* JSON from data_position_write, NULL: from the start */
    uint32_t batch_size;  /* instead of the settings' when not 0 */
};

/* Expands the globs, checks the files' headers and starts the reader. SHOAL_ENOENT when there are no
 * files; SHOAL_EMISMATCH when the position was made by other files or settings. */
int data_open(const struct data_opts *opts, struct data **data_out, struct err *err);

struct data_info {  /* of one batch */
    uint64_t epoch; /* from 0 */
    uint64_t lease; /* of the epoch, from 0 */
    uint32_t batch; /* of the lease, from 0 */
    bool epoch_end; /* nothing of this epoch is left (see data_next) */
};

/* The next batch, decoded by the team (NULL: by the caller alone). Borrowed: valid until the
 * next-but-one call. rows >= 1: records found broken are left out, and a batch of broken records
 * alone is passed over (when that was the epoch's last, only info.epoch of the next tells).
 * SHOAL_END after the last epoch; SHOAL_ECORRUPT when too much is broken. info_out may be NULL. */
int data_next(struct data *data, struct team *team, const struct batch **batch_out,
              struct data_info *info_out, struct err *err);

/* Back to the start: as if just opened (for an evaluation that is repeated). */
int data_rewind(struct data *data, struct err *err);

/* Where the next batch will come from, as one JSON object: enough for data_open to go on with just
 * that batch. SHOAL_EINVAL for standard input, which cannot be resumed. */
int data_position_write(const struct data *data, struct str *json, struct err *err);

struct data_stats {
    uint64_t records; /* whole ones that went into batches, all epochs */
    uint64_t skipped; /* broken ones */
    uint64_t skipped_by[DATA_FAULT_COUNT];
    uint64_t bytes;        /* uncompressed, read by the reader */
    uint64_t files;        /* of this share */
    uint64_t wait_ns;      /* how long data_next waited for the reader */
    uint64_t memory_bytes; /* of the windows, all of them filled */
    double share_done;     /* of all epochs, by bytes since this open; 0: not known */
};
void data_stats_get(const struct data *data, struct data_stats *stats_out);

void data_close(struct data *data); /* NULL is a no-op; stops and joins the reader */

#endif
