/* Many ranks on one host, and one that is killed before it has met the others. */
#include "support/ranks.h"

#include "base/clock.h"

#include <signal.h>
#include <string.h>

static void sixty_four_ranks_run_every_collective(void **state) {
    (void)state;
    const char *const arguments[] = {"all", NULL};
    const ls_ranks_options options = {.ranks = 64, .program = "worker_many", .arguments = arguments};
    ls_ranks *ranks = ls_ranks_run(&options);
    assert_ranks_succeeded(ranks);
    for (int rank = 0; rank < 64; rank++) assert_non_null(strstr(ls_ranks_output(ranks, rank), "of 64 is done"));
    ls_ranks_close(&ranks);
}

/* It has left nothing in the store that could tell. */
static void a_rank_killed_before_it_met_anybody_is_named_at_once(void **state) {
    (void)state;
    const char *const arguments[] = {"early", NULL};
    const int64_t start_ns = ls_now_ns();
    const ls_ranks_options options = {.ranks = 3, .program = "worker_many", .arguments = arguments};
    ls_ranks *ranks = ls_ranks_run(&options);
    assert_true(ls_now_ns() - start_ns < 10 * LS_NS_PER_S);
    assert_int_equal(ls_ranks_exit_code(ranks, 1), 128 + SIGKILL);
    for (int rank = 0; rank < 3; rank += 2) {
        if (!strstr(ls_ranks_output(ranks, rank), "LS_ERR_PEER_LOST")) ls_ranks_print(ranks);
        assert_non_null(strstr(ls_ranks_output(ranks, rank), "error LS_ERR_PEER_LOST"));
        assert_non_null(strstr(ls_ranks_output(ranks, rank), "rank 1 (process "));
        assert_non_null(strstr(ls_ranks_output(ranks, rank), "killed by signal 9 (SIGKILL)"));
        assert_int_equal(ls_ranks_exit_code(ranks, rank), 3);
    }
    ls_ranks_close(&ranks);
}

/* Nobody gave a port, so none can be taken, and no two jobs can mix: sums would differ. */
static void two_jobs_at_once_fifty_times_do_not_meet(void **state) {
    (void)state;
    const char *const arguments[] = {"all", NULL};
    const ls_ranks_options options = {.ranks = 2, .program = "worker_many", .arguments = arguments};
    for (int i = 0; i < 50; i++) {
        ls_ranks *jobs[2];
        for (int k = 0; k < 2; k++) jobs[k] = ls_ranks_start(&options);
        for (int k = 0; k < 2; k++) ls_ranks_finish(jobs[k]);
        for (int k = 0; k < 2; k++) assert_ranks_succeeded(jobs[k]);
        for (int k = 0; k < 2; k++) ls_ranks_close(&jobs[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixty_four_ranks_run_every_collective),
        cmocka_unit_test(two_jobs_at_once_fifty_times_do_not_meet),
        cmocka_unit_test(a_rank_killed_before_it_met_anybody_is_named_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
