#include "cluster/msg.h"

#include "base/mem.h"
#include "../tests/test.h"

enum { ROOM = 4096 };

static size_t encoded(const struct msg *msg, uint8_t *bytes)
{
    const size_t count = msg_bytes(msg);
    CHECK(count <= ROOM);
    msg_encode(msg, bytes);
    return count;
}

/* A push of two tables comes back as it went, and points into the bytes. */
TEST(what_is_encoded_is_decoded)
{
    const uint64_t keys[] = {3, 5, 1ull << 63};
    const float rows[] = {1, 2, 3};
    const uint64_t list[] = {7, 8};
    const struct msg_block sent[] = {
        {.table = 1, .count = 3, .cols = 1, .keys = keys, .rows = rows},
        {.table = 9, .count = 2, .keys = keys}};
    const struct msg msg = {.type = MSG_PUSH,
                            .from = 4,
                            .to = 1,
                            .epoch = 11,
                            .incarnation = 12,
                            .request = 13,
                            .list = list,
                            .list_count = 2,
                            .blocks = sent,
                            .blocks_count = 2,
                            .push = {.stream = 21, .token = 22, .count = 23}};
    _Alignas(8) uint8_t bytes[ROOM];
    const size_t count = encoded(&msg, bytes);
    struct msg_block blocks[2];
    struct msg got;
    struct err err = {0};
    CHECK_OK(msg_decode(bytes, count, blocks, 2, &got, &err));
    CHECK_INT(got.type, MSG_PUSH);
    CHECK_INT(got.request, 13);
    CHECK_INT(got.push.token, 22);
    CHECK_INT(got.list[1], 8);
    CHECK_INT(got.blocks[0].keys[2] >> 63, 1);
    CHECK(got.blocks[0].rows[2] == 3);
    CHECK(got.blocks[1].rows == NULL);
    CHECK((const uint8_t *)got.blocks[0].keys > bytes);
    CHECK_INT(msg_decode(bytes, count, blocks, 1, &got, &err), SHOAL_ELIMIT);
}

/* Every shorter prefix, one byte more, and an unknown type are refused. */
TEST(damage_is_refused)
{
    const uint64_t keys[] = {1};
    const float rows[] = {1};
    const struct msg_block block = {.table = 0, .count = 1, .cols = 1, .keys = keys, .rows = rows};
    const struct msg msg = {.type = MSG_PUSH, .blocks = &block, .blocks_count = 1};
    _Alignas(8) uint8_t bytes[ROOM] = {0};
    const size_t count = encoded(&msg, bytes);
    struct msg_block blocks[1];
    struct msg got;
    for (size_t short_count = 0; short_count < count; short_count++) {
        CHECK_INT(msg_decode(bytes, short_count, blocks, 1, &got, NULL), SHOAL_EPROTO);
    }
    CHECK_INT(msg_decode(bytes, count + 8, blocks, 1, &got, NULL), SHOAL_EPROTO);
    bytes[4] = MSG_TYPES_COUNT;
    CHECK_INT(msg_decode(bytes, count, blocks, 1, &got, NULL), SHOAL_EPROTO);
}
