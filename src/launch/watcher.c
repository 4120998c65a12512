/* watcher.c: holds the reading end of a pipe whose writing end the launcher alone has. When the launcher ends without a
 * word, kill -9 included, the read returns 0, and the watcher kills every session that the launcher named, and every
 * process that carries the job's identity in its environment (those that made a session of their own). A launcher that
 * ends well kills its watcher first, which works on a stopped one too and leaves nothing to be answered.
 *
 * It is a fork of the launcher that never execs: nothing to be found or to fail. It keeps no descriptor but the pipe,
 * so that it holds nobody's output open, and has a session of its own, so that no terminal reaches it.               */
#include "launch/watcher.h"

#include "launch/processes.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MOST_SESSIONS = 4096, STRIKE_LIMIT_MS = 5000 };

typedef struct watch_state {
    const char *job;
    pid_t sessions[MOST_SESSIONS];
    int count;
    int struck; /* processes killed in this pass */
} watch_state;

static void note(watch_state *state, pid_t message) {
    /* As many as there may be ranks. */
    if (message > 0 && state->count < MOST_SESSIONS) state->sessions[state->count++] = message;
    for (int i = 0; message < 0 && i < state->count; i++)
        if (state->sessions[i] == -message) state->sessions[i--] = state->sessions[--state->count];
}

static void strike_at(void *context, const launch_process *process) {
    watch_state *state = context;
    /* The watcher carries the job's identity as well. */
    if (process->is_zombie || process->pid == getpid()) return;
    bool is_ours = false;
    for (int i = 0; i < state->count && !is_ours; i++) is_ours = process->session == state->sessions[i];
    if (!is_ours && !launch_process_carries(process->pid, state->job)) return;
    state->struck++;
    kill(process->pid, SIGKILL);
}

/* Passes over all processes until one finds none: a process may fork while it is struck. */
static void strike(watch_state *state) {
    const int64_t deadline_ns = ls_deadline_after_ms(STRIKE_LIMIT_MS);
    /* Whole groups first, at once: fewer are left to fork while the list is read. */
    for (int i = 0; i < state->count; i++) kill(-state->sessions[i], SIGKILL);
    do {
        state->struck = 0;
        launch_each_process(strike_at, state);
        if (state->struck > 0) ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
    } while (state->struck > 0 && ls_now_ns() < deadline_ns);
}

static _Noreturn void watch(int control, const char *job) {
    setsid();
    prctl(PR_SET_NAME, "lockstep-watch");
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++) dup2(nowhere, i);
    /* Then all else is closed in one call, whatever the launcher had open. */
    dup2(control, 3);
    closefrom(4);
    watch_state state = {.job = job};
    for (;;) {
        pid_t message = 0;
        const ssize_t bytes = read(3, &message, sizeof message);
        if (bytes < 0 && errno == EINTR) continue;
        /* The end of the pipe, and we live: the launcher is dead. */
        if (bytes != (ssize_t)sizeof message) break;
        note(&state, message);
    }
    strike(&state);
    _exit(0);
}

ls_status launch_watcher_start(launch_watcher *watcher, const char *job) {
    int ends[2];
    const int failed = LS_SYSCALL(EMFILE, pipe2(ends, O_CLOEXEC));
    if (failed) return ls_fail_errno(LS_ERR_IO, errno, "cannot make the watcher's pipe");
    const pid_t pid = LS_SYSCALL(EAGAIN, fork());
    if (pid == 0) {
        close(ends[1]);
        watch(ends[0], job);
    }
    const int failure = errno;
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return ls_fail_errno(LS_ERR_IO, failure, "cannot start the watcher");
    }
    *watcher = (launch_watcher){.pid = pid, .control = ends[1]};
    return LS_OK;
}

/* A pipe takes 64 KiB before it blocks; a watcher that was killed makes this fail, and the job goes on without it. */
static void tell(const launch_watcher *watcher, pid_t message) {
    while (watcher->control >= 0 && write(watcher->control, &message, sizeof message) < 0 && errno == EINTR) {}
}

void launch_watcher_begun(const launch_watcher *watcher, pid_t session) {
    tell(watcher, session);
}

void launch_watcher_over(const launch_watcher *watcher, pid_t session) {
    tell(watcher, -session);
}

void launch_watcher_dismiss(launch_watcher *watcher) {
    if (watcher->pid > 0) launch_process_end(watcher->pid);
    /* Last, or it would take us for dead. */
    if (watcher->control >= 0) close(watcher->control);
    *watcher = LAUNCH_NO_WATCHER;
}
