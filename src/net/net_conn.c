#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/net_internal.h"
#include "net/net_socket.h"

/* Bytes that one connection may move in one turn before others have theirs. */
#define READ_BUDGET ((int64_t)2 << 20)
#define WRITE_BUDGET ((int64_t)4 << 20)
#define PARTS_MAX 64

#define CONTAINER(pointer, member)                                                                 \
    ((struct net_conn *)((char *)(pointer)-offsetof(struct net_conn, member)))

static const struct net_reader_limits greeting_limits = {NET_HELLO_BYTES_MAX, 0};
static const struct net_reader_limits full_limits = {NET_META_BYTES_MAX, NET_BODY_BYTES_MAX};

void net_conn_set_state(struct net_conn *conn, enum net_conn_state state)
{
    static const uint8_t allowed[] = {
        [CONN_CONNECTING] = 1 << CONN_SECURING | 1 << CONN_CLOSED,
        [CONN_SECURING] = 1 << CONN_GREETING | 1 << CONN_CLOSED,
        [CONN_GREETING] = 1 << CONN_UP | 1 << CONN_LEAVING | 1 << CONN_CLOSED,
        [CONN_UP] = 1 << CONN_CLOSED,
        [CONN_LEAVING] = 1 << CONN_CLOSED,
        [CONN_CLOSED] = 0,
    };
    ASSERT((allowed[conn->state] & 1 << state) != 0);
    conn->state = state;
}

/* ---- what the reader tells -------------------------------------------------------------------- */

static struct net_frame make_frame(const struct net_conn *conn, const struct net_header *header,
                                   const uint8_t *meta)
{
    return (struct net_frame){.peer = conn->peer,
                              .connection = conn->number,
                              .type = header->type,
                              .is_request = (header->flags & NET_FLAG_REQUEST) != 0,
                              .status = header->status,
                              .epoch = header->epoch,
                              .sequence = header->sequence,
                              .meta = meta,
                              .meta_bytes = header->meta_bytes,
                              .body_bytes = header->body_bytes};
}

static bool is_reply(const struct net_header *header)
{
    return (header->flags & NET_FLAG_REPLY) != 0;
}

/* What holds for every frame of a connection that is up. */
static enum net_refusal check_frame(const struct net_conn *conn, const struct net_header *header)
{
    if (header->type >= NET_TYPE_OWN) return NET_REFUSED_FRAME;
    return header->sender == conn->peer->task ? NET_OK : NET_REFUSED_SENDER;
}

static bool place_fits(const struct net_place *place, uint64_t body_bytes)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < place->parts_count; i++) bytes += place->parts[i].iov_len;
    return bytes == body_bytes;
}

static enum net_refusal on_head(void *ctx, const struct net_header *header, const uint8_t *meta,
                                struct net_place *place_out)
{
    struct net_conn *conn = ctx;
    ASSERT(conn->state == CONN_UP); /* Before, no body is allowed. */
    const enum net_refusal refusal = check_frame(conn, header);
    if (refusal != NET_OK) return refusal;
    const struct net_frame frame = make_frame(conn, header, meta);
    struct net_place place = {0};
    if (!is_reply(header)) {
        conn->net->events.head(conn->net->ctx, &frame, &place);
        if (place.parts_count > 0 && place_fits(&place, header->body_bytes)) *place_out = place;
        return NET_OK;
    }
    struct net_op *op = net_op_find(conn, header->sequence);
    conn->receiving = op;
    if (op == NULL) return NET_OK; /* Too late: thrown away, counted when it is whole. */
    op->state.rc = op->head == NULL ? SHOAL_EPROTO : op->head(op, &frame, &place);
    if (op->state.rc == 0 && !place_fits(&place, header->body_bytes)) op->state.rc = SHOAL_EPROTO;
    if (op->state.rc == 0) *place_out = place;
    return NET_OK;
}

static void count_in(struct net_conn *conn, const struct net_header *header)
{
    struct net_counters *const counters[] = {&conn->net->counters,
                                             conn->peer == NULL ? NULL : &conn->peer->counters};
    for (int i = 0; i < 2 && counters[i] != NULL; i++) {
        net_count(&counters[i]->frames_in, 1);
        net_count(&counters[i]->bytes_in,
                  NET_HEADER_BYTES + header->meta_bytes + header->body_bytes);
    }
}

static enum net_refusal on_frame(void *ctx, const struct net_header *header, const uint8_t *meta,
                                 const struct net_place *place)
{
    struct net_conn *conn = ctx;
    count_in(conn, header);
    if (conn->state != CONN_UP) return net_greet_frame(conn, header, meta);
    const enum net_refusal refusal = check_frame(conn, header);
    if (refusal != NET_OK) return refusal;
    struct net_frame frame = make_frame(conn, header, meta);
    frame.place = *place;
    if (!is_reply(header)) {
        conn->net->events.frame(conn->net->ctx, &frame);
        return NET_OK;
    }
    struct net_op *op =
        header->body_bytes > 0 ? conn->receiving : net_op_find(conn, header->sequence);
    conn->receiving = NULL;
    if (op == NULL) {
        net_count(&conn->net->counters.late, 1);
        net_count(&conn->peer->counters.late, 1);
        return NET_OK;
    }
    net_op_complete(op, op->state.rc, &frame);
    return NET_OK;
}

static void on_abandon(void *ctx, const struct net_header *header, const struct net_place *place)
{
    struct net_conn *conn = ctx;
    if (is_reply(header) || conn->net->events.abandon == NULL) return; /* The op will be told. */
    struct net_frame frame = make_frame(conn, header, NULL);
    frame.meta_bytes = 0;
    frame.place = *place;
    conn->net->events.abandon(conn->net->ctx, &frame);
}

static const struct net_reader_events reader_events = {on_head, on_frame, on_abandon};

/* ---- bytes ------------------------------------------------------------------------------------ */

/* Asks the kernel for what is of use now. */
static void update_watch(struct net_conn *conn)
{
    uint32_t events = conn->state == CONN_LEAVING ? 0 : EPOLLIN;
    const struct net_carrier_ops *ops = conn->carrier->ops;
    const bool holds = ops->holds != NULL && ops->holds(conn->carrier);
    const bool wants_out = conn->state == CONN_CONNECTING || conn->is_blocked || holds;
    if (wants_out && ops->is_ready == NULL) events |= EPOLLOUT;
    struct err err = {0};
    if (net_loop_watch(conn->net->loop, &conn->watch, events, &err) != 0) {
        net_conn_close_later(conn, err.code, err.text);
    }
}

static void flush(struct net_conn *conn)
{
    struct iovec parts[PARTS_MAX];
    struct err err = {0};
    int64_t budget = WRITE_BUDGET;
    conn->is_blocked = false;
    while (budget > 0) {
        const size_t count = net_op_gather(conn, parts, PARTS_MAX);
        if (count == 0) break;
        int64_t asked = 0;
        for (size_t i = 0; i < count; i++) asked += (int64_t)parts[i].iov_len;
        const int64_t sent = conn->carrier->ops->send(conn->carrier, parts, count, &err);
        if (sent < 0) {
            net_conn_close(conn, &err);
            return;
        }
        if (sent > 0) net_op_advance(conn, (uint64_t)sent);
        if (conn->state == CONN_CLOSED) return;
        conn->is_blocked = sent < asked;
        if (conn->is_blocked) break;
        budget -= sent;
    }
    if (conn->queue_first != NULL && !conn->is_blocked) net_conn_flush_later(conn);
    update_watch(conn);
    if (conn->wants_writable && conn->queued_bytes <= conn->net->queue_bytes_max / 2) {
        conn->wants_writable = false;
        if (conn->net->events.writable != NULL) {
            conn->net->events.writable(conn->net->ctx, conn->peer);
        }
    }
}

static void run_flush(struct net_later *later)
{
    struct net_conn *conn = CONTAINER(later, flush_later);
    if (conn->state >= CONN_GREETING && conn->state != CONN_CLOSED) flush(conn);
}

void net_conn_flush_later(struct net_conn *conn)
{
    net_loop_later(conn->net->loop, &conn->flush_later);
}

/* A frame that has begun must go on: the timer ends it when it does not. */
static void watch_progress(struct net_conn *conn)
{
    if (conn->state != CONN_UP) return;
    struct net_loop *loop = conn->net->loop;
    if (net_reader_is_idle(conn->reader)) {
        net_loop_timer_clear(loop, &conn->timer);
    } else {
        net_loop_timer_set(loop, &conn->timer, net_loop_now(loop) + conn->net->stall_timeout_ns);
    }
}

static void read_some(struct net_conn *conn)
{
    struct iovec parts[NET_READER_PARTS_MAX];
    struct err err = {0};
    int64_t budget = READ_BUDGET;
    while (budget > 0 && conn->state != CONN_CLOSED && conn->state != CONN_LEAVING) {
        const struct net_carrier_ops *ops = conn->carrier->ops;
        const size_t count = net_reader_want(conn->reader, parts);
        int64_t asked = 0;
        for (size_t i = 0; i < count; i++) asked += (int64_t)parts[i].iov_len;
        const int64_t got = ops->recv(conn->carrier, parts, count, &err);
        if (got < 0) {
            if (conn->carrier->refusal != NET_OK) {
                net_refused(conn->net, conn->carrier->refusal, &conn->address, err.text);
            }
            net_conn_close(conn, &err);
            return;
        }
        if (got == 0) break;
        budget -= got;
        conn->is_reading = true;
        const enum net_refusal refusal = net_reader_took(conn->reader, (size_t)got);
        conn->is_reading = false;
        if (refusal != NET_OK) {
            net_conn_refuse(conn, refusal, "%s", net_refusal_words(refusal));
            return;
        }
        if (got < asked && ops->is_ready == NULL) break; /* The socket has no more, or TLS has. */
    }
    if (conn->state == CONN_CLOSED) return;
    watch_progress(conn);
    const struct net_carrier_ops *ops = conn->carrier->ops;
    if (budget < READ_BUDGET && ops->has_input != NULL && ops->has_input(conn->carrier)) {
        net_loop_later(conn->net->loop, &conn->read_later);
    }
}

static void run_read(struct net_later *later)
{
    struct net_conn *conn = CONTAINER(later, read_later);
    if (conn->state == CONN_GREETING || conn->state == CONN_UP) read_some(conn);
}

void net_conn_get_ready(struct net_conn *conn)
{
    struct err err = {0};
    if (conn->state == CONN_CONNECTING) {
        if (net_socket_connected(conn->carrier->fd, &err) != 0) {
            net_conn_close(conn, &err);
            return;
        }
        net_conn_set_state(conn, CONN_SECURING);
    }
    const struct net_carrier_ops *ops = conn->carrier->ops;
    const int rc = ops->secure == NULL ? 0 : ops->secure(conn->carrier, &err);
    if (rc == SHOAL_EBUSY) {
        update_watch(conn);
        return;
    }
    if (rc != 0) {
        if (!conn->is_dialer && conn->carrier->refusal != NET_OK) {
            net_refused(conn->net, conn->carrier->refusal, &conn->address, err.text);
        }
        net_conn_close(conn, &err);
        return;
    }
    net_conn_set_state(conn, CONN_GREETING);
    net_greet_start(conn);
    update_watch(conn);
    read_some(conn);
}

static void on_event(struct net_watch *watch, uint32_t events)
{
    struct net_conn *conn = CONTAINER(watch, watch);
    if (conn->state <= CONN_SECURING) {
        net_conn_get_ready(conn);
        return;
    }
    if (conn->carrier->ops->notice != NULL) {
        conn->carrier->ops->notice(conn->carrier);
        read_some(conn);
        return;
    }
    if (conn->state == CONN_LEAVING && (events & (EPOLLERR | EPOLLHUP)) != 0) {
        net_conn_close(conn, &conn->end);
        return;
    }
    if ((events & EPOLLOUT) != 0) {
        /* TLS may hold bytes though nothing is queued. */
        struct err err = {0};
        if (conn->carrier->ops->send(conn->carrier, NULL, 0, &err) < 0) {
            net_conn_close(conn, &err);
            return;
        }
        flush(conn);
        if (conn->state == CONN_CLOSED) return;
    }
    if ((events & ~(uint32_t)EPOLLOUT) != 0 && conn->state != CONN_LEAVING) read_some(conn);
}

/* ---- shared memory ---------------------------------------------------------------------------- */

static bool on_poll(struct net_poller *poller)
{
    struct net_conn *conn = CONTAINER(poller, poller);
    struct net_carrier *carrier = conn->carrier;
    if (!carrier->ops->is_ready(carrier, conn->is_blocked)) return false;
    if (conn->is_blocked) net_conn_flush_later(conn);
    read_some(conn);
    return true;
}

static bool on_arm(struct net_poller *poller)
{
    struct net_conn *conn = CONTAINER(poller, poller);
    return conn->carrier->ops->arm(conn->carrier, conn->is_blocked);
}

static void on_disarm(struct net_poller *poller)
{
    struct net_conn *conn = CONTAINER(poller, poller);
    conn->carrier->ops->disarm(conn->carrier);
}

/* ---- a connection's life ---------------------------------------------------------------------- */

static void on_time(struct net_timer *timer)
{
    struct net_conn *conn = CONTAINER(timer, timer);
    struct err why = {0};
    if (conn->state == CONN_LEAVING) {
        net_conn_close(conn, &conn->end);
    } else if (conn->is_dialer && conn->state != CONN_UP) {
        err_set(&why, SHOAL_ETIME, "no greeting within %llu ms",
                (unsigned long long)(conn->net->hello_timeout_ns / 1000000));
        net_conn_close(conn, &why);
    } else {
        const enum net_refusal refusal =
            conn->state == CONN_UP ? NET_REFUSED_HALF_FRAME : NET_REFUSED_SILENT;
        net_refused(conn->net, refusal, &conn->address, net_refusal_words(refusal));
        err_set(&why, SHOAL_ETIME, "%s", net_refusal_words(refusal));
        net_conn_close(conn, &why);
    }
}

/* Drops the connection as net_conn_close_later asked, or frees what is closed. */
static void run_end(struct net_later *later)
{
    struct net_conn *conn = CONTAINER(later, end_later);
    if (conn->state == CONN_CLOSED) {
        net_conn_free(conn);
    } else {
        net_conn_close(conn, &conn->end);
    }
}

int net_conn_create(struct net *net, struct net_carrier *carrier, enum net_conn_state state,
                    const struct net_address *address, struct net_conn **conn_out, struct err *err)
{
    ASSERT(state == CONN_CONNECTING || state == CONN_SECURING);
    struct net_conn *conn = mem_alloc(MEM_NET, sizeof *conn);
    int rc = conn == NULL ? err_set(err, SHOAL_ENOMEM, "no memory for a connection") : 0;
    if (rc == 0) rc = net_reader_create(&reader_events, conn, &greeting_limits, &conn->reader, err);
    if (rc == 0) {
        conn->watch = (struct net_watch){.fd = carrier->fd, .run = on_event};
        rc = net_loop_watch(net->loop, &conn->watch, state == CONN_CONNECTING ? EPOLLOUT : EPOLLIN,
                            err);
    }
    if (rc != 0) {
        if (conn != NULL) net_reader_destroy(conn->reader);
        mem_free(conn);
        carrier->ops->close(carrier);
        return rc;
    }
    conn->net = net;
    conn->carrier = carrier;
    conn->state = state;
    conn->address = *address;
    conn->memory_fd = conn->wake_fd = -1;
    conn->poller = (struct net_poller){.poll = on_poll, .arm = on_arm, .disarm = on_disarm};
    conn->flush_later.run = run_flush;
    conn->read_later.run = run_read;
    conn->end_later.run = run_end;
    conn->timer.run = on_time;
    net_loop_timer_set(net->loop, &conn->timer, net_loop_now(net->loop) + net->hello_timeout_ns);
    conn->after = net->conns;
    if (net->conns != NULL) net->conns->before = conn;
    net->conns = conn;
    *conn_out = conn;
    return 0;
}

void net_conn_up(struct net_conn *conn)
{
    struct net *net = conn->net;
    struct net_peer *peer = conn->peer;
    ASSERT(peer != NULL);
    if (peer->conn != NULL) {
        struct err why = {0};
        err_set(&why, SHOAL_EPEER, "%s has connected anew", peer->name);
        net_conn_close(peer->conn, &why);
    }
    net_conn_set_state(conn, CONN_UP);
    net_accept_known(conn);
    net_loop_timer_clear(net->loop, &conn->timer);
    net_reader_limit(conn->reader, &full_limits);
    if (conn->carrier->ops->is_ready != NULL) net_loop_add_poller(net->loop, &conn->poller);
    conn->number = ++net->connections;
    if (peer->dialing == conn) peer->dialing = NULL;
    peer->conn = conn;
    peer->connection = conn->number;
    peer->since_ns = net_loop_now(net->loop);
    peer->attempts = 0;
    peer->problem[0] = '\0';
    net_count(&net->counters.connections, 1);
    net_count(&peer->counters.connections, 1);
    log_line(LOG_DEBUG, "net", "up peer=%s carrier=%s connection=%llu", peer->name,
             conn->carrier->ops->name, (unsigned long long)conn->number);
    if (net->events.up != NULL) net->events.up(net->ctx, peer, conn->number);
}

void net_conn_refuse(struct net_conn *conn, enum net_refusal refusal, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* What a dialer finds wrong with a listener is its own trouble, and told as the peer's. */
    if (!conn->is_dialer || conn->state == CONN_UP) {
        net_refused(conn->net, refusal, &conn->address, text);
    }
    err_set(&conn->end, SHOAL_EPROTO, "%s", text);
    if (conn->state == CONN_GREETING && !conn->is_dialer) {
        net_greet_refuse(conn, refusal, text);
    } else {
        net_conn_close(conn, &conn->end);
    }
}

void net_conn_close_later(struct net_conn *conn, int code, const char *why)
{
    if (conn->state == CONN_CLOSED || conn->end_later.is_waiting) return;
    err_set(&conn->end, code, "%s", why);
    net_loop_later(conn->net->loop, &conn->end_later);
}

/* Its peer knows nothing of the connection any more. The peer, NULL when it was not the current one. */
static struct net_peer *leave_peer(struct net_conn *conn)
{
    struct net_peer *peer = conn->peer;
    if (peer == NULL || (peer->conn != conn && peer->dialing != conn)) return NULL;
    if (peer->conn == conn) peer->conn = NULL;
    if (peer->dialing == conn) peer->dialing = NULL;
    return peer;
}

static void tell_loss(const struct net_conn *conn, struct net_peer *peer, const struct err *why)
{
    struct net *net = conn->net;
    peer->since_ns = net_loop_now(net->loop);
    net_count(&net->counters.losses, 1);
    net_count(&peer->counters.losses, 1);
    log_line(LOG_DEBUG, "net", "down peer=%s connection=%llu: %s", peer->name,
             (unsigned long long)conn->number, why->text);
    if (!net->is_closing && net->events.down != NULL) {
        net->events.down(net->ctx, peer, conn->number, why);
    }
}

void net_conn_close(struct net_conn *conn, const struct err *why)
{
    if (conn->state == CONN_CLOSED) return;
    ASSERT(!conn->is_reading);
    struct net *net = conn->net;
    const struct err reason = *why; /* It may be the connection's own. */
    const bool was_up = conn->state == CONN_UP;
    net_conn_set_state(conn, CONN_CLOSED);
    net_loop_unwatch(net->loop, &conn->watch);
    net_loop_remove_poller(net->loop, &conn->poller);
    net_loop_timer_clear(net->loop, &conn->timer);
    net_loop_forget(net->loop, &conn->flush_later);
    net_loop_forget(net->loop, &conn->read_later);
    net_loop_forget(net->loop, &conn->end_later);
    net_accept_known(conn);
    if (conn->memory_fd >= 0) close(conn->memory_fd);
    if (conn->wake_fd >= 0) close(conn->wake_fd);
    net_reader_destroy(conn->reader);
    conn->reader = NULL;
    conn->carrier->ops->close(conn->carrier);
    conn->carrier = NULL;
    struct net_peer *peer = leave_peer(conn);
    net_op_fail_all(conn, SHOAL_EPEER);
    if (peer != NULL && was_up) tell_loss(conn, peer, &reason);
    if (peer != NULL && peer->dials && !net->is_closing) net_dial_again(peer, &reason);
    net_loop_later(net->loop, &conn->end_later);
}

void net_conn_free(struct net_conn *conn)
{
    ASSERT(conn->state == CONN_CLOSED);
    struct net *net = conn->net;
    net_loop_forget(net->loop, &conn->end_later);
    if (conn->before != NULL) {
        conn->before->after = conn->after;
    } else {
        net->conns = conn->after;
    }
    if (conn->after != NULL) conn->after->before = conn->before;
    mem_free(conn);
}
