/* Records as JSON lines. TFRecord: each feature is a list of its values, as instances of a predict
 * request are written; csv: strings by column; libsvm: features by index; idx: the image as a list. */
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "data/data_look.h"

struct cat {
    FILE *out;
    struct str line;
    uint64_t left; /* records; 0: no limit */
    bool limited;
    bool failed; /* writing */
    bool broken; /* a value of this record */
};

static void begin(void *ctx)
{
    struct cat *cat = ctx;
    str_clear(&cat->line);
    cat->broken = false;
    str_json_open(&cat->line, '{');
}

static void print_value(struct str *line, const struct data_value *value, bool single_float)
{
    switch (value->type) {
    case DATA_VALUE_TEXT: str_json_string(line, (const char *)value->text, value->bytes); break;
    case DATA_VALUE_INTEGER: str_json_i64(line, value->integer); break;
    default:
        if (single_float) {
            str_json_f32(line, (float)value->number);
        } else {
            str_json_f64(line, value->number);
        }
    }
}

static void field(void *ctx, const struct data_example_field *found)
{
    struct cat *cat = ctx;
    const struct data_raw *raw = &found->raw;
    struct str name = {0};
    struct data_cursor cursor;
    struct data_value value;
    int rc = 0;
    str_add_bytes(&name, found->name, found->name_bytes);
    str_json_key(&cat->line, name.text != NULL ? name.text : "");
    str_fini(&name);
    const bool single = raw->type == DATA_RAW_TEXTS || raw->type == DATA_RAW_NUMBER;
    const bool pairs = raw->type == DATA_RAW_PAIRS;
    const bool single_float = raw->type == DATA_RAW_FLOATS;
    if (!single) str_json_open(&cat->line, pairs ? '{' : '[');
    uint64_t count = 0;
    data_cursor_init(&cursor, raw);
    while ((rc = data_cursor_next(&cursor, &value)) > 0) {
        count++;
        if (pairs) {
            char index[32];
            snprintf(index, sizeof index, "%lld", (long long)value.integer);
            str_json_key(&cat->line, index);
            str_json_f32(&cat->line, value.weight);
        } else {
            print_value(&cat->line, &value, single_float);
        }
    }
    if (rc < 0) cat->broken = true;
    if (single && count == 0) str_json_string(&cat->line, "", 0);
    if (!single) str_json_close(&cat->line, pairs ? '}' : ']');
}

static bool end(void *ctx, bool whole)
{
    struct cat *cat = ctx;
    if (!whole || cat->broken) return true;
    str_json_close(&cat->line, '}');
    str_add(&cat->line, "\n");
    if (cat->line.failed ||
        fwrite(cat->line.text, 1, cat->line.bytes, cat->out) != cat->line.bytes) {
        /* A reader that has seen enough (`| head`) closes the pipe: the end, and no failure. */
        cat->failed = cat->line.failed || errno != EPIPE;
        return false;
    }
    return !cat->limited || --cat->left > 0;
}

int data_cat(const struct data_look_opts *opts, FILE *out, struct err *err)
{
    struct cat cat = {.out = out, .left = opts->rows_max, .limited = opts->rows_max != 0};
    const struct data_look_visitor visitor = {
        .begin = begin, .field = field, .end = end, .ctx = &cat};
    struct data_look_totals totals;
    int rc = data_look_run(opts, &visitor, &totals, err);
    if (rc == 0 && (cat.failed || (fflush(out) != 0 && errno != EPIPE))) {
        rc = err_set(err, cat.line.failed ? SHOAL_ENOMEM : SHOAL_EIO, "data cat: cannot write");
    }
    str_fini(&cat.line);
    return rc;
}
