/* A model of one's own, with one's own training loop, against the installed library alone:
 *
 *   cc custom_model.c $(pkg-config --cflags --libs shoal) -o custom_model
 *   ./custom_model JOB.yaml
 *
 * The job file gives data and features (examples/din.yaml will do); its `model:` is not used. The
 * model scores a candidate by a two-layer net over user, item and the mean of the clicked items,
 * plus a dot product of item and history: a simple cousin of DIN. */
#include <shoal.h>
#include <stdio.h>
#include <string.h>

static int build(void *ctx, shoal_graph *g, shoal_error *error)
{
    (void)ctx;
    shoal_node user = shoal_feature(g, "user_id");
    shoal_node item = shoal_feature(g, "item_id");
    shoal_node clicked = shoal_feature(g, "clicked_items_15d"); /* the mean of its rows */
    shoal_node match = shoal_sum(g, shoal_mul(g, item, clicked));

    shoal_node x = shoal_concat(g, (shoal_node[]){user, item, clicked, match}, 4);
    x = shoal_dense(g, "hidden/0", x, 32, SHOAL_RELU);
    x = shoal_dropout(g, x, 0.1f);
    x = shoal_dense(g, "hidden/1", x, 16, SHOAL_RELU);
    return shoal_output(g, shoal_add(g, shoal_dense(g, "output", x, 1, SHOAL_LINEAR), match),
                        SHOAL_BINARY, error);
}

struct counts {
    int before;
    int after;
};

/* Called around every step; returning anything but 0 would end the training. */
static int before_step(void *ctx, shoal_session *session, const shoal_step_result *result)
{
    (void)session;
    (void)result;
    ((struct counts *)ctx)->before++;
    return 0;
}

static int after_step(void *ctx, shoal_session *session, const shoal_step_result *result)
{
    (void)session;
    ((struct counts *)ctx)->after++;
    if (result->step % 50 == 0) {
        printf("step %llu  loss %.4f  learning rate %.4f\n", (unsigned long long)result->step,
               result->loss, result->learning_rate);
    }
    return 0;
}

/* Reads a row, changes it, reads it back. */
static int touch_tables(shoal_session *session, shoal_error *error)
{
    const uint64_t key = 7;
    float row[16];
    float back[16];
    float bias[1];
    int rc = shoal_fetch(session, "item/embedding", &key, 1, row, error);
    for (int i = 0; i < 16; i++) row[i] *= 0.5f;
    if (rc == 0) rc = shoal_assign(session, "item/embedding", &key, 1, row, error);
    if (rc == 0) rc = shoal_fetch(session, "item/embedding", &key, 1, back, error);
    if (rc == 0) rc = shoal_fetch(session, "output/bias", NULL, 1, bias, error);
    if (rc == 0) {
        printf("row 7 of item/embedding %s; output/bias %.4f\n",
               memcmp(row, back, sizeof row) == 0 ? "reads back as assigned" : "DIFFERS", bias[0]);
    }
    return rc;
}

static int train(shoal_session *session, shoal_error *error)
{
    int rc = 0;
    while (rc == 0 && !shoal_should_stop(session)) {
        rc = shoal_next(session, NULL, error);
        if (rc == SHOAL_END_OF_DATA) return 0;
        if (rc == 0) rc = shoal_step(session, NULL, error);
    }
    return rc;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: custom_model JOB.yaml [SETTING=VALUE...]\n");
        return 2;
    }
    struct counts counts = {0};
    shoal_error error = {0};
    shoal_session *session = NULL;
    char *metrics = NULL;
    shoal_options options = {
        .size = sizeof options,
        .sets = (const char *const *)(argv + 2),
        .sets_count = (uint32_t)(argc - 2),
        .build = build,
        .before_step = before_step,
        .after_step = after_step,
        .hook_ctx = &counts,
    };
    int rc = shoal_open(argv[1], &options, &session, &error);
    if (rc == 0) rc = train(session, &error);
    if (rc == 0) rc = touch_tables(session, &error);
    if (rc == 0) rc = shoal_evaluate(session, &metrics, &error);
    if (rc == 0) rc = shoal_save(session, &error);
    if (rc == 0) {
        printf("%llu steps, hooks called %d and %d times\nevaluation %s\n",
               (unsigned long long)shoal_global_step(session), counts.before, counts.after, metrics);
    } else {
        fprintf(stderr, "custom_model: %s\n", error.text);
    }
    shoal_free(metrics);
    shoal_close(session);
    return rc == 0 ? 0 : 1;
}
