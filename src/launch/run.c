/* run.c: a job starts, and the whole of it.
 *
 * What lives as long as the job is made first, then rank after rank. A start that fails at any of these calls takes
 * back what it began: the caller has a job or has none. */
#include "launch/job.h"

#include "launch/cores.h"
#include "launch/environment.h"
#include "launch/worker.h"
#include "store/service.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_LIMIT_MS = 60000 };

/* --- the start ---------------------------------------------------------------------------------------------------- */

/* The pipes for a rank's output, unless the only rank writes to the launcher's own. */
static ls_status make_pipes(job *self, int rank, int *output, int *error_output) {
    /* So a single program has its terminal, with colours and width. */
    if (self->options->ranks == 1 && !self->options->observer.line) return LS_OK;
    int *const ends[2] = {output, error_output};
    for (int i = 0; i < 2; i++) {
        int pipe[2];
        const int failed = LS_SYSCALL(EMFILE, pipe2(pipe, O_CLOEXEC));
        if (failed) return ls_fail_errno(LS_ERR_IO, errno, "cannot make a pipe for the output of rank %d", rank);
        *ends[i] = pipe[1];
        LS_TRY(launch_output_add(self->output, rank, i == 1, pipe[0]));
    }
    return LS_OK;
}

/* A signal to end has come meanwhile. It ends here: there is no job that it could be passed on to. */
static ls_status fail_interrupted(const job *self) {
    char name[24];
    const int signal = launch_signals_take_end();
    self->result->exit_code = 128 + signal;
    return ls_fail_within(LS_ERR_ABORTED, "%s came before all ranks ran",
                          launch_signal_name(signal, name, sizeof name));
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
                          .limit_ms = START_LIMIT_MS,
                          .cancel = self->signals.ends};
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
    if (status != LS_OK) self->left_behind = pid;
    if (status == LS_ERR_ABORTED) status = fail_interrupted(self);
    /* The rank has its own by now: the store sees a closed door when the rank's last copy goes. */
    if (start.door >= 0) close(start.door);
    if (start.output != STDOUT_FILENO) close(start.output);
    if (start.error_output != STDERR_FILENO) close(start.error_output);
    ls_free(environment);
    LS_TRY(status);

    self->ranks[rank] = (job_rank){.pid = pid, .is_running = true, .has_group = true};
    self->running++;
    /* At once: if we are killed now, the watcher knows of it. */
    launch_watcher_begun(&self->watcher, pid);
    const launch_observer *observer = &self->options->observer;
    if (observer->started) observer->started(observer->context, rank, pid);
    return LS_OK;
}

static ls_status open_null(job *self) {
    self->null = LS_SYSCALL(EMFILE, open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (self->null < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot open /dev/null");
    return LS_OK;
}

static ls_status start_all(job *self) {
    LS_TRY(open_null(self));
    LS_TRY(launch_output_open(&self->output, &self->loop, self->options, job_check_done, self));
    LS_TRY(store_server_open(&self->server, &self->loop, NULL));
    LS_TRY(store_server_listen_on_name(self->server));
    /* Before the first fork, or the end of a short-lived rank could be missed. */
    LS_TRY(launch_signals_open(&self->signals, &self->loop, job_signal_received, self));
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
        const launch_result result = *self->result;
        job_kill(self);
        uv_run(&self->loop, UV_RUN_DEFAULT);
        /* Of the failed start, not of a rank that was killed for it. */
        *self->result = result;
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
    /* Once more, for the callbacks that close handles and free what they hold. */
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
    if ((status = store_loop_open(&self->loop)) != LS_OK) goto out;
    uv_timer_init(&self->loop, &self->timer);
    uv_timer_init(&self->loop, &self->tell_timer);
    self->timer.data = self->tell_timer.data = self;
    prctl(PR_GET_CHILD_SUBREAPER, &self->was_subreaper, 0, 0, 0);
    /* Before the first rank: its orphans come to us from the beginning. */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    raise_descriptor_limit(self);

    status = start_all(self);
    if (status == LS_OK) {
        result->exit_code = 0;
        uv_run(&self->loop, UV_RUN_DEFAULT); /* until job_check_done stops it */
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
