/* data_frame_kinds is the inside of data_frame: one function per format. */
#ifndef SHOAL_DATA_FRAME_KINDS_H
#define SHOAL_DATA_FRAME_KINDS_H

#include "data/data_frame.h"

struct data_frame {
    struct data_frame_opts opts;
    struct stream *stream;
    uint64_t number; /* of the next record */
    bool ended;
    char *header;

    struct stream *labels; /* idx from here on */
    uint64_t images_count;
    size_t element_bytes; /* of one image */
    uint8_t image_type;
    uint8_t label_type;
    uint8_t *joined; /* head and image */
};

/* Each: as data_frame_next, without rows and numbering. */
int data_frame_next_tfrecord(struct data_frame *frame, struct data_record *record_out,
                             enum data_fault *fault_out, struct err *err);
int data_frame_next_text(struct data_frame *frame, struct data_record *record_out,
                         enum data_fault *fault_out, struct err *err);
int data_frame_next_idx(struct data_frame *frame, struct data_record *record_out,
                        enum data_fault *fault_out, struct err *err);

/* Reads both headers and steps to the record. SHOAL_ECORRUPT when they are no IDX headers or do not
 * fit each other. */
int data_frame_start_idx(struct data_frame *frame, uint64_t number, enum data_fault *fault_out,
                         struct err *err);

/* The stream came to its end inside a record: says which fault that is, and ends the frame. */
int data_frame_end_early(struct data_frame *frame, enum data_fault *fault_out, struct err *err);

/* Steps over bytes; SHOAL_END when there are fewer. */
int data_frame_step(struct stream *stream, uint64_t bytes, struct err *err);

#endif
