/* test_tcp_lost.c: a group over tcp is lost: by a mismatch, a limit, an abort, a rank that leaves. */
#include "group/tcp_relay.h"

#include "group/post.h"

/* --- mismatches ------------------------------------------------------------------------------------------------------- */

typedef struct pair {
    const char *expected; /* the sentence, both sides */
    group_call calls[2];  /* of rank 0 and of all others */
} pair;

static void call_one_of_a_pair(const ls_rank *rank) {
    const pair *both = rank->argument;
    ls_group *group = open_tcp(rank);
    double data[64] = {0}, receive[256];
    group_call call = both->calls[rank->rank != 0];
    call.data = call.kind == GROUP_ALL_GATHER ? receive : data;
    call.send = call.kind == GROUP_ALL_GATHER ? data : NULL;
    assert_ok(ls_group_barrier(group, NULL));
    assert_int_equal(group_post(group, &call, NULL), LS_ERR_MISMATCH);
    assert_error_says(both->expected);
    assert_error_says("operation 2");
    assert_int_equal(ls_group_barrier(group, NULL), LS_ERR_MISMATCH);
    assert_error_says(both->expected);
    ls_group_close(&group);
}

#define REDUCE(n, type, how) \
    { .kind = GROUP_ALL_REDUCE, .count = (n), .dtype = (type), .op = (how) }

static const pair pairs[] = {
    {"rank 0 called all-reduce of 10 f32 sum, rank 1 all-reduce of 11 f32 sum",
     {REDUCE(10, LS_F32, LS_SUM), REDUCE(11, LS_F32, LS_SUM)}},
    {"rank 0 called all-reduce of 10 f32 sum, rank 1 all-reduce of 10 f64 sum",
     {REDUCE(10, LS_F32, LS_SUM), REDUCE(10, LS_F64, LS_SUM)}},
    {"rank 0 called all-reduce of 10 f32 sum, rank 1 all-reduce of 10 f32 max",
     {REDUCE(10, LS_F32, LS_SUM), REDUCE(10, LS_F32, LS_MAX)}},
    {"rank 0 called all-gather of 4 i64, rank 1 barrier",
     {{.kind = GROUP_ALL_GATHER, .count = 4, .dtype = LS_I64}, {.kind = GROUP_BARRIER}}},
    {"rank 0 called barrier (\"save\", tag 0x1), rank 1 barrier (\"end\", tag 0x2)",
     {{.kind = GROUP_BARRIER, .tag = 1, .name = "save"}, {.kind = GROUP_BARRIER, .tag = 2, .name = "end"}}},
    {"rank 0 called broadcast of 10 f32 from rank 0, rank 1 broadcast of 10 f32 from rank 1",
     {{.kind = GROUP_BROADCAST, .count = 10, .root = 0}, {.kind = GROUP_BROADCAST, .count = 10, .root = 1}}},
};

static void with_checks_on_different_calls_are_named_on_both_sides(void **state) {
    (void)state;
    setenv("LOCKSTEP_DEBUG", "detail", 1);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (int world_size = 2; world_size <= 3; world_size++) {
            pair both = pairs[i];
            run_ranks(world_size, call_one_of_a_pair, &both);
        }
    unsetenv("LOCKSTEP_DEBUG");
}

/* Two ranks that wait for each other; of broadcasts from two roots each is through with its own. */
static void without_checks_two_ranks_that_wait_for_each_other_say_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0] - 1; i++) {
        pair both = pairs[i];
        run_ranks(2, call_one_of_a_pair, &both);
    }
}

static void broadcast_from_two(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    float data[10] = {0};
    ls_status status = LS_OK;
    for (int i = 0; i < 3 && status == LS_OK; i++)
        status = i == 0 ? ls_group_broadcast(group, data, 10, LS_F32, rank->rank, NULL) : ls_group_barrier(group, NULL);
    assert_int_equal(status, LS_ERR_MISMATCH);
    assert_error_says("rank 0 called broadcast of 10 f32 from rank 0, rank 1 broadcast of 10 f32 from rank 1, "
                      "operation 1");
    ls_group_close(&group);
}

static void without_checks_a_difference_is_found_at_the_latest_in_the_next_operation(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) run_ranks(2, broadcast_from_two, NULL);
}

static void count_unevenly(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    float send[64] = {0}, receive[64] = {0};
    size_t sends[3] = {1, 1, 1}, receives[3] = {1, 1, 1};
    if (rank->rank == 1) sends[2] = 5;
    ls_status status = ls_group_all_to_all_uneven(group, send, sends, receive, receives, LS_F32, NULL);
    if (status == LS_OK) status = ls_group_barrier(group, NULL);
    assert_int_equal(status, LS_ERR_MISMATCH);
    assert_error_says("rank 1 sends 5 elements to rank 2, which expects 1 of it");
    ls_group_close(&group);
}

static void uneven_counts_that_differ_are_named(void **state) {
    (void)state;
    run_ranks(3, count_unevenly, NULL);
}

/* --- limits ----------------------------------------------------------------------------------------------------------- */

/* Long enough for an opening on a busy machine. */
enum { LIMIT_MS = 2000 };

typedef struct lateness {
    bool is_large;
    _Atomic int sentences; /* ranks that have named the missing one */
} lateness;

static void rank_2_is_late(const ls_rank *rank) {
    lateness *late = rank->argument;
    ls_group *group = NULL;
    assert_ok(try_open_tcp(rank, LIMIT_MS, &group));
    assert_ok(ls_group_barrier(group, NULL));
    const size_t count = late->is_large ? 1 << 18 : 4;
    float *data = calloc(count, sizeof *data);
    if (rank->rank == 2)
        while (atomic_load(&late->sentences) < 3) ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
    const int64_t start_ns = ls_now_ns();
    assert_int_equal(ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, NULL), LS_ERR_ABORTED);
    if (rank->rank != 2) {
        assert_true(ls_now_ns() - start_ns > (LIMIT_MS - 100) * LS_NS_PER_MS);
        assert_true(ls_now_ns() - start_ns < 10 * LIMIT_MS * LS_NS_PER_MS);
        atomic_fetch_add(&late->sentences, 1);
    }
    assert_error_says(late->is_large ? "operation 2, all-reduce of 262144 f32 sum"
                                     : "operation 2, all-reduce of 4 f32 sum");
    assert_error_says("within 2000 ms; missing: ");
    assert_error_says("rank 2 (");
    assert_error_says("last heard of in operation ");
    free(data);
    ls_group_close(&group);
}

static void a_limit_names_who_did_not_come(void **state) {
    (void)state;
    for (int is_large = 0; is_large < 2; is_large++) {
        lateness late = {.is_large = is_large};
        run_ranks(4, rank_2_is_late, &late);
    }
}

/* --- aborts and leaving ----------------------------------------------------------------------------------------------- */

typedef struct abortion {
    ls_group *group;
    _Atomic bool is_done;
} abortion;

static void *abort_later(void *argument) {
    abortion *self = argument;
    ls_sleep_until(ls_now_ns() + 100 * LS_NS_PER_MS);
    ls_group_abort(self->group, "the user has had enough");
    atomic_store(&self->is_done, true);
    return NULL;
}

/* Rank 0 waits; another thread of it aborts. Rank 1 waits for rank 2, which comes afterwards. */
static void abort_while_waiting(const ls_rank *rank) {
    abortion *shared = rank->argument;
    ls_group *group = open_tcp(rank);
    pthread_t thread;
    if (rank->rank == 0) shared->group = group;
    if (rank->rank == 0) assert_int_equal(pthread_create(&thread, NULL, abort_later, shared), 0);
    while (rank->rank == 2 && !atomic_load(&shared->is_done)) ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
    assert_int_equal(ls_group_barrier(group, NULL), LS_ERR_ABORTED);
    assert_error_says("rank 0 aborted the group: the user has had enough");
    if (rank->rank == 0) pthread_join(thread, NULL);
    ls_group_close(&group);
}

static void abort_ends_all_ranks_also_while_they_wait(void **state) {
    (void)state;
    abortion shared = {.group = NULL};
    run_ranks(3, abort_while_waiting, &shared);
}

static void leave_early(const ls_rank *rank) {
    const bool is_large = *(const bool *)rank->argument;
    ls_group *group = open_tcp(rank);
    const size_t count = is_large ? 1 << 18 : 2;
    float *data = calloc(count, sizeof *data);
    assert_ok(ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, NULL));
    if (rank->rank == 1) {
        ls_group_close(&group);
    } else {
        const int64_t start_ns = ls_now_ns();
        assert_int_equal(ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, NULL), LS_ERR_PEER_LOST);
        assert_error_says("rank 1 (");
        assert_error_says(") left the group before it had done its part of operation 2, all-reduce of");
        assert_true(ls_now_ns() - start_ns < 5 * LS_NS_PER_S);
        ls_group_close(&group);
    }
    free(data);
}

static void the_next_operation_says_who_left(void **state) {
    (void)state;
    for (int is_large = 0; is_large < 2; is_large++) {
        bool large = is_large;
        for (int i = 0; i < 10; i++) run_ranks(3, leave_early, &large);
    }
}

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
        cmocka_unit_test(with_checks_on_different_calls_are_named_on_both_sides),
        cmocka_unit_test(without_checks_two_ranks_that_wait_for_each_other_say_the_same),
        cmocka_unit_test(without_checks_a_difference_is_found_at_the_latest_in_the_next_operation),
        cmocka_unit_test(uneven_counts_that_differ_are_named),
        cmocka_unit_test(a_limit_names_who_did_not_come),
        cmocka_unit_test(abort_ends_all_ranks_also_while_they_wait),
        cmocka_unit_test(the_next_operation_says_who_left),
        cmocka_unit_test(an_operation_done_by_all_survives_a_rank_that_leaves),
        cmocka_unit_test(a_message_that_was_sent_arrives_though_its_sender_left),
        cmocka_unit_test(what_is_still_on_its_way_counts_though_its_sender_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
