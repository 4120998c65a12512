/* The plans of ranks that share hosts, run without any of them: every group beneath has the same steps in the same order on
 * all its ranks, which come to an end, with the right result on every rank; calls that differ have steps that differ. */
#include "support/test.h"

#include "group/backend/hosts/hosts.h"

#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 9
#define MOST_COUNT ((size_t)40000)

/* A rank: where it is, what it has, how far it has come. */
typedef struct player {
    hosts_place place;
    int64_t *data;
    hosts_step steps[HOSTS_MOST_STEPS];
    int step_count, step;
} player;

static struct {
    int world_size, lanes, host_count;
    int host_of[MOST_RANKS], index_of[MOST_RANKS], size_of[MOST_RANKS];
    player players[MOST_RANKS];
} world;

/* `hosts` says for each rank on which one it is: "0010". */
static void lay_out(const char *hosts) {
    memset(&world, 0, sizeof world);
    world.world_size = (int)strlen(hosts);
    world.lanes = MOST_RANKS;
    for (int rank = 0; rank < world.world_size; rank++) {
        const int host = world.host_of[rank] = hosts[rank] - '0';
        world.index_of[rank] = world.size_of[host]++;
        if (host >= world.host_count) world.host_count = host + 1;
    }
    for (int host = 0; host < world.host_count; host++)
        if (world.size_of[host] < world.lanes) world.lanes = world.size_of[host];
    for (int rank = 0; rank < world.world_size; rank++) {
        world.players[rank].place = (hosts_place){.world_size = world.world_size,
                                                  .host = world.host_of[rank],
                                                  .host_count = world.host_count,
                                                  .index = world.index_of[rank],
                                                  .local_size = world.size_of[world.host_of[rank]],
                                                  .lanes = world.lanes,
                                                  .host_of = world.host_of,
                                                  .index_of = world.index_of};
        world.players[rank].data = malloc(MOST_COUNT * sizeof(int64_t));
    }
}

static void clear(void) {
    for (int rank = 0; rank < world.world_size; rank++) free(world.players[rank].data);
}

static const hosts_step *step_of(int rank) {
    const player *p = &world.players[rank];
    return p->step < p->step_count ? &p->steps[p->step] : NULL;
}

/* The members of the group beneath in which `rank` has a step, in their order. */
static int members_of(int rank, hosts_where where, int *members) {
    int count = 0;
    for (int i = 0; i < world.world_size; i++)
        if (where == HOSTS_LANE ? world.index_of[i] == world.index_of[rank] : world.host_of[i] == world.host_of[rank])
            members[count++] = i;
    return count;
}

static bool are_there(hosts_where where, const int *members, int count) {
    for (int i = 0; i < count; i++) {
        const hosts_step *step = step_of(members[i]);
        if (!step || step->where != where) return false;
    }
    return true;
}

/* What the group beneath would compare, and then do. */
static void run_step(const int *members, int count) {
    const group_call *first = &step_of(members[0])->call;
    for (int i = 1; i < count; i++) {
        const group_call *call = &step_of(members[i])->call;
        assert_true(call->kind == first->kind && call->op == first->op && call->root == first->root);
        assert_true(call->count == first->count && call->tag == first->tag);
    }
    for (size_t e = 0; e < first->count && first->kind != GROUP_BARRIER; e++) {
        int64_t result = 0;
        if (first->kind == GROUP_ALL_REDUCE)
            for (int i = 0; i < count; i++) result += ((const int64_t *)step_of(members[i])->call.data)[e];
        else
            result = ((const int64_t *)step_of(members[first->root])->call.data)[e];
        for (int i = 0; i < count; i++) ((int64_t *)step_of(members[i])->call.data)[e] = result;
    }
    for (int i = 0; i < count; i++) world.players[members[i]].step++;
}

/* Goes on with `rank`, if all whom its step needs have come to it. */
static bool go_on(int rank) {
    const hosts_step *step = step_of(rank);
    int members[MOST_RANKS] = {0};
    if (!step) return false;
    if (step->where == HOSTS_DIVIDE) {
        for (size_t e = 0; e < step->call.count; e++) ((int64_t *)step->call.data)[e] /= world.world_size;
        world.players[rank].step++;
        return true;
    }
    const int count = members_of(rank, step->where, members);
    if (!are_there(step->where, members, count)) return false;
    run_step(members, count);
    return true;
}

static void run_all(void) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < world.world_size; rank++) moved = go_on(rank) || moved;
    }
    for (int rank = 0; rank < world.world_size; rank++) assert_null(step_of(rank));
}

static int64_t value(int rank, size_t e) {
    return (int64_t)(e % 1009 + 1) * (rank + 3);
}

static void plan_all(group_kind kind, ls_op op, size_t count, int root) {
    for (int rank = 0; rank < world.world_size; rank++) {
        player *p = &world.players[rank];
        for (size_t e = 0; e < count; e++) p->data[e] = value(rank, e);
        const group_call call = {
            .kind = kind, .dtype = LS_I64, .op = op, .count = count, .root = root, .data = p->data, .tag = 5};
        p->step = 0;
        p->step_count = hosts_plan(&p->place, &call, p->steps);
        assert_in_range(p->step_count, 1, HOSTS_MOST_STEPS);
    }
}

static int64_t expected(group_kind kind, ls_op op, int root, size_t e) {
    int64_t sum = 0;
    if (kind == GROUP_BROADCAST) return value(root, e);
    for (int rank = 0; rank < world.world_size; rank++) sum += value(rank, e);
    return op == LS_AVERAGE ? sum / world.world_size : sum;
}

static void check(group_kind kind, ls_op op, size_t count, int root) {
    plan_all(kind, op, count, root);
    run_all();
    for (int rank = 0; rank < world.world_size; rank++)
        for (size_t e = 0; e < count; e++) assert_int_equal(world.players[rank].data[e], expected(kind, op, root, e));
}

/* Alike and unlike hosts, in order and mixed; the same of one rank. */
static const char *const layouts[] = {"0011",    "0101",      "00011", "011",     "001",
                                      "0120121", "000111222", "01122", "00000001"};
#define LAYOUT_COUNT (sizeof layouts / sizeof layouts[0])

static void every_plan_ends_with_the_right_result_on_every_rank(void **state) {
    (void)state;
    static const size_t counts[] = {0, 1, 7, 1000, 8193, 20000, MOST_COUNT};
    for (size_t i = 0; i < LAYOUT_COUNT; i++) {
        lay_out(layouts[i]);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            check(GROUP_ALL_REDUCE, LS_SUM, counts[c], 0);
            check(GROUP_ALL_REDUCE, LS_AVERAGE, counts[c], 0);
            for (int root = 0; root < world.world_size; root++) check(GROUP_BROADCAST, LS_SUM, counts[c], root);
        }
        plan_all(GROUP_BARRIER, LS_SUM, 0, 0);
        run_all();
        clear();
    }
}

/* Nobody is through a barrier before everyone has come to it. */
static void a_barrier_waits_for_every_rank(void **state) {
    (void)state;
    for (size_t i = 0; i < LAYOUT_COUNT; i++) {
        lay_out(layouts[i]);
        for (int late = 0; late < world.world_size; late++) {
            plan_all(GROUP_BARRIER, LS_SUM, 0, 0);
            const int steps = world.players[late].step_count;
            world.players[late].step_count = 0;
            for (bool moved = true; moved;) {
                moved = false;
                for (int rank = 0; rank < world.world_size; rank++) moved = go_on(rank) || moved;
            }
            for (int rank = 0; rank < world.world_size; rank++)
                if (rank != late) assert_non_null(step_of(rank));
            world.players[late].step_count = steps;
            run_all();
        }
        clear();
    }
}

/* What the steps do not show of a call: that it is an average, which rank of another host is its root. */
static void calls_that_differ_have_tags_that_differ(void **state) {
    (void)state;
    hosts_step sum[HOSTS_MOST_STEPS], average[HOSTS_MOST_STEPS];
    lay_out("0011");
    for (int rank = 0; rank < world.world_size; rank++) {
        const hosts_place *place = &world.players[rank].place;
        group_call call = {.kind = GROUP_ALL_REDUCE, .dtype = LS_F32, .count = 10, .data = world.players[rank].data};
        hosts_plan(place, &call, sum);
        call.op = LS_AVERAGE;
        hosts_plan(place, &call, average);
        assert_true(sum[0].call.tag != average[0].call.tag);
        call = (group_call){.kind = GROUP_BROADCAST, .dtype = LS_F32, .count = 10, .data = call.data, .root = 2};
        hosts_plan(place, &call, sum);
        call.root = 3;
        hosts_plan(place, &call, average);
        assert_true(sum[0].call.tag != average[0].call.tag);
    }
    clear();
}

/* Two steps would round f16 twice, and add averages of integers in too narrow a type. */
static void types_that_are_widened_have_no_plan(void **state) {
    (void)state;
    hosts_step steps[HOSTS_MOST_STEPS];
    lay_out("0011");
    group_call call = {.kind = GROUP_ALL_REDUCE, .dtype = LS_BF16, .count = 10, .data = world.players[0].data};
    assert_int_equal(hosts_plan(&world.players[0].place, &call, steps), 0);
    call.dtype = LS_I8;
    call.op = LS_AVERAGE;
    assert_int_equal(hosts_plan(&world.players[0].place, &call, steps), 0);
    clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_ends_with_the_right_result_on_every_rank),
        cmocka_unit_test(a_barrier_waits_for_every_rank),
        cmocka_unit_test(calls_that_differ_have_tags_that_differ),
        cmocka_unit_test(types_that_are_widened_have_no_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
