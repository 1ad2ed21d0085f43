#include "net/net_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define HOST_MAX 256
#define TEXT_MAX (HOST_MAX + 16)

/* ---- reading ---------------------------------------------------------------------------------- */

static int split(const char *text, char host_out[HOST_MAX], char port_out[8], struct err *err)
{
    const char *colon = strrchr(text, ':');
    const char *host = text;
    size_t host_bytes = colon == NULL ? 0 : (size_t)(colon - text);
    const bool bracketed = host_bytes >= 2 && text[0] == '[' && colon[-1] == ']';
    if (bracketed) {
        host++;
        host_bytes -= 2;
    }
    const size_t port_bytes = colon == NULL ? 0 : strlen(colon + 1);
    bool good = host_bytes > 0 && host_bytes < HOST_MAX && port_bytes > 0 && port_bytes <= 5;
    good = good && strspn(good ? colon + 1 : "", "0123456789") == port_bytes;
    good = good && (bracketed || memchr(host, ':', host_bytes) == NULL);
    if (good) {
        memcpy(host_out, host, host_bytes);
        host_out[host_bytes] = '\0';
        memcpy(port_out, colon + 1, port_bytes + 1);
        unsigned port = 0;
        for (size_t i = 0; i < port_bytes; i++) port = port * 10 + (unsigned)(port_out[i] - '0');
        good = port <= 65535;
    }
    if (good) return 0;
    return err_set(err, SHOAL_EINVAL,
                   "address %.200s: want host:port, as in 127.0.0.1:2222 or [::1]:2222", text);
}

static int ask(const char *text, int flags, struct net_address *address_out, struct err *err)
{
    char host[HOST_MAX];
    char port[8];
    const int rc = split(text, host, port, err);
    if (rc != 0) return rc;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const char *numeric = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    const int failed = getaddrinfo(numeric, port, &hints, &found);
    if (failed != 0) {
        return err_set(err, SHOAL_ENOENT, "look up %s: %s", host, gai_strerror(failed));
    }
    *address_out = (struct net_address){.bytes = found->ai_addrlen};
    memcpy(&address_out->storage, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

int net_address_parse(const char *text, struct net_address *address_out, struct err *err)
{
    return ask(text, AI_NUMERICHOST, address_out, err);
}

int net_address_look_up(const char *text, struct net_address *address_out, struct err *err)
{
    return ask(text, AI_ADDRCONFIG, address_out, err);
}

static const struct sockaddr_in *as_v4(const struct net_address *address)
{
    return (const struct sockaddr_in *)&address->storage;
}

static const struct sockaddr_in6 *as_v6(const struct net_address *address)
{
    return (const struct sockaddr_in6 *)&address->storage;
}

bool net_address_is_loopback(const struct net_address *address)
{
    switch (address->storage.ss_family) {
    case AF_UNIX: return true;
    case AF_INET: return (ntohl(as_v4(address)->sin_addr.s_addr) >> 24) == 127;
    case AF_INET6: {
        const struct in6_addr *v6 = &as_v6(address)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
    }
    default: return false;
    }
}

void net_address_text(const struct net_address *address, char text_out[NET_ADDRESS_TEXT_MAX])
{
    char host[INET6_ADDRSTRLEN] = "";
    if (address->storage.ss_family == AF_INET) {
        inet_ntop(AF_INET, &as_v4(address)->sin_addr, host, sizeof host);
        snprintf(text_out, NET_ADDRESS_TEXT_MAX, "%s:%u", host, ntohs(as_v4(address)->sin_port));
    } else if (address->storage.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &as_v6(address)->sin6_addr, host, sizeof host);
        snprintf(text_out, NET_ADDRESS_TEXT_MAX, "[%s]:%u", host, ntohs(as_v6(address)->sin6_port));
    } else {
        snprintf(text_out, NET_ADDRESS_TEXT_MAX, "unix");
    }
}

bool net_address_same_host(const struct net_address *a, const struct net_address *b)
{
    if (a->storage.ss_family != b->storage.ss_family) return false;
    switch (a->storage.ss_family) {
    case AF_INET: return as_v4(a)->sin_addr.s_addr == as_v4(b)->sin_addr.s_addr;
    case AF_INET6:
        return memcmp(&as_v6(a)->sin6_addr, &as_v6(b)->sin6_addr, sizeof(struct in6_addr)) == 0;
    default: return true;
    }
}

/* ---- looking up elsewhere --------------------------------------------------------------------- */

/* Owned by the thread until it has posted, then by the post. */
struct net_lookup {
    struct net_post post; /* first */
    struct net_loop *loop;
    net_lookup_cb *cb;
    void *ctx;
    pthread_mutex_t
        lock; /* guards is_cancelled; a post is made under it, so that the loop is there */
    bool is_cancelled;
    int rc;
    struct net_address address;
    struct err err;
    char text[TEXT_MAX];
};

static void lookup_free(struct net_lookup *lookup)
{
    pthread_mutex_destroy(&lookup->lock);
    mem_free(lookup);
}

static void lookup_done(struct net_post *post)
{
    struct net_lookup *lookup = (struct net_lookup *)post;
    /* The thread may not have let go of the lock yet. */
    pthread_mutex_lock(&lookup->lock);
    const bool is_cancelled = lookup->is_cancelled;
    pthread_mutex_unlock(&lookup->lock);
    if (!is_cancelled) lookup->cb(lookup->ctx, lookup->rc, &lookup->address, &lookup->err);
    lookup_free(lookup);
}

static void *lookup_main(void *arg)
{
    struct net_lookup *lookup = arg;
    lookup->rc = net_address_look_up(lookup->text, &lookup->address, &lookup->err);
    pthread_mutex_lock(&lookup->lock);
    const bool is_cancelled = lookup->is_cancelled;
    if (!is_cancelled) net_loop_post(lookup->loop, &lookup->post);
    pthread_mutex_unlock(&lookup->lock);
    if (is_cancelled) lookup_free(lookup);
    return NULL;
}

int net_lookup_start(struct net_loop *loop, const char *text, net_lookup_cb *cb, void *ctx,
                     struct net_lookup **lookup_out, struct err *err)
{
    struct net_lookup *lookup = mem_alloc(MEM_NET, sizeof *lookup);
    if (lookup == NULL) return err_set(err, SHOAL_ENOMEM, "no memory to look up %s", text);
    lookup->post.run = lookup_done;
    lookup->loop = loop;
    lookup->cb = cb;
    lookup->ctx = ctx;
    snprintf(lookup->text, sizeof lookup->text, "%s", text);
    pthread_mutex_init(&lookup->lock, NULL);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const int failed = pthread_create(&thread, &attributes, lookup_main, lookup);
    pthread_attr_destroy(&attributes);
    if (failed != 0) {
        lookup_free(lookup);
        return err_set_errno(err, failed, "start a thread to look up %s", text);
    }
    *lookup_out = lookup;
    return 0;
}

void net_lookup_cancel(struct net_lookup *lookup)
{
    if (lookup == NULL) return;
    pthread_mutex_lock(&lookup->lock);
    lookup->is_cancelled = true;
    pthread_mutex_unlock(&lookup->lock);
}
