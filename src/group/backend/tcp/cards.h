/* cards.h: what a rank tells the others of itself, over the store, before they connect. Rank 0 collects all cards
 * and publishes them together, so that each rank asks the store twice, not once for each other. */
#ifndef LS_GROUP_TCP_CARDS_H
#define LS_GROUP_TCP_CARDS_H

#include "group/backend.h"
#include "group/hosts.h"
#include "store/address.h"

#include <sched.h>

#define TCP_MOST_PLACES 8

/* Where a rank listens: family, port and number of the host, in the network's order. */
typedef struct tcp_place {
    uint16_t is_wide, port;
    unsigned char number[16];
} tcp_place;

typedef struct tcp_card {
    uint32_t version;
    uint16_t place_count;
    uint16_t wants_tls;     /* 1: LOCKSTEP_TLS is set */
    uint16_t relaxed_order; /* of its options */
    uint16_t checks_calls;  /* 1: LOCKSTEP_DEBUG is "detail" */
    int64_t process;
    uint64_t process_space; /* within which `process` means something: a namespace of the kernel; 0: unknown */
    char host_id[HOSTS_ID_BYTES];
    char host[64];
    cpu_set_t processors; /* that it may run on */
    tcp_place places[TCP_MOST_PLACES];
} tcp_card;

/* Collective: cards[rank] [world_size] receives everyone's; `round` tells several exchanges of one opening apart.
 * Errors: LS_ERR_TIMEOUT names who is missing; those of the first rank that withdrew; those of the store. */
ls_status tcp_cards_exchange(const backend_place *place, int round, const tcp_card *own, tcp_card *cards);

/* Fails when `rank`, whose card is `card`, is of this host and has died. */
ls_status tcp_cards_examine(const backend_place *place, const tcp_card *own, const tcp_card *card, int rank);

/* How long we wait before we look whether another rank has failed: `former_ms` is the wait before; 0: the first. A
 * rank that fails is noticed soon while few wait and have not waited long; many that wait long do not keep the store
 * busy by asking. Never past the deadline. */
int64_t tcp_cards_slice_ms(const backend_place *place, int64_t former_ms);

/* Takes away what this rank has left of them in the store. Rank 0 has left all cards: it calls when all have read
 * them, or has withdrawn. */
void tcp_cards_sweep(const backend_place *place, int rounds);

/* All have met: the error of these ranks' opening before has no reader any more. */
void tcp_cards_forget_failure(const backend_place *place);

/* Between two waits: fails when another rank has withdrawn, or when the store knows that one is gone. The same before a rank is
 * said to have died, with time for a busy store to answer: what a rank says before it ends names another. And when time is up;
 * `missing` completes that sentence: "rank 2, rank 5". */
ls_status tcp_cards_look_around(const backend_place *place);
ls_status tcp_cards_hear_last_word(const backend_place *place);
ls_status tcp_cards_time_is_up(const backend_place *place, const char *missing);

/* The others fail too, with this thread's last error. Returns `status`. */
ls_status tcp_cards_withdraw(const backend_place *place, ls_status status);

void tcp_place_pack(const store_address *address, tcp_place *place);
void tcp_place_unpack(const tcp_place *place, store_address *address);

#endif
