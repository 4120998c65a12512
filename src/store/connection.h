/* connection.h: what the two halves of the server share: server.c serves connections, ways_in.c brings them. */
#ifndef LS_STORE_CONNECTION_H
#define LS_STORE_CONNECTION_H

#include "store/prove.h"
#include "store/server.h"
#include "store/table.h"
#include "store/wire.h"

/* An answer under way. The value lies behind it; descriptors are its own. */
typedef struct answer_item {
    struct answer_item *next;
    store_message message;
    int descriptors[STORE_MOST_DESCRIPTORS];
} answer_item;

/* What is watched: a listening socket, a door, or a connection. */
typedef struct peer {
    uv_poll_t poll;
    store_server *server;
    struct peer *next;
    int socket;
    bool is_closing;
    /* connections alone */
    store_inbox inbox;
    answer_item *first_answer, **last_answer;
    size_t unread_bytes;
    bool waits_to_send; /* the loop says when the socket takes more */
    /* those that had something to prove */
    bool is_unproved;
    bool has_said_goodbye;
    uint64_t since_ms; /* on the loop's clock */
    store_verifier proof;
} peer;

/* A request that waits for its key. The key lies behind it. */
typedef struct parked {
    struct parked *next;
    peer *from;
    uint32_t id;
    store_request request;
} parked;

/* A rank that is gone without a goodbye: whoever waits for a key may wait for this rank. */
typedef struct lost_rank {
    struct lost_rank *next;
    int rank;
    char what[160]; /* became of it */
} lost_rank;

/*   peers     changed, and their sockets closed, with the lock of base/live.h held: a forked child finds them whole */
struct store_server {
    uv_loop_t *loop;
    store_table *table;
    parked *waiting;
    lost_rank *lost;
    peer *peers;
    int handles; /* not closed yet */
    bool is_closing;
    bool asks_for_proof;
    bool has_turned_away; /* said once in the log */
    bool has_sweep;
    _Atomic int members; /* connections of ranks; read by any thread */
    uv_timer_t sweep;
    store_credentials credentials;
    char name[STORE_NAME_BYTES];
};

/* Watches `socket`, which is the server's from now on, also on an error. */
ls_status peer_watch(store_server *server, int socket, uv_poll_cb ready, peer **watched);
void peer_close(peer *closing);

/* The callback of a connection that is served. */
void connection_ready(uv_poll_t *poll, int failure, int events);

/* A rank is there (again). */
void server_welcome(store_server *server, const store_hello *hello);

/* One of the server's handles is closed. */
void server_handle_closed(store_server *server);

#endif
