/* Running: the same bits on any team, sinks and sums of gradients, memory that stays, what is not
 * finite, and batches that do not fit. */
#include "graph/exec.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "graph/graph_fixture.h"

static struct err err;

/* Attention, pooling, shared tables, dropout, small and large layers, an L2 term. */
static struct graph *network(void)
{
    struct graph *g = NULL;
    CHECK_OK(graph_create(&g, &err));
    graph_id items = graph_table(g, "items", 0, 4, init_constant(0));
    graph_id shops = graph_table(g, "shops", 1, 6, init_constant(0));
    graph_id target = graph_gather(g, items, graph_ids(g, 0, 0, true));
    const uint32_t sizes[] = {16, 5, 3, 1};
    static const char *const names[] = {"a0", "b0", "a1", "b1", "a2", "b2"};
    graph_id layers[6];
    for (uint32_t i = 0; i < 3; i++) {
        layers[2 * i] = graph_param(g, names[2 * i], sizes[i], sizes[i + 1], init_constant(0));
        layers[2 * i + 1] = graph_vector(g, names[2 * i + 1], sizes[i + 1], init_constant(0));
    }
    graph_id columns[] = {graph_numeric(g, 0, 5), target,
                          graph_attention(g, items, graph_ids(g, 1, 0, false), target, layers, 3),
                          graph_pool(g, shops, graph_ids(g, 2, 1, false), GRAPH_SQRTN),
                          graph_gather(g, shops, graph_ids(g, 3, 1, true))};
    graph_id x = graph_concat(g, columns, 5);
    x = graph_dense(g, x, graph_param(g, "wide", 25, 260, init_constant(0)),
                    graph_vector(g, "wide/bias", 260, init_constant(0)), GRAPH_RELU);
    x = graph_dropout(g, x, 0.4f);
    x = graph_dense(g, x, graph_param(g, "large", 260, 260, init_constant(0)), GRAPH_NONE,
                    GRAPH_RELU); /* more weights than a row stage takes */
    graph_id last = graph_param(g, "last", 260, 1, init_constant(0));
    x = graph_matmul(g, x, last);
    graph_id loss = graph_sigmoid_loss(g, x, graph_label(g), graph_weight(g));
    loss = graph_add(g, loss, graph_l2(g, last, 0.1f));
    graph_name(g, x, "logit");
    CHECK_OK(graph_differentiate(g, loss, &err));
    return g;
}

/* A batch, a graph to train and its executor. */
struct rig {
    struct fixture *fix;
    struct graph *graph;
    struct exec *exec;
    struct exec_feed feed;
};

static void rig_init(struct rig *rig, uint32_t rows, struct graph *graph)
{
    rig->fix = malloc(sizeof *rig->fix);
    fix_init(rig->fix, rows);
    rig->graph = graph;
    rig->exec = NULL;
    rig->feed = fix_feed(rig->fix);
    const struct exec_opts opts = {.graph = graph, .batch_max = FIX_ROWS, .train = true, .seed = 9};
    CHECK_OK(exec_create(&opts, &rig->exec, &err));
}

static void rig_fini(struct rig *rig)
{
    exec_destroy(rig->exec);
    graph_destroy(rig->graph);
    free(rig->fix);
}

struct taken { /* gradients as a sink saw them */
    float grads[FIX_VARS][FIX_FLOATS];
    uint8_t times[FIX_VARS][FIX_FLOATS];
};

static void take(void *ctx, uint32_t param, size_t first, size_t count, const float *grad,
                 uint32_t thread)
{
    struct taken *taken = ctx;
    (void)thread;
    for (size_t i = 0; i < count; i++) {
        taken->grads[param][first + i] = grad[i];
        taken->times[param][first + i]++;
    }
}

static size_t elements(const struct graph_variable *v)
{
    return (size_t)(v->rows == 0 ? 1 : v->rows) * v->cols;
}

struct outcome {
    double loss;
    struct taken *taken;
    float tables[2][FIX_KEYS * 6];
};

static void run_on(const struct graph *g, const struct fixture *fix, uint32_t threads,
                   struct outcome *outcome)
{
    struct team *team = NULL;
    struct exec *exec = NULL;
    CHECK_OK(team_create(threads, &team, &err));
    CHECK_OK(exec_create(
        &(struct exec_opts){
            .graph = g, .team = team, .batch_max = FIX_ROWS, .train = true, .seed = 9},
        &exec, &err));
    outcome->taken = calloc(1, sizeof *outcome->taken);
    struct exec_feed feed = fix_feed(fix);
    feed.sink = take;
    feed.sink_ctx = outcome->taken;
    CHECK_OK(exec_run(exec, &feed, &err));
    outcome->loss = exec_loss(exec);
    for (uint32_t t = 0; t < 2; t++) {
        const struct exec_value value = exec_table_grad(exec, t);
        for (uint32_t i = 0; i < value.rows * value.cols; i++) {
            outcome->tables[t][i] = value.values[i / value.cols * value.stride + i % value.cols];
        }
    }
    exec_destroy(exec);
    team_destroy(team);
}

/* Loss, gradients of parameters and of rows: bit for bit, and every element delivered once. */
TEST(any_team_gives_the_same_bits)
{
    struct fixture *fix = malloc(sizeof *fix);
    fix_init(fix, FIX_ROWS);
    struct graph *g = network();
    static struct outcome one;
    run_on(g, fix, 1, &one);
    for (uint32_t p = 0; p < graph_params_count(g); p++) {
        for (size_t i = 0; i < elements(graph_param_at(g, p)); i++) {
            CHECK_INT(one.taken->times[p][i], 1);
        }
    }
    for (uint32_t threads = 2; threads <= 4; threads++) {
        static struct outcome more;
        run_on(g, fix, threads, &more);
        CHECK(one.loss == more.loss);
        CHECK(memcmp(one.taken, more.taken, sizeof *one.taken) == 0);
        CHECK(memcmp(one.tables, more.tables, sizeof one.tables) == 0);
        free(more.taken);
    }
    free(one.taken);
    graph_destroy(g);
    free(fix);
}

/* Written to memory, added up, or handed to a sink: the same numbers. */
TEST(gradients_are_written_or_added_up)
{
    struct rig rig;
    rig_init(&rig, FIX_ROWS, network());
    static struct outcome want;
    run_on(rig.graph, rig.fix, 1, &want);
    for (uint32_t times = 1; times <= 2; times++) {
        rig.feed.add = times == 2;
        CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
        for (uint32_t p = 0; p < graph_params_count(rig.graph); p++) {
            for (size_t i = 0; i < elements(graph_param_at(rig.graph, p)); i++) {
                CHECK(rig.fix->param_grad[p][i] == (float)times * want.taken->grads[p][i]);
            }
        }
    }
    rig.feed.grads = NULL;
    CHECK_INT(exec_run(rig.exec, &rig.feed, &err), SHOAL_EINVAL);
    free(want.taken);
    rig_fini(&rig);
}

/* Dropout depends on step, seed and the first row's number; the loss on the total given. */
TEST(totals_and_random_numbers_come_from_the_feed)
{
    struct rig rig;
    rig_init(&rig, FIX_ROWS, network());
    CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
    const double loss = exec_loss(rig.exec);
    CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
    CHECK(exec_loss(rig.exec) == loss);
    rig.feed.step++;
    CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
    CHECK(exec_loss(rig.exec) != loss);
    rig.feed.step--;
    rig.feed.row_base = FIX_ROWS;
    CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
    CHECK(exec_loss(rig.exec) != loss);
    rig.feed.row_base = 0;
    for (uint32_t i = 0; i < 260; i++) rig.fix->param[9][i] = 0.0f; /* logits and L2 term are 0 */
    CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
    CHECK_NEAR(exec_loss(rig.exec), log(2.0), 1e-6);
    double total = 0.0;
    for (uint32_t row = 0; row < FIX_ROWS; row++) total += (double)rig.fix->weight[row];
    rig.feed.weight_total = 4.0 * total;
    CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
    CHECK_NEAR(exec_loss(rig.exec), log(2.0) / 4.0, 1e-6);
    rig_fini(&rig);
}

TEST(inference_needs_no_label_and_drops_nothing)
{
    struct rig rig;
    rig_init(&rig, FIX_ROWS, network());
    const graph_id logit = graph_find(rig.graph, "logit");
    struct exec *exec = NULL;
    const struct exec_opts opts = {
        .graph = rig.graph, .batch_max = FIX_ROWS, .fetches = &logit, .fetches_count = 1};
    CHECK_OK(exec_create(&opts, &exec, &err));
    rig.fix->batch.label = NULL;
    rig.fix->batch.weight = NULL;
    rig.feed.grads = NULL;
    CHECK_OK(exec_run(exec, &rig.feed, &err));
    static float first[FIX_ROWS];
    const struct exec_value value = exec_value(exec, logit);
    CHECK_INT(value.rows, FIX_ROWS);
    for (uint32_t row = 0; row < FIX_ROWS; row++) first[row] = value.values[row * value.stride];
    rig.feed.step = 77;
    CHECK_OK(exec_run(exec, &rig.feed, &err));
    for (uint32_t row = 0; row < FIX_ROWS; row++) {
        CHECK(first[row] == value.values[row * value.stride]);
    }
    CHECK(exec_flops(exec, 100, 3.0) > 2.0 * 260 * 260 * 100);
    exec_destroy(exec);
    rig_fini(&rig);
}

/* After the largest batch has been seen, runs of any size allocate nothing. */
TEST(a_run_allocates_only_for_larger_batches)
{
    struct rig rig;
    rig_init(&rig, FIX_ROWS, network());
    CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
    const size_t bytes = exec_bytes(rig.exec);
    for (uint32_t rows = 1; rows <= FIX_ROWS; rows += 37) {
        fix_init(rig.fix, rows);
        mem_fail_nth(1);
        CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
        CHECK(!mem_fail_nth(0));
    }
    CHECK_INT(exec_bytes(rig.exec), bytes);
    rig_fini(&rig);
}

/* A batch without rows computes nothing: gradients are zero, but for the L2 term. */
TEST(an_empty_batch_is_fine)
{
    struct rig rig;
    rig_init(&rig, 0, network());
    CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
    for (uint32_t i = 0; i < 25 * 260; i++) CHECK(rig.fix->param_grad[6][i] == 0.0f);
    rig_fini(&rig);
}

static void note(void *ctx, uint32_t param, size_t first, size_t count, const float *grad,
                 uint32_t thread)
{
    (void)param, (void)first, (void)count, (void)grad, (void)thread;
    *(bool *)ctx = true;
}

/* The tensor is named (the step, by the caller); a bad loss delivers nothing. */
TEST(a_loss_that_is_not_finite_is_explained)
{
    struct rig rig;
    rig_init(&rig, FIX_ROWS, network());
    bool delivered = false;
    rig.feed.sink = note;
    rig.feed.sink_ctx = &delivered;
    rig.fix->param[9][3] = NAN; /* the last layer */
    CHECK_INT(exec_run(rig.exec, &rig.feed, &err), SHOAL_ENAN);
    CHECK_HAS(err.text, "the loss is not finite");
    CHECK_HAS(err.text, "last");
    CHECK(!delivered);
    rig.fix->param[9][3] = 0.1f;
    rig.fix->dense[0][17] = INFINITY;
    CHECK_INT(exec_run(rig.exec, &rig.feed, &err), SHOAL_ENAN);
    CHECK_HAS(err.text, "a feature: numeric");
    rig.fix->dense[0][17] = 0.0f;
    CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
    CHECK(delivered);
    rig_fini(&rig);
}

/* A loss that is finite and has a gradient that is not, by a factor that undoes another. */
static struct graph *overflowing(bool table)
{
    struct graph *g = NULL;
    CHECK_OK(graph_create(&g, &err));
    graph_id x = table ? graph_gather(g, graph_table(g, "rows", 0, 1, init_constant(0)),
                                      graph_ids(g, 0, 0, true))
                       : graph_matmul(g, graph_numeric(g, 1, 1),
                                      graph_param(g, "slope", 1, 1, init_constant(0)));
    x = graph_scale(g, graph_scale(g, x, 1e-30f), 1e30f);
    graph_id loss = graph_squared_loss(g, x, graph_label(g), GRAPH_NONE);
    CHECK_OK(graph_differentiate(g, loss, &err));
    return g;
}

TEST(a_gradient_that_is_not_finite_is_named)
{
    for (int table = 0; table < 2; table++) {
        struct rig rig;
        rig_init(&rig, FIX_ROWS, overflowing(table == 1));
        CHECK_OK(exec_run(rig.exec, &rig.feed, &err));
        for (uint32_t i = 0; i < FIX_KEYS; i++) rig.fix->table[0][i] = 1e12f;
        rig.fix->param[0][0] = 1e12f;
        CHECK_INT(exec_run(rig.exec, &rig.feed, &err), SHOAL_ENAN);
        CHECK_HAS(err.text, table == 1 ? "rows" : "slope");
        rig_fini(&rig);
    }
}

TEST(batches_that_do_not_fit_are_refused)
{
    struct rig rig;
    rig_init(&rig, FIX_ROWS, network());
    struct exec *exec = NULL;
    const graph_id none = GRAPH_NONE;
    struct exec_opts opts = {.graph = rig.graph, .fetches = &none, .fetches_count = 1};
    CHECK_INT(exec_create(&opts, &exec, &err), SHOAL_EINVAL);
    opts = (struct exec_opts){.graph = rig.graph, .batch_max = UINT32_MAX};
    CHECK_INT(exec_create(&opts, &exec, &err), SHOAL_ELIMIT);
    struct graph *far = NULL;
    CHECK_OK(graph_create(&far, &err));
    graph_set_device(far, "/job:worker/task:0/device:GPU:0");
    const graph_id number = graph_numeric(far, 0, 5);
    opts = (struct exec_opts){.graph = far, .batch_max = 1, .fetches = &number, .fetches_count = 1};
    CHECK_INT(exec_create(&opts, &exec, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "device:GPU:0");
    graph_destroy(far);
    rig.fix->batch.rows = FIX_ROWS + 1;
    CHECK_INT(exec_run(rig.exec, &rig.feed, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "151 rows");
    rig.fix->batch.rows = FIX_ROWS;
    rig.fix->batch.ids_count = 3;
    CHECK_INT(exec_run(rig.exec, &rig.feed, &err), SHOAL_EMISMATCH);
    rig.fix->batch.ids_count = 4;
    rig.fix->batch.label = NULL;
    CHECK_INT(exec_run(rig.exec, &rig.feed, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "labels");
    rig.fix->batch.label = rig.fix->label;
    rig.fix->ids[1].offsets = NULL;
    CHECK_INT(exec_run(rig.exec, &rig.feed, &err), SHOAL_EMISMATCH);
    CHECK_HAS(err.text, "feature 1");
    rig.feed.batch = NULL;
    CHECK_INT(exec_run(rig.exec, &rig.feed, &err), SHOAL_EINVAL);
    rig_fini(&rig);
}

TEST(creation_and_growth_survive_failed_allocations)
{
    struct fixture *fix = malloc(sizeof *fix);
    fix_init(fix, FIX_ROWS);
    struct graph *g = network();
    const size_t before = mem_bytes_total();
    for (uint64_t nth = 1;; nth++) {
        struct exec *exec = NULL;
        const struct exec_feed feed = fix_feed(fix);
        mem_fail_nth(nth);
        int rc = exec_create(&(struct exec_opts){.graph = g, .batch_max = FIX_ROWS, .train = true},
                             &exec, &err);
        if (rc == 0) rc = exec_run(exec, &feed, &err);
        const bool failed = mem_fail_nth(0);
        exec_destroy(exec);
        CHECK_INT(mem_bytes_total(), before);
        if (!failed) {
            CHECK_INT(rc, 0);
            break;
        }
        CHECK_INT(rc, SHOAL_ENOMEM);
    }
    graph_destroy(g);
    free(fix);
}
