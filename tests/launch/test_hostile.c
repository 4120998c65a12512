/* What comes to the launcher's store from those who are no clients: it ends their connection, and no other. */
#include "launch/served.h"

#include "base/clock.h"
#include "base/memory.h"

#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static int connect_raw(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = store_server_name(the_server.server);
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
    unsigned char frame[sizeof *head + 8];
    memcpy(frame, head, sizeof *head);
    if (bytes > 0) memcpy(frame + sizeof *head, rest, bytes);
    const int connected = connect_raw();
    assert_int_equal(send(connected, frame, sizeof *head + bytes, MSG_NOSIGNAL), sizeof *head + bytes);
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
    head.descriptor_count = STORE_MOST_DESCRIPTORS + 1;
    send_hostile(&head, NULL, 0);
    head = good;
    head.descriptor_count = 1; /* and none comes */
    send_hostile(&head, "k", 2);
    head = good;
    send_hostile(&head, "kk", 2); /* a key without its end */
    send_hostile(&head, "\0", 2); /* a key that ends too early */
    head.key_bytes = 3;
    send_hostile(&head, "k\0", 3);
    head.key_bytes = 2;
    head.code = STORE_CANCEL; /* which has no key */
    send_hostile(&head, "k", 2);
    head.code = STORE_GOODBYE + 1;
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
        char bytes[CMSG_SPACE(sizeof(int) * (STORE_MOST_DESCRIPTORS + 1))];
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
    /* More than two frames may carry, before the first head is whole. */
    const int overfull = connect_raw();
    for (int i = 0; i < 3; i++)
        send_with_descriptors(overfull, (const char *)&head + i, 1, ends[1], STORE_MOST_DESCRIPTORS);
    assert_hung_up(overfull);
    /* One more than a whole frame says, and than the kernel lets through. */
    for (int says = 8; says <= STORE_MOST_DESCRIPTORS; says += STORE_MOST_DESCRIPTORS - 8) {
        const store_head more = {.magic = STORE_FRAME_MAGIC,
                                 .id = 1,
                                 .code = STORE_SET_DESCRIPTORS,
                                 .key_bytes = 2,
                                 .descriptor_count = (uint16_t)says};
        unsigned char frame[sizeof more + 2] = {0};
        memcpy(frame, &more, sizeof more);
        frame[sizeof more] = 'k';
        const int connected = connect_raw();
        send_with_descriptors(connected, frame, sizeof frame, ends[1], says + 1);
        assert_hung_up(connected);
    }
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
#define SERVER_TEST(name) cmocka_unit_test_setup_teardown(name, start_serving, stop_all)
    const struct CMUnitTest tests[] = {
        SERVER_TEST(frames_that_lie_end_their_connection_and_no_other),
        SERVER_TEST(descriptors_that_nobody_announced_are_closed_with_their_connection),
        SERVER_TEST(random_bytes_never_harm_the_server),
        SERVER_TEST(another_user_is_turned_away),
        SERVER_TEST(a_client_that_never_reads_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
