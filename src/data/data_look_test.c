#include <jansson.h>
#include <stdlib.h>

#include "base/mem.h"
#include "data/data_test_help.h"
#include "data/data_tools.h"

static char *cat(const char *path, struct data_look_opts opts)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    opts.paths = &path;
    opts.paths_count = 1;
    CHECK_OK(data_cat(&opts, out, &err));
    fclose(out);
    return text;
}

static json_t *stat(const char *path, struct data_look_opts opts)
{
    struct str out = {0};
    opts.paths = &path;
    opts.paths_count = 1;
    opts.json = true;
    CHECK_OK(data_stat(&opts, &out, &err));
    json_t *json = json_loads(out.text, 0, NULL);
    CHECK(json != NULL);
    str_fini(&out);
    return json;
}

static int64_t number(json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    CHECK(json_is_number(value));
    return (int64_t)json_number_value(value);
}

TEST(records_of_every_format_are_shown_as_json)
{
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 9, 8};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 1, 4};
    struct str file = {0}, x = {0};
    help_integers(&x, "n", (const int64_t[]){1, -2}, 2, false);
    help_strings(&x, "s", "a \"q\"");
    help_floats(&x, "f", &(float){0.1f}, 1, true);
    help_strings(&x, "none", "");
    help_record(&file, &x);
    help_write("a.tfrecord", file.text, file.bytes);
    help_write_text("a.csv", "x,\"y z\"\n1,\"a,b\"\n");
    help_write_text("b.csv", "1,\n");
    help_write_text("a.svm", "1 qid:2 3:0.5 7:1\n");
    help_write("images-idx3", images, sizeof images);
    help_write("labels-idx1", labels, sizeof labels);
    static const struct {
        const char *path;
        bool header;
        const char *want;
    } cases[] = {
        {"a.tfrecord", false,
         "{\"n\": [1, -2], \"s\": [\"a\", \"\\\"q\\\"\"], \"f\": [0.1], \"none\": []}\n"},
        {"a.csv", true, "{\"x\": \"1\", \"y z\": \"a,b\"}\n"},
        {"b.csv", false, "{\"0\": \"1\", \"1\": \"\"}\n"},
        {"a.svm", false, "{\"label\": 1, \"group\": 2, \"features\": {\"3\": 0.5, \"7\": 1}}\n"},
        {"images-idx3", false, "{\"label\": 4, \"image\": [9, 8]}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = cat(cases[i].path, (struct data_look_opts){.header = cases[i].header});
        CHECK_STR(text, cases[i].want);
        free(text);
    }
    str_fini(&file);
    str_fini(&x);
}

TEST(cat_stops_after_so_many)
{
    char *text =
        cat(test_path("golden/din/data.tfrecord.gz"), (struct data_look_opts){.rows_max = 3});
    size_t lines = 0;
    for (const char *at = text; *at != '\0'; at++) lines += *at == '\n';
    CHECK_INT(lines, 3);
    free(text);
}

/* What the golden index says of all its damaged files together. */
static int64_t whole_records(void)
{
    json_t *index = json_load_file(test_path("golden/broken/index.json"), 0, NULL);
    int64_t sum = 0;
    size_t i = 0;
    json_t *file = NULL;
    CHECK(json_is_array(index));
    json_array_foreach(index, i, file) sum += number(file, "whole_records");
    json_decref(index);
    return sum;
}

/* However damaged: records, skipped and files are there. */
TEST(stat_counts_damaged_files)
{
    json_t *json = stat(test_path("golden/broken/*.tfrecord"), (struct data_look_opts){0});
    CHECK_INT(number(json, "records"), whole_records());
    CHECK_INT(number(json, "skipped"), 5);
    CHECK_INT(number(json, "files"), 6);
    CHECK_INT(number(json_object_get(json, "skipped_by"), "payload_crc"), 1);
    json_decref(json);
    help_write_text("bad-images-idx3", "no idx");
    json = stat("bad-images-idx3", (struct data_look_opts){0});
    CHECK_INT(number(json, "records"), 0);
    CHECK_INT(number(json, "skipped"), 1);
    json_decref(json);
}

TEST(stat_knows_lengths_and_top_values)
{
    static const char *const histories[] = {"a b a", "", "b a", "c"};
    struct str records = {0}, features = {0};
    for (size_t i = 0; i < 4; i++) {
        help_strings(&features, "clicked", histories[i]);
        help_record(&records, &features);
    }
    help_write("few.tfrecord", records.text, records.bytes);
    json_t *json = stat("few.tfrecord", (struct data_look_opts){.top = 2});
    json_t *feature = json_array_get(json_object_get(json, "features"), 0);
    CHECK_STR(json_string_value(json_object_get(feature, "name")), "clicked");
    CHECK_INT(number(feature, "records"), 4);
    CHECK_INT(number(feature, "values"), 6);
    CHECK_INT(number(feature, "length_min"), 0);
    CHECK_INT(number(feature, "length_max"), 3);
    CHECK_INT(number(feature, "distinct"), 3);
    json_t *top = json_object_get(feature, "top");
    CHECK_INT(json_array_size(top), 2);
    CHECK_INT(number(json_array_get(top, 0), "count"), 3);
    CHECK_INT(number(json_array_get(top, 1), "count"), 2);
    json_decref(json);
    str_fini(&records);
    str_fini(&features);
}

TEST(a_missing_file_is_an_error)
{
    struct str out = {0};
    const char *path = "nowhere.tfrecord";
    const struct data_look_opts opts = {.paths = &path, .paths_count = 1, .json = true};
    CHECK_INT(data_stat(&opts, &out, &err), SHOAL_ENOENT);
    CHECK_HAS(out.text, "\"records\": 0");
    CHECK_INT(data_cat(&opts, stderr, &err), SHOAL_ENOENT);
    str_fini(&out);
}

TEST(out_of_memory_is_an_error)
{
    const char *path = test_path("golden/din/data.tfrecord");
    const struct data_look_opts opts = {.paths = &path, .paths_count = 1};
    for (uint64_t nth = 1; nth < 60; nth++) {
        struct str out = {0};
        mem_fail_nth(nth);
        const int rc = data_stat(&opts, &out, &err);
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        str_fini(&out);
        CHECK_INT(mem_bytes(MEM_DATA), 0);
        if (!failed) break;
    }
}
