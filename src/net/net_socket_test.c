#include "net/net_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../tests/test.h"

static struct err err;

static const char *path_of(uint64_t cluster, const char *name)
{
    static struct sockaddr_un addresses[4];
    static unsigned next;
    struct sockaddr_un *address = &addresses[next++ % 4];
    CHECK_OK(net_socket_unix_path("sockets", cluster, name, true, address, &err));
    return address->sun_path;
}

/* Each cluster and task has a path of its own, the same for whoever asks; in another network namespace
 * it is another one, so that tasks there are not found and are talked to by TCP. */
TEST(paths_tell_tasks_apart)
{
    char want[108];
    snprintf(want, sizeof want, "%s", path_of(1, "ps/0"));
    CHECK_STR(path_of(1, "ps/0"), want);
    CHECK(strcmp(path_of(1, "ps/1"), want) != 0);
    CHECK(strcmp(path_of(2, "ps/0"), want) != 0);
    const pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNET) != 0) _exit(0); /* not allowed here */
        _exit(strcmp(path_of(1, "ps/0"), want) != 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
}

/* Only a folder of this user alone will do; the user's own is made. */
TEST(folders_must_be_private)
{
    struct sockaddr_un address;
    CHECK_INT(net_socket_unix_path("none", 1, "x", false, &address, &err), SHOAL_ENOENT);
    CHECK_INT(mkdir("open", 0755), 0);
    CHECK_INT(net_socket_unix_path("open", 1, "x", true, &address, &err), SHOAL_EACCES);
    CHECK_HAS(err.text, "chmod 700");
    CHECK_INT(symlink("open", "link"), 0);
    CHECK_INT(net_socket_unix_path("link", 1, "x", true, &address, &err), SHOAL_EACCES);
    char folder[200] = "d";
    memset(folder, 'd', sizeof folder - 1);
    CHECK_INT(net_socket_unix_path(folder, 1, "x", true, &address, &err), SHOAL_ELIMIT);
    char own[200];
    CHECK(getcwd(own, sizeof own) != NULL);
    setenv("XDG_RUNTIME_DIR", own, 1);
    CHECK_OK(net_socket_unix_path(NULL, 1, "x", true, &address, &err));
    CHECK_HAS(address.sun_path, "/shoal/");
    unsetenv("XDG_RUNTIME_DIR");
    CHECK_OK(net_socket_unix_path(NULL, 1, "x", true, &address, &err));
    CHECK_HAS(address.sun_path, "/tmp/shoal-");
}

/* A socket left behind by a task that was killed is replaced; one that answers is not. */
TEST(unix_sockets_of_the_dead_are_replaced)
{
    struct sockaddr_un address;
    int first = -1;
    int second = -1;
    int client = -1;
    CHECK_OK(net_socket_unix_path("sockets", 1, "ps/0", true, &address, &err));
    CHECK(net_socket_dial_unix(&address, &client, &err) != 0);
    CHECK_OK(net_socket_listen_unix(&address, &first, &err));
    CHECK_INT(net_socket_listen_unix(&address, &second, &err), SHOAL_EBUSY);
    CHECK_OK(net_socket_dial_unix(&address, &client, &err));
    CHECK(net_socket_is_same_user(client));
    close(client);
    close(first);
    CHECK_OK(net_socket_listen_unix(&address, &second, &err));
    close(second);
}

/* A port is chosen and told; a port in use, an address of another host and a refused call say so. */
TEST(tcp_sockets_say_what_failed)
{
    struct net_address address;
    int fd = -1;
    int other = -1;
    uint16_t port = 0;
    CHECK_OK(net_address_parse("127.0.0.1:0", &address, &err));
    CHECK_OK(net_socket_listen_tcp(&address, &fd, &port, &err));
    CHECK(port != 0);
    ((struct sockaddr_in *)&address.storage)->sin_port = htons(port);
    CHECK(net_socket_listen_tcp(&address, &other, &port, &err) != 0);
    CHECK_HAS(err.text, "listen at 127.0.0.1:");
    CHECK_OK(net_socket_dial_tcp(&address, &other, &err));
    struct pollfd ready = {.fd = other, .events = POLLOUT};
    CHECK_INT(poll(&ready, 1, 5000), 1);
    CHECK_OK(net_socket_connected(other, &err));
    close(other);
    close(fd);
    /* Nobody is there any more: refused at once or when it is looked at. */
    int rc = net_socket_dial_tcp(&address, &other, &err);
    if (rc == 0) {
        ready = (struct pollfd){.fd = other, .events = POLLOUT};
        CHECK_INT(poll(&ready, 1, 5000), 1);
        rc = net_socket_connected(other, &err);
        close(other);
    }
    CHECK(rc != 0);
    CHECK_HAS(err.text, "refused");
    CHECK_OK(net_address_parse("192.0.2.77:0", &address, &err));
    CHECK(net_socket_listen_tcp(&address, &fd, &port, &err) != 0);
}

/* A socket that met itself is no connection. */
TEST(tcp_does_not_talk_to_itself)
{
    struct net_address address;
    CHECK_OK(net_address_parse("127.0.0.1:0", &address, &err));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t bytes = sizeof address.storage;
    CHECK_INT(bind(fd, (struct sockaddr *)&address.storage, address.bytes), 0);
    CHECK_INT(getsockname(fd, (struct sockaddr *)&address.storage, &bytes), 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&address.storage, bytes), 0); /* it does meet itself */
    CHECK_INT(net_socket_connected(fd, &err), SHOAL_EPEER);
    CHECK_HAS(err.text, "nobody listens");
    close(fd);
}
