/* data_reader is the thread that reads ahead: files -> records -> windows. A window is one lease in
 * memory: its records, and the order in which batches take them.
 *
 *   files (permuted by epoch) --up to `interleave` open, runs of 16 records by turns--> window
 *
 * (1) What a window holds follows from its lease's description alone (where each open file stood,
 *     which file comes next), the files and the seed: so a lease can be read again, here or elsewhere.
 * (2) At most DATA_WINDOWS windows exist; the reader waits while all are full or in use.
 * (3) The last window of an epoch says so; it may be empty. After the last epoch, or a failure, comes
 *     one window that says that, and then none.
 * One consumer thread calls; the reader thread is owned here. */
#ifndef SHOAL_DATA_READER_H
#define SHOAL_DATA_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bounds.h"
#include "base/err.h"
#include "data/data_batcher.h"
#include "data/data_frame.h"

#define DATA_WINDOWS 3u

struct data_place { /* of one open file */
    uint32_t file;  /* index in the list of files */
    uint64_t offset;
    uint64_t number;
};

struct data_lease { /* where a lease starts: enough to read it */
    uint64_t epoch;
    uint64_t number;     /* of the epoch */
    uint32_t files_next; /* how many files of the epoch's order have been opened */
    uint32_t places_count;
    struct data_place places[DATA_INTERLEAVE_MAX];
};

struct data_report { /* of one broken record */
    uint32_t file;
    enum data_fault fault;
    uint64_t offset;
    uint64_t number;
    char text[160];
};

struct data_window {
    struct data_lease lease;
    struct data_piece *pieces;
    uint32_t *order; /* NULL: as they lie */
    uint32_t count;
    bool epoch_last;
    bool ended; /* no more windows: all epochs done, or failed */
    int rc;     /* why reading failed */
    struct err err;
    uint64_t bytes;
    uint64_t skipped[DATA_FAULT_COUNT];
    struct data_report reports[DATA_REPORTS_MAX];
    uint32_t reports_count;
};

struct data_reader_opts {
    const char *const *paths; /* borrowed */
    uint32_t paths_count;
    struct data_frame_opts frame;
    uint32_t window_records;
    uint32_t interleave;
    bool shuffle;
    uint64_t seed;
    uint64_t epochs;          /* 0: without end */
    struct data_frame *first; /* paths[0], already open (standard input); taken over on success */
};

struct data_reader;
int data_reader_start(const struct data_reader_opts *opts, const struct data_lease *from,
                      struct data_reader **reader_out, struct err *err);

/* Waits for the next window. It stays valid until it is released; nothing after one that ended. */
struct data_window *data_reader_acquire(struct data_reader *reader);
void data_reader_release(struct data_reader *reader, struct data_window *window);

/* Bytes of all windows: as many as there will be, when the data goes on. */
uint64_t data_reader_memory(struct data_reader *reader);
void data_reader_stop(struct data_reader *reader); /* joins and frees; NULL is a no-op */

#endif
