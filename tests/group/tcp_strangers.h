/* tcp_strangers.h: those who knock at rank 0's door before rank 1 does. */
#ifndef LS_TEST_TCP_STRANGERS_H
#define LS_TEST_TCP_STRANGERS_H

#include "group/tcp_cards.h"

#include "base/clock.h"
#include "base/wait.h"

#include <sys/socket.h>
#include <unistd.h>

/* As a rank of the group `prefix` has them that connects to `host_rank`. */
static inline store_credentials learn_credentials(const ls_rank *rank, const char *prefix, int host_rank) {
    store_credentials credentials = {.secret_bytes = 0};
    assert_ok(ls_store_get(rank->store, PREFIX "/secret", credentials.secret, 32, &credentials.secret_bytes, 60000));
    assert_ok(tcp_credentials_bind(&credentials, prefix, host_rank));
    return credentials;
}

static inline int knock(const tcp_card *card) {
    store_address address;
    tcp_place_unpack(&card->places[0], &address);
    const int made = socket(address.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(made, (const struct sockaddr *)&address.socket, address.bytes), 0);
    return made;
}

static inline void say(int stranger, const void *bytes, size_t count) {
    assert_int_equal(send(stranger, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

static inline bool has_something_to_read(int socket) {
    struct pollfd polled = {.fd = socket, .events = POLLIN};
    return ls_descriptors_wait(&polled, 1, ls_now_ns() + 20 * LS_NS_PER_S) == 1;
}

/* Whether the other side hangs up. */
static inline bool is_turned_away(int stranger) {
    char bytes[4096];
    ssize_t count = 0;
    do {
        if (!has_something_to_read(stranger)) return false;
        count = recv(stranger, bytes, sizeof bytes, 0);
    } while (count > 0);
    close(stranger);
    return true;
}

#endif
