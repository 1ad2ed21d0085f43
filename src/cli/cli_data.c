/* shoal data gen|cat|stat */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"
#include "base/team.h"
#include "cli/cli.h"
#include "data/data_tools.h"

/* The index of word in names, -1 after saying what is known. */
static int choice(const char *what, const char *word, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(word, names[i]) == 0) return (int)i;
    }
    cli_unknown_word(what, word, names, count);
    return -1;
}

static int run_gen(const struct data_gen_opts *opts, bool json)
{
    struct err err = {0};
    struct team *team = NULL;
    struct data_gen_result result = {0};
    struct str text = {0};
    int rc = team_create(0, &team, &err);
    if (rc == 0) rc = data_gen(opts, team, &result, &err);
    if (rc == 0) {
        data_gen_report(opts, &result, json, &text);
        rc = cli_print(text.text, &err);
    }
    str_fini(&text);
    team_destroy(team);
    return rc == 0 ? CLI_DONE : cli_fail(&err);
}

static int data_gen_command(int argc, char **argv)
{
    const char *kinds[DATA_GEN_KIND_COUNT];
    for (int i = 0; i < DATA_GEN_KIND_COUNT; i++) {
        kinds[i] = data_gen_kind_name((enum data_gen_kind)i);
    }
    static const char *const codecs[] = {"none", "gz", "zst"};
    const char *kind = "din";
    const char *compress = "none";
    uint64_t history_max = 20;
    uint64_t history_min = 0;
    uint64_t files = 0;
    bool json = false;
    struct data_gen_opts opts = {.seed = 1};
    const struct args_flag flags[] = {
        {"kind", ARGS_STRING, &kind, "KIND", "din (click logs), slices, criteo or linear; din"},
        {"out", ARGS_STRING, &opts.out, "DIR", "folder for train-* and eval-* files (needed)"},
        {"rows", ARGS_U64, &opts.rows, "N", "training rows; by kind, din: 200000"},
        {"eval-rows", ARGS_U64, &opts.eval_rows, "N", "evaluation rows; by kind, din: 50000"},
        {"users", ARGS_U64, &opts.users, "N", "users; 10000"},
        {"items", ARGS_U64, &opts.items, "N", "items; 90"},
        {"history", ARGS_U64, &history_max, "MAX", "longest history; 20"},
        {"history-min", ARGS_U64, &history_min, "MIN", "shortest history; 0"},
        {"files", ARGS_U64, &files, "N", "training files; by kind, din: 8"},
        {"seed", ARGS_U64, &opts.seed, "N", "the same seed gives the same bytes; 1"},
        {"compress", ARGS_STRING, &compress, "HOW", "none, gz or zst; none"},
        {"json", ARGS_BOOL, &json, NULL, "print the result as one JSON object"},
    };
    const struct args_command command = {
        .name = "data gen",
        .usage = "--out DIR [flags]",
        .summary = "Makes data with something to learn, and tells the best that a model could do.",
        .examples = "  shoal data gen --out data/din --rows 400000 --eval-rows 50000\n"
                    "  shoal data gen --kind slices --out data/slices\n",
        .flags = flags,
        .flags_count = sizeof flags / sizeof flags[0],
    };
    int code = 0;
    size_t count = 0;
    if (!cli_begin(&command, argc, argv, NULL, &count, &code)) return code;
    const int kind_index = choice("data gen: --kind", kind, kinds, DATA_GEN_KIND_COUNT);
    const int codec = choice("data gen: --compress", compress, codecs, 3);
    if (kind_index < 0 || codec < 0) return CLI_USAGE;
    struct err err = {0};
    if (opts.out == NULL) {
        err_set(&err, SHOAL_EINVAL, "data gen: --out DIR is needed: where the files go");
        return cli_fail(&err);
    }
    if (history_max > UINT32_MAX || history_min > UINT32_MAX || files > UINT32_MAX) {
        err_set(&err, SHOAL_EINVAL, "data gen: --history or --files is too large");
        return cli_fail(&err);
    }
    opts.kind = (enum data_gen_kind)kind_index;
    opts.compress = (enum data_compress)codec;
    opts.history_max = (uint32_t)history_max;
    opts.history_min = (uint32_t)history_min;
    opts.files = (uint32_t)files;
    return run_gen(&opts, json);
}

static int run_stat(const struct data_look_opts *opts)
{
    struct err err = {0};
    struct str text = {0};
    int rc = data_stat(opts, &text, &err);
    if (rc == 0) rc = cli_print(text.text, &err);
    str_fini(&text);
    return rc == 0 ? CLI_DONE : cli_fail(&err);
}

static int data_look_command(bool stat, int argc, char **argv)
{
    enum { PATHS_MAX = 256 };
    const char *paths[PATHS_MAX];
    const char *format = NULL;
    const char *delimiter = NULL;
    uint64_t top = 0;
    struct data_look_opts opts = {.paths = paths};
    struct args_flag flags[] = {
        {"format", ARGS_STRING, &format, "F", "tfrecord, csv, tsv, libsvm or idx; found out"},
        {"header", ARGS_BOOL, &opts.header, NULL, "csv, tsv: the first line names the columns"},
        {"delimiter", ARGS_STRING, &delimiter, "C", "csv: one character instead of the comma"},
        {"rows", ARGS_U64, &opts.rows_max, "N", "stop after N records; all"},
        {"json", ARGS_BOOL, &opts.json, NULL, "one JSON object"},
        {"top", ARGS_U64, &top, "N", "how many of the most frequent values to show; 5"},
    };
    const struct args_command command = {
        .name = stat ? "data stat" : "data cat",
        .usage = "FILE... [flags]",
        .summary = stat ? "Counts records, lengths and values, however damaged the files are."
                        : "Prints records as JSON, one a line; - is standard input.",
        .examples = stat ? "  shoal data stat data/din/eval-*\n"
                         : "  shoal data cat data/din/eval-* --rows 3\n",
        .flags = flags,
        .flags_count = stat ? 6 : 4,
        .positionals_min = 1,
        .positionals_max = PATHS_MAX,
    };
    int code = 0;
    size_t count = 0;
    if (!cli_begin(&command, argc, argv, paths, &count, &code)) return code;
    opts.paths_count = (uint32_t)count;
    opts.top = top < 1000 ? (uint32_t)top : 1000;
    if (format != NULL) {
        const char *names[DATA_FORMAT_COUNT];
        for (int i = 0; i < DATA_FORMAT_COUNT; i++) names[i] = data_format_name((enum data_format)i);
        const int index = choice("--format", format, names, DATA_FORMAT_COUNT);
        if (index < 0) return CLI_USAGE;
        opts.format = (enum data_format)index;
    }
    struct err err = {0};
    if (delimiter != NULL) {
        if (strlen(delimiter) != 1) {
            err_set(&err, SHOAL_EINVAL, "--delimiter: found \"%s\"; one character is wanted",
                    delimiter);
            return cli_fail(&err);
        }
        opts.delimiter = delimiter[0];
    }
    if (stat) return run_stat(&opts);
    return data_cat(&opts, stdout, &err) == 0 ? CLI_DONE : cli_fail(&err);
}

int cli_data(int argc, char **argv)
{
    static const char *const verbs[] = {"gen", "cat", "stat"};
    if (argc < 1 || strcmp(argv[0], "--help") == 0) {
        fprintf(argc < 1 ? stderr : stdout,
                "usage: shoal data gen|cat|stat [words and flags]\n\n"
                "  gen   make synthetic data: shoal data gen --out data/din\n"
                "  cat   print records as JSON lines: shoal data cat data/din/eval-* --rows 3\n"
                "  stat  count records, lengths, values: shoal data stat data/din/eval-*\n");
        return argc < 1 ? CLI_USAGE : CLI_DONE;
    }
    switch (choice("data", argv[0], verbs, 3)) {
    case 0: return data_gen_command(argc - 1, argv + 1);
    case 1: return data_look_command(false, argc - 1, argv + 1);
    case 2: return data_look_command(true, argc - 1, argv + 1);
    default: return CLI_USAGE;
    }
}
