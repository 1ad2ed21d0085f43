/* The input is one tf.train.Example. */
#include "data/data_fuzz.h"

static const char features[] =
    "label: {kind: label}\n"
    "age: {kind: bucketize, boundaries: [18, 25, 36], combiner: sum}\n"
    "a: {kind: hash, buckets: 97}\n"
    "b: {kind: vocabulary, values: [x, y, z], oov_buckets: 2}\n"
    "c: {kind: vocabulary, values: [x, y], column: b}\n"
    "d: {kind: identity, buckets: 50, default: 1}\n"
    "e: {kind: dynamic, embed: 4, column: a}\n"
    "h: {kind: hash, buckets: 97, sequence: true, pad: \"0\", max_length: 5}\n"
    "w: {kind: hash, buckets: 7, weights: v, combiner: mean}\n"
    "x: {kind: numeric, width: 2, mean: 1, std: 2}\n"
    "ab: {kind: cross, of: [a, b, h], buckets: 1000}\n"
    "g: {kind: group, column: a}\n"
    "s: {kind: weight}\n";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const struct data_piece piece = {.bytes = bytes, .count = (uint32_t)count};
    fuzz_decode(fuzz_spec(features), DATA_TFRECORD, &piece, 1);
    return 0;
}
