/* The store over the launcher's sockets: clients, waits, descriptors, and what comes from those who are no clients. */
#include "launch/served.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static served the_server;
static uint64_t blocks_before;

static int start(void **state) {
    (void)state;
    blocks_before = ls_alloc_live();
    served_start(&the_server);
    return 0;
}

static int stop(void **state) {
    (void)state;
    served_stop(&the_server);
    return ls_alloc_live() == blocks_before ? 0 : -1;
}

static ls_store *open_store(void) {
    ls_store *store = NULL;
    assert_int_equal(ls_store_open_inherited(&store), LS_OK);
    return store;
}

/* --- operations ------------------------------------------------------------------------------------------------------ */

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

/* --- many ------------------------------------------------------------------------------------------------------------ */

typedef struct client {
    ls_store *store; /* NULL: opens one of its own */
    int index, count, rounds;
    ls_status status;
} client;

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

/* --- ways in --------------------------------------------------------------------------------------------------------- */

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

/* By name, not by number: the server's own come and go. */
static int count_sockets(void) {
    int count = 0;
    for (int i = 0; i < 256; i++) {
        char path[64], target[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        const ssize_t length = readlink(path, target, sizeof target);
        count += length > 7 && memcmp(target, "socket:", 7) == 0;
    }
    return count;
}

static void a_forked_child_opens_its_own_and_cannot_use_its_parents(void **state) {
    (void)state;
    ls_store *store = open_store();
    ls_store_set(store, "k", "v", 1);
    const int sockets = count_sockets();
    const pid_t child = fork();
    if (child == 0) {
        char value = 0;
        if (ls_store_set(store, "k", "w", 1) != LS_ERR_FORKED) _exit(1);
        if (count_sockets() != sockets - 1) _exit(4); /* the stream; the door stays */
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

/* --- no clients ------------------------------------------------------------------------------------------------------ */

static int connect_raw(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = launch_server_name(the_server.server);
    memcpy(address.sun_path + 1, name, strlen(name));
    const int connected = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    assert_int_equal(connect(connected, (struct sockaddr *)&address, bytes), 0);
    return connected;
}

/* The server hangs up, and serves others as before. */
static void assert_hung_up(int connected) {
    struct pollfd polled = {.fd = connected, .events = POLLIN};
    char byte = 0;
    assert_int_equal(poll(&polled, 1, 10000), 1);
    assert_true(read(connected, &byte, 1) <= 0);
    close(connected);
    ls_store *store = open_store();
    assert_int_equal(ls_store_set(store, "still", "here", 4), LS_OK);
    ls_store_close(&store);
}

static void send_hostile(const store_head *head, const void *rest, size_t bytes) {
    const int connected = connect_raw();
    assert_int_equal(send(connected, head, sizeof *head, MSG_NOSIGNAL), sizeof *head);
    if (bytes > 0) assert_int_equal(send(connected, rest, bytes, MSG_NOSIGNAL), bytes);
    assert_hung_up(connected);
}

static void frames_that_lie_end_their_connection_and_no_other(void **state) {
    (void)state;
    const store_head good = {.magic = STORE_FRAME_MAGIC, .id = 1, .code = STORE_SET, .key_bytes = 2};
    store_head head = good;
    head.magic ^= 1;
    send_hostile(&head, "k", 2);
    head = good;
    head.key_bytes = LS_STORE_KEY_BYTES + 1;
    send_hostile(&head, NULL, 0);
    head = good;
    head.value_bytes = LS_STORE_VALUE_BYTES + 1;
    send_hostile(&head, NULL, 0);
    head = good;
    head.expected_bytes = UINT32_MAX;
    send_hostile(&head, NULL, 0);
    head = good;
    head.descriptor_count = STORE_MAX_DESCRIPTORS + 1;
    send_hostile(&head, NULL, 0);
    head = good;
    head.descriptor_count = 1; /* and none comes */
    send_hostile(&head, "k", 2);
    head = good;
    send_hostile(&head, "kk", 2); /* a key without its end */
    send_hostile(&head, "\0", 2); /* a key that ends too early */
    head.code = STORE_COUNT;      /* which has no key */
    send_hostile(&head, "k", 2);
    head.code = STORE_CANCEL + 1;
    send_hostile(&head, "k", 2);
    head.code = -5;
    send_hostile(&head, "k", 2);
    head = good;
    head.key_bytes = 0;
    send_hostile(&head, NULL, 0);
    head = good;
    head.code = STORE_SET_DESCRIPTORS; /* without any */
    send_hostile(&head, "k", 2);
}

static void send_with_descriptors(int connected, const void *bytes, size_t count, int descriptor, int times) {
    union {
        struct cmsghdr aligned;
        char bytes[CMSG_SPACE(sizeof(int) * 64)];
    } control = {0};
    struct iovec vector = {.iov_base = (void *)bytes, .iov_len = count};
    struct msghdr header = {.msg_iov = &vector,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)times)};
    struct cmsghdr *item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)times);
    for (int i = 0; i < times; i++) memcpy(CMSG_DATA(item) + (size_t)i * sizeof(int), &descriptor, sizeof descriptor);
    assert_int_equal(sendmsg(connected, &header, MSG_NOSIGNAL), count);
}

static void descriptors_that_nobody_announced_are_closed_with_their_connection(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const store_head head = {.magic = STORE_FRAME_MAGIC, .id = 1, .code = STORE_WAIT, .key_bytes = 2};
    for (int times = 1; times <= 64; times += 21) {
        const int connected = connect_raw();
        send_with_descriptors(connected, &head, sizeof head, ends[1], times);
        assert_hung_up(connected);
    }
    /* More than the frame says, of which the kernel lets through what it says. */
    const store_head eight = {
        .magic = STORE_FRAME_MAGIC, .id = 1, .code = STORE_SET_DESCRIPTORS, .key_bytes = 2, .descriptor_count = 8};
    unsigned char frame[sizeof eight + 2] = {0};
    memcpy(frame, &eight, sizeof eight);
    frame[sizeof eight] = 'k';
    const int connected = connect_raw();
    send_with_descriptors(connected, frame, sizeof frame, ends[1], 9);
    assert_hung_up(connected);
    /* Also those that come through the door without being a connection. */
    send_with_descriptors(the_server.door, "+", 1, ends[1], 1);
    send_with_descriptors(the_server.door, "+", 1, ends[1], 9);
    assert_int_equal(send(the_server.door, "hello", 5, MSG_NOSIGNAL), 5);
    close(ends[1]);
    struct pollfd polled = {.fd = ends[0], .events = POLLIN};
    char byte = 0;
    assert_int_equal(poll(&polled, 1, 10000), 1);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
    ls_store *store = open_store();
    assert_int_equal(ls_store_set(store, "still", "here", 4), LS_OK);
    ls_store_close(&store);
}

static void random_bytes_never_harm_the_server(void **state) {
    (void)state;
    const unsigned seed = (unsigned)ls_now_ns();
    print_message("seed %u\n", seed);
    uint64_t drawn = seed | 1;
    for (int i = 0; i < 500; i++) {
        unsigned char bytes[256];
        for (size_t j = 0; j < sizeof bytes; j++) {
            drawn = drawn * UINT64_C(6364136223846793005) + 1442695040888963407;
            bytes[j] = (unsigned char)(drawn >> 56);
        }
        /* Every second one starts as a frame does, and has sizes that could be. */
        if (i % 2) {
            store_head head = {.magic = STORE_FRAME_MAGIC,
                               .id = bytes[0],
                               .code = bytes[1] % 13,
                               .key_bytes = bytes[2] % 8,
                               .expected_bytes = bytes[3] % 8,
                               .value_bytes = bytes[4] % 64};
            memcpy(bytes, &head, sizeof head);
            bytes[sizeof head + (head.key_bytes ? head.key_bytes - 1u : 0u)] = '\0';
        }
        const int connected = connect_raw();
        assert_true(send(connected, bytes, 40 + bytes[255] % 200, MSG_NOSIGNAL) > 0);
        close(connected);
    }
    ls_store *store = open_store();
    assert_int_equal(ls_store_set(store, "still", "here", 4), LS_OK);
    ls_store_close(&store);
}

static void another_user_is_turned_away(void **state) {
    (void)state;
    if (geteuid() != 0) LS_SKIP("only root can become another user");
    const pid_t child = fork();
    if (child == 0) {
        if (setuid(65534) != 0) _exit(1);
        const int connected = connect_raw();
        struct pollfd polled = {.fd = connected, .events = POLLIN};
        char byte = 0;
        _exit(poll(&polled, 1, 10000) == 1 && read(connected, &byte, 1) <= 0 ? 0 : 2);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_client_that_never_reads_is_cut_off(void **state) {
    (void)state;
    ls_store *store = open_store();
    unsigned char *value = ls_alloc(LS_STORE_VALUE_BYTES);
    assert_int_equal(ls_store_set(store, "large", value, LS_STORE_VALUE_BYTES), LS_OK);
    const int connected = connect_raw();
    const store_head head = {.magic = STORE_FRAME_MAGIC, .id = 1, .code = STORE_GET, .key_bytes = 6};
    unsigned char frame[sizeof head + 6];
    memcpy(frame, &head, sizeof head);
    memcpy(frame + sizeof head, "large", 6);
    /* Past 64 MiB of answers the server has had enough. */
    int sent = 0;
    while (sent < 200 && send(connected, frame, sizeof frame, MSG_NOSIGNAL) > 0) sent++;
    struct pollfd polled = {.fd = connected, .events = POLLHUP};
    while (!(polled.revents & POLLHUP)) assert_int_equal(poll(&polled, 1, 10000), 1);
    close(connected);
    assert_int_equal(ls_store_delete(store, "large", NULL), LS_OK);
    ls_free(value);
    ls_store_close(&store);
}

int main(void) {
#define SERVER_TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        SERVER_TEST(every_operation_works_over_the_socket),
        SERVER_TEST(a_key_of_the_longest_name_and_a_value_of_the_largest_size_travel),
        SERVER_TEST(a_wait_that_expires_names_its_key_and_leaves_nothing_behind),
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
        SERVER_TEST(frames_that_lie_end_their_connection_and_no_other),
        SERVER_TEST(descriptors_that_nobody_announced_are_closed_with_their_connection),
        SERVER_TEST(random_bytes_never_harm_the_server),
        SERVER_TEST(another_user_is_turned_away),
        SERVER_TEST(a_client_that_never_reads_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
