/* test_flight.c: the flight recorder's files: on SIGUSR2 and on an error, with the last operations, and never unasked. */
#include "support/threads.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/wait.h"
#include "group/group.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/lockstep-flight-XXXXXX";

static int count_files(void) {
    int count = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (const struct dirent *file = NULL; (file = readdir(directory));) count += file->d_name[0] != '.';
    closedir(directory);
    return count;
}

/* A rank's file of the only group; freed by ls_free. */
static char *read_file(int rank) {
    char path[128];
    uint8_t *bytes = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/flight-%d-lockstep_group_1.json", folder, rank);
    assert_ok(ls_file_read(path, &bytes, &size));
    char *text = ls_alloc(size + 1);
    memcpy(text, bytes, size);
    ls_free(bytes);
    return text;
}

static void remove_files(void) {
    for (int rank = 0; rank < 4; rank++) {
        char path[128];
        snprintf(path, sizeof path, "%s/flight-%d-lockstep_group_1.json", folder, rank);
        unlink(path);
    }
    assert_int_equal(count_files(), 0);
}

static int count_of(const char *text, const char *what) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) count++;
    return count;
}

#define BEFORE (FLIGHT_ENTRIES + 500)

static void hang_and_signal(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    ls_work *work = NULL;
    float value = 0;
    for (int i = 0; i < BEFORE; i++) assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL));
    if (rank->rank == 0) {
        assert_ok(ls_group_barrier(group, &work));
        ls_work *later = NULL;
        assert_ok(ls_group_broadcast(group, &value, 1, LS_F32, 0, &later));
        assert_ok(ls_store_set(rank->store, "posted", "", 0));
        assert_ok(ls_work_wait(work, 0));
        assert_ok(ls_work_wait(later, 0));
        ls_work_close(&work);
        ls_work_close(&later);
    } else {
        /* In no call of the library's, as one that is stuck in its own code. */
        assert_ok(ls_store_wait(rank->store, "posted", 60000));
        raise(SIGUSR2);
        for (int i = 0; count_files() < 2 && i < 3000; i++) ls_sleep_until(ls_now_ns() + 10 * LS_NS_PER_MS);
        assert_ok(ls_group_barrier(group, NULL));
        assert_ok(ls_group_broadcast(group, &value, 1, LS_F32, 0, NULL));
    }
    ls_group_close(&group);
}

static void a_signal_writes_where_each_rank_is(void **state) {
    (void)state;
    run_ranks(2, hang_and_signal, NULL);
    char *text = read_file(0);
    assert_int_equal(count_of(text, "\"record_id\""), FLIGHT_ENTRIES + 1);
    assert_int_equal(count_of(text, "\"state\":\"completed\""), FLIGHT_ENTRIES - 1);
    assert_non_null(strstr(text, "\"collective_seq_id\":2501,\"is_p2p\":false,\"profiling_name\":\"barrier\""));
    assert_int_equal(count_of(text, "\"state\":\"started\""), 1);
    assert_non_null(strstr(text, "\"profiling_name\":\"broadcast of 1 f32 from rank 0\""));
    assert_int_equal(count_of(text, "\"state\":\"scheduled\""), 1);
    assert_non_null(strstr(text, "\"failure\":\"\""));
    ls_free(text);
    /* The one they wait for is in no operation, and says so. */
    text = read_file(1);
    assert_int_equal(count_of(text, "\"state\":\"completed\""), FLIGHT_ENTRIES);
    ls_free(text);
    remove_files();
}

static void call_apart(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    float values[8] = {0};
    assert_int_equal(ls_group_all_reduce(group, values, rank->rank ? 7 : 8, LS_F32, LS_SUM, NULL), LS_ERR_MISMATCH);
    ls_group_close(&group);
}

static void a_lost_group_writes_its_failure(void **state) {
    (void)state;
    run_ranks(2, call_apart, NULL);
    for (int rank = 0; rank < 2; rank++) {
        char *text = read_file(rank);
        assert_non_null(strstr(text, rank ? "all-reduce of 7 f32 sum\"" : "all-reduce of 8 f32 sum\""));
        assert_non_null(strstr(text, "\"failure\":\"rank 0 called all-reduce of 8 f32 sum, rank 1 all-reduce of 7"));
        ls_free(text);
    }
    remove_files();
}

/* Messages have no number, and are written with those that are not complete. */
static void wait_for_a_message(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int64_t value = 0;
    ls_work *work = NULL;
    if (rank->rank == 0) assert_ok(ls_group_receive(group, &value, 1, LS_I64, 1, 5, NULL, &work));
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 1) ls_group_abort(group, "enough");
    if (rank->rank == 0) assert_int_equal(ls_work_wait(work, 0), LS_ERR_ABORTED);
    ls_work_close(&work);
    ls_group_close(&group);
}

static void a_message_that_hangs_is_written_too(void **state) {
    (void)state;
    run_ranks(2, wait_for_a_message, NULL);
    char *text = read_file(0);
    const char *message = strstr(text, "\"collective_seq_id\":0,\"is_p2p\":true,"
                                       "\"profiling_name\":\"receive of 1 i64 from rank 1 with tag 5\"");
    assert_non_null(message);
    assert_non_null(strstr(message, "\"state\":\"started\""));
    assert_non_null(strstr(text, "\"collective_seq_id\":1,\"is_p2p\":false,\"profiling_name\":\"barrier\""));
    ls_free(text);
    remove_files();
}

static void close_in_peace(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    assert_ok(ls_group_barrier(group, NULL));
    ls_sleep_until(ls_now_ns() + 100 * LS_NS_PER_MS); /* the signals of the tests before were not for it */
    ls_group_close(&group);
}

static void a_group_that_ends_well_writes_nothing(void **state) {
    (void)state;
    run_ranks(2, close_in_peace, NULL);
    assert_int_equal(count_files(), 0);
}

/* --- what a record says ------------------------------------------------------------------------------------------------ */

static ls_group *open_alone(void) {
    ls_group *group = NULL;
    const ls_group_options options = {.world_size = 1, .timeout_ms = 60000};
    assert_ok(group_open_backend(&group, &options, &solo_backend));
    return group;
}

/* The file of a world of one, written now; freed by ls_free. */
static char *write_alone(ls_group *group) {
    char path[256];
    uint8_t *bytes = NULL;
    size_t size = 0;
    flight_write(group);
    snprintf(path, sizeof path, "%s/flight-0-%s.json", folder, group->prefix[0] ? group->prefix : "alone");
    assert_ok(ls_file_read(path, &bytes, &size));
    char *text = ls_alloc(size + 1);
    memcpy(text, bytes, size);
    ls_free(bytes);
    assert_int_equal(unlink(path), 0);
    return text;
}

static uint64_t begin(ls_group *group, group_kind kind, uint64_t number, int64_t posted_ns, int64_t start_ns) {
    const backend_op op = {.call = {.kind = kind, .dtype = LS_F32, .op = LS_MAX, .root = 1, .count = 9},
                           .number = number,
                           .start_ns = start_ns};
    return flight_begin(&group->flight, &op, posted_ns);
}

/* The record's own line of the file, cut out. */
static const char *line_of(const char *text, uint64_t record, char line[1024]) {
    char head[64];
    snprintf(head, sizeof head, "{\"record_id\":%llu,", (unsigned long long)record);
    const char *at = strstr(text, head);
    assert_non_null(at);
    snprintf(line, 1024, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

static void a_record_says_what_became_of_an_operation(void **state) {
    (void)state;
    ls_group *group = open_alone();
    char line[1024], time[64];
    const int64_t now_ns = ls_now_ns();
    const uint64_t under_way = begin(group, GROUP_REDUCE, 7, now_ns - 3 * LS_NS_PER_MS, 0);
    flight_started(&group->flight, under_way, now_ns);
    const uint64_t complete = begin(group, GROUP_BARRIER, 8, 0, now_ns - 2 * LS_NS_PER_MS);
    flight_end(&group->flight, complete, now_ns - 2 * LS_NS_PER_MS, now_ns - LS_NS_PER_MS / 2, true);
    const uint64_t failed = begin(group, GROUP_BARRIER, 9, 0, 0);
    flight_end(&group->flight, failed, 0, now_ns, false);
    const uint64_t message = begin(group, GROUP_SEND, 0, 0, now_ns);
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    char *text = write_alone(group);

    assert_non_null(strstr(line_of(text, under_way, line), "\"profiling_name\":\"reduce of 9 f32 max to rank 1\""));
    assert_non_null(strstr(line, "\"state\":\"started\",\"timeout_ms\":60000,\"retired\":false"));
    assert_non_null(strstr(line, "\"time_discovered_completed_ns\":null,\"duration_ms\":0.000000"));
    /* Times are the wall clock's, to the second here, or to the one before. */
    long long created_ns = 0, started_ns = 0;
    const char *created = strstr(line, "\"time_created_ns\":"),
               *started = strstr(line, "\"time_discovered_started_ns\":");
    assert_true(created && sscanf(strchr(created, ':') + 1, "%lld", &created_ns) == 1);
    assert_true(started && sscanf(strchr(started, ':') + 1, "%lld", &started_ns) == 1);
    assert_int_equal(started_ns - created_ns, 3 * LS_NS_PER_MS);
    assert_in_range(wall.tv_sec - created_ns / LS_NS_PER_S, 0, 60);

    snprintf(time, sizeof time, "\"time_discovered_started_ns\":%lld", started_ns - 2 * LS_NS_PER_MS);
    assert_non_null(strstr(line_of(text, complete, line), time));
    assert_non_null(strstr(line, "\"time_created_ns\":null"));
    assert_non_null(strstr(line, "\"duration_ms\":1.500000,\"state\":\"completed\""));
    assert_non_null(strstr(line, "\"retired\":true"));
    assert_non_null(strstr(line, "\"collective_seq_id\":8,\"is_p2p\":false"));
    assert_non_null(strstr(line_of(text, failed, line), "\"state\":\"failed\""));
    assert_non_null(strstr(line, "\"retired\":true"));
    assert_non_null(strstr(line_of(text, message, line), "\"collective_seq_id\":0,\"is_p2p\":true"));
    ls_free(text);
    ls_group_close(&group);
}

/* Its place has another's record by then, which has not failed. */
static void a_message_that_outlasts_a_round_of_the_recorder_changes_no_other(void **state) {
    (void)state;
    ls_group *group = open_alone();
    char line[1024];
    const uint64_t message = begin(group, GROUP_SEND, 0, 0, ls_now_ns());
    for (uint64_t i = 1; i <= FLIGHT_ENTRIES; i++) {
        const uint64_t record = begin(group, GROUP_BARRIER, i, 0, 0);
        if (i < FLIGHT_ENTRIES) flight_end(&group->flight, record, 0, ls_now_ns(), true);
    }
    flight_end(&group->flight, message, 0, ls_now_ns(), false);
    char *text = write_alone(group);
    assert_int_equal(count_of(text, "\"record_id\""), FLIGHT_ENTRIES);
    assert_int_equal(count_of(text, "\"state\":\"failed\""), 0);
    /* Nor is a time left over of who was there before. */
    for (uint64_t i = 1; i <= FLIGHT_ENTRIES; i++) begin(group, GROUP_BARRIER, i, 0, 0);
    ls_free(text);
    text = write_alone(group);
    line_of(text, 2 * FLIGHT_ENTRIES, line);
    assert_non_null(strstr(line, "\"time_discovered_completed_ns\":null"));
    ls_free(text);
    ls_group_close(&group);
}

static void what_is_queued_is_no_message(void **state) {
    (void)state;
    ls_group *group = open_alone();
    ls_work *works[3];
    while (!group_try_drive(group)) {}
    for (int i = 0; i < 3; i++) assert_ok(ls_group_barrier(group, &works[i]));
    char *text = write_alone(group);
    assert_int_equal(count_of(text, "\"is_p2p\":false"), 3);
    assert_int_equal(count_of(text, "\"state\":\"scheduled\""), 3);
    ls_free(text);
    group_stop_driving(group);
    for (int i = 0; i < 3; i++) {
        assert_ok(ls_work_wait(works[i], 0));
        ls_work_close(&works[i]);
    }
    ls_group_close(&group);
}

/* Its work comes from the pool, where it was another operation's. */
static void what_never_began_changes_no_record(void **state) {
    (void)state;
    ls_group *group = open_alone();
    ls_work *work = NULL;
    char line[1024];
    assert_ok(ls_group_barrier(group, &work));
    assert_ok(ls_work_wait(work, 0));
    ls_work_close(&work);
    while (!group_try_drive(group)) {}
    assert_ok(ls_group_barrier(group, &work));
    ls_group_abort(group, "enough");
    group_stop_driving(group);
    assert_int_equal(ls_work_wait(work, 0), LS_ERR_ABORTED);
    ls_work_close(&work);
    char *text = write_alone(group);
    assert_non_null(strstr(line_of(text, 1, line), "\"state\":\"completed\""));
    ls_free(text);
    ls_group_close(&group);
}

/* The longest queue there can be beside a full ring: the file is whole, and says how the group was lost. */
static void the_longest_file_is_whole(void **state) {
    (void)state;
    enum { queued = FLIGHT_ENTRIES + 3 };
    ls_group *group = open_alone();
    ls_work *work = NULL;
    static char named[64];
    memset(named, 'x', sizeof named - 1);
    memset(group->prefix, 'p', sizeof group->prefix - 1);
    for (uint64_t i = 1; i <= FLIGHT_ENTRIES; i++)
        begin(group, GROUP_REDUCE, UINT64_MAX - i, INT64_MAX / 4, INT64_MAX / 4);
    while (!group_try_drive(group)) {}
    for (int i = 0; i < queued; i++) {
        const group_call call = {.kind = GROUP_BARRIER, .tag = UINT64_MAX, .name = named};
        assert_ok(group_post(group, &call, &work));
        ls_work_close(&work);
    }
    ls_group_abort(group, "a \"word\" too many");
    char *text = write_alone(group);
    assert_int_equal(count_of(text, "\"record_id\""), 2 * FLIGHT_ENTRIES);
    assert_string_equal(text + strlen(text) - 4, "}]}\n");
    assert_non_null(strstr(text, "\"failure\":\"rank 0 aborted the group: a \\\"word\\\" too many\""));
    ls_free(text);
    group_stop_driving(group);
    ls_group_close(&group);
}

/* The failure that led here matters more; a folder is made, if it can be. */
static void who_cannot_write_keeps_its_error(void **state) {
    (void)state;
    char inner[128], file[160];
    ls_group *group = open_alone();
    snprintf(inner, sizeof inner, "%s/inner", folder);
    snprintf(file, sizeof file, "%s/flight-0-alone.json", inner);
    setenv("LOCKSTEP_FLIGHT_DIR", inner, 1);
    flight_write(group);
    assert_int_equal(unlink(file), 0);

    /* The disk is full: half a file is none. */
    struct rlimit whole, little = {.rlim_cur = 1};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    little.rlim_max = whole.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    flight_write(group);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(rmdir(inner), 0);

    setenv("LOCKSTEP_FLIGHT_DIR", "/dev/null/nowhere", 1);
    ls_fail(LS_ERR_STATE, "what led here");
    flight_write(group);
    assert_string_equal(ls_last_error(), "what led here");
    setenv("LOCKSTEP_FLIGHT_DIR", folder, 1);
    ls_group_close(&group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_writes_where_each_rank_is),
        cmocka_unit_test(a_lost_group_writes_its_failure),
        cmocka_unit_test(a_message_that_hangs_is_written_too),
        cmocka_unit_test(a_group_that_ends_well_writes_nothing),
        cmocka_unit_test(a_record_says_what_became_of_an_operation),
        cmocka_unit_test(a_message_that_outlasts_a_round_of_the_recorder_changes_no_other),
        cmocka_unit_test(what_is_queued_is_no_message),
        cmocka_unit_test(what_never_began_changes_no_record),
        cmocka_unit_test(the_longest_file_is_whole),
        cmocka_unit_test(who_cannot_write_keeps_its_error),
    };
    if (!mkdtemp(folder)) return 1;
    setenv("LOCKSTEP_FLIGHT_DIR", folder, 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
