/* test_tcp.c: collectives and groups of groups over tcp, in many sizes; what cannot be seen in the table of all backends. */
#include "group/tcp_ranks.h"
#include "support/faults.h"

#include "base/clock.h"
#include "base/wait.h"
#include "group/backend/tcp/tcp.h"
#include "group/group.h"

#include <stdlib.h>
#include <string.h>

/* --- collectives ------------------------------------------------------------------------------------------------------ */

/* A small number of each rank and element. */
static int64_t number(int rank, size_t i) {
    return (int64_t)((i * 7 + (size_t)rank * 13) % 101);
}

static int64_t sum_of(int world_size, size_t i) {
    int64_t sum = 0;
    for (int rank = 0; rank < world_size; rank++) sum += number(rank, i);
    return sum;
}

static void reduce_sizes(const ls_rank *rank) {
    static const size_t counts[] = {0, 1, 7, 1000, 40000, 700001};
    ls_group *group = open_tcp(rank);
    int64_t *data = malloc(700001 * sizeof *data);
    for (int i = 0; i < 6; i++) {
        for (size_t j = 0; j < counts[i]; j++) data[j] = number(rank->rank, j);
        assert_ok(ls_group_all_reduce(group, data, counts[i], LS_I64, LS_SUM, NULL));
        for (size_t j = 0; j < counts[i]; j++) assert_int_equal(data[j], sum_of(rank->world_size, j));
    }
    free(data);
    ls_group_close(&group);
}

static void sums_of_any_size_are_right(void **state) {
    (void)state;
    for (int world_size = 2; world_size <= 5; world_size++) run_ranks(world_size, reduce_sizes, NULL);
}

static void call_everything(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    const size_t count = 30011, world_size = (size_t)rank->world_size;
    int64_t *one = malloc(count * sizeof *one), *all = malloc(world_size * count * sizeof *all);
    for (int root = 0; root < rank->world_size; root++) {
        for (size_t i = 0; i < count; i++) one[i] = number(rank->rank, i);
        assert_ok(ls_group_all_gather(group, one, all, count, LS_I64, NULL));
        for (size_t i = 0; i < world_size * count; i++) assert_int_equal(all[i], number((int)(i / count), i % count));
        assert_ok(ls_group_broadcast(group, one, count, LS_I64, root, NULL));
        for (size_t i = 0; i < count; i++) assert_int_equal(one[i], number(root, i));
        assert_ok(ls_group_reduce(group, one, count, LS_I64, LS_SUM, root, NULL));
        for (size_t i = 0; i < count && rank->rank == root; i++)
            assert_int_equal(one[i], (int64_t)world_size * number(root, i));
        assert_ok(ls_group_barrier(group, NULL));
    }
    free(one);
    free(all);
    ls_group_close(&group);
}

static void other_collectives_follow_each_other(void **state) {
    (void)state;
    for (int world_size = 2; world_size <= 4; world_size++) run_ranks(world_size, call_everything, NULL);
}

/* --- groups ----------------------------------------------------------------------------------------------------------- */

static void use_relatives(const ls_rank *rank) {
    ls_group *group = open_tcp(rank), *copy = NULL, *half = NULL;
    void *memory = NULL;
    int64_t value = rank->rank;
    assert_ok(ls_group_duplicate(&copy, group));
    assert_ok(ls_group_split(&half, group, rank->rank % 2, -rank->rank));
    assert_int_equal(ls_group_world_size(half), 2);
    assert_int_equal(ls_group_rank(half), rank->rank < 2);
    ls_group_close(&group);
    assert_ok(ls_group_alloc(copy, 1000, &memory));
    assert_int_equal((uintptr_t)memory % 4096, 0);
    assert_int_equal(((char *)memory)[999], 0);
    ls_group_free(copy, memory);
    assert_ok(ls_group_all_reduce(half, &value, 1, LS_I64, LS_SUM, NULL));
    assert_int_equal(value, rank->rank % 2 ? 4 : 2);
    assert_ok(ls_group_all_reduce(copy, &value, 1, LS_I64, LS_SUM, NULL));
    assert_int_equal(value, 12);
    ls_group_close(&half);
    ls_group_close(&copy);
}

static void relatives_live_on_without_their_group(void **state) {
    (void)state;
    run_ranks(4, use_relatives, NULL);
}

static void be_alone(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    float value = 3;
    assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL));
    assert_true(value == 3);
    ls_group_close(&group);
}

static void a_world_of_one_needs_nobody(void **state) {
    (void)state;
    run_ranks(1, be_alone, NULL);
}

/* The progress thread moves it. */
static void compute_meanwhile(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    const size_t count = 500000;
    int64_t *data = malloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++) data[i] = number(rank->rank, i);
    ls_work *work = NULL;
    assert_ok(ls_group_all_reduce(group, data, count, LS_I64, LS_SUM, &work));
    if (rank->rank == 0) assert_ok(ls_store_wait(rank->store, "done", 60000));
    assert_ok(ls_work_wait(work, 0));
    if (rank->rank == 1) assert_ok(ls_store_set(rank->store, "done", "", 0));
    ls_work_close(&work);
    for (size_t i = 0; i < count; i++) assert_int_equal(data[i], sum_of(rank->world_size, i));
    free(data);
    ls_group_close(&group);
}

static void an_operation_goes_on_while_its_rank_computes(void **state) {
    (void)state;
    run_ranks(2, compute_meanwhile, NULL);
}

/* --- messages --------------------------------------------------------------------------------------------------------- */

enum { MESSAGES = 200 };

/* Rank 1 looks at nothing until rank 0 has posted all. */
static void send_to_one_who_does_not_look(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    int64_t values[MESSAGES];
    ls_work *works[MESSAGES];
    const bool is_sender = rank->rank == 0;
    assert_ok(ls_group_barrier(group, NULL));
    if (!is_sender) assert_ok(ls_store_set(rank->store, "looks away", "", 0));
    assert_ok(ls_store_wait(rank->store, is_sender ? "looks away" : "all are posted", 60000));
    for (int i = 0; i < MESSAGES; i++) {
        values[i] = is_sender ? i : -1;
        assert_ok(is_sender ? ls_group_send(group, &values[i], 1, LS_I64, 1, i, &works[i])
                            : ls_group_receive(group, &values[i], 1, LS_I64, 0, i, NULL, &works[i]));
    }
    if (is_sender) {
        assert_int_equal(ls_work_wait(works[MESSAGES - 1], 100), LS_ERR_TIMEOUT);
        while (!group_try_drive(group)) ls_yield();
        assert_int_equal(((const tcp_group *)group->state)->peers[1].mail.offered, TCP_MOST_OFFERS);
        group_stop_driving(group);
        assert_ok(ls_store_set(rank->store, "all are posted", "", 0));
    }
    assert_ok(ls_work_wait_all(works, MESSAGES, 0));
    for (int i = 0; i < MESSAGES; i++) {
        assert_int_equal(values[i], i);
        ls_work_close(&works[i]);
    }
    ls_group_close(&group);
}

static void few_messages_are_offered_to_one_who_does_not_look(void **state) {
    (void)state;
    run_ranks(2, send_to_one_who_does_not_look, NULL);
}

/* --- checks ------------------------------------------------------------------------------------------------------------- */

static void reduce_once(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    float value = 1;
    assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL));
    ls_group_close(&group);
}

static void calls_are_compared_only_when_that_is_asked_for(void **state) {
    (void)state;
    for (int is_asked = 0; is_asked < 2; is_asked++) {
        if (is_asked) setenv("LOCKSTEP_DEBUG", "detail", 1);
        ls_points_watch();
        run_ranks(2, reduce_once, NULL);
        assert_int_equal(ls_point_hits("tcp.calls.said"), is_asked ? 2 : 0);
    }
    unsetenv("LOCKSTEP_DEBUG");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_compared_only_when_that_is_asked_for),
        cmocka_unit_test(a_world_of_one_needs_nobody),
        cmocka_unit_test(sums_of_any_size_are_right),
        cmocka_unit_test(other_collectives_follow_each_other),
        cmocka_unit_test(relatives_live_on_without_their_group),
        cmocka_unit_test(few_messages_are_offered_to_one_who_does_not_look),
        cmocka_unit_test(an_operation_goes_on_while_its_rank_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
