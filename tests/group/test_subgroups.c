/* test_subgroups.c: groups of some ranks, several groups in turn, several operations at once, and a barrier that names who
 * did not come. */
#include "support/threads.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "group/oracle.h"

#include <stdlib.h>
#include <time.h>

static int64_t sum_of_ranks(ls_group *group, int64_t own) {
    assert_ok(ls_group_all_reduce(group, &own, 1, LS_I64, LS_SUM, NULL));
    return own;
}

/* --- subgroups --------------------------------------------------------------------------------------------------------- */

static void make_subgroup_of_a_list(const ls_rank *rank) {
    ls_group *group = open_rank(rank), *sub = NULL;
    const int ranks[] = {3, 0, 2};
    assert_ok(ls_group_subgroup(&sub, group, ranks, 3));
    assert_int_equal(ls_group_world_size(sub), 3);
    if (rank->rank == 1) {
        int64_t value = 1;
        ls_work *work = NULL;
        void *memory = NULL;
        assert_false(ls_group_is_member(sub));
        assert_int_equal(ls_group_rank(sub), -1);
        assert_int_equal(ls_group_all_reduce(sub, &value, 1, LS_I64, LS_SUM, NULL), LS_ERR_STATE);
        assert_error_says("rank 1 is no member of this group: its ranks are, of the group it was made of, 3, 0, 2");
        assert_int_equal(ls_group_barrier(sub, &work), LS_ERR_STATE);
        assert_null(work);
        assert_int_equal(ls_group_alloc(sub, 8, &memory), LS_ERR_STATE);
        assert_int_equal(ls_group_monitored_barrier(sub, 10), LS_ERR_STATE);
    } else {
        assert_true(ls_group_is_member(sub));
        assert_int_equal(ranks[ls_group_rank(sub)], rank->rank);
        assert_int_equal(sum_of_ranks(sub, 1 << rank->rank), 1 | 4 | 8);
    }
    assert_int_equal(sum_of_ranks(group, 1), rank->world_size);
    /* Parent and child close in either order, and who is left goes on. */
    if (rank->rank % 2) ls_group_close(&group);
    if (ls_group_is_member(sub)) assert_int_equal(sum_of_ranks(sub, 1), 3);
    ls_group_close(&sub);
    ls_group_close(&group);
}

static void a_subgroup_of_a_list_has_its_ranks_and_others_are_told(void **state) {
    (void)state;
    run_ranks(4, make_subgroup_of_a_list, NULL);
}

static void split_by_colour(const ls_rank *rank) {
    ls_group *group = open_rank(rank), *sub = NULL, *none = NULL;
    /* Even and odd, each in falling order of ranks. */
    assert_ok(ls_group_split(&sub, group, rank->rank % 2, -rank->rank));
    const int size = (rank->world_size + 1 - rank->rank % 2) / 2;
    assert_int_equal(ls_group_world_size(sub), size);
    assert_int_equal(ls_group_rank(sub), size - 1 - rank->rank / 2);
    int64_t expected = 0;
    for (int peer = rank->rank % 2; peer < rank->world_size; peer += 2) expected += 1 << peer;
    assert_int_equal(sum_of_ranks(sub, 1 << rank->rank), expected);
    assert_ok(ls_group_split(&none, group, rank->rank == 0 ? -1 : 7, 0));
    assert_int_equal(ls_group_is_member(none), rank->rank != 0);
    assert_int_equal(ls_group_rank(none), rank->rank - 1); /* keys are equal */
    if (rank->rank == 0) {
        assert_int_equal(ls_group_world_size(none), 0);
        assert_int_equal(ls_group_barrier(none, NULL), LS_ERR_STATE);
        assert_error_says("rank 0 is no member of this group; only members may call");
    } else {
        assert_ok(ls_group_barrier(none, NULL));
    }
    ls_group_close(&group);
    ls_group_close(&none);
    ls_group_close(&sub);
}

static void colours_split_a_group_in_the_order_of_keys(void **state) {
    (void)state;
    for (int world_size = 1; world_size <= 5; world_size += 2) run_ranks(world_size, split_by_colour, NULL);
}

static void refuse_lists(const ls_rank *rank) {
    ls_group *group = open_rank(rank), *sub = NULL;
    const int twice[] = {0, 1, 0}, outside[] = {0, 2}, own[] = {rank->rank};
    assert_int_equal(ls_group_subgroup(&sub, group, twice, 3), LS_ERR_ARGUMENT);
    assert_error_says("rank 0 twice");
    assert_int_equal(ls_group_subgroup(&sub, group, outside, 2), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_subgroup(&sub, group, own, 0), LS_ERR_ARGUMENT);
    assert_ok(ls_group_barrier(group, NULL));
    assert_int_equal(ls_group_subgroup(&sub, group, own, 1), LS_ERR_MISMATCH);
    assert_error_says("subgroup of the ranks with digest");
    assert_null(sub);
    ls_group_close(&group);
}

static void wrong_lists_are_refused_and_differing_ones_are_a_mismatch(void **state) {
    (void)state;
    run_ranks(2, refuse_lists, NULL);
}

/* --- in turn ----------------------------------------------------------------------------------------------------------- */

static void take_turns(const ls_rank *rank) {
    ls_group *lanes[3] = {open_rank(rank)}, *all = NULL, *copy = NULL;
    for (int i = 1; i < 3; i++) assert_ok(ls_group_duplicate(&lanes[i], lanes[0]));
    assert_ok(ls_group_round_robin(&all, lanes, 3));
    assert_int_equal(ls_group_rank(all), rank->rank);
    assert_int_equal(ls_group_world_size(all), rank->world_size);
    for (int i = 0; i < 3; i++) ls_group_close(&lanes[i]);
    int64_t values[30], *const data = values;
    const size_t count = 1;
    ls_work *works[30];
    /* What one rank is refused takes no turn. */
    if (rank->rank == 1) {
        assert_int_equal(ls_group_all_reduce(all, values, 1, LS_F64, LS_BITWISE_OR, NULL), LS_ERR_ARGUMENT);
        assert_int_equal(ls_group_all_reduce_many(all, (void *const *)&data, &count, 1, LS_F64, LS_BITWISE_OR, works),
                         LS_ERR_ARGUMENT);
    }
    for (int i = 0; i < 30; i++) {
        values[i] = i + rank->rank;
        assert_ok(ls_group_all_reduce(all, &values[i], 1, LS_I64, LS_SUM, &works[i]));
    }
    assert_ok(ls_work_wait_all(works, 30, 0));
    for (int i = 0; i < 30; i++) {
        assert_true(ls_work_is_complete(works[i]));
        assert_int_equal(values[i], 3 * i + 3);
        ls_work_close(&works[i]);
    }
    void *memory = NULL;
    assert_ok(ls_group_alloc(all, 1 << 20, &memory));
    for (int i = 0; i < 4; i++) assert_ok(ls_group_all_reduce(all, memory, 1 << 17, LS_I64, LS_SUM, NULL));
    ls_group_free(all, memory);
    assert_ok(ls_group_duplicate(&copy, all));
    assert_int_equal(sum_of_ranks(copy, 1), 3);
    ls_group_close(&copy);
    ls_group_close(&all);
}

/* Rank 1 calls each group's operations by themselves, the last group's first: what one group carries is behind no other's. */
static void take_turns_beside_one_who_does_not(const ls_rank *rank) {
    enum { LANES = 3, CALLS = 2 * LANES };
    ls_group *lanes[LANES] = {NULL}, *all = NULL;
    ls_group_options options = rank_options(rank);
    options.timeout_ms = 10000;
    assert_ok(ls_group_open(&lanes[0], &options));
    for (int i = 1; i < LANES; i++) assert_ok(ls_group_duplicate(&lanes[i], lanes[0]));
    assert_ok(ls_group_round_robin(&all, lanes, LANES));
    int64_t values[CALLS], letter = 7 - 7 * rank->rank;
    ls_work *works[CALLS] = {NULL};
    for (int i = 0; i < CALLS; i++) {
        const int at = rank->rank == 0 ? i : LANES - 1 - i / 2 + i % 2 * LANES;
        ls_group *group = rank->rank == 0 ? all : lanes[at % LANES];
        values[at] = at;
        assert_ok(ls_group_all_reduce(group, &values[at], 1, LS_I64, LS_SUM, rank->rank == 0 ? &works[at] : NULL));
    }
    assert_ok(ls_work_wait_all(works, CALLS, 0));
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(values[i], 2 * i);
        ls_work_close(&works[i]);
    }
    /* Messages, and barriers that are monitored, go through the first. */
    if (rank->rank == 0)
        assert_ok(ls_group_send(all, &letter, 1, LS_I64, 1, 0, NULL));
    else
        assert_ok(ls_group_receive(lanes[0], &letter, 1, LS_I64, 0, 0, NULL, NULL));
    assert_int_equal(letter, 7);
    assert_ok(ls_group_monitored_barrier(rank->rank == 0 ? all : lanes[0], 10000));
    for (int i = 0; i < LANES; i++) ls_group_close(&lanes[i]);
    ls_group_close(&all);
}

static void a_round_robin_group_gives_each_operation_to_the_next(void **state) {
    (void)state;
    run_ranks(3, take_turns, NULL);
    run_ranks(2, take_turns_beside_one_who_does_not, NULL);
}

static void refuse_lanes(const ls_rank *rank) {
    static const int turned[] = {1, 0}, own[] = {0, 1};
    ls_group *group = open_rank(rank), *other = NULL, *all = NULL, *made = group;
    assert_ok(ls_group_subgroup(&other, group, turned, 2));
    assert_ok(ls_group_round_robin(&all, &group, 1));
    assert_int_equal(ls_group_round_robin(&made, (ls_group *[]){group, other}, 2), LS_ERR_ARGUMENT);
    assert_error_says(rank->rank
                          ? "group 1 of a round-robin group has this process as rank 0 of 2, group 0 as rank 1 of 2"
                          : "group 1 of a round-robin group has this process as rank 1 of 2, group 0 as rank 0 of 2");
    assert_null(made);
    assert_int_equal(ls_group_round_robin(&made, (ls_group *[]){group, all}, 2), LS_ERR_ARGUMENT);
    assert_error_says("group 1 of a round-robin group is one itself");
    assert_int_equal(ls_group_round_robin(&made, (ls_group *[]){group, NULL}, 2), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_round_robin(&made, &group, 0), LS_ERR_ARGUMENT);
    ls_group_close(&other);
    assert_ok(ls_group_subgroup(&other, group, own, 2));
    assert_ok(ls_group_barrier(all, NULL));
    ls_group_abort(other, "enough");
    assert_int_equal(ls_group_round_robin(&made, (ls_group *[]){group, other}, 2), LS_ERR_ABORTED);
    assert_null(made);
    ls_group_close(&all);
    ls_group_close(&other);
    ls_group_close(&group);
}

static void groups_of_other_ranks_and_lost_ones_are_not_taken_in_turn(void **state) {
    (void)state;
    run_ranks(2, refuse_lanes, NULL);
}

static void abort_all_lanes(const ls_rank *rank) {
    ls_group *lanes[2] = {open_rank(rank)}, *all = NULL;
    int64_t value = 0;
    assert_ok(ls_group_duplicate(&lanes[1], lanes[0]));
    assert_ok(ls_group_round_robin(&all, lanes, 2));
    if (rank->rank == 0) ls_group_abort(all, "enough");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ls_group_all_reduce(lanes[i], &value, 1, LS_I64, LS_SUM, NULL), LS_ERR_ABORTED);
        assert_error_says("rank 0 aborted the group: enough");
        ls_group_close(&lanes[i]);
    }
    ls_group_close(&all);
}

static void an_abort_of_a_round_robin_group_ends_all_its_groups(void **state) {
    (void)state;
    run_ranks(2, abort_all_lanes, NULL);
}

/* --- at once ----------------------------------------------------------------------------------------------------------- */

static void run_many(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    enum { N = 5 };
    const size_t counts[N] = {1, 0, 1000, 30000, 7}, one = 1;
    const int world_size = rank->world_size;
    int64_t *data[N], *rows[N];
    ls_work *work = NULL;
    for (int i = 0; i < N; i++) {
        data[i] = calloc(counts[i] + 1, sizeof(int64_t));
        rows[i] = calloc((counts[i] + 1) * (size_t)world_size, sizeof(int64_t));
        for (size_t j = 0; j < counts[i]; j++) data[i][j] = (int64_t)j * (i + 1) + rank->rank;
    }
    assert_ok(ls_group_all_reduce_many(group, (void *const *)data, counts, N, LS_I64, LS_MAX, &work));
    assert_ok(ls_work_wait(work, 0));
    ls_work_close(&work);
    for (int i = 0; i < N; i++)
        for (size_t j = 0; j < counts[i]; j++) assert_int_equal(data[i][j], (int64_t)j * (i + 1) + world_size - 1);
    for (int i = 0; i < N; i++) data[i][0] = 100 * i + rank->rank;
    assert_ok(ls_group_broadcast_many(group, (void *const *)data, counts, N, LS_I64, 1, NULL));
    for (int i = 0; i < N; i++) assert_int_equal(data[i][0], 100 * i + (counts[i] ? 1 : rank->rank));
    assert_ok(ls_group_all_gather_many(group, (const void *const *)data, (void *const *)rows, counts, N, LS_I64, NULL));
    for (int i = 0; i < N; i++)
        for (int from = 0; from < world_size; from++)
            assert_memory_equal(rows[i] + counts[i] * (size_t)from, data[i], counts[i] * sizeof(int64_t));
    assert_ok(ls_group_reduce_scatter_many(group, (const void *const *)rows, (void *const *)data, counts, N, LS_I64,
                                           LS_SUM, NULL));
    for (int i = 0; i < N; i++)
        if (counts[i]) assert_int_equal(data[i][0], world_size * (100 * i + 1));
    assert_int_equal(ls_group_all_reduce_many(group, (void *const *)data, &one, 0, LS_I64, LS_SUM, NULL),
                     LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_all_reduce_many(group, (void *const *)data, counts, N, LS_F32, LS_BITWISE_OR, NULL),
                     LS_ERR_ARGUMENT);
    assert_error_says("number 0 of 5 at once");
    for (int i = 0; i < N; i++) {
        free(data[i]);
        free(rows[i]);
    }
    ls_group_close(&group);
}

static void operations_posted_at_once_are_complete_with_the_last(void **state) {
    (void)state;
    for (int world_size = 2; world_size <= 4; world_size++) run_ranks(world_size, run_many, NULL);
}

static void wait_for_late_rank(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int64_t values[3] = {0};
    ls_work *works[4] = {NULL};
    if (rank->rank == 0) {
        for (int i = 0; i < 3; i++) assert_ok(ls_group_all_reduce(group, &values[i], 1, LS_I64, LS_SUM, &works[i]));
        assert_int_equal(ls_work_wait_all(works, 4, 50), LS_ERR_TIMEOUT);
        assert_error_says("not complete after 50 ms");
        assert_ok(ls_store_set(rank->store, "go on", "", 0));
        assert_ok(ls_work_wait_all(works, 4, 0));
        for (int i = 0; i < 3; i++) ls_work_close(&works[i]);
    } else {
        assert_ok(ls_store_wait(rank->store, "go on", 60000));
        for (int i = 0; i < 3; i++) assert_ok(ls_group_all_reduce(group, &values[i], 1, LS_I64, LS_SUM, NULL));
    }
    ls_group_close(&group);
}

static void a_wait_for_several_expires_together_and_may_be_repeated(void **state) {
    (void)state;
    run_ranks(2, wait_for_late_rank, NULL);
}

/* --- the monitored barrier ----------------------------------------------------------------------------------------------- */

static void miss_barrier(const ls_rank *rank) {
    const int absent = *(const int *)rank->argument;
    ls_group *group = open_rank(rank);
    for (int i = 0; i < 4; i++) assert_ok(ls_group_monitored_barrier(group, 60000));
    if (rank->rank != absent) {
        assert_int_equal(ls_group_monitored_barrier(group, 300), LS_ERR_TIMEOUT);
        if (absent)
            assert_error_says("rank 2 did not come to monitored barrier 5 within 300 ms");
        else
            assert_error_says("rank 0 did not come to monitored barrier 5 within 300 ms");
    }
    /* The group is as it was. */
    assert_int_equal(sum_of_ranks(group, 1), rank->world_size);
    if (rank->rank == absent && absent) {
        assert_int_equal(ls_group_monitored_barrier(group, 300), LS_ERR_TIMEOUT);
        assert_error_says("rank 2 did not come");
    }
    ls_group_close(&group);
}

static void a_monitored_barrier_names_who_did_not_come_and_loses_nothing(void **state) {
    (void)state;
    for (int absent = 0; absent <= 2; absent += 2) run_ranks(4, miss_barrier, &absent);
}

/* --- random sequences ------------------------------------------------------------------------------------------------- */

#define MOST_COUNT ((size_t)3000)
#define AT_ONCE 6
#define SETS 4

typedef struct set {
    ls_group *group;
    int ranks[4], count; /* of the whole group */
} set;

/* One thread of a rank: its own groups, its own sequence. */
typedef struct player {
    const ls_rank *rank;
    set sets[SETS];
    uint64_t seed;
    int rounds;
} player;

typedef struct move {
    int64_t *send, *receive, *expected;
    size_t bytes;
    ls_work *work;
} move;

static int64_t value_of(uint64_t seed, int rank, size_t index) {
    return (int64_t)mix(seed ^ ((uint64_t)rank << 32) ^ index);
}

/* Posts what the seed says, if this rank is in it, and notes what should come of it. */
static void post_move(const player *self, uint64_t seed, move *at) {
    const set *on = &self->sets[seed % SETS];
    const int n = on->count, kind = (int)(mix(seed) % 5), rank = ls_group_rank(on->group);
    const size_t count = mix(seed + 1) % 3 ? mix(seed + 2) % 20 : mix(seed + 2) % (MOST_COUNT / 4);
    const int root = (int)(mix(seed + 3) % (uint64_t)n);
    at->bytes = 0;
    if (rank < 0) return;
    for (size_t i = 0; i < count * (size_t)n; i++) at->send[i] = value_of(seed, on->ranks[rank], i);
    at->bytes = count * sizeof(int64_t);
    for (size_t i = 0; i < count; i++) {
        const size_t row = kind == 3 ? count * (size_t)rank : 0;
        uint64_t sum = 0;
        for (int peer = 0; peer < n; peer++) sum += (uint64_t)value_of(seed, on->ranks[peer], row + i);
        at->expected[i] = kind == 1 ? value_of(seed, on->ranks[root], i) : (int64_t)sum;
    }
    if (kind == 2 || kind == 4) {
        at->bytes *= (size_t)n;
        for (int peer = 0; peer < n; peer++)
            for (size_t i = 0; i < count; i++)
                at->expected[(size_t)peer * count + i] =
                    value_of(seed, on->ranks[peer], (kind == 4 ? count * (size_t)rank : 0) + i);
    }
    memcpy(at->receive, at->send, count * sizeof(int64_t));
    switch (kind) {
    case 0: assert_ok(ls_group_all_reduce(on->group, at->receive, count, LS_I64, LS_SUM, &at->work)); break;
    case 1: assert_ok(ls_group_broadcast(on->group, at->receive, count, LS_I64, root, &at->work)); break;
    case 2: assert_ok(ls_group_all_gather(on->group, at->send, at->receive, count, LS_I64, &at->work)); break;
    case 3:
        assert_ok(ls_group_reduce_scatter(on->group, at->send, at->receive, count, LS_I64, LS_SUM, &at->work));
        break;
    default: assert_ok(ls_group_all_to_all(on->group, at->send, at->receive, count, LS_I64, &at->work)); break;
    }
}

static void play(void *argument) {
    player *self = argument;
    move moves[AT_ONCE] = {{0}};
    for (int i = 0; i < AT_ONCE; i++) {
        moves[i].send = malloc(MOST_COUNT * sizeof(int64_t));
        moves[i].receive = malloc(MOST_COUNT * sizeof(int64_t));
        moves[i].expected = malloc(MOST_COUNT * sizeof(int64_t));
    }
    for (int round = 0; round < self->rounds; round++) {
        for (int i = 0; i < AT_ONCE; i++) post_move(self, mix(self->seed + (uint64_t)(round * AT_ONCE + i)), &moves[i]);
        /* Each rank waits in an order of its own. */
        const int first = (int)(mix(self->seed + (uint64_t)(round * 7 + self->rank->rank)) % AT_ONCE);
        for (int i = 0; i < AT_ONCE; i++) {
            move *at = &moves[(first + i) % AT_ONCE];
            if (!at->work) continue;
            assert_ok(ls_work_wait(at->work, 0));
            ls_work_close(&at->work);
            assert_memory_equal(at->receive, at->expected, at->bytes);
        }
    }
    for (int i = 0; i < AT_ONCE; i++) {
        free(moves[i].send);
        free(moves[i].receive);
        free(moves[i].expected);
    }
}

static void play_twice(const ls_rank *rank) {
    static const set sets[SETS] = {{.ranks = {0, 1, 2, 3}, .count = 4},
                                   {.ranks = {1, 0}, .count = 2},
                                   {.ranks = {3, 1, 2}, .count = 3},
                                   {.ranks = {2, 0}, .count = 2}};
    ls_group *group = open_rank(rank);
    player players[2];
    ls_thread thread = {0};
    for (int i = 0; i < 2; i++) {
        players[i] = (player){.rank = rank,
                              .seed = *(const uint64_t *)rank->argument + (uint64_t)i * 1000003,
                              .rounds = LS_UNDER_THREAD_SANITIZER ? 200 : 1000};
        for (int j = 0; j < SETS; j++) {
            players[i].sets[j] = sets[j];
            assert_ok(ls_group_subgroup(&players[i].sets[j].group, group, sets[j].ranks, sets[j].count));
        }
    }
    assert_ok(ls_thread_start(&thread, "player", play, &players[1]));
    play(&players[0]);
    ls_thread_join(&thread);
    ls_group_close(&group);
    for (int i = 0; i < 2 * SETS; i++) ls_group_close(&players[i % 2].sets[i / 2].group);
}

static void a_thousand_random_sequences_on_overlapping_subgroups_equal_the_oracle(void **state) {
    (void)state;
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    run_ranks(4, play_twice, &seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_subgroup_of_a_list_has_its_ranks_and_others_are_told),
        cmocka_unit_test(colours_split_a_group_in_the_order_of_keys),
        cmocka_unit_test(wrong_lists_are_refused_and_differing_ones_are_a_mismatch),
        cmocka_unit_test(a_round_robin_group_gives_each_operation_to_the_next),
        cmocka_unit_test(groups_of_other_ranks_and_lost_ones_are_not_taken_in_turn),
        cmocka_unit_test(an_abort_of_a_round_robin_group_ends_all_its_groups),
        cmocka_unit_test(operations_posted_at_once_are_complete_with_the_last),
        cmocka_unit_test(a_wait_for_several_expires_together_and_may_be_repeated),
        cmocka_unit_test(a_monitored_barrier_names_who_did_not_come_and_loses_nothing),
        cmocka_unit_test(a_thousand_random_sequences_on_overlapping_subgroups_equal_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
