/* Programs that initialise MPI themselves, at each level of threads, and go on using it beside a group. */
#include "mpi/job.h"

static void run_level(const mpi_kind *kind, int ranks, const char *environment, const char *what) {
    char program[512];
    snprintf(program, sizeof program, LS_TEST_BIN_DIR "/own_mpi_%s %s", kind->name, what);
    run_job(kind, ranks, environment, program);
    assert_job_succeeded();
}

static void a_group_works_at_every_level_of_threads(void **state) {
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        run_level(*state, ranks, "", "single");
        run_level(*state, ranks, "", "funneled");
        run_level(*state, ranks, "", "serialized");
        run_level(*state, ranks, "", "multiple");
    }
}

static void below_multiple_the_log_says_once_who_drives(void **state) {
    run_level(*state, 4, "", "funneled");
    const char *said = strstr(job.output, "MPI runs below MPI_THREAD_MULTIPLE");
    assert_non_null(said);
    assert_null(strstr(said + 1, "MPI runs below MPI_THREAD_MULTIPLE"));
    run_level(*state, 4, "", "multiple");
    assert_null(strstr(job.output, "MPI runs below"));
}

/* As under srun, where no variable of MPI's launcher is set. */
static void an_initialised_mpi_is_found_without_its_launcher_s_variables(void **state) {
    run_level(*state, 2, "", "unset");
}

static void another_family_than_the_initialised_one_is_refused(void **state) {
    const mpi_kind *kind = *state;
    char text[100];
    run_level(kind, 2, kind == &mpi_openmpi ? "LOCKSTEP_MPI=mpich" : "LOCKSTEP_MPI=openmpi", "conflict");
    snprintf(text, sizeof text, "this program has initialised %s (%s)", kind->library, kind->name);
    assert_job_says(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MPI_TESTS(a_group_works_at_every_level_of_threads),
        MPI_TESTS(below_multiple_the_log_says_once_who_drives),
        MPI_TESTS(an_initialised_mpi_is_found_without_its_launcher_s_variables),
        MPI_TESTS(another_family_than_the_initialised_one_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
