/* args reads a command's words: flags as --name=value or --name value, the rest positional. One
 * table per command serves parsing, its help text and the nearest-spelling hint. */
#ifndef SHOAL_CLI_ARGS_H
#define SHOAL_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum args_type {
    ARGS_BOOL,   /* bool *     --json            */
    ARGS_STRING, /* const char **  --out DIR     */
    ARGS_U64,    /* uint64_t * --rows N          */
    ARGS_LIST    /* struct args_list *  --set A=B, may be repeated */
};

#define ARGS_LIST_MAX 128

struct args_list {
    const char *items[ARGS_LIST_MAX];
    size_t count;
};

struct args_flag {
    const char *name; /* without the dashes */
    enum args_type type;
    void *out;         /* holds the default before parsing */
    const char *value; /* how help names the value: "N"; NULL for ARGS_BOOL */
    const char *help;
};

struct args_command {
    const char *name;     /* "train" */
    const char *usage;    /* "JOB.yaml [flags]" */
    const char *summary;  /* one sentence */
    const char *examples; /* lines that run as pasted; may be NULL */
    const struct args_flag *flags;
    size_t flags_count;
    size_t positionals_min;
    size_t positionals_max;
};

/* Fills the flags' outputs and the positionals (which point into argv). --help prints the
 * command's help on stdout and sets *help_out. Errors are SHOAL_EINVAL. */
int args_parse(const struct args_command *command, int argc, char **argv,
               const char **positionals_out, size_t *positionals_count_out, bool *help_out,
               struct err *err);

#endif
