/* What a rank finds: its place, nothing stale, its own signals and descriptors. And how many cores there are. */
#include "launch/captured.h"

#include "launch/cores.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define PROGRAM(...)             \
    .program = (char *const[]) { \
        __VA_ARGS__, NULL        \
    }
#define SHELL(text) PROGRAM("sh", "-c", text)

/* What one rank of two prints, the other being silent. */
static void assert_rank_prints(const char *text, const char *expected) {
    captured job;
    captured_run(&job, &(launch_options){.ranks = 2, .without_labels = true, SHELL((char *)text)}, false);
    assert_int_equal(job.exit_code, 0);
    assert_string_equal(job.texts[0], expected);
    captured_free(&job);
}

static void ranks_get_torchruns_variables_and_stale_ones_are_replaced(void **state) {
    (void)state;
    const char *const stale[] = {"RANK",
                                 "WORLD_SIZE",
                                 "LOCAL_RANK",
                                 "LOCAL_WORLD_SIZE",
                                 "GROUP_RANK",
                                 "GROUP_WORLD_SIZE",
                                 "ROLE_RANK",
                                 "ROLE_WORLD_SIZE",
                                 "ROLE_NAME",
                                 "TORCHELASTIC_RESTART_COUNT",
                                 "TORCHELASTIC_MAX_RESTARTS",
                                 "MASTER_ADDR",
                                 "MASTER_PORT",
                                 "TORCHELASTIC_ERROR_FILE"};
    for (size_t i = 0; i < sizeof stale / sizeof stale[0]; i++) setenv(stale[i], "77", 1);
    assert_rank_prints(
        "[ $RANK = 0 ] || echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE "
        "$ROLE_RANK $ROLE_WORLD_SIZE $ROLE_NAME $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS "
        "-$MASTER_ADDR-$MASTER_PORT-$TORCHELASTIC_ERROR_FILE-",
        "1 2 1 2 0 1 1 2 default 0 0 ----\n");
    /* Once each: a program that reads the first and one that reads the last agree. */
    assert_rank_prints("[ $RANK = 0 ] || env | grep -c ^RANK=", "1\n");
    for (size_t i = 0; i < sizeof stale / sizeof stale[0]; i++) unsetenv(stale[i]);
}

static void other_variables_pass_through(void **state) {
    (void)state;
    setenv("LS_TEST_OWN", "a=b c", 1);
    setenv("RANKS", "not ours", 1);
    assert_rank_prints("[ $RANK = 0 ] || echo \"$LS_TEST_OWN, $RANKS\"", "a=b c, not ours\n");
    unsetenv("LS_TEST_OWN");
    unsetenv("RANKS");
}

static void threads_are_shared_out_fairly_unless_the_user_says_how_many(void **state) {
    (void)state;
    char expected[16];
    const int share = launch_cores() / 2 > 1 ? launch_cores() / 2 : 1;
    snprintf(expected, sizeof expected, "%d\n", share);
    unsetenv("OMP_NUM_THREADS");
    assert_rank_prints("[ $RANK = 0 ] || echo $OMP_NUM_THREADS", expected);
    setenv("OMP_NUM_THREADS", "3", 1);
    assert_rank_prints("[ $RANK = 0 ] || echo $OMP_NUM_THREADS", "3\n");
    unsetenv("OMP_NUM_THREADS");
}

static void standard_input_is_empty(void **state) {
    (void)state;
    assert_rank_prints("[ $RANK = 0 ] || { readlink /proc/self/fd/0; cat; echo end; }", "/dev/null\nend\n");
}

static void each_rank_is_a_session_of_its_own(void **state) {
    (void)state;
    assert_rank_prints("[ $RANK = 0 ] || { set -- $(cat /proc/$$/stat); [ $5 = $$ ] && [ $6 = $$ ] && echo own; }",
                       "own\n");
}

/* "SigBlk: ..." and "SigIgn: ..." as in /proc/self/status, without signals 32 and 33, which are the C library's own. */
static void assert_signals_are(const char *status, const uint64_t expected[2]) {
    static const char *const names[] = {"SigBlk:", "SigIgn:"};
    for (int i = 0; i < 2; i++) {
        const char *line = strstr(status, names[i]);
        assert_non_null(line);
        const uint64_t found = strtoull(line + strlen(names[i]), NULL, 16) & ~(UINT64_C(3) << 31);
        assert_int_equal(found, expected[i]);
    }
}

static uint64_t signal_bits(const sigset_t *set) {
    uint64_t bits = 0;
    for (int number = 1; number <= 64; number++)
        if (number != 32 && number != 33 && sigismember(set, number) == 1) bits |= UINT64_C(1) << (number - 1);
    return bits;
}

static void signals_and_limits_are_those_of_the_launchers_shell(void **state) {
    (void)state;
    sigset_t blocked, ignored;
    struct sigaction action;
    sigemptyset(&ignored);
    for (int number = 1; number <= 64; number++)
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN) sigaddset(&ignored, number);
    assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &blocked), 0);
    captured job; /* no shell between: it may set its own mask */
    captured_run(&job, &(launch_options){.ranks = 1, PROGRAM("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")},
                 false);
    assert_signals_are(job.texts[0], (uint64_t[]){signal_bits(&blocked), signal_bits(&ignored)});
    captured_free(&job);

    struct rlimit before, lower;
    getrlimit(RLIMIT_NOFILE, &before);
    lower = before;
    lower.rlim_cur = 321;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &lower), 0);
    assert_rank_prints("[ $RANK = 0 ] || ulimit -n", "321\n");
    setrlimit(RLIMIT_NOFILE, &before);
}

static void a_rank_inherits_one_socket_and_no_other_descriptor_of_the_launcher(void **state) {
    (void)state;
    assert_rank_prints("[ $RANK = 0 ] || { ls -l /proc/$$/fd | grep -c 'socket:'; "
                       "ls /proc/$$/fd | grep -c -x $LOCKSTEP_STORE_FD; }",
                       "1\n1\n");
}

static void a_wrapper_may_close_all_descriptors(void **state) {
    (void)state;
    char worker[] = LS_TEST_BIN_DIR "/worker_launch";
    captured job;
    captured_run(&job, &(launch_options){.ranks = 3, PROGRAM(worker, "wrap", worker, "meet")}, true);
    assert_string_equal(job.texts[0], "");
    assert_int_equal(job.exit_code, 0);
    captured_free(&job);
}

static void programs_are_found_as_a_shell_finds_them(void **state) {
    (void)state;
    launch_result result;
    assert_int_equal(launch_run(&(launch_options){.ranks = 2, PROGRAM("no-such-program")}, &result), LS_ERR_ARGUMENT);
    assert_int_equal(result.exit_code, LAUNCH_EXIT_NOT_FOUND);
    assert_non_null(strstr(ls_last_error(), "\"no-such-program\""));
    assert_int_equal(launch_run(&(launch_options){.ranks = 2, PROGRAM("./no-such-program")}, &result), LS_ERR_ARGUMENT);
    assert_int_equal(result.exit_code, LAUNCH_EXIT_NOT_FOUND);
    assert_int_equal(launch_run(&(launch_options){.ranks = 2, PROGRAM("/etc/passwd")}, &result), LS_ERR_ARGUMENT);
    assert_int_equal(result.exit_code, LAUNCH_EXIT_NO_PROGRAM);
    assert_int_equal(launch_run(&(launch_options){.ranks = 2, PROGRAM("/tmp")}, &result), LS_ERR_ARGUMENT);
    assert_int_equal(result.exit_code, LAUNCH_EXIT_NO_PROGRAM);
    assert_int_equal(launch_run(&(launch_options){.ranks = 0, PROGRAM("true")}, &result), LS_ERR_ARGUMENT);
    assert_int_equal(launch_run(&(launch_options){.ranks = 1}, &result), LS_ERR_ARGUMENT);
}

static void a_file_that_is_no_program_is_said_once_and_nothing_stays(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-test-XXXXXX";
    const int file = mkstemp(path);
    assert_int_equal(write(file, "\177ELF of nothing", 15), 15);
    fchmod(file, 0755);
    close(file);
    launch_result result;
    assert_int_equal(launch_run(&(launch_options){.ranks = 2, PROGRAM(path)}, &result), LS_ERR_ARGUMENT);
    assert_non_null(strstr(ls_last_error(), path));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    unlink(path);
}

/* --- cores -------------------------------------------------------------------------------------------------------- */

static void write_file(const char *folder, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A tree of cgroups: v2 with a quota of 2.5 above one of 4, v1 with 3, one with none. */
static void quotas_of_cgroups_are_read_on_the_way_up(void **state) {
    (void)state;
    char root[] = "/tmp/lockstep-test-XXXXXX", groups[64], folder[128];
    assert_non_null(mkdtemp(root));
    snprintf(groups, sizeof groups, "%s/groups", root);
    const char *const folders[] = {"a", "a/b", "cpu,cpuacct", "cpu,cpuacct/x"};
    for (int i = 0; i < 4; i++) {
        snprintf(folder, sizeof folder, "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(folder, 0755), 0);
    }
    write_file(root, "a/b/cpu.max", "400000 100000\n");
    write_file(root, "a/cpu.max", "250000 100000\n");
    write_file(root, "cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    write_file(root, "cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    write_file(root, "cpu,cpuacct/x/cpu.cfs_quota_us", "300000\n");
    write_file(root, "cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");

    const struct {
        const char *groups;
        int quota;
    } cases[] = {{"0::/a/b\n", 2},
                 {"0::/a/b/c/not/there\n", 2},
                 {"0::/\n", 0},
                 {"4:memory:/x\n3:cpu,cpuacct:/x\n", 3},
                 {"3:cpu,cpuacct:/x\n0::/a\n", 2},
                 {"3:cpu,cpuacct:/docker/host/path\n", 0},
                 {"3:cpuset:/x\n", 0},
                 {"nonsense\n", 0},
                 {"", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(root, "groups", cases[i].groups);
        assert_int_equal(launch_cores_quota(groups, root), cases[i].quota);
    }
    write_file(root, "a/cpu.max", "max 100000\n");
    write_file(root, "groups", "0::/a\n");
    assert_int_equal(launch_cores_quota(groups, root), 0);
    write_file(root, "a/cpu.max", "50000 100000\n"); /* half a processor is still one */
    assert_int_equal(launch_cores_quota(groups, root), 1);
    assert_int_equal(launch_cores_quota("/not/there", root), 0);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void cores_are_counted_by_affinity(void **state) {
    (void)state;
    assert_true(launch_cores() >= 1);
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(launch_cores(), 1);
    sched_setaffinity(0, sizeof before, &before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_get_torchruns_variables_and_stale_ones_are_replaced),
        cmocka_unit_test(other_variables_pass_through),
        cmocka_unit_test(threads_are_shared_out_fairly_unless_the_user_says_how_many),
        cmocka_unit_test(standard_input_is_empty),
        cmocka_unit_test(each_rank_is_a_session_of_its_own),
        cmocka_unit_test(signals_and_limits_are_those_of_the_launchers_shell),
        cmocka_unit_test(a_rank_inherits_one_socket_and_no_other_descriptor_of_the_launcher),
        cmocka_unit_test(a_wrapper_may_close_all_descriptors),
        cmocka_unit_test(programs_are_found_as_a_shell_finds_them),
        cmocka_unit_test(a_file_that_is_no_program_is_said_once_and_nothing_stays),
        cmocka_unit_test(quotas_of_cgroups_are_read_on_the_way_up),
        cmocka_unit_test(cores_are_counted_by_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
