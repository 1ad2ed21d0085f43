/* Tasks as real processes: killed, stopped, idle; and loops with threads of their own. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "net/net_testkit.h"

/* Serves until it is killed. The port goes through the pipe. */
_Noreturn static void serve(enum kit_mode mode, uint16_t port, int port_fd)
{
    struct kit_end end = {0};
    char listen[32];
    snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
    struct net_opts opts = kit_server_opts(&end, kit_loop(), mode);
    opts.listen = listen;
    KIT_OK(net_open(&opts, &end.net, &kit_err));
    port = net_port(end.net);
    CHECK_INT(write(port_fd, &port, sizeof port), sizeof port);
    close(port_fd);
    for (;;) kit_turn(end.loop);
}

static pid_t start_server(enum kit_mode mode, uint16_t *port)
{
    int ports[2];
    CHECK_INT(pipe(ports), 0);
    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ports[0]);
        alarm(60);
        serve(mode, *port, ports[1]);
    }
    close(ports[1]);
    CHECK_INT(read(ports[0], port, sizeof *port), sizeof *port);
    close(ports[0]);
    return child;
}

static int echo(struct kit_end *client, size_t bytes, uint64_t patience_ns)
{
    uint8_t *body = malloc(bytes + 1);
    uint8_t *reply = calloc(1, bytes + 1);
    CHECK(body != NULL && reply != NULL);
    kit_fill(body, bytes, 5);
    struct kit_call call;
    kit_call_init(&call, body, bytes, reply, bytes);
    call.op.deadline_ns = clock_now_ns() + patience_ns;
    KIT_OK(net_request(client->other, &call.op, &kit_err));
    KIT_UNTIL(client->loop, call.done == 1);
    CHECK(call.rc != 0 || memcmp(body, reply, bytes) == 0);
    free(body);
    free(reply);
    return call.rc;
}

#define SECOND ((uint64_t)1000000000)

/* A server killed at any moment: the client notices at once, completes what was on its way, and is
 * connected again when the server is back. */
static void survive_kills(enum kit_mode mode)
{
    kit_make_files();
    uint16_t port = 0;
    pid_t child = start_server(mode, &port);
    struct kit_end client = {0};
    struct net_opts opts = kit_client_opts(&client, kit_loop(), mode, port);
    KIT_OK(net_open(&opts, &client.net, &kit_err));
    const int fds = kit_fds();
    for (int round = 1; round <= 3; round++) {
        KIT_UNTIL(client.loop, client.ups == round);
        CHECK_INT(echo(&client, 100000, 10 * SECOND), 0);
        /* In the middle of a large frame, and then between frames. */
        uint8_t *body = calloc(1, 64 << 20);
        CHECK(body != NULL);
        struct kit_call call;
        kit_call_init(&call, body, round == 3 ? 0 : 64 << 20, body, 64 << 20);
        if (round < 3) {
            KIT_OK(net_request(client.other, &call.op, &kit_err));
            for (int i = 0; i < round; i++) kit_turn(client.loop);
        }
        const uint64_t start = clock_now_ns();
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        KIT_UNTIL(client.loop, client.downs == round);
        CHECK(clock_now_ns() - start < 2 * SECOND);
        if (round < 3) CHECK(call.done == 1);
        free(body);
        child = start_server(mode, &port);
    }
    KIT_UNTIL(client.loop, client.ups == 4);
    CHECK_INT(echo(&client, 1000, 10 * SECOND), 0);
    CHECK(kit_fds() <= fds + 8);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    struct net_loop *loop = client.loop;
    kit_end_close(&client);
    net_loop_destroy(loop);
    CHECK_INT(mem_bytes(MEM_NET), 0);
}

TEST(kills_over_tcp)
{
    survive_kills(KIT_TCP);
}

TEST(kills_over_tls)
{
    survive_kills(KIT_SECRET);
}

TEST(kills_over_shared_memory)
{
    survive_kills(KIT_SHM);
}

/* A peer that is stopped: requests end at their deadline; when it goes on, so does everything. */
TEST(stopped_peers_cost_a_deadline)
{
    kit_make_files();
    for (enum kit_mode mode = 0; mode < KIT_MODES; mode++) {
        uint16_t port = 0;
        const pid_t child = start_server(mode, &port);
        struct kit_end client = {0};
        struct net_opts opts = kit_client_opts(&client, kit_loop(), mode, port);
        KIT_OK(net_open(&opts, &client.net, &kit_err));
        KIT_UNTIL(client.loop, client.ups == 1);
        kill(child, SIGSTOP);
        CHECK_INT(echo(&client, 10, SECOND / 20), SHOAL_ETIME);
        CHECK_INT(client.downs, 0);
        /* More than the kernel or the ring take: partly sent, so the connection goes with it. */
        CHECK_INT(echo(&client, 64 << 20, SECOND / 20), SHOAL_EPEER);
        KIT_UNTIL(client.loop, client.downs == 1);
        CHECK_HAS(client.why, "deadline");
        kill(child, SIGCONT);
        KIT_UNTIL(client.loop, client.ups == 2);
        CHECK_INT(echo(&client, 100000, 10 * SECOND), 0);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        struct net_loop *loop = client.loop;
        kit_end_close(&client);
        net_loop_destroy(loop);
    }
}

/* ---- idle tasks ------------------------------------------------------------------------------- */

static uint64_t used_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* Connects, then does nothing for a second. Exit code: 0 when that took less than 1 % of a core. */
_Noreturn static void idle_worker(enum kit_mode mode, uint16_t port)
{
    struct kit_end client = {0};
    struct net_opts opts = kit_client_opts(&client, kit_loop(), mode, port);
    KIT_OK(net_open(&opts, &client.net, &kit_err));
    KIT_UNTIL(client.loop, client.ups == 1);
    const uint64_t start_us = used_us();
    const uint64_t end_ns = clock_now_ns() + SECOND;
    while (clock_now_ns() < end_ns) net_loop_turn(client.loop, end_ns);
    _exit(used_us() - start_us < 10000 ? 0 : 1);
}

/* Four tasks, two pairs, that have nothing to say to each other. */
TEST(idle_tasks_take_no_time)
{
    kit_make_files();
    for (enum kit_mode mode = 0; mode < KIT_MODES; mode += KIT_SHM) {
        pid_t servers[2];
        pid_t workers[2];
        for (int i = 0; i < 2; i++) {
            uint16_t port = 0;
            char folder[16];
            snprintf(folder, sizeof folder, "pair%d-%d", (int)mode, i);
            CHECK_INT(mkdir(folder, 0700), 0);
            CHECK_INT(chdir(folder), 0);
            CHECK_INT(mkdir("sockets", 0700), 0);
            servers[i] = start_server(mode, &port);
            workers[i] = fork();
            if (workers[i] == 0) idle_worker(mode, port);
            CHECK_INT(chdir(".."), 0);
        }
        for (int i = 0; i < 2; i++) {
            int status = 0;
            CHECK_INT(waitpid(workers[i], &status, 0), workers[i]);
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            kill(servers[i], SIGTERM);
            CHECK_INT(waitpid(servers[i], &status, 0), servers[i]);
        }
    }
}

/* ---- threads ---------------------------------------------------------------------------------- */

/* What a thread that computes does: it posts a request to the loop and waits for the reply. */
struct job {
    struct net_post post;
    struct kit_end *client;
    struct kit_call call;
    uint8_t body[3000];
    uint8_t reply[3000];
    _Atomic int state; /* 0 under way, 1 done, -1 failed */
};

static void job_done(struct net_op *op, int rc, const struct net_frame *reply)
{
    struct job *job = op->ctx;
    (void)reply;
    atomic_store(&job->state, rc == 0 ? 1 : -1);
}

static int job_head(struct net_op *op, const struct net_frame *reply, struct net_place *place_out)
{
    struct job *job = op->ctx;
    (void)reply;
    job->call.reply_part = (struct iovec){job->reply, sizeof job->reply};
    *place_out = (struct net_place){&job->call.reply_part, 1, NULL};
    return 0;
}

static void run_job(struct net_post *post)
{
    struct job *job = (struct job *)post;
    if (net_request(job->client->other, &job->call.op, NULL) != 0) atomic_store(&job->state, -1);
}

struct worker {
    struct kit_end *client;
    uint64_t seed;
};

static void *compute(void *arg)
{
    const struct worker *worker = arg;
    struct job *job = calloc(1, sizeof *job);
    CHECK(job != NULL);
    for (uint64_t i = 0; i < 300; i++) {
        job->post.run = run_job;
        job->client = worker->client;
        kit_fill(job->body, sizeof job->body, worker->seed + i);
        kit_call_init(&job->call, job->body, sizeof job->body, NULL, 0);
        job->call.op.head = job_head;
        job->call.op.done = job_done;
        job->call.op.ctx = job;
        atomic_store(&job->state, 0);
        net_loop_post(worker->client->loop, &job->post);
        while (atomic_load(&job->state) == 0) usleep(10);
        CHECK_INT(atomic_load(&job->state), 1);
        CHECK(memcmp(job->body, job->reply, sizeof job->body) == 0);
    }
    free(job);
    return NULL;
}

struct opening {
    struct net_opts opts;
    struct kit_end *end;
};

static void open_end(void *ctx)
{
    struct opening *opening = ctx;
    KIT_OK(net_open(&opening->opts, &opening->end->net, &kit_err));
}

static void close_end(void *ctx)
{
    kit_end_close(ctx);
}

static void is_up(void *ctx)
{
    struct kit_end *end = ctx;
    end->heads = end->ups == 1; /* heads is not used by a client */
}

/* Two loops with threads of their own, and two more threads that ask. */
TEST(loops_with_threads_of_their_own)
{
    kit_make_files();
    for (enum kit_mode mode = 0; mode < KIT_MODES; mode++) {
        struct kit_end server = {0};
        struct kit_end client = {0};
        struct net_loop *loops[2] = {kit_loop(), kit_loop()};
        struct opening opening = {kit_server_opts(&server, loops[0], mode), &server};
        for (int i = 0; i < 2; i++) KIT_OK(net_loop_start(loops[i], &kit_err));
        net_loop_call(loops[0], open_end, &opening);
        opening = (struct opening){kit_client_opts(&client, loops[1], mode, net_port(server.net)),
                                   &client};
        net_loop_call(loops[1], open_end, &opening);
        bool is_ready = false;
        while (!is_ready) {
            net_loop_call(loops[1], is_up, &client);
            is_ready = client.heads != 0;
        }
        pthread_t threads[2];
        struct worker workers[2] = {{&client, 0}, {&client, 5000}};
        for (int i = 0; i < 2; i++) {
            CHECK_INT(pthread_create(&threads[i], NULL, compute, &workers[i]), 0);
        }
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        net_loop_call(loops[1], close_end, &client);
        net_loop_stop(loops[0]);
        net_loop_stop(loops[1]);
        kit_end_close(&server);
        for (int i = 0; i < 2; i++) net_loop_destroy(loops[i]);
        CHECK_INT(mem_bytes(MEM_NET), 0);
    }
}
