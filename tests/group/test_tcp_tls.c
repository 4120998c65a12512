/* test_tcp_tls.c: groups over tcp whose connections are enciphered. */
#include "group/tcp_relay.h"
#include "support/faults.h"

static int want_tls(void **state) {
    (void)state;
    return setenv("LOCKSTEP_TLS", "1", 1);
}

static int want_nothing(void **state) {
    (void)state;
    return unsetenv("LOCKSTEP_TLS");
}

/* --- what it carries -------------------------------------------------------------------------------------------------- */

static void sum_and_send(const ls_rank *rank) {
    static const size_t counts[] = {1, 1000, 300001};
    ls_group *group = open_tcp(rank);
    const int next = (rank->rank + 1) % rank->world_size,
              before = (rank->rank + rank->world_size - 1) % rank->world_size;
    int64_t *data = malloc(300001 * sizeof *data), *got = malloc(300001 * sizeof *got);
    for (int i = 0; i < 3; i++) {
        ls_work *works[2];
        for (size_t j = 0; j < counts[i]; j++) data[j] = (int64_t)j + rank->rank;
        assert_ok(ls_group_send(group, data, counts[i], LS_I64, next, 0, &works[0]));
        assert_ok(ls_group_receive(group, got, counts[i], LS_I64, before, 0, NULL, &works[1]));
        assert_ok(ls_work_wait_all(works, 2, 0));
        for (int j = 0; j < 2; j++) ls_work_close(&works[j]);
        for (size_t j = 0; j < counts[i]; j++) assert_int_equal(got[j], (int64_t)j + before);
        assert_ok(ls_group_all_reduce(group, data, counts[i], LS_I64, LS_MAX, NULL));
        for (size_t j = 0; j < counts[i]; j++) assert_int_equal(data[j], (int64_t)j + rank->world_size - 1);
    }
    free(data);
    free(got);
    ls_group_close(&group);
}

static void sums_and_messages_go_over_tls(void **state) {
    (void)state;
    for (int world_size = 2; world_size <= 4; world_size++) run_ranks(world_size, sum_and_send, NULL);
}

/* Past the records that one key serves. */
static void move_much(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    const size_t count = (size_t)12 << 20;
    int32_t *data = malloc(count * sizeof *data);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < count && rank->rank == 0; i++) data[i] = (int32_t)i + round;
        assert_ok(ls_group_broadcast(group, data, count, LS_I32, 0, NULL));
        for (size_t i = 0; i < count; i += 1001) assert_int_equal(data[i], (int32_t)i + round);
    }
    free(data);
    ls_group_close(&group);
}

static void keys_change_on_the_way(void **state) {
    (void)state;
    run_ranks(2, move_much, NULL);
}

static void leave_alone(const ls_rank *rank) {
    ls_group *group = open_tcp(rank);
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 0) {
        assert_int_equal(ls_group_barrier(group, NULL), LS_ERR_PEER_LOST);
        assert_error_says("rank 1 (");
        assert_error_says("left the group");
    }
    ls_group_close(&group);
}

static void who_leaves_is_named_over_tls(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) run_ranks(2, leave_alone, NULL);
}

static void use_shortly(const ls_rank *rank) {
    ls_group *group = NULL;
    if (try_open_tcp(rank, 200, &group) == LS_OK) ls_group_barrier(group, NULL);
    ls_group_close(&group);
}

static void refused_memory_leaves_nothing(void **state) {
    (void)state;
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        ls_store *store = NULL;
        if (ls_store_open_hash(&store) != LS_OK) continue;
        run_ranks_over(store, 2, use_shortly, NULL);
        ls_store_close(&store);
    }
    assert_nothing_left();
}

/* --- what others see -------------------------------------------------------------------------------------------------- */

#define SAYING "nobody but the ranks of this job should read this"

static void speak(const ls_rank *rank) {
    relay *self = rank->argument;
    if (rank->rank == 1) relay_start(self, rank->store);
    ls_group *group = open_tcp(rank);
    char text[sizeof SAYING] = "";
    if (rank->rank == 0) memcpy(text, SAYING, sizeof text);
    assert_ok(ls_group_broadcast(group, text, sizeof text, LS_U8, 0, NULL));
    assert_string_equal(text, SAYING);
    if (rank->rank == 0)
        assert_ok(ls_group_send(group, text, sizeof text, LS_U8, 1, 0, NULL));
    else
        assert_ok(ls_group_receive(group, text, sizeof text, LS_U8, 0, 0, NULL, NULL));
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 0) assert_ok(ls_store_set(rank->store, "all is said", "", 0));
    ls_group_close(&group);
    if (rank->rank != 1) return;
    assert_ok(ls_store_wait(rank->store, "all is said", 60000));
    relay_stop(self);
}

static void who_listens_on_the_way_reads_nothing(void **state) {
    (void)state;
    relay self = {.saying = SAYING};
    run_ranks(2, speak, &self);
    assert_int_equal(self.sayings, 0);
    for (int i = 0; i < TCP_CHANNELS; i++) assert_true(self.bytes[i] > 250);
}

static void without_it_who_listens_on_the_way_reads_all(void **state) {
    (void)state;
    relay self = {.saying = SAYING};
    run_ranks(2, speak, &self);
    assert_int_equal(self.sayings, 2);
}

/* Rank 1's card says that it does without. */
static void want_it_alone(const ls_rank *rank) {
    ls_group *group = NULL;
    if (rank->rank == 1) {
        tcp_card card = read_card(rank->store);
        card.wants_tls = 0;
        assert_ok(ls_store_set(rank->store, PREFIX "/card0/1", &card, sizeof card));
        return;
    }
    assert_int_equal(try_open_tcp(rank, 10000, &group), LS_ERR_ENVIRONMENT);
    assert_error_says("rank 0 wants TLS, rank 1 does not: LOCKSTEP_TLS has to be the same");
}

static void ranks_that_differ_about_it_say_so(void **state) {
    (void)state;
    run_ranks(2, want_it_alone, NULL);
}

/* Over a store that others can read, without a file that holds a secret. */
static void want_it_without_a_secret(const ls_rank *rank) {
    ls_group *group = NULL;
    assert_int_equal(try_open_tcp(rank, 60000, &group), LS_ERR_ENVIRONMENT);
    assert_null(group);
    assert_error_says("LOCKSTEP_TLS=1, but the job has no secret to make keys of: give all ranks the same file by "
                      "LOCKSTEP_SECRET_FILE");
}

static void without_a_secret_there_is_no_tls(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-tls-XXXXXX";
    const int file = mkstemp(path);
    ls_store *store = NULL;
    assert_true(file >= 0);
    close(file);
    unlink(path);
    unsetenv("LOCKSTEP_SECRET_FILE");
    assert_ok(ls_store_open_file(&store, path));
    run_ranks_over(store, 2, want_it_without_a_secret, NULL);
    ls_store_close(&store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sums_and_messages_go_over_tls, want_tls, want_nothing),
        cmocka_unit_test_setup_teardown(keys_change_on_the_way, want_tls, want_nothing),
        cmocka_unit_test_setup_teardown(who_leaves_is_named_over_tls, want_tls, want_nothing),
        cmocka_unit_test_setup_teardown(refused_memory_leaves_nothing, want_tls, want_nothing),
        cmocka_unit_test_setup_teardown(who_listens_on_the_way_reads_nothing, want_tls, want_nothing),
        cmocka_unit_test(without_it_who_listens_on_the_way_reads_all),
        cmocka_unit_test_setup_teardown(without_a_secret_there_is_no_tls, want_tls, want_nothing),
        cmocka_unit_test_setup_teardown(ranks_that_differ_about_it_say_so, want_tls, want_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
