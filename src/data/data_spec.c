#include "data/data_spec.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/hash.h"
#include "base/mem.h"
#include "data/data_feature.h"
#include "data/data_text.h"
#include "io/file.h"

/* The map is read feature by feature; what needs all of them (the sides of crosses, dimensions of
 * shared tables) is settled at the end. */
struct builder {
    struct data_spec *spec;
    const char *const *extra_keys;
    bool *dim_given; /* by table: some feature says `embed:` */
    struct err *err;
};

static const char *const kind_names[DATA_KIND_COUNT] = {
    "label",     "weight",   "group",      "numeric", "hash",
    "bucketize", "identity", "vocabulary", "cross",   "dynamic"};

/* Keys each kind takes besides `kind`, `column`, `split` and `repeat`. */
#define SET_KEYS "embed", "table", "combiner", "sequence", "pad", "max_length", "weights", "default"
static const char *const kind_keys[DATA_KIND_COUNT][16] = {
    [DATA_LABEL] = {"default"},
    [DATA_WEIGHT] = {"default"},
    [DATA_GROUP] = {"default"},
    [DATA_NUMERIC] = {"width", "default", "mean", "std", "min", "max", "log"},
    [DATA_HASH] = {"buckets", SET_KEYS},
    [DATA_BUCKETIZE] = {"boundaries", SET_KEYS},
    [DATA_IDENTITY] = {"buckets", SET_KEYS},
    [DATA_VOCABULARY] = {"values", "file", "oov_buckets", SET_KEYS},
    [DATA_CROSS] = {"buckets", "of", "embed", "table", "combiner"},
    [DATA_DYNAMIC] = {SET_KEYS},
};
static const char *const common_keys[] = {"kind", "column", "split", "repeat"};

static int no_memory(struct err *err)
{
    return err_set(err, SHOAL_ENOMEM, "no memory for the features");
}

static int check_keys(const struct builder *b, const struct config_node *node, enum data_kind kind)
{
    const char *allowed[64];
    size_t count = 0;
    for (size_t i = 0; i < sizeof common_keys / sizeof *common_keys; i++) {
        allowed[count++] = common_keys[i];
    }
    for (size_t i = 0; i < 16 && kind_keys[kind][i] != NULL; i++) {
        allowed[count++] = kind_keys[kind][i];
    }
    for (size_t i = 0; b->extra_keys != NULL && b->extra_keys[i] != NULL && count < 64; i++) {
        allowed[count++] = b->extra_keys[i];
    }
    return config_check_keys(node, allowed, count, b->err);
}

uint32_t data_default_width(uint64_t values)
{
    /* The smallest power of two, at least 2, whose fourth power is not below `values`. */
    uint32_t width = 2;
    while (width < DATA_EMBED_MAX && (uint64_t)width * width * width * width < values) width *= 2;
    return width;
}

/* Index of the field of that name, added when it is new. */
static int find_field(struct builder *b, const char *name, bool explicit_column,
                      uint32_t *index_out)
{
    struct data_spec *spec = b->spec;
    for (uint32_t i = 0; i < spec->fields_count; i++) {
        if (strcmp(spec->fields[i].name, name) == 0) {
            *index_out = i;
            return 0;
        }
    }
    if (spec->fields_count == DATA_FEATURES_MAX) {
        return err_set(b->err, SHOAL_ELIMIT, "more than %u input columns", DATA_FEATURES_MAX);
    }
    char *copy = mem_strdup(MEM_DATA, name);
    if (copy == NULL) return no_memory(b->err);
    spec->fields[spec->fields_count] = (struct data_field){.name = copy,
                                                           .name_bytes = (uint32_t)strlen(name),
                                                           .width = 1,
                                                           .explicit_column = explicit_column};
    *index_out = spec->fields_count++;
    return 0;
}

/* NAME, or for the nth of `repeat` features NAMEn; a column that is a number counts on from it. */
static const char *repeated_name(const char *name, bool is_column, uint32_t nth, uint32_t repeat,
                                 char out[DATA_NAME_MAX + 16])
{
    int64_t first = 0;
    if (repeat == 0) return name;
    if (is_column && data_text_to_i64(name, strlen(name), &first)) {
        snprintf(out, DATA_NAME_MAX + 16, "%lld", (long long)first + nth);
    } else {
        snprintf(out, DATA_NAME_MAX + 16, "%.*s%u", DATA_NAME_MAX, name, nth + 1);
    }
    return out;
}

/* ---- numbers ---- */

static int read_number(struct builder *b, const struct config_node *node, const char *key,
                       double *out)
{
    return config_read_f64(node, key, -1e30, 1e30, out, b->err);
}

static int parse_numeric(struct builder *b, const struct config_node *node,
                         struct data_feature *feature)
{
    double missing = 0, mean = 0, std = 1, low = 0, high = 1;
    feature->width = 1;
    int rc = config_read_u32(node, "width", 1, DATA_WIDTH_MAX, &feature->width, b->err);
    if (rc == 0) rc = read_number(b, node, "default", &missing);
    if (rc == 0) rc = read_number(b, node, "mean", &mean);
    if (rc == 0) rc = config_read_f64(node, "std", 1e-30, 1e30, &std, b->err);
    if (rc == 0) rc = read_number(b, node, "min", &low);
    if (rc == 0) rc = read_number(b, node, "max", &high);
    if (rc == 0) rc = config_read_bool(node, "log", &feature->log, b->err);
    if (rc != 0) return rc;
    const bool by_range = config_get(node, "min") != NULL || config_get(node, "max") != NULL;
    const bool by_moments = config_get(node, "mean") != NULL || config_get(node, "std") != NULL;
    if (by_range && by_moments) {
        return config_error(node, b->err, "%s: min and max, or mean and std; not both",
                            feature->name);
    }
    if (by_range && high <= low) {
        return config_error(config_get(node, config_get(node, "max") ? "max" : "min"), b->err,
                            "%s: max %g must be above min %g", feature->name, high, low);
    }
    feature->missing_number = (float)missing;
    feature->shift = (float)(by_range ? low : mean);
    feature->scale = (float)(1.0 / (by_range ? high - low : std));
    return 0;
}

/* ---- categories ---- */

static int parse_buckets(struct builder *b, const struct config_node *node,
                         struct data_feature *feature, uint64_t *rows_out)
{
    uint64_t buckets = 0;
    if (config_get(node, "buckets") == NULL) {
        return config_error(node, b->err, "%s: kind %s needs buckets: N", feature->name,
                            kind_names[feature->kind]);
    }
    const int rc = config_read_u64(node, "buckets", 1, DATA_BUCKETS_MAX, &buckets, b->err);
    if (rc != 0) return rc;
    feature->buckets = data_mod_make(buckets);
    *rows_out = buckets;
    return 0;
}

static int parse_boundaries(struct builder *b, const struct config_node *node,
                            struct data_feature *feature, uint64_t *rows_out)
{
    double *numbers = NULL;
    size_t count = 0;
    int rc = config_read_f64_list(node, "boundaries", -1e30, 1e30, &numbers, &count, b->err);
    if (rc != 0) return rc;
    const struct config_node *list = config_get(node, "boundaries");
    if (count == 0 || count > DATA_BOUNDARIES_MAX) {
        rc = config_error(list != NULL ? list : node, b->err,
                          "%s: bucketize needs 1 to %u boundaries, found %zu", feature->name,
                          DATA_BOUNDARIES_MAX, count);
    }
    for (size_t i = 1; rc == 0 && i < count; i++) {
        if (numbers[i - 1] >= numbers[i]) {
            rc = config_error(config_at(list, i), b->err,
                              "%s: boundaries must rise, but %g follows %g", feature->name,
                              numbers[i], numbers[i - 1]);
        }
    }
    if (rc == 0) {
        feature->boundaries = mem_alloc_array(MEM_DATA, count, sizeof *feature->boundaries);
        if (feature->boundaries == NULL) rc = no_memory(b->err);
    }
    for (size_t i = 0; rc == 0 && i < count; i++) feature->boundaries[i] = (float)numbers[i];
    if (rc == 0) feature->boundaries_count = (uint32_t)count;
    *rows_out = count + 1;
    mem_free(numbers);
    return rc;
}

/* Adds a copy of the text to a list of words that grows. */
static int add_word(struct builder *b, char ***words, size_t *capacity, size_t *count,
                    const char *text, size_t bytes)
{
    if (*count == DATA_VOCABULARY_MAX) {
        return err_set(b->err, SHOAL_ELIMIT, "a vocabulary of more than %u words",
                       DATA_VOCABULARY_MAX);
    }
    if (mem_grow(MEM_DATA, (void **)words, capacity, *count + 1, sizeof **words) != 0) {
        return no_memory(b->err);
    }
    (*words)[*count] = mem_strndup(MEM_DATA, text, bytes);
    if ((*words)[*count] == NULL) return no_memory(b->err);
    (*count)++;
    return 0;
}

static int read_word_file(struct builder *b, const char *path, char ***words, size_t *capacity,
                          size_t *count)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = io_read_whole(path, DATA_VOCABULARY_BYTES_MAX, &text, &bytes, b->err);
    size_t at = 0;
    while (rc == 0 && at < bytes) {
        const char *newline = memchr(text + at, '\n', bytes - at);
        const size_t end = newline != NULL ? (size_t)(newline - text) : bytes;
        size_t length = end - at;
        if (length > 0 && text[at + length - 1] == '\r') length--;
        if (length > 0) rc = add_word(b, words, capacity, count, text + at, length);
        at = end + 1;
    }
    mem_free(text);
    return rc;
}

static int parse_words(struct builder *b, const struct config_node *node,
                       struct data_feature *feature)
{
    const struct config_node *values = config_get(node, "values");
    const char *path = NULL;
    char **words = NULL;
    size_t capacity = 0;
    size_t count = 0;
    int rc = config_read_string(node, "file", &path, b->err);
    if (rc != 0) return rc;
    if ((values == NULL) == (path == NULL)) {
        return config_error(node, b->err, "%s: vocabulary needs values: [...] or file: PATH",
                            feature->name);
    }
    if (path != NULL) {
        rc = read_word_file(b, path, &words, &capacity, &count);
        if (rc != 0) {
            char text[ERR_TEXT_MAX];
            snprintf(text, sizeof text, "%s", b->err != NULL ? b->err->text : "unreadable");
            rc = config_error(config_get(node, "file"), b->err, "%.400s", text);
        }
    } else if (config_kind(values) != CONFIG_LIST) {
        rc = config_error(values, b->err, "%s: values must be a list of words", feature->name);
    }
    for (size_t i = 0; rc == 0 && path == NULL && i < config_count(values); i++) {
        const char *word = config_scalar(config_at(values, i));
        if (word == NULL) {
            rc = config_error(config_at(values, i), b->err, "%s: not a word", feature->name);
        } else {
            rc = add_word(b, &words, &capacity, &count, word, strlen(word));
        }
    }
    if (rc == 0 && count == 0) {
        rc = config_error(node, b->err, "%s: the vocabulary has no words", feature->name);
    }
    if (rc == 0) {
        struct err inner = {0};
        rc = data_vocabulary_init(&feature->vocabulary, words, (uint32_t)count, &inner);
        if (rc == SHOAL_EINVAL) {
            rc = config_error(path != NULL ? config_get(node, "file") : values, b->err,
                              "%s: %.400s", feature->name, inner.text);
        } else if (rc != 0) {
            rc = no_memory(b->err);
        }
    }
    if (rc != 0) {
        for (size_t i = 0; i < count; i++) mem_free(words[i]);
        mem_free(words);
    }
    return rc;
}

static int parse_vocabulary(struct builder *b, const struct config_node *node,
                            struct data_feature *feature, uint64_t *rows_out)
{
    uint64_t oov = 0;
    uint64_t index = 0;
    int rc = parse_words(b, node, feature);
    if (rc == 0) rc = config_read_u64(node, "oov_buckets", 0, DATA_BUCKETS_MAX, &oov, b->err);
    if (rc != 0) return rc;
    const uint32_t count = feature->vocabulary.count;
    feature->has_default = config_get(node, "default") != NULL;
    rc = config_read_u64(node, "default", 0, count - 1, &index, b->err);
    if (rc != 0) return rc;
    if (feature->has_default && oov > 0) {
        return config_error(config_get(node, "default"), b->err,
                            "%s: unknown words go to oov_buckets or to default; not both",
                            feature->name);
    }
    feature->default_key = index;
    if (oov > 0) feature->buckets = data_mod_make(oov);
    *rows_out = count + oov;
    return 0;
}

/* The rows of the feature's table; 0: dynamic. */
static int parse_rows(struct builder *b, const struct config_node *node,
                      struct data_feature *feature, uint64_t *rows_out)
{
    switch (feature->kind) {
    case DATA_BUCKETIZE: return parse_boundaries(b, node, feature, rows_out);
    case DATA_VOCABULARY: return parse_vocabulary(b, node, feature, rows_out);
    case DATA_DYNAMIC: *rows_out = 0; return 0;
    default: return parse_buckets(b, node, feature, rows_out);
    }
}

/* ---- tables ---- */

static int parse_table(struct builder *b, const struct config_node *node,
                       const struct data_feature *feature, uint64_t rows, uint32_t *index_out)
{
    struct data_spec *spec = b->spec;
    const char *name = feature->name;
    uint32_t dim = 0;
    int rc = config_read_string(node, "table", &name, b->err);
    if (rc == 0) rc = config_read_u32(node, "embed", 1, DATA_EMBED_MAX, &dim, b->err);
    if (rc != 0) return rc;
    uint32_t index = 0;
    while (index < spec->schema.tables_count && strcmp(spec->tables[index].name, name) != 0)
        index++;
    struct data_table *table = &spec->tables[index];
    if (index == spec->schema.tables_count) {
        char *copy = mem_strdup(MEM_DATA, name);
        if (copy == NULL) return no_memory(b->err);
        *table = (struct data_table){.name = copy, .rows = rows};
        spec->schema.tables_count++;
    } else if (table->rows != rows) {
        char other[32] = "no fixed number of";
        char mine[32] = "no fixed number of";
        if (table->rows != 0)
            snprintf(other, sizeof other, "%llu", (unsigned long long)table->rows);
        if (rows != 0) snprintf(mine, sizeof mine, "%llu", (unsigned long long)rows);
        return config_error(node, b->err,
                            "%s: table %s has %s rows by an earlier feature, %s by this",
                            feature->name, name, other, mine);
    }
    if (dim != 0 && b->dim_given[index] && table->dim != dim) {
        return config_error(config_get(node, "embed"), b->err,
                            "%s: table %s has embed %u by an earlier feature, %u by this",
                            feature->name, name, table->dim, dim);
    }
    if (dim != 0) {
        table->dim = dim;
        b->dim_given[index] = true;
    }
    *index_out = index;
    return 0;
}

/* The rule's width where nobody said one; a dynamic table has no rule. */
static int settle_dims(struct builder *b, const struct config_node *node)
{
    for (uint32_t i = 0; i < b->spec->schema.tables_count; i++) {
        struct data_table *table = &b->spec->tables[i];
        if (table->dim != 0) continue;
        if (table->rows == 0) {
            const struct config_node *feature = config_get(node, table->name);
            return config_error(feature != NULL ? feature : node, b->err,
                                "table %s is dynamic, so its features must say embed: N",
                                table->name);
        }
        table->dim = data_default_width(table->rows);
    }
    return 0;
}

/* ---- how many values, and what a missing one is ---- */

static int parse_pad(struct builder *b, const struct config_node *node,
                     struct data_feature *feature)
{
    const char *pad = NULL;
    int rc = config_read_string(node, "pad", &pad, b->err);
    if (rc != 0 || pad == NULL) return rc;
    if (data_feature_key_of_text(feature, pad, strlen(pad), &feature->pad_key) != DATA_KEY_OK) {
        return config_error(config_get(node, "pad"), b->err, "%s: pad \"%s\" is no value of it",
                            feature->name, pad);
    }
    feature->pad_text = mem_strdup(MEM_DATA, pad);
    if (feature->pad_text == NULL) return no_memory(b->err);
    feature->pad_bytes = (uint32_t)strlen(pad);
    feature->pad_is_integer = data_text_to_i64(pad, feature->pad_bytes, &feature->pad_integer);
    if (feature->kind == DATA_DYNAMIC && feature->pad_is_integer &&
        !config_is_quoted(config_get(node, "pad"))) {
        feature->pad_key = (uint64_t)feature->pad_integer;
    }
    feature->padded = true;
    return 0;
}

static int parse_missing(struct builder *b, const struct config_node *node,
                         struct data_feature *feature)
{
    const bool by_number = feature->kind == DATA_BUCKETIZE || feature->kind == DATA_IDENTITY;
    const char *text = by_number ? "0" : "";
    if (feature->kind != DATA_VOCABULARY) {
        const int rc = config_read_string(node, "default", &text, b->err);
        if (rc != 0) return rc;
    }
    const enum data_key key =
        data_feature_key_of_text(feature, text, strlen(text), &feature->missing_key);
    if (key == DATA_KEY_TYPE || key == DATA_KEY_RANGE) {
        return config_error(config_get(node, "default"), b->err,
                            "%s: default \"%s\" is no value of it", feature->name, text);
    }
    if (feature->kind == DATA_VOCABULARY && !feature->has_default &&
        feature->buckets.divisor == 0) {
        feature->single = false; /* An unknown word leaves the row empty. */
    }
    if (feature->kind == DATA_IDENTITY && config_get(node, "default") != NULL) {
        feature->has_default = true;
        feature->default_key = feature->missing_key;
    }
    return 0;
}

static int parse_values(struct builder *b, const struct config_node *node,
                        struct data_feature *feature, struct data_ids *ids)
{
    static const char *const combiners[] = {"sum", "mean", "sqrtn"};
    uint32_t combiner = DATA_MEAN;
    const char *weights = NULL;
    int rc = config_read_bool(node, "sequence", &ids->sequence, b->err);
    if (rc == 0) rc = config_read_choice(node, "combiner", combiners, 3, &combiner, b->err);
    if (rc == 0) rc = config_read_string(node, "weights", &weights, b->err);
    if (rc == 0) {
        rc = config_read_u32(node, "max_length", 1, DATA_VALUES_MAX, &feature->max_length, b->err);
    }
    if (rc != 0) return rc;
    const bool many = ids->sequence || config_get(node, "combiner") != NULL || weights != NULL;
    static const char *const of_many[] = {"pad", "max_length"};
    for (size_t i = 0; i < 2 && !many; i++) {
        if (config_get(node, of_many[i]) == NULL) continue;
        return config_error(config_get(node, of_many[i]), b->err,
                            "%s: %s is for sequence: true or a combiner", feature->name,
                            of_many[i]);
    }
    feature->single = !many;
    ids->combiner = (enum data_combiner)combiner;
    if (feature->kind != DATA_CROSS) {
        rc = parse_pad(b, node, feature);
        if (rc == 0) rc = parse_missing(b, node, feature);
    }
    if (rc == 0 && weights != NULL) {
        feature->weighted = true;
        rc = find_field(b, weights, true, &feature->weights_field);
    }
    ids->padded = feature->padded;
    ids->weighted = feature->weighted;
    return rc;
}

/* ---- one feature ---- */

static int parse_categorical(struct builder *b, const struct config_node *node,
                             struct data_feature *feature)
{
    uint64_t rows = 0;
    struct data_ids ids = {.name = feature->name};
    int rc = parse_rows(b, node, feature, &rows);
    if (rc == 0) rc = parse_table(b, node, feature, rows, &ids.table);
    if (rc == 0) rc = parse_values(b, node, feature, &ids);
    if (rc != 0) return rc;
    ids.single = feature->single;
    feature->output = b->spec->schema.ids_count;
    b->spec->ids[b->spec->schema.ids_count++] = ids;
    return 0;
}

static int parse_special(struct builder *b, const struct config_node *node,
                         struct data_feature *feature, bool *seen)
{
    if (*seen) {
        return config_error(node, b->err, "%s: there is another feature of kind %s already",
                            feature->name, kind_names[feature->kind]);
    }
    *seen = true;
    if (feature->kind == DATA_GROUP) {
        const char *text = "";
        const int rc = config_read_string(node, "default", &text, b->err);
        feature->missing_key = hash_fingerprint64(text, strlen(text));
        return rc;
    }
    double missing = feature->kind == DATA_WEIGHT ? 1 : 0;
    feature->missing_is_fault = feature->kind == DATA_LABEL && config_get(node, "default") == NULL;
    const int rc = read_number(b, node, "default", &missing);
    feature->missing_number = (float)missing;
    feature->width = 1;
    feature->scale = 1;
    return rc;
}

static int parse_by_kind(struct builder *b, const struct config_node *node,
                         struct data_feature *feature)
{
    struct data_schema *schema = &b->spec->schema;
    int rc = 0;
    switch (feature->kind) {
    case DATA_LABEL: return parse_special(b, node, feature, &schema->has_label);
    case DATA_WEIGHT: return parse_special(b, node, feature, &schema->has_weight);
    case DATA_GROUP: return parse_special(b, node, feature, &schema->has_group);
    case DATA_NUMERIC:
        rc = parse_numeric(b, node, feature);
        feature->output = schema->dense_count;
        b->spec->dense[schema->dense_count++] =
            (struct data_dense){.name = feature->name, .width = feature->width};
        schema->dense_width += feature->width;
        if (rc == 0) b->spec->fields[feature->field].width = feature->width;
        return rc;
    default: return parse_categorical(b, node, feature);
    }
}

static int parse_field(struct builder *b, const struct config_node *node,
                       struct data_feature *feature, const char *name, uint32_t nth,
                       uint32_t repeat)
{
    char buffer[DATA_NAME_MAX + 16];
    const char *column = name;
    const char *split = NULL;
    int rc = config_read_string(node, "column", &column, b->err);
    if (rc == 0) rc = config_read_string(node, "split", &split, b->err);
    if (rc != 0) return rc;
    const bool given = config_get(node, "column") != NULL;
    column = repeated_name(column, given, nth, repeat, buffer);
    rc = find_field(b, column, given, &feature->field);
    if (rc == 0 && split != NULL) {
        if (strlen(split) != 1) {
            return config_error(config_get(node, "split"), b->err,
                                "%s: split must be one character, found \"%s\"", feature->name,
                                split);
        }
        b->spec->fields[feature->field].split = split[0];
    }
    return rc;
}

static int parse_feature(struct builder *b, const struct config_node *node, const char *name,
                         enum data_kind kind, uint32_t nth, uint32_t repeat)
{
    struct data_spec *spec = b->spec;
    char buffer[DATA_NAME_MAX + 16];
    if (spec->features_count == DATA_FEATURES_MAX) {
        return config_error(node, b->err, "more than %u features", DATA_FEATURES_MAX);
    }
    struct data_feature *feature = &spec->features[spec->features_count];
    *feature = (struct data_feature){.kind = kind};
    feature->name = mem_strdup(MEM_DATA, repeated_name(name, false, nth, repeat, buffer));
    if (feature->name == NULL) return no_memory(b->err);
    spec->features_count++;
    int rc = 0;
    if (kind != DATA_CROSS) rc = parse_field(b, node, feature, name, nth, repeat);
    return rc != 0 ? rc : parse_by_kind(b, node, feature);
}

static int parse_entry(struct builder *b, const struct config_node *node, const char *name)
{
    uint32_t kind = DATA_KIND_COUNT;
    uint32_t repeat = 0;
    if (config_kind(node) != CONFIG_MAP) {
        return config_error(node, b->err,
                            "%s: a feature is a map such as {kind: hash, buckets: 100}", name);
    }
    if (strlen(name) > DATA_NAME_MAX) {
        return config_error(node, b->err, "the name %.32s... is longer than %d bytes", name,
                            DATA_NAME_MAX);
    }
    int rc = config_read_choice(node, "kind", kind_names, DATA_KIND_COUNT, &kind, b->err);
    if (rc == 0 && kind == DATA_KIND_COUNT) {
        rc = config_error(node, b->err, "%s: a feature needs kind: hash, bucketize, numeric ...",
                          name);
    }
    if (rc == 0) rc = check_keys(b, node, (enum data_kind)kind);
    if (rc == 0) rc = config_read_u32(node, "repeat", 1, DATA_FEATURES_MAX, &repeat, b->err);
    for (uint32_t nth = 0; rc == 0 && nth < (repeat == 0 ? 1 : repeat); nth++) {
        rc = parse_feature(b, node, name, (enum data_kind)kind, nth, repeat);
    }
    return rc;
}

/* ---- crosses ---- */

static struct data_feature *find_feature(struct data_spec *spec, const char *name)
{
    for (uint32_t i = 0; i < spec->features_count; i++) {
        if (strcmp(spec->features[i].name, name) == 0) return &spec->features[i];
    }
    return NULL;
}

static int parse_side(struct builder *b, const struct config_node *node,
                      const struct data_feature *cross, struct data_part_of *side)
{
    const char *name = config_scalar(node);
    if (name == NULL) return config_error(node, b->err, "%s: not a name", cross->name);
    const struct data_feature *feature = find_feature(b->spec, name);
    side->single = true;
    side->missing_key = hash_fingerprint64("", 0);
    if (feature == NULL) return find_field(b, name, false, &side->field);
    side->field = feature->field;
    side->single = feature->single || feature->kind == DATA_GROUP;
    switch (feature->kind) {
    case DATA_BUCKETIZE:
    case DATA_IDENTITY:
    case DATA_VOCABULARY:
        side->feature = feature;
        side->missing_key = feature->missing_key;
        return 0;
    case DATA_HASH:
    case DATA_DYNAMIC:
    case DATA_GROUP: return 0;
    default:
        return config_error(node, b->err, "%s: %s is of kind %s, which cannot be crossed",
                            cross->name, name, kind_names[feature->kind]);
    }
}

static int parse_cross(struct builder *b, const struct config_node *node,
                       struct data_feature *cross)
{
    const struct config_node *of = config_get(node, "of");
    const size_t count = config_count(of);
    if (of == NULL || config_kind(of) != CONFIG_LIST || count < 2 || count > DATA_CROSS_MAX) {
        return config_error(of != NULL ? of : node, b->err,
                            "%s: a cross needs of: [a, b], 2 to %u names", cross->name,
                            DATA_CROSS_MAX);
    }
    cross->parts = mem_alloc_array(MEM_DATA, count, sizeof *cross->parts);
    if (cross->parts == NULL) return no_memory(b->err);
    cross->parts_count = (uint32_t)count;
    bool single = cross->single;
    for (size_t i = 0; i < count; i++) {
        const int rc = parse_side(b, config_at(of, i), cross, &cross->parts[i]);
        if (rc != 0) return rc;
        single = single && cross->parts[i].single;
    }
    cross->single = single;
    b->spec->ids[cross->output].single = single;
    return 0;
}

/* Crosses may name features further down, so they are settled last; a cross has no repeat. */
static int settle_crosses(struct builder *b, const struct config_node *features)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < config_count(features); i++) {
        struct data_feature *feature = find_feature(b->spec, config_key_at(features, i));
        if (feature == NULL || feature->kind != DATA_CROSS) continue;
        rc = parse_cross(b, config_at(features, i), feature);
    }
    return rc;
}

/* ---- the whole ---- */

static int allocate(struct data_spec *spec, struct builder *b)
{
    const size_t max = DATA_FEATURES_MAX;
    spec->features = mem_alloc_array(MEM_DATA, max, sizeof *spec->features);
    spec->fields = mem_alloc_array(MEM_DATA, max, sizeof *spec->fields);
    spec->dense = mem_alloc_array(MEM_DATA, max, sizeof *spec->dense);
    spec->ids = mem_alloc_array(MEM_DATA, max, sizeof *spec->ids);
    spec->tables = mem_alloc_array(MEM_DATA, max, sizeof *spec->tables);
    b->dim_given = mem_alloc_array(MEM_DATA, max, sizeof *b->dim_given);
    return spec->features == NULL || spec->fields == NULL || spec->dense == NULL ||
                   spec->ids == NULL || spec->tables == NULL || b->dim_given == NULL
               ? no_memory(b->err)
               : 0;
}

int data_spec_create(const struct config_node *node, const char *const *extra_keys,
                     struct data_spec **spec_out, struct err *err)
{
    if (node == NULL) return err_set(err, SHOAL_ECONFIG, "the job has no features: map");
    if (config_kind(node) != CONFIG_MAP || config_count(node) == 0) {
        return config_error(node, err, "features must be a map of name: {kind: ...}");
    }
    struct data_spec *spec = mem_alloc(MEM_DATA, sizeof *spec);
    if (spec == NULL) return no_memory(err);
    struct builder b = {.spec = spec, .extra_keys = extra_keys, .err = err};
    int rc = allocate(spec, &b);
    for (size_t i = 0; rc == 0 && i < config_count(node); i++) {
        rc = parse_entry(&b, config_at(node, i), config_key_at(node, i));
    }
    if (rc == 0) rc = settle_crosses(&b, node);
    if (rc == 0) rc = settle_dims(&b, node);
    mem_free(b.dim_given);
    if (rc != 0) {
        data_spec_destroy(spec);
        return rc;
    }
    spec->schema.dense = spec->dense;
    spec->schema.ids = spec->ids;
    spec->schema.tables = spec->tables;
    *spec_out = spec;
    return 0;
}

const struct data_schema *data_spec_schema(const struct data_spec *spec)
{
    return &spec->schema;
}

int data_schema_find_ids(const struct data_schema *schema, const char *name)
{
    for (uint32_t i = 0; i < schema->ids_count; i++) {
        if (strcmp(schema->ids[i].name, name) == 0) return (int)i;
    }
    return -1;
}

int data_schema_find_dense(const struct data_schema *schema, const char *name)
{
    for (uint32_t i = 0; i < schema->dense_count; i++) {
        if (strcmp(schema->dense[i].name, name) == 0) return (int)i;
    }
    return -1;
}

void data_spec_destroy(struct data_spec *spec)
{
    if (spec == NULL) return;
    for (uint32_t i = 0; i < spec->features_count; i++) {
        struct data_feature *feature = &spec->features[i];
        mem_free(feature->name);
        mem_free(feature->pad_text);
        mem_free(feature->boundaries);
        mem_free(feature->parts);
        data_vocabulary_fini(&feature->vocabulary);
    }
    for (uint32_t i = 0; i < spec->fields_count; i++) mem_free(spec->fields[i].name);
    for (uint32_t i = 0; i < spec->schema.tables_count; i++) {
        mem_free((char *)(uintptr_t)spec->tables[i].name);
    }
    mem_free(spec->features);
    mem_free(spec->fields);
    mem_free(spec->dense);
    mem_free(spec->ids);
    mem_free(spec->tables);
    mem_free(spec);
}
