/* server.h: a store served to clients of other processes, from a libuv loop: the launcher's own, or that of a
 * service's thread (store/service.h). Protocol: store/wire.h; over networks store/handshake.h comes first.
 *
 * All calls come from the loop's thread, but store_server_forked. */
#ifndef LS_STORE_SERVER_H
#define LS_STORE_SERVER_H

#include "store/handshake.h"

#include <uv.h>

/* "lockstep-" and 128 random bits; long enough for the NUL. */
#define STORE_NAME_BYTES 48

typedef struct store_server store_server;

/* A server without a way in. `credentials` (copied): who comes over a listener of its own proves to know them; NULL:
 * the ways in are known to members alone. Errors: LS_ERR_MEMORY. */
ls_status store_server_open(store_server **server, uv_loop_t *loop, const store_credentials *credentials);

/* Listens on an abstract Unix socket with a random name, for processes of our own user. Errors: LS_ERR_IO,
 * LS_ERR_MEMORY. */
ls_status store_server_listen_on_name(store_server *server);

/* The abstract socket's name, without the leading NUL. */
const char *store_server_name(const store_server *server);

/* Serves who connects to `listener`, a listening TCP socket, which is the server's from now on, also on an error. */
ls_status store_server_listen_on(store_server *server, int listener);

/* Makes the socket that one worker inherits; `*worker_end` is the caller's, close-on-exec. */
ls_status store_server_add_door(store_server *server, int *worker_end);

/* Serves `socket`, a connection of a member: nothing is to be proved. The server's from now on, also on an error. */
ls_status store_server_add_connection(store_server *server, int socket);

/* A rank is gone without a goodbye: ends all waits for keys, now and later, with LS_ERR_PEER_LOST and a sentence:
 * "rank 1 (process 77) is gone: it was killed by signal 9 (SIGKILL)"; of several ranks, the first one's. A rank that
 * connects over a listener and loses its connection is noticed by the server itself. */
void store_server_lost(store_server *server, int rank, const char *what, ...) LS_PRINTF(3, 4);

/* How many connections of ranks, which came over its listeners, it has. Any thread. */
int store_server_members(const store_server *server);

/* Closes everything and sets *server to NULL; memory goes as the loop, run to its end, closes the handles. */
void store_server_close(store_server **server);

/* In a forked child, with base/live.h's lock held: lets go of sockets. */
void store_server_forked(store_server *server);

#endif
