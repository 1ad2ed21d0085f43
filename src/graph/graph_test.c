/* Building, bytes, and cutting by device. */
#include "graph/graph.h"

#include <stdlib.h>

#include "base/bounds.h"
#include "base/mem.h"
#include "graph/graph_fixture.h"

static struct err err;

static struct graph *fresh(void)
{
    struct graph *g = NULL;
    CHECK_OK(graph_create(&g, &err));
    return g;
}

TEST(a_call_that_fails_is_remembered_and_passed_on)
{
    struct graph *g = fresh();
    graph_id x = graph_numeric(g, 0, 5);
    graph_id w = graph_param(g, "w", 4, 3, init_constant(0));
    graph_id y = graph_dense(g, x, w, GRAPH_NONE, GRAPH_RELU);
    CHECK_INT(y, GRAPH_NONE);
    CHECK_INT(graph_act(g, y, GRAPH_RELU), GRAPH_NONE);
    CHECK_INT(graph_check(g, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "dense(batch(0) x 5, 4 x 3)");
    CHECK_HAS(err.text, "rows must be the input's columns");
    CHECK_INT(graph_differentiate(g, y, &err), SHOAL_EINVAL);
    graph_destroy(g);
}

/* Each builder refuses shapes and attributes that do not fit. */
static graph_id refused(struct graph *g, int which)
{
    graph_id x = graph_numeric(g, 0, 6);
    graph_id table = graph_table(g, "t", 0, 4, init_constant(0));
    graph_id single = graph_ids(g, 0, 0, true);
    graph_id many = graph_ids(g, 1, 0, false);
    graph_id other = graph_ids(g, 2, 1, false);
    graph_id p = graph_param(g, "p", 6, 3, init_constant(0));
    switch (which) {
    case 0: return graph_gather(g, table, many);
    case 1: return graph_gather(g, x, single);
    case 2: return graph_pool(g, table, single, GRAPH_SUM);
    case 3: return graph_pool(g, table, other, GRAPH_SUM);
    case 4: return graph_pool(g, table, many, (enum graph_combine)9);
    case 5: return graph_dense(g, x, x, GRAPH_NONE, GRAPH_LINEAR);
    case 6: return graph_dense(g, x, p, p, GRAPH_LINEAR);
    case 7: return graph_act(g, x, (enum graph_act)7);
    case 8: return graph_add(g, x, graph_numeric(g, 1, 5));
    case 9: return graph_add_n(g, (graph_id[]){x, p}, 2);
    case 10: return graph_concat(g, (graph_id[]){x, p}, 2);
    case 11: return graph_slice(g, x, 4, 3);
    case 12: return graph_dropout(g, x, 1.0f);
    case 13: return graph_dropout(g, p, 0.5f);
    case 14: return graph_fm(g, x, 4);
    case 15: return graph_dots(g, x, 6);
    case 16: return graph_sigmoid_loss(g, x, graph_label(g), GRAPH_NONE);
    case 17: return graph_softmax_loss(g, graph_sum(g, x), graph_label(g), GRAPH_NONE);
    case 18: return graph_squared_loss(g, graph_sum(g, x), graph_sum(g, x), GRAPH_NONE);
    case 19: return graph_squared_loss(g, graph_sum(g, x), graph_label(g), x);
    case 20: return graph_l2(g, x, 1.0f);
    case 21: return graph_matmul(g, single, p);
    case 22: return graph_attention(g, table, single, x, (graph_id[]){p, p}, 1);
    case 23: return graph_attention(g, table, many, x, (graph_id[]){p, p}, 1);
    case 24: return graph_attention(g, table, many, x, NULL, 0);
    case 25: return graph_param(g, "p", 2, 2, init_constant(0));
    case 26: return graph_param(g, "q", 0, 2, init_constant(0));
    case 27: return graph_param(g, "q", 2, 0, init_constant(0));
    case 28: return graph_param(g, "", 2, 2, init_constant(0));
    case 29: return graph_param(g, "q", 1u << 20, 1u << 20, init_constant(0));
    case 30: return graph_numeric(g, 0, 7);
    case 31: return graph_ids(g, 0, 0, false);
    case 32: return graph_ids(g, GRAPH_FEATURES_MAX, 0, true);
    case 33: return graph_attention_pool(g, table, many, x);
    case 34: return graph_add(g, x, 9999);
    case 35: return graph_name(g, x, "p");
    default: return 12345;
    }
}

TEST(shapes_that_do_not_fit_are_refused)
{
    int which = 0;
    for (;; which++) {
        struct graph *g = fresh();
        const graph_id id = refused(g, which);
        if (id == 12345) {
            graph_destroy(g);
            break;
        }
        if (id != GRAPH_NONE || graph_check(g, &err) == 0) {
            test_fail(__FILE__, __LINE__, "case %d was accepted", which);
        }
        CHECK(err.text[0] != '\0');
        graph_destroy(g);
    }
    CHECK_INT(which, 36);
}

TEST(a_loss_must_be_one_number_that_depends_on_something)
{
    struct graph *g = fresh();
    graph_id x = graph_numeric(g, 0, 2);
    CHECK_INT(graph_differentiate(g, x, &err), SHOAL_EINVAL);
    graph_id loss = graph_squared_loss(g, graph_sum(g, x), graph_label(g), GRAPH_NONE);
    CHECK_INT(graph_differentiate(g, loss, &err), SHOAL_EINVAL);
    CHECK_HAS(err.text, "no parameter");
    graph_destroy(g);
}

/* A DIN-like network with most kinds of nodes. */
static struct graph *sample(void)
{
    struct graph *g = fresh();
    graph_id table = graph_table(g, "item/embedding", 0, 4, init_truncated_normal(0.5));
    graph_id other = graph_table(g, "shop/embedding", 1, 3, init_normal(0.5));
    graph_id target = graph_gather(g, table, graph_ids(g, 0, 0, true));
    graph_id layers[6];
    const uint32_t sizes[] = {16, 5, 3, 1};
    for (uint32_t i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "attention/%u/weight", i);
        layers[2 * i] = graph_param(g, name, sizes[i], sizes[i + 1],
                                    init_glorot_uniform(sizes[i], sizes[i + 1]));
        snprintf(name, sizeof name, "attention/%u/bias", i);
        layers[2 * i + 1] = graph_vector(g, name, sizes[i + 1], init_constant(0.25f));
    }
    graph_id parts[] = {
        target, graph_attention(g, table, graph_ids(g, 1, 0, false), target, layers, 3),
        graph_pool(g, other, graph_ids(g, 2, 1, false), GRAPH_MEAN), graph_numeric(g, 0, 5)};
    graph_id x = graph_concat(g, parts, 4);
    graph_id w = graph_param(g, "w", 16, 8, init_he_uniform(16));
    x = graph_dropout(g, graph_dense(g, x, w, GRAPH_NONE, GRAPH_RELU), 0.25f);
    x = graph_dense(g, x, graph_param(g, "v", 8, 1, init_constant(0)), GRAPH_NONE, GRAPH_LINEAR);
    graph_name(g, x, "logit");
    graph_id loss = graph_sigmoid_loss(g, x, graph_label(g), graph_weight(g));
    loss = graph_add(g, loss, graph_l2(g, w, 0.01f));
    CHECK_OK(graph_check(g, &err));
    CHECK_OK(graph_differentiate(g, loss, &err));
    return g;
}

static void run_once(const struct graph *g, struct fixture *fix, double *loss_out)
{
    struct exec *exec = NULL;
    CHECK_OK(exec_create(&(struct exec_opts){.graph = g, .batch_max = FIX_ROWS, .train = true},
                         &exec, &err));
    const struct exec_feed feed = fix_feed(fix);
    CHECK_OK(exec_run(exec, &feed, &err));
    *loss_out = exec_loss(exec);
    exec_destroy(exec);
}

/* What is read back is the same graph: the same bytes again, and the same bits when run. */
TEST(bytes_and_back_give_the_same_graph)
{
    struct graph *g = sample();
    uint8_t *bytes = NULL;
    size_t count = 0;
    CHECK_OK(graph_encode(g, &bytes, &count, &err));
    struct graph *back = NULL;
    CHECK_OK(graph_decode(bytes, count, &back, &err));
    uint8_t *again = NULL;
    size_t again_count = 0;
    CHECK_OK(graph_encode(back, &again, &again_count, &err));
    CHECK_INT(again_count, count);
    CHECK(memcmp(bytes, again, count) == 0);
    CHECK_INT(graph_params_count(back), graph_params_count(g));
    CHECK_INT(graph_param_at(back, 1)->rows, 0);
    CHECK_NEAR(graph_param_at(back, 1)->init.value, 0.25, 0);
    CHECK(graph_find(back, "logit") == graph_find(g, "logit"));
    struct fixture *fix = malloc(sizeof *fix);
    fix_init(fix, FIX_ROWS);
    double first = 0;
    double second = 1;
    run_once(g, fix, &first);
    run_once(back, fix, &second);
    CHECK(first == second);
    free(fix);
    mem_free(bytes);
    mem_free(again);
    graph_destroy(g);
    graph_destroy(back);
}

TEST(damaged_bytes_are_refused_or_give_a_sound_graph)
{
    struct graph *g = sample();
    uint8_t *bytes = NULL;
    size_t count = 0;
    CHECK_OK(graph_encode(g, &bytes, &count, &err));
    for (size_t cut = 0; cut < count; cut++) {
        struct graph *back = NULL;
        CHECK_INT(graph_decode(bytes, cut, &back, &err), SHOAL_ECORRUPT);
        CHECK(back == NULL);
    }
    for (size_t at = 0; at < count; at++) {
        struct graph *back = NULL;
        bytes[at] ^= (uint8_t)(1u << (at % 8));
        const int rc = graph_decode(bytes, count, &back, &err);
        if (rc == 0) {
            CHECK_OK(graph_check(back, &err));
        } else {
            CHECK_INT(rc, SHOAL_ECORRUPT);
        }
        graph_destroy(back);
        bytes[at] ^= (uint8_t)(1u << (at % 8));
    }
    mem_free(bytes);
    graph_destroy(g);
}

/* ---- Cutting ---- */

#define EDGES_MAX 256

/* Runs the parts one after the other; the value of `node` of the whole graph. Parameters are found
 * by the first letter of their name: a part numbers its own. */
static struct exec_value run_parts(const struct graph_parts *parts, const struct exec_feed *whole,
                                   graph_id node, struct exec **execs)
{
    static struct exec_value edges[EDGES_MAX];
    struct exec_value result = {0};
    for (uint32_t p = 0; p < parts->count; p++) {
        const struct graph_part *part = &parts->parts[p];
        graph_id fetches[EDGES_MAX];
        uint32_t count = 0;
        for (uint32_t i = 0; i < part->sends_count; i++) fetches[count++] = part->sends[i].node;
        if (part->nodes[node] != GRAPH_NONE) fetches[count++] = part->nodes[node];
        CHECK_OK(exec_create(&(struct exec_opts){.graph = part->graph,
                                                 .batch_max = FIX_ROWS,
                                                 .fetches = fetches,
                                                 .fetches_count = count},
                             &execs[p], &err));
        struct exec_value received[EDGES_MAX] = {0};
        for (uint32_t i = 0; i < part->receives_count; i++) received[i] = edges[part->receives[i]];
        const float *params[8];
        for (uint32_t i = 0; i < graph_params_count(part->graph) && i < 8; i++) {
            params[i] = whole->params[graph_param_at(part->graph, i)->name[0] - 'a'];
        }
        struct exec_feed feed = *whole;
        feed.params = params;
        feed.received = received;
        CHECK_OK(exec_run(execs[p], &feed, &err));
        for (uint32_t i = 0; i < part->sends_count; i++) {
            edges[part->sends[i].edge] = exec_value(execs[p], part->sends[i].node);
        }
        /* Where the node itself is, not where it was received. */
        if (part->nodes[node] != GRAPH_NONE &&
            strcmp(graph_op_name(part->graph, part->nodes[node]), "receive") != 0) {
            result = exec_value(execs[p], part->nodes[node]);
        }
    }
    return result;
}

/* The graph over devices of the reference: variables on a ps, two products on two workers. */
TEST(a_graph_over_devices_gives_sevens)
{
    struct graph *g = fresh();
    graph_set_device(g, "/job:ps/task:0");
    graph_id x = graph_param(g, "a: x", 2, 2, init_constant(1));
    graph_id y = graph_param(g, "b: y", 2, 2, init_constant(1));
    graph_set_device(g, "/job:worker/task:0");
    graph_id z = graph_add(g, graph_matmul(g, x, y), x);
    graph_set_device(g, "/job:worker/task:1");
    z = graph_add(g, graph_matmul(g, z, x), x);
    graph_set_device(g, NULL);
    CHECK_OK(graph_check(g, &err));

    struct graph_parts parts;
    CHECK_OK(graph_cut(g, &parts, &err));
    CHECK_INT(parts.count, 3);
    CHECK_STR(parts.parts[0].device, "/job:ps/task:0");
    CHECK_STR(parts.parts[1].device, "/job:worker/task:0");
    CHECK_STR(parts.parts[2].device, "/job:worker/task:1");
    CHECK_INT(parts.edges_count, 4); /* x and y to worker 0, z and x to worker 1 */

    static const float ones[4] = {1, 1, 1, 1};
    const float *const params[] = {ones, ones};
    struct exec *execs[8] = {0};
    const struct exec_feed feed = {.params = params};
    const struct exec_value value = run_parts(&parts, &feed, z, execs);
    CHECK_INT(value.rows, 2);
    CHECK_INT(value.cols, 2);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_NEAR(value.values[i / 2 * value.stride + i % 2], 7.0, 0);
    }
    for (uint32_t i = 0; i < parts.count; i++) exec_destroy(execs[i]);
    graph_parts_fini(&parts);
    graph_destroy(g);
}

/* Embeddings on one device, layers on another, back and forth: the parts give what the whole gives,
 * gradients too. */
TEST(parts_compute_what_the_whole_computes)
{
    struct fixture *fix = malloc(sizeof *fix);
    fix_init(fix, FIX_ROWS);
    struct graph *g = fresh();
    graph_set_device(g, "ps");
    graph_id table = graph_table(g, "t", 1, 4, init_constant(0));
    graph_id rows = graph_pool(g, table, graph_ids(g, 2, 1, false), GRAPH_SUM);
    graph_set_device(g, "worker");
    graph_id h =
        graph_dense(g, rows, graph_param(g, "a", 4, 6, init_constant(0)), GRAPH_NONE, GRAPH_TANH);
    graph_set_device(g, "ps");
    h = graph_act(g, h, GRAPH_SIGMOID);
    graph_set_device(g, "worker");
    h = graph_matmul(g, h, graph_param(g, "b", 6, 1, init_constant(0)));
    CHECK_OK(graph_differentiate(g, graph_squared_loss(g, h, graph_label(g), GRAPH_NONE), &err));
    const graph_id grad = graph_table_grad(g, 0);

    struct exec *whole = NULL;
    CHECK_OK(exec_create(
        &(struct exec_opts){
            .graph = g, .batch_max = FIX_ROWS, .fetches = &grad, .fetches_count = 1},
        &whole, &err));
    const struct exec_feed feed = fix_feed(fix);
    CHECK_OK(exec_run(whole, &feed, &err));
    const struct exec_value want = exec_value(whole, grad);

    struct graph_parts parts;
    CHECK_OK(graph_cut(g, &parts, &err));
    CHECK(parts.count >= 4);
    struct exec *execs[32] = {0};
    const struct exec_value got = run_parts(&parts, &feed, grad, execs);
    CHECK_INT(got.rows, want.rows);
    for (uint32_t i = 0; i < want.rows * want.cols; i++) {
        const uint32_t row = i / want.cols;
        CHECK(got.values[row * got.stride + i % want.cols] ==
              want.values[row * want.stride + i % want.cols]);
    }
    for (uint32_t i = 0; i < parts.count; i++) exec_destroy(execs[i]);
    exec_destroy(whole);
    graph_parts_fini(&parts);
    graph_destroy(g);
    free(fix);
}

/* ---- Memory ---- */

TEST(every_failed_allocation_is_an_error_and_leaks_nothing)
{
    struct graph *g = sample();
    uint8_t *bytes = NULL;
    size_t count = 0;
    CHECK_OK(graph_encode(g, &bytes, &count, &err));
    const size_t before = mem_bytes_total();
    for (uint64_t nth = 1;; nth++) {
        struct graph *back = NULL;
        struct graph_parts parts = {0};
        uint8_t *again = NULL;
        size_t again_count = 0;
        mem_fail_nth(nth);
        int rc = graph_decode(bytes, count, &back, &err);
        if (rc == 0) rc = graph_cut(back, &parts, &err);
        if (rc == 0) rc = graph_encode(back, &again, &again_count, &err);
        const bool failed = mem_fail_nth(0);
        mem_free(again);
        graph_parts_fini(&parts);
        graph_destroy(back);
        CHECK_INT(mem_bytes_total(), before);
        if (!failed) {
            CHECK_INT(rc, 0);
            break;
        }
        CHECK_INT(rc, SHOAL_ENOMEM);
    }
    mem_free(bytes);
    graph_destroy(g);
}
