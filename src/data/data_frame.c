#include "data/data_frame.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/hash.h"
#include "base/mem.h"
#include "data/data_frame_kinds.h"
#include "io/file.h"

static const struct {
    const char *name;
    const char *text;
} faults[DATA_FAULT_COUNT] = {
#define X(code, name, text) {name, text},
    DATA_FAULT_LIST(X)
#undef X
};

const char *data_fault_name(enum data_fault fault)
{
    ASSERT((unsigned)fault < DATA_FAULT_COUNT);
    return faults[fault].name;
}

const char *data_fault_text(enum data_fault fault)
{
    ASSERT((unsigned)fault < DATA_FAULT_COUNT);
    return faults[fault].text;
}

const char *data_format_name(enum data_format format)
{
    static const char *const names[DATA_FORMAT_COUNT] = {"auto", "tfrecord", "csv",
                                                         "tsv",  "libsvm",   "idx"};
    ASSERT((unsigned)format < DATA_FORMAT_COUNT);
    return names[format];
}

int data_frame_step(struct stream *stream, uint64_t bytes, struct err *err)
{
    while (bytes > 0) {
        const uint8_t *peeked = NULL;
        size_t have = 0;
        const int rc = stream_peek(stream, 1, &peeked, &have, err);
        if (rc == SHOAL_ECORRUPT) return SHOAL_END;
        if (rc != 0) return rc;
        if (have == 0) return SHOAL_END;
        const size_t part = have < bytes ? have : (size_t)bytes;
        stream_skip(stream, part);
        bytes -= part;
    }
    return 0;
}

int data_frame_end_early(struct data_frame *frame, enum data_fault *fault_out, struct err *err)
{
    const char *damage = stream_damage(frame->stream);
    if (damage == NULL && frame->labels != NULL) damage = stream_damage(frame->labels);
    frame->ended = true;
    *fault_out = damage != NULL ? DATA_FAULT_COMPRESSION : DATA_FAULT_TRUNCATED;
    return err_set(err, SHOAL_ECORRUPT, "%s",
                   damage != NULL ? damage : data_fault_text(DATA_FAULT_TRUNCATED));
}

/* A text file's byte-order mark and header line; tells when the header is another than expected. */
static int read_header(struct data_frame *frame, enum data_fault *fault_out, struct err *err)
{
    const uint8_t *bytes = NULL;
    size_t have = 0;
    int rc = stream_peek(frame->stream, 3, &bytes, &have, err);
    if (rc != 0) return rc == SHOAL_ECORRUPT ? 0 : rc; /* Met again by the first record. */
    if (have >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) stream_skip(frame->stream, 3);
    if (!frame->opts.header) return 0;
    struct data_record record = {0};
    rc = data_frame_next_text(frame, &record, fault_out, err);
    if (rc != 0) return rc == SHOAL_END ? 0 : rc;
    frame->header = mem_strndup(MEM_DATA, (const char *)record.bytes, record.count);
    if (frame->header == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a header");
    const char *want = frame->opts.header_text;
    if (want != NULL && strcmp(want, frame->header) != 0) {
        *fault_out = DATA_FAULT_HEADER;
        return err_set(err, SHOAL_ECORRUPT,
                       "the header \"%.80s\" is not the first file's \"%.80s\"", frame->header,
                       want);
    }
    return 0;
}

static bool is_text(enum data_format format)
{
    return format == DATA_CSV || format == DATA_TSV || format == DATA_LIBSVM;
}

/* Opened at the front: reads what stands before the records and steps to the place. */
static int start(struct data_frame *frame, uint64_t offset, uint64_t number, struct err *err)
{
    enum data_fault fault = DATA_FAULT_HEADER;
    int rc = 0;
    frame->number = number;
    if (frame->opts.format == DATA_IDX) {
        rc = data_frame_start_idx(frame, number, &fault, err);
    } else if (offset > 0) {
        const uint64_t at = stream_offset(frame->stream);
        ASSERT(at == 0 || at == offset);
        if (at == 0) rc = data_frame_step(frame->stream, offset, err);
        if (rc == SHOAL_END) rc = 0; /* Now shorter than it was: the next record says so. */
    } else if (is_text(frame->opts.format)) {
        rc = read_header(frame, &fault, err);
    }
    return rc;
}

static struct data_frame *make(const struct data_frame_opts *opts)
{
    struct data_frame *frame = mem_alloc(MEM_DATA, sizeof *frame);
    if (frame == NULL) return NULL;
    ASSERT(opts->format != DATA_AUTO);
    frame->opts = *opts;
    return frame;
}

bool data_frame_labels_path(const char *images, char *out, size_t out_bytes)
{
    const char *base = strrchr(images, '/');
    base = base != NULL ? base + 1 : images;
    const char *word = strstr(base, "images");
    if (word == NULL || strlen(images) + 1 > out_bytes) return false;
    snprintf(out, out_bytes, "%s", images);
    memcpy(out + (word - images), "labels", 6);
    char *idx = strstr(out + (word - images), "idx");
    if (idx != NULL && idx[3] >= '2' && idx[3] <= '9') idx[3] = '1';
    return true;
}

/* The labels beside the images: the same name with or without ".gz". */
static int open_labels(struct data_frame *frame, const char *images, struct err *err)
{
    char path[4096];
    if (strcmp(images, "-") == 0 || !data_frame_labels_path(images, path, sizeof path - 4)) {
        if (frame->opts.labels_optional) return 0;
        return err_set(err, SHOAL_EINVAL,
                       "%s: cannot tell where its labels are (the name has no \"images\")", images);
    }
    if (!io_exists(path)) {
        char *gz = strstr(path, ".gz");
        if (gz != NULL && gz[3] == '\0') {
            *gz = '\0';
        } else {
            memcpy(path + strlen(path), ".gz", sizeof ".gz");
        }
    }
    if (!io_exists(path) && frame->opts.labels_optional) return 0;
    return stream_open(path, 0, &frame->labels, err);
}

int data_frame_open(const char *path, const struct data_frame_opts *opts, uint64_t offset,
                    uint64_t number, struct data_frame **frame_out, struct err *err)
{
    struct data_frame *frame = make(opts);
    if (frame == NULL) return err_set(err, SHOAL_ENOMEM, "open %s: no memory", path);
    int rc = stream_open(path, 0, &frame->stream, err);
    if (rc == 0 && opts->format == DATA_IDX) rc = open_labels(frame, path, err);
    const bool jump = offset > 0 && opts->format != DATA_IDX && strcmp(path, "-") != 0;
    if (rc == 0 && jump && !stream_is_compressed(frame->stream)) {
        stream_close(frame->stream);
        frame->stream = NULL;
        rc = stream_open(path, offset, &frame->stream, err);
    }
    if (rc == 0) rc = start(frame, offset, number, err);
    if (rc == SHOAL_ECORRUPT) err_wrap(err, "%s", path);
    if (rc != 0) {
        data_frame_close(frame);
        return rc;
    }
    *frame_out = frame;
    return 0;
}

int data_frame_open_memory(const void *bytes, size_t count, const void *labels, size_t labels_count,
                           const struct data_frame_opts *opts, struct data_frame **frame_out,
                           struct err *err)
{
    struct data_frame *frame = make(opts);
    if (frame == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a frame");
    int rc = stream_open_memory(bytes, count, &frame->stream, err);
    if (rc == 0 && labels != NULL) {
        rc = stream_open_memory(labels, labels_count, &frame->labels, err);
    }
    if (rc == 0) rc = start(frame, 0, 0, err);
    if (rc != 0) {
        data_frame_close(frame);
        return rc;
    }
    *frame_out = frame;
    return 0;
}

static int next_of_format(struct data_frame *frame, struct data_record *record_out,
                          enum data_fault *fault_out, struct err *err)
{
    switch (frame->opts.format) {
    case DATA_TFRECORD: return data_frame_next_tfrecord(frame, record_out, fault_out, err);
    case DATA_IDX: return data_frame_next_idx(frame, record_out, fault_out, err);
    default: return data_frame_next_text(frame, record_out, fault_out, err);
    }
}

int data_frame_next(struct data_frame *frame, struct data_record *record_out,
                    enum data_fault *fault_out, struct err *err)
{
    const struct data_rows *rows = &frame->opts.rows;
    for (;;) {
        if (frame->ended || (rows->last != 0 && frame->number >= rows->last)) return SHOAL_END;
        record_out->number = frame->number;
        record_out->offset = stream_offset(frame->stream);
        record_out->bytes = NULL;
        record_out->count = 0;
        const int rc = next_of_format(frame, record_out, fault_out, err);
        if (rc != 0 && rc != SHOAL_ECORRUPT) return rc;
        frame->number++;
        if (record_out->number >= rows->first || frame->ended) return rc;
    }
}

void data_frame_place(const struct data_frame *frame, uint64_t *offset_out, uint64_t *number_out)
{
    *offset_out = stream_offset(frame->stream);
    *number_out = frame->number;
}

const char *data_frame_header(const struct data_frame *frame)
{
    return frame->header;
}

void data_frame_close(struct data_frame *frame)
{
    if (frame == NULL) return;
    stream_close(frame->stream);
    stream_close(frame->labels);
    mem_free(frame->header);
    mem_free(frame->joined);
    mem_free(frame);
}

static bool name_has(const char *path, const char *part)
{
    const char *base = strrchr(path, '/');
    return strstr(base != NULL ? base + 1 : path, part) != NULL;
}

/* Text: libsvm's second word holds a colon; otherwise tabs or commas. */
static enum data_format guess_text(const uint8_t *first, size_t count)
{
    const uint8_t *end = memchr(first, '\n', count);
    const size_t line = end != NULL ? (size_t)(end - first) : count;
    if (memchr(first, '\t', line) != NULL) return DATA_TSV;
    if (memchr(first, ',', line) != NULL) return DATA_CSV;
    if (memchr(first, ':', line) != NULL) return DATA_LIBSVM;
    return DATA_CSV;
}

enum data_format data_frame_guess(const char *path, const uint8_t *first, size_t count)
{
    static const struct {
        const char *part;
        enum data_format format;
    } names[] = {{".tfrecord", DATA_TFRECORD}, {".csv", DATA_CSV},           {".tsv", DATA_TSV},
                 {".libsvm", DATA_LIBSVM},     {".svm", DATA_LIBSVM},        {"-idx", DATA_IDX},
                 {".idx", DATA_IDX},           {".tfrecords", DATA_TFRECORD}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (name_has(path, names[i].part)) return names[i].format;
    }
    if (count >= 4 && first[0] == 0 && first[1] == 0 && first[2] >= 8 && first[2] <= 14 &&
        first[3] >= 1 && first[3] <= 8) {
        return DATA_IDX;
    }
    if (count >= 12) {
        uint32_t crc = 0;
        memcpy(&crc, first + 8, 4);
        if (crc == hash_crc32c_mask(hash_crc32c(0, first, 8))) return DATA_TFRECORD;
    }
    for (size_t i = 0; i < count; i++) {
        if (first[i] < 9 || (first[i] > 13 && first[i] < 32)) return DATA_TFRECORD;
    }
    return count == 0 ? DATA_TFRECORD : guess_text(first, count);
}
