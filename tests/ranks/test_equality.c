/* Equality, which is the point: N ranks with batch B equal one process with batch N B.
 *
 * The oracle is a program that links neither ddp nor group. In f64 with the plain kernels whole runs agree to rounding;
 * in f32 with the fast ones gradients from equal states do. Replicas agree bit for bit after every step, and so do two
 * runs and any two bucket sizes.                                                                                     */
#include "base/wait.h"
#include "support/ranks.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ONE_BUCKET ((size_t)1 << 30)

/* ThreadSanitizer makes the plain loops ten times slower; what it looks for shows in the first steps. */
#define WHOLE_RUN (LS_UNDER_THREAD_SANITIZER ? 10 : 100)

static char folder[256];

static int make_folder(void **state) {
    (void)state;
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lockstep-equality-XXXXXX", temporary ? temporary : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

typedef struct run_setting {
    const char *model, *dtype, *optimizer;
    int steps, micro_steps, batch, ranks;
    size_t cap_bytes;
    int snapshots;
    const char *kernels; /* LOCKSTEP_KERNELS; "" for the default */
    const char *label;   /* of the run's files */
} run_setting;

typedef struct argument_list {
    char text[10][320];
    const char *list[11];
} argument_list;

static void write_arguments(const run_setting *setting, argument_list *arguments) {
    int at = 0;
    snprintf(arguments->text[at++], sizeof *arguments->text, "%s", setting->model);
    snprintf(arguments->text[at++], sizeof *arguments->text, "%s", setting->dtype);
    snprintf(arguments->text[at++], sizeof *arguments->text, "%s", setting->optimizer);
    snprintf(arguments->text[at++], sizeof *arguments->text, "%d", setting->steps);
    snprintf(arguments->text[at++], sizeof *arguments->text, "%d", setting->micro_steps);
    snprintf(arguments->text[at++], sizeof *arguments->text, "%d", setting->batch);
    snprintf(arguments->text[at++], sizeof *arguments->text, "%d", setting->ranks);
    snprintf(arguments->text[at++], sizeof *arguments->text, "%zu", setting->cap_bytes);
    snprintf(arguments->text[at++], sizeof *arguments->text, "%d", setting->snapshots);
    snprintf(arguments->text[at++], sizeof *arguments->text, "%s/%s", folder, setting->label);
    for (int i = 0; i < at; i++) arguments->list[i] = arguments->text[i];
    arguments->list[at] = NULL;
}

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

static void run_oracle(const run_setting *setting) {
    argument_list arguments = {0};
    char command[4096];
    write_arguments(setting, &arguments);
    int used = snprintf(command, sizeof command, "LOCKSTEP_KERNELS=%s OMP_NUM_THREADS=1 '%s/oracle_training'",
                        setting->kernels, LS_TEST_BIN_DIR);
    for (int i = 0; arguments.list[i]; i++)
        used += snprintf(command + used, sizeof command - (size_t)used, " '%s'", arguments.list[i]);
    assert_int_equal(system(command), 0);
}

static void *read_file(const char *label, const char *what, size_t *bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%s", folder, label, what);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *content = malloc(*bytes + 1);
    assert_int_equal(fread(content, 1, *bytes, file), *bytes);
    content[*bytes] = 0;
    fclose(file);
    return content;
}

static void assert_same_digests(const char *label, int rank, const char *other_label, int other_rank, int steps) {
    char what[32], other_what[32];
    size_t bytes, other_bytes;
    snprintf(what, sizeof what, "digest.%d", rank);
    snprintf(other_what, sizeof other_what, "digest.%d", other_rank);
    char *digests = read_file(label, what, &bytes), *others = read_file(other_label, other_what, &other_bytes);
    assert_int_equal(bytes, (size_t)steps * 17); /* one line a step: nothing compared is nothing shown */
    assert_string_equal(digests, others);
    free(digests);
    free(others);
}

/* Sizes of the models' parameters, in order: tolerances are per parameter. */
static const size_t mlp_sizes[] = {784 * 256, 256, 256 * 128, 128, 128 * 10, 10, 0};
static const size_t lenet_sizes[] = {32 * 25, 32, 64 * 32 * 25, 64, 3136 * 512, 512, 5120, 10, 0};

static const size_t *sizes_of(const run_setting *setting) {
    return strcmp(setting->model, "mlp") == 0 ? mlp_sizes : lenet_sizes;
}

/* The largest of max|a - b| / max|a| over the parameters of one set. */
static double worst_difference(const size_t *sizes, const double *a, const double *b) {
    double worst = 0;
    for (; *sizes; a += *sizes, b += *sizes, sizes++) {
        double largest = 0, difference = 0;
        for (size_t i = 0; i < *sizes; i++) {
            largest = fmax(largest, fabs(a[i]));
            difference = fmax(difference, fabs(a[i] - b[i]));
        }
        assert_true(largest > 0);
        worst = fmax(worst, difference / largest);
    }
    return worst;
}

static size_t total_of(const size_t *sizes) {
    size_t total = 0;
    for (; *sizes; sizes++) total += *sizes;
    return total;
}

static void assert_parameters_near(const run_setting *setting, double limit) {
    size_t bytes, oracle_bytes;
    const size_t *sizes = sizes_of(setting);
    double *parameters = read_file(setting->label, "parameters", &bytes);
    double *oracle = read_file(setting->label, "oracle", &oracle_bytes);
    assert_int_equal(bytes, total_of(sizes) * sizeof(double));
    assert_int_equal(oracle_bytes, bytes);
    const double worst = worst_difference(sizes, oracle, parameters);
    print_message("%s %s, %d ranks, %d micro-steps: worst difference %.2g of the largest\n", setting->model,
                  setting->optimizer, setting->ranks, setting->micro_steps, worst);
    assert_true(worst <= limit);
    free(parameters);
    free(oracle);
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
