#include "data/data_parse.h"

#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "data/data_frame.h"
#include "data/data_idx.h"
#include "data/data_text.h"
#include "data/data_wire.h"

/* ---- layout ---- */

static int find_column(const struct data_field *field, uint32_t index,
                       const struct data_span *names, uint32_t names_count, bool header,
                       uint32_t *column_out, struct err *err)
{
    for (uint32_t i = 0; i < names_count; i++) {
        if (names[i].bytes == field->name_bytes &&
            memcmp(names[i].at, field->name, field->name_bytes) == 0) {
            *column_out = i;
            return 0;
        }
    }
    int64_t number = 0;
    const bool is_number = data_text_to_i64(field->name, field->name_bytes, &number);
    if (field->explicit_column && is_number && number >= 0 && number < (int64_t)DATA_COLUMNS_MAX) {
        *column_out = (uint32_t)number;
        return 0;
    }
    if (!header && !field->explicit_column) {
        *column_out = index; /* In the order of the features. */
        return 0;
    }
    return err_set(err, SHOAL_EMISMATCH, "%s has no column named %s",
                   header ? "the header" : "a file without header", field->name);
}

static int layout_columns(struct data_layout *layout, const struct data_spec *spec,
                          const char *header, struct err *err)
{
    struct data_span *names = NULL;
    uint8_t *scratch = NULL;
    uint32_t names_count = 0;
    int rc = 0;
    if (header != NULL) {
        names = mem_alloc_array(MEM_DATA, DATA_COLUMNS_MAX, sizeof *names);
        scratch = mem_alloc(MEM_DATA, strlen(header) + 1);
        if (names == NULL || scratch == NULL) {
            rc = err_set(err, SHOAL_ENOMEM, "no memory for a header");
            goto out;
        }
        names_count = data_csv_split((const uint8_t *)header, strlen(header), layout->delimiter,
                                     scratch, names, DATA_COLUMNS_MAX);
        if (names_count > DATA_COLUMNS_MAX) {
            rc = err_set(err, SHOAL_ELIMIT, "more than %u columns", DATA_COLUMNS_MAX);
            goto out;
        }
        layout->columns_max = names_count;
    }
    uint32_t next = 0;
    for (uint32_t i = 0; rc == 0 && i < spec->fields_count; i++) {
        const struct data_field *field = &spec->fields[i];
        rc = find_column(field, next, names, names_count, header != NULL, &layout->columns[i], err);
        next = layout->columns[i] + field->width;
        if (next > layout->columns_min) layout->columns_min = next;
    }
    if (rc == 0 && layout->columns_min > DATA_COLUMNS_MAX) {
        rc = err_set(err, SHOAL_ELIMIT, "more than %u columns", DATA_COLUMNS_MAX);
    }
    if (rc == 0 && layout->columns_max != 0 && layout->columns_min > layout->columns_max) {
        rc = err_set(err, SHOAL_EMISMATCH, "the features need %u columns, the header has %u",
                     layout->columns_min, layout->columns_max);
    }
out:
    mem_free(names);
    mem_free(scratch);
    return rc;
}

int data_layout_init(struct data_layout *layout, const struct data_spec *spec,
                     const struct data_settings *settings, enum data_format format,
                     const char *header, struct err *err)
{
    ASSERT(format != DATA_AUTO);
    *layout = (struct data_layout){.format = format,
                                   .index_base = settings->index_base,
                                   .fields_count = spec->fields_count,
                                   .spec = spec};
    layout->delimiter = settings->delimiter != 0 ? settings->delimiter
                        : format == DATA_TSV     ? '\t'
                                                 : ',';
    layout->columns = mem_alloc_array(MEM_DATA, spec->fields_count, sizeof *layout->columns);
    layout->roles = mem_alloc_array(MEM_DATA, spec->fields_count, sizeof *layout->roles);
    if (layout->columns == NULL || layout->roles == NULL) {
        data_layout_fini(layout);
        return err_set(err, SHOAL_ENOMEM, "no memory for a layout");
    }
    for (uint32_t i = 0; i < spec->features_count; i++) {
        const struct data_feature *feature = &spec->features[i];
        if (feature->kind == DATA_LABEL) layout->roles[feature->field] = DATA_ROLE_LABEL;
        if (feature->kind == DATA_GROUP) layout->roles[feature->field] = DATA_ROLE_GROUP;
    }
    int rc = 0;
    if (format == DATA_CSV || format == DATA_TSV) rc = layout_columns(layout, spec, header, err);
    if (rc != 0) data_layout_fini(layout);
    return rc;
}

void data_layout_fini(struct data_layout *layout)
{
    mem_free(layout->columns);
    mem_free(layout->roles);
    layout->columns = NULL;
    layout->roles = NULL;
}

/* ---- values ---- */

void data_cursor_init(struct data_cursor *cursor, const struct data_raw *raw)
{
    *cursor = (struct data_cursor){.raw = raw, .at = raw->at, .end = raw->end};
    if (raw->type == DATA_RAW_TEXTS || raw->type == DATA_RAW_NUMBER) {
        cursor->at = NULL;
        cursor->end = NULL;
    }
}

static int next_bytes(struct data_cursor *cursor, struct data_value *value)
{
    while (cursor->at < cursor->end) {
        uint64_t tag = 0;
        if (!wire_varint(&cursor->at, cursor->end, &tag)) return -1;
        if (tag == (1 << 3 | WIRE_BYTES)) {
            value->type = DATA_VALUE_TEXT;
            return wire_bytes(&cursor->at, cursor->end, &value->text, &value->bytes) ? 1 : -1;
        }
        if (!wire_skip(&cursor->at, cursor->end, tag)) return -1;
    }
    return 0;
}

/* Integers and floats come packed (one run of bytes) or one by one. */
static int next_packable(struct data_cursor *cursor, struct data_value *value)
{
    const bool floats = cursor->raw->type == DATA_RAW_FLOATS;
    for (;;) {
        if (cursor->packed_end == NULL) {
            uint64_t tag = 0;
            if (cursor->at >= cursor->end) return 0;
            if (!wire_varint(&cursor->at, cursor->end, &tag)) return -1;
            if (tag == (1 << 3 | WIRE_BYTES)) {
                size_t count = 0;
                const uint8_t *bytes = NULL;
                if (!wire_bytes(&cursor->at, cursor->end, &bytes, &count)) return -1;
                cursor->at = bytes;
                cursor->packed_end = bytes + count;
                continue;
            }
            if (tag != (floats ? 1 << 3 | WIRE_FIXED32 : 1 << 3 | WIRE_VARINT)) {
                if (!wire_skip(&cursor->at, cursor->end, tag)) return -1;
                continue;
            }
        } else if (cursor->at >= cursor->packed_end) {
            cursor->packed_end = NULL;
            continue;
        }
        const uint8_t *end = cursor->packed_end != NULL ? cursor->packed_end : cursor->end;
        if (floats) {
            float number = 0;
            if (end - cursor->at < 4) return -1;
            memcpy(&number, cursor->at, 4);
            cursor->at += 4;
            value->type = DATA_VALUE_NUMBER;
            value->number = (double)number;
        } else {
            uint64_t bits = 0;
            if (!wire_varint(&cursor->at, end, &bits)) return -1;
            value->type = DATA_VALUE_INTEGER;
            value->integer = (int64_t)bits;
        }
        return 1;
    }
}

static int next_text(struct data_cursor *cursor, struct data_value *value)
{
    const struct data_raw *raw = cursor->raw;
    while (cursor->at == NULL || cursor->at > cursor->end) { /* the next span */
        if (cursor->span == raw->spans_count) return 0;
        const struct data_span *span = &raw->spans[cursor->span++];
        if (span->bytes == 0) continue;
        cursor->at = span->at;
        cursor->end = span->at + span->bytes;
    }
    const uint8_t *cut = NULL;
    if (raw->split != 0) cut = memchr(cursor->at, raw->split, (size_t)(cursor->end - cursor->at));
    if (cut == NULL) cut = cursor->end;
    value->type = DATA_VALUE_TEXT;
    value->text = cursor->at;
    value->bytes = (size_t)(cut - cursor->at);
    cursor->at = cut + 1; /* Past the end when this was the last. */
    return 1;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of libsvm's line; false at its end or at a comment. */
static bool next_word(const uint8_t **at, const uint8_t *end, const uint8_t **word_out,
                      size_t *bytes_out)
{
    while (*at < end && is_blank(**at)) (*at)++;
    if (*at >= end || **at == '#') return false;
    *word_out = *at;
    while (*at < end && !is_blank(**at)) (*at)++;
    *bytes_out = (size_t)(*at - *word_out);
    return true;
}

static int next_pair(struct data_cursor *cursor, struct data_value *value)
{
    const uint8_t *word = NULL;
    size_t bytes = 0;
    double weight = 1;
    if (!next_word(&cursor->at, cursor->end, &word, &bytes)) return 0;
    const uint8_t *colon = memchr(word, ':', bytes);
    const size_t index_bytes = colon != NULL ? (size_t)(colon - word) : bytes;
    if (!data_text_to_i64(word, index_bytes, &value->integer)) return -1;
    if (colon != NULL && !data_text_to_f64(colon + 1, bytes - index_bytes - 1, &weight)) return -1;
    if (__builtin_sub_overflow(value->integer, (int64_t)cursor->raw->base, &value->integer)) {
        return -1;
    }
    value->type = DATA_VALUE_INTEGER;
    value->weight = (float)weight;
    return 1;
}

static int next_idx(struct data_cursor *cursor, struct data_value *value)
{
    const size_t bytes = data_idx_bytes(cursor->raw->element);
    if ((size_t)(cursor->end - cursor->at) < bytes) return 0;
    value->type = DATA_VALUE_NUMBER;
    value->number = data_idx_number(cursor->raw->element, cursor->at);
    cursor->at += bytes;
    return 1;
}

int data_cursor_next(struct data_cursor *cursor, struct data_value *value_out)
{
    value_out->weight = 1;
    switch (cursor->raw->type) {
    case DATA_RAW_BYTES: return next_bytes(cursor, value_out);
    case DATA_RAW_FLOATS:
    case DATA_RAW_INTEGERS: return next_packable(cursor, value_out);
    case DATA_RAW_TEXTS: return next_text(cursor, value_out);
    case DATA_RAW_PAIRS: return next_pair(cursor, value_out);
    case DATA_RAW_IDX: return next_idx(cursor, value_out);
    case DATA_RAW_NUMBER:
        if (cursor->span++ != 0) return 0;
        value_out->type = DATA_VALUE_NUMBER;
        value_out->number = cursor->raw->number;
        return 1;
    default: return 0;
    }
}

/* ---- records ---- */

enum { GUESS_NAME_MAX = 54, GUESSES = 128 };

/* The name that stood at this place in the last record, and the field it is (-1: none wanted). */
struct guess {
    int32_t field;
    uint8_t bytes;
    uint8_t name[GUESS_NAME_MAX];
};

struct data_parser {
    const struct data_layout *layout;
    struct data_raw *raws; /* by field */
    struct guess *guesses; /* by place in the record */
    uint32_t place;
    struct data_span *spans; /* csv columns */
    uint32_t spans_max;
    uint8_t *scratch; /* csv: text without quotes */
    size_t scratch_bytes;
};

int data_parser_create(const struct data_layout *layout, struct data_parser **parser_out,
                       struct err *err)
{
    struct data_parser *parser = mem_alloc(MEM_DATA, sizeof *parser);
    if (parser == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a parser");
    parser->layout = layout;
    parser->raws = mem_alloc_array(MEM_DATA, layout->fields_count, sizeof *parser->raws);
    parser->guesses = mem_alloc_array(MEM_DATA, GUESSES, sizeof *parser->guesses);
    parser->spans_max = DATA_COLUMNS_MAX;
    if (layout->columns_min > 0) {
        parser->spans = mem_alloc_array(MEM_DATA, parser->spans_max, sizeof *parser->spans);
    }
    if (parser->raws == NULL || parser->guesses == NULL ||
        (layout->columns_min > 0 && parser->spans == NULL)) {
        data_parser_destroy(parser);
        return err_set(err, SHOAL_ENOMEM, "no memory for a parser");
    }
    for (uint32_t i = 0; i < GUESSES; i++) parser->guesses[i].field = -1;
    *parser_out = parser;
    return 0;
}

void data_parser_destroy(struct data_parser *parser)
{
    if (parser == NULL) return;
    mem_free(parser->raws);
    mem_free(parser->guesses);
    mem_free(parser->spans);
    mem_free(parser->scratch);
    mem_free(parser);
}

/* memcmp of short names without a call: whole words, the last one overlapping. */
static inline bool same_name(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    uint64_t x = 0, y = 0;
    if (bytes >= 8) {
        for (size_t i = 0; i + 8 <= bytes; i += 8) {
            memcpy(&x, a + i, 8);
            memcpy(&y, b + i, 8);
            if (x != y) return false;
        }
        memcpy(&x, a + bytes - 8, 8);
        memcpy(&y, b + bytes - 8, 8);
        return x == y;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != b[i]) return false;
    }
    return true;
}

static int32_t look_up(const struct data_spec *spec, const uint8_t *name, size_t bytes)
{
    for (uint32_t i = 0; i < spec->fields_count; i++) {
        const struct data_field *field = &spec->fields[i];
        if (field->name_bytes == bytes && memcmp(field->name, name, bytes) == 0) return (int32_t)i;
    }
    return -1;
}

static bool take_field(void *ctx, const struct data_example_field *found)
{
    struct data_parser *parser = ctx;
    struct guess *guess = &parser->guesses[parser->place++ % GUESSES];
    if (guess->bytes != found->name_bytes || guess->bytes == 0 ||
        !same_name(guess->name, found->name, guess->bytes)) {
        guess->field = look_up(parser->layout->spec, found->name, found->name_bytes);
        guess->bytes = 0;
        if (found->name_bytes <= GUESS_NAME_MAX) {
            guess->bytes = (uint8_t)found->name_bytes;
            memcpy(guess->name, found->name, found->name_bytes);
        }
    }
    if (guess->field >= 0) {
        struct data_raw *raw = &parser->raws[guess->field];
        raw->type = found->raw.type;
        raw->at = found->raw.at;
        raw->end = found->raw.end;
    }
    return true;
}

static int parse_example(struct data_parser *parser, const uint8_t *bytes, size_t count)
{
    for (uint32_t i = 0; i < parser->layout->fields_count; i++) {
        parser->raws[i].type = DATA_RAW_NONE;
    }
    parser->place = 0;
    return data_example_walk(bytes, count, take_field, parser) ? 0 : 1 + DATA_FAULT_MALFORMED;
}

static int parse_csv(struct data_parser *parser, const uint8_t *bytes, size_t count)
{
    const struct data_layout *layout = parser->layout;
    if (count > parser->scratch_bytes) {
        uint8_t *scratch = mem_alloc(MEM_DATA, 2 * count);
        if (scratch == NULL) return SHOAL_ENOMEM;
        mem_free(parser->scratch);
        parser->scratch = scratch;
        parser->scratch_bytes = 2 * count;
    }
    const uint32_t found = data_csv_split(bytes, count, layout->delimiter, parser->scratch,
                                          parser->spans, parser->spans_max);
    if (found < layout->columns_min || found > parser->spans_max ||
        (layout->columns_max != 0 && found != layout->columns_max)) {
        return 1 + DATA_FAULT_MALFORMED;
    }
    for (uint32_t i = 0; i < layout->fields_count; i++) {
        const struct data_field *field = &layout->spec->fields[i];
        parser->raws[i] = (struct data_raw){.type = DATA_RAW_TEXTS,
                                            .split = field->split,
                                            .spans = &parser->spans[layout->columns[i]],
                                            .spans_count = field->width};
    }
    return 0;
}

static int parse_libsvm(struct data_parser *parser, const uint8_t *bytes, size_t count)
{
    const struct data_layout *layout = parser->layout;
    const uint8_t *at = bytes;
    const uint8_t *end = bytes + count;
    const uint8_t *word = NULL;
    size_t word_bytes = 0;
    double label = 0;
    int64_t group = 0;
    if (!next_word(&at, end, &word, &word_bytes)) return 1 + DATA_FAULT_MALFORMED;
    if (!data_text_to_f64(word, word_bytes, &label)) return 1 + DATA_FAULT_MALFORMED;
    const uint8_t *values = at;
    bool has_group = false;
    if (next_word(&at, end, &word, &word_bytes) && word_bytes > 4 && memcmp(word, "qid:", 4) == 0) {
        has_group = data_text_to_i64(word + 4, word_bytes - 4, &group);
        if (!has_group) return 1 + DATA_FAULT_MALFORMED;
        values = at;
    }
    for (uint32_t i = 0; i < layout->fields_count; i++) {
        struct data_raw *raw = &parser->raws[i];
        *raw = (struct data_raw){
            .type = DATA_RAW_PAIRS, .base = layout->index_base, .at = values, .end = end};
        if (layout->roles[i] == DATA_ROLE_LABEL) {
            *raw = (struct data_raw){.type = DATA_RAW_NUMBER, .number = label};
        } else if (layout->roles[i] == DATA_ROLE_GROUP) {
            *raw = (struct data_raw){.type = has_group ? DATA_RAW_NUMBER : DATA_RAW_NONE,
                                     .number = (double)group};
        }
    }
    return 0;
}

static int parse_idx(struct data_parser *parser, const uint8_t *bytes, size_t count)
{
    const struct data_layout *layout = parser->layout;
    struct data_idx_head head;
    if (count < sizeof head) return 1 + DATA_FAULT_MALFORMED;
    memcpy(&head, bytes, sizeof head);
    for (uint32_t i = 0; i < layout->fields_count; i++) {
        struct data_raw *raw = &parser->raws[i];
        if (layout->roles[i] == DATA_ROLE_LABEL) {
            *raw = (struct data_raw){.type = head.has_label ? DATA_RAW_NUMBER : DATA_RAW_NONE,
                                     .number = head.label};
        } else {
            *raw = (struct data_raw){.type = DATA_RAW_IDX,
                                     .element = head.type,
                                     .at = bytes + sizeof head,
                                     .end = bytes + count};
        }
    }
    return 0;
}

int data_parse(struct data_parser *parser, const uint8_t *bytes, size_t count,
               const struct data_raw **raws_out)
{
    *raws_out = parser->raws;
    switch (parser->layout->format) {
    case DATA_TFRECORD: return parse_example(parser, bytes, count);
    case DATA_LIBSVM: return parse_libsvm(parser, bytes, count);
    case DATA_IDX: return parse_idx(parser, bytes, count);
    default: return parse_csv(parser, bytes, count);
    }
}
