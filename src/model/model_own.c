#include "model/model_own.h"

#include "base/mem.h"

void model_add_outputs(struct model *model, struct graph *graph, graph_id logit,
                       enum model_task task, bool has_weight)
{
    const graph_id label = graph_label(graph);
    const graph_id weight = has_weight ? graph_weight(graph) : GRAPH_NONE;
    model->task = task;
    model->logit = graph_name(graph, logit, "logit");
    switch (task) {
    case MODEL_BINARY:
        model->probability = graph_act(graph, logit, GRAPH_SIGMOID);
        model->loss = graph_sigmoid_loss(graph, logit, label, weight);
        break;
    case MODEL_CLASSES:
        model->probability = graph_softmax(graph, logit);
        model->loss = graph_softmax_loss(graph, logit, label, weight);
        break;
    case MODEL_REGRESSION:
        model->probability = logit;
        model->loss = graph_squared_loss(graph, logit, label, weight);
        break;
    }
    if (model->probability != logit) graph_name(graph, model->probability, "probability");
    graph_name(graph, model->loss, "loss");
}

int model_own_create(struct graph *graph, graph_id logit, enum model_task task, bool has_weight,
                     struct model **model_out, struct err *err)
{
    int rc = graph_check(graph, err);
    if (rc != 0) return rc;
    if (logit == GRAPH_NONE) return err_set(err, SHOAL_EINVAL, "the model has no output");
    const uint32_t cols = graph_shape_of(graph, logit).cols;
    if (task == MODEL_CLASSES ? cols < 2 : cols != 1) {
        return err_set(err, SHOAL_EINVAL, "the model's output has %u columns; %s wanted", cols,
                       task == MODEL_CLASSES ? "2 or more are" : "just 1 is");
    }
    struct model *model = mem_alloc(MEM_MODEL, sizeof *model);
    if (model == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a model");
    model->type = "own";
    model->classes = task == MODEL_CLASSES ? cols : 1;
    model_add_outputs(model, graph, logit, task, has_weight);
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
