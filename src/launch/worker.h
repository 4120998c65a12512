/* worker.h: how a rank's process comes to be. */
#ifndef LS_LAUNCH_WORKER_H
#define LS_LAUNCH_WORKER_H

#include <lockstep/base.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Finds `name` as a shell does: as it is when it holds a slash, else along PATH. `path` (owned by the caller, ls_free)
 * leads to a file that may be executed. Errors: LS_ERR_ARGUMENT, `exit_code` being what a shell would return. */
ls_status launch_find_program(const char *name, char **path, int *exit_code);

typedef struct launch_start {
    const char *path;
    char *const *arguments;
    char *const *environment;
    int input, output, error_output; /* become 0, 1 and 2 */
    int door;                        /* stays open, under its number */
    sigset_t mask;                   /* the signal mask of the program */
    struct rlimit descriptors;       /* its limit on them */
    bool ignores_pipe_signal;
    int64_t limit_ms; /* until the program runs */
    int cancel;       /* a descriptor: once it is readable the start is given up; -1: none */
} launch_start;

/* Starts a process in a session of its own, which dies with this one, and returns when the program runs in it.
 * Errors: LS_ERR_IO (no process, no memory), LS_ERR_ARGUMENT (the file is no program), LS_ERR_TIMEOUT,
 * LS_ERR_ABORTED (it was cancelled); then no process is left, but for one that the kernel does not end: it is named, and
 * `pid` receives it. */
ls_status launch_worker_start(const launch_start *start, pid_t *pid);

#endif
