/* test_tcp.c: ranks over tcp as processes that die, stop and fork: who is left ends at once with an error that names who is gone,
 * and nothing remains. */
#include "faults/group_kills.h"
#include "group/backend/tcp/points.h"

/* Passed with LOCKSTEP_DEBUG=detail alone. */
#define CALLS_SAID "tcp.calls.said"

static void a_rank_killed_at_any_point_is_named_at_once(void **state) {
    (void)state;
    for (int i = 0; i < TCP_POINT_COUNT; i++)
        for (int rank = 0; rank < 2 && strcmp(tcp_points[i], CALLS_SAID) != 0; rank++)
            kill_rounds_at(tcp_points[i], rank, 1);
}

/* All ranks' calls are compared first. */
static void with_checks_on_it_is_named_too(void **state) {
    (void)state;
    assert_int_equal(setenv("LOCKSTEP_DEBUG", "detail", 1), 0);
    for (int rank = 0; rank < 2; rank++) kill_rounds_at(CALLS_SAID, rank, 1);
    kill_rounds_at("tcp.chunk.received", 0, 1);
    kill_at_random_moments(5);
    unsetenv("LOCKSTEP_DEBUG");
}

/* The second meeting is of a duplicate; the second and fourth connection, and some chunk in the middle. */
static void a_rank_killed_later_on_is_named_too(void **state) {
    (void)state;
    kill_rounds_at("tcp.meeting.published", 1, 2);
    kill_rounds_at("tcp.meeting.met", 0, 2);
    kill_rounds_at("tcp.meeting.connected", 1, 2);
    kill_rounds_at("tcp.meeting.connected", 0, 4);
    kill_rounds_at("tcp.chunk.sent", 0, 7);
    kill_at("worker_group", (const char *[]){"large", NULL}, "tcp.chunk.received", 1, 100);
    kill_at("worker_group", (const char *[]){"large", NULL}, "tcp.chunk.sent", 0, 100);
}

static void a_rank_killed_while_groups_are_made_of_a_group_is_named_at_once(void **state) {
    (void)state;
    static const char *const steps[] = {"tcp.meeting.published", "tcp.meeting.listed", "tcp.meeting.met",
                                        "tcp.leaving.said"};
    kill_while_relatives_form(steps, 4);
}

static void a_rank_killed_at_any_moment_is_named_at_once(void **state) {
    (void)state;
    kill_at_random_moments(12);
}

static void every_operation_runs_between_processes(void **state) {
    (void)state;
    run_between_processes("5");
}

static void a_forked_child_holds_nothing_and_hides_no_death(void **state) {
    (void)state;
    fork_and_die("child: LS_ERR_FORKED, 0 descriptors, 0 mappings: rank 1: this group was opened before fork");
}

static void a_stopped_rank_is_named_and_the_others_go_on_without_it(void **state) {
    (void)state;
    stop_and_go_on("last heard of in operation");
}

static void a_stopped_rank_that_wakes_touches_no_other_group(void **state) {
    (void)state;
    stop_in_one_of_several_groups();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_runs_between_processes),
        cmocka_unit_test(a_rank_killed_at_any_point_is_named_at_once),
        cmocka_unit_test(with_checks_on_it_is_named_too),
        cmocka_unit_test(a_rank_killed_later_on_is_named_too),
        cmocka_unit_test(a_rank_killed_while_groups_are_made_of_a_group_is_named_at_once),
        cmocka_unit_test(a_rank_killed_at_any_moment_is_named_at_once),
        cmocka_unit_test(a_long_wait_takes_under_a_twentieth_of_a_processor),
        cmocka_unit_test(a_forked_child_holds_nothing_and_hides_no_death),
        cmocka_unit_test(a_stopped_rank_is_named_and_the_others_go_on_without_it),
        cmocka_unit_test(a_stopped_rank_that_wakes_touches_no_other_group),
        cmocka_unit_test(an_exit_without_a_close_is_clean),
    };
    if (!make_temporary() || setenv("LOCKSTEP_BACKEND", "tcp", 1) != 0) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_temporary();
    return failed;
}
