/* The proofs by which a store's client and server know each other. */
#include "support/test.h"

#include "store/handshake.h"

#include <lockstep/base.h>

#include <string.h>

static store_credentials make(const char *secret, const char *job) {
    store_credentials made = {.secret_bytes = strlen(secret)};
    memcpy(made.secret, secret, made.secret_bytes);
    snprintf(made.job, sizeof made.job, "%s", job);
    return made;
}

typedef struct exchange {
    store_greeting greeting;
    store_hello hello;
    store_verdict verdict;
} exchange;

/* The three records between these two. */
static void speak(const store_credentials *client, const store_credentials *server, int rank, exchange *said) {
    assert_int_equal(store_handshake_greet(&said->greeting), LS_OK);
    assert_int_equal(store_handshake_answer(client, &said->greeting, rank, 5, &said->hello), LS_OK);
    store_hello heard = said->hello;
    assert_int_equal(store_handshake_judge(server, &said->greeting, &heard, &said->verdict), LS_OK);
}

static void who_shares_secret_and_job_is_welcome(void **state) {
    (void)state;
    const char *const secrets[] = {"", "0123456789abcdef"};
    for (int i = 0; i < 2; i++) {
        const store_credentials both = make(secrets[i], "job");
        exchange said;
        speak(&both, &both, 7, &said);
        assert_int_equal(said.verdict.code, STORE_WELCOME);
        assert_int_equal(said.hello.rank, 7);
        assert_int_equal(said.hello.channel, 5);
        assert_int_equal(store_handshake_check(&both, &said.greeting, &said.hello, &said.verdict), LS_OK);
    }
}

static void another_job_or_secret_is_refused_by_its_reason(void **state) {
    (void)state;
    const store_credentials own = make("0123456789abcdef", "job"), job = make("0123456789abcdef", "jab");
    const store_credentials secret = make("0123456789abcdeg", "job"), none = make("", "job");
    exchange said;
    speak(&job, &own, 0, &said);
    assert_int_equal(said.verdict.code, STORE_OTHER_JOB);
    assert_int_equal(store_handshake_check(&job, &said.greeting, &said.hello, &said.verdict), LS_ERR_ENVIRONMENT);
    assert_non_null(strstr(ls_last_error(), "another job"));
    speak(&secret, &own, 0, &said);
    assert_int_equal(said.verdict.code, STORE_OTHER_SECRET);
    speak(&none, &own, 0, &said);
    assert_int_equal(said.verdict.code, STORE_OTHER_SECRET);
    speak(&own, &none, 0, &said);
    assert_int_equal(said.verdict.code, STORE_OTHER_SECRET);
    /* A refusal proves nothing, and carries nothing made with the secret. */
    static const unsigned char zeroes[STORE_PROOF_BYTES];
    assert_memory_equal(said.verdict.proof, zeroes, sizeof zeroes);
}

static void a_server_that_only_says_welcome_is_not_believed(void **state) {
    (void)state;
    const store_credentials own = make("0123456789abcdef", "job");
    exchange said;
    speak(&own, &own, 0, &said);
    memset(said.verdict.proof, 0, sizeof said.verdict.proof);
    assert_int_equal(store_handshake_check(&own, &said.greeting, &said.hello, &said.verdict), LS_ERR_ENVIRONMENT);
    assert_non_null(strstr(ls_last_error(), "does not know the secret"));
    /* Nor one that sends our own proof back. */
    memcpy(said.verdict.proof, said.hello.proof, sizeof said.verdict.proof);
    assert_int_equal(store_handshake_check(&own, &said.greeting, &said.hello, &said.verdict), LS_ERR_ENVIRONMENT);
}

static void a_proof_holds_for_its_own_connection_alone(void **state) {
    (void)state;
    const store_credentials own = make("0123456789abcdef", "job");
    exchange first, second;
    speak(&own, &own, 0, &first);
    speak(&own, &own, 0, &second);
    store_verdict verdict;
    store_hello replayed = first.hello;
    assert_int_equal(store_handshake_judge(&own, &second.greeting, &replayed, &verdict), LS_OK);
    assert_int_equal(verdict.code, STORE_OTHER_SECRET);
    assert_int_equal(store_handshake_check(&own, &first.greeting, &first.hello, &second.verdict), LS_ERR_ENVIRONMENT);
}

/* Any bit of what was said: the proof covers all of it. */
static void no_bit_can_be_changed_on_the_way(void **state) {
    (void)state;
    const store_credentials own = make("0123456789abcdef", "job");
    exchange said;
    speak(&own, &own, 3, &said);
    for (size_t bit = 0; bit < 8 * sizeof said.hello; bit++) {
        store_hello hello = said.hello;
        ((unsigned char *)&hello)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        store_verdict verdict = {.code = STORE_WELCOME};
        const ls_status status = store_handshake_judge(&own, &said.greeting, &hello, &verdict);
        if (status == LS_OK && verdict.code == STORE_WELCOME) fail_msg("bit %zu of the hello is not covered", bit);
    }
    for (size_t bit = 0; bit < 8 * sizeof said.verdict; bit++) {
        store_verdict verdict = said.verdict;
        if (bit / 8 >= 12 && bit / 8 < 16) continue; /* unused, and zero */
        ((unsigned char *)&verdict)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (store_handshake_check(&own, &said.greeting, &said.hello, &verdict) == LS_OK)
            fail_msg("bit %zu of the verdict is not covered", bit);
    }
    for (size_t bit = 0; bit < 8 * sizeof said.greeting; bit++) {
        store_greeting greeting = said.greeting;
        ((unsigned char *)&greeting)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (store_handshake_check(&own, &greeting, &said.hello, &said.verdict) == LS_OK)
            fail_msg("bit %zu of the greeting is not covered", bit);
    }
}

static void what_a_stranger_calls_itself_is_harmless(void **state) {
    (void)state;
    const store_credentials own = make("0123456789abcdef", "job");
    exchange said;
    assert_int_equal(store_handshake_greet(&said.greeting), LS_OK);
    assert_int_equal(store_handshake_answer(&own, &said.greeting, 0, 0, &said.hello), LS_OK);
    memset(said.hello.host, '\n', sizeof said.hello.host);
    assert_int_equal(store_handshake_judge(&own, &said.greeting, &said.hello, &said.verdict), LS_OK);
    assert_int_equal(strlen(said.hello.host), sizeof said.hello.host - 1);
    assert_null(strchr(said.hello.host, '\n'));
    said.hello.magic[0] ^= 1;
    assert_int_equal(store_handshake_judge(&own, &said.greeting, &said.hello, &said.verdict), LS_ERR_FORMAT);
    said.greeting.magic[7] ^= 1;
    assert_int_equal(store_handshake_answer(&own, &said.greeting, 0, 0, &said.hello), LS_ERR_FORMAT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_shares_secret_and_job_is_welcome),
        cmocka_unit_test(another_job_or_secret_is_refused_by_its_reason),
        cmocka_unit_test(a_server_that_only_says_welcome_is_not_believed),
        cmocka_unit_test(a_proof_holds_for_its_own_connection_alone),
        cmocka_unit_test(no_bit_can_be_changed_on_the_way),
        cmocka_unit_test(what_a_stranger_calls_itself_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
