#include "net/net_frame.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "net/net_bytes.h"

#define MAGIC 0x4c4f4853u /* "SHOL" in the order of bytes on the wire */
#define CRC_OFFSET (NET_HEADER_BYTES - 4)

void net_header_encode(const struct net_header *header, uint8_t bytes_out[NET_HEADER_BYTES])
{
    ASSERT(header->meta_bytes <= NET_META_BYTES_MAX);
    ASSERT(header->body_bytes <= NET_BODY_BYTES_MAX);
    struct net_writer writer = {bytes_out, bytes_out + NET_HEADER_BYTES, false};
    net_put_uint(&writer, MAGIC, 4);
    net_put_uint(&writer, NET_VERSION, 2);
    net_put_uint(&writer, header->type, 2);
    net_put_uint(&writer, header->flags, 2);
    net_put_uint(&writer, (uint16_t)header->status, 2);
    net_put_uint(&writer, header->sender, 4);
    net_put_uint(&writer, header->epoch, 8);
    net_put_uint(&writer, header->sequence, 8);
    net_put_uint(&writer, header->body_bytes, 8);
    net_put_uint(&writer, header->meta_bytes, 4);
    net_put_uint(&writer, hash_crc32c(0, bytes_out, CRC_OFFSET), 4);
    ASSERT(!writer.failed && writer.at == writer.end);
}

enum net_refusal net_header_decode(const uint8_t bytes[NET_HEADER_BYTES],
                                   struct net_header *header_out)
{
    struct net_cursor cursor = {bytes, bytes + NET_HEADER_BYTES, false};
    if (net_get_uint(&cursor, 4) != MAGIC) return NET_REFUSED_MAGIC;
    /* Before the checksum: another version may have it elsewhere. */
    if (net_get_uint(&cursor, 2) != NET_VERSION) return NET_REFUSED_VERSION;
    struct net_header header = {0};
    header.type = (uint16_t)net_get_uint(&cursor, 2);
    header.flags = (uint16_t)net_get_uint(&cursor, 2);
    header.status = (int16_t)net_get_uint(&cursor, 2);
    header.sender = (uint32_t)net_get_uint(&cursor, 4);
    header.epoch = net_get_uint(&cursor, 8);
    header.sequence = net_get_uint(&cursor, 8);
    header.body_bytes = net_get_uint(&cursor, 8);
    header.meta_bytes = (uint32_t)net_get_uint(&cursor, 4);
    if (net_get_uint(&cursor, 4) != hash_crc32c(0, bytes, CRC_OFFSET)) return NET_REFUSED_CHECKSUM;
    if (header.meta_bytes > NET_META_BYTES_MAX) return NET_REFUSED_LENGTH;
    if (header.body_bytes > NET_BODY_BYTES_MAX) return NET_REFUSED_LENGTH;
    if (header.type == 0 || (header.flags & ~NET_FLAGS_KNOWN) != 0) return NET_REFUSED_FRAME;
    if (header.flags == NET_FLAGS_KNOWN) return NET_REFUSED_FRAME;
    *header_out = header;
    return NET_OK;
}

/* ---- the greeting ----------------------------------------------------------------------------- */

static struct net_writer start_meta(uint8_t *meta)
{
    return (struct net_writer){meta, meta + NET_HELLO_BYTES_MAX, false};
}

static size_t close_meta(struct net_writer *writer, const uint8_t *meta)
{
    net_put_uint(writer, hash_crc32c(0, meta, (size_t)(writer->at - meta)), 4);
    ASSERT(!writer->failed);
    return (size_t)(writer->at - meta);
}

/* A cursor over all but the checksum, which fits. */
static enum net_refusal open_meta(const uint8_t *meta, size_t bytes, struct net_cursor *cursor_out)
{
    if (bytes < 4 || bytes > NET_HELLO_BYTES_MAX) return NET_REFUSED_HELLO;
    struct net_cursor sum = {meta + bytes - 4, meta + bytes, false};
    if (net_get_uint(&sum, 4) != hash_crc32c(0, meta, bytes - 4)) return NET_REFUSED_CHECKSUM;
    *cursor_out = (struct net_cursor){meta, meta + bytes - 4, false};
    return NET_OK;
}

static enum net_refusal all_read(const struct net_cursor *cursor)
{
    return cursor->failed || cursor->at != cursor->end ? NET_REFUSED_HELLO : NET_OK;
}

static void put_text(struct net_writer *writer, const char *text, size_t capacity)
{
    const size_t bytes = strnlen(text, capacity);
    ASSERT(bytes < capacity);
    net_put_uint(writer, bytes, 2);
    net_put(writer, text, bytes);
}

/* Text goes into logs: only what prints, and no quotes. */
static void get_text(struct net_cursor *cursor, char *text, size_t capacity)
{
    const size_t bytes = (size_t)net_get_uint(cursor, 2);
    if (bytes >= capacity) cursor->failed = true;
    if (cursor->failed) return;
    net_get(cursor, text, bytes);
    text[bytes] = '\0';
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < ' ' || text[i] > '~' || text[i] == '"') cursor->failed = true;
    }
}

size_t net_challenge_encode(const uint8_t nonce[NET_NONCE_BYTES], uint8_t *meta_out)
{
    struct net_writer writer = start_meta(meta_out);
    net_put(&writer, nonce, NET_NONCE_BYTES);
    return close_meta(&writer, meta_out);
}

enum net_refusal net_challenge_decode(const uint8_t *meta, size_t bytes,
                                      uint8_t nonce_out[NET_NONCE_BYTES])
{
    struct net_cursor cursor;
    const enum net_refusal refusal = open_meta(meta, bytes, &cursor);
    if (refusal != NET_OK) return refusal;
    net_get(&cursor, nonce_out, NET_NONCE_BYTES);
    return all_read(&cursor);
}

size_t net_hello_encode(const struct net_hello *hello, uint8_t *meta_out)
{
    struct net_writer writer = start_meta(meta_out);
    net_put_uint(&writer, hello->cluster, 8);
    net_put_uint(&writer, hello->task, 4);
    net_put_uint(&writer, hello->incarnation, 8);
    put_text(&writer, hello->name, sizeof hello->name);
    net_put(&writer, hello->nonce, sizeof hello->nonce);
    net_put(&writer, hello->challenge, sizeof hello->challenge);
    net_put(&writer, hello->proof, sizeof hello->proof);
    net_put_uint(&writer, hello->ring_bytes, 8);
    return close_meta(&writer, meta_out);
}

enum net_refusal net_hello_decode(const uint8_t *meta, size_t bytes, struct net_hello *hello_out)
{
    struct net_cursor cursor;
    const enum net_refusal refusal = open_meta(meta, bytes, &cursor);
    if (refusal != NET_OK) return refusal;
    struct net_hello hello = {0};
    hello.cluster = net_get_uint(&cursor, 8);
    hello.task = (uint32_t)net_get_uint(&cursor, 4);
    hello.incarnation = net_get_uint(&cursor, 8);
    get_text(&cursor, hello.name, sizeof hello.name);
    net_get(&cursor, hello.nonce, sizeof hello.nonce);
    net_get(&cursor, hello.challenge, sizeof hello.challenge);
    net_get(&cursor, hello.proof, sizeof hello.proof);
    hello.ring_bytes = net_get_uint(&cursor, 8);
    if (all_read(&cursor) != NET_OK || hello.name[0] == '\0') return NET_REFUSED_HELLO;
    *hello_out = hello;
    return NET_OK;
}

size_t net_farewell_encode(const struct net_farewell *farewell, uint8_t *meta_out)
{
    struct net_writer writer = start_meta(meta_out);
    net_put_uint(&writer, farewell->refusal, 2);
    put_text(&writer, farewell->text, sizeof farewell->text);
    return close_meta(&writer, meta_out);
}

enum net_refusal net_farewell_decode(const uint8_t *meta, size_t bytes,
                                     struct net_farewell *farewell_out)
{
    struct net_cursor cursor;
    const enum net_refusal refusal = open_meta(meta, bytes, &cursor);
    if (refusal != NET_OK) return refusal;
    struct net_farewell farewell = {0};
    farewell.refusal = (uint16_t)net_get_uint(&cursor, 2);
    get_text(&cursor, farewell.text, sizeof farewell.text);
    if (all_read(&cursor) != NET_OK) return NET_REFUSED_HELLO;
    *farewell_out = farewell;
    return NET_OK;
}
