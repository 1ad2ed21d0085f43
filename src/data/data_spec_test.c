#include "data/data_spec.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/mem.h"
#include "data/data_test_help.h"

static const char din[] =
    "label: {kind: label}\n"
    "user_id: {kind: hash, buckets: 10000}\n"
    "age: {kind: bucketize, boundaries: [18, 25, 36, 45, 55, 65, 80]}\n"
    "gender: {kind: hash, buckets: 100}\n"
    "item_id: {kind: hash, buckets: 100, embed: 16, table: item}\n"
    "clicked_items_15d: {kind: hash, buckets: 100, sequence: true, pad: \"0\", table: item}\n";

/* The reference job: four tables with widths by rule, the item table shared. */
TEST(din_has_its_tables)
{
    static const struct {
        const char *name;
        uint64_t rows;
        uint32_t dim;
    } want[] = {{"user_id", 10000, 16}, {"age", 8, 2}, {"gender", 100, 4}, {"item", 100, 16}};
    struct data_spec *spec = help_spec(din);
    const struct data_schema *schema = data_spec_schema(spec);
    CHECK_INT(schema->tables_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_STR(schema->tables[i].name, want[i].name);
        CHECK_INT(schema->tables[i].rows, want[i].rows);
        CHECK_INT(schema->tables[i].dim, want[i].dim);
    }
    CHECK_INT(schema->ids_count, 5);
    CHECK_INT(schema->dense_count, 0);
    CHECK(schema->has_label && !schema->has_weight && !schema->has_group);
    CHECK(schema->ids[0].single && !schema->ids[4].single);
    CHECK(schema->ids[4].sequence && schema->ids[4].padded);
    CHECK_INT(schema->ids[4].table, 3);
    CHECK_INT(data_schema_find_ids(schema, "item_id"), 3);
    CHECK_INT(data_schema_find_ids(schema, "item"), -1);
    CHECK_INT(data_schema_find_dense(schema, "age"), -1);
    data_spec_destroy(spec);
}

TEST(golden_default_widths)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *key = NULL;
    json_t *value = NULL;
    CHECK_OK(io_read_whole(test_path("golden/columns.json"), 1 << 20, &text, &bytes, &err));
    json_t *json = json_loads(text, 0, NULL);
    CHECK(json != NULL);
    json_object_foreach(json_object_get(json, "default_width"), key, value)
    {
        CHECK_INT(data_default_width(strtoull(key, NULL, 10)), json_integer_value(value));
    }
    json_decref(json);
    mem_free(text);
}

TEST(repeat_makes_features_of_neighbouring_columns)
{
    struct data_spec *spec = help_spec("C: {kind: hash, buckets: 10, repeat: 3, column: 14}\n"
                                       "D: {kind: numeric, repeat: 2, width: 2}\n");
    const struct data_schema *schema = data_spec_schema(spec);
    CHECK_INT(schema->ids_count, 3);
    CHECK_STR(schema->ids[2].name, "C3");
    CHECK_STR(schema->dense[1].name, "D2");
    CHECK_INT(schema->dense_width, 4);
    data_spec_destroy(spec);
}

/* Each mistake is named with its place. */
TEST(mistakes_are_told_with_line_and_column)
{
    static const struct {
        const char *name;
        const char *features;
        const char *want;
    } cases[] = {
        {"unknown kind", "a: {kind: hsah}", "job.yaml:1:11: "},
        {"nearest kind", "a: {kind: hsah}", "hash"},
        {"unknown key", "a: {kind: hash, bukets: 3}", "buckets"},
        {"key of another kind", "a: {kind: hash, buckets: 3, boundaries: [1]}", "boundaries"},
        {"no kind", "a: {buckets: 3}", "needs kind"},
        {"not a map", "a: hash", "a feature is a map"},
        {"no buckets", "b: {kind: label}\na: {kind: hash}", "job.yaml:2:"},
        {"zero buckets", "a: {kind: hash, buckets: 0}", "job.yaml:1:26: "},
        {"no boundaries", "a: {kind: bucketize}", "boundaries"},
        {"falling boundaries", "a: {kind: bucketize, boundaries: [3, 2]}", "must rise"},
        {"dynamic without embed", "a: {kind: dynamic}", "embed"},
        {"tables of other rows",
         "a: {kind: hash, buckets: 3, table: t}\nb: {kind: hash, buckets: 4, table: t}",
         "table t has 3 rows by an earlier feature, 4 by this"},
        {"tables of other width",
         "a: {kind: hash, buckets: 3, table: t, embed: 2}\n"
         "b: {kind: hash, buckets: 3, table: t, embed: 4}",
         "job.yaml:2:46: "},
        {"dynamic and fixed",
         "a: {kind: hash, buckets: 3, table: t}\nb: {kind: dynamic, embed: 4, table: t}",
         "no fixed number of"},
        {"two labels", "a: {kind: label}\nb: {kind: label}", "another feature of kind label"},
        {"pad without sequence", "a: {kind: hash, buckets: 3, pad: \"0\"}", "pad is for"},
        {"vocabulary without words", "a: {kind: vocabulary}", "values: [...] or file: PATH"},
        {"word twice", "a: {kind: vocabulary, values: [x, x]}", "stands twice"},
        {"no such file", "a: {kind: vocabulary, file: nowhere.txt}", "nowhere.txt"},
        {"default beyond words", "a: {kind: vocabulary, values: [x], default: 1}", "job.yaml:1:"},
        {"default and oov", "a: {kind: vocabulary, values: [x], default: 0, oov_buckets: 1}",
         "not both"},
        {"default out of range", "a: {kind: identity, buckets: 3, default: 3}", "no value of it"},
        {"cross of one", "a: {kind: cross, of: [b], buckets: 3}", "2 to"},
        {"cross of numbers", "b: {kind: numeric}\na: {kind: cross, of: [b, c], buckets: 3}",
         "cannot be crossed"},
        {"range and moments", "a: {kind: numeric, min: 0, mean: 1}", "not both"},
        {"max below min", "a: {kind: numeric, min: 3, max: 2}", "must be above"},
        {"long split", "a: {kind: hash, buckets: 3, split: ab}", "one character"},
        {"empty", "{}", "features must be a map"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config *config = NULL;
        struct data_spec *spec = NULL;
        CHECK_OK(config_parse("job.yaml", cases[i].features, &config, &err));
        const int rc = data_spec_create(config_root(config), NULL, &spec, &err);
        if (rc != SHOAL_ECONFIG || strstr(err.text, cases[i].want) == NULL) {
            test_fail(__FILE__, __LINE__, "%s: %d \"%s\" has no \"%s\"", cases[i].name, rc,
                      rc == 0 ? "" : err.text, cases[i].want);
        }
        config_destroy(config);
    }
}

TEST(keys_of_others_are_allowed_when_named)
{
    static const char *const extra[] = {"optimizer", NULL};
    struct config *config = NULL;
    struct data_spec *spec = NULL;
    CHECK_OK(
        config_parse("job.yaml", "a: {kind: hash, buckets: 3, optimizer: ftrl}", &config, &err));
    CHECK_INT(data_spec_create(config_root(config), NULL, &spec, &err), SHOAL_ECONFIG);
    CHECK_OK(data_spec_create(config_root(config), extra, &spec, &err));
    data_spec_destroy(spec);
    config_destroy(config);
}

TEST(settings_are_read_and_checked)
{
    static const struct {
        const char *text;
        const char *want; /* NULL: fine */
    } cases[] = {
        {"{format: csv, train: a, eval: [b, c], batch_size: 32, shuffle: 0, epochs: 0}", NULL},
        {"{train_rows: [0, 55000], eval_rows: [55000, 60000]}", NULL},
        {"{train_rows: [5, 5]}", "train_rows must be"},
        {"{train_rows: [1, 2, 3]}", "train_rows must be"},
        {"{eval_rows: [0.5, 2]}", "eval_rows must be"},
        {"{batch_size: 0}", "batch_size"},
        {"{bach_size: 3}", "batch_size"},
        {"{format: parquet}", "tfrecord"},
        {"{errors_max: 2}", "errors_max"},
        {"{delimiter: \"ab\"}", "one character"},
        {"{train: []}", "train must be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config *config = NULL;
        struct data_settings settings;
        CHECK_OK(config_parse("job.yaml", cases[i].text, &config, &err));
        const int rc = data_settings_read(config_root(config), &settings, &err);
        if (cases[i].want == NULL) CHECK_OK(rc);
        if (cases[i].want != NULL) {
            CHECK_INT(rc, SHOAL_ECONFIG);
            CHECK_HAS(err.text, cases[i].want);
        }
        config_destroy(config);
    }
    struct data_settings settings;
    CHECK_OK(data_settings_read(NULL, &settings, &err));
    CHECK_INT(settings.batch_size, 512);
    CHECK_INT(settings.epochs, 1);
    CHECK_NEAR(settings.errors_max, 0.01, 0);
}

TEST(out_of_memory_is_an_error)
{
    static const char features[] =
        "label: {kind: label}\n"
        "a: {kind: vocabulary, values: [x, y, z], oov_buckets: 2, table: t}\n"
        "b: {kind: bucketize, boundaries: [1, 2], sequence: true, pad: 0}\n"
        "c: {kind: cross, of: [a, d], buckets: 7}\n"
        "n: {kind: numeric}\n";
    struct config *config = NULL;
    struct data_spec *spec = NULL;
    CHECK_OK(config_parse("job.yaml", features, &config, &err));
    for (uint64_t nth = 1;; nth++) {
        mem_fail_nth(nth);
        const int rc = data_spec_create(config_root(config), NULL, &spec, &err);
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        if (!failed) break;
        CHECK_INT(mem_bytes(MEM_DATA), 0);
    }
    data_spec_destroy(spec);
    config_destroy(config);
}
