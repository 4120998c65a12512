/* equality.h: a training on ranks beside the oracle's in one process: how both are started, and what their files must share.
 * Whoever includes it starts the ranks: tests/ranks through our launcher, tests/mpi through MPI's. */
#ifndef LS_TEST_EQUALITY_H
#define LS_TEST_EQUALITY_H

#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

static inline int make_folder(void **state) {
    (void)state;
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lockstep-equality-XXXXXX", temporary ? temporary : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state) {
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

static inline void write_arguments(const run_setting *setting, argument_list *arguments) {
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

/* A worker of LS_TEST_BIN_DIR with the run's arguments, for a shell. */
static inline void write_command(const run_setting *setting, const char *worker, char *command, size_t bytes) {
    argument_list arguments = {0};
    write_arguments(setting, &arguments);
    int used = snprintf(command, bytes, "'%s/%s'", LS_TEST_BIN_DIR, worker);
    for (int i = 0; arguments.list[i]; i++)
        used += snprintf(command + used, bytes - (size_t)used, " '%s'", arguments.list[i]);
}

static inline void run_oracle(const run_setting *setting) {
    char oracle[4096], command[4400];
    write_command(setting, "oracle_training", oracle, sizeof oracle);
    snprintf(command, sizeof command, "LOCKSTEP_KERNELS=%s OMP_NUM_THREADS=1 %s", setting->kernels, oracle);
    assert_int_equal(system(command), 0);
}

static inline void *read_file(const char *label, const char *what, size_t *bytes) {
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

static inline void assert_same_digests(const char *label, int rank, const char *other_label, int other_rank,
                                       int steps) {
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

static inline const size_t *sizes_of(const run_setting *setting) {
    return strcmp(setting->model, "mlp") == 0 ? mlp_sizes : lenet_sizes;
}

/* The largest of max|a - b| / max|a| over the parameters of one set. */
static inline double worst_difference(const size_t *sizes, const double *a, const double *b) {
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

static inline size_t total_of(const size_t *sizes) {
    size_t total = 0;
    for (; *sizes; sizes++) total += *sizes;
    return total;
}

static inline void assert_parameters_near(const run_setting *setting, double limit) {
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

#endif
