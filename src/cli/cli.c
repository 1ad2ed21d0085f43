#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/cpu.h"
#include "base/str.h"
#include "shoal.h"
#include "train/job.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage;
    const char *summary;
} commands[] = {
    {"train", cli_train, "train JOB.yaml", "train, evaluate and save, all in this process"},
    {"eval", cli_eval, "eval JOB.yaml", "evaluate a checkpoint; --predictions FILE writes them"},
    {"plan", cli_plan, "plan JOB.yaml", "tables, memory, flops and bytes a step; runs nothing"},
    {"inspect", cli_inspect, "inspect FILE|DIR", "show any file that shoal writes"},
    {"data", cli_data, "data gen|cat|stat", "make synthetic click logs, look into data files"},
    {"sim", cli_sim, "sim --seed N", "a simulated cluster with crashes and lost messages"},
    {"bench", cli_bench, "bench WHAT", "measure: din, mlp, input, lookup, push, grow"},
};
enum { COMMANDS_COUNT = sizeof commands / sizeof commands[0] };

int cli_fail(const struct err *err)
{
    fflush(stdout);
    fprintf(stderr, "shoal: %s\n", err->text);
    switch (err->code) {
    case SHOAL_EINVAL:
    case SHOAL_ECONFIG: return CLI_USAGE;
    case SHOAL_EINTR: return CLI_INTERRUPTED;
    default: return CLI_FAILED;
    }
}

bool cli_begin(const struct args_command *command, int argc, char **argv,
               const char **positionals_out, size_t *positionals_count_out, int *exit_out)
{
    struct err err = {0};
    bool help = false;
    if (args_parse(command, argc, argv, positionals_out, positionals_count_out, &help, &err) != 0) {
        cli_fail(&err);
        *exit_out = CLI_USAGE;
        return false;
    }
    *exit_out = CLI_DONE;
    return !help;
}

int cli_with_job(const struct args_command *command, int argc, char **argv,
                 const struct args_list *sets, cli_job_cb *run, void *ctx)
{
    ASSERT(command->positionals_max == 1);
    const char *path = NULL;
    size_t count = 0;
    int code = 0;
    if (!cli_begin(command, argc, argv, &path, &count, &code)) return code;
    struct err err = {0};
    struct job *job = NULL;
    int rc = job_load(path, sets->items, sets->count, &job, &err);
    if (rc == 0) rc = run(ctx, job, &err);
    job_destroy(job);
    return rc == 0 ? CLI_DONE : cli_fail(&err);
}

int cli_print(const char *text, struct err *err)
{
    const size_t bytes = strlen(text);
    const bool ended = bytes > 0 && text[bytes - 1] == '\n';
    if (fputs(text, stdout) == EOF || (!ended && fputc('\n', stdout) == EOF) ||
        fflush(stdout) == EOF) {
        return err_set_errno(err, errno, "write to standard output");
    }
    return 0;
}

int cli_unknown_word(const char *what, const char *word, const char *const *choices, size_t count)
{
    struct str all = {0};
    for (size_t i = 0; i < count; i++) str_printf(&all, "%s%s", i > 0 ? ", " : "", choices[i]);
    const char *nearest = str_nearest(word, choices, count);
    fprintf(stderr, "shoal: %s: found \"%s\"%s%s%s; known: %s\n", what, word,
            nearest != NULL ? "; did you mean \"" : "", nearest != NULL ? nearest : "",
            nearest != NULL ? "\"?" : "", all.text != NULL ? all.text : "");
    str_fini(&all);
    return CLI_USAGE;
}

static void print_usage(FILE *out)
{
    fprintf(out, "shoal trains click-through and ranking models: from data files to the model.\n\n"
                 "usage: shoal COMMAND [words and flags]\n\n");
    for (size_t i = 0; i < COMMANDS_COUNT; i++) {
        fprintf(out, "  %-20s %s\n", commands[i].usage, commands[i].summary);
    }
    fprintf(out, "  %-20s %s\n", "version", "print the version");
    fprintf(out, "\n  --set a.b=value      change any setting of the job file (value is YAML)\n"
                 "  --json               results as one JSON object per line on stdout\n"
                 "  shoal COMMAND --help tells more; SHOAL_ISA=plain|avx2|avx512 pins kernels\n"
                 "\nexit codes: 0 done, 1 failed, 2 wrong usage or job file, 130 interrupted\n"
                 "\nexamples:\n"
                 "  shoal data gen --out data/din --rows 400000 --eval-rows 50000\n"
                 "  shoal train examples/din.yaml\n");
}

int shoal_main(int argc, char **argv)
{
    return cli_main(argc, argv);
}

int cli_main(int argc, char **argv)
{
    struct err err = {0};
    signal(SIGPIPE, SIG_IGN); /* A closed pipe is an error to report, not a death. */
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_usage(stdout);
        return CLI_DONE;
    }
    if (strcmp(word, "version") == 0 || strcmp(word, "--version") == 0) {
        printf("shoal %s\n", SHOAL_VERSION);
        return CLI_DONE;
    }
    if (cpu_isa_check(&err) != 0) return cli_fail(&err);
    const char *names[COMMANDS_COUNT];
    for (size_t i = 0; i < COMMANDS_COUNT; i++) {
        if (strcmp(word, commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
        names[i] = commands[i].name;
    }
    return cli_unknown_word("command", word, names, COMMANDS_COUNT);
}
