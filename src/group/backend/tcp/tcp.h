/* tcp.h: the tcp backend: ranks of any hosts, over connections of their own.
 *
 *   frame.c      what is said on them
 *   link.c       one connection: receiving and sending without waiting
 *   tls.c        the same, enciphered, where the user wants it
 *   cards.c      ranks tell each other where they listen, over the store
 *   meeting.c    every pair connects (visits.c) and is connected to (guests.c), and proves that it knows the job's secret
 *   lanes.c      the data of collectives, in chunks over several connections
 *   control.c    notes: who leaves and why, what is called, which messages there are
 *   messages.c   send and receive
 *   op.c         an operation, who is there and who has gone, sleeping
 *   open.c       a group opens and closes, its table of functions
 *
 * Between each two ranks there are TCP_CHANNELS connections. What a rank may not take yet stays in its socket, where TCP's own
 * flow control holds the sender back; notes alone are always read at once. Whoever drives the group (group/group.h) owns all of
 * a group's state but what `lock` guards: what is to be sent on the control connections, since a rank may leave from any
 * thread.                                                                                                            */
#ifndef LS_GROUP_TCP_TCP_H
#define LS_GROUP_TCP_TCP_H

#include "base/live.h"
#include "base/thread.h"
#include "base/wait.h"
#include "group/algorithms/collective.h"
#include "group/backend.h"
#include "group/backend/tcp/frame.h"
#include "group/backend/tcp/link.h"
#include "store/address.h"

#include <sched.h>

/* Connections of a pair. A second lane keeps a long link busy while the first has lost a packet. */
#define TCP_LANES 2
enum { TCP_CONTROL, TCP_LETTERS, TCP_FIRST_LANE, TCP_CHANNELS = TCP_FIRST_LANE + TCP_LANES };

#define TCP_ALARM UINT64_MAX /* what epoll says of the alarm; of connections it says rank << 8 | channel */
#define TCP_HOST_BYTES 64
#define TCP_OUTBOX_BYTES 8192 /* more than all notes that may be on their way: see messages.c */
#define TCP_INBOX_BYTES 4096
#define TCP_PAST_CALLS 32 /* a power of two */

/* --- lanes ------------------------------------------------------------------------------------------------------------- */

/* A message of the transport's, on its way. Its chunks are first, first + 1, ...; chunk c of a direction goes on lane c modulo
 * TCP_LANES. */
typedef struct tcp_piece {
    const unsigned char *from;
    unsigned char *into;
    size_t bytes;
    uint64_t first;
    uint64_t chunks, done;
} tcp_piece;

/* One direction between two ranks, in one operation. */
typedef struct tcp_flow {
    uint64_t posted, finished; /* messages: piece m is pieces[m % TRANSPORT_WINDOW] */
    uint64_t chunks;           /* of all that were posted */
    tcp_piece pieces[TRANSPORT_WINDOW];
} tcp_flow;

typedef struct tcp_sender {
    uint64_t next; /* chunk of the operation that goes on this lane */
    tcp_piece *piece;
    size_t head_left, left; /* bytes of the chunk under way; both 0: none is */
    const unsigned char *at;
    tcp_head head;
} tcp_sender;

typedef struct tcp_receiver {
    uint64_t next;
    tcp_piece *piece; /* whose chunk is under way; NULL: none is */
    size_t left;
    unsigned char *at;
    size_t start, end; /* of bytes in `ahead` that are still to be read */
    unsigned char ahead[4096];
} tcp_receiver;

/* --- messages ---------------------------------------------------------------------------------------------------------- */

#define TCP_MOST_OFFERS 32 /* that may wait to be seen */

typedef struct tcp_offer {
    struct tcp_offer *next;
    uint64_t id, tag, count;
    ls_dtype dtype;
} tcp_offer;

typedef struct tcp_mail {
    uint64_t next_id, offered, seen; /* messages to the peer: begun, offered, of which it took note */
    uint64_t granted;                /* the id, if has_grant */
    bool has_grant;
    uint64_t heard;    /* offers of the peer */
    tcp_offer *offers; /* that nobody has received yet, in their order */
    tcp_offer **offers_end;
    bool is_receiving; /* a message of the peer's is granted and under way */
    size_t got;        /* bytes of its head */
    tcp_letter letter;
} tcp_mail;

/* --- ranks ------------------------------------------------------------------------------------------------------------- */

typedef enum tcp_standing {
    TCP_IS_THERE,
    TCP_HAS_LEFT, /* and said so */
    TCP_HAS_LOST, /* the group, for `why` */
    TCP_IS_GONE   /* its control connection has ended without a word */
} tcp_standing;

typedef struct tcp_peer {
    /* The driver's. */
    tcp_standing standing;
    ls_error why;
    uint64_t done;  /* TCP_HAS_LOST: the last operation it had done */
    uint64_t heard; /* the last operation of those posted that it is known to have begun */
    uint64_t called
        [2]; /* of TCP_CALLS: operation n and its call are at n % 2, since a peer that has ours may be one ahead */
    tcp_call calls[2];
    tcp_flow to, from;
    tcp_sender senders[TCP_LANES];
    tcp_receiver receivers[TCP_LANES];
    tcp_mail mail;
    size_t inbox_bytes;
    unsigned char inbox[TCP_INBOX_BYTES];

    /* Under the group's lock. */
    size_t outbox_bytes;
    unsigned char outbox[TCP_OUTBOX_BYTES];

    /* Fixed when the group is open, but for the links' own state. */
    tcp_link links[TCP_CHANNELS];
    char host[TCP_HOST_BYTES];
    int64_t process;
} tcp_peer;

/* One ls_group_alloc. */
typedef struct tcp_memory {
    struct tcp_memory *next;
    void *base;
    size_t bytes;
} tcp_memory;

typedef struct tcp_group {
    ls_group *group;
    ls_store *store;
    int rank, world_size;
    const int *names; /* as in backend_place */
    int spare_processors;
    tcp_tls_context *tls; /* NULL: connections are plain */
    bool checks_calls;    /* LOCKSTEP_DEBUG=detail: all calls of all ranks are compared before anything moves */
    tcp_peer *peers;      /* [world_size]; our own is not used */
    int *host_of;         /* [world_size] numbers of hosts, in the order of their first ranks */

    int events, alarm; /* epoll, and an eventfd in it that ends our sleep */
    _Atomic uint32_t bell;
    _Atomic bool is_asleep;

    /* The driver's. */
    transport transport;
    collective *collective;
    uint64_t operation; /* the one that moves, or moved last */
    tcp_call call;
    tcp_call past[TCP_PAST_CALLS]; /* call n is past[n % TCP_PAST_CALLS] */
    uint64_t unsent, unreceived;   /* messages of the transport's under way */
    bool has_lost_peer;            /* some peer holds the group for lost */
    bool has_moved;                /* since `still_since_ns` was last looked at: our operation, or who is there */
    int64_t still_since_ns;
    uint64_t told;         /* the last operation of which we told the next rank our call, since it stood still */
    _Atomic uint64_t done; /* the last operation that is complete here */
    _Atomic bool has_said; /* that we leave */

    ls_mutex lock; /* guards outboxes, memories */
    tcp_memory *memories;

    /* For fork: changed with the lock of base/live.h held, so that a child finds them whole. */
    ls_live live;
    struct tcp_meeting *meeting; /* while it is under way */
    int listeners[2 + STORE_MOST_ADDRESSES];
    int listener_count;
} tcp_group;

/* lanes.c. `moved` is set when something was done. Errors: what a peer sent does not fit, LS_ERR_MISMATCH, LS_ERR_FORMAT. */
void tcp_lanes_begin(tcp_group *tcp, const backend_op *op);
/* Takes note of an operation that moves elsewhere. */
void tcp_lanes_pass(tcp_group *tcp, const backend_op *op);
void tcp_lanes_send(tcp_group *tcp, bool *moved);
ls_status tcp_lanes_receive(tcp_group *tcp, bool *moved);
bool tcp_lanes_wait_for(const tcp_group *tcp, int peer);
/* Whether the peer can still do its part, once it has left or died. */
bool tcp_lanes_have_ended(const tcp_group *tcp, int peer);
/* The transport between the ranks of the group. */
void tcp_transport_init(tcp_group *tcp);
/* Fails: two ranks called different things. */
ls_status tcp_calls_differ(const tcp_group *tcp, int rank, const tcp_call *call, int other_rank, const tcp_call *other);

/* control.c */
void tcp_control_say(tcp_group *tcp, int rank, const tcp_note *note, const char *text);
/* Sends what waits, as far as the socket takes it. */
void tcp_control_flush(tcp_group *tcp, int rank);
/* Reads all notes that are there. */
void tcp_control_read(tcp_group *tcp, int rank);
void tcp_leave(void *state, const ls_error *why);

/* messages.c */
void tcp_mail_init(tcp_group *tcp);
void tcp_mail_free(tcp_group *tcp);
void tcp_message_start(tcp_group *tcp, backend_op *op);
backend_progress tcp_message_poll(tcp_group *tcp, backend_op *op);
bool tcp_message_waits_for(const tcp_group *tcp, const backend_op *op, int peer);
/* Whether what `op` waits for can still come from a peer that has left or died. */
bool tcp_message_has_ended(const tcp_group *tcp, const backend_op *op, int peer);
/* A note about messages. False: it does not fit what was said before. */
bool tcp_mail_take(tcp_group *tcp, int rank, const tcp_note *note);

/* op.c */
void tcp_start(void *state, backend_op *op);
backend_progress tcp_poll(void *state, backend_op *op);
ls_status tcp_examine(void *state, backend_op *op);
void tcp_describe_missing(void *state, const backend_op *op, char *text, size_t bytes);
uint32_t tcp_bell(void *state);
backend_progress tcp_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns);
void tcp_wake(void *state);
/* For who carries an operation of these ranks elsewhere: fails when it cannot end there, as tcp_examine; says in `has_moved`
 * that it moves. */
ls_status tcp_heed(tcp_group *tcp, const backend_op *op);
/* "rank 1 (host, process 7)" */
#define TCP_WHO_BYTES (TCP_HOST_BYTES + 64)
const char *tcp_who(const tcp_group *tcp, int rank, char text[TCP_WHO_BYTES]);

/* meeting.c: makes all connections. On error nothing of it is left but connections in `peers`, which the caller closes. */
ls_status tcp_meet(tcp_group *tcp, const backend_place *place);

#endif
