/* ranks.h: starts the ranks of a test as processes, through the launcher's own code, and keeps what each wrote.
 *
 *     ls_ranks *job = ls_ranks_start(&(ls_ranks_options){.ranks = 2, .program = "worker_death"});
 *     ls_ranks_wait_for(job, 0, "ready");
 *     ls_ranks_kill(job, 1, SIGKILL);
 *     ls_ranks_finish(job);                                   // fails the test when it takes too long
 *     assert_int_equal(ls_ranks_exit_code(job, 0), 0);
 *     assert_non_null(strstr(ls_ranks_output(job, 0), "rank 1"));
 *     ls_ranks_close(&job);
 *
 * The launcher runs in a process of its own, so that it can be killed like one; ranks die with it, and it with the
 * test. Needs the rooms of `launch`: a test of a lower room adds `target_link_libraries(test_<room>_<x> PRIVATE
 * ls_launch)` in its folder's tests.cmake.                                                                           */
#ifndef LS_TEST_RANKS_H
#define LS_TEST_RANKS_H

#include "support/test.h"

#include <stdbool.h>
#include <sys/types.h>

typedef struct ls_ranks ls_ranks;

typedef struct ls_ranks_options {
    int ranks;
    const char *program;          /* a worker of LS_TEST_BIN_DIR, or with a slash any program, or on PATH ("sh") */
    const char *const *arguments; /* behind the program's name, ended by NULL; NULL: none */
    const char *const
        *environment;  /* "NAME=value" for all ranks, ended by NULL; NULL: nothing besides the test's own */
    int64_t limit_ms;  /* of the whole run; 0: 50 s, a little less than ctest's */
    int64_t linger_ms; /* what others get after the first failure; 0: as long as the run may take */
    int64_t grace_ms;  /* as launch_options; 0: its default */
} ls_ranks_options;

/* Starts the launcher, which starts the ranks. Fails the test when that is not possible. */
ls_ranks *ls_ranks_start(const ls_ranks_options *options);

/* Waits for the end of all ranks, then of the launcher. Past the limit all are killed, what they wrote is printed, and
 * the test fails. */
void ls_ranks_finish(ls_ranks *ranks);

/* ls_ranks_start and ls_ranks_finish. */
ls_ranks *ls_ranks_run(const ls_ranks_options *options);

/* Kills what still runs, frees all. */
void ls_ranks_close(ls_ranks **ranks);

/* The process of a rank (waits until it has started) or of the launcher. */
pid_t ls_ranks_pid(ls_ranks *ranks, int rank);
pid_t ls_ranks_launcher(const ls_ranks *ranks);

/* Sends a signal to a rank that has started. */
void ls_ranks_kill(ls_ranks *ranks, int rank, int signal);

/* Waits until the standard output of `rank` holds `text` in a line that is complete; past the limit as
 * ls_ranks_finish. */
void ls_ranks_wait_for(ls_ranks *ranks, int rank, const char *text);

/* What a rank wrote so far, in whole lines, NUL at the end. */
const char *ls_ranks_output(const ls_ranks *ranks, int rank);
const char *ls_ranks_errors(const ls_ranks *ranks, int rank);

/* How a rank ended: its exit code, 128 + signal for a kill, -1 while it runs. */
int ls_ranks_exit_code(const ls_ranks *ranks, int rank);

/* After ls_ranks_finish: what the launcher came to. -1: it was killed. */
int ls_ranks_job_exit_code(const ls_ranks *ranks);
int ls_ranks_first_failed(const ls_ranks *ranks);

/* Prints what every rank wrote and how it ended; for a test about to fail. */
void ls_ranks_print(const ls_ranks *ranks);

/* All ranks ended with exit code 0; if not, prints what they wrote. */
#define assert_ranks_succeeded(ranks) ls_assert_ranks_succeeded(ranks, __FILE__, __LINE__)
void ls_assert_ranks_succeeded(const ls_ranks *ranks, const char *file, int line);

#endif
