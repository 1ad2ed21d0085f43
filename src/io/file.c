#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bounds.h"
#include "base/mem.h"
#include "io/path.h"

/* The schemes that a path may have. A new carrier adds its name here and a branch where it opens.
 */
int path_plain(const char *path, const char **plain_out, struct err *err)
{
    const size_t length = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789+");
    if (strlen(path) >= IO_PATH_MAX) {
        return err_set(err, SHOAL_ELIMIT, "path of %zu bytes, at most %u: %.60s...", strlen(path),
                       IO_PATH_MAX - 1, path);
    }
    if (path[0] == '\0') return err_set(err, SHOAL_EINVAL, "an empty path");
    if (strncmp(path, "file:", 5) == 0) {
        *plain_out = strncmp(path, "file://", 7) == 0 ? path + 7 : path + 5;
        return 0;
    }
    /* "name:with:colons" is a plain name; "s3://bucket" is a scheme that we do not have. */
    if (length > 0 && strncmp(path + length, "://", 3) == 0) {
        return err_set(err, SHOAL_EINVAL, "%s: unknown scheme \"%.*s\"; known: file:", path,
                       (int)length, path);
    }
    *plain_out = path;
    return 0;
}

void io_list_fini(struct io_list *list)
{
    for (size_t i = 0; i < list->count; i++) mem_free(list->paths[i]);
    mem_free(list->paths);
    *list = (struct io_list){0};
}

static int list_append(struct io_list *list, size_t *capacity, const char *path, struct err *err)
{
    void *paths = list->paths;
    if (mem_grow(MEM_IO, &paths, capacity, list->count + 1, sizeof *list->paths) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for a list of %zu paths", list->count + 1);
    }
    list->paths = paths;
    list->paths[list->count] = mem_strdup(MEM_IO, path);
    if (list->paths[list->count] == NULL) {
        return err_set(err, SHOAL_ENOMEM, "no memory for a list of %zu paths", list->count + 1);
    }
    list->count++;
    return 0;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_finish(struct io_list *list, int rc, struct io_list *list_out)
{
    if (rc != 0) {
        io_list_fini(list);
        return rc;
    }
    /* By bytes, not by locale: which file has which share must not depend on the machine. */
    if (list->count > 1) qsort(list->paths, list->count, sizeof *list->paths, compare_paths);
    *list_out = *list;
    return 0;
}

int io_glob(const char *pattern, struct io_list *list_out, struct err *err)
{
    const char *plain = NULL;
    int rc = path_plain(pattern, &plain, err);
    if (rc != 0) return rc;
    struct io_list list = {0};
    size_t capacity = 0;
    struct stat status;
    /* A path that is there is meant as it is, brackets and all; so is standard input. */
    if (strcmp(pattern, "-") == 0 || stat(plain, &status) == 0) {
        return list_finish(&list, list_append(&list, &capacity, plain, err), list_out);
    }
    glob_t found = {0};
    const int failed = glob(plain, GLOB_BRACE | GLOB_NOSORT | GLOB_TILDE, NULL, &found);
    if (failed == GLOB_NOMATCH) {
        rc = strpbrk(plain, "*?[{") == NULL
                 ? err_set(err, SHOAL_ENOENT, "%s: no such file", plain)
                 : err_set(err, SHOAL_ENOENT, "%s: no file matches", plain);
    } else if (failed == GLOB_NOSPACE) {
        rc = err_set(err, SHOAL_ENOMEM, "%s: no memory to list the matches", plain);
    } else if (failed != 0) {
        rc = err_set(err, SHOAL_EIO, "%s: a folder on the way could not be read", plain);
    }
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++) {
        rc = list_append(&list, &capacity, found.gl_pathv[i], err);
    }
    globfree(&found);
    return list_finish(&list, rc, list_out);
}

int io_list_dir(const char *path, struct io_list *list_out, struct err *err)
{
    const char *plain = NULL;
    int rc = path_plain(path, &plain, err);
    if (rc != 0) return rc;
    DIR *dir = opendir(plain);
    if (dir == NULL) return err_set_errno(err, errno, "list folder %s", plain);
    struct io_list list = {0};
    size_t capacity = 0;
    while (rc == 0) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            if (errno != 0) rc = err_set_errno(err, errno, "list folder %s", plain);
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        rc = list_append(&list, &capacity, entry->d_name, err);
    }
    closedir(dir);
    return list_finish(&list, rc, list_out);
}

bool io_exists(const char *path)
{
    const char *plain = NULL;
    struct stat status;
    return path_plain(path, &plain, NULL) == 0 && stat(plain, &status) == 0;
}

bool io_is_dir(const char *path)
{
    const char *plain = NULL;
    struct stat status;
    return path_plain(path, &plain, NULL) == 0 && stat(plain, &status) == 0 &&
           S_ISDIR(status.st_mode);
}

int io_modified(const char *path, double *secs_out, struct err *err)
{
    const char *plain = NULL;
    const int rc = path_plain(path, &plain, err);
    if (rc != 0) return rc;
    struct stat status;
    if (stat(plain, &status) != 0) return err_set_errno(err, errno, "age of %s", plain);
    *secs_out = (double)status.st_mtim.tv_sec + (double)status.st_mtim.tv_nsec * 1e-9;
    return 0;
}

int io_size(const char *path, uint64_t *bytes_out, struct err *err)
{
    const char *plain = NULL;
    const int rc = path_plain(path, &plain, err);
    if (rc != 0) return rc;
    struct stat status;
    if (stat(plain, &status) != 0) return err_set_errno(err, errno, "size of %s", plain);
    if (!S_ISREG(status.st_mode)) {
        return err_set(err, SHOAL_EINVAL, "size of %s: not a regular file", plain);
    }
    *bytes_out = (uint64_t)status.st_size;
    return 0;
}

int io_make_dirs(const char *path, struct err *err)
{
    const char *plain = NULL;
    const int rc = path_plain(path, &plain, err);
    if (rc != 0) return rc;
    char part[IO_PATH_MAX];
    const size_t count = strlen(plain);
    memcpy(part, plain, count + 1);
    for (size_t i = 1; i <= count; i++) {
        if (part[i] != '/' && part[i] != '\0') continue;
        const char kept = part[i];
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            return err_set_errno(err, errno, "make folder %s", part);
        }
        part[i] = kept;
    }
    struct stat status;
    if (stat(plain, &status) != 0) return err_set_errno(err, errno, "make folder %s", plain);
    if (!S_ISDIR(status.st_mode)) {
        return err_set(err, SHOAL_EEXIST, "make folder %s: a file of that name is there", plain);
    }
    return 0;
}

/* Makes a rename or a new name in the folder of path survive a crash of the machine. */
static int sync_folder_of(const char *path, struct err *err)
{
    char folder[IO_PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t count = slash == NULL ? 0 : (size_t)(slash - path);
    memcpy(folder, path, count);
    folder[count] = '\0';
    const char *name = slash == NULL ? "." : count == 0 ? "/" : folder;
    const int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return err_set_errno(err, errno, "open folder %s", name);
    /* Some filesystems have no fsync of folders (EINVAL); there is nothing more to do on them. */
    const int failed = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    close(fd);
    return failed == 0 ? 0 : err_set_errno(err, failed, "sync folder %s", name);
}

int io_rename(const char *from, const char *to, struct err *err)
{
    const char *plain_from = NULL;
    const char *plain_to = NULL;
    int rc = path_plain(from, &plain_from, err);
    if (rc == 0) rc = path_plain(to, &plain_to, err);
    if (rc != 0) return rc;
    if (rename(plain_from, plain_to) != 0) {
        return err_set_errno(err, errno, "rename %s to %s", plain_from, plain_to);
    }
    return sync_folder_of(plain_to, err);
}

/* Removes what is in the open folder, then closes it. Recursion is as deep as the tree; a tree
 * deeper than REMOVE_DEPTH_MAX is not ours. */
#define REMOVE_DEPTH_MAX 64

static int remove_inside(int folder, unsigned depth, const char *path, struct err *err)
{
    if (depth > REMOVE_DEPTH_MAX) {
        close(folder);
        return err_set(err, SHOAL_ELIMIT, "remove %s: more than %d folders deep", path,
                       REMOVE_DEPTH_MAX);
    }
    DIR *dir = fdopendir(folder);
    if (dir == NULL) {
        const int failed = errno;
        close(folder);
        return err_set_errno(err, failed, "remove %s", path);
    }
    int rc = 0;
    const struct dirent *entry = NULL;
    while (rc == 0 && (errno = 0, entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        const int inner = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner >= 0) rc = remove_inside(inner, depth + 1, path, err);
        if (rc == 0 && unlinkat(folder, name, inner >= 0 ? AT_REMOVEDIR : 0) != 0) {
            rc = err_set_errno(err, errno, "remove %s: %s", path, name);
        }
    }
    if (rc == 0 && errno != 0) rc = err_set_errno(err, errno, "remove %s", path);
    closedir(dir);
    return rc;
}

int io_remove_tree(const char *path, struct err *err)
{
    const char *plain = NULL;
    int rc = path_plain(path, &plain, err);
    if (rc != 0) return rc;
    const int folder = open(plain, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0 && errno == ENOENT) return 0;
    if (folder >= 0) rc = remove_inside(folder, 0, plain, err);
    if (rc == 0 && (folder >= 0 ? rmdir(plain) : unlink(plain)) != 0 && errno != ENOENT) {
        rc = err_set_errno(err, errno, "remove %s", plain);
    }
    return rc;
}

/* Reads until the end into a growing buffer: also right for pipes and /proc. */
static int read_all(int fd, const char *path, size_t bytes_max, char **bytes_out, size_t *count_out,
                    struct err *err)
{
    void *bytes = NULL;
    size_t capacity = 0;
    size_t count = 0;
    int rc = 0;
    while (rc == 0) {
        if (mem_grow(MEM_IO, &bytes, &capacity, count + 4096, 1) != 0) {
            rc = err_set(err, SHOAL_ENOMEM, "read %s: no memory for %zu bytes", path, count + 4096);
            break;
        }
        const ssize_t got = read(fd, (char *)bytes + count, capacity - count - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) rc = err_set_errno(err, errno, "read %s", path);
        if (got <= 0) break;
        count += (size_t)got;
        if (count > bytes_max) {
            rc = err_set(err, SHOAL_ELIMIT, "read %s: more than %zu bytes", path, bytes_max);
        }
    }
    if (rc != 0) {
        mem_free(bytes);
        return rc;
    }
    ((char *)bytes)[count] = '\0';
    *bytes_out = bytes;
    *count_out = count;
    return 0;
}

int io_read_whole(const char *path, size_t bytes_max, char **bytes_out, size_t *count_out,
                  struct err *err)
{
    const char *plain = NULL;
    int rc = path_plain(path, &plain, err);
    if (rc != 0) return rc;
    if (strcmp(path, "-") == 0) {
        return read_all(STDIN_FILENO, "standard input", bytes_max, bytes_out, count_out, err);
    }
    const int fd = open(plain, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set_errno(err, errno, "open %s", plain);
    rc = read_all(fd, plain, bytes_max, bytes_out, count_out, err);
    close(fd);
    return rc;
}

int io_write_whole(const char *path, const void *bytes, size_t count, struct err *err)
{
    const char *plain = NULL;
    int rc = path_plain(path, &plain, err);
    if (rc != 0) return rc;
    char beside[IO_PATH_MAX + 32];
    snprintf(beside, sizeof beside, "%s.tmp.%ld", plain, (long)getpid());
    struct io_writer *writer = NULL;
    rc = io_writer_open(beside, &writer, err);
    if (rc == 0) {
        rc = io_writer_write(writer, bytes, count, err);
        if (rc == 0) {
            rc = io_writer_close(writer, err);
        } else {
            io_writer_abandon(writer);
        }
        if (rc == 0) rc = io_rename(beside, plain, err);
        if (rc != 0) unlink(beside);
    }
    return rc;
}

struct io_lock {
    int fd;
};

/* Names the holder from what it wrote into the file; it may be gone from the file by now. */
static int lock_busy(int fd, const char *folder, struct err *err)
{
    char holder[256];
    const ssize_t got = pread(fd, holder, sizeof holder - 1, 0);
    holder[got < 0 ? 0 : got] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    return err_set(err, SHOAL_EBUSY, "%s is in use by another process (%s); one at a time", folder,
                   holder[0] == '\0' ? "unknown" : holder);
}

int io_lock_acquire(const char *folder, struct io_lock **lock_out, struct err *err)
{
    const char *plain = NULL;
    int rc = path_plain(folder, &plain, err);
    if (rc != 0) return rc;
    char path[IO_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/.lock", plain);
    struct io_lock *lock = mem_alloc(MEM_IO, sizeof *lock);
    if (lock == NULL) return err_set(err, SHOAL_ENOMEM, "lock %s: no memory", plain);
    lock->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock->fd < 0) {
        rc = err_set_errno(err, errno, "lock %s", plain);
    } else if (flock(lock->fd, LOCK_EX | LOCK_NB) != 0) {
        rc = errno == EWOULDBLOCK ? lock_busy(lock->fd, plain, err)
                                  : err_set_errno(err, errno, "lock %s", plain);
    } else {
        char host[128] = "";
        gethostname(host, sizeof host - 1);
        /* Who holds it is a courtesy: a full disk must not keep anyone from locking. */
        if (ftruncate(lock->fd, 0) == 0) dprintf(lock->fd, "pid %ld on %s\n", (long)getpid(), host);
    }
    if (rc != 0) {
        io_lock_release(lock);
        return rc;
    }
    *lock_out = lock;
    return 0;
}

void io_lock_release(struct io_lock *lock)
{
    if (lock == NULL) return;
    /* The file stays: removing it would let two processes lock two files of one name. */
    if (lock->fd >= 0) close(lock->fd);
    mem_free(lock);
}

int io_map_open(const char *path, struct io_map *map_out, struct err *err)
{
    const char *plain = NULL;
    int rc = path_plain(path, &plain, err);
    if (rc != 0) return rc;
    const int fd = open(plain, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set_errno(err, errno, "open %s", plain);
    struct stat status;
    struct io_map map = {0};
    if (fstat(fd, &status) != 0) {
        rc = err_set_errno(err, errno, "open %s", plain);
    } else if (!S_ISREG(status.st_mode)) {
        rc = err_set(err, SHOAL_EINVAL, "open %s: not a regular file", plain);
    } else if (status.st_size > 0) {
        map.count = (size_t)status.st_size;
        void *bytes = mmap(NULL, map.count, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED) rc = err_set_errno(err, errno, "map %s", plain);
        map.bytes = bytes;
    }
    close(fd);
    if (rc == 0) *map_out = map;
    return rc;
}

void io_map_close(struct io_map *map)
{
    if (map->count > 0) munmap((void *)(uintptr_t)map->bytes, map->count);
    *map = (struct io_map){0};
}
