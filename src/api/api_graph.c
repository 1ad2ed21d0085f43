/* The graph calls of shoal.h: names of features become leaves, names of layers become parameters. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/bounds.h"
#include "base/mem.h"

int api_graph_init(struct shoal_graph *graph, const struct data_schema *schema, struct err *err)
{
    *graph = (struct shoal_graph){.schema = schema};
    graph->tables = mem_alloc_array(MEM_MODEL, schema->tables_count, sizeof *graph->tables);
    graph->ids = mem_alloc_array(MEM_MODEL, schema->ids_count, sizeof *graph->ids);
    if (graph->tables == NULL || graph->ids == NULL) {
        api_graph_fini(graph);
        return err_set(err, SHOAL_ENOMEM, "no memory for a graph");
    }
    const int rc = graph_create(&graph->graph, err);
    if (rc != 0) api_graph_fini(graph);
    return rc;
}

void api_graph_fini(struct shoal_graph *graph)
{
    graph_destroy(graph->graph);
    mem_free(graph->tables);
    mem_free(graph->ids);
    *graph = (struct shoal_graph){0};
}

int api_fail(const struct err *err, shoal_error *error)
{
    static_assert(sizeof error->text >= ERR_TEXT_MAX, "a message must fit");
    if (error != NULL) {
        error->code = err->code;
        memcpy(error->text, err->text, ERR_TEXT_MAX);
    }
    return err->code;
}

/* Remembers the first failure. */
#define FAIL(graph, ...)                                                                           \
    ((graph)->first.code == 0 ? (void)err_set(&(graph)->first, SHOAL_EINVAL, __VA_ARGS__) : (void)0, \
     GRAPH_NONE)

static graph_id ids_of(shoal_graph *graph, int feature)
{
    const struct data_ids *ids = &graph->schema->ids[feature];
    if (graph->ids[feature] == GRAPH_NONE) {
        graph->ids[feature] = graph_ids(graph->graph, (uint32_t)feature, ids->table, ids->single);
    }
    return graph->ids[feature];
}

/* As TensorFlow's embedding_column draws the rows of a table. */
static struct init table_init(uint32_t dim)
{
    return init_truncated_normal(1 / sqrt(dim));
}

static graph_id table_of(shoal_graph *graph, uint32_t keys)
{
    const struct data_table *table = &graph->schema->tables[keys];
    if (graph->tables[keys] == GRAPH_NONE) {
        char name[256];
        snprintf(name, sizeof name, "%s/embedding", table->name);
        graph->tables[keys] =
            graph_table(graph->graph, name, keys, table->dim, table_init(table->dim));
    }
    return graph->tables[keys];
}

static enum graph_combine combine_of(enum data_combiner combiner)
{
    switch (combiner) {
    case DATA_SUM: return GRAPH_SUM;
    case DATA_MEAN: return GRAPH_MEAN;
    case DATA_SQRTN: return GRAPH_SQRTN;
    }
    return GRAPH_MEAN;
}

static graph_id look_up(shoal_graph *graph, int feature, graph_id table)
{
    const struct data_ids *ids = &graph->schema->ids[feature];
    const graph_id list = ids_of(graph, feature);
    return ids->single ? graph_gather(graph->graph, table, list)
                       : graph_pool(graph->graph, table, list, combine_of(ids->combiner));
}

shoal_node shoal_feature(shoal_graph *graph, const char *name)
{
    const int dense = data_schema_find_dense(graph->schema, name);
    if (dense >= 0) {
        return graph_numeric(graph->graph, (uint32_t)dense,
                             graph->schema->dense[dense].width);
    }
    const int feature = data_schema_find_ids(graph->schema, name);
    if (feature < 0) return FAIL(graph, "the job file has no feature \"%s\"", name);
    return look_up(graph, feature, table_of(graph, graph->schema->ids[feature].table));
}

shoal_node shoal_feature_in(shoal_graph *graph, const char *name, const char *table, uint32_t dim)
{
    const int feature = data_schema_find_ids(graph->schema, name);
    if (feature < 0) return FAIL(graph, "the job file has no categorical feature \"%s\"", name);
    const uint32_t keys = graph->schema->ids[feature].table;
    const graph_id rows = graph_table(graph->graph, table, keys, dim, table_init(dim));
    return look_up(graph, feature, rows);
}

static graph_id layer_weight(shoal_graph *graph, const char *layer, uint32_t inputs,
                             uint32_t units)
{
    char name[256];
    snprintf(name, sizeof name, "%s/weight", layer);
    return graph_param(graph->graph, name, inputs, units, init_glorot_uniform(inputs, units));
}

static graph_id layer_bias(shoal_graph *graph, const char *layer, uint32_t units)
{
    char name[256];
    snprintf(name, sizeof name, "%s/bias", layer);
    return graph_vector(graph->graph, name, units, init_constant(0));
}

shoal_node shoal_attention(shoal_graph *graph, const char *name, const char *feature,
                           shoal_node target, const uint32_t *units, uint32_t units_count)
{
    enum { LAYERS_MAX = 8 };
    const int index = data_schema_find_ids(graph->schema, feature);
    if (index < 0) return FAIL(graph, "the job file has no categorical feature \"%s\"", feature);
    if (units_count >= LAYERS_MAX) {
        return FAIL(graph, "attention of %u layers; at most %d", units_count, LAYERS_MAX - 1);
    }
    graph_id layers[2 * LAYERS_MAX];
    uint32_t inputs = 4 * shoal_width(graph, target);
    for (uint32_t i = 0; i <= units_count; i++) {
        char layer[200];
        const uint32_t outputs = i < units_count ? units[i] : 1;
        snprintf(layer, sizeof layer, "%s/%u", name, i);
        layers[2 * i] = layer_weight(graph, layer, inputs, outputs);
        layers[2 * i + 1] = layer_bias(graph, layer, outputs);
        inputs = outputs;
    }
    const graph_id table = table_of(graph, graph->schema->ids[index].table);
    return graph_attention(graph->graph, table, ids_of(graph, index), target, layers,
                           units_count + 1);
}

shoal_node shoal_parameter(shoal_graph *graph, const char *name, uint32_t rows, uint32_t cols,
                           int init)
{
    switch (init) {
    case SHOAL_INIT_ZEROS: return graph_param(graph->graph, name, rows, cols, init_constant(0));
    case SHOAL_INIT_GLOROT:
        return graph_param(graph->graph, name, rows, cols, init_glorot_uniform(rows, cols));
    case SHOAL_INIT_HE: return graph_param(graph->graph, name, rows, cols, init_he_uniform(rows));
    default: return FAIL(graph, "%s: unknown kind of initial values %d", name, init);
    }
}

static bool activation_of(shoal_graph *graph, int activation, enum graph_act *act_out)
{
    static_assert((int)SHOAL_TANH == (int)GRAPH_TANH, "the public numbers are the graph's");
    static_assert((int)SHOAL_RELU == (int)GRAPH_RELU, "the public numbers are the graph's");
    if (activation < 0 || activation >= GRAPH_ACT_COUNT) {
        (void)FAIL(graph, "unknown activation %d", activation);
        return false;
    }
    *act_out = (enum graph_act)activation;
    return true;
}

shoal_node shoal_dense(shoal_graph *graph, const char *name, shoal_node x, uint32_t units,
                       int activation)
{
    enum graph_act act;
    if (!activation_of(graph, activation, &act) || x == GRAPH_NONE) return GRAPH_NONE;
    return graph_dense(graph->graph, x, layer_weight(graph, name, shoal_width(graph, x), units),
                       layer_bias(graph, name, units), act);
}

shoal_node shoal_matmul(shoal_graph *graph, shoal_node x, shoal_node parameter_node)
{
    return graph_matmul(graph->graph, x, parameter_node);
}

shoal_node shoal_activate(shoal_graph *graph, shoal_node x, int activation)
{
    enum graph_act act;
    return activation_of(graph, activation, &act) ? graph_act(graph->graph, x, act) : GRAPH_NONE;
}

shoal_node shoal_add(shoal_graph *graph, shoal_node a, shoal_node b)
{
    return graph_add(graph->graph, a, b);
}

shoal_node shoal_sub(shoal_graph *graph, shoal_node a, shoal_node b)
{
    return graph_sub(graph->graph, a, b);
}

shoal_node shoal_mul(shoal_graph *graph, shoal_node a, shoal_node b)
{
    return graph_mul(graph->graph, a, b);
}

shoal_node shoal_scale(shoal_graph *graph, shoal_node x, float factor)
{
    return graph_scale(graph->graph, x, factor);
}

shoal_node shoal_concat(shoal_graph *graph, const shoal_node *nodes, uint32_t count)
{
    return graph_concat(graph->graph, nodes, count);
}

shoal_node shoal_slice(shoal_graph *graph, shoal_node x, uint32_t col, uint32_t cols)
{
    return graph_slice(graph->graph, x, col, cols);
}

shoal_node shoal_dropout(shoal_graph *graph, shoal_node x, float rate)
{
    return graph_dropout(graph->graph, x, rate);
}

shoal_node shoal_sum(shoal_graph *graph, shoal_node x)
{
    return graph_sum(graph->graph, x);
}

shoal_node shoal_mean(shoal_graph *graph, shoal_node x)
{
    return graph_mean(graph->graph, x);
}

shoal_node shoal_fm(shoal_graph *graph, shoal_node x, uint32_t dim)
{
    return graph_fm(graph->graph, x, dim);
}

shoal_node shoal_dots(shoal_graph *graph, shoal_node x, uint32_t dim)
{
    return graph_dots(graph->graph, x, dim);
}

uint32_t shoal_width(const shoal_graph *graph, shoal_node node)
{
    return node == GRAPH_NONE ? 0 : graph_shape_of(graph->graph, node).cols;
}

int shoal_output(shoal_graph *graph, shoal_node logit, int task, shoal_error *error)
{
    struct err err = {0};
    static_assert((int)SHOAL_REGRESSION == (int)MODEL_REGRESSION, "the public numbers are ours");
    if (graph->first.code == 0) graph_check(graph->graph, &graph->first);
    if (graph->first.code != 0) return api_fail(&graph->first, error);
    if (task < SHOAL_BINARY || task > SHOAL_REGRESSION) {
        err_set(&err, SHOAL_EINVAL, "shoal_output: unknown task %d", task);
        return api_fail(&err, error);
    }
    graph->logit = logit;
    graph->task = (enum model_task)task;
    graph->has_output = true;
    return 0;
}
