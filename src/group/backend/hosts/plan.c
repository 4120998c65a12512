/* plan.c: what becomes of an operation where ranks share hosts.
 *
 *     all-reduce   within: all-reduce; lane l: all-reduce of part l; (average: divide;) within: broadcast of each part
 *     broadcast    root's host: broadcast; lane l: broadcast of part l; other hosts: broadcast of each part
 *     barrier      within; lane 0; within
 *
 * Between hosts every byte goes as often as an algorithm among hosts needs, not among ranks: an all-reduce of n bytes
 * over H hosts sends and receives 2 (H - 1) / H n bytes a host. What is combined is combined inside a host, then over
 * hosts, in the order of ranks each time. Types that are combined in a wider one keep it to the end, which two steps
 * cannot: they have no plan, and go over all ranks.                                                                  */
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

/* The steps' own calls are compared, not the call: what they do not show of it, their tag does. */
static uint64_t tag_for(const group_call *call) {
    return call->tag ^ (UINT64_C(1) << 63 | (uint64_t)call->op << 56 | (uint64_t)call->root << 32);
}

static group_call part_call(const group_call *call, int lanes, int lane) {
    group_call part = *call;
    size_t begin = 0, end = 0;
    part_of(call, lanes, lane, &begin, &end);
    part.data = call->data ? (char *)call->data + begin * ls_dtype_size(call->dtype) : NULL;
    part.count = end - begin;
    part.tag = tag_for(call);
    return part;
}

static int lanes_for(const hosts_place *place, const group_call *call) {
    const size_t most = call->count * ls_dtype_size(call->dtype) / LEAST_LANE_BYTES;
    return most < 1 ? 1 : most < (size_t)place->lanes ? (int)most : place->lanes;
}

/* Each lane's rank gives its part to the ranks of its host. */
static int plan_spread(const hosts_place *place, const group_call *call, int lanes, hosts_step *steps) {
    int count = 0;
    for (int lane = 0; lane < lanes && place->local_size > 1; lane++) {
        group_call part = part_call(call, lanes, lane);
        part.kind = GROUP_BROADCAST;
        part.op = LS_SUM;
        part.root = lane;
        steps[count++] = (hosts_step){HOSTS_WITHIN, part};
    }
    return count;
}

static int plan_all_reduce(const hosts_place *place, const group_call *call, hosts_step *steps) {
    const reduce_kernel *kernel = reduce_kernel_for(call->dtype, call->op);
    if (!kernel || kernel->next) return 0;
    const int lanes = lanes_for(place, call);
    group_call sum = *call;
    int count = 0;
    if (call->op == LS_AVERAGE) sum.op = LS_SUM;
    sum.tag = tag_for(call);
    if (place->local_size > 1) steps[count++] = (hosts_step){HOSTS_WITHIN, sum};
    if (place->index < lanes) {
        group_call part = part_call(call, lanes, place->index);
        part.op = sum.op;
        steps[count++] = (hosts_step){HOSTS_LANE, part};
        if (call->op == LS_AVERAGE) steps[count++] = (hosts_step){HOSTS_DIVIDE, part};
    }
    return count + plan_spread(place, call, lanes, steps + count);
}

static int plan_broadcast(const hosts_place *place, const group_call *call, hosts_step *steps) {
    const int lanes = lanes_for(place, call), root_host = place->host_of[call->root];
    const bool is_at_home = place->host == root_host;
    int count = 0;
    if (is_at_home && place->local_size > 1) {
        group_call home = *call;
        home.root = place->index_of[call->root];
        home.tag = tag_for(call);
        steps[count++] = (hosts_step){HOSTS_WITHIN, home};
    }
    if (place->index < lanes) {
        group_call part = part_call(call, lanes, place->index);
        part.root = root_host;
        steps[count++] = (hosts_step){HOSTS_LANE, part};
    }
    return is_at_home ? count : count + plan_spread(place, call, lanes, steps + count);
}

static int plan_barrier(const hosts_place *place, const group_call *call, hosts_step *steps) {
    int count = 0;
    if (place->local_size > 1) steps[count++] = (hosts_step){HOSTS_WITHIN, *call};
    if (place->index == 0) steps[count++] = (hosts_step){HOSTS_LANE, *call};
    if (place->local_size > 1) steps[count++] = (hosts_step){HOSTS_WITHIN, *call};
    return count;
}

int hosts_plan(const hosts_place *place, const group_call *call, hosts_step steps[HOSTS_MOST_STEPS]) {
    switch ((int)call->kind) {
    case GROUP_ALL_REDUCE: return plan_all_reduce(place, call, steps);
    case GROUP_BROADCAST: return plan_broadcast(place, call, steps);
    case GROUP_BARRIER: return plan_barrier(place, call, steps);
    default: return 0;
    }
}
