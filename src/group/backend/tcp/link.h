/* link.h: one connection to a peer. Neither side waits; who uses it looks at the marks, which events set and a socket that has
 * nothing, or takes nothing, clears (edge-triggered epoll). */
#ifndef LS_GROUP_TCP_LINK_H
#define LS_GROUP_TCP_LINK_H

#include "group/backend/tcp/tls.h"

typedef struct tcp_link {
    int socket;   /* -1: none */
    tcp_tls *tls; /* NULL: it is plain */
    bool is_readable, is_writable;
    bool hangs_up;  /* the end is near: receive until it is met */
    bool has_ended; /* nothing comes any more */
    bool is_broken; /* nothing can be sent any more */
    int failure;    /* the errno of either; 0: an orderly end */
} tcp_link;

/* Receives at most `bytes` bytes; 0: there are none now, or has_ended. */
size_t tcp_link_receive(tcp_link *link, void *into, size_t bytes);
/* Sends what the socket takes of the parts; 0: nothing now, or is_broken. */
size_t tcp_link_send(tcp_link *link, const struct iovec *parts, int count);
/* What epoll says. */
void tcp_link_note(tcp_link *link, uint32_t events);
/* Makes no more of it, and has the peer see that. */
void tcp_link_shut(tcp_link *link);
void tcp_link_close(tcp_link *link);

#endif
