/* Training over MPI equals one process: the model, data and oracle of tests/ranks, under mpirun. */
#include "mpi/job.h"
#include "ranks/equality.h"

static void run_ranks_of(const mpi_kind *kind, const run_setting *setting) {
    char program[2000];
    write_command(setting, "worker_training", program, sizeof program);
    run_job(kind, setting->ranks, "LOCKSTEP_KERNELS=reference", program);
    if (job.exit_code != 0) print_error("%s\n", job.output);
    assert_int_equal(job.exit_code, 0);
}

static void training_equals_one_process_and_replicas_are_equal_bit_for_bit(void **state) {
    /* Buckets of 100,000 bytes make several. */
    run_setting setting = {.model = "mlp",
                           .dtype = "f64",
                           .optimizer = "sgd",
                           .steps = 30,
                           .micro_steps = 1,
                           .batch = 2,
                           .cap_bytes = 100000,
                           .kernels = "reference",
                           .label = "run"};
    for (setting.ranks = 2; setting.ranks <= 4; setting.ranks += 2) {
        run_ranks_of(*state, &setting);
        run_oracle(&setting);
        for (int rank = 0; rank < setting.ranks; rank++)
            assert_same_digests(setting.label, rank, setting.label, 0, setting.steps);
        assert_parameters_near(&setting, 1e-12);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MPI_TESTS(training_equals_one_process_and_replicas_are_equal_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
