/* link.c: receiving and sending on a connection. */
#include "group/backend/tcp/link.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* The kernel lacks memory: the next poll tries again. */
static bool is_short_of_memory(int failure) {
    return failure == ENOBUFS || failure == ENOMEM;
}

static ssize_t receive(const tcp_link *link, void *into, size_t bytes) {
    ssize_t received = 0;
    if (link->tls) return tcp_tls_receive(link->tls, into, bytes);
    do received = recv(link->socket, into, bytes, MSG_DONTWAIT);
    while (received < 0 && errno == EINTR);
    return received;
}

static ssize_t send_parts(const tcp_link *link, const struct iovec *parts, int count) {
    const struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};
    ssize_t sent = 0;
    if (link->tls) return tcp_tls_send(link->tls, parts, count);
    do sent = sendmsg(link->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
}

size_t tcp_link_receive(tcp_link *link, void *into, size_t bytes) {
    if (link->has_ended || !link->is_readable) return 0;
    const ssize_t received = receive(link, into, bytes);
    if (received > 0) {
        /* A short one has emptied the socket, and the next byte is an event; but TLS has records, and an end that was told of
         * is not told again. */
        if ((size_t)received < bytes && !link->hangs_up && !link->tls) link->is_readable = false;
        return (size_t)received;
    }
    if (received < 0 && is_short_of_memory(errno)) return 0;
    link->is_readable = false;
    if (received < 0 && errno == EAGAIN) return 0;
    link->has_ended = true;
    if (received < 0 && link->failure == 0) link->failure = errno;
    return 0;
}

size_t tcp_link_send(tcp_link *link, const struct iovec *parts, int count) {
    if (link->is_broken || !link->is_writable) return 0;
    const ssize_t sent = send_parts(link, parts, count);
    if (sent >= 0) return (size_t)sent;
    if (is_short_of_memory(errno)) return 0;
    link->is_writable = false;
    if (errno == EAGAIN) return 0;
    link->is_broken = true;
    if (link->failure == 0) link->failure = errno;
    return 0;
}

void tcp_link_note(tcp_link *link, uint32_t events) {
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) link->hangs_up = link->is_readable = true;
    if (events & EPOLLIN) link->is_readable = true;
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) link->is_writable = true;
}

void tcp_link_shut(tcp_link *link) {
    if (link->socket >= 0) shutdown(link->socket, SHUT_RDWR);
    link->is_broken = link->has_ended = true;
}

void tcp_link_close(tcp_link *link) {
    tcp_tls_end(&link->tls);
    if (link->socket >= 0) close(link->socket);
    link->socket = -1;
    link->is_broken = link->has_ended = true;
}
