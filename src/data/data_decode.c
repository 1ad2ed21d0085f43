#include "data/data_decode.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/hash.h"
#include "base/mem.h"
#include "data/data_idx.h"
#include "data/data_text.h"
#include "data/data_wire.h"

#define FAULT(name) (1 + DATA_FAULT_##name)

/* ---- numbers ---- */

static bool number_of(const struct data_value *value, double *out)
{
    switch (value->type) {
    case DATA_VALUE_INTEGER: *out = (double)value->integer; return true;
    case DATA_VALUE_NUMBER: *out = value->number; return true;
    default: return data_text_to_f64(value->text, value->bytes, out);
    }
}

static inline float normalized(const struct data_feature *feature, float x)
{
    if (feature->log) x = x > 0 ? log1pf(x) : 0;
    return (x - feature->shift) * feature->scale;
}

/* Neither NaN nor beyond what a float holds. */
static inline bool fits_float(double number)
{
    return fabs(number) <= (double)FLT_MAX;
}

/* Exactly one number; *missing_out when there is none. */
static int one_number(const struct data_raw *raw, double *out, bool *missing_out)
{
    struct data_cursor cursor;
    struct data_value value;
    data_cursor_init(&cursor, raw);
    int rc = data_cursor_next(&cursor, &value);
    if (rc < 0) return FAULT(MALFORMED);
    *missing_out = rc == 0;
    if (rc == 0) return 0;
    if (!number_of(&value, out)) return FAULT(TYPE);
    if (!fits_float(*out)) return FAULT(RANGE);
    rc = data_cursor_next(&cursor, &value);
    return rc == 0 ? 0 : rc < 0 ? FAULT(MALFORMED) : FAULT(VALUES);
}

/* csv: each column may be missing on its own. */
static int numbers_of_columns(const struct data_feature *feature, const struct data_raw *raw,
                              float *out)
{
    for (uint32_t i = 0; i < feature->width; i++) {
        double number = (double)feature->missing_number;
        const struct data_span *span = &raw->spans[i];
        if (span->bytes > 0 && !data_text_to_f64(span->at, span->bytes, &number))
            return FAULT(TYPE);
        if (!fits_float(number)) return FAULT(RANGE);
        out[i] = normalized(feature, (float)number);
    }
    return 0;
}

/* libsvm: what is not named is zero. */
static int numbers_of_pairs(const struct data_feature *feature, const struct data_raw *raw,
                            float *out)
{
    struct data_cursor cursor;
    struct data_value value;
    int rc = 0;
    for (uint32_t i = 0; i < feature->width; i++) out[i] = normalized(feature, 0);
    data_cursor_init(&cursor, raw);
    while ((rc = data_cursor_next(&cursor, &value)) > 0) {
        if (value.integer < 0 || value.integer >= (int64_t)feature->width) return FAULT(RANGE);
        if (!isfinite(value.weight)) return FAULT(RANGE);
        out[value.integer] = normalized(feature, value.weight);
    }
    return rc < 0 ? FAULT(MALFORMED) : 0;
}

/* Pixels of one byte are scaled to [0,1]. */
static int numbers_of_pixels(const struct data_feature *feature, const struct data_raw *raw,
                             float *out)
{
    if ((size_t)(raw->end - raw->at) != feature->width) return FAULT(VALUES);
    for (uint32_t i = 0; i < feature->width; i++) {
        out[i] = normalized(feature, (float)raw->at[i] / 255.0f);
    }
    return 0;
}

static int numbers_of_list(const struct data_feature *feature, const struct data_raw *raw,
                           float *out)
{
    struct data_cursor cursor;
    struct data_value value;
    uint32_t count = 0;
    int rc = 0;
    data_cursor_init(&cursor, raw);
    while ((rc = data_cursor_next(&cursor, &value)) > 0) {
        double number = 0;
        if (count == feature->width) return FAULT(VALUES);
        if (!number_of(&value, &number)) return FAULT(TYPE);
        if (!fits_float(number)) return FAULT(RANGE);
        out[count++] = normalized(feature, (float)number);
    }
    if (rc < 0) return FAULT(MALFORMED);
    if (count == 0) {
        const float missing = normalized(feature, feature->missing_number);
        for (; count < feature->width; count++) out[count] = missing;
    }
    return count == feature->width ? 0 : FAULT(VALUES);
}

static int decode_numeric(const struct data_feature *feature, const struct data_raw *raw,
                          float *out)
{
    if (raw->type == DATA_RAW_TEXTS && raw->split == 0) {
        return numbers_of_columns(feature, raw, out);
    }
    if (raw->type == DATA_RAW_PAIRS) return numbers_of_pairs(feature, raw, out);
    if (raw->type == DATA_RAW_IDX && raw->element == DATA_IDX_U8) {
        return numbers_of_pixels(feature, raw, out);
    }
    return numbers_of_list(feature, raw, out);
}

static int decode_label(const struct data_feature *feature, const struct data_raw *raw,
                        bool optional, float *out)
{
    bool missing = false;
    double number = 0;
    const int rc = one_number(raw, &number, &missing);
    if (rc != 0) return rc;
    if (missing && feature->missing_is_fault) {
        *out = NAN;
        return optional ? 0 : FAULT(MISSING);
    }
    *out = missing ? feature->missing_number : (float)number;
    return 0;
}

static int decode_weight(const struct data_feature *feature, const struct data_raw *raw, float *out)
{
    bool missing = false;
    double number = 0;
    const int rc = one_number(raw, &number, &missing);
    if (rc != 0) return rc;
    *out = missing ? feature->missing_number : (float)number;
    return *out >= 0 ? 0 : FAULT(RANGE);
}

static int decode_group(const struct data_feature *feature, const struct data_raw *raw,
                        uint64_t *out)
{
    struct data_cursor cursor;
    struct data_value value;
    data_cursor_init(&cursor, raw);
    const int rc = data_cursor_next(&cursor, &value);
    if (rc < 0) return FAULT(MALFORMED);
    if (rc == 0) {
        *out = feature->missing_key;
    } else if (value.type == DATA_VALUE_TEXT) {
        *out = hash_fingerprint64(value.text, value.bytes);
    } else if (value.type == DATA_VALUE_INTEGER) {
        *out = (uint64_t)value.integer;
    } else {
        if (!(fabs(value.number) < 9e15)) return FAULT(RANGE);
        *out = (uint64_t)(int64_t)value.number;
    }
    return 0;
}

/* ---- keys ---- */

static enum data_key key_of(const struct data_feature *feature, const struct data_value *value,
                            uint64_t *key_out)
{
    switch (value->type) {
    case DATA_VALUE_TEXT:
        return data_feature_key_of_text(feature, value->text, value->bytes, key_out);
    case DATA_VALUE_INTEGER: return data_feature_key_of_integer(feature, value->integer, key_out);
    default: return data_feature_key_of_number(feature, (float)value->number, key_out);
    }
}

static int fault_of(enum data_key key)
{
    return key == DATA_KEY_RANGE ? FAULT(RANGE) : key == DATA_KEY_TYPE ? FAULT(TYPE) : 0;
}

/* The common case without detours: one string to be hashed. False: look closer. */
static inline bool quick_string(const struct data_raw *raw, const uint8_t **text, size_t *bytes)
{
    const uint8_t *at = raw->at;
    if (raw->type != DATA_RAW_BYTES || raw->end - at < 2 || at[0] != (1 << 3 | WIRE_BYTES)) {
        return false;
    }
    *text = at + 2;
    *bytes = at[1];
    return at[1] < 0x80 && *text + *bytes == raw->end;
}

static int decode_single(const struct data_feature *feature, const struct data_raw *raw,
                         uint64_t *key_out)
{
    struct data_cursor cursor;
    struct data_value value;
    const uint8_t *text = NULL;
    size_t bytes = 0;
    if (feature->kind == DATA_HASH && quick_string(raw, &text, &bytes)) {
        *key_out = data_mod_of(feature->buckets, hash_fingerprint64(text, bytes));
        return 0;
    }
    *key_out = feature->missing_key;
    if (raw->type == DATA_RAW_NONE) return 0;
    data_cursor_init(&cursor, raw);
    int rc = data_cursor_next(&cursor, &value);
    if (rc <= 0) return rc == 0 ? 0 : FAULT(MALFORMED);
    rc = fault_of(key_of(feature, &value, key_out));
    if (rc != 0) return rc;
    rc = data_cursor_next(&cursor, &value);
    return rc == 0 ? 0 : rc < 0 ? FAULT(MALFORMED) : FAULT(VALUES);
}

static int reserve(struct data_ragged *ragged, size_t more, bool weighted)
{
    const size_t want = ragged->used + more;
    int rc =
        mem_grow(MEM_DATA, (void **)&ragged->keys, &ragged->capacity, want, sizeof *ragged->keys);
    if (rc == 0 && weighted) {
        rc = mem_grow(MEM_DATA, (void **)&ragged->weights, &ragged->weights_capacity, want,
                      sizeof *ragged->weights);
    }
    return rc;
}

/* A list of strings to be hashed (dynamic: the fingerprint itself), without weights. */
static int append_hashes(const struct data_feature *feature, const struct data_raw *raw,
                         struct data_ragged *ragged)
{
    const uint8_t *at = raw->at;
    const uint8_t *end = raw->end;
    if (reserve(ragged, (size_t)(end - at) / 2 + 1, false) != 0) return SHOAL_ENOMEM;
    uint64_t *keys = ragged->keys + ragged->used;
    const struct data_mod mod = feature->buckets;
    const bool is_hash = feature->kind == DATA_HASH;
    const size_t pad_bytes = feature->padded ? feature->pad_bytes : SIZE_MAX;
    while (at < end) {
        uint64_t bytes = 0;
        if (*at++ != (1 << 3 | WIRE_BYTES)) {
            at--;
            uint64_t tag = 0;
            if (!wire_varint(&at, end, &tag) || !wire_skip(&at, end, tag)) return FAULT(MALFORMED);
            continue;
        }
        if (!wire_varint(&at, end, &bytes) || bytes > (uint64_t)(end - at)) return FAULT(MALFORMED);
        const uint64_t print = hash_fingerprint64(at, bytes);
        const bool pad = bytes == pad_bytes && memcmp(at, feature->pad_text, pad_bytes) == 0;
        *keys = is_hash ? data_mod_of(mod, print) : print;
        keys += !pad;
        at += bytes;
    }
    ragged->used = (size_t)(keys - ragged->keys);
    return 0;
}

static bool is_pad(const struct data_feature *feature, const struct data_value *value)
{
    if (!feature->padded) return false;
    if (value->type == DATA_VALUE_TEXT) {
        return value->bytes == feature->pad_bytes &&
               memcmp(value->text, feature->pad_text, value->bytes) == 0;
    }
    return value->type == DATA_VALUE_INTEGER && feature->pad_is_integer &&
           value->integer == feature->pad_integer;
}

static int append_values(const struct data_feature *feature, const struct data_raw *raw,
                         const struct data_raw *weights, struct data_ragged *ragged)
{
    struct data_cursor cursor, weights_cursor;
    struct data_value value, weight_value;
    const bool paired = raw->type == DATA_RAW_PAIRS; /* libsvm: the weight stands with the value */
    int rc = 0;
    data_cursor_init(&cursor, raw);
    data_cursor_init(&weights_cursor, weights);
    while ((rc = data_cursor_next(&cursor, &value)) > 0) {
        double weight = (double)value.weight;
        uint64_t key = 0;
        if (feature->weighted && !paired) {
            rc = data_cursor_next(&weights_cursor, &weight_value);
            if (rc <= 0) return rc < 0 ? FAULT(MALFORMED) : FAULT(VALUES);
            if (!number_of(&weight_value, &weight)) return FAULT(TYPE);
        }
        if (!isfinite(weight)) return FAULT(RANGE);
        if (is_pad(feature, &value)) continue;
        const enum data_key result = key_of(feature, &value, &key);
        if (result == DATA_KEY_NONE) continue;
        if (result != DATA_KEY_OK) return fault_of(result);
        if (reserve(ragged, 2, feature->weighted) != 0) return SHOAL_ENOMEM;
        if (feature->weighted) ragged->weights[ragged->used] = (float)weight;
        ragged->keys[ragged->used++] = key;
    }
    if (rc < 0) return FAULT(MALFORMED);
    if (feature->weighted && !paired && data_cursor_next(&weights_cursor, &weight_value) != 0) {
        return FAULT(VALUES);
    }
    return 0;
}

static int decode_ragged(const struct data_feature *feature, const struct data_raw *raw,
                         const struct data_raw *weights, struct data_ragged *ragged,
                         uint32_t *count_out)
{
    const bool quick = raw->type == DATA_RAW_BYTES && !feature->weighted &&
                       (feature->kind == DATA_HASH || feature->kind == DATA_DYNAMIC);
    const size_t before = ragged->used;
    const int rc =
        quick ? append_hashes(feature, raw, ragged) : append_values(feature, raw, weights, ragged);
    if (rc != 0) {
        ragged->used = before;
        return rc;
    }
    size_t count = ragged->used - before;
    if (feature->max_length != 0 && count > feature->max_length) {
        const size_t drop = count - feature->max_length;
        count = feature->max_length;
        memmove(ragged->keys + before, ragged->keys + before + drop, count * sizeof *ragged->keys);
        if (feature->weighted) {
            memmove(ragged->weights + before, ragged->weights + before + drop,
                    count * sizeof *ragged->weights);
        }
    }
    if (count == 0 && feature->padded) {
        if (reserve(ragged, 1, feature->weighted) != 0) return SHOAL_ENOMEM;
        ragged->keys[before] = feature->pad_key;
        if (feature->weighted) ragged->weights[before] = 1;
        count = 1;
    }
    if (count > DATA_VALUES_MAX) return FAULT(VALUES);
    ragged->used = before + count;
    *count_out = (uint32_t)count;
    return 0;
}

/* ---- crosses ---- */

/* Appends the values of one side to the scratch. */
static int append_side(const struct data_part_of *side, const struct data_raw *raw,
                       struct data_crossing *crossing, size_t *used)
{
    struct data_cursor cursor;
    struct data_value value;
    const size_t before = *used;
    int rc = 0;
    data_cursor_init(&cursor, raw);
    for (;;) {
        if (mem_grow(MEM_DATA, (void **)&crossing->values, &crossing->capacity, *used + 1,
                     sizeof *crossing->values) != 0) {
            return SHOAL_ENOMEM;
        }
        uint64_t *out = &crossing->values[*used];
        rc = data_cursor_next(&cursor, &value);
        if (rc <= 0) break;
        if (side->feature != NULL) {
            const enum data_key key = key_of(side->feature, &value, out);
            if (key == DATA_KEY_NONE) continue;
            if (key != DATA_KEY_OK) return fault_of(key);
        } else if (value.type == DATA_VALUE_TEXT) {
            *out = hash_fingerprint64(value.text, value.bytes);
        } else if (value.type == DATA_VALUE_INTEGER) {
            *out = (uint64_t)value.integer;
        } else {
            return FAULT(TYPE);
        }
        if (++*used - before > DATA_CROSSED_MAX) return FAULT(VALUES);
    }
    if (rc < 0) return FAULT(MALFORMED);
    if (*used == before && side->single) crossing->values[(*used)++] = side->missing_key;
    return 0;
}

/* As SparseCross: fingerprints joined from left to right, beginning with a constant; of several
 * values the last side's change fastest. */
static int decode_cross(const struct data_feature *cross, const struct data_raw *raws,
                        struct data_crossing *crossing, struct data_ragged *ragged,
                        uint64_t *single_out, uint32_t *count_out)
{
    size_t starts[DATA_CROSS_MAX + 1] = {0};
    size_t at[DATA_CROSS_MAX] = {0};
    size_t used = 0;
    size_t product = 1;
    const uint32_t sides = cross->parts_count;
    for (uint32_t i = 0; i < sides; i++) {
        const struct data_part_of *side = &cross->parts[i];
        const int rc = append_side(side, &raws[side->field], crossing, &used);
        if (rc != 0) return rc;
        starts[i + 1] = used;
        product *= used - starts[i];
        if (product > DATA_CROSSED_MAX) return FAULT(VALUES);
    }
    if (single_out != NULL && product != 1) return FAULT(VALUES);
    if (single_out == NULL && reserve(ragged, product, false) != 0) return SHOAL_ENOMEM;
    for (size_t made = 0; made < product; made++) {
        uint64_t print = 0xDECAFCAFFE;
        for (uint32_t i = 0; i < sides; i++) {
            print = hash_fingerprint_cat64(print, crossing->values[starts[i] + at[i]]);
        }
        const uint64_t key = data_mod_of(cross->buckets, print);
        if (single_out != NULL) {
            *single_out = key;
        } else {
            ragged->keys[ragged->used++] = key;
        }
        for (uint32_t i = sides; i-- > 0;) {
            if (++at[i] < starts[i + 1] - starts[i]) break;
            at[i] = 0;
        }
    }
    *count_out = (uint32_t)product;
    return 0;
}

/* ---- the row ---- */

static int decode_categorical(const struct data_feature *feature, const struct data_raw *raws,
                              const struct data_rows_out *out, uint32_t row,
                              struct data_ragged *ragged, struct data_crossing *crossing)
{
    const uint32_t i = feature->output;
    uint64_t *single = feature->single ? &out->keys[i][row] : NULL;
    uint32_t unused = 0;
    uint32_t *count = feature->single ? &unused : &out->counts[i][row];
    if (feature->kind == DATA_CROSS) {
        return decode_cross(feature, raws, crossing, &ragged[i], single, count);
    }
    if (feature->single) return decode_single(feature, &raws[feature->field], single);
    return decode_ragged(feature, &raws[feature->field], &raws[feature->weights_field], &ragged[i],
                         count);
}

static int decode_feature(const struct data_feature *feature, const struct data_raw *raws,
                          bool label_optional, const struct data_rows_out *out, uint32_t row,
                          struct data_ragged *ragged, struct data_crossing *crossing)
{
    const struct data_raw *raw = &raws[feature->field];
    switch (feature->kind) {
    case DATA_LABEL: return decode_label(feature, raw, label_optional, &out->label[row]);
    case DATA_WEIGHT: return decode_weight(feature, raw, &out->weight[row]);
    case DATA_GROUP: return decode_group(feature, raw, &out->group[row]);
    case DATA_NUMERIC:
        return decode_numeric(feature, raw,
                              out->dense[feature->output] + (size_t)row * feature->width);
    default: return decode_categorical(feature, raws, out, row, ragged, crossing);
    }
}

int data_decode_row(const struct data_spec *spec, const struct data_raw *raws, bool label_optional,
                    const struct data_rows_out *out, uint32_t row, struct data_ragged *ragged,
                    struct data_crossing *crossing)
{
    int rc = 0;
    uint32_t done = 0;
    for (; rc == 0 && done < spec->features_count; done++) {
        rc =
            decode_feature(&spec->features[done], raws, label_optional, out, row, ragged, crossing);
    }
    /* Of a broken row, what the features before the failing one appended goes away again. */
    for (uint32_t i = 0; rc != 0 && i + 1 < done; i++) {
        const struct data_feature *feature = &spec->features[i];
        if (feature->kind < DATA_HASH || feature->single) continue;
        ragged[feature->output].used -= out->counts[feature->output][row];
    }
    return rc;
}
