/* Who is who, before anything else is said.
 *
 *     dialer                                             listener
 *        |  --- CALL -------------------------------------->|   at once, so that a listener that
 *        |  <-- CHALLENGE(nonce) ---------------------------|   wants TLS, or another version, is
 *        |                                                  |   found out before any wait
 *        |  --- HELLO(who, challenge back, nonce, proof) -->|   + eventfd over a Unix socket
 *        |  <-- WELCOME(who, proof) ------------------------|   + memory and eventfd
 *        |   or REFUSAL(reason, words), then the end        |
 *
 * A proof is an HMAC over the other side's nonce and who one is, keyed by the cluster secret; so a
 * HELLO that was heard elsewhere, or before, is worth nothing. Over TCP the secret has been proved by
 * TLS already; over a Unix socket this is what keeps two clusters apart. */
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "net/net_bytes.h"
#include "net/net_internal.h"

/* From here on bytes go through memory. What was passed on has become the carrier's. */
static int share_memory(struct net_conn *conn, struct err *err)
{
    const int rc = net_shm_create(conn->carrier, conn->memory_fd, conn->wake_fd, conn->ring_bytes,
                                  conn->is_dialer, &conn->carrier, err);
    if (rc == 0) conn->memory_fd = conn->wake_fd = -1;
    return rc;
}

/* ---- saying ----------------------------------------------------------------------------------- */

static void greeting_sent(struct net_op *op, int rc, const struct net_frame *reply)
{
    struct net_conn *conn = op->ctx;
    (void)reply;
    if (rc != 0) return; /* The connection is being closed. */
    if (conn->state == CONN_LEAVING) {
        net_conn_close_later(conn, conn->end.code, conn->end.text);
    } else if (op->type == NET_TYPE_WELCOME) {
        struct err err = {0};
        if (conn->is_unix && share_memory(conn, &err) != 0) {
            net_conn_close_later(conn, err.code, err.text);
            return;
        }
        net_conn_up(conn);
    }
}

static void say_by(struct net_conn *conn, struct net_op *op, enum net_type type, size_t meta_bytes)
{
    ASSERT(!op->state.is_queued);
    *op = (struct net_op){.type = (uint16_t)type,
                          .meta = conn->greeting_meta,
                          .meta_bytes = (uint32_t)meta_bytes,
                          .done = greeting_sent,
                          .ctx = conn};
    net_op_enqueue(conn, op, 0, 0);
}

static void say(struct net_conn *conn, enum net_type type, size_t meta_bytes)
{
    say_by(conn, &conn->greeting, type, meta_bytes);
}

void net_greet_start(struct net_conn *conn)
{
    struct err err = {0};
    if (conn->is_dialer) {
        say_by(conn, &conn->call, NET_TYPE_CALL, 0);
        return;
    }
    if (net_tls_random(conn->nonce, sizeof conn->nonce, &err) != 0) {
        net_conn_close_later(conn, err.code, err.text);
        return;
    }
    say(conn, NET_TYPE_CHALLENGE, net_challenge_encode(conn->nonce, conn->greeting_meta));
}

void net_greet_refuse(struct net_conn *conn, enum net_refusal refusal, const char *text)
{
    if (conn->greeting.state.is_queued) { /* It has not even taken the challenge. */
        net_conn_close(conn, &conn->end);
        return;
    }
    struct net_farewell farewell = {.refusal = (uint16_t)refusal};
    snprintf(farewell.text, sizeof farewell.text, "%s", text);
    net_conn_set_state(conn, CONN_LEAVING);
    say(conn, NET_TYPE_REFUSAL, net_farewell_encode(&farewell, conn->greeting_meta));
}

/* ---- proving ---------------------------------------------------------------------------------- */

static void prove(const struct net *net, const char *role, const uint8_t nonce[NET_NONCE_BYTES],
                  const struct net_hello *who, uint8_t proof_out[NET_PROOF_BYTES])
{
    uint8_t bytes[256];
    struct net_writer writer = {bytes, bytes + sizeof bytes, false};
    net_put(&writer, role, strlen(role) + 1);
    net_put(&writer, nonce, NET_NONCE_BYTES);
    net_put_uint(&writer, who->cluster, 8);
    net_put_uint(&writer, who->task, 4);
    net_put_uint(&writer, who->incarnation, 8);
    net_put(&writer, who->name, strlen(who->name) + 1);
    ASSERT(!writer.failed);
    net_tls_proof(net->tls, bytes, (size_t)(writer.at - bytes), proof_out);
}

static bool is_proved(const struct net *net, const char *role, const uint8_t nonce[NET_NONCE_BYTES],
                      const struct net_hello *who)
{
    uint8_t want[NET_PROOF_BYTES];
    prove(net, role, nonce, who, want);
    return CRYPTO_memcmp(want, who->proof, sizeof want) == 0;
}

static struct net_hello about_us(const struct net *net)
{
    struct net_hello hello = {
        .cluster = net->cluster, .task = net->task, .incarnation = net->incarnation};
    memcpy(hello.name, net->name, sizeof hello.name);
    return hello;
}

/* ---- the listener's side ---------------------------------------------------------------------- */

static bool is_guest(const struct net *net, const char *name)
{
    const size_t bytes = net->guest_job == NULL ? 0 : strlen(net->guest_job);
    return bytes > 0 && strncmp(name, net->guest_job, bytes) == 0 && name[bytes] == '/';
}

/* A place for a guest; NULL: all are taken. */
static struct net_peer *seat_guest(struct net *net, const struct net_hello *hello)
{
    for (size_t i = 0; i < net->peers_count; i++) {
        struct net_peer *peer = &net->peers[i];
        if (!peer->is_guest || peer->conn != NULL || peer->dialing != NULL) continue;
        peer->task = hello->task;
        memcpy(peer->name, hello->name, sizeof peer->name);
        return peer;
    }
    return NULL;
}

static struct net_peer *find_peer(struct net *net, const struct net_hello *hello)
{
    if (is_guest(net, hello->name)) return seat_guest(net, hello);
    struct net_peer *peer = net_peer_find(net, hello->task);
    return peer != NULL && strcmp(peer->name, hello->name) == 0 ? peer : NULL;
}

/* Whether this HELLO is welcome; the peer that it is of. */
static enum net_refusal judge(struct net_conn *conn, const struct net_hello *hello,
                              struct net_peer **peer_out)
{
    struct net *net = conn->net;
    if (memcmp(hello->challenge, conn->nonce, sizeof conn->nonce) != 0) return NET_REFUSED_REPLAY;
    if (!is_proved(net, "hello", conn->nonce, hello)) return NET_REFUSED_SECRET;
    const bool any_cluster = is_guest(net, hello->name) && hello->cluster == 0;
    if (hello->cluster != net->cluster && !any_cluster) return NET_REFUSED_CLUSTER;
    struct net_peer *peer = find_peer(net, hello);
    if (peer == NULL) {
        return is_guest(net, hello->name) ? NET_REFUSED_TOO_MANY : NET_REFUSED_TASK;
    }
    if (peer->dials) return NET_REFUSED_CROSSED;
    if (!peer->is_guest && hello->incarnation < peer->incarnation) return NET_REFUSED_STALE;
    *peer_out = peer;
    return NET_OK;
}

/* Over a Unix socket the HELLO brings the dialer's eventfd, and the WELCOME the memory and ours. */
static enum net_refusal prepare_memory(struct net_conn *conn)
{
    int fds[NET_STREAM_FDS_MAX];
    const size_t count = net_stream_detach(conn->carrier, fds);
    for (size_t i = 1; i < count; i++) close(fds[i]);
    if (count == 0) return NET_REFUSED_HELLO;
    conn->wake_fd = fds[0];
    conn->ring_bytes = conn->net->ring_bytes;
    if (net_shm_make(conn->ring_bytes, &conn->memory_fd, NULL) != 0) return NET_REFUSED_MEMORY;
    const int passed[2] = {conn->memory_fd, net_loop_wake_fd(conn->net->loop)};
    net_stream_attach(conn->carrier, passed, 2);
    return NET_OK;
}

static enum net_refusal on_hello(struct net_conn *conn, const uint8_t *meta, size_t bytes)
{
    struct net_hello hello;
    struct net_peer *peer = NULL;
    enum net_refusal refusal = net_hello_decode(meta, bytes, &hello);
    if (refusal == NET_OK) refusal = judge(conn, &hello, &peer);
    if (refusal == NET_OK && conn->greeting.state.is_queued) refusal = NET_REFUSED_HELLO;
    if (refusal == NET_OK && conn->is_unix) refusal = prepare_memory(conn);
    if (refusal != NET_OK) return refusal;
    conn->peer = peer;
    if (peer->is_guest) peer->dialing = conn; /* the place is taken */
    peer->incarnation = hello.incarnation;
    struct net_hello welcome = about_us(conn->net);
    welcome.ring_bytes = conn->ring_bytes;
    prove(conn->net, "welcome", hello.nonce, &welcome, welcome.proof);
    say(conn, NET_TYPE_WELCOME, net_hello_encode(&welcome, conn->greeting_meta));
    return NET_OK;
}

/* ---- the dialer's side ------------------------------------------------------------------------ */

static enum net_refusal on_challenge(struct net_conn *conn, const uint8_t *meta, size_t bytes)
{
    struct net_hello hello = about_us(conn->net);
    const enum net_refusal refusal = net_challenge_decode(meta, bytes, hello.challenge);
    if (refusal != NET_OK) return refusal;
    if (conn->greeting.done != NULL) return NET_REFUSED_HELLO; /* a second one */
    if (net_tls_random(conn->nonce, sizeof conn->nonce, NULL) != 0) return NET_REFUSED_MEMORY;
    memcpy(hello.nonce, conn->nonce, sizeof hello.nonce);
    prove(conn->net, "hello", hello.challenge, &hello, hello.proof);
    if (conn->is_unix) {
        const int wake_fd = net_loop_wake_fd(conn->net->loop);
        net_stream_attach(conn->carrier, &wake_fd, 1);
    }
    say(conn, NET_TYPE_HELLO, net_hello_encode(&hello, conn->greeting_meta));
    return NET_OK;
}

static enum net_refusal on_welcome(struct net_conn *conn, const uint8_t *meta, size_t bytes)
{
    struct net_peer *peer = conn->peer;
    struct net_hello hello;
    const enum net_refusal refusal = net_hello_decode(meta, bytes, &hello);
    if (refusal != NET_OK) return refusal;
    if (conn->greeting.done == NULL) return NET_REFUSED_HELLO; /* before our HELLO */
    if (!is_proved(conn->net, "welcome", conn->nonce, &hello)) return NET_REFUSED_SECRET;
    if (hello.cluster != conn->net->cluster && conn->net->cluster != 0) return NET_REFUSED_CLUSTER;
    if (peer->is_any) {
        peer->task = hello.task;
        memcpy(peer->name, hello.name, sizeof peer->name);
    } else if (hello.task != peer->task || strcmp(hello.name, peer->name) != 0) {
        return NET_REFUSED_TASK;
    }
    if (hello.incarnation < peer->incarnation && !peer->is_any) return NET_REFUSED_STALE;
    peer->incarnation = hello.incarnation;
    if (conn->is_unix) {
        int fds[NET_STREAM_FDS_MAX];
        const size_t count = net_stream_detach(conn->carrier, fds);
        if (count > 0) conn->memory_fd = fds[0];
        if (count > 1) conn->wake_fd = fds[1];
        conn->ring_bytes = hello.ring_bytes;
        if (count != 2 || share_memory(conn, NULL) != 0) return NET_REFUSED_HELLO;
    }
    net_conn_up(conn);
    return NET_OK;
}

/* We are not welcome: the words become the peer's problem, and the connection ends. */
static enum net_refusal on_refusal(struct net_conn *conn, const uint8_t *meta, size_t bytes)
{
    struct net_farewell farewell;
    const enum net_refusal refusal = net_farewell_decode(meta, bytes, &farewell);
    if (refusal != NET_OK) return refusal;
    char text[320];
    snprintf(text, sizeof text, "it refuses us: %s", farewell.text);
    net_conn_close_later(conn, SHOAL_EACCES, text);
    return NET_OK;
}

enum net_refusal net_greet_frame(struct net_conn *conn, const struct net_header *header,
                                 const uint8_t *meta)
{
    if (conn->state == CONN_LEAVING || conn->end_later.is_waiting) return NET_OK;
    if (conn->is_dialer) {
        switch (header->type) {
        case NET_TYPE_CHALLENGE: return on_challenge(conn, meta, header->meta_bytes);
        case NET_TYPE_WELCOME: return on_welcome(conn, meta, header->meta_bytes);
        case NET_TYPE_REFUSAL: return on_refusal(conn, meta, header->meta_bytes);
        default: return NET_REFUSED_HELLO;
        }
    }
    if (header->type == NET_TYPE_CALL && !conn->is_called && header->meta_bytes == 0) {
        conn->is_called = true;
        return NET_OK;
    }
    if (header->type != NET_TYPE_HELLO || !conn->is_called || conn->peer != NULL) {
        return NET_REFUSED_HELLO;
    }
    return on_hello(conn, meta, header->meta_bytes);
}
