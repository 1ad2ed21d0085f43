/* file is the door to everything outside: each path that a user gives goes through here, by scheme
 * ("file:" or none now; "-" is standard input or output where that makes sense; others are refused
 * with the list of known ones). All writes that must survive go beside, are fsynced, then renamed.
 * A full disk is SHOAL_ESPACE, and says which path and how many bytes were wanted. */
#ifndef SHOAL_IO_FILE_H
#define SHOAL_IO_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct io_list { /* sorted paths; owned by the list */
    char **paths;
    size_t count;
};
void io_list_fini(struct io_list *list);

/* Expands a glob (a plain path counts as one). Nothing matches: SHOAL_ENOENT naming the pattern. */
int io_glob(const char *pattern, struct io_list *list_out, struct err *err);
/* Names in a folder, sorted, without . and .. */
int io_list_dir(const char *path, struct io_list *list_out, struct err *err);

bool io_exists(const char *path);
bool io_is_dir(const char *path);
/* When it was last written to, in seconds since 1970. */
int io_modified(const char *path, double *secs_out, struct err *err);
int io_size(const char *path, uint64_t *bytes_out, struct err *err);
int io_make_dirs(const char *path, struct err *err);
int io_rename(const char *from, const char *to, struct err *err); /* then fsyncs the folder */
int io_remove_tree(const char *path, struct err *err);            /* absent is fine */
int io_read_whole(const char *path, size_t bytes_max, char **bytes_out, size_t *count_out,
                  struct err *err); /* NUL added; caller owns (mem_free) */
int io_write_whole(const char *path, const void *bytes, size_t count, struct err *err); /* atomic */

/* A lock on a folder, held until released or the process ends (flock on FOLDER/.lock, which holds
 * the owner's pid and host). SHOAL_EBUSY names the holder. */
struct io_lock;
int io_lock_acquire(const char *folder, struct io_lock **lock_out, struct err *err);
void io_lock_release(struct io_lock *lock);

/* Sequential writer with a running CRC32C. io_writer_close fsyncs; destroy without close leaves the
 * file behind unfinished (the caller removes the folder). Path "-" is standard output. */
struct io_writer;
int io_writer_open(const char *path, struct io_writer **writer_out, struct err *err);
int io_writer_write(struct io_writer *writer, const void *bytes, size_t count, struct err *err);
/* Hands what is gathered to the kernel, so that readers of the file see it; no fsync. */
int io_writer_flush(struct io_writer *writer, struct err *err);
uint64_t io_writer_bytes(const struct io_writer *writer);
uint32_t io_writer_crc32c(const struct io_writer *writer);
int io_writer_close(struct io_writer *writer, struct err *err); /* frees, also on error */
void io_writer_abandon(struct io_writer *writer);               /* frees without sync */

/* A whole file mapped read only. */
struct io_map {
    const uint8_t *bytes;
    size_t count;
};
int io_map_open(const char *path, struct io_map *map_out, struct err *err);
void io_map_close(struct io_map *map);

#endif
