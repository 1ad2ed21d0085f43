/* model_build is what the models share while they are built: settings read from the job file,
 * features turned into columns, layers, the loss. For the files of this layer.
 *
 * Names of tensors: <table>/embedding; linear/<table>/embedding and linear/<feature>/weight for
 * first-order weights; <layers>/<i>/weight and bias. A feature column is a pooled or single
 * embedding, or a numeric feature as it is; columns are put together in the order of their names,
 * as TensorFlow's input_layer does. */
#ifndef SHOAL_MODEL_BUILD_H
#define SHOAL_MODEL_BUILD_H

#include "base/bounds.h"
#include "model/model.h"

#define MODEL_LAYERS_MAX 16u
#define MODEL_WIDTH_MAX 65536u

struct widths { /* of a stack of dense layers */
    uint32_t count;
    uint32_t of[MODEL_LAYERS_MAX];
};

/* "<a>/<b>". Longer names than fit are cut, and refused by the graph as too long. */
struct path {
    char text[GRAPH_NAME_BYTES_MAX + 2];
};
const char *build_path(struct path *path, const char *a, const char *b);
const char *build_path_number(struct path *path, const char *a, uint32_t number);

enum layer_init { LAYER_GLOROT, LAYER_HE };

struct build {
    struct model *model;
    struct graph *graph;
    const struct config_node *node; /* `model:` */
    const struct data_schema *schema;
    uint32_t classes;
    float dropout;
    double deviation; /* of the embeddings' first values; 0: 1 / sqrt(dim) */
};

/* A feature by its place in the schema. */
struct feature {
    const char *name;
    bool numeric;
    uint32_t index; /* in schema->dense or schema->ids */
};

/* All features, or those that map[key] lists, sorted by name. Caller owns (mem_free). */
int build_features(const struct build *build, const char *key, struct feature **features_out,
                   uint32_t *count_out, struct err *err);

/* Reads map[key] as widths; absent: stays as it is. */
int build_widths(const struct build *build, const char *key, struct widths *widths,
                 struct err *err);

/* The table's rows: <table>/embedding of the schema's width, or `dim` when not 0. Made once. */
graph_id build_table(struct build *build, uint32_t table, uint32_t dim, struct init init);
/* Truncated normal with 1 / sqrt(dim), as embedding_column. */
struct init build_embedding_init(const struct build *build, uint32_t dim);
/* One column per feature: the embedding (gathered, or pooled by the feature's combiner) or the
 * numbers. dim as above. */
graph_id build_column(struct build *build, const struct feature *feature, uint32_t dim);
/* The columns of all features side by side. */
graph_id build_columns(struct build *build, const struct feature *features, uint32_t count);

/* <scope>/<i>: dense layers with ReLU, each followed by dropout. */
graph_id build_layers(struct build *build, graph_id x, const char *scope,
                      const struct widths *widths, enum layer_init init);
/* <scope>: one dense layer without activation. */
graph_id build_linear_layer(struct build *build, graph_id x, const char *scope, uint32_t width);
/* First-order weights: bias + sum of w * x + sum of the embeddings of width 1: batch x 1. */
graph_id build_first_order(struct build *build, const struct feature *features, uint32_t count);

/* The one width of all embeddings: `dim` of the settings, or what the features agree on. */
int build_common_dim(struct build *build, const struct feature *features, uint32_t count,
                     uint32_t *dim_out, struct err *err);
/* Every feature as a field of width dim, side by side: embeddings as they are, a numeric feature x
 * as x V with V = <feature>/factors. */
graph_id build_fields(struct build *build, const struct feature *features, uint32_t count,
                      uint32_t dim);

/* Ends the network: loss and probability by `classes`. */
void build_end(struct build *build, graph_id logit);

/* The models: each adds nodes for its network and calls build_end. */
typedef int model_build_cb(struct build *build, struct err *err);
int model_build_din(struct build *build, struct err *err);
int model_build_mlp(struct build *build, struct err *err);
int model_build_softmax(struct build *build, struct err *err);
int model_build_linear(struct build *build, struct err *err);
int model_build_fm(struct build *build, struct err *err);
int model_build_wide_deep(struct build *build, struct err *err);
int model_build_deepfm(struct build *build, struct err *err);
int model_build_dlrm(struct build *build, struct err *err);

#endif
