#include "base/assert.h"
#include "net/net_internal.h"

/* An op is in at most one place: the queue (is_queued), then, if it is a request, a chain of those
 * that wait for a reply (is_waiting). One that is partly sent cannot leave the queue: the stream
 * would be broken. A deadline that finds it there breaks the connection, since a peer that takes
 * nothing for that long holds up everything behind it too. */

static struct net_op *op_of(struct net_timer *timer)
{
    return (struct net_op *)((char *)timer - offsetof(struct net_op, state.timer));
}

/* ---- the chains of those that wait ------------------------------------------------------------- */

static struct net_op **chain_of(struct net_conn *conn, uint64_t sequence)
{
    return &conn->waiting[sequence % NET_WAITING_CHAINS];
}

struct net_op *net_op_find(const struct net_conn *conn, uint64_t sequence)
{
    struct net_op *op = conn->waiting[sequence % NET_WAITING_CHAINS];
    while (op != NULL && op->state.sequence != sequence) op = op->state.after;
    return op;
}

static void chain(struct net_conn *conn, struct net_op *op)
{
    struct net_op **first = chain_of(conn, op->state.sequence);
    op->state.before = NULL;
    op->state.after = *first;
    if (*first != NULL) (*first)->state.before = op;
    *first = op;
    op->state.is_waiting = true;
}

static void unchain(struct net_conn *conn, struct net_op *op)
{
    if (op->state.before != NULL) {
        op->state.before->state.after = op->state.after;
    } else {
        *chain_of(conn, op->state.sequence) = op->state.after;
    }
    if (op->state.after != NULL) op->state.after->state.before = op->state.before;
    op->state.is_waiting = false;
}

/* ---- the end of an op ------------------------------------------------------------------------- */

void net_op_complete(struct net_op *op, int rc, const struct net_frame *reply)
{
    struct net_conn *conn = op->state.conn;
    ASSERT(!op->state.is_queued);
    if (op->state.is_waiting) unchain(conn, op);
    net_loop_timer_clear(conn->net->loop, &op->state.timer);
    op->state.conn = NULL;
    op->done(op, rc, reply);
}

static void unqueue(struct net_conn *conn, struct net_op *op)
{
    struct net_op *before = NULL;
    struct net_op **link = &conn->queue_first;
    while (*link != op) {
        before = *link;
        link = &before->state.next;
    }
    *link = op->state.next;
    if (conn->queue_last == op) conn->queue_last = before;
    op->state.is_queued = false;
    conn->queued_bytes -= op->state.bytes;
}

/* The deadline has passed, or net_cancel was called. */
static void expire(struct net_timer *timer)
{
    struct net_op *op = op_of(timer);
    struct net_conn *conn = op->state.conn;
    const bool is_late = op->deadline_ns != 0 && net_loop_now(conn->net->loop) >= op->deadline_ns;
    if (op->state.is_queued && op->state.sent > 0) {
        if (is_late) {
            net_conn_close_later(conn, SHOAL_ETIME, "it took no bytes until a deadline had passed");
        } else if (op->deadline_ns != 0) {
            net_loop_timer_set(conn->net->loop, timer, op->deadline_ns);
        }
        return; /* A cancelled op completes when it is away: see sent(). */
    }
    if (op->state.is_queued) unqueue(conn, op);
    if (conn->receiving == op) {
        net_reader_skip(conn->reader); /* From here on its place is the caller's again. */
        conn->receiving = NULL;
    }
    const int rc = op->state.is_cancelled ? SHOAL_EINTR : SHOAL_ETIME;
    if (rc == SHOAL_ETIME) {
        net_count(&conn->net->counters.timeouts, 1);
        net_count(&conn->peer->counters.timeouts, 1);
    }
    net_op_complete(op, rc, NULL);
}

void net_cancel(struct net_op *op)
{
    ASSERT(op->state.conn != NULL);
    ASSERT(net_loop_is_mine(op->state.conn->net->loop));
    op->state.is_cancelled = true;
    net_loop_timer_set(op->state.conn->net->loop, &op->state.timer, 0);
}

void net_op_fail_all(struct net_conn *conn, int rc)
{
    conn->receiving = NULL;
    while (conn->queue_first != NULL) {
        struct net_op *op = conn->queue_first;
        unqueue(conn, op);
        net_op_complete(op, rc, NULL);
    }
    for (size_t i = 0; i < NET_WAITING_CHAINS; i++) {
        while (conn->waiting[i] != NULL) net_op_complete(conn->waiting[i], rc, NULL);
    }
}

/* ---- the way out ------------------------------------------------------------------------------ */

/* The segments of a frame: header, meta part, parts of the body. */
static struct iovec segment_of(const struct net_op *op, uint32_t segment)
{
    if (segment == 0) return (struct iovec){(void *)op->state.header, NET_HEADER_BYTES};
    if (segment == 1) return (struct iovec){(void *)op->meta, op->meta_bytes};
    return op->parts[segment - 2];
}

size_t net_op_gather(const struct net_conn *conn, struct iovec *parts_out, size_t parts_max)
{
    size_t filled = 0;
    for (const struct net_op *op = conn->queue_first; op != NULL; op = op->state.next) {
        size_t offset = op->state.segment_offset;
        for (uint32_t i = op->state.segment; i < op->parts_count + 2; i++) {
            if (filled == parts_max) return filled;
            const struct iovec segment = segment_of(op, i);
            if (segment.iov_len > offset) {
                parts_out[filled++] =
                    (struct iovec){(uint8_t *)segment.iov_base + offset, segment.iov_len - offset};
            }
            offset = 0;
        }
    }
    return filled;
}

/* The op's last byte is away, and so is the op from the queue. */
static void sent(struct net_conn *conn, struct net_op *op)
{
    net_count(&conn->net->counters.frames_out, 1);
    if (conn->peer != NULL) net_count(&conn->peer->counters.frames_out, 1);
    if (op->state.is_cancelled) {
        net_op_complete(op, SHOAL_EINTR, NULL);
    } else if ((op->state.flags & NET_FLAG_REQUEST) != 0) {
        chain(conn, op);
    } else {
        net_op_complete(op, 0, NULL);
    }
}

void net_op_advance(struct net_conn *conn, uint64_t bytes)
{
    net_count(&conn->net->counters.bytes_out, bytes);
    if (conn->peer != NULL) net_count(&conn->peer->counters.bytes_out, bytes);
    while (bytes > 0) {
        struct net_op *op = conn->queue_first;
        const struct iovec segment = segment_of(op, op->state.segment);
        const size_t left = segment.iov_len - op->state.segment_offset;
        const size_t step = bytes < left ? (size_t)bytes : left;
        op->state.segment_offset += step;
        op->state.sent += step;
        bytes -= step;
        if (step == left) {
            op->state.segment++;
            op->state.segment_offset = 0;
        }
        if (op->state.sent < op->state.bytes) continue;
        unqueue(conn, op);
        sent(conn, op);
    }
}

void net_op_enqueue(struct net_conn *conn, struct net_op *op, uint16_t flags, uint64_t sequence)
{
    uint64_t body_bytes = 0;
    for (uint32_t i = 0; i < op->parts_count; i++) body_bytes += op->parts[i].iov_len;
    op->state = (struct net_op_state){.timer.run = expire,
                                      .conn = conn,
                                      .sequence = sequence,
                                      .bytes = NET_HEADER_BYTES + op->meta_bytes + body_bytes,
                                      .flags = flags,
                                      .is_queued = true};
    const struct net_header header = {.type = op->type,
                                      .flags = flags,
                                      .status = op->status,
                                      .sender = conn->net->task,
                                      .epoch = op->epoch,
                                      .sequence = sequence,
                                      .body_bytes = body_bytes,
                                      .meta_bytes = op->meta_bytes};
    net_header_encode(&header, op->state.header);
    if (conn->queue_last != NULL) {
        conn->queue_last->state.next = op;
    } else {
        conn->queue_first = op;
    }
    conn->queue_last = op;
    conn->queued_bytes += op->state.bytes;
    if (op->deadline_ns != 0) {
        net_loop_timer_set(conn->net->loop, &op->state.timer, op->deadline_ns);
    }
    net_conn_flush_later(conn);
}

/* ---- what callers start ----------------------------------------------------------------------- */

static int check(const struct net_op *op, uint64_t *bytes_out, struct err *err)
{
    ASSERT(op->done != NULL);
    if (op->type == 0 || op->type >= NET_TYPE_OWN) {
        return err_set(err, SHOAL_EINVAL, "frame type %u", op->type);
    }
    if (op->meta_bytes > NET_META_BYTES_MAX) {
        return err_set(err, SHOAL_EINVAL, "a meta part of %u bytes, at most %u", op->meta_bytes,
                       NET_META_BYTES_MAX);
    }
    if (op->parts_count > NET_PARTS_MAX) {
        return err_set(err, SHOAL_EINVAL, "a body of %u parts, at most %u", op->parts_count,
                       NET_PARTS_MAX);
    }
    uint64_t body_bytes = 0;
    for (uint32_t i = 0; i < op->parts_count; i++) {
        if (op->parts[i].iov_len > NET_BODY_BYTES_MAX - body_bytes) {
            return err_set(err, SHOAL_EINVAL, "a body of more than %llu bytes",
                           (unsigned long long)NET_BODY_BYTES_MAX);
        }
        body_bytes += op->parts[i].iov_len;
    }
    *bytes_out = NET_HEADER_BYTES + op->meta_bytes + body_bytes;
    return 0;
}

static int start(struct net_peer *peer, struct net_op *op, uint16_t flags, uint64_t sequence,
                 struct err *err)
{
    ASSERT(net_loop_is_mine(peer->net->loop));
    uint64_t bytes = 0;
    const int rc = check(op, &bytes, err);
    if (rc != 0) return rc;
    struct net_conn *conn = peer->conn;
    if (conn == NULL) return err_set(err, SHOAL_EPEER, "%s is not connected", peer->name);
    const uint64_t most = peer->net->queue_bytes_max;
    if (conn->queued_bytes > 0 &&
        bytes > most - (conn->queued_bytes < most ? conn->queued_bytes : most)) {
        conn->wants_writable = true;
        return err_set(err, SHOAL_ELIMIT, "%s has %llu bytes queued, at most %llu", peer->name,
                       (unsigned long long)conn->queued_bytes, (unsigned long long)most);
    }
    net_op_enqueue(conn, op, flags, sequence);
    return 0;
}

int net_send(struct net_peer *peer, struct net_op *op, struct err *err)
{
    return start(peer, op, 0, 0, err);
}

int net_request(struct net_peer *peer, struct net_op *op, struct err *err)
{
    ASSERT(op->deadline_ns != 0); /* Every wait has a deadline. */
    const int rc = start(peer, op, NET_FLAG_REQUEST, peer->net->sequence + 1, err);
    if (rc == 0) peer->net->sequence++;
    return rc;
}

int net_reply(struct net_peer *peer, uint64_t connection, uint64_t sequence, struct net_op *op,
              struct err *err)
{
    if (peer->conn != NULL && peer->conn->number != connection) {
        return err_set(err, SHOAL_EPEER, "%s has connected anew since it asked", peer->name);
    }
    return start(peer, op, NET_FLAG_REPLY, sequence, err);
}
