/* data_feature is the inside of a data_spec, for the decoders of this layer: which input fields are
 * wanted, and how the values of a field become keys and numbers. Read only once the spec is made. */
#ifndef SHOAL_DATA_FEATURE_H
#define SHOAL_DATA_FEATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/data_spec.h"

enum data_kind {
    DATA_LABEL,
    DATA_WEIGHT,
    DATA_GROUP,
    DATA_NUMERIC,
    DATA_HASH, /* from here on: categorical */
    DATA_BUCKETIZE,
    DATA_IDENTITY,
    DATA_VOCABULARY,
    DATA_CROSS,
    DATA_DYNAMIC,
    DATA_KIND_COUNT
};

/* x % divisor by multiplication. reciprocal = floor((2^64 - 1) / divisor) makes the estimated
 * quotient too small by at most one: x/d - x*r/2^64 <= x * d / (d * 2^64) < 1. */
struct data_mod {
    uint64_t divisor;
    uint64_t reciprocal;
};

static inline struct data_mod data_mod_make(uint64_t divisor)
{
    return (struct data_mod){.divisor = divisor, .reciprocal = UINT64_MAX / divisor};
}

static inline uint64_t data_mod_of(struct data_mod mod, uint64_t x)
{
    const uint64_t quotient = (uint64_t)(((unsigned __int128)x * mod.reciprocal) >> 64);
    const uint64_t rest = x - quotient * mod.divisor;
    return rest >= mod.divisor ? rest - mod.divisor : rest;
}

/* Words to numbers 0 .. count-1: open addressing over fingerprints, words kept to compare. */
struct data_vocabulary {
    char **words;
    uint32_t *word_bytes;
    uint32_t count;
    uint32_t *slots; /* index + 1, 0 empty */
    uint32_t slots_mask;
};

struct data_field { /* one input column, or `width` neighbouring ones of a csv file */
    char *name;
    uint32_t name_bytes;
    uint32_t width;
    bool explicit_column; /* `column:` was given */
    char split;           /* csv: separator inside the field, 0: none */
};

struct data_feature {
    enum data_kind kind;
    char *name;
    uint32_t field;  /* index in fields; a cross has none */
    uint32_t output; /* index in schema.dense or schema.ids */
    bool single;
    bool padded;
    bool weighted;
    uint32_t weights_field;
    uint32_t max_length; /* 0: any */

    float missing_number;  /* label, weight, numeric, bucketize: what a missing value counts as */
    bool missing_is_fault; /* a label */
    uint64_t missing_key;  /* categorical: the key of a missing value */
    char *pad_text;        /* values equal to it are dropped */
    uint32_t pad_bytes;
    int64_t pad_integer;
    bool pad_is_integer;
    uint64_t pad_key;

    uint32_t width; /* numeric */
    bool log;
    float scale; /* numeric: (x - shift) * scale */
    float shift;

    struct data_mod buckets; /* hash, cross, vocabulary's oov, identity */
    float *boundaries;
    uint32_t boundaries_count;
    struct data_vocabulary vocabulary;
    bool has_default; /* identity, vocabulary */
    uint64_t default_key;

    struct data_part_of *parts; /* cross */
    uint32_t parts_count;
};

struct data_part_of {                   /* one side of a cross */
    const struct data_feature *feature; /* by its number; NULL: by the field's raw value */
    uint32_t field;
    bool single; /* a missing value counts as missing_key; else it makes no crosses */
    uint64_t missing_key;
};

struct data_spec {
    struct data_schema schema;
    struct data_dense *dense;
    struct data_ids *ids;
    struct data_table *tables;
    struct data_feature *features;
    struct data_field *fields;
    uint32_t features_count;
    uint32_t fields_count;
};

/* What became of a value. */
enum data_key {
    DATA_KEY_OK,
    DATA_KEY_NONE, /* an unknown word: left out */
    DATA_KEY_TYPE, /* breaks the record: not a number, or a number where text is wanted */
    DATA_KEY_RANGE /* breaks the record: an integer outside `buckets` */
};

/* The key of one value of a categorical feature (not a cross). */
enum data_key data_feature_key_of_text(const struct data_feature *feature, const void *text,
                                       size_t bytes, uint64_t *key_out);
enum data_key data_feature_key_of_integer(const struct data_feature *feature, int64_t integer,
                                          uint64_t *key_out);
enum data_key data_feature_key_of_number(const struct data_feature *feature, float number,
                                         uint64_t *key_out);

/* Takes over words (count of them, each from mem_alloc) on success. */
int data_vocabulary_init(struct data_vocabulary *vocabulary, char **words, uint32_t count,
                         struct err *err);
void data_vocabulary_fini(struct data_vocabulary *vocabulary);

/* Index of the word, or -1. */
int64_t data_vocabulary_find(const struct data_vocabulary *vocabulary, const void *text,
                             size_t bytes);

#endif
