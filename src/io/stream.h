/* stream reads a file from the front, decompressing by its magic bytes: gzip (several members) and
 * zstd (several frames), anything else as it is. One thread at a time. The caller looks at the
 * bytes in place:
 *     while ((rc = stream_peek(s, want, &bytes, &have, err)) == 0 && have > 0) { ...;
 *         stream_skip(s, used); }
 * (1) `have` < `want` only at the end of the data. (2) Peeked bytes stay valid until the next peek
 * or skip. A compressed file that is cut short or damaged gives all bytes before the damage, then
 * SHOAL_ECORRUPT once. */
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

int stream_peek(struct stream *stream, size_t want, const uint8_t **bytes_out, size_t *have_out,
                struct err *err);
void stream_skip(struct stream *stream, size_t count); /* at most what was peeked */

uint64_t stream_offset(const struct stream *stream); /* of uncompressed bytes consumed */
bool stream_is_compressed(const struct stream *stream);
const char *stream_path(const struct stream *stream);
void stream_close(struct stream *stream); /* NULL is a no-op */

#endif
