#include "model/model.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/model_build.h"

#define KEYS_MAX 8

struct type {
    model_build_cb *build;
    const char *keys[KEYS_MAX]; /* beyond `type` and `classes` */
};

/* name, settings. */
#define TYPE_LIST(X)                                                                               \
    X(din, "attention", "hidden", "dropout", "history", "target")                                  \
    X(mlp, "hidden", "dropout")                                                                    \
    X(softmax, NULL)                                                                               \
    X(linear, NULL)                                                                                \
    X(fm, "dim")                                                                                   \
    X(wide_deep, "wide", "deep", "hidden", "dropout")                                              \
    X(deepfm, "dim", "hidden", "dropout")                                                          \
    X(dlrm, "dim", "bottom", "top", "dropout")

static const struct type types[] = {
#define X(name, ...) {model_build_##name, {__VA_ARGS__}},
    TYPE_LIST(X)
#undef X
};
#define TYPES_COUNT (sizeof types / sizeof types[0])

static const char *const type_names[TYPES_COUNT + 1] = {
#define X(name, ...) #name,
    TYPE_LIST(X)
#undef X
};

const char *const *model_types(void)
{
    return type_names;
}

/* Models of one number have no classes. */
static bool takes_classes(const struct type *type)
{
    return type->build == model_build_din || type->build == model_build_mlp ||
           type->build == model_build_softmax;
}

static int read_type(const struct config_node *node, uint32_t *type_out, struct err *err)
{
    if (node == NULL || config_kind(node) != CONFIG_MAP || config_get(node, "type") == NULL) {
        return config_error(node, err,
                            "model: a `type` is needed: din, mlp, softmax, linear, fm, "
                            "wide_deep, deepfm or dlrm");
    }
    return config_read_choice(node, "type", type_names, TYPES_COUNT, type_out, err);
}

static int read_common(struct build *build, const struct type *type, struct err *err)
{
    const char *allowed[KEYS_MAX + 2] = {"type"};
    size_t count = 1;
    if (takes_classes(type)) allowed[count++] = "classes";
    for (size_t i = 0; i < KEYS_MAX && type->keys[i] != NULL; i++) allowed[count++] = type->keys[i];
    int rc = config_check_keys(build->node, allowed, count, err);
    double dropout = 0.0;
    build->classes = 1;
    if (rc == 0) rc = config_read_u32(build->node, "classes", 1, 65536, &build->classes, err);
    if (rc == 0) rc = config_read_f64(build->node, "dropout", 0.0, 0.99, &dropout, err);
    build->dropout = (float)dropout;
    if (rc != 0) return rc;
    if (!build->schema->has_label) {
        return config_error(build->node, err, "model %s: no feature has `kind: label`",
                            build->model->type);
    }
    return 0;
}

/* The list of wishes grows with the graph; a name is enough for job files to override it. */
static int set_rules(struct model *model, struct err *err)
{
    const uint32_t params = graph_params_count(model->graph);
    const uint32_t tables = graph_tables_count(model->graph);
    model->param_rules = mem_alloc_array(MEM_MODEL, params + 1u, sizeof *model->param_rules);
    model->table_rules = mem_alloc_array(MEM_MODEL, tables + 1u, sizeof *model->table_rules);
    if (model->param_rules == NULL || model->table_rules == NULL) {
        return err_set(err, SHOAL_ENOMEM, "no memory for a model");
    }
    /* wide_deep's wide part (Cheng et al., 2016): FTRL keeps its weights sparse. */
    const char *wide = strcmp(model->type, "wide_deep") == 0 ? "ftrl" : NULL;
    for (uint32_t i = 0; i < params; i++) {
        const char *name = graph_param_at(model->graph, i)->name;
        if (strncmp(name, "linear/", 7) == 0) model->param_rules[i] = wide;
    }
    for (uint32_t i = 0; i < tables; i++) {
        const char *name = graph_table_at(model->graph, i)->name;
        if (strncmp(name, "linear/", 7) == 0) model->table_rules[i] = wide;
    }
    return 0;
}

int model_create(const struct config_node *node, const struct data_schema *schema,
                 struct model **model_out, struct err *err)
{
    uint32_t number = 0;
    int rc = read_type(node, &number, err);
    if (rc != 0) return rc;
    struct model *model = mem_alloc(MEM_MODEL, sizeof *model);
    if (model == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a model");
    const struct type *type = &types[number];
    model->type = type_names[number];
    rc = graph_create(&model->graph, err);
    struct build build = {.model = model, .graph = model->graph, .node = node, .schema = schema};
    if (rc == 0) rc = read_common(&build, type, err);
    if (rc == 0) rc = type->build(&build, err);
    if (rc == 0) rc = graph_check(model->graph, err);
    if (rc == 0) rc = graph_differentiate(model->graph, model->loss, err);
    if (rc == 0) rc = set_rules(model, err);
    if (rc != 0) {
        if (rc != SHOAL_ECONFIG) err_wrap(err, "model %s", model->type);
        model_destroy(model);
        return rc;
    }
    *model_out = model;
    return 0;
}

void model_destroy(struct model *model)
{
    if (model == NULL) return;
    graph_destroy(model->graph);
    mem_free(model->param_rules);
    mem_free(model->table_rules);
    mem_free(model);
}
