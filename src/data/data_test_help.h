/* What the tests of this layer share: Examples and TFRecords put together by hand, specs from text,
 * batches as text to compare. */
#ifndef SHOAL_DATA_TEST_HELP_H
#define SHOAL_DATA_TEST_HELP_H

#include <string.h>

#include "../tests/test.h"
#include "base/hash.h"
#include "base/str.h"
#include "data/data.h"
#include "data/data_batcher.h"
#include "io/file.h"

static struct err err;

static inline struct data_spec *help_spec(const char *features)
{
    struct config *config = NULL;
    struct data_spec *spec = NULL;
    CHECK_OK(config_parse("job.yaml", features, &config, &err));
    CHECK_OK(data_spec_create(config_root(config), NULL, &spec, &err));
    config_destroy(config);
    return spec;
}

/* ---- protobuf ---- */

static inline void help_varint(struct str *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) str_add_bytes(out, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    str_add_bytes(out, &(uint8_t){(uint8_t)value}, 1);
}

static inline void help_field(struct str *out, uint32_t number, const void *bytes, size_t count)
{
    help_varint(out, number << 3 | 2);
    help_varint(out, count);
    str_add_bytes(out, bytes, count);
}

/* An entry of Features whose Feature holds `list` under `number` (1 bytes, 2 floats, 3 integers). */
static inline void help_entry(struct str *out, const char *name, uint32_t number,
                              const struct str *list)
{
    struct str feature = {0}, entry = {0};
    help_field(&feature, number, list->text != NULL ? list->text : "", list->bytes);
    help_field(&entry, 1, name, strlen(name));
    help_field(&entry, 2, feature.text, feature.bytes);
    help_field(out, 1, entry.text, entry.bytes);
    str_fini(&feature);
    str_fini(&entry);
}

/* Values separated by spaces; "" is no value at all. */
static inline void help_strings(struct str *out, const char *name, const char *values)
{
    struct str list = {0};
    while (*values != '\0') {
        const size_t bytes = strcspn(values, " ");
        help_field(&list, 1, values, bytes);
        values += bytes + (values[bytes] == ' ' ? 1 : 0);
    }
    help_entry(out, name, 1, &list);
    str_fini(&list);
}

static inline void help_integers(struct str *out, const char *name, const int64_t *values,
                                 size_t count, bool packed)
{
    struct str list = {0}, run = {0};
    for (size_t i = 0; i < count; i++) {
        if (!packed) help_varint(&list, 1 << 3 | 0);
        help_varint(packed ? &run : &list, (uint64_t)values[i]);
    }
    if (packed) help_field(&list, 1, run.text != NULL ? run.text : "", run.bytes);
    help_entry(out, name, 3, &list);
    str_fini(&list);
    str_fini(&run);
}

static inline void help_integer(struct str *out, const char *name, int64_t value)
{
    help_integers(out, name, &value, 1, true);
}

static inline void help_floats(struct str *out, const char *name, const float *values, size_t count,
                               bool packed)
{
    struct str list = {0};
    if (packed) {
        help_field(&list, 1, values, count * sizeof *values);
    } else {
        for (size_t i = 0; i < count; i++) {
            help_varint(&list, 1 << 3 | 5);
            str_add_bytes(&list, &values[i], 4);
        }
    }
    help_entry(out, name, 2, &list);
    str_fini(&list);
}

/* Features -> Example -> TFRecord, appended to out. Clears the features. */
static inline void help_record(struct str *out, struct str *features)
{
    struct str example = {0};
    help_field(&example, 1, features->text != NULL ? features->text : "", features->bytes);
    const uint64_t length = example.bytes;
    const uint32_t length_crc = hash_crc32c_mask(hash_crc32c(0, &length, 8));
    const uint32_t crc = hash_crc32c_mask(hash_crc32c(0, example.text, example.bytes));
    str_add_bytes(out, &length, 8);
    str_add_bytes(out, &length_crc, 4);
    str_add_bytes(out, example.text, example.bytes);
    str_add_bytes(out, &crc, 4);
    str_fini(&example);
    str_clear(features);
}

static inline void help_write(const char *path, const void *bytes, size_t count)
{
    CHECK_OK(io_write_whole(path, bytes, count, &err));
}

static inline void help_write_text(const char *path, const char *text)
{
    help_write(path, text, strlen(text));
}

/* ---- data sets ---- */

static inline struct data_opts help_opts(const struct data_spec *spec, const char *glob,
                                         uint32_t batch_size, uint32_t shuffle)
{
    struct data_opts opts = {.spec = spec, .seed = 7};
    CHECK_OK(data_settings_read(NULL, &opts.settings, &err));
    opts.settings.batch_size = batch_size;
    opts.settings.shuffle = shuffle;
    opts.settings.train.globs[0] = glob;
    opts.settings.train.count = 1;
    opts.settings.eval = opts.settings.train;
    return opts;
}

/* Everything that a batch says, as text. */
static inline void help_print(const struct batch *batch, struct str *out)
{
    str_printf(out, "rows %u\n", batch->rows);
    for (uint32_t i = 0; batch->label != NULL && i < batch->rows; i++) {
        str_printf(out, "%s%g", i == 0 ? "label " : " ", (double)batch->label[i]);
    }
    for (uint32_t i = 0; batch->weight != NULL && i < batch->rows; i++) {
        str_printf(out, "%s%g", i == 0 ? "\nweight " : " ", (double)batch->weight[i]);
    }
    for (uint32_t i = 0; batch->group != NULL && i < batch->rows; i++) {
        str_printf(out, "%s%llx", i == 0 ? "\ngroup " : " ", (unsigned long long)batch->group[i]);
    }
    for (uint32_t i = 0; i < batch->ids_count; i++) {
        const struct batch_ids *ids = &batch->ids[i];
        str_printf(out, "\nids %u base %u:", i, ids->occ_base);
        for (uint32_t j = 0; j < ids->count; j++) str_printf(out, " %u", ids->slots[j]);
        for (uint32_t j = 0; ids->offsets != NULL && j <= batch->rows; j++) {
            str_printf(out, "%s%u", j == 0 ? " at " : ",", ids->offsets[j]);
        }
        for (uint32_t j = 0; ids->weights != NULL && j < ids->count; j++) {
            str_printf(out, " *%g", (double)ids->weights[j]);
        }
    }
    for (uint32_t i = 0; i < batch->tables_count; i++) {
        const struct batch_keys *table = &batch->tables[i];
        str_printf(out, "\ntable %u:", i);
        for (uint32_t j = 0; j < table->keys_count; j++) {
            str_printf(out, " %llu(", (unsigned long long)table->keys[j]);
            for (uint32_t k = table->occ_offsets[j]; k < table->occ_offsets[j + 1]; k++) {
                str_printf(out, " %u", table->occs[k]);
            }
            str_add(out, ")");
        }
    }
    str_add(out, "\n");
}

/* The key of row `row`, value `nth`, of a categorical feature. */
static inline uint64_t help_key(const struct batch *batch, const struct data_schema *schema,
                                const char *name, uint32_t row, uint32_t nth)
{
    const int at = data_schema_find_ids(schema, name);
    CHECK(at >= 0);
    const struct batch_ids *ids = &batch->ids[at];
    const uint32_t i = (ids->offsets != NULL ? ids->offsets[row] : row) + nth;
    CHECK(i < ids->count);
    return batch->tables[schema->ids[at].table].keys[ids->slots[i]];
}

static inline uint32_t help_count(const struct batch *batch, const struct data_schema *schema,
                                  const char *name, uint32_t row)
{
    const int at = data_schema_find_ids(schema, name);
    CHECK(at >= 0);
    const struct batch_ids *ids = &batch->ids[at];
    return ids->offsets == NULL ? 1 : ids->offsets[row + 1] - ids->offsets[row];
}

#endif
