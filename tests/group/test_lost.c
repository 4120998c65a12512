/* test_lost.c: a group is lost: by a mismatch, a limit, an abort, a rank that leaves. Every rank gets an error that names
 * what happened, at once, and so does every later call: over every backend. What tcp alone does: test_tcp_lost.c. */
#include "support/threads.h"

#include "base/clock.h"
#include "base/wait.h"
#include "group/backend.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A further one is a line. */
static const struct lost_backend {
    const ls_backend *backend;
    bool compares_all; /* calls, also without being asked to */
    int64_t limit_ms;  /* of the tests of limits: long enough for an opening on a busy machine */
    const char *within, *last_seen;
} backends[] = {{&shm_backend, true, 700, "within 700 ms; missing: rank 2 (", "last done operation 1)"},
                {&tcp_backend, false, 2000, "within 2000 ms; missing: ", "last heard of in operation "}};

/* What the ranks of the test under way open. */
static const struct lost_backend *over;

static ls_group *open_over(const ls_rank *rank, int64_t timeout_ms) {
    ls_group *group = NULL;
    ls_group_options options = rank_options(rank);
    if (timeout_ms) options.timeout_ms = timeout_ms;
    assert_ok(group_open_backend(&group, &options, over->backend));
    return group;
}

/* Over each backend, `times` times. */
static void run_over_all(int times, int world_size, void (*body)(const ls_rank *rank), void *argument) {
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        over = &backends[i];
        for (int time = 0; time < times; time++) run_ranks(world_size, body, argument);
    }
}

/* --- mismatches ------------------------------------------------------------------------------------------------------- */

/* shm compares all calls by itself. */
static int check_calls(void **state) {
    (void)state;
    return setenv("LOCKSTEP_DEBUG", "detail", 1);
}

static int check_nothing(void **state) {
    (void)state;
    return unsetenv("LOCKSTEP_DEBUG");
}

/* Where calls are not compared, who has nothing to wait for may be through with its own, and learns of it in the next. */
static void expect_mismatch(ls_group *group, ls_status status, bool may_be_through) {
    if (status == LS_OK && may_be_through && !over->compares_all) status = ls_group_barrier(group, NULL);
    assert_int_equal(status, LS_ERR_MISMATCH);
}

typedef struct pair {
    const char *said[2]; /* in the sentence, on all ranks */
    group_call calls[2];
} pair;

typedef struct difference {
    const pair *both;
    int odd; /* this rank and those behind it call the second */
    bool may_be_through;
} difference;

static void call_one_of_a_pair(const ls_rank *rank) {
    const difference *between = rank->argument;
    const pair *both = between->both;
    ls_group *group = open_over(rank, 0);
    double data[64] = {0}, receive[256];
    group_call call = both->calls[rank->rank >= between->odd];
    const bool is_apart = call.kind == GROUP_ALL_GATHER || call.kind == GROUP_GATHER || call.kind == GROUP_SCATTER;
    call.data = is_apart ? receive : data;
    call.send = is_apart ? data : NULL;
    char expected[300];
    snprintf(expected, sizeof expected, "rank 0 called %s, rank %d %s, operation 2;", both->said[0], between->odd,
             both->said[1]);
    assert_ok(ls_group_barrier(group, NULL));
    expect_mismatch(group, group_post(group, &call, NULL), between->may_be_through);
    assert_error_says(expected);
    /* Later calls fail at once with the same sentence, whatever they are. */
    ls_work *work = NULL;
    void *memory = NULL;
    ls_group *copy = NULL;
    assert_int_equal(ls_group_barrier(group, NULL), LS_ERR_MISMATCH);
    assert_int_equal(ls_group_all_reduce(group, data, 1, LS_F64, LS_SUM, &work), LS_ERR_MISMATCH);
    assert_null(work);
    assert_int_equal(ls_group_alloc(group, 100, &memory), LS_ERR_MISMATCH);
    assert_int_equal(ls_group_duplicate(&copy, group), LS_ERR_MISMATCH);
    assert_error_says(expected);
    ls_group_close(&group);
}

#define REDUCE(n, type, how) \
    { .kind = GROUP_ALL_REDUCE, .count = (n), .dtype = (type), .op = (how) }
#define ROOTED(what, n, rank) \
    { .kind = (what), .count = (n), .root = (rank) }

static const pair pairs[] = {
    {{"all-reduce of 10 f32 sum", "all-reduce of 11 f32 sum"},
     {REDUCE(10, LS_F32, LS_SUM), REDUCE(11, LS_F32, LS_SUM)}},
    {{"all-reduce of 10 f32 sum", "all-reduce of 10 f64 sum"},
     {REDUCE(10, LS_F32, LS_SUM), REDUCE(10, LS_F64, LS_SUM)}},
    {{"all-reduce of 10 f32 sum", "all-reduce of 10 f32 max"},
     {REDUCE(10, LS_F32, LS_SUM), REDUCE(10, LS_F32, LS_MAX)}},
    {{"all-gather of 4 i64", "barrier"},
     {{.kind = GROUP_ALL_GATHER, .count = 4, .dtype = LS_I64}, {.kind = GROUP_BARRIER}}},
    {{"barrier (\"save\", tag 0x1)", "barrier (\"end\", tag 0x2)"},
     {{.kind = GROUP_BARRIER, .tag = 1, .name = "save"}, {.kind = GROUP_BARRIER, .tag = 2, .name = "end"}}},
    {{"all-reduce of 4 u8 bitwise or (tag 0x501)", "all-reduce of 4 u8 bitwise or"},
     {{.kind = GROUP_ALL_REDUCE, .count = 4, .dtype = LS_U8, .op = LS_BITWISE_OR, .tag = 0x501},
      REDUCE(4, LS_U8, LS_BITWISE_OR)}},
    {{"reduce of 4 f32 sum to rank 0", "reduce of 4 f32 sum to rank 1"},
     {ROOTED(GROUP_REDUCE, 4, 0), ROOTED(GROUP_REDUCE, 4, 1)}},
    {{"gather of 4 f32 to rank 0", "scatter of 4 f32 from rank 0"},
     {ROOTED(GROUP_GATHER, 4, 0), ROOTED(GROUP_SCATTER, 4, 0)}},
    {{"gather of 4 f32 to rank 0", "gather of 4 f32 to rank 1"},
     {ROOTED(GROUP_GATHER, 4, 0), ROOTED(GROUP_GATHER, 4, 1)}},
    {{"broadcast of 10 f32 from rank 0", "broadcast of 10 f32 from rank 1"},
     {ROOTED(GROUP_BROADCAST, 10, 0), ROOTED(GROUP_BROADCAST, 10, 1)}},
};

static void different_calls_are_named_on_all_ranks(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (int world_size = 2; world_size <= 3; world_size++)
            for (int odd = 1; odd < world_size; odd++) {
                difference between = {.both = &pairs[i], .odd = odd};
                run_over_all(1, world_size, call_one_of_a_pair, &between);
            }
}

static void two_ranks_that_call_apart_say_the_same_without_checks(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        /* Each has all it needs for its own broadcast. */
        const bool is_one_sided = pairs[i].calls[0].kind == GROUP_BROADCAST;
        difference between = {.both = &pairs[i], .odd = 1, .may_be_through = is_one_sided};
        run_over_all(is_one_sided ? 10 : 1, 2, call_one_of_a_pair, &between);
    }
}

static void count_unevenly(const ls_rank *rank) {
    ls_group *group = open_over(rank, 0);
    float send[64] = {0}, receive[64] = {0};
    size_t sends[3] = {1, 1, 1}, receives[3] = {1, 1, 1};
    if (rank->rank == 1) sends[2] = 5;
    expect_mismatch(group, ls_group_all_to_all_uneven(group, send, sends, receive, receives, LS_F32, NULL), true);
    assert_error_says("rank 1 sends 5 elements to rank 2, which expects 1 of it");
    ls_group_close(&group);
}

static void uneven_counts_that_differ_are_named(void **state) {
    (void)state;
    run_over_all(1, 3, count_unevenly, NULL);
}

/* One that needs no meeting of its data against one that does: large against small. */
static void large_against_small(const ls_rank *rank) {
    ls_group *group = open_over(rank, 0);
    const size_t count = rank->rank == 1 ? 1 << 20 : 5;
    float *data = calloc(1 << 20, sizeof *data);
    ls_work *work = NULL;
    for (int i = 0; i < 1 << 20; i++) data[i] = (float)(1 + rank->rank);
    /* The others see each other's calls first, and wait for its call all the same. */
    if (rank->rank == 0) ls_sleep_until(ls_now_ns() + 50 * LS_NS_PER_MS);
    assert_ok(ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, &work));
    assert_int_equal(ls_work_wait(work, 0), LS_ERR_MISMATCH);
    assert_error_says("rank 0 called all-reduce of 5 f32 sum, rank 1 all-reduce of 1048576 f32 sum, operation 1");
    assert_true(ls_work_is_complete(work));
    ls_work_close(&work);
    for (int i = 0; i < 1 << 20; i++) assert_true(data[i] == (float)(1 + rank->rank)); /* nothing has moved */
    free(data);
    ls_group_close(&group);
}

static void sizes_that_take_different_paths_are_a_mismatch_too(void **state) {
    (void)state;
    run_over_all(1, 3, large_against_small, NULL);
}

static void allocate_different_sizes(const ls_rank *rank) {
    ls_group *group = open_over(rank, 0);
    void *memory = NULL;
    assert_int_equal(ls_group_alloc(group, 4096 + (size_t)rank->rank, &memory), LS_ERR_MISMATCH);
    assert_null(memory);
    assert_error_says("rank 0 called allocation of 4096 bytes, rank 1 allocation of 4097 bytes");
    ls_group_close(&group);
}

static void allocations_of_different_sizes_are_a_mismatch(void **state) {
    (void)state;
    run_over_all(1, 2, allocate_different_sizes, NULL);
}

/* --- limits ----------------------------------------------------------------------------------------------------------- */

typedef struct lateness {
    bool is_async, is_large;
    _Atomic int sentences; /* ranks that have named the missing one */
} lateness;

/* Rank 2 comes after the limit. */
static void rank_2_is_late(const ls_rank *rank) {
    lateness *late = rank->argument;
    ls_group *group = open_over(rank, over->limit_ms);
    assert_ok(ls_group_barrier(group, NULL));
    const size_t count = late->is_large ? 1 << 18 : 4;
    float *data = calloc(count, sizeof *data);
    if (rank->rank == 2) {
        while (atomic_load(&late->sentences) < 3) ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
        assert_int_equal(ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, NULL), LS_ERR_ABORTED);
    } else {
        const int64_t start_ns = ls_now_ns();
        ls_work *work = NULL;
        ls_status status = ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, late->is_async ? &work : NULL);
        if (late->is_async) status = ls_work_wait(work, LS_FOREVER);
        ls_work_close(&work);
        assert_int_equal(status, LS_ERR_ABORTED);
        assert_true(ls_now_ns() - start_ns > (over->limit_ms - 100) * LS_NS_PER_MS);
        assert_true(ls_now_ns() - start_ns < 10 * over->limit_ms * LS_NS_PER_MS);
        atomic_fetch_add(&late->sentences, 1);
    }
    assert_error_says(late->is_large ? "operation 2, all-reduce of 262144 f32 sum"
                                     : "operation 2, all-reduce of 4 f32 sum");
    assert_error_says(over->within);
    char who[128] = "rank 2 (", *end = who + strlen(who);
    assert_int_equal(gethostname(end, 64), 0);
    snprintf(end + strlen(end), 32, ", process %d, ", (int)getpid());
    assert_error_says(who);
    assert_error_says(over->last_seen);
    free(data);
    ls_group_close(&group);
}

static void a_limit_names_who_did_not_come(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
        for (int is_large = 0; is_large < 2; is_large++) {
            lateness late = {.is_async = !is_large, .is_large = is_large};
            over = &backends[i];
            run_ranks(4, rank_2_is_late, &late);
        }
}

/* Nobody waits: the progress thread keeps the limit. */
static void nobody_waits(const ls_rank *rank) {
    ls_group *group = open_over(rank, over->limit_ms);
    if (rank->rank == 0) {
        ls_work *work = NULL;
        float value = 0;
        assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, &work));
        ls_sleep_until(ls_now_ns() + (over->limit_ms + 600) * LS_NS_PER_MS);
        assert_int_equal(ls_group_barrier(group, NULL), LS_ERR_ABORTED);
        assert_error_says("missing: rank 1");
        assert_int_equal(ls_work_wait(work, 0), LS_ERR_ABORTED);
        ls_work_close(&work);
    } else {
        ls_sleep_until(ls_now_ns() + (over->limit_ms + 600) * LS_NS_PER_MS);
    }
    ls_group_close(&group);
}

static void a_limit_holds_though_nobody_waits(void **state) {
    (void)state;
    run_over_all(1, 2, nobody_waits, NULL);
}

static void wait_shortly(const ls_rank *rank) {
    ls_group *group = open_over(rank, 0);
    float value = 1;
    ls_work *work = NULL;
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 1) ls_sleep_until(ls_now_ns() + 300 * LS_NS_PER_MS);
    assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, &work));
    if (rank->rank == 0) {
        assert_int_equal(ls_work_wait(work, 20), LS_ERR_TIMEOUT);
        assert_error_says("20 ms");
    }
    assert_ok(ls_work_wait(work, 0));
    assert_ok(ls_work_wait(work, 20)); /* again: it stays complete */
    ls_work_close(&work);
    assert_true(value == 2);
    ls_group_close(&group);
}

static void a_wait_that_expires_changes_nothing(void **state) {
    (void)state;
    run_over_all(1, 2, wait_shortly, NULL);
}

/* --- aborts and leaving ----------------------------------------------------------------------------------------------- */

static void *abort_later(void *group) {
    ls_sleep_until(ls_now_ns() + 100 * LS_NS_PER_MS);
    ls_group_abort(group, "the user has had enough");
    return NULL;
}

/* Rank 0 waits; another thread of it aborts. Rank 1 waits for rank 2 alone, in the barrier or for a message, and learns of it
 * though rank 2 comes only when both wait no more. */
static void abort_while_waiting(const ls_rank *rank) {
    const bool is_message = *(const bool *)rank->argument && rank->rank == 1;
    ls_group *group = open_over(rank, 0);
    pthread_t thread;
    char data = 0;
    const int64_t start_ns = ls_now_ns();
    if (rank->rank == 0) assert_int_equal(pthread_create(&thread, NULL, abort_later, group), 0);
    for (int peer = 0; peer < 2 && rank->rank == 2; peer++)
        assert_ok(ls_store_wait(rank->store, peer ? "1 is through" : "0 is through", 30000));
    assert_int_equal(is_message ? ls_group_receive(group, &data, 1, LS_I8, 2, 0, NULL, NULL)
                                : ls_group_barrier(group, NULL),
                     LS_ERR_ABORTED);
    assert_error_says("rank 0 aborted the group: the user has had enough");
    assert_true(ls_now_ns() - start_ns < 5 * LS_NS_PER_S);
    if (rank->rank != 2) assert_ok(ls_store_set(rank->store, rank->rank ? "1 is through" : "0 is through", "", 0));
    if (rank->rank == 0) pthread_join(thread, NULL);
    ls_group_abort(group, "too late to count");
    assert_int_equal(ls_group_barrier(group, NULL), LS_ERR_ABORTED);
    assert_error_says("the user has had enough");
    ls_group_close(&group);
}

static void abort_ends_all_ranks_also_while_they_wait(void **state) {
    (void)state;
    for (int is_message = 0; is_message < 2; is_message++) {
        bool message = is_message;
        run_over_all(1, 3, abort_while_waiting, &message);
    }
}

static void abort_a_monitored_barrier(const ls_rank *rank) {
    ls_group *group = open_over(rank, 0);
    pthread_t thread;
    if (rank->rank == 0) {
        assert_int_equal(pthread_create(&thread, NULL, abort_later, group), 0);
        assert_int_equal(ls_group_monitored_barrier(group, 30000), LS_ERR_ABORTED);
        pthread_join(thread, NULL);
        assert_ok(ls_store_set(rank->store, "through", "", 0));
    }
    assert_ok(ls_store_wait(rank->store, "through", 60000));
    ls_group_close(&group);
}

static void abort_ends_a_monitored_barrier(void **state) {
    (void)state;
    run_over_all(1, 2, abort_a_monitored_barrier, NULL);
}

static void leave_early(const ls_rank *rank) {
    const bool is_large = *(const bool *)rank->argument;
    ls_group *group = open_over(rank, 0);
    const size_t count = is_large ? 1 << 18 : 2;
    float *data = calloc(count, sizeof *data);
    assert_ok(ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, NULL));
    if (rank->rank == 1) {
        ls_group_close(&group);
        assert_null(group);
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
        run_over_all(10, 3, leave_early, &large);
    }
}

/* What is complete stays complete, whatever a rank does afterwards: also for a slow peer. */
static void leave_after_the_last(const ls_rank *rank) {
    ls_group *group = open_over(rank, 0);
    void *memory = NULL;
    assert_ok(ls_group_alloc(group, 1 << 20, &memory));
    memset(memory, 0, 1 << 20);
    ls_work *works[3];
    for (int i = 0; i < 3; i++)
        assert_ok(ls_group_all_reduce(group, (float *)memory + 1000 * i, 1000, LS_F32, LS_SUM, &works[i]));
    if (rank->rank == 1) ls_sleep_until(ls_now_ns() + 5 * LS_NS_PER_MS);
    for (int i = 0; i < 3; i++) {
        assert_ok(ls_work_wait(works[i], 0));
        ls_work_close(&works[i]);
    }
    ls_group_close(&group);
}

static void an_operation_done_by_all_survives_a_rank_that_leaves(void **state) {
    (void)state;
    run_over_all(25, 2, leave_after_the_last, NULL);
}

static void close_with_pending(const ls_rank *rank) {
    ls_group *group = open_over(rank, 0);
    float value = 1;
    ls_work *works[4];
    if (rank->rank == 0) {
        for (int i = 0; i < 4; i++) assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, &works[i]));
        ls_group_close(&group);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(ls_work_wait(works[i], 0), LS_ERR_ABORTED);
            assert_error_says("rank 0 closed the group");
            ls_work_close(&works[i]);
        }
    } else {
        ls_sleep_until(ls_now_ns() + 20 * LS_NS_PER_MS);
        ls_group_close(&group);
    }
}

static void pending_work_of_a_closed_group_is_aborted(void **state) {
    (void)state;
    run_over_all(20, 2, close_with_pending, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(different_calls_are_named_on_all_ranks, check_calls, check_nothing),
        cmocka_unit_test(two_ranks_that_call_apart_say_the_same_without_checks),
        cmocka_unit_test(uneven_counts_that_differ_are_named),
        cmocka_unit_test_setup_teardown(sizes_that_take_different_paths_are_a_mismatch_too, check_calls, check_nothing),
        cmocka_unit_test(allocations_of_different_sizes_are_a_mismatch),
        cmocka_unit_test(a_limit_names_who_did_not_come),
        cmocka_unit_test(a_limit_holds_though_nobody_waits),
        cmocka_unit_test(a_wait_that_expires_changes_nothing),
        cmocka_unit_test(abort_ends_all_ranks_also_while_they_wait),
        cmocka_unit_test(abort_ends_a_monitored_barrier),
        cmocka_unit_test(the_next_operation_says_who_left),
        cmocka_unit_test(an_operation_done_by_all_survives_a_rank_that_leaves),
        cmocka_unit_test(pending_work_of_a_closed_group_is_aborted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
