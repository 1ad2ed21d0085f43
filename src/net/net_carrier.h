/* net_carrier moves the bytes of one connection: over a socket, through TLS on a socket, or through
 * shared memory announced over a socket. None of them waits. One thread: the loop's. */
#ifndef SHOAL_NET_CARRIER_H
#define SHOAL_NET_CARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "net/net.h"
#include "net/net_refusal.h"

struct net_carrier;

struct net_carrier_ops {
    const char *name; /* "tcp" */
    /* Gets ready to carry: 0 ready, SHOAL_EBUSY call again when the socket is, else an error. NULL: it
     * is ready. */
    int (*secure)(struct net_carrier *carrier, struct err *err);
    /* Bytes taken, which are the caller's again; 0: none now; negative: an error. No parts: sends
     * what is held back. */
    int64_t (*send)(struct net_carrier *carrier, const struct iovec *parts, size_t parts_count,
                    struct err *err);
    /* Bytes brought; 0: none now; SHOAL_END: the other side has closed; negative: an error. */
    int64_t (*recv)(struct net_carrier *carrier, const struct iovec *parts, size_t parts_count,
                    struct err *err);
    /* Whether it holds bytes that send took and has not sent. NULL: never. */
    bool (*holds)(const struct net_carrier *carrier);
    /* Whether it holds bytes that it received and recv would bring without asking the socket.
     * NULL: never. */
    bool (*has_input)(struct net_carrier *carrier);
    void (*close)(struct net_carrier *carrier); /* frees it too */

    /* Shared memory only, else NULL; see struct net_poller. wants_out: the caller has more to send. */
    bool (*is_ready)(struct net_carrier *carrier, bool wants_out);
    bool (*arm)(struct net_carrier *carrier, bool wants_out);
    void (*disarm)(struct net_carrier *carrier);
    /* Something happened to the socket. */
    void (*notice)(struct net_carrier *carrier);
};

struct net_carrier {
    const struct net_carrier_ops *ops;
    int fd;                   /* the socket; owned */
    enum net_refusal refusal; /* what kind of refusal the last error was; NET_OK: none */
};

/* ---- sockets: TCP, and Unix sockets before they announce memory -------------------------------- */

/* Takes the descriptor over; on failure too. */
int net_stream_create(int fd, const char *name, struct net_carrier **carrier_out, struct err *err);

#define NET_STREAM_FDS_MAX 2
/* Unix sockets: these go with the next bytes that are sent. Borrowed until then. */
void net_stream_attach(struct net_carrier *carrier, const int *fds, size_t fds_count);
/* The descriptors that came with bytes received so far, now the caller's; how many. */
size_t net_stream_detach(struct net_carrier *carrier, int fds_out[NET_STREAM_FDS_MAX]);

/* ---- TLS -------------------------------------------------------------------------------------- */

struct net_tls; /* what all connections of a task share: keys and certificates */

/* *tls_out is NULL when neither a secret nor certificates are given. */
int net_tls_create(const struct net_secure *secure, struct net_tls **tls_out, struct err *err);
void net_tls_destroy(struct net_tls *tls); /* NULL is a no-op */

/* Takes the descriptor over; on failure too. */
int net_tls_carrier_create(struct net_tls *tls, int fd, bool is_dialer,
                           struct net_carrier **carrier_out, struct err *err);

/* HMAC-SHA256 under a key derived from the secret; zeros without a secret. tls may be NULL. */
void net_tls_proof(const struct net_tls *tls, const void *bytes, size_t count,
                   uint8_t proof_out[NET_PROOF_BYTES]);

/* Cryptographic random bytes. */
int net_tls_random(void *bytes_out, size_t count, struct err *err);

/* ---- shared memory ---------------------------------------------------------------------------- */

/* Makes the memory of a connection: a sealed descriptor to pass on. */
int net_shm_make(uint64_t ring_bytes, int *memory_fd_out, struct err *err);

/* Goes on from a Unix socket. What the other side made is checked. On success it owns `stream`,
 * memory_fd and wake_fd (the other loop's eventfd); on failure they stay the caller's. */
int net_shm_create(struct net_carrier *stream, int memory_fd, int wake_fd, uint64_t ring_bytes,
                   bool is_dialer, struct net_carrier **carrier_out, struct err *err);

#endif
