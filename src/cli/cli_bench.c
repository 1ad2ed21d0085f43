/* shoal bench: the figures of docs/performance.md, one JSON object or line per case. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/cpu.h"
#include "base/str.h"
#include "base/team.h"
#include "cli/cli.h"
#include "data/data_tools.h"
#include "net/net_bench.h"
#include "store/store_bench.h"
#include "tensor/kern_bench.h"
#include "train/bench_train.h"

struct bench {
    uint64_t repeats; /* 0: the case's own */
    uint64_t threads; /* 0: 1 */
    uint64_t rows;    /* 0: the case's own */
    const char *data; /* input: files to read; NULL: made for the purpose */
    bool json;
};

struct figure {
    const char *bench;
    const char *name;
    const char *unit;
    double value; /* the median */
    double min;
    double max;
    uint32_t repeats;
    const char *extra; /* more JSON members, ", " between; NULL: none */
};

static int print_figure(const struct bench *bench, const struct figure *figure, struct err *err)
{
    struct str text = {0};
    if (bench->json) {
        str_json_open(&text, '{');
        str_json_key(&text, "bench");
        str_json_string(&text, figure->bench, strlen(figure->bench));
        str_json_key(&text, "case");
        str_json_string(&text, figure->name, strlen(figure->name));
        str_json_key(&text, "value");
        str_json_f64(&text, figure->value);
        str_json_key(&text, "unit");
        str_json_string(&text, figure->unit, strlen(figure->unit));
        str_json_key(&text, "repeats");
        str_json_u64(&text, figure->repeats);
        str_json_key(&text, "min");
        str_json_f64(&text, figure->min);
        str_json_key(&text, "max");
        str_json_f64(&text, figure->max);
        str_json_key(&text, "isa");
        str_json_string(&text, cpu_isa_name(cpu_isa()), strlen(cpu_isa_name(cpu_isa())));
        if (figure->extra != NULL) str_printf(&text, ", %s", figure->extra);
        str_json_close(&text, '}');
    } else {
        str_printf(&text, "%-8s %-36s %14.6g %-14s (%.6g .. %.6g, %u repeats)", figure->bench,
                   figure->name, figure->value, figure->unit, figure->min, figure->max,
                   figure->repeats);
    }
    const int rc = text.failed ? err_set(err, SHOAL_ENOMEM, "no memory to print a figure")
                               : cli_print(text.text, err);
    str_fini(&text);
    return rc;
}

static void range_of(const double *values, uint32_t count, struct figure *figure)
{
    ASSERT(count > 0);
    figure->repeats = count;
    figure->min = values[0];
    figure->max = values[0];
    for (uint32_t i = 1; i < count; i++) {
        if (values[i] < figure->min) figure->min = values[i];
        if (values[i] > figure->max) figure->max = values[i];
    }
}

static int print_train(const struct bench *bench, const char *what, const char *name,
                       const struct bench_train_result *result, uint32_t batch, struct err *err)
{
    struct str extra = {0};
    str_printf(&extra, "\"steps_per_second\": %.6g, \"loss\": %.6g, \"time\": {",
               result->examples_per_second_median / batch, result->loss);
    for (int i = 0; i < TRAINER_PHASE_COUNT; i++) {
        str_printf(&extra, "%s\"%s\": %.3f", i > 0 ? ", " : "",
                   trainer_phase_name((enum trainer_phase)i), result->phase_share[i]);
    }
    str_add(&extra, "}");
    struct figure figure = {.bench = what,
                            .name = name,
                            .unit = "examples/s",
                            .value = result->examples_per_second_median,
                            .extra = extra.text};
    range_of(result->examples_per_second, result->repeats, &figure);
    const int rc = print_figure(bench, &figure, err);
    str_fini(&extra);
    return rc;
}

static int run_din(const struct bench *bench, struct err *err)
{
    static const struct {
        const char *name;
        uint64_t items;
        bool dynamic;
    } cases[] = {{"items=100", 100, false},
                 {"items=1000000", 1000000, false},
                 {"items=1000000 dynamic", 1000000, true}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof cases / sizeof cases[0]; i++) {
        struct bench_train_result result;
        const struct bench_train_opts opts = {.items = cases[i].items,
                                              .dynamic = cases[i].dynamic,
                                              .threads = (uint32_t)bench->threads,
                                              .repeats = (uint32_t)bench->repeats};
        rc = bench_din(&opts, &result, err);
        if (rc == 0) rc = print_train(bench, "din", cases[i].name, &result, 512, err);
    }
    return rc;
}

static int run_mlp(const struct bench *bench, struct err *err)
{
    static const uint32_t batches[] = {32, 512};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        struct bench_train_result result;
        char name[32];
        const struct bench_train_opts opts = {.batch = batches[i],
                                              .threads = (uint32_t)bench->threads,
                                              .repeats = (uint32_t)bench->repeats};
        snprintf(name, sizeof name, "batch=%u", batches[i]);
        rc = bench_mlp(&opts, &result, err);
        if (rc == 0) rc = print_train(bench, "mlp", name, &result, batches[i], err);
    }
    return rc;
}

static int run_input(const struct bench *bench, struct err *err)
{
    enum { REPEATS = 5 };
    struct team *team = NULL;
    double rates[REPEATS];
    int rc = team_create(bench->threads == 0 ? 1 : (uint32_t)bench->threads, &team, err);
    for (int i = 0; rc == 0 && i < REPEATS; i++) {
        struct data_bench_result result;
        rc = data_bench_input(bench->data, bench->rows, team, &result, err);
        rates[i] = result.examples_per_second;
    }
    team_destroy(team);
    if (rc != 0) return rc;
    struct figure figure = {.bench = "input", .name = "tfrecord din", .unit = "examples/s"};
    range_of(rates, REPEATS, &figure);
    for (int i = 1; i < REPEATS; i++) { /* insertion sort, for the median */
        for (int k = i; k > 0 && rates[k] < rates[k - 1]; k--) {
            const double swap = rates[k];
            rates[k] = rates[k - 1];
            rates[k - 1] = swap;
        }
    }
    figure.value = rates[REPEATS / 2];
    return print_figure(bench, &figure, err);
}

static int run_store(const struct bench *bench, const char *what,
                     int (*run)(const struct store_bench_opts *, struct store_bench_result *,
                                struct err *),
                     struct err *err)
{
    struct store_bench_result result;
    const struct store_bench_opts opts = {
        .rows = bench->rows, .repeats = (uint32_t)bench->repeats, .seed = 1};
    int rc = run(&opts, &result, err);
    if (rc != 0) return rc;
    struct figure figure = {.bench = what,
                            .name = "dynamic, 16 floats, adagrad",
                            .unit = "rows/s",
                            .value = result.rows_per_second_median};
    range_of(result.rows_per_second, result.repeats, &figure);
    rc = print_figure(bench, &figure, err);
    if (rc != 0 || strcmp(what, "grow") != 0) return rc;
    const struct {
        const char *name;
        const char *unit;
        double value;
    } more[] = {{"slowest request", "ms", result.request_ms_max},
                {"resident beyond values and slots", "bytes/row", result.resident_bytes_per_row},
                {"held beyond values and slots", "bytes/row", result.held_bytes_per_row}};
    for (size_t i = 0; rc == 0 && i < 3; i++) {
        rc = print_figure(bench,
                          &(struct figure){.bench = what,
                                           .name = more[i].name,
                                           .unit = more[i].unit,
                                           .value = more[i].value,
                                           .min = more[i].value,
                                           .max = more[i].value,
                                           .repeats = 1},
                          err);
    }
    return rc;
}

static int run_lookup(const struct bench *bench, struct err *err)
{
    return run_store(bench, "lookup", store_bench_lookup, err);
}

static int run_push(const struct bench *bench, struct err *err)
{
    return run_store(bench, "push", store_bench_push, err);
}

static int run_grow(const struct bench *bench, struct err *err)
{
    return run_store(bench, "grow", store_bench_grow, err);
}

/* Where the figures of the kernels go, and what became of them. */
struct kernels {
    const struct bench *bench;
    struct err *err;
    int rc;
};

static void print_kernel(void *ctx, const struct kern_bench_result *result)
{
    struct kernels *kernels = ctx;
    if (kernels->rc != 0) return;
    kernels->rc = print_figure(kernels->bench,
                               &(struct figure){.bench = "kernels",
                                                .name = result->name,
                                                .unit = result->unit,
                                                .value = result->median,
                                                .min = result->min,
                                                .max = result->max,
                                                .repeats = result->repeats},
                               kernels->err);
}

static int run_kernels(const struct bench *bench, struct err *err)
{
    struct kernels kernels = {.bench = bench, .err = err};
    const struct kern_bench_opts opts = {.repeats = (uint32_t)bench->repeats};
    const int rc = kern_bench(&opts, print_kernel, &kernels, err);
    return rc != 0 ? rc : kernels.rc;
}

static int print_net(const struct bench *bench, const char *what, const char *unit, double scale,
                     const struct net_bench_opts *opts, const struct net_bench_result *result,
                     struct err *err)
{
    char name[64];
    double values[NET_BENCH_REPEATS_MAX] = {0};
    for (uint32_t i = 0; i < result->repeats; i++) values[i] = result->value[i] * scale;
    snprintf(name, sizeof name, "%s %s %llu bytes", net_bench_carrier_name(opts->carrier), what,
             (unsigned long long)opts->bytes);
    struct figure figure = {
        .bench = "net", .name = name, .unit = unit, .value = result->median * scale};
    range_of(values, result->repeats, &figure);
    return print_figure(bench, &figure, err);
}

static int run_net(const struct bench *bench, struct err *err)
{
    int rc = 0;
    for (int carrier = NET_BENCH_TCP; rc == 0 && carrier <= NET_BENCH_SHM; carrier++) {
        struct net_bench_result result;
        struct net_bench_opts opts = {.carrier = (enum net_bench_carrier)carrier,
                                      .bytes = 8,
                                      .repeats = (uint32_t)bench->repeats};
        rc = net_bench_round_trip(&opts, &result, err);
        if (rc == 0) rc = print_net(bench, "round trip", "us", 1, &opts, &result, err);
        opts.bytes = 1 << 20;
        if (rc == 0) rc = net_bench_bandwidth(&opts, &result, err);
        if (rc == 0) rc = print_net(bench, "one way", "GB/s", 1e-9, &opts, &result, err);
    }
    return rc;
}

static const struct {
    const char *name;
    int (*run)(const struct bench *bench, struct err *err);
} benches[] = {{"din", run_din},         {"mlp", run_mlp},   {"input", run_input},
               {"lookup", run_lookup},   {"push", run_push}, {"grow", run_grow},
               {"kernels", run_kernels}, {"net", run_net}};
enum { BENCHES_COUNT = sizeof benches / sizeof benches[0] };

int cli_bench(int argc, char **argv)
{
    struct bench bench = {0};
    const struct args_flag flags[] = {
        {"threads", ARGS_U64, &bench.threads, "N", "din, mlp, input: threads; 1"},
        {"repeats", ARGS_U64, &bench.repeats, "N", "measurements of a case; the median counts; 9"},
        {"rows", ARGS_U64, &bench.rows, "N", "input: examples; lookup, push, grow: rows"},
        {"data", ARGS_STRING, &bench.data, "GLOB", "input: TFRecord files; made for the purpose"},
        {"json", ARGS_BOOL, &bench.json, NULL, "one JSON object per case"},
    };
    const struct args_command command = {
        .name = "bench",
        .usage = "din|mlp|input|lookup|push|grow|kernels|net|all",
        .summary = "Measures speed on this machine.",
        .examples = "  shoal bench din\n"
                    "  shoal bench all --json\n",
        .flags = flags,
        .flags_count = sizeof flags / sizeof flags[0],
        .positionals_min = 1,
        .positionals_max = 1,
    };
    const char *what = NULL;
    size_t count = 0;
    int code = 0;
    if (!cli_begin(&command, argc, argv, &what, &count, &code)) return code;
    struct err err = {0};
    if (bench.threads > TEAM_THREADS_MAX || bench.repeats > BENCH_REPEATS_MAX) {
        err_set(&err, SHOAL_EINVAL, "bench: at most %u threads and %u repeats", TEAM_THREADS_MAX,
                BENCH_REPEATS_MAX);
        return cli_fail(&err);
    }
    const char *names[BENCHES_COUNT + 1];
    const bool all = strcmp(what, "all") == 0;
    bool found = false;
    int rc = 0;
    for (size_t i = 0; i < BENCHES_COUNT; i++) {
        names[i] = benches[i].name;
        if (!all && strcmp(what, benches[i].name) != 0) continue;
        found = true;
        if (rc == 0) rc = benches[i].run(&bench, &err);
    }
    names[BENCHES_COUNT] = "all";
    if (!found) return cli_unknown_word("bench", what, names, BENCHES_COUNT + 1);
    return rc == 0 ? CLI_DONE : cli_fail(&err);
}
