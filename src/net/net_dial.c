#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "net/net_internal.h"
#include "net/net_socket.h"

/* Again after 10, 20, 40 ... 500 ms, each between half and all of it, so that those who lost the same
 * peer do not come back at the same moment. */
#define DELAY_FIRST_NS ((uint64_t)10000000)
#define DELAY_MAX_NS ((uint64_t)500000000)

static void redial(struct net_timer *timer);
static void looked_up(void *ctx, int rc, const struct net_address *address, const struct err *err);

int net_dial_check(const struct net *net, const struct net_address *address, struct err *err)
{
    if (net->tls != NULL || net_address_is_loopback(address)) return 0;
    char text[NET_ADDRESS_TEXT_MAX];
    net_address_text(address, text);
    return err_set(err, SHOAL_ECONFIG,
                   "%s is not on this host, and what goes there would go in the clear; give every "
                   "task the same --secret-file, or certificates",
                   text);
}

void net_dial_again(struct net_peer *peer, const struct err *why)
{
    struct net *net = peer->net;
    ASSERT(peer->conn == NULL && peer->dialing == NULL);
    snprintf(peer->problem, sizeof peer->problem, "%s", why->text);
    const uint32_t doublings = peer->attempts < 8 ? peer->attempts : 8;
    uint64_t delay_ns = DELAY_FIRST_NS << doublings;
    if (delay_ns > DELAY_MAX_NS) delay_ns = DELAY_MAX_NS;
    peer->attempts++;
    const uint64_t dice = hash_mix64(
        net->incarnation ^ hash_mix64(((uint64_t)peer->task << 32 | net->task) + peer->attempts));
    delay_ns = delay_ns / 2 + dice % (delay_ns / 2);
    peer->redial.run = redial;
    net_loop_timer_set(net->loop, &peer->redial, net_loop_now(net->loop) + delay_ns);
}

/* Takes over the carrier. */
static int begin(struct net_peer *peer, struct net_carrier *carrier, enum net_conn_state state,
                 const struct net_address *address, struct err *err)
{
    struct net_conn *conn = NULL;
    const int rc = net_conn_create(peer->net, carrier, state, address, &conn, err);
    if (rc != 0) return rc;
    conn->is_dialer = true;
    conn->peer = peer;
    peer->dialing = conn;
    return 0;
}

static int dial_unix(struct net_peer *peer, struct err *err)
{
    struct net *net = peer->net;
    struct sockaddr_un path;
    struct net_carrier *carrier = NULL;
    int fd = -1;
    int rc = net_socket_unix_path(net->folder, net->cluster, peer->name, false, &path, err);
    if (rc == 0) rc = net_socket_dial_unix(&path, &fd, err);
    if (rc == 0) rc = net_stream_create(fd, "unix", &carrier, err);
    const struct net_address here = {.storage.ss_family = AF_UNIX, .bytes = sizeof path};
    if (rc == 0) rc = begin(peer, carrier, CONN_SECURING, &here, err);
    if (rc != 0) return rc;
    peer->dialing->is_unix = true;
    net_conn_get_ready(peer->dialing);
    return 0;
}

static int dial_tcp(struct net_peer *peer, const struct net_address *address, struct err *err)
{
    struct net *net = peer->net;
    struct net_carrier *carrier = NULL;
    int fd = -1;
    int rc = net_dial_check(net, address, err);
    if (rc == 0) rc = net_socket_dial_tcp(address, &fd, err);
    if (rc != 0) return rc;
    rc = net->tls != NULL ? net_tls_carrier_create(net->tls, fd, true, &carrier, err)
                          : net_stream_create(fd, "tcp", &carrier, err);
    return rc != 0 ? rc : begin(peer, carrier, CONN_CONNECTING, address, err);
}

static int dial(struct net_peer *peer, struct err *err)
{
    struct net *net = peer->net;
    int rc = SHOAL_ENOENT;
    if (net->carrier != NET_TCP && !peer->is_any) rc = dial_unix(peer, err);
    if (rc == 0 || net->carrier == NET_SHM || peer->address == NULL) return rc;
    struct net_address address;
    rc = net_address_parse(peer->address, &address, err);
    if (rc == 0) return dial_tcp(peer, &address, err);
    if (rc != SHOAL_ENOENT) return rc;
    return net_lookup_start(net->loop, peer->address, looked_up, peer, &peer->lookup, err);
}

static void looked_up(void *ctx, int rc, const struct net_address *address, const struct err *err)
{
    struct net_peer *peer = ctx;
    struct err why = *err;
    peer->lookup = NULL;
    if (rc == 0) rc = dial_tcp(peer, address, &why);
    if (rc != 0) net_dial_again(peer, &why);
}

void net_dial_start(struct net_peer *peer)
{
    struct err why = {0};
    if (dial(peer, &why) != 0) net_dial_again(peer, &why);
}

static void redial(struct net_timer *timer)
{
    net_dial_start((struct net_peer *)((char *)timer - offsetof(struct net_peer, redial)));
}

void net_dial_stop(struct net_peer *peer)
{
    net_loop_timer_clear(peer->net->loop, &peer->redial);
    net_lookup_cancel(peer->lookup);
    peer->lookup = NULL;
}
