/* bits.h: the bits of everything that is combined: the same in one message and in several, in ordinary memory and the group's, on
 * all ranks. The digest that comes out is the same in every run and wherever the order of additions is. */
#ifndef LS_TEST_GROUP_BITS_H
#define LS_TEST_GROUP_BITS_H

#include "group/oracle.h"
#include "group/post.h"

#include <stdio.h>
#include <stdlib.h>

#define BITS_MUST(claim)                                                                     \
    do {                                                                                     \
        if (claim) break;                                                                    \
        fprintf(stderr, "%s:%d: not " #claim ": %s\n", __FILE__, __LINE__, ls_last_error()); \
        exit(1);                                                                             \
    } while (0)

#define BITS_COUNT ((size_t)12011)
#define BITS_PIECES 5
#define BITS_MOST_RANKS 8

static const size_t bits_borders[BITS_PIECES + 1] = {0, 1, 38, 600, 5001, BITS_COUNT};

/* In one message; in several, coalesced; in several, posted one by one. */
typedef enum bits_way { BITS_WHOLE, BITS_COALESCED, BITS_POSTED, BITS_WAYS } bits_way;

typedef struct bits_walk {
    ls_group *group;
    uint64_t seed, digest, all_reduced; /* of all results; of those that all ranks have alike */
    group_kind kind;
    ls_dtype dtype;
    ls_op op;
    char *drawn, *send, *receive; /* [world size][BITS_COUNT] of eight bytes: rows of this type; of pieces */
    char *expected;
} bits_walk;

static inline uint64_t bits_fold(uint64_t digest, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return digest;
}

static inline void bits_draw(const bits_walk *walk) {
    for (size_t i = 0; i < (size_t)ls_group_world_size(walk->group) * BITS_COUNT; i++)
        draw(walk->drawn, i, i, walk->dtype, walk->seed, ls_group_rank(walk->group));
}

/* Of rows, a piece has a piece of each, one behind the other. */
static inline void bits_fill(const bits_walk *walk, size_t begin, size_t count, size_t rows) {
    const size_t size = ls_dtype_size(walk->dtype);
    for (size_t row = 0; row < rows; row++)
        memcpy(walk->send + (rows * begin + row * count) * size, walk->drawn + (row * BITS_COUNT + begin) * size,
               count * size);
}

static inline void bits_post(const bits_walk *walk, bits_way way, void **send, void **receive, const size_t *counts,
                             int pieces) {
    ls_work *works[BITS_PIECES] = {NULL};
    const bool is_coalesced = way == BITS_COALESCED && walk->kind != GROUP_REDUCE;
    if (is_coalesced && walk->kind == GROUP_ALL_REDUCE) {
        BITS_MUST(ls_group_all_reduce_many(walk->group, send, counts, pieces, walk->dtype, walk->op, NULL) == LS_OK);
    } else if (is_coalesced) {
        BITS_MUST(ls_group_reduce_scatter_many(walk->group, (const void *const *)send, receive, counts, pieces,
                                               walk->dtype, walk->op, NULL) == LS_OK);
    }
    for (int i = 0; i < pieces && !is_coalesced; i++) {
        const bool has_rows = walk->kind == GROUP_REDUCE_SCATTER;
        const group_call call = {.kind = walk->kind,
                                 .dtype = walk->dtype,
                                 .op = walk->op,
                                 .root = walk->kind == GROUP_REDUCE,
                                 .count = counts[i],
                                 .send = has_rows ? send[i] : NULL,
                                 .data = has_rows ? receive[i] : send[i]};
        BITS_MUST(group_post(walk->group, &call, &works[i]) == LS_OK);
    }
    BITS_MUST(ls_work_wait_all(works, BITS_PIECES, 0) == LS_OK);
    for (int i = 0; i < BITS_PIECES; i++) ls_work_close(&works[i]);
}

static inline void bits_run(bits_walk *walk, bits_way way) {
    const size_t rows = walk->kind == GROUP_REDUCE_SCATTER ? (size_t)ls_group_world_size(walk->group) : 1;
    const size_t size = ls_dtype_size(walk->dtype);
    void *send[BITS_PIECES], *receive[BITS_PIECES];
    size_t counts[BITS_PIECES];
    const int pieces = way == BITS_WHOLE ? 1 : BITS_PIECES;
    for (int i = 0; i < pieces; i++) {
        const size_t begin = bits_borders[i], end = pieces == 1 ? BITS_COUNT : bits_borders[i + 1];
        counts[i] = end - begin;
        send[i] = walk->send + rows * begin * size;
        receive[i] = walk->receive + begin * size;
        bits_fill(walk, begin, counts[i], rows);
    }
    bits_post(walk, way, send, receive, counts, pieces);
    const char *result = rows == 1 ? walk->send : walk->receive;
    if (way == BITS_WHOLE) memcpy(walk->expected, result, BITS_COUNT * size);
    BITS_MUST(memcmp(result, walk->expected, BITS_COUNT * size) == 0);
}

/* One type and op: the ways in turn; `shared` is the group's memory, `ordinary` is not. */
static inline void bits_compare(bits_walk *walk, char *ordinary, char *shared, size_t bytes) {
    for (int way = 0; way < BITS_WAYS; way++) {
        walk->send = way == BITS_POSTED ? shared : ordinary;
        walk->receive = walk->send + bytes;
        bits_run(walk, (bits_way)way);
    }
    const size_t result_bytes = BITS_COUNT * ls_dtype_size(walk->dtype);
    walk->digest = bits_fold(walk->digest, walk->expected, result_bytes);
    if (walk->kind == GROUP_ALL_REDUCE) walk->all_reduced = bits_fold(walk->all_reduced, walk->expected, result_bytes);
}

/* Collective. The digest of what all ranks have got. */
static inline uint64_t bits_of_all(ls_group *group, uint64_t seed) {
    static const group_kind kinds[] = {GROUP_ALL_REDUCE, GROUP_REDUCE, GROUP_REDUCE_SCATTER};
    const size_t world_size = (size_t)ls_group_world_size(group), bytes = world_size * BITS_COUNT * 8;
    bits_walk walk = {.group = group, .seed = seed, .drawn = malloc(bytes), .expected = malloc(BITS_COUNT * 8)};
    void *shared = NULL;
    char *ordinary = malloc(2 * bytes);
    uint64_t digests[BITS_MOST_RANKS][2];
    BITS_MUST(ls_group_alloc(group, 2 * bytes, &shared) == LS_OK);
    for (int line = 0; line < LS_DTYPE_COUNT * LS_OP_COUNT * 3; line++) {
        walk.dtype = (ls_dtype)(line / 3 / LS_OP_COUNT);
        walk.op = (ls_op)(line / 3 % LS_OP_COUNT);
        walk.kind = kinds[line % 3];
        if (line % (3 * LS_OP_COUNT) == 0) bits_draw(&walk);
        if (is_defined(walk.dtype, walk.op)) bits_compare(&walk, ordinary, shared, bytes);
    }
    free(ordinary);
    free(walk.expected);
    free(walk.drawn);
    const uint64_t own[2] = {walk.all_reduced, walk.digest};
    BITS_MUST(ls_group_all_gather(group, own, digests, 2, LS_I64, NULL) == LS_OK);
    for (size_t rank = 0; rank < world_size; rank++) BITS_MUST(digests[rank][0] == walk.all_reduced);
    return bits_fold(0, digests, world_size * sizeof digests[0]);
}

#endif
