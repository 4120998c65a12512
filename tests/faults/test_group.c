/* test_group.c: ranks as processes that die, leave, stop and fork: who is left ends at once with an error that names who is
 * gone, and nothing remains. */
#include "faults/group_kills.h"

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
    kill_rounds_at("shm.share.gathered", 0, 1);
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
    kill_at_random_moments(50);
}

static void every_algorithm_runs_between_processes(void **state) {
    (void)state;
    run_between_processes("20");
}

static void a_rank_killed_while_groups_are_made_of_a_group_is_named_at_once(void **state) {
    (void)state;
    static const char *const steps[] = {"shm.share.published", "shm.share.mapped", "shm.share.met", "shm.leaving.said"};
    kill_while_relatives_form(steps, 4);
}

static void a_forked_child_holds_nothing_and_hides_no_death(void **state) {
    (void)state;
    fork_and_die("child: LS_ERR_FORKED, 0 descriptors, 0 mappings: rank 1: this group was opened before fork");
}

static void a_stopped_rank_that_wakes_touches_nothing_of_the_new_group(void **state) {
    (void)state;
    stop_and_go_on("last done operation 2)");
}

static void a_stopped_rank_that_wakes_touches_no_other_group(void **state) {
    (void)state;
    stop_in_one_of_several_groups();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_runs_between_processes),
        cmocka_unit_test(a_rank_killed_at_any_point_is_named_at_once),
        cmocka_unit_test(a_rank_killed_while_memory_or_a_duplicate_is_shared_is_named),
        cmocka_unit_test(a_rank_killed_in_the_middle_of_64_mib_is_named_at_once),
        cmocka_unit_test(a_rank_killed_at_any_moment_is_named_at_once),
        cmocka_unit_test(a_rank_killed_while_groups_are_made_of_a_group_is_named_at_once),
        cmocka_unit_test(a_long_wait_takes_under_a_twentieth_of_a_processor),
        cmocka_unit_test(a_forked_child_holds_nothing_and_hides_no_death),
        cmocka_unit_test(a_stopped_rank_that_wakes_touches_nothing_of_the_new_group),
        cmocka_unit_test(a_stopped_rank_that_wakes_touches_no_other_group),
        cmocka_unit_test(an_exit_without_a_close_is_clean),
    };
    if (!make_temporary()) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_temporary();
    return failed;
}
