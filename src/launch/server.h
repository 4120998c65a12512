/* server.h: the store of a job, served by the launcher's loop to its workers (protocol: store/wire.h). */
#ifndef LS_LAUNCH_SERVER_H
#define LS_LAUNCH_SERVER_H

#include <lockstep/base.h>

#include <uv.h>

/* "lockstep-" and 128 random bits; long enough for the NUL. */
#define LAUNCH_NAME_BYTES 48

typedef struct launch_server launch_server;

/* Listens on an abstract socket with a random name. Errors: LS_ERR_MEMORY, LS_ERR_IO. */
ls_status launch_server_open(launch_server **server, uv_loop_t *loop);

/* The abstract socket's name, without the leading NUL. */
const char *launch_server_name(const launch_server *server);

/* Makes the socket that one worker inherits; `*worker_end` is the caller's, close-on-exec. */
ls_status launch_server_add_door(launch_server *server, int *worker_end);

/* Closes everything and sets *server to NULL; memory goes as the loop, run to its end, closes the handles. */
void launch_server_close(launch_server **server);

#endif
