/* Training over MPI equals one process: the model, data and oracle of tests/ranks, under mpirun. */
#include "mpi/job.h"

#include <math.h>

enum { STEPS = 30, BATCH = 2 };

static char folder[256];

static int make_folder(void **state) {
    (void)state;
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/lockstep-mpi-XXXXXX", temporary ? temporary : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

/* The content of the file that ends in `what`; to be freed. */
static char *read_file(const char *what, size_t *bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/run.%s", folder, what);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *content = malloc(*bytes + 1);
    assert_int_equal(fread(content, 1, *bytes, file), *bytes);
    content[*bytes] = '\0';
    fclose(file);
    return content;
}

/* Arguments as tests/ranks/plain_training.h reads them; buckets of 100,000 bytes make several. */
static void write_arguments(char *text, size_t bytes, int ranks) {
    snprintf(text, bytes, "mlp f64 sgd %d 1 %d %d 100000 0 %s/run", STEPS, BATCH, ranks, folder);
}

static void assert_equal_to_oracle(void) {
    size_t bytes, oracle_bytes;
    char *parameters = read_file("parameters", &bytes), *oracle = read_file("oracle", &oracle_bytes);
    assert_true(bytes > 0 && bytes == oracle_bytes);
    double worst = 0, largest = 0;
    for (size_t i = 0; i < bytes / sizeof(double); i++) {
        const double a = ((double *)(void *)parameters)[i], b = ((double *)(void *)oracle)[i];
        worst = fmax(worst, fabs(a - b));
        largest = fmax(largest, fabs(b));
    }
    print_message("worst difference %.2g of the largest\n", worst / largest);
    assert_true(largest > 0 && worst <= 1e-12 * largest);
    free(parameters);
    free(oracle);
}

static void assert_replicas_equal(int ranks) {
    size_t bytes, first_bytes;
    char *first = read_file("digest.0", &first_bytes);
    assert_int_equal(first_bytes, STEPS * 17); /* a line a step */
    for (int rank = 1; rank < ranks; rank++) {
        char what[32];
        snprintf(what, sizeof what, "digest.%d", rank);
        char *digests = read_file(what, &bytes);
        assert_string_equal(digests, first);
        free(digests);
    }
    free(first);
}

static void training_equals_one_process_and_replicas_are_equal_bit_for_bit(void **state) {
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        char arguments[400], program[1024], oracle[1024];
        write_arguments(arguments, sizeof arguments, ranks);
        snprintf(program, sizeof program, LS_TEST_BIN_DIR "/worker_training %s", arguments);
        snprintf(oracle, sizeof oracle, "LOCKSTEP_KERNELS=reference '%s/oracle_training' %s", LS_TEST_BIN_DIR,
                 arguments);
        run_job(*state, ranks, "LOCKSTEP_KERNELS=reference", program);
        if (job.exit_code != 0) print_error("%s\n", job.output);
        assert_int_equal(job.exit_code, 0);
        assert_int_equal(system(oracle), 0);
        assert_replicas_equal(ranks);
        assert_equal_to_oracle();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MPI_TESTS(training_equals_one_process_and_replicas_are_equal_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
