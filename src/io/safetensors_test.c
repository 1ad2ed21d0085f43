#include "io/safetensors.h"

#include <stdlib.h>

#include "../tests/test.h"
#include "base/hash.h"
#include "base/mem.h"
#include "io/file.h"

/* A file in memory: a header's text and some bytes of data. */
static uint8_t bytes[4096];

static size_t make(const char *header, size_t data_count)
{
    const size_t count = strlen(header);
    memset(bytes, 0, 8);
    bytes[0] = (uint8_t)count;
    bytes[1] = (uint8_t)(count >> 8);
    memcpy(bytes + 8, header, count);
    for (size_t i = 0; i < data_count; i++) bytes[8 + count + i] = (uint8_t)i;
    return 8 + count + data_count;
}

static int open_made(const char *header, size_t data_count, struct safetensors **file,
                     struct err *err)
{
    return safetensors_open_memory(bytes, make(header, data_count), file, err);
}

/* A file is read as it was meant: types, shapes, bytes, metadata. */
TEST(valid_file_is_read)
{
    struct err err = {0};
    struct safetensors *file = NULL;
    CHECK_OK(
        open_made("{\"__metadata__\": {\"format\": \"pt\"},"
                  "\"b\": {\"dtype\": \"F32\", \"shape\": [2, 1], \"data_offsets\": [3, 11]},"
                  "\"a\": {\"dtype\": \"U8\", \"shape\": [3], \"data_offsets\": [0, 3]},"
                  "\"none\": {\"dtype\": \"F64\", \"shape\": [0, 5], \"data_offsets\": [3, 3]},"
                  "\"scalar\": {\"dtype\": \"I16\", \"shape\": [], \"data_offsets\": [11, 13]}}   ",
                  13, &file, &err));
    CHECK_INT(safetensors_count(file), 4);
    CHECK_STR(safetensors_at(file, 0)->name, "a");
    CHECK_STR(safetensors_at(file, 1)->name, "none");
    const struct safetensors_tensor *b = safetensors_find(file, "b");
    CHECK(b != NULL);
    CHECK_INT(b->type, SAFETENSORS_F32);
    CHECK_INT(b->dims_count, 2);
    CHECK_INT(b->dims[0], 2);
    CHECK_INT(b->bytes_count, 8);
    CHECK_INT(((const uint8_t *)b->bytes)[0], 3);
    CHECK_INT(safetensors_find(file, "scalar")->dims_count, 0);
    CHECK(safetensors_find(file, "zz") == NULL);
    CHECK(safetensors_find(file, "__metadata__") == NULL);
    CHECK_STR(safetensors_metadata(file, "format"), "pt");
    CHECK(safetensors_metadata(file, "absent") == NULL);
    safetensors_close(file);
    safetensors_close(NULL);
}

/* No tensors at all is fine. */
TEST(empty_file_is_read)
{
    struct err err = {0};
    struct safetensors *file = NULL;
    CHECK_OK(open_made("{}", 0, &file, &err));
    CHECK_INT(safetensors_count(file), 0);
    CHECK(safetensors_find(file, "a") == NULL);
    CHECK(safetensors_metadata(file, "a") == NULL);
    safetensors_close(file);
}

/* Every type has its name and size, and is read. */
TEST(types_have_names_and_sizes)
{
    static const uint32_t sizes[SAFETENSORS_TYPE_COUNT] = {4, 8, 8, 8, 4, 4, 1, 2, 2, 1, 1, 2, 2};
    for (int type = 0; type < SAFETENSORS_TYPE_COUNT; type++) {
        struct err err = {0};
        struct safetensors *file = NULL;
        char header[200];
        const uint32_t size = safetensors_type_bytes((enum safetensors_type)type);
        CHECK_INT(size, sizes[type]);
        snprintf(header, sizeof header,
                 "{\"x\": {\"dtype\": \"%s\", \"shape\": [3], \"data_offsets\": [0, %u]}}",
                 safetensors_type_name((enum safetensors_type)type), 3 * size);
        CHECK_OK(open_made(header, 3 * size, &file, &err));
        CHECK_INT(safetensors_at(file, 0)->type, type);
        safetensors_close(file);
    }
}

#define T(dtype, shape, offsets)                                                                   \
    "{\"x\": {\"dtype\": " dtype ", \"shape\": " shape ", \"data_offsets\": " offsets "}}"

/* Each thing that does not fit is refused with what it is. */
TEST(bad_files_are_refused)
{
    static const struct {
        const char *header;
        size_t data;
        const char *want;
    } rows[] = {
        {"", 0, "the header does not start with {"},
        {"[]", 0, "the header does not start with {"},
        {" {}", 0, "the header does not start with {"},
        {"{", 0, "the header is no JSON"},
        {"{\"a\": 1, \"a\": 2}", 0, "the header is no JSON"},
        {"{\"a\": 1}", 0, "tensor \"a\": unknown dtype"},
        {"{\"a\\u0000b\": {}}", 0, "the header is no JSON"},
        {"{} x", 0, "the header is no JSON"},
        {T("\"F128\"", "[1]", "[0, 4]"), 4, "tensor \"x\": unknown dtype"},
        {T("5", "[1]", "[0, 4]"), 4, "tensor \"x\": unknown dtype"},
        {T("\"F32\"", "1", "[0, 4]"), 4, "tensor \"x\": the shape is no list of at most 8"},
        {T("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0, 4]"), 4, "no list of at most 8"},
        {T("\"F32\"", "[-1]", "[0, 4]"), 4, "tensor \"x\": dimension 0 is no count"},
        {T("\"F32\"", "[1, 1.5]", "[0, 4]"), 4, "tensor \"x\": dimension 1 is no count"},
        {T("\"F32\"", "[2]", "[0, 4]"), 4, "tensor \"x\": shape and data_offsets disagree"},
        {T("\"F32\"", "[4294967296, 4294967296]", "[0, 4]"), 4, "shape and data_offsets disagree"},
        {T("\"F32\"", "[1]", "[0, 5]"), 4, "tensor \"x\": data_offsets outside the file"},
        {T("\"F32\"", "[1]", "[4, 0]"), 4, "data_offsets outside the file"},
        {T("\"F32\"", "[1]", "[-4, 0]"), 4, "data_offsets outside the file"},
        {T("\"F32\"", "[1]", "[0]"), 4, "data_offsets outside the file"},
        {T("\"F32\"", "[1]", "4"), 4, "data_offsets outside the file"},
        {T("\"F32\"", "[1]", "[4, 8]"), 8, "tensor \"x\": a gap before it"},
        {T("\"F32\"", "[1]", "[0, 4]"), 8, "4 bytes after the last tensor"},
        {"{\"x\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [0, 4]},"
         "\"y\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [3, 7]}}",
         7, "tensor \"y\": overlaps the one before it"},
        {"{\"__metadata__\": []}", 0, "__metadata__ is no object"},
        {"{\"__metadata__\": {\"a\": 1}}", 0, "__metadata__ \"a\" is no string"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        struct safetensors *file = NULL;
        CHECK_INT(open_made(rows[i].header, rows[i].data, &file, &err), SHOAL_ECORRUPT);
        CHECK_HAS(err.text, rows[i].want);
        CHECK(file == NULL);
    }
}

/* A valid file cut anywhere is refused. */
TEST(cut_files_are_refused)
{
    struct err err = {0};
    struct safetensors *file = NULL;
    const size_t whole = make(T("\"F32\"", "[2]", "[0, 8]"), 8);
    for (size_t cut = 0; cut < whole; cut++) {
        CHECK_INT(safetensors_open_memory(bytes, cut, &file, &err), SHOAL_ECORRUPT);
    }
    memset(bytes, 0xff, 8); /* a length that is no length */
    CHECK_INT(safetensors_open_memory(bytes, whole, &file, &err), SHOAL_ECORRUPT);
    CHECK_HAS(err.text, "a header of 18446744073709551615 bytes in a file of");
}

/* What is written is read back, names of any kind among it, and starts on cache lines. */
TEST(written_files_are_read_back)
{
    struct err err = {0};
    static float weights[1000];
    for (int i = 0; i < 1000; i++) weights[i] = (float)i / 7;
    const int64_t keys[3] = {-1, 0, INT64_MAX};
    const struct safetensors_tensor tensors[] = {
        {.name = "hidden/0/weight", .type = SAFETENSORS_F32, .dims_count = 2, .dims = {100, 10}},
        {.name = "t\"able/k\xc3\xa9ys\n", .type = SAFETENSORS_I64, .dims_count = 1, .dims = {3}},
        {.name = "empty", .type = SAFETENSORS_F32, .dims_count = 2, .dims = {0, 16}},
        {.name = "step", .type = SAFETENSORS_U64, .dims_count = 0},
    };
    const char *const metadata[] = {"format", "pt", "note", "a \"b\"", NULL};
    const uint64_t step = 12345;
    struct safetensors_writer *writer = NULL;
    CHECK_OK(safetensors_writer_open("f", tensors, 4, metadata, &writer, &err));
    CHECK_OK(safetensors_writer_write(writer, weights, 1234, &err));
    CHECK_OK(
        safetensors_writer_write(writer, (uint8_t *)weights + 1234, sizeof weights - 1234, &err));
    CHECK_OK(safetensors_writer_write(writer, keys, sizeof keys, &err));
    CHECK_OK(safetensors_writer_write(writer, &step, sizeof step, &err));
    uint64_t count = 0;
    uint32_t crc = 0;
    CHECK_OK(safetensors_writer_close(writer, &count, &crc, &err));

    struct io_map map = {0};
    CHECK_OK(io_map_open("f", &map, &err));
    CHECK_INT(map.count, count);
    CHECK_INT(hash_crc32c(0, map.bytes, map.count), crc);
    io_map_close(&map);

    struct safetensors *file = NULL;
    CHECK_OK(safetensors_open("f", &file, &err));
    CHECK_INT(safetensors_count(file), 4);
    const struct safetensors_tensor *weight = safetensors_find(file, "hidden/0/weight");
    CHECK(memcmp(weight->bytes, weights, sizeof weights) == 0);
    CHECK_INT((uintptr_t)weight->bytes % 64, 0);
    CHECK(memcmp(safetensors_find(file, "t\"able/k\xc3\xa9ys\n")->bytes, keys, sizeof keys) == 0);
    CHECK_INT(safetensors_find(file, "empty")->bytes_count, 0);
    CHECK(memcmp(safetensors_find(file, "step")->bytes, &step, sizeof step) == 0);
    CHECK_STR(safetensors_metadata(file, "note"), "a \"b\"");
    safetensors_close(file);
}

/* Nothing to write is a file too; what is too large is refused before a byte is written. */
TEST(writer_at_its_edges)
{
    struct err err = {0};
    struct safetensors_writer *writer = NULL;
    struct safetensors *file = NULL;
    CHECK_OK(safetensors_writer_open("f", NULL, 0, NULL, &writer, &err));
    CHECK_OK(safetensors_writer_close(writer, NULL, NULL, &err));
    CHECK_OK(safetensors_open("f", &file, &err));
    CHECK_INT(safetensors_count(file), 0);
    safetensors_close(file);
    const struct safetensors_tensor large = {
        .name = "x", .type = SAFETENSORS_F32, .dims_count = 2, .dims = {UINT32_MAX, UINT32_MAX}};
    CHECK_INT(safetensors_writer_open("g", &large, 1, NULL, &writer, &err), SHOAL_ELIMIT);
    CHECK(!io_exists("g"));
    CHECK_INT(safetensors_writer_open("absent/f", NULL, 0, NULL, &writer, &err), SHOAL_ENOENT);
    CHECK_OK(safetensors_writer_open("/dev/full", NULL, 0, NULL, &writer, &err));
    CHECK_INT(safetensors_writer_close(writer, NULL, NULL, &err), SHOAL_ESPACE);
    safetensors_writer_abandon(NULL);
}

/* The errors of a file name it. */
TEST(errors_name_the_file)
{
    struct err err = {0};
    struct safetensors *file = NULL;
    CHECK_INT(safetensors_open("absent", &file, &err), SHOAL_ENOENT);
    CHECK_OK(io_write_whole("f", "short", 5, &err));
    CHECK_INT(safetensors_open("f", &file, &err), SHOAL_ECORRUPT);
    CHECK_STR(err.text, "read f: 5 bytes are too few for a header");
    CHECK_INT(safetensors_open("f", &file, NULL), SHOAL_ECORRUPT);
}

/* The golden weights, which TensorFlow's side wrote, are read and written the same. */
TEST(golden_files_are_read)
{
    struct err err = {0};
    struct safetensors *file = NULL;
    CHECK_OK(safetensors_open(test_path("golden/din/final.safetensors"), &file, &err));
    const struct safetensors_tensor *weight = safetensors_find(file, "hidden/0/weight");
    CHECK(weight != NULL);
    CHECK_INT(weight->dims_count, 2);
    CHECK_INT(weight->dims[0], 54);
    CHECK_INT(weight->dims[1], 64);
    const uint32_t count = safetensors_count(file);
    struct safetensors_writer *writer = NULL;
    CHECK_OK(safetensors_writer_open("copy", safetensors_at(file, 0), count, NULL, &writer, &err));
    for (uint32_t i = 0; i < count; i++) {
        const struct safetensors_tensor *tensor = safetensors_at(file, i);
        CHECK_OK(
            safetensors_writer_write(writer, tensor->bytes, (size_t)tensor->bytes_count, &err));
    }
    CHECK_OK(safetensors_writer_close(writer, NULL, NULL, &err));
    struct safetensors *copy = NULL;
    CHECK_OK(safetensors_open("copy", &copy, &err));
    for (uint32_t i = 0; i < count; i++) {
        const struct safetensors_tensor *a = safetensors_at(file, i);
        const struct safetensors_tensor *b = safetensors_find(copy, a->name);
        CHECK(b != NULL);
        CHECK_INT(b->bytes_count, a->bytes_count);
        CHECK(memcmp(a->bytes, b->bytes, (size_t)a->bytes_count) == 0);
    }
    safetensors_close(copy);
    safetensors_close(file);
}

/* Whichever allocation fails, nothing is left behind. */
TEST(every_failed_allocation_is_survived)
{
    const struct safetensors_tensor tensor = {
        .name = "x", .type = SAFETENSORS_U8, .dims_count = 1, .dims = {4}};
    for (uint64_t nth = 1;; nth++) {
        struct err err = {0};
        struct safetensors_writer *writer = NULL;
        struct safetensors *file = NULL;
        const size_t before = mem_bytes_total();
        mem_fail_nth(nth);
        int rc = safetensors_writer_open("f", &tensor, 1, NULL, &writer, &err);
        if (rc == 0) rc = safetensors_writer_write(writer, "abcd", 4, &err);
        if (rc == 0) rc = safetensors_writer_close(writer, NULL, NULL, &err);
        if (rc == 0) rc = safetensors_open("f", &file, &err);
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        safetensors_close(file);
        CHECK_INT(mem_bytes_total(), before);
        if (!failed) break;
    }
}
