/* model_own makes a model of a graph that the caller has built up to its logits: the loss and the
 * probability that go with the task are added, and the gradients. */
#ifndef SHOAL_MODEL_OWN_H
#define SHOAL_MODEL_OWN_H

#include "base/err.h"
#include "model/model.h"

/* logit has one column, or one per class. Takes the graph over on success. */
int model_own_create(struct graph *graph, graph_id logit, enum model_task task,
                     struct model **model_out, struct err *err);

#endif
