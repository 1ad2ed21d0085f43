#include <string.h>

#include "base/bounds.h"
#include "base/mem.h"
#include "data/data.h"

static int read_patterns(const struct config_node *node, const char *key,
                         struct data_patterns *patterns, struct err *err)
{
    const struct config_node *value = config_get(node, key);
    if (value == NULL) return 0;
    if (config_kind(value) == CONFIG_SCALAR) {
        patterns->count = 1;
        return config_read_string(node, key, &patterns->globs[0], err);
    }
    const size_t count = config_count(value);
    if (config_kind(value) != CONFIG_LIST || count == 0 || count > DATA_PATTERNS_MAX) {
        return config_error(value, err, "%s must be a path, a glob, or a list of 1 to %d of them",
                            key, DATA_PATTERNS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        patterns->globs[i] = config_scalar(config_at(value, i));
        if (patterns->globs[i] == NULL) {
            return config_error(config_at(value, i), err, "%s: not a path", key);
        }
    }
    patterns->count = (uint32_t)count;
    return 0;
}

static int read_rows(const struct config_node *node, const char *key, struct data_rows *rows,
                     struct err *err)
{
    const struct config_node *value = config_get(node, key);
    double *numbers = NULL;
    size_t count = 0;
    if (value == NULL) return 0;
    int rc = config_read_f64_list(node, key, 0, 9e15, &numbers, &count, err);
    if (rc == 0 &&
        (count != 2 || numbers[0] >= numbers[1] || numbers[0] != (double)(uint64_t)numbers[0] ||
         numbers[1] != (double)(uint64_t)numbers[1])) {
        rc = config_error(value, err, "%s must be [first, last + 1], such as [0, 55000]", key);
    }
    if (rc == 0) {
        rows->first = (uint64_t)numbers[0];
        rows->last = (uint64_t)numbers[1];
    }
    mem_free(numbers);
    return rc;
}

static int read_delimiter(const struct config_node *node, char *delimiter, struct err *err)
{
    const char *text = NULL;
    const int rc = config_read_string(node, "delimiter", &text, err);
    if (rc != 0 || text == NULL) return rc;
    if (strlen(text) != 1 || text[0] == '"' || text[0] == '\n') {
        return config_error(config_get(node, "delimiter"), err,
                            "delimiter must be one character, found \"%s\"", text);
    }
    *delimiter = text[0];
    return 0;
}

int data_settings_read(const struct config_node *node, struct data_settings *settings_out,
                       struct err *err)
{
    static const char *const keys[] = {"format",     "train",      "eval",      "train_rows",
                                       "eval_rows",  "batch_size", "shuffle",   "epochs",
                                       "errors_max", "header",     "delimiter", "index_base",
                                       "interleave", "make",       "test"};
    const char *formats[DATA_FORMAT_COUNT];
    for (int i = 0; i < DATA_FORMAT_COUNT; i++) formats[i] = data_format_name((enum data_format)i);
    struct data_settings s = {
        .batch_size = 512, .epochs = 1, .errors_max = 0.01, .index_base = 1, .interleave = 8};
    uint32_t format = DATA_AUTO;
    int rc = 0;
    if (node != NULL) rc = config_check_keys(node, keys, sizeof keys / sizeof *keys, err);
    if (rc == 0) rc = config_read_choice(node, "format", formats, DATA_FORMAT_COUNT, &format, err);
    if (rc == 0) rc = read_patterns(node, "train", &s.train, err);
    if (rc == 0) rc = read_patterns(node, "eval", &s.eval, err);
    if (rc == 0) rc = read_patterns(node, "test", &s.test, err);
    if (rc == 0) rc = read_rows(node, "train_rows", &s.train_rows, err);
    if (rc == 0) rc = read_rows(node, "eval_rows", &s.eval_rows, err);
    if (rc == 0) rc = config_read_u32(node, "batch_size", 1, DATA_BATCH_MAX, &s.batch_size, err);
    if (rc == 0) rc = config_read_u32(node, "shuffle", 0, DATA_SHUFFLE_MAX, &s.shuffle, err);
    if (rc == 0) rc = config_read_u64(node, "epochs", 0, UINT32_MAX, &s.epochs, err);
    if (rc == 0) rc = config_read_f64(node, "errors_max", 0, 1, &s.errors_max, err);
    if (rc == 0) rc = config_read_bool(node, "header", &s.header, err);
    if (rc == 0) rc = read_delimiter(node, &s.delimiter, err);
    if (rc == 0) rc = config_read_u32(node, "index_base", 0, 1, &s.index_base, err);
    if (rc == 0) {
        rc = config_read_u32(node, "interleave", 1, DATA_INTERLEAVE_MAX, &s.interleave, err);
    }
    if (rc == 0) rc = config_read_string(node, "make", &s.make, err);
    if (rc != 0) return rc;
    s.format = (enum data_format)format;
    *settings_out = s;
    return 0;
}
