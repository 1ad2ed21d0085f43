/* Every operation's gradient against central differences of the loss. */
#include <stdlib.h>

#include "base/mem.h"
#include "graph/graph_fixture.h"

/* Each case builds a loss from parameters "p0", "p1", ... and tables; what they hold is random. */
typedef graph_id case_cb(struct graph *g);

static graph_id param(struct graph *g, const char *name, uint32_t rows, uint32_t cols)
{
    return graph_param(g, name, rows, cols, init_constant(0));
}

static graph_id table(struct graph *g, const char *name, uint32_t keys, uint32_t dim)
{
    return graph_table(g, name, keys, dim, init_constant(0));
}

/* Any matrix of the batch to one number: a fixed random projection, then the squared loss. */
static graph_id to_loss(struct graph *g, graph_id x)
{
    const uint32_t cols = x == GRAPH_NONE ? 1 : graph_shape_of(g, x).cols;
    graph_id y = graph_matmul(g, x, param(g, "projection", cols, 1));
    return graph_squared_loss(g, y, graph_label(g), graph_weight(g));
}

static graph_id ids1(struct graph *g)
{
    return graph_ids(g, 1, 0, false);
}
static graph_id ids2(struct graph *g)
{
    return graph_ids(g, 2, 1, false);
}

static graph_id dense_linear(struct graph *g)
{
    return to_loss(g, graph_dense(g, graph_numeric(g, 0, 5), param(g, "w", 5, 7),
                                  param(g, "b", 1, 7), GRAPH_LINEAR));
}

static graph_id dense_relu_twice(struct graph *g)
{
    graph_id x = graph_dense(g, graph_numeric(g, 0, 5), param(g, "w", 5, 20), param(g, "b", 1, 20),
                             GRAPH_RELU);
    return to_loss(g, graph_dense(g, x, param(g, "w2", 20, 9), GRAPH_NONE, GRAPH_RELU));
}

static graph_id dense_sigmoid_tanh(struct graph *g)
{
    graph_id x = graph_dense(g, graph_numeric(g, 0, 5), param(g, "w", 5, 8), param(g, "b", 1, 8),
                             GRAPH_SIGMOID);
    return to_loss(g, graph_dense(g, x, param(g, "w2", 8, 8), param(g, "b2", 1, 8), GRAPH_TANH));
}

/* Weights beyond the size that is computed row chunk by row chunk. */
static graph_id dense_large(struct graph *g)
{
    graph_id x =
        graph_dense(g, graph_numeric(g, 0, 5), param(g, "w", 5, 260), GRAPH_NONE, GRAPH_TANH);
    graph_id w2 = graph_scale(g, param(g, "w2", 260, 260), 0.2f);
    return to_loss(g, graph_dense(g, x, w2, param(g, "b2", 1, 260), GRAPH_TANH));
}

static graph_id activations(struct graph *g)
{
    graph_id x = graph_matmul(g, graph_numeric(g, 0, 5), param(g, "w", 5, 6));
    graph_id y = graph_add(g, graph_act(g, x, GRAPH_SIGMOID), graph_act(g, x, GRAPH_TANH));
    return to_loss(g, graph_add(g, y, graph_act(g, x, GRAPH_RELU)));
}

static graph_id arithmetic(struct graph *g)
{
    graph_id a = graph_matmul(g, graph_numeric(g, 0, 5), param(g, "a", 5, 6));
    graph_id b = graph_matmul(g, graph_numeric(g, 0, 5), param(g, "b", 5, 6));
    graph_id c = graph_mul(g, graph_sub(g, a, b), graph_add(g, a, graph_scale(g, b, 0.5f)));
    return to_loss(g, graph_add_n(g, (graph_id[]){a, b, c, a}, 4));
}

static graph_id spread_row_column_number(struct graph *g)
{
    graph_id x = graph_matmul(g, graph_numeric(g, 0, 5), param(g, "w", 5, 6));
    graph_id column = graph_matmul(g, graph_numeric(g, 0, 5), param(g, "column", 5, 1));
    x = graph_mul(g, x, param(g, "row", 1, 6));
    x = graph_add(g, x, param(g, "row2", 1, 6));
    x = graph_mul(g, x, column);
    x = graph_sub(g, x, column);
    x = graph_mul(g, x, param(g, "number", 1, 1));
    x = graph_sub(g, x, param(g, "row3", 1, 6));
    return to_loss(g, graph_sub(g, x, param(g, "number2", 1, 1)));
}

static graph_id concat_slice(struct graph *g)
{
    graph_id a = graph_matmul(g, graph_numeric(g, 0, 5), param(g, "a", 5, 6));
    graph_id b = graph_act(g, a, GRAPH_TANH);
    graph_id all = graph_concat(g, (graph_id[]){a, graph_numeric(g, 1, 1), b, a}, 4);
    return to_loss(g, graph_mul(g, graph_slice(g, all, 2, 9), graph_slice(g, all, 8, 9)));
}

static graph_id sum_mean_softmax(struct graph *g)
{
    graph_id x = graph_matmul(g, graph_numeric(g, 0, 5), param(g, "a", 5, 6));
    graph_id p = graph_softmax(g, x);
    graph_id y = graph_mul(g, p, graph_sum(g, x));
    return to_loss(g, graph_concat(g, (graph_id[]){y, graph_mean(g, graph_mul(g, x, x))}, 2));
}

static graph_id dropout(struct graph *g)
{
    graph_id x = graph_matmul(g, graph_numeric(g, 0, 5), param(g, "a", 5, 40));
    x = graph_dropout(g, x, 0.3f);
    x = graph_dense(g, x, param(g, "b", 40, 33), GRAPH_NONE, GRAPH_TANH);
    return to_loss(g, graph_dropout(g, x, 0.5f));
}

static graph_id gather(struct graph *g)
{
    graph_id rows = table(g, "t", 0, 4);
    graph_id other = table(g, "u", 1, 3);
    graph_id a = graph_gather(g, rows, graph_ids(g, 0, 0, true));
    graph_id b = graph_gather(g, other, graph_ids(g, 3, 1, true));
    graph_id c = graph_pool(g, rows, ids1(g), GRAPH_SUM);
    return to_loss(g, graph_concat(g, (graph_id[]){b, a, graph_mul(g, a, c)}, 3));
}

static graph_id pool_mean_weights(struct graph *g)
{
    graph_id rows = table(g, "t", 1, 5);
    graph_id a = graph_pool(g, rows, ids2(g), GRAPH_MEAN);
    return to_loss(g, graph_act(g, a, GRAPH_TANH));
}

static graph_id pool_sqrtn_twice(struct graph *g)
{
    graph_id rows = table(g, "t", 1, 5);
    graph_id a = graph_pool(g, rows, ids2(g), GRAPH_SQRTN);
    graph_id b = graph_pool(g, rows, ids2(g), GRAPH_SUM);
    graph_id c = graph_gather(g, rows, graph_ids(g, 3, 1, true));
    return to_loss(g, graph_concat(g, (graph_id[]){graph_mul(g, a, b), c}, 2));
}

static graph_id attention_of(struct graph *g, uint32_t hidden)
{
    static const uint32_t widths[] = {6, 5, 3};
    static const char *const names[] = {"w0", "b0", "w1", "b1", "w2", "b2", "w3", "b3"};
    graph_id rows = table(g, "t", 0, 4);
    graph_id target = graph_gather(g, rows, graph_ids(g, 0, 0, true));
    graph_id layers[8];
    uint32_t in = 16;
    for (uint32_t i = 0; i <= hidden; i++) {
        const uint32_t out = i < hidden ? widths[i] : 1;
        layers[2 * i] = param(g, names[2 * i], in, out);
        layers[2 * i + 1] = param(g, names[2 * i + 1], 1, out);
        in = out;
    }
    graph_id attended = graph_attention(g, rows, ids1(g), target, layers, hidden + 1);
    return to_loss(g, graph_concat(g, (graph_id[]){target, attended}, 2));
}

static graph_id attention_fused(struct graph *g)
{
    return attention_of(g, 2);
}
static graph_id attention_short(struct graph *g)
{
    return attention_of(g, 1);
}
static graph_id attention_deep(struct graph *g)
{
    return attention_of(g, 3);
}

static graph_id fields(struct graph *g)
{
    graph_id rows = table(g, "t", 0, 4);
    graph_id other = table(g, "u", 1, 4);
    graph_id x[] = {graph_gather(g, rows, graph_ids(g, 0, 0, true)),
                    graph_gather(g, other, graph_ids(g, 3, 1, true)),
                    graph_pool(g, rows, ids1(g), GRAPH_MEAN)};
    graph_id all = graph_concat(g, x, 3);
    graph_id both[] = {graph_fm(g, all, 4), graph_dots(g, all, 4)};
    return to_loss(g, graph_concat(g, both, 2));
}

static graph_id loss_sigmoid(struct graph *g)
{
    graph_id x = graph_matmul(g, graph_numeric(g, 0, 5), param(g, "w", 5, 1));
    graph_id loss = graph_sigmoid_loss(g, x, graph_label(g), graph_weight(g));
    graph_id plain = graph_sigmoid_loss(g, x, graph_label(g), GRAPH_NONE);
    return graph_add(g, graph_scale(g, loss, 2.0f), plain);
}

static graph_id loss_softmax_l2(struct graph *g)
{
    graph_id w = param(g, "w", 5, 3);
    graph_id x = graph_dense(g, graph_numeric(g, 0, 5), w, param(g, "b", 1, 3), GRAPH_LINEAR);
    graph_id loss = graph_softmax_loss(g, x, graph_label(g), graph_weight(g));
    return graph_add(g, loss, graph_scale(g, graph_l2(g, w, 0.7f), 3.0f));
}

/* A loss times a parameter: the derivative that reaches the losses is not a constant. */
static graph_id loss_times_parameter(struct graph *g)
{
    graph_id w = param(g, "w", 5, 1);
    graph_id loss = graph_squared_loss(g, graph_matmul(g, graph_numeric(g, 0, 5), w),
                                       graph_label(g), GRAPH_NONE);
    return graph_mul(g, graph_add(g, loss, graph_l2(g, w, 0.5f)), param(g, "factor", 1, 1));
}

/* Products of parameters alone. */
static graph_id fixed_shapes(struct graph *g)
{
    graph_id z = graph_matmul(g, param(g, "x", 4, 3), param(g, "y", 3, 5));
    graph_id all = graph_concat(g, (graph_id[]){z, graph_act(g, z, GRAPH_TANH)}, 2);
    return graph_l2(g, graph_slice(g, all, 3, 6), 1.0f);
}

struct check { /* one case while it runs */
    struct fixture *fix;
    struct exec *exec;
    const char *name;
    uint32_t checked;
    uint32_t kinks;
};

static double loss_at(struct check *check, float *where, float value)
{
    struct err err;
    const float kept = *where;
    struct exec_feed feed = fix_feed(check->fix);
    *where = value;
    CHECK_OK(exec_run(check->exec, &feed, &err));
    *where = kept;
    return exec_loss(check->exec);
}

/* Where the two one-sided differences disagree there is a kink (ReLU) nearby: no verdict. */
static void check_element(struct check *check, const char *variable, float *where, double got,
                          double loss)
{
    const float h = 0.01f;
    const double up = (loss_at(check, where, *where + h) - loss) / (double)h;
    const double down = (loss - loss_at(check, where, *where - h)) / (double)h;
    const double want = 0.5 * (up + down);
    check->checked++;
    if (fabs(up - down) > 0.2 * (fabs(up) + fabs(down)) + 1e-3) {
        check->kinks++;
        return;
    }
    if (fabs(got - want) > 0.02 * fabs(want) + 1e-3) {
        test_fail(__FILE__, __LINE__, "%s: gradient of %s: got %.6g, want %.6g", check->name,
                  variable, got, want);
    }
}

static void check_case(const char *name, case_cb *build, bool classes)
{
    struct err err;
    struct graph *g = NULL;
    struct check check = {.name = name, .fix = malloc(sizeof(struct fixture))};
    fix_init(check.fix, FIX_ROWS);
    if (classes) check.fix->batch.label = check.fix->classes;
    CHECK_OK(graph_create(&g, &err));
    const graph_id loss = build(g);
    CHECK_OK(graph_check(g, &err));
    CHECK_OK(graph_differentiate(g, loss, &err));
    CHECK_OK(exec_create(
        &(struct exec_opts){.graph = g, .batch_max = FIX_ROWS, .train = true, .seed = 5},
        &check.exec, &err));
    const double start = loss_at(&check, check.fix->param[0], check.fix->param[0][0]);
    float(*grads)[FIX_FLOATS] = malloc(sizeof check.fix->param_grad);
    memcpy(grads, check.fix->param_grad, sizeof check.fix->param_grad);
    static float rows[FIX_VARS][FIX_KEYS * 16];
    for (uint32_t t = 0; t < graph_tables_count(g); t++) {
        const struct exec_value value = exec_table_grad(check.exec, t);
        CHECK_INT(value.rows, FIX_KEYS);
        for (uint32_t i = 0; i < value.rows * value.cols; i++) {
            rows[t][i] = value.values[i / value.cols * value.stride + i % value.cols];
        }
    }
    for (uint32_t p = 0; p < graph_params_count(g); p++) {
        const struct graph_variable *v = graph_param_at(g, p);
        const uint32_t count = v->rows * v->cols;
        CHECK(count <= FIX_FLOATS);
        for (uint32_t i = 0; i < count; i += 1 + count / 17) {
            check_element(&check, v->name, &check.fix->param[p][i], grads[p][i], start);
        }
    }
    for (uint32_t t = 0; t < graph_tables_count(g); t++) {
        const uint32_t count = FIX_KEYS * graph_table_at(g, t)->cols;
        for (uint32_t i = 0; i < count; i += 1 + count / 19) {
            check_element(&check, graph_table_at(g, t)->name, &check.fix->table[t][i], rows[t][i],
                          start);
        }
    }
    CHECK(check.checked > 0);
    if (check.kinks * 3 > check.checked) {
        test_fail(__FILE__, __LINE__, "%s: %u of %u differences are not smooth", name, check.kinks,
                  check.checked);
    }
    exec_destroy(check.exec);
    graph_destroy(g);
    free(grads);
    free(check.fix);
}

#define CASE(name)                                                                                 \
    TEST(gradient_of_##name)                                                                       \
    {                                                                                              \
        check_case(#name, name, false);                                                            \
    }

CASE(dense_linear)
CASE(dense_relu_twice)
CASE(dense_sigmoid_tanh)
CASE(dense_large)
CASE(activations)
CASE(arithmetic)
CASE(spread_row_column_number)
CASE(concat_slice)
CASE(sum_mean_softmax)
CASE(dropout)
CASE(gather)
CASE(pool_mean_weights)
CASE(pool_sqrtn_twice)
CASE(attention_fused)
CASE(attention_short)
CASE(attention_deep)
CASE(fields)
CASE(loss_sigmoid)
CASE(loss_times_parameter)
CASE(fixed_shapes)

TEST(gradient_of_loss_softmax_l2)
{
    check_case("loss_softmax_l2", loss_softmax_l2, true);
}
