#include "model/model.h"

#include <stdlib.h>

#include "../tests/test.h"
#include "base/mem.h"

static struct err err;

/* A job file's `model:` and `features:` while a test looks at them. */
struct made {
    struct config *config;
    struct data_spec *spec;
    struct model *model;
};

static int make(const char *text, struct made *made)
{
    *made = (struct made){0};
    CHECK_OK(config_parse("job.yaml", text, &made->config, &err));
    const struct config_node *root = config_root(made->config);
    int rc = data_spec_create(config_get(root, "features"), NULL, &made->spec, &err);
    if (rc == 0) {
        rc = model_create(config_get(root, "model"), data_spec_schema(made->spec), &made->model,
                          &err);
    }
    return rc;
}

static void unmake(struct made *made)
{
    model_destroy(made->model);
    data_spec_destroy(made->spec);
    config_destroy(made->config);
}

#define DIN_FEATURES                                                                               \
    "features:\n"                                                                                  \
    "  label: {kind: label}\n"                                                                     \
    "  user_id: {kind: hash, buckets: 10000}\n"                                                    \
    "  age: {kind: bucketize, boundaries: [18, 25, 36, 45, 55, 65, 80]}\n"                         \
    "  gender: {kind: hash, buckets: 100}\n"                                                       \
    "  item_id: {kind: hash, buckets: 100, embed: 16, table: item}\n"                              \
    "  clicked: {kind: hash, buckets: 100, sequence: true, pad: \"0\", table: item}\n"

#define CLICK_FEATURES                                                                             \
    "features:\n"                                                                                  \
    "  label: {kind: label}\n"                                                                     \
    "  weight: {kind: weight}\n"                                                                   \
    "  price: {kind: numeric, width: 3}\n"                                                         \
    "  age: {kind: numeric}\n"                                                                     \
    "  city: {kind: hash, buckets: 50, embed: 4}\n"                                                \
    "  shop: {kind: hash, buckets: 70, embed: 4}\n"                                                \
    "  tags: {kind: hash, buckets: 90, embed: 4, combiner: mean}\n"

struct want {
    const char *name;
    uint32_t rows;
    uint32_t cols;
};

static void check_params(const struct graph *graph, const struct want *want, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const graph_id id = graph_find(graph, want[i].name);
        if (id == GRAPH_NONE) test_fail(__FILE__, __LINE__, "no tensor %s", want[i].name);
        const struct graph_shape shape = graph_shape_of(graph, id);
        if (shape.cols != want[i].cols || (want[i].rows != 0 && shape.of != want[i].rows)) {
            test_fail(__FILE__, __LINE__, "%s is %u x %u, not %u x %u", want[i].name, shape.of,
                      shape.cols, want[i].rows, want[i].cols);
        }
    }
    CHECK_INT(graph_params_count(graph) + graph_tables_count(graph), count);
}
#define CHECK_PARAMS(model, ...)                                                                   \
    do {                                                                                           \
        const struct want want[] = {__VA_ARGS__};                                                  \
        check_params((model)->graph, want, sizeof want / sizeof want[0]);                          \
    } while (0)

/* The tensors that checkpoints of the reference hold, with their shapes. rows 0: a table's. */
TEST(din_has_the_tensors_of_the_reference)
{
    struct made made;
    CHECK_OK(make(
        "model: {type: din, attention: [16, 8], hidden: [64, 16], dropout: 0.3}\n" DIN_FEATURES,
        &made));
    CHECK_PARAMS(made.model, {"user_id/embedding", 0, 16}, {"age/embedding", 0, 2},
                 {"gender/embedding", 0, 4}, {"item/embedding", 0, 16},
                 {"attention/0/weight", 64, 16}, {"attention/0/bias", 1, 16},
                 {"attention/1/weight", 16, 8}, {"attention/1/bias", 1, 8},
                 {"attention/2/weight", 8, 1}, {"attention/2/bias", 1, 1},
                 {"hidden/0/weight", 54, 64}, {"hidden/0/bias", 1, 64}, {"hidden/1/weight", 64, 16},
                 {"hidden/1/bias", 1, 16}, {"output/weight", 16, 1}, {"output/bias", 1, 1});
    CHECK_INT(made.model->task, MODEL_BINARY);
    CHECK_INT(graph_shape_of(made.model->graph, made.model->probability).cols, 1);
    for (uint32_t i = 0; i < graph_tables_count(made.model->graph); i++) {
        const struct graph_variable *table = graph_table_at(made.model->graph, i);
        const bool item = strcmp(table->name, "item/embedding") == 0;
        CHECK_INT(table->init.kind, item ? INIT_UNIFORM : INIT_TRUNCATED_NORMAL);
        CHECK_NEAR(table->init.value, item ? sqrt(6.0 / 116.0) : 1.0 / sqrt(table->cols), 1e-6);
        CHECK(made.model->table_rules[i] == NULL);
    }
    unmake(&made);
}

TEST(din_without_history_lacks_only_attention)
{
    struct made made;
    CHECK_OK(make("model: {type: din, history: false}\n" DIN_FEATURES, &made));
    CHECK_PARAMS(made.model, {"user_id/embedding", 0, 16}, {"age/embedding", 0, 2},
                 {"gender/embedding", 0, 4}, {"item/embedding", 0, 16}, {"hidden/0/weight", 38, 64},
                 {"hidden/0/bias", 1, 64}, {"hidden/1/weight", 64, 16}, {"hidden/1/bias", 1, 16},
                 {"output/weight", 16, 1}, {"output/bias", 1, 1});
    unmake(&made);
}

TEST(din_takes_several_histories_with_a_target_each)
{
    struct made made;
    CHECK_OK(make("model: {type: din, attention: [6], hidden: [4], classes: 3}\n"
                  "features:\n"
                  "  label: {kind: label}\n"
                  "  item: {kind: hash, buckets: 10, embed: 4}\n"
                  "  items: {kind: hash, buckets: 10, sequence: true, embed: 4, table: item}\n"
                  "  shop: {kind: hash, buckets: 10, embed: 2}\n"
                  "  shops: {kind: hash, buckets: 10, sequence: true, embed: 2, table: shop}\n"
                  "  hour: {kind: numeric}\n",
                  &made));
    CHECK_PARAMS(made.model, {"item/embedding", 0, 4}, {"shop/embedding", 0, 2},
                 {"attention/items/0/weight", 16, 6}, {"attention/items/0/bias", 1, 6},
                 {"attention/items/1/weight", 6, 1}, {"attention/items/1/bias", 1, 1},
                 {"attention/shops/0/weight", 8, 6}, {"attention/shops/0/bias", 1, 6},
                 {"attention/shops/1/weight", 6, 1}, {"attention/shops/1/bias", 1, 1},
                 {"hidden/0/weight", 13, 4}, {"hidden/0/bias", 1, 4}, {"output/weight", 4, 3},
                 {"output/bias", 1, 3});
    CHECK_INT(made.model->task, MODEL_CLASSES);
    unmake(&made);
}

TEST(mlp_has_the_tensors_of_the_reference)
{
    struct made made;
    CHECK_OK(make("model: {type: mlp, hidden: [64, 32], classes: 10}\n"
                  "features: {label: {kind: label}, image: {kind: numeric, width: 784}}\n",
                  &made));
    CHECK_PARAMS(made.model, {"hidden/0/weight", 784, 64}, {"hidden/0/bias", 1, 64},
                 {"hidden/1/weight", 64, 32}, {"hidden/1/bias", 1, 32}, {"output/weight", 32, 10},
                 {"output/bias", 1, 10});
    CHECK_INT(graph_param_at(made.model->graph, 1)->rows, 0); /* A bias has one dimension. */
    CHECK_INT(made.model->classes, 10);
    unmake(&made);
}

TEST(wide_deep_wishes_ftrl_for_its_wide_part)
{
    struct made made;
    CHECK_OK(make("model: {type: wide_deep, wide: [city, tags], deep: [age, shop, city], "
                  "hidden: [8]}\n" CLICK_FEATURES,
                  &made));
    CHECK_PARAMS(made.model, {"linear/city/embedding", 0, 1}, {"linear/tags/embedding", 0, 1},
                 {"linear/bias", 1, 1}, {"city/embedding", 0, 4}, {"shop/embedding", 0, 4},
                 {"hidden/0/weight", 9, 8}, {"hidden/0/bias", 1, 8}, {"output/weight", 8, 1},
                 {"output/bias", 1, 1});
    const struct graph *graph = made.model->graph;
    for (uint32_t i = 0; i < graph_tables_count(graph); i++) {
        const bool wide = strncmp(graph_table_at(graph, i)->name, "linear/", 7) == 0;
        CHECK((made.model->table_rules[i] != NULL) == wide);
    }
    for (uint32_t i = 0; i < graph_params_count(graph); i++) {
        const bool wide = strncmp(graph_param_at(graph, i)->name, "linear/", 7) == 0;
        CHECK((made.model->param_rules[i] != NULL) == wide);
        if (wide) CHECK_STR(made.model->param_rules[i], "ftrl");
    }
    unmake(&made);
}

TEST(other_models_have_their_tensors)
{
    struct made made;
    CHECK_OK(make("model: {type: softmax}\n" CLICK_FEATURES, &made));
    CHECK_PARAMS(made.model, {"city/embedding", 0, 4}, {"shop/embedding", 0, 4},
                 {"tags/embedding", 0, 4}, {"output/weight", 16, 1}, {"output/bias", 1, 1});
    CHECK_INT(made.model->task, MODEL_BINARY);
    unmake(&made);
    CHECK_OK(make("model: {type: linear}\n"
                  "features: {label: {kind: label}, x1: {kind: numeric}, x2: {kind: numeric}}\n",
                  &made));
    CHECK_PARAMS(made.model, {"linear/x1/weight", 1, 1}, {"linear/x2/weight", 1, 1},
                 {"linear/bias", 1, 1});
    CHECK_INT(made.model->task, MODEL_REGRESSION);
    unmake(&made);
    CHECK_OK(make("model: {type: deepfm, hidden: [8]}\n" CLICK_FEATURES, &made));
    CHECK_PARAMS(made.model, {"linear/city/embedding", 0, 1}, {"linear/shop/embedding", 0, 1},
                 {"linear/tags/embedding", 0, 1}, {"linear/age/weight", 1, 1},
                 {"linear/price/weight", 3, 1}, {"linear/bias", 1, 1}, {"city/embedding", 0, 4},
                 {"shop/embedding", 0, 4}, {"tags/embedding", 0, 4}, {"age/factors", 1, 4},
                 {"price/factors", 3, 4}, {"hidden/0/weight", 20, 8}, {"hidden/0/bias", 1, 8},
                 {"output/weight", 8, 1}, {"output/bias", 1, 1});
    unmake(&made);
    CHECK_OK(make("model: {type: dlrm, bottom: [5], top: [6], dim: 8}\n" CLICK_FEATURES, &made));
    CHECK_PARAMS(made.model, {"city/embedding", 0, 8}, {"shop/embedding", 0, 8},
                 {"tags/embedding", 0, 8}, {"bottom/0/weight", 4, 5}, {"bottom/0/bias", 1, 5},
                 {"bottom/1/weight", 5, 8}, {"bottom/1/bias", 1, 8}, {"top/0/weight", 14, 6},
                 {"top/0/bias", 1, 6}, {"output/weight", 6, 1}, {"output/bias", 1, 1});
    unmake(&made);
}

/* Every mistake names its place, what was found, and what would do. */
TEST(mistakes_are_reported_where_they_are)
{
    static const struct {
        const char *text;
        const char *wants[3];
    } rows[] = {
        {"model: {hidden: [3]}\n" DIN_FEATURES, {"job.yaml:1", "type", "din"}},
        {"model: {type: dinn}\n" DIN_FEATURES, {"job.yaml:1:15", "dinn", "din"}},
        {"model: {type: din, hiden: [3]}\n" DIN_FEATURES, {"job.yaml:1:20", "hiden", "hidden"}},
        {"model: {type: din, hidden: [0]}\n" DIN_FEATURES, {"job.yaml:1:29", "0", "65536"}},
        {"model: {type: din, dropout: 1}\n" DIN_FEATURES, {"job.yaml:1:29", "1", "0.99"}},
        {"model: {type: din}\n" CLICK_FEATURES, {"job.yaml:1", "sequence: true", "history: false"}},
        {"model: {type: mlp}\nfeatures: {x: {kind: numeric}}\n", {"job.yaml:1", "label", "mlp"}},
        {"model: {type: mlp}\nfeatures: {y: {kind: label}}\n", {"job.yaml:1", "no features", ""}},
        {"model: {type: wide_deep, wide: [citi]}\n" CLICK_FEATURES,
         {"job.yaml:1:33", "citi", "city"}},
        {"model: {type: wide_deep, deep: 3}\n" CLICK_FEATURES, {"job.yaml:1:32", "list", ""}},
        {"model: {type: fm}\n" DIN_FEATURES, {"job.yaml:1", "one width", "dim"}},
        {"model: {type: fm, classes: 3}\n" CLICK_FEATURES, {"job.yaml:1:19", "classes", ""}},
        {"model: {type: dlrm}\nfeatures: {y: {kind: label}, a: {kind: hash, buckets: 9}}\n",
         {"job.yaml:1", "two categorical", ""}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct made made;
        const int rc = make(rows[i].text, &made);
        if (rc != SHOAL_ECONFIG) {
            test_fail(__FILE__, __LINE__, "row %zu: %d: %s", i, rc, rc == 0 ? "" : err.text);
        }
        for (int w = 0; w < 3; w++) CHECK_HAS(err.text, rows[i].wants[w]);
        unmake(&made);
    }
}

/* The history's table must say which feature is the candidate. */
TEST(din_asks_for_a_target_when_two_would_do)
{
    const char *features =
        DIN_FEATURES "  other_id: {kind: hash, buckets: 100, embed: 16, table: item}\n";
    char text[2048];
    struct made made;
    snprintf(text, sizeof text, "model: {type: din}\n%s", features);
    CHECK_INT(make(text, &made), SHOAL_ECONFIG);
    CHECK_HAS(err.text, "target:");
    unmake(&made);
    snprintf(text, sizeof text, "model: {type: din, target: other_id}\n%s", features);
    CHECK_OK(make(text, &made));
    unmake(&made);
}

TEST(creation_survives_every_failed_allocation)
{
    struct config *config = NULL;
    struct data_spec *spec = NULL;
    CHECK_OK(config_parse("job.yaml", "model: {type: din}\n" DIN_FEATURES, &config, &err));
    const struct config_node *root = config_root(config);
    CHECK_OK(data_spec_create(config_get(root, "features"), NULL, &spec, &err));
    const size_t before = mem_bytes_total();
    for (uint64_t nth = 1;; nth++) {
        struct model *model = NULL;
        mem_fail_nth(nth);
        const int rc =
            model_create(config_get(root, "model"), data_spec_schema(spec), &model, &err);
        const bool failed = mem_fail_nth(0);
        model_destroy(model);
        CHECK_INT(mem_bytes_total(), before);
        if (!failed) {
            CHECK_INT(rc, 0);
            break;
        }
        CHECK_INT(rc, SHOAL_ENOMEM);
    }
    data_spec_destroy(spec);
    config_destroy(config);
}
