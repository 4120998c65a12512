/* choose.c: the cheapest of the algorithms that can carry a call, by the usual model of a network ("Optimization of
 * collective communication operations in MPICH", Thakur and others, 2005):
 *
 *     time = rounds * alpha + messages * omicron + bytes * beta + combined * gamma
 *
 * alpha, the latency of a round; omicron, what a message costs the processor at both ends; beta, the time of a byte on
 * the wire; gamma, what is left of the time of combining a byte, most of which the wire hides. Only their ratios
 * matter to the choice, so all is counted in bytes: on a link of 10 Gbit/s alpha is 26 us and omicron 6.5 us. gamma is
 * what two ranks show on one host, where an exchange is ahead up to 4 MiB and pairwise by 1.6 at 25 MiB.
 *
 * N ranks, n bytes (of a row, where there are rows), s = ceil(n / segment), s' the same of a share of n/N:
 *
 *     kind            algorithm        rounds               messages            bytes                combined
 *     all-reduce      exchange         1                    (N-1) s             (N-1) n              (N-1) n
 *                     pairwise         2                    2 (N-1) s'          2 (N-1)/N n          (N-1)/N n
 *                     Bruck            ceil(log2 N)         ceil(log2 N)        (N-1) n              N n
 *       relaxed:      doubling         log2 P (+ 2)         log2 P (+ 1)        log2 P n (+ n)       as many
 *                     halving          2 log2 P (+ 2)       2 log2 P (+ 1)      2 (P-1)/P n (+ n)    (P-1)/P n (+ n)
 *                     ring             2 (N-1)              2 (N-1) s'          2 (N-1)/N n          (N-1)/N n
 *     reduce          exchange         1                    (N-1) s             (N-1) n              (N-1) n
 *                     pairwise         2                    2 (N-1) s'          2 (N-1)/N n          (N-1)/N n
 *     reduce-scatter  pairwise         1                    (N-1) s             (N-1) n              (N-1) n
 *     all-gather      direct           1                    N-1                 (N-1) n
 *                     Bruck            ceil(log2 N)         ceil(log2 N)        (N-1) n              N n, copied
 *     gather, scatter, all-to-all
 *                     direct           1                    N-1                 (N-1) n
 *     broadcast       binomial         ceil(log2 N)         ceil(log2 N)        ceil(log2 N) n
 *                     chain            N-1                  s                   n + (N-2) segment
 *     barrier         dissemination    ceil(log2 N)         ceil(log2 N)        ceil(log2 N)
 *
 * P is the largest power of two up to N; what stands in brackets is added where they differ. */
#include "group/algorithms/choose.h"

#include "group/backend.h"

#define ALPHA_BYTES 32768.0
#define OMICRON_BYTES 8192.0
#define GAMMA 0.015625

#define SEGMENT_MOST_BYTES ((size_t)256 << 10)
#define SEGMENT_LEAST_BYTES ((size_t)32 << 10)
/* Even a small share is cut into some segments, so that its steps overlap. */
#define SEGMENTS_WANTED 8

/* --- how data is cut ---------------------------------------------------------------------------------------------- */

static size_t lines_of(size_t bytes) {
    return bytes / COLLECTIVE_LINE_BYTES + (bytes % COLLECTIVE_LINE_BYTES > 0);
}

size_t share_border(size_t bytes, int rank, int world_size) {
    const size_t lines = lines_of(bytes), ranks = (size_t)world_size, r = (size_t)rank;
    /* The first lines % ranks shares have a line more. */
    const size_t extra = lines % ranks, border = (lines / ranks * r + (r < extra ? r : extra)) * COLLECTIVE_LINE_BYTES;
    return border < bytes ? border : bytes;
}

size_t share_longest(size_t bytes, int world_size) {
    return share_border(bytes, 1, world_size);
}

static size_t segment_within(size_t bytes, size_t room) {
    const size_t wanted = lines_of(bytes / SEGMENTS_WANTED) * COLLECTIVE_LINE_BYTES;
    const size_t most =
        room < SEGMENT_MOST_BYTES ? room / COLLECTIVE_LINE_BYTES * COLLECTIVE_LINE_BYTES : SEGMENT_MOST_BYTES;
    const size_t size = wanted < SEGMENT_LEAST_BYTES ? SEGMENT_LEAST_BYTES : wanted;
    return size < most ? size : most;
}

/* combine.c keeps COLLECTIVE_SLOTS segments of each rank in scratch. */
size_t segment_bytes(size_t bytes, int world_size) {
    return segment_within(bytes, COLLECTIVE_SCRATCH_BYTES / COLLECTIVE_SLOTS / (size_t)world_size);
}

size_t ring_segment_bytes(size_t bytes) {
    return segment_within(bytes, SEGMENT_MOST_BYTES);
}

static double count_of(size_t bytes, size_t segment) {
    const size_t count = bytes / segment + (bytes % segment > 0);
    return (double)count;
}

static double segments(size_t bytes, int world_size) {
    return count_of(bytes, segment_bytes(bytes, world_size));
}

/* --- what it costs ------------------------------------------------------------------------------------------------ */

static int log2_up(int ranks) {
    int log = 0;
    while (INT64_C(1) << log < ranks) log++;
    return log;
}

static collective_cost pairwise_cost(const collective_shape *shape) {
    const double others = shape->world_size - 1;
    if (shape->kind == GROUP_REDUCE_SCATTER) {
        const double all = others * (double)shape->bytes;
        return (collective_cost){1, others * segments(shape->bytes, shape->world_size), all, all};
    }
    const size_t share = share_longest(shape->bytes, shape->world_size);
    const double pieces = others * (double)share;
    return (collective_cost){2, 2 * others * segments(share, shape->world_size), 2 * pieces, pieces};
}

static collective_cost chain_cost(const collective_shape *shape) {
    const double segment = (double)segment_bytes(shape->bytes, shape->world_size);
    return (collective_cost){shape->world_size - 1, segments(shape->bytes, shape->world_size),
                             (double)shape->bytes + (shape->world_size - 2) * segment, 0};
}

static collective_cost ring_cost(const collective_shape *shape) {
    const double others = shape->world_size - 1;
    const size_t share = share_longest(shape->bytes, shape->world_size);
    const double round = others * (double)share, messages = others * count_of(share, ring_segment_bytes(share));
    return (collective_cost){2 * others, 2 * messages, 2 * round, round};
}

static collective_cost cube_cost(algorithm_name name, const collective_shape *shape) {
    const double bytes = (double)shape->bytes;
    int ranks = 1, rounds = 0;
    for (; 2 * ranks <= shape->world_size; ranks *= 2) rounds++;
    /* 1 where N is no power of two: two rounds more, but each way only one message, the data first, then the result. */
    const double beside = ranks < shape->world_size;
    if (name == ALGORITHM_DOUBLING) {
        const double all = (rounds + beside) * bytes;
        return (collective_cost){rounds + 2 * beside, rounds + beside, all, all};
    }
    const double halves = (ranks - 1) * (double)share_longest(shape->bytes, ranks);
    return (collective_cost){2 * rounds + 2 * beside, 2 * rounds + beside, 2 * halves + beside * bytes,
                             halves + beside * bytes};
}

collective_cost algorithm_cost(algorithm_name name, const collective_shape *shape) {
    const double others = shape->world_size - 1, log = log2_up(shape->world_size), bytes = (double)shape->bytes;
    const double all = others * bytes;
    switch (name) {
    case ALGORITHM_EXCHANGE: return (collective_cost){1, others * segments(shape->bytes, shape->world_size), all, all};
    case ALGORITHM_PAIRWISE: return pairwise_cost(shape);
    case ALGORITHM_BRUCK: return (collective_cost){log, log, all, all + bytes}; /* what it copies counts alike */
    case ALGORITHM_DISSEMINATION: return (collective_cost){log, log, log, 0};
    case ALGORITHM_BINOMIAL: return (collective_cost){log, log, log * bytes, 0};
    case ALGORITHM_CHAIN: return chain_cost(shape);
    case ALGORITHM_DOUBLING:
    case ALGORITHM_HALVING: return cube_cost(name, shape);
    case ALGORITHM_RING: return ring_cost(shape);
    default: return (collective_cost){1, others, all, 0};
    }
}

/* --- the choice --------------------------------------------------------------------------------------------------- */

static bool fits_scratch(size_t bytes, size_t times) {
    return bytes <= COLLECTIVE_SCRATCH_BYTES / times;
}

bool algorithm_carries(algorithm_name name, const collective_shape *shape) {
    const group_kind kind = shape->kind;
    const bool reduces_all = kind == GROUP_ALL_REDUCE;
    const bool gathers_all = kind == GROUP_ALL_GATHER || kind_is_agreement(kind);
    /* Alone, every kind is a copy of the own part at most. */
    if (shape->world_size == 1) return name == ALGORITHM_DIRECT;
    switch (name) {
    case ALGORITHM_DIRECT:
        return gathers_all || kind == GROUP_GATHER || kind == GROUP_SCATTER || kind == GROUP_ALL_TO_ALL ||
               kind == GROUP_ALL_TO_ALL_UNEVEN;
    case ALGORITHM_EXCHANGE: return reduces_all || kind == GROUP_REDUCE;
    case ALGORITHM_PAIRWISE: return reduces_all || kind == GROUP_REDUCE || kind == GROUP_REDUCE_SCATTER;
    case ALGORITHM_BRUCK: return (reduces_all || gathers_all) && fits_scratch(shape->bytes, (size_t)shape->world_size);
    case ALGORITHM_DISSEMINATION: return kind == GROUP_BARRIER;
    case ALGORITHM_BINOMIAL:
    case ALGORITHM_CHAIN: return kind == GROUP_BROADCAST;
    /* Scratch takes what comes: two rounds of a doubling in turn, all of a halving; a ring only its window. */
    case ALGORITHM_DOUBLING: return reduces_all && shape->is_relaxed && fits_scratch(shape->bytes, 2);
    case ALGORITHM_HALVING: return reduces_all && shape->is_relaxed && fits_scratch(shape->bytes, 1);
    case ALGORITHM_RING: return reduces_all && shape->is_relaxed;
    default: return false;
    }
}

static double time_of(algorithm_name name, const collective_shape *shape) {
    const collective_cost cost = algorithm_cost(name, shape);
    return cost.rounds * ALPHA_BYTES + cost.messages * OMICRON_BYTES + cost.bytes + cost.combined * GAMMA;
}

/* All ranks have to choose alike, so nothing of a rank's own is looked at; of equals the first in the enumeration. */
algorithm_name algorithm_choose(const collective_shape *shape) {
    algorithm_name best = ALGORITHM_COUNT;
    for (int name = 0; name < ALGORITHM_COUNT; name++) {
        if (!algorithm_carries((algorithm_name)name, shape)) continue;
        if (best == ALGORITHM_COUNT || time_of((algorithm_name)name, shape) < time_of(best, shape))
            best = (algorithm_name)name;
    }
    return best;
}
