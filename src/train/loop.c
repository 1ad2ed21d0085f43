#include "train/loop.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/events.h"
#include "train/progress.h"

struct loop {
    struct run *run;
    struct trainer *trainer;
    const struct job *job;
    const struct loop_opts *opts;
    struct progress *progress; /* NULL: not shown */
    struct events *events;     /* NULL: not wanted */
    struct loop_result *result;

    uint64_t started_ns;
    uint64_t loop_ns; /* when the first step began */
    uint64_t saved_ns;
    uint64_t evaluated_ns;
    uint64_t evaluated_step; /* if result->has_eval */
    uint64_t save_ns;        /* spent */
    uint64_t eval_ns;        /* spent */

    uint64_t log_ns; /* of the last log line */
    uint64_t log_examples;
    double log_loss_sum; /* since it, by examples */
    uint64_t log_loss_rows;
    double epoch_loss_sum;
    uint64_t epoch_rows;
    uint64_t epoch_ns; /* when it began */
    bool hook_stop;
};

static double seconds_since(uint64_t then_ns)
{
    return (double)(clock_now_ns() - then_ns) * 1e-9;
}

static int print_json(struct loop *loop, struct str *line, struct err *err)
{
    int rc = 0;
    if (line->failed) {
        rc = err_set(err, SHOAL_ENOMEM, "no memory for a log line");
    } else if (fprintf(loop->opts->json, "%s\n", line->text) < 0 || fflush(loop->opts->json) != 0) {
        rc = err_set(err, SHOAL_EIO, "cannot write to standard output");
    }
    str_fini(line);
    return rc;
}

static struct progress_state progress_state(const struct loop *loop,
                                            const struct trainer_step *step, double rate)
{
    struct data_stats stats;
    data_stats_get(trainer_data(loop->trainer), &stats);
    return (struct progress_state){.step = step->step,
                                   .steps_max = loop->job->train.max_steps,
                                   .epoch = step->info.epoch + 1,
                                   .loss = step->loss,
                                   .learning_rate = step->learning_rate,
                                   .examples_per_second = rate,
                                   .share_done = stats.share_done};
}

static double rate_since_log(const struct loop *loop, uint64_t now_ns)
{
    const double seconds = (double)(now_ns - loop->log_ns) * 1e-9;
    const uint64_t examples = trainer_examples(loop->trainer) - loop->log_examples;
    return seconds > 0 ? (double)examples / seconds : 0;
}

static int log_step(struct loop *loop, const struct trainer_step *step, struct err *err)
{
    const uint64_t now_ns = clock_now_ns();
    const double rate = rate_since_log(loop, now_ns);
    int rc = 0;
    if (loop->progress != NULL) {
        const struct progress_state state = progress_state(loop, step, rate);
        progress_log(loop->progress, &state, now_ns);
    }
    if (loop->opts->json != NULL) {
        struct str line = {0};
        str_json_open(&line, '{');
        str_json_key(&line, "step");
        str_json_u64(&line, step->step);
        str_json_key(&line, "epoch");
        str_json_u64(&line, step->info.epoch + 1);
        str_json_key(&line, "loss");
        str_json_f64(&line, step->loss);
        str_json_key(&line, "loss_mean");
        str_json_f64(&line, loop->log_loss_sum / (double)loop->log_loss_rows);
        str_json_key(&line, "learning_rate");
        str_json_f64(&line, step->learning_rate);
        str_json_key(&line, "examples_per_second");
        str_json_f64(&line, rate);
        str_json_close(&line, '}');
        rc = print_json(loop, &line, err);
    }
    loop->log_ns = now_ns;
    loop->log_examples = trainer_examples(loop->trainer);
    loop->log_loss_sum = 0;
    loop->log_loss_rows = 0;
    return rc;
}

static int summarize(struct loop *loop, const struct trainer_step *step, struct err *err)
{
    int rc = events_scalar(loop->events, step->step, "loss", step->loss, err);
    if (rc == 0) {
        rc = events_scalar(loop->events, step->step, "learning_rate", step->learning_rate, err);
    }
    if (rc == 0) {
        rc = events_scalar(loop->events, step->step, "examples_per_second",
                           (double)trainer_examples(loop->trainer) / seconds_since(loop->loop_ns),
                           err);
    }
    return rc;
}

static int save(struct loop *loop, struct err *err)
{
    if (run_saved_step(loop->run) == trainer_global_step(loop->trainer)) return 0;
    const uint64_t start_ns = clock_now_ns();
    int rc = loop->events == NULL ? 0 : events_flush(loop->events, err);
    if (rc == 0) rc = run_save(loop->run, err);
    loop->saved_ns = clock_now_ns();
    loop->save_ns += loop->saved_ns - start_ns;
    return rc;
}

static int eval_events(struct loop *loop, struct err *err)
{
    const struct metrics_result *eval = &loop->result->eval;
    const struct {
        const char *tag;
        double value;
    } scalars[] = {{"eval/loss", eval->loss},
                   {"eval/auc", eval->auc},
                   {"eval/accuracy", eval->accuracy},
                   {"eval/gauc", eval->gauc}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof scalars / sizeof scalars[0]; i++) {
        if (!isfinite(scalars[i].value)) continue;
        rc = events_scalar(loop->events, trainer_global_step(loop->trainer), scalars[i].tag,
                           scalars[i].value, err);
    }
    return rc;
}

static int evaluate(struct loop *loop, struct err *err)
{
    struct evaluate *evaluator = run_evaluate(loop->run);
    const uint64_t step = trainer_global_step(loop->trainer);
    if (evaluator == NULL || (loop->result->has_eval && loop->evaluated_step == step)) return 0;
    const uint64_t start_ns = clock_now_ns();
    evaluate_stop_by(evaluator, loop->opts->stop);
    int rc = evaluate_run(evaluator, loop->job->eval.steps, NULL, &loop->result->eval, err);
    loop->evaluated_ns = clock_now_ns();
    loop->eval_ns += loop->evaluated_ns - start_ns;
    if (rc == SHOAL_EINTR) return 0; /* The loop sees the same flag, saves and ends. */
    if (rc != 0) {
        err_wrap(err, "evaluate");
        return rc;
    }
    loop->result->has_eval = true;
    loop->evaluated_step = step;
    if (loop->events != NULL) rc = eval_events(loop, err);
    if (rc == 0 && loop->progress != NULL) {
        struct str line = {0};
        str_printf(&line, "step %llu  evaluation: ", (unsigned long long)step);
        metrics_write_text(&loop->result->eval, &line);
        if (!line.failed) progress_note(loop->progress, line.text);
        str_fini(&line);
    }
    if (rc == 0 && loop->opts->json != NULL) {
        struct str line = {0};
        str_json_open(&line, '{');
        str_json_key(&line, "step");
        str_json_u64(&line, step);
        str_json_key(&line, "eval");
        metrics_write_json(&loop->result->eval, &line);
        str_json_close(&line, '}');
        rc = print_json(loop, &line, err);
    }
    return rc;
}

/* The test data is measured once, with the model that came out. */
static int test_model(struct loop *loop, struct err *err)
{
    struct evaluate *test = run_test(loop->run);
    if (test == NULL) return 0;
    const uint64_t start_ns = clock_now_ns();
    evaluate_stop_by(test, loop->opts->stop);
    const int rc = evaluate_run(test, 0, NULL, &loop->result->test, err);
    loop->eval_ns += clock_now_ns() - start_ns;
    if (rc == SHOAL_EINTR) return 0;
    if (rc != 0) return err_wrap(err, "test");
    loop->result->has_test = true;
    return 0;
}

static int end_epoch(struct loop *loop, const struct trainer_step *step, struct err *err)
{
    const double loss = loop->epoch_loss_sum / (double)loop->epoch_rows;
    const double seconds = seconds_since(loop->epoch_ns);
    int rc = 0;
    loop->result->epochs++;
    if (loop->progress != NULL) {
        char line[160];
        char count[32];
        snprintf(line, sizeof line, "epoch %llu  mean loss %.5f  %s examples  %.1f s",
                 (unsigned long long)step->info.epoch + 1, loss, str_count(loop->epoch_rows, count),
                 seconds);
        progress_note(loop->progress, line);
    }
    if (loop->opts->json != NULL) {
        struct str line = {0};
        str_json_open(&line, '{');
        str_json_key(&line, "epoch_end");
        str_json_u64(&line, step->info.epoch + 1);
        str_json_key(&line, "step");
        str_json_u64(&line, step->step);
        str_json_key(&line, "loss");
        str_json_f64(&line, loss);
        str_json_key(&line, "examples");
        str_json_u64(&line, loop->epoch_rows);
        str_json_key(&line, "seconds");
        str_json_f64(&line, seconds);
        str_json_close(&line, '}');
        rc = print_json(loop, &line, err);
    }
    loop->epoch_loss_sum = 0;
    loop->epoch_rows = 0;
    loop->epoch_ns = clock_now_ns();
    if (rc == 0 && loop->job->eval.each_epoch) rc = evaluate(loop, err);
    return rc;
}

static bool must_save(const struct loop *loop, uint64_t step)
{
    const struct job_train *train = &loop->job->train;
    if (train->checkpoint_steps > 0 && step % train->checkpoint_steps == 0) return true;
    return train->checkpoint_secs > 0 && seconds_since(loop->saved_ns) >= train->checkpoint_secs;
}

/* What follows a step, in the order that makes a resumed run say the same: log, epoch, save. */
static int after_step(struct loop *loop, const struct trainer_step *step, struct err *err)
{
    const struct job_train *train = &loop->job->train;
    loop->log_loss_sum += step->loss * step->rows;
    loop->log_loss_rows += step->rows;
    loop->epoch_loss_sum += step->loss * step->rows;
    loop->epoch_rows += step->rows;
    loop->result->loss = step->loss;
    int rc = 0;
    if (loop->progress != NULL) {
        const uint64_t now_ns = clock_now_ns();
        const struct progress_state state =
            progress_state(loop, step, rate_since_log(loop, now_ns));
        progress_update(loop->progress, &state, now_ns);
    }
    if (train->log_steps > 0 && step->step % train->log_steps == 0) rc = log_step(loop, step, err);
    if (rc == 0 && loop->events != NULL && step->step % train->summary_steps == 0) {
        rc = summarize(loop, step, err);
    }
    if (rc == 0 && step->info.epoch_end) rc = end_epoch(loop, step, err);
    if (rc == 0 && must_save(loop, step->step)) {
        rc = save(loop, err);
        if (rc == 0 && seconds_since(loop->evaluated_ns) >= loop->job->eval.throttle_secs) {
            rc = evaluate(loop, err);
        }
    }
    return rc;
}

static bool is_asked_to_stop(const struct loop *loop)
{
    /* Relaxed: a flag of its own, and nothing else is passed through it. */
    return loop->opts->stop != NULL && atomic_load_explicit(loop->opts->stop, memory_order_relaxed);
}

static bool is_done(const struct loop *loop)
{
    const uint64_t max_steps = loop->job->train.max_steps;
    return loop->hook_stop || (max_steps > 0 && trainer_global_step(loop->trainer) >= max_steps);
}

static int run_steps(struct loop *loop, struct err *err)
{
    const struct loop_opts *opts = loop->opts;
    int rc = 0;
    while (rc == 0 && !is_done(loop) && !is_asked_to_stop(loop)) {
        struct trainer_step step;
        rc = trainer_next(loop->trainer, NULL, err);
        if (rc == SHOAL_END && trainer_global_step(loop->trainer) == 0) {
            return err_set(
                err, SHOAL_ENOENT,
                "data.train has no record to train on (or data.train_rows none of them)");
        }
        if (rc == SHOAL_END) return 0;
        if (rc == 0 && opts->before != NULL) {
            loop->hook_stop |= opts->before(opts->hook_ctx, NULL) != 0;
        }
        if (rc == 0) rc = trainer_step(loop->trainer, &step, err);
        if (rc == 0) rc = after_step(loop, &step, err);
        if (rc == 0 && opts->after != NULL) {
            loop->hook_stop |= opts->after(opts->hook_ctx, &step) != 0;
        }
    }
    return rc;
}

static void fill_result(struct loop *loop)
{
    struct loop_result *result = loop->result;
    struct data_stats stats;
    data_stats_get(trainer_data(loop->trainer), &stats);
    result->steps = trainer_global_step(loop->trainer);
    result->steps_run = result->steps - run_first_step(loop->run);
    result->examples = trainer_examples(loop->trainer);
    result->records_skipped = stats.skipped;
    result->seconds = seconds_since(loop->started_ns);
    double phases = 0;
    for (int i = 0; i < TRAINER_PHASE_COUNT; i++) {
        const double spent = (double)trainer_phase_ns(loop->trainer, (enum trainer_phase)i) * 1e-9;
        result->phase_share[i] = spent / result->seconds;
        phases += spent;
    }
    result->train_seconds = phases;
    result->save_share = (double)loop->save_ns * 1e-9 / result->seconds;
    result->eval_share = (double)loop->eval_ns * 1e-9 / result->seconds;
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        result->memory_bytes = (uint64_t)usage.ru_maxrss * 1024;
    }
}

static int open_outputs(struct loop *loop, struct err *err)
{
    int rc = loop->opts->progress ? progress_create(STDERR_FILENO, &loop->progress, err) : 0;
    if (rc == 0 && loop->job->train.summary_steps > 0) {
        rc = events_open(loop->job->model_dir, &loop->events, err);
    }
    return rc;
}

int loop_train(struct run *run, const struct loop_opts *opts, struct loop_result *result_out,
               struct err *err)
{
    const uint64_t now_ns = clock_now_ns();
    struct loop loop = {.run = run,
                        .trainer = run_trainer(run),
                        .job = trainer_job(run_trainer(run)),
                        .opts = opts,
                        .result = result_out,
                        .started_ns = opts->started_ns != 0 ? opts->started_ns : now_ns,
                        .loop_ns = now_ns,
                        .saved_ns = now_ns,
                        .evaluated_ns = now_ns,
                        .log_ns = now_ns,
                        .epoch_ns = now_ns};
    *result_out = (struct loop_result){.loss = NAN};
    int rc = open_outputs(&loop, err);
    if (rc == 0) rc = run_steps(&loop, err);
    if (rc == 0) rc = save(&loop, err);
    result_out->interrupted = rc == 0 && is_asked_to_stop(&loop);
    if (rc == 0 && !result_out->interrupted) rc = evaluate(&loop, err);
    if (rc == 0 && !result_out->interrupted) rc = test_model(&loop, err);
    if (rc == 0) result_out->interrupted = is_asked_to_stop(&loop);
    progress_destroy(loop.progress);
    if (loop.events != NULL) {
        const int closed = events_close(loop.events, rc == 0 ? err : NULL);
        if (rc == 0) rc = closed;
    }
    fill_result(&loop);
    if (rc == 0 && result_out->interrupted) {
        rc =
            err_set(err, SHOAL_EINTR,
                    "interrupted at step %llu, which is saved; the same command goes on from there",
                    (unsigned long long)result_out->steps);
    }
    return rc;
}

static void json_shares(const struct loop_result *result, struct str *json)
{
    str_json_key(json, "time");
    str_json_open(json, '{');
    for (int i = 0; i < TRAINER_PHASE_COUNT; i++) {
        str_json_key(json, trainer_phase_name((enum trainer_phase)i));
        str_json_f64(json, result->phase_share[i]);
    }
    str_json_key(json, "save");
    str_json_f64(json, result->save_share);
    str_json_key(json, "eval");
    str_json_f64(json, result->eval_share);
    str_json_close(json, '}');
}

void loop_result_json(const struct loop_result *result, const char *model_dir, struct str *json)
{
    /* One process has none of these: they are here so that readers need not ask which run it was. */
    static const char *const zeros[] = {"staleness_mean", "staleness_max", "gradients_dropped",
                                        "restarts", "rolled_back_steps"};
    str_json_open(json, '{');
    str_json_key(json, "steps");
    str_json_u64(json, result->steps);
    str_json_key(json, "steps_run");
    str_json_u64(json, result->steps_run);
    str_json_key(json, "epochs");
    str_json_u64(json, result->epochs);
    str_json_key(json, "examples");
    str_json_u64(json, result->examples);
    str_json_key(json, "seconds");
    str_json_f64(json, result->seconds);
    str_json_key(json, "examples_per_second");
    str_json_f64(json, (double)result->examples / result->seconds);
    str_json_key(json, "examples_per_second_training");
    str_json_f64(json,
                 result->train_seconds > 0 ? (double)result->examples / result->train_seconds : 0);
    str_json_key(json, "loss");
    str_json_f64(json, result->loss);
    str_json_key(json, "eval");
    if (result->has_eval) {
        metrics_write_json(&result->eval, json);
    } else {
        str_json_open(json, '{');
        str_json_close(json, '}');
    }
    if (result->has_test) {
        str_json_key(json, "test");
        metrics_write_json(&result->test, json);
    }
    for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++) {
        str_json_key(json, zeros[i]);
        str_json_u64(json, 0);
    }
    str_json_key(json, "records_skipped");
    str_json_u64(json, result->records_skipped);
    str_json_key(json, "refused");
    str_json_open(json, '{');
    str_json_close(json, '}');
    json_shares(result, json);
    str_json_key(json, "memory_bytes");
    str_json_u64(json, result->memory_bytes);
    str_json_key(json, "interrupted");
    str_json_bool(json, result->interrupted);
    str_json_key(json, "model_dir");
    str_json_string(json, model_dir, strlen(model_dir));
    str_json_close(json, '}');
}

void loop_result_text(const struct loop_result *result, const char *model_dir, struct str *text)
{
    char steps[32];
    char examples[32];
    char rate[32];
    str_printf(text, "step %s: %s examples in %.2f s, %s examples/s\n",
               str_count(result->steps, steps), str_count(result->examples, examples),
               result->seconds,
               str_count((uint64_t)((double)result->examples / result->seconds), rate));
    if (result->has_eval) {
        str_add(text, "evaluation: ");
        metrics_write_text(&result->eval, text);
        str_add(text, "\n");
    }
    if (result->has_test) {
        str_add(text, "test: ");
        metrics_write_text(&result->test, text);
        str_add(text, "\n");
    }
    str_add(text, "time: ");
    for (int i = 0; i < TRAINER_PHASE_COUNT; i++) {
        str_printf(text, "%s %.0f %%, ", trainer_phase_name((enum trainer_phase)i),
                   100 * result->phase_share[i]);
    }
    str_printf(text, "save %.0f %%, eval %.0f %%\n", 100 * result->save_share,
               100 * result->eval_share);
    if (result->records_skipped > 0) {
        str_printf(text, "broken records skipped: %llu\n",
                   (unsigned long long)result->records_skipped);
    }
    str_printf(text, "saved in %s", model_dir);
}
