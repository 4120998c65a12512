/* test_tcp_lost.c: what is not as over other backends (test_lost.c) when a group over tcp is lost: data that is still on its way
 * when its sender has left; deaths that nobody who is there waits for. */
#include "group/tcp_relay.h"

#include "group/backend/tcp/tcp.h"
#include "group/group.h"

/* --- who is gone while others are late ----------------------------------------------------------------------------------- */

/* The end of a process, as the others see it. */
static void die(ls_group **group) {
    tcp_group *tcp = (*group)->state;
    atomic_store(&tcp->has_said, true);
    ls_group_close(group);
}

/* Data comes to rank 3 by way of ranks that are late. */
static void miss_a_dead_root(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    int32_t value = 0;
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 0) {
        die(&group);
        return;
    }
    if (rank->rank < 3) assert_ok(ls_store_wait(rank->store, "rank 3 is through", 30000));
    assert_int_equal(ls_group_broadcast(group, &value, 1, LS_I32, 0, NULL), LS_ERR_PEER_LOST);
    assert_error_says("rank 0 (");
    assert_error_says(") died before ");
    assert_error_says(" of operation 2, broadcast of 1 i32 from rank 0; close the group");
    if (rank->rank == 3) assert_ok(ls_store_set(rank->store, "rank 3 is through", "", 0));
    ls_group_close(&group);
}

static void a_death_is_named_though_all_who_wait_for_the_dead_are_late(void **state) {
    (void)state;
    run_ranks(4, miss_a_dead_root, NULL);
}

/* Rank 0 did its part; who passes it on is late, after a death a little, after a farewell much. */
static void wait_for_late_ranks(const ls_rank *rank) {
    const bool says_so = *(const bool *)rank->argument;
    ls_group *group = open_tcp(rank);
    int32_t value = rank->rank == 0 ? 7 : 0;
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 1 || rank->rank == 2) ls_sleep_until(ls_now_ns() + (says_so ? 1300 : 200) * LS_NS_PER_MS);
    assert_ok(ls_group_broadcast(group, &value, 1, LS_I32, 0, NULL));
    assert_int_equal(value, 7);
    if (rank->rank == 0 && !says_so)
        die(&group);
    else
        ls_group_close(&group);
}

static void what_the_gone_did_before_counts_though_others_are_late(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool says_so = i;
        run_ranks(4, wait_for_late_ranks, &says_so);
    }
}

/* --- leaving ---------------------------------------------------------------------------------------------------------- */

/* What is complete stays complete, whatever a rank does afterwards: also for a slow peer, whose data is still on the way. */
static void leave_after_the_last(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    const size_t count = 1 << 20;
    int32_t *data = calloc(count, sizeof *data);
    for (size_t i = 0; i < count && rank->rank == 0; i++) data[i] = (int32_t)i;
    if (rank->rank == 1) ls_sleep_until(ls_now_ns() + 20 * LS_NS_PER_MS);
    assert_ok(ls_group_broadcast(group, data, count, LS_I32, 0, NULL));
    for (size_t i = 0; i < count; i++) assert_int_equal(data[i], i);
    ls_group_close(&group);
    free(data);
}

static void an_operation_done_by_all_survives_a_rank_that_leaves(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) run_ranks(3, leave_after_the_last, NULL);
}

/* Rank 0 sends and leaves at once; the message arrives though rank 1 takes its time. */
static void send_and_leave(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    const size_t count = 1 << 16;
    int32_t *data = calloc(count, sizeof *data);
    ls_work *work = NULL;
    for (size_t i = 0; i < count && rank->rank == 0; i++) data[i] = (int32_t)i;
    if (rank->rank == 0) {
        assert_ok(ls_group_send(group, data, count, LS_I32, 1, 0, NULL));
    } else {
        assert_ok(ls_group_receive(group, data, count, LS_I32, 0, 0, NULL, &work));
        ls_sleep_until(ls_now_ns() + 20 * LS_NS_PER_MS);
        assert_ok(ls_work_wait(work, 0));
        for (size_t i = 0; i < count; i++) assert_int_equal(data[i], i);
        ls_work_close(&work);
    }
    ls_group_close(&group);
    free(data);
}

static void a_message_that_was_sent_arrives_though_its_sender_left(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) run_ranks(2, send_and_leave, NULL);
}

/* --- slow ways -------------------------------------------------------------------------------------------------------- */

/* What rank 0 sent is still on its way when rank 1 knows that it has left. */
static void send_over_a_slow_way(const ls_rank *rank) {
    relay *self = rank->argument;
    if (rank->rank == 1) relay_start(self, rank->store);
    ls_group *group = open_tcp(rank);
    int64_t value = rank->rank == 0 ? 7 : 0, letter = value;
    ls_work *works[2] = {NULL};
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 1) assert_ok(ls_group_receive(group, &letter, 1, LS_I64, 0, 0, NULL, &works[0]));
    if (rank->rank == 1) {
        assert_ok(ls_store_wait(rank->store, "through", 60000));
        atomic_store(&self->stands_still, true);
    } else {
        assert_ok(ls_store_set(rank->store, "through", "", 0));
        while (!atomic_load(&self->stands_still)) ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
        assert_ok(ls_group_send(group, &letter, 1, LS_I64, 1, 0, NULL));
        assert_ok(ls_group_broadcast(group, &value, 1, LS_I64, 0, NULL));
        ls_group_close(&group);
        assert_ok(ls_store_set(rank->store, "left", "", 0));
        return;
    }
    assert_ok(ls_store_wait(rank->store, "left", 60000));
    assert_ok(ls_group_broadcast(group, &value, 1, LS_I64, 0, &works[1]));
    for (int i = 0; i < 2; i++) assert_int_equal(ls_work_wait(works[i], 100), LS_ERR_TIMEOUT);
    atomic_store(&self->stands_still, false);
    assert_ok(ls_work_wait_all(works, 2, 0));
    for (int i = 0; i < 2; i++) ls_work_close(&works[i]);
    assert_int_equal(letter, 7);
    assert_int_equal(value, 7);
    assert_int_equal(ls_group_barrier(group, NULL), LS_ERR_PEER_LOST);
    ls_group_close(&group);
    relay_stop(self);
}

static void what_is_still_on_its_way_counts_though_its_sender_left(void **state) {
    (void)state;
    relay self = {.saying = NULL};
    run_ranks(2, send_over_a_slow_way, &self);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_is_named_though_all_who_wait_for_the_dead_are_late),
        cmocka_unit_test(what_the_gone_did_before_counts_though_others_are_late),
        cmocka_unit_test(an_operation_done_by_all_survives_a_rank_that_leaves),
        cmocka_unit_test(a_message_that_was_sent_arrives_though_its_sender_left),
        cmocka_unit_test(what_is_still_on_its_way_counts_though_its_sender_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
