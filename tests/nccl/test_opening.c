/* test_opening.c: a group over NCCL opens, or says on every rank why not, and leaves nothing. */
#include "nccl/on_gpus.h"

#include "base/clock.h"
#include "base/wait.h"

/* Long enough for ranks that do come, on a busy machine. */
#define SOON_MS 4000

static ls_status try_to_open(const ls_rank *rank, ls_group **group, int64_t timeout_ms) {
    ls_group_options options = gpu_options(rank);
    options.timeout_ms = timeout_ms;
    return ls_group_open(group, &options);
}

/* --- what is missing --------------------------------------------------------------------------------------------------- */

static void expect_no_group(const ls_rank *rank) {
    const char *const *said = rank->argument;
    ls_group *group = NULL;
    assert_int_equal(try_to_open(rank, &group, 60000), LS_ERR_UNSUPPORTED);
    assert_null(group);
    for (int i = 0; said[i]; i++) assert_error_says(said[i]);
}

static void an_nccl_that_is_too_old_is_named_with_both_versions(void **state) {
    (void)state;
    stand_in_set_version(21304);
    const char *said[] = {"libnccl.so.2 is NCCL 2.13.4", "2.14 or newer is needed", NULL};
    run_ranks(2, expect_no_group, (void *)said);
    stand_in_set_version(2708);
    const char *older[] = {"is NCCL 2.7.8", NULL};
    run_ranks(1, expect_no_group, (void *)older);
}

static void a_process_without_a_gpu_is_told_so(void **state) {
    (void)state;
    const char *said[] = {"needs a GPU, and this process has none (CUDA counts 0,", "CUDA_VISIBLE_DEVICES", NULL};
    stand_in_set_devices(0);
    run_ranks(2, expect_no_group, (void *)said);
    stand_in_set_devices(2);
    stand_in_fail("cuInit", 1, 100);
    const char *of_cuda[] = {
        "needs a GPU, and this process has none (CUDA counts 0, with code 100, \"no device is there\")", NULL};
    run_ranks(1, expect_no_group, (void *)of_cuda);
}

static void a_library_that_lacks_a_function_is_named(void **state) {
    (void)state;
    setenv("LOCKSTEP_NCCL", "libm.so.6", 1);
    const char *said[] = {"needs ncclGetVersion of libm.so.6, which has none", NULL};
    run_ranks(1, expect_no_group, (void *)said);
    setenv("LOCKSTEP_NCCL", "/nowhere/libnccl.so.2", 1);
    const char *absent[] = {"rank 0: the nccl backend needs /nowhere/libnccl.so.2, which cannot be opened",
                            "LOCKSTEP_NCCL names this file", NULL};
    run_ranks(2, expect_no_group, (void *)absent);
    unsetenv("LOCKSTEP_NCCL");
}

/* --- one rank's failure is everyone's ---------------------------------------------------------------------------------- */

typedef struct failing_call {
    const char *function;
    unsigned result;
    ls_status status;
    const char *said;
} failing_call;

static void expect_the_failure(const ls_rank *rank) {
    const failing_call *failing = rank->argument;
    ls_group *group = NULL;
    assert_int_equal(try_to_open(rank, &group, 60000), failing->status);
    assert_null(group);
    assert_error_says(failing->said);
}

/* Each call of an opening in turn: all ranks have the same sentence, nothing is left. */
static void a_call_that_fails_on_one_rank_fails_the_opening_on_all(void **state) {
    (void)state;
    static const failing_call failing[] = {
        {"ncclGetVersion", 2, LS_ERR_UNSUPPORTED, "does not tell its version"},
        {"cuDeviceGetCount", 100, LS_ERR_UNSUPPORTED, "no device is there"},
        {"cuCtxGetCurrent", 1, LS_ERR_IO, "asking for the current GPU"},
        {"cuDeviceGet", 1, LS_ERR_IO, "choosing a GPU: CUDA failed"},
        {"cuDevicePrimaryCtxRetain", 2, LS_ERR_MEMORY, "opening the GPU: CUDA failed"},
        {"cuCtxPushCurrent_v2", 1, LS_ERR_IO, "making the GPU current"},
        {"cuStreamCreate", 2, LS_ERR_MEMORY, "creating a stream"},
        {"cuEventCreate", 2, LS_ERR_MEMORY, "creating an event"},
        {"cuMemAlloc_v2", 2, LS_ERR_MEMORY, "allocating a stage: CUDA failed"},
        {"cuMemHostAlloc", 2, LS_ERR_MEMORY, "out of memory"},
        {"ncclGetUniqueId", NCCL_SYSTEM_ERROR, LS_ERR_IO, "rank 0: making the ranks' common id"},
        {"ncclCommInitRankConfig", NCCL_INTERNAL_ERROR, LS_ERR_IO, "connecting the ranks: NCCL failed with code 3"},
    };
    for (size_t i = 0; i < sizeof failing / sizeof failing[0]; i++) {
        stand_in_fail(failing[i].function, 1, failing[i].result);
        run_ranks(3, expect_the_failure, (void *)&failing[i]);
        assert_true(stand_in_has_failed());
        assert_int_equal(stand_in_live(), 0);
    }
}

static void expect_two_on_a_gpu(const ls_rank *rank) {
    ls_group *group = NULL;
    assert_int_equal(try_to_open(rank, &group, 60000), LS_ERR_STATE);
    assert_error_says("connecting the ranks: NCCL failed with code 5");
    assert_error_says("the stand-in's last words");
    assert_error_says("start one rank a GPU");
}

static void two_ranks_on_one_gpu_are_told_so(void **state) {
    (void)state;
    setenv("LOCAL_RANK", "3", 1);
    run_ranks(2, expect_two_on_a_gpu, NULL);
    unsetenv("LOCAL_RANK");
}

/* What rank 1 has in its environment, and rank 0, which looks there once rank 1 has said what it found. */
typedef struct unlike_checks {
    const char *of_rank[2], *said;
} unlike_checks;

static void open_with_other_checks(const ls_rank *rank) {
    const unlike_checks *unlike = rank->argument;
    ls_group *group = NULL;
    if (rank->rank == 0) assert_ok(ls_store_wait(rank->store, "lockstep/group/1/nccl/hello/1", 0));
    setenv("LOCKSTEP_DEBUG", unlike->of_rank[rank->rank], 1);
    assert_int_equal(try_to_open(rank, &group, 60000), LS_ERR_ENVIRONMENT);
    assert_error_says(unlike->said);
}

static void ranks_that_differ_about_checks_say_so(void **state) {
    (void)state;
    unlike_checks unlike[] = {
        {{"off", "detail"}, "rank 1 compares all calls, rank 0 does not: LOCKSTEP_DEBUG has to be the same"},
        {{"detail", "off"}, "rank 0 compares all calls, rank 1 does not: LOCKSTEP_DEBUG has to be the same"},
    };
    for (size_t i = 0; i < sizeof unlike / sizeof unlike[0]; i++) run_ranks(2, open_with_other_checks, &unlike[i]);
}

/* --- who does not come ------------------------------------------------------------------------------------------------- */

/* Sets of four ranks, one bit for each that does not come; all sets at the same time. */
static const unsigned absent[] = {1 << 2, 1 << 1 | 1 << 3, 1 << 0};
#define SETS (sizeof absent / sizeof absent[0])

static void all_but_some_open(const ls_rank *thread) {
    const size_t set = (size_t)thread->rank / 4;
    ls_store *const *stores = thread->argument;
    const ls_rank rank = {.rank = thread->rank % 4, .world_size = 4, .store = stores[set]};
    ls_group *group = NULL;
    if (absent[set] >> rank.rank & 1) return;
    assert_int_equal(try_to_open(&rank, &group, SOON_MS), LS_ERR_TIMEOUT);
    assert_error_says("not all of the 4 ranks opened the group within 4000 ms");
    char missing[64] = "missing: ";
    for (int other = 0, listed = 0; other < 4; other++)
        if (absent[set] >> other & 1)
            snprintf(missing + strlen(missing), sizeof missing - strlen(missing), "%srank %d", listed++ ? ", " : "",
                     other);
    snprintf(missing + strlen(missing), sizeof missing - strlen(missing), ";");
    assert_error_says(missing);
}

static void ranks_that_do_not_come_are_named(void **state) {
    (void)state;
    ls_store *stores[SETS] = {NULL};
    const int64_t start_ns = ls_now_ns();
    for (size_t i = 0; i < SETS; i++) assert_ok(ls_store_open_hash(&stores[i]));
    run_ranks(4 * (int)SETS, all_but_some_open, stores);
    assert_true(ls_now_ns() - start_ns < 60 * LS_NS_PER_S);
    for (size_t i = 0; i < SETS; i++) ls_store_close(&stores[i]);
}

static void open_in_vain(const ls_rank *rank) {
    ls_group *group = NULL;
    assert_int_equal(try_to_open(rank, &group, SOON_MS), LS_ERR_TIMEOUT);
    assert_error_says("NCCL has not connected the 2 ranks within 4000 ms, though all have begun to");
    assert_null(group);
}

static void an_init_that_never_ends_is_a_timeout(void **state) {
    (void)state;
    stand_in_hold_connections(true);
    run_ranks(2, open_in_vain, NULL);
}

static void leave_before_all_are_connected(const ls_rank *rank) {
    if (rank->rank == 1) {
        ls_group *early = open_on_gpu(rank);
        ls_group_close(&early);
        ls_sleep_until(ls_now_ns() + 300 * LS_NS_PER_MS); /* rank 0 looks into the store meanwhile */
        stand_in_set_async_error(0, 0);
        return;
    }
    stand_in_set_async_error(0, NCCL_IN_PROGRESS);
    ls_group *group = open_on_gpu(rank);
    assert_int_equal(ls_group_barrier(group, NULL), LS_ERR_PEER_LOST);
    assert_error_says("left the group before it had done its part of operation 1, barrier");
    ls_group_close(&group);
}

static void a_rank_may_leave_before_all_are_connected(void **state) {
    (void)state;
    run_ranks(2, leave_before_all_are_connected, NULL);
}

/* --- which GPU --------------------------------------------------------------------------------------------------------- */

static void open_with_device_current(const ls_rank *rank) {
    cuda_result cuDevicePrimaryCtxRetain(cuda_context *, cuda_device);
    cuda_result cuDevicePrimaryCtxRelease_v2(cuda_device);
    cuda_result cuCtxPushCurrent_v2(cuda_context);
    cuda_result cuCtxPopCurrent_v2(cuda_context *);
    const int device = 5 - rank->rank;
    const float one = 1, two = 2;
    cuda_context context = NULL;
    cuDevicePrimaryCtxRetain(&context, device);
    cuCtxPushCurrent_v2(context);
    ls_group *group = open_on_gpu(rank);
    void *data = on_gpu(device, &one, sizeof one);
    assert_ok(ls_group_all_reduce(group, data, 1, LS_F32, LS_SUM, NULL));
    assert_gpu_holds(data, &two, sizeof two);
    stand_in_free(data);
    ls_group_close(&group);
    assert_int_equal(stand_in_contexts(), 1); /* the program's own stays current */
    cuCtxPopCurrent_v2(&context);
    cuDevicePrimaryCtxRelease_v2(device);
}

static void the_group_is_on_the_gpu_that_the_thread_has_chosen(void **state) {
    (void)state;
    run_ranks(2, open_with_device_current, NULL);
}

static void open_on_the_second(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    const float one = 1;
    void *data = on_gpu(1, &one, sizeof one);
    assert_ok(ls_group_all_reduce(group, data, 1, LS_F32, LS_SUM, NULL));
    stand_in_free(data);
    ls_group_close(&group);
}

static void without_one_it_is_on_that_of_its_local_rank(void **state) {
    (void)state;
    setenv("LOCAL_RANK", "1", 1);
    run_ranks(1, open_on_the_second, NULL);
    setenv("LOCAL_RANK", "3", 1);
    stand_in_set_devices(2);
    run_ranks(1, open_on_the_second, NULL);
    unsetenv("LOCAL_RANK");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        gpu_test(an_nccl_that_is_too_old_is_named_with_both_versions),
        gpu_test(a_process_without_a_gpu_is_told_so),
        gpu_test(a_library_that_lacks_a_function_is_named),
        gpu_test(a_call_that_fails_on_one_rank_fails_the_opening_on_all),
        gpu_test(two_ranks_on_one_gpu_are_told_so),
        gpu_test(ranks_that_differ_about_checks_say_so),
        gpu_test(ranks_that_do_not_come_are_named),
        gpu_test(an_init_that_never_ends_is_a_timeout),
        gpu_test(a_rank_may_leave_before_all_are_connected),
        gpu_test(the_group_is_on_the_gpu_that_the_thread_has_chosen),
        gpu_test(without_one_it_is_on_that_of_its_local_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
