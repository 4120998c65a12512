/* What hangs in its start is given up or interrupted, and what SIGKILL does not end is named and left behind. */
#include "launch/captured.h"
#include "launch/marked.h"
#include "support/faults.h"

#include "launch/launch.h"
#include "launch/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define NO_DEBUGGER "this process may not debug another (ptrace)"

static void stop_here(void *argument) {
    (void)argument;
    raise(SIGSTOP);
}

static void a_program_that_does_not_begin_to_run_is_given_up(void **state) {
    (void)state;
    launch_start start = {.path = "/bin/true",
                          .arguments = (char *const[]){"true", NULL},
                          .environment = (char *const[]){NULL},
                          .input = 0,
                          .output = 1,
                          .error_output = 2,
                          .limit_ms = 100,
                          .cancel = -1};
    getrlimit(RLIMIT_NOFILE, &start.descriptors);
    pid_t pid = 0;
    ls_note_what_is_there();
    ls_at_point("launch.worker.forked", -1, 0, stop_here, NULL);
    assert_int_equal(launch_worker_start(&start, &pid), LS_ERR_TIMEOUT);
    assert_non_null(strstr(ls_last_error(), "\"/bin/true\""));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    ls_at_point(NULL, -1, 0, NULL, NULL);
    start.limit_ms = 30000;
    assert_int_equal(launch_worker_start(&start, &pid), LS_OK);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_nothing_left();
}

typedef struct hang {
    int passes[2]; /* a byte for each process that may go on */
    int told[2];   /* the number of the one that hangs */
} hang;

static void pass_or_hang(void *argument) {
    const hang *self = argument;
    const pid_t pid = getpid();
    char pass;
    if (read(self->passes[0], &pass, 1) == 1) return;
    (void)!write(self->told[1], &pid, sizeof pid);
    raise(SIGSTOP);
}

/* The last rank's process does not come to its program; the others run by then. Returns it. */
static pid_t start_that_hangs(captured *job, int ranks, int64_t kill_limit_ms) {
    hang held;
    pid_t pid = 0;
    assert_int_equal(pipe2(held.passes, O_CLOEXEC), 0);
    assert_int_equal(pipe2(held.told, O_CLOEXEC), 0);
    for (int i = 0; i < ranks - 1; i++) assert_int_equal(write(held.passes[1], "!", 1), 1);
    close(held.passes[1]); /* so that the last one reads the end */
    ls_at_point("launch.worker.forked", -1, 1, pass_or_hang, &held);
    const launch_options options = {
        .ranks = ranks, .program = (char *const[]){"sleep", "1000", NULL}, .kill_limit_ms = kill_limit_ms};
    captured_start(job, &options, true);
    ls_at_point(NULL, -1, 0, NULL, NULL);
    assert_int_equal(read(held.told[0], &pid, sizeof pid), sizeof pid);
    close(held.passes[0]);
    for (int i = 0; i < 2; i++) close(held.told[i]);
    return pid;
}

static void ctrl_c_ends_a_start_that_hangs_at_once(void **state) {
    (void)state;
    const int64_t start_ns = ls_now_ns();
    captured job;
    start_that_hangs(&job, 2, 0);
    kill(job.launcher, SIGINT);
    captured_finish(&job);
    assert_int_equal(job.exit_code, 128 + SIGINT);
    assert_non_null(strstr(job.texts[0], "SIGINT came before all ranks ran: \""));
    assert_true(ls_now_ns() - start_ns < 30 * LS_NS_PER_S); /* not the limit of a minute */
    assert_int_equal(marked_processes(), 0);
    captured_free(&job);
}

static void of_two_signals_that_end_a_start_the_second_does_no_harm(void **state) {
    (void)state;
    captured job;
    start_that_hangs(&job, 1, 0);
    const int signals[] = {SIGSTOP, SIGINT, SIGTERM, SIGCONT}; /* both have come before it sees one */
    for (int i = 0; i < 4; i++) kill(job.launcher, signals[i]);
    captured_finish(&job);
    assert_int_equal(job.exit_code, 128 + SIGINT);
    assert_non_null(strstr(job.texts[0], "SIGINT came before all ranks ran: \""));
    captured_free(&job);
}

static void ranks_get_their_time_to_die_after_a_start_that_was_longer(void **state) {
    (void)state;
    captured job;
    start_that_hangs(&job, 2, 1000);
    ls_sleep_until(ls_now_ns() + 1200 * LS_NS_PER_MS);
    kill(job.launcher, SIGINT);
    captured_finish(&job);
    assert_null(strstr(job.texts[0], "left behind"));
    captured_free(&job);
}

typedef struct search {
    pid_t launcher, found;
    const char *mark; /* in its environment */
} search;

static void look_at(void *context, const launch_process *process) {
    search *self = context;
    if (process->parent == self->launcher && launch_process_carries(process->pid, self->mark))
        self->found = process->pid;
}

static pid_t find_child(pid_t launcher, const char *mark) {
    search self = {.launcher = launcher, .mark = mark};
    while (self.found == 0) launch_each_process(look_at, &self);
    return self.found;
}

/* Whoever debugs a process learns of its end before its parent does: to the launcher it is as one that SIGKILL does not
 * end, like one whose file system hangs. False: this test may not. */
static bool keep_end_from(pid_t launcher, pid_t pid) {
    const bool is_kept = ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0;
    if (!is_kept) kill(launcher, SIGKILL);
    return is_kept;
}

/* And once only, where a rank that ran by then does not end either. */
static void what_hangs_in_its_start_and_does_not_end_is_named(void **state) {
    (void)state;
    captured job;
    char said[96];
    const pid_t pid = start_that_hangs(&job, 2, 300), running = find_child(job.launcher, "LOCAL_RANK=0");
    if (!keep_end_from(job.launcher, pid) || !keep_end_from(job.launcher, running)) LS_SKIP(NO_DEBUGGER);
    kill(job.launcher, SIGINT);
    captured_finish(&job);
    snprintf(said, sizeof said, ": process %d was killed and does not end; it is left behind: \"", (int)pid);
    assert_non_null(strstr(job.texts[0], said));
    snprintf(said, sizeof said, "process %d of", (int)pid);
    assert_null(strstr(job.texts[0], said));
    snprintf(said, sizeof said, "process %d of rank 0 was killed and does not end;", (int)running);
    assert_non_null(strstr(job.texts[0], said));
    assert_int_equal(job.exit_code, 128 + SIGINT);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(waitpid(running, NULL, 0), running);
    captured_free(&job);
}

static void a_rank_that_does_not_end_when_it_is_killed_is_named_and_left_behind(void **state) {
    (void)state;
    captured job;
    char said[64];
    captured_start(
        &job,
        &(launch_options){
            .ranks = 2, .program = (char *const[]){"sleep", "1000", NULL}, .grace_ms = 1, .kill_limit_ms = 300},
        true);
    const pid_t pid = find_child(job.launcher, "LOCAL_RANK=1");
    if (!keep_end_from(job.launcher, pid)) LS_SKIP(NO_DEBUGGER);
    kill(job.launcher, SIGTERM);
    captured_finish(&job);
    snprintf(said, sizeof said, "process %d of rank 1 was killed and does not end;", (int)pid);
    assert_non_null(strstr(job.texts[0], said));
    assert_null(strstr(job.texts[0], "of rank 0 was killed"));
    assert_int_equal(job.exit_code, 128 + SIGTERM); /* rank 0's, the first failure */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    captured_free(&job);
}
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_program_that_does_not_begin_to_run_is_given_up, mark_processes),
        cmocka_unit_test_setup(ctrl_c_ends_a_start_that_hangs_at_once, mark_processes),
        cmocka_unit_test_setup(of_two_signals_that_end_a_start_the_second_does_no_harm, mark_processes),
        cmocka_unit_test_setup(ranks_get_their_time_to_die_after_a_start_that_was_longer, mark_processes),
        cmocka_unit_test_setup(what_hangs_in_its_start_and_does_not_end_is_named, mark_processes),
        cmocka_unit_test_setup(a_rank_that_does_not_end_when_it_is_killed_is_named_and_left_behind, mark_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
