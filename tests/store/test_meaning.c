/* What every operation means, over every store alike: within the process, in a file, over TCP at either end, and in views of each
 * of these. A further store is a line. */
#include "store/over_tcp.h"

#include "base/clock.h"
#include "base/thread.h"
#include "base/wait.h"

/* Two handles on one store. */
typedef struct holders {
    ls_store *one, *other;
} holders;

static char folder[] = "/tmp/lockstep-meaning-XXXXXX";

static void open_hash(holders *made) {
    assert_ok(ls_store_open_hash(&made->one));
    made->other = ls_store_keep(made->one);
}

static void open_file(holders *made) {
    char path[64];
    snprintf(path, sizeof path, "%s/store", folder);
    assert_ok(ls_store_open_file(&made->one, path));
    assert_ok(ls_store_open_file(&made->other, path));
}

static void open_server(holders *made) {
    made->one = serve("127.0.0.1");
    made->other = reach("127.0.0.1", ls_store_port(made->one));
}

static void open_client(holders *made) {
    holders turned = {NULL, NULL};
    open_server(&turned);
    *made = (holders){.one = turned.other, .other = turned.one};
}

static const struct store_kind {
    const char *name;
    void (*open)(holders *made);
} kinds[] = {
    {"hash", open_hash}, {"file", open_file}, {"TCP, the server", open_server}, {"TCP, a client", open_client}};

static void assert_holds(ls_store *store, const char *key, const void *expected, size_t expected_bytes) {
    unsigned char value[64] = {0};
    size_t bytes = 0;
    assert_ok(ls_store_get(store, key, value, sizeof value, &bytes, 5000));
    assert_int_equal(bytes, expected_bytes);
    assert_memory_equal(value, expected, bytes);
}

static void assert_is_set(ls_store *store, const char *key, bool expected) {
    bool is_set = !expected;
    assert_ok(ls_store_check(store, key, &is_set));
    assert_int_equal(is_set, expected);
}

static void set_and_get(const holders *both) {
    char small[2] = "";
    size_t bytes = 0;
    assert_ok(ls_store_set(both->one, "k", "a longer value", 14));
    assert_ok(ls_store_set(both->one, "k", "a\0b", 3));
    assert_holds(both->other, "k", "a\0b", 3);
    assert_int_equal(ls_store_get(both->other, "k", small, sizeof small, &bytes, 5000), LS_ERR_ARGUMENT);
    assert_error_says("\"k\" holds 3 bytes");
    assert_int_equal(bytes, 3);
    assert_ok(ls_store_set(both->one, "nothing", NULL, 0));
    assert_holds(both->other, "nothing", "", 0);
    assert_int_equal(ls_store_wait(both->other, "unset", 30), LS_ERR_TIMEOUT);
    assert_error_says("key \"unset\" was not set within 30 ms");
    assert_int_equal(ls_store_get(both->other, "unset", small, sizeof small, NULL, 30), LS_ERR_TIMEOUT);
    assert_holds(both->other, "k", "a\0b", 3); /* what has expired harms no later call */
}

static void add(const holders *both) {
    int64_t sum = 0;
    assert_ok(ls_store_add(both->one, "n", 5, &sum));
    assert_int_equal(sum, 5);
    assert_ok(ls_store_add(both->other, "n", -7, &sum));
    assert_int_equal(sum, -2);
    assert_holds(both->one, "n", "-2", 2);
    assert_ok(ls_store_set(both->one, "n", "9223372036854775807", 19));
    assert_int_equal(ls_store_add(both->other, "n", 1, &sum), LS_ERR_ARGUMENT);
    assert_holds(both->one, "n", "9223372036854775807", 19);
    assert_ok(ls_store_add(both->other, "n", -1, NULL));
    assert_int_equal(ls_store_add(both->other, "k", 1, &sum), LS_ERR_STATE);
    assert_holds(both->one, "k", "a\0b", 3);
}

/* Whether "c" is set where `expected` is there. */
static bool compares(ls_store *store, const char *expected, const char *value) {
    bool was_set = false;
    assert_ok(
        ls_store_compare_set(store, "c", expected, expected ? strlen(expected) : 0, value, strlen(value), &was_set));
    return was_set;
}

static void compare_set(const holders *both) {
    assert_false(compares(both->one, "x", "first"));
    assert_is_set(both->other, "c", false);
    assert_true(compares(both->one, NULL, "first"));
    assert_false(compares(both->other, NULL, "second"));
    assert_false(compares(both->other, "firs", "second"));
    assert_false(compares(both->other, "first!", "second"));
    assert_holds(both->one, "c", "first", 5);
    assert_true(compares(both->other, "first", "second"));
    assert_holds(both->one, "c", "second", 6);
    assert_ok(ls_store_compare_set(both->one, "c", "second", 6, "third", 5, NULL));
    assert_holds(both->other, "c", "third", 5);
}

/* "k", "nothing", "n" and "c" are there. */
static void drop_and_count(const holders *both) {
    static const char *const keys[] = {"k", "nothing", "n", "c"};
    for (int64_t left = 4; left > 0; left--) {
        int64_t count = -1;
        bool existed = false;
        assert_ok(ls_store_count(both->other, &count));
        assert_int_equal(count, left);
        assert_is_set(both->other, keys[left - 1], true);
        assert_ok(ls_store_delete(both->one, keys[left - 1], &existed));
        assert_true(existed);
        assert_is_set(both->other, keys[left - 1], false);
        assert_ok(ls_store_delete(both->other, keys[left - 1], &existed));
        assert_false(existed);
    }
}

typedef struct waiter {
    ls_store *store;
    const char *key;
    ls_status status;
} waiter;

static void await_key(void *argument) {
    waiter *self = argument;
    self->status = ls_store_wait(self->store, self->key, 20000);
}

/* Each operation that sets a key ends the wait for it. */
static void end_waits(const holders *both) {
    static const char *const keys[] = {"set", "added", "compared"};
    for (int i = 0; i < 3; i++) {
        waiter self = {.store = both->other, .key = keys[i]};
        ls_thread thread = {0};
        assert_ok(ls_thread_start(&thread, "waiter", await_key, &self));
        ls_sleep_until(ls_now_ns() + 10 * LS_NS_PER_MS);
        if (i == 0) assert_ok(ls_store_set(both->one, keys[i], "x", 1));
        if (i == 1) assert_ok(ls_store_add(both->one, keys[i], 1, NULL));
        if (i == 2) assert_ok(ls_store_compare_set(both->one, keys[i], NULL, 0, "x", 1, NULL));
        ls_thread_join(&thread);
        assert_int_equal(self.status, LS_OK);
        assert_ok(ls_store_delete(both->one, keys[i], NULL));
    }
}

static void check_all(const holders *both) {
    set_and_get(both);
    add(both);
    compare_set(both);
    drop_and_count(both);
    end_waits(both);
}

static void every_operation_means_the_same_over_every_store(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        holders both = {NULL, NULL}, views = {NULL, NULL};
        print_message("%s\n", kinds[i].name);
        kinds[i].open(&both);
        check_all(&both);
        print_message("%s, views\n", kinds[i].name);
        assert_ok(ls_store_prefix(&views.one, both.one, "view"));
        assert_ok(ls_store_prefix(&views.other, both.other, "view"));
        assert_ok(ls_store_set(both.one, "k", "not the view's", 14));
        check_all(&views);
        assert_holds(both.other, "k", "not the view's", 14);
        ls_store_close(&views.one);
        ls_store_close(&views.other);
        ls_store_close(&both.one);
        ls_store_close(&both.other);
    }
}

static int make_folder(void **state) {
    clear_environment(state);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder); /* which is empty, or this fails */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_means_the_same_over_every_store),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
