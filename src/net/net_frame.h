/* net_frame is what stands at the head of every frame on the wire, and what two tasks say to each
 * other before anything else. Codecs only: no I/O, no memory of their own.
 *
 *     +------------+-----------+--------------------------------------+
 *     | header, 48 | meta      | body                                 |
 *     +------------+-----------+--------------------------------------+
 *
 *     offset  bytes  header field (little-endian)
 *          0      4  magic "SHOL"
 *          4      2  version
 *          6      2  type; 0x8000 and up are net's own, the rest belong to those above
 *          8      2  flags: 1 request, 2 reply
 *         10      2  status of a reply: 0 or a negative error code
 *         12      4  sender: number of the task
 *         16      8  epoch of the cluster
 *         24      8  sequence: number of the request, or of the request that is answered
 *         32      8  bytes of the body
 *         40      4  bytes of the meta part
 *         44      4  CRC32C of the 44 bytes before
 *
 * The greeting (see docs/protocol.md): the dialer sends CALL, which is empty, the listener CHALLENGE,
 * the dialer HELLO, the listener WELCOME or REFUSAL. These are frames whose meta part closes with the
 * CRC32C of what stands before it; none has a body. */
#ifndef SHOAL_NET_FRAME_H
#define SHOAL_NET_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/bounds.h"
#include "net/net_refusal.h"

#define NET_VERSION 1u
#define NET_HEADER_BYTES 48u

enum net_flag { NET_FLAG_REQUEST = 1, NET_FLAG_REPLY = 2 };
#define NET_FLAGS_KNOWN (NET_FLAG_REQUEST | NET_FLAG_REPLY)

#define NET_TYPE_OWN 0x8000u /* types from here on are net's */
enum net_type {
    NET_TYPE_CHALLENGE = NET_TYPE_OWN + 1,
    NET_TYPE_HELLO,
    NET_TYPE_WELCOME,
    NET_TYPE_REFUSAL,
    NET_TYPE_CALL
};

struct net_header {
    uint16_t type;
    uint16_t flags;
    int16_t status;
    uint32_t sender;
    uint64_t epoch;
    uint64_t sequence;
    uint64_t body_bytes;
    uint32_t meta_bytes;
};

void net_header_encode(const struct net_header *header, uint8_t bytes_out[NET_HEADER_BYTES]);

/* NET_OK, or why these bytes are no header of ours. Lengths are within NET_*_BYTES_MAX. */
enum net_refusal net_header_decode(const uint8_t bytes[NET_HEADER_BYTES],
                                   struct net_header *header_out);

#define NET_NONCE_BYTES 16u
#define NET_PROOF_BYTES 32u

/* Who a task is. A HELLO and a WELCOME have the same fields. */
struct net_hello {
    uint64_t cluster;
    uint32_t task;
    uint64_t incarnation;
    char name[NET_NAME_MAX];            /* "worker/3" */
    uint8_t nonce[NET_NONCE_BYTES];     /* for the other side's proof */
    uint8_t challenge[NET_NONCE_BYTES]; /* HELLO: that of the listener, given back */
    uint8_t proof[NET_PROOF_BYTES];     /* of the cluster secret; zeros without one */
    uint64_t ring_bytes;                /* WELCOME over a Unix socket: of one direction */
};

struct net_farewell {
    uint16_t refusal;
    char text[256]; /* for people */
};

/* Bytes written, at most NET_HELLO_BYTES_MAX. */
size_t net_challenge_encode(const uint8_t nonce[NET_NONCE_BYTES], uint8_t *meta_out);
size_t net_hello_encode(const struct net_hello *hello, uint8_t *meta_out);
size_t net_farewell_encode(const struct net_farewell *farewell, uint8_t *meta_out);

/* NET_OK, NET_REFUSED_CHECKSUM or NET_REFUSED_HELLO. Names are NUL-terminated printable text. */
enum net_refusal net_challenge_decode(const uint8_t *meta, size_t bytes,
                                      uint8_t nonce_out[NET_NONCE_BYTES]);
enum net_refusal net_hello_decode(const uint8_t *meta, size_t bytes, struct net_hello *hello_out);
enum net_refusal net_farewell_decode(const uint8_t *meta, size_t bytes,
                                     struct net_farewell *farewell_out);

#endif
