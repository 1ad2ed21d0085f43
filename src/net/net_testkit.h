/* net_testkit is what the tests of net share: two tasks on one loop or in two processes, over each
 * carrier, one of which answers every request with the bytes it brought. For tests only. */
#ifndef SHOAL_NET_TESTKIT_H
#define SHOAL_NET_TESTKIT_H

#include <dirent.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../tests/test.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/net.h"

#define KIT __attribute__((unused)) static

enum kit_mode { KIT_TCP, KIT_SECRET, KIT_CERTIFICATES, KIT_SHM, KIT_MODES };
KIT const char *const kit_mode_names[KIT_MODES] = {"tcp", "tls", "tls", "shm"};

#define KIT_SERVER 1u
#define KIT_CLIENT 2u
#define KIT_CLUSTER 77u

/* One task. */
struct kit_end {
    struct net *net;
    struct net_peer *other;
    struct net_loop *loop;
    int ups;
    int downs;
    int heads;
    int frames;
    int abandoned;
    int writables;
    int answers; /* replies on their way */
    uint64_t connection;
    struct net_frame last; /* pointers are not valid */
    uint8_t *body;         /* of the frame that is coming in */
    size_t body_bytes;
    struct iovec part;
    bool is_mute;     /* does not answer */
    bool throws_away; /* gives bodies no place */
    bool wrong_place; /* gives bodies a place of another size */
    char why[ERR_TEXT_MAX];
};

struct kit_answer {
    struct net_op op;
    struct kit_end *end;
    uint8_t *body;
    uint8_t *meta;
    struct iovec part;
};

KIT struct err kit_err;
#define KIT_OK(call)                                                                               \
    do {                                                                                           \
        const int kit_rc = (call);                                                                 \
        if (kit_rc != 0) {                                                                         \
            test_fail(__FILE__, __LINE__, "%s: %d: %s", #call, kit_rc, kit_err.text);              \
        }                                                                                          \
    } while (0)

/* ---- events ----------------------------------------------------------------------------------- */

KIT void kit_up(void *ctx, struct net_peer *peer, uint64_t connection)
{
    struct kit_end *end = ctx;
    CHECK(connection > end->connection);
    end->ups++;
    end->connection = connection;
    end->other = peer;
}

KIT void kit_down(void *ctx, struct net_peer *peer, uint64_t connection, const struct err *why)
{
    struct kit_end *end = ctx;
    CHECK(peer == end->other);
    CHECK(connection == end->connection);
    end->downs++;
    snprintf(end->why, sizeof end->why, "%s", why->text);
}

KIT void kit_head(void *ctx, const struct net_frame *frame, struct net_place *place_out)
{
    struct kit_end *end = ctx;
    end->heads++;
    if (end->throws_away) return;
    CHECK(end->body == NULL);
    end->body_bytes = (size_t)frame->body_bytes + end->wrong_place;
    end->body = malloc(end->body_bytes);
    CHECK(end->body != NULL);
    end->part = (struct iovec){end->body, end->body_bytes};
    *place_out = (struct net_place){&end->part, 1, NULL};
}

KIT void kit_answered(struct net_op *op, int rc, const struct net_frame *reply)
{
    struct kit_answer *answer = op->ctx;
    (void)rc;
    (void)reply;
    answer->end->answers--;
    free(answer->body);
    free(answer->meta);
    free(answer);
}

KIT void kit_frame(void *ctx, const struct net_frame *frame)
{
    struct kit_end *end = ctx;
    end->frames++;
    end->last = *frame;
    uint8_t *body = end->body;
    end->body = NULL;
    if (!frame->is_request || end->is_mute) {
        free(body);
        return;
    }
    struct kit_answer *answer = calloc(1, sizeof *answer);
    CHECK(answer != NULL);
    answer->end = end;
    answer->body = body;
    answer->meta = malloc(frame->meta_bytes + 1);
    memcpy(answer->meta, frame->meta, frame->meta_bytes);
    answer->part = (struct iovec){body, frame->place.parts_count > 0 ? end->body_bytes : 0};
    answer->op = (struct net_op){.type = frame->type,
                                 .status = (int16_t)-frame->type,
                                 .epoch = frame->epoch + 1,
                                 .meta = answer->meta,
                                 .meta_bytes = frame->meta_bytes,
                                 .parts = &answer->part,
                                 .parts_count = 1,
                                 .done = kit_answered,
                                 .ctx = answer};
    end->answers++;
    if (net_reply(frame->peer, frame->connection, frame->sequence, &answer->op, NULL) != 0) {
        kit_answered(&answer->op, 0, NULL);
    }
}

KIT void kit_abandon(void *ctx, const struct net_frame *frame)
{
    struct kit_end *end = ctx;
    CHECK(frame->place.parts_count == 1);
    end->abandoned++;
    free(end->body);
    end->body = NULL;
}

KIT void kit_writable(void *ctx, struct net_peer *peer)
{
    (void)peer;
    ((struct kit_end *)ctx)->writables++;
}

KIT const struct net_events kit_events = {.up = kit_up,
                                          .down = kit_down,
                                          .head = kit_head,
                                          .frame = kit_frame,
                                          .abandon = kit_abandon,
                                          .writable = kit_writable};

/* ---- secrets and certificates, as files in the working folder ------------------------------------ */

KIT void kit_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
    CHECK_INT(chmod(path, 0600), 0);
}

/* NAME.pem and NAME.key, signed by `issuer` (or itself when that is NULL). */
KIT void kit_certificate(const char *name, X509 *issuer, EVP_PKEY *issuer_key, X509 **cert_out,
                         EVP_PKEY **key_out)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    CHECK(key != NULL && cert != NULL);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1 + (name[0] % 50));
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME *subject = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, issuer == NULL ? subject : X509_get_subject_name(issuer));
    X509_EXTENSION *basic = X509V3_EXT_conf_nid(NULL, NULL, NID_basic_constraints,
                                                issuer == NULL ? "critical,CA:TRUE" : "CA:FALSE");
    X509_add_ext(cert, basic, -1);
    X509_EXTENSION_free(basic);
    CHECK(X509_sign(cert, issuer == NULL ? key : issuer_key, EVP_sha256()) > 0);
    char path[64];
    snprintf(path, sizeof path, "%s.pem", name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && PEM_write_X509(file, cert) == 1);
    fclose(file);
    snprintf(path, sizeof path, "%s.key", name);
    file = fopen(path, "w");
    CHECK(file != NULL && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
    fclose(file);
    *cert_out = cert;
    *key_out = key;
}

/* ca.pem with task.pem and task.key; other-ca.pem with other.pem and other.key. */
KIT void kit_make_certificates(void)
{
    static const char *const names[2][2] = {{"ca", "task"}, {"other-ca", "other"}};
    for (int i = 0; i < 2; i++) {
        X509 *ca = NULL;
        X509 *cert = NULL;
        EVP_PKEY *ca_key = NULL;
        EVP_PKEY *key = NULL;
        kit_certificate(names[i][0], NULL, NULL, &ca, &ca_key);
        kit_certificate(names[i][1], ca, ca_key, &cert, &key);
        X509_free(ca);
        X509_free(cert);
        EVP_PKEY_free(ca_key);
        EVP_PKEY_free(key);
    }
}

KIT void kit_make_files(void)
{
    kit_write("secret", "correct horse battery staple\n");
    kit_write("other-secret", "incorrect horse battery staple\n");
    CHECK_INT(mkdir("sockets", 0700), 0);
    kit_make_certificates();
}

KIT struct net_secure kit_secure(enum kit_mode mode)
{
    struct net_secure secure = {0};
    if (mode == KIT_SECRET) secure.secret_file = "secret";
    if (mode == KIT_CERTIFICATES) {
        secure = (struct net_secure){
            .cert_file = "task.pem", .key_file = "task.key", .ca_file = "ca.pem"};
    }
    return secure;
}

/* ---- two tasks -------------------------------------------------------------------------------- */

KIT struct net_loop *kit_loop(void)
{
    struct net_loop *loop = NULL;
    KIT_OK(net_loop_create(&(struct net_loop_opts){0}, &loop, &kit_err));
    return loop;
}

/* Options of the server; peers must outlive the call. */
KIT struct net_opts kit_server_opts(struct kit_end *end, struct net_loop *loop, enum kit_mode mode)
{
    static const struct net_peer_opts peer = {.task = KIT_CLIENT, .name = "worker/0"};
    end->loop = loop;
    return (struct net_opts){.loop = loop,
                             .task = KIT_SERVER,
                             .name = "ps/0",
                             .cluster = KIT_CLUSTER,
                             .listen = "127.0.0.1:0",
                             .carrier = mode == KIT_SHM ? NET_SHM : NET_TCP,
                             .secure = kit_secure(mode),
                             .peers = &peer,
                             .peers_count = 1,
                             .folder = "sockets",
                             .events = kit_events,
                             .ctx = end};
}

KIT struct net_opts kit_client_opts(struct kit_end *end, struct net_loop *loop, enum kit_mode mode,
                                    uint16_t port)
{
    static char address[32];
    static struct net_peer_opts peer;
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    peer = (struct net_peer_opts){
        .task = KIT_SERVER, .name = "ps/0", .address = address, .dial = true};
    struct net_opts opts = kit_server_opts(end, loop, mode);
    opts.task = KIT_CLIENT;
    opts.name = "worker/0";
    opts.listen = NULL;
    opts.peers = &peer;
    return opts;
}

KIT void kit_turn(struct net_loop *loop)
{
    net_loop_turn(loop, clock_now_ns() + 10000000);
}

/* Turns the loop until the condition holds. */
#define KIT_UNTIL(loop, condition)                                                                 \
    do {                                                                                           \
        const uint64_t kit_end_ns = clock_now_ns() + (uint64_t)20000000000;                        \
        while (!(condition)) {                                                                     \
            if (clock_now_ns() > kit_end_ns) {                                                     \
                test_fail(__FILE__, __LINE__, "not within 20 s: %s", #condition);                  \
            }                                                                                      \
            kit_turn(loop);                                                                        \
        }                                                                                          \
    } while (0)

struct kit {
    struct net_loop *loop;
    struct kit_end server;
    struct kit_end client;
};

KIT void kit_open_with(struct kit *kit, enum kit_mode mode, uint64_t queue_bytes_max,
                       uint64_t ring_bytes)
{
    *kit = (struct kit){.loop = kit_loop()};
    struct net_opts server = kit_server_opts(&kit->server, kit->loop, mode);
    server.queue_bytes_max = queue_bytes_max;
    server.ring_bytes = ring_bytes;
    KIT_OK(net_open(&server, &kit->server.net, &kit_err));
    struct net_opts client =
        kit_client_opts(&kit->client, kit->loop, mode, net_port(kit->server.net));
    client.queue_bytes_max = queue_bytes_max;
    KIT_OK(net_open(&client, &kit->client.net, &kit_err));
    KIT_UNTIL(kit->loop, kit->server.ups == 1 && kit->client.ups == 1);
    struct net_peer_info info;
    net_peer_info(kit->client.other, &info);
    CHECK_STR(info.carrier, kit_mode_names[mode]);
}

KIT void kit_open(struct kit *kit, enum kit_mode mode)
{
    kit_open_with(kit, mode, 0, 0);
}

KIT void kit_end_close(struct kit_end *end)
{
    net_close(end->net);
    end->net = NULL;
    free(end->body);
    end->body = NULL;
    CHECK_INT(end->answers, 0);
}

KIT void kit_close(struct kit *kit)
{
    kit_end_close(&kit->client);
    kit_end_close(&kit->server);
    net_loop_destroy(kit->loop);
    CHECK_INT(mem_bytes(MEM_NET), 0);
}

/* ---- one request ------------------------------------------------------------------------------ */

struct kit_call {
    struct net_op op;
    struct iovec part;
    uint8_t *reply; /* where its body goes */
    size_t reply_bytes;
    struct iovec reply_part;
    int done;
    int rc;
    int head_rc; /* what head returns */
    struct net_frame last;
};

KIT int kit_call_head(struct net_op *op, const struct net_frame *reply, struct net_place *place_out)
{
    struct kit_call *call = op->ctx;
    (void)reply;
    call->reply_part = (struct iovec){call->reply, call->reply_bytes};
    *place_out = (struct net_place){&call->reply_part, 1, NULL};
    return call->head_rc;
}

KIT void kit_call_done(struct net_op *op, int rc, const struct net_frame *reply)
{
    struct kit_call *call = op->ctx;
    call->done++;
    call->rc = rc;
    if (reply != NULL) call->last = *reply;
}

KIT void kit_call_init(struct kit_call *call, void *body, size_t body_bytes, void *reply,
                       size_t reply_bytes)
{
    *call = (struct kit_call){.reply = reply, .reply_bytes = reply_bytes};
    call->part = (struct iovec){body, body_bytes};
    call->op = (struct net_op){.type = 5,
                               .parts = &call->part,
                               .parts_count = 1,
                               .deadline_ns = clock_now_ns() + (uint64_t)20000000000,
                               .head = kit_call_head,
                               .done = kit_call_done,
                               .ctx = call};
}

KIT void kit_fill(uint8_t *bytes, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)((i * 2654435761u + seed) >> 7);
}

KIT int kit_fds(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

KIT uint64_t kit_refused(const struct kit_end *end, enum net_refusal refusal)
{
    struct net_stats stats;
    net_stats(end->net, &stats);
    return stats.refused[refusal];
}

#endif
