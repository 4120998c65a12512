/* run.c: the life of a job.
 *
 *             first failure                  linger over                grace over
 *   running ---------------> lingering -------------------> ending --------------> killing
 *      |                        |                             |                       |
 *      +------------------------+------- nobody is left ------+-----------------------+----> draining ----> done
 *
 *   running     all is well; a signal to end (TERM, INT, HUP) is passed on and goes straight to ending
 *   lingering   a rank has failed: the others get a moment to end by themselves, with errors of their own
 *   ending      SIGTERM has gone to every process group (or the user's own signal has)
 *   killing     SIGKILL to all descendants, again and again until none is left; a second signal to end comes here at
 *               once
 *   draining    no process is left: what they wrote is read to its end and written
 *
 * When the last rank has ended by itself and descendants are left, the job is ending too. The launcher is their
 * subreaper (PR_SET_CHILD_SUBREAPER): whatever a rank leaves behind becomes the launcher's child, also what made a
 * session of its own, so "a child is left" is a question with an exact answer. Sessions (each rank has one) stay known
 * to the watcher until their last process is gone.                                                                   */
#include "launch/launch.h"

#include "launch/cores.h"
#include "launch/environment.h"
#include "launch/output.h"
#include "launch/processes.h"
#include "launch/signals.h"
#include "launch/watcher.h"
#include "launch/worker.h"

#include "store/server.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

enum { START_LIMIT_MS = 60000, LINGER_MS = 500, GRACE_MS = 10000, KILL_AGAIN_MS = 5, TELL_EXIT_MS = 100 };

typedef enum job_phase { RUNNING, LINGERING, ENDING, KILLING, DRAINING } job_phase;

typedef struct job_rank {
    pid_t pid; /* its session and process group too; 0: not started */
    bool is_running;
    bool has_group;  /* some process of its group may be there */
    int wait_status; /* once it has ended */
} job_rank;

typedef struct job {
    const launch_options *options;
    launch_result *result;
    job_phase phase;
    job_rank *ranks;
    int running; /* ranks that have not ended */
    int *failed; /* ranks that have ended badly, in the order of time */
    int failed_count, told_count;
    bool was_asked; /* a signal to end has come */
    bool is_reported;
    int descendants; /* found by the last look */
    uv_loop_t loop;
    uv_timer_t timer, tell_timer;
    launch_signals signals;
    store_server *server;
    launch_output *output;
    launch_watcher watcher;
    char *path;
    int null;
    int was_subreaper;
    struct rlimit descriptors_before;
} job;

/* --- ends --------------------------------------------------------------------------------------------------------- */

static void enter_ending(job *self, int signal);
static void enter_killing(job *self);

static void signal_groups(job *self, int signal) {
    for (int i = 0; i < self->options->ranks; i++)
        /* The group, not the process: what a rank has started is asked as well. */
        if (self->ranks[i].has_group) kill(-self->ranks[i].pid, signal);
}

static void count_descendant(void *context, const launch_process *process) {
    job *self = context;
    /* Orphans are ours by PR_SET_CHILD_SUBREAPER; the watcher has to outlive us. */
    if (process->parent != getpid() || process->pid == self->watcher.pid || process->is_zombie) return;
    self->descendants++;
    if (self->phase == KILLING) kill(process->pid, SIGKILL);
}

/* Looks for living children, which include orphans of the ranks. In the killing phase kills them as well. */
static bool has_descendants(job *self) {
    self->descendants = 0;
    launch_each_process(count_descendant, self);
    return self->descendants > 0;
}

static void report(job *self) {
    const int rank = self->result->first_failed;
    if (rank < 0) return;
    const int wait_status = self->ranks[rank].wait_status;
    launch_output_repeat_last(self->output, rank);
    char name[24];
    if (WIFEXITED(wait_status))
        launch_output_say(self->output, "first failure: rank %d, exit %d", rank, WEXITSTATUS(wait_status));
    else
        launch_output_say(self->output, "first failure: rank %d was killed by signal %d (%s)", rank,
                          WTERMSIG(wait_status), launch_signal_name(WTERMSIG(wait_status), name, sizeof name));
}

/* The report comes last: after all that the ranks wrote. */
static void check_done(void *context) {
    job *self = context;
    if (self->phase != DRAINING || !launch_output_has_ended(self->output)) return;
    if (!self->is_reported) {
        self->is_reported = true;
        report(self);
    }
    if (launch_output_is_done(self->output)) uv_stop(&self->loop);
}

static void grace_over(uv_timer_t *timer) {
    enter_killing(timer->data);
}

static void linger_over(uv_timer_t *timer) {
    enter_ending(timer->data, SIGTERM);
}

/* Called whenever a process has ended: is the job over? */
static void look_around(job *self) {
    if (self->running > 0 || self->phase == DRAINING) return;
    if (has_descendants(self)) {
        if (self->phase < ENDING) enter_ending(self, SIGTERM);
        return;
    }
    /* No writer is left: the pipes end when they are empty. */
    self->phase = DRAINING;
    uv_timer_stop(&self->timer);
    launch_output_drain(self->output);
    check_done(self);
}

static void kill_again(uv_timer_t *timer) {
    job *self = timer->data;
    signal_groups(self, SIGKILL);
    if (has_descendants(self)) return;
    look_around(self);
}

static void enter_killing(job *self) {
    self->phase = KILLING;
    uv_timer_start(&self->timer, kill_again, 0, KILL_AGAIN_MS);
}

/* `signal` goes to all groups; 0: it has gone already. */
static void enter_ending(job *self, int signal) {
    const int64_t grace_ms = self->options->grace_ms;
    self->phase = ENDING;
    if (signal) signal_groups(self, signal);
    uv_timer_start(&self->timer, grace_over, (uint64_t)(grace_ms ? grace_ms : GRACE_MS), 0);
}

/* --- what happens ------------------------------------------------------------------------------------------------- */

static bool is_failure(int wait_status) {
    return !(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
}

static void tell_of(const job *self, int rank) {
    char name[24], how[64];
    const int wait_status = self->ranks[rank].wait_status;
    if (WIFSIGNALED(wait_status))
        snprintf(how, sizeof how, "was killed by signal %d (%s)", WTERMSIG(wait_status),
                 launch_signal_name(WTERMSIG(wait_status), name, sizeof name));
    else
        snprintf(how, sizeof how, "ended with exit code %d", WEXITSTATUS(wait_status));
    store_server_lost(self->server, rank, "rank %d (process %d) is gone: it %s", rank, (int)self->ranks[rank].pid, how);
}

/* Who waits for them at the store learns of it, as long as it may live. */
static void tell_others(job *self) {
    for (int is_killed = 1; is_killed >= 0; is_killed--)
        for (int i = self->told_count; i < self->failed_count; i++)
            if (WIFSIGNALED(self->ranks[self->failed[i]].wait_status) == is_killed) tell_of(self, self->failed[i]);
    self->told_count = self->failed_count;
    uv_timer_stop(&self->tell_timer);
}

static void moment_over(uv_timer_t *timer) {
    tell_others(timer->data);
}

/* A child has ended. Returns its rank; -1 for an orphan that became ours, or the watcher. */
static int note_end(job *self, pid_t pid, int wait_status) {
    /* Somebody has killed it: the job goes on, without that net. */
    if (pid == self->watcher.pid) self->watcher.pid = 0;
    for (int i = 0; i < self->options->ranks; i++) {
        job_rank *rank = &self->ranks[i];
        if (rank->pid != pid || !rank->is_running) continue;
        rank->is_running = false;
        rank->wait_status = wait_status;
        self->running--;
        if (is_failure(wait_status)) self->failed[self->failed_count++] = i;
        const launch_observer *observer = &self->options->observer;
        if (observer->ended) observer->ended(observer->context, i, wait_status);
        return i;
    }
    return -1;
}

/* A group without processes is forgotten at once: its number may be given to others. While one is left it cannot be. */
static void forget_empty_groups(job *self) {
    for (int i = 0; i < self->options->ranks; i++) {
        job_rank *rank = &self->ranks[i];
        if (!rank->has_group || rank->is_running || kill(-rank->pid, 0) == 0 || errno != ESRCH) continue;
        rank->has_group = false;
        /* Or the watcher would one day kill whoever has the number by then. */
        launch_watcher_over(&self->watcher, rank->pid);
    }
}

static void take_failure(job *self, int rank) {
    const int wait_status = self->ranks[rank].wait_status;
    self->result->first_failed = rank;
    self->result->exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    /* It is ending already, by the user's wish: only the exit code is new. */
    if (self->phase != RUNNING) return;
    const int64_t linger_ms = self->options->linger_ms;
    self->phase = LINGERING;
    uv_timer_start(&self->timer, linger_over, (uint64_t)(linger_ms ? linger_ms : LINGER_MS), 0);
}

/* Reaps all who have ended. Of several failures that are found at once, a kill is rather the cause than an exit; and
 * of an exit the others are told after a moment, since its cause may be a rank that is still dying. */
static void reap(job *self) {
    int wait_status = 0, failed = -1;
    pid_t pid;
    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        const int rank = note_end(self, pid, wait_status);
        if (rank < 0 || !is_failure(wait_status)) continue;
        if (failed < 0 || (WIFSIGNALED(wait_status) && !WIFSIGNALED(self->ranks[failed].wait_status))) failed = rank;
    }
    forget_empty_groups(self);
    if (failed >= 0 && WIFSIGNALED(self->ranks[failed].wait_status))
        tell_others(self);
    else if (failed >= 0 && !uv_is_active((uv_handle_t *)&self->tell_timer))
        uv_timer_start(&self->tell_timer, moment_over, TELL_EXIT_MS, 0);
    if (failed >= 0 && self->result->first_failed < 0) take_failure(self, failed);
    look_around(self);
}

static void signal_received(void *context, int signal) {
    job *self = context;
    if (signal == SIGCHLD) {
        reap(self);
        return;
    }
    signal_groups(self, signal);
    if (signal == SIGUSR1 || signal == SIGUSR2) return;
    if (self->phase == DRAINING) uv_stop(&self->loop); /* the reader of our output is stuck, and the user knows */
    /* There is nothing harder to come. */
    if (self->phase >= KILLING) return;
    char name[24];
    if (self->was_asked) {
        launch_output_say(self->output, "%s once more: what is left is killed",
                          launch_signal_name(signal, name, sizeof name));
        enter_killing(self);
    } else {
        launch_output_say(self->output, "%s was passed on to all ranks", launch_signal_name(signal, name, sizeof name));
        enter_ending(self, 0);
    }
    self->was_asked = true;
}

/* --- the start ---------------------------------------------------------------------------------------------------- */

/* The pipes for a rank's output, unless the only rank writes to the launcher's own. */
static ls_status make_pipes(job *self, int rank, int *output, int *error_output) {
    /* So a single program has its terminal, with colours and width. */
    if (self->options->ranks == 1 && !self->options->observer.line) return LS_OK;
    int *const ends[2] = {output, error_output};
    for (int i = 0; i < 2; i++) {
        int pipe[2];
        const int failed = ls_fault(LS_FAULT_SYSCALL) ? (errno = EMFILE, -1) : pipe2(pipe, O_CLOEXEC);
        if (failed) return ls_fail_errno(LS_ERR_IO, errno, "cannot make a pipe for the output of rank %d", rank);
        *ends[i] = pipe[1];
        LS_TRY(launch_output_add(self->output, rank, i == 1, pipe[0]));
    }
    return LS_OK;
}

static ls_status start_rank(job *self, int rank, int cores) {
    const char *socket = store_server_name(self->server);
    launch_start start = {.path = self->path,
                          .arguments = self->options->program,
                          .input = self->null,
                          .output = STDOUT_FILENO,
                          .error_output = STDERR_FILENO,
                          .door = -1,
                          .mask = self->signals.mask_before,
                          .descriptors = self->descriptors_before,
                          .ignores_pipe_signal = self->signals.pipe_before.sa_handler == SIG_IGN,
                          .limit_ms = START_LIMIT_MS};
    char **environment = NULL;
    ls_status status = store_server_add_door(self->server, &start.door);
    if (status == LS_OK) {
        /* The socket's name ends with the job's identity, behind a dash. */
        const launch_place place = {.rank = rank,
                                    .ranks = self->options->ranks,
                                    .cores = cores,
                                    .job = strchr(socket, '-') + 1,
                                    .socket = socket,
                                    .door = start.door,
                                    .launcher = getpid()};
        environment = launch_environment_create(&place);
        start.environment = environment;
        status = environment ? make_pipes(self, rank, &start.output, &start.error_output) : LS_ERR_MEMORY;
    }
    pid_t pid = 0;
    if (status == LS_OK) status = launch_worker_start(&start, &pid);
    /* The rank has its own by now: the store sees a closed door when the rank's last copy goes. */
    if (start.door >= 0) close(start.door);
    if (start.output != STDOUT_FILENO) close(start.output);
    if (start.error_output != STDERR_FILENO) close(start.error_output);
    ls_free(environment);
    LS_TRY(status);

    self->ranks[rank] = (job_rank){.pid = pid, .is_running = true, .has_group = true};
    self->running++;
    launch_watcher_begun(&self->watcher, pid);
    const launch_observer *observer = &self->options->observer;
    if (observer->started) observer->started(observer->context, rank, pid);
    return LS_OK;
}

static ls_status open_null(job *self) {
    self->null = ls_fault(LS_FAULT_SYSCALL) ? (errno = EMFILE, -1) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (self->null < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot open /dev/null");
    return LS_OK;
}

static ls_status start_all(job *self) {
    LS_TRY(open_null(self));
    LS_TRY(launch_output_open(&self->output, &self->loop, self->options, check_done, self));
    LS_TRY(store_server_open(&self->server, &self->loop, NULL));
    LS_TRY(store_server_listen_on_name(self->server));
    /* Before the first fork, or the end of a short-lived rank could be missed. */
    LS_TRY(launch_signals_open(&self->signals, &self->loop, signal_received, self));
    LS_TRY(launch_watcher_start(&self->watcher, strchr(store_server_name(self->server), '-') + 1));
    const int cores = launch_cores();
    for (int i = 0; i < self->options->ranks; i++) LS_TRY(start_rank(self, i, cores));
    return LS_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* A rank that may open many descriptors keeps its limit; the launcher needs up to five for each. */
static void raise_descriptor_limit(job *self) {
    getrlimit(RLIMIT_NOFILE, &self->descriptors_before);
    /* Up to what the user may have, which needs no right. */
    const struct rlimit raised = {.rlim_cur = self->descriptors_before.rlim_max,
                                  .rlim_max = self->descriptors_before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &raised);
}

/* A start that failed half-way ends what it began, and says nothing of it but the error. */
static ls_status take_back(job *self, ls_status status) {
    ls_error error;
    ls_error_capture(&error, status);
    self->is_reported = true;
    /* As hard as it goes: a job that never came up has nothing to save. */
    if (self->running > 0) {
        enter_killing(self);
        uv_run(&self->loop, UV_RUN_DEFAULT);
    }
    return ls_error_raise(&error);
}

static void close_all(job *self) {
    launch_watcher_dismiss(&self->watcher);
    launch_signals_close(&self->signals);
    store_server_close(&self->server);
    launch_output_close(&self->output);
    uv_close((uv_handle_t *)&self->timer, NULL);
    uv_close((uv_handle_t *)&self->tell_timer, NULL);
    uv_run(&self->loop, UV_RUN_DEFAULT);
    uv_loop_close(&self->loop);
    if (self->null >= 0) close(self->null);
    while (waitpid(-1, NULL, WNOHANG) > 0) {} /* whose end nobody had time to note */
    prctl(PR_SET_CHILD_SUBREAPER, self->was_subreaper, 0, 0, 0);
    setrlimit(RLIMIT_NOFILE, &self->descriptors_before);
}

static ls_status check_options(const launch_options *options, launch_result *result) {
    *result = (launch_result){.exit_code = 2, .first_failed = -1};
    if (options->ranks < 1 || options->ranks > LAUNCH_MOST_RANKS)
        return ls_fail(LS_ERR_ARGUMENT, "%d ranks: expected 1 to %d", options->ranks, LAUNCH_MOST_RANKS);
    if (!options->program || !options->program[0]) return ls_fail(LS_ERR_ARGUMENT, "no program is named");
    return LS_OK;
}

ls_status launch_run(const launch_options *options, launch_result *result) {
    LS_TRY(check_options(options, result));
    job *self = ls_alloc(sizeof *self);
    if (!self) return LS_ERR_MEMORY;
    *self = (job){.options = options, .result = result, .null = -1, .watcher = LAUNCH_NO_WATCHER};
    ls_status status = launch_find_program(options->program[0], &self->path, &result->exit_code);
    if (status != LS_OK) goto out;
    /* From here on a failure is the launcher's own. */
    result->exit_code = 1;
    status = LS_ERR_MEMORY;
    self->ranks = ls_alloc_array((size_t)options->ranks, sizeof(job_rank));
    self->failed = ls_alloc_array((size_t)options->ranks, sizeof *self->failed);
    if (!self->ranks || !self->failed) goto out;
    const int failure = ls_fault(LS_FAULT_SYSCALL) ? UV_EMFILE : uv_loop_init(&self->loop);
    if (failure) {
        status = ls_fail(LS_ERR_IO, "the launcher cannot make its loop: %s", uv_strerror(failure));
        goto out;
    }
    uv_timer_init(&self->loop, &self->timer);
    uv_timer_init(&self->loop, &self->tell_timer);
    self->timer.data = self->tell_timer.data = self;
    prctl(PR_GET_CHILD_SUBREAPER, &self->was_subreaper, 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    raise_descriptor_limit(self);

    status = start_all(self);
    if (status == LS_OK) {
        result->exit_code = 0;
        /* Once more, for the callbacks that close handles and free what they hold. */
        uv_run(&self->loop, UV_RUN_DEFAULT); /* until check_done stops it */
    } else {
        status = take_back(self, status);
    }
    close_all(self);
out:
    ls_free(self->ranks);
    ls_free(self->failed);
    ls_free(self->path);
    ls_free(self);
    return status;
}
