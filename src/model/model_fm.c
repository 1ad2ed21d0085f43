/* Factorisation machines, alone and with a deep part beside them.
 *
 *     fm      bias + sum of w_i x_i + sum over i < j of <v_i, v_j> x_i x_j     (Rendle, ICDM '10)
 *     deepfm  the same, plus hidden layers over the same v_i x_i side by side  (Guo et al., IJCAI '17)
 *
 * Every feature is one field; of a feature with several values v_i is their combination. */
#include "base/mem.h"
#include "model/model_build.h"

static int fm_model(struct build *build, const struct widths *hidden, struct err *err)
{
    struct graph *graph = build->graph;
    struct feature *features = NULL;
    uint32_t count = 0;
    uint32_t dim = 0;
    /* Every pair of fields adds a product: from small factors, or the first logits are noise. */
    build->deviation = 0.01;
    int rc = build_features(build, NULL, &features, &count, err);
    if (rc == 0) rc = build_common_dim(build, features, count, &dim, err);
    if (rc == 0 && count < 2) {
        rc = config_error(build->node, err, "model %s: two features or more are needed",
                          build->model->type);
    }
    if (rc == 0) {
        const graph_id first = build_first_order(build, features, count);
        const graph_id fields = build_fields(build, features, count, dim);
        graph_id logit = graph_add(graph, first, graph_fm(graph, fields, dim));
        if (hidden != NULL) {
            const graph_id deep = build_layers(build, fields, "hidden", hidden, LAYER_GLOROT);
            logit = graph_add(graph, logit, build_linear_layer(build, deep, "output", 1));
        }
        build_end(build, logit);
    }
    mem_free(features);
    return rc;
}

int model_build_fm(struct build *build, struct err *err)
{
    return fm_model(build, NULL, err);
}

int model_build_deepfm(struct build *build, struct err *err)
{
    struct widths hidden = {2, {128, 64}};
    const int rc = build_widths(build, "hidden", &hidden, err);
    return rc != 0 ? rc : fm_model(build, &hidden, err);
}
