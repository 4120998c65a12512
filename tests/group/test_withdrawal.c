/* test_withdrawal.c: openings that fail leave nothing in the store once all ranks have heard why, however late they come. */
#include "support/faults.h"
#include "support/threads.h"

#include "base/clock.h"
#include "group/backend.h"
#include "group/withdrawal.h"

enum { COUNTERS = 2 }; /* how often each rank has opened */

static const ls_backend *const backends[] = {&shm_backend, &tcp_backend, &hosts_backend};

enum { BACKENDS = sizeof backends / sizeof backends[0] };

static void assert_keys(ls_store *store, int64_t expected) {
    int64_t keys = 0;
    assert_ok(ls_store_count(store, &keys));
    assert_int_equal(keys, expected);
}

/* Which rank opens groups how often, in vain. */
typedef struct attempt {
    const ls_backend *backend;
    int rank, times, timeout_ms;
} attempt;

static void try_to_open(const ls_rank *rank) {
    const attempt *tried = rank->argument;
    ls_group_options options = rank_options(rank);
    options.timeout_ms = tried->timeout_ms;
    for (int i = 0; rank->rank == tried->rank && i < tried->times; i++) {
        ls_group *group = NULL;
        assert_int_equal(group_open_backend(&group, &options, tried->backend), LS_ERR_TIMEOUT);
        assert_error_says("rank 0: the ranks did not meet within 20 ms; missing: rank 1");
    }
}

static void open_together(const ls_rank *rank) {
    const attempt *tried = rank->argument;
    const ls_group_options options = rank_options(rank);
    ls_group *group = NULL;
    assert_ok(group_open_backend(&group, &options, tried->backend));
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
}

static void who_comes_late_hears_why_each_opening_failed_and_takes_it_out_of_the_store(void **state) {
    (void)state;
    for (int i = 0; i < BACKENDS; i++) {
        attempt tried = {.backend = backends[i], .rank = 0, .times = 2, .timeout_ms = 20};
        ls_store *store = NULL;
        assert_ok(ls_store_open_hash(&store));
        run_ranks_over(store, 2, try_to_open, &tried);
        tried.rank = 1;
        tried.timeout_ms = 60000;
        run_ranks_over(store, 2, try_to_open, &tried);
        assert_keys(store, COUNTERS);
        ls_store_close(&store);
    }
}

static void what_a_rank_that_died_did_not_hear_goes_with_the_next_opening(void **state) {
    (void)state;
    for (int i = 0; i < BACKENDS; i++) {
        attempt tried = {.backend = backends[i], .rank = 0, .times = 1, .timeout_ms = 20};
        ls_store *store = NULL;
        assert_ok(ls_store_open_hash(&store));
        run_ranks_over(store, 2, try_to_open, &tried);
        /* Rank 1 had begun to open, too. */
        assert_ok(ls_store_add(store, "lockstep/group/opened/1", 1, NULL));
        run_ranks_over(store, 2, open_together, &tried);
        assert_keys(store, COUNTERS);
        ls_store_close(&store);
    }
}

static ls_status open_beneath(const ls_backend *backend, ls_store *store, int rank) {
    void *opened = NULL;
    const backend_place place = {.store = store,
                                 .rank = rank,
                                 .world_size = 2,
                                 .prefix = "beneath",
                                 .timeout_ms = 5,
                                 .deadline_ns = ls_deadline_after_ms(5)};
    return backend->open(&place, &opened);
}

/* Wherever rank 1 is refused memory: rank 0 comes later, and hears of it, unless the store was refused it too. */
static void a_rank_that_cannot_even_begin_is_heard_and_leaves_nothing(void **state) {
    (void)state;
    int heard[BACKENDS] = {0};
    for (int i = 0; i < BACKENDS; i++) LS_EACH_FAULT(LS_FAULT_MEMORY) {
            ls_store *store = NULL;
            if (ls_store_open_hash(&store) != LS_OK) continue;
            open_beneath(backends[i], store, 1);
            ls_fault_disarm();
            if (open_beneath(backends[i], store, 0) == LS_ERR_MEMORY) {
                assert_error_says("rank 1: ");
                assert_keys(store, 0);
                heard[i]++;
            }
            ls_store_close(&store);
        }
    for (int i = 0; i < BACKENDS; i++) assert_true(heard[i] > 3);
}

static void the_first_that_withdraws_is_heard_until_the_last_has(void **state) {
    (void)state;
    ls_store *store = NULL;
    ls_error said;
    assert_ok(ls_store_open_hash(&store));
    assert_ok(withdrawal_read(store, "p", 1, &said));
    assert_int_equal(said.status, LS_OK);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(withdrawal_say(store, "p", 3, ls_fail(LS_ERR_IO, "rank %d says so", rank)), LS_ERR_IO);
        assert_ok(withdrawal_read(store, "p", 1, &said));
        assert_int_equal(said.status, rank < 2 ? LS_ERR_IO : LS_OK);
        if (rank < 2) assert_string_equal(said.text, "rank 0 says so");
    }
    assert_keys(store, 0);
    assert_ok(ls_store_set(store, "p/failed", "what is no error", 16));
    assert_int_equal(withdrawal_read(store, "p", 1, &said), LS_ERR_FORMAT);
    assert_error_says("store key \"p/failed\" does not hold an error");
    ls_store_close(&store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_withdraws_is_heard_until_the_last_has),
        cmocka_unit_test(who_comes_late_hears_why_each_opening_failed_and_takes_it_out_of_the_store),
        cmocka_unit_test(what_a_rank_that_died_did_not_hear_goes_with_the_next_opening),
        cmocka_unit_test(a_rank_that_cannot_even_begin_is_heard_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
