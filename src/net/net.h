/* net carries typed frames between the tasks of a cluster: it listens, dials, greets, refuses
 * strangers, reconnects, and moves bulk bytes from where they lie to where they belong. It knows
 * nothing of what the frames mean.
 *
 * A *peer* is a task named in the options, by number and name. One of the two dials (`dial`), the
 * other waits. While a connection stands the peer is *up*; each connection has a new number. What was
 * not answered when it broke is completed with SHOAL_EPEER, and may or may not have arrived: who
 * sends it again after `up` may cause a duplicate, and names its work so that it does no harm.
 *
 * An *op* is one frame on its way out, with its memory: owned by the caller, lent until `done` runs.
 * `done` runs exactly once, on the loop's thread, never inside a call; after it net touches neither
 * the op nor anything it points to. If the call that starts an op fails, `done` never runs.
 *
 *     net_send     done when the bytes are away (in the kernel, or in the shared ring)
 *     net_request  done when the reply is there, or will not be
 *     net_reply    as net_send, for the request that a frame brought
 *
 * Bodies: when header and meta part of a frame have arrived, the receiver says where its body goes
 * (`head` of the op that is answered, or of the events), having compared its length with what it
 * asked for; then the bytes go there and nowhere else.
 *
 * Carriers: TCP; TLS 1.3 over TCP, always when a secret or certificates are given; shared-memory
 * rings announced over a Unix socket, within one host, network namespace and user. `auto` takes the
 * rings where the peer's socket is found, else TCP.
 *
 * Everything runs on the loop's thread, or, while the loop has no thread, on its owner's. Counters
 * may be read by any thread. Frames of one connection arrive whole, in order, at most once. */
#ifndef SHOAL_NET_NET_H
#define SHOAL_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/bounds.h"
#include "base/err.h"
#include "net/net_loop.h"
#include "net/net_reader.h"
#include "net/net_refusal.h"

struct net;
struct net_peer;

enum net_carrier_kind { NET_AUTO, NET_TCP, NET_SHM };

/* A frame as it arrived; borrowed for the call. */
struct net_frame {
    struct net_peer *peer;
    uint64_t connection; /* the number that `up` told */
    uint16_t type;
    bool is_request; /* an answer is waited for: net_reply with connection and sequence */
    int16_t status;  /* of a reply: what the answering side gave */
    uint64_t epoch;
    uint64_t sequence;
    const uint8_t *meta;
    uint32_t meta_bytes;
    uint64_t body_bytes;
    struct net_place place; /* where the body is now; no parts: it was thrown away, or is empty */
};

/* All run on the loop's thread. `head` and `frame` are required. */
struct net_events {
    /* A connection to the peer stands. */
    void (*up)(void *ctx, struct net_peer *peer, uint64_t connection);
    /* It stands no more; its ops have been completed. rc and text say why. */
    void (*down)(void *ctx, struct net_peer *peer, uint64_t connection, const struct err *why);
    /* A frame that is no reply brings a body: where shall it go? Leaving place_out as it is throws
     * the body away; `frame` is called all the same. */
    void (*head)(void *ctx, const struct net_frame *frame, struct net_place *place_out);
    /* A frame that is no reply is whole. */
    void (*frame)(void *ctx, const struct net_frame *frame);
    /* The connection broke within a body that `head` gave a place: the place is free again. */
    void (*abandon)(void *ctx, const struct net_frame *frame);
    /* The peer takes frames again, after an op was refused with SHOAL_ELIMIT. */
    void (*writable)(void *ctx, struct net_peer *peer);
};

struct net_peer_opts {
    uint32_t task;    /* its number in the cluster: unique, the same for all */
    const char *name; /* "ps/0", below NET_NAME_MAX bytes; NULL: whoever answers at the address */
    const char *address; /* "host:port" to dial; may be NULL when it dials, or over shared memory */
    bool dial;
    void *ctx; /* for the caller, see net_peer_ctx */
};

/* Paths are read when net is opened. A secret, or certificates, or neither. */
struct net_secure {
    const char *secret_file; /* at least 16 bytes; the same file for all tasks */
    const char *cert_file;   /* PEM: this task's chain, */
    const char *key_file;    /* its key, */
    const char *ca_file;     /* and who signs the cluster's tasks */
};

struct net_opts {
    struct net_loop *loop;
    uint32_t task;
    const char *name;
    uint64_t cluster;     /* the same for all tasks of a job; others are refused */
    uint64_t incarnation; /* grows each time this task starts; 0: the time of day */
    const char *listen;   /* "host:port", port 0 for any; NULL: nobody connects by TCP */
    enum net_carrier_kind carrier;
    struct net_secure secure;
    const struct net_peer_opts *peers;
    size_t peers_count;
    const char *guest_job;     /* tasks named "<guest_job>/..." may connect unlisted; NULL: none */
    const char *folder;        /* of the Unix sockets; NULL: one of this user's own */
    uint64_t queue_bytes_max;  /* default NET_QUEUE_BYTES_MAX */
    uint64_t ring_bytes;       /* default NET_RING_BYTES_DEFAULT; a power of two */
    uint64_t hello_timeout_ms; /* default 2000 */
    uint64_t stall_timeout_ms; /* a peer silent within a frame; default 30000 */
    struct net_events events;
    void *ctx;
};

/* Listens and starts to dial. Errors name the setting and what to do about it. */
int net_open(const struct net_opts *opts, struct net **net_out, struct err *err);

/* Breaks all connections; ops are completed with SHOAL_EPEER, no `down` is called. Not from within a
 * callback of this net. NULL is a no-op. */
void net_close(struct net *net);

/* Whether a task may listen at this address: SHOAL_ECONFIG when it is not loopback and there is
 * neither secret nor certificate. For checking before anything starts. */
int net_listen_check(const char *address, const struct net_secure *secure, struct err *err);

uint16_t net_port(const struct net *net); /* that TCP listens at; 0: it does not */

/* ---- peers ------------------------------------------------------------------------------------ */

/* Borrowed for the life of net. NULL: no such task. Guests are not found. */
struct net_peer *net_peer_find(const struct net *net, uint32_t task);
uint32_t net_peer_task(const struct net_peer *peer);
const char *net_peer_name(const struct net_peer *peer);
void *net_peer_ctx(const struct net_peer *peer);
bool net_peer_is_up(const struct net_peer *peer);

/* What is known about a peer, for people: who waits for whom, since when, why. */
struct net_peer_info {
    bool is_up;
    const char *carrier;  /* "tcp", "tls", "shm"; NULL while down */
    uint64_t connection;  /* the number of the last one; 0: there was none */
    uint64_t incarnation; /* of the other side, as of its last greeting */
    uint64_t since_ns;    /* when it came up or went down */
    uint32_t attempts;    /* of dialing since then */
    char problem[256];    /* why the last attempt failed; empty: nothing is known */
    uint64_t queued_bytes;
};
void net_peer_info(const struct net_peer *peer, struct net_peer_info *info_out);

/* Breaks the connection, at the end of this turn; a peer that is dialed is dialed again. */
void net_peer_drop(struct net_peer *peer, const char *why);

/* ---- ops -------------------------------------------------------------------------------------- */

struct net_op;

/* Where the body of the reply goes: 0 and *place_out, or an error, which throws the body away and is
 * what `done` gets. */
typedef int net_op_head_cb(struct net_op *op, const struct net_frame *reply,
                           struct net_place *place_out);
/* rc: 0; SHOAL_EPEER connection lost, SHOAL_ETIME deadline passed, SHOAL_EINTR cancelled, or what
 * head returned. reply: of a request with rc 0 or head's error, else NULL; its place is where the
 * body is now. */
typedef void net_op_done_cb(struct net_op *op, int rc, const struct net_frame *reply);

/* Filled in by the caller, from zero; must not change or move until `done` runs. */
struct net_op {
    uint16_t type;  /* 1 .. 0x7fff */
    int16_t status; /* of a reply: 0 or a negative error code */
    uint32_t meta_bytes;
    const void *meta;
    const struct iovec *parts; /* of the body; may be empty */
    uint32_t parts_count;
    uint64_t epoch;
    uint64_t deadline_ns; /* absolute (clock_now_ns); required for requests, else 0: none */
    net_op_head_cb *head; /* NULL: the reply has no body; one that has is thrown away */
    net_op_done_cb *done;
    void *ctx; /* for the caller */

    struct net_op_state {
        struct net_timer timer; /* the deadline */
        struct net_conn *conn;
        struct net_op *next;   /* in the queue of what is to be sent */
        struct net_op *before; /* chain of those that wait for a reply */
        struct net_op *after;
        uint64_t sequence;
        uint64_t bytes; /* of the whole frame */
        uint64_t sent;
        uint32_t segment; /* header, meta, parts: where sending stands */
        size_t segment_offset;
        int rc; /* what head returned */
        uint16_t flags;
        bool is_queued;
        bool is_waiting; /* for a reply */
        bool is_cancelled;
        uint8_t header[NET_HEADER_BYTES];
    } state; /* net's own */
};

/* SHOAL_EPEER: the peer is down. SHOAL_ELIMIT: it has too much queued; `writable` will tell.
 * SHOAL_EINVAL: lengths beyond the bounds. In all these cases the op is untouched. */
int net_send(struct net_peer *peer, struct net_op *op, struct err *err);
int net_request(struct net_peer *peer, struct net_op *op, struct err *err);
/* SHOAL_EPEER also when that connection is gone: the answer has nobody to go to. */
int net_reply(struct net_peer *peer, uint64_t connection, uint64_t sequence, struct net_op *op,
              struct err *err);

/* `done` runs soon with SHOAL_EINTR; a frame of which a part is away goes out first. Only for ops
 * that are under way. */
void net_cancel(struct net_op *op);

/* ---- counters, any thread --------------------------------------------------------------------- */

struct net_stats {
    uint64_t frames_in;
    uint64_t frames_out;
    uint64_t bytes_in; /* of frames: headers, meta parts, bodies */
    uint64_t bytes_out;
    uint64_t connections; /* that came up */
    uint64_t losses;      /* that went down */
    uint64_t timeouts;    /* ops whose deadline passed */
    uint64_t late;        /* replies that nobody waited for any more */
    uint64_t refused[NET_REFUSAL_COUNT];
};
void net_stats(const struct net *net, struct net_stats *stats_out);
void net_peer_stats(const struct net_peer *peer, struct net_stats *stats_out); /* refused: zeros */

#endif
