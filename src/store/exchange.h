/* exchange.h: descriptors for stores that cannot carry them themselves.
 *
 * A descriptor reaches another process of the host over a Unix socket alone. So each process that offers some serves
 * them itself, at an abstract socket with a random name, and puts that name into the store; who wants them connects
 * there. Both sides prove that they are of the job, the kernel tells that they are of one user, and that the
 * exchange succeeds proves that they are on one host: the same boot id is a hint for messages, no more. */
#ifndef LS_STORE_EXCHANGE_H
#define LS_STORE_EXCHANGE_H

#include "store/handshake.h"
#include "store/service.h"

/* A store that is `inner` with descriptors. Takes over `inner` and `service` (of the keys; may be NULL), also on an
 * error: both close with it. Errors: LS_ERR_MEMORY. */
ls_status store_exchange_wrap(ls_store **store, ls_store *inner, store_service *service,
                              const store_credentials *credentials);

/* One more holder of the store that this process serves to `job` on one of these ports (without any: wherever), if
 * there is one; else NULL: a rank that opens a second group meets the others at the server that it has. */
ls_store *store_exchange_find_served(const char *job, const int *ports, int port_count);

#endif
