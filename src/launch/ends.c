/* ends.c: what happens to a job until nobody is left.
 *
 * All of it runs on the launcher's loop, called by a signal, a timer, or the output. The phases (launch/job.h) only
 * go forward, and each has one timer, the same one, that leads to the next. */
#include "launch/job.h"

#include "launch/processes.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LINGER_MS = 500,
    GRACE_MS = 10000,
    KILL_LIMIT_MS = 30000,
    KILL_AGAIN_MS = 5,
    KILL_AGAIN_MOST_MS = 200,
    TELL_EXIT_MS = 100
};

/* --- ends --------------------------------------------------------------------------------------------------------- */

static void enter_ending(job *self, int signal);
static void reap(job *self);

static void signal_groups(job *self, int signal) {
    for (int i = 0; i < self->options->ranks; i++)
        /* The group, not the process: what a rank has started is asked as well. */
        if (self->ranks[i].has_group) kill(-self->ranks[i].pid, signal);
}

/* Orphans are ours by PR_SET_CHILD_SUBREAPER; the watcher has to outlive us, and whoever hung in its start may. */
static bool is_of_job(const job *self, const launch_process *process) {
    return process->parent == getpid() && process->pid != self->watcher.pid && process->pid != self->left_behind;
}

static void count_descendant(void *context, const launch_process *process) {
    job *self = context;
    if (!is_of_job(self, process) || process->is_zombie) return;
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
void job_check_done(void *context) {
    job *self = context;
    if (self->phase != DRAINING || !launch_output_has_ended(self->output)) return;
    if (!self->is_reported) {
        self->is_reported = true;
        report(self);
    }
    if (launch_output_is_done(self->output)) uv_stop(&self->loop);
}

static void grace_over(uv_timer_t *timer) {
    job_kill(timer->data);
}

static void linger_over(uv_timer_t *timer) {
    enter_ending(timer->data, SIGTERM);
}

/* No writer is left that we wait for: the pipes end when they are empty. */
static void drain(job *self) {
    self->phase = DRAINING;
    uv_timer_stop(&self->timer);
    launch_output_drain(self->output);
    job_check_done(self);
}

/* Called whenever a process has ended: is the job over? */
static void look_around(job *self) {
    if (self->running > 0 || self->phase == DRAINING) return;
    if (has_descendants(self)) {
        if (self->phase < ENDING) enter_ending(self, SIGTERM);
        return;
    }
    drain(self);
}

/* Of a child that SIGKILL has not ended: a zombie too, which a debugger that traces it keeps from us. */
static void tell_of_rest(void *context, const launch_process *process) {
    job *self = context;
    if (!is_of_job(self, process)) return;
    char whose[32] = "the job";
    for (int i = 0; i < self->options->ranks; i++)
        if (self->ranks[i].pid == process->session) snprintf(whose, sizeof whose, "rank %d", i);
    launch_output_say(self->output,
                      "process %d of %s was killed and does not end; it is left behind. Does a debugger hold it, or "
                      "its file system hang?",
                      (int)process->pid, whose);
}

/* The kernel ends it one day: the signal has come. Nobody can wait for that. */
static void give_up(job *self) {
    /* Or those that have died since the loop last looked would be named too. */
    reap(self);
    if (self->phase == DRAINING) return;
    /* As of a rank that SIGKILL has ended, which it will have. */
    if (self->result->exit_code == 0) self->result->exit_code = 128 + SIGKILL;
    launch_each_process(tell_of_rest, self);
    drain(self);
}

static void kill_again(uv_timer_t *timer) {
    job *self = timer->data;
    signal_groups(self, SIGKILL);
    if (!has_descendants(self)) look_around(self);
    if (self->phase != KILLING) return;
    if (uv_now(&self->loop) >= self->kill_end_ms) give_up(self);
    /* Looking through all processes takes time, which those that die may need. */
    const uint64_t pause_ms = 2 * uv_timer_get_repeat(timer);
    uv_timer_set_repeat(timer, pause_ms < KILL_AGAIN_MOST_MS ? pause_ms : KILL_AGAIN_MOST_MS);
}

void job_kill(job *self) {
    const int64_t limit_ms = self->options->kill_limit_ms;
    self->phase = KILLING;
    /* A start that failed comes here before the loop has run: its clock would be as old as the start is long. */
    uv_update_time(&self->loop);
    self->kill_end_ms = uv_now(&self->loop) + (uint64_t)(limit_ms ? limit_ms : KILL_LIMIT_MS);
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

void job_signal_received(void *context, int signal) {
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
        job_kill(self);
    } else {
        launch_output_say(self->output, "%s was passed on to all ranks", launch_signal_name(signal, name, sizeof name));
        enter_ending(self, 0);
    }
    self->was_asked = true;
}
