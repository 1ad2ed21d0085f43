/* events writes and reads TensorBoard event files: TFRecord frames (length, masked CRC32C of it,
 * payload, masked CRC32C of it) around Event messages, which are so few fields that they are coded
 * by hand here:
 *
 *     Event   { wall_time: 1 double; step: 2 int64; file_version: 3 string; summary: 5 Summary }
 *     Summary { value: 1 repeated Value }      Value { tag: 1 string; simple_value: 2 float }
 *
 * The first event of a file is its version, "brain.Event:2". A writer appends to one new file,
 * FOLDER/events.out.tfevents.SECONDS.HOST.PID[.N]; each start of a run has its own, as TensorBoard
 * expects. One thread at a time. */
#ifndef SHOAL_TRAIN_EVENTS_H
#define SHOAL_TRAIN_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct events;

int events_open(const char *folder, struct events **events_out, struct err *err);

/* A point of the curve `tag` (at most EVENTS_TAG_MAX bytes), at the time of the call. */
int events_scalar(struct events *events, uint64_t step, const char *tag, double value,
                  struct err *err);

/* So that a reader sees all points so far. */
int events_flush(struct events *events, struct err *err);
int events_close(struct events *events, struct err *err); /* flushes; frees, also on error */
void events_abandon(struct events *events);               /* frees; NULL is a no-op */

struct events_point {
    uint64_t step;
    double wall_secs;
    const char *tag; /* borrowed, not terminated */
    size_t tag_bytes;
    float value;
};

/* Called for each point; anything but 0 stops the reading and is returned by it. */
typedef int events_point_cb(void *ctx, const struct events_point *point, struct err *err);

/* The points of one Event message. Fields that are not known are passed over. SHOAL_ECORRUPT when
 * the bytes are no well-formed message. */
int events_decode(const uint8_t *bytes, size_t count, events_point_cb *cb, void *ctx,
                  struct err *err);

/* All points of a file (compressed ones too). A file that ends inside a record, as one being written
 * does, is read up to there; a wrong checksum is SHOAL_ECORRUPT with the offset. */
int events_read(const char *path, events_point_cb *cb, void *ctx, struct err *err);

#endif
