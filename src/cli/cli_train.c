/* shoal train, shoal eval: a job in this process. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "train/job.h"
#include "train/loop.h"
#include "train/run.h"

static atomic_bool stop;

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&stop, true, memory_order_relaxed);
}

/* The first ctrl-C or SIGTERM ends the run after its step, with a checkpoint; a second one kills. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

struct train_opts {
    bool json;
    uint64_t started_ns;
};

static int train(void *ctx, const struct job *job, struct err *err)
{
    const struct train_opts *opts = ctx;
    struct run *run = NULL;
    struct loop_result result;
    struct str text = {0};
    int rc = run_open(job, NULL, &run, err);
    if (rc != 0) return rc;
    catch_signals();
    rc = loop_train(run,
                    &(struct loop_opts){.json = opts->json ? stdout : NULL,
                                        .progress = true,
                                        .stop = &stop,
                                        .started_ns = opts->started_ns},
                    &result, err);
    if (rc == 0 || rc == SHOAL_EINTR) {
        struct err *print_err = rc == 0 ? err : NULL; /* Keeps what is said of an interruption. */
        if (opts->json) {
            loop_result_json(&result, job->model_dir, &text);
        } else {
            loop_result_text(&result, job->model_dir, &text);
        }
        const int printed = cli_print(text.text, print_err);
        if (rc == 0) rc = printed;
    }
    str_fini(&text);
    run_close(run);
    return rc;
}

int cli_train(int argc, char **argv)
{
    struct train_opts opts = {.started_ns = clock_now_ns()};
    struct args_list sets = {0};
    const struct args_flag flags[] = {
        {"set", ARGS_LIST, &sets, "A.B=VALUE", "change a setting of the job file; may be repeated"},
        {"json", ARGS_BOOL, &opts.json, NULL, "one JSON object per log line, then the result"},
    };
    const struct args_command command = {
        .name = "train",
        .usage = "JOB.yaml [flags]",
        .summary = "Trains a job in this process; goes on from where it was stopped.",
        .examples = "  shoal train examples/din.yaml\n"
                    "  shoal train examples/din.yaml --json --set train.max_steps=200\n",
        .flags = flags,
        .flags_count = sizeof flags / sizeof flags[0],
        .positionals_min = 1,
        .positionals_max = 1,
    };
    return cli_with_job(&command, argc, argv, &sets, train, &opts);
}

struct eval_opts {
    const char *checkpoint;
    const char *predictions;
    bool json;
};

static int print_eval(const struct metrics_result *result, uint64_t step, bool json,
                      struct err *err)
{
    struct str text = {0};
    if (json) {
        str_json_open(&text, '{');
        str_json_key(&text, "step");
        str_json_u64(&text, step);
        str_json_key(&text, "eval");
        metrics_write_json(result, &text);
        str_json_close(&text, '}');
    } else {
        str_printf(&text, "step %llu: ", (unsigned long long)step);
        metrics_write_text(result, &text);
    }
    const int rc = text.failed ? err_set(err, SHOAL_ENOMEM, "no memory to print the result")
                               : cli_print(text.text, err);
    str_fini(&text);
    return rc;
}

static int eval(void *ctx, const struct job *job, struct err *err)
{
    const struct eval_opts *opts = ctx;
    struct run *run = NULL;
    struct io_writer *predictions = NULL;
    struct metrics_result result;
    int rc = run_open_checkpoint(job, opts->checkpoint, &run, err);
    if (rc == 0 && run_evaluate(run) == NULL) {
        rc = err_set(err, SHOAL_ECONFIG, "the job has no evaluation data; set data.eval");
    }
    if (rc == 0 && opts->predictions != NULL) {
        rc = io_writer_open(opts->predictions, &predictions, err);
    }
    if (rc == 0) {
        rc = evaluate_run(run_evaluate(run), job->eval.steps, predictions, &result, err);
    }
    if (rc == 0 && predictions != NULL) {
        rc = io_writer_close(predictions, err);
        predictions = NULL;
    }
    if (predictions != NULL) io_writer_abandon(predictions);
    if (rc == 0) {
        rc = print_eval(&result, trainer_global_step(run_trainer(run)), opts->json, err);
    }
    run_close(run);
    return rc;
}

int cli_eval(int argc, char **argv)
{
    struct args_list sets = {0};
    struct eval_opts opts = {0};
    const struct args_flag flags[] = {
        {"checkpoint", ARGS_STRING, &opts.checkpoint, "DIR", "a checkpoint; the newest one"},
        {"predictions", ARGS_STRING, &opts.predictions, "FILE",
         "write one probability a line, in input order"},
        {"set", ARGS_LIST, &sets, "A.B=VALUE", "change a setting of the job file; may be repeated"},
        {"json", ARGS_BOOL, &opts.json, NULL, "print the result as one JSON object"},
    };
    const struct args_command command = {
        .name = "eval",
        .usage = "JOB.yaml [flags]",
        .summary = "Evaluates a checkpoint on eval.steps batches of the evaluation data.",
        .examples = "  shoal eval examples/din.yaml --set eval.steps=0\n"
                    "  shoal eval examples/din.yaml --predictions predictions.txt\n",
        .flags = flags,
        .flags_count = sizeof flags / sizeof flags[0],
        .positionals_min = 1,
        .positionals_max = 1,
    };
    return cli_with_job(&command, argc, argv, &sets, eval, &opts);
}
