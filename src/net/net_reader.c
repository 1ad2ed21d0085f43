#include "net/net_reader.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define STAGE_BYTES ((size_t)64 << 10)
/* A meta part up to this is read where it is staged. */
#define META_STAGED_MAX (STAGE_BYTES / 2)

enum state { STATE_HEADER, STATE_META, STATE_BODY, STATE_ENDED };

struct net_reader {
    struct net_reader_events events;
    void *ctx;
    struct net_reader_limits limits;
    enum state state;

    /* stage: | meta part in use | used up | not used yet | free |
     *                         kept      start          end          kept is 0 without such a part */
    size_t kept;
    size_t start;
    size_t end;

    struct net_header header;
    const uint8_t *meta; /* in the stage, or meta_long */
    uint8_t *meta_long;  /* a meta part that does not fit the stage; ours */
    size_t meta_have;    /* bytes of meta_long that have arrived */

    struct net_place place;
    bool is_skipped;
    uint64_t body_left;
    uint32_t part_index; /* where the next byte of the body goes */
    size_t part_offset;

    uint8_t stage[STAGE_BYTES];
};

int net_reader_create(const struct net_reader_events *events, void *ctx,
                      const struct net_reader_limits *limits, struct net_reader **reader_out,
                      struct err *err)
{
    ASSERT(events->head != NULL && events->frame != NULL && events->abandon != NULL);
    struct net_reader *reader = mem_alloc(MEM_NET, sizeof *reader);
    if (reader == NULL) return err_set(err, SHOAL_ENOMEM, "no memory to read frames");
    reader->events = *events;
    reader->ctx = ctx;
    reader->limits = *limits;
    *reader_out = reader;
    return 0;
}

static void forget_meta(struct net_reader *reader)
{
    mem_free(reader->meta_long);
    reader->meta_long = NULL;
    reader->meta = NULL;
    reader->meta_have = 0;
}

/* A body is on its way, and its place is lent. */
static bool has_place(const struct net_reader *reader)
{
    return reader->state == STATE_BODY && reader->place.parts_count > 0;
}

void net_reader_destroy(struct net_reader *reader)
{
    if (reader == NULL) return;
    if (has_place(reader)) {
        reader->state = STATE_ENDED;
        reader->events.abandon(reader->ctx, &reader->header, &reader->place);
    }
    forget_meta(reader);
    mem_free(reader);
}

void net_reader_limit(struct net_reader *reader, const struct net_reader_limits *limits)
{
    reader->limits = *limits;
}

bool net_reader_is_idle(const struct net_reader *reader)
{
    return reader->state == STATE_HEADER && reader->start == reader->end;
}

void net_reader_skip(struct net_reader *reader)
{
    ASSERT(reader->state == STATE_BODY);
    reader->is_skipped = true;
    reader->place = (struct net_place){0};
}

/* ---- where bytes go --------------------------------------------------------------------------- */

/* Moves what is staged to the front, behind the meta part in use. */
static void make_room(struct net_reader *reader)
{
    const size_t bytes = reader->end - reader->start;
    if (reader->start == reader->kept) return;
    if (bytes > 0) memmove(reader->stage + reader->kept, reader->stage + reader->start, bytes);
    reader->start = reader->kept;
    reader->end = reader->kept + bytes;
}

/* The parts of the body that are to be filled next. Whether these are all that is left. */
static bool want_body(struct net_reader *reader, struct iovec *parts_out, size_t *filled)
{
    size_t offset = reader->part_offset;
    for (uint32_t i = reader->part_index; i < reader->place.parts_count; i++) {
        const struct iovec *part = &reader->place.parts[i];
        if (*filled == NET_READER_PARTS_MAX - 1) return false;
        if (part->iov_len > offset) {
            parts_out[(*filled)++] =
                (struct iovec){(uint8_t *)part->iov_base + offset, part->iov_len - offset};
        }
        offset = 0;
    }
    return true;
}

size_t net_reader_want(struct net_reader *reader, struct iovec parts_out[NET_READER_PARTS_MAX])
{
    ASSERT(reader->state != STATE_ENDED);
    size_t filled = 0;
    if (has_place(reader)) {
        ASSERT(reader->start == reader->end);
        if (!want_body(reader, parts_out, &filled)) return filled;
    } else if (reader->state == STATE_META && reader->meta_long != NULL) {
        ASSERT(reader->start == reader->end);
        parts_out[filled++] = (struct iovec){reader->meta_long + reader->meta_have,
                                             reader->header.meta_bytes - reader->meta_have};
    }
    make_room(reader);
    ASSERT(reader->end < STAGE_BYTES);
    parts_out[filled++] = (struct iovec){reader->stage + reader->end, STAGE_BYTES - reader->end};
    return filled;
}

/* ---- what bytes mean -------------------------------------------------------------------------- */

/* Moves on by `bytes` that lie in the body's parts now, or are copied there from `from`. */
static void advance_body(struct net_reader *reader, const uint8_t *from, size_t bytes)
{
    ASSERT(bytes <= reader->body_left);
    reader->body_left -= bytes;
    while (bytes > 0 && reader->place.parts_count > 0) {
        const struct iovec *part = &reader->place.parts[reader->part_index];
        const size_t room = part->iov_len - reader->part_offset;
        const size_t step = bytes < room ? bytes : room;
        if (from != NULL && step > 0) {
            memcpy((uint8_t *)part->iov_base + reader->part_offset, from, step);
            from += step;
        }
        reader->part_offset += step;
        bytes -= step;
        if (step == room) {
            reader->part_index++;
            reader->part_offset = 0;
        }
    }
}

static enum net_refusal begin_meta(struct net_reader *reader)
{
    if (reader->header.meta_bytes > reader->limits.meta_bytes_max) return NET_REFUSED_LENGTH;
    if (reader->header.body_bytes > reader->limits.body_bytes_max) return NET_REFUSED_LENGTH;
    if (reader->header.meta_bytes > META_STAGED_MAX) {
        reader->meta_long = mem_alloc(MEM_NET, reader->header.meta_bytes);
        if (reader->meta_long == NULL) return NET_REFUSED_MEMORY;
    }
    reader->state = STATE_META;
    return NET_OK;
}

/* Whether all of the meta part is there. */
static bool take_meta(struct net_reader *reader)
{
    const size_t want = reader->header.meta_bytes;
    const size_t staged = reader->end - reader->start;
    if (reader->meta_long == NULL) {
        if (staged < want) return false;
        reader->meta = reader->stage + reader->start;
        reader->start += want;
        return true;
    }
    const size_t step = staged < want - reader->meta_have ? staged : want - reader->meta_have;
    memcpy(reader->meta_long + reader->meta_have, reader->stage + reader->start, step);
    reader->start += step;
    reader->meta_have += step;
    reader->meta = reader->meta_long;
    return reader->meta_have == want;
}

/* The meta part stays where it is until the frame is whole; the rest of the stage goes on. */
static void keep_meta(struct net_reader *reader)
{
    if (reader->meta_long != NULL) return;
    const size_t meta_bytes = reader->header.meta_bytes;
    reader->kept = reader->start;
    if (reader->kept <= META_STAGED_MAX) return;
    memmove(reader->stage, reader->meta, meta_bytes + (reader->end - reader->start));
    reader->end = meta_bytes + (reader->end - reader->start);
    reader->start = reader->kept = meta_bytes;
    reader->meta = reader->stage;
}

static bool place_fits(const struct net_place *place, uint64_t body_bytes)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < place->parts_count; i++) bytes += place->parts[i].iov_len;
    return place->parts_count == 0 || bytes == body_bytes;
}

static enum net_refusal begin_body(struct net_reader *reader)
{
    keep_meta(reader);
    reader->body_left = reader->header.body_bytes;
    reader->place = (struct net_place){0};
    reader->part_index = 0;
    reader->part_offset = 0;
    reader->is_skipped = false;
    if (reader->body_left > 0) {
        const enum net_refusal refusal =
            reader->events.head(reader->ctx, &reader->header, reader->meta, &reader->place);
        if (refusal != NET_OK) return refusal;
        ASSERT(place_fits(&reader->place, reader->body_left)); /* Ours. Keeps (1). */
    }
    reader->state = STATE_BODY;
    return NET_OK;
}

static enum net_refusal finish(struct net_reader *reader)
{
    enum net_refusal refusal = NET_OK;
    reader->state = STATE_HEADER;
    if (!reader->is_skipped) {
        refusal = reader->events.frame(reader->ctx, &reader->header, reader->meta, &reader->place);
    }
    forget_meta(reader);
    reader->kept = 0;
    return refusal;
}

/* One move of the state machine. *more_out: whether another may follow at once. */
static enum net_refusal step(struct net_reader *reader, bool *more_out)
{
    const size_t staged = reader->end - reader->start;
    enum net_refusal refusal = NET_OK;
    *more_out = true;
    switch (reader->state) {
    case STATE_HEADER:
        if (staged < NET_HEADER_BYTES) {
            *more_out = false;
            return NET_OK;
        }
        refusal = net_header_decode(reader->stage + reader->start, &reader->header);
        reader->start += NET_HEADER_BYTES;
        return refusal != NET_OK ? refusal : begin_meta(reader);
    case STATE_META: *more_out = take_meta(reader); return *more_out ? begin_body(reader) : NET_OK;
    case STATE_BODY:
        if (staged > 0 && reader->body_left > 0) {
            const size_t bytes = staged < reader->body_left ? staged : (size_t)reader->body_left;
            advance_body(reader, reader->stage + reader->start, bytes);
            reader->start += bytes;
        }
        *more_out = reader->body_left == 0;
        return *more_out ? finish(reader) : NET_OK;
    case STATE_ENDED: break;
    }
    *more_out = false;
    return NET_REFUSED_FRAME;
}

enum net_refusal net_reader_took(struct net_reader *reader, size_t bytes)
{
    if (has_place(reader)) {
        const size_t direct = bytes < reader->body_left ? bytes : (size_t)reader->body_left;
        advance_body(reader, NULL, direct);
        bytes -= direct;
    } else if (reader->state == STATE_META && reader->meta_long != NULL) {
        const size_t left = reader->header.meta_bytes - reader->meta_have;
        const size_t direct = bytes < left ? bytes : left;
        reader->meta_have += direct;
        bytes -= direct;
    }
    ASSERT(bytes <= STAGE_BYTES - reader->end);
    reader->end += bytes;
    bool more = true;
    while (more) {
        const enum net_refusal refusal = step(reader, &more);
        if (refusal != NET_OK) {
            reader->state = STATE_ENDED; /* No place is lent now: only head() and frame() refuse. */
            return refusal;
        }
    }
    return NET_OK;
}
