/* meeting.h: the state of a meeting: every pair of ranks connects, and each connection proves the job's secret. */
#ifndef LS_GROUP_TCP_MEETING_H
#define LS_GROUP_TCP_MEETING_H

#include "group/backend/tcp/cards.h"
#include "group/backend/tcp/tcp.h"
#include "store/credentials.h"
#include "store/prove.h"

#define TCP_MOST_STRANGERS \
    128 /* that have connected and proved nothing, beside all that the group awaits; more wait in the
                                  kernel's queue */

/* Someone who has connected to us. */
typedef struct tcp_guest {
    int socket;
    int64_t since_ns;
    store_verifier verifier;
    tcp_tls *tls; /* once it has proved who it is, where TLS is wanted */
} tcp_guest;

typedef enum tcp_visit_phase { TCP_RESTING, TCP_CONNECTING, TCP_PROVING, TCP_SECURING, TCP_ARRIVED } tcp_visit_phase;

/* A connection that we make to a lower rank. */
typedef struct tcp_visit {
    int rank, channel;
    tcp_visit_phase phase;
    int socket;
    unsigned place;      /* of the peer's, that is tried */
    int64_t deadline_ns; /* of this try; resting: when to begin the next */
    store_prover prover;
    tcp_tls *tls;
} tcp_visit;

typedef struct tcp_meeting {
    tcp_group *tcp;
    const backend_place *place;
    store_credentials credentials; /* the job's */
    store_credentials own;         /* what those who connect to us prove */
    tcp_card *cards;               /* [world_size]: where ranks listen for those of their host */
    tcp_card *far_cards;           /* and for others; NULL: there is but one host */
    tcp_visit *visits;             /* [visit_count] */
    int visit_count;
    tcp_guest *guests; /* [most_guests], the first guest_count, the oldest first */
    int guest_count, most_guests;
    int missing;            /* connections that are not made yet */
    int64_t judge_ns;       /* when a peer that hangs up counts as dead; 0: none does */
    bool has_turned_away;   /* said once */
    char last_failure[256]; /* of a try, for the sentence when time is up */
    struct pollfd *polled;
} tcp_meeting;

/* The connection between us and `rank` is proved: it is the group's from now on. */
void tcp_meeting_take(tcp_meeting *meeting, int rank, int channel, int socket, tcp_tls *tls);

/* Makes the job's credentials those of connections to `rank` of the group `prefix`: nobody else's, of no other
 * group. Errors: LS_ERR_INTERNAL. */
ls_status tcp_credentials_bind(store_credentials *credentials, const char *prefix, int rank);

/* In a forked child: closes what is not the group's yet. */
void tcp_meeting_forked(const tcp_meeting *meeting);

/* guests.c: the sockets to look at are appended to `polled`, and looked at again in the same order; at `wake_ns`,
 * which becomes sooner where it has to, at the latest. */
int tcp_guests_poll(const tcp_meeting *meeting, struct pollfd *polled, int64_t *wake_ns);
ls_status tcp_guests_go_on(tcp_meeting *meeting, const struct pollfd *polled, int64_t now_ns);

/* visits.c: likewise. Errors: LS_ERR_IO for lack of sockets, LS_ERR_ENVIRONMENT when the secrets differ. */
int tcp_visits_poll(const tcp_meeting *meeting, struct pollfd *polled, int64_t *wake_ns);
ls_status tcp_visits_go_on(tcp_meeting *meeting, const struct pollfd *polled, int64_t now_ns);

#endif
