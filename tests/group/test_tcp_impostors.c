/* test_tcp_impostors.c: who has passed for a rank at the door, and then fails at TLS: it is turned away with a word in the log, and
 * the ranks meet all the same. */
#include "group/tcp_strangers.h"
#include "support/said.h"

#include "group/backend/tcp/tls.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int want_tls(void **state) {
    (void)state;
    return setenv("LOCKSTEP_TLS", "1", 1);
}

/* --- at rank 0's door ------------------------------------------------------------------------------------------------- */

/* Whether it has failed, as far as this end sees. */
typedef bool begin_tls(int socket, const store_credentials *credentials, const store_prover *proved);

typedef struct impostor {
    begin_tls *begin_tls;
    const char *said_of_it; /* in the log */
} impostor;

static void prove(int socket, const store_credentials *credentials, store_prover *prover) {
    ls_status status = LS_OK;
    while ((status = store_prover_step(prover, socket, credentials, 1, TCP_CONTROL)) == LS_END)
        assert_true(has_something_to_read(socket));
    assert_ok(status);
}

static void come_after_an_impostor(const ls_rank *rank) {
    const impostor *self = rank->argument;
    if (rank->rank == 1) {
        const tcp_card card = hand_in_card(rank->store);
        const store_credentials credentials = learn_credentials(rank, PREFIX, 0);
        store_prover prover = {.got = 0};
        int kept[2];
        char log[4096];
        const int stranger = knock(&card);
        prove(stranger, &credentials, &prover);
        catch_log(kept);
        const bool has_failed = self->begin_tls(stranger, &credentials, &prover) && is_turned_away(stranger);
        release_log(kept, log, sizeof log);
        assert_true(has_failed);
        if (!strstr(log, self->said_of_it)) print_error("expected \"%s\", found: %s\n", self->said_of_it, log);
        assert_non_null(strstr(log, " warning: "));
        assert_non_null(strstr(log, " connected and was turned away: "));
        assert_non_null(strstr(log, self->said_of_it));
    }
    ls_group *group = open_tcp(rank);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
}

static bool speak_plainly(int socket, const store_credentials *credentials, const store_prover *proved) {
    (void)credentials;
    (void)proved;
    const tcp_note note = tcp_note_make(TCP_LEAVES, 0);
    say(socket, &note, sizeof note);
    return true;
}

static void who_goes_on_without_tls_is_turned_away(void **state) {
    (void)state;
    impostor self = {speak_plainly, "TLS was not agreed on: wrong version number"};
    run_ranks(2, come_after_an_impostor, &self);
}

static bool speak_tls_1_2(int socket, const store_credentials *credentials, const store_prover *proved) {
    (void)credentials;
    (void)proved;
    SSL_CTX *settings = SSL_CTX_new(TLS_client_method());
    assert_true(SSL_CTX_set_max_proto_version(settings, TLS1_2_VERSION));
    SSL *ssl = SSL_new(settings);
    assert_true(SSL_set_fd(ssl, socket));
    const bool has_failed = SSL_connect(ssl) != 1;
    SSL_free(ssl);
    SSL_CTX_free(settings);
    return has_failed;
}

static void who_speaks_tls_1_2_is_turned_away(void **state) {
    (void)state;
    impostor self = {speak_tls_1_2, "TLS was not agreed on: unsupported protocol"};
    run_ranks(2, come_after_an_impostor, &self);
}

static bool is_refused_in_tls(int socket, const store_credentials *credentials, const store_greeting *greeting,
                              const store_hello *hello) {
    tcp_tls_context *context = NULL;
    tcp_tls *tls = NULL;
    ls_status status = LS_OK;
    assert_ok(tcp_tls_prepare(&context));
    assert_ok(tcp_tls_begin(&tls, context, socket, false, credentials, greeting, hello));
    while ((status = tcp_tls_step(tls)) == LS_END) assert_true(has_something_to_read(socket));
    tcp_tls_end(&tls);
    tcp_tls_release(&context);
    return status != LS_OK;
}

/* One that has passed on what a rank proved, and does not know the secret. */
static bool guess_the_secret(int socket, const store_credentials *credentials, const store_prover *proved) {
    store_credentials guessed = *credentials;
    guessed.secret[0] ^= 1;
    return is_refused_in_tls(socket, &guessed, &proved->greeting, &proved->hello);
}

static bool take_another_job(int socket, const store_credentials *credentials, const store_prover *proved) {
    store_credentials other = *credentials;
    other.job[0] ^= 1;
    return is_refused_in_tls(socket, &other, &proved->greeting, &proved->hello);
}

/* The key of another connection, of which either side drew its random number anew. */
static bool take_another_greeting(int socket, const store_credentials *credentials, const store_prover *proved) {
    store_greeting other = proved->greeting;
    other.nonce[0] ^= 1;
    return is_refused_in_tls(socket, credentials, &other, &proved->hello);
}

static bool take_another_hello(int socket, const store_credentials *credentials, const store_prover *proved) {
    store_hello other = proved->hello;
    other.nonce[0] ^= 1;
    return is_refused_in_tls(socket, credentials, &proved->greeting, &other);
}

static void who_has_another_key_is_turned_away(void **state) {
    (void)state;
    impostor self = {.said_of_it = "TLS was not agreed on: binder does not verify"};
    begin_tls *const ways[] = {guess_the_secret, take_another_job, take_another_greeting, take_another_hello};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        self.begin_tls = ways[i];
        run_ranks(2, come_after_an_impostor, &self);
    }
}

/* --- on rank 1's way -------------------------------------------------------------------------------------------------- */

/* One that listens in rank 0's stead, and has a certificate to show instead of the key. */
typedef struct host {
    int listener;
    store_credentials credentials;
    bool has_shaken_hands; /* for all that it could see */
} host;

static SSL_CTX *certify_oneself(void) {
    SSL_CTX *settings = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    assert_true(X509_set_pubkey(certificate, key));
    assert_true(X509_sign(certificate, key, EVP_sha256()));
    assert_true(SSL_CTX_use_certificate(settings, certificate));
    assert_true(SSL_CTX_use_PrivateKey(settings, key));
    assert_true(SSL_CTX_set_num_tickets(settings, 0));
    X509_free(certificate);
    EVP_PKEY_free(key);
    return settings;
}

static void *play_host(void *argument) {
    host *self = argument;
    store_verifier verifier;
    ls_status status = LS_OK;
    assert_true(has_something_to_read(self->listener));
    const int guest = accept(self->listener, NULL, NULL);
    close(self->listener); /* for one call only */
    assert_ok(store_verifier_begin(&verifier, guest));
    while ((status = store_verifier_step(&verifier, guest, &self->credentials)) == LS_END)
        assert_true(has_something_to_read(guest));
    assert_ok(status);
    assert_ok(store_verifier_admit(&verifier, guest));
    SSL_CTX *settings = certify_oneself();
    SSL *ssl = SSL_new(settings);
    assert_true(SSL_set_fd(ssl, guest));
    self->has_shaken_hands = SSL_accept(ssl) == 1;
    SSL_free(ssl);
    SSL_CTX_free(settings);
    assert_true(is_turned_away(guest));
    return NULL;
}

/* Rank 0's card has the impostor's address before its own. */
static void go_to_a_false_host_first(const ls_rank *rank) {
    pthread_t thread;
    host self = {.listener = -1};
    if (rank->rank == 1) {
        tcp_card cards[2];
        take_cards(rank->store, cards);
        cards[0].places[1] = cards[0].places[0];
        cards[0].place_count = 2;
        self.listener = listen_somewhere(&cards[0].places[0]);
        self.credentials = learn_credentials(rank, PREFIX, 0);
        assert_int_equal(pthread_create(&thread, NULL, play_host, &self), 0);
        lay_out_cards(rank->store, cards);
    }
    ls_group *group = open_tcp(rank);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
    if (rank->rank != 1) return;
    pthread_join(thread, NULL);
    assert_true(self.has_shaken_hands);
}

static void a_host_with_a_certificate_instead_of_the_key_is_left(void **state) {
    (void)state;
    run_ranks(2, go_to_a_false_host_first, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_goes_on_without_tls_is_turned_away),
        cmocka_unit_test(who_speaks_tls_1_2_is_turned_away),
        cmocka_unit_test(who_has_another_key_is_turned_away),
        cmocka_unit_test(a_host_with_a_certificate_instead_of_the_key_is_left),
    };
    return cmocka_run_group_tests(tests, want_tls, NULL);
}
