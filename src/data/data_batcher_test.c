#include "data/data_batcher.h"

#include <jansson.h>
#include <math.h>

#include "base/mem.h"
#include "data/data_test_help.h"

/* Records of one format made into a batch. */
struct fixture {
    struct data_spec *spec;
    const struct data_schema *schema;
    struct data_layout layout;
    struct data_batcher *batcher;
    const struct batch *batch;
    const struct data_broken *broken;
    uint32_t broken_count;
    struct str bytes;
    size_t ends[2000];
    uint32_t count;
};

static void setup(struct fixture *f, const char *features, enum data_format format,
                  const char *header)
{
    const struct data_settings settings = {.index_base = 1};
    memset(f, 0, sizeof *f);
    f->spec = help_spec(features);
    f->schema = data_spec_schema(f->spec);
    CHECK_OK(data_layout_init(&f->layout, f->spec, &settings, format, header, &err));
    const struct data_batcher_opts opts = {.spec = f->spec, .layout = &f->layout, .rows_max = 2000};
    CHECK_OK(data_batcher_create(&opts, &f->batcher, &err));
}

static void teardown(struct fixture *f)
{
    data_batcher_destroy(f->batcher);
    data_layout_fini(&f->layout);
    data_spec_destroy(f->spec);
    str_fini(&f->bytes);
}

static void add_bytes(struct fixture *f, const void *bytes, size_t count)
{
    str_add_bytes(&f->bytes, bytes, count);
    f->ends[f->count++] = f->bytes.bytes;
}

static void add_text(struct fixture *f, const char *text)
{
    add_bytes(f, text, strlen(text));
}

/* Takes the features over. */
static void add_example(struct fixture *f, struct str *features)
{
    help_field(&f->bytes, 1, features->text != NULL ? features->text : "", features->bytes);
    f->ends[f->count++] = f->bytes.bytes;
    str_clear(features);
}

static void make(struct fixture *f, struct team *team)
{
    static struct data_piece pieces[2000];
    for (uint32_t i = 0; i < f->count; i++) {
        const size_t start = i == 0 ? 0 : f->ends[i - 1];
        pieces[i] = (struct data_piece){.bytes = (const uint8_t *)f->bytes.text + start,
                                        .count = (uint32_t)(f->ends[i] - start)};
    }
    CHECK_OK(data_batcher_make(f->batcher, team, pieces, NULL, f->count, &f->batch, &f->broken,
                               &f->broken_count, &err));
    CHECK(data_batch_ok(f->batch, f->schema));
}

#define KEY(name, row, nth) help_key(f.batch, f.schema, name, row, nth)
#define COUNT(name, row) help_count(f.batch, f.schema, name, row)

static json_t *golden_columns(void)
{
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(io_read_whole(test_path("golden/columns.json"), 1 << 20, &text, &bytes, &err));
    json_t *json = json_loads(text, 0, NULL);
    CHECK(json != NULL);
    mem_free(text);
    return json;
}

TEST(golden_crosses_and_vocabularies)
{
    json_t *json = golden_columns();
    json_t *cross = json_object_get(json, "cross");
    json_t *words = json_object_get(json, "vocabulary");
    struct str text = {0}, features = {0};
    size_t i = 0;
    json_t *row = NULL;
    char *list = json_dumps(json_object_get(words, "words"), 0);
    str_printf(&text, "c: {kind: cross, of: [a, b], buckets: %lld}\n",
               json_integer_value(json_object_get(cross, "buckets")));
    str_printf(&text, "v: {kind: vocabulary, values: %s, oov_buckets: %lld, column: a}\n", list,
               json_integer_value(json_object_get(words, "oov_buckets")));
    free(list);
    struct fixture f;
    setup(&f, text.text, DATA_TFRECORD, NULL);
    json_array_foreach(json_object_get(cross, "rows"), i, row)
    {
        help_strings(&features, "b", json_string_value(json_object_get(row, "b")));
        help_strings(&features, "a", json_string_value(json_object_get(row, "a")));
        add_example(&f, &features);
    }
    make(&f, NULL);
    json_array_foreach(json_object_get(cross, "rows"), i, row)
    {
        CHECK_INT(KEY("c", (uint32_t)i, 0), json_integer_value(json_object_get(row, "bucket")));
        json_t *word = json_array_get(json_object_get(words, "rows"), i);
        CHECK_STR(json_string_value(json_object_get(word, "a")),
                  json_string_value(json_object_get(row, "a")));
        CHECK_INT(KEY("v", (uint32_t)i, 0), json_integer_value(json_object_get(word, "id")));
    }
    teardown(&f);
    str_fini(&text);
    str_fini(&features);
    json_decref(json);
}

TEST(golden_buckets)
{
    json_t *json = golden_columns();
    json_t *bucketize = json_object_get(json, "bucketize");
    char *boundaries = json_dumps(json_object_get(bucketize, "boundaries"), 0);
    struct str text = {0}, features = {0};
    size_t i = 0;
    json_t *value = NULL;
    str_printf(&text, "age: {kind: bucketize, boundaries: %s}\n", boundaries);
    free(boundaries);
    struct fixture f;
    setup(&f, text.text, DATA_TFRECORD, NULL);
    json_array_foreach(json_object_get(bucketize, "values"), i, value)
    {
        help_integer(&features, "age", json_integer_value(value));
        add_example(&f, &features);
    }
    make(&f, NULL);
    json_array_foreach(json_object_get(bucketize, "buckets"), i, value)
    {
        CHECK_INT(KEY("age", (uint32_t)i, 0), json_integer_value(value));
    }
    teardown(&f);
    str_fini(&text);
    str_fini(&features);
    json_decref(json);
}

static const char many_kinds[] =
    "label: {kind: label}\n"
    "w: {kind: weight}\n"
    "g: {kind: group}\n"
    "u: {kind: hash, buckets: 1000}\n"
    "i: {kind: identity, buckets: 10, default: 3}\n"
    "j: {kind: identity, buckets: 10, column: i2}\n"
    "v: {kind: vocabulary, values: [red, green]}\n"
    "d: {kind: dynamic, embed: 4}\n"
    "h: {kind: hash, buckets: 1000, sequence: true, pad: \"0\", max_length: 3}\n"
    "m: {kind: hash, buckets: 1000, weights: mw, combiner: sqrtn}\n"
    "x: {kind: numeric, width: 2, default: 5, mean: 1, std: 2}\n"
    "age: {kind: bucketize, boundaries: [10, 20]}\n"
    "ua: {kind: cross, of: [u, age, h], buckets: 500}\n";

/* What TensorFlow does with present, missing and odd values, one kind after the other. */
TEST(every_kind_of_feature)
{
    struct fixture f;
    struct str x = {0};
    setup(&f, many_kinds, DATA_TFRECORD, NULL);
    help_integer(&x, "label", 1);
    help_floats(&x, "w", &(float){0.5f}, 1, false);
    help_integer(&x, "g", 77);
    help_strings(&x, "u", "user7");
    help_integer(&x, "i", 12);
    help_integer(&x, "i2", 9);
    help_strings(&x, "v", "green");
    help_integer(&x, "d", -5);
    help_strings(&x, "h", "a 0 b c d");
    help_strings(&x, "m", "p q");
    help_floats(&x, "mw", (const float[]){2, 3}, 2, true);
    help_floats(&x, "x", (const float[]){3, -1}, 2, false);
    help_integers(&x, "age", (const int64_t[]){20}, 1, false);
    add_example(&f, &x);
    help_integer(&x, "label", 0); /* everything else is missing */
    add_example(&f, &x);
    help_strings(&x, "label", "0.25"); /* text where numbers are wanted, integers as text */
    help_strings(&x, "v", "blue");
    help_strings(&x, "d", "name");
    help_integer(&x, "u", 42);
    help_strings(&x, "age", "9.5");
    help_strings(&x, "h", "0 0");
    help_strings(&x, "g", "q");
    add_example(&f, &x);
    make(&f, NULL);
    CHECK_INT(f.broken_count, 0);
    CHECK_INT(f.batch->rows, 3);

    const float *dense = f.batch->dense[0];
    CHECK_NEAR(f.batch->label[0], 1, 0);
    CHECK_NEAR(f.batch->label[2], 0.25, 0);
    CHECK_NEAR(f.batch->weight[0], 0.5, 0);
    CHECK_NEAR(f.batch->weight[1], 1, 0);
    CHECK(f.batch->group[0] == 77);
    CHECK(f.batch->group[2] == hash_fingerprint64("q", 1));
    CHECK_NEAR(dense[0], 1, 0);
    CHECK_NEAR(dense[1], -1, 0);
    CHECK_NEAR(dense[2], 2, 0);
    CHECK_INT(KEY("u", 0, 0), hash_fingerprint64("user7", 5) % 1000);
    CHECK_INT(KEY("u", 1, 0), hash_fingerprint64("", 0) % 1000);
    CHECK_INT(KEY("u", 2, 0), hash_fingerprint64("42", 2) % 1000);
    CHECK_INT(KEY("i", 0, 0), 3); /* out of range: the default */
    CHECK_INT(KEY("i", 1, 0), 3);
    CHECK_INT(KEY("j", 0, 0), 9);
    CHECK_INT(KEY("j", 1, 0), 0);
    CHECK_INT(KEY("v", 0, 0), 1);
    CHECK_INT(COUNT("v", 1), 0);
    CHECK_INT(COUNT("v", 2), 0); /* unknown words are left out */
    CHECK(KEY("d", 0, 0) == (uint64_t)-5);
    CHECK(KEY("d", 2, 0) == hash_fingerprint64("name", 4));
    CHECK_INT(COUNT("h", 0), 3); /* pads dropped, the last three kept */
    CHECK_INT(KEY("h", 0, 0), hash_fingerprint64("b", 1) % 1000);
    CHECK_INT(COUNT("h", 1), 1);
    CHECK_INT(KEY("h", 1, 0), hash_fingerprint64("0", 1) % 1000);
    CHECK_INT(COUNT("h", 2), 1);
    CHECK_INT(KEY("h", 2, 0), hash_fingerprint64("0", 1) % 1000);
    CHECK_INT(COUNT("m", 0), 2);
    CHECK_NEAR(f.batch->ids[6].weights[1], 3, 0);
    CHECK_INT(KEY("age", 0, 0), 2);
    CHECK_INT(KEY("age", 1, 0), 0);
    CHECK_INT(COUNT("ua", 0), 5); /* one for each of the five values of h, pads too */
    uint64_t print = hash_fingerprint_cat64(0xDECAFCAFFE, hash_fingerprint64("user7", 5));
    print = hash_fingerprint_cat64(print, 2);
    print = hash_fingerprint_cat64(print, hash_fingerprint64("0", 1));
    CHECK_INT(KEY("ua", 0, 1), print % 500);
    CHECK_INT(COUNT("ua", 1), 0);
    teardown(&f);
    str_fini(&x);
}

/* A record that does not fit is left out with its reason; its neighbours are not touched. */
TEST(broken_records_are_left_out)
{
    static const struct {
        const char *name;
        enum data_fault fault;
    } cases[] = {{"no label", DATA_FAULT_MISSING},   {"two labels", DATA_FAULT_VALUES},
                 {"word label", DATA_FAULT_TYPE},    {"two users", DATA_FAULT_VALUES},
                 {"identity", DATA_FAULT_RANGE},     {"three numbers", DATA_FAULT_VALUES},
                 {"not finite", DATA_FAULT_RANGE},   {"weights", DATA_FAULT_VALUES},
                 {"bad list", DATA_FAULT_MALFORMED}, {"negative weight", DATA_FAULT_RANGE},
                 {"float id", DATA_FAULT_TYPE}};
    const uint32_t count = sizeof cases / sizeof *cases;
    struct fixture f;
    struct str x = {0}, bad = {0};
    setup(&f, many_kinds, DATA_TFRECORD, NULL);
    str_add_bytes(&bad, "\x0a\x7f", 2);
    for (uint32_t i = 0; i < 2 * count; i++) {
        const uint32_t fault = i % 2 == 0 ? i / 2 : count;
        help_strings(&x, "h", "a b"); /* appended before the row turns out broken */
        if (fault == 2) help_strings(&x, "label", "yes");
        if (fault == 1) help_integers(&x, "label", (const int64_t[]){1, 0}, 2, true);
        if (fault > 2) help_integer(&x, "label", 1);
        if (fault == 3) help_strings(&x, "u", "a b");
        if (fault == 4) help_integer(&x, "i2", 10);
        if (fault == 5) help_floats(&x, "x", (const float[]){1, 2, 3}, 3, true);
        if (fault == 6) help_floats(&x, "x", (const float[]){1, INFINITY}, 2, true);
        if (fault == 7) help_strings(&x, "m", "p");
        if (fault == 8) help_entry(&x, "age", 1, &bad);
        if (fault == 9) help_floats(&x, "w", &(float){-1}, 1, true);
        if (fault == 10) help_floats(&x, "d", &(float){1.5f}, 1, true);
        add_example(&f, &x);
    }
    make(&f, NULL);
    CHECK_INT(f.broken_count, count);
    CHECK_INT(f.batch->rows, count);
    for (uint32_t i = 0; i < count; i++) {
        if (f.broken[i].index != 2 * i || f.broken[i].fault != cases[i].fault) {
            test_fail(__FILE__, __LINE__, "%s: got %s at %u", cases[i].name,
                      data_fault_name(f.broken[i].fault), f.broken[i].index);
        }
        CHECK_INT(COUNT("h", i), 2);
    }
    teardown(&f);
    str_fini(&x);
    str_fini(&bad);
}

/* Order of fields, unknown ones, names and lists that stand twice: the same row. */
TEST(examples_are_read_in_any_form)
{
    struct fixture f;
    struct str x = {0}, inner = {0}, list = {0}, feature = {0};
    setup(&f, "label: {kind: label}\nu: {kind: hash, buckets: 1000}\n", DATA_TFRECORD, NULL);
    help_strings(&x, "u", "first"); /* overruled by the later one */
    help_strings(&x, "other", "z");
    help_strings(&x, "u", "last");
    help_integer(&x, "label", 1);
    add_example(&f, &x);
    /* The value before the name, an unknown field in each message, a list overruled by another. */
    help_field(&inner, 1, "zzz", 3);
    help_field(&feature, 1, inner.text, inner.bytes);
    str_clear(&inner);
    help_varint(&list, 15 << 3 | 1);
    str_add_bytes(&list, "12345678", 8);
    help_field(&list, 1, "last", 4);
    help_varint(&list, 2 << 3 | 5);
    str_add_bytes(&list, "1234", 4);
    help_field(&feature, 1, list.text, list.bytes);
    help_varint(&feature, 9 << 3 | 0);
    help_varint(&feature, 300);
    help_field(&inner, 2, feature.text, feature.bytes);
    help_field(&inner, 1, "u", 1);
    help_field(&inner, 7, "unknown", 7);
    help_field(&x, 3, "unknown", 7);
    help_field(&x, 1, inner.text, inner.bytes);
    help_integers(&x, "label", (const int64_t[]){1}, 1, false);
    add_example(&f, &x);
    make(&f, NULL);
    CHECK_INT(f.broken_count, 0);
    for (uint32_t row = 0; row < 2; row++) {
        CHECK_INT(KEY("u", row, 0), hash_fingerprint64("last", 4) % 1000);
        CHECK_NEAR(f.batch->label[row], 1, 0);
    }
    teardown(&f);
    str_fini(&x);
    str_fini(&inner);
    str_fini(&list);
    str_fini(&feature);
}

TEST(an_example_cut_anywhere_is_malformed_or_whole)
{
    struct fixture f;
    struct str x = {0};
    setup(&f, many_kinds, DATA_TFRECORD, NULL);
    help_integer(&x, "label", 300);
    help_strings(&x, "h", "a b c");
    help_floats(&x, "x", (const float[]){1, 2}, 2, true);
    struct str whole = {0};
    help_field(&whole, 1, x.text, x.bytes);
    for (size_t cut = 0; cut < whole.bytes; cut++) add_bytes(&f, whole.text, cut);
    make(&f, NULL);
    CHECK_INT(f.broken_count, whole.bytes);
    CHECK_INT(f.broken[0].fault, DATA_FAULT_MISSING); /* nothing at all is an empty Example */
    for (uint32_t i = 1; i < f.broken_count; i++) {
        CHECK_INT(f.broken[i].fault, DATA_FAULT_MALFORMED);
    }
    teardown(&f);
    str_fini(&x);
    str_fini(&whole);
}

TEST(csv_columns_by_number_name_and_order)
{
    static const struct {
        const char *features;
        const char *header;
    } cases[] = {
        {"y: {kind: label}\nn: {kind: numeric, width: 2}\nc: {kind: hash, buckets: 99}", NULL},
        {"c: {kind: hash, buckets: 99, column: 3}\nn: {kind: numeric, width: 2, column: 1}\n"
         "y: {kind: label, column: 0}",
         NULL},
        {"c: {kind: hash, buckets: 99}\ny: {kind: label, column: why}\n"
         "n: {kind: numeric, width: 2, column: n1}",
         "why,\"n1\",n2,c"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        setup(&f, cases[i].features, DATA_CSV, cases[i].header);
        add_text(&f, "1,0.5,-2,\"a \"\"b\"\", c\"");
        add_text(&f, "0,,7,");
        add_text(&f, "0,1,2");
        add_text(&f, "0,x,2,c");
        make(&f, NULL);
        CHECK_INT(f.batch->rows, 2);
        CHECK_INT(f.broken[0].fault, DATA_FAULT_MALFORMED);
        CHECK_INT(f.broken[1].fault, DATA_FAULT_TYPE);
        CHECK_NEAR(f.batch->dense[0][0], 0.5, 0);
        CHECK_NEAR(f.batch->dense[0][1], -2, 0);
        CHECK_NEAR(f.batch->dense[0][2], 0, 0);
        CHECK_NEAR(f.batch->dense[0][3], 7, 0);
        CHECK_INT(KEY("c", 0, 0), hash_fingerprint64("a \"b\", c", 8) % 99);
        CHECK_INT(KEY("c", 1, 0), hash_fingerprint64("", 0) % 99);
        teardown(&f);
    }
}

TEST(a_header_without_the_column_is_told)
{
    struct data_spec *spec = help_spec("a: {kind: label}\nbee: {kind: numeric}\n");
    const struct data_settings settings = {0};
    struct data_layout layout;
    CHECK_INT(data_layout_init(&layout, spec, &settings, DATA_CSV, "a,b", &err), SHOAL_EMISMATCH);
    CHECK_HAS(err.text, "no column named bee");
    data_spec_destroy(spec);
}

/* Criteo: tabs, 13 counts with gaps, 26 categories with gaps; a split field beside. */
TEST(criteo_and_split_fields)
{
    struct fixture f;
    setup(&f,
          "label: {kind: label}\n"
          "I: {kind: numeric, width: 3, log: true}\n"
          "C: {kind: hash, buckets: 1000, repeat: 2, column: 4}\n"
          "tags: {kind: hash, buckets: 1000, combiner: sum, split: \"|\", column: 6}\n",
          DATA_TSV, NULL);
    add_text(&f, "1\t5\t\t-1\t68fd1e64\t\tx|y");
    make(&f, NULL);
    CHECK_INT(f.batch->rows, 1);
    CHECK_NEAR(f.batch->dense[0][0], log1p(5), 1e-6);
    CHECK_NEAR(f.batch->dense[0][1], 0, 0);
    CHECK_NEAR(f.batch->dense[0][2], 0, 0);
    CHECK_INT(KEY("C1", 0, 0), hash_fingerprint64("68fd1e64", 8) % 1000);
    CHECK_INT(KEY("C2", 0, 0), hash_fingerprint64("", 0) % 1000);
    CHECK_INT(COUNT("tags", 0), 2);
    CHECK_INT(KEY("tags", 0, 1), hash_fingerprint64("y", 1) % 1000);
    teardown(&f);
}

TEST(libsvm_lines)
{
    struct fixture f;
    setup(&f,
          "label: {kind: label}\nquery: {kind: group}\ndense: {kind: numeric, width: 4}\n"
          "sparse: {kind: identity, buckets: 4, weights: value}\n",
          DATA_LIBSVM, NULL);
    add_text(&f, "-1 qid:8 1:0.5 4:2  # why");
    add_text(&f, "+1");
    add_text(&f, "1 5:1");
    add_text(&f, "1 x:1");
    add_text(&f, "one 1:1");
    make(&f, NULL);
    CHECK_INT(f.batch->rows, 2);
    CHECK_INT(f.broken[0].fault, DATA_FAULT_RANGE);
    CHECK_INT(f.broken[1].fault, DATA_FAULT_MALFORMED);
    CHECK_INT(f.broken[2].fault, DATA_FAULT_MALFORMED);
    CHECK_NEAR(f.batch->label[0], -1, 0);
    CHECK(f.batch->group[0] == 8);
    CHECK_NEAR(f.batch->dense[0][0], 0.5, 0);
    CHECK_NEAR(f.batch->dense[0][1], 0, 0);
    CHECK_NEAR(f.batch->dense[0][3], 2, 0);
    CHECK_INT(COUNT("sparse", 0), 2);
    CHECK_INT(KEY("sparse", 0, 1), 3);
    CHECK_NEAR(f.batch->ids[0].weights[1], 2, 0);
    CHECK_INT(COUNT("sparse", 1), 0);
    teardown(&f);
}

/* The same batch on any team, with broken rows among the others, in several parts. */
TEST(teams_make_the_same_batch)
{
    struct str want = {0}, got = {0}, x = {0};
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct fixture f;
        struct team *team = NULL;
        setup(&f, many_kinds, DATA_TFRECORD, NULL);
        CHECK_OK(team_create(threads, &team, &err));
        for (int64_t i = 0; i < 700; i++) {
            char text[64];
            if (i % 50 != 7) help_integer(&x, "label", i % 2);
            snprintf(text, sizeof text, "u%d", (int)(i * i % 97));
            help_strings(&x, "u", text);
            snprintf(text, sizeof text, "h%d 0 h%d", (int)(i % 31), (int)(i % 17));
            if (i % 3 != 0) help_strings(&x, "h", text);
            add_example(&f, &x);
        }
        for (int again = 0; again < 3; again++) {
            make(&f, team);
            str_clear(&got);
            help_print(f.batch, &got);
            if (want.bytes == 0) help_print(f.batch, &want);
            CHECK_STR(got.text, want.text);
        }
        team_destroy(team);
        teardown(&f);
    }
    str_fini(&want);
    str_fini(&got);
    str_fini(&x);
}

TEST(out_of_memory_is_an_error)
{
    struct data_spec *spec = help_spec(many_kinds);
    const struct data_settings settings = {0};
    struct str x = {0}, example = {0};
    help_integer(&x, "label", 1);
    help_strings(&x, "h", "a b c d e f g h i j k l m n o p q r s t u v w x y z");
    help_field(&example, 1, x.text, x.bytes);
    const struct data_piece piece = {.bytes = (const uint8_t *)example.text,
                                     .count = (uint32_t)example.bytes};
    const size_t before = mem_bytes(MEM_DATA);
    for (uint64_t nth = 1;; nth++) {
        struct data_layout layout;
        struct data_batcher *batcher = NULL;
        const struct batch *batch = NULL;
        const struct data_broken *broken = NULL;
        uint32_t broken_count = 0;
        mem_fail_nth(nth);
        int rc = data_layout_init(&layout, spec, &settings, DATA_TFRECORD, NULL, &err);
        const bool has_layout = rc == 0;
        const struct data_batcher_opts opts = {.spec = spec, .layout = &layout, .rows_max = 3};
        if (rc == 0) rc = data_batcher_create(&opts, &batcher, &err);
        if (rc == 0) {
            rc = data_batcher_make(batcher, NULL, &piece, NULL, 1, &batch, &broken, &broken_count,
                                   &err);
        }
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        data_batcher_destroy(batcher);
        if (has_layout) data_layout_fini(&layout);
        CHECK_INT(mem_bytes(MEM_DATA), before);
        if (!failed) break;
    }
    data_spec_destroy(spec);
    str_fini(&x);
    str_fini(&example);
}
