/* tcp_relay.h: one who sits on the way from rank 1 to rank 0, hands on all that passes, and looks into it or takes its time. */
#ifndef LS_TEST_TCP_RELAY_H
#define LS_TEST_TCP_RELAY_H

#include "group/tcp_cards.h"

#include "base/clock.h"
#include "base/wait.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct relay {
    const char *saying;        /* what it looks for; NULL: nothing */
    _Atomic bool stands_still; /* all connections but the first, which is the control connection */
    _Atomic bool is_over;
    _Atomic int sayings, bytes[TCP_CHANNELS]; /* of each connection, both ways */
    int listener;
    tcp_place target; /* rank 0's */
    pthread_t thread;
} relay;

/* One way. False: it has ended. */
static inline bool relay_hand_on(relay *self, _Atomic int *counter, int from, int to) {
    char bytes[8192];
    const ssize_t count = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0) return true;
    if (count == 0) return false;
    atomic_fetch_add(counter, (int)count);
    if (self->saying && memmem(bytes, (size_t)count, self->saying, strlen(self->saying)))
        atomic_fetch_add(&self->sayings, 1);
    return send(to, bytes, (size_t)count, MSG_NOSIGNAL) == count;
}

static inline void relay_connect(const relay *self, int ends[2]) {
    store_address target;
    tcp_place_unpack(&self->target, &target);
    ends[0] = accept(self->listener, NULL, NULL);
    ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(ends[1], (struct sockaddr *)&target.socket, target.bytes), 0);
}

static inline void *relay_run(void *argument) {
    relay *self = argument;
    int ends[TCP_CHANNELS][2], count = 0;
    bool has_ended[TCP_CHANNELS][2] = {{false}};
    while (!atomic_load(&self->is_over)) {
        struct pollfd polled = {.fd = self->listener, .events = POLLIN};
        if (count < TCP_CHANNELS && ls_descriptors_wait(&polled, 1, 0) == 1) relay_connect(self, ends[count++]);
        for (int i = 0; i < count && (i == 0 || !atomic_load(&self->stands_still)); i++)
            for (int way = 0; way < 2; way++) {
                if (has_ended[i][way] || relay_hand_on(self, &self->bytes[i], ends[i][way], ends[i][1 - way])) continue;
                has_ended[i][way] = true;
                shutdown(ends[i][1 - way], SHUT_WR);
            }
        ls_sleep_until(ls_now_ns() + LS_NS_PER_MS / 5);
    }
    for (int i = 0; i < count; i++)
        for (int way = 0; way < 2; way++) close(ends[i][way]);
    close(self->listener);
    return NULL;
}

/* Rank 1 calls it before it opens its group: rank 0's card, as it reads it, leads to the relay. */
static inline void relay_start(relay *self, ls_store *store) {
    tcp_card cards[2];
    take_cards(store, cards);
    self->target = cards[0].places[0];
    self->listener = listen_somewhere(&cards[0].places[0]);
    lay_out_cards(store, cards);
    assert_int_equal(pthread_create(&self->thread, NULL, relay_run, self), 0);
}

/* When both ranks are through. */
static inline void relay_stop(relay *self) {
    atomic_store(&self->is_over, true);
    pthread_join(self->thread, NULL);
}

#endif
