#include "data/data_look.h"

#include <stdio.h>
#include <string.h>

#include "base/bounds.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/data_frame.h"
#include "data/data_text.h"
#include "io/file.h"

struct look {
    const struct data_look_opts *opts;
    const struct data_look_visitor *visitor;
    struct data_look_totals *totals;
    bool stopped;

    enum data_format format; /* of the file being read */
    char delimiter;
    struct data_span *spans; /* csv: columns of the record */
    struct data_span *names; /* csv: columns of the header */
    uint32_t names_count;
    uint8_t *scratch;
    size_t scratch_bytes;
    char *names_text; /* what the names point into */
    uint8_t *names_unquoted;

    struct data_parser *parser; /* libsvm, idx */
    struct data_layout layout;
    struct data_spec spec;
    struct data_field fields[3]; /* by role */
    uint32_t columns[3];
    uint8_t roles[3];
};

static void call_field(struct look *look, const char *name, size_t name_bytes,
                       const struct data_raw *raw)
{
    const struct data_example_field field = {
        .name = (const uint8_t *)name, .name_bytes = name_bytes, .raw = *raw};
    look->visitor->field(look->visitor->ctx, &field);
}

static bool example_field(void *ctx, const struct data_example_field *field)
{
    struct look *look = ctx;
    look->visitor->field(look->visitor->ctx, field);
    return true;
}

static bool visit_csv(struct look *look, const struct data_record *record)
{
    if (record->count > look->scratch_bytes) {
        uint8_t *scratch = mem_realloc(MEM_DATA, look->scratch, 2 * record->count);
        if (scratch == NULL) return false;
        look->scratch = scratch;
        look->scratch_bytes = 2 * record->count;
    }
    const uint32_t found = data_csv_split(record->bytes, record->count, look->delimiter,
                                          look->scratch, look->spans, DATA_COLUMNS_MAX);
    if (found > DATA_COLUMNS_MAX || (look->names_count != 0 && found != look->names_count)) {
        return false;
    }
    for (uint32_t i = 0; i < found; i++) {
        char number[24];
        const struct data_raw raw = {
            .type = DATA_RAW_TEXTS, .spans = &look->spans[i], .spans_count = 1};
        if (look->names_count != 0) {
            call_field(look, (const char *)look->names[i].at, look->names[i].bytes, &raw);
        } else {
            call_field(look, number, data_text_of_i64(i, number), &raw);
        }
    }
    return true;
}

/* Libsvm and idx go through a parser for a spec with one field of each role. */
static void prepare_roles(struct look *look)
{
    look->roles[DATA_ROLE_LABEL] = DATA_ROLE_LABEL;
    look->roles[DATA_ROLE_GROUP] = DATA_ROLE_GROUP;
    look->spec = (struct data_spec){.fields = look->fields, .fields_count = 3};
    look->layout = (struct data_layout){.format = look->format,
                                        .fields_count = 3,
                                        .columns = look->columns,
                                        .roles = look->roles,
                                        .spec = &look->spec};
}

static bool visit_roles(struct look *look, const struct data_record *record)
{
    static const enum data_role order[] = {DATA_ROLE_LABEL, DATA_ROLE_GROUP, DATA_ROLE_VALUES};
    const bool idx = look->format == DATA_IDX;
    const char *names[] = {
        [DATA_ROLE_LABEL] = "label", [DATA_ROLE_GROUP] = "group", [DATA_ROLE_VALUES] = "features"};
    const struct data_raw *raws = NULL;
    if (idx) names[DATA_ROLE_VALUES] = "image";
    look->layout.format = look->format;
    if (look->parser == NULL && data_parser_create(&look->layout, &look->parser, NULL) != 0) {
        return false;
    }
    if (data_parse(look->parser, record->bytes, record->count, &raws) != 0) return false;
    for (int i = 0; i < 3; i++) {
        const struct data_raw *raw = &raws[order[i]];
        if (raw->type == DATA_RAW_NONE || (idx && order[i] == DATA_ROLE_GROUP)) continue;
        call_field(look, names[order[i]], strlen(names[order[i]]), raw);
    }
    return true;
}

static bool visit(struct look *look, const struct data_record *record)
{
    switch (look->format) {
    case DATA_TFRECORD: return data_example_walk(record->bytes, record->count, example_field, look);
    case DATA_LIBSVM:
    case DATA_IDX: return visit_roles(look, record);
    default: return visit_csv(look, record);
    }
}

static void note(struct look *look, const char *path, const struct data_record *record,
                 enum data_fault fault, const char *why)
{
    look->totals->skipped_by[fault]++;
    if (look->totals->skipped++ < DATA_REPORTS_MAX) {
        log_line(LOG_WARN, "data", "skipped a record: %s file=%s offset=%llu reason=%s", why, path,
                 (unsigned long long)record->offset, data_fault_name(fault));
    }
}

static int read_names(struct look *look, const struct data_frame *frame)
{
    const char *header = data_frame_header(frame);
    look->names_count = 0;
    if (header == NULL) return 0;
    mem_free(look->names_text);
    mem_free(look->names_unquoted);
    look->names_text = mem_strdup(MEM_DATA, header);
    look->names_unquoted = mem_alloc(MEM_DATA, strlen(header) + 1);
    if (look->names_text == NULL || look->names_unquoted == NULL) return SHOAL_ENOMEM;
    const uint32_t found =
        data_csv_split((const uint8_t *)look->names_text, strlen(header), look->delimiter,
                       look->names_unquoted, look->names, DATA_COLUMNS_MAX);
    if (found > DATA_COLUMNS_MAX) return SHOAL_ELIMIT;
    look->names_count = found;
    return 0;
}

static int look_at_records(struct look *look, const char *path, struct data_frame *frame,
                           struct err *err)
{
    const struct data_look_visitor *visitor = look->visitor;
    struct data_look_totals *totals = look->totals;
    while (!look->stopped) {
        struct data_record record = {0};
        enum data_fault fault = DATA_FAULT_MALFORMED;
        struct err why = {0};
        const int rc = data_frame_next(frame, &record, &fault, &why);
        if (rc == SHOAL_END) return 0;
        if (rc == SHOAL_ECORRUPT) {
            note(look, path, &record, fault, why.text);
            continue;
        }
        if (rc != 0) return err_set(err, rc, "%s", why.text);
        if (visitor->begin != NULL) visitor->begin(visitor->ctx);
        const bool whole = visit(look, &record);
        if (whole) {
            totals->records++;
            totals->bytes += record.count;
        } else {
            note(look, path, &record, DATA_FAULT_MALFORMED, data_fault_text(DATA_FAULT_MALFORMED));
        }
        if (visitor->end != NULL && !visitor->end(visitor->ctx, whole)) look->stopped = true;
    }
    return 0;
}

/* DATA_AUTO by name and first bytes; standard input is taken for TFRecord. */
static int find_format(const struct data_look_opts *opts, const char *path,
                       enum data_format *format_out, struct err *err)
{
    const uint8_t *bytes = NULL;
    size_t have = 0;
    struct stream *stream = NULL;
    *format_out = opts->format;
    if (opts->format != DATA_AUTO) return 0;
    *format_out = DATA_TFRECORD;
    if (strcmp(path, "-") == 0) return 0;
    const int rc = stream_open(path, 0, &stream, err);
    if (rc != 0) return rc;
    if (stream_peek(stream, 4096, &bytes, &have, NULL) == 0) {
        *format_out = data_frame_guess(path, bytes, have < 4096 ? have : 4096);
    }
    stream_close(stream);
    return 0;
}

static int look_at_file(struct look *look, const char *path, struct err *err)
{
    struct data_frame *frame = NULL;
    struct data_frame_opts frame_opts = {.labels_optional = true};
    int rc = find_format(look->opts, path, &look->format, err);
    if (rc != 0) return rc;
    const bool csv = look->format == DATA_CSV || look->format == DATA_TSV;
    look->delimiter = look->opts->delimiter != 0 ? look->opts->delimiter
                      : look->format == DATA_TSV ? '\t'
                                                 : ',';
    frame_opts.format = look->format;
    frame_opts.delimiter = look->delimiter;
    frame_opts.header = csv && look->opts->header;
    look->totals->files++;
    struct err why = {0};
    rc = data_frame_open(path, &frame_opts, 0, 0, &frame, &why);
    if (rc == SHOAL_ECORRUPT) {
        note(look, path, &(struct data_record){0}, DATA_FAULT_HEADER, why.text);
        return 0;
    }
    if (rc != 0) return err_set(err, rc, "%s", why.text);
    rc = read_names(look, frame);
    if (rc != 0) {
        rc = err_set(err, rc, "%s: cannot take its header", path);
    } else {
        rc = look_at_records(look, path, frame, err);
    }
    data_frame_close(frame);
    return rc;
}

static int look_at_pattern(struct look *look, const char *pattern, struct err *err)
{
    struct io_list list = {0};
    if (strcmp(pattern, "-") == 0) return look_at_file(look, pattern, err);
    int rc = io_glob(pattern, &list, err);
    for (size_t i = 0; rc == 0 && !look->stopped && i < list.count; i++) {
        rc = look_at_file(look, list.paths[i], err);
    }
    io_list_fini(&list);
    return rc;
}

int data_look_run(const struct data_look_opts *opts, const struct data_look_visitor *visitor,
                  struct data_look_totals *totals_out, struct err *err)
{
    *totals_out = (struct data_look_totals){0};
    struct look look = {.opts = opts, .visitor = visitor, .totals = totals_out};
    look.spans = mem_alloc_array(MEM_DATA, DATA_COLUMNS_MAX, sizeof *look.spans);
    look.names = mem_alloc_array(MEM_DATA, DATA_COLUMNS_MAX, sizeof *look.names);
    prepare_roles(&look);
    int rc = 0;
    if (look.spans == NULL || look.names == NULL) {
        rc = err_set(err, SHOAL_ENOMEM, "no memory to look at files");
    }
    for (uint32_t i = 0; rc == 0 && !look.stopped && i < opts->paths_count; i++) {
        rc = look_at_pattern(&look, opts->paths[i], err);
    }
    mem_free(look.spans);
    mem_free(look.names);
    mem_free(look.scratch);
    mem_free(look.names_text);
    mem_free(look.names_unquoted);
    data_parser_destroy(look.parser);
    return rc;
}
