/* Those who call us are strangers until their greeting is done. There may be many, and most may be up
 * to no good: they have little time, little room, and beyond a bound the one that has been silent
 * longest makes place, so that an honest task, which says who it is at once, is served in the midst
 * of a flood. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "net/net_internal.h"
#include "net/net_socket.h"

#define ACCEPTS_PER_TURN 64

/* ---- the list of strangers -------------------------------------------------------------------- */

static void add_stranger(struct net_conn *conn)
{
    struct net *net = conn->net;
    conn->is_stranger = true;
    conn->stranger_before = net->strangers_last;
    if (net->strangers_last != NULL) {
        net->strangers_last->stranger_after = conn;
    } else {
        net->strangers_first = conn;
    }
    net->strangers_last = conn;
    net->strangers_count++;
}

void net_accept_known(struct net_conn *conn)
{
    if (!conn->is_stranger) return;
    struct net *net = conn->net;
    conn->is_stranger = false;
    if (conn->stranger_before != NULL) {
        conn->stranger_before->stranger_after = conn->stranger_after;
    } else {
        net->strangers_first = conn->stranger_after;
    }
    if (conn->stranger_after != NULL) {
        conn->stranger_after->stranger_before = conn->stranger_before;
    } else {
        net->strangers_last = conn->stranger_before;
    }
    net->strangers_count--;
}

/* Room for one more from this address: the oldest goes, of the same address if they are many. */
static void make_place(struct net *net, const struct net_address *address)
{
    struct net_conn *oldest_there = NULL;
    uint32_t there = 0;
    for (struct net_conn *conn = net->strangers_first; conn != NULL; conn = conn->stranger_after) {
        if (!net_address_same_host(&conn->address, address)) continue;
        if (oldest_there == NULL) oldest_there = conn;
        there++;
    }
    struct net_conn *goes = NULL;
    if (there >= NET_STRANGERS_PER_ADDRESS_MAX) {
        goes = oldest_there;
    } else if (net->strangers_count >= NET_STRANGERS_MAX) {
        goes = net->strangers_first;
    }
    if (goes == NULL) return;
    struct err why = {0};
    err_set(&why, SHOAL_ELIMIT, "%s", net_refusal_words(NET_REFUSED_TOO_MANY));
    net_refused(net, NET_REFUSED_TOO_MANY, &goes->address, why.text);
    net_conn_close(goes, &why);
}

/* ---- accepting -------------------------------------------------------------------------------- */

static void take_in(struct net_listener *listener, int fd, const struct net_address *address)
{
    struct net *net = listener->net;
    if (listener->is_unix && !net_socket_is_same_user(fd)) {
        net_refused(net, NET_REFUSED_CREDENTIALS, address,
                    net_refusal_words(NET_REFUSED_CREDENTIALS));
        close(fd);
        return;
    }
    make_place(net, address);
    struct net_carrier *carrier = NULL;
    struct net_conn *conn = NULL;
    if (!listener->is_unix) net_socket_tune(fd, address);
    int rc = net->tls != NULL && !listener->is_unix
                 ? net_tls_carrier_create(net->tls, fd, false, &carrier, NULL)
                 : net_stream_create(fd, listener->is_unix ? "unix" : "tcp", &carrier, NULL);
    if (rc == 0) rc = net_conn_create(net, carrier, CONN_SECURING, address, &conn, NULL);
    if (rc != 0) {
        net_refused(net, NET_REFUSED_MEMORY, address, net_refusal_words(NET_REFUSED_MEMORY));
        return;
    }
    conn->is_unix = listener->is_unix;
    add_stranger(conn);
    net_conn_get_ready(conn);
}

/* Out of descriptors: the one kept for this takes the caller in and shows it out, or it would stay in
 * the queue and wake us for ever. Whether that helped. */
static bool turn_away(struct net_listener *listener)
{
    struct net *net = listener->net;
    if (net->spare_fd < 0) return false;
    close(net->spare_fd);
    const int fd = accept4(listener->watch.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    net->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    net_refused(net, NET_REFUSED_MEMORY, &(struct net_address){0},
                net_refusal_words(NET_REFUSED_MEMORY));
    return fd >= 0;
}

static void on_call(struct net_watch *watch, uint32_t events)
{
    struct net_listener *listener = (struct net_listener *)watch;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct net_address address = {.bytes = sizeof address.storage};
        const int fd = accept4(watch->fd, (struct sockaddr *)&address.storage, &address.bytes,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take_in(listener, fd, &address);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!turn_away(listener)) return;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } /* Else that one is gone already: the next. */
    }
}

static int listen_at(struct net_listener *listener, int fd, bool is_unix, struct err *err)
{
    listener->is_unix = is_unix;
    listener->watch = (struct net_watch){.fd = fd, .run = on_call};
    return net_loop_watch(listener->net->loop, &listener->watch, EPOLLIN, err);
}

int net_accept_start(struct net *net, const char *listen, struct err *err)
{
    int fd = -1;
    for (int i = 0; i < 2; i++) {
        net->listeners[i].net = net;
        net->listeners[i].watch.fd = -1;
    }
    net->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (net->spare_fd < 0) return err_set_errno(err, errno, "open /dev/null");
    /* The Unix socket first: who finds the TCP port open finds it too. */
    if (net->carrier != NET_TCP) {
        int rc = net_socket_unix_path(net->folder, net->cluster, net->name, true,
                                      &net->unix_address, err);
        if (rc == 0) rc = net_socket_listen_unix(&net->unix_address, &fd, err);
        if (rc == 0) rc = listen_at(&net->listeners[1], fd, true, err);
        if (rc != 0) return rc;
    }
    if (net->carrier == NET_SHM || listen == NULL) return 0;
    struct net_address address;
    int rc = net_address_parse(listen, &address, err);
    if (rc == SHOAL_ENOENT) rc = net_address_look_up(listen, &address, err);
    if (rc == 0) rc = net_socket_listen_tcp(&address, &fd, &net->port, err);
    if (rc == 0) rc = listen_at(&net->listeners[0], fd, false, err);
    return rc;
}

void net_accept_stop(struct net *net)
{
    for (int i = 0; i < 2; i++) {
        struct net_listener *listener = &net->listeners[i];
        if (listener->net == NULL || listener->watch.fd < 0) continue;
        net_loop_unwatch(net->loop, &listener->watch);
        /* Before it is closed: while it answers, nobody else takes the name. */
        if (listener->is_unix) (void)unlink(net->unix_address.sun_path);
        close(listener->watch.fd);
    }
    if (net->spare_fd >= 0) close(net->spare_fd);
}
