#include "io/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "io/path.h"

/* Bytes move through two places:
 *
 *     file --read--> input [in .. in + in_count) --decode--> window [data .. data + count) -->
 * caller
 *
 * A file that is not compressed is read straight into the window, and memory that is not
 * compressed is the window itself. The files are read, not mapped: a mapped file that another
 * process truncates kills its reader, and the copy costs a tenth of a nanosecond a byte. */

enum kind { KIND_PLAIN, KIND_GZIP, KIND_ZSTD };

struct stream {
    char *path;
    int fd; /* -1: from memory */
    bool fd_is_ours;
    enum kind kind;

    const uint8_t *data; /* not yet skipped by the caller; in window, or borrowed memory */
    size_t count;
    uint64_t offset; /* of data, in uncompressed bytes */
    uint8_t *window;
    size_t window_bytes;
    bool ended;        /* nothing more comes into the window */
    struct err damage; /* why it ended; code 0: as it should */
    bool damage_is_told;

    const uint8_t *in; /* compressed bytes not yet decoded; in `input`, or borrowed memory */
    size_t in_count;
    uint8_t *input; /* STREAM_CHUNK_BYTES; NULL when from memory */
    bool in_ended;

    struct inflate_state *gzip;
    ZSTD_DStream *zstd;
    bool between; /* outside any gzip member or zstd frame: the data may end here */
};

static void end_damaged(struct stream *stream, const char *why)
{
    stream->ended = true;
    err_set(&stream->damage, SHOAL_ECORRUPT, "%s: %s after %llu bytes of data", stream->path, why,
            (unsigned long long)(stream->offset + stream->count));
}

/* What read() gives, never more; 0 at the end. A failing disk ends the stream. */
static size_t read_some(struct stream *stream, uint8_t *bytes, size_t room)
{
    for (;;) {
        const ssize_t got = read(stream->fd, bytes, room);
        if (got >= 0) return (size_t)got;
        if (errno == EINTR) continue;
        err_set_errno(&stream->damage, errno, "read %s", stream->path);
        return 0;
    }
}

/* Makes in_count >= want (a few bytes), unless the input ends before. */
static void need_input(struct stream *stream, size_t want)
{
    if (stream->in_count >= want || stream->in_ended) return;
    if (stream->in_count > 0) memmove(stream->input, stream->in, stream->in_count);
    stream->in = stream->input;
    while (stream->in_count < want && !stream->in_ended) {
        const size_t got = read_some(stream, stream->input + stream->in_count,
                                     STREAM_CHUNK_BYTES - stream->in_count);
        stream->in_count += got;
        stream->in_ended = got == 0;
    }
}

static void skip_input(struct stream *stream, size_t count)
{
    stream->in += count;
    stream->in_count -= count;
}

/* The input ended inside a member or frame: the disk failed, or the file is cut short. */
static void end_cut_short(struct stream *stream, const char *what)
{
    if (stream->damage.code == 0) end_damaged(stream, what);
    stream->ended = true;
}

/* Between gzip members: another member, zeros as padding, or anything else, which gzip calls
 * trailing garbage and ignores. True when there is a member to read. */
static bool gzip_next_member(struct stream *stream)
{
    for (;;) {
        need_input(stream, 2);
        size_t zeros = 0;
        while (zeros < stream->in_count && stream->in[zeros] == 0) zeros++;
        if (zeros == 0) break;
        skip_input(stream, zeros);
    }
    if (stream->in_count < 2 || stream->in[0] != 0x1f || stream->in[1] != 0x8b) {
        stream->ended = true;
        return false;
    }
    isal_inflate_reset(stream->gzip);
    stream->gzip->crc_flag = ISAL_GZIP;
    stream->between = false;
    return true;
}

static const char *gzip_error_text(int code)
{
    switch (code) {
    case ISAL_INCORRECT_CHECKSUM: return "gzip: the checksum does not fit the data";
    case ISAL_INVALID_WRAPPER: return "gzip: not a valid header";
    case ISAL_UNSUPPORTED_METHOD: return "gzip: unknown method";
    default: return "gzip: damaged";
    }
}

/* Adds bytes at the end of the window, at most room. */
static void gzip_fill(struct stream *stream, uint8_t *bytes, size_t room)
{
    struct inflate_state *gzip = stream->gzip;
    size_t added = 0;
    while (added == 0 && !stream->ended) {
        if (stream->between && !gzip_next_member(stream)) break;
        need_input(stream, 1);
        const size_t in_before = stream->in_count < INT32_MAX ? stream->in_count : INT32_MAX;
        gzip->next_in = (uint8_t *)(uintptr_t)stream->in;
        gzip->avail_in = (uint32_t)in_before;
        gzip->next_out = bytes;
        gzip->avail_out = (uint32_t)(room < INT32_MAX ? room : INT32_MAX);
        const int rc = isal_inflate(gzip);
        added = (size_t)(gzip->next_out - bytes);
        stream->count += added;
        /* After an error avail_in means nothing: ISA-L may have counted it below zero. */
        if (rc < 0 || rc > ISAL_OUT_OVERFLOW || gzip->avail_in > in_before) {
            end_damaged(stream, gzip_error_text(rc));
            break;
        }
        skip_input(stream, in_before - gzip->avail_in);
        if (gzip->block_state == ISAL_BLOCK_FINISH) {
            stream->between = true;
        } else if (added == 0 && stream->in_count == 0 && stream->in_ended) {
            end_cut_short(stream, "gzip: cut short");
        }
    }
}

static void zstd_fill(struct stream *stream, uint8_t *bytes, size_t room)
{
    size_t added = 0;
    while (added == 0 && !stream->ended) {
        need_input(stream, 1);
        if (stream->in_count == 0 && stream->between) {
            stream->ended = true;
            break;
        }
        ZSTD_inBuffer in = {stream->in, stream->in_count, 0};
        ZSTD_outBuffer out = {bytes, room, 0};
        const size_t rc = ZSTD_decompressStream(stream->zstd, &out, &in);
        added = out.pos;
        stream->count += added;
        skip_input(stream, in.pos);
        if (ZSTD_isError(rc)) {
            char why[128] = "zstd: ";
            strncat(why, ZSTD_getErrorName(rc), sizeof why - strlen(why) - 1);
            end_damaged(stream, why);
            break;
        }
        stream->between = rc == 0;
        if (added == 0 && rc != 0 && stream->in_count == 0 && stream->in_ended) {
            end_cut_short(stream, "zstd: cut short");
        }
    }
}

/* At least half of the window is kept free when it is filled, so that moving the rest to its front
 * costs at most what was read since. */
static int make_room(struct stream *stream, struct err *err)
{
    if (stream->window != NULL && stream->count <= stream->window_bytes / 2) {
        memmove(stream->window, stream->data, stream->count);
    } else {
        const size_t bytes =
            stream->window == NULL ? 2 * STREAM_CHUNK_BYTES : 2 * stream->window_bytes;
        uint8_t *window = mem_alloc(MEM_IO, bytes);
        if (window == NULL) {
            return err_set(err, SHOAL_ENOMEM, "read %s: no memory for %zu bytes", stream->path,
                           bytes);
        }
        if (stream->count > 0) memcpy(window, stream->data, stream->count);
        mem_free(stream->window);
        stream->window = window;
        stream->window_bytes = bytes;
    }
    stream->data = stream->window;
    return 0;
}

static int fill(struct stream *stream, struct err *err)
{
    const int rc = make_room(stream, err);
    if (rc != 0) return rc;
    uint8_t *end = stream->window + stream->count;
    const size_t room = stream->window_bytes - stream->count;
    switch (stream->kind) {
    case KIND_GZIP: gzip_fill(stream, end, room); break;
    case KIND_ZSTD: zstd_fill(stream, end, room); break;
    case KIND_PLAIN: {
        const size_t got =
            read_some(stream, end, room < STREAM_CHUNK_BYTES ? room : STREAM_CHUNK_BYTES);
        stream->count += got;
        stream->ended = got == 0;
        break;
    }
    }
    return 0;
}

static enum kind kind_of(const uint8_t *bytes, size_t count)
{
    static const uint8_t zstd_magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    static const uint8_t zstd_skip_magic[3] = {0x2a, 0x4d, 0x18}; /* after 0x50 .. 0x5f */
    /* The method too: a TFRecord's length may look like the first two bytes. */
    if (count >= 3 && bytes[0] == 0x1f && bytes[1] == 0x8b && bytes[2] == 8) return KIND_GZIP;
    if (count < 4) return KIND_PLAIN;
    if (memcmp(bytes, zstd_magic, 4) == 0) return KIND_ZSTD;
    if ((bytes[0] & 0xf0) == 0x50 && memcmp(bytes + 1, zstd_skip_magic, 3) == 0) return KIND_ZSTD;
    return KIND_PLAIN;
}

static int start_decoder(struct stream *stream, struct err *err)
{
    if (stream->kind == KIND_GZIP) {
        stream->gzip = mem_alloc(MEM_IO, sizeof *stream->gzip);
        if (stream->gzip != NULL) isal_inflate_init(stream->gzip);
    } else if (stream->kind == KIND_ZSTD) {
        stream->zstd = ZSTD_createDStream();
    }
    if (stream->kind != KIND_PLAIN && stream->gzip == NULL && stream->zstd == NULL) {
        return err_set(err, SHOAL_ENOMEM, "read %s: no memory to decompress", stream->path);
    }
    stream->between = true;
    return 0;
}

static int create(const char *path, struct stream **stream_out, struct err *err)
{
    struct stream *stream = mem_alloc(MEM_IO, sizeof *stream);
    if (stream != NULL) {
        stream->fd = -1;
        stream->path = mem_strdup(MEM_IO, path);
    }
    if (stream == NULL || stream->path == NULL) {
        mem_free(stream);
        return err_set(err, SHOAL_ENOMEM, "open %s: no memory", path);
    }
    *stream_out = stream;
    return 0;
}

/* Looks at the first bytes, and leaves them where the kind of file wants them. */
static int probe(struct stream *stream, uint64_t offset, struct err *err)
{
    stream->input = mem_alloc(MEM_IO, STREAM_CHUNK_BYTES);
    if (stream->input == NULL) {
        return err_set(err, SHOAL_ENOMEM, "open %s: no memory", stream->path);
    }
    need_input(stream, 4);
    if (stream->damage.code != 0) {
        if (err != NULL) *err = stream->damage;
        return stream->damage.code;
    }
    stream->kind = kind_of(stream->in, stream->in_count);
    if (stream->kind != KIND_PLAIN) {
        if (offset > 0) {
            return err_set(err, SHOAL_EINVAL,
                           "open %s at byte %llu: compressed, only readable whole", stream->path,
                           (unsigned long long)offset);
        }
        return start_decoder(stream, err);
    }
    if (offset > 0) {
        if (offset > INT64_MAX || lseek(stream->fd, (off_t)offset, SEEK_SET) < 0) {
            return err_set(err, SHOAL_EINVAL, "open %s at byte %llu: only readable whole",
                           stream->path, (unsigned long long)offset);
        }
        stream->offset = offset;
        stream->in_count = 0;
    }
    /* The input buffer becomes the window, with what is in it. */
    stream->window = stream->input;
    stream->window_bytes = STREAM_CHUNK_BYTES;
    stream->data = stream->window;
    stream->count = stream->in_count;
    stream->ended = stream->in_ended && offset == 0;
    stream->input = NULL;
    return 0;
}

int stream_open(const char *path, uint64_t offset, struct stream **stream_out, struct err *err)
{
    const char *plain = NULL;
    int rc = path_plain(path, &plain, err);
    if (rc != 0) return rc;
    struct stream *stream = NULL;
    const bool standard = strcmp(path, "-") == 0;
    rc = create(standard ? "standard input" : plain, &stream, err);
    if (rc != 0) return rc;
    stream->fd = standard ? STDIN_FILENO : open(plain, O_RDONLY | O_CLOEXEC);
    stream->fd_is_ours = !standard;
    if (stream->fd < 0) {
        rc = err_set_errno(err, errno, "open %s", plain);
    } else {
        posix_fadvise(stream->fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* a hint: pipes refuse it */
        rc = probe(stream, offset, err);
    }
    if (rc != 0) {
        stream_close(stream);
        return rc;
    }
    *stream_out = stream;
    return 0;
}

int stream_open_memory(const void *bytes, size_t count, struct stream **stream_out, struct err *err)
{
    struct stream *stream = NULL;
    int rc = create("memory", &stream, err);
    if (rc != 0) return rc;
    stream->kind = kind_of(bytes, count);
    if (stream->kind == KIND_PLAIN) {
        stream->data = bytes;
        stream->count = count;
        stream->ended = true;
    } else {
        stream->in = bytes;
        stream->in_count = count;
        stream->in_ended = true;
        rc = start_decoder(stream, err);
    }
    if (rc != 0) {
        stream_close(stream);
        return rc;
    }
    *stream_out = stream;
    return 0;
}

int stream_peek(struct stream *stream, size_t want, const uint8_t **bytes_out, size_t *have_out,
                struct err *err)
{
    if (want > STREAM_PEEK_MAX) {
        return err_set(err, SHOAL_ELIMIT, "%s: %zu bytes wanted at once, at most %zu", stream->path,
                       want, STREAM_PEEK_MAX);
    }
    while (stream->count < want && !stream->ended) {
        const int rc = fill(stream, err);
        if (rc != 0) return rc;
    }
    if (stream->count == 0 && stream->ended && stream->damage.code != 0 &&
        !stream->damage_is_told) {
        stream->damage_is_told = true;
        return err_set(err, stream->damage.code, "%s", stream->damage.text);
    }
    *bytes_out = stream->data;
    *have_out = stream->count;
    return 0;
}

void stream_skip(struct stream *stream, size_t count)
{
    ASSERT(count <= stream->count);
    stream->data += count;
    stream->count -= count;
    stream->offset += count;
}

uint64_t stream_offset(const struct stream *stream)
{
    return stream->offset;
}

const char *stream_damage(const struct stream *stream)
{
    return stream->ended && stream->damage.code != 0 ? stream->damage.text : NULL;
}

bool stream_is_compressed(const struct stream *stream)
{
    return stream->kind != KIND_PLAIN;
}

const char *stream_path(const struct stream *stream)
{
    return stream->path;
}

void stream_close(struct stream *stream)
{
    if (stream == NULL) return;
    if (stream->fd_is_ours && stream->fd >= 0) close(stream->fd);
    ZSTD_freeDStream(stream->zstd);
    mem_free(stream->gzip);
    mem_free(stream->input);
    mem_free(stream->window);
    mem_free(stream->path);
    mem_free(stream);
}
