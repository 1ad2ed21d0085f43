#include "data/data.h"

#include <stdlib.h>

#include "../tests/test.h"

static struct err err;

static const char din_features[] =
    "label: {kind: label}\n"
    "user_id: {kind: hash, buckets: 10000}\n"
    "age: {kind: bucketize, boundaries: [18, 25, 36, 45, 55, 65, 80]}\n"
    "gender: {kind: hash, buckets: 100}\n"
    "item_id: {kind: hash, buckets: 100, embed: 16, table: item}\n"
    "clicked_items_15d: {kind: hash, buckets: 100, sequence: true, pad: \"0\", table: item}\n";

static struct data_spec *spec_of(const char *text)
{
    struct config *config = NULL;
    struct data_spec *spec = NULL;
    CHECK_OK(config_parse("features", text, &config, &err));
    CHECK_OK(data_spec_create(config_root(config), NULL, &spec, &err));
    config_destroy(config);
    return spec;
}

TEST(golden_din_file_gives_its_batches)
{
    struct data_spec *spec = spec_of(din_features);
    struct data_opts opts = {.spec = spec};
    opts.settings = (struct data_settings){.batch_size = 32, .epochs = 1, .errors_max = 0.01};
    opts.settings.train.globs[0] = test_path("golden/din/data.tfrecord");
    opts.settings.train.count = 1;
    struct data *data = NULL;
    CHECK_OK(data_open(&opts, &data, &err));
    const struct batch *batch = NULL;
    struct data_info info;
    int rc = 0;
    uint64_t rows = 0;
    while ((rc = data_next(data, NULL, &batch, &info, &err)) == 0) {
        CHECK_INT(batch->rows, 32);
        rows += batch->rows;
        CHECK_INT(info.epoch_end, rows == 1280);
    }
    CHECK_INT(rc, SHOAL_END);
    CHECK_INT(rows, 1280);
    data_close(data);
    data_spec_destroy(spec);
}
