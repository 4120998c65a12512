/* memory_network.h: a transport in memory for tests of algorithms: single-threaded, in random order, as unhelpful as
 * the contract in transport.h allows. Every message is checked: its size on both sides, that what is sent stays as it
 * is until it is sent, that no more than the window is under way. Memory to receive into is spoilt at once. */
#ifndef LS_TEST_GROUP_MEMORY_NETWORK_H
#define LS_TEST_GROUP_MEMORY_NETWORK_H

#include "support/test.h"

#include "group/algorithms/transport.h"
#include "group/oracle.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct posted {
    char *data;
    char *copy; /* of what is sent, as it was when it was posted */
    size_t bytes;
    size_t due; /* when it arrives, for those who keep a clock */
} posted;

/* From one rank to another: rings of what is sent and of what is awaited. */
typedef struct wire {
    posted sends[TRANSPORT_WINDOW];
    posted receives[TRANSPORT_WINDOW];
    posted *held; /* out of the sender's hands, not yet awaited: in order */
    size_t held_count, held_room;
    uint64_t send_count, sent, receive_count, received;
} wire;

typedef struct memory_network {
    int ranks;
    bool holds_nothing; /* a message leaves the sender only when the receiver awaits it */
    uint64_t random;
    wire *wires; /* [ranks][ranks], from, to */
    /* By rank: what it sent and received. */
    uint64_t *messages_out, *messages_in, *bytes_out, *bytes_in;
} memory_network;

/* What an algorithm sees of it. */
typedef struct network_end {
    memory_network *network;
    int rank;
} network_end;

static inline wire *wire_of(const memory_network *n, int from, int to) {
    return &n->wires[(size_t)from * (size_t)n->ranks + (size_t)to];
}

static inline uint64_t draw_number(memory_network *n, uint64_t below) {
    return (n->random = mix(n->random)) % below;
}

static inline void end_send(void *end, int peer, const void *data, size_t bytes) {
    const network_end *e = end;
    wire *w = wire_of(e->network, e->rank, peer);
    assert_true(bytes > 0 && peer != e->rank);
    assert_true(w->send_count - w->sent < TRANSPORT_WINDOW);
    posted *p = &w->sends[w->send_count++ % TRANSPORT_WINDOW];
    *p = (posted){.data = (char *)data, .copy = malloc(bytes), .bytes = bytes};
    assert_non_null(p->copy);
    memcpy(p->copy, data, bytes);
    e->network->messages_out[e->rank]++;
    e->network->bytes_out[e->rank] += bytes;
}

static inline void end_receive(void *end, int peer, void *data, size_t bytes) {
    const network_end *e = end;
    wire *w = wire_of(e->network, peer, e->rank);
    assert_true(bytes > 0 && peer != e->rank);
    assert_true(w->receive_count - w->received < TRANSPORT_WINDOW);
    w->receives[w->receive_count++ % TRANSPORT_WINDOW] = (posted){.data = data, .bytes = bytes};
    memset(data, 0xa5, bytes);
    e->network->messages_in[e->rank]++;
    e->network->bytes_in[e->rank] += bytes;
}

static inline uint64_t end_sent(void *end, int peer) {
    const network_end *e = end;
    return wire_of(e->network, e->rank, peer)->sent;
}

static inline uint64_t end_received(void *end, int peer) {
    const network_end *e = end;
    return wire_of(e->network, peer, e->rank)->received;
}

/* The oldest message leaves its sender. */
static inline posted leave_sender(wire *w) {
    const posted p = w->sends[w->sent++ % TRANSPORT_WINDOW];
    assert_memory_equal(p.data, p.copy, p.bytes);
    return p;
}

static inline void arrive(wire *w, posted p) {
    const posted *into = &w->receives[w->received % TRANSPORT_WINDOW];
    assert_int_equal(p.bytes, into->bytes);
    memcpy(into->data, p.copy, p.bytes);
    free(p.copy);
    w->received++;
}

static inline void hold(wire *w, posted p) {
    if (w->held_count == w->held_room) {
        w->held_room = 2 * w->held_room + 4;
        w->held = realloc(w->held, w->held_room * sizeof *w->held);
        assert_non_null(w->held);
    }
    w->held[w->held_count++] = p;
}

static inline void arrive_first(wire *w) {
    arrive(w, w->held[0]);
    memmove(w->held, w->held + 1, --w->held_count * sizeof *w->held);
}

/* Moves one message of a wire one step, if one can move. */
static inline bool move_one(memory_network *n, wire *w) {
    const bool is_awaited = w->received < w->receive_count, is_offered = w->sent < w->send_count;
    const bool prefers_holding = draw_number(n, 2);
    if (is_awaited && w->held_count && !(is_offered && !n->holds_nothing && prefers_holding)) {
        arrive_first(w);
        return true;
    }
    if (!is_offered || (n->holds_nothing && !is_awaited)) return false;
    const posted p = leave_sender(w);
    if (n->holds_nothing)
        arrive(w, p);
    else
        hold(w, p);
    return true;
}

/* Moves one message of any wire; false: nothing can move. */
static inline bool network_move(memory_network *n) {
    const size_t wires = (size_t)n->ranks * (size_t)n->ranks, first = draw_number(n, wires);
    for (size_t i = 0; i < wires; i++)
        if (move_one(n, &n->wires[(first + i) % wires])) return true;
    return false;
}

static inline void network_open(memory_network *n, int ranks, uint64_t seed) {
    *n = (memory_network){.ranks = ranks, .random = seed};
    n->wires = calloc((size_t)ranks * (size_t)ranks, sizeof *n->wires);
    n->messages_out = calloc(4 * (size_t)ranks, sizeof *n->messages_out);
    assert_non_null(n->wires);
    assert_non_null(n->messages_out);
    n->messages_in = n->messages_out + ranks;
    n->bytes_out = n->messages_in + ranks;
    n->bytes_in = n->bytes_out + ranks;
}

/* Between two operations: nothing may be left on the way. */
static inline void network_begin(memory_network *n) {
    for (int i = 0; i < n->ranks * n->ranks; i++) {
        wire *w = &n->wires[i];
        assert_int_equal(w->send_count, w->sent);
        assert_int_equal(w->sent, w->received);
        assert_int_equal(w->receive_count, w->received);
        assert_int_equal(w->held_count, 0);
        w->send_count = w->sent = w->receive_count = w->received = 0;
    }
    memset(n->messages_out, 0, 4 * (size_t)n->ranks * sizeof *n->messages_out);
    n->holds_nothing = draw_number(n, 2);
}

static inline void network_close(memory_network *n) {
    for (int i = 0; i < n->ranks * n->ranks; i++) {
        wire *w = &n->wires[i];
        for (; w->sent < w->send_count; w->sent++) free(w->sends[w->sent % TRANSPORT_WINDOW].copy);
        for (size_t held = 0; held < w->held_count; held++) free(w->held[held].copy);
        free(w->held);
    }
    free(n->wires);
    free(n->messages_out);
}

#endif
