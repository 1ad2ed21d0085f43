#include "train/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/data_frame.h"
#include "data/data_wire.h"
#include "io/file.h"

#define FILE_VERSION "brain.Event:2"
#define NAMES_MAX 1000 /* writers of one process that start within a second */

/* Field tags: number << 3 | wire type. */
enum {
    EVENT_WALL_TIME = 1 << 3 | WIRE_FIXED64,
    EVENT_STEP = 2 << 3 | WIRE_VARINT,
    EVENT_FILE_VERSION = 3 << 3 | WIRE_BYTES,
    EVENT_SUMMARY = 5 << 3 | WIRE_BYTES,
    SUMMARY_VALUE = 1 << 3 | WIRE_BYTES,
    VALUE_TAG = 1 << 3 | WIRE_BYTES,
    VALUE_SIMPLE = 2 << 3 | WIRE_FIXED32,
};

/* ---- Writing ------------------------------------------------------------------------------------ */

struct events {
    struct io_writer *file;
};

/* A message is built from the front in a buffer that is large enough for the longest one. */
#define MESSAGE_MAX (EVENTS_TAG_MAX + 128)

struct message {
    uint8_t bytes[MESSAGE_MAX];
    size_t count;
};

static void add_bytes(struct message *message, const void *bytes, size_t count)
{
    ASSERT(count <= sizeof message->bytes - message->count);
    memcpy(message->bytes + message->count, bytes, count);
    message->count += count;
}

static void add_varint(struct message *message, uint64_t value)
{
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        add_bytes(message, &byte, 1);
        value >>= 7;
    } while (value != 0);
}

static void add_field(struct message *message, int tag, const void *bytes, size_t count)
{
    add_varint(message, (uint64_t)tag);
    add_varint(message, count);
    add_bytes(message, bytes, count);
}

static void add_wall_time(struct message *message)
{
    const double now = clock_now_secs();
    add_varint(message, EVENT_WALL_TIME);
    add_bytes(message, &now, sizeof now); /* little-endian, as this machine is */
}

static int write_frame(struct events *events, const struct message *message, struct err *err)
{
    uint8_t head[12];
    const uint64_t length = message->count;
    memcpy(head, &length, 8);
    uint32_t crc = hash_crc32c_mask(hash_crc32c(0, head, 8));
    memcpy(head + 8, &crc, 4);
    int rc = io_writer_write(events->file, head, sizeof head, err);
    if (rc == 0) rc = io_writer_write(events->file, message->bytes, message->count, err);
    crc = hash_crc32c_mask(hash_crc32c(0, message->bytes, message->count));
    if (rc == 0) rc = io_writer_write(events->file, &crc, 4, err);
    return rc;
}

/* A name that is not taken yet. TensorBoard wants "tfevents" in it and sorts by name. */
static int choose_path(const char *folder, struct str *path, struct err *err)
{
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c != '\0'; c++) {
        if (*c == '/') *c = '_';
    }
    const uint64_t now = (uint64_t)clock_now_secs();
    for (int i = 0; i < NAMES_MAX; i++) {
        str_clear(path);
        str_printf(path, "%s/events.out.tfevents.%010" PRIu64 ".%s.%ld", folder, now, host,
                   (long)getpid());
        if (i > 0) str_printf(path, ".%d", i);
        if (path->failed) return err_set(err, SHOAL_ENOMEM, "no memory for a path");
        if (!io_exists(path->text)) return 0;
    }
    return err_set(err, SHOAL_EEXIST, "%s and %d like it are there", path->text, NAMES_MAX);
}

int events_open(const char *folder, struct events **events_out, struct err *err)
{
    struct events *events = mem_alloc(MEM_TRAIN, sizeof *events);
    if (events == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for an event file");
    struct str path = {0};
    struct message version = {.count = 0};
    add_wall_time(&version);
    add_field(&version, EVENT_FILE_VERSION, FILE_VERSION, sizeof FILE_VERSION - 1);
    int rc = io_make_dirs(folder, err);
    if (rc == 0) rc = choose_path(folder, &path, err);
    if (rc == 0) rc = io_writer_open(path.text, &events->file, err);
    if (rc == 0) rc = write_frame(events, &version, err);
    str_fini(&path);
    if (rc != 0) {
        events_abandon(events);
        return rc;
    }
    *events_out = events;
    return 0;
}

int events_scalar(struct events *events, uint64_t step, const char *tag, double value,
                  struct err *err)
{
    const size_t tag_bytes = strlen(tag);
    if (tag_bytes == 0 || tag_bytes > EVENTS_TAG_MAX) {
        return err_set(err, SHOAL_EINVAL, "a tag of %zu bytes, 1 to %u are allowed", tag_bytes,
                       EVENTS_TAG_MAX);
    }
    const float simple = (float)value;
    struct message point = {.count = 0};
    add_field(&point, VALUE_TAG, tag, tag_bytes);
    add_varint(&point, VALUE_SIMPLE);
    add_bytes(&point, &simple, sizeof simple);
    struct message summary = {.count = 0};
    add_field(&summary, SUMMARY_VALUE, point.bytes, point.count);
    struct message event = {.count = 0};
    add_wall_time(&event);
    add_varint(&event, EVENT_STEP);
    add_varint(&event, step);
    add_field(&event, EVENT_SUMMARY, summary.bytes, summary.count);
    return write_frame(events, &event, err);
}

int events_flush(struct events *events, struct err *err)
{
    return io_writer_flush(events->file, err);
}

int events_close(struct events *events, struct err *err)
{
    const int rc = io_writer_close(events->file, err);
    mem_free(events);
    return rc;
}

void events_abandon(struct events *events)
{
    if (events == NULL) return;
    io_writer_abandon(events->file);
    mem_free(events);
}

/* ---- Reading ------------------------------------------------------------------------------------ */

static int malformed(struct err *err)
{
    return err_set(err, SHOAL_ECORRUPT, "not a well-formed event");
}

/* A Value: its tag and number, if it has both. */
static bool decode_value(const uint8_t *at, const uint8_t *end, struct events_point *point,
                         bool *is_point_out)
{
    bool has_number = false;
    point->tag = NULL;
    while (at < end) {
        uint64_t tag = 0;
        if (!wire_varint(&at, end, &tag)) return false;
        if (tag == VALUE_TAG) {
            const uint8_t *text = NULL;
            if (!wire_bytes(&at, end, &text, &point->tag_bytes)) return false;
            point->tag = (const char *)text;
        } else if (tag == VALUE_SIMPLE) {
            if (end - at < 4) return false;
            memcpy(&point->value, at, 4);
            at += 4;
            has_number = true;
        } else if (!wire_skip(&at, end, tag)) {
            return false;
        }
    }
    *is_point_out = has_number && point->tag != NULL;
    return true;
}

static int decode_summary(const uint8_t *at, const uint8_t *end, struct events_point *point,
                          events_point_cb *cb, void *ctx, struct err *err)
{
    while (at < end) {
        uint64_t tag = 0;
        const uint8_t *value = NULL;
        size_t count = 0;
        bool is_point = false;
        if (!wire_varint(&at, end, &tag)) return malformed(err);
        if (tag != SUMMARY_VALUE) {
            if (!wire_skip(&at, end, tag)) return malformed(err);
            continue;
        }
        if (!wire_bytes(&at, end, &value, &count)) return malformed(err);
        if (!decode_value(value, value + count, point, &is_point)) return malformed(err);
        const int rc = is_point ? cb(ctx, point, err) : 0;
        if (rc != 0) return rc;
    }
    return 0;
}

int events_decode(const uint8_t *bytes, size_t count, events_point_cb *cb, void *ctx,
                  struct err *err)
{
    struct events_point point = {0};
    const uint8_t *at = bytes;
    const uint8_t *end = bytes + count;
    const uint8_t *summary = NULL;
    size_t summary_bytes = 0;
    while (at < end) {
        uint64_t tag = 0;
        bool fine = wire_varint(&at, end, &tag);
        if (fine && tag == EVENT_WALL_TIME) {
            fine = end - at >= 8;
            if (fine) memcpy(&point.wall_secs, at, 8);
            if (fine) at += 8;
        } else if (fine && tag == EVENT_STEP) {
            fine = wire_varint(&at, end, &point.step);
        } else if (fine && tag == EVENT_SUMMARY) {
            fine = wire_bytes(&at, end, &summary, &summary_bytes);
        } else if (fine) {
            fine = wire_skip(&at, end, tag);
        }
        if (!fine) return malformed(err);
    }
    /* Fields may come in any order: step and time are known only now. */
    if (summary == NULL) return 0;
    return decode_summary(summary, summary + summary_bytes, &point, cb, ctx, err);
}

int events_read(const char *path, events_point_cb *cb, void *ctx, struct err *err)
{
    struct data_frame *frame = NULL;
    const struct data_frame_opts opts = {.format = DATA_TFRECORD};
    int rc = data_frame_open(path, &opts, 0, 0, &frame, err);
    while (rc == 0) {
        struct data_record record;
        enum data_fault fault = DATA_FAULT_COUNT;
        rc = data_frame_next(frame, &record, &fault, err);
        if (rc == SHOAL_ECORRUPT && fault == DATA_FAULT_TRUNCATED) rc = SHOAL_END;
        if (rc == SHOAL_ECORRUPT) {
            rc = err_set(err, SHOAL_ECORRUPT, "%s: offset %" PRIu64 ": %s", path, record.offset,
                         data_fault_text(fault));
        }
        if (rc == 0) rc = events_decode(record.bytes, record.count, cb, ctx, err);
    }
    data_frame_close(frame);
    return rc == SHOAL_END ? 0 : rc;
}
