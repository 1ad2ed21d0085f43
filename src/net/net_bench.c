#include "net/net_bench.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "net/net.h"

/* The parent is worker/0: it asks and measures. The child is ps/0: it answers an ECHO with the bytes
 * that it brought, and a BULK with an empty frame once all of it is there. */
enum { TYPE_ECHO = 1, TYPE_BULK = 2 };
#define WINDOW 4u /* bodies in flight */
#define REPEAT_NS ((uint64_t)100000000)
#define PATIENCE_NS ((uint64_t)20000000000)

const char *net_bench_carrier_name(enum net_bench_carrier carrier)
{
    static const char *const names[] = {"tcp", "tls", "shm"};
    return names[carrier];
}

struct task {
    struct net *net;
    struct net_loop *loop;
    struct net_peer *peer; /* NULL while down */
    uint8_t *bytes;        /* of the body that comes in */
    struct iovec part;
    struct net_op replies[WINDOW];
    struct iovec reply_parts[WINDOW];
    bool reply_is_busy[WINDOW];
    bool was_up;
};

/* ---- both sides ------------------------------------------------------------------------------- */

static void on_up(void *ctx, struct net_peer *peer, uint64_t connection)
{
    struct task *task = ctx;
    (void)connection;
    task->peer = peer;
    task->was_up = true;
}

static void on_down(void *ctx, struct net_peer *peer, uint64_t connection, const struct err *why)
{
    (void)peer;
    (void)connection;
    (void)why;
    ((struct task *)ctx)->peer = NULL;
}

static void on_head(void *ctx, const struct net_frame *frame, struct net_place *place_out)
{
    struct task *task = ctx;
    task->part = (struct iovec){task->bytes, (size_t)frame->body_bytes};
    *place_out = (struct net_place){&task->part, 1, NULL};
}

static void on_replied(struct net_op *op, int rc, const struct net_frame *reply)
{
    (void)rc;
    (void)reply;
    *(bool *)op->ctx = false;
}

static void on_frame(void *ctx, const struct net_frame *frame)
{
    struct task *task = ctx;
    for (size_t i = 0; i < WINDOW; i++) {
        if (task->reply_is_busy[i]) continue;
        struct net_op *op = &task->replies[i];
        task->reply_is_busy[i] = true;
        task->reply_parts[i] = (struct iovec){task->bytes, (size_t)frame->body_bytes};
        *op = (struct net_op){.type = frame->type,
                              .parts = &task->reply_parts[i],
                              .parts_count = frame->type == TYPE_ECHO ? 1 : 0,
                              .done = on_replied,
                              .ctx = &task->reply_is_busy[i]};
        if (net_reply(frame->peer, frame->connection, frame->sequence, op, NULL) != 0) {
            task->reply_is_busy[i] = false;
        }
        return;
    }
}

/* Where this bench keeps its socket and secret. */
struct place {
    char folder[64];
    char secret[80];
};

static int open_task(struct task *task, const struct net_bench_opts *opts,
                     const struct place *place, bool is_child, uint16_t port, struct err *err)
{
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    const struct net_peer_opts peer = {.task = is_child ? 2 : 1,
                                       .name = is_child ? "worker/0" : "ps/0",
                                       .address = is_child ? NULL : address,
                                       .dial = !is_child};
    const struct net_loop_opts loop_opts = {.spin_ns = net_loop_spin_ns(opts->tasks)};
    int rc = net_loop_create(&loop_opts, &task->loop, err);
    if (rc != 0) return rc;
    struct net_opts net_opts = {
        .loop = task->loop,
        .task = is_child ? 1 : 2,
        .name = is_child ? "ps/0" : "worker/0",
        .cluster = 1,
        .listen = is_child ? "127.0.0.1:0" : NULL,
        .carrier = opts->carrier == NET_BENCH_SHM ? NET_SHM : NET_TCP,
        .peers = &peer,
        .peers_count = 1,
        .folder = place->folder,
        .queue_bytes_max = WINDOW * (opts->bytes + 4096),
        .ring_bytes = opts->ring_bytes,
        .events = {.up = on_up, .down = on_down, .head = on_head, .frame = on_frame},
        .ctx = task};
    if (opts->carrier == NET_BENCH_TLS) net_opts.secure.secret_file = place->secret;
    return net_open(&net_opts, &task->net, err);
}

static void close_task(struct task *task)
{
    net_close(task->net);
    net_loop_destroy(task->loop);
    mem_free(task->bytes);
}

/* ---- the child -------------------------------------------------------------------------------- */

/* Ends when its parent has gone. */
_Noreturn static void serve(const struct net_bench_opts *opts, const struct place *place,
                            int port_fd)
{
    struct task task = {.bytes = mem_alloc(MEM_NET, opts->bytes)};
    if (task.bytes == NULL || open_task(&task, opts, place, true, 0, NULL) != 0) _exit(1);
    const uint16_t port = net_port(task.net);
    if (write(port_fd, &port, sizeof port) != (ssize_t)sizeof port) _exit(1);
    close(port_fd);
    while (!task.was_up || task.peer != NULL) net_loop_turn(task.loop, UINT64_MAX);
    close_task(&task);
    _exit(0);
}

/* ---- the parent ------------------------------------------------------------------------------- */

struct call {
    struct net_op op;
    struct iovec part;
    struct iovec reply_part;
    bool is_busy;
    int rc;
};

static int on_reply_head(struct net_op *op, const struct net_frame *reply,
                         struct net_place *place_out)
{
    struct call *call = op->ctx;
    (void)reply;
    *place_out = (struct net_place){&call->reply_part, 1, NULL};
    return 0;
}

static void on_done(struct net_op *op, int rc, const struct net_frame *reply)
{
    struct call *call = op->ctx;
    (void)reply;
    call->is_busy = false;
    call->rc = rc;
}

static int start(struct task *task, struct call *call, uint16_t type, struct err *err)
{
    call->op = (struct net_op){.type = type,
                               .parts = &call->part,
                               .parts_count = 1,
                               .deadline_ns = clock_now_ns() + PATIENCE_NS,
                               .head = on_reply_head,
                               .done = on_done,
                               .ctx = call};
    call->is_busy = true;
    return net_request(task->peer, &call->op, err);
}

static int finish(struct task *task, struct call *call, struct err *err)
{
    while (call->is_busy) net_loop_turn(task->loop, UINT64_MAX);
    return call->rc == 0 ? 0 : err_set(err, call->rc, "a frame did not come back");
}

static int connect_task(struct task *task, struct err *err)
{
    const uint64_t limit_ns = clock_now_ns() + PATIENCE_NS;
    while (task->peer == NULL) {
        if (clock_now_ns() > limit_ns) return err_set(err, SHOAL_ETIME, "no connection");
        net_loop_turn(task->loop, limit_ns);
    }
    return 0;
}

/* `frames` requests, `window` of them in flight. */
static int run(struct task *task, struct call *calls, uint64_t frames, uint32_t window,
               uint16_t type, struct err *err)
{
    ASSERT(window > 0);
    ASSERT(window > 0);
    int rc = 0;
    uint64_t started = 0;
    for (uint64_t done = 0; rc == 0 && done < frames; done++) {
        while (rc == 0 && started < frames && started - done < window) {
            rc = start(task, &calls[started++ % window], type, err);
        }
        if (rc == 0) rc = finish(task, &calls[done % window], err);
    }
    return rc;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *values, uint32_t count)
{
    double sorted[NET_BENCH_REPEATS_MAX];
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    return sorted[count / 2];
}

/* What comes back is what went: once, before anything is measured. */
static int check_echo(struct task *task, struct call *call, struct err *err)
{
    uint8_t *body = call->part.iov_base;
    for (size_t i = 0; i < call->part.iov_len; i++) body[i] = (uint8_t)hash_mix64(i);
    int rc = start(task, call, TYPE_ECHO, err);
    if (rc == 0) rc = finish(task, call, err);
    if (rc == 0 && memcmp(body, call->reply_part.iov_base, call->part.iov_len) != 0) {
        rc = err_set(err, SHOAL_ECORRUPT, "other bytes came back than went");
    }
    return rc;
}

static int measure(struct task *task, const struct net_bench_opts *opts, uint16_t type,
                   struct net_bench_result *result_out, struct err *err)
{
    const uint32_t window = type == TYPE_BULK ? WINDOW : 1;
    uint8_t *body = mem_alloc(MEM_NET, opts->bytes);
    if (body == NULL || task->bytes == NULL) {
        mem_free(body);
        return err_set(err, SHOAL_ENOMEM, "no memory for bodies of %llu bytes",
                       (unsigned long long)opts->bytes);
    }
    struct call calls[WINDOW] = {0};
    for (uint32_t i = 0; i < WINDOW; i++) {
        calls[i].part = (struct iovec){body, (size_t)opts->bytes};
        calls[i].reply_part = (struct iovec){task->bytes, (size_t)opts->bytes};
    }
    int rc = check_echo(task, &calls[0], err);
    /* As many frames as take a repeat's time, by a first try. */
    uint64_t frames = 16;
    const uint64_t first_ns = clock_now_ns();
    if (rc == 0) rc = run(task, calls, frames, window, type, err);
    const uint64_t took_ns = clock_now_ns() - first_ns;
    frames = took_ns == 0 ? frames : 16 * REPEAT_NS / took_ns + 16;
    struct net_loop_stats before;
    struct net_loop_stats after;
    net_loop_stats(task->loop, &before);
    for (uint32_t i = 0; rc == 0 && i < opts->repeats; i++) {
        const uint64_t start_ns = clock_now_ns();
        rc = run(task, calls, frames, window, type, err);
        const double secs = (double)(clock_now_ns() - start_ns) / 1e9;
        result_out->value[i] = type == TYPE_BULK ? (double)frames * (double)opts->bytes / secs
                                                 : secs * 1e6 / (double)frames;
    }
    net_loop_stats(task->loop, &after);
    result_out->repeats = opts->repeats;
    result_out->median = median(result_out->value, opts->repeats);
    result_out->kernel_waits_per_frame =
        (double)(after.kernel_waits - before.kernel_waits) / ((double)frames * opts->repeats);
    mem_free(body);
    return rc;
}

static int make_place(struct place *place, struct err *err)
{
    snprintf(place->folder, sizeof place->folder, "/tmp/shoal-bench-XXXXXX");
    if (mkdtemp(place->folder) == NULL) return err_set(err, SHOAL_EIO, "no temporary folder");
    snprintf(place->secret, sizeof place->secret, "%s/secret", place->folder);
    FILE *file = fopen(place->secret, "w");
    if (file == NULL) return err_set(err, SHOAL_EIO, "no temporary file");
    fputs("a secret for measuring, of no worth\n", file);
    fclose(file);
    (void)chmod(place->secret, 0600);
    return 0;
}

static int bench(const struct net_bench_opts *wanted, uint16_t type,
                 struct net_bench_result *result_out, struct err *err)
{
    struct net_bench_opts opts = *wanted;
    if (opts.bytes == 0) opts.bytes = 65536;
    if (opts.repeats == 0) opts.repeats = 7;
    if (opts.tasks == 0) opts.tasks = 2;
    if (opts.repeats > NET_BENCH_REPEATS_MAX || opts.bytes > NET_BODY_BYTES_MAX) {
        return err_set(err, SHOAL_EINVAL, "at most %u repeats of %llu bytes", NET_BENCH_REPEATS_MAX,
                       (unsigned long long)NET_BODY_BYTES_MAX);
    }
    struct place place;
    int ports[2];
    int rc = make_place(&place, err);
    if (rc != 0) return rc;
    if (pipe(ports) != 0) return err_set(err, SHOAL_EIO, "no pipe");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        close(ports[0]);
        serve(&opts, &place, ports[1]);
    }
    close(ports[1]);
    uint16_t port = 0;
    struct task task = {.bytes = mem_alloc(MEM_NET, opts.bytes)};
    *result_out = (struct net_bench_result){0};
    if (child < 0 || read(ports[0], &port, sizeof port) != (ssize_t)sizeof port) {
        rc = err_set(err, SHOAL_EIO, "the other process did not start");
    }
    if (rc == 0) rc = open_task(&task, &opts, &place, false, port, err);
    if (rc == 0) rc = connect_task(&task, err);
    if (rc == 0) rc = measure(&task, &opts, type, result_out, err);
    close_task(&task);
    close(ports[0]);
    if (child > 0) {
        if (rc != 0) kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    unlink(place.secret);
    rmdir(place.folder);
    return rc;
}

int net_bench_round_trip(const struct net_bench_opts *opts, struct net_bench_result *result_out,
                         struct err *err)
{
    return bench(opts, TYPE_ECHO, result_out, err);
}

int net_bench_bandwidth(const struct net_bench_opts *opts, struct net_bench_result *result_out,
                        struct err *err)
{
    return bench(opts, TYPE_BULK, result_out, err);
}
