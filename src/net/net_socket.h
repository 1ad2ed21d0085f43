/* net_socket makes sockets: listening and dialing, TCP and Unix, each with the options that we want.
 * All are non-blocking and closed on exec. */
#ifndef SHOAL_NET_SOCKET_H
#define SHOAL_NET_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/err.h"
#include "net/net_address.h"

/* *port_out: where it listens, chosen by the system when the address has port 0. */
int net_socket_listen_tcp(const struct net_address *address, int *fd_out, uint16_t *port_out,
                          struct err *err);

/* A connection under way: it stands when the socket is writable and net_socket_connected says so. */
int net_socket_dial_tcp(const struct net_address *address, int *fd_out, struct err *err);
int net_socket_connected(int fd, struct err *err);

/* For a TCP socket that a listener has accepted, and for those that are dialed. */
void net_socket_tune(int fd, const struct net_address *address);

/* The Unix socket of a task: in a folder that only this user can enter, with a name made of the
 * cluster, the task, and what tells this host and network namespace from others; so that who finds it
 * shares memory with it. folder NULL: the user's own, which is made when it is not there. */
int net_socket_unix_path(const char *folder, uint64_t cluster, const char *name, bool make_folder,
                         struct sockaddr_un *address_out, struct err *err);
/* SHOAL_EBUSY: a task of that name is running. */
int net_socket_listen_unix(const struct sockaddr_un *address, int *fd_out, struct err *err);
int net_socket_dial_unix(const struct sockaddr_un *address, int *fd_out, struct err *err);

/* Whether the process at the other end of a Unix socket is of this user. */
bool net_socket_is_same_user(int fd);

#endif
