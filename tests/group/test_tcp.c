/* test_tcp.c: groups of groups over tcp, and what cannot be seen in the tests that run over it as well (tests.cmake). */
#include "group/tcp_relay.h"
#include "support/faults.h"

#include "base/clock.h"
#include "base/wait.h"
#include "group/backend/tcp/tcp.h"
#include "group/group.h"

#include <stdlib.h>

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
    for (size_t i = 0; i < count; i++) data[i] = (int64_t)i * (1 + rank->rank);
    ls_work *work = NULL;
    assert_ok(ls_group_all_reduce(group, data, count, LS_I64, LS_SUM, &work));
    if (rank->rank == 0) assert_ok(ls_store_wait(rank->store, "done", 60000));
    assert_ok(ls_work_wait(work, 0));
    if (rank->rank == 1) assert_ok(ls_store_set(rank->store, "done", "", 0));
    ls_work_close(&work);
    for (size_t i = 0; i < count; i++) assert_int_equal(data[i], i * 3);
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

/* --- lanes ------------------------------------------------------------------------------------------------------------- */

enum { CHUNKS_A_LANE = 2, LANES_BYTES = TCP_LANES * CHUNKS_A_LANE * TCP_CHUNK_BYTES };

static void receive_what_is_counted(const ls_rank *rank) {
    if (rank->rank == 1) relay_start(rank->argument, rank->store);
    ls_group *group = open_tcp(rank);
    char *data = calloc(1, LANES_BYTES);
    assert_ok(ls_group_broadcast(group, data, LANES_BYTES, LS_I8, 0, NULL));
    if (rank->rank == 1) relay_stop(rank->argument);
    ls_group_close(&group);
    free(data);
}

static void several_connections_of_a_pair_carry_alike(void **state) {
    (void)state;
    relay self = {.saying = NULL};
    int lanes = 0;
    run_ranks(2, receive_what_is_counted, &self);
    for (int i = 0; i < TCP_CHANNELS; i++) {
        const int whole = self.bytes[i] / (int)TCP_CHUNK_BYTES;
        if (whole) assert_int_equal(whole, CHUNKS_A_LANE);
        lanes += whole > 0;
    }
    assert_int_equal(lanes, TCP_LANES);
    assert_true(lanes > 1);
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

static void open_in_vain(const ls_rank *rank) {
    ls_group *group = NULL;
    assert_int_equal(try_open_tcp(rank, 10000, &group), LS_ERR_ENVIRONMENT);
    assert_error_says("LOCKSTEP_DEBUG is \"details\": expected \"detail\" or \"off\"");
}

static void a_slip_of_the_pen_does_not_go_without_checks(void **state) {
    (void)state;
    setenv("LOCKSTEP_DEBUG", "details", 1);
    run_ranks(2, open_in_vain, NULL);
    unsetenv("LOCKSTEP_DEBUG");
}

/* Rank 1's card says that it compares. */
static void compare_alone(const ls_rank *rank) {
    ls_group *group = NULL;
    if (rank->rank == 1) {
        tcp_card card = read_card(rank->store);
        card.checks_calls = 1;
        assert_ok(ls_store_set(rank->store, PREFIX "/card0/1", &card, sizeof card));
        return;
    }
    assert_int_equal(try_open_tcp(rank, 10000, &group), LS_ERR_ENVIRONMENT);
    assert_error_says("rank 1 compares all calls, rank 0 does not: LOCKSTEP_DEBUG has to be the same");
}

static void ranks_that_differ_about_checks_say_so(void **state) {
    (void)state;
    run_ranks(2, compare_alone, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slip_of_the_pen_does_not_go_without_checks),
        cmocka_unit_test(ranks_that_differ_about_checks_say_so),
        cmocka_unit_test(calls_are_compared_only_when_that_is_asked_for),
        cmocka_unit_test(a_world_of_one_needs_nobody),
        cmocka_unit_test(relatives_live_on_without_their_group),
        cmocka_unit_test(few_messages_are_offered_to_one_who_does_not_look),
        cmocka_unit_test(several_connections_of_a_pair_carry_alike),
        cmocka_unit_test(an_operation_goes_on_while_its_rank_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
