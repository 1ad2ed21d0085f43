/* The byte stream of a connection, cut in two ways: both must tell of the same frames, nothing may be
 * stored beyond the places lent, and a greeting that decodes encodes to the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "net/net_frame.h"
#include "net/net_fuzzkit.h"
#include "net/net_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#define BODY_MAX 4096u

struct sink {
    uint8_t *body; /* of the exact size: a sanitizer sees a byte too far */
    struct iovec parts[3];
    uint64_t sum;
    int lent;
};

static void add(struct sink *sink, const void *bytes, size_t count)
{
    sink->sum = hash_mix64(sink->sum ^ hash_fingerprint64(bytes, count));
}

static enum net_refusal on_head(void *ctx, const struct net_header *header, const uint8_t *meta,
                                struct net_place *place_out)
{
    struct sink *sink = ctx;
    add(sink, meta, header->meta_bytes);
    if (header->body_bytes > BODY_MAX) return NET_REFUSED_LENGTH;
    if (header->sequence % 4 == 0) return NET_OK; /* thrown away */
    const size_t size = (size_t)header->body_bytes;
    const size_t first = (size_t)(header->epoch % (size + 1));
    sink->body = calloc(1, size);
    ASSERT(sink->body != NULL);
    sink->parts[0] = (struct iovec){sink->body, first};
    sink->parts[1] = (struct iovec){sink->body + first, 0};
    sink->parts[2] = (struct iovec){sink->body + first, size - first};
    sink->lent++;
    *place_out = (struct net_place){sink->parts, 3, sink};
    return NET_OK;
}

static void give_back(struct sink *sink)
{
    free(sink->body);
    sink->body = NULL;
    sink->lent--;
}

/* Whatever decodes as a greeting is written back as it was. */
static void check_greeting(const struct net_header *header, const uint8_t *meta)
{
    uint8_t again[NET_HELLO_BYTES_MAX];
    uint8_t nonce[NET_NONCE_BYTES];
    struct net_hello hello;
    struct net_farewell farewell;
    size_t bytes = 0;
    if (net_challenge_decode(meta, header->meta_bytes, nonce) == NET_OK) {
        bytes = net_challenge_encode(nonce, again);
    } else if (net_hello_decode(meta, header->meta_bytes, &hello) == NET_OK) {
        bytes = net_hello_encode(&hello, again);
    } else if (net_farewell_decode(meta, header->meta_bytes, &farewell) == NET_OK) {
        bytes = net_farewell_encode(&farewell, again);
    } else {
        return;
    }
    ASSERT(bytes == header->meta_bytes);
    ASSERT(memcmp(again, meta, bytes) == 0);
}

static enum net_refusal on_frame(void *ctx, const struct net_header *header, const uint8_t *meta,
                                 const struct net_place *place)
{
    struct sink *sink = ctx;
    add(sink, &header->type, sizeof header->type);
    add(sink, meta, header->meta_bytes);
    check_greeting(header, meta);
    if (place->parts_count > 0) {
        add(sink, sink->body, (size_t)header->body_bytes);
        give_back(sink);
    }
    return header->type == 13 ? NET_REFUSED_FRAME : NET_OK;
}

static void on_abandon(void *ctx, const struct net_header *header, const struct net_place *place)
{
    (void)header;
    (void)place;
    give_back(ctx);
}

/* The sum over all that was told, and how the stream ended. seed 0: in one piece. */
static uint64_t run(const uint8_t *bytes, size_t count, uint64_t seed)
{
    struct sink sink = {0};
    struct net_reader *reader = NULL;
    const struct net_reader_events events = {on_head, on_frame, on_abandon};
    const struct net_reader_limits limits = {NET_META_BYTES_MAX, NET_BODY_BYTES_MAX};
    if (net_reader_create(&events, &sink, &limits, &reader, NULL) != 0) return 0;
    enum net_refusal refusal = NET_OK;
    for (size_t at = 0; at < count && refusal == NET_OK;) {
        struct iovec parts[NET_READER_PARTS_MAX];
        const size_t parts_count = net_reader_want(reader, parts);
        size_t step = count - at;
        if (seed > 0) step = 1 + (size_t)(hash_mix64(seed + at) % step);
        size_t given = 0;
        for (size_t i = 0; i < parts_count && given < step; i++) {
            const size_t room = parts[i].iov_len < step - given ? parts[i].iov_len : step - given;
            memcpy(parts[i].iov_base, bytes + at + given, room);
            given += room;
        }
        ASSERT(given > 0);
        refusal = net_reader_took(reader, given);
        at += given;
    }
    net_reader_destroy(reader);
    ASSERT(sink.lent == 0);
    return sink.sum + (uint64_t)refusal;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count > NET_FUZZ_BYTES_MAX) return 0;
    ASSERT(run(bytes, count, 0) == run(bytes, count, count + 1));
    uint8_t *mended = malloc(count + 1);
    ASSERT(mended != NULL);
    memcpy(mended, bytes, count);
    net_fuzz_mend(mended, count);
    ASSERT(run(mended, count, 0) == run(mended, count, count + 7));
    free(mended);
    return 0;
}
