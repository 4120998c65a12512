/* The store over TCP: addresses of all kinds, ports, ranks that are gone, thousands of clients. */
#include "store/over_tcp.h"
#include "support/said.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/wait.h"
#include "store/address.h"
#include "store/store.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- addresses ---------------------------------------------------------------------------------------------------- */

static bool has_loopback_of_ipv6(void) {
    store_addresses addresses;
    int listener = -1;
    if (store_resolve("::1", &addresses) != LS_OK) return false;
    if (store_address_listen(&addresses.list[0], &listener) != LS_OK) return false;
    close(listener);
    return true;
}

static void every_way_to_write_this_host_works(void **state) {
    (void)state;
    const char *const hosts[] = {"127.0.0.1", "localhost", "127.0.1.1", "::1", "[::1]"};
    for (size_t i = 0; i < 5; i++) {
        if (strchr(hosts[i], ':') && !has_loopback_of_ipv6()) {
            print_message("without ::1, %s is left out\n", hosts[i]);
            continue;
        }
        ls_store *server = serve(hosts[i]), *client = reach(hosts[i], ls_store_port(server));
        assert_joined(server, client);
        assert_joined(client, server);
        assert_int_equal(ls_store_port(client), 0);
        ls_store_close(&client);
        ls_store_close(&server);
    }
}

static void a_host_that_is_none_is_named(void **state) {
    (void)state;
    ls_store *store = NULL;
    const char *const hosts[] = {"no-such-host.invalid", "", "[]", "1.2.3.4.5", "fe80::1%nosuchinterface"};
    for (size_t i = 0; i < 5; i++) {
        const ls_status status = ls_store_open_tcp(&store, hosts[i], 29500, false, 300);
        assert_int_equal(status, LS_ERR_ENVIRONMENT);
        assert_error_says(hosts[i]);
        assert_null(store);
    }
    assert_int_equal(ls_store_open_tcp(&store, "localhost", 0, false, 100), LS_ERR_ARGUMENT);
    assert_int_equal(ls_store_open_tcp(&store, "localhost", 65536, true, 100), LS_ERR_ARGUMENT);
    assert_int_equal(ls_store_open_tcp(&store, NULL, 1, true, 100), LS_ERR_ARGUMENT);
}

static void a_server_that_does_not_start_is_missed_with_addresses_and_interfaces(void **state) {
    (void)state;
    ls_store *server = serve("127.0.0.1"), *store = NULL;
    const int port = ls_store_port(server);
    ls_store_close(&server);
    char text[64];
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    assert_int_equal(ls_store_open_tcp(&store, "127.0.0.1", port, false, 200), LS_ERR_TIMEOUT);
    assert_error_says(text);
    assert_error_says("refused");
    assert_error_says("lo 127.0.0.1");
}

typedef struct late {
    int port;
    ls_store *store;
    ls_status status;
} late;

static void look_for_server(void *argument) {
    late *self = argument;
    self->status = ls_store_open_tcp(&self->store, "127.0.0.1", self->port, false, 20000);
}

static void clients_may_come_before_the_server(void **state) {
    (void)state;
    ls_store *server = serve("127.0.0.1");
    late client = {.port = ls_store_port(server)};
    ls_thread thread = {0};
    ls_store_close(&server);
    assert_ok(ls_thread_start(&thread, "client", look_for_server, &client));
    ls_sleep_until(ls_now_ns() + 100 * LS_NS_PER_MS);
    assert_ok(ls_store_open_tcp(&server, "127.0.0.1", client.port, true, 5000));
    ls_thread_join(&thread);
    assert_int_equal(client.status, LS_OK);
    assert_joined(server, client.store);
    ls_store_close(&client.store);
    ls_store_close(&server);
}

static void a_hundred_servers_in_turn_take_one_port(void **state) {
    (void)state;
    ls_store *server = serve("127.0.0.1");
    const int port = ls_store_port(server);
    ls_store_close(&server);
    for (int i = 0; i < 100; i++) {
        bool is_set = true;
        assert_ok(ls_store_open_tcp(&server, "127.0.0.1", port, true, 5000));
        ls_store *client = reach("127.0.0.1", port);
        assert_ok(ls_store_check(client, "stale", &is_set));
        assert_false(is_set);
        assert_ok(ls_store_set(client, "stale", "x", 1));
        /* In either order. */
        ls_store_close(i % 2 ? &client : &server);
        ls_store_close(i % 2 ? &server : &client);
    }
}

/* --- ports that are taken ----------------------------------------------------------------------------------------- */

static int listen_somewhere(int *port) {
    store_addresses addresses;
    int listener = -1;
    assert_ok(store_resolve("127.0.0.1", &addresses));
    assert_ok(store_address_listen(&addresses.list[0], &listener));
    *port = store_address_port(&addresses.list[0]);
    return listener;
}

/* Linux gives a client the next port of its own range, in steps of two, each time that it is refused: so it comes to the
 * one that it looks for, and is connected with itself. A port that is found by listening is of the other parity. */
static void a_client_that_is_refused_long_enough_does_not_meet_itself(void **state) {
    (void)state;
    store_addresses addresses;
    int port = 0, listener = listen_somewhere(&port), connected = -1;
    close(listener);
    assert_ok(store_resolve("127.0.0.1", &addresses));
    store_address_set_port(&addresses.list[0], port ^ 1);
    for (int i = 0; i < 20000; i++)
        assert_int_equal(store_address_connect(&addresses.list[0], ls_deadline_after_ms(5000), &connected), LS_END);
}

static void a_taken_port_is_named_on_all_ranks_at_once(void **state) {
    (void)state;
    int port = 0;
    const int listener = listen_somewhere(&port);
    char text[32];
    ls_store *store = NULL;
    snprintf(text, sizeof text, "%d", port);
    const int64_t begin_ns = ls_now_ns();
    assert_int_equal(ls_store_open_tcp(&store, "127.0.0.1", port, true, 60000), LS_ERR_STATE);
    assert_error_says(text);
    assert_error_says("taken");
    /* Somebody who never says a word. */
    assert_int_equal(ls_store_open_tcp(&store, "127.0.0.1", port, false, 60000), LS_ERR_STATE);
    assert_error_says(text);
    assert_true(ls_now_ns() - begin_ns < 30 * LS_NS_PER_S);
    /* Within a limit too short to tell. */
    const int64_t again_ns = ls_now_ns();
    assert_int_equal(ls_store_open_tcp(&store, "127.0.0.1", port, false, 100), LS_ERR_TIMEOUT);
    assert_error_says("does not speak");
    assert_true(ls_now_ns() - again_ns < 2 * LS_NS_PER_S);
    close(listener);
}

static void speak_otherwise(void *argument) {
    const int socket = accept4(*(int *)argument, NULL, NULL, SOCK_CLOEXEC);
    static const char words[64] = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2\r\n";
    send(socket, words, sizeof words, MSG_NOSIGNAL);
    char bytes[256];
    while (recv(socket, bytes, sizeof bytes, 0) > 0) {}
    close(socket);
}

static void another_protocol_is_told_apart(void **state) {
    (void)state;
    int port = 0, listener = listen_somewhere(&port);
    fcntl(listener, F_SETFL, 0);
    ls_thread thread = {0};
    ls_store *store = NULL;
    assert_ok(ls_thread_start(&thread, "other", speak_otherwise, &listener));
    assert_int_equal(ls_store_open_tcp(&store, "127.0.0.1", port, false, 60000), LS_ERR_STATE);
    assert_error_says("no server of Lockstep's");
    ls_thread_join(&thread);
    close(listener);
}

/* --- ranks that are gone ------------------------------------------------------------------------------------------ */

static void a_rank_that_dies_ends_the_waits_of_others_by_name(void **state) {
    (void)state;
    ls_store *server = serve("127.0.0.1");
    const int port = ls_store_port(server);
    const pid_t child = fork();
    if (child == 0) {
        ls_store *own = NULL;
        ls_context_here()->rank = 3;
        if (ls_store_open_tcp(&own, "127.0.0.1", port, false, 5000) != LS_OK) _exit(1);
        ls_store_set(own, "here", "x", 1);
        for (;;) pause();
    }
    char text[64];
    snprintf(text, sizeof text, "process %d) is gone", (int)child);
    assert_ok(ls_store_wait(server, "here", 10000));
    kill(child, SIGKILL);
    assert_int_equal(ls_store_wait(server, "never", LS_FOREVER), LS_ERR_PEER_LOST);
    assert_error_says("rank 3 (");
    assert_error_says(text);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(ls_store_wait(server, "never", LS_FOREVER), LS_ERR_PEER_LOST); /* later waits as well */
    assert_ok(ls_store_wait(server, "here", 1000));                                 /* what is there is there */
    /* One who comes as that rank fills its place, and leaves in order. */
    ls_context_here()->rank = 3;
    ls_store *again = reach("127.0.0.1", port);
    ls_context_here()->rank = -1;
    assert_int_equal(ls_store_wait(server, "never", 20), LS_ERR_TIMEOUT);
    ls_store_close(&again);
    assert_int_equal(ls_store_wait(server, "never", 100), LS_ERR_TIMEOUT);
    ls_store_close(&server);
}

static void wait_for_ever(void *argument) {
    late *self = argument;
    self->status = ls_store_wait(self->store, "never", LS_FOREVER);
}

static void the_servers_end_ends_waits_and_names_it(void **state) {
    (void)state;
    ls_store *server = serve("127.0.0.1");
    late client = {.store = reach("127.0.0.1", ls_store_port(server))};
    ls_thread thread = {0};
    assert_ok(ls_thread_start(&thread, "client", wait_for_ever, &client));
    ls_sleep_until(ls_now_ns() + 20 * LS_NS_PER_MS);
    ls_store_close(&server);
    ls_thread_join(&thread);
    assert_int_equal(client.status, LS_ERR_ABORTED);
    assert_int_equal(ls_store_set(client.store, "k", "v", 1), LS_ERR_ABORTED);
    assert_error_says("rank 0 was closed");
    ls_store_close(&client.store);
}

static void the_servers_death_ends_waits_and_names_it(void **state) {
    (void)state;
    int ends[2], port = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        ls_store *own = NULL;
        if (ls_store_open_tcp(&own, "127.0.0.1", 0, true, 5000) != LS_OK) _exit(1);
        port = ls_store_port(own);
        if (write(ends[1], &port, sizeof port) != sizeof port) _exit(2);
        ls_store_wait(own, "kill", LS_FOREVER);
        raise(SIGKILL);
    }
    assert_int_equal(read(ends[0], &port, sizeof port), sizeof port);
    close(ends[0]);
    close(ends[1]);
    ls_store *client = reach("127.0.0.1", port);
    assert_ok(ls_store_set(client, "kill", "x", 1));
    assert_int_equal(ls_store_wait(client, "never", LS_FOREVER), LS_ERR_PEER_LOST);
    assert_error_says("rank 0 is gone");
    ls_store_close(&client);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* --- descriptors and forks ---------------------------------------------------------------------------------------- */

static void descriptors_travel_beside_tcp(void **state) {
    (void)state;
    write_secret("0123456789abcdef0123456789abcdef", 0600);
    ls_store *server = serve("127.0.0.1"), *client = reach("127.0.0.1", ls_store_port(server));
    int ends[2], copies[2] = {-1, -1};
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < 2; i++) {
        ls_store *from = i ? server : client, *to = i ? client : server;
        assert_ok(store_set_descriptors(from, "pipe", ends, 2));
        assert_ok(store_get_descriptors(to, "pipe", copies, 2, 1000));
        assert_int_equal(write(copies[1], "x", 1), 1);
        assert_int_equal(read(ends[0], &byte, 1), 1);
        close(copies[0]);
        close(copies[1]);
        assert_int_equal(store_get_descriptors(to, "pipe", copies, 1, 1000), LS_ERR_STATE);
        assert_ok(ls_store_delete(from, "pipe", NULL));
    }
    /* What a rank that is gone has offered. */
    assert_ok(store_set_descriptors(client, "pipe", ends, 2));
    ls_store_close(&client);
    assert_int_equal(store_get_descriptors(server, "pipe", copies, 2, 1000), LS_ERR_PEER_LOST);
    ls_store_close(&server);
    close(ends[0]);
    close(ends[1]);
}

static void a_forked_child_holds_neither_port_nor_socket(void **state) {
    (void)state;
    const int before = ls_count_sockets();
    ls_store *server = serve("127.0.0.1"), *client = reach("127.0.0.1", ls_store_port(server));
    const int port = ls_store_port(server);
    assert_ok(store_set_descriptors(client, "d", (int[]){0}, 1));
    const pid_t child = fork();
    if (child == 0) {
        const bool is_told = ls_store_set(client, "k", "v", 1) == LS_ERR_FORKED;
        const int left = ls_count_sockets() - before;
        ls_store_close(&client);
        ls_store_close(&server);
        _exit(is_told && left <= 2 ? 0 : 1 + left); /* libuv's own pair for signals */
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_joined(server, client);
    ls_store_close(&client);
    ls_store_close(&server);
    assert_ok(ls_store_open_tcp(&server, "127.0.0.1", port, true, 1000));
    ls_store_close(&server);
}

/* --- many --------------------------------------------------------------------------------------------------------- */

enum { MANY = 4000, DESCRIPTORS = 2 * MANY + 1000, THREADS = 250 };

typedef struct crowd {
    int port, first, count;
    ls_store **stores;
    ls_status status;
} crowd;

static void join_crowd(void *argument) {
    crowd *self = argument;
    self->status = LS_OK;
    for (int i = self->first; i < self->count && self->status == LS_OK; i += THREADS) {
        self->status = ls_store_open_tcp(&self->stores[i], "127.0.0.1", self->port, false, 30000);
        if (self->status == LS_OK) self->status = ls_store_add(self->stores[i], "sum", 1, NULL);
    }
}

static void serve_crowd(int count) {
    ls_store **stores = ls_alloc_array((size_t)count, sizeof(ls_store *)), *server = serve("127.0.0.1");
    ls_thread threads[THREADS] = {0};
    crowd crowds[THREADS];
    int kept[2];
    char log[1024];
    const int64_t begin_ns = ls_now_ns();
    catch_log(kept);
    for (int i = 0; i < THREADS; i++) {
        crowds[i] = (crowd){.port = ls_store_port(server), .first = i, .count = count, .stores = stores};
        assert_ok(ls_thread_start(&threads[i], "crowd", join_crowd, &crowds[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        ls_thread_join(&threads[i]);
        assert_int_equal(crowds[i].status, LS_OK);
    }
    int64_t sum = 0;
    release_log(kept, log, sizeof log);
    assert_string_equal(log, ""); /* of many there is no more to say than of one */
    assert_ok(ls_store_add(server, "sum", 0, &sum));
    assert_int_equal(sum, count);
    print_message("%d clients in %.3f s\n", count, (double)(ls_now_ns() - begin_ns) / 1e9);
    assert_true(ls_now_ns() - begin_ns < 50 * LS_NS_PER_S);
    for (int i = 0; i < count; i++) ls_store_close(&stores[i]);
    ls_store_close(&server);
    ls_free(stores);
}

/* Prints what 100, 1,000 and 4,000 took: docs/start-up.md shows the growth. */
static void four_thousand_clients_are_served(void **state) {
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < DESCRIPTORS) LS_SKIP("the limit on descriptors cannot be raised to 9000");
    const struct rlimit raised = {.rlim_cur = DESCRIPTORS, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &raised), 0);
    const int counts[] = {MANY / 40, MANY / 4, MANY};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) serve_crowd(counts[i]);
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int knock(int port) {
    store_addresses addresses;
    int made = -1;
    assert_ok(store_resolve("127.0.0.1", &addresses));
    store_address_set_port(&addresses.list[0], port);
    assert_ok(store_address_connect(&addresses.list[0], ls_deadline_after_ms(5000), &made));
    return made;
}

/* What the server's process may have by itself is too little for the first few, and all that it may have for the knocks. */
static void a_server_without_descriptors_raises_its_limit_then_waits_for_free_ones(void **state) {
    (void)state;
    enum { FEW = 24, ALL = 64, CLIENTS = 30, KNOCKS = 40 };
    int ends[2], port = 0, knocks[KNOCKS];
    ls_store *clients[CLIENTS];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        ls_store *own = NULL;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = FEW, .rlim_max = ALL}) != 0) _exit(1);
        if (ls_store_open_tcp(&own, "127.0.0.1", 0, true, 5000) != LS_OK) _exit(2);
        port = ls_store_port(own);
        if (write(ends[1], &port, sizeof port) != sizeof port) _exit(3);
        ls_store_wait(own, "end", LS_FOREVER);
        _exit(0);
    }
    assert_int_equal(read(ends[0], &port, sizeof port), sizeof port);
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < CLIENTS; i++) clients[i] = reach("127.0.0.1", port);
    for (int i = 0; i < KNOCKS; i++) knocks[i] = knock(port);
    assert_joined(clients[0], clients[CLIENTS - 1]); /* who is in is served on */
    for (int i = 0; i < KNOCKS; i++) close(knocks[i]);
    ls_store *another = reach("127.0.0.1", port);
    assert_ok(ls_store_set(another, "end", "x", 1));
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ls_store_close(&another);
    for (int i = 0; i < CLIENTS; i++) ls_store_close(&clients[i]);
}

/* --- prefix ------------------------------------------------------------------------------------------------------- */

static void a_view_sees_its_own_keys_alone(void **state) {
    (void)state;
    ls_store *server = serve("127.0.0.1"), *one = NULL, *two = NULL, *inner = NULL;
    int64_t count = 0;
    bool is_set = true;
    char value[8] = "";
    assert_ok(ls_store_prefix(&one, server, "one"));
    assert_ok(ls_store_prefix(&two, server, "two"));
    assert_ok(ls_store_prefix(&inner, one, "inner"));
    assert_ok(ls_store_set(one, "k", "1", 1));
    assert_ok(ls_store_check(two, "k", &is_set));
    assert_false(is_set);
    assert_ok(ls_store_set(inner, "k", "2", 1));
    assert_ok(ls_store_get(server, "one/inner/k", value, sizeof value, NULL, 1000));
    assert_string_equal(value, "2");
    assert_ok(ls_store_count(one, &count));
    assert_int_equal(count, 2);
    assert_ok(ls_store_count(two, &count));
    assert_int_equal(count, 0);
    assert_int_equal(ls_store_wait(two, "k", 10), LS_ERR_TIMEOUT);
    char key[LS_STORE_KEY_BYTES];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = '\0';
    assert_int_equal(ls_store_set(one, key, "x", 1), LS_ERR_ARGUMENT);
    assert_ok(ls_store_set(server, key, "x", 1));
    ls_store *none = server;
    assert_int_equal(ls_store_prefix(&none, server, ""), LS_ERR_ARGUMENT);
    assert_null(none);
    assert_int_equal(ls_store_prefix(&none, server, key), LS_ERR_ARGUMENT);
    /* A view holds what it views. */
    ls_store_close(&server);
    ls_store_close(&one);
    ls_store_close(&two);
    assert_ok(ls_store_set(inner, "k", "3", 1));
    ls_store_close(&inner);
}

static void every_fault_is_reported_and_leaves_nothing(void **state) {
    (void)state;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        ls_store *server = NULL, *client = NULL;
        int copy = -1;
        char value[8];
        ls_status status = ls_store_open_tcp(&server, "127.0.0.1", 0, true, 5000);
        if (status == LS_OK) status = ls_store_open_tcp(&client, "127.0.0.1", ls_store_port(server), false, 20000);
        if (status == LS_OK) status = ls_store_set(client, "k", "value", 5);
        if (status == LS_OK) status = ls_store_get(server, "k", value, sizeof value, NULL, 20000);
        if (status == LS_OK) status = store_set_descriptors(client, "d", (int[]){0}, 1);
        if (status == LS_OK) status = store_get_descriptors(server, "d", &copy, 1, 20000);
        if (copy >= 0) close(copy);
        /* What the server meets on its thread ends a connection, and the client may try again. */
        if (ls_fault_was_met() && status != LS_OK) assert_fault_reported(status);
        ls_fault_disarm();
        ls_store_close(&client);
        ls_store_close(&server);
    }
    assert_nothing_left();
}

int main(void) {
#define TCP_TEST(name) cmocka_unit_test_setup(name, clear_environment)
    const struct CMUnitTest tests[] = {
        TCP_TEST(every_way_to_write_this_host_works),
        TCP_TEST(a_host_that_is_none_is_named),
        TCP_TEST(a_server_that_does_not_start_is_missed_with_addresses_and_interfaces),
        TCP_TEST(clients_may_come_before_the_server),
        TCP_TEST(a_hundred_servers_in_turn_take_one_port),
        TCP_TEST(a_taken_port_is_named_on_all_ranks_at_once),
        TCP_TEST(a_client_that_is_refused_long_enough_does_not_meet_itself),
        TCP_TEST(another_protocol_is_told_apart),
        TCP_TEST(a_rank_that_dies_ends_the_waits_of_others_by_name),
        TCP_TEST(the_servers_end_ends_waits_and_names_it),
        TCP_TEST(the_servers_death_ends_waits_and_names_it),
        TCP_TEST(descriptors_travel_beside_tcp),
        TCP_TEST(a_forked_child_holds_neither_port_nor_socket),
        TCP_TEST(four_thousand_clients_are_served),
        TCP_TEST(a_server_without_descriptors_raises_its_limit_then_waits_for_free_ones),
        TCP_TEST(a_view_sees_its_own_keys_alone),
        TCP_TEST(every_fault_is_reported_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_secret, remove_secret);
}
