/* test_subgroups.c: groups of some ranks, sequences of calls on several of them, and a barrier that names who did not come. */
#include "support/faults.h"
#include "support/threads.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "group/oracle.h"

#include <pthread.h>
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

/* --- faults --------------------------------------------------------------------------------------------------------------- */

typedef struct outcome {
    pthread_barrier_t together;
    bool goes_on;
    ls_status status[2];
} outcome;

/* Rank 0 arms a fault while the other waits: it strikes either. */
static void split_with_a_fault(const ls_rank *rank) {
    outcome *both = rank->argument;
    ls_group *group = NULL;
    ls_group_options options = rank_options(rank);
    options.timeout_ms = 10000;
    assert_ok(ls_group_open(&group, &options));
    for (;;) {
        ls_group *half = NULL, *turned = NULL;
        if (rank->rank == 0) both->goes_on = ls_fault_next(__FILE__, __LINE__);
        pthread_barrier_wait(&both->together);
        if (!both->goes_on) break;
        ls_status status = ls_group_split(&half, group, 1, -rank->rank);
        if (status == LS_OK) status = ls_group_subgroup(&turned, group, (const int[]){1, 0}, 2);
        both->status[rank->rank] = status;
        pthread_barrier_wait(&both->together);
        assert_int_equal(both->status[0], both->status[1]);
        assert_int_equal(status, ls_fault_was_met() ? LS_ERR_MEMORY : LS_OK);
        assert_int_equal(sum_of_ranks(group, 1), 2); /* the group goes on */
        ls_group_close(&turned);
        ls_group_close(&half);
        pthread_barrier_wait(&both->together);
    }
    ls_group_close(&group);
}

static void who_lacks_memory_for_a_subgroup_says_so_to_all_ranks(void **state) {
    (void)state;
    outcome both = {.goes_on = true};
    ls_fault_first(LS_FAULT_MEMORY);
    pthread_barrier_init(&both.together, NULL, 2);
    run_ranks(2, split_with_a_fault, &both);
    pthread_barrier_destroy(&both.together);
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

static void miss_barrier_together(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    if (rank->rank % 2 == 0) {
        assert_int_equal(ls_group_monitored_barrier(group, 300), LS_ERR_TIMEOUT);
        assert_error_says("rank 1, rank 3 did not come to monitored barrier 1 within 300 ms");
    }
    assert_int_equal(sum_of_ranks(group, 1), rank->world_size);
    ls_group_close(&group);
}

static void a_monitored_barrier_names_who_did_not_come_and_loses_nothing(void **state) {
    (void)state;
    for (int absent = 0; absent <= 2; absent += 2) run_ranks(4, miss_barrier, &absent);
    run_ranks(5, miss_barrier_together, NULL);
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

enum { ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, REDUCE, GATHER, SCATTER, BARRIER, KINDS };

/* A call, as all its ranks draw it; `rank` is this one's in the set. */
typedef struct draw_of_call {
    int kind, rank, root;
    size_t count;
    uint64_t seed;
} draw_of_call;

/* One row, or where all ranks' are received, all. */
static void expect_move(const set *on, const draw_of_call *made, move *at) {
    const bool is_root = made->rank == made->root,
               has_own_row = made->kind == REDUCE_SCATTER || made->kind == ALL_TO_ALL || made->kind == SCATTER;
    const bool has_rows = made->kind == ALL_GATHER || made->kind == ALL_TO_ALL || made->kind == GATHER;
    const size_t row = has_own_row ? made->count * (size_t)made->rank : 0, count = made->count;
    at->bytes = made->kind == BARRIER || (made->kind == GATHER && !is_root) ? 0 : count * sizeof(int64_t);
    if (has_rows) at->bytes *= (size_t)on->count;
    for (size_t i = 0; i < at->bytes / sizeof(int64_t); i++) {
        uint64_t sum = 0;
        for (int peer = 0; peer < on->count; peer++) sum += (uint64_t)value_of(made->seed, on->ranks[peer], row + i);
        if (has_rows)
            at->expected[i] = value_of(made->seed, on->ranks[i / count], row + i % count);
        else if (made->kind == BROADCAST || made->kind == SCATTER)
            at->expected[i] = value_of(made->seed, on->ranks[made->root], row + i);
        else
            at->expected[i] = made->kind == REDUCE && !is_root ? at->send[i] : (int64_t)sum;
    }
}

static ls_status call_move(ls_group *group, const draw_of_call *made, move *at) {
    const size_t count = made->count;
    switch (made->kind) {
    case ALL_REDUCE: return ls_group_all_reduce(group, at->receive, count, LS_I64, LS_SUM, &at->work);
    case BROADCAST: return ls_group_broadcast(group, at->receive, count, LS_I64, made->root, &at->work);
    case ALL_GATHER: return ls_group_all_gather(group, at->send, at->receive, count, LS_I64, &at->work);
    case REDUCE_SCATTER: return ls_group_reduce_scatter(group, at->send, at->receive, count, LS_I64, LS_SUM, &at->work);
    case ALL_TO_ALL: return ls_group_all_to_all(group, at->send, at->receive, count, LS_I64, &at->work);
    case REDUCE: return ls_group_reduce(group, at->receive, count, LS_I64, LS_SUM, made->root, &at->work);
    case GATHER: return ls_group_gather(group, at->send, at->receive, count, LS_I64, made->root, &at->work);
    case SCATTER: return ls_group_scatter(group, at->send, at->receive, count, LS_I64, made->root, &at->work);
    default: return ls_group_barrier(group, &at->work);
    }
}

/* Posts what the seed says, if this rank is in it, and notes what should come of it. */
static void post_move(const player *self, uint64_t seed, move *at) {
    const set *on = &self->sets[seed % SETS];
    const draw_of_call made = {
        .kind = (int)(mix(seed) % KINDS),
        .rank = ls_group_rank(on->group),
        .root = (int)(mix(seed + 3) % (uint64_t)on->count),
        .count = mix(seed + 1) % 3 ? mix(seed + 2) % 20 : mix(seed + 2) % (MOST_COUNT / 4),
        .seed = seed,
    };
    at->bytes = 0;
    if (made.rank < 0) return;
    for (size_t i = 0; i < made.count * (size_t)on->count; i++) at->send[i] = value_of(seed, on->ranks[made.rank], i);
    memcpy(at->receive, at->send, made.count * sizeof(int64_t));
    expect_move(on, &made, at);
    assert_ok(call_move(on->group, &made, at));
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
        cmocka_unit_test(who_lacks_memory_for_a_subgroup_says_so_to_all_ranks),
        cmocka_unit_test(a_monitored_barrier_names_who_did_not_come_and_loses_nothing),
        cmocka_unit_test(a_thousand_random_sequences_on_overlapping_subgroups_equal_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
