/* Deep interest network (Zhou et al., KDD '18): what a user clicked before is weighed by how much
 * each item has to do with the candidate.
 *
 *     user     = the single and pooled features and the numbers, in the order of their names
 *     target   = the candidate: the single feature that shares its table with the history
 *     attended = sum over the history of attention(h, target) * h
 *     concat(user, target, attended) -> hidden layers, ReLU, dropout -> logit
 *
 * Several histories, each with a target of its own (item, shop, ...), stand side by side. */
#include <string.h>

#include "base/bounds.h"
#include "base/mem.h"
#include "model/model_build.h"

struct din {
    struct widths attention;
    struct widths hidden;
    bool history;
    const char *target; /* NULL: the one that shares the table */

    struct feature *features;
    uint32_t features_count;
    uint32_t histories_count;
    int32_t target_of[DATA_FEATURES_MAX]; /* by feature: history -> its target, else -1 */
    bool is_target[DATA_FEATURES_MAX];
};

static int read_settings(const struct build *build, struct din *din, struct err *err)
{
    *din = (struct din){.attention = {2, {16, 8}}, .hidden = {2, {64, 16}}, .history = true};
    int rc = build_widths(build, "attention", &din->attention, err);
    if (rc == 0) rc = build_widths(build, "hidden", &din->hidden, err);
    if (rc == 0) rc = config_read_bool(build->node, "history", &din->history, err);
    if (rc == 0) rc = config_read_string(build->node, "target", &din->target, err);
    return rc;
}

static bool is_history(const struct build *build, const struct feature *feature)
{
    return !feature->numeric && build->schema->ids[feature->index].sequence;
}

static int find_target(const struct build *build, struct din *din, uint32_t history,
                       struct err *err)
{
    const struct data_schema *schema = build->schema;
    const uint32_t table = schema->ids[din->features[history].index].table;
    const char *name = din->features[history].name;
    int32_t found = -1;
    for (uint32_t i = 0; i < din->features_count; i++) {
        const struct feature *feature = &din->features[i];
        if (feature->numeric || !schema->ids[feature->index].single ||
            schema->ids[feature->index].table != table) {
            continue;
        }
        if (din->target != NULL && strcmp(din->target, feature->name) == 0) {
            found = (int32_t)i;
            break;
        }
        if (found >= 0) {
            return config_error(build->node, err,
                                "model din: both %s and %s share the table of %s; say which is the "
                                "candidate with `target:`",
                                din->features[found].name, feature->name, name);
        }
        found = (int32_t)i;
    }
    if (found < 0) {
        return config_error(build->node, err,
                            "model din: %s needs a candidate: a single feature with `table: %s`",
                            name, schema->tables[table].name);
    }
    din->target_of[history] = found;
    din->is_target[found] = true;
    return 0;
}

static int find_histories(const struct build *build, struct din *din, struct err *err)
{
    for (uint32_t i = 0; i < din->features_count; i++) {
        din->target_of[i] = -1;
        if (!is_history(build, &din->features[i])) continue;
        din->histories_count++;
        const int rc = find_target(build, din, i, err);
        if (rc != 0) return rc;
    }
    if (din->histories_count == 0 && din->history) {
        return config_error(build->node, err,
                            "model din: no feature has `sequence: true`; with `history: false` din "
                            "does without");
    }
    return 0;
}

/* Glorot uniform, as the reference initialises the item table. */
static graph_id item_table(struct build *build, uint32_t table)
{
    const struct data_table *of = &build->schema->tables[table];
    const double rows = of->rows == 0 ? of->dim : (double)of->rows;
    return build_table(build, table, 0, init_glorot_uniform(rows, of->dim));
}

static graph_id target_column(struct build *build, const struct feature *feature)
{
    const struct data_ids *of = &build->schema->ids[feature->index];
    return graph_gather(build->graph, item_table(build, of->table),
                        graph_ids(build->graph, feature->index, of->table, true));
}

/* attention/0/weight, ...; with several histories attention/<history>/0/weight. */
static void attention_layers(struct build *build, const struct din *din, const char *history,
                             uint32_t inputs, graph_id *layers)
{
    struct path several;
    const char *scope =
        din->histories_count == 1 ? "attention" : build_path(&several, "attention", history);
    for (uint32_t i = 0; i <= din->attention.count; i++) {
        const uint32_t width = i < din->attention.count ? din->attention.of[i] : 1;
        struct path layer;
        struct path name;
        build_path_number(&layer, scope, i);
        layers[2 * i] = graph_param(build->graph, build_path(&name, layer.text, "weight"), inputs,
                                    width, init_glorot_uniform(inputs, width));
        layers[2 * i + 1] = graph_vector(build->graph, build_path(&name, layer.text, "bias"), width,
                                         init_constant(0));
        inputs = width;
    }
}

static graph_id attended(struct build *build, const struct din *din, uint32_t history,
                         graph_id target)
{
    const struct feature *feature = &din->features[history];
    const uint32_t table = build->schema->ids[feature->index].table;
    graph_id layers[2 * (MODEL_LAYERS_MAX + 1)];
    attention_layers(build, din, feature->name, 4 * build->schema->tables[table].dim, layers);
    return graph_attention(build->graph, item_table(build, table),
                           graph_ids(build->graph, feature->index, table, false), target, layers,
                           din->attention.count + 1);
}

static graph_id network(struct build *build, const struct din *din)
{
    graph_id columns[2 * DATA_FEATURES_MAX];
    graph_id targets[DATA_FEATURES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < din->features_count; i++) {
        const struct feature *feature = &din->features[i];
        if (is_history(build, feature) || din->is_target[i]) continue;
        columns[count++] = build_column(build, feature, 0);
    }
    for (uint32_t i = 0; i < din->features_count; i++) {
        if (!din->is_target[i]) continue;
        targets[i] = target_column(build, &din->features[i]);
        columns[count++] = targets[i];
    }
    for (uint32_t i = 0; i < din->features_count && din->history; i++) {
        if (din->target_of[i] < 0) continue;
        columns[count++] = attended(build, din, i, targets[din->target_of[i]]);
    }
    const graph_id x = graph_concat(build->graph, columns, count);
    const graph_id deep = build_layers(build, x, "hidden", &din->hidden, LAYER_HE);
    return build_linear_layer(build, deep, "output", build->classes);
}

int model_build_din(struct build *build, struct err *err)
{
    struct din din;
    int rc = read_settings(build, &din, err);
    if (rc == 0) rc = build_features(build, NULL, &din.features, &din.features_count, err);
    if (rc == 0) rc = find_histories(build, &din, err);
    if (rc == 0) build_end(build, network(build, &din));
    mem_free(din.features);
    return rc;
}
