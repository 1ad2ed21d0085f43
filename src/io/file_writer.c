#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "io/file.h"
#include "io/path.h"

/* Small writes are gathered; large ones go straight to the kernel. */
#define BUFFER_BYTES ((size_t)256 << 10)

struct io_writer {
    int fd;
    bool is_stdout;
    uint32_t crc32c;
    uint64_t bytes;  /* given by the caller so far */
    size_t buffered; /* of them, still in buffer */
    uint8_t *buffer;
    char *path;
};

int io_writer_open(const char *path, struct io_writer **writer_out, struct err *err)
{
    const char *plain = NULL;
    int rc = path_plain(path, &plain, err);
    if (rc != 0) return rc;
    struct io_writer *writer = mem_alloc(MEM_IO, sizeof *writer);
    if (writer == NULL) return err_set(err, SHOAL_ENOMEM, "write %s: no memory", plain);
    writer->is_stdout = strcmp(path, "-") == 0;
    writer->fd = -1;
    writer->path = mem_strdup(MEM_IO, writer->is_stdout ? "standard output" : plain);
    writer->buffer = mem_alloc(MEM_IO, BUFFER_BYTES);
    if (writer->path == NULL || writer->buffer == NULL) {
        rc = err_set(err, SHOAL_ENOMEM, "write %s: no memory", plain);
    } else if (writer->is_stdout) {
        writer->fd = STDOUT_FILENO;
    } else {
        writer->fd = open(plain, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (writer->fd < 0) rc = err_set_errno(err, errno, "create %s", plain);
    }
    if (rc != 0) {
        io_writer_abandon(writer);
        return rc;
    }
    *writer_out = writer;
    return 0;
}

static int write_all(struct io_writer *writer, const uint8_t *bytes, size_t count, struct err *err)
{
    size_t done = 0;
    while (done < count) {
        const ssize_t wrote = write(writer->fd, bytes + done, count - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            return err_set_errno(err, wrote == 0 ? ENOSPC : errno,
                                 "write %s: %zu bytes wanted, %zu written, after %" PRIu64,
                                 writer->path, count, done, writer->bytes - count);
        }
        done += (size_t)wrote;
    }
    return 0;
}

int io_writer_flush(struct io_writer *writer, struct err *err)
{
    const size_t count = writer->buffered;
    writer->buffered = 0; /* also on error: what could not be written is not tried again */
    return write_all(writer, writer->buffer, count, err);
}

int io_writer_write(struct io_writer *writer, const void *bytes, size_t count, struct err *err)
{
    int rc = 0;
    writer->crc32c = hash_crc32c(writer->crc32c, bytes, count);
    if (writer->buffered + count > BUFFER_BYTES) rc = io_writer_flush(writer, err);
    writer->bytes += count;
    if (rc != 0) return rc;
    if (count >= BUFFER_BYTES) return write_all(writer, bytes, count, err);
    if (count > 0) memcpy(writer->buffer + writer->buffered, bytes, count);
    writer->buffered += count;
    return 0;
}

uint64_t io_writer_bytes(const struct io_writer *writer)
{
    return writer->bytes;
}

uint32_t io_writer_crc32c(const struct io_writer *writer)
{
    return writer->crc32c;
}

int io_writer_close(struct io_writer *writer, struct err *err)
{
    int rc = io_writer_flush(writer, err);
    if (rc == 0 && !writer->is_stdout) {
        /* EINVAL and EROFS: not a file that can be synced (a pipe, /dev/full). */
        if (fsync(writer->fd) != 0 && errno != EINVAL && errno != EROFS) {
            rc = err_set_errno(err, errno, "sync %s: %" PRIu64 " bytes", writer->path,
                               writer->bytes);
        }
        const int fd = writer->fd;
        writer->fd = -1;
        /* Network filesystems report a full disk only here. */
        if (close(fd) != 0 && rc == 0) rc = err_set_errno(err, errno, "close %s", writer->path);
    }
    io_writer_abandon(writer);
    return rc;
}

void io_writer_abandon(struct io_writer *writer)
{
    if (writer == NULL) return;
    if (writer->fd >= 0 && !writer->is_stdout) close(writer->fd);
    mem_free(writer->buffer);
    mem_free(writer->path);
    mem_free(writer);
}
