/* Lines of ranks come whole, labelled and complete, whatever happens to the ranks and to whoever reads. */
#include "launch/captured.h"

#include "base/clock.h"
#include "base/wait.h"

#include <fcntl.h>

#define WORKER LS_TEST_BIN_DIR "/worker_launch"
#define PROGRAM(...)             \
    .program = (char *const[]) { \
        __VA_ARGS__, NULL        \
    }
#define SHELL(text) PROGRAM("sh", "-c", text)

/* --- whole lines -------------------------------------------------------------------------------------------------- */

enum { RANKS = 4, LINES = 10000 };

/* Takes one line off `text`, which must be whole and the next of its rank and stream; counts it in `next`. */
static char *check_line(char *text, int next[RANKS][2]) {
    char *end = strchr(text, '\n');
    assert_non_null(end);
    *end = '\0';
    int label = -1, number = -1, rank = -1, used = 0;
    char stream[4] = "";
    if (sscanf(text, "[%d] %3s %d of rank %d%n", &label, stream, &number, &rank, &used) != 4)
        fail_msg("torn: %s", text);
    const bool is_error = strcmp(stream, "err") == 0;
    const char *rest = is_error ? "" : ", and some more so that buffers end within lines";
    if (label != rank || label < 0 || label >= RANKS || strcmp(text + used, rest) != 0) fail_msg("torn: %s", text);
    if (number != next[rank][is_error]) fail_msg("expected line %d: %s", next[rank][is_error], text);
    next[rank][is_error]++;
    return end + 1;
}

static void ten_thousand_lines_a_rank_come_whole_though_one_is_killed(void **state) {
    (void)state;
    captured job;
    captured_run(&job,
                 &(launch_options){.ranks = RANKS,
                                   .linger_ms = 30000,
                                   SHELL(WORKER " lines 10000; [ $RANK = 3 ] && kill -9 $$; exit 0")},
                 true);
    int next[RANKS][2] = {0};
    char *text = job.texts[0];
    while (*text == '[') text = check_line(text, next);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(next[i][0], LINES);
        assert_int_equal(next[i][1], LINES);
    }
    assert_int_equal(job.exit_code, 128 + SIGKILL);
    assert_true(ends_with(text, "lockstep: first failure: rank 3 was killed by signal 9 (SIGKILL)\n"));
    captured_free(&job);
}

static void a_last_line_without_a_newline_is_kept_and_closed(void **state) {
    (void)state;
    captured job;
    captured_run(&job, &(launch_options){.ranks = 2, SHELL("[ $RANK = 1 ] && sleep 0.1; printf 'half %s' $RANK")},
                 true);
    assert_string_equal(job.texts[0], "[0] half 0\n[1] half 1\n");
    captured_free(&job);
}

static void a_long_line_stays_one_and_one_past_the_limit_loses_nothing(void **state) {
    (void)state;
    captured job;
    captured_run(&job, &(launch_options){.ranks = 2, PROGRAM(WORKER, "long", "1000000")}, false);
    assert_int_equal(job.used[0], 2 * 1000005);
    assert_memory_equal(job.texts[0] + 1000005, job.texts[0][1] == '0' ? "[1] abc" : "[0] abc", 7);
    captured_free(&job);

    captured_run(&job, &(launch_options){.ranks = 2, .without_labels = true, PROGRAM(WORKER, "long", "3000000")},
                 false);
    size_t letters = 0;
    for (size_t i = 0; i < job.used[0]; i++) letters += job.texts[0][i] != '\n';
    assert_int_equal(letters, 6000000);
    captured_free(&job);
}

static void a_long_line_is_not_torn_by_others_on_the_same_pipe(void **state) {
    (void)state;
    captured job;
    captured_start(&job,
                   &(launch_options){.ranks = 2,
                                     SHELL("[ $RANK = 0 ] && exec " WORKER " long 400000; i=0; "
                                           "while [ $i -lt 300 ]; do echo line $i >&2; i=$((i+1)); done")},
                   true);
    ls_sleep_until(ls_now_ns() + 300 * LS_NS_PER_MS); /* nobody reads, so both kinds of lines wait for the pipe */
    captured_finish(&job);
    const char *line = strstr(job.texts[0], "[0] abc");
    assert_non_null(line);
    assert_int_equal(strcspn(line, "\n"), 400004);
    captured_free(&job);
}

static void output_and_error_go_where_they_belong(void **state) {
    (void)state;
    captured job;
    captured_run(&job, &(launch_options){.ranks = 2, SHELL("[ $RANK = 1 ] || exit 0; echo out; echo err >&2; echo")},
                 false);
    assert_string_equal(job.texts[0], "[1] out\n[1] \n");
    assert_string_equal(job.texts[1], "[1] err\n");
    captured_free(&job);
}

static void without_labels_lines_are_passed_as_they_are(void **state) {
    (void)state;
    captured job;
    captured_run(&job,
                 &(launch_options){.ranks = 2, .without_labels = true, SHELL("[ $RANK = 1 ] && echo plain; exit 0")},
                 false);
    assert_string_equal(job.texts[0], "plain\n");
    captured_free(&job);
}

static void a_single_rank_writes_to_the_launchers_own_output(void **state) {
    (void)state;
    captured job;
    captured_start(&job, &(launch_options){.ranks = 1, PROGRAM("readlink", "/proc/self/fd/1")}, false);
    char path[64], own[64] = "", expected[80];
    snprintf(path, sizeof path, "/proc/self/fd/%d", job.pipes[0]);
    assert_true(readlink(path, own, sizeof own - 1) > 0);
    snprintf(expected, sizeof expected, "%s\n", own);
    captured_finish(&job);
    assert_string_equal(job.texts[0], expected);
    captured_free(&job);
}

/* --- the report --------------------------------------------------------------------------------------------------- */

static void the_first_failures_last_lines_and_its_name_come_last(void **state) {
    (void)state;
    captured job;
    captured_run(&job,
                 &(launch_options){.ranks = 3,
                                   .linger_ms = 30000,
                                   SHELL("case $RANK in 2) echo one; echo two >&2; sleep 0.1; echo three; exit 9;; "
                                         "0) sleep 1; echo peer lost; exit 1;; 1) sleep 1; exit 0;; esac")},
                 true);
    assert_int_equal(job.exit_code, 9);
    assert_true(ends_with(job.texts[0],
                          "[0] peer lost\nlockstep: the last lines of rank 2:\n[2] one\n[2] two\n[2] three\n"
                          "lockstep: first failure: rank 2, exit 9\n"));
    captured_free(&job);
}

static void lines_that_came_last_are_not_repeated(void **state) {
    (void)state;
    captured job;
    captured_run(&job, &(launch_options){.ranks = 2, SHELL("[ $RANK = 0 ] && exit 0; sleep 0.5; echo dying; exit 3")},
                 true);
    assert_string_equal(job.texts[0], "[1] dying\nlockstep: first failure: rank 1, exit 3\n");
    captured_free(&job);
}

static void of_many_lines_only_the_last_are_repeated(void **state) {
    (void)state;
    captured job;
    captured_run(&job,
                 &(launch_options){.ranks = 2,
                                   .linger_ms = 30000,
                                   SHELL("[ $RANK = 0 ] && { sleep 1; echo after; exit 0; }; "
                                         "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done; exit 3")},
                 false);
    assert_non_null(strstr(job.texts[1], "lockstep: the last lines of rank 1:\n[1] line "));
    assert_true(ends_with(job.texts[1], "[1] line 499\nlockstep: first failure: rank 1, exit 3\n"));
    assert_null(strstr(job.texts[1], "[1] line 100\n"));
    captured_free(&job);
}

/* --- readers ------------------------------------------------------------------------------------------------------ */

static void a_slow_reader_stops_neither_the_store_nor_loses_a_byte(void **state) {
    (void)state;
    captured job;
    /* 64 KiB of pipe on each side and the launcher's half a megabyte: the rest has to wait in the ranks. */
    captured_start(&job, &(launch_options){.ranks = 2, SHELL("{ " WORKER " lines 5000; } & " WORKER " meet; wait")},
                   true);
    ls_sleep_until(ls_now_ns() + 300 * LS_NS_PER_MS);
    captured_finish(&job);
    assert_int_equal(job.exit_code, 0);
    size_t lines = 0;
    for (const char *at = job.texts[0]; (at = strchr(at, '\n')); at++) lines++;
    assert_int_equal(lines, 20000);
    captured_free(&job);
}

static void ranks_meet_while_nobody_reads_what_they_write(void **state) {
    (void)state;
    /* Less than pipes and launcher hold: the ranks get past their barrier before a byte is read. */
    char folder[] = "/tmp/lockstep-test-XXXXXX", done[2][64];
    assert_non_null(mkdtemp(folder));
    setenv("DONE", folder, 1);
    captured job;
    captured_start(&job, &(launch_options){.ranks = 2, SHELL(WORKER " meet-full 200000 && : > $DONE/$RANK")}, true);
    const int64_t deadline_ns = ls_deadline_after_ms(30000);
    for (int i = 0; i < 2; i++) {
        snprintf(done[i], sizeof done[i], "%s/%d", folder, i);
        while (access(done[i], F_OK) != 0 && ls_now_ns() < deadline_ns) ls_sleep_until(ls_now_ns() + 5 * LS_NS_PER_MS);
        assert_int_equal(unlink(done[i]), 0);
    }
    captured_finish(&job);
    assert_int_equal(job.exit_code, 0);
    captured_free(&job);
    unsetenv("DONE");
    rmdir(folder);
}

static void a_reader_that_goes_away_ends_the_ranks_as_without_a_launcher(void **state) {
    (void)state;
    captured job;
    captured_start(&job, &(launch_options){.ranks = 2, .linger_ms = 20000, PROGRAM("yes")}, false);
    char piece[4096];
    assert_true(read(job.pipes[0], piece, sizeof piece) > 0);
    close(job.pipes[0]);
    job.pipes[0] = open("/dev/null", O_RDONLY);
    captured_finish(&job);
    assert_int_equal(job.exit_code, 128 + SIGPIPE);
    captured_free(&job);
}

static void the_shells_descriptors_stay_as_they_are(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const int before = fcntl(ends[1], F_GETFL);
    fflush(NULL);
    const pid_t launcher = fork();
    if (launcher == 0) {
        dup2(ends[1], 1);
        launch_result result;
        const launch_options options = {.ranks = 2, SHELL("echo line; exit 0")};
        launch_run(&options, &result);
        _exit(fcntl(1, F_GETFL) & O_NONBLOCK ? 1 : 0);
    }
    int status = -1;
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    assert_int_equal(status, 0);
    assert_int_equal(fcntl(ends[1], F_GETFL), before);
    close(ends[0]);
    close(ends[1]);
}

static void output_into_a_file_is_complete(void **state) {
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(NULL);
    const pid_t launcher = fork();
    if (launcher == 0) {
        dup2(fileno(file), 1);
        launch_result result;
        const launch_options options = {.ranks = 2, PROGRAM(WORKER, "meet-full", "2000000")};
        launch_run(&options, &result);
        _exit(result.exit_code);
    }
    int status = -1;
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    assert_int_equal(status, 0);
    fseek(file, 0, SEEK_END);
    assert_int_equal(ftell(file), 2 * (2000000 / 64) * (64 + 4));
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_lines_a_rank_come_whole_though_one_is_killed),
        cmocka_unit_test(a_last_line_without_a_newline_is_kept_and_closed),
        cmocka_unit_test(a_long_line_stays_one_and_one_past_the_limit_loses_nothing),
        cmocka_unit_test(a_long_line_is_not_torn_by_others_on_the_same_pipe),
        cmocka_unit_test(output_and_error_go_where_they_belong),
        cmocka_unit_test(without_labels_lines_are_passed_as_they_are),
        cmocka_unit_test(a_single_rank_writes_to_the_launchers_own_output),
        cmocka_unit_test(the_first_failures_last_lines_and_its_name_come_last),
        cmocka_unit_test(lines_that_came_last_are_not_repeated),
        cmocka_unit_test(of_many_lines_only_the_last_are_repeated),
        cmocka_unit_test(a_slow_reader_stops_neither_the_store_nor_loses_a_byte),
        cmocka_unit_test(ranks_meet_while_nobody_reads_what_they_write),
        cmocka_unit_test(a_reader_that_goes_away_ends_the_ranks_as_without_a_launcher),
        cmocka_unit_test(the_shells_descriptors_stay_as_they_are),
        cmocka_unit_test(output_into_a_file_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
