#include "model/model_build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/model_own.h"

/* ---- Names ---- */

const char *build_path(struct path *path, const char *a, const char *b)
{
    const char *const parts[] = {a, "/", b};
    size_t bytes = 0;
    for (uint32_t i = 0; i < 3; i++) {
        const size_t room = sizeof path->text - 1 - bytes;
        const size_t more = strnlen(parts[i], room);
        memcpy(path->text + bytes, parts[i], more);
        bytes += more;
    }
    path->text[bytes] = '\0';
    return path->text;
}

const char *build_path_number(struct path *path, const char *a, uint32_t number)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%u", number);
    return build_path(path, a, digits);
}

/* ---- Features ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct feature *)a)->name, ((const struct feature *)b)->name);
}

static void all_features(const struct data_schema *schema, struct feature *features)
{
    for (uint32_t i = 0; i < schema->dense_count; i++) {
        *features++ = (struct feature){.name = schema->dense[i].name, .numeric = true, .index = i};
    }
    for (uint32_t i = 0; i < schema->ids_count; i++) {
        *features++ = (struct feature){.name = schema->ids[i].name, .index = i};
    }
}

/* Keeps those that the list names, in place. */
static int keep_listed(const struct config_node *list, struct feature *features, uint32_t *count,
                       struct err *err)
{
    uint32_t kept = 0;
    const size_t listed = config_kind(list) == CONFIG_LIST ? config_count(list) : 0;
    if (listed == 0) return config_error(list, err, "a list of feature names is needed");
    for (size_t i = 0; i < listed; i++) {
        const struct config_node *item = config_at(list, i);
        const char *name = config_scalar(item);
        if (name == NULL) return config_error(item, err, "the name of a feature is needed");
        uint32_t at = kept;
        while (at < *count && strcmp(features[at].name, name) != 0) at++;
        if (at == *count) {
            const char *names[DATA_FEATURES_MAX];
            size_t names_count = 0;
            for (uint32_t f = 0; f < *count && f < DATA_FEATURES_MAX; f++) {
                names[names_count++] = features[f].name;
            }
            const char *near = str_nearest(name, names, names_count);
            return config_error(item, err,
                                "there is no feature \"%s\"%s%s%s, or it is listed twice", name,
                                near == NULL ? "" : "; did you mean \"", near == NULL ? "" : near,
                                near == NULL ? "" : "\"");
        }
        const struct feature found = features[at];
        features[at] = features[kept];
        features[kept++] = found;
    }
    *count = kept;
    return 0;
}

int build_features(const struct build *build, const char *key, struct feature **features_out,
                   uint32_t *count_out, struct err *err)
{
    const struct data_schema *schema = build->schema;
    uint32_t count = schema->dense_count + schema->ids_count;
    struct feature *features = mem_alloc_array(MEM_MODEL, count + 1u, sizeof *features);
    if (features == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for features");
    all_features(schema, features);
    const struct config_node *list = key == NULL ? NULL : config_get(build->node, key);
    int rc = list == NULL ? 0 : keep_listed(list, features, &count, err);
    if (rc == 0 && count == 0) {
        rc = config_error(build->node, err, "model: there are no features to learn from");
    }
    if (rc != 0) {
        mem_free(features);
        return rc;
    }
    qsort(features, count, sizeof *features, by_name);
    *features_out = features;
    *count_out = count;
    return 0;
}

int build_widths(const struct build *build, const char *key, struct widths *widths, struct err *err)
{
    uint32_t *list = NULL;
    size_t count = 0;
    const int rc = config_read_u32_list(build->node, key, 1, MODEL_WIDTH_MAX, &list, &count, err);
    if (rc != 0) return rc;
    if (config_get(build->node, key) == NULL) return 0;
    const bool fits = count <= MODEL_LAYERS_MAX;
    if (fits) {
        widths->count = (uint32_t)count;
        for (size_t i = 0; i < count; i++) widths->of[i] = list[i];
    }
    mem_free(list);
    return fits ? 0
                : config_error(config_get(build->node, key), err, "%zu layers, at most %u", count,
                               MODEL_LAYERS_MAX);
}

/* ---- Columns ---- */

static graph_id named_table(struct build *build, const char *name, uint32_t table, uint32_t dim,
                            struct init init)
{
    const graph_id there = graph_find(build->graph, name);
    return there != GRAPH_NONE ? there : graph_table(build->graph, name, table, dim, init);
}

struct init build_embedding_init(const struct build *build, uint32_t dim)
{
    return init_truncated_normal(build->deviation > 0 ? build->deviation : 1 / sqrt(dim));
}

graph_id build_table(struct build *build, uint32_t table, uint32_t dim, struct init init)
{
    const struct data_table *of = &build->schema->tables[table];
    struct path name;
    return named_table(build, build_path(&name, of->name, "embedding"), table,
                       dim == 0 ? of->dim : dim, init);
}

static graph_id lookup(struct build *build, uint32_t feature, graph_id table)
{
    static const enum graph_combine combines[] = {
        [DATA_SUM] = GRAPH_SUM, [DATA_MEAN] = GRAPH_MEAN, [DATA_SQRTN] = GRAPH_SQRTN};
    const struct data_ids *of = &build->schema->ids[feature];
    const graph_id ids = graph_ids(build->graph, feature, of->table, of->single);
    return of->single ? graph_gather(build->graph, table, ids)
                      : graph_pool(build->graph, table, ids, combines[of->combiner]);
}

graph_id build_column(struct build *build, const struct feature *feature, uint32_t dim)
{
    const struct data_schema *schema = build->schema;
    if (feature->numeric) {
        return graph_numeric(build->graph, feature->index, schema->dense[feature->index].width);
    }
    const uint32_t table = schema->ids[feature->index].table;
    const uint32_t width = dim == 0 ? schema->tables[table].dim : dim;
    return lookup(build, feature->index,
                  build_table(build, table, dim, build_embedding_init(build, width)));
}

graph_id build_columns(struct build *build, const struct feature *features, uint32_t count)
{
    graph_id columns[DATA_FEATURES_MAX];
    ASSERT(count <= DATA_FEATURES_MAX);
    for (uint32_t i = 0; i < count; i++) columns[i] = build_column(build, &features[i], 0);
    return graph_concat(build->graph, columns, count);
}

/* ---- Layers ---- */

static uint32_t cols_of(const struct build *build, graph_id x)
{
    return x == GRAPH_NONE ? 1 : graph_shape_of(build->graph, x).cols;
}

static graph_id layer(struct build *build, graph_id x, const char *scope, uint32_t width,
                      enum layer_init init, enum graph_act act)
{
    struct graph *graph = build->graph;
    struct path name;
    const uint32_t inputs = cols_of(build, x);
    const struct init weights =
        init == LAYER_HE ? init_he_uniform(inputs) : init_glorot_uniform(inputs, width);
    const graph_id weight =
        graph_param(graph, build_path(&name, scope, "weight"), inputs, width, weights);
    const graph_id bias =
        graph_vector(graph, build_path(&name, scope, "bias"), width, init_constant(0));
    return graph_dense(graph, x, weight, bias, act);
}

graph_id build_layers(struct build *build, graph_id x, const char *scope,
                      const struct widths *widths, enum layer_init init)
{
    for (uint32_t i = 0; i < widths->count; i++) {
        struct path name;
        x = layer(build, x, build_path_number(&name, scope, i), widths->of[i], init, GRAPH_RELU);
        x = graph_dropout(build->graph, x, build->dropout);
    }
    return x;
}

graph_id build_linear_layer(struct build *build, graph_id x, const char *scope, uint32_t width)
{
    return layer(build, x, scope, width, LAYER_GLOROT, GRAPH_LINEAR);
}

graph_id build_first_order(struct build *build, const struct feature *features, uint32_t count)
{
    struct graph *graph = build->graph;
    const struct data_schema *schema = build->schema;
    graph_id terms[DATA_FEATURES_MAX];
    ASSERT(count <= DATA_FEATURES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t index = features[i].index;
        struct path scope;
        struct path name;
        if (features[i].numeric) {
            build_path(&name, build_path(&scope, "linear", features[i].name), "weight");
            const uint32_t width = schema->dense[index].width;
            terms[i] = graph_matmul(graph, graph_numeric(graph, index, width),
                                    graph_param(graph, name.text, width, 1, init_constant(0)));
        } else {
            const uint32_t table = schema->ids[index].table;
            build_path(&name, build_path(&scope, "linear", schema->tables[table].name),
                       "embedding");
            terms[i] =
                lookup(build, index, named_table(build, name.text, table, 1, init_constant(0)));
        }
    }
    const graph_id sum = graph_add_n(graph, terms, count);
    return graph_add(graph, sum, graph_vector(graph, "linear/bias", 1, init_constant(0)));
}

/* ---- Fields of one width ---- */

int build_common_dim(struct build *build, const struct feature *features, uint32_t count,
                     uint32_t *dim_out, struct err *err)
{
    uint32_t dim = 0;
    const int rc = config_read_u32(build->node, "dim", 1, DATA_EMBED_MAX, &dim, err);
    if (rc != 0) return rc;
    const char *first = NULL;
    for (uint32_t i = 0; i < count && config_get(build->node, "dim") == NULL; i++) {
        if (features[i].numeric) continue;
        const uint32_t table = build->schema->ids[features[i].index].table;
        const uint32_t own = build->schema->tables[table].dim;
        if (dim == 0) {
            dim = own;
            first = features[i].name;
        }
        if (own != dim) {
            return config_error(
                build->node, err,
                "model %s: all embeddings must have one width, but %s has %u and %s "
                "has %u; give `dim:` to the model, or `embed:` to each",
                build->model->type, first, dim, features[i].name, own);
        }
    }
    if (dim == 0) {
        return config_error(build->node, err, "model %s: `dim` is needed", build->model->type);
    }
    *dim_out = dim;
    return 0;
}

graph_id build_fields(struct build *build, const struct feature *features, uint32_t count,
                      uint32_t dim)
{
    struct graph *graph = build->graph;
    graph_id fields[DATA_FEATURES_MAX];
    ASSERT(count <= DATA_FEATURES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        fields[i] = build_column(build, &features[i], dim);
        if (!features[i].numeric) continue;
        struct path name;
        const uint32_t width = cols_of(build, fields[i]);
        fields[i] = graph_matmul(graph, fields[i],
                                 graph_param(graph, build_path(&name, features[i].name, "factors"),
                                             width, dim, build_embedding_init(build, dim)));
    }
    return graph_concat(graph, fields, count);
}

/* ---- The end ---- */

void build_end(struct build *build, graph_id logit)
{
    struct model *model = build->model;
    enum model_task task = build->classes == 1 ? MODEL_BINARY : MODEL_CLASSES;
    if (model->task == MODEL_REGRESSION) task = MODEL_REGRESSION;
    model->classes = build->classes;
    model_add_outputs(model, build->graph, logit, task, build->schema->has_weight);
}
