/* model turns the job file's `model:` and the checked features into a graph. Each type is a short
 * file (model_din.c, ...) that builds its network with the calls of graph/graph.h; this is the
 * registry, and what all of them share: reading settings, embedding the features, the loss.
 *
 * A model holds no values: parameters and tables are listed in its graph with their initialisers,
 * and live in the store. Read only once created; any thread. */
#ifndef SHOAL_MODEL_MODEL_H
#define SHOAL_MODEL_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "data/data_spec.h"
#include "graph/graph.h"

enum model_task {
    MODEL_BINARY,  /* label 0 or 1; sigmoid cross-entropy; probability: batch x 1 */
    MODEL_CLASSES, /* label 0 .. classes-1; softmax cross-entropy; probability: batch x classes */
    MODEL_REGRESSION, /* squared loss; probability: the prediction itself */
};

struct model {
    struct graph *graph; /* differentiated; owned */
    const char *type;    /* "din" */
    enum model_task task;
    uint32_t classes; /* of MODEL_CLASSES, else 1 */
    graph_id loss;
    graph_id logit;
    graph_id probability;
    /* What the model asks for by itself, by parameter and by table: the name of an update rule, or
     * NULL for the job's (wide_deep: "ftrl" for its wide part). */
    const char **param_rules;
    const char **table_rules;
};

/* node is the `model:` map. Mistakes are reported at their line and column. */
int model_create(const struct config_node *node, const struct data_schema *schema,
                 struct model **model_out, struct err *err);
void model_destroy(struct model *model); /* NULL is a no-op. */

/* "din", "mlp", ...: for help texts. NULL-terminated. */
const char *const *model_types(void);

#endif
