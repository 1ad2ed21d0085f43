/* shoal sim: a simulated cluster from one seed. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"
#include "cluster/env.h"
#include "sim/sim.h"

/* Name and value of every count, in the order that they are shown. */
#define COUNTS(X)                                                                                  \
    X(ps)                                                                                          \
    X(workers)                                                                                     \
    X(messages)                                                                                    \
    X(drops)                                                                                       \
    X(duplicates)                                                                                  \
    X(crashes)                                                                                     \
    X(pauses)                                                                                      \
    X(partitions)                                                                                  \
    X(pushes_applied)                                                                              \
    X(pushes_repeated)                                                                             \
    X(pushes_stale)                                                                                \
    X(steps)                                                                                       \
    X(examples)                                                                                    \
    X(epochs)                                                                                      \
    X(rolled_back_steps)                                                                           \
    X(gradients_dropped)                                                                           \
    X(staleness_max)

static int print_result(uint64_t seed, const struct sim_result *result, bool json, struct err *err)
{
    struct str text = {0};
    if (json) {
        str_json_open(&text, '{');
        str_json_key(&text, "seed");
        str_json_u64(&text, seed);
        str_json_key(&text, "discipline");
        str_json_string(&text, result->discipline, strlen(result->discipline));
#define X(name)                                                                                    \
    str_json_key(&text, #name);                                                                    \
    str_json_u64(&text, result->name);
        COUNTS(X)
#undef X
        str_json_key(&text, "staleness_mean");
        str_json_f64(&text, result->staleness_mean);
        str_json_key(&text, "seconds");
        str_json_f64(&text, result->seconds);
        str_json_close(&text, '}');
    } else {
        str_printf(&text, "seed %llu: %s, %.3f s simulated, nothing lost, nothing twice",
                   (unsigned long long)seed, result->discipline, result->seconds);
#define X(name) str_printf(&text, "\n  %-20s %llu", #name, (unsigned long long)result->name);
        COUNTS(X)
#undef X
    }
    const int rc = text.failed ? err_set(err, SHOAL_ENOMEM, "no memory for the result")
                               : cli_print(text.text, err);
    str_fini(&text);
    return rc;
}

static int find_rule(const char *word, uint32_t *rules_out)
{
    const char *words[ENV_RULES_COUNT];
    for (uint32_t i = 0; i < ENV_RULES_COUNT; i++) {
        words[i] = env_rule_word((enum env_rule)i);
        if (strcmp(words[i], word) != 0) continue;
        *rules_out = 1u << i;
        return CLI_DONE;
    }
    return cli_unknown_word("--break", word, words, ENV_RULES_COUNT);
}

int cli_sim(int argc, char **argv)
{
    struct sim_opts opts = {.seed = 1};
    uint64_t seeds = 1;
    const char *broken = NULL;
    bool json = false;
    const struct args_flag flags[] = {
        {"seed", ARGS_U64, &opts.seed, "N", "what everything is drawn from (1)"},
        {"seeds", ARGS_U64, &seeds, "N", "run this many, from --seed upwards (1)"},
        {"steps", ARGS_U64, &opts.steps, "M", "updates of the model (by the seed)"},
        {"break", ARGS_STRING, &broken, "RULE", "do not keep a rule; the checkers should notice"},
        {"json", ARGS_BOOL, &json, NULL, "one JSON object per seed"},
    };
    const struct args_command command = {
        .name = "sim",
        .usage = "[flags]",
        .summary = "Runs a simulated cluster with crashes, lost messages and cut links.",
        .examples = "  shoal sim --seed 7\n"
                    "  shoal sim --seed 1 --seeds 1000 --break fence\n",
        .flags = flags,
        .flags_count = sizeof flags / sizeof flags[0],
    };
    const char *word = NULL;
    size_t count = 0;
    int code = 0;
    if (!cli_begin(&command, argc, argv, &word, &count, &code)) return code;
    if (broken != NULL) code = find_rule(broken, &opts.rules_off);
    if (code != CLI_DONE) return code;
    struct err err = {0};
    for (uint64_t i = 0; i < seeds; i++, opts.seed++) {
        struct sim_result result;
        int rc = sim_run(&opts, &result, &err);
        if (rc == 0) rc = print_result(opts.seed, &result, json, &err);
        if (rc != 0) return cli_fail(&err);
    }
    return CLI_DONE;
}
