/* TLS 1.3 with OpenSSL 3. Either every task has the same secret, from which a pre-shared key is
 * derived (RFC 8446, 2.2; with an ephemeral key exchange, so that a secret that leaks later does not
 * open what was recorded), or every task has a certificate of the cluster's own authority and both
 * sides show theirs. Nothing else is negotiated: no older version, no resumption, no early data.
 *
 * The library reads from the socket itself; what it writes is gathered in a buffer here and sent in
 * one call, since a record has only 16 KiB. A record is made only when there is room for it, so the
 * library never sees a write that would block. */
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"
#include "net/net_carrier.h"

#define SECRET_BYTES_MIN 16u
#define SECRET_BYTES_MAX 4096u
#define KEY_BYTES 32u
#define RECORD_BYTES ((size_t)16 << 10)
#define RECORD_ROOM (RECORD_BYTES + 512) /* a record with its header and tag */
#define OUT_BYTES (16 * RECORD_ROOM)
/* Enough for a greeting; a connection that gets further takes OUT_BYTES. */
#define OUT_BYTES_FIRST (RECORD_ROOM + 4096)
#define IN_BYTES ((size_t)256 << 10)

static const unsigned char psk_identity[] = "shoal 1";

struct net_tls {
    SSL_CTX *context;
    BIO_METHOD *method;
    bool has_secret;
    uint8_t psk[KEY_BYTES];
    uint8_t proof_key[KEY_BYTES];
};

struct tls {
    struct net_carrier base;
    SSL *ssl;
    bool must_resume; /* with a secret: a session that did not use it is refused */
    uint8_t *out;     /* out[out_start .. out_end) is to be sent */
    size_t out_bytes;
    size_t out_start;
    size_t out_end;
    uint8_t *out_large;           /* NULL until bulk is sent */
    uint8_t record[RECORD_BYTES]; /* small parts gathered into one record */
    uint8_t out_first[OUT_BYTES_FIRST];
};

static bool is_full(const struct tls *tls)
{
    return tls->out_bytes - tls->out_end < RECORD_ROOM;
}

/* ---- keys ------------------------------------------------------------------------------------- */

/* The first error of the library's queue in words; the queue is empty then. */
static const char *library_error(void)
{
    const unsigned long code = ERR_peek_error();
    const char *reason = code == 0 ? NULL : ERR_reason_error_string(code);
    ERR_clear_error();
    return reason == NULL ? "no reason given" : reason;
}

int net_tls_random(void *bytes_out, size_t count, struct err *err)
{
    if (RAND_bytes(bytes_out, (int)count) != 1) {
        return err_set(err, SHOAL_EIO, "no random bytes: %s", library_error());
    }
    return 0;
}

/* HKDF-SHA256 (RFC 5869): keys for different uses out of one secret. */
static int derive(const void *secret, size_t secret_bytes, const char *use,
                  uint8_t key_out[KEY_BYTES], struct err *err)
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *context = kdf == NULL ? NULL : EVP_KDF_CTX_new(kdf);
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secret, secret_bytes),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)"shoal", 5),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)use, strlen(use)),
        OSSL_PARAM_construct_end(),
    };
    const bool done = context != NULL && EVP_KDF_derive(context, key_out, KEY_BYTES, params) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return done ? 0 : err_set(err, SHOAL_EIO, "derive a key: %s", library_error());
}

void net_tls_proof(const struct net_tls *tls, const void *bytes, size_t count,
                   uint8_t proof_out[NET_PROOF_BYTES])
{
    memset(proof_out, 0, NET_PROOF_BYTES);
    if (tls == NULL || !tls->has_secret) return;
    unsigned int written = 0;
    const bool done =
        HMAC(EVP_sha256(), tls->proof_key, KEY_BYTES, bytes, count, proof_out, &written) != NULL;
    ASSERT(done && written == NET_PROOF_BYTES);
}

/* Blanks at the end do not count: editors and `echo` put a line break there. */
static size_t trimmed(const char *text, size_t bytes)
{
    while (bytes > 0 && strchr(" \t\r\n", text[bytes - 1]) != NULL) bytes--;
    return bytes;
}

static int load_secret(struct net_tls *tls, const char *path, struct err *err)
{
    struct stat stat_out;
    char *text = NULL;
    size_t bytes = 0;
    int rc = io_read_whole(path, SECRET_BYTES_MAX, &text, &bytes, err);
    if (rc != 0) return err_wrap(err, "cluster secret");
    if (stat(path, &stat_out) == 0 && (stat_out.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        log_line(LOG_WARN, "net", "others may read the cluster secret; chmod 600 path=%s", path);
    }
    const size_t used = trimmed(text, bytes);
    if (used < SECRET_BYTES_MIN) {
        rc = err_set(err, SHOAL_ECONFIG,
                     "cluster secret %s has %zu bytes, at least %u are needed; make one with: "
                     "head -c 32 /dev/urandom | base64 > %s",
                     path, used, SECRET_BYTES_MIN, path);
    }
    if (rc == 0) rc = derive(text, used, "tls 1.3 psk", tls->psk, err);
    if (rc == 0) rc = derive(text, used, "greeting", tls->proof_key, err);
    OPENSSL_cleanse(text, bytes);
    mem_free(text);
    tls->has_secret = rc == 0;
    return rc;
}

static int load_certificates(struct net_tls *tls, const struct net_secure *secure, struct err *err)
{
    if (secure->cert_file == NULL || secure->key_file == NULL || secure->ca_file == NULL) {
        return err_set(
            err, SHOAL_ECONFIG,
            "certificates need three files: certificate, key and authority; %s is missing",
            secure->cert_file == NULL  ? "the certificate"
            : secure->key_file == NULL ? "the key"
                                       : "the authority");
    }
    SSL_CTX *context = tls->context;
    if (SSL_CTX_use_certificate_chain_file(context, secure->cert_file) != 1) {
        return err_set(err, SHOAL_ECONFIG, "certificate %s: %s", secure->cert_file,
                       library_error());
    }
    if (SSL_CTX_use_PrivateKey_file(context, secure->key_file, SSL_FILETYPE_PEM) != 1) {
        return err_set(err, SHOAL_ECONFIG, "key %s: %s", secure->key_file, library_error());
    }
    if (SSL_CTX_check_private_key(context) != 1) {
        return err_set(err, SHOAL_ECONFIG, "key %s is not that of certificate %s: %s",
                       secure->key_file, secure->cert_file, library_error());
    }
    if (SSL_CTX_load_verify_locations(context, secure->ca_file, NULL) != 1) {
        return err_set(err, SHOAL_ECONFIG, "authority %s: %s", secure->ca_file, library_error());
    }
    return 0;
}

/* A session that stands for the pre-shared key. */
static SSL_SESSION *psk_session(SSL *ssl)
{
    static const unsigned char aes_128_gcm_sha256[2] = {0x13, 0x01};
    const struct net_tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes_128_gcm_sha256);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session != NULL && cipher != NULL &&
        SSL_SESSION_set1_master_key(session, tls->psk, KEY_BYTES) == 1 &&
        SSL_SESSION_set1_id_context(session, psk_identity, sizeof psk_identity - 1) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
        return session;
    }
    SSL_SESSION_free(session);
    return NULL;
}

static int use_psk(SSL *ssl, const EVP_MD *digest, const unsigned char **identity_out,
                   size_t *identity_bytes_out, SSL_SESSION **session_out)
{
    *session_out = NULL;
    if (digest != NULL && !EVP_MD_is_a(digest, "SHA256")) return 1;
    *session_out = psk_session(ssl);
    *identity_out = psk_identity;
    *identity_bytes_out = sizeof psk_identity - 1;
    return *session_out != NULL;
}

static int find_psk(SSL *ssl, const unsigned char *identity, size_t identity_bytes,
                    SSL_SESSION **session_out)
{
    *session_out = NULL;
    if (identity_bytes != sizeof psk_identity - 1 ||
        memcmp(identity, psk_identity, identity_bytes) != 0) {
        return 1; /* Not known: goes on without, and fails for want of a certificate. */
    }
    *session_out = psk_session(ssl);
    return *session_out != NULL;
}

/* ---- the library's way to the socket ---------------------------------------------------------- */

static int bio_read(BIO *bio, char *bytes, int count)
{
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t got = recv(tls->base.fd, bytes, (size_t)count, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    return (int)got;
}

static int bio_write(BIO *bio, const char *bytes, int count)
{
    struct tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (tls->out_bytes - tls->out_end < (size_t)count) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(tls->out + tls->out_end, bytes, (size_t)count);
    tls->out_end += (size_t)count;
    return count;
}

static long bio_ctrl(BIO *bio, int what, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "shoal");
    if (method == NULL) return NULL;
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_ctrl(method, bio_ctrl);
    return method;
}

int net_tls_create(const struct net_secure *secure, struct net_tls **tls_out, struct err *err)
{
    const bool has_secret = secure->secret_file != NULL;
    const bool has_certificates =
        secure->cert_file != NULL || secure->key_file != NULL || secure->ca_file != NULL;
    *tls_out = NULL;
    if (!has_secret && !has_certificates) return 0;
    if (has_secret && has_certificates) {
        return err_set(err, SHOAL_ECONFIG, "give a cluster secret or certificates, not both");
    }
    struct net_tls *tls = mem_alloc(MEM_NET, sizeof *tls);
    if (tls == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for TLS");
    ERR_clear_error();
    tls->context = SSL_CTX_new(TLS_method());
    tls->method = make_method();
    SSL_CTX *context = tls->context;
    int rc = 0;
    if (context == NULL || tls->method == NULL ||
        SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, has_secret ? "TLS_AES_128_GCM_SHA256"
                                                     : "TLS_AES_128_GCM_SHA256:"
                                                       "TLS_AES_256_GCM_SHA384:"
                                                       "TLS_CHACHA20_POLY1305_SHA256") != 1 ||
        SSL_CTX_set_session_id_context(context, psk_identity, sizeof psk_identity - 1) != 1 ||
        SSL_CTX_set_num_tickets(context, 0) != 1) {
        rc = err_set(err, SHOAL_EIO, "start TLS: %s", library_error());
    }
    if (rc == 0) {
        SSL_CTX_set_app_data(context, tls);
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF); /* frames know their length */
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE);
        SSL_CTX_set_read_ahead(context, 1);
        SSL_CTX_set_default_read_buffer_len(context, IN_BYTES);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    if (rc == 0 && has_secret) {
        SSL_CTX_set_psk_use_session_callback(context, use_psk);
        SSL_CTX_set_psk_find_session_callback(context, find_psk);
        rc = load_secret(tls, secure->secret_file, err);
    } else if (rc == 0) {
        rc = load_certificates(tls, secure, err);
    }
    if (rc != 0) {
        net_tls_destroy(tls);
        return rc;
    }
    *tls_out = tls;
    return 0;
}

void net_tls_destroy(struct net_tls *tls)
{
    if (tls == NULL) return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    OPENSSL_cleanse(tls, sizeof *tls);
    mem_free(tls);
}

/* ---- one connection --------------------------------------------------------------------------- */

/* What a failed handshake means, for the counters. */
static enum net_refusal classify(const struct tls *tls, int reason)
{
    switch (reason) {
    case SSL_R_BINDER_DOES_NOT_VERIFY: return NET_REFUSED_SECRET;
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
        return tls->must_resume ? NET_REFUSED_SECRET : NET_REFUSED_CERTIFICATE;
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN: return NET_REFUSED_CERTIFICATE;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION: return NET_REFUSED_VERSION;
    default: return NET_REFUSED_TLS;
    }
}

static int tls_failed(struct tls *tls, int rc, struct err *err)
{
    const int reason = ERR_GET_REASON(ERR_peek_error());
    tls->base.refusal = classify(tls, reason);
    return err_set(err, rc, "%s (TLS: %s)", net_refusal_words(tls->base.refusal), library_error());
}

/* Sends what is gathered; SHOAL_EPEER when the socket is broken. */
static int flush_out(struct tls *tls, struct err *err)
{
    while (tls->out_start < tls->out_end) {
        const ssize_t sent = send(tls->base.fd, tls->out + tls->out_start,
                                  tls->out_end - tls->out_start, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0) {
            err_set_errno(err, errno, "send");
            return SHOAL_EPEER;
        }
        tls->out_start += (size_t)sent;
    }
    if (tls->out_start == tls->out_end) {
        tls->out_start = tls->out_end = 0;
    } else if (is_full(tls) && tls->out_start >= tls->out_bytes / 2) {
        memmove(tls->out, tls->out + tls->out_start, tls->out_end - tls->out_start);
        tls->out_end -= tls->out_start;
        tls->out_start = 0;
    }
    return 0;
}

static int tls_secure(struct net_carrier *carrier, struct err *err)
{
    struct tls *tls = (struct tls *)carrier;
    ERR_clear_error();
    const int rc = SSL_do_handshake(tls->ssl);
    const int why = rc == 1 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, rc);
    const int flushed = flush_out(tls, err); /* an alert too, if there is one */
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        return flushed != 0 ? flushed : SHOAL_EBUSY;
    }
    if (why == SSL_ERROR_ZERO_RETURN || why == SSL_ERROR_SYSCALL) {
        return err_set(err, SHOAL_END, "closed by the other side while greeting");
    }
    if (why != SSL_ERROR_NONE) return tls_failed(tls, SHOAL_EACCES, err);
    if (tls->must_resume && SSL_session_reused(tls->ssl) != 1) {
        carrier->refusal = NET_REFUSED_SECRET;
        return err_set(err, SHOAL_EACCES, "%s", net_refusal_words(NET_REFUSED_SECRET));
    }
    return flushed;
}

/* The next bytes for one record: a long part as it lies, short ones gathered. */
static size_t next_record(struct tls *tls, const struct iovec *parts, size_t parts_count,
                          size_t index, size_t offset, const uint8_t **bytes_out)
{
    const size_t left = parts[index].iov_len - offset;
    if (left >= RECORD_BYTES || index + 1 == parts_count) {
        *bytes_out = (const uint8_t *)parts[index].iov_base + offset;
        return left < RECORD_BYTES ? left : RECORD_BYTES;
    }
    size_t gathered = 0;
    for (; index < parts_count && gathered < RECORD_BYTES; index++, offset = 0) {
        const size_t part_left = parts[index].iov_len - offset;
        const size_t room = RECORD_BYTES - gathered;
        const size_t step = part_left < room ? part_left : room;
        if (step == 0) continue;
        memcpy(tls->record + gathered, (const uint8_t *)parts[index].iov_base + offset, step);
        gathered += step;
    }
    *bytes_out = tls->record;
    return gathered;
}

/* Without memory the small buffer goes on, only slower. */
static void enlarge_out(struct tls *tls)
{
    if (tls->out_large == NULL) tls->out_large = mem_alloc(MEM_NET, OUT_BYTES);
    if (tls->out_large == NULL || tls->out_end > 0) return;
    tls->out = tls->out_large;
    tls->out_bytes = OUT_BYTES;
}

static int64_t tls_send(struct net_carrier *carrier, const struct iovec *parts, size_t parts_count,
                        struct err *err)
{
    struct tls *tls = (struct tls *)carrier;
    if (tls->out == tls->out_first && parts_count > 0 &&
        parts[parts_count - 1].iov_len > RECORD_BYTES) {
        enlarge_out(tls);
    }
    int64_t taken = 0;
    size_t index = 0;
    size_t offset = 0;
    int rc = 0;
    for (;;) {
        while (index < parts_count && offset == parts[index].iov_len) {
            index++;
            offset = 0;
        }
        if (is_full(tls) || index == parts_count) rc = flush_out(tls, err);
        if (rc != 0 || index == parts_count) break;
        if (is_full(tls)) break; /* the socket takes no more */
        const uint8_t *bytes = NULL;
        const size_t count = next_record(tls, parts, parts_count, index, offset, &bytes);
        size_t written = 0;
        ERR_clear_error();
        if (SSL_write_ex(tls->ssl, bytes, count, &written) != 1) {
            rc = tls_failed(tls, SHOAL_EPEER, err);
            break;
        }
        taken += (int64_t)written;
        while (written > 0) {
            const size_t left = parts[index].iov_len - offset;
            const size_t step = written < left ? written : left;
            written -= step;
            offset += step;
            if (written > 0) {
                index++;
                offset = 0;
            }
        }
    }
    return rc != 0 ? rc : taken;
}

static int64_t tls_recv(struct net_carrier *carrier, const struct iovec *parts, size_t parts_count,
                        struct err *err)
{
    struct tls *tls = (struct tls *)carrier;
    int64_t taken = 0;
    for (size_t i = 0; i < parts_count; i++) {
        size_t offset = 0;
        while (offset < parts[i].iov_len) {
            size_t got = 0;
            ERR_clear_error();
            if (SSL_read_ex(tls->ssl, (uint8_t *)parts[i].iov_base + offset,
                            parts[i].iov_len - offset, &got) == 1) {
                offset += got;
                taken += (int64_t)got;
                if ((size_t)taken >= IN_BYTES) return taken;
                continue;
            }
            if (taken > 0) return taken; /* The library will say the same again. */
            const int why = SSL_get_error(tls->ssl, 0);
            if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return 0;
            if (why == SSL_ERROR_ZERO_RETURN || why == SSL_ERROR_SYSCALL) {
                return err_set(err, SHOAL_END, "closed by the other side");
            }
            return tls_failed(tls, SHOAL_EPEER, err);
        }
    }
    return taken;
}

static bool tls_holds(const struct net_carrier *carrier)
{
    const struct tls *tls = (const struct tls *)carrier;
    return tls->out_start < tls->out_end;
}

static bool tls_has_input(struct net_carrier *carrier)
{
    return SSL_has_pending(((struct tls *)carrier)->ssl) == 1;
}

static void tls_close(struct net_carrier *carrier)
{
    struct tls *tls = (struct tls *)carrier;
    ERR_clear_error();
    if (tls->ssl != NULL && SSL_is_init_finished(tls->ssl)) {
        SSL_shutdown(tls->ssl);
        flush_out(tls, NULL);
        ERR_clear_error();
    }
    SSL_free(tls->ssl);
    shutdown(carrier->fd, SHUT_RDWR);
    close(carrier->fd);
    mem_free(tls->out_large);
    mem_free(tls);
}

static const struct net_carrier_ops tls_ops = {
    .name = "tls",
    .secure = tls_secure,
    .send = tls_send,
    .recv = tls_recv,
    .holds = tls_holds,
    .has_input = tls_has_input,
    .close = tls_close,
};

int net_tls_carrier_create(struct net_tls *tls, int fd, bool is_dialer,
                           struct net_carrier **carrier_out, struct err *err)
{
    struct tls *one = mem_alloc(MEM_NET, sizeof *one);
    if (one == NULL) {
        close(fd);
        return err_set(err, SHOAL_ENOMEM, "no memory for a connection");
    }
    one->base.ops = &tls_ops;
    one->base.fd = fd;
    one->out = one->out_first;
    one->out_bytes = OUT_BYTES_FIRST;
    one->must_resume = tls->has_secret;
    one->ssl = SSL_new(tls->context);
    BIO *bio = one->ssl == NULL ? NULL : BIO_new(tls->method);
    if (bio == NULL) {
        tls_close(&one->base);
        return err_set(err, SHOAL_ENOMEM, "no memory for TLS: %s", library_error());
    }
    BIO_set_data(bio, one);
    BIO_set_init(bio, 1);
    SSL_set_bio(one->ssl, bio, bio);
    if (is_dialer) {
        SSL_set_connect_state(one->ssl);
    } else {
        SSL_set_accept_state(one->ssl);
    }
    *carrier_out = &one->base;
    return 0;
}
