/* Both sides of the proof on one thread, a few bytes at a time: neither ever waits. */
#include "support/threads.h"

#include "base/clock.h"
#include "store/prove.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static store_credentials make(const char *secret, const char *job) {
    store_credentials made = {.secret_bytes = strlen(secret)};
    memcpy(made.secret, secret, made.secret_bytes);
    snprintf(made.job, sizeof made.job, "%s", job);
    return made;
}

/*     client <--> [client_end | near]   carried by `carry`   [far | server_end] <--> server */
typedef struct line {
    int client, near, far, server;
} line;

static void open_pair(int *one, int *other) {
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    *one = ends[0];
    *other = ends[1];
}

static line open_line(void) {
    line made;
    open_pair(&made.client, &made.near);
    open_pair(&made.far, &made.server);
    return made;
}

static void close_line(const line *self) {
    const int ends[] = {self->client, self->near, self->far, self->server};
    for (int i = 0; i < 4; i++) close(ends[i]);
}

/* Carries at most `most` bytes each way. */
static void carry(const line *self, size_t most) {
    const int ends[2][2] = {{self->near, self->far}, {self->far, self->near}};
    char bytes[64];
    for (int i = 0; i < 2; i++) {
        const ssize_t got = recv(ends[i][0], bytes, most, MSG_DONTWAIT);
        if (got > 0) assert_int_equal(send(ends[i][1], bytes, (size_t)got, MSG_DONTWAIT), got);
    }
}

typedef struct ends {
    ls_status client, server;
    store_prover prover;
    store_verifier verifier;
} ends;

static void speak(const store_credentials *client, const store_credentials *server, int channel, ends *came_to) {
    const line between = open_line();
    *came_to = (ends){.client = LS_END, .server = LS_END};
    assert_ok(store_verifier_begin(&came_to->verifier, between.server));
    for (int i = 0; i < 1000 && came_to->client == LS_END; i++) {
        carry(&between, 7);
        came_to->client = store_prover_step(&came_to->prover, between.client, client, 3, channel);
        if (came_to->server != LS_END) continue;
        came_to->server = store_verifier_step(&came_to->verifier, between.server, server);
        if (came_to->server == LS_OK) assert_ok(store_verifier_admit(&came_to->verifier, between.server));
    }
    close_line(&between);
}

static void proofs_come_in_pieces_and_tell_rank_and_channel(void **state) {
    (void)state;
    const store_credentials both = make("0123456789abcdef", "job");
    ends came_to;
    speak(&both, &both, 42, &came_to);
    assert_int_equal(came_to.client, LS_OK);
    assert_int_equal(came_to.server, LS_OK);
    assert_int_equal(came_to.verifier.hello.rank, 3);
    assert_int_equal(came_to.verifier.hello.channel, 42);
    assert_int_equal(came_to.verifier.hello.process, getpid());
}

static void each_side_learns_why_it_is_refused(void **state) {
    (void)state;
    const store_credentials own = make("0123456789abcdef", "job");
    const store_credentials job = make("0123456789abcdef", "another"), secret = make("fedcba9876543210", "job");
    ends came_to;
    speak(&job, &own, 0, &came_to);
    assert_int_equal(came_to.client, LS_ERR_ENVIRONMENT);
    assert_int_equal(came_to.server, LS_ERR_ENVIRONMENT);
    assert_error_says("another job");
    speak(&secret, &own, 0, &came_to);
    assert_int_equal(came_to.client, LS_ERR_ENVIRONMENT);
    assert_int_equal(came_to.server, LS_ERR_ENVIRONMENT);
    assert_error_says("does not accept the secret");
}

static void a_side_that_hangs_up_is_lost(void **state) {
    (void)state;
    const store_credentials both = make("0123456789abcdef", "job");
    line between = open_line();
    store_verifier verifier;
    store_prover prover = {.got = 0};
    assert_ok(store_verifier_begin(&verifier, between.server));
    assert_int_equal(store_verifier_step(&verifier, between.server, &both), LS_END);
    close(between.far);
    assert_int_equal(store_verifier_step(&verifier, between.server, &both), LS_ERR_PEER_LOST);
    assert_int_equal(store_prover_step(&prover, between.client, &both, 0, 0), LS_END);
    close(between.near);
    assert_int_equal(store_prover_step(&prover, between.client, &both, 0, 0), LS_ERR_PEER_LOST);
    close(between.client);
    close(between.server);
}

/* The server reads not a byte past the hello: what comes behind it belongs to whoever is let in. */
static void what_follows_the_hello_is_left_in_the_socket(void **state) {
    (void)state;
    const store_credentials both = make("0123456789abcdef", "job");
    int client = -1, server = -1;
    store_verifier verifier;
    store_prover prover = {.got = 0};
    char rest[8] = "";
    open_pair(&client, &server);
    assert_ok(store_verifier_begin(&verifier, server));
    assert_int_equal(store_prover_step(&prover, client, &both, 1, 0), LS_END);
    assert_int_equal(send(client, "data", 4, 0), 4);
    assert_ok(store_verifier_step(&verifier, server, &both));
    assert_int_equal(recv(server, rest, sizeof rest, MSG_DONTWAIT), 4);
    assert_string_equal(rest, "data");
    assert_ok(store_verifier_admit(&verifier, server));
    assert_ok(store_prover_step(&prover, client, &both, 1, 0));
    close(client);
    close(server);
}

/* A connection whose other end is gone without a word tells nobody who only listens. */
static void the_client_says_something_before_it_has_heard_anything(void **state) {
    (void)state;
    const store_credentials both = make("0123456789abcdef", "job");
    int client = -1, server = -1;
    char said[8];
    store_prover prover = {.got = 0};
    open_pair(&client, &server);
    assert_int_equal(store_prover_step(&prover, client, &both, 0, 0), LS_END);
    assert_int_equal(recv(server, said, sizeof said, MSG_DONTWAIT), sizeof said);
    assert_memory_equal(said, store_hello_magic, sizeof said);
    close(client);
    close(server);
}

static void who_says_nothing_is_waited_for_until_the_deadline(void **state) {
    (void)state;
    const store_credentials both = make("0123456789abcdef", "job");
    int client = -1, server = -1;
    open_pair(&client, &server);
    assert_int_equal(store_prove(client, &both, 0, 0, ls_deadline_after_ms(50)), LS_ERR_TIMEOUT);
    assert_error_says("does not speak");
    close(client);
    close(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proofs_come_in_pieces_and_tell_rank_and_channel),
        cmocka_unit_test(each_side_learns_why_it_is_refused),
        cmocka_unit_test(a_side_that_hangs_up_is_lost),
        cmocka_unit_test(what_follows_the_hello_is_left_in_the_socket),
        cmocka_unit_test(the_client_says_something_before_it_has_heard_anything),
        cmocka_unit_test(who_says_nothing_is_waited_for_until_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
