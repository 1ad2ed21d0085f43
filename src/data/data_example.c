/* tf.train.Example, by hand:
 *
 *   Example  { 1: Features }
 *   Features { 1: repeated entry { 1: name, 2: Feature } }
 *   Feature  { 1: BytesList | 2: FloatList | 3: Int64List }     each list { 1: values }
 *
 * Fields come in any order, unknown ones are stepped over, and of a name or list that stands twice the
 * last counts. */
#include "data/data_parse.h"
#include "data/data_wire.h"

enum { TAG_1 = 1 << 3 | WIRE_BYTES, TAG_2 = 2 << 3 | WIRE_BYTES, TAG_3 = 3 << 3 | WIRE_BYTES };

/* The list inside a Feature message. */
static bool read_feature(const uint8_t *at, const uint8_t *end, struct data_raw *raw)
{
    raw->type = DATA_RAW_NONE;
    while (at < end) {
        uint64_t tag = 0;
        const uint8_t *list = NULL;
        size_t count = 0;
        if (!wire_varint(&at, end, &tag)) return false;
        if (tag != TAG_1 && tag != TAG_2 && tag != TAG_3) {
            if (!wire_skip(&at, end, tag)) return false;
            continue;
        }
        if (!wire_bytes(&at, end, &list, &count)) return false;
        raw->type = tag == TAG_1   ? DATA_RAW_BYTES
                    : tag == TAG_2 ? DATA_RAW_FLOATS
                                   : DATA_RAW_INTEGERS;
        raw->at = list;
        raw->end = list + count;
    }
    return true;
}

static bool read_entry(const uint8_t *at, const uint8_t *end, struct data_example_field *field)
{
    field->name = at;
    field->name_bytes = 0;
    field->raw.type = DATA_RAW_NONE;
    while (at < end) {
        uint64_t tag = 0;
        const uint8_t *bytes = NULL;
        size_t count = 0;
        if (!wire_varint(&at, end, &tag)) return false;
        if (tag != TAG_1 && tag != TAG_2) {
            if (!wire_skip(&at, end, tag)) return false;
            continue;
        }
        if (!wire_bytes(&at, end, &bytes, &count)) return false;
        if (tag == TAG_1) {
            field->name = bytes;
            field->name_bytes = count;
        } else if (!read_feature(bytes, bytes + count, &field->raw)) {
            return false;
        }
    }
    return true;
}

static bool walk_features(const uint8_t *at, const uint8_t *end, data_example_cb *cb, void *ctx,
                          bool *stopped)
{
    struct data_example_field field = {0};
    while (at < end) {
        uint64_t tag = 0;
        const uint8_t *bytes = NULL;
        size_t count = 0;
        if (!wire_varint(&at, end, &tag)) return false;
        if (tag != TAG_1) {
            if (!wire_skip(&at, end, tag)) return false;
            continue;
        }
        if (!wire_bytes(&at, end, &bytes, &count)) return false;
        if (!read_entry(bytes, bytes + count, &field)) return false;
        if (!cb(ctx, &field)) {
            *stopped = true;
            return true;
        }
    }
    return true;
}

bool data_example_walk(const uint8_t *bytes, size_t count, data_example_cb *cb, void *ctx)
{
    const uint8_t *at = bytes;
    const uint8_t *end = bytes + count;
    bool stopped = false;
    while (at < end && !stopped) {
        uint64_t tag = 0;
        const uint8_t *features = NULL;
        size_t features_count = 0;
        if (!wire_varint(&at, end, &tag)) return false;
        if (tag != TAG_1) {
            if (!wire_skip(&at, end, tag)) return false;
            continue;
        }
        if (!wire_bytes(&at, end, &features, &features_count)) return false;
        if (!walk_features(features, features + features_count, cb, ctx, &stopped)) return false;
    }
    return true;
}
