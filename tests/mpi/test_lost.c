/* Ranks that differ, leave, abort or do not come: over MPI too the others get an error that says so, in time. */
#include "mpi/job.h"

#define WORKER LS_TEST_BIN_DIR "/worker_mpi_lost "

static void calls_that_differ_are_named_with_detail(void **state) {
    run_job(*state, 4, "LOCKSTEP_DEBUG=detail", WORKER "mismatch");
    assert_all_done();
}

static void steps_that_differ_are_named_with_detail(void **state) {
    run_job(*state, 3, "LOCKSTEP_DEBUG=detail", WORKER "mismatched-tags");
    assert_all_done();
}

static void ranks_that_differ_about_checks_say_so(void **state) {
    run_job(*state, 3, "",
            "sh -c '[ \"$OMPI_COMM_WORLD_RANK$PMI_RANK\" = 1 ] && export LOCKSTEP_DEBUG=detail; exec " WORKER "limit'");
    assert_job_says(
        "LS_ERR_ENVIRONMENT: rank 1 compares all calls, rank 0 does not: LOCKSTEP_DEBUG has to be the same");
}

static void uneven_counts_that_differ_are_named(void **state) {
    run_job(*state, 3, "", WORKER "uneven");
    assert_all_done();
}

static void a_rank_that_leaves_is_named_by_all_others(void **state) {
    run_job(*state, 2, "", WORKER "left");
    assert_all_done();
    run_job(*state, 4, "", WORKER "left");
    assert_all_done();
}

static void a_rank_that_leaves_after_its_part_harms_nobody(void **state) {
    run_job(*state, 4, "", WORKER "early-leaver");
    assert_job_succeeded();
    assert_null(strstr(job.output, "not matched")); /* as MPICH's transport says of messages that nobody received */
}

static void messages_that_differ_or_cannot_come_are_named(void **state) {
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        run_job(*state, ranks, "", WORKER "messages");
        assert_all_done();
    }
}

static void an_abort_ends_the_waits_of_all_ranks(void **state) {
    run_job(*state, 4, "", WORKER "abort");
    assert_all_done();
}

static void an_operation_ends_at_its_limit(void **state) {
    run_job(*state, 2, "", WORKER "limit");
    assert_all_done();
}

static void an_opening_ends_at_its_limit(void **state) {
    run_job(*state, 2, "", WORKER "absent");
    assert_all_done();
}

static void a_rank_that_dies_ends_the_job(void **state) {
    run_job(*state, 2, "", WORKER "death");
    assert_int_not_equal(job.exit_code, 0);
    assert_int_not_equal(job.exit_code, 124); /* no need of the test's limit */
}

static void a_rank_that_exits_amid_its_work_ends_the_job(void **state) {
    run_job(*state, 2, "", WORKER "exit");
    assert_int_not_equal(job.exit_code, 0);
    assert_int_not_equal(job.exit_code, 124);
}

/* Each group has files of its own. */
static void the_doctor_tells_of_each_group_who_was_missing(void **state) {
    char folder[] = "/tmp/lockstep-flight-XXXXXX", text[200];
    MPI_SKIP_UNLESS_THERE((const mpi_kind *)*state);
    assert_non_null(mkdtemp(folder));
    snprintf(text, sizeof text, "LOCKSTEP_FLIGHT_DIR=%s", folder);
    run_job(*state, 3, text, WORKER "flight");
    assert_all_done();
    snprintf(text, sizeof text, LS_TEST_BIN_DIR "/../bin/lockstep doctor --flight %s 2>&1", folder);
    run_command(text);
    assert_job_says("group lockstep_group_1 of 3 ranks: stuck in operation 1, all-reduce of 10 f32 sum\n"
                    "  waiting in it: rank 0, 2\n"
                    "  no file of rank 1:");
    assert_job_says("group lockstep_group_2 of 3 ranks: stuck in operation 2, all-reduce of 20 f64 sum\n"
                    "  waiting in it: rank 0, 1\n"
                    "  no file of rank 2:");
    snprintf(text, sizeof text, "rm -r %s", folder);
    run_command(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MPI_TESTS(calls_that_differ_are_named_with_detail),
        MPI_TESTS(steps_that_differ_are_named_with_detail),
        MPI_TESTS(ranks_that_differ_about_checks_say_so),
        MPI_TESTS(uneven_counts_that_differ_are_named),
        MPI_TESTS(a_rank_that_leaves_is_named_by_all_others),
        MPI_TESTS(a_rank_that_leaves_after_its_part_harms_nobody),
        MPI_TESTS(messages_that_differ_or_cannot_come_are_named),
        MPI_TESTS(an_abort_ends_the_waits_of_all_ranks),
        MPI_TESTS(an_operation_ends_at_its_limit),
        MPI_TESTS(an_opening_ends_at_its_limit),
        MPI_TESTS(the_doctor_tells_of_each_group_who_was_missing),
        MPI_TESTS(a_rank_that_dies_ends_the_job),
        MPI_TESTS(a_rank_that_exits_amid_its_work_ends_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
