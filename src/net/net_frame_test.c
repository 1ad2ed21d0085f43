#include "net/net_frame.h"

#include "../tests/test.h"

static const struct net_header sample = {
    .type = 7,
    .flags = NET_FLAG_REQUEST,
    .status = -17,
    .sender = 0x01020304,
    .epoch = 0x1122334455667788,
    .sequence = 42,
    .body_bytes = NET_BODY_BYTES_MAX,
    .meta_bytes = NET_META_BYTES_MAX,
};

/* The bytes are those of docs/protocol.md. */
TEST(header_has_its_bytes)
{
    uint8_t bytes[NET_HEADER_BYTES];
    net_header_encode(&sample, bytes);
    static const uint8_t want[44] = {'S',  'H',  'O', 'L', 1, 0,    7,    0,    1,    0,    0xef,
                                     0xff, 4,    3,   2,   1, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
                                     0x22, 0x11, 42,  0,   0, 0,    0,    0,    0,    0,    0,
                                     0,    0,    0,   1,   0, 0,    0,    0,    0,    0x10, 0};
    CHECK(memcmp(bytes, want, sizeof want) == 0);
    struct net_header back;
    CHECK_INT(net_header_decode(bytes, &back), NET_OK);
    CHECK(back.type == sample.type && back.flags == sample.flags && back.status == sample.status);
    CHECK(back.sender == sample.sender && back.epoch == sample.epoch);
    CHECK(back.sequence == sample.sequence && back.body_bytes == sample.body_bytes);
    CHECK_INT(back.meta_bytes, sample.meta_bytes);
}

/* Any single bit that changes is noticed. */
TEST(every_changed_bit_is_refused)
{
    uint8_t bytes[NET_HEADER_BYTES];
    net_header_encode(&sample, bytes);
    for (unsigned bit = 0; bit < 8 * NET_HEADER_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        struct net_header back;
        const enum net_refusal want = bit / 8 < 4   ? NET_REFUSED_MAGIC
                                      : bit / 8 < 6 ? NET_REFUSED_VERSION
                                                    : NET_REFUSED_CHECKSUM;
        CHECK_INT(net_header_decode(bytes, &back), want);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* Lengths, types and flags that are out of bounds are refused though the checksum fits. */
TEST(headers_out_of_bounds_are_refused)
{
    uint8_t bytes[NET_HEADER_BYTES];
    struct net_header back;
    struct net_header header = sample;
    header.type = 0;
    net_header_encode(&header, bytes);
    CHECK_INT(net_header_decode(bytes, &back), NET_REFUSED_FRAME);
    header = sample;
    header.flags = NET_FLAGS_KNOWN;
    net_header_encode(&header, bytes);
    CHECK_INT(net_header_decode(bytes, &back), NET_REFUSED_FRAME);
    header.flags = 4;
    net_header_encode(&header, bytes);
    CHECK_INT(net_header_decode(bytes, &back), NET_REFUSED_FRAME);
}

static struct net_hello sample_hello(void)
{
    struct net_hello hello = {.cluster = 5, .task = 6, .incarnation = 7, .ring_bytes = 8};
    snprintf(hello.name, sizeof hello.name, "worker/3");
    memset(hello.nonce, 1, sizeof hello.nonce);
    memset(hello.challenge, 2, sizeof hello.challenge);
    memset(hello.proof, 3, sizeof hello.proof);
    return hello;
}

/* A greeting reads back as it was written; any changed bit and any other length is refused. */
TEST(hello_is_read_back_and_guarded)
{
    uint8_t meta[NET_HELLO_BYTES_MAX];
    const struct net_hello hello = sample_hello();
    const size_t bytes = net_hello_encode(&hello, meta);
    struct net_hello back;
    CHECK_INT(net_hello_decode(meta, bytes, &back), NET_OK);
    CHECK(memcmp(&back, &hello, sizeof hello) == 0);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        meta[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK_INT(net_hello_decode(meta, bytes, &back), NET_REFUSED_CHECKSUM);
        meta[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t less = 0; less < bytes; less++) {
        CHECK(net_hello_decode(meta, less, &back) != NET_OK);
    }
}

/* Well summed, but not a greeting: names that are empty or do not print, a nonce of another size. */
TEST(malformed_greetings_are_refused)
{
    uint8_t meta[NET_HELLO_BYTES_MAX];
    struct net_hello back;
    struct net_hello hello = sample_hello();
    hello.name[0] = '\0';
    CHECK_INT(net_hello_decode(meta, net_hello_encode(&hello, meta), &back), NET_REFUSED_HELLO);
    hello = sample_hello();
    hello.name[2] = '\n';
    CHECK_INT(net_hello_decode(meta, net_hello_encode(&hello, meta), &back), NET_REFUSED_HELLO);

    uint8_t nonce[NET_NONCE_BYTES] = {9};
    uint8_t nonce_back[NET_NONCE_BYTES];
    const size_t bytes = net_challenge_encode(nonce, meta);
    CHECK_INT(net_challenge_decode(meta, bytes, nonce_back), NET_OK);
    CHECK(memcmp(nonce, nonce_back, sizeof nonce) == 0);
    CHECK_INT(net_hello_decode(meta, bytes, &back), NET_REFUSED_HELLO);

    struct net_farewell farewell = {.refusal = NET_REFUSED_CLUSTER, .text = "not ours"};
    struct net_farewell farewell_back;
    const size_t farewell_bytes = net_farewell_encode(&farewell, meta);
    CHECK_INT(net_farewell_decode(meta, farewell_bytes, &farewell_back), NET_OK);
    CHECK_STR(farewell_back.text, "not ours");
    CHECK_INT(farewell_back.refusal, NET_REFUSED_CLUSTER);
    CHECK_INT(net_challenge_decode(meta, farewell_bytes, nonce_back), NET_REFUSED_HELLO);
}

TEST(refusals_have_names)
{
    for (unsigned i = 0; i < NET_REFUSAL_COUNT; i++) {
        CHECK(strlen(net_refusal_key(i)) > 0 && strlen(net_refusal_words(i)) > 0);
    }
    CHECK_STR(net_refusal_key(NET_REFUSED_HALF_FRAME), "half_frame");
    CHECK_STR(net_refusal_key(NET_REFUSAL_COUNT), "unknown");
    CHECK_HAS(net_refusal_words(999), "not know");
}
