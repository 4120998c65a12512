/* Which addresses of this host the others are told, and the secret that ranks share for their own connections. */
#include "store/over_tcp.h"

#include "store/credentials.h"
#include "store/interfaces.h"

/* --- interfaces ---------------------------------------------------------------------------------------------------- */

static void interfaces_are_chosen_by_nccls_grammar(void **state) {
    (void)state;
    static const struct {
        const char *choice, *name;
        bool is_chosen;
    } cases[] = {
        {"", "eth0", true},
        {"eth", "eth0", true},
        {"eth", "eth12", true},
        {"eth", "veth0", false},
        {"eth0", "eth0", true},
        {"eth0", "eth01", true}, /* a beginning */
        {"ib,eth", "eth0", true},
        {"ib,eth", "ib0", true},
        {"ib,eth", "wlan0", false},
        {"=eth0", "eth0", true},
        {"=eth0", "eth01", false},
        {"=eth0", "eth", false},
        {"=ib0,eth1", "eth1", true},
        {"=ib0,eth1", "eth10", false},
        {"^docker", "docker0", false},
        {"^docker", "eth0", true},
        {"^docker,lo", "lo", false},
        {"^=lo", "lo", false},
        {"^=lo", "lowpan0", true},
        {"^lo", "lowpan0", false},
        {"^=eth0,eth1", "eth1", false},
        {"^=eth0,eth1", "eth2", true},
        {",eth", "eth0", true},
        {",eth", "ib0", false},
        {"eth,", "ib0", false},
        {"ETH", "eth0", false},
        {"^", "eth0", true},
        {"=", "eth0", true},
        {"eth0:5", "eth0", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (store_interface_is_chosen(cases[i].choice, cases[i].name) != cases[i].is_chosen)
            fail_msg("\"%s\" and %s", cases[i].choice, cases[i].name);
}

/* Also on a host that has nothing else. */
static void loopback_is_there_only_when_asked_for(void **state) {
    (void)state;
    store_interfaces found;
    const ls_status status = store_interfaces_find(false, &found);
    if (status != LS_OK) assert_error_says("no address of this host");
    for (int i = 0; i < found.count; i++) assert_false(store_address_is_loopback(&found.list[i].address));
    assert_ok(store_interfaces_find(true, &found));
    int loopbacks = 0;
    for (int i = 0; i < found.count; i++) loopbacks += store_address_is_loopback(&found.list[i].address);
    assert_true(loopbacks > 0);

    static const char *const asked[] = {"lo", "=lo", "nothing,=lo,lo"};
    for (int i = 0; i < 3; i++) {
        setenv("LOCKSTEP_SOCKET_IFNAME", asked[i], 1);
        assert_ok(store_interfaces_find(false, &found));
        for (int k = 0; k < found.count; k++) assert_string_equal(found.list[k].name, "lo");
    }
    setenv("LOCKSTEP_SOCKET_IFNAME", "^lo", 1);
    (void)store_interfaces_find(true, &found);
    for (int i = 0; i < found.count; i++) assert_string_not_equal(found.list[i].name, "lo");
}

static void a_choice_of_nothing_names_what_there_is(void **state) {
    (void)state;
    store_interfaces found;
    setenv("LOCKSTEP_SOCKET_IFNAME", "=nosuch0", 1);
    assert_int_equal(store_interfaces_find(true, &found), LS_ERR_ENVIRONMENT);
    assert_error_says("LOCKSTEP_SOCKET_IFNAME is \"=nosuch0\"");
    assert_error_says("lo 127.0.0.1");
}

/* --- the secret of connections between ranks ------------------------------------------------------------------------- */

typedef struct pair {
    store_credentials first, second;
} pair;

static void fetch_both(ls_store *first, ls_store *second, pair *got) {
    assert_ok(store_job_credentials(first, "secret/1", 0, 5000, &got->first));
    assert_ok(store_job_credentials(second, "secret/1", 1, 5000, &got->second));
    assert_int_equal(got->first.secret_bytes, got->second.secret_bytes);
    assert_memory_equal(got->first.secret, got->second.secret, got->first.secret_bytes);
    assert_string_equal(got->first.job, got->second.job);
}

static void ranks_in_private_draw_a_secret(void **state) {
    (void)state;
    ls_store *store = NULL, *view = NULL;
    pair got, again;
    assert_ok(ls_store_open_hash(&store));
    assert_ok(ls_store_prefix(&view, store, "group"));
    fetch_both(view, view, &got);
    assert_int_equal(got.first.secret_bytes, 32);
    assert_ok(ls_store_delete(view, "secret/1", NULL));
    fetch_both(store, store, &again);
    assert_memory_not_equal(got.first.secret, again.first.secret, 32);
    ls_store_close(&view);
    ls_store_close(&store);
}

static void a_secret_in_a_file_is_theirs(void **state) {
    (void)state;
    ls_store *store = NULL;
    pair got;
    int64_t keys = 0;
    write_secret("0123456789abcdef0123456789abcdef", 0600);
    assert_ok(ls_store_open_hash(&store));
    fetch_both(store, store, &got);
    assert_memory_equal(got.first.secret, "0123456789abcdef0123456789abcdef", 32);
    assert_ok(ls_store_count(store, &keys));
    assert_int_equal(keys, 0); /* it went through no store */
    ls_store_close(&store);
}

static void over_a_network_no_secret_goes_through_the_store(void **state) {
    (void)state;
    pair got;
    int64_t keys = 0;
    ls_store *server = serve("127.0.0.1"), *client = reach("127.0.0.1", ls_store_port(server));
    fetch_both(server, client, &got);
    assert_int_equal(got.first.secret_bytes, 0);
    assert_ok(ls_store_count(server, &keys));
    assert_int_equal(keys, 0);
    ls_store_close(&client);
    ls_store_close(&server);

    /* With one of their own, the store's connections and theirs prove the same, whatever the environment says later. */
    write_secret("0123456789abcdef0123456789abcdef", 0600);
    server = serve("127.0.0.1");
    client = reach("127.0.0.1", ls_store_port(server));
    unsetenv("LOCKSTEP_SECRET_FILE");
    fetch_both(server, client, &got);
    assert_memory_equal(got.first.secret, "0123456789abcdef0123456789abcdef", 32);
    ls_store_close(&client);
    ls_store_close(&server);
}

static int clear(void **state) {
    unsetenv("LOCKSTEP_SOCKET_IFNAME");
    return clear_environment(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(interfaces_are_chosen_by_nccls_grammar, clear),
        cmocka_unit_test_setup(loopback_is_there_only_when_asked_for, clear),
        cmocka_unit_test_setup(a_choice_of_nothing_names_what_there_is, clear),
        cmocka_unit_test_setup(ranks_in_private_draw_a_secret, clear),
        cmocka_unit_test_setup(a_secret_in_a_file_is_theirs, clear),
        cmocka_unit_test_setup(over_a_network_no_secret_goes_through_the_store, clear),
    };
    return cmocka_run_group_tests(tests, make_secret, remove_secret);
}
