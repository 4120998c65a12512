/* Collectives over MPI: results, sizes, several groups and threads, progress; for each MPI family. */
#include "mpi/job.h"
#include "support/table.h"

#include <time.h>

#define WORKER LS_TEST_BIN_DIR "/worker_mpi "

static void collectives_are_right_with_calls_compared(void **state) {
    run_job(*state, 3, "LOCKSTEP_DEBUG=detail", WORKER "collectives");
    assert_job_succeeded();
}

static void sums_of_any_numbers_have_the_same_bits_on_all_ranks(void **state) {
    for (int ranks = 2; ranks <= 4; ranks++) {
        run_job(*state, ranks, "", WORKER "replicas");
        assert_job_succeeded();
    }
}

static void a_nan_in_a_maximum_or_minimum_stays(void **state) {
    run_job(*state, 4, "", WORKER "nan");
    assert_job_succeeded();
}

static void groups_live_beside_each_other_on_several_threads_and_open_again(void **state) {
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        run_job(*state, ranks, "", WORKER "duplicates");
        assert_job_succeeded();
    }
}

static void two_groups_may_be_duplicated_at_once_in_any_order(void **state) {
    run_job(*state, 4, "", WORKER "crossed-duplicates");
    assert_job_succeeded();
}

static void one_group_may_be_duplicated_by_two_threads(void **state) {
    run_job(*state, 3, "", WORKER "overlapping-duplicates");
    assert_job_succeeded();
}

static void groups_of_some_ranks_work_beside_each_other(void **state) {
    run_job(*state, 4, "", WORKER "subgroups");
    assert_all_done();
}

static void every_line_of_the_table_equals_the_serial_oracle(void **state) {
    static const int world_sizes[] = {1, 2, 3, 4, 5, 8};
    const unsigned long long seed = (unsigned long long)time(NULL);
    char path[] = "/tmp/lockstep-table-XXXXXX", program[512];
    table_coverage covered = {0};
    MPI_SKIP_UNLESS_THERE((const mpi_kind *)*state);
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, &covered, sizeof covered), sizeof covered);
    print_message("seed %llu\n", seed);
    for (int turn = 0; turn < 6; turn++) {
        snprintf(program, sizeof program, LS_TEST_BIN_DIR "/worker_table %llu %d %s", seed, turn, path);
        run_job(*state, world_sizes[turn], "LOCKSTEP_BACKEND=mpi", program);
        assert_job_succeeded();
    }
    assert_int_equal(pread(descriptor, &covered, sizeof covered, 0), sizeof covered);
    close(descriptor);
    unlink(path);
    assert_true(table_is_covered(&covered));
}

static void rows_of_several_pieces_come_whole(void **state) {
    run_job(*state, 3, "", LS_TEST_BIN_DIR "/worker_table 3 large");
    assert_job_succeeded();
}

static void messages_come_in_order_by_tag_and_beside_collectives(void **state) {
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        run_job(*state, ranks, "", WORKER "messages");
        assert_job_succeeded();
    }
}

static void operations_begin_and_end_while_their_rank_computes(void **state) {
    run_job(*state, 2, "", WORKER "overlap");
    assert_job_succeeded();
}

static void group_memory_is_zeroed_pages_and_sizes_must_agree(void **state) {
    run_job(*state, 2, "", WORKER "memory");
    assert_all_done();
}

static void a_monitored_barrier_names_who_did_not_come_and_loses_nothing(void **state) {
    run_job(*state, 4, "", WORKER "monitored-barrier");
    assert_job_succeeded();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MPI_TESTS(collectives_are_right_with_calls_compared),
        MPI_TESTS(sums_of_any_numbers_have_the_same_bits_on_all_ranks),
        MPI_TESTS(a_nan_in_a_maximum_or_minimum_stays),
        MPI_TESTS(groups_live_beside_each_other_on_several_threads_and_open_again),
        MPI_TESTS(two_groups_may_be_duplicated_at_once_in_any_order),
        MPI_TESTS(one_group_may_be_duplicated_by_two_threads),
        MPI_TESTS(groups_of_some_ranks_work_beside_each_other),
        MPI_TESTS(every_line_of_the_table_equals_the_serial_oracle),
        MPI_TESTS(rows_of_several_pieces_come_whole),
        MPI_TESTS(messages_come_in_order_by_tag_and_beside_collectives),
        MPI_TESTS(operations_begin_and_end_while_their_rank_computes),
        MPI_TESTS(group_memory_is_zeroed_pages_and_sizes_must_agree),
        MPI_TESTS(a_monitored_barrier_names_who_did_not_come_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
