/* However a job ends, the exit code is that of the first failure, and nothing of the job is left. */
#include "launch/marked.h"
#include "support/faults.h"
#include "support/ranks.h"

#include "launch/launch.h"
#include "launch/watcher.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define SHELL(text)                                       \
    .program = "sh", .arguments = (const char *const[]) { \
        "-c", text, NULL                                  \
    }

/* --- exit codes --------------------------------------------------------------------------------------------------- */

static void two_jobs_at_once_do_not_meet_fifty_times(void **state) {
    (void)state;
    const ls_ranks_options options = {
        .ranks = 2, .program = "worker_launch", .arguments = (const char *const[]){"meet", NULL}};
    for (int i = 0; i < 50; i++) {
        ls_ranks *one = ls_ranks_start(&options), *other = ls_ranks_start(&options);
        ls_ranks_finish(one);
        ls_ranks_finish(other);
        assert_ranks_succeeded(one);
        assert_ranks_succeeded(other);
        assert_int_equal(ls_ranks_job_exit_code(one), 0);
        assert_int_equal(ls_ranks_first_failed(one), -1);
        ls_ranks_close(&one);
        ls_ranks_close(&other);
    }
}

static void the_job_ends_with_the_code_of_the_first_failure(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_run(&(ls_ranks_options){
        .ranks = 3, SHELL("[ $RANK = 1 ] && exit 9; [ $RANK = 0 ] && { sleep 1; exit 4; }; sleep 1; exit 5")});
    assert_int_equal(ls_ranks_job_exit_code(job), 9);
    assert_int_equal(ls_ranks_first_failed(job), 1);
    assert_int_equal(ls_ranks_exit_code(job, 0), 4);
    assert_int_equal(ls_ranks_exit_code(job, 2), 5);
    ls_ranks_close(&job);
}

static void a_killed_rank_counts_as_128_and_its_signal(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_start(
        &(ls_ranks_options){.ranks = 2, .linger_ms = 1, SHELL("echo ready; while :; do sleep 0.05; done")});
    ls_ranks_wait_for(job, 1, "ready");
    ls_ranks_kill(job, 1, SIGKILL);
    ls_ranks_finish(job);
    assert_int_equal(ls_ranks_job_exit_code(job), 128 + SIGKILL);
    assert_int_equal(ls_ranks_first_failed(job), 1);
    assert_int_equal(ls_ranks_exit_code(job, 0), 128 + SIGTERM);
    ls_ranks_close(&job);
}

static void others_may_say_their_last_words_before_they_are_ended(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_run(&(ls_ranks_options){
        .ranks = 2, SHELL("[ $RANK = 0 ] && exit 3; sleep 0.3; echo rank 0 left me alone; exit 0")});
    assert_string_equal(ls_ranks_output(job, 1), "rank 0 left me alone\n");
    assert_int_equal(ls_ranks_exit_code(job, 1), 0);
    assert_int_equal(ls_ranks_job_exit_code(job), 3);
    ls_ranks_close(&job);
}

static void whoever_ignores_the_end_is_killed_after_the_grace_time(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_run(&(ls_ranks_options){
        .ranks = 3,
        .linger_ms = 1,
        .grace_ms = 200,
        SHELL("[ $RANK = 0 ] && { sleep 0.2; exit 3; }; [ $RANK = 1 ] && kill -STOP $$; trap '' TERM; "
              "while :; do sleep 0.05; done")});
    assert_int_equal(ls_ranks_job_exit_code(job), 3);
    assert_int_equal(ls_ranks_exit_code(job, 1), 128 + SIGKILL);
    assert_int_equal(ls_ranks_exit_code(job, 2), 128 + SIGKILL);
    ls_ranks_close(&job);
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

static void signals_are_passed_on_to_all_ranks(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_start(&(ls_ranks_options){
        .ranks = 2,
        SHELL("for s in USR1 USR2 HUP INT; do trap \"echo got $s\" $s; done; trap 'echo bye; exit 7' TERM; echo ready; "
              "while :; do sleep 0.02; done 2>/dev/null")});
    const int passed_on[] = {SIGUSR1, SIGUSR2, SIGHUP};
    const char *const wanted[] = {"got USR1", "got USR2", "got HUP"};
    for (int i = 0; i < 2; i++) ls_ranks_wait_for(job, i, "ready");
    for (int i = 0; i < 3; i++) {
        kill(ls_ranks_launcher(job), passed_on[i]);
        for (int j = 0; j < 2; j++) ls_ranks_wait_for(job, j, wanted[i]);
    }
    ls_ranks_close(&job);
}

static void a_program_that_ends_well_on_a_signal_ends_the_job_well(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_start(&(ls_ranks_options){
        .ranks = 2,
        /* The shell around it hears of the signal too, and waits. */
        SHELL("trap 'wait; exit 0' TERM; "
              "(trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done) & wait")});
    for (int i = 0; i < 2; i++) ls_ranks_wait_for(job, i, "ready");
    kill(ls_ranks_launcher(job), SIGTERM);
    ls_ranks_finish(job);
    assert_int_equal(ls_ranks_job_exit_code(job), 0);
    for (int i = 0; i < 2; i++) assert_non_null(strstr(ls_ranks_output(job, i), "saved"));
    ls_ranks_close(&job);
}

static void a_second_signal_to_end_kills_at_once(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_start(&(ls_ranks_options){
        .ranks = 2, .grace_ms = 3600000, SHELL("trap 'echo no' INT TERM; echo ready; while :; do sleep 0.02; done")});
    for (int i = 0; i < 2; i++) ls_ranks_wait_for(job, i, "ready");
    kill(ls_ranks_launcher(job), SIGINT);
    for (int i = 0; i < 2; i++) ls_ranks_wait_for(job, i, "no");
    kill(ls_ranks_launcher(job), SIGINT);
    ls_ranks_finish(job);
    assert_int_equal(ls_ranks_job_exit_code(job), 128 + SIGKILL);
    ls_ranks_close(&job);
}

static void a_hangup_that_nohup_ignores_stays_ignored(void **state) {
    (void)state;
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before;
    sigaction(SIGHUP, &ignore, &before);
    ls_ranks *job = ls_ranks_start(
        &(ls_ranks_options){.ranks = 2, .grace_ms = 1, SHELL("echo ready; sleep 0.5; echo done; exit 0")});
    for (int i = 0; i < 2; i++) ls_ranks_wait_for(job, i, "ready");
    kill(ls_ranks_launcher(job), SIGHUP);
    ls_ranks_finish(job);
    sigaction(SIGHUP, &before, NULL);
    assert_ranks_succeeded(job);
    assert_non_null(strstr(ls_ranks_output(job, 0), "done"));
    ls_ranks_close(&job);
}

/* --- nothing is left ---------------------------------------------------------------------------------------------- */

static void children_of_ranks_end_with_the_job(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_start(&(ls_ranks_options){
        .ranks = 4, .linger_ms = 1, SHELL("sleep 1000 & echo ready; [ $RANK = 2 ] && { sleep 0.3; exit 3; }; wait")});
    for (int i = 0; i < 4; i++) ls_ranks_wait_for(job, i, "ready");
    ls_ranks_finish(job);
    assert_int_equal(ls_ranks_job_exit_code(job), 3);
    assert_int_equal(marked_processes(), 0);
    ls_ranks_close(&job);
}

static void daemons_in_sessions_of_their_own_end_with_the_job(void **state) {
    (void)state;
    char folder[] = "/tmp/lockstep-test-XXXXXX", setting[64];
    assert_non_null(mkdtemp(folder));
    snprintf(setting, sizeof setting, "UP=%s", folder);
    const char *const environment[] = {setting, NULL};
    ls_ranks *job = ls_ranks_run(&(ls_ranks_options){
        .ranks = 2,
        .grace_ms = 200,
        .environment = environment,
        SHELL("(setsid sh -c 'trap \"\" TERM; : > $UP/$RANK; while :; do sleep 0.1; done' &);"
              "(trap '' TERM; sleep 1000) & while [ ! -e $UP/$RANK ]; do sleep 0.01; done; rm $UP/$RANK; exit 0")});
    assert_int_equal(ls_ranks_job_exit_code(job), 0);
    assert_int_equal(marked_processes(), 0);
    ls_ranks_close(&job);
    rmdir(folder);
}

static void a_stranger_who_holds_a_ranks_output_open_does_not_hold_up_the_end(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_start(&(ls_ranks_options){.ranks = 2, SHELL("echo ready; sleep 0.5; echo done")});
    ls_ranks_wait_for(job, 1, "ready");
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/1", (int)ls_ranks_pid(job, 1));
    const int held = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(held >= 0);
    ls_ranks_finish(job);
    assert_string_equal(ls_ranks_output(job, 1), "ready\ndone\n");
    close(held);
    ls_ranks_close(&job);
}

static void nothing_outlives_a_launcher_that_is_killed(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_start(
        &(ls_ranks_options){.ranks = 4, SHELL("trap '' TERM HUP; sleep 1000 & setsid sleep 1000 & echo ready; wait")});
    for (int i = 0; i < 4; i++) ls_ranks_wait_for(job, i, "ready");
    assert_true(marked_become(12, 10000));
    kill(ls_ranks_launcher(job), SIGKILL);
    assert_true(marked_become(0, 2000));
    ls_ranks_close(&job);
}

static void find_watcher(void *context, const launch_process *process) {
    pid_t *found = context;
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)process->pid);
    FILE *file = fopen(path, "re");
    if (!file) return;
    const bool is_read = fgets(name, sizeof name, file) != NULL;
    fclose(file);
    if (is_read && strcmp(name, "lockstep-watch\n") == 0 && process->parent == found[0]) found[1] = process->pid;
}

static void ranks_die_with_the_launcher_even_without_its_watcher(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_start(&(ls_ranks_options){.ranks = 2, SHELL("echo ready; exec sleep 1000")});
    for (int i = 0; i < 2; i++) ls_ranks_wait_for(job, i, "ready");
    pid_t found[2] = {ls_ranks_launcher(job), 0};
    launch_each_process(find_watcher, found);
    assert_int_not_equal(found[1], 0);
    kill(found[1], SIGKILL);
    kill(found[0], SIGKILL);
    assert_true(marked_become(0, 2000));
    ls_ranks_close(&job);
}

static void a_job_within_a_job_ends_with_the_outer_launcher(void **state) {
    (void)state;
    ls_ranks *job = ls_ranks_start(&(ls_ranks_options){
        .ranks = 2,
        .program = "sh",
        .arguments = (const char *const[]){
            "-c", "exec " LS_TEST_BIN_DIR "/../bin/lockstep run -n 2 sh -c 'setsid sleep 1000 & echo ready; wait'",
            NULL}});
    for (int i = 0; i < 2; i++) {
        ls_ranks_wait_for(job, i, "[0] ready");
        ls_ranks_wait_for(job, i, "[1] ready");
    }
    assert_true(marked_processes() >= 10); /* 2 launchers, 4 shells, 4 daemons, and 2 watchers */
    kill(ls_ranks_launcher(job), SIGKILL);
    assert_true(marked_become(0, 2000));
    ls_ranks_close(&job);
}

static void shared_memory_and_temporary_files_are_as_before(void **state) {
    (void)state;
    char folder[] = "/tmp/lockstep-test-XXXXXX", setting[64];
    assert_non_null(mkdtemp(folder));
    snprintf(setting, sizeof setting, "TMPDIR=%s", folder);
    const char *const environment[] = {setting, NULL};
    const int shared_before = ls_count_entries("/dev/shm"), temporary_before = ls_count_entries(folder);
    const char *const texts[] = {"exit 0", "exit 3", "kill -9 $$", "sleep 0.2", NULL};
    for (int i = 0; texts[i]; i++) {
        ls_ranks *job = ls_ranks_start(
            &(ls_ranks_options){.ranks = 2, .linger_ms = 1, .environment = environment, SHELL(texts[i])});
        if (i == 3) /* killed in the middle */
            ls_ranks_close(&job);
        else
            ls_ranks_finish(job);
        ls_ranks_close(&job);
    }
    assert_true(marked_become(0, 2000));
    assert_int_equal(ls_count_entries("/dev/shm"), shared_before);
    assert_int_equal(ls_count_entries(folder), temporary_before);
    rmdir(folder);
}

/* --- within this process ------------------------------------------------------------------------------------------ */

static char *const true_program[] = {"true", NULL};

static void many_runs_leave_no_descriptor_thread_or_memory(void **state) {
    (void)state;
    const launch_options options = {.ranks = 2, .program = true_program};
    launch_result result;
    assert_int_equal(launch_run(&options, &result), LS_OK); /* what the libraries keep for ever is there now */
    ls_note_what_is_there();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(launch_run(&options, &result), LS_OK);
        assert_int_equal(result.exit_code, 0);
    }
    assert_nothing_left();
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void a_start_that_fails_at_any_call_leaves_nothing(void **state) {
    (void)state;
    const launch_options options = {.ranks = 2, .program = (char *const[]){"sleep", "0.5", NULL}};
    launch_result result;
    assert_int_equal(launch_run(&options, &result), LS_OK);
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL) {
        const ls_status status = launch_run(&options, &result);
        if (ls_fault_was_met()) {
            assert_fault_reported(status);
            assert_int_not_equal(result.exit_code, 0);
            assert_int_equal(marked_processes(), 0);
        } else {
            assert_int_equal(status, LS_OK);
        }
    }
    assert_nothing_left();
    assert_int_equal(marked_processes(), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void a_run_puts_signals_and_limits_back(void **state) {
    (void)state;
    const launch_options options = {.ranks = 1, .program = true_program};
    launch_result result;
    sigset_t before, after;
    struct sigaction pipe_before, pipe_after;
    struct rlimit limit_before, limit_after;
    sigemptyset(&before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    sigaction(SIGPIPE, NULL, &pipe_before);
    getrlimit(RLIMIT_NOFILE, &limit_before);
    limit_before.rlim_cur = 321;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit_before), 0);
    assert_int_equal(launch_run(&options, &result), LS_OK);
    sigprocmask(SIG_SETMASK, NULL, &after);
    sigaction(SIGPIPE, NULL, &pipe_after);
    getrlimit(RLIMIT_NOFILE, &limit_after);
    for (int i = 1; i < 32; i++) assert_int_equal(sigismember(&before, i), sigismember(&after, i));
    assert_true(pipe_before.sa_handler == pipe_after.sa_handler);
    assert_true(limit_before.rlim_cur == limit_after.rlim_cur);
}

static void a_watcher_that_is_stopped_does_not_hold_up_the_end(void **state) {
    (void)state;
    launch_watcher watcher = LAUNCH_NO_WATCHER;
    ls_note_what_is_there();
    assert_int_equal(launch_watcher_start(&watcher, "no job"), LS_OK);
    kill(watcher.pid, SIGSTOP);
    launch_watcher_dismiss(&watcher);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_nothing_left();
}

int main(void) {
#define END_TEST(name) cmocka_unit_test_setup(name, mark_processes)
    const struct CMUnitTest tests[] = {
        END_TEST(two_jobs_at_once_do_not_meet_fifty_times),
        END_TEST(the_job_ends_with_the_code_of_the_first_failure),
        END_TEST(a_killed_rank_counts_as_128_and_its_signal),
        END_TEST(others_may_say_their_last_words_before_they_are_ended),
        END_TEST(whoever_ignores_the_end_is_killed_after_the_grace_time),
        END_TEST(signals_are_passed_on_to_all_ranks),
        END_TEST(a_program_that_ends_well_on_a_signal_ends_the_job_well),
        END_TEST(a_second_signal_to_end_kills_at_once),
        END_TEST(a_hangup_that_nohup_ignores_stays_ignored),
        END_TEST(children_of_ranks_end_with_the_job),
        END_TEST(daemons_in_sessions_of_their_own_end_with_the_job),
        END_TEST(a_stranger_who_holds_a_ranks_output_open_does_not_hold_up_the_end),
        END_TEST(nothing_outlives_a_launcher_that_is_killed),
        END_TEST(ranks_die_with_the_launcher_even_without_its_watcher),
        END_TEST(a_job_within_a_job_ends_with_the_outer_launcher),
        END_TEST(shared_memory_and_temporary_files_are_as_before),
        END_TEST(many_runs_leave_no_descriptor_thread_or_memory),
        END_TEST(a_start_that_fails_at_any_call_leaves_nothing),
        END_TEST(a_run_puts_signals_and_limits_back),
        END_TEST(a_watcher_that_is_stopped_does_not_hold_up_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
