#include "base/hash.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "../tests/test.h"

static size_t from_hex(const char *hex, uint8_t *bytes)
{
    size_t count = 0;
    unsigned value = 0;
    for (; sscanf(hex + 2 * count, "%2x", &value) == 1; count++) bytes[count] = (uint8_t)value;
    return count;
}

static uint64_t json_u64(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    CHECK(value != NULL);
    if (json_is_string(value)) return strtoull(json_string_value(value), NULL, 10);
    return (uint64_t)json_integer_value(value);
}

/* Every fingerprint and bucket that TensorFlow gave is ours too, for every length class. */
TEST(fingerprint64_equals_tensorflow)
{
    static const struct {
        const char *key;
        uint64_t buckets; /* 0: the whole value */
    } columns[] = {{"fingerprint64", 0},
                   {"mod_100", 100},
                   {"mod_10000", 10000},
                   {"mod_1000003", 1000003},
                   {"mod_2e62", (uint64_t)1 << 62}};
    const char *path = test_path("golden/hash.jsonl");
    FILE *file = fopen(path, "r");
    if (file == NULL) test_fail(__FILE__, __LINE__, "cannot open %s", path);
    static char line[65536];
    static uint8_t bytes[32768];
    size_t classes[4] = {0}; /* 0-16, 17-32, 33-64, over */
    for (int number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        json_t *entry = json_loads(line, 0, NULL);
        const char *hex = json_string_value(json_object_get(entry, "hex"));
        if (hex == NULL) test_fail(__FILE__, __LINE__, "%s:%d: no hex", path, number);
        const size_t count = from_hex(hex, bytes);
        const uint64_t got = hash_fingerprint64(bytes, count);
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
            const uint64_t want = json_u64(entry, columns[i].key);
            const uint64_t mine = columns[i].buckets == 0 ? got : got % columns[i].buckets;
            if (mine != want) {
                test_fail(__FILE__, __LINE__, "%s:%d: \"%s\": %s got %" PRIu64 ", want %" PRIu64,
                          path, number, hex, columns[i].key, mine, want);
            }
        }
        classes[count <= 16 ? 0 : count <= 32 ? 1 : count <= 64 ? 2 : 3]++;
        json_decref(entry);
    }
    fclose(file);
    for (int i = 0; i < 4; i++) CHECK(classes[i] > 0);
}

/* Crossed columns fall into TensorFlow's buckets. */
TEST(cross_equals_tensorflow)
{
    const char *path = test_path("golden/columns.json");
    json_t *root = json_load_file(path, 0, NULL);
    if (root == NULL) test_fail(__FILE__, __LINE__, "cannot read %s", path);
    const json_t *cross = json_object_get(root, "cross");
    const uint64_t buckets = json_u64(cross, "buckets");
    const json_t *rows = json_object_get(cross, "rows");
    CHECK(json_array_size(rows) > 0);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *a = json_string_value(json_object_get(row, "a"));
        const char *b = json_string_value(json_object_get(row, "b"));
        uint64_t hash = hash_fingerprint_cat64(HASH_CROSS_KEY, hash_fingerprint64(a, strlen(a)));
        hash = hash_fingerprint_cat64(hash, hash_fingerprint64(b, strlen(b)));
        if (hash % buckets != json_u64(row, "bucket")) {
            test_fail(__FILE__, __LINE__,
                      "%s: cross row %zu (%s, %s): got %" PRIu64 ", want %" PRIu64, path, i, a, b,
                      hash % buckets, json_u64(row, "bucket"));
        }
    }
    json_decref(root);
}

/* The inline and the long form agree where they meet, and alignment does not matter. */
TEST(fingerprint64_is_the_same_at_any_address)
{
    uint8_t bytes[256];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 7 + 3);
    for (size_t count = 0; count < 200; count++) {
        const uint64_t want = hash_fingerprint64(bytes, count);
        CHECK(hash_fingerprint64_long(bytes, count) == want);
        uint8_t moved[256];
        for (size_t shift = 1; shift < 8; shift++) {
            memcpy(moved + shift, bytes, count);
            CHECK(hash_fingerprint64(moved + shift, count) == want);
        }
    }
}

/* mix64 can be undone, for edges and a spread of values. */
TEST(mix64_is_bijective)
{
    static const uint64_t edges[] = {0, 1, 2, UINT64_MAX, (uint64_t)1 << 63, 0xffffffffu};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        CHECK(hash_unmix64(hash_mix64(edges[i])) == edges[i]);
        CHECK(hash_mix64(hash_unmix64(edges[i])) == edges[i]);
    }
    uint64_t x = 12345;
    for (int i = 0; i < 100000; i++, x = x * 6364136223846793005u + 1442695040888963407u) {
        CHECK(hash_unmix64(hash_mix64(x)) == x);
    }
}

/* CRC32C of the vectors in RFC 3720 B.4, at once and in pieces. */
TEST(crc32c_equals_the_published_vectors)
{
    uint8_t zeros[32] = {0};
    uint8_t ones[32];
    uint8_t up[32];
    uint8_t down[32];
    memset(ones, 0xff, sizeof ones);
    for (uint8_t i = 0; i < 32; i++) {
        up[i] = i;
        down[i] = (uint8_t)(31 - i);
    }
    CHECK_INT(hash_crc32c(0, "123456789", 9), 0xe3069283u);
    CHECK_INT(hash_crc32c(0, "", 0), 0);
    CHECK_INT(hash_crc32c(0, zeros, 32), 0x8a9136aau);
    CHECK_INT(hash_crc32c(0, ones, 32), 0x62a8ab43u);
    CHECK_INT(hash_crc32c(0, up, 32), 0x46dd794eu);
    CHECK_INT(hash_crc32c(0, down, 32), 0x113fdb5cu);
    for (size_t cut = 0; cut <= 32; cut++) {
        CHECK_INT(hash_crc32c(hash_crc32c(0, up, cut), up + cut, 32 - cut), 0x46dd794eu);
    }
}

/* Masking as TFRecord does: the CRC of "foo" as TensorFlow's own test has it, there and back. */
TEST(crc32c_mask_rotates_and_adds)
{
    const uint32_t crc = hash_crc32c(0, "foo", 3);
    const uint32_t masked = hash_crc32c_mask(crc);
    const uint32_t rotated = masked - 0xa282ead8u;
    CHECK(masked != crc);
    CHECK_INT((rotated >> 17) | (rotated << 15), crc);
}
