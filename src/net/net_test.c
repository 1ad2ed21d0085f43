#include "net/net.h"

#include "net/net_testkit.h"

/* Runs the test once over each carrier. */
#define EACH_MODE(mode) for (enum kit_mode mode = 0; mode < KIT_MODES; mode++)

/* Bodies and meta parts of all sizes come back as they went, in the place that was asked for. */
TEST(echo_of_all_sizes)
{
    kit_make_files();
    static const struct {
        size_t meta;
        size_t body;
    } sizes[] = {{0, 0},        {1, 1},          {0, 1},     {7, 47},      {100, 4096},
                 {3, 65535},    {3, 65536},      {3, 65537}, {1, 1000003}, {0, 16u << 20},
                 {1u << 20, 0}, {1u << 20, 100}, {32768, 9}, {32769, 9}};
    const int fds = kit_fds();
    EACH_MODE(mode)
    {
        struct kit kit;
        kit_open(&kit, mode);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const size_t body_bytes = sizes[i].body;
            uint8_t *body = malloc(body_bytes + 1);
            uint8_t *reply = malloc(body_bytes + 1);
            uint8_t *meta = malloc(sizes[i].meta + 1);
            CHECK(body != NULL && reply != NULL && meta != NULL);
            kit_fill(body, body_bytes, i);
            kit_fill(meta, sizes[i].meta, i + 1);
            reply[body_bytes] = 0x5a;
            struct kit_call call;
            kit_call_init(&call, body, body_bytes, reply, body_bytes);
            call.op.type = (uint16_t)(i + 1);
            call.op.epoch = i;
            call.op.meta = meta;
            call.op.meta_bytes = (uint32_t)sizes[i].meta;
            KIT_OK(net_request(kit.client.other, &call.op, &kit_err));
            CHECK_INT(call.done, 0);
            KIT_UNTIL(kit.loop, call.done == 1);
            CHECK_INT(call.rc, 0);
            CHECK_INT(call.last.type, i + 1);
            CHECK_INT(call.last.status, -(int)(i + 1));
            CHECK_INT(call.last.epoch, i + 1);
            CHECK_INT(call.last.body_bytes, body_bytes);
            CHECK_INT(call.last.meta_bytes, sizes[i].meta);
            CHECK(memcmp(body, reply, body_bytes) == 0);
            CHECK_INT(reply[body_bytes], 0x5a);
            free(body);
            free(reply);
            free(meta);
        }
        CHECK_INT(kit.server.frames, sizeof sizes / sizeof sizes[0]);
        struct net_stats in;
        struct net_stats out;
        net_stats(kit.server.net, &in);
        net_peer_stats(kit.client.other, &out);
        CHECK_INT(in.frames_in, out.frames_out);
        CHECK_INT(in.bytes_in, out.bytes_out);
        kit_close(&kit);
        CHECK_INT(kit_fds(), fds);
    }
}

/* A body in many parts goes out in their order, and comes in into many others. */
TEST(bodies_are_gathered_and_scattered)
{
    kit_make_files();
    enum { PARTS = 300, BYTES = 300 * 301 / 2 };
    EACH_MODE(mode)
    {
        struct kit kit;
        kit_open(&kit, mode);
        static uint8_t body[BYTES];
        static uint8_t reply[BYTES];
        struct iovec parts[PARTS + 1];
        kit_fill(body, BYTES, 3);
        size_t at = 0;
        for (size_t i = 0; i <= PARTS; i++) {
            parts[i] = (struct iovec){body + at, i};
            at += i;
        }
        struct kit_call call;
        kit_call_init(&call, NULL, 0, reply, BYTES);
        call.op.parts = parts;
        call.op.parts_count = PARTS + 1;
        KIT_OK(net_request(kit.client.other, &call.op, &kit_err));
        KIT_UNTIL(kit.loop, call.done == 1);
        CHECK_INT(call.rc, 0);
        CHECK(memcmp(body, reply, BYTES) == 0);
        kit_close(&kit);
    }
}

/* Many requests at once: each gets its own answer, once. */
TEST(requests_in_flight_do_not_mix)
{
    kit_make_files();
    enum { CALLS = 1000, BYTES = 333 };
    EACH_MODE(mode)
    {
        struct kit kit;
        kit_open(&kit, mode);
        struct kit_call *calls = calloc(CALLS, sizeof *calls);
        uint8_t *bytes = calloc(CALLS, 2 * (size_t)BYTES);
        CHECK(calls != NULL && bytes != NULL);
        for (size_t i = 0; i < CALLS; i++) {
            uint8_t *body = bytes + 2 * BYTES * i;
            kit_fill(body, BYTES, i);
            kit_call_init(&calls[i], body, BYTES, body + BYTES, BYTES);
            KIT_OK(net_request(kit.client.other, &calls[i].op, &kit_err));
            if (i % 10 == 0) kit_turn(kit.loop);
        }
        KIT_UNTIL(kit.loop, calls[CALLS - 1].done == 1);
        for (size_t i = 0; i < CALLS; i++) {
            CHECK_INT(calls[i].done, 1);
            CHECK_INT(calls[i].rc, 0);
            CHECK(memcmp(bytes + 2 * BYTES * i, bytes + 2 * BYTES * i + BYTES, BYTES) == 0);
        }
        free(calls);
        free(bytes);
        kit_close(&kit);
    }
}

/* A frame without an answer: done when it is away. Types and lengths out of bounds are refused. */
TEST(frames_may_go_one_way)
{
    kit_make_files();
    EACH_MODE(mode)
    {
        struct kit kit;
        kit_open(&kit, mode);
        uint8_t body[100];
        kit_fill(body, sizeof body, 1);
        struct kit_call call;
        kit_call_init(&call, body, sizeof body, NULL, 0);
        KIT_OK(net_send(kit.client.other, &call.op, &kit_err));
        KIT_UNTIL(kit.loop, call.done == 1 && kit.server.frames == 1);
        CHECK_INT(call.rc, 0);
        CHECK(!kit.server.last.is_request);
        CHECK_INT(kit.server.last.body_bytes, sizeof body);

        call.op.type = 0;
        CHECK_INT(net_send(kit.client.other, &call.op, &kit_err), SHOAL_EINVAL);
        call.op.type = 0x8000;
        CHECK_INT(net_send(kit.client.other, &call.op, &kit_err), SHOAL_EINVAL);
        call.op.type = 1;
        call.op.meta_bytes = NET_META_BYTES_MAX + 1;
        CHECK_INT(net_send(kit.client.other, &call.op, &kit_err), SHOAL_EINVAL);
        call.op.meta_bytes = 0;
        call.part.iov_len = (size_t)NET_BODY_BYTES_MAX + 1;
        CHECK_INT(net_send(kit.client.other, &call.op, &kit_err), SHOAL_EINVAL);
        call.op.parts_count = NET_PARTS_MAX + 1;
        CHECK_INT(net_send(kit.client.other, &call.op, &kit_err), SHOAL_EINVAL);
        CHECK_INT(call.done, 1);
        kit_close(&kit);
    }
}

/* A reply whose length is not what was asked for is not stored; the connection goes on. */
TEST(replies_of_another_length_are_not_stored)
{
    kit_make_files();
    EACH_MODE(mode)
    {
        struct kit kit;
        kit_open(&kit, mode);
        uint8_t body[1000];
        uint8_t reply[1001] = {0};
        kit_fill(body, sizeof body, 1);
        struct kit_call call;
        kit_call_init(&call, body, sizeof body, reply, 999);
        KIT_OK(net_request(kit.client.other, &call.op, &kit_err));
        KIT_UNTIL(kit.loop, call.done == 1);
        CHECK_INT(call.rc, SHOAL_EPROTO);
        CHECK_INT(call.last.body_bytes, 1000);
        CHECK_INT(reply[0] | reply[500], 0);

        kit_call_init(&call, body, sizeof body, reply, 1001);
        KIT_OK(net_request(kit.client.other, &call.op, &kit_err));
        KIT_UNTIL(kit.loop, call.done == 1);
        CHECK_INT(call.rc, SHOAL_EPROTO);

        kit_call_init(&call, body, sizeof body, reply, 1000);
        call.head_rc = SHOAL_ESTALE; /* the receiver's own reason */
        KIT_OK(net_request(kit.client.other, &call.op, &kit_err));
        KIT_UNTIL(kit.loop, call.done == 1);
        CHECK_INT(call.rc, SHOAL_ESTALE);
        CHECK_INT(reply[0] | reply[500], 0);

        kit_call_init(&call, body, sizeof body, reply, 1000);
        call.op.head = NULL; /* no body wanted */
        KIT_OK(net_request(kit.client.other, &call.op, &kit_err));
        KIT_UNTIL(kit.loop, call.done == 1);
        CHECK_INT(call.rc, SHOAL_EPROTO);

        kit.server.wrong_place = true;
        kit_call_init(&call, body, sizeof body, reply, 0);
        KIT_OK(net_request(kit.client.other, &call.op, &kit_err));
        KIT_UNTIL(kit.loop, call.done == 1);
        CHECK_INT(kit.server.last.place.parts_count, 0);
        CHECK_INT(call.last.body_bytes, 0);
        CHECK_INT(kit.client.downs + kit.server.downs, 0);
        kit_close(&kit);
    }
}

/* A request that is not answered ends at its deadline; the answer that comes later harms nobody. */
TEST(deadlines_end_requests)
{
    kit_make_files();
    EACH_MODE(mode)
    {
        struct kit kit;
        kit_open(&kit, mode);
        kit.server.is_mute = true;
        struct kit_call call;
        kit_call_init(&call, NULL, 0, NULL, 0);
        const uint64_t start = clock_now_ns();
        call.op.deadline_ns = start + 30000000;
        KIT_OK(net_request(kit.client.other, &call.op, &kit_err));
        KIT_UNTIL(kit.loop, call.done == 1);
        CHECK_INT(call.rc, SHOAL_ETIME);
        CHECK(clock_now_ns() - start >= 30000000);

        /* One whose deadline has passed already ends without being sent. */
        const int frames = kit.server.frames;
        kit_call_init(&call, NULL, 0, NULL, 0);
        call.op.deadline_ns = 1;
        KIT_OK(net_request(kit.client.other, &call.op, &kit_err));
        CHECK_INT(call.done, 0);
        KIT_UNTIL(kit.loop, call.done == 1);
        CHECK_INT(call.rc, SHOAL_ETIME);

        /* The answer to a request that nobody waits for any more. */
        const struct net_frame asked = kit.server.last;
        struct kit_call late;
        kit_call_init(&late, (uint8_t[200]){0}, 200, NULL, 0);
        KIT_OK(net_reply(kit.server.other, asked.connection, asked.sequence, &late.op, &kit_err));
        struct net_stats stats = {0};
        while (stats.late == 0) {
            kit_turn(kit.loop);
            net_stats(kit.client.net, &stats);
        }
        CHECK_INT(stats.timeouts, 2);
        kit.server.is_mute = false;
        kit_call_init(&call, NULL, 0, NULL, 0);
        KIT_OK(net_request(kit.client.other, &call.op, &kit_err));
        KIT_UNTIL(kit.loop, call.done == 1);
        CHECK_INT(call.rc, 0);
        CHECK(kit.server.frames <= frames + 2);
        CHECK_INT(kit.client.downs, 0);
        kit_close(&kit);
    }
}

/* Cancelled ops are done soon, exactly once: queued, waiting, or with the reply half there. */
TEST(requests_can_be_cancelled)
{
    kit_make_files();
    EACH_MODE(mode)
    {
        struct kit kit;
        kit_open(&kit, mode);
        kit.server.is_mute = true;
        struct kit_call queued;
        kit_call_init(&queued, NULL, 0, NULL, 0);
        KIT_OK(net_request(kit.client.other, &queued.op, &kit_err));
        net_cancel(&queued.op);
        CHECK_INT(queued.done, 0);
        KIT_UNTIL(kit.loop, queued.done == 1);
        CHECK_INT(queued.rc, SHOAL_EINTR);

        struct kit_call waiting;
        kit_call_init(&waiting, NULL, 0, NULL, 0);
        KIT_OK(net_request(kit.client.other, &waiting.op, &kit_err));
        KIT_UNTIL(kit.loop, kit.server.frames == 1);
        net_cancel(&waiting.op);
        KIT_UNTIL(kit.loop, waiting.done == 1);
        CHECK_INT(waiting.rc, SHOAL_EINTR);

        kit.server.is_mute = false;
        enum { BYTES = 32 << 20 };
        uint8_t *body = calloc(1, BYTES);
        uint8_t *reply = calloc(1, BYTES);
        CHECK(body != NULL && reply != NULL);
        memset(body, 7, BYTES);
        struct kit_call half;
        kit_call_init(&half, body, BYTES, reply, BYTES);
        KIT_OK(net_request(kit.client.other, &half.op, &kit_err));
        KIT_UNTIL(kit.loop, reply[0] == 7);
        if (half.done == 0) {
            net_cancel(&half.op);
            KIT_UNTIL(kit.loop, half.done == 1);
            CHECK_INT(half.rc, SHOAL_EINTR);
            const uint8_t last = reply[BYTES - 1];
            KIT_UNTIL(kit.loop, kit.server.answers == 0);
            for (int i = 0; i < 20; i++) net_loop_turn(kit.loop, 0);
            CHECK_INT(reply[BYTES - 1], last); /* Nothing is stored after `done`. */
        }
        struct kit_call next;
        kit_call_init(&next, body, 1000, reply, 1000);
        KIT_OK(net_request(kit.client.other, &next.op, &kit_err));
        KIT_UNTIL(kit.loop, next.done == 1);
        CHECK_INT(next.rc, 0);
        CHECK_INT(kit.client.downs, 0);
        free(body);
        free(reply);
        kit_close(&kit);
    }
}

/* A peer that is full says so; when it has room again, `writable` tells, once. */
TEST(full_queues_push_back)
{
    kit_make_files();
    EACH_MODE(mode)
    {
        struct kit kit;
        enum { CALLS = 64, BYTES = 1 << 20, QUEUE = 4 << 20 };
        kit_open_with(&kit, mode, QUEUE, 65536);
        uint8_t *body = calloc(1, BYTES);
        struct kit_call *calls = calloc(CALLS, sizeof *calls);
        CHECK(body != NULL && calls != NULL);
        size_t started = 0;
        int rc = 0;
        for (; started < CALLS; started++) {
            kit_call_init(&calls[started], body, BYTES, NULL, 0);
            rc = net_send(kit.client.other, &calls[started].op, &kit_err);
            if (rc != 0) break;
        }
        CHECK_INT(rc, SHOAL_ELIMIT);
        CHECK_HAS(kit_err.text, "queued");
        CHECK_INT(started, 3);
        struct net_peer_info info;
        net_peer_info(kit.client.other, &info);
        CHECK(info.queued_bytes > 0 && info.queued_bytes <= QUEUE);
        KIT_UNTIL(kit.loop, kit.client.writables == 1);
        const size_t refused = started;
        for (; started < refused + 2; started++) {
            kit_call_init(&calls[started], body, BYTES, NULL, 0);
            KIT_OK(net_send(kit.client.other, &calls[started].op, &kit_err));
        }
        KIT_UNTIL(kit.loop, kit.server.frames == (int)started);
        for (size_t i = 0; i < started; i++) CHECK_INT(calls[i].done, 1);
        CHECK_INT(kit.client.writables, 1);

        /* A single frame may be longer than the queue. */
        uint8_t *large = calloc(1, 2 * QUEUE);
        CHECK(large != NULL);
        struct kit_call one;
        kit_call_init(&one, large, 2 * (size_t)QUEUE, NULL, 0);
        KIT_OK(net_send(kit.client.other, &one.op, &kit_err));
        KIT_UNTIL(kit.loop, kit.server.frames == (int)started + 1);
        free(body);
        free(large);
        free(calls);
        kit_close(&kit);
    }
}

/* A connection that breaks completes what was on it with SHOAL_EPEER, tells both sides, and comes
 * back with a new number. A frame that was half there is abandoned. */
TEST(broken_connections_come_back)
{
    kit_make_files();
    EACH_MODE(mode)
    {
        struct kit kit;
        kit_open(&kit, mode);
        kit.server.is_mute = true;
        struct kit_call waiting;
        kit_call_init(&waiting, NULL, 0, NULL, 0);
        KIT_OK(net_request(kit.client.other, &waiting.op, &kit_err));
        KIT_UNTIL(kit.loop, kit.server.frames == 1);
        enum { BYTES = 64 << 20 };
        uint8_t *body = calloc(1, BYTES);
        CHECK(body != NULL);
        struct kit_call half;
        kit_call_init(&half, body, BYTES, NULL, 0);
        KIT_OK(net_send(kit.client.other, &half.op, &kit_err));
        KIT_UNTIL(kit.loop, kit.server.heads == 1);
        net_peer_drop(kit.client.other, "the test says so");
        CHECK_INT(kit.client.downs, 0); /* never inside the call */
        const uint64_t before = kit.client.connection;
        KIT_UNTIL(kit.loop, kit.client.downs == 1 && kit.server.downs == 1);
        CHECK_STR(kit.client.why, "the test says so");
        CHECK_INT(waiting.done, 1);
        CHECK_INT(waiting.rc, SHOAL_EPEER);
        CHECK_INT(half.done, 1);
        CHECK_INT(half.rc, SHOAL_EPEER);
        CHECK_INT(kit.server.abandoned, 1);
        CHECK(!net_peer_is_up(kit.client.other));
        CHECK_INT(net_send(kit.client.other, &half.op, &kit_err), SHOAL_EPEER);
        CHECK_HAS(kit_err.text, "ps/0");

        KIT_UNTIL(kit.loop, kit.client.ups == 2 && kit.server.ups == 2);
        CHECK(kit.client.connection > before);
        /* An answer for the connection before this one has nobody to go to. */
        const struct net_frame asked = kit.server.last;
        kit_call_init(&half, body, 10, NULL, 0);
        CHECK_INT(net_reply(kit.server.other, asked.connection, asked.sequence, &half.op, &kit_err),
                  SHOAL_EPEER);
        kit.server.is_mute = false;
        struct kit_call again;
        kit_call_init(&again, body, 10, body + 100, 10);
        KIT_OK(net_request(kit.client.other, &again.op, &kit_err));
        KIT_UNTIL(kit.loop, again.done == 1);
        CHECK_INT(again.rc, 0);
        free(body);
        kit_close(&kit);
    }
}

/* Who starts first does not matter: the dialer waits, says for whom and why, and finds the other. */
TEST(start_order_does_not_matter)
{
    kit_make_files();
    EACH_MODE(mode)
    {
        struct kit kit = {.loop = kit_loop()};
        /* A port that is free now. */
        struct net_opts opts = kit_server_opts(&kit.server, kit.loop, mode);
        KIT_OK(net_open(&opts, &kit.server.net, &kit_err));
        const uint16_t port = net_port(kit.server.net);
        net_close(kit.server.net);
        opts = kit_client_opts(&kit.client, kit.loop, mode, port);
        KIT_OK(net_open(&opts, &kit.client.net, &kit_err));
        kit.client.other = net_peer_find(kit.client.net, KIT_SERVER);
        CHECK(kit.client.other != NULL);
        CHECK(net_peer_find(kit.client.net, 99) == NULL);
        CHECK_STR(net_peer_name(kit.client.other), "ps/0");
        struct net_peer_info info = {0};
        while (info.attempts < 3) {
            kit_turn(kit.loop);
            net_peer_info(kit.client.other, &info);
        }
        CHECK(!info.is_up && info.carrier == NULL && info.connection == 0);
        CHECK_HAS(info.problem, "connect");
        CHECK_INT(kit.client.ups + kit.client.downs, 0);

        char listen[32];
        snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
        opts = kit_server_opts(&kit.server, kit.loop, mode);
        opts.listen = listen;
        KIT_OK(net_open(&opts, &kit.server.net, &kit_err));
        KIT_UNTIL(kit.loop, kit.client.ups == 1 && kit.server.ups == 1);
        net_peer_info(kit.client.other, &info);
        CHECK(info.is_up && info.attempts == 0 && info.problem[0] == '\0');
        kit_close(&kit);
    }
}

/* `auto` takes shared memory where the other side is found on this host, else TCP. */
TEST(auto_chooses_the_carrier)
{
    kit_make_files();
    static const struct {
        enum net_carrier_kind server;
        enum net_carrier_kind client;
        enum kit_mode secure;
        const char *want;
    } rows[] = {{NET_AUTO, NET_AUTO, KIT_TCP, "shm"},    {NET_TCP, NET_AUTO, KIT_TCP, "tcp"},
                {NET_AUTO, NET_TCP, KIT_TCP, "tcp"},     {NET_AUTO, NET_SHM, KIT_TCP, "shm"},
                {NET_AUTO, NET_AUTO, KIT_SECRET, "shm"}, {NET_TCP, NET_AUTO, KIT_SECRET, "tls"},
                {NET_SHM, NET_AUTO, KIT_TCP, "shm"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kit kit = {.loop = kit_loop()};
        struct net_opts opts = kit_server_opts(&kit.server, kit.loop, rows[i].secure);
        opts.carrier = rows[i].server;
        KIT_OK(net_open(&opts, &kit.server.net, &kit_err));
        opts = kit_client_opts(&kit.client, kit.loop, rows[i].secure, net_port(kit.server.net));
        opts.carrier = rows[i].client;
        KIT_OK(net_open(&opts, &kit.client.net, &kit_err));
        KIT_UNTIL(kit.loop, kit.client.ups == 1 && kit.server.ups == 1);
        struct net_peer_info info;
        net_peer_info(kit.client.other, &info);
        CHECK_STR(info.carrier, rows[i].want);
        kit_close(&kit);
    }
}

/* Tools connect without being listed, to whoever is at the address. */
TEST(guests_may_come)
{
    kit_make_files();
    struct net_loop *loop = kit_loop();
    struct kit_end server = {0};
    struct net_opts opts = kit_server_opts(&server, loop, KIT_TCP);
    opts.guest_job = "ctl";
    KIT_OK(net_open(&opts, &server.net, &kit_err));
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", net_port(server.net));
    const struct net_peer_opts whoever = {.address = address, .dial = true};
    struct kit_end guests[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        opts = kit_server_opts(&guests[i], loop, KIT_TCP);
        opts.name = "ctl/1";
        opts.cluster = 0;
        opts.listen = NULL;
        opts.peers = &whoever;
        KIT_OK(net_open(&opts, &guests[i].net, &kit_err));
    }
    KIT_UNTIL(loop, guests[0].ups == 1 && guests[1].ups == 1);
    CHECK_STR(net_peer_name(guests[0].other), "ps/0");
    CHECK_INT(net_peer_task(guests[0].other), KIT_SERVER);
    CHECK_INT(server.downs, 0);
    struct kit_call call;
    kit_call_init(&call, NULL, 0, NULL, 0);
    KIT_OK(net_request(guests[0].other, &call.op, &kit_err));
    KIT_UNTIL(loop, call.done == 1);
    CHECK_STR(net_peer_name(server.last.peer), "ctl/1");
    server.other = NULL;
    kit_end_close(&server);
    kit_end_close(&guests[0]);
    kit_end_close(&guests[1]);
    net_loop_destroy(loop);
}

/* Settings that would be dangerous or cannot work are refused, in words that help. */
TEST(bad_settings_are_refused)
{
    kit_make_files();
    kit_write("short", "too short\n");
    CHECK_INT(mkdir("open", 0755), 0);
    static const struct {
        const char *name;
        const char *listen;
        const char *peer; /* its address */
        const char *folder;
        struct net_secure secure;
        enum net_carrier_kind carrier;
        uint64_t ring_bytes;
        const char *want;
    } rows[] = {
        {"any", "0.0.0.0:0", NULL, NULL, {0}, NET_TCP, 0, "--secret-file"},
        {"any6", "[::]:0", NULL, NULL, {0}, NET_TCP, 0, "--secret-file"},
        {"elsewhere", "192.0.2.1:0", NULL, NULL, {0}, NET_TCP, 0, "127.0.0.1"},
        {"no port", "127.0.0.1", NULL, NULL, {0}, NET_TCP, 0, "host:port"},
        {"peer in the clear", NULL, "192.0.2.1:1", NULL, {0}, NET_TCP, 0, "in the clear"},
        {"peer malformed", NULL, "there", NULL, {0}, NET_TCP, 0, "worker/0: address there"},
        {"no secret", NULL, NULL, NULL, {.secret_file = "none"}, NET_TCP, 0, "none"},
        {"short", NULL, NULL, NULL, {.secret_file = "short"}, NET_TCP, 0, "at least 16"},
        {"both", NULL, NULL, NULL, {"secret", "a", "b", "c"}, NET_TCP, 0, "not both"},
        {"half", NULL, NULL, NULL, {NULL, "task.pem", "task.key", NULL}, NET_TCP, 0, "authority"},
        {"mixed",
         NULL,
         NULL,
         NULL,
         {NULL, "task.pem", "other.key", "ca.pem"},
         NET_TCP,
         0,
         "other.key"},
        {"no file", NULL, NULL, NULL, {NULL, "x.pem", "task.key", "ca.pem"}, NET_TCP, 0, "x.pem"},
        {"no ca", NULL, NULL, NULL, {NULL, "task.pem", "task.key", "y.pem"}, NET_TCP, 0, "y.pem"},
        {"folder", NULL, NULL, "open", {0}, NET_SHM, 0, "chmod 700"},
        {"ring", NULL, NULL, NULL, {0}, NET_SHM, 5000, "power of two"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kit_end end = {0};
        struct net_loop *loop = kit_loop();
        const struct net_peer_opts peer = {
            .task = 2, .name = "worker/0", .address = rows[i].peer, .dial = rows[i].peer != NULL};
        struct net_opts opts = kit_server_opts(&end, loop, KIT_TCP);
        opts.carrier = rows[i].carrier;
        opts.listen = rows[i].listen;
        opts.secure = rows[i].secure;
        opts.peers = &peer;
        opts.ring_bytes = rows[i].ring_bytes;
        if (rows[i].folder != NULL) opts.folder = rows[i].folder;
        kit_err.text[0] = '\0';
        const int rc = net_open(&opts, &end.net, &kit_err);
        if (rc == 0) test_fail(__FILE__, __LINE__, "%s: opened", rows[i].name);
        CHECK_HAS(kit_err.text, rows[i].want);
        net_loop_destroy(loop);
        CHECK_INT(mem_bytes(MEM_NET), 0);
    }
    CHECK_INT(net_listen_check("127.0.0.1:1", &(struct net_secure){0}, &kit_err), 0);
    CHECK_INT(net_listen_check("[::1]:1", &(struct net_secure){0}, &kit_err), 0);
    CHECK_INT(net_listen_check("localhost:1", &(struct net_secure){0}, &kit_err), 0);
    CHECK_INT(net_listen_check("0.0.0.0:1", &(struct net_secure){.secret_file = "x"}, &kit_err), 0);
}

/* With a secret a task may listen to the whole network, and is reached under any of its addresses and
 * by name. */
TEST(with_a_secret_listening_everywhere_is_allowed)
{
    kit_make_files();
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "localhost"};
    struct net_loop *loop = kit_loop();
    struct kit_end server = {0};
    struct net_opts opts = kit_server_opts(&server, loop, KIT_SECRET);
    opts.listen = "0.0.0.0:0";
    KIT_OK(net_open(&opts, &server.net, &kit_err));
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        char address[32];
        snprintf(address, sizeof address, "%s:%u", hosts[i], net_port(server.net));
        const struct net_peer_opts peer = {
            .task = KIT_SERVER, .name = "ps/0", .address = address, .dial = true};
        struct kit_end client = {0};
        opts = kit_client_opts(&client, loop, KIT_SECRET, 0);
        opts.peers = &peer;
        KIT_OK(net_open(&opts, &client.net, &kit_err));
        KIT_UNTIL(loop, client.ups == 1);
        kit_end_close(&client);
        KIT_UNTIL(loop, server.downs == (int)i + 1);
    }
    kit_end_close(&server);
    net_loop_destroy(loop);
}

/* Two tasks of one name on one host: the second is told. The first may come back after a kill. */
TEST(one_name_one_task)
{
    kit_make_files();
    struct net_loop *loop = kit_loop();
    struct kit_end first = {0};
    struct kit_end second = {0};
    struct net_opts opts = kit_server_opts(&first, loop, KIT_SHM);
    KIT_OK(net_open(&opts, &first.net, &kit_err));
    opts = kit_server_opts(&second, loop, KIT_SHM);
    CHECK_INT(net_open(&opts, &second.net, &kit_err), SHOAL_EBUSY);
    CHECK_HAS(kit_err.text, "is running");
    kit_end_close(&first);
    KIT_OK(net_open(&opts, &second.net, &kit_err));
    kit_end_close(&second);
    net_loop_destroy(loop);
}

/* Whichever allocation fails, opening either works or fails cleanly; and so does a connection. */
TEST(allocations_may_fail)
{
    log_set_level(LOG_ERROR);
    kit_make_files();
    EACH_MODE(mode)
    {
        for (uint64_t nth = 1; nth < 40; nth++) {
            struct kit kit = {.loop = kit_loop()};
            mem_fail_nth(nth);
            struct net_opts opts = kit_server_opts(&kit.server, kit.loop, mode);
            opts.guest_job = "ctl";
            int rc = net_open(&opts, &kit.server.net, &kit_err);
            if (rc == 0) {
                opts = kit_client_opts(&kit.client, kit.loop, mode, net_port(kit.server.net));
                rc = net_open(&opts, &kit.client.net, &kit_err);
            }
            if (rc == 0) { /* A connection that failed for want of memory is tried again. */
                KIT_UNTIL(kit.loop,
                          kit.client.ups > kit.client.downs && kit.server.ups > kit.server.downs);
            } else {
                CHECK_INT(rc, SHOAL_ENOMEM);
            }
            mem_fail_nth(0);
            kit_close(&kit);
        }
    }
}
