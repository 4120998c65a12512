/* The trace as its readers see it: parsed back as JSON, whole or cut short. */
#include "support/faults.h"
#include "support/test.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/memory.h"
#include "base/thread.h"
#include "trace/sink.h"
#include "trace/trace.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[64];
static char path[128];

static int make_directory(void **state) {
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/lockstep-trace-XXXXXX");
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/rank-0.json", directory);
    return 0;
}

static int remove_directory(void **state) {
    (void)state;
    ls_trace_stop();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static json_t *read_events(void) {
    json_error_t error;
    json_t *events = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!events) print_error("%s:%d: %s\n", path, error.line, error.text);
    assert_true(json_is_array(events));
    return events;
}

static const char *text_of(json_t *event, const char *key) {
    return json_string_value(json_object_get(event, key));
}

/* The event of kind `ph` whose name is `name`; fails the test when there is none. */
static json_t *find_event(json_t *events, const char *ph, const char *name) {
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        if (strcmp(text_of(event, "ph"), ph) == 0 && strcmp(text_of(event, "name"), name) == 0) return event;
    }
    print_error("no event \"%s\" in %s\n", name, path);
    fail();
    return NULL;
}

static int count_spans(json_t *events) {
    int count = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) count += strcmp(text_of(event, "ph"), "X") == 0;
    return count;
}

static void a_span_is_a_complete_event_in_microseconds(void **state) {
    (void)state;
    ls_context_here()->rank = 0;
    assert_int_equal(ls_trace_start(directory), LS_OK);
    assert_true(trace_is_on());
    trace_span("bucket", "bucket 3", 1234567, 2234569);
    assert_int_equal(ls_trace_stop(), LS_OK);
    assert_false(trace_is_on());

    json_t *events = read_events(), *event = find_event(events, "X", "bucket 3");
    assert_string_equal(text_of(event, "cat"), "bucket");
    assert_int_equal(json_integer_value(json_object_get(event, "pid")), 0);
    assert_true(json_real_value(json_object_get(event, "ts")) == 1234.567);
    assert_true(json_real_value(json_object_get(event, "dur")) == 1000.002);
    json_t *process = find_event(events, "M", "process_name");
    assert_string_equal(text_of(json_object_get(process, "args"), "name"), "rank 0");
    json_decref(events);
}

static void the_file_and_the_process_are_named_by_the_rank(void **state) {
    (void)state;
    ls_context_here()->rank = 3;
    char below[96];
    snprintf(below, sizeof below, "%s/a/b", directory);
    assert_int_equal(ls_trace_start(below), LS_OK);
    trace_span("wait", "w", 1, 2);
    assert_int_equal(ls_trace_stop(), LS_OK);
    ls_context_here()->rank = -1;
    snprintf(path, sizeof path, "%s/rank-3.json", below);
    json_t *events = read_events();
    assert_int_equal(json_integer_value(json_object_get(find_event(events, "X", "w"), "pid")), 3);
    json_decref(events);
}

static void user_spans_nest(void **state) {
    (void)state;
    assert_int_equal(ls_trace_start(directory), LS_OK);
    ls_span_begin("outer");
    ls_span_begin("inner");
    ls_span_end();
    ls_span_end();
    ls_span_end(); /* one too many is ignored */
    assert_int_equal(ls_trace_stop(), LS_OK);

    json_t *events = read_events();
    json_t *outer = find_event(events, "X", "outer"), *inner = find_event(events, "X", "inner");
    assert_int_equal(count_spans(events), 2);
    assert_true(json_real_value(json_object_get(outer, "ts")) <= json_real_value(json_object_get(inner, "ts")));
    assert_true(json_real_value(json_object_get(outer, "dur")) >= json_real_value(json_object_get(inner, "dur")));
    json_decref(events);
}

static void a_span_begun_before_the_trace_is_left_out(void **state) {
    (void)state;
    ls_span_begin("before");
    assert_int_equal(ls_trace_start(directory), LS_OK);
    ls_span_end();
    ls_span_begin("cut off");
    assert_int_equal(ls_trace_stop(), LS_OK);
    assert_int_equal(ls_trace_start(directory), LS_OK);
    ls_span_end();
    for (int i = 0; i < 1000; i++) ls_span_begin("deep");
    for (int i = 0; i < 1000; i++) ls_span_end();
    assert_int_equal(ls_trace_stop(), LS_OK);
    json_t *events = read_events();
    assert_in_range(count_spans(events), 1, 1000);
    find_event(events, "X", "deep");
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        assert_string_not_equal(text_of(event, "name"), "before");
        assert_string_not_equal(text_of(event, "name"), "cut off");
    }
    json_decref(events);
}

static void any_name_yields_valid_json(void **state) {
    (void)state;
    char longest[4000];
    memset(longest, '\\', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(ls_trace_start(directory), LS_OK);
    trace_span("user", "say \"hi\"\\ \n\t\x01", 1, 2);
    trace_span("user", "vorw\xc3\xa4rts \xe2\x82\xac \xf0\x9f\x98\x80", 1, 2);
    trace_span("user", "\xff\xc3 \xed\xa0\x80 \xc0\xaf \xf5\x80\x80\x80 cut \xe2\x82", 1, 2);
    trace_span("user", "\xe0\x80\xaf \xf0\x80\x80\xaf", 1, 2);
    trace_span_on(longest, longest, longest, 1, 2);
    trace_span("user", "", 5, 3);
    assert_int_equal(ls_trace_stop(), LS_OK);
    json_t *events = read_events();
    find_event(events, "X", "say \"hi\"\\ \n\t\x01");
    find_event(events, "X", "vorw\xc3\xa4rts \xe2\x82\xac \xf0\x9f\x98\x80");
    assert_int_equal(count_spans(events), 6);
    assert_true(json_real_value(json_object_get(find_event(events, "X", ""), "dur")) == 0);
    json_decref(events);
}

static void a_name_that_does_not_fit_is_cut_between_characters(void **state) {
    (void)state;
    char escaped[12];
    for (size_t bytes = 1; bytes <= 9; bytes++) {
        memset(escaped, '#', sizeof escaped);
        trace_escape(escaped, bytes,
                     "ab\"\xc3\xa4"
                     "cdefgh"); /* 2, 2, 2 and more bytes */
        static const size_t lengths[] = {0, 0, 1, 2, 2, 4, 4, 6, 7, 8};
        assert_int_equal(strlen(escaped), lengths[bytes]);
        assert_int_equal(escaped[bytes], '#');
    }
}

static void a_second_start_changes_nothing(void **state) {
    (void)state;
    char other[96];
    snprintf(other, sizeof other, "%s/other", directory);
    assert_int_equal(ls_trace_start(directory), LS_OK);
    trace_span("user", "first", 1, 2);
    assert_int_equal(ls_trace_start(other), LS_OK);
    trace_span("user", "second", 1, 2);
    assert_int_equal(ls_trace_stop(), LS_OK);
    assert_int_equal(access(other, F_OK), -1);
    json_t *events = read_events();
    assert_int_equal(count_spans(events), 2);
    json_decref(events);
}

static void a_track_has_a_line_of_its_own(void **state) {
    (void)state;
    assert_int_equal(ls_trace_start(directory), LS_OK);
    trace_span("backward", "backward", 1, 9);
    trace_span_on("buckets", "bucket", "bucket 0", 2, 4);
    trace_span_on("buckets", "bucket", "bucket 1", 4, 6);
    for (int i = 0; i < 200; i++) { /* more tracks than there are lines */
        char track[16];
        snprintf(track, sizeof track, "track %d", i);
        trace_span_on(track, "bucket", track, 1, 2);
    }
    assert_int_equal(ls_trace_stop(), LS_OK);
    json_t *events = read_events();
    const json_int_t own = json_integer_value(json_object_get(find_event(events, "X", "backward"), "tid"));
    const json_int_t first = json_integer_value(json_object_get(find_event(events, "X", "bucket 0"), "tid"));
    const json_int_t second = json_integer_value(json_object_get(find_event(events, "X", "bucket 1"), "tid"));
    assert_int_not_equal(own, first);
    assert_int_equal(first, second);
    find_event(events, "X", "track 199");
    json_decref(events);
}

/* ---- Threads ---- */

static _Atomic bool go_on;

static void span_until_told(void *argument) {
    (void)argument;
    do { trace_span("bucket", "helper", 1, 2); } while (!go_on);
    /* The trace is stopped by now: this finds the mark and lets go. */
    trace_span("bucket", "too late", 1, 2);
    assert_false(trace_is_on());
}

static void a_thread_may_outlive_its_trace(void **state) {
    (void)state;
    const uint64_t live = ls_alloc_live();
    ls_thread threads[3] = {{0}};
    go_on = false;
    assert_int_equal(ls_trace_start(directory), LS_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(ls_thread_start(&threads[i], "helper", span_until_told, NULL), LS_OK);
    for (int i = 0; i < 1000; i++) trace_span("forward", "main", 1, 2);
    assert_int_equal(ls_trace_stop(), LS_OK);
    go_on = true;
    for (int i = 0; i < 3; i++) ls_thread_join(&threads[i]);
    assert_int_equal(ls_alloc_live(), live);

    json_t *events = read_events();
    size_t i;
    json_t *event;
    int named = 0;
    json_array_foreach(events, i, event) {
        assert_string_not_equal(text_of(event, "name"), "too late");
        json_t *arguments = json_object_get(event, "args");
        if (arguments) named += strcmp(text_of(arguments, "name"), "helper") == 0;
    }
    assert_in_range(named, 0, 3);
    json_decref(events);
}

static void return_at_once(void *argument) {
    (void)argument;
}

static void a_thread_that_ends_lets_go_of_the_trace(void **state) {
    (void)state;
    const uint64_t live = ls_alloc_live();
    ls_thread during = {0}, after = {0};
    assert_int_equal(ls_trace_start(directory), LS_OK);
    assert_int_equal(ls_thread_start(&during, "during", return_at_once, NULL), LS_OK);
    ls_thread_join(&during);
    assert_int_equal(ls_trace_stop(), LS_OK);
    assert_int_equal(ls_alloc_live(), live);
    assert_int_equal(ls_thread_start(&after, "after", return_at_once, NULL), LS_OK);
    ls_thread_join(&after);
    assert_int_equal(ls_alloc_live(), live);
}

static void a_thread_that_cannot_start_lets_go_of_the_trace(void **state) {
    (void)state;
    const uint64_t live = ls_alloc_live();
    assert_int_equal(ls_trace_start(directory), LS_OK);
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_THREAD) {
        ls_thread thread = {0};
        const ls_status status = ls_thread_start(&thread, "thread", return_at_once, NULL);
        if (ls_fault_was_met()) assert_fault_reported(status);
        ls_thread_join(&thread);
    }
    assert_int_equal(ls_trace_stop(), LS_OK);
    assert_int_equal(ls_alloc_live(), live);
}

static void a_forked_child_leaves_the_file_alone(void **state) {
    (void)state;
    assert_int_equal(ls_trace_start(directory), LS_OK);
    trace_span("user", "parent's", 1, 2);
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 10000; i++) trace_span("user", "child's", 1, 2);
        ls_trace_stop();
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(ls_trace_stop(), LS_OK);
    json_t *events = read_events();
    assert_int_equal(count_spans(events), 1);
    json_decref(events);
}

/* ---- Ends that are not orderly ---- */

static void after_a_crash_the_file_lacks_only_its_end(void **state) {
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        if (ls_trace_start(directory)) _exit(1);
        for (int i = 0; i < 5000; i++) trace_span("user", "a span of the one that died", i, i + 1);
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));

    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(ftell(file) > 64 << 10);
    fputs("]", file);
    fclose(file);
    json_t *events = read_events();
    assert_true(count_spans(events) > 500);
    json_decref(events);
}

static void a_full_disk_is_told_at_stop_and_the_file_stays_whole(void **state) {
    (void)state;
    const struct rlimit full = {.rlim_cur = 100000, .rlim_max = RLIM_INFINITY};
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);

    assert_int_equal(ls_trace_start(directory), LS_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    for (int i = 0; i < 10000; i++) trace_span("user", "one of many", i, i + 1);
    const ls_status status = ls_trace_stop();
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);

    assert_int_equal(status, LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "events are missing"));
    assert_non_null(strstr(ls_last_error(), path));
    json_t *events = read_events();
    assert_in_range(count_spans(events), 100, 9000);
    json_decref(events);
}

static void a_directory_that_cannot_be_made_is_told_at_start(void **state) {
    (void)state;
    assert_int_equal(ls_trace_start("/dev/null/trace"), LS_ERR_IO);
    assert_non_null(strstr(ls_last_error(), "/dev/null"));
    assert_int_equal(ls_trace_start(NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_trace_start(""), LS_ERR_ARGUMENT);
    assert_false(trace_is_on());
    assert_int_equal(ls_trace_stop(), LS_OK);
}

static void a_fault_at_any_call_is_told_and_leaves_nothing(void **state) {
    (void)state;
    int harmless = 0;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        ls_status status = ls_trace_start(directory);
        trace_span("user", "one", 1, 2);
        const ls_status stopped = ls_trace_stop();
        if (status == LS_OK) status = stopped;
        /* Making a directory that is there already may fail. */
        if (ls_fault_was_met() && status == LS_OK)
            harmless++;
        else if (ls_fault_was_met())
            assert_fault_reported(status);
        else
            assert_int_equal(status, LS_OK);
    }
    assert_in_range(harmless, 0, 2);
    assert_nothing_left();
    json_decref(read_events());
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        TEST(a_span_is_a_complete_event_in_microseconds),
        TEST(the_file_and_the_process_are_named_by_the_rank),
        TEST(user_spans_nest),
        TEST(a_span_begun_before_the_trace_is_left_out),
        TEST(any_name_yields_valid_json),
        TEST(a_name_that_does_not_fit_is_cut_between_characters),
        TEST(a_second_start_changes_nothing),
        TEST(a_track_has_a_line_of_its_own),
        TEST(a_thread_may_outlive_its_trace),
        TEST(a_thread_that_ends_lets_go_of_the_trace),
        TEST(a_thread_that_cannot_start_lets_go_of_the_trace),
        TEST(a_forked_child_leaves_the_file_alone),
        TEST(after_a_crash_the_file_lacks_only_its_end),
        TEST(a_full_disk_is_told_at_stop_and_the_file_stays_whole),
        TEST(a_directory_that_cannot_be_made_is_told_at_start),
        TEST(a_fault_at_any_call_is_told_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
