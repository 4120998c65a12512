/* stream.h: the client's end of the protocol in store/wire.h: a store whose keys lie with a server, over a stream of
 * its own. */
#ifndef LS_STORE_STREAM_H
#define LS_STORE_STREAM_H

#include "store/backend.h"
#include "store/wire.h"

#include "base/error.h"
#include "base/live.h"
#include "base/thread.h"
#include "base/wait.h"

/* A call under way, on its caller's stack. */
typedef struct pending pending;
struct pending {
    pending *next;
    uint32_t id;
    store_reply *reply;
    bool is_answered;
    ls_error outcome;
};

/*   lock       guards everything down to `failure`; never held while sending, receiving or waiting
 *   changed    advanced when an answer was handed out, a part was given up, or the stream failed
 *   inbox      belongs to the reader
 *   socket     set before the store is handed out; -1: not connected                                                 */
typedef struct stream_store {
    ls_store head;
    ls_live live;
    ls_mutex lock;
    ls_word changed;
    pending *calls;
    uint32_t next_id;
    bool is_sending, is_reading; /* the part is taken */
    ls_error failure;            /* once set, the stream is of no use */
    store_inbox inbox;
    int socket;
} stream_store;

/* A store without a connection: the caller sets `socket`. `server`, a format, says in messages who serves it.
 * Closed, like every store, by ls_store_close of its head. Errors: LS_ERR_MEMORY. */
ls_status stream_create(stream_store **created, const char *server, ...) LS_PRINTF(2, 3);

/* What a server of this host gets to let a client in. */
#define STREAM_CONNECT_LIMIT_MS 30000

/* Connects by sending one end of a fresh pair through a door (store/wire.h). Errors: LS_ERR_PEER_LOST, LS_ERR_TIMEOUT,
 * LS_ERR_IO. */
ls_status stream_connect_by_door(stream_store *store, int door, int64_t deadline_ns);

/* Connects to an abstract Unix socket. Errors: those of a door, LS_ERR_FORMAT when it is no name. */
ls_status stream_connect_by_name(stream_store *store, const char *name, int64_t deadline_ns);

#endif
