/* tcp.h: the store over TCP, with all that a rendezvous knows about it. The rule on ports:
 *
 *   one port        it was given. The server must have it: a port that is taken is an error on all ranks at once.
 *   several ports   they were derived from the job's id. The server takes the first that is free, and clients look for
 *                   the one where a server proves to be of their job. So it does not matter what else listens on the
 *                   others. */
#ifndef LS_STORE_TCP_H
#define LS_STORE_TCP_H

#include "store/address.h"
#include "store/backend.h"
#include "store/handshake.h"

typedef struct store_endpoint {
    const char *host;
    const store_addresses *addresses; /* of the host; NULL: those that its name has */
    const int *ports;
    int port_count;
    bool is_server;
    int rank;                             /* for who waits when this process dies; -1: nobody is told */
    const store_credentials *credentials; /* copied */
    int64_t deadline_ns;
    int64_t timeout_ms; /* for the message */
} store_endpoint;

/* Errors: as ls_store_open_tcp. */
ls_status store_open_endpoint(ls_store **store, const store_endpoint *endpoint);

#endif
