/* Wide and deep (Cheng et al., DLRS '16): a linear model that remembers, FTRL by default, beside
 * layers over embeddings that generalise; their logits are added. `wide:` and `deep:` list the
 * features of each side; without a list it is all of them. */
#include "base/mem.h"
#include "model/model_build.h"

int model_build_wide_deep(struct build *build, struct err *err)
{
    struct widths hidden = {2, {128, 64}};
    struct feature *wide = NULL;
    struct feature *deep = NULL;
    uint32_t wide_count = 0;
    uint32_t deep_count = 0;
    int rc = build_widths(build, "hidden", &hidden, err);
    if (rc == 0) rc = build_features(build, "wide", &wide, &wide_count, err);
    if (rc == 0) rc = build_features(build, "deep", &deep, &deep_count, err);
    if (rc == 0) {
        const graph_id columns = build_columns(build, deep, deep_count);
        const graph_id x = build_layers(build, columns, "hidden", &hidden, LAYER_GLOROT);
        const graph_id deep_logit = build_linear_layer(build, x, "output", 1);
        const graph_id wide_logit = build_first_order(build, wide, wide_count);
        build_end(build, graph_add(build->graph, wide_logit, deep_logit));
    }
    mem_free(wide);
    mem_free(deep);
    return rc;
}
