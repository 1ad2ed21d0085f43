/* net_reader turns the bytes of one connection into frames. It does no I/O: it says where the next
 * bytes should be put (net_reader_want), and is told how many were (net_reader_took). Small things
 * are staged, so that one read brings many frames; the bytes of a body go straight to where the
 * receiver wants them, and only those that came along with the header are copied.
 *
 *     HEADER --48 bytes, lengths checked--> META --all of it, head() says where--> BODY
 *        ^                                   |  no body                              | all of it
 *        +-----------------frame()-----------+-------------------frame()-------------+
 *
 * (1) No byte is stored that a checked length did not announce. (2) Each frame that is well-formed
 * is told of once by frame(), or once by abandon() when it will never be whole and head() had given
 * it a place. (3) The result does not depend on how the stream is cut. One thread. */
#ifndef SHOAL_NET_READER_H
#define SHOAL_NET_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "net/net_frame.h"

/* Where a body goes: parts that together have exactly the bytes of the body, lent until frame() or
 * abandon(). No parts: the body is read and thrown away. */
struct net_place {
    const struct iovec *parts;
    uint32_t parts_count;
    void *ctx; /* for the receiver */
};

/* Anything but NET_OK from a callback ends the stream: the reader takes no more. */
struct net_reader_events {
    /* Header and meta are there, a body follows. */
    enum net_refusal (*head)(void *ctx, const struct net_header *header, const uint8_t *meta,
                             struct net_place *place_out);
    /* The frame is whole. Meta is borrowed for the call. */
    enum net_refusal (*frame)(void *ctx, const struct net_header *header, const uint8_t *meta,
                              const struct net_place *place);
    /* The stream ends within this frame's body: the place is free again. */
    void (*abandon)(void *ctx, const struct net_header *header, const struct net_place *place);
};

struct net_reader;

/* Frames beyond these lengths are refused; see net_reader_limit. */
struct net_reader_limits {
    uint32_t meta_bytes_max;
    uint64_t body_bytes_max;
};

int net_reader_create(const struct net_reader_events *events, void *ctx,
                      const struct net_reader_limits *limits, struct net_reader **reader_out,
                      struct err *err);
void net_reader_destroy(struct net_reader *reader); /* abandons; NULL is a no-op */

/* From the next frame on. */
void net_reader_limit(struct net_reader *reader, const struct net_reader_limits *limits);

#define NET_READER_PARTS_MAX 16
/* How many parts it filled in: where the next bytes go, in order. At least one byte is wanted. */
size_t net_reader_want(struct net_reader *reader, struct iovec parts_out[NET_READER_PARTS_MAX]);

/* `bytes` were put where net_reader_want said. Calls back for what is complete now. */
enum net_refusal net_reader_took(struct net_reader *reader, size_t bytes);

/* The rest of the body that is on its way is thrown away, its place is free again at once; neither
 * frame() nor abandon() will be called for it. Only within a body. */
void net_reader_skip(struct net_reader *reader);

/* Whether it stands between two frames, with nothing staged. */
bool net_reader_is_idle(const struct net_reader *reader);

#endif
