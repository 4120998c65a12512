/* test_several.c: several groups in turn, several operations at once, and waits for several. */
#include "support/threads.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "group/group.h"

#include <stdlib.h>

static int64_t sum_of_ranks(ls_group *group, int64_t own) {
    assert_ok(ls_group_all_reduce(group, &own, 1, LS_I64, LS_SUM, NULL));
    return own;
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
    /* What one rank is refused, be it for the last of them, is posted in no part. */
    if (rank->rank == 1) {
        void *const wrong[2] = {data[0], (char *)data[2] + 1};
        assert_int_equal(ls_group_all_reduce_many(group, wrong, (const size_t[]){1, 1}, 2, LS_I64, LS_SUM, &work),
                         LS_ERR_ARGUMENT);
        assert_error_says("number 1 of 2 at once");
        assert_null(work);
    }
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
    assert_error_says("several operations at once: there is none");
    assert_int_equal(ls_group_all_reduce_many(group, NULL, counts, N, LS_I64, LS_SUM, NULL), LS_ERR_ARGUMENT);
    assert_error_says("several operations at once: an array is NULL");
    assert_int_equal(ls_group_all_reduce_many(group, (void *const *)data, NULL, N, LS_I64, LS_SUM, NULL),
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

/* Each of a rank's threads posts as many, of a count of its own. */
enum { THREADS = 2, AT_ONCE = 1000 };

typedef struct poster {
    ls_group *group;
    size_t count;
    _Atomic int *ready; /* threads */
    int64_t values[THREADS];
    ls_work *work;
} poster;

static void post_all(void *argument) {
    poster *self = argument;
    void *data[AT_ONCE];
    size_t counts[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        data[i] = self->values;
        counts[i] = self->count;
    }
    atomic_fetch_add(self->ready, 1);
    while (atomic_load(self->ready) < THREADS) {}
    assert_ok(ls_group_all_reduce_many(self->group, data, counts, AT_ONCE, LS_I64, LS_MAX, &self->work));
}

/* Rank 0's threads post together; rank 1 then posts what it finds to be first, and the other. */
static void post_from_two_threads(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    _Atomic int ready = 0;
    poster posters[THREADS] = {{group, 1, &ready, {0}, NULL}, {group, 2, &ready, {0}, NULL}};
    ls_thread thread = {0};
    int64_t first = 0;
    if (rank->rank == 0) {
        assert_ok(ls_thread_start(&thread, "poster", post_all, &posters[1]));
        post_all(&posters[0]);
        ls_thread_join(&thread);
        const ls_work *head = atomic_load(&group->first);
        assert_ok(ls_store_add(rank->store, "first", (int64_t)head->op.call.count, NULL));
    } else {
        assert_ok(ls_store_wait(rank->store, "first", 60000));
        assert_ok(ls_store_add(rank->store, "first", 0, &first));
        atomic_store(&ready, THREADS);
        for (int i = 0; i < THREADS; i++) post_all(&posters[(first - 1 + i) % THREADS]);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_ok(ls_work_wait(posters[i].work, 0));
        ls_work_close(&posters[i].work);
    }
    ls_group_close(&group);
}

static void no_other_threads_call_comes_between_what_is_posted_at_once(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) run_ranks(2, post_from_two_threads, NULL);
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

/* Each is complete well within the limit, all together are not. */
static void wait_for_one_after_the_other(const ls_rank *rank) {
    enum { TOGETHER = 10 };
    ls_group *group = open_rank(rank);
    int64_t values[TOGETHER] = {0};
    ls_work *works[TOGETHER];
    for (int i = 0; i < TOGETHER; i++) {
        if (rank->rank == 1) ls_sleep_until(ls_now_ns() + 100 * LS_NS_PER_MS);
        assert_ok(ls_group_all_reduce(group, &values[i], 1, LS_I64, LS_SUM, &works[i]));
    }
    if (rank->rank == 0) assert_int_equal(ls_work_wait_all(works, TOGETHER, 300), LS_ERR_TIMEOUT);
    assert_ok(ls_work_wait_all(works, TOGETHER, 0));
    for (int i = 0; i < TOGETHER; i++) ls_work_close(&works[i]);
    ls_group_close(&group);
}

/* One of each of three groups, of which two are lost, each in its own way. */
static void wait_for_some_that_fail(const ls_rank *rank) {
    ls_group *groups[3] = {open_rank(rank)};
    int64_t values[3] = {0, 0, rank->rank};
    ls_work *works[3];
    for (int i = 1; i < 3; i++) assert_ok(ls_group_duplicate(&groups[i], groups[0]));
    for (int i = 0; i < 3 && rank->rank == 0; i++)
        assert_ok(ls_group_all_reduce(groups[i], &values[i], 1, LS_I64, LS_SUM, &works[i]));
    if (rank->rank == 1) {
        ls_group_abort(groups[1], "the second");
        ls_group_abort(groups[0], "the first");
        ls_sleep_until(ls_now_ns() + 50 * LS_NS_PER_MS);
        assert_ok(ls_group_all_reduce(groups[2], &values[2], 1, LS_I64, LS_SUM, NULL));
    } else {
        assert_int_equal(ls_work_wait_all((ls_work *[]){NULL, works[1], works[0], works[2]}, 4, 0), LS_ERR_ABORTED);
        assert_error_says("rank 1 aborted the group: the second");
        assert_int_equal(values[2], 1); /* it has waited for the last all the same */
        assert_int_equal(ls_work_wait_all(works, 3, 0), LS_ERR_ABORTED);
        assert_error_says("rank 1 aborted the group: the first");
        assert_int_equal(ls_work_wait_all(NULL, 2, 0), LS_ERR_ARGUMENT);
        assert_ok(ls_work_wait_all(NULL, 0, 0));
        assert_true(ls_work_is_complete(NULL));
        for (int i = 0; i < 3; i++) ls_work_close(&works[i]);
    }
    for (int i = 0; i < 3; i++) ls_group_close(&groups[i]);
}

static void a_wait_for_several_waits_for_all_and_says_the_first_error(void **state) {
    (void)state;
    run_ranks(2, wait_for_some_that_fail, NULL);
}

static void a_wait_for_several_expires_together_and_may_be_repeated(void **state) {
    (void)state;
    run_ranks(2, wait_for_late_rank, NULL);
    run_ranks(2, wait_for_one_after_the_other, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_robin_group_gives_each_operation_to_the_next),
        cmocka_unit_test(groups_of_other_ranks_and_lost_ones_are_not_taken_in_turn),
        cmocka_unit_test(an_abort_of_a_round_robin_group_ends_all_its_groups),
        cmocka_unit_test(operations_posted_at_once_are_complete_with_the_last),
        cmocka_unit_test(no_other_threads_call_comes_between_what_is_posted_at_once),
        cmocka_unit_test(a_wait_for_several_waits_for_all_and_says_the_first_error),
        cmocka_unit_test(a_wait_for_several_expires_together_and_may_be_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
