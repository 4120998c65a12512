/* test_flight.c: the flight recorder's files: on SIGUSR2 and on an error, with the last operations, and never unasked. */
#include "support/threads.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/wait.h"
#include "group/flight.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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
    ls_group_close(&group);
}

static void a_group_that_ends_well_writes_nothing(void **state) {
    (void)state;
    run_ranks(2, close_in_peace, NULL);
    assert_int_equal(count_files(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_writes_where_each_rank_is),
        cmocka_unit_test(a_lost_group_writes_its_failure),
        cmocka_unit_test(a_message_that_hangs_is_written_too),
        cmocka_unit_test(a_group_that_ends_well_writes_nothing),
    };
    if (!mkdtemp(folder)) return 1;
    setenv("LOCKSTEP_FLIGHT_DIR", folder, 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
