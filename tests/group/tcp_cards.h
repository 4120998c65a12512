/* tcp_cards.h: rank 1 comes before its group does, and reads or changes what the ranks of a group tell each other of where
 * they listen. */
#ifndef LS_TEST_TCP_CARDS_H
#define LS_TEST_TCP_CARDS_H

#include "group/tcp_ranks.h"

#include "group/backend/tcp/meeting.h"

#include <netinet/in.h>

/* Of the first group that is opened over a store. */
#define PREFIX "lockstep/group/1"

static inline tcp_card read_card(ls_store *store) {
    tcp_card card;
    size_t bytes = 0;
    assert_ok(ls_store_get(store, PREFIX "/card0/0", &card, sizeof card, &bytes, 60000));
    assert_int_equal(bytes, sizeof card);
    return card;
}

/* With rank 1's card there, rank 0 waits for its connections. Returns rank 0's card. */
static inline tcp_card hand_in_card(ls_store *store) {
    const tcp_card card = read_card(store);
    assert_ok(ls_store_set(store, PREFIX "/card0/1", &card, sizeof card));
    return card;
}

/* Both ranks' cards, as rank 0 has laid them out; to be changed. */
static inline void take_cards(ls_store *store, tcp_card cards[2]) {
    size_t bytes = 0;
    hand_in_card(store);
    assert_ok(ls_store_get(store, PREFIX "/cards0", cards, 2 * sizeof *cards, &bytes, 60000));
}

static inline void lay_out_cards(ls_store *store, const tcp_card cards[2]) {
    assert_ok(ls_store_set(store, PREFIX "/cards0", cards, 2 * sizeof *cards));
}

static inline int listen_somewhere(tcp_place *place) {
    store_address address = {.bytes = sizeof(struct sockaddr_in)};
    *(struct sockaddr_in *)&address.socket =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = -1;
    assert_ok(store_address_listen(&address, &listener));
    tcp_place_pack(&address, place);
    return listener;
}

#endif
