/* The store over the launcher's sockets: clients, waits, descriptors, and the ways in. */
#include "launch/served.h"

#include "store/stream.h"
#include "support/faults.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/wait.h"

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

/* --- operations --------------------------------------------------------------------------------------------------- */

static void every_operation_works_over_the_socket(void **state) {
    (void)state;
    ls_store *store = open_store();
    char value[16] = "";
    size_t bytes = 0;
    int64_t number = 0;
    bool flag = false;
    assert_int_equal(ls_store_set(store, "color", "green", 5), LS_OK);
    assert_int_equal(ls_store_get(store, "color", value, sizeof value, &bytes, 1000), LS_OK);
    assert_int_equal(bytes, 5);
    assert_memory_equal(value, "green", 5);
    assert_int_equal(ls_store_get(store, "color", value, 2, &bytes, 1000), LS_ERR_ARGUMENT);
    assert_int_equal(bytes, 5);
    assert_int_equal(ls_store_wait(store, "color", 1000), LS_OK);
    assert_int_equal(ls_store_add(store, "n", INT64_MAX, &number), LS_OK);
    assert_true(number == INT64_MAX);
    assert_int_equal(ls_store_add(store, "n", 1, &number), LS_ERR_ARGUMENT);
    assert_non_null(strstr(ls_last_error(), "\"n\""));
    assert_int_equal(ls_store_compare_set(store, "color", "red", 3, "blue", 4, &flag), LS_OK);
    assert_false(flag);
    assert_int_equal(ls_store_compare_set(store, "color", "green", 5, "blue", 4, &flag), LS_OK);
    assert_true(flag);
    assert_int_equal(ls_store_count(store, &number), LS_OK);
    assert_int_equal(number, 2);
    assert_int_equal(ls_store_check(store, "color", &flag), LS_OK);
    assert_true(flag);
    assert_int_equal(ls_store_delete(store, "color", &flag), LS_OK);
    assert_true(flag);
    assert_int_equal(ls_store_check(store, "color", &flag), LS_OK);
    assert_false(flag);
    assert_false(store_is_in_process(store));
    ls_store_close(&store);
}

static void a_key_of_the_longest_name_and_a_value_of_the_largest_size_travel(void **state) {
    (void)state;
    ls_store *store = open_store();
    char key[LS_STORE_KEY_BYTES];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    unsigned char *sent = ls_alloc(LS_STORE_VALUE_BYTES), *received = ls_alloc(LS_STORE_VALUE_BYTES);
    for (size_t i = 0; i < LS_STORE_VALUE_BYTES; i++) sent[i] = (unsigned char)(i * 2654435761u >> 24);
    size_t bytes = 0;
    assert_int_equal(ls_store_set(store, key, sent, LS_STORE_VALUE_BYTES), LS_OK);
    assert_int_equal(ls_store_get(store, key, received, LS_STORE_VALUE_BYTES, &bytes, 10000), LS_OK);
    assert_int_equal(bytes, LS_STORE_VALUE_BYTES);
    assert_memory_equal(sent, received, bytes);
    ls_free(sent);
    ls_free(received);
    ls_store_close(&store);
}

typedef struct client {
    ls_store *store; /* NULL: opens one of its own */
    int index, count, rounds;
    ls_status status;
} client;

static void wait_for_late(void *argument) {
    client *self = argument;
    self->status = ls_store_wait(self->store, "late", 10000);
}

static void a_wait_that_expires_names_its_key_and_leaves_nothing_behind(void **state) {
    (void)state;
    ls_store *store = open_store();
    bool flag = false;
    assert_int_equal(ls_store_check(store, "x", &flag), LS_OK);
    const uint64_t before = ls_alloc_live();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ls_store_wait(store, "nobody/sets/this", 1), LS_ERR_TIMEOUT);
        assert_non_null(strstr(ls_last_error(), "\"nobody/sets/this\""));
    }
    /* The answer to this comes after the withdrawals: none of the hundred is still parked with the server. */
    assert_int_equal(ls_store_check(store, "x", &flag), LS_OK);
    assert_true(ls_alloc_live() <= before + 1);

    /* But that of another thread, whose request went over the same connection, still is. */
    client other = {.store = store};
    ls_thread thread = {0};
    assert_int_equal(ls_thread_start(&thread, "other", wait_for_late, &other), LS_OK);
    assert_int_equal(ls_store_wait(store, "nobody/sets/this", 50), LS_ERR_TIMEOUT);
    assert_int_equal(ls_store_set(store, "late", "x", 1), LS_OK);
    ls_thread_join(&thread);
    assert_int_equal(other.status, LS_OK);
    ls_store_close(&store);
}

/* The server is of this process: it has no room either. */
static void a_server_that_has_no_room_for_a_descriptor_says_so_and_goes_on(void **state) {
    (void)state;
    ls_store *store = open_store();
    struct rlimit limit;
    bool is_set = true;
    assert_int_equal(ls_store_set(store, "k", "v", 1), LS_OK); /* it has taken us in */
    const int next = dup(0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    /* For none of two, for one of them. */
    for (int room = 0; room < 2; room++) {
        const struct rlimit low = {.rlim_cur = (rlim_t)(next + room), .rlim_max = limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        assert_int_equal(store_set_descriptors(store, "pipe", (int[]){0, 0}, 2), LS_ERR_IO);
        assert_non_null(strstr(ls_last_error(), "ulimit -n"));
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_int_equal(dup(0), next); /* what came has been closed */
        close(next);
    }
    assert_int_equal(ls_store_check(store, "pipe", &is_set), LS_OK);
    assert_false(is_set);
    assert_int_equal(store_set_descriptors(store, "pipe", (int[]){0}, 1), LS_OK);
    ls_store_close(&store);
}

static void descriptors_travel_and_are_dropped_with_their_key(void **state) {
    (void)state;
    ls_store *one = open_store(), *other = open_store();
    int ends[2], received[2] = {-1, -1};
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(store_set_descriptors(one, "pipe", ends, 2), LS_OK);
    assert_int_equal(store_get_descriptors(other, "pipe", received, 2, 1000), LS_OK);
    for (int i = 0; i < 2; i++) {
        struct stat sent, came;
        assert_true(fcntl(received[i], F_GETFD) & FD_CLOEXEC);
        assert_int_equal(fstat(ends[i], &sent), 0);
        assert_int_equal(fstat(received[i], &came), 0);
        assert_int_equal(sent.st_ino, came.st_ino);
    }
    close(received[0]);
    close(received[1]);
    assert_int_equal(store_get_descriptors(other, "pipe", received, 1, 1000), LS_ERR_STATE);
    assert_int_equal(ls_store_get(other, "pipe", NULL, 0, NULL, 1000), LS_ERR_STATE);
    assert_int_equal(ls_store_delete(other, "pipe", NULL), LS_OK);
    close(ends[1]);
    /* No writer is left anywhere. */
    struct pollfd polled = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&polled, 1, 10000), 1);
    char byte = 0;
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
    ls_store_close(&one);
    ls_store_close(&other);
}

/* --- many --------------------------------------------------------------------------------------------------------- */

/* A barrier a round: everyone adds, the last one sets the key that all wait for. */
static void meet(void *argument) {
    client *self = argument;
    ls_store *store = self->store;
    self->status = store ? LS_OK : ls_store_open_inherited(&store);
    for (int round = 0; round < self->rounds && self->status == LS_OK; round++) {
        char counter[32], gate[32];
        int64_t arrived = 0;
        snprintf(counter, sizeof counter, "counter/%d", round);
        snprintf(gate, sizeof gate, "gate/%d", round);
        self->status = ls_store_add(store, counter, 1, &arrived);
        if (self->status == LS_OK && arrived == self->count) self->status = ls_store_set(store, gate, "open", 4);
        if (self->status == LS_OK) self->status = ls_store_wait(store, gate, 60000);
    }
    if (!self->store) ls_store_close(&store);
}

static void run_clients(int count, int rounds, ls_store *shared) {
    ls_thread *threads = ls_alloc_array((size_t)count, sizeof *threads);
    client *clients = ls_alloc_array((size_t)count, sizeof *clients);
    for (int i = 0; i < count; i++) {
        clients[i] = (client){.store = shared, .index = i, .count = count, .rounds = rounds};
        assert_int_equal(ls_thread_start(&threads[i], "client", meet, &clients[i]), LS_OK);
    }
    for (int i = 0; i < count; i++) {
        ls_thread_join(&threads[i]);
        assert_int_equal(clients[i].status, LS_OK);
    }
    ls_free(threads);
    ls_free(clients);
}

static void two_hundred_clients_meet_at_once(void **state) {
    (void)state;
    run_clients(200, 3, NULL);
}

static void threads_share_one_store_without_losing_an_answer(void **state) {
    (void)state;
    ls_store *store = open_store();
    run_clients(8, 100, store);
    ls_store_close(&store);
}

static void threads_move_large_values_over_one_stream(void **state) {
    (void)state;
    ls_store *store = open_store();
    unsigned char *value = ls_alloc(LS_STORE_VALUE_BYTES);
    ls_store_set(store, "large", value, LS_STORE_VALUE_BYTES);
    /* While this thread sends and receives megabytes, others use the same stream. */
    client other = {.store = store, .count = 1, .rounds = 50};
    ls_thread thread = {0};
    assert_int_equal(ls_thread_start(&thread, "client", meet, &other), LS_OK);
    for (int i = 0; i < 10; i++) {
        size_t bytes = 0;
        assert_int_equal(ls_store_set(store, "large", value, LS_STORE_VALUE_BYTES), LS_OK);
        assert_int_equal(ls_store_get(store, "large", value, LS_STORE_VALUE_BYTES, &bytes, 10000), LS_OK);
    }
    ls_thread_join(&thread);
    assert_int_equal(other.status, LS_OK);
    ls_free(value);
    ls_store_close(&store);
}

static void two_thousand_connections_are_served(void **state) {
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 5000) LS_SKIP("the limit on descriptors cannot be raised to 5000");
    const struct rlimit raised = {.rlim_cur = 5000, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &raised), 0);
    enum { MANY = 2000 };
    ls_store **stores = ls_alloc_array(MANY, sizeof(ls_store *));
    int64_t sum = 0;
    for (int i = 0; i < MANY; i++) stores[i] = open_store();
    for (int i = 0; i < MANY; i++) assert_int_equal(ls_store_add(stores[i], "sum", 1, &sum), LS_OK);
    assert_int_equal(sum, MANY);
    for (int i = 0; i < MANY; i++) ls_store_close(&stores[i]);
    ls_free(stores);
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* --- ways in ------------------------------------------------------------------------------------------------------ */

static void a_wrapper_that_closed_or_reused_the_descriptor_does_no_harm(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    set_number(STORE_ENV_DOOR, ends[0]);
    ls_store *store = open_store();
    assert_int_equal(ls_store_set(store, "by name", "x", 1), LS_OK);
    ls_store_close(&store);

    /* A socket, but another one. */
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    set_number(STORE_ENV_DOOR, pair[0]);
    store = open_store();
    ls_store_close(&store);
    close(pair[0]);
    close(pair[1]);
    close(ends[0]);
    close(ends[1]);
    store = open_store(); /* the number of a closed descriptor */
    ls_store_close(&store);
}

static void only_the_launchers_own_socket_is_the_door(void **state) {
    (void)state;
    ls_store *store = NULL;
    unsetenv(STORE_ENV_SOCKET); /* so that there is no other way in */
    set_number(STORE_ENV_LAUNCHER, (int)getppid());
    assert_int_equal(ls_store_open_inherited(&store), LS_ERR_ENVIRONMENT);
    set_number(STORE_ENV_LAUNCHER, (int)getpid());
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    set_number(STORE_ENV_DOOR, pair[0]);
    assert_int_equal(ls_store_open_inherited(&store), LS_ERR_ENVIRONMENT);
    close(pair[0]);
    close(pair[1]);
    set_number(STORE_ENV_DOOR, the_server.door);
    assert_int_equal(ls_store_open_inherited(&store), LS_OK);
    ls_store_close(&store);
}

static void the_inherited_socket_stays_and_its_children_do_not_get_it(void **state) {
    (void)state;
    assert_int_equal(fcntl(the_server.door, F_SETFD, 0), 0);
    for (int i = 0; i < 100; i++) {
        ls_store *store = open_store();
        assert_int_equal(ls_store_set(store, "k", &i, sizeof i), LS_OK);
        ls_store_close(&store);
    }
    assert_true(fcntl(the_server.door, F_GETFD) & FD_CLOEXEC);
}

static void a_process_without_a_launcher_is_told_so(void **state) {
    (void)state;
    unsetenv(STORE_ENV_DOOR);
    unsetenv(STORE_ENV_SOCKET);
    unsetenv(STORE_ENV_LAUNCHER);
    ls_store *store = (ls_store *)&store;
    assert_int_equal(ls_store_open_inherited(&store), LS_ERR_ENVIRONMENT);
    assert_null(store);
    assert_non_null(strstr(ls_last_error(), "lockstep run"));
    setenv(STORE_ENV_LAUNCHER, "twelve", 1);
    assert_int_equal(ls_store_open_inherited(&store), LS_ERR_ENVIRONMENT);
    assert_non_null(strstr(ls_last_error(), "twelve"));
}

static void a_forked_child_opens_its_own_and_cannot_use_its_parents(void **state) {
    (void)state;
    ls_store *store = open_store();
    ls_store_set(store, "k", "v", 1);
    const int sockets = ls_count_sockets();
    const pid_t child = fork();
    if (child == 0) {
        char value = 0;
        if (ls_store_set(store, "k", "w", 1) != LS_ERR_FORKED) _exit(1);
        if (ls_count_sockets() != sockets - 1) _exit(4); /* the stream; the door stays */
        ls_store_close(&store);
        if (ls_store_open_inherited(&store) != LS_OK) _exit(2);
        if (ls_store_get(store, "k", &value, 1, NULL, 10000) != LS_OK || value != 'v') _exit(3);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ls_store_set(store, "k", "x", 1), LS_OK);
    ls_store_close(&store);
}

static void wait_for_ever(void *argument) {
    client *self = argument;
    self->status = ls_store_wait(self->store, "never", LS_FOREVER);
}

static void the_launchers_death_ends_a_wait_without_limit(void **state) {
    (void)state;
    ls_store *store = open_store();
    client waiting = {.store = store};
    ls_thread thread = {0};
    assert_int_equal(ls_thread_start(&thread, "client", wait_for_ever, &waiting), LS_OK);
    ls_sleep_until(ls_now_ns() + 20 * LS_NS_PER_MS);
    served_stop(&the_server);
    ls_thread_join(&thread);
    assert_int_equal(waiting.status, LS_ERR_PEER_LOST);
    assert_int_equal(ls_store_set(store, "k", "v", 1), LS_ERR_PEER_LOST);
    assert_non_null(strstr(ls_last_error(), "launcher"));
    ls_store_close(&store);
    assert_int_not_equal(ls_store_open_inherited(&store), LS_OK);
    assert_null(store);
}

/* A server that is stopped: its queue takes some, and then no more. */
static void a_server_that_takes_nobody_in_is_given_up(void **state) {
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[32];
    const int length = snprintf(name, sizeof name, "lockstep-test-%d", (int)getpid());
    memcpy(address.sun_path + 1, name, (size_t)length);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 0), 0);
    ls_status statuses[3];
    for (int i = 0; i < 3; i++) {
        stream_store *store = NULL;
        assert_int_equal(stream_create(&store, "the server"), LS_OK);
        statuses[i] = stream_connect_by_name(store, name, ls_deadline_after_ms(100));
        if (statuses[i] != LS_OK) assert_non_null(strstr(ls_last_error(), "the server took no connection"));
        ls_store *made = &store->head;
        /* Closing one that is in the queue gives no place back. */
        ls_store_close(&made);
    }
    assert_int_equal(statuses[0], LS_OK);
    assert_int_equal(statuses[2], LS_ERR_TIMEOUT);
    close(listener);
}

int main(void) {
#define SERVER_TEST(name) cmocka_unit_test_setup_teardown(name, start_serving, stop_all)
    const struct CMUnitTest tests[] = {
        SERVER_TEST(every_operation_works_over_the_socket),
        SERVER_TEST(a_key_of_the_longest_name_and_a_value_of_the_largest_size_travel),
        SERVER_TEST(a_wait_that_expires_names_its_key_and_leaves_nothing_behind),
        SERVER_TEST(a_server_that_has_no_room_for_a_descriptor_says_so_and_goes_on),
        SERVER_TEST(descriptors_travel_and_are_dropped_with_their_key),
        SERVER_TEST(two_hundred_clients_meet_at_once),
        SERVER_TEST(threads_share_one_store_without_losing_an_answer),
        SERVER_TEST(threads_move_large_values_over_one_stream),
        SERVER_TEST(two_thousand_connections_are_served),
        SERVER_TEST(a_wrapper_that_closed_or_reused_the_descriptor_does_no_harm),
        SERVER_TEST(only_the_launchers_own_socket_is_the_door),
        SERVER_TEST(the_inherited_socket_stays_and_its_children_do_not_get_it),
        SERVER_TEST(a_process_without_a_launcher_is_told_so),
        SERVER_TEST(a_forked_child_opens_its_own_and_cannot_use_its_parents),
        SERVER_TEST(the_launchers_death_ends_a_wait_without_limit),
        SERVER_TEST(a_server_that_takes_nobody_in_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
