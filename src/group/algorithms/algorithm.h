/* algorithm.h: what an algorithm is: for each peer and direction a sequence of messages, each of which may go once its
 * condition holds, and some work on this rank. collective.c does the rest, for all of them alike: it keeps messages in
 * order and within the transport's window, counts them, and knows when all is done.
 *
 * Why sequences: nothing is tagged on the way, so both sides of a pair have to count the same messages in the same
 * order. An algorithm says the order once, as a function of an index; a message of no bytes has an index and never
 * travels. */
#ifndef LS_GROUP_ALGORITHMS_ALGORITHM_H
#define LS_GROUP_ALGORITHMS_ALGORITHM_H

#include "group/algorithms/choose.h"
#include "group/algorithms/collective.h"
#include "group/reduce.h"

typedef enum direction { OUTGOING, INCOMING } direction;

/* One message of a sequence. `bytes` may depend on the index alone once it was ready. */
typedef struct message {
    void *data; /* an outgoing one's is only read */
    size_t bytes;
    bool is_ready; /* may be sent, or received into `data`, now */
} message;

/* One direction of a pair: indices [0, done) are done, [done, posted) under way, [posted, end) to come. */
typedef struct stream {
    uint64_t end, posted, done;
    uint64_t messages_posted, messages_done; /* of those, the ones that have bytes: what the transport counts */
} stream;

typedef struct algorithm {
    void (*start)(collective *c); /* opens streams, sets the algorithm's own fields */
    message (*message[2])(const collective *c, int peer, uint64_t index); /* by direction */
    /* Does what this rank has to do, for some 50 us at most; `moved` is set if there was anything. Returns whether all
     * of it is done. */
    bool (*work)(collective *c, bool *moved);
} algorithm;

/* The algorithms' own fields. */
typedef struct direct_state {
    size_t copied; /* of this rank's part for itself */
} direct_state;

typedef struct combine_state {
    size_t segment;    /* bytes */
    uint64_t segments; /* of the longest share */
    uint64_t combined; /* of this rank's share */
} combine_state;

typedef struct tree_state {
    int parent; /* -1: this is the root */
    size_t segment;
    uint64_t segments;
} tree_state;

typedef struct rounds_state {
    int rounds, come; /* log2 of the world size, rounded up; whose messages have come */
    bool is_finished;
} rounds_state;

typedef struct ring_state {
    size_t segment;
    uint64_t segments; /* of the longest block */
    uint64_t added;    /* segments */
} ring_state;

typedef struct cube_state {
    int ranks, rounds; /* P, and its log2 */
    int number;        /* ours; -1: we take no part */
    int step;          /* under way; rounds + 1: the end; rounds + 2: past it */
    size_t combined;   /* bytes, in this step */
} cube_state;

struct collective {
    const transport *transport;
    int rank, world_size;
    bool relaxed_order;
    char *scratch; /* [COLLECTIVE_SCRATCH_BYTES] */

    group_call call;
    uint64_t number;
    size_t bytes; /* of one rank's data, or of one row */
    const algorithm *algorithm;
    const reduce_kernel *kernel; /* NULL: nothing is combined */
    bool has_failed;

    stream (*lanes)[2]; /* [world_size], by direction */
    int *peers;         /* [world_size], of which the first peer_count have messages */
    int peer_count;
    void **sources;   /* [world_size] */
    uint64_t *counts; /* [world_size], from each peer, of the uneven all-to-all */

    union {
        direct_state direct;
        combine_state combine;
        tree_state tree;
        rounds_state rounds;
        ring_state ring;
        cube_state cube;
    };
};

/* Begins `call` by one algorithm, which carries it. */
void collective_start_by(collective *c, const group_call *call, uint64_t number, algorithm_name name);

/* For algorithms: says how many messages there are with a peer. Peers are served in the order in which they are
 * opened. */
void collective_open(collective *c, int peer, uint64_t outgoing, uint64_t incoming);

/* How many messages of that direction are done. */
static inline uint64_t collective_done(const collective *c, int peer, direction way) {
    return c->lanes[peer][way].done;
}

/* What this rank puts in. */
static inline char *collective_sent(const collective *c) {
    const void *sent = c->call.send ? c->call.send : c->call.data;
    return (char *)sent;
}

static inline size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* The bytes of the index-th segment. */
static inline size_t segment_of(size_t bytes, size_t segment, uint64_t index) {
    const size_t at = segment * (size_t)index;
    return at < bytes ? least(bytes - at, segment) : 0;
}

static inline uint64_t segments_of(size_t bytes, size_t segment) {
    return (bytes + segment - 1) / segment;
}

extern const algorithm direct_algorithm, exchange_algorithm, pairwise_algorithm, bruck_algorithm,
    dissemination_algorithm, binomial_algorithm, chain_algorithm, doubling_algorithm, halving_algorithm, ring_algorithm;

#endif
