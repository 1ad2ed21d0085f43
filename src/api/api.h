/* api is what include/shoal.h promises, in terms of the layers below. The public handles are these
 * structs; nothing else of the library is seen from outside. */
#ifndef SHOAL_API_API_H
#define SHOAL_API_API_H

#include "base/err.h"
#include "data/data_spec.h"
#include "graph/graph.h"
#include "model/model.h"
#include "shoal.h"

struct shoal_graph {
    struct graph *graph;
    const struct data_schema *schema;
    struct err first; /* of the calls that could not be done; code 0: none */
    graph_id *tables; /* by key list of the schema: the table of its own name, GRAPH_NONE before */
    graph_id *ids;    /* by categorical feature */
    graph_id logit;   /* set by shoal_output */
    enum model_task task;
    bool has_output;
};

/* A graph to be built by the user for features of this schema. */
int api_graph_init(struct shoal_graph *graph, const struct data_schema *schema, struct err *err);
void api_graph_fini(struct shoal_graph *graph);

/* Copies an error to the public struct (which may be NULL) and returns its code. */
int api_fail(const struct err *err, shoal_error *error);

#endif
