/* The store in a file: threads and processes share it, what a killed run left does no harm, nothing of others is
 * harmed. */
#include "support/faults.h"
#include "support/threads.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/lockstep-file-XXXXXX", path[64];

static int make_folder(void **state) {
    (void)state;
    unsetenv("LOCKSTEP_JOB");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/store", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder); /* which is empty, or this fails */
}

static ls_store *open_file(void) {
    ls_store *store = NULL;
    assert_ok(ls_store_open_file(&store, path));
    return store;
}

static void every_operation_reaches_the_other_holders(void **state) {
    (void)state;
    ls_store *one = open_file(), *other = open_file();
    char value[16] = "";
    size_t bytes = 0;
    int64_t number = 0;
    bool flag = false;
    assert_ok(ls_store_set(one, "color", "green", 5));
    assert_ok(ls_store_get(other, "color", value, sizeof value, &bytes, 1000));
    assert_int_equal(bytes, 5);
    assert_memory_equal(value, "green", 5);
    assert_ok(ls_store_add(other, "n", 5, &number));
    assert_ok(ls_store_add(one, "n", -7, &number));
    assert_int_equal(number, -2);
    assert_ok(ls_store_compare_set(one, "color", "red", 3, "blue", 4, &flag));
    assert_false(flag);
    assert_ok(ls_store_compare_set(one, "color", "green", 5, "blue", 4, &flag));
    assert_true(flag);
    assert_ok(ls_store_check(other, "color", &flag));
    assert_true(flag);
    assert_ok(ls_store_count(other, &number));
    assert_int_equal(number, 2);
    assert_ok(ls_store_delete(other, "color", &flag));
    assert_true(flag);
    assert_ok(ls_store_check(one, "color", &flag));
    assert_false(flag);
    assert_int_equal(ls_store_wait(one, "nobody/sets/this", 30), LS_ERR_TIMEOUT);
    assert_error_says("nobody/sets/this");
    assert_ok(ls_store_set(one, "text", "x", 1));
    assert_int_equal(ls_store_add(other, "text", 1, NULL), LS_ERR_STATE);
    assert_ok(ls_store_get(other, "text", value, sizeof value, &bytes, 1000));
    ls_store_close(&one);
    assert_int_equal(access(path, F_OK), 0);
    ls_store_close(&other);
    assert_int_not_equal(access(path, F_OK), 0); /* the last one removes it */
}

typedef struct counter {
    ls_store *store;
    ls_status status;
} counter;

static void add_often(void *argument) {
    counter *self = argument;
    self->status = LS_OK;
    for (int i = 0; i < 100 && self->status == LS_OK; i++) self->status = ls_store_add(self->store, "sum", 1, NULL);
}

static void threads_and_processes_lose_no_sum(void **state) {
    (void)state;
    ls_store *store = open_file();
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] != 0) continue;
        counter own = {.status = LS_OK};
        if (ls_store_set(store, "k", "v", 1) != LS_ERR_FORKED) _exit(2);
        if (ls_store_open_file(&own.store, path) != LS_OK) _exit(3);
        add_often(&own);
        ls_store_close(&own.store);
        _exit(own.status != LS_OK);
    }
    ls_thread threads[2] = {0};
    counter counters[2] = {{.store = store}, {.store = store}};
    for (int i = 0; i < 2; i++) assert_ok(ls_thread_start(&threads[i], "adder", add_often, &counters[i]));
    for (int i = 0; i < 2; i++) {
        int status = -1;
        ls_thread_join(&threads[i]);
        assert_int_equal(counters[i].status, LS_OK);
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    int64_t sum = 0;
    assert_ok(ls_store_add(store, "sum", 0, &sum));
    assert_int_equal(sum, 400);
    ls_store_close(&store);
}

static void what_a_killed_run_left_is_not_found(void **state) {
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        ls_store *store = NULL;
        if (ls_store_open_file(&store, path) != LS_OK || ls_store_set(store, "rank", "stale", 5) != LS_OK) _exit(1);
        raise(SIGKILL);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(access(path, F_OK), 0);
    ls_store *store = open_file();
    bool is_set = true;
    assert_ok(ls_store_check(store, "rank", &is_set));
    assert_false(is_set);
    ls_store_close(&store);
}

/* Two processes' worth of holders change one key by turns; a third comes late. */
static void the_file_stays_small_however_often_keys_change(void **state) {
    (void)state;
    enum { BYTES = 65536, CHANGES = 400 };
    static char value[BYTES], got[BYTES];
    ls_store *holders[2] = {open_file(), open_file()}, *late = NULL;
    struct stat about;
    off_t largest = 0;
    int64_t sum = 0, keys = 0;
    assert_ok(ls_store_set(holders[1], "kept", "from the beginning", 18));
    for (int i = 0; i < CHANGES; i++) {
        memset(value, 'a' + i % 26, sizeof value);
        assert_ok(ls_store_set(holders[i % 2], "k", value, sizeof value));
        assert_ok(ls_store_add(holders[i % 2], "sum", i, NULL));
        assert_ok(ls_store_get(holders[(i + 1) % 2], "k", got, sizeof got, NULL, 5000));
        assert_memory_equal(got, value, sizeof value);
        assert_int_equal(stat(path, &about), 0);
        if (about.st_size > largest) largest = about.st_size;
    }
    assert_true(largest > 1 << 20); /* 26 MB were written */
    assert_true(largest < 3 << 20);
    late = open_file();
    for (int i = 0; i < 2; i++) assert_ok(ls_store_add(holders[i], "sum", 0, &sum));
    assert_int_equal(sum, CHANGES * (CHANGES - 1) / 2);
    assert_ok(ls_store_add(late, "sum", 0, &sum));
    assert_int_equal(sum, CHANGES * (CHANGES - 1) / 2);
    assert_ok(ls_store_get(late, "kept", got, sizeof got, NULL, 5000));
    assert_memory_equal(got, "from the beginning", 18);
    assert_ok(ls_store_count(late, &keys));
    assert_int_equal(keys, 3);
    ls_store_close(&late);
    for (int i = 0; i < 2; i++) ls_store_close(&holders[i]);
}

static void a_request_that_was_written_half_is_overwritten(void **state) {
    (void)state;
    ls_store *store = open_file(), *other = open_file();
    assert_ok(ls_store_set(store, "k", "v", 1));
    const int file = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(file, "half a request", 14), 14);
    close(file);
    char value[8] = "";
    assert_ok(ls_store_set(other, "k", "w", 1));
    assert_ok(ls_store_get(store, "k", value, sizeof value, NULL, 1000));
    assert_string_equal(value, "w");
    ls_store_close(&store);
    ls_store_close(&other);
}

static void two_jobs_on_one_path_do_not_meet(void **state) {
    (void)state;
    setenv("LOCKSTEP_JOB", "one", 1);
    ls_store *one = open_file();
    setenv("LOCKSTEP_JOB", "two", 1);
    ls_store *two = open_file();
    unsetenv("LOCKSTEP_JOB");
    bool is_set = true;
    int64_t count = 1;
    assert_ok(ls_store_set(one, "k", "v", 1));
    assert_ok(ls_store_check(two, "k", &is_set));
    assert_false(is_set);
    assert_ok(ls_store_count(two, &count));
    assert_int_equal(count, 0);
    ls_store_close(&one);
    ls_store_close(&two);
}

static void expect_refused(ls_status status, const char *says) {
    ls_store *store = (ls_store *)path;
    assert_int_equal(ls_store_open_file(&store, path), status);
    assert_null(store);
    assert_error_says(says);
    assert_error_says(path);
}

static void a_file_that_is_no_store_is_left_as_it_is(void **state) {
    (void)state;
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(file, "my thesis, only copy", 20), 20);
    close(file);
    expect_refused(LS_ERR_FORMAT, "no store");
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_size, 20);
    unlink(path);

    file = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(fchmod(file, 0666), 0);
    close(file);
    expect_refused(LS_ERR_ENVIRONMENT, "other users");
    unlink(path);
    assert_int_equal(symlink("/dev/null", path), 0);
    expect_refused(LS_ERR_IO, "cannot open");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused(LS_ERR_IO, "cannot open");
    rmdir(path);
}

static void descriptors_travel_beside_the_file(void **state) {
    (void)state;
    ls_store *one = open_file(), *other = open_file();
    int ends[2], copy = -1;
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    assert_ok(store_set_descriptors(one, "pipe", &ends[1], 1));
    assert_ok(store_get_descriptors(other, "pipe", &copy, 1, 1000));
    assert_true(fcntl(copy, F_GETFD) & FD_CLOEXEC);
    close(ends[1]);
    assert_int_equal(write(copy, "x", 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(copy);
    assert_ok(ls_store_delete(one, "pipe", NULL));
    assert_int_equal(read(ends[0], &byte, 1), 0); /* nobody has the other end any more */
    close(ends[0]);
    assert_int_equal(store_get_descriptors(other, "pipe", &copy, 1, 20), LS_ERR_TIMEOUT);
    ls_store_close(&one);
    assert_ok(ls_store_set(other, "value", "x", 1));
    assert_int_equal(store_get_descriptors(other, "value", &copy, 1, 20), LS_ERR_STATE);
    ls_store_close(&other);
}

static void every_fault_is_reported_and_leaves_nothing(void **state) {
    (void)state;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        ls_store *store = NULL;
        int copy = -1;
        char value[8];
        ls_status status = ls_store_open_file(&store, path);
        if (status == LS_OK) status = ls_store_set(store, "k", "value", 5);
        if (status == LS_OK) status = ls_store_add(store, "n", 1, NULL);
        if (status == LS_OK) status = ls_store_get(store, "k", value, sizeof value, NULL, 1000);
        if (status == LS_OK) status = store_set_descriptors(store, "d", (int[]){0}, 1);
        if (status == LS_OK) status = store_get_descriptors(store, "d", &copy, 1, 20000);
        if (copy >= 0) close(copy);
        if (ls_fault_was_met() && status != LS_OK) assert_fault_reported(status);
        ls_fault_disarm();
        ls_store_close(&store);
        unlink(path); /* where the closing itself met the fault */
    }
    assert_nothing_left();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_reaches_the_other_holders),
        cmocka_unit_test(threads_and_processes_lose_no_sum),
        cmocka_unit_test(what_a_killed_run_left_is_not_found),
        cmocka_unit_test(the_file_stays_small_however_often_keys_change),
        cmocka_unit_test(a_request_that_was_written_half_is_overwritten),
        cmocka_unit_test(two_jobs_on_one_path_do_not_meet),
        cmocka_unit_test(a_file_that_is_no_store_is_left_as_it_is),
        cmocka_unit_test(descriptors_travel_beside_the_file),
        cmocka_unit_test(every_fault_is_reported_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
