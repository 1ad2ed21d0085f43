/* How fast input is: TFRecord files from the page cache into batches of the reference job's
 * features. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "data/data_tools.h"
#include "io/file.h"

static const char features[] =
    "label: {kind: label}\n"
    "user_id: {kind: hash, buckets: 10000}\n"
    "age: {kind: bucketize, boundaries: [18, 25, 36, 45, 55, 65, 80]}\n"
    "gender: {kind: hash, buckets: 100}\n"
    "item_id: {kind: hash, buckets: 100, embed: 16, table: item}\n"
    "clicked_items_15d: {kind: hash, buckets: 100, sequence: true, pad: \"0\", table: item}\n";

static int read_all(const struct data_opts *opts, struct team *team,
                    struct data_bench_result *result, struct err *err)
{
    struct data *data = NULL;
    const struct batch *batch = NULL;
    struct data_stats stats;
    int rc = data_open(opts, &data, err);
    if (rc != 0) return rc;
    const uint64_t start = clock_now_ns();
    do {
        rc = data_next(data, team, &batch, NULL, err);
    } while (rc == 0);
    result->seconds = (double)(clock_now_ns() - start) * 1e-9;
    data_stats_get(data, &stats);
    result->examples = stats.records;
    result->bytes = stats.bytes;
    result->examples_per_second = (double)stats.records / result->seconds;
    data_close(data);
    return rc == SHOAL_END ? 0 : rc;
}

static int run(const char *pattern, struct team *team, struct data_bench_result *result,
               struct err *err)
{
    struct config *config = NULL;
    struct data_spec *spec = NULL;
    struct data_opts opts = {.seed = 1};
    int rc = config_parse("bench", features, &config, err);
    if (rc == 0) rc = data_spec_create(config_root(config), NULL, &spec, err);
    if (rc == 0) rc = data_settings_read(NULL, &opts.settings, err);
    if (rc == 0) {
        opts.spec = spec;
        opts.settings.shuffle = 10000;
        opts.settings.format = DATA_TFRECORD;
        opts.settings.train.globs[0] = pattern;
        opts.settings.train.count = 1;
        rc = read_all(&opts, team, result, err); /* fills the page cache */
    }
    if (rc == 0) rc = read_all(&opts, team, result, err);
    data_spec_destroy(spec);
    config_destroy(config);
    return rc;
}

int data_bench_input(const char *pattern, uint64_t rows, struct team *team,
                     struct data_bench_result *result_out, struct err *err)
{
    char folder[64] = "/tmp/shoal-bench-XXXXXX";
    char made[96];
    struct data_bench_result result = {0};
    if (pattern != NULL) {
        const int rc = run(pattern, team, &result, err);
        if (rc == 0) *result_out = result;
        return rc;
    }
    if (mkdtemp(folder) == NULL) return err_set(err, SHOAL_EIO, "cannot make %s", folder);
    struct data_gen_result generated;
    const struct data_gen_opts gen = {.out = folder,
                                      .rows = rows != 0 ? rows : 1000000,
                                      .eval_rows = 1,
                                      .history_min = 1,
                                      .history_max = 20,
                                      .seed = 1};
    int rc = data_gen(&gen, team, &generated, err);
    snprintf(made, sizeof made, "%s/train-*", folder);
    if (rc == 0) rc = run(made, team, &result, err);
    if (rc == 0) *result_out = result;
    const int removed = io_remove_tree(folder, rc == 0 ? err : NULL);
    return rc != 0 ? rc : removed;
}
