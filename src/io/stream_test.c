#include "io/stream.h"

#include <fcntl.h>
#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "../tests/test.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "base/rand.h"

/* Bytes that compress somewhat: words of a small vocabulary. */
#define DATA_BYTES 3000000
static uint8_t data[DATA_BYTES];

static void make_data(void)
{
    for (size_t i = 0; i < DATA_BYTES; i++) {
        const uint64_t bits = rand_u64(1, RAND_TEST, 0, i / 16);
        data[i] = (uint8_t)("abcdefgh"[(bits >> (i % 16 * 3)) & 7]);
    }
}

struct file {
    uint8_t bytes[4 * DATA_BYTES];
    size_t count;
};
static struct file file;

static void put(const void *bytes, size_t count)
{
    CHECK(file.count + count <= sizeof file.bytes);
    if (count > 0) memcpy(file.bytes + file.count, bytes, count);
    file.count += count;
}

static void put_u32(uint32_t value)
{
    for (int i = 0; i < 4; i++) put(&(uint8_t){(uint8_t)(value >> (8 * i))}, 1);
}

/* A gzip member; flags are those of RFC 1952, each with something in its field. */
enum { FHCRC = 2, FEXTRA = 4, FNAME = 8, FCOMMENT = 16 };

static void put_gzip(const uint8_t *bytes, size_t count, uint8_t flags)
{
    const size_t start = file.count;
    put((uint8_t[]){0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 0, 3}, 10);
    if (flags & FEXTRA) put("\x05\x00hello", 7);
    if (flags & FNAME) put("a name.txt", 11);
    if (flags & FCOMMENT) put("said of it", 11);
    if (flags & FHCRC) {
        const uint32_t crc = crc32_gzip_refl(0, file.bytes + start, file.count - start);
        put((uint8_t[]){(uint8_t)crc, (uint8_t)(crc >> 8)}, 2);
    }
    struct isal_zstream deflate;
    isal_deflate_init(&deflate);
    deflate.end_of_stream = 1;
    deflate.flush = NO_FLUSH;
    deflate.next_in = (uint8_t *)(uintptr_t)bytes;
    deflate.avail_in = (uint32_t)count;
    deflate.next_out = file.bytes + file.count;
    deflate.avail_out = (uint32_t)(sizeof file.bytes - file.count);
    CHECK_INT(isal_deflate(&deflate), COMP_OK);
    file.count += deflate.total_out;
    put_u32(crc32_gzip_refl(0, bytes, count));
    put_u32((uint32_t)count);
}

static void put_zstd(const uint8_t *bytes, size_t count)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    CHECK(context != NULL);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    const size_t wrote = ZSTD_compress2(context, file.bytes + file.count,
                                        sizeof file.bytes - file.count, bytes, count);
    CHECK(!ZSTD_isError(wrote));
    file.count += wrote;
    ZSTD_freeCCtx(context);
}

static void write_file(const char *path)
{
    FILE *out = fopen(path, "wb");
    CHECK(out != NULL);
    CHECK(fwrite(file.bytes, 1, file.count, out) == file.count);
    fclose(out);
}

/* Reads to the end by peeks of `want` and skips of odd sizes; checks every byte against data.
 * Returns what the last peek gave; *count_out is how many bytes came. */
static int drain(struct stream *stream, size_t want, size_t first, size_t *count_out,
                 struct err *err)
{
    size_t count = 0;
    for (size_t round = 0;; round++) {
        const uint8_t *bytes = NULL;
        size_t have = 0;
        const int rc = stream_peek(stream, want, &bytes, &have, err);
        if (rc != 0 || have == 0) {
            *count_out = count;
            return rc;
        }
        const size_t used = round % 3 == 0 ? have : 1 + have * (round % 7) / 7;
        CHECK(first + count + have <= DATA_BYTES);
        CHECK(memcmp(bytes, data + first + count, have) == 0);
        stream_skip(stream, used <= have ? used : have);
        count += used <= have ? used : have;
        CHECK_INT(stream_offset(stream), first + count);
    }
}

/* The file as it is now, read from memory and from disk, gives the first `want_count` of data, and
 * then `want_rc`. */
static void check_reads(size_t want_count, int want_rc, bool compressed)
{
    static const size_t wants[] = {1, 4096, 1000000};
    write_file("file");
    for (int i = 0; i < 6; i++) {
        struct err err = {0};
        struct stream *stream = NULL;
        size_t count = 0;
        if (i < 3) {
            CHECK_OK(stream_open("file", 0, &stream, &err));
        } else {
            CHECK_OK(stream_open_memory(file.bytes, file.count, &stream, &err));
        }
        CHECK_INT(stream_is_compressed(stream), compressed);
        CHECK_STR(stream_path(stream), i < 3 ? "file" : "memory");
        CHECK_INT(drain(stream, wants[i % 3], 0, &count, &err), want_rc);
        CHECK_INT(count, want_count);
        CHECK((stream_damage(stream) != NULL) == (want_rc != 0));
        if (want_rc != 0) CHECK_STR(stream_damage(stream), err.text);
        CHECK_INT(drain(stream, 1, count, &count, &err), 0); /* told once */
        CHECK_INT(count, 0);
        stream_close(stream);
    }
}

/* What is not compressed comes as it is, of any size. */
TEST(plain_files_come_as_they_are)
{
    static const size_t counts[] = {0,      1,      3,      4,      5,         4096,
                                    262143, 262144, 262145, 700001, DATA_BYTES};
    make_data();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        file.count = 0;
        put(data, counts[i]);
        check_reads(counts[i], 0, false);
    }
}

/* A record whose first bytes look a little like gzip's is no gzip. */
TEST(lookalikes_are_plain)
{
    static const uint8_t looks[][5] = {
        {0x1f, 0x8b, 0, 0, 0}, {0x28, 0xb5, 0x2f, 0, 0}, {0x50, 0x2a, 0x4d, 0, 0}};
    for (size_t i = 0; i < 3; i++) {
        file.count = 0;
        put(looks[i], 5);
        memcpy(data, looks[i], 5);
        check_reads(5, 0, false);
    }
}

/* gzip: one member or several, with every field of the header, empty ones, and what gzip itself
 * tolerates after the last. */
TEST(gzip_files_are_inflated)
{
    make_data();
    file.count = 0;
    put_gzip(data, DATA_BYTES, 0);
    check_reads(DATA_BYTES, 0, true);

    file.count = 0;
    for (uint8_t flags = 0; flags < 32; flags++) put_gzip(data + 1000 * flags, 1000, flags & 30);
    check_reads(32000, 0, true);

    file.count = 0;
    put_gzip(data, 0, 0);
    put_gzip(data, 1, 0);
    put_gzip(data, 0, FNAME);
    put_gzip(data + 1, 400000, 0);
    check_reads(400001, 0, true);

    put("\0\0\0\0\0\0\0", 7); /* tapes pad with zeros */
    check_reads(400001, 0, true);
    put_gzip(data + 400001, 10, 0);
    check_reads(400011, 0, true);
    put("trailing garbage", 16);
    check_reads(400011, 0, true);
    put("\x1f", 1);
    check_reads(400011, 0, true);

    file.count = 0;
    put_gzip(data, 0, 0);
    check_reads(0, 0, true);
}

/* Members and headers that fall on the edges of what is read at a time. */
TEST(gzip_members_may_start_anywhere)
{
    make_data();
    uint8_t noise[1000];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)rand_u64(2, RAND_TEST, 0, i);
    for (size_t pad = 0; pad < 24; pad++) {
        file.count = 0;
        /* A name of just the length that puts the next member where the chunk ends. */
        put((uint8_t[]){0x1f, 0x8b, 8, FNAME, 0, 0, 0, 0, 0, 3}, 10);
        while (file.count < STREAM_CHUNK_BYTES - 12 - pad) put("n", 1);
        put("\0", 1);
        const size_t header = file.count;
        put_gzip(data, 0, 0);
        memmove(file.bytes + header, file.bytes + header + 10, file.count - header - 10);
        file.count -= 10;
        put_gzip(data, 5000, FHCRC | FEXTRA | FNAME | FCOMMENT);
        put_gzip(data + 5000, 100000, 0);
        check_reads(105000, 0, true);
    }
}

/* gzip cut short anywhere gives a prefix of the data, then says so; so does a wrong checksum. */
TEST(damaged_gzip_gives_what_came_before)
{
    make_data();
    file.count = 0;
    put_gzip(data, 1000, FNAME);
    const size_t first_member = file.count;
    put_gzip(data + 1000, 20000, 0);
    const size_t whole = file.count;
    for (size_t cut = 4; cut < whole; cut += cut < 40 || cut > whole - 12 ? 1 : 97) {
        struct err err = {0};
        struct stream *stream = NULL;
        size_t count = 0;
        CHECK_OK(stream_open_memory(file.bytes, cut, &stream, &err));
        const int rc = drain(stream, 100, 0, &count, &err);
        if (cut == first_member ||
            cut == first_member + 1) { /* one byte is garbage, not a member */
            CHECK_INT(rc, 0);
            CHECK_INT(count, 1000);
        } else {
            CHECK_INT(rc, SHOAL_ECORRUPT);
            CHECK_HAS(err.text, "memory: gzip: cut short after ");
            CHECK(count <= 21000 && (cut < first_member || count >= 1000));
        }
        stream_close(stream);
    }
    file.bytes[whole - 5] ^= 1;
    check_reads(21000, SHOAL_ECORRUPT, true);
    file.bytes[whole - 5] ^= 1;
    file.bytes[first_member + 2] = 7; /* an unknown method in the second member */
    check_reads(1000, SHOAL_ECORRUPT, true);
}

/* zstd: one frame or several, skippable ones among them. */
TEST(zstd_files_are_decompressed)
{
    make_data();
    file.count = 0;
    put_zstd(data, DATA_BYTES);
    check_reads(DATA_BYTES, 0, true);

    file.count = 0;
    put("\x53\x2a\x4d\x18\x03\0\0\0xyz", 11);
    put_zstd(data, 1000);
    put_zstd(data + 1000, 0);
    put("\x50\x2a\x4d\x18\0\0\0\0", 8);
    put_zstd(data + 1000, 700000);
    check_reads(701000, 0, true);
}

/* zstd cut short or damaged gives what came before, then says so. */
TEST(damaged_zstd_gives_what_came_before)
{
    make_data();
    file.count = 0;
    put_zstd(data, 1000);
    const size_t first_frame = file.count;
    put_zstd(data + 1000, 20000);
    const size_t whole = file.count;
    for (size_t cut = 4; cut < whole; cut += cut < 40 || cut > whole - 12 ? 1 : 97) {
        struct err err = {0};
        struct stream *stream = NULL;
        size_t count = 0;
        CHECK_OK(stream_open_memory(file.bytes, cut, &stream, &err));
        const int rc = drain(stream, 100, 0, &count, &err);
        CHECK_INT(rc, cut == first_frame ? 0 : SHOAL_ECORRUPT);
        if (rc != 0) CHECK_HAS(err.text, "memory: zstd: cut short after ");
        CHECK(count <= 21000 && (cut < first_frame || count >= 1000));
        stream_close(stream);
    }
    put("what is this", 12);
    check_reads(21000, SHOAL_ECORRUPT, true);
    file.count = whole;
    file.bytes[whole - 1] ^= 1;
    write_file("file");
    struct err err = {0};
    struct stream *stream = NULL;
    size_t count = 0;
    CHECK_OK(stream_open("file", 0, &stream, &err));
    CHECK_INT(drain(stream, 1, 0, &count, &err), SHOAL_ECORRUPT);
    CHECK_HAS(err.text, "file: zstd: Restored data doesn't match checksum");
    stream_close(stream);
}

/* Peeked bytes are all that was asked for, except at the end, and stay where they are over a skip. */
TEST(peek_gives_what_was_asked_for)
{
    struct err err = {0};
    struct stream *stream = NULL;
    const uint8_t *bytes = NULL;
    size_t have = 0;
    make_data();
    file.count = 0;
    put(data, DATA_BYTES);
    write_file("file");
    CHECK_OK(stream_open("file", 0, &stream, &err));
    CHECK_OK(stream_peek(stream, 0, &bytes, &have, &err));
    for (size_t at = 0; at + 2500000 < DATA_BYTES; at += 100000) {
        CHECK_OK(stream_peek(stream, 2500000, &bytes, &have, &err));
        CHECK(have >= 2500000);
        CHECK(memcmp(bytes, data + at, 2500000) == 0);
        stream_skip(stream, 100000);
        CHECK(memcmp(bytes, data + at, 2500000) == 0);
    }
    CHECK_OK(stream_peek(stream, STREAM_PEEK_MAX, &bytes, &have, &err));
    CHECK_INT(have, DATA_BYTES - stream_offset(stream));
    CHECK_INT(stream_peek(stream, STREAM_PEEK_MAX + 1, &bytes, &have, &err), SHOAL_ELIMIT);
    stream_close(stream);
    stream_close(NULL);
}

/* A plain file may be read from any byte on; a compressed one or a pipe only whole. */
TEST(offsets_are_for_plain_files)
{
    struct err err = {0};
    struct stream *stream = NULL;
    size_t count = 0;
    make_data();
    file.count = 0;
    put(data, DATA_BYTES);
    write_file("plain");
    static const size_t offsets[] = {1, 262144, DATA_BYTES - 1, DATA_BYTES};
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(stream_open("plain", offsets[i], &stream, &err));
        CHECK_INT(stream_offset(stream), offsets[i]);
        CHECK_INT(drain(stream, 1000, offsets[i], &count, &err), 0);
        CHECK_INT(count, DATA_BYTES - offsets[i]);
        stream_close(stream);
    }
    CHECK_OK(stream_open("plain", DATA_BYTES + 5, &stream, &err));
    CHECK_INT(drain(stream, 1, DATA_BYTES + 5, &count, &err), 0);
    CHECK_INT(count, 0);
    stream_close(stream);
    CHECK_INT(stream_open("plain", UINT64_MAX, &stream, &err), SHOAL_EINVAL);
    file.count = 0;
    put_gzip(data, 1000, 0);
    write_file("packed");
    CHECK_INT(stream_open("packed", 1, &stream, &err), SHOAL_EINVAL);
    CHECK_STR(err.text, "open packed at byte 1: compressed, only readable whole");
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "hello", 5) == 5);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    CHECK_INT(stream_open("-", 1, &stream, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "standard input at byte 1");
}

/* Standard input comes in pieces of any size, compressed or not. */
TEST(standard_input_is_read_as_it_comes)
{
    make_data();
    for (int compressed = 0; compressed < 2; compressed++) {
        file.count = 0;
        if (compressed) {
            put_gzip(data, 200000, 0);
        } else {
            put(data, 200000);
        }
        int ends[2];
        CHECK(pipe(ends) == 0);
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            for (size_t at = 0; at < file.count;) {
                const size_t piece = at < 20 ? 1 : file.count - at < 7001 ? file.count - at : 7001;
                if (write(ends[1], file.bytes + at, piece) != (ssize_t)piece) _exit(1);
                at += piece;
            }
            _exit(0);
        }
        close(ends[1]);
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]);
        struct err err = {0};
        struct stream *stream = NULL;
        size_t count = 0;
        CHECK_OK(stream_open("-", 0, &stream, &err));
        CHECK_STR(stream_path(stream), "standard input");
        CHECK_INT(drain(stream, 5000, 0, &count, &err), 0);
        CHECK_INT(count, 200000);
        stream_close(stream);
        CHECK(fcntl(STDIN_FILENO, F_GETFD) >= 0); /* standard input is not ours to close */
    }
}

/* What cannot be opened or read says why. */
TEST(unreadable_files_say_why)
{
    struct err err = {0};
    struct stream *stream = NULL;
    CHECK_INT(stream_open("absent", 0, &stream, &err), SHOAL_ENOENT);
    CHECK_STR(err.text, "open absent: No such file or directory");
    CHECK_INT(stream_open(".", 0, &stream, &err), SHOAL_EIO);
    CHECK_HAS(err.text, "read .: Is a directory");
    CHECK_INT(stream_open("s3://bucket/x", 0, &stream, &err), SHOAL_EINVAL);
    CHECK_INT(stream_open("", 0, &stream, &err), SHOAL_EINVAL);
    CHECK(stream == NULL);
}

/* The golden data: compressed and not, the same bytes. */
TEST(golden_files_agree)
{
    struct err err = {0};
    struct stream *plain = NULL;
    struct stream *packed = NULL;
    CHECK_OK(stream_open(test_path("golden/din/data.tfrecord"), 0, &plain, &err));
    CHECK_OK(stream_open(test_path("golden/din/data.tfrecord.gz"), 0, &packed, &err));
    const uint8_t *a = NULL;
    const uint8_t *b = NULL;
    size_t a_count = 0;
    size_t b_count = 0;
    CHECK_OK(stream_peek(plain, STREAM_PEEK_MAX, &a, &a_count, &err));
    CHECK_OK(stream_peek(packed, STREAM_PEEK_MAX, &b, &b_count, &err));
    CHECK(a_count > 0);
    CHECK_INT(a_count, b_count);
    CHECK(memcmp(a, b, a_count) == 0);
    stream_close(plain);
    stream_close(packed);
}

/* Whichever allocation fails, nothing is left behind, and a peek that failed may be tried again. */
TEST(every_failed_allocation_is_survived)
{
    make_data();
    for (int kind = 0; kind < 3; kind++) {
        file.count = 0;
        if (kind == 0) put(data, 2000000);
        if (kind == 1) put_gzip(data, 2000000, 0);
        if (kind == 2) put_zstd(data, 2000000);
        write_file("file");
        for (uint64_t nth = 1;; nth++) {
            struct err err = {0};
            struct stream *stream = NULL;
            const uint8_t *bytes = NULL;
            size_t have = 0;
            const size_t before = mem_bytes_total();
            mem_fail_nth(nth);
            int rc = stream_open("file", 0, &stream, &err);
            if (rc == 0) rc = stream_peek(stream, 1900000, &bytes, &have, &err);
            const bool failed = mem_fail_nth(0);
            CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
            if (stream != NULL) {
                CHECK_OK(stream_peek(stream, 1900000, &bytes, &have, &err));
                CHECK(have >= 1900000 && memcmp(bytes, data, have) == 0);
            }
            stream_close(stream);
            CHECK_INT(mem_bytes_total(), before);
            if (!failed) break;
        }
    }
}
