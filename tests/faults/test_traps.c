/* test_traps.c: starts and ends that trip other libraries up, with ranks as processes: wrong places, opening again and
 * again, a kill in a large operation, closing beside a stopped rank, ending without a close. */
#include "faults/kills.h"

#define WORKER LS_TEST_BIN_DIR "/worker_traps"

/* Runs `text` by a shell as each of two ranks, the first failure ending the rest soon. */
static ls_ranks *run_shell(const char *text) {
    const char *arguments[] = {"-c", text, NULL};
    return ls_ranks_run(&(ls_ranks_options){.ranks = 2, .program = "sh", .arguments = arguments, .linger_ms = 100});
}

static void expect_wrong_place(const char *text, int rank, const char *sentence) {
    const int64_t start_ns = ls_now_ns();
    ls_ranks *ranks = run_shell(text);
    assert_says(ranks, rank, "error LS_ERR_ENVIRONMENT");
    assert_says(ranks, rank, sentence);
    assert_int_equal(ls_ranks_job_exit_code(ranks), 3);
    assert_true(ls_now_ns() - start_ns < AT_ONCE_NS);
    ls_ranks_close(&ranks);
}

static void a_rank_given_twice_or_world_sizes_that_differ_are_named_at_once(void **state) {
    (void)state;
    expect_wrong_place("RANK=0 exec " WORKER " open", 1,
                       "RANK is \"0\" and WORLD_SIZE is \"2\", but `lockstep run` started this process as rank 1 of 2");
    expect_wrong_place("WORLD_SIZE=$((2 + RANK)) exec " WORKER " open", 1,
                       "RANK is \"1\" and WORLD_SIZE is \"3\", but `lockstep run` started this process as rank 1 of 2");
    expect_wrong_place("WORLD_SIZE=$((1 + RANK)) exec " WORKER " open", 0, "WORLD_SIZE is \"1\"");
    expect_wrong_place("[ $RANK = 0 ] || RANK=5; exec " WORKER " open", 1, "RANK is \"5\" and WORLD_SIZE is \"2\"");
    expect_wrong_place("[ $RANK = 0 ] || RANK=x; exec " WORKER " open", 1, "RANK is \"x\"");
    expect_wrong_place("[ $RANK = 0 ] || unset RANK; exec " WORKER " open", 1, "RANK is not set");
    expect_wrong_place("[ $RANK = 0 ] || unset WORLD_SIZE; exec " WORKER " open", 1, "WORLD_SIZE is not set");
}

static void a_rank_within_a_job_may_be_a_world_of_one(void **state) {
    (void)state;
    ls_ranks *ranks = run_shell("unset RANK WORLD_SIZE; exec " WORKER " open");
    assert_ranks_succeeded(ranks);
    ls_ranks_close(&ranks);
}

static void a_hundred_openings_over_the_launchers_store_leave_nothing(void **state) {
    (void)state;
    const char *arguments[] = {"reopen", NULL};
    const ls_ranks_options options = {.ranks = 3, .program = "worker_traps", .arguments = arguments};
    ls_ranks *ranks = ls_ranks_run(&options);
    assert_ranks_succeeded(ranks);
    for (int rank = 0; rank < 3; rank++) assert_says(ranks, rank, "keys +0, descriptors +0\n");
    ls_ranks_close(&ranks);
}

static void a_rank_killed_in_the_middle_of_64_mib_is_named_at_once(void **state) {
    (void)state;
    const unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < 6; i++)
        kill_at_some_moment("worker_traps", (const char *[]){"large", i % 2 ? "group" : "ordinary", NULL}, 100000);
}

static void close_beside_a_stopped_rank(const char *backend) {
    const char *arguments[] = {"stopped", NULL}, *environment[] = {backend, NULL};
    const ls_ranks_options options = {
        .ranks = 2, .program = "worker_traps", .arguments = arguments, .environment = environment};
    ls_ranks *ranks = ls_ranks_run(&options);
    assert_ranks_succeeded(ranks);
    for (int rank = 0; rank < 2; rank++) {
        long took_ms = -1;
        assert_int_equal(sscanf(ls_ranks_output(ranks, rank), "closed in %ld ms", &took_ms), 1);
        assert_true(took_ms < 5000);
    }
    ls_ranks_close(&ranks);
}

static void closing_does_not_wait_for_a_rank_that_is_stopped(void **state) {
    (void)state;
    close_beside_a_stopped_rank("LOCKSTEP_BACKEND=shm");
    close_beside_a_stopped_rank("LOCKSTEP_BACKEND=tcp");
}

static void a_program_that_closes_nothing_ends_well_and_leaves_nothing(void **state) {
    (void)state;
    const char *arguments[] = {"exit", NULL};
    scene before = look();
    const ls_ranks_options options = {.ranks = 2, .program = "worker_traps", .arguments = arguments};
    ls_ranks *ranks = ls_ranks_start(&options);
    for (int rank = 0; rank < 2; rank++) before.ranks[rank] = ls_ranks_pid(ranks, rank);
    ls_ranks_finish(ranks);
    assert_ranks_succeeded(ranks);
    for (int rank = 0; rank < 2; rank++) {
        assert_says(ranks, rank, "done");
        assert_string_equal(ls_ranks_errors(ranks, rank), "");
    }
    assert_int_equal(ls_ranks_job_exit_code(ranks), 0);
    ls_ranks_close(&ranks);
    assert_scene_is_clean(&before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_given_twice_or_world_sizes_that_differ_are_named_at_once),
        cmocka_unit_test(a_rank_within_a_job_may_be_a_world_of_one),
        cmocka_unit_test(a_hundred_openings_over_the_launchers_store_leave_nothing),
        cmocka_unit_test(a_rank_killed_in_the_middle_of_64_mib_is_named_at_once),
        cmocka_unit_test(closing_does_not_wait_for_a_rank_that_is_stopped),
        cmocka_unit_test(a_program_that_closes_nothing_ends_well_and_leaves_nothing),
    };
    if (!make_temporary()) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_temporary();
    return failed;
}
