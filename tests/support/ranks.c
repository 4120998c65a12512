/* ranks.c: the launcher in a forked process, which notes all that happens in memory shared with the test. */
#include "support/ranks.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/wait.h"
#include "launch/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 50000, LOOK_AGAIN_MS = 2, MOST_ARGUMENTS = 64 };

#define TEXT_BYTES ((size_t)8 << 20) /* only pages that are written to take memory */

/* Written by the launcher's process, read by the test: bytes first, then `used` (release). */
typedef struct shared_text {
    _Atomic size_t used;
    char bytes[TEXT_BYTES];
} shared_text;

typedef struct shared_rank {
    _Atomic int pid;
    _Atomic int exit_code; /* -1: runs */
    shared_text streams[2];
} shared_rank;

typedef struct shared_job {
    _Atomic int exit_code; /* -1: not over, or the launcher was killed */
    _Atomic int first_failed;
    char error[1024];
    shared_rank ranks[];
} shared_job;

struct ls_ranks {
    shared_job *job;
    size_t bytes;
    int count;
    int64_t deadline_ns;
    pid_t launcher; /* 0: has ended and was waited for */
    pid_t launcher_was;
};

/* --- in the launcher's process ------------------------------------------------------------------------------------ */

static void note_start(void *context, int rank, pid_t pid) {
    shared_job *job = context;
    atomic_store(&job->ranks[rank].pid, pid);
}

static void note_end(void *context, int rank, int wait_status) {
    shared_job *job = context;
    const int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    atomic_store(&job->ranks[rank].exit_code, code);
}

static void note_line(void *context, int rank, bool is_error, const char *text, size_t bytes, bool is_whole) {
    shared_job *job = context;
    shared_text *stream = &job->ranks[rank].streams[is_error];
    const size_t used = atomic_load(&stream->used);
    if (used + bytes + 2 > TEXT_BYTES) return;
    memcpy(stream->bytes + used, text, bytes);
    if (is_whole) stream->bytes[used + bytes] = '\n';
    atomic_store_explicit(&stream->used, used + bytes + is_whole, memory_order_release);
}

/* "worker_x" is ours, "sh" is on PATH, "/bin/x" is itself. */
static const char *find_program(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", LS_TEST_BIN_DIR, name);
    return !strchr(name, '/') && access(path, X_OK) == 0 ? path : name;
}

static _Noreturn void be_launcher(shared_job *job, const ls_ranks_options *wanted, pid_t test) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != test) _exit(1);
    ls_fault_hooks_installed = NULL;
    for (const char *const *setting = wanted->environment; setting && *setting; setting++) putenv((char *)*setting);

    const char *program[MOST_ARGUMENTS + 2] = {find_program(wanted->program)};
    for (int i = 0; wanted->arguments && wanted->arguments[i] && i < MOST_ARGUMENTS; i++)
        program[i + 1] = wanted->arguments[i];
    const launch_options options = {
        .ranks = wanted->ranks,
        .program = (char *const *)program,
        .linger_ms = wanted->linger_ms ? wanted->linger_ms : LIMIT_MS,
        .grace_ms = wanted->grace_ms,
        .observer = {.context = job, .started = note_start, .ended = note_end, .line = note_line}};
    launch_result result;
    if (launch_run(&options, &result) != LS_OK) snprintf(job->error, sizeof job->error, "%s", ls_last_error());
    atomic_store(&job->first_failed, result.first_failed);
    atomic_store(&job->exit_code, result.exit_code);
    _exit(0);
}

/* --- in the test -------------------------------------------------------------------------------------------------- */

ls_ranks *ls_ranks_start(const ls_ranks_options *options) {
    ls_ranks *ranks = calloc(1, sizeof *ranks);
    assert_non_null(ranks);
    ranks->count = options->ranks;
    ranks->bytes = sizeof(shared_job) + (size_t)options->ranks * sizeof(shared_rank);
    ranks->job = mmap(NULL, ranks->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(ranks->job != MAP_FAILED);
    ranks->job->exit_code = -1;
    ranks->job->first_failed = -1;
    for (int i = 0; i < options->ranks; i++) ranks->job->ranks[i].exit_code = -1;
    ranks->deadline_ns = ls_deadline_after_ms(options->limit_ms ? options->limit_ms : LIMIT_MS);

    fflush(NULL);
    const pid_t test = getpid();
    ranks->launcher = ranks->launcher_was = fork();
    assert_true(ranks->launcher >= 0);
    if (ranks->launcher == 0) be_launcher(ranks->job, options, test);
    return ranks;
}

/* Whether the launcher has ended. */
static bool is_over(ls_ranks *ranks) {
    if (ranks->launcher != 0 && waitpid(ranks->launcher, NULL, WNOHANG) == ranks->launcher) ranks->launcher = 0;
    return ranks->launcher == 0;
}

static void kill_launcher(ls_ranks *ranks) {
    if (ranks->launcher == 0) return;
    kill(ranks->launcher, SIGKILL);
    waitpid(ranks->launcher, NULL, 0);
    ranks->launcher = 0;
}

/* One more look after a moment; past the limit the test fails. */
static void pause_or_fail(ls_ranks *ranks, const char *what) {
    if (ls_now_ns() < ranks->deadline_ns) {
        ls_sleep_until(ls_now_ns() + LOOK_AGAIN_MS * LS_NS_PER_MS);
        return;
    }
    kill_launcher(ranks);
    ls_ranks_print(ranks);
    fail_msg("the ranks took too long: waited for %s", what);
}

void ls_ranks_finish(ls_ranks *ranks) {
    while (!is_over(ranks)) pause_or_fail(ranks, "their end");
    if (ranks->job->error[0]) fail_msg("the ranks did not start: %s", ranks->job->error);
}

ls_ranks *ls_ranks_run(const ls_ranks_options *options) {
    ls_ranks *ranks = ls_ranks_start(options);
    ls_ranks_finish(ranks);
    return ranks;
}

void ls_ranks_close(ls_ranks **ranks) {
    if (!*ranks) return;
    kill_launcher(*ranks);
    munmap((*ranks)->job, (*ranks)->bytes);
    free(*ranks);
    *ranks = NULL;
}

pid_t ls_ranks_pid(ls_ranks *ranks, int rank) {
    while (atomic_load(&ranks->job->ranks[rank].pid) == 0) {
        if (is_over(ranks)) fail_msg("rank %d did not start: %s", rank, ranks->job->error);
        pause_or_fail(ranks, "a rank's start");
    }
    return atomic_load(&ranks->job->ranks[rank].pid);
}

pid_t ls_ranks_launcher(const ls_ranks *ranks) {
    return ranks->launcher_was;
}

void ls_ranks_kill(ls_ranks *ranks, int rank, int signal) {
    const pid_t pid = ls_ranks_pid(ranks, rank);
    if (ls_ranks_exit_code(ranks, rank) < 0) kill(pid, signal);
}

static const char *text_of(const ls_ranks *ranks, int rank, int stream) {
    /* The mapping is zero behind what was written: a NUL ends it. */
    const shared_text *text = &ranks->job->ranks[rank].streams[stream];
    return atomic_load_explicit(&text->used, memory_order_acquire) ? text->bytes : "";
}

const char *ls_ranks_output(const ls_ranks *ranks, int rank) {
    return text_of(ranks, rank, 0);
}

const char *ls_ranks_errors(const ls_ranks *ranks, int rank) {
    return text_of(ranks, rank, 1);
}

void ls_ranks_wait_for(ls_ranks *ranks, int rank, const char *text) {
    while (!strstr(ls_ranks_output(ranks, rank), text)) {
        if (is_over(ranks) && !strstr(ls_ranks_output(ranks, rank), text)) {
            ls_ranks_print(ranks);
            fail_msg("rank %d ended without writing \"%s\"", rank, text);
        }
        pause_or_fail(ranks, text);
    }
}

int ls_ranks_exit_code(const ls_ranks *ranks, int rank) {
    return atomic_load(&ranks->job->ranks[rank].exit_code);
}

int ls_ranks_job_exit_code(const ls_ranks *ranks) {
    return atomic_load(&ranks->job->exit_code);
}

int ls_ranks_first_failed(const ls_ranks *ranks) {
    return atomic_load(&ranks->job->first_failed);
}

void ls_ranks_print(const ls_ranks *ranks) {
    for (int i = 0; i < ranks->count; i++)
        print_error("--- rank %d, exit code %d\n%s%s", i, ls_ranks_exit_code(ranks, i), ls_ranks_output(ranks, i),
                    ls_ranks_errors(ranks, i));
    print_error("---\n");
}

void ls_assert_ranks_succeeded(const ls_ranks *ranks, const char *file, int line) {
    int failed = 0;
    for (int i = 0; i < ranks->count; i++) failed += ls_ranks_exit_code(ranks, i) != 0;
    if (failed == 0) return;
    ls_ranks_print(ranks);
    print_error("%d of %d ranks failed, rank %d first\n", failed, ranks->count, ls_ranks_first_failed(ranks));
    _fail(file, line);
}
