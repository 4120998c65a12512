/* job.h: a job of some ranks under the launcher of an MPI family, and what it wrote. A test runs once for each family:
 *
 *     static void sums_are_right(void **state) {
 *         run_job(*state, 4, "", LS_TEST_BIN_DIR "/worker_mpi collectives 1 100");
 *         assert_all_done();
 *     }
 *     int main(void) { ... MPI_TESTS(sums_are_right) ... }
 *
 * Without the family's plugin or launcher a test is skipped.                                                         */
#ifndef LS_TEST_MPI_JOB_H
#define LS_TEST_MPI_JOB_H

#include "support/test.h"

#include "base/wait.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* `abi`, the standard ABI of MPI 5, is tested where its plugin is built: LS_MPI_ABI_LAUNCHER starts what implements it, and
 * sets the variables of an older MPI. */
typedef struct mpi_kind {
    const char *name, *library, *environment, *launcher;
} mpi_kind;

static mpi_kind mpi_openmpi = {"openmpi", "libmpi.so.40", "", "mpirun.openmpi --allow-run-as-root --oversubscribe"},
                mpi_mpich = {"mpich", "libmpich.so.12", "", "mpirun.mpich"};

/* The test, for each family, in an array of tests. */
#define MPI_TEST(kind, test) \
    { #kind ": " #test, test, NULL, NULL, &mpi_##kind }
#ifdef LS_MPI_ABI_LAUNCHER
static mpi_kind mpi_abi = {"abi", "libmpi_abi.so.1", "LOCKSTEP_MPI=abi", LS_MPI_ABI_LAUNCHER};
#define MPI_TESTS(test) MPI_TEST(openmpi, test), MPI_TEST(mpich, test), MPI_TEST(abi, test)
#else
#define MPI_TESTS(test) MPI_TEST(openmpi, test), MPI_TEST(mpich, test)
#endif

/* What MPI leaks at its end, or does between its own threads, is not ours to look at; of our blocks the workers count.
 * And MPICH's UCX watches how memory is given back, in threads that are past what ThreadSanitizer bears. */
#define FOR_SANITIZERS                                                                                       \
    "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 TSAN_OPTIONS=$TSAN_OPTIONS:ignore_noninstrumented_modules=1 " \
    "UCX_MEM_EVENTS=" UCX_WATCHES
#if LS_UNDER_THREAD_SANITIZER
#define UCX_WATCHES "n"
#else
#define UCX_WATCHES "y"
#endif

/* The last job. */
static struct {
    int ranks;
    int exit_code;
    char output[1 << 16]; /* of all ranks and the launcher; what is more is dropped */
} job;

static inline bool can_run(const mpi_kind *kind) {
    char command[512];
    snprintf(command, sizeof command, "test -e '%s/../" LS_LIBRARY_FOLDER "/lockstep/liblockstep-mpi-%s.so'",
             LS_TEST_BIN_DIR, kind->name);
    if (system(command) != 0) return false;
    snprintf(command, sizeof command, "command -v %.*s > /dev/null", (int)strcspn(kind->launcher, " "), kind->launcher);
    return system(command) == 0;
}

#define MPI_SKIP_UNLESS_THERE(kind)                                                           \
    do {                                                                                      \
        if (!can_run(kind)) LS_SKIP("this MPI is not installed, or its plugin is not built"); \
    } while (0)

static inline void run_command(const char *command) {
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t used = 0, got;
    char dropped[512];
    while ((got = fread(job.output + used, 1, sizeof job.output - 1 - used, pipe)) > 0) used += got;
    while (fread(dropped, 1, sizeof dropped, pipe) > 0) {}
    job.output[used] = '\0';
    const int status = pclose(pipe);
    job.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs `program` with its arguments on `ranks` ranks; `environment` is "NAME=value ..." or "". The limit is for
 * hangs. */
static inline void run_job(const mpi_kind *kind, int ranks, const char *environment, const char *program) {
    char command[4096];
    MPI_SKIP_UNLESS_THERE(kind);
    snprintf(command, sizeof command,
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 " FOR_SANITIZERS
             " %s %s timeout -k 5 100 %s -n %d %s 2>&1 < /dev/null",
             kind->environment, environment, kind->launcher, ranks, program);
    job.ranks = ranks;
    run_command(command);
    /* What a sanitizer finds on a rank of a lost group must not pass for the job's way to end. */
    if (strstr(job.output, "Sanitizer: ")) print_error("%s\n", job.output);
    assert_null(strstr(job.output, "Sanitizer: "));
}

/* Every rank came to its end, whatever the launcher makes of the job. */
static inline void assert_all_done(void) {
    for (int rank = 0; rank < job.ranks; rank++) {
        char line[32];
        snprintf(line, sizeof line, "rank %d is done", rank);
        if (strstr(job.output, line)) continue;
        print_error("\"%s\" is missing; exit code %d, output:\n%s\n", line, job.exit_code, job.output);
        fail();
    }
}

/* And the launcher is content. */
static inline void assert_job_succeeded(void) {
    assert_all_done();
    if (job.exit_code != 0) print_error("exit code %d, output:\n%s\n", job.exit_code, job.output);
    assert_int_equal(job.exit_code, 0);
}

static inline void assert_job_says(const char *text) {
    if (!strstr(job.output, text)) print_error("\"%s\" is not in:\n%s\n", text, job.output);
    assert_non_null(strstr(job.output, text));
}

#endif
