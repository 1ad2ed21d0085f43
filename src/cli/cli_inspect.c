/* shoal inspect: show any file we write. */
#include "base/str.h"
#include "cli/cli.h"
#include "train/inspect.h"

int cli_inspect(int argc, char **argv)
{
    const char *to = NULL;
    bool json = false;
    const struct args_flag flags[] = {
        {"to", ARGS_STRING, &to, "FILE", "write a checkpoint as one file, tensors whole"},
        {"json", ARGS_BOOL, &json, NULL, "one JSON object"},
    };
    const struct args_command command = {
        .name = "inspect",
        .usage = "FILE|DIR [flags]",
        .summary = "Shows a model directory, checkpoint, tensors, events, records or graph.",
        .examples = "  shoal inspect out/din\n"
                    "  shoal inspect out/din --to din.safetensors\n",
        .flags = flags,
        .flags_count = sizeof flags / sizeof flags[0],
        .positionals_min = 1,
        .positionals_max = 1,
    };
    const char *path = NULL;
    size_t count = 0;
    int code = 0;
    if (!cli_begin(&command, argc, argv, &path, &count, &code)) return code;
    struct err err = {0};
    struct str text = {0};
    int rc = 0;
    if (to != NULL) {
        rc = inspect_export(path, to, &err);
    } else {
        rc = inspect_path(path, json, &text, &err);
        if (rc == 0) rc = cli_print(text.text, &err);
    }
    str_fini(&text);
    return rc == 0 ? CLI_DONE : cli_fail(&err);
}
