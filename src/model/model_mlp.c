/* The plain ones: dense layers over all features, and what is left of them without hidden layers.
 *
 *     mlp      features -> hidden layers, ReLU -> logits
 *     softmax  features -> logits; one output is logistic regression
 *     linear   sum of w x + bias, squared loss */
#include "base/mem.h"
#include "model/model_build.h"

static int layers_model(struct build *build, const struct widths *hidden, struct err *err)
{
    struct feature *features = NULL;
    uint32_t count = 0;
    const int rc = build_features(build, NULL, &features, &count, err);
    if (rc != 0) return rc;
    graph_id x = build_columns(build, features, count);
    x = build_layers(build, x, "hidden", hidden, LAYER_GLOROT);
    build_end(build, build_linear_layer(build, x, "output", build->classes));
    mem_free(features);
    return 0;
}

int model_build_mlp(struct build *build, struct err *err)
{
    struct widths hidden = {2, {500, 500}};
    const int rc = build_widths(build, "hidden", &hidden, err);
    return rc != 0 ? rc : layers_model(build, &hidden, err);
}

int model_build_softmax(struct build *build, struct err *err)
{
    return layers_model(build, &(struct widths){0}, err);
}

int model_build_linear(struct build *build, struct err *err)
{
    struct feature *features = NULL;
    uint32_t count = 0;
    const int rc = build_features(build, NULL, &features, &count, err);
    if (rc != 0) return rc;
    build->model->task = MODEL_REGRESSION;
    build_end(build, build_first_order(build, features, count));
    mem_free(features);
    return 0;
}
