/* net_internal is what the files of net share: a net has peers and connections; a connection has a
 * carrier, a reader and a queue. All of it belongs to the loop's thread.
 *
 *     net_dial.c    peers that we call: when, where, and when again
 *     net_accept.c  those who call us, before we know who they are
 *     net_greet.c   CHALLENGE, HELLO, WELCOME: who is who
 *     net_conn.c    bytes in, bytes out, and the end of a connection
 *     net_op.c      frames on their way, replies, deadlines
 *     net.c         open, close, names and counters
 *
 * States of a connection; only net_conn_set_state changes them:
 *
 *     CONNECTING --> SECURING --> GREETING --> UP
 *          \             \           \  \       \
 *           \             \           \  LEAVING \      (a refusal is being sent)
 *            +-------------+-----------+----+-----+--> CLOSED */
#ifndef SHOAL_NET_INTERNAL_H
#define SHOAL_NET_INTERNAL_H

#include <stdatomic.h>
#include <sys/un.h>

#include "net/net.h"
#include "net/net_address.h"
#include "net/net_carrier.h"
#include "net/net_frame.h"

enum net_conn_state {
    CONN_CONNECTING,
    CONN_SECURING,
    CONN_GREETING,
    CONN_UP,
    CONN_LEAVING,
    CONN_CLOSED
};

/* Written by the loop's thread alone, read by any: plain adds, no locked instruction. */
struct net_counters {
    _Atomic uint64_t frames_in;
    _Atomic uint64_t frames_out;
    _Atomic uint64_t bytes_in;
    _Atomic uint64_t bytes_out;
    _Atomic uint64_t connections;
    _Atomic uint64_t losses;
    _Atomic uint64_t timeouts;
    _Atomic uint64_t late;
};

static inline void net_count(_Atomic uint64_t *counter, uint64_t more)
{
    const uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + more, memory_order_relaxed);
}

#define NET_WAITING_CHAINS 64u

struct net_conn {
    struct net *net;
    struct net_conn *before; /* all connections of the net */
    struct net_conn *after;
    enum net_conn_state state;
    bool is_dialer;
    bool is_unix;
    bool is_reading; /* within the reader: must not be destroyed now */
    struct net_peer *peer;
    uint64_t number; /* 0 before it is up */
    struct net_address address;

    struct net_carrier *carrier; /* NULL when closed */
    struct net_reader *reader;
    struct net_watch watch;
    struct net_poller poller;
    struct net_later flush_later;
    struct net_later read_later;
    struct net_later end_later; /* drops the connection, or frees it when it is closed */
    struct net_timer timer;     /* the greeting's end; then a frame that stops half-way */
    struct err end;             /* why end_later drops it */

    struct net_op *queue_first;
    struct net_op *queue_last;
    uint64_t queued_bytes;
    bool is_blocked; /* the carrier takes no more now */
    bool wants_writable;
    struct net_op *waiting[NET_WAITING_CHAINS]; /* for replies, by sequence */
    struct net_op *receiving;                   /* the one whose reply's body is coming in */

    /* greeting */
    uint8_t nonce[NET_NONCE_BYTES];
    struct net_op call;     /* the dialer's first frame */
    bool is_called;         /* the listener has it */
    struct net_op greeting; /* what follows it */
    uint8_t greeting_meta[NET_HELLO_BYTES_MAX];
    int memory_fd; /* shared memory that WELCOME passes on; -1: none */
    int wake_fd;   /* the dialer's eventfd; -1: none */
    uint64_t ring_bytes;
    bool is_stranger; /* in the list of those who have not said who they are */
    struct net_conn *stranger_before;
    struct net_conn *stranger_after;
};

struct net_peer {
    struct net *net;
    uint32_t task;
    char name[NET_NAME_MAX];
    char *address; /* NULL: none */
    bool is_any;   /* whoever answers */
    bool is_guest; /* a place for one; taken while conn is not NULL */
    bool dials;    /* we dial it */
    void *ctx;

    struct net_conn *conn;    /* up, else NULL */
    struct net_conn *dialing; /* we dial, or a guest greets; not up yet, else NULL */
    struct net_lookup *lookup;
    struct net_timer redial;
    uint64_t connection; /* the last number */
    uint64_t incarnation;
    uint64_t since_ns;
    uint32_t attempts;
    char problem[256];
    struct net_counters counters;
};

struct net_listener {
    struct net_watch watch;
    struct net *net;
    bool is_unix;
};

struct net {
    struct net_loop *loop;
    struct net_tls *tls; /* NULL: in the clear */
    struct net_events events;
    void *ctx;
    uint32_t task;
    char name[NET_NAME_MAX];
    uint64_t cluster;
    uint64_t incarnation;
    enum net_carrier_kind carrier;
    char *guest_job;
    char *folder;
    uint64_t queue_bytes_max;
    uint64_t ring_bytes;
    uint64_t hello_timeout_ns;
    uint64_t stall_timeout_ns;

    struct net_listener listeners[2]; /* TCP, Unix; descriptor -1: none */
    uint16_t port;
    int spare_fd; /* given up for a moment when descriptors run out */
    struct sockaddr_un unix_address;

    struct net_peer *peers;
    size_t peers_count; /* guests' places included */
    struct net_conn *conns;
    struct net_conn *strangers_first; /* oldest first */
    struct net_conn *strangers_last;
    uint32_t strangers_count;
    uint64_t sequence;    /* of the last request */
    uint64_t connections; /* the last number */
    bool is_closing;

    struct net_counters counters;
    _Atomic uint64_t refused[NET_REFUSAL_COUNT];
};

/* ---- net_conn.c ------------------------------------------------------------------------------- */

/* Takes the carrier over, on failure too. In state CONNECTING or SECURING. */
int net_conn_create(struct net *net, struct net_carrier *carrier, enum net_conn_state state,
                    const struct net_address *address, struct net_conn **conn_out, struct err *err);
/* CONNECTING and SECURING go on, until the carrier is ready and the greeting starts. */
void net_conn_get_ready(struct net_conn *conn);
void net_conn_set_state(struct net_conn *conn, enum net_conn_state state);
/* Sends what is queued at the end of this turn. */
void net_conn_flush_later(struct net_conn *conn);
/* The greeting is done: events.up. */
void net_conn_up(struct net_conn *conn);
/* Counts it, tells the other side if it is greeting, and closes. */
void net_conn_refuse(struct net_conn *conn, enum net_refusal refusal, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Completes all ops and, if it was up, calls events.down. Memory is freed at the end of the turn. Not
 * from within the reader. */
void net_conn_close(struct net_conn *conn, const struct err *why);
/* The same, at the end of this turn: from anywhere. */
void net_conn_close_later(struct net_conn *conn, int code, const char *why);
void net_conn_free(struct net_conn *conn); /* closed already */

/* ---- net_op.c --------------------------------------------------------------------------------- */

/* Appends to the queue without looking at bounds. */
void net_op_enqueue(struct net_conn *conn, struct net_op *op, uint16_t flags, uint64_t sequence);
/* Fills in what is to be sent next, at most parts_max; how many. */
size_t net_op_gather(const struct net_conn *conn, struct iovec *parts_out, size_t parts_max);
/* `bytes` of it are away: completes what is done. */
void net_op_advance(struct net_conn *conn, uint64_t bytes);
struct net_op *net_op_find(const struct net_conn *conn, uint64_t sequence);
void net_op_complete(struct net_op *op, int rc, const struct net_frame *reply);
/* All that is queued or waiting, in order. */
void net_op_fail_all(struct net_conn *conn, int rc);

/* ---- net_greet.c ------------------------------------------------------------------------------ */

/* The carrier is ready: the listener speaks first. */
void net_greet_start(struct net_conn *conn);
enum net_refusal net_greet_frame(struct net_conn *conn, const struct net_header *header,
                                 const uint8_t *meta);
/* LEAVING: sends the reason, then closes; closes at once where that cannot be. */
void net_greet_refuse(struct net_conn *conn, enum net_refusal refusal, const char *text);

/* ---- net_accept.c ----------------------------------------------------------------------------- */

int net_accept_start(struct net *net, const char *listen, struct err *err);
void net_accept_stop(struct net *net);
void net_accept_known(struct net_conn *conn); /* it is a stranger no more; no-op if it was none */

/* ---- net_dial.c ------------------------------------------------------------------------------- */

void net_dial_start(struct net_peer *peer);
void net_dial_stop(struct net_peer *peer);
/* The connection that was dialed is gone, up or not: again, after a while. */
void net_dial_again(struct net_peer *peer, const struct err *why);
int net_dial_check(const struct net *net, const struct net_address *address, struct err *err);

/* ---- net.c ------------------------------------------------------------------------------------ */

void net_refused(struct net *net, enum net_refusal refusal, const struct net_address *address,
                 const char *words);

#endif
