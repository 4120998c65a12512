/* choose.h: which algorithm carries a call, from what each would cost. Pure. */
#ifndef LS_GROUP_ALGORITHMS_CHOOSE_H
#define LS_GROUP_ALGORITHMS_CHOOSE_H

#include "group/post.h"

#include <stdbool.h>

typedef enum algorithm_name {
    ALGORITHM_DIRECT,        /* everyone sends each what is for it */
    ALGORITHM_EXCHANGE,      /* whoever wants the result gets all data of all, and combines them */
    ALGORITHM_PAIRWISE,      /* each rank combines a share of the data, and sends the result to whoever wants it */
    ALGORITHM_BRUCK,         /* all data of all in log2 N rounds, then combined where that is asked for */
    ALGORITHM_DISSEMINATION, /* a barrier in log2 N rounds */
    ALGORITHM_BINOMIAL,      /* a tree that doubles who has the data in each round */
    ALGORITHM_CHAIN,         /* each rank passes segments on to the next */
    ALGORITHM_DOUBLING,      /* the three that need `relaxed`: all data with a partner in each of log2 N rounds; */
    ALGORITHM_HALVING,       /* half as much in each round, then the results back; */
    ALGORITHM_RING,          /* shares pass round, summed on the way, then the results */
    ALGORITHM_COUNT
} algorithm_name;

/* What is to be done: `bytes` of one rank's data (of one row where there are rows), as call_bytes says. */
typedef struct collective_shape {
    group_kind kind;
    size_t bytes;
    int world_size;
    bool is_relaxed; /* the order of additions is free */
} collective_shape;

/* Of the rank that has most to do: rounds that wait for each other; messages and bytes in its busier direction; bytes
 * of others that it combines with its own. */
typedef struct collective_cost {
    double rounds, messages, bytes, combined;
} collective_cost;

/* Whether the algorithm can do that at all. */
bool algorithm_carries(algorithm_name name, const collective_shape *shape);
collective_cost algorithm_cost(algorithm_name name, const collective_shape *shape);
/* The cheapest that carries it. */
algorithm_name algorithm_choose(const collective_shape *shape);

/* How data is cut, so that wire and sums overlap. */
#define COLLECTIVE_SCRATCH_BYTES ((size_t)4 << 20) /* of a rank; divided among its peers */
#define COLLECTIVE_SLOTS 4                         /* segments of each peer that may wait to be combined */
/* Cuts are at whole cache lines of the data, which is a multiple of every dtype: no element is split. */
#define COLLECTIVE_LINE_BYTES ((size_t)64)
/* So many that a segment of each is one line. */
#define COLLECTIVE_MOST_RANKS ((int)(COLLECTIVE_SCRATCH_BYTES / COLLECTIVE_SLOTS / COLLECTIVE_LINE_BYTES))

/* Bytes of the longest of the shares, one a rank, into which `bytes` are divided, and where a rank's begins. */
size_t share_longest(size_t bytes, int world_size);
size_t share_border(size_t bytes, int rank, int world_size);
/* Bytes of a segment of a share of `bytes` bytes: whole lines, one at least. At most COLLECTIVE_MOST_RANKS ranks. */
size_t segment_bytes(size_t bytes, int world_size);
/* The same of a ring, where a rank hears from one peer. */
size_t ring_segment_bytes(size_t bytes);

#endif
