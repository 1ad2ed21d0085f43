#include "net/net_reader.h"

#include <stdlib.h>

#include "../tests/test.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rand.h"

static struct err err;

/* A receiver that puts bodies into parts of uneven size and keeps a sum over all it was told. */
struct sink {
    struct net_reader *reader;
    uint8_t *body;
    size_t body_capacity;
    struct iovec parts[40];
    uint32_t parts_count; /* into how many parts a body is cut; 0: thrown away */
    uint64_t sum;
    int frames;
    int abandoned;
    int skip_at; /* of heads, from 1; 0: none */
    int heads;
    enum net_refusal refuse_head;
    enum net_refusal refuse_frame;
};

static void add(struct sink *sink, const void *bytes, size_t count)
{
    sink->sum = hash_mix64(sink->sum ^ hash_fingerprint64(bytes, count));
}

static enum net_refusal on_head(void *ctx, const struct net_header *header, const uint8_t *meta,
                                struct net_place *place_out)
{
    struct sink *sink = ctx;
    sink->heads++;
    add(sink, meta, header->meta_bytes);
    if (sink->refuse_head != NET_OK) return sink->refuse_head;
    CHECK(header->body_bytes <= sink->body_capacity);
    memset(sink->body, 0xaa, sink->body_capacity);
    size_t at = 0;
    for (uint32_t i = 0; i < sink->parts_count; i++) {
        const size_t left = (size_t)header->body_bytes - at;
        const size_t bytes = i + 1 == sink->parts_count ? left : left / 3;
        sink->parts[i] = (struct iovec){sink->body + at, bytes};
        at += bytes;
    }
    *place_out = (struct net_place){sink->parts, sink->parts_count, sink};
    return NET_OK;
}

static enum net_refusal on_frame(void *ctx, const struct net_header *header, const uint8_t *meta,
                                 const struct net_place *place)
{
    struct sink *sink = ctx;
    sink->frames++;
    add(sink, &header->sequence, sizeof header->sequence);
    add(sink, meta, header->meta_bytes);
    if (place->parts_count > 0) {
        CHECK(place->ctx == sink);
        add(sink, sink->body, (size_t)header->body_bytes);
    }
    return sink->refuse_frame;
}

static void on_abandon(void *ctx, const struct net_header *header, const struct net_place *place)
{
    struct sink *sink = ctx;
    (void)header;
    (void)place;
    sink->abandoned++;
}

static const struct net_reader_events events = {on_head, on_frame, on_abandon};
static const struct net_reader_limits all_of_it = {NET_META_BYTES_MAX, NET_BODY_BYTES_MAX};

/* A stream of frames of many sizes. The caller frees it. */
static uint8_t *make_stream(size_t *bytes_out, int *frames_out)
{
    static const struct {
        size_t meta;
        size_t body;
    } sizes[] = {{0, 0},       {1, 0},   {0, 1},     {5, 7},          {100, 65536},
                 {40000, 3},   {300, 0}, {60000, 0}, {100000, 90000}, {1u << 20, 10},
                 {33, 300000}, {0, 17},  {32768, 0}, {32768, 70000},  {32769, 1}};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    size_t total = 0;
    for (size_t i = 0; i < COUNT; i++) total += NET_HEADER_BYTES + sizes[i].meta + sizes[i].body;
    uint8_t *stream = malloc(total);
    CHECK(stream != NULL);
    size_t at = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const struct net_header header = {.type = 1,
                                          .sequence = i,
                                          .meta_bytes = (uint32_t)sizes[i].meta,
                                          .body_bytes = sizes[i].body};
        net_header_encode(&header, stream + at);
        at += NET_HEADER_BYTES;
        for (size_t j = 0; j < sizes[i].meta + sizes[i].body; j++) {
            stream[at++] = (uint8_t)hash_mix64(i * 1000003 + j);
        }
    }
    CHECK_INT(at, total);
    *bytes_out = total;
    *frames_out = COUNT;
    return stream;
}

static void sink_init(struct sink *sink, uint32_t parts_count)
{
    *sink = (struct sink){.parts_count = parts_count, .body_capacity = 1u << 20};
    sink->body = malloc(sink->body_capacity);
    CHECK(sink->body != NULL);
    CHECK_OK(net_reader_create(&events, sink, &all_of_it, &sink->reader, &err));
}

static void sink_fini(struct sink *sink)
{
    net_reader_destroy(sink->reader);
    free(sink->body);
}

/* Puts up to `bytes` where the reader wants them; how many. */
static size_t give(struct net_reader *reader, const uint8_t *from, size_t bytes)
{
    struct iovec parts[NET_READER_PARTS_MAX];
    const size_t count = net_reader_want(reader, parts);
    CHECK(count >= 1 && count <= NET_READER_PARTS_MAX);
    size_t given = 0;
    for (size_t i = 0; i < count && given < bytes; i++) {
        const size_t step = parts[i].iov_len < bytes - given ? parts[i].iov_len : bytes - given;
        memcpy(parts[i].iov_base, from + given, step);
        given += step;
    }
    return given;
}

static enum net_refusal feed(struct sink *sink, const uint8_t *stream, size_t bytes, uint64_t seed)
{
    size_t at = 0;
    for (uint64_t turn = 0; at < bytes; turn++) {
        size_t step = bytes - at;
        if (seed > 0) {
            const uint64_t shift = rand_below(seed, RAND_TEST, 0, turn, 18);
            const size_t most = 1 + (size_t)rand_below(seed, RAND_TEST, 1, turn, 1u << shift);
            if (step > most) step = most;
        }
        step = give(sink->reader, stream + at, step);
        const enum net_refusal refusal = net_reader_took(sink->reader, step);
        if (refusal != NET_OK) return refusal;
        at += step;
    }
    return NET_OK;
}

/* However the stream is cut, and into however many parts bodies go, the same frames come out. */
TEST(frames_do_not_depend_on_how_the_stream_is_cut)
{
    size_t bytes = 0;
    int frames = 0;
    uint8_t *stream = make_stream(&bytes, &frames);
    static const uint32_t parts[] = {1, 2, 14, 15, 16, 40};
    uint64_t want = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            struct sink sink;
            sink_init(&sink, parts[i]);
            CHECK_INT(feed(&sink, stream, bytes, seed), NET_OK);
            CHECK_INT(sink.frames, frames);
            CHECK(net_reader_is_idle(sink.reader));
            if (want == 0) want = sink.sum;
            CHECK(sink.sum == want);
            sink_fini(&sink);
            CHECK_INT(sink.abandoned, 0);
        }
    }
    free(stream);
}

/* A body without a place is thrown away, and its frame is told of with its meta part. */
TEST(bodies_without_a_place_are_thrown_away)
{
    size_t bytes = 0;
    int frames = 0;
    uint8_t *stream = make_stream(&bytes, &frames);
    uint64_t want = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct sink sink;
        sink_init(&sink, 0);
        CHECK_INT(feed(&sink, stream, bytes, seed), NET_OK);
        CHECK_INT(sink.frames, frames);
        if (seed == 0) want = sink.sum;
        CHECK(sink.sum == want);
        sink_fini(&sink);
    }
    free(stream);
}

/* One byte at a time, cut off anywhere: no frame is told of that is not whole, and a place that was
 * lent is given back. */
TEST(streams_that_end_early_give_places_back)
{
    uint8_t stream[NET_HEADER_BYTES + 30];
    const struct net_header header = {.type = 1, .meta_bytes = 10, .body_bytes = 20};
    net_header_encode(&header, stream);
    memset(stream + NET_HEADER_BYTES, 5, 30);
    for (size_t bytes = 0; bytes < 2 * sizeof stream; bytes++) {
        const bool is_thrown_away =
            bytes >= sizeof stream; /* Then there is nothing to give back. */
        struct sink sink;
        sink_init(&sink, is_thrown_away ? 0 : 2);
        const size_t cut = bytes % sizeof stream;
        for (size_t i = 0; i < cut; i++) CHECK_INT(feed(&sink, stream + i, 1, 0), NET_OK);
        CHECK_INT(net_reader_is_idle(sink.reader), cut == 0);
        CHECK_INT(sink.frames, 0);
        sink_fini(&sink);
        CHECK_INT(sink.abandoned, !is_thrown_away && cut >= NET_HEADER_BYTES + 10);
    }
}

/* After a skip nothing is written to the place any more, and the next frame is read as ever. */
TEST(skipped_bodies_leave_their_place_alone)
{
    uint8_t stream[2 * (NET_HEADER_BYTES + 1000)];
    const struct net_header header = {.type = 1, .body_bytes = 1000};
    for (int i = 0; i < 2; i++) {
        net_header_encode(&header, stream + i * (NET_HEADER_BYTES + 1000));
        memset(stream + i * (NET_HEADER_BYTES + 1000) + NET_HEADER_BYTES, 5, 1000);
    }
    struct sink sink;
    sink_init(&sink, 1);
    CHECK_INT(feed(&sink, stream, NET_HEADER_BYTES + 500, 0), NET_OK);
    CHECK_INT(sink.body[0], 5);
    net_reader_skip(sink.reader);
    memset(sink.body, 0, 1000);
    CHECK_INT(feed(&sink, stream + NET_HEADER_BYTES + 500, 500, 0), NET_OK);
    CHECK_INT(sink.body[700], 0);
    CHECK_INT(sink.frames, 0);
    CHECK_INT(feed(&sink, stream + NET_HEADER_BYTES + 1000, NET_HEADER_BYTES + 1000, 0), NET_OK);
    CHECK_INT(sink.frames, 1);
    CHECK_INT(sink.body[700], 5);
    sink_fini(&sink);
    CHECK_INT(sink.abandoned, 0);
}

/* Lengths beyond the limits are refused before anything is stored; limits change between frames. */
TEST(limits_hold)
{
    static const struct {
        const char *name;
        uint32_t meta;
        uint64_t body;
        enum net_refusal want;
    } rows[] = {
        {"within", 100, 0, NET_OK},
        {"meta", 101, 0, NET_REFUSED_LENGTH},
        {"body", 0, 1, NET_REFUSED_LENGTH},
        {"huge", 0, NET_BODY_BYTES_MAX, NET_REFUSED_LENGTH},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sink sink;
        sink_init(&sink, 1);
        net_reader_limit(sink.reader, &(struct net_reader_limits){100, 0});
        uint8_t bytes[NET_HEADER_BYTES];
        const struct net_header header = {
            .type = 1, .meta_bytes = rows[i].meta, .body_bytes = rows[i].body};
        net_header_encode(&header, bytes);
        const enum net_refusal got = feed(&sink, bytes, sizeof bytes, 0);
        if (got != rows[i].want) test_fail(__FILE__, __LINE__, "%s: %d", rows[i].name, (int)got);
        sink_fini(&sink);
        CHECK_INT(sink.heads, 0);
    }
}

/* What a callback refuses ends the stream with its reason; nothing is left to abandon. */
TEST(refusals_of_the_receiver_end_the_stream)
{
    uint8_t stream[NET_HEADER_BYTES + 10];
    net_header_encode(&(struct net_header){.type = 1, .body_bytes = 10}, stream);
    memset(stream + NET_HEADER_BYTES, 1, 10);
    struct sink sink;
    sink_init(&sink, 1);
    sink.refuse_head = NET_REFUSED_SENDER;
    CHECK_INT(feed(&sink, stream, sizeof stream, 0), NET_REFUSED_SENDER);
    sink_fini(&sink);
    CHECK_INT(sink.abandoned, 0);

    sink_init(&sink, 1);
    sink.refuse_frame = NET_REFUSED_HELLO;
    CHECK_INT(feed(&sink, stream, sizeof stream, 0), NET_REFUSED_HELLO);
    sink_fini(&sink);
    CHECK_INT(sink.abandoned, 0);
}

/* Without memory a reader is not made, and a long meta part is refused. */
TEST(allocations_may_fail)
{
    struct net_reader *reader = NULL;
    mem_fail_nth(1);
    CHECK_INT(net_reader_create(&events, NULL, &all_of_it, &reader, &err), SHOAL_ENOMEM);
    struct sink sink;
    mem_fail_nth(0);
    sink_init(&sink, 1);
    uint8_t bytes[NET_HEADER_BYTES];
    net_header_encode(&(struct net_header){.type = 1, .meta_bytes = NET_META_BYTES_MAX}, bytes);
    mem_fail_nth(1);
    CHECK_INT(feed(&sink, bytes, sizeof bytes, 0), NET_REFUSED_MEMORY);
    CHECK(mem_fail_nth(0));
    sink_fini(&sink);
    CHECK_INT(mem_bytes(MEM_NET), 0);
}
