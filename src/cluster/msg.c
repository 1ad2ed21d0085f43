#include "cluster/msg.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "messages point into their bytes");

#define MSG_MAGIC 0x31474d53u /* "SMG1" */
#define MSG_HEAD_BYTES 48u
#define BLOCK_HEAD_BYTES 16u

static const struct {
    const char *name;
    uint32_t fields;
} types[] = {
#define X(type, member) {#member, sizeof(struct msg_##member) / sizeof(uint64_t)},
    MSG_LIST(X)
#undef X
};
#define X(type, member)                                                                            \
    static_assert(sizeof(struct msg_##member) <= MSG_FIELDS_MAX * sizeof(uint64_t), #member);
MSG_LIST(X)
#undef X

const char *msg_type_name(enum msg_type type)
{
    ASSERT(type < MSG_TYPES_COUNT);
    return types[type].name;
}

static size_t pad(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

static size_t rows_bytes(const struct msg_block *block)
{
    return (size_t)block->count * block->cols * sizeof(float);
}

static size_t block_bytes(const struct msg_block *block)
{
    return BLOCK_HEAD_BYTES + (block->keys != NULL ? (size_t)block->count * 8 : 0) +
           (block->rows != NULL ? pad(rows_bytes(block)) : 0);
}

size_t msg_bytes(const struct msg *msg)
{
    ASSERT(msg->type < MSG_TYPES_COUNT);
    size_t bytes = MSG_HEAD_BYTES + 8 * ((size_t)types[msg->type].fields + msg->list_count);
    for (uint32_t i = 0; i < msg->blocks_count; i++) bytes += block_bytes(&msg->blocks[i]);
    return bytes;
}

/* Where the next bytes of a message go. */
struct room {
    uint8_t *bytes;
    size_t used;
};

static void put(struct room *room, const void *from, size_t bytes)
{
    if (bytes > 0) memcpy(room->bytes + room->used, from, bytes);
    room->used += bytes;
}

void msg_encode(const struct msg *msg, uint8_t *bytes_out)
{
    const uint32_t fields = types[msg->type].fields;
    const uint32_t head[] = {MSG_MAGIC, (uint32_t)msg->type | fields << 16, msg->from, msg->to};
    const uint64_t words[] = {msg->epoch, msg->incarnation, msg->request};
    const uint32_t counts[] = {msg->list_count, msg->blocks_count};
    struct room room = {.bytes = bytes_out};
    put(&room, head, sizeof head);
    put(&room, words, sizeof words);
    put(&room, counts, sizeof counts);
    put(&room, msg->fields, (size_t)fields * 8);
    put(&room, msg->list, (size_t)msg->list_count * 8);
    for (uint32_t i = 0; i < msg->blocks_count; i++) {
        const struct msg_block *block = &msg->blocks[i];
        const uint32_t flags = (block->keys != NULL ? 1u : 0) | (block->rows != NULL ? 2u : 0);
        const uint32_t shape[] = {block->table, block->count, block->cols, flags};
        put(&room, shape, sizeof shape);
        if (block->keys != NULL) put(&room, block->keys, (size_t)block->count * 8);
        if (block->rows == NULL) continue;
        const size_t bytes = rows_bytes(block);
        const uint8_t zeros[8] = {0};
        put(&room, block->rows, bytes);
        put(&room, zeros, pad(bytes) - bytes);
    }
    ASSERT(room.used == msg_bytes(msg));
}

/* What is left to read. Every take is checked against it. */
struct rest {
    const uint8_t *at;
    size_t bytes;
};

static const void *take(struct rest *rest, size_t bytes)
{
    if (rest->bytes < bytes) return NULL;
    const void *taken = rest->at;
    rest->at += bytes;
    rest->bytes -= bytes;
    return taken;
}

static bool take_block(struct rest *rest, struct msg_block *block_out)
{
    uint32_t shape[4];
    const void *head = take(rest, sizeof shape);
    if (head == NULL) return false;
    memcpy(shape, head, sizeof shape);
    struct msg_block block = {.table = shape[0], .count = shape[1], .cols = shape[2]};
    if (block.count > STORE_KEYS_MAX || block.cols > STORE_COLS_MAX || shape[3] > 3) return false;
    if ((shape[3] & 2) == 0 && block.cols != 0) return false;
    if ((shape[3] & 1) != 0) {
        block.keys = take(rest, (size_t)block.count * 8);
        if (block.keys == NULL) return false;
    }
    if ((shape[3] & 2) != 0) {
        const size_t bytes = rows_bytes(&block);
        block.rows = take(rest, pad(bytes));
        if (block.rows == NULL) return false;
        for (size_t i = bytes; i < pad(bytes); i++) {
            if (((const uint8_t *)block.rows)[i] != 0) return false;
        }
    }
    *block_out = block;
    return true;
}

int msg_decode(const uint8_t *bytes, size_t count, struct msg_block *blocks, uint32_t blocks_max,
               struct msg *msg_out, struct err *err)
{
    ASSERT((uintptr_t)bytes % 8 == 0);
    struct rest rest = {bytes, count};
    const uint8_t *head = take(&rest, MSG_HEAD_BYTES);
    if (head == NULL) return err_set(err, SHOAL_EPROTO, "message of %zu bytes", count);
    uint32_t small[4];
    uint64_t words[3];
    uint32_t counts[2];
    memcpy(small, head, sizeof small);
    memcpy(words, head + 16, sizeof words);
    memcpy(counts, head + 40, sizeof counts);
    const uint32_t type = small[1] & 0xffff;
    if (small[0] != MSG_MAGIC || type >= MSG_TYPES_COUNT || small[1] >> 16 != types[type].fields) {
        return err_set(err, SHOAL_EPROTO, "message of unknown type %u", type);
    }
    struct msg msg = {.type = (enum msg_type)type,
                      .from = small[2],
                      .to = small[3],
                      .epoch = words[0],
                      .incarnation = words[1],
                      .request = words[2],
                      .list_count = counts[0],
                      .blocks_count = counts[1],
                      .blocks = blocks};
    const size_t fields_bytes = (size_t)types[type].fields * 8;
    const void *fields = take(&rest, fields_bytes);
    if (fields != NULL) memcpy(msg.fields, fields, fields_bytes);
    msg.list = fields == NULL ? NULL : take(&rest, (size_t)msg.list_count * 8);
    if (msg.list == NULL)
        return err_set(err, SHOAL_EPROTO, "%s cut short", msg_type_name(msg.type));
    if (msg.blocks_count > blocks_max) {
        return err_set(err, SHOAL_ELIMIT, "%u blocks in one message, at most %u", msg.blocks_count,
                       blocks_max);
    }
    for (uint32_t i = 0; i < msg.blocks_count; i++) {
        if (!take_block(&rest, &blocks[i])) {
            return err_set(err, SHOAL_EPROTO, "%s: block %u is damaged", msg_type_name(msg.type),
                           i);
        }
    }
    if (rest.bytes > 0) return err_set(err, SHOAL_EPROTO, "%zu bytes too many", rest.bytes);
    *msg_out = msg;
    return 0;
}
