/* plan.c: what becomes of an operation where ranks share hosts.
 *
 *     all-reduce      within: all-reduce; lane l: all-reduce of part l; (average: end;) within: broadcast of each part
 *     broadcast       root's host: broadcast; lane l: broadcast of part l; other hosts: broadcast of each part
 *     barrier         within; lane 0; within
 *
 * and where all hosts have as many ranks, by way of a matrix in scratch, a chunk after the other:
 *
 *     reduce-scatter  load; within: reduce-scatter; lane: reduce-scatter; end
 *     reduce          load; within: reduce-scatter; lane: reduce to the root's host; there: end; within: gather; store
 *     all-gather      lane: all-gather; within: all-gather; store
 *     all-reduce of a type that is widened
 *                     load; within: reduce-scatter; lane: reduce-scatter; end; lane: all-gather; within: all-gather; store
 *
 * Between hosts every byte goes as often as an algorithm among hosts needs, not among ranks: with H hosts of L ranks each
 * sends, of an all-reduce of n bytes, 2 (H-1)/H n (3 where f16 travels to be combined as f32) instead of L times as many; of a
 * reduce (H-1)/H n; of a reduce-scatter or all-gather with rows of n bytes (H-1) L n instead of (H-1) L^2 n. Gather, scatter
 * and the all-to-alls have no plan: nothing that goes between hosts goes there twice. Nor have averages of integers, which
 * are formed in 64 bits: (H-1)/H 9 n of int8.
 *
 * What is combined is combined inside a host, then over hosts, in the order of ranks each time, and rounded once, whatever the
 * size: so a message has the same bits in one piece and in several.                                                  */
#include "group/backend/hosts/hosts.h"

/* Below, one lane carries all: a part for each would be as many messages. */
#define LEAST_LANE_BYTES ((size_t)64 << 10)
#define CACHE_LINE 64

/* Elements [begin, end) of part `lane` of `lanes`, whole cache lines but the last. */
static void part_of(const group_call *call, int lanes, int lane, size_t *begin, size_t *end) {
    const size_t a_line = CACHE_LINE / ls_dtype_size(call->dtype);
    const size_t lines = (call->count + a_line - 1) / a_line;
    const size_t first = lines * (size_t)lane / (size_t)lanes * a_line;
    const size_t last = lines * ((size_t)lane + 1) / (size_t)lanes * a_line;
    *begin = first < call->count ? first : call->count;
    *end = last < call->count ? last : call->count;
}

static group_call part_call(const group_call *call, int lanes, int lane) {
    group_call part = *call;
    size_t begin = 0, end = 0;
    part_of(call, lanes, lane, &begin, &end);
    part.data = call->data ? (char *)call->data + begin * ls_dtype_size(call->dtype) : NULL;
    part.count = end - begin;
    return part;
}

static int lanes_for(const hosts_place *place, const group_call *call) {
    const size_t wanted = call->count * ls_dtype_size(call->dtype) / LEAST_LANE_BYTES;
    const int most = place->lanes < HOSTS_MOST_LANES ? place->lanes : HOSTS_MOST_LANES;
    return wanted < 1 ? 1 : wanted < (size_t)most ? (int)wanted : most;
}

/* An average is one at its end. */
static ls_op op_between(const group_call *call) {
    return call->op == LS_AVERAGE ? LS_SUM : call->op;
}

static void add(hosts_steps *steps, hosts_where where, const group_call *call) {
    steps->list[steps->count++] = (hosts_step){.where = where, .call = *call};
}

/* --- in place ---------------------------------------------------------------------------------------------------------- */

/* Each lane's rank gives its part to the ranks of its host. */
static void plan_spread(const hosts_place *place, const group_call *call, int lanes, hosts_steps *steps) {
    for (int lane = 0; lane < lanes && place->local_size > 1; lane++) {
        group_call part = part_call(call, lanes, lane);
        part.kind = GROUP_BROADCAST;
        part.op = LS_SUM;
        part.root = lane;
        add(steps, HOSTS_WITHIN, &part);
    }
}

static void plan_all_reduce(const hosts_place *place, const group_call *call, hosts_steps *steps) {
    const int lanes = lanes_for(place, call);
    group_call sum = *call;
    sum.op = op_between(call);
    if (place->local_size > 1) add(steps, HOSTS_WITHIN, &sum);
    if (place->index < lanes) {
        group_call part = part_call(call, lanes, place->index);
        part.op = sum.op;
        add(steps, HOSTS_LANE, &part);
        part.op = call->op;
        part.send = part.data;
        if (reduce_kernel_for(call->dtype, call->op)->end) add(steps, HOSTS_END, &part);
    }
    plan_spread(place, call, lanes, steps);
}

static void plan_broadcast(const hosts_place *place, const group_call *call, hosts_steps *steps) {
    const int lanes = lanes_for(place, call), root_host = place->host_of[call->root];
    const bool is_at_home = place->host == root_host;
    if (is_at_home && place->local_size > 1) {
        group_call home = *call;
        home.root = place->index_of[call->root];
        add(steps, HOSTS_WITHIN, &home);
    }
    if (place->index < lanes) {
        group_call part = part_call(call, lanes, place->index);
        part.root = root_host;
        add(steps, HOSTS_LANE, &part);
    }
    if (!is_at_home) plan_spread(place, call, lanes, steps);
}

static void plan_barrier(const hosts_place *place, const group_call *call, hosts_steps *steps) {
    if (place->local_size > 1) add(steps, HOSTS_WITHIN, call);
    if (place->index == 0) add(steps, HOSTS_LANE, call);
    if (place->local_size > 1) add(steps, HOSTS_WITHIN, call);
}

/* --- by way of scratch -------------------------------------------------------------------------------------------------- */

/* A chunk on its way: a matrix, which has a row for each rank (see work.c); a block of it, with a row for each host; one row. */
typedef struct chunk {
    const hosts_place *place;
    const group_call *call;
    hosts_steps *steps;
    const void *at; /* where it is: in the user's array, then in a half of scratch */
    char *halves[2];
    int free;            /* half */
    size_t width, block; /* elements of a row, and of a block */
    ls_dtype dtype;      /* of what it is now */
    hosts_rows rows;
} chunk;

/* One step further, into the free half. */
static hosts_step *move(chunk *c, hosts_where where, group_kind kind, size_t count) {
    const group_call call = {.kind = kind,
                             .dtype = c->dtype,
                             .op = op_between(c->call),
                             .count = count,
                             .send = c->at,
                             .data = c->halves[c->free]};
    add(c->steps, where, &call);
    c->at = call.data;
    c->free = 1 - c->free;
    return &c->steps->list[c->steps->count - 1];
}

/* The type in which elements are combined on their way; LS_DTYPE_COUNT: one that is not worth sending. */
static ls_dtype type_between(const group_call *call) {
    const reduce_kernel *kernel = reduce_kernel_for(call->dtype, call->op);
    if (!kernel->next) return call->dtype;
    return kernel->wide_bytes == sizeof(float) ? LS_F32 : LS_DTYPE_COUNT;
}

/* Each rank gets its row of the sums. */
static void sum(chunk *c) {
    c->at = c->call->send ? c->call->send : c->call->data;
    move(c, HOSTS_LOAD, c->call->kind, c->width)->rows = c->rows;
    c->dtype = type_between(c->call);
    move(c, HOSTS_WITHIN, GROUP_REDUCE_SCATTER, c->block);
    move(c, HOSTS_LANE, GROUP_REDUCE_SCATTER, c->width);
    c->dtype = c->call->dtype;
    if (reduce_kernel_for(c->call->dtype, c->call->op)->end)
        move(c, HOSTS_END, c->call->kind, c->width)->call.op = c->call->op;
}

static void store(chunk *c) {
    hosts_step *step = move(c, HOSTS_STORE, c->call->kind, c->width);
    step->call.data = c->call->data;
    step->rows = c->rows;
}

/* The row of each rank goes to all. */
static void gather_to_all(chunk *c) {
    move(c, HOSTS_LANE, GROUP_ALL_GATHER, c->width);
    move(c, HOSTS_WITHIN, GROUP_ALL_GATHER, c->block);
    store(c);
}

static void gather_to_root(chunk *c) {
    const int root = c->call->root;
    move(c, HOSTS_LANE, GROUP_GATHER, c->width)->call.root = c->place->host_of[root];
    if (c->place->host != c->place->host_of[root]) return;
    move(c, HOSTS_WITHIN, GROUP_GATHER, c->block)->call.root = c->place->index_of[root];
    if (c->place->index == c->place->index_of[root]) store(c);
}

/* From element `at` of each row, or, where the array is one stretch, of that. */
static void plan_chunk(const hosts_place *place, const group_call *call, char *scratch, size_t at, hosts_steps *steps) {
    const size_t ranks = (size_t)place->world_size, size = ls_dtype_size(call->dtype), left = call->count - at;
    const bool gathers = call->kind == GROUP_ALL_GATHER, has_rows = gathers || call->kind == GROUP_REDUCE_SCATTER;
    const size_t most = HOSTS_HALF_BYTES / ranks / (gathers ? size : ls_dtype_size(type_between(call)));
    const size_t wanted = has_rows ? left : (left + ranks - 1) / ranks, width = wanted < most ? wanted : most;
    chunk c = {.place = place,
               .call = call,
               .steps = steps,
               .halves = {scratch, scratch + HOSTS_HALF_BYTES},
               .width = width,
               .block = width * (size_t)place->host_count,
               .dtype = call->dtype,
               .rows = {at, has_rows ? call->count : width, has_rows ? ranks * call->count : call->count}};
    const size_t covered = has_rows ? width : width * ranks;
    steps->next = covered < left ? at + covered : call->count;
    if (gathers)
        c.at = (const char *)call->send + at * size;
    else
        sum(&c);
    if (call->kind == GROUP_REDUCE_SCATTER)
        steps->list[steps->count - 1].call.data = (char *)call->data + at * size;
    else if (call->kind == GROUP_REDUCE)
        gather_to_root(&c);
    else
        gather_to_all(&c);
}

void hosts_plan(const hosts_place *place, const group_call *call, char *scratch, size_t at, hosts_steps *steps) {
    const bool combines =
        call->kind == GROUP_ALL_REDUCE || call->kind == GROUP_REDUCE || call->kind == GROUP_REDUCE_SCATTER;
    const ls_dtype type = combines ? type_between(call) : call->dtype;
    steps->count = 0;
    steps->next = call->count;
    if (call->kind == GROUP_BROADCAST)
        plan_broadcast(place, call, steps);
    else if (call->kind == GROUP_BARRIER)
        plan_barrier(place, call, steps);
    else if (call->kind == GROUP_ALL_REDUCE && type == call->dtype)
        plan_all_reduce(place, call, steps);
    else if (place->are_hosts_alike && type != LS_DTYPE_COUNT && (combines || call->kind == GROUP_ALL_GATHER))
        plan_chunk(place, call, scratch, at, steps);
}
