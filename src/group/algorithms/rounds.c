/* rounds.c: what takes log2 N rounds: in round i each rank sends to the rank 2^i before it and hears from the one 2^i
 * behind it.
 *
 *   Bruck           an all-gather ("Efficient algorithms for all-to-all communications", Bruck and others, 1997): in
 *                   each round everything that a rank has, so that after round i it has the blocks of the ranks r to
 *                   r + 2^(i+1) - 1. An all-reduce of little data is this; then everyone combines all in rank order.
 *   dissemination   a barrier ("Two algorithms for barrier synchronization", Hensgen and others, 1988): with one byte
 *
 * Blocks lie in scratch, block j being that of rank r + j, so that what is sent is one stretch, never written again. */
#include "group/algorithms/algorithm.h"

#include <string.h>

static int rounds_among(int ranks) {
    int rounds = 0;
    while (INT64_C(1) << rounds < ranks) rounds++;
    return rounds;
}

static int rank_at(const collective *c, int64_t distance) {
    const int64_t ranks = c->world_size;
    return (int)(((c->rank + distance) % ranks + ranks) % ranks);
}

/* In which round the rank at that distance is met: the distance is a power of two. */
static int round_of(const collective *c, int peer, direction way) {
    const int distance = (way == OUTGOING ? c->rank - peer : peer - c->rank) + c->world_size;
    return __builtin_ctz((unsigned)(distance % c->world_size));
}

static void rounds_start(collective *c) {
    c->rounds = (rounds_state){.rounds = rounds_among(c->world_size)};
    if (c->call.kind != GROUP_BARRIER && c->bytes == 0) {
        c->rounds.is_finished = true;
        return;
    }
    if (c->bytes) memcpy(c->scratch, collective_sent(c), c->bytes);
    for (int round = 0; round < c->rounds.rounds; round++) {
        collective_open(c, rank_at(c, -(INT64_C(1) << round)), 1, 0);
        collective_open(c, rank_at(c, INT64_C(1) << round), 0, 1);
    }
}

/* --- Bruck -------------------------------------------------------------------------------------------------------- */

/* Twice as much in each round; in the last one, where N is no power of two, only what is missing. */
static size_t bruck_bytes(const collective *c, int round) {
    const size_t held = (size_t)1 << round, missing = (size_t)c->world_size - held;
    return least(held, missing) * c->bytes;
}

static message bruck_outgoing(const collective *c, int peer, uint64_t index) {
    (void)index;
    const int round = round_of(c, peer, OUTGOING);
    return (message){.data = c->scratch, .bytes = bruck_bytes(c, round), .is_ready = c->rounds.come >= round};
}

static message bruck_incoming(const collective *c, int peer, uint64_t index) {
    (void)index;
    const int round = round_of(c, peer, INCOMING);
    return (message){
        .data = c->scratch + ((size_t)c->bytes << round), .bytes = bruck_bytes(c, round), .is_ready = true};
}

/* Everything is here: into rank order, or combined in it. */
static void bruck_finish(collective *c) {
    for (int rank = 0; rank < c->world_size; rank++) {
        char *block = c->scratch + (size_t)((rank - c->rank + c->world_size) % c->world_size) * c->bytes;
        c->sources[rank] = block;
        if (!c->kernel) memcpy((char *)c->call.data + (size_t)rank * c->bytes, block, c->bytes);
    }
    if (!c->kernel) return;
    const size_t element_bytes = ls_dtype_size(c->call.dtype);
    reduce_into(c->kernel, element_bytes, c->sources, c->world_size, 0, c->bytes / element_bytes, c->call.data);
}

/* Rounds whose messages have come, and those of all rounds before. */
static bool have_come(collective *c, bool *moved) {
    rounds_state *r = &c->rounds;
    while (r->come < r->rounds && collective_done(c, rank_at(c, INT64_C(1) << r->come), INCOMING)) {
        r->come++;
        *moved = true;
    }
    return r->come == r->rounds;
}

static bool bruck_work(collective *c, bool *moved) {
    /* Asked again while messages are still going out: the result is written once. */
    if (c->rounds.is_finished) return true;
    if (!have_come(c, moved)) return false;
    bruck_finish(c);
    *moved = true;
    return c->rounds.is_finished = true;
}

/* --- dissemination ------------------------------------------------------------------------------------------------ */

static message barrier_outgoing(const collective *c, int peer, uint64_t index) {
    (void)index;
    const int round = round_of(c, peer, OUTGOING);
    return (message){.data = c->scratch, .bytes = 1, .is_ready = c->rounds.come >= round};
}

static message barrier_incoming(const collective *c, int peer, uint64_t index) {
    (void)index;
    return (message){.data = c->scratch + 1 + round_of(c, peer, INCOMING), .bytes = 1, .is_ready = true};
}

static void barrier_start(collective *c) {
    c->scratch[0] = 1;
    rounds_start(c);
}

const algorithm bruck_algorithm = {
    .start = rounds_start, .message = {bruck_outgoing, bruck_incoming}, .work = bruck_work};
const algorithm dissemination_algorithm = {
    .start = barrier_start, .message = {barrier_outgoing, barrier_incoming}, .work = have_come};
