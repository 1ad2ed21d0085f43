#include "train/inspect.h"

#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../tests/test.h"
#include "base/mem.h"
#include "graph/graph.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "train/checkpoint.h"
#include "train/checkpoint_fixture.h"
#include "train/events.h"
#include "train/inspect_table.h"
#include "train/inspect_tensor.h"

static struct err err;

static void save(uint64_t step)
{
    struct store *store = fixture_trained(1);
    CHECK_OK(checkpoint_save(
        &(struct checkpoint_save){.model_dir = "m", .step = step, .config = "{\"a\": 1}"}, store,
        &err));
    store_destroy(store);
}

/* The description as text; valid until the next call. */
static const char *text_of(const char *path)
{
    static struct str out;
    str_clear(&out);
    CHECK_OK(inspect_path(path, false, &out, &err));
    return out.text;
}

/* The description as JSON: one line. Caller owns it. */
static json_t *json_of(const char *path, const char *kind)
{
    struct str out = {0};
    json_error_t why;
    CHECK_OK(inspect_path(path, true, &out, &err));
    CHECK(strchr(out.text, '\n') == out.text + out.bytes - 1);
    json_t *root = json_loads(out.text, 0, &why);
    if (root == NULL) test_fail(__FILE__, __LINE__, "%s: %s", why.text, out.text);
    CHECK_STR(json_string_value(json_object_get(root, "kind")), kind);
    CHECK_STR(json_string_value(json_object_get(root, "path")), path);
    str_fini(&out);
    return root;
}

static json_t *at(json_t *root, const char *list, size_t index)
{
    json_t *item = json_array_get(json_object_get(root, list), index);
    if (item == NULL) test_fail(__FILE__, __LINE__, "no %s[%zu]", list, index);
    return item;
}

static const char *text_at(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "(none)" : text;
}

static long long number_at(json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) test_fail(__FILE__, __LINE__, "no number \"%s\"", key);
    return json_integer_value(value);
}

TEST(a_model_directory_lists_its_checkpoints)
{
    save(9);
    save(10);
    CHECK_OK(io_write_whole("m/ckpt-10/part-0-0.safetensors", "x", 1, &err));
    json_t *root = json_of("m", "model_dir");
    CHECK_INT(json_array_size(json_object_get(root, "checkpoints")), 2);
    CHECK_INT(number_at(at(root, "checkpoints", 0), "step"), 9);
    CHECK_STR(text_at(at(root, "checkpoints", 0), "health"), "whole");
    CHECK(number_at(at(root, "checkpoints", 0), "bytes") > 1000);
    CHECK(json_number_value(json_object_get(at(root, "checkpoints", 0), "age_secs")) < 60);
    CHECK_STR(text_at(at(root, "checkpoints", 1), "health"), "damaged");
    CHECK_HAS(text_at(at(root, "checkpoints", 1), "problem"), "m/ckpt-10/part-0-0.safetensors");
    json_decref(root);
    const char *text = text_of("m");
    CHECK_HAS(text, "model directory m: 2 checkpoints\n\nSTEP  BYTES");
    CHECK_HAS(text, "\n9     ");
    CHECK_HAS(text, "  whole\n10    ");
    CHECK_HAS(text, "cut short");
}

TEST(a_checkpoint_shows_tables_and_files)
{
    save(9);
    json_t *root = json_of("m/ckpt-9", "checkpoint");
    CHECK_STR(text_at(root, "health"), "whole");
    CHECK_INT(number_at(root, "step"), 9);
    CHECK_INT(json_array_size(json_object_get(root, "tables")), 6);
    json_t *word = at(root, "tables", 5);
    CHECK_STR(text_at(word, "name"), "word/embedding");
    CHECK_STR(text_at(word, "table"), "dynamic");
    CHECK_INT(number_at(word, "rows"), FIXTURE_WORDS);
    CHECK_INT(number_at(word, "shards"), 4);
    CHECK_STR(text_at(at(root, "files", 0), "name"), "part-0-0.safetensors");
    CHECK_INT(number_at(json_object_get(root, "config"), "a"), 1);
    json_decref(root);
    CHECK_HAS(text_of("m/ckpt-9"), "checkpoint m/ckpt-9: step 9, ");
    CHECK_HAS(text_of("m/ckpt-9"), " in 2 files, whole\n\nTABLE ");
    CHECK_HAS(text_of("m/ckpt-9"), "output/weight      dense    5 x 3   3       adagrad");
    root = json_of("m/ckpt-9/manifest.json", "manifest");
    CHECK(json_object_get(root, "health") == NULL); /* the files were not looked at */
    json_decref(root);
    CHECK(unlink("m/ckpt-9/part-0-0.safetensors") == 0);
    root = json_of("m/ckpt-9", "checkpoint");
    CHECK_STR(text_at(root, "problem"), "m/ckpt-9/part-0-0.safetensors is missing");
    json_decref(root);
    CHECK(unlink("m/ckpt-9/manifest.json") == 0);
    struct str out = {0};
    CHECK_INT(inspect_path("m/ckpt-9", false, &out, &err), SHOAL_ECORRUPT);
    CHECK_STR(err.text, "m/ckpt-9/manifest.json is missing");
    str_fini(&out);
}

TEST(a_checkpoint_is_written_as_one_file)
{
    save(9);
    CHECK_OK(inspect_export("m", "one.safetensors", &err));
    json_t *root = json_of("one.safetensors", "safetensors");
    bool found = false;
    for (size_t i = 0; i < json_array_size(json_object_get(root, "tensors")); i++) {
        json_t *tensor = at(root, "tensors", i);
        if (strcmp(text_at(tensor, "name"), "word/keys") != 0) continue;
        found = true;
        CHECK_STR(text_at(tensor, "type"), "I64");
        CHECK_INT(json_integer_value(json_array_get(json_object_get(tensor, "shape"), 0)),
                  FIXTURE_WORDS);
        CHECK_NEAR(json_number_value(json_object_get(tensor, "min")), -0x1p63, 0);
    }
    CHECK(found);
    json_decref(root);
    CHECK_INT(inspect_export("absent", "x", &err), SHOAL_ENOENT);
}

TEST(a_safetensors_file_shows_its_tensors)
{
    json_t *root = json_of(test_path("golden/din/final.safetensors"), "safetensors");
    CHECK_INT(json_array_size(json_object_get(root, "tensors")), 32);
    json_decref(root);
    const char *text = text_of(test_path("golden/din/final.safetensors"));
    CHECK_HAS(text, "32 tensors, ");
    CHECK_HAS(text, "age/embedding               F32   8 x 2 ");
    CHECK_HAS(text, "output/bias                 F32   1 ");
}

/* Each type is read as what it is; what is not finite is counted and left out. */
TEST(elements_of_every_type_are_summed_up)
{
    static const struct {
        enum safetensors_type type;
        uint8_t bytes[24];
        uint64_t count;
        double min, max, mean;
        uint64_t not_finite;
    } cases[] = {
        {SAFETENSORS_F32, {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0xc0, 0x7f}, 12, -2, 1, -0.5, 1},
        {SAFETENSORS_F64, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}, 8, 1, 1, 1, 0},
        {SAFETENSORS_F16, {0, 0x3c, 0, 0xc0, 0, 0x7c, 1, 0}, 8, -2, 1, (-1 + 0x1p-24) / 3, 1},
        {SAFETENSORS_BF16, {0x80, 0x3f, 0, 0xc0}, 4, -2, 1, -0.5, 0},
        {SAFETENSORS_I8, {0xff, 3}, 2, -1, 3, 1, 0},
        {SAFETENSORS_U8, {0xff, 3}, 2, 3, 255, 129, 0},
        {SAFETENSORS_BOOL, {0, 1}, 2, 0, 1, 0.5, 0},
        {SAFETENSORS_I16, {0xff, 0xff, 1, 0}, 4, -1, 1, 0, 0},
        {SAFETENSORS_U16, {0xff, 0xff, 1, 0}, 4, 1, 65535, 32768, 0},
        {SAFETENSORS_I32, {0xff, 0xff, 0xff, 0xff}, 4, -1, -1, -1, 0},
        {SAFETENSORS_U32, {0xff, 0xff, 0xff, 0xff}, 4, 0xffffffff, 0xffffffff, 0xffffffff, 0},
        {SAFETENSORS_I64, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 8, -1, -1, -1, 0},
        {SAFETENSORS_U64, {5, 0, 0, 0, 0, 0, 0, 0}, 8, 5, 5, 5, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct inspect_tensor got = inspect_tensor(&(struct safetensors_tensor){
            .type = cases[i].type, .bytes = cases[i].bytes, .bytes_count = cases[i].count});
        if (got.min != cases[i].min || got.max != cases[i].max ||
            fabs(got.mean - cases[i].mean) > 1e-12 || got.not_finite != cases[i].not_finite) {
            test_fail(__FILE__, __LINE__, "%s: got %g %g %g", safetensors_type_name(cases[i].type),
                      got.min, got.max, got.mean);
        }
    }
    const struct inspect_tensor none =
        inspect_tensor(&(struct safetensors_tensor){.type = SAFETENSORS_F32});
    CHECK(isnan(none.min) && isnan(none.max) && isnan(none.mean));
}

TEST(an_event_file_shows_its_scalars)
{
    struct events *events = NULL;
    CHECK_OK(events_open("e", &events, &err));
    CHECK_OK(events_scalar(events, 100, "loss", 0.1, &err));
    CHECK_OK(events_scalar(events, 200, "eval\tauc", NAN, &err));
    CHECK_OK(events_close(events, &err));
    struct io_list list;
    char path[512];
    CHECK_OK(io_list_dir("e", &list, &err));
    snprintf(path, sizeof path, "e/%s", list.paths[0]);
    io_list_fini(&list);
    json_t *root = json_of(path, "events");
    CHECK_INT(number_at(at(root, "scalars", 0), "step"), 100);
    CHECK_STR(text_at(at(root, "scalars", 0), "tag"), "loss");
    CHECK_NEAR(json_real_value(json_object_get(at(root, "scalars", 0), "value")), 0.1, 0);
    CHECK(json_is_null(json_object_get(at(root, "scalars", 1), "value")));
    json_decref(root);
    CHECK_HAS(text_of(path), ": 2 scalars\n\nSTEP  TAG       VALUE\n100   loss      0.1\n"
                             "200   eval?auc  nan\n");
}

TEST(record_files_are_counted)
{
    json_t *root = json_of(test_path("golden/din/data.tfrecord.gz"), "tfrecord");
    CHECK_INT(number_at(root, "records"), 1280);
    CHECK_INT(number_at(root, "skipped"), 0);
    json_decref(root);
    CHECK_HAS(text_of(test_path("golden/din/data.tfrecord")), "1,280 records");
    CHECK_HAS(text_of(test_path("golden/broken/payload_bit_flipped_in_record_100.tfrecord")),
              "1 broken");
}

TEST(a_graph_shows_its_variables)
{
    struct graph *graph = NULL;
    CHECK_OK(graph_create(&graph, &err));
    const graph_id x = graph_numeric(graph, 0, 4);
    const graph_id w = graph_param(graph, "output/weight", 4, 2, (struct init){0});
    graph_dense(graph, x, w, GRAPH_NONE, GRAPH_LINEAR);
    graph_table(graph, "item/embedding", 0, 8, (struct init){0});
    CHECK_OK(graph_check(graph, &err));
    uint8_t *bytes = NULL;
    size_t count = 0;
    CHECK_OK(graph_encode(graph, &bytes, &count, &err));
    CHECK_OK(io_write_whole("model.graph", bytes, count, &err));
    json_t *root = json_of("model.graph", "graph");
    CHECK_STR(text_at(at(root, "variables", 0), "name"), "output/weight");
    CHECK_INT(number_at(at(root, "variables", 1), "cols"), 8);
    json_decref(root);
    CHECK_HAS(text_of("model.graph"), "item/embedding  table  rows of 8\n");
    mem_free(bytes);
    graph_destroy(graph);
}

TEST(what_is_not_ours_is_said_to_be)
{
    struct str out = {0};
    CHECK_OK(io_write_whole("text", "hello", 5, &err));
    CHECK_OK(io_write_whole("empty", "", 0, &err));
    CHECK(mkdir("folder", 0777) == 0);
    CHECK_INT(inspect_path("text", false, &out, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "text: not a file of ours");
    CHECK_INT(inspect_path("empty", false, &out, &err), SHOAL_EINVAL);
    CHECK_INT(inspect_path("folder", false, &out, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "folder: a folder without checkpoints");
    CHECK_INT(inspect_path("absent", false, &out, &err), SHOAL_ENOENT);
    str_fini(&out);
}

TEST(columns_are_aligned)
{
    struct str rows = {0};
    struct str out = {0};
    inspect_table_print(&rows, &out);
    CHECK_INT(out.bytes, 0);
    str_add(&rows, "A\tLONG\tC\nfour\t\t1\n\xc3\xa4\tx\t\nno more\n");
    inspect_table_print(&rows, &out);
    CHECK_STR(out.text, "A        LONG  C\nfour           1\n\xc3\xa4        x     \nno more\n");
    str_fini(&rows);
    str_fini(&out);
}

TEST(every_failed_allocation_is_an_error)
{
    save(9);
    static const char *const paths[] = {"m", "m/ckpt-9", "m/ckpt-9/part-0-0.safetensors"};
    for (size_t i = 0; i < 6; i++) {
        for (uint64_t nth = 1;; nth++) {
            struct str out = {0};
            const size_t before = mem_bytes_total();
            mem_fail_nth(nth);
            const int rc = inspect_path(paths[i / 2], i % 2 == 1, &out, &err);
            const bool failed = mem_fail_nth(0);
            str_fini(&out);
            CHECK_INT(mem_bytes_total(), before);
            /* In a model directory it may show as the problem of one checkpoint. */
            CHECK(rc == 0 || rc == SHOAL_ENOMEM);
            if (!failed) break;
        }
    }
}
