/* All that a stranger can say to a task, from the first byte: a connection over a carrier in memory,
 * cut as the input says. The greeting, its refusals, frames and replies of one who got in. Nothing
 * may be left behind, whatever was said. */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/net_fuzzkit.h"
#include "net/net_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

#define BODY_MAX 4096u

/* ---- a carrier in memory ---------------------------------------------------------------------- */

struct memory {
    struct net_carrier base;
    const uint8_t *at;
    const uint8_t *end;
    uint32_t dice;
};

static uint32_t next(struct memory *memory)
{
    return memory->dice = memory->dice * 1664525u + 1013904223u;
}

/* Takes some of it, or nothing now and then. */
static int64_t memory_send(struct net_carrier *carrier, const struct iovec *parts,
                           size_t parts_count, struct err *err)
{
    int64_t bytes = 0;
    (void)err;
    for (size_t i = 0; i < parts_count; i++) bytes += (int64_t)parts[i].iov_len;
    return (next((struct memory *)carrier) >> 16) % 4 == 0 ? bytes / 2 : bytes;
}

static int64_t memory_recv(struct net_carrier *carrier, const struct iovec *parts,
                           size_t parts_count, struct err *err)
{
    struct memory *memory = (struct memory *)carrier;
    size_t left = (size_t)(memory->end - memory->at);
    if (left == 0) return err_set(err, SHOAL_END, "the end");
    const size_t most = 1 + (next(memory) >> 8) % 512;
    if (left > most) left = most;
    int64_t brought = 0;
    for (size_t i = 0; i < parts_count && left > 0; i++) {
        const size_t step = parts[i].iov_len < left ? parts[i].iov_len : left;
        memcpy(parts[i].iov_base, memory->at, step);
        memory->at += step;
        left -= step;
        brought += (int64_t)step;
    }
    return brought;
}

static void memory_close(struct net_carrier *carrier)
{
    close(carrier->fd);
    mem_free(carrier);
}

static const struct net_carrier_ops memory_ops = {
    .name = "memory", .send = memory_send, .recv = memory_recv, .close = memory_close};

/* ---- a task ----------------------------------------------------------------------------------- */

struct task {
    struct net_op request;
    uint8_t body[BODY_MAX];
    struct iovec part;
    int under_way;
    int lent;
};

static int on_reply_head(struct net_op *op, const struct net_frame *reply,
                         struct net_place *place_out)
{
    struct task *task = op->ctx;
    if (reply->body_bytes > BODY_MAX) return SHOAL_ELIMIT;
    task->part = (struct iovec){task->body, (size_t)reply->body_bytes};
    *place_out = (struct net_place){&task->part, 1, NULL};
    return 0;
}

static void on_done(struct net_op *op, int rc, const struct net_frame *reply)
{
    (void)rc;
    (void)reply;
    ((struct task *)op->ctx)->under_way--;
}

/* Whoever gets in is asked something: its replies have something to answer. */
static void on_up(void *ctx, struct net_peer *peer, uint64_t connection)
{
    struct task *task = ctx;
    (void)connection;
    task->request = (struct net_op){
        .type = 1, .deadline_ns = UINT64_MAX, .head = on_reply_head, .done = on_done, .ctx = task};
    if (net_request(peer, &task->request, NULL) == 0) task->under_way++;
}

static void on_head(void *ctx, const struct net_frame *frame, struct net_place *place_out)
{
    struct task *task = ctx;
    if (frame->body_bytes > BODY_MAX) return;
    task->part = (struct iovec){task->body, (size_t)frame->body_bytes};
    *place_out = (struct net_place){&task->part, 1, NULL};
    task->lent++;
}

static void on_frame(void *ctx, const struct net_frame *frame)
{
    if (frame->place.parts_count > 0) ((struct task *)ctx)->lent--;
}

static void on_abandon(void *ctx, const struct net_frame *frame)
{
    (void)frame;
    ((struct task *)ctx)->lent--;
}

static struct net *open_net(struct task *task)
{
    static const struct net_peer_opts peer = {.task = 2, .name = "worker/0"};
    struct net_loop *loop = NULL;
    struct net *net = NULL;
    const struct net_opts opts = {
        .task = 1,
        .name = "ps/0",
        .cluster = 1,
        .incarnation = 1,
        .carrier = NET_TCP,
        .peers = &peer,
        .peers_count = 1,
        .guest_job = "ctl",
        .events = {.up = on_up, .head = on_head, .frame = on_frame, .abandon = on_abandon},
        .ctx = task};
    struct net_opts with_loop = opts;
    if (net_loop_create(&(struct net_loop_opts){0}, &loop, NULL) != 0) return NULL;
    with_loop.loop = loop;
    if (net_open(&with_loop, &net, NULL) != 0) net_loop_destroy(loop);
    return net;
}

static void run(const uint8_t *bytes, size_t count)
{
    struct task task = {0};
    struct net *net = open_net(&task);
    ASSERT(net != NULL);
    struct net_loop *loop = net->loop;
    struct memory *memory = mem_alloc(MEM_NET, sizeof *memory);
    ASSERT(memory != NULL);
    *memory = (struct memory){.base = {.ops = &memory_ops, .fd = eventfd(0, EFD_CLOEXEC)},
                              .at = bytes,
                              .end = bytes + count,
                              .dice = (uint32_t)count};
    struct net_conn *conn = NULL;
    const struct net_address here = {.storage.ss_family = AF_INET};
    if (net_conn_create(net, &memory->base, CONN_SECURING, &here, &conn, NULL) == 0) {
        net_conn_get_ready(conn);
        if (conn->state != CONN_CLOSED) memset(conn->nonce, 0, sizeof conn->nonce);
        /* The connection is freed by the turn after it was closed. */
        while (net->conns != NULL) {
            if (net->conns->state != CONN_CLOSED) {
                struct net_watch *watch = &net->conns->watch;
                watch->run(watch, EPOLLIN | EPOLLOUT);
            }
            net_loop_turn(loop, 0);
        }
    }
    net_close(net);
    net_loop_destroy(loop);
    ASSERT(task.under_way == 0);
    ASSERT(task.lent == 0);
    ASSERT(mem_bytes(MEM_NET) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count > NET_FUZZ_BYTES_MAX) return 0;
    log_set_level(LOG_ERROR);
    run(bytes, count);
    uint8_t *mended = malloc(count + 1);
    ASSERT(mended != NULL);
    memcpy(mended, bytes, count);
    net_fuzz_mend(mended, count);
    run(mended, count);
    free(mended);
    return 0;
}
