/* model_own makes a model of a graph that the caller has built up to its logits. */
#ifndef SHOAL_MODEL_OWN_H
#define SHOAL_MODEL_OWN_H

#include <stdbool.h>

#include "base/err.h"
#include "model/model.h"

/* Adds the probability and the loss that go with the task, and names them. Failures are remembered by
 * the graph. The registry's models end with it too. */
void model_add_outputs(struct model *model, struct graph *graph, graph_id logit,
                       enum model_task task, bool has_weight);

/* logit has one column, or one per class. Takes the graph over on success. */
int model_own_create(struct graph *graph, graph_id logit, enum model_task task, bool has_weight,
                     struct model **model_out, struct err *err);

#endif
