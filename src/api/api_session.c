/* The session calls of shoal.h, on top of train/run.h and train/loop.h. */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "api/api.h"
#include "base/assert.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/model_own.h"
#include "train/job.h"
#include "train/loop.h"
#include "train/run.h"

struct shoal_session {
    struct job *job;
    struct run *run;
    shoal_hook_fn *before_step;
    shoal_hook_fn *after_step;
    void *hook_ctx;
    atomic_bool stop;
    bool ended;     /* the data has */
    bool hook_stop; /* a hook asked for it */
};

#define X(name, value, text) static_assert((name) == (value), #name);
ERR_LIST(X)
#undef X
static_assert((int)SHOAL_END_OF_DATA == (int)SHOAL_END, "public and inner codes are the same");
static_assert((int)SHOAL_ERROR_MISMATCH == (int)SHOAL_EMISMATCH, "as above");
static_assert((int)SHOAL_ERROR_INTERRUPTED == (int)SHOAL_EINTR, "as above");

const char *shoal_version(void)
{
    return SHOAL_VERSION;
}

static int build_own(const struct job *job, const shoal_options *options, struct model **model_out,
                     struct err *err)
{
    struct shoal_graph graph;
    shoal_error error = {0};
    int rc = api_graph_init(&graph, data_spec_schema(job->spec), err);
    if (rc != 0) return rc;
    rc = options->build(options->build_ctx, &graph, &error);
    if (rc != 0) {
        err_set(err, rc < 0 ? rc : SHOAL_EINVAL, "build the model: %s",
                error.text[0] != '\0' ? error.text : "the build function failed");
        rc = err->code;
    } else if (!graph.has_output) {
        rc = err_set(err, SHOAL_EINVAL, "build the model: shoal_output was not called");
    } else {
        rc = model_own_create(graph.graph, graph.logit, graph.task, graph.schema->has_weight,
                              model_out, err);
    }
    if (rc == 0) graph.graph = NULL; /* The model's now. */
    api_graph_fini(&graph);
    return rc;
}

/* Options of an older, shorter struct: what it has not is zero. */
static int read_options(const shoal_options *given, shoal_options *options, struct err *err)
{
    *options = (shoal_options){0};
    if (given == NULL) return 0;
    if (given->size < 8 || given->size > sizeof *options) {
        return err_set(err, SHOAL_EINVAL, "shoal_options.size is %u; set it to sizeof(shoal_options)",
                       given->size);
    }
    memcpy(options, given, given->size);
    return 0;
}

static int open_session(const char *job_path, const shoal_options *given, shoal_session *session,
                        struct err *err)
{
    shoal_options options;
    struct model *model = NULL;
    int rc = read_options(given, &options, err);
    if (rc == 0) rc = job_load(job_path, options.sets, options.sets_count, &session->job, err);
    if (rc == 0 && options.build != NULL) rc = build_own(session->job, &options, &model, err);
    if (rc == 0) rc = run_open(session->job, model, &session->run, err);
    session->before_step = options.before_step;
    session->after_step = options.after_step;
    session->hook_ctx = options.hook_ctx;
    return rc;
}

int shoal_open(const char *job_path, const shoal_options *options, shoal_session **session_out,
               shoal_error *error)
{
    struct err err = {0};
    shoal_session *session = mem_alloc(MEM_TRAIN, sizeof *session);
    if (session == NULL) {
        err_set(&err, SHOAL_ENOMEM, "no memory for a session");
        return api_fail(&err, error);
    }
    if (open_session(job_path, options, session, &err) != 0) {
        shoal_close(session);
        return api_fail(&err, error);
    }
    *session_out = session;
    return 0;
}

int shoal_next(shoal_session *session, shoal_batch *batch_out, shoal_error *error)
{
    struct err err = {0};
    struct data_info info;
    const int rc = trainer_next(run_trainer(session->run), &info, &err);
    if (rc != 0) {
        session->ended = rc == SHOAL_END;
        if (session->ended) err_set(&err, SHOAL_END, "all of the data has been read");
        return api_fail(&err, error);
    }
    if (batch_out != NULL) {
        *batch_out = (shoal_batch){.epoch = info.epoch,
                                   .rows = trainer_batch_rows(run_trainer(session->run)),
                                   .epoch_end = info.epoch_end};
    }
    return 0;
}

static shoal_step_result public_step(const struct trainer_step *step)
{
    return (shoal_step_result){.step = step->step,
                               .loss = step->loss,
                               .learning_rate = step->learning_rate,
                               .rows = step->rows};
}

/* As loop_hook_cb: before and after a step. */
static int hook_before(void *ctx, const struct trainer_step *step)
{
    shoal_session *session = ctx;
    (void)step;
    return session->before_step(session->hook_ctx, session, NULL);
}

static int hook_after(void *ctx, const struct trainer_step *step)
{
    shoal_session *session = ctx;
    const shoal_step_result result = public_step(step);
    return session->after_step(session->hook_ctx, session, &result);
}

int shoal_step(shoal_session *session, shoal_step_result *result_out, shoal_error *error)
{
    struct err err = {0};
    struct trainer_step step;
    if (session->before_step != NULL) session->hook_stop |= hook_before(session, NULL) != 0;
    if (trainer_step(run_trainer(session->run), &step, &err) != 0) return api_fail(&err, error);
    if (session->after_step != NULL) session->hook_stop |= hook_after(session, &step) != 0;
    if (result_out != NULL) *result_out = public_step(&step);
    return 0;
}

int shoal_should_stop(const shoal_session *session)
{
    const uint64_t max_steps = session->job->train.max_steps;
    return session->ended || session->hook_stop ||
           atomic_load_explicit(&session->stop, memory_order_relaxed) ||
           (max_steps > 0 && shoal_global_step(session) >= max_steps);
}

void shoal_request_stop(shoal_session *session)
{
    atomic_store_explicit(&session->stop, true, memory_order_relaxed);
}

uint64_t shoal_global_step(const shoal_session *session)
{
    return trainer_global_step(run_trainer(session->run));
}

/* Hands a str's text to the user, who frees it with shoal_free. */
static int give_text(struct str *text, char **out, struct err *err)
{
    if (text->failed) {
        str_fini(text);
        return err_set(err, SHOAL_ENOMEM, "no memory for the result");
    }
    *out = text->text;
    return 0;
}

int shoal_train(shoal_session *session, char **json_out, shoal_error *error)
{
    struct err err = {0};
    struct loop_result result;
    struct str json = {0};
    int rc = loop_train(session->run,
                        &(struct loop_opts){
                            .stop = &session->stop,
                            .before = session->before_step != NULL ? hook_before : NULL,
                            .after = session->after_step != NULL ? hook_after : NULL,
                            .hook_ctx = session,
                        },
                        &result, &err);
    if ((rc == 0 || rc == SHOAL_EINTR) && json_out != NULL) {
        loop_result_json(&result, session->job->model_dir, &json);
        const int given = give_text(&json, json_out, rc == 0 ? &err : NULL);
        if (rc == 0) rc = given;
    }
    return rc == 0 ? 0 : api_fail(&err, error);
}

int shoal_evaluate(shoal_session *session, char **json_out, shoal_error *error)
{
    struct err err = {0};
    struct metrics_result result;
    struct str json = {0};
    struct evaluate *evaluate = run_evaluate(session->run);
    int rc = 0;
    if (evaluate == NULL) {
        rc = err_set(&err, SHOAL_ECONFIG, "the job has no evaluation data; set data.eval");
    } else {
        rc = evaluate_run(evaluate, session->job->eval.steps, NULL, &result, &err);
    }
    if (rc == 0 && json_out != NULL) {
        metrics_write_json(&result, &json);
        rc = give_text(&json, json_out, &err);
    }
    return rc == 0 ? 0 : api_fail(&err, error);
}

int shoal_save(shoal_session *session, shoal_error *error)
{
    struct err err = {0};
    return run_save(session->run, &err) == 0 ? 0 : api_fail(&err, error);
}

static int move_values(shoal_session *session, const char *name, const uint64_t *keys,
                       uint64_t count, float *values, bool assign, struct err *err)
{
    struct store *store = trainer_store(run_trainer(session->run));
    uint32_t table = 0;
    const int rc = store_table_find(store, name, &table, err);
    if (rc != 0) return rc;
    const bool dense = store_table_info(store, table).kind == STORE_DENSE;
    if (dense != (keys == NULL)) {
        return err_set(err, SHOAL_EINVAL, "%s is %s: keys must be %s", name,
                       dense ? "a dense tensor" : "an embedding table", dense ? "NULL" : "given");
    }
    if (dense) {
        return assign ? store_assign_dense(store, table, 0, 0, count, values, err)
                      : store_fetch_dense(store, table, 0, 0, count, values, err);
    }
    if (count > STORE_KEYS_MAX) {
        return err_set(err, SHOAL_ELIMIT, "%s: %llu keys at once; at most %u", name,
                       (unsigned long long)count, STORE_KEYS_MAX);
    }
    struct store_rows rows = {.table = table, .count = (uint32_t)count, .keys = keys};
    rows.parts[0] = values;
    return assign ? store_assign_rows(store, &rows, err) : store_fetch_rows(store, &rows, err);
}

int shoal_fetch(shoal_session *session, const char *name, const uint64_t *keys, uint64_t count,
                float *values_out, shoal_error *error)
{
    struct err err = {0};
    const int rc = move_values(session, name, keys, count, values_out, false, &err);
    return rc == 0 ? 0 : api_fail(&err, error);
}

int shoal_assign(shoal_session *session, const char *name, const uint64_t *keys, uint64_t count,
                 const float *values, shoal_error *error)
{
    struct err err = {0};
    /* Assigning only reads the values. */
    const int rc = move_values(session, name, keys, count, (float *)(uintptr_t)values, true, &err);
    return rc == 0 ? 0 : api_fail(&err, error);
}

void shoal_close(shoal_session *session)
{
    if (session == NULL) return;
    run_close(session->run);
    job_destroy(session->job);
    mem_free(session);
}

void shoal_free(void *memory)
{
    mem_free(memory);
}
