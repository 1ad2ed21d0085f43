/* net_address reads "host:port" and "[v6]:port", says whether an address stays on this host, and
 * looks names up on a thread of its own, since the system's resolver may take seconds. */
#ifndef SHOAL_NET_ADDRESS_H
#define SHOAL_NET_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/err.h"
#include "net/net_loop.h"

struct net_address {
    struct sockaddr_storage storage;
    socklen_t bytes; /* 0: none */
};

/* An address without asking anyone: numbers, or "localhost" (127.0.0.1). SHOAL_ENOENT: well-formed,
 * but the host is a name to look up. SHOAL_EINVAL: malformed. */
int net_address_parse(const char *text, struct net_address *address_out, struct err *err);

/* Asks the system's resolver and waits for it. */
int net_address_look_up(const char *text, struct net_address *address_out, struct err *err);

bool net_address_is_loopback(const struct net_address *address);
/* "127.0.0.1:2222"; "[::1]:2222"; "unix" */
#define NET_ADDRESS_TEXT_MAX 64
void net_address_text(const struct net_address *address, char text_out[NET_ADDRESS_TEXT_MAX]);
/* Whether both are the same host, whatever the port. */
bool net_address_same_host(const struct net_address *a, const struct net_address *b);

/* A look-up under way. */
struct net_lookup;
typedef void net_lookup_cb(void *ctx, int rc, const struct net_address *address,
                           const struct err *err);
/* cb runs once, on the loop's thread, unless cancelled before. */
int net_lookup_start(struct net_loop *loop, const char *text, net_lookup_cb *cb, void *ctx,
                     struct net_lookup **lookup_out, struct err *err);
/* On the loop's thread, before cb has run. NULL is a no-op. */
void net_lookup_cancel(struct net_lookup *lookup);

#endif
