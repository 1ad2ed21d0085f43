#include "net/net_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"

#define BACKLOG 1024

static void set_int(int fd, int level, int option, int value)
{
    /* Options only make things better: a kernel that does not know one is no error. */
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

static int close_with(int fd, int rc)
{
    close(fd);
    return rc;
}

/* ---- TCP -------------------------------------------------------------------------------------- */

int net_socket_listen_tcp(const struct net_address *address, int *fd_out, uint16_t *port_out,
                          struct err *err)
{
    char text[NET_ADDRESS_TEXT_MAX];
    net_address_text(address, text);
    const int fd =
        socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return err_set_errno(err, errno, "listen at %s", text);
    set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (address->storage.ss_family == AF_INET6) set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    struct net_address bound = {.bytes = sizeof bound.storage};
    if (bind(fd, (const struct sockaddr *)&address->storage, address->bytes) != 0 ||
        listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound.storage, &bound.bytes) != 0) {
        return close_with(fd, err_set_errno(err, errno, "listen at %s", text));
    }
    *port_out = ntohs(bound.storage.ss_family == AF_INET6
                          ? ((struct sockaddr_in6 *)&bound.storage)->sin6_port
                          : ((struct sockaddr_in *)&bound.storage)->sin_port);
    *fd_out = fd;
    return 0;
}

/* Congestion control for a link that has no congestion: bbr (the default of some hosts) paces and
 * halves the speed of loopback; reno is in every kernel and open to every user. */
static void choose_congestion_control(int fd)
{
    char name[16] = "";
    socklen_t bytes = sizeof name - 1;
    const bool known = getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0;
    if (known && (strcmp(name, "cubic") == 0 || strcmp(name, "reno") == 0)) return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

void net_socket_tune(int fd, const struct net_address *address)
{
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (net_address_is_loopback(address)) choose_congestion_control(fd);
    /* A host that vanishes without a word is noticed within some 15 s. */
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 15000);
}

int net_socket_dial_tcp(const struct net_address *address, int *fd_out, struct err *err)
{
    char text[NET_ADDRESS_TEXT_MAX];
    net_address_text(address, text);
    const int fd =
        socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return err_set_errno(err, errno, "connect to %s", text);
    net_socket_tune(fd, address);
    if (connect(fd, (const struct sockaddr *)&address->storage, address->bytes) != 0 &&
        errno != EINPROGRESS) {
        return close_with(fd, err_set_errno(err, errno, "connect to %s", text));
    }
    *fd_out = fd;
    return 0;
}

int net_socket_connected(int fd, struct err *err)
{
    int failed = 0;
    socklen_t bytes = sizeof failed;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &bytes) != 0) failed = errno;
    if (failed != 0) return err_set_errno(err, failed, "connect");
    /* TCP can meet itself: dialing a free port of this host, the system may choose that very port to
     * dial from, and the connection stands with nobody at the other end. */
    struct sockaddr_storage here = {0};
    struct sockaddr_storage there = {0};
    socklen_t here_bytes = sizeof here;
    socklen_t there_bytes = sizeof there;
    if (getsockname(fd, (struct sockaddr *)&here, &here_bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_bytes) != 0) {
        return err_set_errno(err, errno, "connect");
    }
    if (here.ss_family != AF_UNIX && here_bytes == there_bytes &&
        memcmp(&here, &there, here_bytes) == 0) {
        const struct linger at_once = {.l_onoff = 1};
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        return err_set(err, SHOAL_EPEER, "connect: nobody listens there");
    }
    return 0;
}

/* ---- Unix ------------------------------------------------------------------------------------- */

/* $XDG_RUNTIME_DIR/shoal, else /tmp/shoal-<uid>. */
static void default_folder(char *folder_out, size_t capacity)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat stat_out;
    if (runtime != NULL && runtime[0] == '/' && stat(runtime, &stat_out) == 0 &&
        stat_out.st_uid == geteuid() && strlen(runtime) < capacity - 8) {
        snprintf(folder_out, capacity, "%s/shoal", runtime);
    } else {
        snprintf(folder_out, capacity, "/tmp/shoal-%u", (unsigned)geteuid());
    }
}

/* A folder of another user, or one that others can enter, would let them pose as our tasks. */
static int check_folder(const char *folder, bool make, struct err *err)
{
    if (make && mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return err_set_errno(err, errno, "make the folder %s for Unix sockets", folder);
    }
    struct stat stat_out;
    if (lstat(folder, &stat_out) != 0) {
        return err_set_errno(err, errno, "folder %s of Unix sockets", folder);
    }
    if (!S_ISDIR(stat_out.st_mode) || stat_out.st_uid != geteuid() ||
        (stat_out.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return err_set(err, SHOAL_EACCES,
                       "folder %s of Unix sockets must be a folder of this user alone; remove it, "
                       "or chmod 700 it",
                       folder);
    }
    return 0;
}

/* What tells this host, as it runs now, and this network namespace from all others. */
static uint64_t host_mark(void)
{
    char mark[128] = "";
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? 0 : read(fd, mark, 64);
    if (fd >= 0) close(fd);
    if (bytes < 0) bytes = 0;
    struct stat stat_out;
    const bool known = stat("/proc/self/ns/net", &stat_out) == 0;
    const int more = snprintf(mark + bytes, sizeof mark - (size_t)bytes, " net %llu",
                              known ? (unsigned long long)stat_out.st_ino : 0);
    return hash_fingerprint64(mark, (size_t)bytes + (size_t)more);
}

int net_socket_unix_path(const char *folder, uint64_t cluster, const char *name, bool make_folder,
                         struct sockaddr_un *address_out, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char own[sizeof address.sun_path];
    if (folder == NULL) {
        default_folder(own, sizeof own - 20);
        folder = own;
    }
    const int rc = check_folder(folder, make_folder, err);
    if (rc != 0) return rc;
    uint64_t mark = host_mark();
    mark = hash_fingerprint_cat64(mark, cluster);
    mark = hash_fingerprint_cat64(mark, hash_fingerprint64(name, strlen(name)));
    const int bytes = snprintf(address.sun_path, sizeof address.sun_path, "%s/%016llx", folder,
                               (unsigned long long)mark);
    if (bytes < 0 || (size_t)bytes >= sizeof address.sun_path) {
        return err_set(err, SHOAL_ELIMIT, "folder %s: too long for a Unix socket", folder);
    }
    *address_out = address;
    return 0;
}

static int unix_socket(int *fd_out, struct err *err)
{
    *fd_out = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return *fd_out >= 0 ? 0 : err_set_errno(err, errno, "make a Unix socket");
}

int net_socket_dial_unix(const struct sockaddr_un *address, int *fd_out, struct err *err)
{
    int fd = -1;
    const int rc = unix_socket(&fd, err);
    if (rc != 0) return rc;
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        return close_with(fd, err_set_errno(err, errno, "connect to %s", address->sun_path));
    }
    *fd_out = fd;
    return 0;
}

int net_socket_listen_unix(const struct sockaddr_un *address, int *fd_out, struct err *err)
{
    int fd = -1;
    if (net_socket_dial_unix(address, &fd, NULL) == 0) {
        return close_with(fd, err_set(err, SHOAL_EBUSY,
                                      "a task of this name and cluster is running on this host "
                                      "(it answers at %s)",
                                      address->sun_path));
    }
    const int rc = unix_socket(&fd, err);
    if (rc != 0) return rc;
    (void)unlink(address->sun_path); /* left behind by one that was killed */
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) != 0 ||
        listen(fd, BACKLOG) != 0) {
        return close_with(fd, err_set_errno(err, errno, "listen at %s", address->sun_path));
    }
    *fd_out = fd;
    return 0;
}

bool net_socket_is_same_user(int fd)
{
    struct ucred who = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == geteuid();
}
