/* service.h: a store's server on a thread of its own, within a process that is busy with other things. */
#ifndef LS_STORE_SERVICE_H
#define LS_STORE_SERVICE_H

#include "store/backend.h"
#include "store/handshake.h"

#include <uv.h>

typedef struct store_service store_service;

/* As uv_loop_init, which aborts the process where it finds no descriptors for what all loops share: here an error. */
ls_status store_loop_open(uv_loop_t *loop);

/* Starts a server that asks for `credentials`, on the listening TCP sockets in `listeners`, or without any on an
 * abstract socket with a random name. The listeners are the service's from now on, also on an error.
 * Errors: LS_ERR_MEMORY, LS_ERR_IO. */
ls_status store_service_start(store_service **service, const store_credentials *credentials, const int *listeners,
                              int count);

/* The name of its abstract socket. */
const char *store_service_name(const store_service *service);

/* A client of it in this process, which proves nothing. `what`: how messages call the server. */
ls_status store_service_open(store_service *service, const char *what, ls_store **client);

/* How many connections of ranks of other processes it has. */
int store_service_members(const store_service *service);

/* Ends the thread and closes everything; NULL is harmless. In a forked child it only lets go. */
void store_service_stop(store_service **service);

#endif
