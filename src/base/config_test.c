#include "base/config.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../tests/test.h"
#include "base/bounds.h"
#include "base/mem.h"

static const char job[] = "# a job\n"
                          "model_dir: out/din\n"
                          "model: {type: din, hidden: [64, 16], dropout: 0.3}\n"
                          "features:\n"
                          "  label: {kind: label}\n"
                          "  age:\n"
                          "    kind: bucketize\n"
                          "    boundaries: [18, 25.5, 1e2]\n"
                          "  pad: {pad: \"0\", text: 'two words'}\n"
                          "data:\n"
                          "  batch_size: 512\n"
                          "  shuffle: 10_000\n"
                          "  epochs:\n"
                          "train: {max_steps: 1e3, seed: 18446744073709551615, summary: yes}\n";

static struct config *parse(const char *text)
{
    struct err err = {0};
    struct config *config = NULL;
    CHECK_OK(config_parse("job.yaml", text, &config, &err));
    return config;
}

static const struct config_node *get(const struct config *config, const char *key)
{
    return config_get(config_root(config), key);
}

/* The tree has what the text has, in its order. */
TEST(tree_is_the_text)
{
    struct config *config = parse(job);
    const struct config_node *root = config_root(config);
    CHECK_INT(config_kind(root), CONFIG_MAP);
    CHECK_INT(config_count(root), 5);
    CHECK_STR(config_key_at(root, 0), "model_dir");
    CHECK_STR(config_scalar(config_at(root, 0)), "out/din");
    const struct config_node *hidden = config_get(get(config, "model"), "hidden");
    CHECK_INT(config_kind(hidden), CONFIG_LIST);
    CHECK_INT(config_count(hidden), 2);
    CHECK_STR(config_scalar(config_at(hidden, 1)), "16");
    CHECK(config_scalar(hidden) == NULL);
    const struct config_node *pad = config_get(get(config, "features"), "pad");
    CHECK(config_is_quoted(config_get(pad, "pad")));
    CHECK_STR(config_scalar(config_get(pad, "text")), "two words");
    CHECK(!config_is_quoted(config_get(get(config, "data"), "batch_size")));
    CHECK(get(config, "absent") == NULL);
    CHECK(config_get(NULL, "x") == NULL);
    CHECK(config_get(hidden, "x") == NULL);
    CHECK(config_scalar(NULL) == NULL);
    CHECK_INT(config_count(NULL), 0);
    config_destroy(config);
    config_destroy(NULL);
}

/* Typed reads accept the usual spellings, and leave the default where nothing is given. */
TEST(values_are_read)
{
    struct err err = {0};
    struct config *config = parse(job);
    const struct config_node *data = get(config, "data");
    const struct config_node *train = get(config, "train");
    uint32_t batch_size = 1, shuffle = 1, epochs = 77, max_steps = 0;
    CHECK_OK(config_read_u32(data, "batch_size", 1, 1048576, &batch_size, &err));
    CHECK_INT(batch_size, 512);
    CHECK_OK(config_read_u32(data, "shuffle", 0, UINT32_MAX, &shuffle, &err));
    CHECK_INT(shuffle, 10000);
    CHECK_OK(config_read_u32(data, "epochs", 1, 2, &epochs, &err)); /* null: absent */
    CHECK_INT(epochs, 77);
    CHECK_OK(config_read_u32(train, "max_steps", 0, 1000, &max_steps, &err));
    CHECK_INT(max_steps, 1000);
    uint64_t seed = 0;
    CHECK_OK(config_read_u64(train, "seed", 0, UINT64_MAX, &seed, &err));
    CHECK(seed == UINT64_MAX);
    double dropout = 0;
    CHECK_OK(config_read_f64(get(config, "model"), "dropout", 0, 1, &dropout, &err));
    CHECK_NEAR(dropout, 0.3, 0);
    bool summary = false;
    CHECK_OK(config_read_bool(train, "summary", &summary, &err));
    CHECK(summary);
    const char *dir = NULL;
    CHECK_OK(config_read_string(config_root(config), "model_dir", &dir, &err));
    CHECK_STR(dir, "out/din");
    static const char *const types[] = {"mlp", "din"};
    uint32_t type = 9;
    CHECK_OK(config_read_choice(get(config, "model"), "type", types, 2, &type, &err));
    CHECK_INT(type, 1);
    double *boundaries = NULL;
    size_t count = 0;
    const struct config_node *age = config_get(get(config, "features"), "age");
    CHECK_OK(config_read_f64_list(age, "boundaries", -1e9, 1e9, &boundaries, &count, &err));
    CHECK_INT(count, 3);
    CHECK_NEAR(boundaries[1], 25.5, 0);
    CHECK_NEAR(boundaries[2], 100, 0);
    mem_free(boundaries);
    uint32_t *hidden = NULL;
    CHECK_OK(config_read_u32_list(get(config, "model"), "hidden", 1, 4096, &hidden, &count, &err));
    CHECK_INT(count, 2);
    CHECK_INT(hidden[0], 64);
    mem_free(hidden);
    hidden = NULL;
    count = 5;
    CHECK_OK(config_read_u32_list(data, "batch_size", 1, 4096, &hidden, &count, &err));
    CHECK_INT(count, 1); /* a single number is a list of one */
    mem_free(hidden);
    hidden = NULL;
    CHECK_OK(config_read_u32_list(data, "absent", 1, 4096, &hidden, &count, &err));
    CHECK(hidden == NULL && count == 1);
    config_destroy(config);
}

/* Whole numbers: each spelling that is one, and each that is none or outside. */
TEST(whole_numbers_at_their_edges)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t want;
    } rows[] = {{"1", true, 1},
                {"100", true, 100},
                {"1e2", true, 100},
                {"10.0", true, 10},
                {"1_0", true, 10},
                {"0", false, 0},
                {"101", false, 0},
                {"-1", false, 0},
                {"1.5", false, 0},
                {"1_", false, 0},
                {"_1", false, 0},
                {"0x10", false, 0},
                {"1e", false, 0},
                {"1e400", false, 0},
                {"nan", false, 0},
                {".inf", false, 0},
                {"\"5\"", false, 0},
                {"18446744073709551616", false, 0},
                {"[5]", false, 0},
                {"{a: 5}", false, 0},
                {"five", false, 0},
                {"true", false, 0},
                {"1 2", false, 0},
                {"00000000000000000000000000000000000000000000000000000000000000005", false, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[128];
        struct err err = {0};
        snprintf(text, sizeof text, "n: %s", rows[i].text);
        struct config *config = parse(text);
        uint64_t got = 42;
        const int rc = config_read_u64(config_root(config), "n", 1, 100, &got, &err);
        if ((rc == 0) != rows[i].good || got != (rows[i].good ? rows[i].want : 42)) {
            test_fail(__FILE__, __LINE__, "%s: rc %d, got %llu: %s", rows[i].text, rc,
                      (unsigned long long)got, err.text);
        }
        config_destroy(config);
    }
}

/* Calls one read after another on a text; what each says of it is in the tables below. */
static int read_as(const struct config_node *root, const char *as, struct err *err)
{
    static const char *const choices[] = {"adagrad", "adam", "sgd"};
    static const char *const keys[] = {"batch_size", "shuffle", "train"};
    uint64_t u64 = 0;
    uint32_t u32 = 0;
    double f64 = 0;
    bool flag = false;
    const char *text = NULL;
    double *list = NULL;
    size_t count = 0;
    const struct config_node *data = config_get(root, "data");
    if (strcmp(as, "u64") == 0) return config_read_u64(data, "x", 1, UINT64_MAX, &u64, err);
    if (strcmp(as, "u32") == 0) return config_read_u32(data, "x", 1, 1048576, &u32, err);
    if (strcmp(as, "f64") == 0) return config_read_f64(data, "x", 0, 1, &f64, err);
    if (strcmp(as, "f64 up") == 0) return config_read_f64(data, "x", 0, INFINITY, &f64, err);
    if (strcmp(as, "f64 down") == 0) return config_read_f64(data, "x", -INFINITY, 0, &f64, err);
    if (strcmp(as, "f64 any") == 0)
        return config_read_f64(data, "x", -INFINITY, INFINITY, &f64, err);
    if (strcmp(as, "bool") == 0) return config_read_bool(data, "x", &flag, err);
    if (strcmp(as, "string") == 0) return config_read_string(data, "x", &text, err);
    if (strcmp(as, "choice") == 0) return config_read_choice(data, "x", choices, 3, &u32, err);
    if (strcmp(as, "list") == 0) return config_read_f64_list(data, "x", 0, 9, &list, &count, err);
    if (strcmp(as, "keys") == 0) return config_check_keys(data, keys, 3, err);
    test_fail(__FILE__, __LINE__, "no such read: %s", as);
}

/* Each mistake is reported with its place, what was found and what is wanted. */
TEST(mistakes_are_told_with_their_place)
{
    static const struct {
        const char *text, *as, *want;
    } rows[] = {
        {"data:\n  x: abc\n", "u32",
         "job.yaml:2:6: data.x: found \"abc\"; a whole number from 1 to 1048576 is wanted"},
        {"data: {x: 0}", "u64",
         "job.yaml:1:11: data.x: found \"0\"; a whole number from 1 up is wanted"},
        {"data: {x: \"7\"}", "u32",
         "job.yaml:1:11: data.x: found \"7\" in quotes; a whole number from 1 to 1048576 is "
         "wanted"},
        {"data: {x: 1.5}", "f64",
         "job.yaml:1:11: data.x: found \"1.5\"; a number from 0 to 1 is wanted"},
        {"data: {x: -1}", "f64 up",
         "job.yaml:1:11: data.x: found \"-1\"; a number from 0 up is wanted"},
        {"data: {x: 1}", "f64 down",
         "job.yaml:1:11: data.x: found \"1\"; a number up to 0 is wanted"},
        {"data: {x: z}", "f64 any", "job.yaml:1:11: data.x: found \"z\"; a number is wanted"},
        {"data: {x: nan}", "f64 any", "job.yaml:1:11: data.x: found \"nan\"; a number is wanted"},
        {"data: {x: [1]}", "f64 any", "job.yaml:1:8: data.x: found a list; a number is wanted"},
        {"data: {x: maybe}", "bool",
         "job.yaml:1:11: data.x: found \"maybe\"; true or false is wanted"},
        {"data: {x: {a: 1}}", "string",
         "job.yaml:1:8: data.x: found a map of settings; a text is wanted"},
        {"data: {x: adagard}", "choice",
         "job.yaml:1:11: data.x: found \"adagard\"; did you mean \"adagrad\"? allowed: adagrad, "
         "adam, sgd"},
        {"data: {x: zzz}", "choice",
         "job.yaml:1:11: data.x: found \"zzz\"; allowed: adagrad, adam, sgd"},
        {"data: {x: [1]}", "choice",
         "job.yaml:1:8: data.x: found a list; allowed: adagrad, adam, sgd"},
        {"data: {x: [1, 2, 11]}", "list",
         "job.yaml:1:18: data.x.2: found \"11\"; a number from 0 to 9 is wanted"},
        {"data: {x: {a: 1}}", "list",
         "job.yaml:1:8: data.x: found a map of settings; a list of numbers is wanted"},
        {"data:\n  shufle: 3\n", "keys",
         "job.yaml:2:3: data: unknown key \"shufle\"; did you mean \"shuffle\"? allowed: "
         "batch_size, "
         "shuffle, train"},
        {"data:\n  zebra: 3\n", "keys",
         "job.yaml:2:3: data: unknown key \"zebra\"; allowed: batch_size, shuffle, train"},
        {"data: 3", "keys",
         "job.yaml:1:7: data: found \"3\"; a map of settings (key: value) is wanted"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        struct config *config = parse(rows[i].text);
        CHECK_INT(read_as(config_root(config), rows[i].as, &err), SHOAL_ECONFIG);
        CHECK_STR(err.text, rows[i].want);
        config_destroy(config);
    }
}

/* Errors of one's own: at a scalar, at the key of a map, at the root, and without a node. */
TEST(own_errors_have_a_place)
{
    struct err err = {0};
    struct config *config = parse(job);
    CHECK_INT(config_error(get(config, "data"), &err, "%s is missing", "train"), SHOAL_ECONFIG);
    CHECK_STR(err.text, "job.yaml:10:1: data: train is missing");
    config_error(config_get(get(config, "data"), "batch_size"), &err, "no");
    CHECK_STR(err.text, "job.yaml:11:15: data.batch_size: no");
    config_error(config_root(config), &err, "no");
    CHECK_STR(err.text, "job.yaml:2:1: no");
    config_error(NULL, &err, "no");
    CHECK_STR(err.text, "no");
    CHECK_INT(config_error(NULL, NULL, "no"), SHOAL_ECONFIG);
    config_destroy(config);
}

/* What is no job file is refused with words that help. */
TEST(bad_texts_are_refused)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"a: 1\nb: 2\na: 3\n", "job.yaml:3:1: \"a\" is given twice, first at line 1"},
        {"- 1\n- 2\n", "job.yaml:1:1: a job file is a map of settings (key: value)"},
        {"just text", "job.yaml:1:1: a job file is a map of settings (key: value)"},
        {"a: [1, 2", "not valid YAML: did not find expected ',' or ']', while parsing a flow "
                     "sequence from line 1"},
        {"a: b: c", "job.yaml:1:5: not valid YAML: "},
        {"a: *x", "job.yaml:1:4: no anchor of this name before: *x"},
        {"a: &x [1, *x]", "an alias inside what it names: *x"},
        {"a: !tag 3", "tags (!) are not supported"},
        {"a: !tag {b: 3}", "tags (!) are not supported"},
        {"? [1, 2]\n: 3\n", "a key must be plain text"},
        {"a: &x b\n*x : 3\n", "a key must be plain text, not an alias: *x"},
        {"a: {'': 3}", "job.yaml:1:5: an empty key"},
        {"%YAML 9.9\n---\na: 1\n", "job.yaml:1:1: not valid YAML"},
        {"a: 1\nb: \xff\n", "job.yaml:2:4: a byte that is no UTF-8 text"},
        {"a: \x01", "job.yaml:1:4: a control character"},
        {"&x a: 3\n", "an anchor on a key"},
        {"a: 1\n---\nb: 2\n", "a second document"},
        {"a: \"x\\0y\"", "a NUL character"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        struct config *config = NULL;
        CHECK_INT(config_parse("job.yaml", rows[i].text, &config, &err), SHOAL_ECONFIG);
        CHECK_HAS(err.text, rows[i].want);
        CHECK(config == NULL);
    }
}

/* Nothing but comments, or nothing at all, is an empty map. */
TEST(empty_texts_are_empty_maps)
{
    static const char *const texts[] = {"", "# nothing\n", "---\n", "~\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct config *config = parse(texts[i]);
        CHECK_INT(config_count(config_root(config)), 0);
        config_destroy(config);
    }
}

/* An alias is a copy of what it names; the last anchor of a name counts. */
TEST(aliases_are_copies)
{
    struct config *config = parse("a: &x {k: [1, 2]}\nb: *x\nc: &x 5\nd: [*x, *x]\n");
    CHECK_STR(config_scalar(config_at(config_get(get(config, "b"), "k"), 1)), "2");
    CHECK(get(config, "b") != get(config, "a"));
    CHECK_STR(config_scalar(config_at(get(config, "d"), 1)), "5");
    struct err err = {0};
    config_error(config_get(get(config, "b"), "k"), &err, "here");
    CHECK_STR(err.text, "job.yaml:1:8: b.k: here");
    config_destroy(config);
}

/* Depth, keys and aliases that multiply end at their bounds, as errors. */
TEST(bounds_hold)
{
    struct err err = {0};
    struct config *config = NULL;
    static char text[1 << 20];
    memset(text, '[', 1000);
    memcpy(text, "a: ", 3);
    text[1000] = '\0';
    CHECK_INT(config_parse("job.yaml", text, &config, &err), SHOAL_ECONFIG);
    CHECK_HAS(err.text, "nested too deeply");

    /* The deepest that is allowed. */
    size_t used = (size_t)sprintf(text, "a: ");
    for (unsigned i = 0; i < CONFIG_DEPTH_MAX - 2; i++) text[used++] = '[';
    for (unsigned i = 0; i < CONFIG_DEPTH_MAX - 2; i++) text[used++] = ']';
    text[used] = '\0';
    CHECK_OK(config_parse("job.yaml", text, &config, &err));
    char *json = NULL;
    CHECK_OK(config_to_json(config_root(config), &json, &err));
    mem_free(json);
    config_destroy(config);

    /* Nine aliases of nine aliases of ... */
    used = (size_t)sprintf(text, "a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 9; i++) {
        used += (size_t)sprintf(text + used, "a%d: &a%d [", i, i);
        for (int k = 0; k < 9; k++)
            used += (size_t)sprintf(text + used, "%s*a%d", k > 0 ? ", " : "", i - 1);
        used += (size_t)sprintf(text + used, "]\n");
    }
    CHECK_INT(config_parse("job.yaml", text, &config, &err), SHOAL_ECONFIG);
    CHECK_HAS(err.text, "too much to copy for the alias");

    used = 0;
    for (unsigned i = 0; i <= CONFIG_KEYS_MAX; i++)
        used += (size_t)sprintf(text + used, "k%u: 1\n", i);
    CHECK_INT(config_parse("job.yaml", text, &config, &err), SHOAL_ECONFIG);
    CHECK_HAS(err.text, "too many keys in one map");

    used = (size_t)sprintf(text, "a: [");
    for (unsigned i = 0; i <= CONFIG_ANCHORS_MAX; i++)
        used += (size_t)sprintf(text + used, "&a%u 1, ", i);
    sprintf(text + used, "1]\n");
    CHECK_INT(config_parse("job.yaml", text, &config, &err), SHOAL_ECONFIG);
    CHECK_HAS(err.text, "too many anchors");
}

/* --set replaces, adds, makes maps on the way, and reaches into lists. */
TEST(set_edits_the_tree)
{
    struct err err = {0};
    struct config *config = parse(job);
    static const char *const sets[] = {"data.batch_size=32",
                                       "train.optimizer.type=adam",
                                       "model.hidden.1=[1, 2]",
                                       "model.hidden.2=8",
                                       "data.train=*.gz",
                                       "data.epochs=2",
                                       "model_dir=",
                                       "features={a: {kind: hash}}",
                                       "data.eval=a=b",
                                       "data.make=-"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        CHECK_OK(config_set(config, sets[i], &err));
    }
    char *json = NULL;
    CHECK_OK(config_to_json(config_root(config), &json, &err));
    CHECK_STR(
        json,
        "{\"model_dir\": null, \"model\": {\"type\": \"din\", \"hidden\": [64, [1, 2], 8], "
        "\"dropout\": 0.3}, \"features\": {\"a\": {\"kind\": \"hash\"}}, \"data\": "
        "{\"batch_size\": 32, \"shuffle\": 10000, \"epochs\": 2, \"train\": \"*.gz\", "
        "\"eval\": \"a=b\", \"make\": \"-\"}, \"train\": {\"max_steps\": 1000, \"seed\": "
        "\"18446744073709551615\", \"summary\": \"yes\", \"optimizer\": {\"type\": \"adam\"}}}");
    mem_free(json);
    CHECK(get(config, "model_dir") == NULL); /* null: absent */
    config_destroy(config);
}

/* Mistakes in --set name the flag. */
TEST(set_mistakes_name_the_flag)
{
    static const struct {
        const char *set, *want;
    } rows[] = {
        {"data.batch_size", "--set data.batch_size: path.to.key=value is wanted"},
        {"=3", "--set =3: path.to.key=value is wanted"},
        {".a=3", "--set .a=3: path.to.key=value is wanted"},
        {"a.=3", "--set a.=3: path.to.key=value is wanted"},
        {"a..b=3", "--set a..b=3: path.to.key=value is wanted"},
        {"data.batch_size.x=3", "--set data.batch_size.x: a single value, not a map: batch_size"},
        {"model.hidden.7=3", "--set model.hidden.7: no place \"7\": the list has elements 0 to 2"},
        {"model.hidden.x=3", "--set model.hidden.x: no place \"x\": the list has elements 0 to 2"},
        {"a=[1", "--set a: not valid YAML: did not find expected ',' or ']', while parsing a flow "
                 "sequence from line 1"},
        {"a={b: 1, b: 2}", "--set a: \"b\" is given twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        struct config *config = parse(job);
        char *before = NULL, *after = NULL;
        CHECK_OK(config_to_json(config_root(config), &before, &err));
        CHECK_INT(config_set(config, rows[i].set, &err), SHOAL_ECONFIG);
        CHECK_HAS(err.text, rows[i].want);
        CHECK_OK(config_to_json(config_root(config), &after, &err));
        CHECK_STR(after, before);
        mem_free(before);
        mem_free(after);
        config_destroy(config);
    }
    struct err err = {0};
    struct config *config = parse(job);
    CHECK_OK(config_set(config, "data.x=abc", &err));
    CHECK_INT(read_as(config_root(config), "u32", &err), SHOAL_ECONFIG);
    CHECK_STR(err.text, "--set data.x: found \"abc\"; a whole number from 1 to 1048576 is wanted");
    CHECK_OK(config_set(config, "data={x: abc}", &err));
    CHECK_INT(read_as(config_root(config), "u32", &err), SHOAL_ECONFIG);
    CHECK_STR(err.text,
              "--set data: data.x: found \"abc\"; a whole number from 1 to 1048576 is wanted");
    config_destroy(config);
}

/* Scalars keep their JSON type: quoted numbers stay texts. */
TEST(json_keeps_types)
{
    struct err err = {0};
    struct config *config =
        parse("{a: 1, b: \"1\", c: true, d: ~, e: -2, f: 1.25, g: [null, x], h: {}}");
    char *json = NULL;
    CHECK_OK(config_to_json(config_root(config), &json, &err));
    CHECK_STR(json,
              "{\"a\": 1, \"b\": \"1\", \"c\": true, \"d\": null, \"e\": -2, \"f\": 1.25, \"g\": "
              "[null, \"x\"], \"h\": {}}");
    mem_free(json);
    config_destroy(config);
}

/* Files: read whole; an absent one, a folder and a binary are told apart. */
TEST(files_are_loaded)
{
    struct err err = {0};
    struct config *config = NULL;
    FILE *file = fopen("a.yaml", "w");
    fputs("x:\n  y: [\n", file);
    fclose(file);
    CHECK_INT(config_load("a.yaml", &config, &err), SHOAL_ECONFIG);
    CHECK_HAS(err.text, "a.yaml:3:1: not valid YAML");
    file = fopen("a.yaml", "w");
    for (int i = 0; i < 3000; i++) fprintf(file, "key%d: %d\n", i, i);
    fclose(file);
    CHECK_OK(config_load("a.yaml", &config, &err));
    CHECK_INT(config_count(config_root(config)), 3000);
    config_destroy(config);
    CHECK_INT(config_load("absent.yaml", &config, &err), SHOAL_ENOENT);
    CHECK_HAS(err.text, "open job file absent.yaml: ");
    CHECK_INT(config_load(".", &config, &err), SHOAL_EIO);
    CHECK_INT(config_load("/dev/zero", &config, &err), SHOAL_ECONFIG);
    CHECK_HAS(err.text, "NUL bytes");
}

/* Whichever allocation fails, nothing is left behind. */
TEST(every_failed_allocation_is_survived)
{
    FILE *file = fopen("a.yaml", "w");
    fputs("a: &x {b: [1, 2, 3, 4, 5, 6]}\nc: *x\n", file);
    fclose(file);
    for (uint64_t nth = 1;; nth++) {
        struct err err = {0};
        struct config *config = NULL;
        double *list = NULL;
        char *json = NULL;
        size_t count = 0;
        const size_t bytes = mem_bytes_total();
        mem_fail_nth(nth);
        int rc = config_load("a.yaml", &config, &err);
        if (rc == 0) rc = config_set(config, "d.e.f=[1, 2]", &err);
        if (rc == 0) rc = config_read_f64_list(get(config, "a"), "b", 0, 9, &list, &count, &err);
        if (rc == 0) rc = config_to_json(config_root(config), &json, &err);
        const bool failed = mem_fail_nth(0);
        CHECK((rc != 0) == failed);
        if (failed) CHECK_INT(rc, SHOAL_ENOMEM);
        mem_free(json);
        mem_free(list);
        config_destroy(config);
        CHECK_INT(mem_bytes_total(), bytes);
        if (!failed) break;
    }
}
