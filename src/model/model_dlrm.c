/* Deep learning recommendation model (Naumov et al., 2019).
 *
 *     bottom = layers over the numeric features, the last of the embeddings' width
 *     dots   = dot products between all pairs of bottom and embeddings
 *     concat(bottom, dots) -> top layers -> logit
 *
 * Without numeric features there is no bottom. */
#include "base/bounds.h"
#include "base/mem.h"
#include "model/model_build.h"

static graph_id bottom_of(struct build *build, const struct feature *features, uint32_t count,
                          const struct widths *widths)
{
    graph_id numbers[DATA_FEATURES_MAX];
    uint32_t numbers_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (features[i].numeric) numbers[numbers_count++] = build_column(build, &features[i], 0);
    }
    if (numbers_count == 0) return GRAPH_NONE;
    struct build plain = *build; /* Dropout is for the top alone. */
    plain.dropout = 0.0f;
    const graph_id x = graph_concat(build->graph, numbers, numbers_count);
    return build_layers(&plain, x, "bottom", widths, LAYER_GLOROT);
}

static graph_id network(struct build *build, const struct feature *features, uint32_t count,
                        uint32_t dim, graph_id bottom, const struct widths *top)
{
    struct graph *graph = build->graph;
    graph_id fields[DATA_FEATURES_MAX + 1] = {bottom};
    uint32_t fields_count = bottom == GRAPH_NONE ? 0 : 1;
    for (uint32_t i = 0; i < count; i++) {
        if (!features[i].numeric) fields[fields_count++] = build_column(build, &features[i], dim);
    }
    const graph_id dots = graph_dots(graph, graph_concat(graph, fields, fields_count), dim);
    const graph_id both[] = {bottom, dots};
    const graph_id x = bottom == GRAPH_NONE ? dots : graph_concat(graph, both, 2);
    const graph_id deep = build_layers(build, x, "top", top, LAYER_GLOROT);
    return build_linear_layer(build, deep, "output", 1);
}

int model_build_dlrm(struct build *build, struct err *err)
{
    struct widths bottom = {1, {64}};
    struct widths top = {2, {128, 64}};
    struct feature *features = NULL;
    uint32_t count = 0;
    uint32_t dim = 0;
    const uint32_t fields = build->schema->ids_count + (build->schema->dense_count > 0);
    build->deviation = 0.01; /* The paper draws rows from +-1 / sqrt(n): dot products start small. */
    int rc = build_widths(build, "bottom", &bottom, err);
    if (rc == 0) rc = build_widths(build, "top", &top, err);
    if (rc == 0) rc = build_features(build, NULL, &features, &count, err);
    if (rc == 0) rc = build_common_dim(build, features, count, &dim, err);
    if (rc == 0 && fields < 2) {
        rc = config_error(build->node, err,
                          "model dlrm: two categorical features are needed, or one and a number");
    }
    if (rc == 0 && bottom.count == MODEL_LAYERS_MAX) {
        rc = config_error(config_get(build->node, "bottom"), err, "%u layers, at most %u",
                          bottom.count, MODEL_LAYERS_MAX - 1);
    }
    if (rc == 0) {
        bottom.of[bottom.count++] = dim;
        const graph_id numbers = bottom_of(build, features, count, &bottom);
        build_end(build, network(build, features, count, dim, numbers, &top));
    }
    mem_free(features);
    return rc;
}
