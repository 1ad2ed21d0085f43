/* Records of text: lines, where a quoted field of csv may hold line ends. */
#include <string.h>

#include "base/bounds.h"
#include "data/data_frame_kinds.h"

/* Follows quotes as RFC 4180 has them: a field that starts with a quote goes to the next single
 * one, and a doubled quote stands for itself. */
struct scan {
    size_t at;
    bool quoted;
    bool field_start;
};

/* Goes on to the line end that ends the record; false when it is not in the bytes. */
static bool scan_record(struct scan *scan, const uint8_t *bytes, size_t have, uint8_t delimiter)
{
    for (; scan->at < have; scan->at++) {
        const uint8_t c = bytes[scan->at];
        if (scan->quoted) {
            if (c == '"') scan->quoted = false; /* A doubled one opens it again, just below. */
            scan->field_start = c == '"';
        } else if (c == '"' && scan->field_start) {
            scan->quoted = true;
        } else if (c == '\n') {
            return true;
        } else {
            scan->field_start = c == delimiter;
        }
    }
    return false;
}

/* The length of the record in *length_out, without its line end, and with it in *whole_out. Not
 * closed within the bound, or in the whole rest of the file: SHOAL_ECORRUPT. */
static int find_end(struct data_frame *frame, const uint8_t **bytes, size_t *have,
                    size_t *length_out, struct err *err)
{
    const bool quotes = frame->opts.format != DATA_LIBSVM;
    const uint8_t *newline = memchr(*bytes, '\n', *have);
    const size_t line = newline != NULL ? (size_t)(newline - *bytes) : *have;
    if (newline != NULL && (!quotes || memchr(*bytes, '"', line) == NULL)) {
        *length_out = line;
        return 0;
    }
    struct scan scan = {.field_start = true};
    for (;;) {
        const uint8_t delimiter = (uint8_t)frame->opts.delimiter;
        bool found = false;
        if (quotes) {
            found = scan_record(&scan, *bytes, *have, delimiter);
        } else {
            newline = memchr(*bytes + scan.at, '\n', *have - scan.at);
            found = newline != NULL;
            scan.at = found ? (size_t)(newline - *bytes) : *have;
        }
        if (found) break;
        if (*have > DATA_LINE_BYTES_MAX) return SHOAL_ECORRUPT;
        const size_t before = *have;
        const int rc = stream_peek(frame->stream, before + 1, bytes, have, err);
        if (rc != 0) return rc;
        if (*have == before) { /* The end of the file ends the last line, but not a quote. */
            if (scan.quoted) return SHOAL_ECORRUPT;
            break;
        }
    }
    *length_out = scan.at;
    return 0;
}

/* Passes over the first line of a record that has no end. */
static int pass_over_line(struct data_frame *frame, const uint8_t *bytes, size_t have,
                          enum data_fault *fault_out, struct err *err)
{
    const uint8_t *newline = memchr(bytes, '\n', have);
    stream_skip(frame->stream, newline != NULL ? (size_t)(newline - bytes) + 1 : have);
    *fault_out =
        newline != NULL || have <= DATA_LINE_BYTES_MAX ? DATA_FAULT_MALFORMED : DATA_FAULT_TOO_LONG;
    return err_set(err, SHOAL_ECORRUPT, "%s",
                   *fault_out == DATA_FAULT_MALFORMED ? "a quote is not closed"
                                                      : data_fault_text(DATA_FAULT_TOO_LONG));
}

int data_frame_next_text(struct data_frame *frame, struct data_record *record_out,
                         enum data_fault *fault_out, struct err *err)
{
    for (;;) {
        const uint8_t *bytes = NULL;
        size_t have = 0;
        int rc = stream_peek(frame->stream, 1, &bytes, &have, err);
        if (rc == SHOAL_ECORRUPT) return data_frame_end_early(frame, fault_out, err);
        if (rc != 0) return rc;
        if (have == 0) {
            frame->ended = true;
            return SHOAL_END;
        }
        record_out->offset = stream_offset(frame->stream);
        size_t length = 0;
        rc = find_end(frame, &bytes, &have, &length, err);
        if (rc == SHOAL_ECORRUPT) return pass_over_line(frame, bytes, have, fault_out, err);
        if (rc != 0) return rc;
        const bool ends = length < have;
        if (!ends && stream_damage(frame->stream) != NULL) { /* Cut inside this line. */
            return data_frame_end_early(frame, fault_out, err);
        }
        stream_skip(frame->stream, length + (ends ? 1 : 0));
        if (length > 0 && bytes[length - 1] == '\r') length--;
        if (length == 0) continue;
        record_out->bytes = bytes;
        record_out->count = length;
        return 0;
    }
}
