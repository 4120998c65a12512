/* Many ranks on one host, and one that ends before it has met the others. */
#include "support/ranks.h"

#include "base/clock.h"

#include <signal.h>
#include <string.h>

/* More than the 64 whose processes are handed out together. */
enum { MANY = 70 };

static void seventy_ranks_run_every_collective(void **state) {
    (void)state;
    const char *const arguments[] = {"all", NULL};
    const ls_ranks_options options = {.ranks = MANY, .program = "worker_many", .arguments = arguments};
    ls_ranks *ranks = ls_ranks_run(&options);
    assert_ranks_succeeded(ranks);
    for (int rank = 0; rank < MANY; rank++) assert_non_null(strstr(ls_ranks_output(ranks, rank), "of 70 is done"));
    ls_ranks_close(&ranks);
}

static void the_last_of_seventy_ranks_is_named_by_all_when_it_dies(void **state) {
    (void)state;
    const char *const arguments[] = {"dies", NULL};
    const ls_ranks_options options = {.ranks = MANY, .program = "worker_many", .arguments = arguments};
    ls_ranks *ranks = ls_ranks_run(&options);
    char process[32];
    snprintf(process, sizeof process, "process %d) died", (int)ls_ranks_pid(ranks, MANY - 1));
    for (int rank = 0; rank < MANY - 1; rank++) {
        const char *said = ls_ranks_output(ranks, rank);
        if (!strstr(said, "error LS_ERR_PEER_LOST: rank 69 (") || !strstr(said, process)) ls_ranks_print(ranks);
        assert_non_null(strstr(said, "error LS_ERR_PEER_LOST: rank 69 ("));
        assert_non_null(strstr(said, process));
    }
    ls_ranks_close(&ranks);
}

/* It has left nothing in the store that could tell: the launcher does, over any backend. */
static void end_early(const char *how, int code, const char *told) {
    static const char *const backends[] = {"LOCKSTEP_BACKEND=shm", "LOCKSTEP_BACKEND=tcp"};
    const char *const arguments[] = {how, NULL};
    for (int i = 0; i < 2; i++) {
        const char *const environment[] = {backends[i], NULL};
        const int64_t start_ns = ls_now_ns();
        const ls_ranks_options options = {
            .ranks = 3, .program = "worker_many", .arguments = arguments, .environment = environment};
        ls_ranks *ranks = ls_ranks_run(&options);
        assert_true(ls_now_ns() - start_ns < 10 * LS_NS_PER_S);
        assert_int_equal(ls_ranks_exit_code(ranks, 1), code);
        for (int rank = 0; rank < 3; rank += 2) {
            char text[128];
            snprintf(text, sizeof text, "rank 1 (process %d) is gone: it %s", (int)ls_ranks_pid(ranks, 1), told);
            if (!strstr(ls_ranks_output(ranks, rank), text)) ls_ranks_print(ranks);
            assert_non_null(strstr(ls_ranks_output(ranks, rank), "error LS_ERR_PEER_LOST"));
            assert_non_null(strstr(ls_ranks_output(ranks, rank), text));
            assert_int_equal(ls_ranks_exit_code(ranks, rank), 3);
        }
        ls_ranks_close(&ranks);
    }
}

static void a_rank_killed_before_it_met_anybody_is_named_at_once(void **state) {
    (void)state;
    end_early("killed", 128 + SIGKILL, "was killed by signal 9 (SIGKILL)");
}

static void a_rank_that_fails_before_it_met_anybody_is_named_at_once(void **state) {
    (void)state;
    end_early("fails", 7, "ended with exit code 7");
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
        cmocka_unit_test(seventy_ranks_run_every_collective),
        cmocka_unit_test(the_last_of_seventy_ranks_is_named_by_all_when_it_dies),
        cmocka_unit_test(two_jobs_at_once_fifty_times_do_not_meet),
        cmocka_unit_test(a_rank_killed_before_it_met_anybody_is_named_at_once),
        cmocka_unit_test(a_rank_that_fails_before_it_met_anybody_is_named_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
