/* hosts_world.h: ranks that share hosts, without any of them: each has its plan (group/backend/hosts), and the world runs the
 * steps, as the groups beneath would: when all whom a step needs have come to it, with the same call. It counts what hosts send to
 * each other, and compares what comes out with the serial oracle. */
#ifndef LS_TEST_GROUP_HOSTS_WORLD_H
#define LS_TEST_GROUP_HOSTS_WORLD_H

#include "support/test.h"

#include "base/wait.h"
#include "group/backend/hosts/hosts.h"
#include "group/oracle.h"

#include <stdlib.h>

#define MOST_RANKS 9
#define MOST_COUNT ((size_t)530001)

/* A rank: where it is, what it calls, how far it has come. */
typedef struct player {
    hosts_place place;
    group_call call;
    char *array, *rows, *scratch; /* of at most MOST_COUNT elements; a row of as many for each rank; of plans */
    hosts_steps steps;
    int step;
    size_t done;
} player;

static struct {
    int world_size, host_count, lanes, largest;
    int host_of[MOST_RANKS], index_of[MOST_RANKS], size_of[MOST_RANKS];
    player players[MOST_RANKS];
    size_t sent[MOST_RANKS];  /* bytes, by each host to others */
    char *result[MOST_RANKS]; /* of a step, before it is written */
} world;

static const size_t row_bytes = MOST_COUNT * sizeof(int64_t);

/* `hosts` says for each rank on which one it is: "0010". */
static inline void lay_out(const char *hosts) {
    memset(&world, 0, sizeof world);
    world.world_size = (int)strlen(hosts);
    world.lanes = MOST_RANKS;
    for (int rank = 0; rank < world.world_size; rank++) {
        const int host = world.host_of[rank] = hosts[rank] - '0';
        world.index_of[rank] = world.size_of[host]++;
        if (host >= world.host_count) world.host_count = host + 1;
    }
    for (int host = 0; host < world.host_count; host++) {
        if (world.size_of[host] < world.lanes) world.lanes = world.size_of[host];
        if (world.size_of[host] > world.largest) world.largest = world.size_of[host];
    }
    const size_t all_rows = row_bytes * (size_t)world.world_size;
    for (int rank = 0; rank < world.world_size; rank++) {
        player *p = &world.players[rank];
        p->place = (hosts_place){.world_size = world.world_size,
                                 .host = world.host_of[rank],
                                 .host_count = world.host_count,
                                 .index = world.index_of[rank],
                                 .local_size = world.size_of[world.host_of[rank]],
                                 .lanes = world.lanes,
                                 .largest = world.largest,
                                 .host_of = world.host_of,
                                 .index_of = world.index_of};
        p->array = malloc(row_bytes);
        p->rows = malloc(all_rows);
        p->scratch = malloc(2 * HOSTS_HALF_BYTES);
        world.result[rank] = malloc(all_rows);
    }
}

static inline void clear(void) {
    for (int rank = 0; rank < world.world_size; rank++) {
        free(world.players[rank].array);
        free(world.players[rank].rows);
        free(world.players[rank].scratch);
        free(world.result[rank]);
    }
}

/* --- running steps ---------------------------------------------------------------------------------------------------- */

static inline const hosts_step *step_of(int rank) {
    const player *p = &world.players[rank];
    return p->step < p->steps.count ? &p->steps.list[p->step] : NULL;
}

static inline void plan_from(player *p, size_t at) {
    p->step = 0;
    p->done = 0;
    hosts_plan(&p->place, &p->call, p->scratch, at, &p->steps);
    assert_in_range(p->steps.count, 0, HOSTS_MOST_STEPS);
}

static inline void end_step(player *p) {
    p->done = 0;
    if (++p->step < p->steps.count || p->steps.next == p->call.count) return;
    const size_t before = p->steps.next;
    plan_from(p, before);
    assert_true(p->steps.next > before);
}

/* The members of the group beneath in which `rank` has a step, in their order. */
static inline int members_of(int rank, hosts_where where, int *members) {
    int count = 0;
    for (int i = 0; i < world.world_size; i++)
        if (where == HOSTS_LANE ? world.index_of[i] == world.index_of[rank] : world.host_of[i] == world.host_of[rank])
            members[count++] = i;
    return count;
}

static inline bool are_there(hosts_where where, const int *members, int count) {
    for (int i = 0; i < count; i++) {
        const hosts_step *step = step_of(members[i]);
        if (!step || step->where != where) return false;
    }
    return true;
}

static inline const char *given(int rank) {
    const group_call *call = &step_of(rank)->call;
    return call->send ? call->send : call->data;
}

/* What all members give, from row `row` on, combined. */
static inline void combine(const int *members, int count, size_t row, char *into) {
    const group_call *call = &step_of(members[0])->call;
    const size_t size = ls_dtype_size(call->dtype);
    void *sources[MOST_RANKS];
    for (int i = 0; i < count; i++) sources[i] = (char *)given(members[i]) + row * call->count * size;
    if (count == 1)
        memcpy(into, sources[0], call->count * size);
    else if (call->count)
        reduce_into(reduce_kernel_for(call->dtype, call->op), size, sources, count, 0, call->count, into);
}

/* The bytes that member `which` gets. */
static inline size_t result_for(const int *members, int count, int which) {
    const group_call *call = &step_of(members[0])->call;
    const size_t bytes = call->count * ls_dtype_size(call->dtype);
    char *into = world.result[members[which]];
    switch ((int)call->kind) {
    case GROUP_BARRIER: return 0;
    case GROUP_ALL_REDUCE: combine(members, count, 0, into); return bytes;
    case GROUP_REDUCE_SCATTER: combine(members, count, (size_t)which, into); return bytes;
    case GROUP_BROADCAST: memcpy(into, given(members[call->root]), bytes); return bytes;
    case GROUP_GATHER:
        if (which != call->root) return 0;
        break;
    default: assert_int_equal(call->kind, GROUP_ALL_GATHER);
    }
    for (int i = 0; i < count; i++) memcpy(into + (size_t)i * bytes, given(members[i]), bytes);
    return bytes * (size_t)count;
}

/* What a rank sends to others of its lane; an all-reduce and a broadcast go by many ways. */
static inline size_t sent_by(const group_call *call, int which, int count) {
    const size_t bytes = call->count * ls_dtype_size(call->dtype);
    if (call->kind == GROUP_GATHER) return which == call->root ? 0 : bytes;
    return bytes * (size_t)(count - 1);
}

/* Nothing is written across the end of a half of scratch. */
static inline void write_result(player *p, size_t bytes, const char *result) {
    char *data = step_of((int)(p - world.players))->call.data;
    const size_t at = (uintptr_t)data - (uintptr_t)p->scratch;
    if (at < 2 * HOSTS_HALF_BYTES) assert_int_equal(at / HOSTS_HALF_BYTES, (at + bytes - 1) / HOSTS_HALF_BYTES);
    memcpy(data, result, bytes);
}

/* What the group beneath would compare, and then do. */
static inline void run_step(hosts_where where, const int *members, int count) {
    const group_call *first = &step_of(members[0])->call;
    size_t bytes[MOST_RANKS];
    for (int i = 0; i < count; i++) {
        const group_call *call = &step_of(members[i])->call;
        assert_true(call->kind == first->kind && call->op == first->op && call->root == first->root);
        assert_true(call->count == first->count && call->dtype == first->dtype);
        if (where == HOSTS_LANE) world.sent[world.host_of[members[i]]] += sent_by(call, i, count);
        bytes[i] = result_for(members, count, i);
    }
    for (int i = 0; i < count; i++) {
        player *p = &world.players[members[i]];
        if (bytes[i]) write_result(p, bytes[i], world.result[members[i]]);
        end_step(p);
    }
}

/* Goes on with `rank`, if all whom its step needs have come to it. */
static inline bool go_on(int rank) {
    player *p = &world.players[rank];
    const hosts_step *step = step_of(rank);
    int members[MOST_RANKS] = {0};
    if (!step) return false;
    if (step->where >= HOSTS_PARTS) {
        if (hosts_work(&p->place, step, &p->done)) end_step(p);
        return true;
    }
    const hosts_where where = step->where;
    const int count = members_of(rank, where, members);
    if (!are_there(where, members, count)) return false;
    run_step(where, members, count);
    return true;
}

static inline void run_while_possible(void) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < world.world_size; rank++) moved = go_on(rank) || moved;
    }
}

static inline void run_all(void) {
    run_while_possible();
    for (int rank = 0; rank < world.world_size; rank++) assert_null(step_of(rank));
}

/* --- calls ------------------------------------------------------------------------------------------------------------ */

/* Elements [at, at + count) of rows, each of `whole` elements, of what every rank has. */
typedef struct piece {
    group_kind kind;
    ls_dtype dtype;
    ls_op op;
    size_t at, count, whole;
    int root;
    bool is_in_place;
    uint64_t seed; /* 0: numbers so small that no order of additions shows */
} piece;

static inline void draw_small(void *data, size_t place, size_t index, ls_dtype dtype, int rank) {
    const int64_t value = dtype == LS_BOOL ? (int64_t)(mix(index * 64 + (uint64_t)rank) % 8 > 0)
                                           : (int64_t)(mix(index * 64 + (uint64_t)rank) % 3) + 1;
    void *at = (char *)data + place * ls_dtype_size(dtype);
    const double wide = (double)value;
    const float single = (float)value;
    if (dtype == LS_F64)
        memcpy(at, &wide, sizeof wide);
    else if (dtype == LS_F32)
        memcpy(at, &single, sizeof single);
    else if (dtype == LS_F16 || dtype == LS_BF16)
        encode_float(at, dtype, single);
    else
        memcpy(at, &value, ls_dtype_size(dtype));
}

/* What `rank` has at an index of the whole. */
static inline void draw_element(const piece *p, void *data, size_t place, size_t index, int rank) {
    if (p->seed)
        draw(data, place, index, p->dtype, p->seed, rank);
    else
        draw_small(data, place, index, p->dtype, rank);
}

/* In place as the interface allows. */
static inline void call_piece(const piece *p, int rank) {
    player *self = &world.players[rank];
    const size_t own = (size_t)rank * p->count * ls_dtype_size(p->dtype);
    const int rows = p->kind == GROUP_REDUCE_SCATTER ? world.world_size : 1;
    char *from = p->kind == GROUP_REDUCE_SCATTER ? self->rows : self->array, *into = self->array;
    if (p->kind == GROUP_ALL_GATHER) into = self->rows;
    if (p->is_in_place && p->kind == GROUP_ALL_GATHER) from = into + own;
    if (p->is_in_place && p->kind == GROUP_REDUCE_SCATTER) into = from + own;
    for (int row = 0; row < rows; row++)
        for (size_t i = 0; i < p->count; i++)
            draw_element(p, from, (size_t)row * p->count + i, (size_t)row * p->whole + p->at + i, rank);
    const bool is_apart = p->kind == GROUP_REDUCE_SCATTER || p->kind == GROUP_ALL_GATHER;
    self->call = (group_call){.kind = p->kind,
                              .dtype = p->dtype,
                              .op = p->op,
                              .root = p->root,
                              .count = p->count,
                              .send = is_apart ? from : NULL,
                              .data = into};
    plan_from(self, 0);
}

static inline void run_piece(const piece *p) {
    for (int rank = 0; rank < world.world_size; rank++) {
        call_piece(p, rank);
        assert_true(world.players[rank].steps.count > 0);
    }
    run_all();
}

/* --- results ---------------------------------------------------------------------------------------------------------- */

/* Element i of what `rank` should have. */
static inline void expect(const piece *p, int rank, size_t i, void *into) {
    uint64_t elements[MOST_RANKS] = {0};
    const void *sources[MOST_RANKS] = {elements};
    const size_t index = p->kind == GROUP_REDUCE_SCATTER ? (size_t)rank * p->whole + i : i;
    const bool is_untouched = p->kind == GROUP_REDUCE && rank != p->root;
    if (p->kind == GROUP_ALL_GATHER) {
        draw_element(p, into, 0, i % p->count, (int)(i / p->count));
    } else if (is_untouched || p->kind == GROUP_BROADCAST) {
        draw_element(p, into, 0, i, is_untouched ? rank : p->root);
    } else {
        for (int from = 0; from < world.world_size; from++) {
            draw_element(p, &elements[from], 0, index, from);
            sources[from] = &elements[from];
        }
        expect_element(into, p->dtype, p->op, sources, world.world_size);
    }
}

static inline void check(const piece *p) {
    const size_t size = ls_dtype_size(p->dtype);
    const size_t count = p->kind == GROUP_ALL_GATHER ? p->count * (size_t)world.world_size : p->count;
    const size_t step = count < 10000 ? 1 : 61; /* of many some, the first and the last among them */
    run_piece(p);
    for (int rank = 0; rank < world.world_size; rank++)
        for (size_t i = 0; i < count; i += count - i <= step ? 1 : step) {
            uint64_t expected = 0;
            expect(p, rank, i, &expected);
            if (memcmp((char *)world.players[rank].call.data + i * size, &expected, size) == 0) continue;
            print_error("kind %d, %s, %s, %zu elements, rank %d of %d, element %zu\n", (int)p->kind,
                        ls_dtype_name(p->dtype), ls_op_name(p->op), p->count, rank, world.world_size, i);
            fail();
        }
}

#endif
