#include "train/evaluate.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "graph/exec.h"
#include "tensor/kern.h"

struct evaluate {
    struct trainer *trainer;
    struct data *data;
    struct exec *exec;
    const atomic_bool *stop; /* NULL: never */
    bool used;               /* the data has been read from */
    float *packed;           /* predictions without gaps between rows; NULL when they have none */
};

static int create(struct trainer *trainer, const struct data_settings *settings,
                  struct evaluate **evaluate_out, struct err *err)
{
    const struct job *job = trainer_job(trainer);
    const struct model *model = trainer_model(trainer);
    struct evaluate *evaluate = mem_alloc(MEM_TRAIN, sizeof *evaluate);
    if (evaluate == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for an evaluation");
    evaluate->trainer = trainer;
    const graph_id fetches[] = {model->loss, model->probability};
    int rc = data_open(&(struct data_opts){.spec = job->spec, .settings = *settings, .eval = true},
                       &evaluate->data, err);
    if (rc == 0) {
        rc = exec_create(&(struct exec_opts){.graph = model->graph,
                                             .team = trainer_team(trainer),
                                             .batch_max = job->data.batch_size,
                                             .fetches = fetches,
                                             .fetches_count = 2},
                         &evaluate->exec, err);
    }
    if (rc == 0 && model->task == MODEL_CLASSES) {
        evaluate->packed = mem_alloc_array(MEM_TRAIN, (size_t)job->data.batch_size * model->classes,
                                           sizeof(float));
        if (evaluate->packed == NULL) rc = err_set(err, SHOAL_ENOMEM, "no memory to evaluate");
    }
    if (rc != 0) {
        evaluate_destroy(evaluate);
        return rc;
    }
    *evaluate_out = evaluate;
    return 0;
}

int evaluate_create(struct trainer *trainer, struct evaluate **evaluate_out, struct err *err)
{
    const int rc = create(trainer, &trainer_job(trainer)->data, evaluate_out, err);
    if (rc != 0) err_wrap(err, "evaluation data");
    return rc;
}

int evaluate_create_test(struct trainer *trainer, struct evaluate **evaluate_out, struct err *err)
{
    struct data_settings settings = trainer_job(trainer)->data;
    settings.eval = settings.test;
    settings.eval_rows = (struct data_rows){0};
    const int rc = create(trainer, &settings, evaluate_out, err);
    if (rc != 0) err_wrap(err, "test data");
    return rc;
}

void evaluate_destroy(struct evaluate *evaluate)
{
    if (evaluate == NULL) return;
    exec_destroy(evaluate->exec);
    data_close(evaluate->data);
    mem_free(evaluate->packed);
    mem_free(evaluate);
}

static enum metrics_task metrics_task_of(enum model_task task)
{
    switch (task) {
    case MODEL_BINARY: return METRICS_BINARY;
    case MODEL_CLASSES: return METRICS_CLASSES;
    case MODEL_REGRESSION: return METRICS_REGRESSION;
    }
    ASSERT(false);
    return METRICS_BINARY;
}

static int write_predictions(struct io_writer *writer, const struct exec_value *value,
                             struct str *text, struct err *err)
{
    str_clear(text);
    for (uint32_t row = 0; row < value->rows; row++) {
        for (uint32_t col = 0; col < value->cols; col++) {
            str_printf(text, "%s%.9g", col > 0 ? " " : "",
                       (double)value->values[(size_t)row * value->stride + col]);
        }
        str_add(text, "\n");
    }
    if (text->failed) return err_set(err, SHOAL_ENOMEM, "no memory for predictions");
    return io_writer_write(writer, text->text, text->bytes, err);
}

/* Rows one after the other, as metrics want them. */
static const float *pack(struct evaluate *evaluate, const struct exec_value *value)
{
    if (value->stride == value->cols) return value->values;
    ASSERT(evaluate->packed != NULL);
    kern_default()->copy_rows(value->rows, value->cols, value->values, value->stride,
                              evaluate->packed, value->cols, false);
    return evaluate->packed;
}

static int run_batch(struct evaluate *evaluate, const struct batch *batch, struct metrics *metrics,
                     struct io_writer *predictions, struct str *text, struct err *err)
{
    struct trainer *trainer = evaluate->trainer;
    const struct model *model = trainer_model(trainer);
    const bool averaged = trainer_job(trainer)->train.average_decay > 0;
    const float **rows = NULL;
    int rc = trainer_pull(trainer, batch, averaged, &rows, err);
    if (rc == 0) {
        rc = exec_run(evaluate->exec,
                      &(struct exec_feed){.batch = batch,
                                          .params = trainer_params(trainer, averaged),
                                          .tables = rows},
                      err);
    }
    if (rc != 0) return rc;
    const struct exec_value value = exec_value(evaluate->exec, model->probability);
    ASSERT(value.rows == batch->rows);
    if (predictions != NULL) rc = write_predictions(predictions, &value, text, err);
    if (rc == 0) {
        rc = metrics_add(metrics,
                         &(struct metrics_batch){.rows = batch->rows,
                                                 .labels = batch->label,
                                                 .predictions = pack(evaluate, &value),
                                                 .weights = batch->weight,
                                                 .groups = batch->group,
                                                 .loss = exec_loss(evaluate->exec)},
                         err);
    }
    return rc;
}

void evaluate_stop_by(struct evaluate *evaluate, const atomic_bool *stop)
{
    evaluate->stop = stop;
}

static bool is_asked_to_stop(const struct evaluate *evaluate)
{
    /* Relaxed: a flag of its own, and nothing else is passed through it. */
    return evaluate->stop != NULL && atomic_load_explicit(evaluate->stop, memory_order_relaxed);
}

int evaluate_run(struct evaluate *evaluate, uint64_t batches, struct io_writer *predictions,
                 struct metrics_result *result_out, struct err *err)
{
    const struct job *job = trainer_job(evaluate->trainer);
    const struct model *model = trainer_model(evaluate->trainer);
    struct err local = {0};
    struct metrics *metrics = NULL;
    struct str text = {0};
    if (err == NULL) err = &local;
    int rc = evaluate->used ? data_rewind(evaluate->data, err) : 0;
    evaluate->used = true;
    if (rc == 0) {
        rc = metrics_create(
            &(struct metrics_opts){.task = metrics_task_of(model->task),
                                   .classes = model->task == MODEL_CLASSES ? model->classes : 0,
                                   .ndcg_k = job->eval.ndcg,
                                   .grouped = model->task == MODEL_BINARY &&
                                              data_spec_schema(job->spec)->has_group},
            &metrics, err);
    }
    for (uint64_t done = 0; rc == 0 && (batches == 0 || done < batches); done++) {
        const struct batch *batch = NULL;
        rc = data_next(evaluate->data, trainer_team(evaluate->trainer), &batch, NULL, err);
        if (rc == 0) rc = run_batch(evaluate, batch, metrics, predictions, &text, err);
        if (rc == 0 && is_asked_to_stop(evaluate)) {
            rc = err_set(err, SHOAL_EINTR, "evaluation interrupted");
        }
    }
    if (rc == SHOAL_END) rc = 0;
    if (rc == 0) rc = metrics_compute(metrics, result_out, err);
    if (rc == 0 && result_out->examples == 0) {
        log_line(LOG_WARN, "train", "there is no record to evaluate on: are files and rows right?");
    }
    metrics_destroy(metrics);
    str_fini(&text);
    return rc;
}

uint64_t evaluate_skipped(const struct evaluate *evaluate)
{
    struct data_stats stats;
    data_stats_get(evaluate->data, &stats);
    return stats.skipped;
}
