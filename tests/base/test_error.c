/* Sentences of failures: one a thread, whole or cut, passed on unchanged; and the lines of the log. */
#include "support/test.h"

#include "base/context.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void every_status_has_its_name(void **state) {
    (void)state;
    static const ls_status all[] = {LS_OK,
                                    LS_END,
                                    LS_ERR_ARGUMENT,
                                    LS_ERR_STATE,
                                    LS_ERR_MEMORY,
                                    LS_ERR_ENVIRONMENT,
                                    LS_ERR_IO,
                                    LS_ERR_FORMAT,
                                    LS_ERR_UNSUPPORTED,
                                    LS_ERR_TIMEOUT,
                                    LS_ERR_UNUSED,
                                    LS_ERR_NONFINITE,
                                    LS_ERR_PEER_LOST,
                                    LS_ERR_MISMATCH,
                                    LS_ERR_ABORTED,
                                    LS_ERR_FORKED,
                                    LS_ERR_INTERNAL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(strncmp(ls_status_name(all[i]), "LS_", 3), 0);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(ls_status_name(all[i]), ls_status_name(all[j]));
    }
    assert_string_equal(ls_status_name(LS_ERR_PEER_LOST), "LS_ERR_PEER_LOST");
    assert_string_equal(ls_status_name((ls_status)-12345), "unknown status");
}

static void *fail_elsewhere(void *unused) {
    (void)unused;
    assert_string_equal(ls_last_error(), "");
    ls_fail(LS_ERR_IO, "of another thread");
    return NULL;
}

static void each_thread_has_a_sentence_of_its_own(void **state) {
    (void)state;
    pthread_t thread;
    assert_int_equal(ls_fail(LS_ERR_STATE, "of thread %d", 1), LS_ERR_STATE);
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(ls_last_error(), "of thread 1");
}

static void a_failure_is_carried_and_raised_again_unchanged(void **state) {
    (void)state;
    ls_error carried, none;
    ls_fail(LS_ERR_FORMAT, "the first");
    ls_error_capture(&carried, LS_ERR_FORMAT);
    ls_fail(LS_ERR_IO, "the second");
    ls_error_capture(&none, LS_OK);
    assert_int_equal(ls_error_raise(&none), LS_OK);
    assert_string_equal(ls_last_error(), "the second"); /* success takes no sentence away */
    assert_int_equal(ls_error_raise(&carried), LS_ERR_FORMAT);
    assert_string_equal(ls_last_error(), "the first");
}

static void a_caller_adds_what_it_knows_and_the_cause_stays(void **state) {
    (void)state;
    assert_int_equal(ls_fail_errno(LS_ERR_IO, ENOSPC, "cannot write \"%s\"", "file"), LS_ERR_IO);
    assert_string_equal(ls_last_error(), "cannot write \"file\": No space left on device");
    assert_int_equal(ls_fail_within(LS_ERR_IO, "rank %d", 3), LS_ERR_IO);
    assert_string_equal(ls_last_error(), "rank 3: cannot write \"file\": No space left on device");
    assert_int_equal(ls_fail_within(LS_ERR_TIMEOUT, "rank %d", 3), LS_ERR_TIMEOUT); /* said already */
    assert_int_equal(ls_last_status(), LS_ERR_TIMEOUT);
    assert_string_equal(ls_last_error(), "rank 3: cannot write \"file\": No space left on device");
    ls_fail(LS_ERR_STATE, "again: %s", ls_last_error()); /* the old sentence may be a part of the new one */
    assert_string_equal(ls_last_error(), "again: rank 3: cannot write \"file\": No space left on device");
}

static void a_long_sentence_is_cut_and_its_cause_is_not(void **state) {
    (void)state;
    char name[3000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    ls_fail_errno(LS_ERR_IO, ENOENT, "cannot open %s", name);
    assert_int_equal(strlen(ls_last_error()), LS_ERROR_TEXT_BYTES - 1);
    assert_non_null(strstr(ls_last_error(), "nnn: No such file or directory"));
    ls_fail(LS_ERR_IO, "%s", name);
    assert_int_equal(strlen(ls_last_error()), LS_ERROR_TEXT_BYTES - 1);
    ls_fail_within(LS_ERR_IO, "%s", name);
    assert_int_equal(strlen(ls_last_error()), LS_ERROR_TEXT_BYTES - 1);
}

/* ---- The log ---- */

/* What the lines of all levels, and a long one, put on standard error under LOCKSTEP_LOG=`wanted`. */
static void capture_log(const char *wanted, int rank, char *text, size_t bytes) {
    static char name[4000];
    memset(name, 'n', sizeof name - 1);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const int before = dup(STDERR_FILENO);
    *ls_context_here() = (ls_context){.rank = rank};
    if (wanted) setenv("LOCKSTEP_LOG", wanted, 1);
    dup2(ends[1], STDERR_FILENO);
    errno = 77;
    for (int level = LS_LOG_ERROR; level <= LS_LOG_DEBUG; level++) ls_log((ls_log_level)level, "level %d", level);
    ls_log(LS_LOG_ERROR, "%s", name);
    const int after = errno;
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[1]);
    unsetenv("LOCKSTEP_LOG");
    *ls_context_here() = (ls_context){.rank = -1};
    size_t used = 0;
    for (ssize_t part; (part = read(ends[0], text + used, bytes - 1 - used)) > 0;) used += (size_t)part;
    text[used] = '\0';
    close(ends[0]);
    assert_int_equal(after, 77);
}

static void lines_up_to_the_wanted_level_are_written_with_their_rank(void **state) {
    (void)state;
    static const struct {
        const char *wanted;
        int most;
    } cases[] = {{NULL, 1}, {"error", 0}, {"warning", 1}, {"info", 2}, {"debug", 3}, {"nonsense", 1}};
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char text[16384], line[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        capture_log(cases[i].wanted, 5, text, sizeof text);
        for (int level = 0; level < 4; level++) {
            snprintf(line, sizeof line, " lockstep %s: rank 5: level %d\n", names[level], level);
            assert_int_equal(strstr(text, line) != NULL, level <= cases[i].most);
        }
        /* The long line is cut, and is one line. */
        const char *long_line = strstr(text, "nnnn");
        assert_non_null(long_line);
        assert_true(strcspn(long_line, "\n") > 1000);
        assert_string_equal(long_line + strcspn(long_line, "\n"), "\n");
    }
    capture_log(NULL, -1, text, sizeof text);
    assert_null(strstr(text, "rank"));
}

static void a_variable_that_has_no_effect_since_it_is_misspelt_is_named_in_the_log(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const int before = dup(STDERR_FILENO);
    setenv("LOCKSTEP_BACKND", "tcp", 1);
    setenv("LOCKSTEP_BACKEND_", "tcp", 1);
    setenv("LOCKSTEP_BACKEND", "tcp", 1);
    setenv("LOCKSTEP_LOG", "verbose", 1);
    dup2(ends[1], STDERR_FILENO);
    ls_env_warn_unknown();
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[1]);
    unsetenv("LOCKSTEP_BACKND");
    unsetenv("LOCKSTEP_BACKEND_");
    unsetenv("LOCKSTEP_BACKEND");
    unsetenv("LOCKSTEP_LOG");
    char text[4096];
    const ssize_t used = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_true(used > 0);
    text[used] = '\0';
    assert_non_null(strstr(text, "LOCKSTEP_BACKND has no effect"));
    assert_non_null(strstr(text, "LOCKSTEP_BACKEND_ has no effect"));
    assert_null(strstr(text, "LOCKSTEP_BACKEND has no effect"));
    assert_non_null(strstr(text, "LOCKSTEP_LOG is \"verbose\": expected error, warning, info or debug"));
}

static void a_line_that_cannot_be_written_leaves_errno_alone(void **state) {
    (void)state;
    const int kept = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = ERANGE;
    ls_log(LS_LOG_ERROR, "nobody reads this");
    const int found = errno;
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    close(kept);
    assert_int_equal(found, ERANGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(each_thread_has_a_sentence_of_its_own),
        cmocka_unit_test(a_failure_is_carried_and_raised_again_unchanged),
        cmocka_unit_test(a_caller_adds_what_it_knows_and_the_cause_stays),
        cmocka_unit_test(a_long_sentence_is_cut_and_its_cause_is_not),
        cmocka_unit_test(lines_up_to_the_wanted_level_are_written_with_their_rank),
        cmocka_unit_test(a_variable_that_has_no_effect_since_it_is_misspelt_is_named_in_the_log),
        cmocka_unit_test(a_line_that_cannot_be_written_leaves_errno_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
