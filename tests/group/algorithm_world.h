/* algorithm_world.h: ranks of a collective over a network in memory, all on the test's own thread. */
#ifndef LS_TEST_GROUP_ALGORITHM_WORLD_H
#define LS_TEST_GROUP_ALGORITHM_WORLD_H

#include "group/memory_network.h"

#include "group/algorithms/algorithm.h"

#define MOST_RANKS 40

/* Of the operations, for sentences. */
#define WORLD_NUMBER 7

typedef struct world {
    memory_network network;
    network_end ends[MOST_RANKS];
    transport transports[MOST_RANKS];
    collective *ranks[MOST_RANKS];
} world;

static inline void world_open(world *w, int ranks, bool is_relaxed, uint64_t seed) {
    network_open(&w->network, ranks, seed);
    for (int rank = 0; rank < ranks; rank++) {
        w->ends[rank] = (network_end){.network = &w->network, .rank = rank};
        w->transports[rank] = (transport){.rank = rank,
                                          .world_size = ranks,
                                          .network = &w->ends[rank],
                                          .send = end_send,
                                          .receive = end_receive,
                                          .sent = end_sent,
                                          .received = end_received};
        assert_int_equal(collective_create(&w->ranks[rank], &w->transports[rank], is_relaxed), LS_OK);
    }
}

static inline void world_close(world *w) {
    for (int rank = 0; rank < w->network.ranks; rank++) collective_close(&w->ranks[rank]);
    network_close(&w->network);
}

/* ALGORITHM_COUNT: as it is chosen. */
static inline void world_start(const world *w, int rank, const group_call *call, algorithm_name name) {
    if (name == ALGORITHM_COUNT)
        collective_start(w->ranks[rank], call, WORLD_NUMBER);
    else
        collective_start_by(w->ranks[rank], call, WORLD_NUMBER, name);
}

/* Runs calls[rank] on each rank: begins and polls them, and moves messages, in random order, until all are done. */
static inline void world_run(world *w, const group_call *calls, algorithm_name name) {
    memory_network *n = &w->network;
    bool is_begun[MOST_RANKS] = {false}, is_done[MOST_RANKS] = {false};
    int begun = 0, done = 0, idle = 0;
    network_begin(n);
    while (done < n->ranks) {
        assert_true(idle++ < 1000 * n->ranks); /* else they wait for each other */
        if (draw_number(n, 4) && network_move(n)) idle = 0;
        const int rank = (int)draw_number(n, (uint64_t)n->ranks);
        if (!is_begun[rank]) {
            world_start(w, rank, &calls[rank], name);
            is_begun[rank] = true;
            begun++;
        } else if (!is_done[rank]) {
            const collective_progress progress = collective_poll(w->ranks[rank]);
            assert_int_not_equal(progress, COLLECTIVE_FAILED);
            if (progress != COLLECTIVE_PENDING) idle = 0;
            done += is_done[rank] = progress == COLLECTIVE_DONE;
            /* Nobody leaves a barrier before all have come to it. */
            if (is_done[rank] && calls[rank].kind == GROUP_BARRIER) assert_int_equal(begun, n->ranks);
        }
    }
    assert_false(network_move(n));
}

#endif
