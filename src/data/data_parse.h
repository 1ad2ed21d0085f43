/* data_parse looks into one record and finds the wanted fields in it, without copying or converting
 * values: a struct data_raw says where a field's values are, a cursor walks over them.
 *
 * A parser is one thread's scratch for records of one layout. Nothing it answers depends on the
 * records before; what it remembers of them (the order of names) only makes it quick. */
#ifndef SHOAL_DATA_PARSE_H
#define SHOAL_DATA_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/data.h"
#include "data/data_feature.h"

/* How records of one data set map to the fields of a spec. */
struct data_layout {
    enum data_format format;
    char delimiter;
    uint32_t index_base;  /* libsvm */
    uint32_t columns_min; /* csv: a record has at least so many columns */
    uint32_t columns_max; /* 0: any number */
    uint32_t fields_count;
    uint32_t *columns; /* csv: by field, its first column */
    uint8_t *roles;    /* libsvm, idx: by field, enum data_role */
    const struct data_spec *spec;
};

enum data_role { DATA_ROLE_VALUES, DATA_ROLE_LABEL, DATA_ROLE_GROUP };

/* header: the csv file's first line, NULL when it has none. Errors name the column that is not
 * there. */
int data_layout_init(struct data_layout *layout, const struct data_spec *spec,
                     const struct data_settings *settings, enum data_format format,
                     const char *header, struct err *err);
void data_layout_fini(struct data_layout *layout);

enum data_raw_type {
    DATA_RAW_NONE,
    DATA_RAW_BYTES,    /* the inside of a BytesList */
    DATA_RAW_FLOATS,   /* of a FloatList */
    DATA_RAW_INTEGERS, /* of an Int64List */
    DATA_RAW_TEXTS,    /* csv: spans, `split` inside each */
    DATA_RAW_PAIRS,    /* libsvm: "index:value index:value" */
    DATA_RAW_NUMBER,
    DATA_RAW_IDX /* big-endian elements of type `element` */
};

struct data_span {
    const uint8_t *at;
    uint32_t bytes;
};

struct data_raw {
    uint8_t type;
    uint8_t element;
    char split;
    uint32_t base; /* libsvm: of its indices */
    const uint8_t *at;
    const uint8_t *end;
    const struct data_span *spans;
    uint32_t spans_count;
    double number;
};

enum data_value_type { DATA_VALUE_TEXT, DATA_VALUE_INTEGER, DATA_VALUE_NUMBER };

struct data_value {
    enum data_value_type type;
    const uint8_t *text;
    size_t bytes;
    int64_t integer;
    double number;
    float weight; /* libsvm: of the pair; else 1 */
};

struct data_cursor {
    const uint8_t *at;
    const uint8_t *end;
    const uint8_t *packed_end; /* inside a packed run */
    const struct data_raw *raw;
    uint32_t span;
};

void data_cursor_init(struct data_cursor *cursor, const struct data_raw *raw);
/* 1: a value; 0: no more; -1: malformed. An empty csv field is no value. */
int data_cursor_next(struct data_cursor *cursor, struct data_value *value_out);

struct data_parser;
int data_parser_create(const struct data_layout *layout, struct data_parser **parser_out,
                       struct err *err);

/* Finds the fields: *raws_out is by field, valid until the next call. 0, or 1 + enum data_fault. */
int data_parse(struct data_parser *parser, const uint8_t *bytes, size_t count,
               const struct data_raw **raws_out);
void data_parser_destroy(struct data_parser *parser);

/* A field of an Example, whatever its name: for looking into files. */
struct data_example_field {
    const uint8_t *name;
    size_t name_bytes;
    struct data_raw raw;
};
typedef bool data_example_cb(void *ctx, const struct data_example_field *field);
/* Calls cb for each feature of a tf.train.Example in file order until it answers false. false: not
 * well-formed. */
bool data_example_walk(const uint8_t *bytes, size_t count, data_example_cb *cb, void *ctx);

/* Cuts a csv record into fields: spans into the record, or into `scratch` (at least as many bytes as
 * the record) where quotes had to be taken away. Returns how many; more than spans_max: spans_max +
 * 1. */
uint32_t data_csv_split(const uint8_t *bytes, size_t count, char delimiter, uint8_t *scratch,
                        struct data_span *spans, uint32_t spans_max);

#endif
