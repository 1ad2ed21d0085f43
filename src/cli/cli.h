/* cli is the command line: every command reads its words with args, calls the layer that does the
 * work, prints, and turns an error into one line on stderr and an exit code. No logic of its own. */
#ifndef SHOAL_CLI_CLI_H
#define SHOAL_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "cli/args.h"

enum cli_exit { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

/* Each takes the words after its name and returns an exit code. */
int cli_train(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_data(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_sim(int argc, char **argv);

/* The whole program: what main calls. */
int cli_main(int argc, char **argv);

/* "shoal: <text>" on stderr; the exit code that fits the error's code. */
int cli_fail(const struct err *err);

/* Reads a command's words. True: go on. False: *exit_out is how to end (help, or wrong usage). */
bool cli_begin(const struct args_command *command, int argc, char **argv,
               const char **positionals_out, size_t *positionals_count_out, int *exit_out);

/* A command on a job file: reads its words (the one positional is the file), loads the job with the
 * --set assignments, calls run, and returns the exit code. */
struct job;
typedef int cli_job_cb(void *ctx, const struct job *job, struct err *err);
int cli_with_job(const struct args_command *command, int argc, char **argv,
                 const struct args_list *sets, cli_job_cb *run, void *ctx);

/* Writes text, ended by a newline, to stdout at once. SHOAL_EIO when nobody can take it (a closed pipe, a
 * full disk). */
int cli_print(const char *text, struct err *err);

/* "did you mean" for a word that should have been one of choices. */
int cli_unknown_word(const char *what, const char *word, const char *const *choices, size_t count);

#endif
