/* data_frame cuts one file into records: it knows where records begin and end, not what is in them.
 * Formats: TFRecord (length and payload checked by their CRC32C), lines of text (csv, tsv, libsvm),
 * IDX images with their labels beside.
 *
 * (1) Records of a file are numbered from 0, broken ones too; blank lines are no records.
 * (2) Damage is one fault per place. A record with a wrong payload checksum, or a text record with an
 *     open quote, is passed over; a wrong length, a cut file and broken compression end the file.
 * One thread at a time. */
#ifndef SHOAL_DATA_FRAME_H
#define SHOAL_DATA_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/data.h"
#include "io/stream.h"

struct data_frame_opts {
    enum data_format format; /* not DATA_AUTO */
    bool header;             /* text: the first record names the columns */
    const char *header_text; /* what it must be; NULL: anything */
    char delimiter;
    struct data_rows rows;
    bool labels_optional; /* idx: images without labels beside are fine */
};

struct data_record {
    const uint8_t *bytes; /* valid until the next call on the frame */
    size_t count;
    uint64_t offset; /* of uncompressed bytes, where it starts */
    uint64_t number;
};

/* An IDX record is put together in memory: this head, then the image's elements as in the file. */
struct data_idx_head {
    uint8_t type; /* of the image's elements: 0x08 u8 ... */
    uint8_t has_label;
    uint8_t unused[6];
    double label;
};

struct data_frame;

/* Opens a file at a place that data_frame_place gave (0, 0: its start). The options are copied. */
int data_frame_open(const char *path, const struct data_frame_opts *opts, uint64_t offset,
                    uint64_t number, struct data_frame **frame_out, struct err *err);
/* From bytes in memory (borrowed), for tests and fuzzing; idx labels from a second piece. */
int data_frame_open_memory(const void *bytes, size_t count, const void *labels, size_t labels_count,
                           const struct data_frame_opts *opts, struct data_frame **frame_out,
                           struct err *err);

/* 0: a record. SHOAL_END: no more. SHOAL_ECORRUPT: *fault_out says why one was passed over or why
 * the file ended (then SHOAL_END follows); record_out has its place. Other codes: reading failed. */
int data_frame_next(struct data_frame *frame, struct data_record *record_out,
                    enum data_fault *fault_out, struct err *err);

/* The place of the next record. */
void data_frame_place(const struct data_frame *frame, uint64_t *offset_out, uint64_t *number_out);

/* The header's text (without line end), NULL when there is none. */
const char *data_frame_header(const struct data_frame *frame);

void data_frame_close(struct data_frame *frame); /* NULL is a no-op */

/* What DATA_AUTO means for this file. `first` are its first bytes. */
enum data_format data_frame_guess(const char *path, const uint8_t *first, size_t count);

/* The path of the labels of an IDX image file, into out; false when the name has no "images". */
bool data_frame_labels_path(const char *images, char *out, size_t out_bytes);

#endif
