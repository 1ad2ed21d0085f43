/* stream reads a file from the front, decompressing by its magic bytes: gzip (several members, and
 * what gzip itself tolerates after the last) and zstd (several frames), anything else as it is. One
 * thread at a time. The caller looks at the bytes in place:
 *     while ((rc = stream_peek(s, want, &bytes, &have, err)) == 0 && have > 0) { ...;
 *         stream_skip(s, used); }
 * (1) `have` < `want` only at the end of the data. (2) Peeked bytes stay valid until the next peek.
 * (3) Data that cannot be read on (cut short, damaged, a failing disk) gives all bytes before that
 * place; once they are skipped, peek answers SHOAL_ECORRUPT (SHOAL_EIO) once, then the end. A
 * reader that meets a last record without its end asks stream_damage why.
 * Memory grows with the bytes that are there, not with what was asked for. */
#ifndef SHOAL_IO_STREAM_H
#define SHOAL_IO_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct stream;

/* path "-": standard input. offset: where to start, of an uncompressed file only (else EINVAL). */
int stream_open(const char *path, uint64_t offset, struct stream **stream_out, struct err *err);

/* From memory: for tests and fuzzing; the bytes are borrowed. */
int stream_open_memory(const void *bytes, size_t count, struct stream **stream_out,
                       struct err *err);

/* want: at most STREAM_PEEK_MAX (SHOAL_ELIMIT). *have_out may be more than want. */
int stream_peek(struct stream *stream, size_t want, const uint8_t **bytes_out, size_t *have_out,
                struct err *err);
void stream_skip(struct stream *stream, size_t count); /* at most what was peeked */

uint64_t stream_offset(const struct stream *stream);    /* of uncompressed bytes consumed */
const char *stream_damage(const struct stream *stream); /* why data ends early; NULL: it did not */
bool stream_is_compressed(const struct stream *stream);
const char *stream_path(const struct stream *stream);
void stream_close(struct stream *stream); /* NULL is a no-op */

#endif
