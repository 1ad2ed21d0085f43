#include "io/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "../tests/test.h"
#include "base/bounds.h"
#include "base/hash.h"
#include "base/mem.h"

static void touch(const char *path, const char *text)
{
    struct err err = {0};
    CHECK_OK(io_write_whole(path, text, strlen(text), &err));
}

static void check_whole(const char *path, const char *want)
{
    struct err err = {0};
    char *got = NULL;
    size_t count = 0;
    CHECK_OK(io_read_whole(path, 1 << 20, &got, &count, &err));
    CHECK_STR(got, want);
    CHECK_INT(count, strlen(want));
    mem_free(got);
}

/* Globs expand in the order of bytes; a name that is there is meant as it is. */
TEST(globs_expand_sorted)
{
    struct err err = {0};
    struct io_list list = {0};
    static const char *const names[] = {"b-2", "b-10", "a-1", "B-1", "odd[1]"};
    for (size_t i = 0; i < 5; i++) touch(names[i], "x");
    CHECK_OK(io_glob("*-*", &list, &err));
    CHECK_INT(list.count, 4);
    CHECK_STR(list.paths[0], "B-1");
    CHECK_STR(list.paths[1], "a-1");
    CHECK_STR(list.paths[2], "b-10");
    CHECK_STR(list.paths[3], "b-2");
    io_list_fini(&list);
    CHECK_OK(io_glob("{a,B}-?", &list, &err));
    CHECK_INT(list.count, 2);
    io_list_fini(&list);
    CHECK_OK(io_glob("odd[1]", &list, &err));
    CHECK_INT(list.count, 1);
    io_list_fini(&list);
    CHECK_OK(io_glob("file:a-1", &list, &err));
    CHECK_STR(list.paths[0], "a-1");
    io_list_fini(&list);
    CHECK_OK(io_glob("-", &list, &err));
    CHECK_STR(list.paths[0], "-");
    io_list_fini(&list);
    io_list_fini(&list);
    CHECK_INT(io_glob("z-*", &list, &err), SHOAL_ENOENT);
    CHECK_STR(err.text, "z-*: no file matches");
    CHECK_INT(io_glob("z", &list, &err), SHOAL_ENOENT);
    CHECK_STR(err.text, "z: no such file");
    CHECK_INT(list.count, 0);
}

/* Schemes that we do not have, empty and overlong paths are refused everywhere. */
TEST(odd_paths_are_refused)
{
    struct err err = {0};
    struct io_list list = {0};
    static char path[IO_PATH_MAX + 1];
    memset(path, 'p', IO_PATH_MAX);
    CHECK_INT(io_glob("s3://bucket/*", &list, &err), SHOAL_EINVAL);
    CHECK_STR(err.text, "s3://bucket/*: unknown scheme \"s3\"; known: file:");
    CHECK_INT(io_glob("", &list, &err), SHOAL_EINVAL);
    CHECK_INT(io_glob(path, &list, &err), SHOAL_ELIMIT);
    CHECK_INT(io_make_dirs("hdfs://x", &err), SHOAL_EINVAL);
    CHECK(!io_exists("s3://x"));
    touch("time:12:30", "colons are fine");
    check_whole("time:12:30", "colons are fine");
    check_whole("file:time:12:30", "colons are fine");
    char absolute[512];
    CHECK(getcwd(absolute, 400) != NULL);
    char url[600];
    snprintf(url, sizeof url, "file://%s/time:12:30", absolute);
    check_whole(url, "colons are fine");
}

/* Folders: made with those above them, listed sorted, removed whole; links are not followed. */
TEST(folders_are_made_listed_removed)
{
    struct err err = {0};
    struct io_list list = {0};
    CHECK_OK(io_make_dirs("a/b/c", &err));
    CHECK_OK(io_make_dirs("a/b/c/", &err));
    CHECK_OK(io_make_dirs("a", &err));
    CHECK(io_is_dir("a/b/c"));
    touch("keep", "me");
    touch("a/z", "1");
    touch("a/b/y", "2");
    touch("a/.hidden", "3");
    CHECK(symlink("../keep", "a/link") == 0);
    CHECK(symlink("..", "a/up") == 0);
    CHECK_OK(io_list_dir("a", &list, &err));
    CHECK_INT(list.count, 5);
    CHECK_STR(list.paths[0], ".hidden");
    CHECK_STR(list.paths[1], "b");
    CHECK_STR(list.paths[4], "z");
    io_list_fini(&list);
    CHECK_INT(io_make_dirs("a/z/x", &err), SHOAL_ENOENT); /* not a folder on the way */
    CHECK_INT(io_make_dirs("a/z", &err), SHOAL_EEXIST);
    CHECK_INT(io_list_dir("absent", &list, &err), SHOAL_ENOENT);
    CHECK_OK(io_remove_tree("a", &err));
    CHECK(!io_exists("a"));
    check_whole("keep", "me");
    CHECK_OK(io_remove_tree("a", &err)); /* absent is fine */
    CHECK_OK(io_remove_tree("keep", &err));
    CHECK(!io_exists("keep"));
}

/* A tree too deep to be ours is left with an error. */
TEST(very_deep_trees_are_refused)
{
    struct err err = {0};
    char path[400] = "d";
    for (size_t i = 0; i < 70; i++) memcpy(path + 1 + 2 * i, "/d", 3);
    CHECK_OK(io_make_dirs(path, &err));
    CHECK_INT(io_remove_tree("d", &err), SHOAL_ELIMIT);
}

/* Sizes, ages and kinds. */
TEST(files_are_looked_at)
{
    struct err err = {0};
    uint64_t bytes = 0;
    double secs = 0;
    touch("f", "12345");
    CHECK_OK(io_size("f", &bytes, &err));
    CHECK_INT(bytes, 5);
    CHECK_INT(io_size(".", &bytes, &err), SHOAL_EINVAL);
    CHECK_INT(io_size("absent", &bytes, &err), SHOAL_ENOENT);
    CHECK(io_exists("f") && !io_is_dir("f") && io_is_dir("."));
    CHECK_OK(io_modified("f", &secs, &err));
    CHECK(secs > 1.6e9);
    CHECK_INT(io_modified("absent", &secs, &err), SHOAL_ENOENT);
}

/* A whole file is replaced in one stroke, and read up to its bound. */
TEST(whole_files_are_replaced)
{
    struct err err = {0};
    char *bytes = NULL;
    size_t count = 0;
    touch("f", "first");
    touch("f", "second, longer");
    check_whole("f", "second, longer");
    touch("f", "");
    check_whole("f", "");
    struct io_list list = {0};
    CHECK_OK(io_list_dir(".", &list, &err));
    CHECK_INT(list.count, 1); /* nothing is left beside it */
    io_list_fini(&list);
    touch("f", "12345");
    CHECK_OK(io_read_whole("f", 5, &bytes, &count, &err));
    mem_free(bytes);
    CHECK_INT(io_read_whole("f", 4, &bytes, &count, &err), SHOAL_ELIMIT);
    CHECK_STR(err.text, "read f: more than 4 bytes");
    CHECK_INT(io_read_whole("absent", 4, &bytes, &count, &err), SHOAL_ENOENT);
    CHECK_INT(io_read_whole(".", 4, &bytes, &count, &err), SHOAL_EIO);
    CHECK_OK(io_read_whole("/proc/self/status", 1 << 20, &bytes, &count, &err)); /* has no size */
    CHECK(count > 100);
    mem_free(bytes);
    CHECK_INT(io_write_whole("absent/f", "x", 1, &err), SHOAL_ENOENT);
}

/* A rename moves, replaces, and says which names when it cannot. */
TEST(renames_replace)
{
    struct err err = {0};
    touch("a", "1");
    touch("b", "2");
    CHECK_OK(io_rename("a", "b", &err));
    check_whole("b", "1");
    CHECK(!io_exists("a"));
    CHECK_INT(io_rename("a", "b", &err), SHOAL_ENOENT);
    CHECK_HAS(err.text, "rename a to b: ");
    CHECK_OK(io_make_dirs("dir", &err));
    CHECK_OK(io_rename("b", "dir/b", &err));
    check_whole("dir/b", "1");
}

/* The writer: pieces of any size, the bytes and the checksum of all of them. */
TEST(writer_writes_everything)
{
    static uint8_t data[1000000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 31 >> 3);
    static const size_t pieces[] = {1, 100, 4096, 262143, 262144, 262145, 1000000};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct err err = {0};
        struct io_writer *writer = NULL;
        const size_t total = pieces[i] == 1 ? 3000 : sizeof data;
        CHECK_OK(io_writer_open("w", &writer, &err));
        for (size_t at = 0; at < total; at += pieces[i]) {
            const size_t piece = total - at < pieces[i] ? total - at : pieces[i];
            CHECK_OK(io_writer_write(writer, data + at, piece, &err));
            CHECK_OK(io_writer_write(writer, NULL, 0, &err));
            if (at % 7 == 3) CHECK_OK(io_writer_flush(writer, &err));
        }
        CHECK_INT(io_writer_bytes(writer), total);
        CHECK_INT(io_writer_crc32c(writer), hash_crc32c(0, data, total));
        CHECK_OK(io_writer_close(writer, &err));
        struct io_map map = {0};
        CHECK_OK(io_map_open("w", &map, &err));
        CHECK_INT(map.count, total);
        CHECK(memcmp(map.bytes, data, total) == 0);
        io_map_close(&map);
        io_map_close(&map);
    }
    io_writer_abandon(NULL);
}

/* What was flushed is there for readers; what was abandoned stays unfinished. */
TEST(writer_flushes_and_is_abandoned)
{
    struct err err = {0};
    struct io_writer *writer = NULL;
    CHECK_OK(io_writer_open("w", &writer, &err));
    CHECK_OK(io_writer_write(writer, "abc", 3, &err));
    CHECK_OK(io_writer_flush(writer, &err));
    check_whole("w", "abc");
    CHECK_OK(io_writer_write(writer, "def", 3, &err));
    io_writer_abandon(writer);
    check_whole("w", "abc");
}

/* A full disk is SHOAL_ESPACE, with the path and the bytes, whenever it is noticed. */
TEST(full_disk_is_told)
{
    struct err err = {0};
    struct io_writer *writer = NULL;
    static uint8_t data[300000];
    CHECK_OK(io_writer_open("/dev/full", &writer, &err));
    CHECK_INT(io_writer_write(writer, data, sizeof data, &err), SHOAL_ESPACE);
    CHECK_STR(err.text,
              "write /dev/full: 300000 bytes wanted, 0 written, after 0: No space left on device");
    io_writer_abandon(writer);
    CHECK_OK(io_writer_open("/dev/full", &writer, &err));
    CHECK_OK(io_writer_write(writer, data, 100, &err)); /* gathered, not written yet */
    CHECK_INT(io_writer_close(writer, &err), SHOAL_ESPACE);
    CHECK_HAS(err.text, "write /dev/full: 100 bytes wanted, 0 written, after 0");
}

/* A disk that fills up on the way: what fits is written, then the same error; a whole file that
 * does not fit leaves the old one and nothing beside it. */
TEST(disk_that_fills_up_is_told)
{
    struct err err = {0};
    static uint8_t data[300000];
    touch("f", "old");
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, 100000}) == 0);
    struct io_writer *writer = NULL;
    CHECK_OK(io_writer_open("w", &writer, &err));
    CHECK_INT(io_writer_write(writer, data, sizeof data, &err), SHOAL_ESPACE);
    CHECK_HAS(err.text, "write w: 300000 bytes wanted, 100000 written, after 0: ");
    io_writer_abandon(writer);
    CHECK_INT(io_write_whole("f", data, sizeof data, &err), SHOAL_ESPACE);
    check_whole("f", "old");
    CHECK_OK(io_remove_tree("w", &err));
    struct io_list list = {0};
    CHECK_OK(io_list_dir(".", &list, &err));
    CHECK_INT(list.count, 1);
    io_list_fini(&list);
}

/* Standard output is a file like others, and stays open. */
TEST(standard_output_is_written)
{
    struct err err = {0};
    const int fd = open("out", O_RDWR | O_CREAT, 0666);
    CHECK(fd >= 0);
    fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    CHECK(dup2(fd, STDOUT_FILENO) >= 0);
    struct io_writer *writer = NULL;
    CHECK_OK(io_writer_open("-", &writer, &err));
    CHECK_OK(io_writer_write(writer, "hello\n", 6, &err));
    CHECK_OK(io_writer_close(writer, &err));
    CHECK(fcntl(STDOUT_FILENO, F_GETFD) >= 0);
    dup2(saved, STDOUT_FILENO);
    check_whole("out", "hello\n");
}

/* A folder is locked by one process at a time; the second hears who has it; the lock goes with its
 * holder, also when that is killed. */
TEST(lock_has_one_holder)
{
    struct err err = {0};
    struct io_lock *lock = NULL;
    struct io_lock *second = NULL;
    CHECK_INT(io_lock_acquire("absent", &lock, &err), SHOAL_ENOENT);
    CHECK_OK(io_make_dirs("d", &err));
    int ends[2];
    CHECK(pipe(ends) == 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        if (io_lock_acquire("d", &lock, &err) != 0) _exit(1);
        if (write(ends[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    char byte = 0;
    CHECK(read(ends[0], &byte, 1) == 1);
    CHECK_INT(io_lock_acquire("d", &lock, &err), SHOAL_EBUSY);
    char want[64];
    snprintf(want, sizeof want, "d is in use by another process (pid %ld on ", (long)child);
    CHECK_HAS(err.text, want);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_OK(io_lock_acquire("d", &lock, &err));
    CHECK_INT(io_lock_acquire("d", &second, &err), SHOAL_EBUSY);
    io_lock_release(lock);
    CHECK_OK(io_lock_acquire("d", &second, &err));
    io_lock_release(second);
    io_lock_release(NULL);
}

/* Maps: empty files, folders, absent ones. */
TEST(maps_at_their_edges)
{
    struct err err = {0};
    struct io_map map = {0};
    touch("empty", "");
    CHECK_OK(io_map_open("empty", &map, &err));
    CHECK_INT(map.count, 0);
    io_map_close(&map);
    CHECK_INT(io_map_open("absent", &map, &err), SHOAL_ENOENT);
    CHECK_INT(io_map_open(".", &map, &err), SHOAL_EINVAL);
}

/* No permission is told as such (root may do everything, and is not asked). */
TEST(no_permission_is_told)
{
    struct err err = {0};
    if (geteuid() == 0) return;
    touch("f", "x");
    CHECK(chmod("f", 0) == 0);
    struct io_map map = {0};
    CHECK_INT(io_map_open("f", &map, &err), SHOAL_EACCES);
    CHECK_HAS(err.text, "open f: ");
}

/* Whichever allocation fails, nothing is left behind. */
TEST(every_failed_allocation_is_survived)
{
    touch("a", "1");
    touch("b", "2");
    for (uint64_t nth = 1;; nth++) {
        struct err err = {0};
        struct io_list list = {0};
        struct io_list names = {0};
        struct io_lock *lock = NULL;
        char *bytes = NULL;
        size_t count = 0;
        const size_t before = mem_bytes_total();
        mem_fail_nth(nth);
        int rc = io_glob("[ab]", &list, &err);
        if (rc == 0) rc = io_list_dir(".", &names, &err);
        if (rc == 0) rc = io_read_whole("a", 10, &bytes, &count, &err);
        if (rc == 0) rc = io_write_whole("a", "3", 1, &err);
        if (rc == 0) rc = io_lock_acquire(".", &lock, &err);
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        io_lock_release(lock);
        mem_free(bytes);
        io_list_fini(&names);
        io_list_fini(&list);
        CHECK_INT(mem_bytes_total(), before);
        if (!failed) break;
    }
    check_whole("a", "3");
}
