/* plan.c: what becomes of an operation where ranks share hosts.
 *
 *     all-reduce      within: all-reduce; lane l: all-reduce of part l; (average: end;) within: spread
 *     broadcast       root's host: broadcast; lane l: broadcast of part l; other hosts: spread
 *     barrier         within; lane 0; within
 *
 * To spread is to broadcast each part from the rank of its lane. The others go by way of scratch, a chunk after the other:
 *
 *     all-gather      load; within: all-gather; lane l: all-gather of part l; within: spread; store
 *     reduce-scatter  load; within: all-reduce; lane l: reduce-scatter; end; within: spread; store
 *     reduce          load; within: all-reduce; lane l: reduce-scatter; end; gather to the root's host; there: spread, store
 *     all-reduce of a type that is widened
 *                     load; within: all-reduce; lane l: reduce-scatter; end; all-gather; within: spread; store
 *
 * There each host has a block of the data, as long as any other's: the rows of its ranks one behind the other, and room for
 * as many as the largest host has; where there are no rows, a share. Part l of a block is what lane l carries of it, so hosts
 * need not have as many ranks. In scratch the data is [lanes][hosts][part], or the parts of one host's block, [lanes][part].
 * Where every rank has a lane, parts of rows are rows, and a reduce-scatter and an all-gather do inside a host what is left.
 *
 * Between hosts every byte goes as often as an algorithm among hosts needs, not among ranks: with H hosts, the largest of L
 * ranks, each sends, of an all-reduce of n bytes, 2 (H-1)/H n (3 where f16 travels to be combined as f32) instead of L times as
 * many; of a reduce n; of a reduce-scatter or all-gather with rows of n bytes (H-1) L n instead of (H-1) L^2 n. Gather, scatter
 * and the all-to-alls have no plan: nothing that goes between hosts goes there twice. Nor have averages of integers, which
 * are formed in 64 bits: (H-1)/H 9 n of int8.
 *
 * What is combined is combined inside a host, then over hosts, in the order of ranks each time, and rounded once, whatever the
 * size: so a message has the same bits in one piece and in several.                                                  */
#include "group/backend/hosts/hosts.h"

/* Below, one lane carries all: a part for each would be as many messages. */
#define LEAST_LANE_BYTES ((size_t)64 << 10)
#define CACHE_LINE 64

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static int lanes_for(const hosts_place *place, size_t bytes) {
    const size_t wanted = least(bytes / LEAST_LANE_BYTES, least((size_t)place->lanes, HOSTS_MOST_LANES));
    return wanted < 1 ? 1 : (int)wanted;
}

/* An average is one at its end. */
static ls_op op_between(const group_call *call) {
    return call->op == LS_AVERAGE ? LS_SUM : call->op;
}

static hosts_step *add(hosts_steps *steps, hosts_where where, const group_call *call) {
    hosts_step *step = &steps->list[steps->count++];
    *step = (hosts_step){.where = where, .call = *call};
    return step;
}

/* A host of one rank has no group within, nor a need of one. */
static void add_within(const hosts_place *place, hosts_steps *steps, const group_call *call) {
    if (place->local_size > 1) add(steps, HOSTS_WITHIN, call);
}

/* What a lane carries of an array: `part` elements, but the last ones what is left. */
static group_call part_call(const group_call *call, size_t part, int lane) {
    group_call made = *call;
    const size_t begin = least((size_t)lane * part, call->count);
    made.data = call->data ? (char *)call->data + begin * ls_dtype_size(call->dtype) : NULL;
    made.count = least(part, call->count - begin);
    return made;
}

/* Each lane's rank gives its part to the ranks of its host. */
static void spread(const hosts_place *place, const group_call *call, size_t part, int lanes, hosts_steps *steps) {
    for (int lane = 0; lane < lanes; lane++) {
        group_call made = part_call(call, part, lane);
        made.kind = GROUP_BROADCAST;
        made.op = LS_SUM;
        made.root = lane;
        made.send = NULL;
        add_within(place, steps, &made);
    }
}

/* --- in place ---------------------------------------------------------------------------------------------------------- */

/* As many whole cache lines for each lane. */
static size_t lines_for_each(const group_call *call, int lanes) {
    const size_t a_line = CACHE_LINE / ls_dtype_size(call->dtype);
    return divide_up(divide_up(call->count, a_line), (size_t)lanes) * a_line;
}

static void plan_all_reduce(const hosts_place *place, const group_call *call, hosts_steps *steps) {
    const int lanes = lanes_for(place, call->count * ls_dtype_size(call->dtype));
    const size_t part = lines_for_each(call, lanes);
    group_call sum = *call;
    sum.op = op_between(call);
    add_within(place, steps, &sum);
    if (place->index < lanes) {
        group_call own = part_call(&sum, part, place->index);
        add(steps, HOSTS_LANE, &own);
        own.op = call->op;
        own.send = own.data;
        if (reduce_kernel_for(call->dtype, call->op)->end) add(steps, HOSTS_END, &own);
    }
    spread(place, call, part, lanes, steps);
}

static void plan_broadcast(const hosts_place *place, const group_call *call, hosts_steps *steps) {
    const int lanes = lanes_for(place, call->count * ls_dtype_size(call->dtype));
    const int root_host = place->host_of[call->root];
    const size_t part = lines_for_each(call, lanes);
    group_call home = *call;
    home.root = place->index_of[call->root];
    if (place->host == root_host) add_within(place, steps, &home);
    if (place->index < lanes) {
        group_call own = part_call(call, part, place->index);
        own.root = root_host;
        add(steps, HOSTS_LANE, &own);
    }
    if (place->host != root_host) spread(place, call, part, lanes, steps);
}

static void plan_barrier(const hosts_place *place, const group_call *call, hosts_steps *steps) {
    add_within(place, steps, call);
    if (place->index == 0) add(steps, HOSTS_LANE, call);
    add_within(place, steps, call);
}

/* --- by way of scratch -------------------------------------------------------------------------------------------------- */

/* A chunk on its way. */
typedef struct chunk {
    const hosts_place *place;
    const group_call *call;
    hosts_steps *steps;
    char *at, *other; /* halves of scratch: where it is, and where it goes next */
    int lanes;
    size_t first, count;        /* elements of the user's array, or of each of its rows */
    size_t width;               /* elements of a row, where there are rows */
    size_t part, parts;         /* elements that a lane carries: of one block, of those of all hosts */
    size_t in_block, in_blocks; /* where this rank's lane has them */
    ls_dtype dtype;             /* of what it is now */
} chunk;

/* The type in which elements are combined on their way; LS_DTYPE_COUNT: one that is not worth sending. */
static ls_dtype type_between(const group_call *call) {
    if (call->kind == GROUP_ALL_GATHER) return call->dtype;
    const reduce_kernel *kernel = reduce_kernel_for(call->dtype, call->op);
    if (!kernel->next) return call->dtype;
    return kernel->wide_bytes == sizeof(float) ? LS_F32 : LS_DTYPE_COUNT;
}

static bool has_rows(const group_call *call) {
    return call->kind == GROUP_ALL_GATHER || call->kind == GROUP_REDUCE_SCATTER;
}

static bool has_lane(const chunk *c) {
    return c->place->index < c->lanes;
}

/* Then a rank's part of its host's block is its row, and every rank of a host has as much to do inside it. */
static bool all_have_lanes(const chunk *c) {
    return c->lanes == c->place->largest;
}

static void *element(const chunk *c, char *half, size_t i) {
    return half + i * ls_dtype_size(c->dtype);
}

static group_call call_of(const chunk *c, group_kind kind, size_t count) {
    return (group_call){.kind = kind, .dtype = c->dtype, .op = op_between(c->call), .count = count};
}

/* A step from one half into the other. */
static void move(chunk *c, hosts_where where, group_call call, size_t from, size_t into) {
    call.send = element(c, c->at, from);
    if (where == HOSTS_END) call.dtype = c->dtype = c->call->dtype;
    call.data = element(c, c->other, into);
    add(c->steps, where, &call);
    char *before = c->at;
    c->at = c->other;
    c->other = before;
}

/* `count` elements of the user's array, or of each of its rows, which begin `stride` apart, come into scratch. */
static void load(chunk *c, size_t into, size_t count, size_t stride) {
    const char *array = c->call->send ? c->call->send : c->call->data;
    group_call call = call_of(c, c->call->kind, count);
    call.send = array + c->first * ls_dtype_size(c->dtype);
    c->dtype = type_between(c->call);
    call.data = element(c, c->at, into);
    add(c->steps, HOSTS_LOAD, &call)->layout = (hosts_layout){c->dtype, stride, c->part};
}

/* And back. */
static void store(chunk *c, size_t from, size_t count, size_t stride) {
    group_call call = call_of(c, c->call->kind, count);
    call.send = element(c, c->at, from);
    call.data = element(c, c->call->data, c->first);
    add(c->steps, HOSTS_STORE, &call)->layout = (hosts_layout){c->dtype, stride, c->part};
}

/* Inside a host its sums come to the lanes. */
static void combine_inside(chunk *c) {
    if (all_have_lanes(c)) {
        move(c, HOSTS_WITHIN, call_of(c, GROUP_REDUCE_SCATTER, c->parts), 0, c->in_blocks);
        return;
    }
    group_call sum = call_of(c, GROUP_ALL_REDUCE, (size_t)c->lanes * c->parts);
    sum.data = c->at;
    add_within(c->place, c->steps, &sum);
}

/* Each host gets its block of the sums over all, in parts. */
static void combine(chunk *c) {
    load(c, 0, c->count, c->call->kind == GROUP_REDUCE_SCATTER ? c->call->count : 0);
    combine_inside(c);
    if (has_lane(c)) {
        group_call part = call_of(c, GROUP_REDUCE_SCATTER, c->part);
        move(c, HOSTS_LANE, part, c->in_blocks, c->in_block);
        part.op = c->call->op;
        if (reduce_kernel_for(c->call->dtype, part.op)->end) move(c, HOSTS_END, part, c->in_block, c->in_block);
    }
    c->dtype = c->call->dtype;
}

/* Each host gets its block of rows; a lane's rank needs its part of it. */
static void collect(chunk *c, size_t row) {
    load(c, row, c->width, 0);
    group_call rows = call_of(c, GROUP_ALL_GATHER, c->width);
    rows.send = element(c, c->at, row);
    rows.data = c->at;
    if (!all_have_lanes(c)) add_within(c->place, c->steps, &rows);
}

/* What lanes have, `count` elements each, comes to all ranks of their hosts. */
static void spread_scratch(chunk *c, size_t count) {
    if (all_have_lanes(c)) {
        move(c, HOSTS_WITHIN, call_of(c, GROUP_ALL_GATHER, count), (size_t)c->place->index * count, 0);
        return;
    }
    group_call all = call_of(c, GROUP_BROADCAST, (size_t)c->lanes * count);
    all.data = c->at;
    spread(c->place, &all, count, c->lanes, c->steps);
}

/* The blocks of all hosts come to all, or to the root. */
static void gather(chunk *c) {
    const bool is_to_root = c->call->kind == GROUP_REDUCE;
    const int root = c->call->root, root_host = c->place->host_of[root];
    group_call part = call_of(c, is_to_root ? GROUP_GATHER : GROUP_ALL_GATHER, c->part);
    if (is_to_root) part.root = root_host;
    if (has_lane(c)) move(c, HOSTS_LANE, part, c->in_block, c->in_blocks);
    if (is_to_root && c->place->host != root_host) return;
    spread_scratch(c, c->parts);
    if (is_to_root && c->place->index != c->place->index_of[root]) return;
    store(c, 0, c->count, c->call->kind == GROUP_ALL_GATHER ? c->call->count : 0);
}

/* As many elements from `at` on, of each row where there are rows, as half of scratch holds. */
static chunk cut_chunk(const hosts_place *place, const group_call *call, size_t at) {
    const size_t hosts = (size_t)place->host_count, size = ls_dtype_size(type_between(call)), left = call->count - at;
    const size_t rows = has_rows(call) ? (size_t)place->largest : 1, most = HOSTS_HALF_BYTES / size / hosts;
    const size_t wanted = least(has_rows(call) ? left : divide_up(left, hosts), most / rows);
    const int lanes = lanes_for(place, hosts * rows * wanted * size);
    /* Parts of one length may be longer together than the block. */
    const size_t width = least(wanted, most / (size_t)lanes * (size_t)lanes / rows);
    const size_t part = divide_up(rows * width, (size_t)lanes), index = (size_t)place->index;
    return (chunk){.place = place,
                   .call = call,
                   .lanes = lanes,
                   .first = at,
                   .count = has_rows(call) ? width : least(width * hosts, left),
                   .width = width,
                   .part = part,
                   .parts = part * hosts,
                   .in_block = index * part,
                   .in_blocks = index * part * hosts,
                   .dtype = call->dtype};
}

static void plan_chunk(const hosts_place *place, const group_call *call, char *scratch, size_t at, hosts_steps *steps) {
    chunk c = cut_chunk(place, call, at);
    const size_t row = (size_t)place->index * c.width;
    c.steps = steps;
    c.at = scratch;
    c.other = scratch + HOSTS_HALF_BYTES;
    steps->next = at + c.count;
    if (call->kind == GROUP_ALL_GATHER)
        collect(&c, row);
    else
        combine(&c);
    if (call->kind == GROUP_REDUCE_SCATTER) {
        if (!all_have_lanes(&c)) spread_scratch(&c, c.part);
        store(&c, row, c.count, 0);
    } else {
        gather(&c);
    }
}

/* Rows gain nothing where no host but the largest has several ranks: it sends its block to each of the others either way. And
 * scratch has to hold a row of each rank. */
static bool gains(const hosts_place *place, const group_call *call) {
    const size_t hosts = (size_t)place->host_count, rows = hosts * (size_t)(place->largest + HOSTS_MOST_LANES);
    const bool are_others_alone = place->world_size - place->largest == place->host_count - 1;
    return !(has_rows(call) && are_others_alone) && rows <= HOSTS_HALF_BYTES / sizeof(int64_t);
}

void hosts_plan(const hosts_place *place, const group_call *call, char *scratch, size_t at, hosts_steps *steps) {
    const bool combines = kind_combines(call->kind);
    const ls_dtype type = combines ? type_between(call) : call->dtype;
    steps->count = 0;
    steps->next = call->count;
    if (call->kind == GROUP_BROADCAST)
        plan_broadcast(place, call, steps);
    else if (call->kind == GROUP_BARRIER)
        plan_barrier(place, call, steps);
    else if (call->kind == GROUP_ALL_REDUCE && type == call->dtype)
        plan_all_reduce(place, call, steps);
    else if (type != LS_DTYPE_COUNT && (combines || call->kind == GROUP_ALL_GATHER) && gains(place, call))
        plan_chunk(place, call, scratch, at, steps);
}
