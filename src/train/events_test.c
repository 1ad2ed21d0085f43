#include "train/events.h"

#include <stdlib.h>

#include "../tests/test.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/file.h"

static struct err err;
static double last_wall_secs;

/* Points as lines "tag step value". */
static int collect(void *ctx, const struct events_point *point, struct err *unused)
{
    (void)unused;
    struct str *lines = ctx;
    str_printf(lines, "%.*s %llu %g\n", (int)point->tag_bytes, point->tag,
               (unsigned long long)point->step, (double)point->value);
    last_wall_secs = point->wall_secs;
    return 0;
}

static char *only_file(const char *folder)
{
    struct io_list list;
    CHECK_OK(io_list_dir(folder, &list, &err));
    CHECK_INT(list.count, 1);
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, list.paths[0]);
    CHECK_HAS(path, "/events.out.tfevents.");
    io_list_fini(&list);
    return path;
}

static void read_all(const char *path, const char *want)
{
    struct str lines = {0};
    CHECK_OK(events_read(path, collect, &lines, &err));
    CHECK_STR(lines.text == NULL ? "" : lines.text, want);
    str_fini(&lines);
}

TEST(what_is_written_is_read)
{
    struct events *events = NULL;
    CHECK_OK(events_open("a/b", &events, &err));
    CHECK_OK(events_scalar(events, 0, "loss", 0.5, &err));
    CHECK_OK(events_scalar(events, 300, "eval/auc", 0.75, &err));
    CHECK_OK(events_scalar(events, UINT64_MAX >> 1, "loss", -1e30, &err));
    CHECK_OK(events_flush(events, &err));
    const char *path = only_file("a/b");
    read_all(path, "loss 0 0.5\neval/auc 300 0.75\nloss 9223372036854775807 -1e+30\n");
    CHECK_OK(events_scalar(events, 400, "loss", 0.25, &err));
    CHECK_OK(events_close(events, &err));
    read_all(path, "loss 0 0.5\neval/auc 300 0.75\nloss 9223372036854775807 -1e+30\n"
                   "loss 400 0.25\n");
    CHECK_NEAR(last_wall_secs, clock_now_secs(), 60);
}

/* The first record is the version, framed as TensorFlow does: TensorBoard looks at it. */
TEST(a_file_starts_with_its_version)
{
    struct events *events = NULL;
    CHECK_OK(events_open("x", &events, &err));
    CHECK_OK(events_close(events, &err));
    char *bytes = NULL;
    size_t count = 0;
    CHECK_OK(io_read_whole(only_file("x"), 4096, &bytes, &count, &err));
    CHECK_INT(count, 12 + 24 + 4);
    CHECK_INT(bytes[0], 24);
    CHECK_INT(bytes[12], 0x09);
    CHECK(memcmp(bytes + 21,
                 "\x1a\x0d"
                 "brain.Event:2",
                 15) == 0);
    uint32_t crc = 0;
    memcpy(&crc, bytes + 36, 4);
    CHECK_INT(crc, hash_crc32c_mask(hash_crc32c(0, bytes + 12, 24)));
    mem_free(bytes);
}

TEST(two_writers_have_two_files)
{
    struct events *first = NULL;
    struct events *second = NULL;
    CHECK_OK(events_open("x", &first, &err));
    CHECK_OK(events_open("x", &second, &err));
    CHECK_OK(events_close(first, &err));
    CHECK_OK(events_close(second, &err));
    struct io_list list;
    CHECK_OK(io_list_dir("x", &list, &err));
    CHECK_INT(list.count, 2);
    io_list_fini(&list);
}

TEST(tags_have_a_longest_length)
{
    struct events *events = NULL;
    char tag[EVENTS_TAG_MAX + 2];
    memset(tag, 't', sizeof tag);
    tag[EVENTS_TAG_MAX] = '\0';
    CHECK_OK(events_open("x", &events, &err));
    CHECK_OK(events_scalar(events, UINT64_MAX, tag, 1, &err));
    tag[EVENTS_TAG_MAX] = 't';
    tag[EVENTS_TAG_MAX + 1] = '\0';
    CHECK_INT(events_scalar(events, 1, tag, 1, &err), SHOAL_EINVAL);
    CHECK_INT(events_scalar(events, 1, "", 1, &err), SHOAL_EINVAL);
    CHECK_OK(events_close(events, &err));
    events_abandon(NULL);
}

/* A file cut anywhere is read up to there; any flipped bit is found or changes nothing that was
 * checked. */
TEST(damage_is_found_and_a_cut_file_is_read)
{
    struct events *events = NULL;
    CHECK_OK(events_open("x", &events, &err));
    CHECK_OK(events_scalar(events, 1, "loss", 0.5, &err));
    CHECK_OK(events_close(events, &err));
    const char *path = only_file("x");
    char *bytes = NULL;
    size_t count = 0;
    CHECK_OK(io_read_whole(path, 4096, &bytes, &count, &err));
    for (size_t cut = 0; cut < count; cut++) {
        struct str lines = {0};
        CHECK_OK(io_write_whole("cut", bytes, cut, &err));
        CHECK_OK(events_read("cut", collect, &lines, &err));
        CHECK_INT(lines.bytes, 0);
        str_fini(&lines);
    }
    for (size_t at = 0; at < count; at++) {
        struct str lines = {0};
        bytes[at] ^= 0x10;
        CHECK_OK(io_write_whole("flipped", bytes, count, &err));
        CHECK_INT(events_read("flipped", collect, &lines, &err), SHOAL_ECORRUPT);
        CHECK_HAS(err.text, "flipped: offset ");
        bytes[at] ^= 0x10;
        str_fini(&lines);
    }
    mem_free(bytes);
    CHECK_INT(events_read("absent", collect, NULL, &err), SHOAL_ENOENT);
}

/* Other programs' events: unknown fields, other kinds of values, several values, any order. */
TEST(foreign_events_are_understood)
{
    uint8_t bytes[128];
    size_t count = 0;
    const uint8_t value_a[] = {0x0a, 1, 'a', 0x15, 0, 0, 0x80, 0x3f};       /* a = 1 */
    const uint8_t value_b[] = {0x15, 0, 0, 0, 0x40, 0x0a, 1, 'b', 0x48, 5}; /* b = 2, unknown 9 */
    const uint8_t value_c[] = {0x0a, 1, 'c', 0x22, 2, 0, 0};                /* an image: no point */
    bytes[count++] = 0x2a;
    bytes[count++] = (uint8_t)(sizeof value_a + sizeof value_b + sizeof value_c + 6 + 2);
    bytes[count++] = 0x10; /* an unknown number in the summary */
    bytes[count++] = 7;
#define ADD(value)                                                                                 \
    bytes[count++] = 0x0a;                                                                         \
    bytes[count++] = sizeof(value);                                                                \
    memcpy(bytes + count, value, sizeof(value));                                                   \
    count += sizeof(value)
    ADD(value_a);
    ADD(value_b);
    ADD(value_c);
    bytes[count++] = 0x10; /* the step comes last */
    bytes[count++] = 9;
    const double now = clock_now_secs();
    bytes[count++] = 0x09;
    memcpy(bytes + count, &now, 8);
    count += 8;
    struct str lines = {0};
    CHECK_OK(events_decode(bytes, count, collect, &lines, &err));
    CHECK_STR(lines.text, "a 9 1\nb 9 2\n");
    /* Cut anywhere it is an error, or stops between two fields. */
    for (size_t cut = 0; cut < count; cut++) {
        uint8_t *exact = malloc(cut + 1); /* so that reading past the end is seen */
        CHECK(exact != NULL);
        memcpy(exact, bytes, cut);
        struct str some = {0};
        const int rc = events_decode(exact, cut, collect, &some, NULL);
        CHECK(rc == SHOAL_ECORRUPT || (rc == 0 && (cut == 0 || cut >= count - 11)));
        str_fini(&some);
        free(exact);
    }
    str_fini(&lines);
}

static int scenario(void)
{
    struct events *events = NULL;
    int rc = events_open("x", &events, &err);
    if (rc == 0) rc = events_scalar(events, 1, "loss", 1, &err);
    if (rc != 0) {
        events_abandon(events);
        return rc;
    }
    return events_close(events, &err);
}

TEST(every_failed_allocation_is_an_error)
{
    for (uint64_t nth = 1;; nth++) {
        mem_fail_nth(nth);
        const int rc = scenario();
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        CHECK_INT(mem_bytes_total(), 0);
        if (!failed) break;
    }
}

TEST(a_folder_that_cannot_be_is_an_error)
{
    CHECK_OK(io_write_whole("file", "x", 1, &err));
    struct events *events = NULL;
    CHECK(events_open("file/x", &events, &err) != 0);
    CHECK_HAS(err.text, "file");
}
