/* launch.h: starts the ranks of a job on this host, serves their store, passes on their lines and signals, and ends
 * with nothing of the job left. The command `lockstep run` and the tests with several ranks both call it.            */
#ifndef LS_LAUNCH_LAUNCH_H
#define LS_LAUNCH_LAUNCH_H

#include <lockstep/base.h>

#include <sys/types.h>

#define LAUNCH_MOST_RANKS 4096

/* What the shell reports of a program that was not found, or is none. */
enum { LAUNCH_EXIT_NOT_FOUND = 127, LAUNCH_EXIT_NO_PROGRAM = 126 };

/* Told as things happen, from the launcher's loop: what has to be quick. Absent ones are skipped. */
typedef struct launch_observer {
    void *context;
    void (*started)(void *context, int rank, pid_t pid);
    void (*ended)(void *context, int rank, int wait_status);
    /* A line of a rank without its newline (`is_whole` false: the program wrote none). In place of the output. */
    void (*line)(void *context, int rank, bool is_error, const char *text, size_t bytes, bool is_whole);
} launch_observer;

typedef struct launch_options {
    int ranks;
    char *const *program; /* name and arguments, ended by NULL */
    bool without_labels;
    int64_t linger_ms;     /* from the first failure to SIGTERM: the others may end by themselves; 0: half a second */
    int64_t grace_ms;      /* from SIGTERM to SIGKILL; 0: 10 s */
    int64_t kill_limit_ms; /* from the first SIGKILL until a process that does not end is left behind; 0: 30 s */
    launch_observer observer;
} launch_options;

typedef struct launch_result {
    int exit_code;    /* as a shell has it: of the first failure in time, 128 + signal for a kill; 0 without one */
    int first_failed; /* its rank; -1 without one */
} launch_result;

/* Runs the job to its end and reports the first failure on standard error. LS_OK: the job ran, well or badly. A
 * process that the kernel does not end is named there, and the exit code is not 0.
 * Errors: LS_ERR_ARGUMENT (program not found, count out of range; `exit_code` tells which), LS_ERR_MEMORY,
 * LS_ERR_IO, LS_ERR_TIMEOUT (the program does not begin to run within a minute), LS_ERR_ABORTED (a signal to end
 * came before it did). Then not all ranks could be started, those that were have been killed, and nothing is left
 * behind but what the kernel does not end, which is named.
 *
 * For a process of one thread whose only children are the job's: all that become children meanwhile are ended with
 * it. Descriptors 0, 1 and 2 are open. Signal dispositions and mask are as before at the return. */
ls_status launch_run(const launch_options *options, launch_result *result);

#endif
