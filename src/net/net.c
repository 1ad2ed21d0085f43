#include "net/net.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/net_internal.h"

/* ---- opening ---------------------------------------------------------------------------------- */

int net_listen_check(const char *address, const struct net_secure *secure, struct err *err)
{
    struct net_address parsed;
    int rc = net_address_parse(address, &parsed, err);
    if (rc == SHOAL_ENOENT) rc = net_address_look_up(address, &parsed, err);
    if (rc != 0) return rc;
    const bool is_secure = secure->secret_file != NULL || secure->cert_file != NULL;
    if (is_secure || net_address_is_loopback(&parsed)) return 0;
    return err_set(
        err, SHOAL_ECONFIG,
        "listening at %s would open the job to the network; make a secret "
        "(head -c 32 /dev/urandom | base64 > secret; chmod 600 secret), copy it to every "
        "host and give every task --secret-file secret; or give certificates; or listen "
        "at 127.0.0.1",
        address);
}

static int check_name(const char *name, struct err *err)
{
    const size_t bytes = name == NULL ? 0 : strlen(name);
    if (bytes > 0 && bytes < NET_NAME_MAX) return 0;
    return err_set(err, SHOAL_EINVAL, "a task's name of %zu bytes, want 1 to %u", bytes,
                   NET_NAME_MAX - 1);
}

static int check_opts(const struct net_opts *opts, struct err *err)
{
    ASSERT(opts->loop != NULL);
    ASSERT(opts->events.head != NULL && opts->events.frame != NULL);
    ASSERT(net_loop_is_mine(opts->loop));
    const uint64_t ring = opts->ring_bytes;
    if (ring != 0 &&
        (ring < NET_RING_BYTES_MIN || ring > NET_RING_BYTES_MAX || (ring & (ring - 1)) != 0)) {
        return err_set(err, SHOAL_EINVAL,
                       "shared rings of %llu bytes, want a power of two up to %llu",
                       (unsigned long long)ring, (unsigned long long)NET_RING_BYTES_MAX);
    }
    if (opts->peers_count > NET_PEERS_MAX) {
        return err_set(err, SHOAL_ELIMIT, "%zu peers, at most %u", opts->peers_count,
                       NET_PEERS_MAX);
    }
    int rc = check_name(opts->name, err);
    if (rc == 0 && opts->listen != NULL && opts->carrier != NET_SHM) {
        rc = net_listen_check(opts->listen, &opts->secure, err);
    }
    return rc;
}

static int add_peer(struct net *net, const struct net_peer_opts *opts, struct net_peer *peer,
                    struct err *err)
{
    *peer = (struct net_peer){.net = net,
                              .task = opts->task,
                              .is_any = opts->name == NULL,
                              .dials = opts->dial,
                              .ctx = opts->ctx,
                              .since_ns = net_loop_now(net->loop)};
    if (opts->name != NULL) {
        const int rc = check_name(opts->name, err);
        if (rc != 0) return rc;
    }
    snprintf(peer->name, sizeof peer->name, "%s", opts->name == NULL ? "?" : opts->name);
    if (opts->dial && net->carrier != NET_SHM && opts->address == NULL && net->carrier == NET_TCP) {
        return err_set(err, SHOAL_EINVAL, "%s is to be dialed and has no address", peer->name);
    }
    if (opts->address == NULL) return 0;
    struct net_address address;
    int rc = net_address_parse(opts->address, &address, err);
    if (rc == SHOAL_ENOENT) {
        rc = 0; /* a name: looked up when it is dialed, and each time anew */
    } else if (rc == 0 && opts->dial && net->carrier != NET_SHM) {
        rc = net_dial_check(net, &address, err);
    }
    if (rc != 0) return err_wrap(err, "%s", peer->name);
    peer->address = mem_strdup(MEM_NET, opts->address);
    return peer->address != NULL ? 0 : err_set(err, SHOAL_ENOMEM, "no memory for peers");
}

static int add_peers(struct net *net, const struct net_opts *opts, struct err *err)
{
    const size_t guests = opts->guest_job == NULL ? 0 : NET_GUESTS_MAX;
    net->peers = mem_alloc_array(MEM_NET, opts->peers_count + guests, sizeof *net->peers);
    if (net->peers == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for peers");
    for (size_t i = 0; i < opts->peers_count; i++) {
        const int rc = add_peer(net, &opts->peers[i], &net->peers[i], err);
        net->peers_count++;
        if (rc != 0) return rc;
    }
    for (size_t i = 0; i < guests; i++) {
        net->peers[net->peers_count++] = (struct net_peer){.net = net, .is_guest = true};
    }
    return 0;
}

static uint64_t or_default(uint64_t value, uint64_t default_value)
{
    return value != 0 ? value : default_value;
}

static int copy_opts(struct net *net, const struct net_opts *opts, struct err *err)
{
    net->loop = opts->loop;
    net->events = opts->events;
    net->ctx = opts->ctx;
    net->task = opts->task;
    snprintf(net->name, sizeof net->name, "%s", opts->name);
    net->cluster = opts->cluster;
    net->incarnation = or_default(opts->incarnation, (uint64_t)(clock_now_secs() * 1e6));
    net->carrier = opts->carrier;
    net->queue_bytes_max = or_default(opts->queue_bytes_max, NET_QUEUE_BYTES_MAX);
    net->ring_bytes = or_default(opts->ring_bytes, NET_RING_BYTES_DEFAULT);
    net->hello_timeout_ns = or_default(opts->hello_timeout_ms, 2000) * 1000000;
    net->stall_timeout_ns = or_default(opts->stall_timeout_ms, 30000) * 1000000;
    net->spare_fd = -1;
    if (opts->guest_job != NULL) {
        net->guest_job = mem_strdup(MEM_NET, opts->guest_job);
        if (net->guest_job == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for net");
    }
    if (opts->folder != NULL) {
        net->folder = mem_strdup(MEM_NET, opts->folder);
        if (net->folder == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for net");
    }
    return 0;
}

int net_open(const struct net_opts *opts, struct net **net_out, struct err *err)
{
    int rc = check_opts(opts, err);
    if (rc != 0) return rc;
    struct net *net = mem_alloc(MEM_NET, sizeof *net);
    if (net == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for net");
    rc = copy_opts(net, opts, err);
    if (rc == 0) rc = net_tls_create(&opts->secure, &net->tls, err);
    if (rc == 0) rc = add_peers(net, opts, err);
    if (rc == 0) rc = net_accept_start(net, opts->listen, err);
    if (rc != 0) {
        net_close(net);
        return rc;
    }
    for (size_t i = 0; i < net->peers_count; i++) {
        if (net->peers[i].dials) net_dial_start(&net->peers[i]);
    }
    *net_out = net;
    return 0;
}

void net_close(struct net *net)
{
    if (net == NULL) return;
    ASSERT(net_loop_is_mine(net->loop));
    net->is_closing = true;
    net_accept_stop(net);
    for (size_t i = 0; i < net->peers_count; i++) net_dial_stop(&net->peers[i]);
    struct err why = {0};
    err_set(&why, SHOAL_EPEER, "this task closes its connections");
    while (net->conns != NULL) {
        struct net_conn *conn = net->conns;
        net_conn_close(conn, &why);
        net_conn_free(conn);
    }
    for (size_t i = 0; i < net->peers_count; i++) mem_free(net->peers[i].address);
    mem_free(net->peers);
    mem_free(net->guest_job);
    mem_free(net->folder);
    net_tls_destroy(net->tls);
    mem_free(net);
}

uint16_t net_port(const struct net *net)
{
    return net->port;
}

/* ---- peers ------------------------------------------------------------------------------------ */

struct net_peer *net_peer_find(const struct net *net, uint32_t task)
{
    for (size_t i = 0; i < net->peers_count; i++) {
        struct net_peer *peer = &net->peers[i];
        if (peer->task == task && !peer->is_guest) return peer;
    }
    return NULL;
}

uint32_t net_peer_task(const struct net_peer *peer)
{
    return peer->task;
}

const char *net_peer_name(const struct net_peer *peer)
{
    return peer->name;
}

void *net_peer_ctx(const struct net_peer *peer)
{
    return peer->ctx;
}

bool net_peer_is_up(const struct net_peer *peer)
{
    return peer->conn != NULL;
}

void net_peer_info(const struct net_peer *peer, struct net_peer_info *info_out)
{
    ASSERT(net_loop_is_mine(peer->net->loop));
    *info_out = (struct net_peer_info){
        .is_up = peer->conn != NULL,
        .carrier = peer->conn == NULL ? NULL : peer->conn->carrier->ops->name,
        .connection = peer->connection,
        .incarnation = peer->incarnation,
        .since_ns = peer->since_ns,
        .attempts = peer->attempts,
        .queued_bytes = peer->conn == NULL ? 0 : peer->conn->queued_bytes};
    memcpy(info_out->problem, peer->problem, sizeof info_out->problem);
}

void net_peer_drop(struct net_peer *peer, const char *why)
{
    ASSERT(net_loop_is_mine(peer->net->loop));
    if (peer->conn != NULL) net_conn_close_later(peer->conn, SHOAL_EPEER, why);
}

/* ---- counters --------------------------------------------------------------------------------- */

/* Each reason is told at its 1st, 2nd, 4th, 8th ... time: a flood must not fill the log. */
void net_refused(struct net *net, enum net_refusal refusal, const struct net_address *address,
                 const char *words)
{
    ASSERT(refusal > NET_OK && refusal < NET_REFUSAL_COUNT);
    net_count(&net->refused[refusal], 1);
    const uint64_t times = atomic_load_explicit(&net->refused[refusal], memory_order_relaxed);
    const bool is_told = (times & (times - 1)) == 0;
    if (!is_told && !log_wants(LOG_DEBUG)) return;
    char text[NET_ADDRESS_TEXT_MAX];
    net_address_text(address, text);
    log_line(is_told ? LOG_WARN : LOG_DEBUG, "net", "refused: %s reason=%s from=%s times=%llu",
             words, net_refusal_key(refusal), text, (unsigned long long)times);
}

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static struct net_stats read_counters(const struct net_counters *counters)
{
    return (struct net_stats){.frames_in = load(&counters->frames_in),
                              .frames_out = load(&counters->frames_out),
                              .bytes_in = load(&counters->bytes_in),
                              .bytes_out = load(&counters->bytes_out),
                              .connections = load(&counters->connections),
                              .losses = load(&counters->losses),
                              .timeouts = load(&counters->timeouts),
                              .late = load(&counters->late)};
}

void net_stats(const struct net *net, struct net_stats *stats_out)
{
    *stats_out = read_counters(&net->counters);
    for (int i = 0; i < NET_REFUSAL_COUNT; i++) stats_out->refused[i] = load(&net->refused[i]);
}

void net_peer_stats(const struct net_peer *peer, struct net_stats *stats_out)
{
    *stats_out = read_counters(&peer->counters);
}
