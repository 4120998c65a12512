/* worker.c: fork, then the shim, a few calls in the child before the program itself:
 *
 *   1. a session, and with it a process group, of its own: it is signalled and ended whole, and apart from the terminal
 *   2. death of the launcher kills it (PR_SET_PDEATHSIG)
 *   3. unless the launcher has died already: the parent is checked after 2, so no moment is left open
 *   4. standard descriptors, the signal mask, exec; what exec says goes back through a pipe that closes when it
 *   succeeds
 *
 * Between fork and exec only calls that are safe after a fork are made.                                              */
#include "launch/worker.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/wait.h"
#include "launch/launch.h"
#include "launch/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the program -------------------------------------------------------------------------------------------------- */

static bool is_program(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode) && access(path, X_OK) == 0;
}

/* Looks along PATH; NULL when it is nowhere there. */
static char *search(const char *name) {
    const char *folders = ls_env_text("PATH");
    /* As a shell does without a PATH. */
    if (!folders) folders = "/usr/local/bin:/usr/bin:/bin";
    for (const char *at = folders;; at++) {
        const size_t length = strcspn(at, ":");
        const size_t bytes = length + strlen(name) + 3;
        char *path = ls_alloc(bytes);
        if (!path) return NULL;
        /* An empty entry of PATH means the current folder. */
        snprintf(path, bytes, "%.*s/%s", length ? (int)length : 1, length ? at : ".", name);
        if (is_program(path)) return path;
        ls_free(path);
        at += length;
        if (!*at) break;
    }
    ls_fail(LS_ERR_ARGUMENT, "program not found: \"%s\" is in no folder of PATH; a file of this folder is called ./%s",
            name, name);
    return NULL;
}

ls_status launch_find_program(const char *name, char **path, int *exit_code) {
    *path = NULL;
    *exit_code = LAUNCH_EXIT_NOT_FOUND;
    if (!*name) return ls_fail(LS_ERR_ARGUMENT, "program not found: its name is empty");
    if (!strchr(name, '/')) {
        *path = search(name);
        return *path ? LS_OK : LS_ERR_ARGUMENT;
    }
    if (access(name, F_OK) != 0) return ls_fail_errno(LS_ERR_ARGUMENT, errno, "program not found: \"%s\"", name);
    *exit_code = LAUNCH_EXIT_NO_PROGRAM;
    if (!is_program(name))
        return ls_fail(LS_ERR_ARGUMENT, "\"%s\" is no program: not a file that may be executed", name);
    *path = ls_strdup(name);
    return *path ? LS_OK : LS_ERR_MEMORY;
}

/* --- the shim ----------------------------------------------------------------------------------------------------- */

static _Noreturn void become_program(const launch_start *start, pid_t launcher, int report) {
    ls_point("launch.worker.forked");
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* As if the death signal had come in time. */
    if (getppid() != launcher) _exit(128 + SIGKILL);
    const struct sigaction standard = {.sa_handler = SIG_DFL};
    if (!start->ignores_pipe_signal) sigaction(SIGPIPE, &standard, NULL);
    /* The launcher has raised its own; a program with select() must not find numbers past 1024. */
    setrlimit(RLIMIT_NOFILE, &start->descriptors);
    const int wanted[3] = {start->input, start->output, start->error_output};
    bool is_ready = true;
    for (int i = 0; i < 3; i++) is_ready = is_ready && (wanted[i] == i || dup2(wanted[i], i) >= 0);
    if (is_ready && fcntl(start->door, F_SETFD, 0) == 0 && sigprocmask(SIG_SETMASK, &start->mask, NULL) == 0)
        execve(start->path, start->arguments, start->environment);
    const int failure = errno;
    while (write(report, &failure, sizeof failure) < 0 && errno == EINTR) {}
    _exit(LAUNCH_EXIT_NO_PROGRAM);
}

/* Until the program runs. */
static ls_status await_program(const launch_start *start, int report) {
    struct pollfd polled[2] = {{.fd = report, .events = POLLIN}, {.fd = start->cancel, .events = POLLIN}};
    const int ready = ls_descriptors_wait(polled, 2, ls_deadline_after_ms(start->limit_ms));
    if (ready <= 0)
        return ls_fail(LS_ERR_TIMEOUT,
                       "\"%s\" did not begin to run within %" PRId64 " ms; does its file system hang, or did somebody "
                       "stop the process?",
                       start->path, start->limit_ms);
    /* A program that runs by now does so, whatever else has come: the loop passes the signal on to it. */
    if (!polled[0].revents) return ls_fail(LS_ERR_ABORTED, "\"%s\" had not begun to run", start->path);
    int failure = 0;
    /* exec closes its end of the pipe, as it does with all that is close-on-exec: then nothing is to be read. */
    if (read(report, &failure, sizeof failure) != (ssize_t)sizeof failure) return LS_OK;
    const ls_status status = failure == ENOMEM || failure == EAGAIN ? LS_ERR_IO : LS_ERR_ARGUMENT;
    return ls_fail_errno(status, failure, "cannot execute \"%s\"", start->path);
}

ls_status launch_worker_start(const launch_start *start, pid_t *started) {
    int report[2];
    const int failed = LS_SYSCALL(EMFILE, pipe2(report, O_CLOEXEC));
    if (failed) return ls_fail_errno(LS_ERR_IO, errno, "cannot make a pipe for a worker's start");
    const pid_t launcher = getpid();
    const pid_t pid = LS_SYSCALL(EAGAIN, fork());
    if (pid == 0) become_program(start, launcher, report[1]);
    const int failure = errno;
    close(report[1]);
    ls_status status = pid > 0
                           ? await_program(start, report[0])
                           : ls_fail_errno(LS_ERR_IO, failure, "cannot start a process; raise the limit on processes");
    close(report[0]);
    const bool is_there = pid > 0 && (status == LS_OK || !launch_process_end(pid));
    if (is_there) *started = pid;
    if (status == LS_OK || !is_there) return status;
    return ls_fail_within(status, "process %d was killed and does not end; it is left behind", (int)pid);
}
