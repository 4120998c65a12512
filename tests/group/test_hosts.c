/* test_hosts.c: ranks find out whether they are on one host. */
#include "support/threads.h"

#include "group/hosts.h"

static void assert_keys(ls_store *store, int64_t expected) {
    int64_t keys = 0;
    assert_ok(ls_store_count(store, &keys));
    assert_int_equal(keys, expected);
}

static void ask_together(const ls_rank *rank) {
    bool are_several = true;
    assert_ok(hosts_are_several(rank->store, rank->rank, rank->world_size, 60000, &are_several));
    assert_false(are_several);
}

static void asking_leaves_how_often_each_rank_asked_and_one_answer(void **state) {
    (void)state;
    ls_store *store = NULL;
    bool are_several = false;
    assert_ok(ls_store_open_hash(&store));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hosts_are_several(store, 1, 3, 1, &are_several), LS_ERR_TIMEOUT);
        assert_error_says("rank 1 asks rank 0 which ranks share a host");
        assert_int_equal(hosts_are_several(store, 2, 3, 1, &are_several), LS_ERR_TIMEOUT);
        assert_int_equal(hosts_are_several(store, 0, 3, 1, &are_several), LS_ERR_TIMEOUT);
        assert_error_says("rank 0 asks on which host rank 1 is");
        assert_keys(store, 3);
    }
    for (int i = 0; i < 3; i++) {
        run_ranks_over(store, 3, ask_together, NULL);
        assert_keys(store, 3 + 1);
    }
    ls_store_close(&store);
}

static void ask_as_one_too_few(const ls_rank *rank) {
    bool are_several = false;
    if (rank->rank == 0) {
        assert_ok(hosts_are_several(rank->store, 0, 2, 60000, &are_several));
    } else {
        assert_int_equal(hosts_are_several(rank->store, 1, 3, 60000, &are_several), LS_ERR_MISMATCH);
        assert_error_says("rank 1 counts 3 ranks, rank 0 2; start all with one world size");
    }
}

static void ranks_that_count_differently_are_told(void **state) {
    (void)state;
    run_ranks(2, ask_as_one_too_few, NULL);
}

static void ask_from_elsewhere(const ls_rank *rank) {
    bool are_several = false;
    if (rank->rank == 2) {
        assert_ok(ls_store_set(rank->store, "lockstep/hosts/1/place/2", "another host", 13));
        return;
    }
    assert_ok(hosts_are_several(rank->store, rank->rank, 3, 60000, &are_several));
    assert_true(are_several);
}

static void one_rank_elsewhere_makes_several_hosts(void **state) {
    (void)state;
    run_ranks(3, ask_from_elsewhere, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asking_leaves_how_often_each_rank_asked_and_one_answer),
        cmocka_unit_test(ranks_that_count_differently_are_told),
        cmocka_unit_test(one_rank_elsewhere_makes_several_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
