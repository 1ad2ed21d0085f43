#include "data/data_frame.h"

#include <jansson.h>

#include "base/mem.h"
#include "data/data_test_help.h"

struct counts {
    uint32_t records;
    uint32_t faults[DATA_FAULT_COUNT];
    uint32_t skipped;
    uint64_t places[1000][2]; /* of each record: offset, number */
    char text[1000][64];      /* its first bytes */
};

static void drain(struct data_frame *frame, struct counts *counts)
{
    memset(counts, 0, sizeof *counts);
    for (;;) {
        struct data_record record;
        enum data_fault fault = DATA_FAULT_COUNT;
        const int rc = data_frame_next(frame, &record, &fault, &err);
        if (rc == SHOAL_END) break;
        if (rc == SHOAL_ECORRUPT) {
            counts->faults[fault]++;
            counts->skipped++;
            CHECK(err.text[0] != '\0');
            continue;
        }
        CHECK_OK(rc);
        CHECK(counts->records < 1000);
        counts->places[counts->records][0] = record.offset;
        counts->places[counts->records][1] = record.number;
        snprintf(counts->text[counts->records++], 64, "%.*s", (int)record.count,
                 (const char *)record.bytes);
    }
    struct data_record record;
    enum data_fault fault;
    CHECK_INT(data_frame_next(frame, &record, &fault, &err), SHOAL_END); /* for good */
}

static void drain_text(const char *text, struct data_frame_opts opts, struct counts *counts)
{
    struct data_frame *frame = NULL;
    if (opts.delimiter == 0) opts.delimiter = ',';
    CHECK_OK(data_frame_open_memory(text, strlen(text), NULL, 0, &opts, &frame, &err));
    drain(frame, counts);
    data_frame_close(frame);
}

static struct counts counts;

TEST(golden_damaged_files_hold_their_whole_records)
{
    char *text = NULL;
    size_t bytes = 0, i = 0;
    json_t *entry = NULL;
    const struct data_frame_opts opts = {.format = DATA_TFRECORD};
    CHECK_OK(io_read_whole(test_path("golden/broken/index.json"), 1 << 20, &text, &bytes, &err));
    json_t *json = json_loads(text, 0, NULL);
    CHECK(json_array_size(json) > 0);
    json_array_foreach(json, i, entry)
    {
        char path[512];
        struct data_frame *frame = NULL;
        const char *name = json_string_value(json_object_get(entry, "file"));
        snprintf(path, sizeof path, "golden/broken/%s", name);
        CHECK_OK(data_frame_open(test_path(path), &opts, 0, 0, &frame, &err));
        drain(frame, &counts);
        CHECK_INT(counts.records, json_integer_value(json_object_get(entry, "whole_records")));
        CHECK_INT(counts.skipped, strstr(name, "empty") != NULL ? 0 : 1);
        data_frame_close(frame);
    }
    json_decref(json);
    mem_free(text);
}

static void make_records(struct str *file, uint32_t count)
{
    struct str features = {0};
    for (uint32_t i = 0; i < count; i++) {
        help_integer(&features, "label", i);
        help_record(file, &features);
    }
    str_fini(&features);
}

/* Cut anywhere, a file gives all records that are whole, and one fault unless the cut is between
 * records. */
TEST(tfrecord_cut_anywhere_keeps_whole_records)
{
    struct str file = {0};
    make_records(&file, 5);
    const size_t record = file.bytes / 5;
    const struct data_frame_opts opts = {.format = DATA_TFRECORD};
    for (size_t cut = 0; cut <= file.bytes; cut++) {
        struct data_frame *frame = NULL;
        CHECK_OK(data_frame_open_memory(file.text, cut, NULL, 0, &opts, &frame, &err));
        drain(frame, &counts);
        CHECK_INT(counts.records, cut / record);
        CHECK_INT(counts.faults[DATA_FAULT_TRUNCATED], cut % record != 0);
        data_frame_close(frame);
    }
    str_fini(&file);
}

/* A flipped bit costs its record, or with its length the rest of the file; never another. */
TEST(tfrecord_with_a_flipped_bit_loses_little)
{
    struct str file = {0};
    make_records(&file, 3);
    const size_t record = file.bytes / 3;
    const struct data_frame_opts opts = {.format = DATA_TFRECORD};
    for (size_t bit = 0; bit < file.bytes * 8; bit += 3) {
        struct data_frame *frame = NULL;
        file.text[bit / 8] = (char)(file.text[bit / 8] ^ (1 << bit % 8));
        CHECK_OK(data_frame_open_memory(file.text, file.bytes, NULL, 0, &opts, &frame, &err));
        drain(frame, &counts);
        const bool in_head = bit / 8 % record < 12;
        CHECK_INT(counts.records, in_head ? bit / 8 / record : 2);
        CHECK_INT(counts.faults[in_head ? DATA_FAULT_LENGTH_CRC : DATA_FAULT_PAYLOAD_CRC], 1);
        data_frame_close(frame);
        file.text[bit / 8] = (char)(file.text[bit / 8] ^ (1 << bit % 8));
    }
    str_fini(&file);
}

TEST(tfrecord_of_an_impossible_length_ends_the_file)
{
    uint8_t head[12] = {0xff, 0xff, 0xff, 0xff, 0xff};
    const uint32_t crc = hash_crc32c_mask(hash_crc32c(0, head, 8));
    struct data_frame *frame = NULL;
    memcpy(head + 8, &crc, 4);
    const struct data_frame_opts opts = {.format = DATA_TFRECORD};
    CHECK_OK(data_frame_open_memory(head, sizeof head, NULL, 0, &opts, &frame, &err));
    drain(frame, &counts);
    CHECK_INT(counts.faults[DATA_FAULT_TOO_LONG], 1);
    data_frame_close(frame);
}

/* Opened at any record's place, a file goes on from there; compressed ones too. */
TEST(a_file_is_resumed_at_any_record)
{
    static const char *const paths[] = {"golden/din/data.tfrecord", "golden/din/data.tfrecord.gz"};
    const struct data_frame_opts opts = {.format = DATA_TFRECORD, .rows = {.last = 400}};
    for (int i = 0; i < 2; i++) {
        struct data_frame *frame = NULL;
        CHECK_OK(data_frame_open(test_path(paths[i]), &opts, 0, 0, &frame, &err));
        drain(frame, &counts);
        data_frame_close(frame);
        CHECK_INT(counts.records, 400);
        for (uint32_t at = 0; at < 399; at += 57) {
            struct data_record record;
            enum data_fault fault;
            uint64_t offset = 0, number = 0;
            CHECK_OK(data_frame_open(test_path(paths[i]), &opts, counts.places[at][0],
                                     counts.places[at][1], &frame, &err));
            CHECK_OK(data_frame_next(frame, &record, &fault, &err));
            CHECK_INT(record.number, at);
            CHECK_INT(record.offset, counts.places[at][0]);
            data_frame_place(frame, &offset, &number);
            CHECK_INT(number, at + 1);
            CHECK_INT(offset, counts.places[at + 1][0]);
            data_frame_close(frame);
        }
    }
}

TEST(rows_are_a_range_of_records)
{
    const struct data_frame_opts opts = {.format = DATA_LIBSVM, .rows = {.first = 1, .last = 3}};
    drain_text("0\n1\n\n2\n3\n", opts, &counts);
    CHECK_INT(counts.records, 2);
    CHECK_STR(counts.text[0], "1");
    CHECK_STR(counts.text[1], "2");
}

TEST(csv_records_follow_quotes_and_line_ends)
{
    const struct data_frame_opts opts = {.format = DATA_CSV};
    drain_text("a,b\r\n\r\n\"x\ny\",\"q\"\"\n\"\n5\" disk,z\nlast", opts, &counts);
    CHECK_INT(counts.records, 4);
    CHECK_INT(counts.skipped, 0);
    CHECK_STR(counts.text[0], "a,b");
    CHECK_STR(counts.text[1], "\"x\ny\",\"q\"\"\n\"");
    CHECK_STR(counts.text[2], "5\" disk,z");
    CHECK_STR(counts.text[3], "last");
}

/* An open quote costs its own line, not those after it. */
TEST(csv_with_an_open_quote_loses_one_line)
{
    const struct data_frame_opts opts = {.format = DATA_CSV};
    drain_text("a,b\nc,\"d\ne,f\ng,h\n", opts, &counts);
    CHECK_INT(counts.records, 3);
    CHECK_INT(counts.faults[DATA_FAULT_MALFORMED], 1);
    CHECK_STR(counts.text[1], "e,f");
}

TEST(csv_header_and_byte_order_mark_are_no_records)
{
    struct data_frame_opts opts = {.format = DATA_CSV, .header = true};
    drain_text("\xef\xbb\xbfx,y\n1,2\n", opts, &counts);
    CHECK_INT(counts.records, 1);
    struct data_frame *frame = NULL;
    opts.header_text = "x,z";
    opts.delimiter = ',';
    CHECK_INT(data_frame_open_memory("x,y\n", 4, NULL, 0, &opts, &frame, &err), SHOAL_ECORRUPT);
    opts.header_text = "x,y";
    CHECK_OK(data_frame_open_memory("x,y\n", 4, NULL, 0, &opts, &frame, &err));
    CHECK_STR(data_frame_header(frame), "x,y");
    data_frame_close(frame);
}

TEST(idx_joins_images_and_labels)
{
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 9, 8, 7, 6};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 4, 5};
    const struct data_frame_opts opts = {.format = DATA_IDX};
    help_write("train-images-idx3-ubyte", images, sizeof images);
    help_write("train-labels-idx1-ubyte", labels, sizeof labels);
    struct data_frame *frame = NULL;
    for (uint64_t from = 0; from < 2; from++) {
        CHECK_OK(data_frame_open("train-images-idx3-ubyte", &opts, 1, from, &frame, &err));
        for (uint64_t i = from; i < 2; i++) {
            struct data_record record;
            struct data_idx_head head;
            enum data_fault fault;
            CHECK_OK(data_frame_next(frame, &record, &fault, &err));
            CHECK_INT(record.count, sizeof head + 2);
            memcpy(&head, record.bytes, sizeof head);
            CHECK_INT(head.label, 4 + (int)i);
            CHECK_INT(record.bytes[sizeof head], 9 - 2 * (int)i);
        }
        data_frame_close(frame);
    }
    char path[64];
    CHECK(data_frame_labels_path("d/t10k-images.idx3-ubyte.gz", path, sizeof path));
    CHECK_STR(path, "d/t10k-labels.idx1-ubyte.gz");
    CHECK(!data_frame_labels_path("images/t10k", path, sizeof path));
}

TEST(idx_that_does_not_fit_is_refused)
{
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 9, 8, 7};
    static const uint8_t three[] = {0, 0, 8, 1, 0, 0, 0, 3, 4, 5, 6};
    static const uint8_t two[] = {0, 0, 8, 1, 0, 0, 0, 2, 4, 5};
    static const uint8_t huge[] = {0, 0, 8, 3, 0, 0, 0, 2, 255, 0, 0, 1, 255, 0, 0, 2, 9};
    const struct data_frame_opts opts = {.format = DATA_IDX};
    struct data_frame *frame = NULL;
    CHECK_INT(
        data_frame_open_memory(images, sizeof images, three, sizeof three, &opts, &frame, &err),
        SHOAL_ECORRUPT);
    CHECK_HAS(err.text, "2 images, but 3 labels");
    CHECK_INT(data_frame_open_memory(huge, sizeof huge, two, sizeof two, &opts, &frame, &err),
              SHOAL_ECORRUPT);
    CHECK_INT(data_frame_open_memory("plain", 5, two, sizeof two, &opts, &frame, &err),
              SHOAL_ECORRUPT);
    CHECK_OK(data_frame_open_memory(images, sizeof images, two, sizeof two, &opts, &frame, &err));
    drain(frame, &counts);
    CHECK_INT(counts.records, 1);
    CHECK_INT(counts.faults[DATA_FAULT_TRUNCATED], 1);
    data_frame_close(frame);
}

TEST(compressed_files_cut_short_keep_what_is_whole)
{
    char *bytes = NULL;
    size_t count = 0;
    const struct data_frame_opts opts = {.format = DATA_TFRECORD};
    CHECK_OK(
        io_read_whole(test_path("golden/din/data.tfrecord.gz"), 1 << 24, &bytes, &count, &err));
    struct data_frame *frame = NULL;
    CHECK_OK(data_frame_open_memory(bytes, count / 3, NULL, 0, &opts, &frame, &err));
    drain(frame, &counts);
    CHECK(counts.records > 100 && counts.records < 1000);
    CHECK_INT(counts.skipped, 1);
    CHECK_INT(counts.faults[DATA_FAULT_COMPRESSION], 1);
    data_frame_close(frame);
    mem_free(bytes);
}

/* gzip's checksum stands behind the last image: it is looked at, in both files. */
TEST(compressed_images_are_read_to_their_checksum)
{
    static const char *const paths[] = {"golden/mlp/images-idx3-ubyte.gz",
                                        "golden/mlp/labels-idx1-ubyte.gz"};
    const struct data_frame_opts opts = {.format = DATA_IDX};
    char *bytes[2] = {NULL, NULL};
    size_t count[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(io_read_whole(test_path(paths[i]), 1 << 24, &bytes[i], &count[i], &err));
    }
    uint64_t whole = 0;
    for (int broken = -1; broken < 2; broken++) { /* -1: neither */
        struct data_frame *frame = NULL;
        if (broken >= 0) bytes[broken][count[broken] - 8] ^= 1;
        CHECK_OK(data_frame_open_memory(bytes[0], count[0], bytes[1], count[1], &opts, &frame, &err));
        drain(frame, &counts);
        if (broken < 0) whole = counts.records;
        CHECK_INT(counts.records, whole);
        CHECK_INT(counts.faults[DATA_FAULT_COMPRESSION], broken >= 0);
        data_frame_close(frame);
        if (broken >= 0) bytes[broken][count[broken] - 8] ^= 1;
    }
    CHECK(whole > 0);
    for (int i = 0; i < 2; i++) mem_free(bytes[i]);
}

TEST(formats_are_guessed)
{
    static const struct {
        const char *path;
        const char *first;
        size_t count;
        enum data_format want;
    } cases[] = {
        {"a.csv.gz", "", 0, DATA_CSV},
        {"a.tsv", "", 0, DATA_TSV},
        {"a.svm", "", 0, DATA_LIBSVM},
        {"train-images-idx3-ubyte", "", 0, DATA_IDX},
        {"part-0", "1,2\n", 4, DATA_CSV},
        {"part-0", "1\t2,3\n", 6, DATA_TSV},
        {"part-0", "1 1:2\n", 6, DATA_LIBSVM},
        {"part-0", "\0\0\x08\x03", 4, DATA_IDX},
        {"part-0", "\x01\x02\0\0", 4, DATA_TFRECORD},
        {"csv/part.tfrecord", "a,b", 3, DATA_TFRECORD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(data_frame_guess(cases[i].path, (const uint8_t *)cases[i].first, cases[i].count),
                  cases[i].want);
    }
}
