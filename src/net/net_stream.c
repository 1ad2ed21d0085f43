#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "net/net_carrier.h"

struct stream {
    struct net_carrier base;
    struct net_carrier_ops ops; /* with the name of this one */
    int fds_out[NET_STREAM_FDS_MAX];
    size_t fds_out_count;
    int fds_in[NET_STREAM_FDS_MAX];
    size_t fds_in_count;
};

union control {
    struct cmsghdr header; /* for alignment */
    char bytes[CMSG_SPACE(NET_STREAM_FDS_MAX * sizeof(int))];
};

static bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static int64_t stream_send(struct net_carrier *carrier, const struct iovec *parts,
                           size_t parts_count, struct err *err)
{
    struct stream *stream = (struct stream *)carrier;
    if (parts_count == 0) return 0;
    union control control = {0};
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = parts_count};
    if (stream->fds_out_count > 0) {
        const size_t bytes = stream->fds_out_count * sizeof(int);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(bytes)};
        memcpy(CMSG_DATA(header), stream->fds_out, bytes);
    }
    const ssize_t sent = sendmsg(carrier->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        if (would_block(errno)) return 0;
        err_set_errno(err, errno, "send");
        return SHOAL_EPEER;
    }
    if (sent > 0) stream->fds_out_count = 0;
    return sent;
}

/* Keeps what it has asked for and room for; the rest is closed at once. */
static void keep_fds(struct stream *stream, struct msghdr *message)
{
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (stream->fds_in_count < NET_STREAM_FDS_MAX) {
                stream->fds_in[stream->fds_in_count++] = fd;
            } else {
                close(fd);
            }
        }
    }
}

static int64_t stream_recv(struct net_carrier *carrier, const struct iovec *parts,
                           size_t parts_count, struct err *err)
{
    struct stream *stream = (struct stream *)carrier;
    union control control;
    struct msghdr message = {.msg_iov = (struct iovec *)parts,
                             .msg_iovlen = parts_count,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const ssize_t got = recvmsg(carrier->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
        if (would_block(errno)) return 0;
        err_set_errno(err, errno, "receive");
        return SHOAL_EPEER;
    }
    keep_fds(stream, &message);
    if (got == 0) return err_set(err, SHOAL_END, "closed by the other side");
    return got;
}

static void stream_close(struct net_carrier *carrier)
{
    struct stream *stream = (struct stream *)carrier;
    for (size_t i = 0; i < stream->fds_in_count; i++) close(stream->fds_in[i]);
    if (carrier->fd >= 0) {
        shutdown(carrier->fd, SHUT_RDWR);
        close(carrier->fd);
    }
    mem_free(stream);
}

int net_stream_create(int fd, const char *name, struct net_carrier **carrier_out, struct err *err)
{
    struct stream *stream = mem_alloc(MEM_NET, sizeof *stream);
    if (stream == NULL) {
        close(fd);
        return err_set(err, SHOAL_ENOMEM, "no memory for a connection");
    }
    stream->ops = (struct net_carrier_ops){
        .name = name, .send = stream_send, .recv = stream_recv, .close = stream_close};
    stream->base.ops = &stream->ops;
    stream->base.fd = fd;
    *carrier_out = &stream->base;
    return 0;
}

void net_stream_attach(struct net_carrier *carrier, const int *fds, size_t fds_count)
{
    struct stream *stream = (struct stream *)carrier;
    ASSERT(carrier->ops->send == stream_send);
    ASSERT(fds_count <= NET_STREAM_FDS_MAX);
    memcpy(stream->fds_out, fds, fds_count * sizeof *fds);
    stream->fds_out_count = fds_count;
}

size_t net_stream_detach(struct net_carrier *carrier, int fds_out[NET_STREAM_FDS_MAX])
{
    struct stream *stream = (struct stream *)carrier;
    ASSERT(carrier->ops->recv == stream_recv);
    const size_t count = stream->fds_in_count;
    memcpy(fds_out, stream->fds_in, count * sizeof *fds_out);
    stream->fds_in_count = 0;
    return count;
}
