/* The job's secret: only who knows it comes in, and strangers do no harm. */
#include "store/over_tcp.h"
#include "support/said.h"

#include "base/clock.h"
#include "store/address.h"

#include <sys/socket.h>

/* --- secrets ------------------------------------------------------------------------------------------------------ */

static void only_who_knows_the_secret_comes_in(void **state) {
    (void)state;
    ls_store *store = NULL;
    write_secret("0123456789abcdef0123456789abcdef\n", 0600);
    ls_store *server = serve("127.0.0.1"), *client = reach("127.0.0.1", ls_store_port(server));
    const int port = ls_store_port(server);
    assert_joined(server, client);

    write_secret("fedcba9876543210fedcba9876543210", 0600);
    assert_int_equal(ls_store_open_tcp(&store, "127.0.0.1", port, false, 60000), LS_ERR_ENVIRONMENT);
    assert_error_says("does not accept the secret");
    unsetenv("LOCKSTEP_SECRET_FILE");
    assert_int_equal(ls_store_open_tcp(&store, "127.0.0.1", port, false, 60000), LS_ERR_ENVIRONMENT);
    assert_error_says("has none");
    assert_joined(server, client); /* the job goes on */
    ls_store_close(&client);

    /* A newline at the end is an editor's. */
    write_secret("0123456789abcdef0123456789abcdef", 0600);
    client = reach("127.0.0.1", port);
    assert_joined(server, client);
    ls_store_close(&client);
    setenv("LOCKSTEP_JOB", "another", 1);
    assert_int_equal(ls_store_open_tcp(&store, "127.0.0.1", port, false, 60000), LS_ERR_ENVIRONMENT);
    assert_error_says("another job");
    ls_store_close(&server);
}

static void expect_bad_secret(const char *says) {
    ls_store *store = NULL;
    assert_int_equal(ls_store_open_tcp(&store, "127.0.0.1", 0, true, 1000), LS_ERR_ENVIRONMENT);
    assert_error_says(says);
    assert_error_says(getenv("LOCKSTEP_SECRET_FILE"));
}

static void a_secret_file_is_checked(void **state) {
    (void)state;
    write_secret("0123456789abcdef", 0640);
    expect_bad_secret("0640");
    write_secret("0123456789abcdef", 0604);
    expect_bad_secret("0604");
    write_secret("0123456789abcde\n", 0600);
    expect_bad_secret("15 bytes");
    char long_one[1100];
    memset(long_one, 'x', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = '\0';
    write_secret(long_one, 0600);
    expect_bad_secret("more than 1024");
    setenv("LOCKSTEP_SECRET_FILE", "/no/such/file", 1);
    expect_bad_secret("cannot be opened");
    setenv("LOCKSTEP_SECRET_FILE", "/tmp", 1);
    expect_bad_secret("no regular file");
}

static void beyond_loopback_a_secret_is_asked_for(void **state) {
    (void)state;
    ls_store *store = NULL;
    assert_int_equal(ls_store_open_tcp(&store, "0.0.0.0", 0, true, 1000), LS_ERR_ENVIRONMENT);
    assert_error_says("LOCKSTEP_SECRET_FILE");
    assert_error_says("LOCKSTEP_ALLOW_UNAUTHENTICATED=1");
    assert_int_equal(ls_store_open_tcp(&store, "192.0.2.1", 29500, false, 1000), LS_ERR_ENVIRONMENT);
    assert_error_says("LOCKSTEP_ALLOW_UNAUTHENTICATED=1");
    /* An address that is not this host's: the server listens on all, and so it asks. */
    assert_int_equal(ls_store_open_tcp(&store, "192.0.2.1", 0, true, 1000), LS_ERR_ENVIRONMENT);
    setenv("LOCKSTEP_ALLOW_UNAUTHENTICATED", "yes", 1);
    assert_int_equal(ls_store_open_tcp(&store, "0.0.0.0", 0, true, 1000), LS_ERR_ENVIRONMENT);
    assert_error_says("LOCKSTEP_ALLOW_UNAUTHENTICATED");
    setenv("LOCKSTEP_ALLOW_UNAUTHENTICATED", "1", 1);
    ls_store *server = serve("192.0.2.1"), *client = reach("127.0.0.1", ls_store_port(server));
    assert_joined(server, client);
    ls_store_close(&client);
    ls_store_close(&server);
    unsetenv("LOCKSTEP_ALLOW_UNAUTHENTICATED");
    write_secret("0123456789abcdef0123456789abcdef", 0600);
    server = serve("0.0.0.0");
    client = reach("127.0.0.1", ls_store_port(server));
    assert_joined(server, client);
    ls_store_close(&client);
    ls_store_close(&server);
}

/* --- strangers ---------------------------------------------------------------------------------------------------- */

static int connect_raw(int port) {
    store_addresses addresses;
    int connected = -1;
    assert_ok(store_resolve("127.0.0.1", &addresses));
    store_address_set_port(&addresses.list[0], port);
    assert_ok(store_address_connect(&addresses.list[0], ls_deadline_after_ms(10000), &connected));
    fcntl(connected, F_SETFL, 0);
    return connected;
}

static void strangers_are_turned_away_and_the_job_goes_on(void **state) {
    (void)state;
    const unsigned seed = (unsigned)ls_now_ns();
    print_message("seed %u\n", seed);
    srand(seed);
    ls_store *server = serve("127.0.0.1"), *client = reach("127.0.0.1", ls_store_port(server));
    const int port = ls_store_port(server);
    /* What they say on standard error is read. */
    int kept[2];
    char log[4096];
    catch_log(kept);
    for (int i = 0; i < 100; i++) {
        unsigned char bytes[400];
        for (size_t j = 0; j < sizeof bytes; j++) bytes[j] = (unsigned char)rand();
        if (i % 3 == 1) memcpy(bytes, "lstore1h", 8);
        if (i % 3 == 2) memcpy(bytes, "GET / HTTP/1.1\r\n", 16);
        const int stranger = connect_raw(port);
        const size_t count = (size_t)rand() % sizeof bytes;
        assert_true(send(stranger, bytes, count, MSG_NOSIGNAL) >= 0);
        shutdown(stranger, SHUT_WR);
        /* Never more than a greeting and a refusal. */
        size_t got = 0;
        ssize_t more;
        while ((more = recv(stranger, bytes, sizeof bytes, 0)) > 0) got += (size_t)more;
        assert_true(got <= 40 + 48);
        close(stranger);
    }
    release_log(kept, log, sizeof log);
    assert_non_null(strstr(log, "turned away"));
    assert_ptr_equal(strchr(log, '\n'), log + strlen(log) - 1); /* one line */
    assert_joined(server, client);
    ls_store_close(&client);
    ls_store_close(&server);
}

int main(void) {
#define TCP_TEST(name) cmocka_unit_test_setup(name, clear_environment)
    const struct CMUnitTest tests[] = {
        TCP_TEST(only_who_knows_the_secret_comes_in),
        TCP_TEST(a_secret_file_is_checked),
        TCP_TEST(beyond_loopback_a_secret_is_asked_for),
        TCP_TEST(strangers_are_turned_away_and_the_job_goes_on),
    };
    return cmocka_run_group_tests(tests, make_secret, remove_secret);
}
