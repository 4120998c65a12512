/* tls.h: TLS 1.3 on a connection that is proved, by LOCKSTEP_TLS=1 on all ranks. The job's secret is its pre-shared key: there are
 * no certificates, and a key of each connection's own is derived from the secret and from what was said in its proof. The key
 * exchange adds Diffie-Hellman's, so that who learns the secret later reads nothing of what was recorded.            */
#ifndef LS_GROUP_TCP_TLS_H
#define LS_GROUP_TCP_TLS_H

#include "store/handshake.h"

#include <sys/uio.h>

#define TCP_ENV_TLS "LOCKSTEP_TLS"

typedef struct tcp_tls tcp_tls;
typedef struct tcp_tls_context tcp_tls_context;

/* What all connections of a group share; it outlives them. Errors: LS_ERR_MEMORY, LS_ERR_INTERNAL. */
ls_status tcp_tls_prepare(tcp_tls_context **made);
void tcp_tls_release(tcp_tls_context **released);

/* Begins on `socket`, which stays the caller's. Errors: LS_ERR_MEMORY, LS_ERR_INTERNAL. */
ls_status tcp_tls_begin(tcp_tls **made, const tcp_tls_context *context, int socket, bool is_server,
                        const store_credentials *credentials, const store_greeting *greeting, const store_hello *hello);
/* Goes on with what has come. LS_END: call again when the socket is readable. Errors: LS_ERR_PEER_LOST when the
 * other end hangs up, LS_ERR_FORMAT when it speaks no TLS of ours or does not know the key. */
ls_status tcp_tls_step(tcp_tls *tls);
/* NULL is harmless. Says nothing to the peer. */
void tcp_tls_end(tcp_tls **ended);

/* As recv and sendmsg on a socket that never waits: the number of bytes, 0 at the end, -1 with errno. What was not taken of the
 * parts is passed again by the next call, and more behind it. */
ssize_t tcp_tls_receive(tcp_tls *tls, void *into, size_t bytes);
ssize_t tcp_tls_send(tcp_tls *tls, const struct iovec *parts, int count);

#endif
