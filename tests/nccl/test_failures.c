/* test_failures.c: an operation over NCCL that fails, hangs or is aborted ends on every rank with a sentence, and nothing runs
 * on or is left. */
#include "nccl/on_gpus.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "store/backend.h"

#include <pthread.h>

#define SOON_MS 4000

static ls_group *open_with_limit(const ls_rank *rank, int64_t timeout_ms) {
    ls_group *group = NULL;
    ls_group_options options = gpu_options(rank);
    options.timeout_ms = timeout_ms;
    assert_ok(ls_group_open(&group, &options));
    return group;
}

static ls_status sum_four(ls_group *group, void *data) {
    return ls_group_all_reduce(group, data, 4, LS_F32, LS_SUM, NULL);
}

/* --- codes of NCCL's --------------------------------------------------------------------------------------------------- */

typedef struct code_case {
    nccl_result code;
    ls_status status;
    const char *said;
    bool is_asynchronous;
} code_case;

static const code_case codes[] = {
    {NCCL_CUDA_ERROR, LS_ERR_IO, "code 1, \"a CUDA error\"", false},
    {NCCL_SYSTEM_ERROR, LS_ERR_IO, "code 2, \"a system error\"", false},
    {NCCL_INTERNAL_ERROR, LS_ERR_IO, "code 3, \"an internal error\"", false},
    {NCCL_INVALID_ARGUMENT, LS_ERR_ARGUMENT, "code 4, \"an invalid argument\"", false},
    {NCCL_INVALID_USAGE, LS_ERR_STATE, "code 5, \"an invalid usage\"", false},
    {NCCL_REMOTE_ERROR, LS_ERR_PEER_LOST, "code 6, \"a remote error\"", false},
    {99, LS_ERR_IO, "code 99, \"an unknown error\"", false},
};

/* Rank 1 meets the error in its call, or rank 0 while it waits for rank 1; both have the same sentence. */
static void meet_code(const ls_rank *rank) {
    const code_case *meets = rank->argument;
    ls_group *group = open_on_gpu(rank);
    void *data = on_gpu(rank->rank, NULL, 16);
    char said[96];
    assert_ok(ls_group_barrier(group, NULL));
    /* Both have been in the barrier, rank 0 has begun the sum. */
    while (rank->rank == 1 && stand_in_calls("ncclAllReduce") < 3) ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
    if (rank->rank == 1 && meets->is_asynchronous) {
        stand_in_set_async_error(0, meets->code);
        assert_ok(ls_store_wait(rank->store, "rank 0 has failed", 0)); /* else it may be through after all */
    } else if (rank->rank == 1) {
        stand_in_fail("ncclAllReduce", 1, meets->code);
    }
    const ls_status status = sum_four(group, data);
    assert_int_equal(status, meets->status);
    snprintf(said, sizeof said, "rank %d: operation 2, all-reduce of 4 f32 sum: NCCL failed with",
             meets->is_asynchronous ? 0 : 1);
    assert_error_says(said);
    assert_error_says(meets->said);
    assert_error_says("the stand-in's last words");
    assert_error_says("NCCL_DEBUG=WARN tells more");
    if (rank->rank == 0) assert_ok(ls_store_set(rank->store, "rank 0 has failed", "", 0));
    /* The group is lost: the same sentence again. */
    assert_int_equal(ls_group_barrier(group, NULL), meets->status);
    assert_error_says(meets->said);
    ls_group_close(&group);
    stand_in_free(data);
}

static void every_code_of_nccl_is_a_status_and_a_sentence_on_all_ranks(void **state) {
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        code_case asynchronous = codes[i];
        asynchronous.is_asynchronous = true;
        start_anew(state);
        run_ranks(2, meet_code, (void *)&codes[i]);
        assert_true(stand_in_has_failed());
        nothing_is_left(state);
        start_anew(state);
        run_ranks(2, meet_code, &asynchronous);
        nothing_is_left(state);
    }
}

/* --- CUDA's ------------------------------------------------------------------------------------------------------------ */

typedef struct failing_call {
    const char *function;
    bool is_of_host_memory;
} failing_call;

static void meet_failing_call(const ls_rank *rank) {
    const failing_call *failing = rank->argument;
    ls_group *group = open_on_gpu(rank);
    float own[4] = {1, 2, 3, 4}, gathered[4];
    char *data = on_gpu(rank->rank, NULL, 64);
    stand_in_fail(failing->function, 1, 700);
    const ls_status status = failing->is_of_host_memory ? ls_group_all_gather(group, own, gathered, 4, LS_F32, NULL)
                                                        : ls_group_gather(group, data, data + 16, 4, LS_F32, 0, NULL);
    assert_int_equal(status, LS_ERR_IO);
    assert_error_says("rank 0: operation 1, ");
    assert_error_says(": CUDA failed on GPU 0 with code 700, \"an illegal address\"");
    ls_group_close(&group);
    stand_in_free(data);
}

static void every_call_of_cuda_that_fails_is_an_error(void **state) {
    static const failing_call failing[] = {
        {"cuEventRecord", false},        {"cuStreamWaitEvent", false},   {"cuEventQuery", false},
        {"cuMemcpyDtoDAsync_v2", false}, {"cuMemcpyHtoDAsync_v2", true}, {"cuMemcpyDtoHAsync_v2", true},
    };
    for (size_t i = 0; i < sizeof failing / sizeof failing[0]; i++) {
        start_anew(state);
        run_ranks(1, meet_failing_call, (void *)&failing[i]);
        assert_true(stand_in_has_failed());
        nothing_is_left(state);
    }
}

/* A send of a group that fails must not leave the group open: the thread's next calls would be part of it. */
static void meet_failing_send(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    char *send = on_gpu(rank->rank, NULL, 64), *receive = on_gpu(rank->rank, NULL, 64);
    assert_int_equal(ls_group_all_to_all(group, send, receive, 4, LS_F32, NULL), LS_ERR_IO);
    assert_error_says("all-to-all of 4 f32: NCCL failed with code 2");
    ls_group_close(&group);
    ls_store *store = NULL;
    const ls_rank anew = {.rank = 0, .world_size = 1};
    group = open_on_gpu(&anew);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
    ls_store_close(&store);
    stand_in_free(send);
    stand_in_free(receive);
}

static void a_group_of_sends_that_fails_is_ended(void **state) {
    (void)state;
    stand_in_fail("ncclSend", 1, NCCL_SYSTEM_ERROR);
    run_ranks(2, meet_failing_send, NULL);
    assert_int_equal(stand_in_calls("ncclGroupStart"), stand_in_calls("ncclGroupEnd"));
}

/* --- who does not come ------------------------------------------------------------------------------------------------- */

static void two_do_not_come(const ls_rank *rank) {
    ls_group *group = open_with_limit(rank, SOON_MS);
    void *data = on_gpu(rank->rank, NULL, 16);
    if (rank->rank % 2 == 0) {
        const ls_status status = sum_four(group, data);
        assert_int_equal(status, LS_ERR_ABORTED);
        assert_error_says("operation 1, all-reduce of 4 f32 sum, was not complete within 4000 ms");
        assert_error_says("missing: rank 1, rank 3;");
        assert_ok(ls_store_add(rank->store, "through", 1, NULL));
    } else {
        int64_t through = 0;
        while (through < 2) {
            assert_ok(ls_store_add(rank->store, "through", 0, &through));
            ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
        }
        assert_int_not_equal(sum_four(group, data), LS_OK);
        assert_error_says("was not complete within 4000 ms");
    }
    ls_group_close(&group);
    stand_in_free(data);
}

static void ranks_that_do_not_come_to_an_operation_are_named(void **state) {
    (void)state;
    run_ranks(4, two_do_not_come, NULL);
}

static void one_leaves(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    void *data = on_gpu(rank->rank, NULL, 16);
    assert_ok(sum_four(group, data));
    if (rank->rank == 1) {
        ls_group_close(&group);
    } else {
        const int64_t start_ns = ls_now_ns();
        assert_int_equal(sum_four(group, data), LS_ERR_PEER_LOST);
        assert_true(ls_now_ns() - start_ns < 30 * LS_NS_PER_S);
        assert_error_says("rank 1 (");
        assert_error_says("left the group before it had done its part of operation 2, all-reduce of 4 f32 sum");
    }
    ls_group_close(&group);
    stand_in_free(data);
}

static void a_rank_that_leaves_is_named(void **state) {
    (void)state;
    run_ranks(3, one_leaves, NULL);
}

/* A view of a store, whose server may fall ill. */
typedef struct ailing_store {
    ls_store head;
    ls_store *whole;
} ailing_store;

static void ailing_close(ls_store *store) {
    ls_store_close(&((ailing_store *)store)->whole);
    free(store);
}

static ls_store *view_of(ls_store *whole, const store_backend *backend) {
    ailing_store *store = calloc(1, sizeof *store);
    assert_non_null(store);
    store_init(&store->head, backend);
    store->whole = ls_store_keep(whole);
    return &store->head;
}

/* As those of real jobs do, it ends all waits when a rank is gone. */
static _Atomic bool is_rank_gone;

static ls_status watching_call(ls_store *store, const store_request *request, store_reply *reply, int64_t deadline_ns) {
    ls_store *whole = ((ailing_store *)store)->whole;
    if (request->operation == STORE_GET && atomic_load(&is_rank_gone))
        return ls_fail(LS_ERR_PEER_LOST, "rank 1 (box, process 7) is gone: its connection to the store has ended");
    return whole->backend->call(whole, request, reply, deadline_ns);
}

static void lose_a_rank(const ls_rank *rank) {
    static const store_backend watching = {.call = watching_call, .close = ailing_close};
    ls_rank watcher = *rank;
    watcher.store = view_of(rank->store, &watching);
    ls_group *group = open_on_gpu(&watcher);
    void *data = on_gpu(rank->rank, NULL, 16);
    if (rank->rank == 0) {
        const int64_t start_ns = ls_now_ns();
        assert_int_equal(sum_four(group, data), LS_ERR_PEER_LOST);
        assert_true(ls_now_ns() - start_ns < 30 * LS_NS_PER_S);
        assert_error_says("rank 1 (box, process 7) is gone");
        assert_ok(ls_store_set(rank->store, "seen", "", 0));
    } else {
        while (stand_in_calls("ncclAllReduce") < 1) ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
        atomic_store(&is_rank_gone, true);
        assert_ok(ls_store_wait(rank->store, "seen", 0));
    }
    ls_group_close(&group);
    ls_store_close(&watcher.store);
    stand_in_free(data);
}

static void a_rank_that_the_store_has_lost_is_named(void **state) {
    (void)state;
    atomic_store(&is_rank_gone, false);
    run_ranks(2, lose_a_rank, NULL);
}

/* Stopped, it answers nobody; who waits for it has a limit of seconds, not the half hour that is a store's own. */
static _Atomic bool is_store_stopped;
static _Atomic int told, left;

static ls_status stopped_call(ls_store *store, const store_request *request, store_reply *reply, int64_t deadline_ns) {
    ls_store *whole = ((ailing_store *)store)->whole;
    if (!atomic_load(&is_store_stopped)) return whole->backend->call(whole, request, reply, deadline_ns);
    assert_true(deadline_ns - ls_now_ns() < 20 * LS_NS_PER_S);
    ls_sleep_until(deadline_ns);
    if (request->operation == STORE_SET) atomic_fetch_add(&told, 1);
    if (request->operation == STORE_COMPARE_SET || request->operation == STORE_ADD) atomic_fetch_add(&left, 1);
    return LS_ERR_TIMEOUT;
}

static void outlive_the_store(const ls_rank *rank) {
    static const store_backend stopping = {.call = stopped_call, .close = ailing_close};
    ls_rank mute = *rank;
    mute.store = view_of(rank->store, &stopping);
    ls_group *group = open_on_gpu(rank->rank == 0 ? &mute : rank);
    if (rank->rank == 0) {
        void *data = on_gpu(rank->rank, NULL, 16);
        ls_work *work = NULL;
        atomic_store(&is_store_stopped, true);
        assert_ok(ls_group_all_reduce(group, data, 4, LS_F32, LS_SUM, &work));
        while (atomic_load(&told) == 0) assert_int_equal(ls_work_wait(work, 50), LS_ERR_TIMEOUT);
        ls_group_close(&group);
        assert_int_equal(atomic_load(&left), 2);
        assert_ok(ls_store_set(rank->store, "outlived", "", 0));
        ls_work_close(&work);
        stand_in_free(data);
    }
    assert_ok(ls_store_wait(rank->store, "outlived", 0));
    ls_group_close(&group);
    ls_store_close(&mute.store);
}

static void a_store_that_is_stopped_holds_up_neither_who_waits_nor_who_leaves(void **state) {
    (void)state;
    atomic_store(&is_store_stopped, false);
    run_ranks(2, outlive_the_store, NULL);
}

/* --- abort ------------------------------------------------------------------------------------------------------------- */

static void *abort_soon(void *argument) {
    ls_group_abort(argument, "enough");
    return NULL;
}

static void abort_while_waiting(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    void *data = on_gpu(rank->rank, NULL, 16);
    pthread_t thread;
    if (rank->rank == 0) {
        ls_work *work = NULL;
        assert_ok(ls_group_all_reduce(group, data, 4, LS_F32, LS_SUM, &work));
        assert_int_equal(ls_work_wait(work, 50), LS_ERR_TIMEOUT);
        assert_int_equal(pthread_create(&thread, NULL, abort_soon, group), 0);
        assert_int_equal(ls_work_wait(work, 0), LS_ERR_ABORTED);
        assert_error_says("rank 0 aborted the group: enough");
        pthread_join(thread, NULL);
        ls_work_close(&work);
        assert_ok(ls_store_set(rank->store, "aborted", "", 0));
    } else {
        assert_ok(ls_store_wait(rank->store, "aborted", 0));
        assert_int_equal(sum_four(group, data), LS_ERR_ABORTED);
        assert_error_says("rank 0 aborted the group: enough");
    }
    ls_group_close(&group);
    stand_in_free(data);
}

static void an_abort_from_another_thread_ends_what_runs_on_every_gpu(void **state) {
    (void)state;
    run_ranks(2, abort_while_waiting, NULL);
    assert_true(stand_in_calls("ncclCommAbort") >= 2);
}

/* --- calls that differ ------------------------------------------------------------------------------------------------- */

static void call_unlike(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    void *data = on_gpu(rank->rank, NULL, 64);
    assert_int_equal(ls_group_all_reduce(group, data, rank->rank == 2 ? 4 : 8, LS_F32, LS_SUM, NULL), LS_ERR_MISMATCH);
    assert_error_says("rank 0 called all-reduce of 8 f32 sum, rank 2 all-reduce of 4 f32 sum, operation 1");
    ls_group_close(&group);
    stand_in_free(data);
}

static void with_checks_calls_that_differ_are_named(void **state) {
    (void)state;
    setenv("LOCKSTEP_DEBUG", "detail", 1);
    run_ranks(3, call_unlike, NULL);
}

static void count_unlike(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    char *send = on_gpu(rank->rank, NULL, 64), *receive = on_gpu(rank->rank, NULL, 64);
    const size_t sent[] = {1, 2}, received[] = {1, rank->rank ? 2 : 1};
    const ls_status status = ls_group_all_to_all_uneven(group, send, sent, receive, received, LS_F32, NULL);
    assert_int_equal(status, LS_ERR_MISMATCH);
    assert_error_says("rank 0 sends 2 elements to rank 1, which expects 1 of it, operation 1, uneven all-to-all");
    ls_group_close(&group);
    stand_in_free(send);
    stand_in_free(receive);
}

static void counts_of_an_uneven_all_to_all_that_differ_are_named(void **state) {
    (void)state;
    run_ranks(2, count_unlike, NULL);
}

/* --- closing ----------------------------------------------------------------------------------------------------------- */

static void close_what_does_not_end(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    stand_in_hold_endings(true);
    const int64_t start_ns = ls_now_ns();
    ls_group_close(&group);
    assert_true(ls_now_ns() - start_ns < 60 * LS_NS_PER_S);
}

static void closing_ends_though_nccl_does_not(void **state) {
    (void)state;
    run_ranks(2, close_what_does_not_end, NULL);
    assert_int_equal(stand_in_calls("ncclCommAbort"), 2);
    assert_int_equal(stand_in_calls("ncclCommDestroy"), 0);
}

static void close_in_order(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
}

static void a_group_in_good_health_is_finalized_and_not_aborted(void **state) {
    (void)state;
    run_ranks(2, close_in_order, NULL);
    assert_int_equal(stand_in_calls("ncclCommAbort"), 0);
    assert_int_equal(stand_in_calls("ncclCommDestroy"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        gpu_test(every_code_of_nccl_is_a_status_and_a_sentence_on_all_ranks),
        gpu_test(every_call_of_cuda_that_fails_is_an_error),
        gpu_test(a_group_of_sends_that_fails_is_ended),
        gpu_test(ranks_that_do_not_come_to_an_operation_are_named),
        gpu_test(a_rank_that_leaves_is_named),
        gpu_test(a_rank_that_the_store_has_lost_is_named),
        gpu_test(a_store_that_is_stopped_holds_up_neither_who_waits_nor_who_leaves),
        gpu_test(an_abort_from_another_thread_ends_what_runs_on_every_gpu),
        gpu_test(with_checks_calls_that_differ_are_named),
        gpu_test(counts_of_an_uneven_all_to_all_that_differ_are_named),
        gpu_test(closing_ends_though_nccl_does_not),
        gpu_test(a_group_in_good_health_is_finalized_and_not_aborted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
