/* The store within a process, and with it the meaning of every operation. */
#include "support/faults.h"
#include "support/test.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_store(void **state) {
    return ls_store_open_hash((ls_store **)state) == LS_OK ? 0 : -1;
}

static int close_store(void **state) {
    ls_store_close((ls_store **)state);
    return ls_alloc_live() == 0 ? 0 : -1;
}

static void assert_value(ls_store *store, const char *key, const char *expected) {
    char value[64] = "";
    size_t bytes = 0;
    assert_int_equal(ls_store_get(store, key, value, sizeof value, &bytes, 1000), LS_OK);
    assert_int_equal(bytes, strlen(expected));
    assert_memory_equal(value, expected, bytes);
}

static void set_replaces_and_get_returns_the_whole_value(void **state) {
    ls_store *store = *state;
    assert_int_equal(ls_store_set(store, "color", "dark green", 10), LS_OK);
    assert_int_equal(ls_store_set(store, "color", "red", 3), LS_OK);
    assert_value(store, "color", "red");
    assert_int_equal(ls_store_set(store, "nothing", NULL, 0), LS_OK);
    assert_value(store, "nothing", "");
}

static void a_buffer_too_small_is_refused_with_the_size_wanted(void **state) {
    ls_store *store = *state;
    char value[2] = "";
    size_t bytes = 0;
    ls_store_set(store, "color", "red", 3);
    assert_int_equal(ls_store_get(store, "color", value, sizeof value, &bytes, 1000), LS_ERR_ARGUMENT);
    assert_int_equal(bytes, 3);
    assert_non_null(strstr(ls_last_error(), "\"color\" holds 3 bytes"));
}

static void a_wait_that_expires_names_its_key(void **state) {
    const int64_t start = ls_now_ns();
    assert_int_equal(ls_store_wait(*state, "who/comes", 50), LS_ERR_TIMEOUT);
    assert_true(ls_now_ns() - start >= 50 * LS_NS_PER_MS);
    assert_non_null(strstr(ls_last_error(), "\"who/comes\""));
    assert_non_null(strstr(ls_last_error(), "50 ms"));
}

static void add_counts_from_nothing_and_refuses_what_is_no_number(void **state) {
    ls_store *store = *state;
    int64_t sum = 0;
    assert_int_equal(ls_store_add(store, "n", 5, &sum), LS_OK);
    assert_int_equal(ls_store_add(store, "n", -7, &sum), LS_OK);
    assert_int_equal(sum, -2);
    assert_value(store, "n", "-2");
    ls_store_set(store, "word", "seven", 5);
    assert_int_equal(ls_store_add(store, "word", 1, &sum), LS_ERR_STATE);
    assert_value(store, "word", "seven");
    ls_store_set(store, "n", "9223372036854775807", 19);
    assert_int_equal(ls_store_add(store, "n", 1, &sum), LS_ERR_ARGUMENT);
    assert_value(store, "n", "9223372036854775807");
}

static void compare_set_changes_only_what_was_expected(void **state) {
    ls_store *store = *state;
    bool was_set = false;
    assert_int_equal(ls_store_compare_set(store, "k", NULL, 0, "a", 1, &was_set), LS_OK);
    assert_true(was_set);
    assert_int_equal(ls_store_compare_set(store, "k", NULL, 0, "b", 1, &was_set), LS_OK);
    assert_false(was_set);
    assert_int_equal(ls_store_compare_set(store, "k", "x", 1, "b", 1, &was_set), LS_OK);
    assert_false(was_set);
    assert_value(store, "k", "a");
    assert_int_equal(ls_store_compare_set(store, "k", "a", 1, "b", 1, &was_set), LS_OK);
    assert_true(was_set);
    assert_value(store, "k", "b");
}

static void deleted_keys_are_gone_and_uncounted(void **state) {
    ls_store *store = *state;
    int64_t count = 0;
    char key[16];
    bool flag = false;
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "key %d", i);
        assert_int_equal(ls_store_set(store, key, &i, sizeof i), LS_OK);
    }
    for (int i = 0; i < 1000; i += 2) {
        snprintf(key, sizeof key, "key %d", i);
        assert_int_equal(ls_store_delete(store, key, &flag), LS_OK);
        assert_true(flag);
        assert_int_equal(ls_store_delete(store, key, &flag), LS_OK);
        assert_false(flag);
    }
    assert_int_equal(ls_store_count(store, &count), LS_OK);
    assert_int_equal(count, 500);
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "key %d", i);
        assert_int_equal(ls_store_check(store, key, &flag), LS_OK);
        assert_int_equal(flag, i % 2);
    }
}

static void bad_arguments_are_refused_by_name(void **state) {
    ls_store *store = *state;
    char key[LS_STORE_KEY_BYTES + 1];
    memset(key, 'k', LS_STORE_KEY_BYTES);
    key[LS_STORE_KEY_BYTES] = '\0';
    assert_int_equal(ls_store_set(store, key, "v", 1), LS_ERR_ARGUMENT);
    key[LS_STORE_KEY_BYTES - 1] = '\0';
    assert_int_equal(ls_store_set(store, key, "v", 1), LS_OK);
    assert_int_equal(ls_store_set(store, "", "v", 1), LS_ERR_ARGUMENT);
    assert_int_equal(ls_store_set(store, "k", "v", LS_STORE_VALUE_BYTES + 1), LS_ERR_ARGUMENT);
    assert_int_equal(
        store_set_descriptors(store, "k", (int[STORE_MOST_DESCRIPTORS + 1]){0}, STORE_MOST_DESCRIPTORS + 1),
        LS_ERR_ARGUMENT);
}

/* A call that lacks a store, a key, a value, or a place for what it returns. */
#define ASSERT_SAYS_NULL(call)                            \
    do {                                                  \
        ls_fail(LS_ERR_STATE, "nothing yet");             \
        assert_int_equal(call, LS_ERR_ARGUMENT);          \
        assert_non_null(strstr(ls_last_error(), "NULL")); \
    } while (0)

static void every_public_call_refuses_a_null_by_name(void **state) {
    ls_store *store = *state, *view = NULL;
    int64_t number = 0;
    bool flag = false;
    ASSERT_SAYS_NULL(ls_store_open_hash(NULL));
    ASSERT_SAYS_NULL(ls_store_open_inherited(NULL));
    ASSERT_SAYS_NULL(ls_store_open_file(NULL, "/tmp/store"));
    ASSERT_SAYS_NULL(ls_store_open_file(&view, NULL));
    ASSERT_SAYS_NULL(ls_store_open_tcp(NULL, "127.0.0.1", 29500, true, 1));
    ASSERT_SAYS_NULL(ls_store_open_tcp(&view, NULL, 29500, true, 1));
    ASSERT_SAYS_NULL(ls_store_prefix(NULL, store, "p"));
    ASSERT_SAYS_NULL(ls_store_prefix(&view, NULL, "p"));
    ASSERT_SAYS_NULL(ls_store_prefix(&view, store, NULL));
    ls_store *const lacking[] = {NULL, store}; /* the store, then the key */
    for (int i = 0; i < 2; i++) {
        const char *key = i == 0 ? "k" : NULL;
        ASSERT_SAYS_NULL(ls_store_set(lacking[i], key, "v", 1));
        ASSERT_SAYS_NULL(ls_store_get(lacking[i], key, &number, sizeof number, NULL, 1));
        ASSERT_SAYS_NULL(ls_store_wait(lacking[i], key, 1));
        ASSERT_SAYS_NULL(ls_store_add(lacking[i], key, 1, NULL));
        ASSERT_SAYS_NULL(ls_store_compare_set(lacking[i], key, NULL, 0, "v", 1, &flag));
        ASSERT_SAYS_NULL(ls_store_delete(lacking[i], key, &flag));
        ASSERT_SAYS_NULL(ls_store_check(lacking[i], key, &flag));
    }
    ASSERT_SAYS_NULL(ls_store_set(store, "k", NULL, 1));
    ASSERT_SAYS_NULL(ls_store_compare_set(store, "k", NULL, 1, "v", 1, &flag));
    ASSERT_SAYS_NULL(ls_store_compare_set(store, "k", NULL, 0, NULL, 1, &flag));
    ASSERT_SAYS_NULL(ls_store_count(NULL, &number));
    ASSERT_SAYS_NULL(ls_store_count(store, NULL));
    ASSERT_SAYS_NULL(ls_store_check(store, "k", NULL));
    assert_int_equal(ls_store_port(NULL), 0);
    assert_null(ls_store_keep(NULL));
    ls_store_close(NULL);
    ls_store_close(&view);
}

/* Descriptors are compared by the file they lead to. */
static void assert_same_file(int a, int b) {
    struct stat left, right;
    assert_int_equal(fstat(a, &left), 0);
    assert_int_equal(fstat(b, &right), 0);
    assert_int_equal(left.st_ino, right.st_ino);
}

static void descriptors_arrive_as_fresh_duplicates(void **state) {
    ls_store *store = *state;
    int ends[2], received[2] = {-1, -1};
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(store_set_descriptors(store, "pipe", ends, 2), LS_OK);
    assert_int_equal(store_get_descriptors(store, "pipe", received, 2, 1000), LS_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_not_equal(received[i], ends[i]);
        assert_true(fcntl(received[i], F_GETFD) & FD_CLOEXEC);
        assert_same_file(received[i], ends[i]);
    }
    assert_int_equal(store_get_descriptors(store, "pipe", received, 1, 1000), LS_ERR_STATE);
    close(received[0]);
    close(received[1]);

    /* Once the key is gone and our writing end closed, the reader sees the end: the store held no other. */
    assert_int_equal(ls_store_delete(store, "pipe", NULL), LS_OK);
    close(ends[1]);
    char byte = 0;
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

static void a_store_that_closes_drops_its_descriptors(void **state) {
    (void)state;
    ls_store *store = NULL;
    int ends[2];
    assert_int_equal(ls_store_open_hash(&store), LS_OK);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(store_set_descriptors(store, "pipe", &ends[1], 1), LS_OK);
    close(ends[1]);
    ls_store *second = ls_store_keep(store);
    ls_store_close(&store);
    assert_null(store);
    assert_int_equal(ls_store_delete(second, "absent", NULL), LS_OK);
    ls_store_close(&second);
    char byte = 0;
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

typedef struct counter {
    ls_store *store;
    int index;
    ls_status status;
} counter;

enum { THREADS = 8, ROUNDS = 200 };

/* Each adds, waits for the key of the thread before it, and sets its own. */
static void count_along(void *argument) {
    counter *self = argument;
    char key[32];
    self->status = LS_OK;
    for (int round = 0; round < ROUNDS && self->status == LS_OK; round++) {
        self->status = ls_store_add(self->store, "sum", 1, NULL);
        snprintf(key, sizeof key, "%d/%d", round, self->index);
        if (self->status == LS_OK && self->index > 0) {
            char before[32];
            snprintf(before, sizeof before, "%d/%d", round, self->index - 1);
            self->status = ls_store_wait(self->store, before, 60000);
        }
        if (self->status == LS_OK) self->status = ls_store_set(self->store, key, "x", 1);
    }
}

static void threads_lose_neither_a_sum_nor_a_wake(void **state) {
    ls_thread threads[THREADS] = {0};
    counter counters[THREADS];
    for (int i = 0; i < THREADS; i++) {
        counters[i] = (counter){.store = *state, .index = i};
        assert_int_equal(ls_thread_start(&threads[i], "counter", count_along, &counters[i]), LS_OK);
    }
    for (int i = 0; i < THREADS; i++) {
        ls_thread_join(&threads[i]);
        assert_int_equal(counters[i].status, LS_OK);
    }
    assert_value(*state, "sum", "1600");
}

static void a_forked_child_is_told_that_the_store_is_not_its_own(void **state) {
    const pid_t child = fork();
    if (child == 0) _exit(ls_store_set(*state, "k", "v", 1) == LS_ERR_FORKED ? 0 : 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_call_that_fails_changes_nothing_and_leaves_nothing(void **state) {
    (void)state;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL) {
        ls_store *store = NULL;
        int copy = -1;
        int64_t sum = 0;
        ls_status status = ls_store_open_hash(&store);
        if (status == LS_OK) status = ls_store_set(store, "k", "value", 5);
        if (status == LS_OK) status = ls_store_add(store, "n", 7, NULL);
        if (status == LS_OK && (status = ls_store_add(store, "n", 1, &sum)) != LS_OK) {
            ls_fault_disarm();
            assert_value(store, "n", "7");
        }
        if (status == LS_OK) status = store_set_descriptors(store, "d", (int[]){0, 1}, 2);
        if (status == LS_OK)
            status = store_get_descriptors(store, "d", (int[]){0, 0}, 1, 1000) == LS_ERR_STATE ? LS_OK : LS_END;
        if (status == LS_OK) status = store_set_descriptors(store, "d", (int[]){0}, 1);
        if (status == LS_OK) status = store_get_descriptors(store, "d", &copy, 1, 1000);
        if (copy >= 0) close(copy);
        if (ls_fault_was_met())
            assert_fault_reported(status);
        else
            assert_int_equal(status, LS_OK);
        ls_store_close(&store);
    }
    assert_nothing_left();
}

/* More keys than chains: the table grows, and when it is refused the memory for that it goes on as it is. */
static void a_table_that_cannot_grow_goes_on(void **state) {
    ls_store *store = *state;
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        for (int i = 0; i < 200; i++) {
            char key[16];
            snprintf(key, sizeof key, "key %d", i);
            (void)ls_store_set(store, key, &i, sizeof i);
        }
        if (ls_fault_was_met()) ls_fault_disarm();
        for (int i = 0; i < 200; i++) {
            char key[16];
            int value = -1;
            snprintf(key, sizeof key, "key %d", i);
            if (ls_store_get(store, key, &value, sizeof value, NULL, 1) == LS_OK) assert_int_equal(value, i);
        }
    }
}

int main(void) {
#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, open_store, close_store)
    const struct CMUnitTest tests[] = {
        STORE_TEST(set_replaces_and_get_returns_the_whole_value),
        STORE_TEST(a_buffer_too_small_is_refused_with_the_size_wanted),
        STORE_TEST(a_wait_that_expires_names_its_key),
        STORE_TEST(add_counts_from_nothing_and_refuses_what_is_no_number),
        STORE_TEST(compare_set_changes_only_what_was_expected),
        STORE_TEST(deleted_keys_are_gone_and_uncounted),
        STORE_TEST(bad_arguments_are_refused_by_name),
        STORE_TEST(every_public_call_refuses_a_null_by_name),
        STORE_TEST(descriptors_arrive_as_fresh_duplicates),
        cmocka_unit_test(a_store_that_closes_drops_its_descriptors),
        STORE_TEST(threads_lose_neither_a_sum_nor_a_wake),
        cmocka_unit_test(a_call_that_fails_changes_nothing_and_leaves_nothing),
        STORE_TEST(a_table_that_cannot_grow_goes_on),
        STORE_TEST(a_forked_child_is_told_that_the_store_is_not_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
