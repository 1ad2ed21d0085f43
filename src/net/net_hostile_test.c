/* Strangers, old versions, wrong secrets, random bytes, half frames, huge lengths, floods: each is
 * refused and counted by its reason, and a good client beside it notices nothing. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "net/net_frame.h"
#include "net/net_testkit.h"

/* A server with a good client, and a place (worker/1) for those who pose as a task. */
struct scene {
    struct net_loop *loop;
    struct kit_end server;
    struct kit_end good;
    enum kit_mode mode;
    int raw_ups; /* of worker/1 */
    int raw_downs;
    int raw_frames;
};

#define RAW_TASK 3u

static struct scene *scene_of(void *ctx)
{
    return (struct scene *)((char *)ctx - offsetof(struct scene, server));
}

static void on_up(void *ctx, struct net_peer *peer, uint64_t connection)
{
    if (net_peer_task(peer) == RAW_TASK) {
        scene_of(ctx)->raw_ups++;
    } else {
        kit_up(ctx, peer, connection);
    }
}

static void on_down(void *ctx, struct net_peer *peer, uint64_t connection, const struct err *why)
{
    if (net_peer_task(peer) == RAW_TASK) {
        scene_of(ctx)->raw_downs++;
    } else {
        kit_down(ctx, peer, connection, why);
    }
}

static void on_frame(void *ctx, const struct net_frame *frame)
{
    if (net_peer_task(frame->peer) == RAW_TASK) {
        scene_of(ctx)->raw_frames++;
    } else {
        kit_frame(ctx, frame);
    }
}

static void scene_open(struct scene *scene, enum kit_mode mode)
{
    static const struct net_peer_opts peers[] = {
        {.task = KIT_CLIENT, .name = "worker/0"},
        {.task = RAW_TASK, .name = "worker/1"},
        {.task = 4, .name = "chief/0", .address = "127.0.0.1:9", .dial = true}};
    log_set_level(LOG_ERROR);
    kit_make_files();
    *scene = (struct scene){.loop = kit_loop(), .mode = mode};
    struct net_opts opts = kit_server_opts(&scene->server, scene->loop, mode);
    opts.peers = peers;
    opts.peers_count = 3;
    opts.hello_timeout_ms = 300;
    opts.stall_timeout_ms = 300;
    opts.events.up = on_up;
    opts.events.down = on_down;
    opts.events.frame = on_frame;
    KIT_OK(net_open(&opts, &scene->server.net, &kit_err));
    opts = kit_client_opts(&scene->good, scene->loop, mode, net_port(scene->server.net));
    KIT_OK(net_open(&opts, &scene->good.net, &kit_err));
    KIT_UNTIL(scene->loop, scene->good.ups == 1 && scene->server.ups == 1);
}

/* The good client is served and has never lost its connection. */
static void good_client_works(struct scene *scene)
{
    uint8_t body[1000];
    uint8_t reply[1000] = {0};
    kit_fill(body, sizeof body, 1);
    struct kit_call call;
    kit_call_init(&call, body, sizeof body, reply, sizeof reply);
    KIT_OK(net_request(scene->good.other, &call.op, &kit_err));
    KIT_UNTIL(scene->loop, call.done == 1);
    CHECK_INT(call.rc, 0);
    CHECK(memcmp(body, reply, sizeof body) == 0);
    CHECK_INT(scene->good.downs + scene->server.downs, 0);
}

static void scene_close(struct scene *scene)
{
    good_client_works(scene);
    kit_end_close(&scene->good);
    kit_end_close(&scene->server);
    net_loop_destroy(scene->loop);
    CHECK_INT(mem_bytes(MEM_NET), 0);
}

/* ---- raw sockets ------------------------------------------------------------------------------ */

static int raw_connect(struct scene *scene)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(net_port(scene->server.net)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Connects to the only Unix socket in the folder. */
static int raw_connect_unix(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    DIR *folder = opendir("sockets");
    CHECK(folder != NULL);
    struct dirent *entry = NULL;
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.') continue;
        snprintf(address.sun_path, sizeof address.sun_path, "sockets/%.64s", entry->d_name);
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
            closedir(folder);
            return fd;
        }
        close(fd);
    }
    test_fail(__FILE__, __LINE__, "nobody listens in the folder");
}

static void raw_read(struct scene *scene, int fd, void *bytes, size_t count)
{
    size_t have = 0;
    while (have < count) {
        const ssize_t got = recv(fd, (char *)bytes + have, count - have, MSG_DONTWAIT);
        CHECK(got > 0 || (got < 0 && errno == EAGAIN));
        if (got > 0) have += (size_t)got;
        if (got < 0) kit_turn(scene->loop);
    }
}

static void raw_write(int fd, const void *bytes, size_t count)
{
    CHECK_INT(send(fd, bytes, count, MSG_NOSIGNAL), count);
}

/* Turns until the server has closed the connection; what it said before is read. */
static void raw_until_closed(struct scene *scene, int fd)
{
    char bytes[4096];
    for (;;) {
        const ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) break;
        kit_turn(scene->loop);
    }
    close(fd);
}

static void read_challenge(struct scene *scene, int fd, uint8_t nonce_out[NET_NONCE_BYTES])
{
    uint8_t bytes[NET_HEADER_BYTES + NET_NONCE_BYTES + 4];
    struct net_header header;
    raw_read(scene, fd, bytes, sizeof bytes);
    CHECK_INT(net_header_decode(bytes, &header), NET_OK);
    CHECK_INT(header.type, NET_TYPE_CHALLENGE);
    CHECK_INT(net_challenge_decode(bytes + NET_HEADER_BYTES, header.meta_bytes, nonce_out), NET_OK);
}

/* Calls, and what to say to the challenge. */
static struct net_hello raw_hello(struct scene *scene, int fd)
{
    struct net_hello hello = {.cluster = KIT_CLUSTER, .task = RAW_TASK, .incarnation = 5};
    uint8_t call[NET_HEADER_BYTES];
    net_header_encode(&(struct net_header){.type = NET_TYPE_CALL, .sender = RAW_TASK}, call);
    raw_write(fd, call, sizeof call);
    snprintf(hello.name, sizeof hello.name, "worker/1");
    read_challenge(scene, fd, hello.challenge);
    return hello;
}

static size_t encode_hello(const struct net_hello *hello, uint8_t *bytes_out)
{
    const size_t meta_bytes = net_hello_encode(hello, bytes_out + NET_HEADER_BYTES);
    const struct net_header header = {
        .type = NET_TYPE_HELLO, .sender = hello->task, .meta_bytes = (uint32_t)meta_bytes};
    net_header_encode(&header, bytes_out);
    return NET_HEADER_BYTES + meta_bytes;
}

/* A connection that has been welcomed as worker/1. */
static int raw_welcome(struct scene *scene)
{
    uint8_t bytes[NET_HEADER_BYTES + NET_HELLO_BYTES_MAX];
    const int fd = raw_connect(scene);
    const struct net_hello hello = raw_hello(scene, fd);
    raw_write(fd, bytes, encode_hello(&hello, bytes));
    struct net_header header;
    raw_read(scene, fd, bytes, NET_HEADER_BYTES);
    CHECK_INT(net_header_decode(bytes, &header), NET_OK);
    CHECK_INT(header.type, NET_TYPE_WELCOME);
    raw_read(scene, fd, bytes, header.meta_bytes);
    return fd;
}

/* ---- before the greeting ---------------------------------------------------------------------- */

enum trick {
    RANDOM_BYTES,
    HTTP,
    OLD_VERSION,
    NEW_VERSION,
    BAD_HEADER_SUM,
    BAD_META_SUM,
    LONG_META,
    LONG_BODY,
    NOT_A_HELLO,
    CALLS_TWICE,
    OWN_TYPE,
    TRUNCATED_HELLO,
    WRONG_CLUSTER,
    UNKNOWN_TASK,
    WRONG_NAME,
    IMPOSTOR_OF_DIALED,
    REPLAYED,
    REPLAYED_CHANGED,
    WITH_A_PROOF,
    SECOND_HELLO,
    TRICKS
};

static const struct {
    const char *name;
    enum net_refusal want;
} tricks[TRICKS] = {
    [RANDOM_BYTES] = {"random bytes", NET_REFUSED_MAGIC},
    [HTTP] = {"a web browser", NET_REFUSED_MAGIC},
    [OLD_VERSION] = {"version 0", NET_REFUSED_VERSION},
    [NEW_VERSION] = {"version 2", NET_REFUSED_VERSION},
    [BAD_HEADER_SUM] = {"a header with a changed byte", NET_REFUSED_CHECKSUM},
    [BAD_META_SUM] = {"a hello with a changed byte", NET_REFUSED_CHECKSUM},
    [LONG_META] = {"a meta part of 1 MiB", NET_REFUSED_LENGTH},
    [LONG_BODY] = {"a body of 4 GiB", NET_REFUSED_LENGTH},
    [NOT_A_HELLO] = {"a frame before the hello", NET_REFUSED_HELLO},
    [CALLS_TWICE] = {"a second call", NET_REFUSED_HELLO},
    [OWN_TYPE] = {"a welcome in place of a hello", NET_REFUSED_HELLO},
    [TRUNCATED_HELLO] = {"a hello without its end", NET_REFUSED_HELLO},
    [WRONG_CLUSTER] = {"another cluster", NET_REFUSED_CLUSTER},
    [UNKNOWN_TASK] = {"an unknown task", NET_REFUSED_TASK},
    [WRONG_NAME] = {"the name of another task", NET_REFUSED_TASK},
    [IMPOSTOR_OF_DIALED] = {"a task that we dial", NET_REFUSED_CROSSED},
    [REPLAYED] = {"a true hello of another connection", NET_REFUSED_REPLAY},
    [REPLAYED_CHANGED] = {"the same with bytes changed", NET_REFUSED_REPLAY},
    [WITH_A_PROOF] = {"a proof where there is no secret", NET_REFUSED_SECRET},
    [SECOND_HELLO] = {"a hello twice", NET_REFUSED_FRAME},
};

static void play(struct scene *scene, enum trick trick)
{
    uint8_t bytes[NET_HEADER_BYTES + NET_HELLO_BYTES_MAX + 64] = {0};
    const int fd = raw_connect(scene);
    struct net_hello hello = raw_hello(scene, fd);
    if (trick == WRONG_CLUSTER) hello.cluster++;
    if (trick == UNKNOWN_TASK) hello.task = 99;
    if (trick == WRONG_NAME) snprintf(hello.name, sizeof hello.name, "worker/0");
    if (trick == REPLAYED) hello.challenge[3] ^= 1;
    if (trick == WITH_A_PROOF) hello.proof[0] = 1;
    if (trick == IMPOSTOR_OF_DIALED) {
        hello.task = 4;
        snprintf(hello.name, sizeof hello.name, "chief/0");
    }
    if (trick == REPLAYED_CHANGED) {
        memset(hello.challenge, 0, sizeof hello.challenge);
        hello.incarnation = 6;
    }
    size_t count = encode_hello(&hello, bytes);
    struct net_header header = {.type = NET_TYPE_HELLO, .sender = RAW_TASK};
    switch (trick) {
    case RANDOM_BYTES: kit_fill(bytes, count = 300, 77); break;
    case HTTP:
        count = (size_t)snprintf((char *)bytes, sizeof bytes,
                                 "GET / HTTP/1.1\r\nHost: localhost:8080\r\nAccept: */*\r\n\r\n");
        break;
    case OLD_VERSION: bytes[4] = 0; break;
    case NEW_VERSION: bytes[4] = 2; break;
    case BAD_HEADER_SUM: bytes[20] ^= 4; break;
    case BAD_META_SUM: bytes[NET_HEADER_BYTES + 9] ^= 4; break;
    case LONG_META: header.meta_bytes = NET_META_BYTES_MAX; break;
    case LONG_BODY: header.body_bytes = NET_BODY_BYTES_MAX; break;
    case NOT_A_HELLO: header.type = 1; break;
    case CALLS_TWICE: header.type = NET_TYPE_CALL; break;
    case OWN_TYPE: bytes[6] = NET_TYPE_WELCOME & 0xff; break;
    default: break;
    }
    if (trick >= LONG_META && trick <= CALLS_TWICE) {
        net_header_encode(&header, bytes);
        count = NET_HEADER_BYTES;
    }
    if (trick == OWN_TYPE) {
        header.type = NET_TYPE_WELCOME;
        header.meta_bytes = (uint32_t)(count - NET_HEADER_BYTES);
        net_header_encode(&header, bytes);
    }
    if (trick == TRUNCATED_HELLO) { /* well summed, but a challenge, not a hello */
        header.meta_bytes =
            (uint32_t)net_challenge_encode(hello.challenge, bytes + NET_HEADER_BYTES);
        net_header_encode(&header, bytes);
        count = NET_HEADER_BYTES + header.meta_bytes;
    }
    if (trick == SECOND_HELLO) {
        memcpy(bytes + count, bytes, 64);
        raw_write(fd, bytes, count);
        KIT_UNTIL(scene->loop, scene->raw_ups == 1);
    }
    raw_write(fd, bytes, count);
    raw_until_closed(scene, fd);
}

TEST(strangers_are_refused_by_reason)
{
    struct scene scene;
    scene_open(&scene, KIT_TCP);
    const int fds = kit_fds();
    uint64_t want[NET_REFUSAL_COUNT] = {0};
    for (int trick = 0; trick < TRICKS; trick++) {
        play(&scene, (enum trick)trick);
        want[tricks[trick].want]++;
        for (int i = 0; i < NET_REFUSAL_COUNT; i++) {
            const uint64_t got = kit_refused(&scene.server, (enum net_refusal)i);
            if (got != want[i]) {
                test_fail(__FILE__, __LINE__, "%s: refused for %s %llu times, want %llu",
                          tricks[trick].name, net_refusal_key((unsigned)i), (unsigned long long)got,
                          (unsigned long long)want[i]);
            }
        }
        good_client_works(&scene);
    }
    CHECK_INT(scene.raw_frames, 0);
    CHECK_INT(kit_fds(), fds);
    scene_close(&scene);
}

/* Who does not call first is no task of ours. */
TEST(a_hello_without_a_call_is_refused)
{
    struct scene scene;
    scene_open(&scene, KIT_TCP);
    uint8_t bytes[NET_HEADER_BYTES + NET_HELLO_BYTES_MAX];
    const int fd = raw_connect(&scene);
    struct net_hello hello = {.cluster = KIT_CLUSTER, .task = RAW_TASK, .name = "worker/1"};
    read_challenge(&scene, fd, hello.challenge);
    raw_write(fd, bytes, encode_hello(&hello, bytes));
    raw_until_closed(&scene, fd);
    CHECK_INT(kit_refused(&scene.server, NET_REFUSED_HELLO), 1);
    scene_close(&scene);
}

/* Every single bit of a true first frame: none of them gets in, none does harm. */
TEST(first_frames_with_any_bit_changed_are_refused)
{
    struct scene scene;
    scene_open(&scene, KIT_TCP);
    uint8_t bytes[NET_HEADER_BYTES + NET_HELLO_BYTES_MAX];
    const struct net_hello any = {.name = "worker/1"};
    const size_t bits = 8 * encode_hello(&any, bytes);
    for (size_t bit = 0; bit < bits; bit += 7) {
        const int fd = raw_connect(&scene);
        const struct net_hello hello = raw_hello(&scene, fd);
        const size_t count = encode_hello(&hello, bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        raw_write(fd, bytes, count);
        raw_until_closed(&scene, fd);
    }
    CHECK_INT(scene.raw_ups, 0);
    scene_close(&scene);
}

/* The one who is refused is told why. */
TEST(refusals_say_why)
{
    struct scene scene;
    scene_open(&scene, KIT_TCP);
    struct kit_end stranger = {0};
    struct net_opts opts =
        kit_client_opts(&stranger, scene.loop, KIT_TCP, net_port(scene.server.net));
    opts.task = 50;
    opts.name = "worker/50";
    KIT_OK(net_open(&opts, &stranger.net, &kit_err));
    struct net_peer_info info = {0};
    while (info.attempts < 2) {
        kit_turn(scene.loop);
        net_peer_info(net_peer_find(stranger.net, KIT_SERVER), &info);
    }
    CHECK_HAS(info.problem, "it refuses us: a task that is not in this cluster");
    CHECK(kit_refused(&scene.server, NET_REFUSED_TASK) >= 1);
    kit_end_close(&stranger);
    scene_close(&scene);
}

/* Connections that say nothing, or half of it, are closed when their time is over. */
TEST(silent_connections_are_closed)
{
    struct scene scene;
    scene_open(&scene, KIT_TCP);
    uint8_t bytes[NET_HEADER_BYTES + NET_HELLO_BYTES_MAX];
    const int silent = raw_connect(&scene);
    const int half = raw_connect(&scene);
    const int half_header = raw_connect(&scene);
    const struct net_hello hello = raw_hello(&scene, half);
    raw_write(half, bytes, encode_hello(&hello, bytes) - 1);
    raw_write(half_header, bytes, 20);
    const uint64_t start = clock_now_ns();
    raw_until_closed(&scene, silent);
    raw_until_closed(&scene, half);
    raw_until_closed(&scene, half_header);
    CHECK(clock_now_ns() - start < 5000000000u);
    CHECK_INT(kit_refused(&scene.server, NET_REFUSED_SILENT), 3);
    scene_close(&scene);
}

/* More connections than there is place for: the silent ones go, and one who speaks gets in. */
TEST(floods_do_not_keep_others_out)
{
    enum { FLOOD = 600 };
    struct scene scene;
    scene_open(&scene, KIT_TCP);
    const int fds_before = kit_fds();
    int flood[FLOOD];
    for (int i = 0; i < FLOOD; i++) {
        flood[i] = raw_connect(&scene);
        if (i % 50 == 0) kit_turn(scene.loop);
        if (i == FLOOD / 2) {
            const int fd = raw_welcome(&scene);
            KIT_UNTIL(scene.loop, scene.raw_ups == 1);
            close(fd);
            KIT_UNTIL(scene.loop, scene.raw_downs == 1);
        }
    }
    KIT_UNTIL(scene.loop, kit_refused(&scene.server, NET_REFUSED_TOO_MANY) >=
                              FLOOD - NET_STRANGERS_PER_ADDRESS_MAX - 1);
    CHECK(kit_fds() - fds_before <= FLOOD + (int)NET_STRANGERS_MAX);
    good_client_works(&scene);
    for (int i = 0; i < FLOOD; i++) close(flood[i]);
    KIT_UNTIL(scene.loop, kit_fds() == fds_before);
    scene_close(&scene);
}

/* Out of descriptors the server goes on, and does not turn in circles. */
TEST(no_descriptors_left)
{
    struct scene scene;
    scene_open(&scene, KIT_TCP);
    const int limit = kit_fds() + 20;
    int fds[64];
    int count = 0;
    for (; count < 12; count++) fds[count] = raw_connect(&scene);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)limit, 20000});
    KIT_UNTIL(scene.loop, kit_refused(&scene.server, NET_REFUSED_MEMORY) >= 1);
    good_client_works(&scene);
    struct net_loop_stats before;
    struct net_loop_stats after;
    for (int i = 0; i < count; i++) close(fds[i]);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){20000, 20000});
    for (int i = 0; i < 50; i++) kit_turn(scene.loop);
    net_loop_stats(scene.loop, &before);
    net_loop_turn(scene.loop, clock_now_ns() + 50000000);
    net_loop_stats(scene.loop, &after);
    CHECK(after.turns - before.turns < 3);
    scene_close(&scene);
}

/* ---- after the greeting ----------------------------------------------------------------------- */

/* A task that has been welcomed and then misbehaves loses its connection, and only that. */
TEST(frames_of_a_broken_task_are_refused)
{
    static const struct {
        const char *name;
        struct net_header header;
        enum net_refusal want;
    } rows[] = {
        {"another's name", {.type = 1, .sender = KIT_CLIENT}, NET_REFUSED_SENDER},
        {"another's name, a body", {.type = 1, .sender = 9, .body_bytes = 5}, NET_REFUSED_SENDER},
        {"net's own type", {.type = NET_TYPE_WELCOME, .sender = RAW_TASK}, NET_REFUSED_FRAME},
        {"half a body", {.type = 1, .sender = RAW_TASK, .body_bytes = 100}, NET_REFUSED_HALF_FRAME},
        {"half a meta", {.type = 1, .sender = RAW_TASK, .meta_bytes = 9}, NET_REFUSED_HALF_FRAME},
        {"reply to nothing", {.type = 1, .flags = NET_FLAG_REPLY, .sender = RAW_TASK}, NET_OK},
    };
    struct scene scene;
    scene_open(&scene, KIT_TCP);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int fd = raw_welcome(&scene);
        const uint64_t before = kit_refused(&scene.server, rows[i].want);
        uint8_t bytes[NET_HEADER_BYTES];
        net_header_encode(&rows[i].header, bytes);
        raw_write(fd, bytes, sizeof bytes);
        if (rows[i].want == NET_OK) {
            struct net_stats stats = {0};
            while (stats.late == 0) {
                kit_turn(scene.loop);
                net_stats(scene.server.net, &stats);
            }
            close(fd);
            continue;
        }
        raw_until_closed(&scene, fd);
        if (kit_refused(&scene.server, rows[i].want) != before + 1) {
            test_fail(__FILE__, __LINE__, "%s: not refused for %s", rows[i].name,
                      net_refusal_key((unsigned)rows[i].want));
        }
        good_client_works(&scene);
    }
    CHECK_INT(scene.raw_frames, 0);
    scene_close(&scene);
}

/* A newer connection of the same task takes the place of the old one; an older incarnation is out. */
TEST(newer_connections_replace_older_ones)
{
    struct scene scene;
    scene_open(&scene, KIT_TCP);
    const int first = raw_welcome(&scene);
    const int second = raw_welcome(&scene);
    raw_until_closed(&scene, first);
    CHECK_INT(scene.raw_ups, 2);
    CHECK_INT(scene.raw_downs, 1);
    uint8_t bytes[NET_HEADER_BYTES + NET_HELLO_BYTES_MAX];
    const int ghost = raw_connect(&scene);
    struct net_hello hello = raw_hello(&scene, ghost);
    hello.incarnation = 4;
    raw_write(ghost, bytes, encode_hello(&hello, bytes));
    raw_until_closed(&scene, ghost);
    CHECK_INT(kit_refused(&scene.server, NET_REFUSED_STALE), 1);
    CHECK_INT(scene.raw_downs, 1);
    close(second);
    scene_close(&scene);
}

/* ---- secrets and certificates ----------------------------------------------------------------- */

static void refuse_secure(enum kit_mode mode, struct net_secure secure, enum net_refusal want,
                          const char *words)
{
    struct scene scene;
    scene_open(&scene, mode);
    struct kit_end stranger = {0};
    struct net_opts opts = kit_client_opts(&stranger, scene.loop, mode, net_port(scene.server.net));
    opts.task = RAW_TASK;
    opts.name = "worker/1";
    opts.secure = secure;
    KIT_OK(net_open(&opts, &stranger.net, &kit_err));
    KIT_UNTIL(scene.loop, kit_refused(&scene.server, want) >= 1);
    struct net_peer_info info = {0};
    while (info.problem[0] == '\0') {
        kit_turn(scene.loop);
        net_peer_info(net_peer_find(stranger.net, KIT_SERVER), &info);
    }
    if (words != NULL) CHECK_HAS(info.problem, words);
    CHECK_INT(stranger.ups + scene.raw_ups, 0);
    kit_end_close(&stranger);
    scene_close(&scene);
}

TEST(wrong_secret)
{
    refuse_secure(KIT_SECRET, (struct net_secure){.secret_file = "other-secret"},
                  NET_REFUSED_SECRET, "a wrong cluster secret, or none");
}

TEST(no_secret)
{
    refuse_secure(KIT_SECRET, (struct net_secure){0}, NET_REFUSED_TLS, NULL);
}

TEST(wrong_secret_over_shared_memory)
{
    refuse_secure(KIT_SHM, (struct net_secure){.secret_file = "other-secret"}, NET_REFUSED_SECRET,
                  "a wrong cluster secret");
}

TEST(certificate_of_another_authority)
{
    refuse_secure(
        KIT_CERTIFICATES,
        (struct net_secure){.cert_file = "other.pem", .key_file = "other.key", .ca_file = "ca.pem"},
        NET_REFUSED_CERTIFICATE, NULL);
}

TEST(server_of_another_authority)
{
    refuse_secure(KIT_CERTIFICATES,
                  (struct net_secure){
                      .cert_file = "task.pem", .key_file = "task.key", .ca_file = "other-ca.pem"},
                  NET_REFUSED_CERTIFICATE, "a certificate that is not of this cluster");
}

TEST(secret_where_certificates_are_wanted)
{
    refuse_secure(KIT_CERTIFICATES, (struct net_secure){.secret_file = "secret"},
                  NET_REFUSED_CERTIFICATE, NULL);
}

TEST(tls_where_none_is_spoken)
{
    refuse_secure(KIT_TCP, (struct net_secure){.secret_file = "secret"}, NET_REFUSED_MAGIC, NULL);
}

/* Random bytes, a plain greeting and silence at a port that speaks TLS. */
TEST(bytes_that_are_no_tls)
{
    struct scene scene;
    scene_open(&scene, KIT_SECRET);
    uint8_t bytes[300];
    for (uint64_t seed = 0; seed < 10; seed++) {
        const int fd = raw_connect(&scene);
        kit_fill(bytes, sizeof bytes, seed * 1000);
        raw_write(fd, bytes, sizeof bytes);
        raw_until_closed(&scene, fd);
    }
    CHECK(kit_refused(&scene.server, NET_REFUSED_TLS) +
              kit_refused(&scene.server, NET_REFUSED_VERSION) >=
          8);
    const int silent = raw_connect(&scene);
    raw_until_closed(&scene, silent);
    CHECK(kit_refused(&scene.server, NET_REFUSED_SILENT) >= 1);
    scene_close(&scene);
}

/* ---- Unix sockets ----------------------------------------------------------------------------- */

static void send_hello_with(int fd, const struct net_hello *hello, const int *fds, size_t fds_count)
{
    uint8_t bytes[NET_HEADER_BYTES + NET_HELLO_BYTES_MAX];
    struct iovec part = {bytes, encode_hello(hello, bytes)};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fds_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fds_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fds_count * sizeof(int));
    }
    CHECK_INT(sendmsg(fd, &message, MSG_NOSIGNAL), part.iov_len);
}

/* Over a Unix socket: no eventfd, a pipe in its place, too many descriptors, and bytes sent through
 * the socket when they should go through memory. None leaves a descriptor behind. */
TEST(broken_tasks_on_this_host)
{
    struct scene scene;
    scene_open(&scene, KIT_SHM);
    const int fds = kit_fds();
    int pipes[2];
    CHECK_INT(pipe(pipes), 0);

    int fd = raw_connect_unix();
    struct net_hello hello = raw_hello(&scene, fd);
    send_hello_with(fd, &hello, NULL, 0);
    raw_until_closed(&scene, fd);
    CHECK_INT(kit_refused(&scene.server, NET_REFUSED_HELLO), 1);

    fd = raw_connect_unix();
    hello = raw_hello(&scene, fd);
    send_hello_with(fd, &hello, pipes, 2);
    raw_until_closed(&scene, fd);
    CHECK_INT(scene.raw_ups, 0);

    const int wake = eventfd(0, EFD_NONBLOCK);
    const int many[8] = {wake, wake, wake, wake, wake, wake, wake, wake};
    fd = raw_connect_unix();
    hello = raw_hello(&scene, fd);
    send_hello_with(fd, &hello, many, 8);
    KIT_UNTIL(scene.loop, scene.raw_ups == 1);
    raw_write(fd, "x", 1);
    raw_until_closed(&scene, fd);
    KIT_UNTIL(scene.loop, scene.raw_downs == 1);
    CHECK_INT(kit_refused(&scene.server, NET_REFUSED_FRAME), 1);
    close(wake);
    close(pipes[0]);
    close(pipes[1]);
    CHECK_INT(kit_fds(), fds);
    scene_close(&scene);
}
