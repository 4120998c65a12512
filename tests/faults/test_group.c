/* test_group.c: ranks as processes that die, leave, stop and fork: who is left ends at once with an error that names who is
 * gone, and nothing remains. */
#include "faults/kills.h"
#include "group/points.h"

/* Rank `rank` also leaves at the end, so that it reaches the points of leaving. */
static void kill_rounds_at(const char *point, int rank, int count) {
    char closer[8];
    snprintf(closer, sizeof closer, "%d", rank);
    kill_at("worker_group", (const char *[]){"rounds", "3", closer, NULL}, point, rank, count);
}

static void a_rank_killed_at_any_point_is_named_at_once(void **state) {
    (void)state;
    for (int i = 0; i < GROUP_POINT_COUNT; i++)
        for (int rank = 0; rank < 2; rank++) kill_rounds_at(group_points[i], rank, 1);
}

/* The second sharing is of memory, the third of a duplicate. */
static void a_rank_killed_while_memory_or_a_duplicate_is_shared_is_named(void **state) {
    (void)state;
    static const char *const points[] = {"shm.share.published", "shm.share.mapped", "shm.share.met"};
    for (int i = 0; i < 3; i++)
        for (int count = 2; count <= 3; count++) kill_rounds_at(points[i], i % 2, count);
}

/* 64 MiB are 128 steps in memory of the group, 512 chunks in ordinary memory. */
static void a_rank_killed_in_the_middle_of_64_mib_is_named_at_once(void **state) {
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        kill_at("worker_group", (const char *[]){"large", NULL}, "shm.in_place.combined", rank, 60);
        kill_at("worker_group", (const char *[]){"large", NULL}, "shm.staged.combined", rank, 200);
    }
}

static void a_rank_killed_at_any_moment_is_named_at_once(void **state) {
    (void)state;
    const unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < 50; i++)
        kill_at_some_moment("worker_group", (const char *[]){"rounds", "1000000", "-1", NULL}, 30000);
}

static ls_ranks *run_mode(const char *mode, int count) {
    const char *arguments[] = {mode, NULL};
    return ls_ranks_run(&(ls_ranks_options){.ranks = count, .program = "worker_group", .arguments = arguments});
}

static void every_algorithm_runs_between_processes(void **state) {
    (void)state;
    const char *arguments[] = {"rounds", "20", "-1", NULL};
    for (int count = 2; count <= 4; count++) {
        const ls_ranks_options options = {.ranks = count, .program = "worker_group", .arguments = arguments};
        ls_ranks *ranks = ls_ranks_run(&options);
        assert_ranks_succeeded(ranks);
        for (int rank = 0; rank < count; rank++) assert_says(ranks, rank, "done");
        ls_ranks_close(&ranks);
    }
}

static void a_long_wait_takes_under_a_twentieth_of_a_processor(void **state) {
    (void)state;
    ls_ranks *ranks = run_mode("waits", 2);
    assert_ranks_succeeded(ranks);
    long waited_ms = 0, used_us = 0;
    assert_int_equal(sscanf(ls_ranks_output(ranks, 0), "waited %ld ms, used %ld us", &waited_ms, &used_us), 2);
    assert_true(waited_ms > 900);
    assert_true(used_us * 20 < waited_ms * 1000);
    ls_ranks_close(&ranks);
}

static void a_forked_child_holds_nothing_and_hides_no_death(void **state) {
    (void)state;
    const int64_t start_ns = ls_now_ns();
    ls_ranks *ranks = run_mode("forks", 2);
    assert_survivor_names(ranks, 0, 1);
    assert_says(ranks, 1, "child: LS_ERR_FORKED, 0 descriptors, 0 mappings: rank 1: this group was opened before fork");
    assert_true(ls_now_ns() - start_ns < AT_ONCE_NS);
    ls_ranks_close(&ranks);
}

static void a_stopped_rank_that_wakes_touches_nothing_of_the_new_group(void **state) {
    (void)state;
    ls_ranks *ranks = run_mode("stops", 3);
    for (int rank = 0; rank < 3; rank += 2) {
        assert_says(ranks, rank, "status LS_ERR_ABORTED");
        assert_says(ranks, rank, "missing: rank 1 (");
        assert_says(ranks, rank, "last done operation 2)");
        assert_says(ranks, rank, "new group untouched");
    }
    assert_says(ranks, 1, "status LS_ERR_ABORTED");
    assert_ranks_succeeded(ranks);
    ls_ranks_close(&ranks);
}

static void an_exit_without_a_close_is_clean(void **state) {
    (void)state;
    ls_ranks *ranks = run_mode("exits", 2);
    assert_ranks_succeeded(ranks);
    ls_ranks_close(&ranks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_runs_between_processes),
        cmocka_unit_test(a_rank_killed_at_any_point_is_named_at_once),
        cmocka_unit_test(a_rank_killed_while_memory_or_a_duplicate_is_shared_is_named),
        cmocka_unit_test(a_rank_killed_in_the_middle_of_64_mib_is_named_at_once),
        cmocka_unit_test(a_rank_killed_at_any_moment_is_named_at_once),
        cmocka_unit_test(a_long_wait_takes_under_a_twentieth_of_a_processor),
        cmocka_unit_test(a_forked_child_holds_nothing_and_hides_no_death),
        cmocka_unit_test(a_stopped_rank_that_wakes_touches_nothing_of_the_new_group),
        cmocka_unit_test(an_exit_without_a_close_is_clean),
    };
    if (!make_temporary()) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_temporary();
    return failed;
}
