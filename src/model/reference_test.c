/* Every model against a plain reference: one example at a time, in double, forward and backward
 * written out, 20 steps. Nothing is shared with the graph but the names of the tensors and the batch
 * of numbers. */
#include <math.h>
#include <stdlib.h>

#include "../tests/test.h"
#include "base/rand.h"
#include "graph/exec.h"
#include "model/model.h"
#include "tensor/kern.h"

#define ROWS 70 /* two chunks, the second one short */
#define STEPS 20
#define VARS_MAX 40
#define WIDTH_MAX 64
#define LAYERS_MAX 6
#define HISTORY_MAX 6
#define LEARNING_RATE 0.05
#define FTRL_L1 0.001
#define FTRL_L2 0.01

static struct err err;

#define FEATURES                                                                                   \
    "features:\n"                                                                                  \
    "  label: {kind: label}\n"                                                                     \
    "  weight: {kind: weight}\n"                                                                   \
    "  age: {kind: numeric}\n"                                                                     \
    "  price: {kind: numeric, width: 3}\n"                                                         \
    "  city: {kind: hash, buckets: 13, embed: 4}\n"                                                \
    "  shop: {kind: hash, buckets: 17, embed: 4}\n"                                                \
    "  tags: {kind: hash, buckets: 11, embed: 4, combiner: mean}\n"
#define HISTORY                                                                                    \
    "  item: {kind: hash, buckets: 19, embed: 4}\n"                                                \
    "  seen: {kind: hash, buckets: 19, embed: 4, sequence: true, table: item}\n"

/* ---- The data: values by feature and row ---- */

enum { AGE, PRICE, NUMBERS };

struct world {
    float label[ROWS];
    float weight[ROWS];
    float numbers[NUMBERS][ROWS * 3];
    const float *dense[NUMBERS];
    uint32_t offsets[8][ROWS + 1];
    uint32_t values[8][ROWS * HISTORY_MAX];
    struct batch_ids ids[8];
    struct batch_keys keys[8];
    uint32_t occ_offsets[8][32];
    uint32_t occs[8][2 * ROWS * HISTORY_MAX];
    uint64_t key_list[32];
    struct batch batch;
};

static uint32_t pick(uint32_t what, uint32_t index, uint32_t bound)
{
    return (uint32_t)rand_below(3, RAND_TEST, what, index, bound);
}

static float real(uint32_t what, uint32_t index)
{
    return (float)pick(what, index, 2001) / 1000.0f - 1.0f;
}

/* All keys of a table count as the batch's unique ones, so that a slot is the value itself. */
static void world_index(struct world *w, const struct data_schema *schema, uint32_t table)
{
    const uint32_t rows = (uint32_t)schema->tables[table].rows;
    uint32_t *offsets = w->occ_offsets[table];
    uint32_t count = 0;
    for (uint32_t key = 0; key < rows; key++) {
        offsets[key] = count;
        for (uint32_t f = 0; f < schema->ids_count; f++) {
            const struct batch_ids *ids = &w->ids[f];
            for (uint32_t i = 0; schema->ids[f].table == table && i < ids->count; i++) {
                if (ids->slots[i] == key) w->occs[table][count++] = ids->occ_base + i;
            }
        }
    }
    offsets[rows] = count;
    w->keys[table] = (struct batch_keys){.keys = w->key_list,
                                         .occ_offsets = offsets,
                                         .occs = w->occs[table],
                                         .keys_count = rows,
                                         .occs_count = count};
}

static void world_init(struct world *w, const struct data_schema *schema, uint32_t classes)
{
    memset(w, 0, sizeof *w);
    for (uint32_t row = 0; row < ROWS; row++) {
        w->label[row] = (float)pick(1, row, classes);
        w->weight[row] = 0.5f + (float)pick(2, row, 3);
    }
    for (uint32_t i = 0; i < ROWS * 3; i++) w->numbers[AGE][i] = real(3, i);
    for (uint32_t i = 0; i < ROWS * 3; i++) w->numbers[PRICE][i] = real(4, i);
    uint32_t bases[8] = {0};
    for (uint32_t f = 0; f < schema->ids_count; f++) {
        const struct data_ids *of = &schema->ids[f];
        uint32_t count = 0;
        for (uint32_t row = 0; row < ROWS; row++) {
            const uint32_t more = of->single ? 1 : pick(10 + f, row, HISTORY_MAX);
            for (uint32_t i = 0; i < more; i++, count++) {
                w->values[f][count] = pick(20 + f, count, (uint32_t)schema->tables[of->table].rows);
            }
            w->offsets[f][row + 1] = count;
        }
        w->ids[f] = (struct batch_ids){.offsets = of->single ? NULL : w->offsets[f],
                                       .slots = w->values[f],
                                       .count = count,
                                       .occ_base = bases[of->table]};
        bases[of->table] += count;
    }
    for (uint32_t t = 0; t < schema->tables_count; t++) world_index(w, schema, t);
    w->dense[0] = w->numbers[AGE];
    w->dense[1] = w->numbers[PRICE];
    w->batch = (struct batch){.rows = ROWS,
                              .label = w->label,
                              .weight = w->weight,
                              .dense = w->dense,
                              .ids = w->ids,
                              .tables = w->keys,
                              .dense_count = 2,
                              .ids_count = schema->ids_count,
                              .tables_count = schema->tables_count};
}

/* ---- Variables in double ---- */

struct var {
    const char *name;
    uint32_t rows;
    uint32_t cols;
    double *value;
    double *grad;
    double *slots[2];
    bool ftrl;
    bool sparse;
};

struct ref {
    const struct world *world;
    const struct data_schema *schema;
    struct var vars[VARS_MAX];
    uint32_t vars_count;
    uint32_t classes;
    bool squared;
    double scale; /* 1 / sum of weights */
    double loss;
};

static struct var *var(struct ref *ref, const char *name)
{
    for (uint32_t i = 0; i < ref->vars_count; i++) {
        if (strcmp(ref->vars[i].name, name) == 0) return &ref->vars[i];
    }
    test_fail(__FILE__, __LINE__, "no variable %s", name);
}

/* Adagrad, or FTRL-Proximal with l1 and l2, as TensorFlow. */
static void var_update(struct var *v)
{
    for (uint32_t i = 0; i < v->rows * v->cols; i++) {
        const double g = v->grad[i];
        double *w = &v->value[i];
        double *a = &v->slots[0][i];
        double *z = &v->slots[1][i];
        v->grad[i] = 0.0;
        const double b = *a + g * g;
        if (v->ftrl) {
            *z += g - (sqrt(b) - sqrt(*a)) / LEARNING_RATE * *w;
            const double sign = *z > 0 ? 1.0 : -1.0;
            *w = fabs(*z) > FTRL_L1
                     ? (sign * FTRL_L1 - *z) / (sqrt(b) / LEARNING_RATE + 2 * FTRL_L2)
                     : 0.0;
        } else {
            *w -= LEARNING_RATE * g / sqrt(b);
        }
        *a = b;
    }
}

/* ---- Pieces of models ---- */

enum kind { NUMBER, FACTORS, EMBEDDED };

struct column {
    const char *feature;
    const char *variable; /* of FACTORS and EMBEDDED */
    enum kind kind;
};

static uint32_t ids_of(const struct ref *ref, const char *feature)
{
    const int index = data_schema_find_ids(ref->schema, feature);
    CHECK(index >= 0);
    return (uint32_t)index;
}

/* The occurrences of a row. */
static uint32_t occurrences(const struct ref *ref, const char *feature, uint32_t row,
                            const uint32_t **values_out)
{
    const struct batch_ids *ids = &ref->world->ids[ids_of(ref, feature)];
    const uint32_t first = ids->offsets == NULL ? row : ids->offsets[row];
    *values_out = ids->slots + first;
    return ids->offsets == NULL ? 1 : ids->offsets[row + 1] - first;
}

static const float *numbers_of(const struct ref *ref, const char *feature, uint32_t row,
                               uint32_t *width_out)
{
    const int index = data_schema_find_dense(ref->schema, feature);
    CHECK(index >= 0);
    *width_out = ref->schema->dense[index].width;
    return ref->world->dense[index] + row * *width_out;
}

/* Writes a column of one row to out; returns its width. */
static uint32_t column_forward(struct ref *ref, const struct column *column, uint32_t row,
                               double *out)
{
    if (column->kind == NUMBER) {
        uint32_t width;
        const float *x = numbers_of(ref, column->feature, row, &width);
        for (uint32_t i = 0; i < width; i++) out[i] = (double)x[i];
        return width;
    }
    const struct var *v = var(ref, column->variable);
    memset(out, 0, v->cols * sizeof *out);
    if (column->kind == FACTORS) {
        uint32_t width;
        const float *x = numbers_of(ref, column->feature, row, &width);
        for (uint32_t i = 0; i < width; i++) {
            for (uint32_t c = 0; c < v->cols; c++)
                out[c] += (double)x[i] * v->value[i * v->cols + c];
        }
        return v->cols;
    }
    const uint32_t *values;
    const uint32_t count = occurrences(ref, column->feature, row, &values);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t c = 0; c < v->cols; c++) out[c] += v->value[values[i] * v->cols + c] / count;
    }
    return v->cols;
}

static uint32_t column_backward(struct ref *ref, const struct column *column, uint32_t row,
                                const double *dout)
{
    uint32_t width = 0;
    if (column->kind == NUMBER) {
        numbers_of(ref, column->feature, row, &width);
        return width;
    }
    struct var *v = var(ref, column->variable);
    if (column->kind == FACTORS) {
        const float *x = numbers_of(ref, column->feature, row, &width);
        for (uint32_t i = 0; i < width; i++) {
            for (uint32_t c = 0; c < v->cols; c++)
                v->grad[i * v->cols + c] += (double)x[i] * dout[c];
        }
        return v->cols;
    }
    const uint32_t *values;
    const uint32_t count = occurrences(ref, column->feature, row, &values);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t c = 0; c < v->cols; c++) v->grad[values[i] * v->cols + c] += dout[c] / count;
    }
    return v->cols;
}

static uint32_t columns_forward(struct ref *ref, const struct column *columns, uint32_t count,
                                uint32_t row, double *out)
{
    uint32_t width = 0;
    for (uint32_t i = 0; i < count; i++) {
        width += column_forward(ref, &columns[i], row, out + width);
    }
    return width;
}

static void columns_backward(struct ref *ref, const struct column *columns, uint32_t count,
                             uint32_t row, const double *dout)
{
    uint32_t width = 0;
    for (uint32_t i = 0; i < count; i++) {
        width += column_backward(ref, &columns[i], row, dout + width);
    }
}

/* <scope>/0 .. hidden-1 with ReLU, then `last` (NULL: none) without. */
struct layers {
    struct var *weight[LAYERS_MAX];
    struct var *bias[LAYERS_MAX];
    bool relu[LAYERS_MAX];
    uint32_t count;
    double x[LAYERS_MAX + 1][WIDTH_MAX]; /* inputs of each, then the output */
};

static void layers_add(struct ref *ref, struct layers *l, const char *scope, bool relu)
{
    char name[64];
    snprintf(name, sizeof name, "%s/weight", scope);
    l->weight[l->count] = var(ref, name);
    snprintf(name, sizeof name, "%s/bias", scope);
    l->bias[l->count] = var(ref, name);
    l->relu[l->count++] = relu;
}

static struct layers layers_of(struct ref *ref, const char *scope, uint32_t hidden,
                               const char *last)
{
    struct layers l = {0};
    for (uint32_t i = 0; i < hidden; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%u", scope, i);
        layers_add(ref, &l, name,
                   last != NULL || i + 1 < hidden || strcmp(scope, "attention") != 0);
    }
    if (last != NULL) layers_add(ref, &l, last, false);
    return l;
}

static const double *layers_forward(struct layers *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        const struct var *w = l->weight[i];
        for (uint32_t o = 0; o < w->cols; o++) {
            double z = l->bias[i]->value[o];
            for (uint32_t k = 0; k < w->rows; k++) z += l->x[i][k] * w->value[k * w->cols + o];
            l->x[i + 1][o] = l->relu[i] && z < 0.0 ? 0.0 : z;
        }
    }
    return l->x[l->count];
}

/* d is the gradient of the output and becomes that of the input. */
static void layers_backward(struct layers *l, double *d)
{
    for (uint32_t i = l->count; i-- > 0;) {
        const struct var *w = l->weight[i];
        double dx[WIDTH_MAX] = {0};
        for (uint32_t o = 0; o < w->cols; o++) {
            const double dz = l->relu[i] && l->x[i + 1][o] <= 0.0 ? 0.0 : d[o];
            l->bias[i]->grad[o] += dz;
            for (uint32_t k = 0; k < w->rows; k++) {
                w->grad[k * w->cols + o] += l->x[i][k] * dz;
                dx[k] += w->value[k * w->cols + o] * dz;
            }
        }
        memcpy(d, dx, sizeof dx);
    }
}

/* Adds the example's loss and turns logits into their gradient. */
static void finish(struct ref *ref, uint32_t row, const double *logits, double *d)
{
    const double label = (double)ref->world->label[row];
    const double factor = (double)ref->world->weight[row] * ref->scale;
    if (ref->squared) {
        ref->loss += factor * (logits[0] - label) * (logits[0] - label);
        d[0] = factor * 2.0 * (logits[0] - label);
    } else if (ref->classes == 1) {
        const double p = 1.0 / (1.0 + exp(-logits[0]));
        ref->loss -= factor * (label > 0.5 ? log(p) : log(1.0 - p));
        d[0] = factor * (p - label);
    } else {
        double sum = 0.0;
        for (uint32_t c = 0; c < ref->classes; c++) sum += exp(logits[c]);
        for (uint32_t c = 0; c < ref->classes; c++) {
            const double p = exp(logits[c]) / sum;
            const bool is_label = c == (uint32_t)label;
            if (is_label) ref->loss -= factor * log(p);
            d[c] = factor * (p - (is_label ? 1.0 : 0.0));
        }
    }
}

/* All features in the order of their names. */
static const struct column plain[] = {{"age", NULL, NUMBER},
                                      {"city", "city/embedding", EMBEDDED},
                                      {"price", NULL, NUMBER},
                                      {"shop", "shop/embedding", EMBEDDED},
                                      {"tags", "tags/embedding", EMBEDDED}};
static const struct column first_order[] = {{"age", "linear/age/weight", FACTORS},
                                            {"city", "linear/city/embedding", EMBEDDED},
                                            {"price", "linear/price/weight", FACTORS},
                                            {"shop", "linear/shop/embedding", EMBEDDED},
                                            {"tags", "linear/tags/embedding", EMBEDDED}};
static const struct column fields[] = {{"age", "age/factors", FACTORS},
                                       {"city", "city/embedding", EMBEDDED},
                                       {"price", "price/factors", FACTORS},
                                       {"shop", "shop/embedding", EMBEDDED},
                                       {"tags", "tags/embedding", EMBEDDED}};
#define FIELDS 5
#define DIM 4

/* bias + sum of the first-order terms of `count` columns. */
static double linear_forward(struct ref *ref, const struct column *columns, uint32_t count,
                             uint32_t row)
{
    double sum = var(ref, "linear/bias")->value[0];
    for (uint32_t i = 0; i < count; i++) {
        double term;
        column_forward(ref, &columns[i], row, &term);
        sum += term;
    }
    return sum;
}

static void linear_backward(struct ref *ref, const struct column *columns, uint32_t count,
                            uint32_t row, double d)
{
    var(ref, "linear/bias")->grad[0] += d;
    for (uint32_t i = 0; i < count; i++) column_backward(ref, &columns[i], row, &d);
}

/* ---- The models, one example each ---- */

static void stack(struct ref *ref, uint32_t row, uint32_t hidden)
{
    struct layers l = layers_of(ref, "hidden", hidden, "output");
    double d[WIDTH_MAX] = {0};
    columns_forward(ref, plain, FIELDS, row, l.x[0]);
    finish(ref, row, layers_forward(&l), d);
    layers_backward(&l, d);
    columns_backward(ref, plain, FIELDS, row, d);
}

static void mlp(struct ref *ref, uint32_t row)
{
    stack(ref, row, 2);
}

static void softmax(struct ref *ref, uint32_t row)
{
    stack(ref, row, 0);
}

static void linear(struct ref *ref, uint32_t row)
{
    double d;
    const double y = linear_forward(ref, first_order, FIELDS, row);
    finish(ref, row, &y, &d);
    linear_backward(ref, first_order, FIELDS, row, d);
}

/* Sum of dot products of all pairs of fields, and its gradient times dy added to dx. */
static double pairs_forward(const double *x)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < FIELDS; i++) {
        for (uint32_t j = 0; j < i; j++) {
            for (uint32_t c = 0; c < DIM; c++) sum += x[i * DIM + c] * x[j * DIM + c];
        }
    }
    return sum;
}

static void pairs_backward(const double *x, double dy, double *dx)
{
    for (uint32_t i = 0; i < FIELDS; i++) {
        for (uint32_t j = 0; j < FIELDS; j++) {
            for (uint32_t c = 0; c < DIM && i != j; c++) dx[i * DIM + c] += dy * x[j * DIM + c];
        }
    }
}

static void fm(struct ref *ref, uint32_t row)
{
    double x[WIDTH_MAX];
    double dx[WIDTH_MAX] = {0};
    double d;
    columns_forward(ref, fields, FIELDS, row, x);
    const double y = linear_forward(ref, first_order, FIELDS, row) + pairs_forward(x);
    finish(ref, row, &y, &d);
    linear_backward(ref, first_order, FIELDS, row, d);
    pairs_backward(x, d, dx);
    columns_backward(ref, fields, FIELDS, row, dx);
}

static void deepfm(struct ref *ref, uint32_t row)
{
    struct layers l = layers_of(ref, "hidden", 1, "output");
    double dx[WIDTH_MAX] = {0};
    double d;
    columns_forward(ref, fields, FIELDS, row, l.x[0]);
    const double y = linear_forward(ref, first_order, FIELDS, row) + pairs_forward(l.x[0]) +
                     layers_forward(&l)[0];
    finish(ref, row, &y, &d);
    linear_backward(ref, first_order, FIELDS, row, d);
    dx[0] = d;
    layers_backward(&l, dx);
    pairs_backward(l.x[0], d, dx);
    columns_backward(ref, fields, FIELDS, row, dx);
}

/* wide: city and tags; deep: age, city, shop. */
static void wide_deep(struct ref *ref, uint32_t row)
{
    const struct column wide[] = {first_order[1], first_order[4]};
    const struct column deep[] = {plain[0], plain[1], plain[3]};
    struct layers l = layers_of(ref, "hidden", 1, "output");
    double dx[WIDTH_MAX] = {0};
    double d;
    columns_forward(ref, deep, 3, row, l.x[0]);
    const double y = linear_forward(ref, wide, 2, row) + layers_forward(&l)[0];
    finish(ref, row, &y, &d);
    linear_backward(ref, wide, 2, row, d);
    dx[0] = d;
    layers_backward(&l, dx);
    columns_backward(ref, deep, 3, row, dx);
}

/* Fields: the bottom's output, city, shop, tags; the top sees the bottom and all dot products. */
static void dlrm(struct ref *ref, uint32_t row)
{
    enum { VECTORS = 4 };
    const struct column numbers[] = {plain[0], plain[2]};
    const struct column embedded[] = {plain[1], plain[3], plain[4]};
    struct layers bottom = layers_of(ref, "bottom", 2, NULL);
    struct layers top = layers_of(ref, "top", 1, "output");
    double x[VECTORS * DIM];
    double dx[VECTORS * DIM] = {0};
    double d[WIDTH_MAX] = {0};
    columns_forward(ref, numbers, 2, row, bottom.x[0]);
    memcpy(x, layers_forward(&bottom), DIM * sizeof *x);
    columns_forward(ref, embedded, 3, row, x + DIM);
    memcpy(top.x[0], x, DIM * sizeof *x);
    uint32_t pair = 0;
    for (uint32_t i = 1; i < VECTORS; i++) {
        for (uint32_t j = 0; j < i; j++, pair++) {
            top.x[0][DIM + pair] = 0.0;
            for (uint32_t c = 0; c < DIM; c++) {
                top.x[0][DIM + pair] += x[i * DIM + c] * x[j * DIM + c];
            }
        }
    }
    finish(ref, row, layers_forward(&top), d);
    layers_backward(&top, d);
    memcpy(dx, d, DIM * sizeof *dx);
    pair = 0;
    for (uint32_t i = 1; i < VECTORS; i++) {
        for (uint32_t j = 0; j < i; j++, pair++) {
            for (uint32_t c = 0; c < DIM; c++) {
                dx[i * DIM + c] += d[DIM + pair] * x[j * DIM + c];
                dx[j * DIM + c] += d[DIM + pair] * x[i * DIM + c];
            }
        }
    }
    columns_backward(ref, embedded, 3, row, dx + DIM);
    double db[WIDTH_MAX] = {0};
    memcpy(db, dx, DIM * sizeof *db);
    layers_backward(&bottom, db);
}

/* The attention of one row, with what backward needs. */
struct attention {
    struct layers l[HISTORY_MAX];
    double p[HISTORY_MAX];
    const uint32_t *values;
    uint32_t count;
};

static void attention_forward(struct ref *ref, uint32_t row, uint32_t hidden, const double *t,
                              double *out, struct attention *a)
{
    const struct var *item = var(ref, "item/embedding");
    double sum = 0.0;
    a->count = occurrences(ref, "seen", row, &a->values);
    for (uint32_t i = 0; i < a->count; i++) {
        const double *h = &item->value[a->values[i] * DIM];
        a->l[i] = layers_of(ref, "attention", hidden + 1, NULL);
        for (uint32_t c = 0; c < DIM; c++) {
            a->l[i].x[0][c] = h[c];
            a->l[i].x[0][DIM + c] = h[c] - t[c];
            a->l[i].x[0][2 * DIM + c] = t[c];
            a->l[i].x[0][3 * DIM + c] = h[c] * t[c];
        }
        a->p[i] = exp(layers_forward(&a->l[i])[0]);
        sum += a->p[i];
    }
    memset(out, 0, DIM * sizeof *out);
    for (uint32_t i = 0; i < a->count; i++) {
        a->p[i] /= sum;
        for (uint32_t c = 0; c < DIM; c++) {
            out[c] += a->p[i] * item->value[a->values[i] * DIM + c];
        }
    }
}

static void attention_backward(struct ref *ref, const double *t, const double *dout, double *dt,
                               struct attention *a)
{
    struct var *item = var(ref, "item/embedding");
    double dp[HISTORY_MAX];
    double mean = 0.0;
    for (uint32_t i = 0; i < a->count; i++) {
        dp[i] = 0.0;
        for (uint32_t c = 0; c < DIM; c++) dp[i] += dout[c] * item->value[a->values[i] * DIM + c];
        mean += a->p[i] * dp[i];
    }
    for (uint32_t i = 0; i < a->count; i++) {
        const double *h = &item->value[a->values[i] * DIM];
        double *dh = &item->grad[a->values[i] * DIM];
        double d[WIDTH_MAX] = {a->p[i] * (dp[i] - mean)};
        layers_backward(&a->l[i], d);
        for (uint32_t c = 0; c < DIM; c++) {
            dh[c] += a->p[i] * dout[c] + d[c] + d[DIM + c] + d[3 * DIM + c] * t[c];
            dt[c] += d[2 * DIM + c] - d[DIM + c] + d[3 * DIM + c] * h[c];
        }
    }
}

static void din_of(struct ref *ref, uint32_t row, uint32_t attention_hidden)
{
    static const struct column target = {"item", "item/embedding", EMBEDDED};
    struct layers l = layers_of(ref, "hidden", 2, "output");
    struct attention a;
    double d[WIDTH_MAX] = {0};
    const uint32_t user = columns_forward(ref, plain, FIELDS, row, l.x[0]);
    double *t = l.x[0] + user;
    column_forward(ref, &target, row, t);
    attention_forward(ref, row, attention_hidden, t, t + DIM, &a);
    finish(ref, row, layers_forward(&l), d);
    layers_backward(&l, d);
    columns_backward(ref, plain, FIELDS, row, d);
    attention_backward(ref, t, d + user + DIM, d + user, &a);
    column_backward(ref, &target, row, d + user);
}

static void din(struct ref *ref, uint32_t row)
{
    din_of(ref, row, 2);
}

static void din_one_layer(struct ref *ref, uint32_t row)
{
    din_of(ref, row, 1);
}

/* ---- Both, step by step ---- */

struct side { /* the graph's variables, in float */
    float *value[VARS_MAX];
    float *slots[VARS_MAX][2];
    float *grads[VARS_MAX];
    const float *params[VARS_MAX];
    const float *tables[VARS_MAX];
};

static void add_var(struct ref *ref, struct side *side, const struct graph_variable *of,
                    uint32_t rows, const char *rule, bool sparse)
{
    const uint32_t at = ref->vars_count++;
    const uint32_t count = rows * of->cols;
    CHECK(at < VARS_MAX);
    struct var *v = &ref->vars[at];
    *v = (struct var){.name = of->name,
                      .rows = rows,
                      .cols = of->cols,
                      .sparse = sparse,
                      .ftrl = rule != NULL && strcmp(rule, "ftrl") == 0};
    v->value = calloc(count, sizeof *v->value);
    v->grad = calloc(count, sizeof *v->grad);
    side->value[at] = calloc(count, sizeof(float));
    side->grads[at] = calloc(count, sizeof(float));
    for (int s = 0; s < 2; s++) {
        v->slots[s] = calloc(count, sizeof *v->slots[s]);
        side->slots[at][s] = calloc(count, sizeof(float));
    }
    for (uint32_t i = 0; i < count; i++) {
        side->value[at][i] = v->ftrl ? 0.0f : 0.4f * real(100 + at, i);
        v->value[i] = (double)side->value[at][i];
        side->slots[at][0][i] = 0.1f;
        v->slots[0][i] = (double)0.1f;
    }
}

static void free_vars(struct ref *ref, struct side *side)
{
    for (uint32_t i = 0; i < ref->vars_count; i++) {
        free(ref->vars[i].value);
        free(ref->vars[i].grad);
        free(side->value[i]);
        free(side->grads[i]);
        for (int s = 0; s < 2; s++) {
            free(ref->vars[i].slots[s]);
            free(side->slots[i][s]);
        }
    }
}

static void side_update(struct side *side, const struct ref *ref, uint32_t at)
{
    const struct var *v = &ref->vars[at];
    const struct kern_update update = {.rule = v->ftrl ? KERN_FTRL : KERN_ADAGRAD,
                                       .lr = (float)LEARNING_RATE,
                                       .scale = 1.0f,
                                       .l1 = v->ftrl ? (float)FTRL_L1 : 0.0f,
                                       .l2 = v->ftrl ? (float)FTRL_L2 : 0.0f,
                                       .power = -0.5f};
    kern_default()->update(&update, (size_t)v->rows * v->cols, side->value[at], side->slots[at][0],
                           side->slots[at][1], side->grads[at]);
}

static void compare(const struct ref *ref, const struct side *side, uint32_t step, double loss)
{
    if (!(fabs(loss - ref->loss) <= 2e-5 * (1.0 + fabs(ref->loss)))) {
        test_fail(__FILE__, __LINE__, "step %u: loss %.9g, want %.9g", step, loss, ref->loss);
    }
    for (uint32_t i = 0; i < ref->vars_count; i++) {
        const struct var *v = &ref->vars[i];
        for (uint32_t e = 0; e < v->rows * v->cols; e++) {
            if (fabs((double)side->value[i][e] - v->value[e]) <= 1e-4) continue;
            test_fail(__FILE__, __LINE__, "step %u: %s[%u]: got %.9g, want %.9g", step, v->name, e,
                      (double)side->value[i][e], v->value[e]);
        }
    }
}

static void step_both(struct ref *ref, struct side *side, struct exec *exec,
                      const struct graph *graph, uint32_t step,
                      void (*example)(struct ref *ref, uint32_t row))
{
    const struct exec_feed feed = {.batch = &ref->world->batch,
                                   .params = side->params,
                                   .tables = side->tables,
                                   .grads = side->grads,
                                   .step = step};
    CHECK_OK(exec_run(exec, &feed, &err));
    const uint32_t params = graph_params_count(graph);
    for (uint32_t t = 0; t < graph_tables_count(graph); t++) {
        const struct exec_value grad = exec_table_grad(exec, t);
        for (uint32_t i = 0; i < grad.rows * grad.cols; i++) {
            side->grads[params + t][i] = grad.values[i / grad.cols * grad.stride + i % grad.cols];
        }
    }
    ref->loss = 0.0;
    for (uint32_t row = 0; row < ROWS; row++) example(ref, row);
    for (uint32_t i = 0; i < ref->vars_count; i++) {
        side_update(side, ref, i);
        var_update(&ref->vars[i]);
    }
    compare(ref, side, step, exec_loss(exec));
}

static void check_model(const char *text, void (*example)(struct ref *ref, uint32_t row))
{
    struct config *config = NULL;
    struct data_spec *spec = NULL;
    struct model *model = NULL;
    struct exec *exec = NULL;
    static struct world world;
    static struct side side;
    CHECK_OK(config_parse("job.yaml", text, &config, &err));
    const struct config_node *root = config_root(config);
    CHECK_OK(data_spec_create(config_get(root, "features"), NULL, &spec, &err));
    const struct data_schema *schema = data_spec_schema(spec);
    CHECK_OK(model_create(config_get(root, "model"), schema, &model, &err));
    const struct graph *graph = model->graph;
    world_init(&world, schema, model->classes == 1 ? 2 : model->classes);
    struct ref ref = {.world = &world,
                      .schema = schema,
                      .classes = model->classes,
                      .squared = model->task == MODEL_REGRESSION};
    double total = 0.0;
    for (uint32_t row = 0; row < ROWS; row++) total += (double)world.weight[row];
    ref.scale = 1.0 / total;
    const uint32_t params = graph_params_count(graph);
    for (uint32_t i = 0; i < params; i++) {
        const struct graph_variable *of = graph_param_at(graph, i);
        add_var(&ref, &side, of, of->rows == 0 ? 1 : of->rows, model->param_rules[i], false);
        side.params[i] = side.value[i];
    }
    for (uint32_t i = 0; i < graph_tables_count(graph); i++) {
        const struct graph_variable *of = graph_table_at(graph, i);
        add_var(&ref, &side, of, (uint32_t)schema->tables[of->rows].rows, model->table_rules[i],
                true);
        side.tables[i] = side.value[params + i];
    }
    CHECK_OK(exec_create(&(struct exec_opts){.graph = graph, .batch_max = ROWS, .train = true},
                         &exec, &err));
    for (uint32_t step = 1; step <= STEPS; step++) {
        step_both(&ref, &side, exec, graph, step, example);
    }
    free_vars(&ref, &side);
    exec_destroy(exec);
    model_destroy(model);
    data_spec_destroy(spec);
    config_destroy(config);
}

TEST(din_is_the_reference)
{
    check_model("model: {type: din, attention: [6, 3], hidden: [8, 5]}\n" FEATURES HISTORY, din);
}

TEST(din_with_one_attention_layer_is_the_reference)
{
    check_model("model: {type: din, attention: [6], hidden: [8, 5]}\n" FEATURES HISTORY,
                din_one_layer);
}

TEST(mlp_is_the_reference)
{
    check_model("model: {type: mlp, hidden: [9, 6], classes: 3}\n" FEATURES, mlp);
}

TEST(softmax_is_the_reference)
{
    check_model("model: {type: softmax, classes: 4}\n" FEATURES, softmax);
}

TEST(logistic_regression_is_the_reference)
{
    check_model("model: {type: softmax}\n" FEATURES, softmax);
}

TEST(linear_is_the_reference)
{
    check_model("model: {type: linear}\n" FEATURES, linear);
}

TEST(fm_is_the_reference)
{
    check_model("model: {type: fm}\n" FEATURES, fm);
}

TEST(wide_deep_is_the_reference)
{
    check_model("model: {type: wide_deep, wide: [city, tags], deep: [age, city, shop], "
                "hidden: [7]}\n" FEATURES,
                wide_deep);
}

TEST(deepfm_is_the_reference)
{
    check_model("model: {type: deepfm, hidden: [7]}\n" FEATURES, deepfm);
}

TEST(dlrm_is_the_reference)
{
    check_model("model: {type: dlrm, bottom: [6], top: [7], dim: 4}\n" FEATURES, dlrm);
}
