#include "model/model_own.h"

#include "base/mem.h"

int model_own_create(struct graph *graph, graph_id logit, enum model_task task,
                     struct model **model_out, struct err *err)
{
    int rc = graph_check(graph, err);
    if (rc != 0) return rc;
    if (logit == GRAPH_NONE) return err_set(err, SHOAL_EINVAL, "the model has no output");
    const uint32_t cols = graph_shape_of(graph, logit).cols;
    if (task == MODEL_CLASSES ? cols < 2 : cols != 1) {
        return err_set(err, SHOAL_EINVAL, "the model's output has %u columns; %s are wanted", cols,
                       task == MODEL_CLASSES ? "2 or more" : "just 1");
    }
    struct model *model = mem_alloc(MEM_MODEL, sizeof *model);
    if (model == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a model");
    const graph_id label = graph_label(graph);
    const graph_id weight = graph_weight(graph);
    *model = (struct model){.type = "own",
                            .task = task,
                            .classes = task == MODEL_CLASSES ? cols : 1,
                            .logit = logit};
    switch (task) {
    case MODEL_BINARY:
        model->loss = graph_sigmoid_loss(graph, logit, label, weight);
        model->probability = graph_act(graph, logit, GRAPH_SIGMOID);
        break;
    case MODEL_CLASSES:
        model->loss = graph_softmax_loss(graph, logit, label, weight);
        model->probability = graph_softmax(graph, logit);
        break;
    case MODEL_REGRESSION:
        model->loss = graph_squared_loss(graph, logit, label, weight);
        model->probability = logit;
        break;
    }
    rc = graph_check(graph, err);
    if (rc == 0) rc = graph_differentiate(graph, model->loss, err);
    if (rc != 0) {
        model_destroy(model);
        return rc;
    }
    model->graph = graph;
    *model_out = model;
    return 0;
}
