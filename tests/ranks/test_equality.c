/* Equality, which is the point: N ranks with batch B equal one process with batch N B.
 *
 * The oracle is a program that links neither ddp nor group. In f64 with the plain kernels whole runs agree to rounding;
 * in f32 with the fast ones gradients from equal states do. Replicas agree bit for bit after every step, and so do two
 * runs and any two bucket sizes.                                                                                     */
#include "base/wait.h"
#include "ranks/equality.h"
#include "support/ranks.h"

#include <stdlib.h>

#define ONE_BUCKET ((size_t)1 << 30)

/* ThreadSanitizer makes the plain loops ten times slower; what it looks for shows in the first steps. */
#define WHOLE_RUN (LS_UNDER_THREAD_SANITIZER ? 10 : 100)

static void run_ranks_of(const run_setting *setting) {
    argument_list arguments = {0};
    char kernels[64];
    write_arguments(setting, &arguments);
    snprintf(kernels, sizeof kernels, "LOCKSTEP_KERNELS=%s", setting->kernels);
    const char *const environment[] = {kernels, "OMP_NUM_THREADS=1", NULL};
    ls_ranks *job = ls_ranks_run(&(ls_ranks_options){.ranks = setting->ranks,
                                                     .program = "worker_training",
                                                     .arguments = arguments.list,
                                                     .environment = environment,
                                                     .limit_ms = 240000});
    assert_ranks_succeeded(job);
    ls_ranks_close(&job);
}

/* One setting with several bucket sizes: equal to the oracle, replicas equal, bucket sizes equal. */
static void check_setting(run_setting setting, double limit) {
    static const size_t caps[] = {1024, 100000, ONE_BUCKET};
    static const char *const labels[] = {"small", "middle", "one"};
    setting.kernels = "reference";
    for (int i = 0; i < 3; i++) {
        setting.cap_bytes = caps[i];
        setting.label = labels[i];
        run_ranks_of(&setting);
        for (int rank = 0; rank < setting.ranks; rank++)
            assert_same_digests(labels[i], rank, labels[0], 0, setting.steps);
    }
    setting.label = labels[0];
    run_oracle(&setting);
    assert_parameters_near(&setting, limit);
}

static void check_mlp(const char *optimizer, double limit) {
    for (int ranks = 2; ranks <= 4; ranks += 2)
        for (int micro_steps = 1; micro_steps <= 3; micro_steps += 2)
            check_setting((run_setting){.model = "mlp",
                                        .dtype = "f64",
                                        .optimizer = optimizer,
                                        .steps = WHOLE_RUN,
                                        .micro_steps = micro_steps,
                                        .batch = 2,
                                        .ranks = ranks},
                          limit);
}

static void mlp_with_sgd_equals_one_process_to_1e12_with_any_buckets_with_and_without_no_sync(void **state) {
    (void)state;
    check_mlp("sgd", 1e-12);
}

static void mlp_with_adamw_equals_one_process_to_1e9_with_any_buckets_with_and_without_no_sync(void **state) {
    (void)state;
    check_mlp("adamw", 1e-9);
}

static void lenet_equals_one_process(void **state) {
    (void)state;
    run_setting setting = {.model = "lenet",
                           .dtype = "f64",
                           .optimizer = "sgd",
                           .steps = WHOLE_RUN,
                           .micro_steps = 1,
                           .batch = 2,
                           .ranks = 2,
                           .cap_bytes = 100000,
                           .kernels = "reference",
                           .label = "lenet"};
    run_ranks_of(&setting);
    run_oracle(&setting);
    assert_parameters_near(&setting, 1e-12);
    setting.ranks = 4;
    setting.steps = 5;
    setting.optimizer = "adamw";
    run_ranks_of(&setting);
    run_oracle(&setting);
    assert_parameters_near(&setting, 1e-9);
}

static void two_runs_are_equal_bit_for_bit_with_the_fast_kernels_too(void **state) {
    (void)state;
    run_setting setting = {.model = "lenet",
                           .dtype = "f32",
                           .optimizer = "sgd",
                           .steps = 20,
                           .micro_steps = 2,
                           .batch = 4,
                           .ranks = 2,
                           .cap_bytes = 0,
                           .kernels = "",
                           .label = "first"};
    run_ranks_of(&setting);
    setting.label = "second";
    setting.cap_bytes = 50000;
    run_ranks_of(&setting);
    for (int rank = 0; rank < 2; rank++) {
        assert_same_digests("first", rank, "first", 0, setting.steps);
        assert_same_digests("second", rank, "first", 0, setting.steps);
    }
}

/* Parameters and gradients of rank 0 stand in turn in the snapshots, the oracle's gradients in a row. */
static void gradients_in_f32_equal_one_process_at_ten_states_of_a_run(void **state) {
    (void)state;
    run_setting setting = {.model = "mlp",
                           .dtype = "f32",
                           .optimizer = "sgd",
                           .steps = 10 * WHOLE_RUN,
                           .micro_steps = 1,
                           .batch = 8,
                           .ranks = 2,
                           .cap_bytes = 100000,
                           .snapshots = 10,
                           .kernels = "",
                           .label = "states"};
    run_ranks_of(&setting);
    run_oracle(&setting);
    size_t bytes, oracle_bytes;
    const size_t *sizes = sizes_of(&setting);
    const size_t total = total_of(sizes);
    double *snapshots = read_file("states", "snapshots", &bytes),
           *oracle = read_file("states", "oracle", &oracle_bytes);
    assert_int_equal(bytes, 10 * 2 * total * sizeof(double));
    assert_int_equal(oracle_bytes, 10 * total * sizeof(double));
    for (size_t i = 0; i < 10; i++) {
        const double *gradients = snapshots + (2 * i + 1) * total;
        const double worst = worst_difference(sizes, oracle + i * total, gradients);
        print_message("state %zu: worst difference %.2g of the largest\n", i, worst);
        assert_true(worst <= 1e-5);
    }
    free(snapshots);
    free(oracle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_with_sgd_equals_one_process_to_1e12_with_any_buckets_with_and_without_no_sync),
        cmocka_unit_test(mlp_with_adamw_equals_one_process_to_1e9_with_any_buckets_with_and_without_no_sync),
        cmocka_unit_test(lenet_equals_one_process),
        cmocka_unit_test(two_runs_are_equal_bit_for_bit_with_the_fast_kernels_too),
        cmocka_unit_test(gradients_in_f32_equal_one_process_at_ten_states_of_a_run),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
