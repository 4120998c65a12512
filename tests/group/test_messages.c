/* test_messages.c: send and receive: order, tags, any source, beside collectives; who fails is named. */
#include "support/faults.h"
#include "support/threads.h"

#include "base/clock.h"
#include "base/wait.h"
#include "group/group.h"
#include "group/oracle.h"

#include <stdlib.h>
#include <time.h>

static void wait_and_close(ls_work **work) {
    assert_ok(ls_work_wait(*work, 0));
    ls_work_close(work);
}

static void exchange_sizes(const ls_rank *rank) {
    static const size_t counts[] = {0, 1, 7, 1000, 40000, 300007};
    ls_group *group = open_rank(rank);
    const int next = (rank->rank + 1) % rank->world_size,
              before = (rank->rank + rank->world_size - 1) % rank->world_size;
    int64_t *sent = malloc(300007 * sizeof *sent), *got = malloc(300007 * sizeof *got);
    for (int i = 0; i < 6; i++) {
        ls_work *works[2];
        int source = -1;
        for (size_t j = 0; j < counts[i]; j++) sent[j] = (int64_t)j * 3 + rank->rank;
        /* All ranks send first: none waits for another. */
        assert_ok(ls_group_send(group, sent, counts[i], LS_I64, next, i, &works[0]));
        assert_ok(ls_group_receive(group, got, counts[i], LS_I64, before, i, &source, &works[1]));
        assert_ok(ls_work_wait_all(works, 2, 0));
        assert_int_equal(source, before);
        for (size_t j = 0; j < counts[i]; j++) assert_int_equal(got[j], (int64_t)j * 3 + before);
        for (int j = 0; j < 2; j++) ls_work_close(&works[j]);
    }
    free(sent);
    free(got);
    ls_group_close(&group);
}

static void messages_of_any_size_go_round_a_ring(void **state) {
    (void)state;
    for (int world_size = 2; world_size <= 5; world_size++) run_ranks(world_size, exchange_sizes, NULL);
}

#define MANY 100

static void send_in_order(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int32_t values[2][MANY];
    ls_work *works[2 * MANY];
    /* Many more than a lane has room for; received by falling tag, so that the last ones sent are wanted first. */
    for (int i = 0; i < 2 * MANY; i++) {
        int32_t *value = &values[i % 2][i / 2];
        *value = i;
        if (rank->rank == 0) assert_ok(ls_group_send(group, value, 1, LS_I32, 1, i % 2, &works[i]));
    }
    for (int tag = 1; tag >= 0 && rank->rank == 1; tag--)
        for (int i = 0; i < MANY; i++) {
            int32_t got = -1;
            assert_ok(ls_group_receive(group, &got, 1, LS_I32, 0, tag, NULL, NULL));
            assert_int_equal(got, 2 * i + tag);
        }
    for (int i = 0; i < 2 * MANY && rank->rank == 0; i++) wait_and_close(&works[i]);
    ls_group_close(&group);
}

static void messages_with_one_tag_arrive_in_order_and_tags_in_any(void **state) {
    (void)state;
    run_ranks(2, send_in_order, NULL);
}

/* Nobody takes up what is posted before all of it is. */
static void send_while_another_drives(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int32_t values[MANY];
    ls_work *works[MANY];
    for (int i = 0; i < MANY && rank->rank == 0; i++) {
        if (i == 0)
            while (!group_try_drive(group)) {}
        values[i] = i;
        assert_ok(ls_group_send(group, &values[i], 1, LS_I32, 1, 0, &works[i]));
    }
    if (rank->rank == 0) group_stop_driving(group);
    for (int i = 0; i < MANY; i++) {
        int32_t got = -1;
        if (rank->rank == 0)
            wait_and_close(&works[i]);
        else
            assert_ok(ls_group_receive(group, &got, 1, LS_I32, 0, 0, NULL, NULL));
        if (rank->rank == 1) assert_int_equal(got, i);
    }
    ls_group_close(&group);
}

static void messages_posted_while_another_drives_keep_their_order(void **state) {
    (void)state;
    run_ranks(2, send_while_another_drives, NULL);
}

/* All receives are there before the first message comes, and are looked after in turn while messages come. */
static void receive_all_at_once(const ls_rank *rank) {
    const ls_group_options options = rank_options(rank);
    ls_group *group = NULL;
    assert_ok(group_open_backend(&group, &options, rank->argument));
    for (int round = 0; round < 50; round++) {
        int32_t values[MANY];
        ls_work *works[MANY];
        for (int i = 0; i < MANY; i++) {
            values[i] = rank->rank == 0 ? i : -1;
            if (rank->rank == 0)
                assert_ok(ls_group_send(group, &values[i], 1, LS_I32, 1, 3, &works[i]));
            else
                assert_ok(ls_group_receive(group, &values[i], 1, LS_I32, i % 2 ? 0 : LS_ANY_RANK, 3, NULL, &works[i]));
        }
        for (int i = 0; i < MANY; i++) {
            wait_and_close(&works[i]);
            assert_int_equal(values[i], i);
        }
    }
    ls_group_close(&group);
}

static void receives_that_wait_together_get_messages_in_the_order_of_their_calls(void **state) {
    (void)state;
    run_ranks(2, receive_all_at_once, (void *)&shm_backend);
    run_ranks(2, receive_all_at_once, (void *)&tcp_backend);
}

static void receive_from_any(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    if (rank->rank == 0) {
        int seen[4] = {0};
        for (int i = 0; i < 3 * 20; i++) {
            int64_t got = -1;
            int source = -1;
            assert_ok(ls_group_receive(group, &got, 1, LS_I64, LS_ANY_RANK, 9, &source, NULL));
            assert_in_range(source, 1, 3);
            assert_int_equal(got, source * 100 + seen[source]++);
        }
    } else {
        for (int i = 0; i < 20; i++) {
            const int64_t value = rank->rank * 100 + i;
            assert_ok(ls_group_send(group, &value, 1, LS_I64, 0, 9, NULL));
        }
    }
    ls_group_close(&group);
}

static void a_receive_from_any_rank_says_whose_it_was(void **state) {
    (void)state;
    run_ranks(4, receive_from_any, NULL);
}

/* Rank 1 comes to the collective only when it has had a message, which rank 0 sends behind the collective. */
static void pass_a_collective(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int64_t value = 1, message = 42;
    ls_work *reduce = NULL, *send = NULL;
    if (rank->rank == 0) {
        assert_ok(ls_group_all_reduce(group, &value, 1, LS_I64, LS_SUM, &reduce));
        assert_ok(ls_group_send(group, &message, 1, LS_I64, 1, 0, &send));
        wait_and_close(&reduce);
        wait_and_close(&send);
    } else {
        assert_ok(ls_group_receive(group, &message, 1, LS_I64, 0, 0, NULL, NULL));
        assert_ok(ls_group_all_reduce(group, &value, 1, LS_I64, LS_SUM, NULL));
    }
    assert_int_equal(value, 2);
    ls_group_close(&group);
}

/* And with a blocking collective, which runs on the caller's stack. */
static void pass_a_blocking_collective(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int64_t value = 1, message = 42;
    ls_work *send = NULL;
    if (rank->rank == 0) {
        assert_ok(ls_group_send(group, &message, 1, LS_I64, 1, 0, &send));
        assert_ok(ls_group_all_reduce(group, &value, 1, LS_I64, LS_SUM, NULL));
        wait_and_close(&send);
    } else {
        ls_sleep_until(ls_now_ns() + 50 * LS_NS_PER_MS);
        assert_ok(ls_group_receive(group, &message, 1, LS_I64, 0, 0, NULL, NULL));
        assert_ok(ls_group_all_reduce(group, &value, 1, LS_I64, LS_SUM, NULL));
    }
    ls_group_close(&group);
}

static void a_message_never_waits_for_a_collective(void **state) {
    (void)state;
    run_ranks(2, pass_a_collective, NULL);
    run_ranks(2, pass_a_blocking_collective, NULL);
}

static void send_without_waiting(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int64_t value = 7;
    ls_work *work = NULL;
    if (rank->rank == 0) {
        assert_ok(ls_group_send(group, &value, 1, LS_I64, 1, 0, &work));
        /* The progress thread sends it: this rank is in no call of ours. */
        assert_ok(ls_store_wait(rank->store, "got it", 60000));
        wait_and_close(&work);
    } else {
        assert_ok(ls_group_receive(group, &value, 1, LS_I64, 0, 0, NULL, NULL));
        assert_ok(ls_store_set(rank->store, "got it", "", 0));
    }
    ls_group_close(&group);
}

static void a_message_goes_while_its_sender_computes(void **state) {
    (void)state;
    run_ranks(2, send_without_waiting, NULL);
}

static void receive_another_type(const ls_rank *rank) {
    const bool is_of_type = *(const bool *)rank->argument;
    ls_group *group = open_rank(rank);
    float values[4] = {0};
    const ls_status status =
        rank->rank == 0 ? ls_group_send(group, values, is_of_type ? 4 : 3, is_of_type ? LS_I32 : LS_F32, 1, -5, NULL)
                        : ls_group_receive(group, values, 4, LS_F32, 0, -5, NULL, NULL);
    assert_int_equal(status, LS_ERR_MISMATCH);
    assert_error_says(is_of_type ? "rank 0 called send of 4 i32 to rank 1 with tag -5, rank 1 receive of 4 f32"
                                 : "rank 0 called send of 3 f32 to rank 1 with tag -5, rank 1 receive of 4 f32");
    assert_error_says("from rank 0 with tag -5");
    ls_group_close(&group);
}

static void a_differing_count_or_type_names_both_calls(void **state) {
    (void)state;
    for (int is_of_type = 0; is_of_type < 2; is_of_type++) {
        bool of_type = is_of_type;
        run_ranks(2, receive_another_type, &of_type);
    }
}

/* Rank 1 looks at nothing until rank 0 has offered all that it may. */
static void send_more_than_may_be_offered(const ls_rank *rank) {
    enum { OFFERED = 40 };
    ls_group *group = open_rank(rank);
    int64_t values[OFFERED];
    ls_work *works[OFFERED];
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 1) assert_ok(ls_store_wait(rank->store, "offered", 60000));
    for (int i = 0; i < OFFERED; i++) {
        values[i] = rank->rank == 0 ? i : -1;
        assert_ok(rank->rank == 0 ? ls_group_send(group, &values[i], 1, LS_I64, 1, i, &works[i])
                                  : ls_group_receive(group, &values[i], 1, LS_I64, 0, i, NULL, &works[i]));
    }
    if (rank->rank == 0) {
        assert_int_equal(ls_work_wait(works[0], 50), LS_ERR_TIMEOUT);
        assert_ok(ls_store_set(rank->store, "offered", "", 0));
    }
    assert_ok(ls_work_wait_all(works, OFFERED, 0));
    for (int i = 0; i < OFFERED; i++) {
        assert_int_equal(values[i], i);
        ls_work_close(&works[i]);
    }
    ls_group_close(&group);
}

static void more_messages_than_may_be_offered_arrive(void **state) {
    (void)state;
    run_ranks(2, send_more_than_may_be_offered, NULL);
}

/* Rank 1 leaves; rank 2, if there is one, is there and sends nothing. */
static void wait_for_who_left(const ls_rank *rank) {
    const int from = *(const int *)rank->argument;
    ls_group *group = open_rank(rank);
    int64_t value = 0, other = 0;
    ls_work *earlier = NULL;
    if (rank->rank == 0) {
        if (rank->world_size > 2) assert_ok(ls_group_receive(group, &other, 1, LS_I64, 2, 3, NULL, &earlier));
        assert_int_equal(ls_group_receive(group, &value, 1, LS_I64, from, 3, NULL, NULL), LS_ERR_PEER_LOST);
        assert_error_says("left the group before it had done its part of receive of 1 i64 from ");
        assert_ok(ls_store_set(rank->store, "rank 0 knows", "", 0));
        ls_work_close(&earlier);
    }
    if (rank->rank == 2) assert_ok(ls_store_wait(rank->store, "rank 0 knows", 60000));
    ls_group_close(&group);
}

static void a_rank_that_leaves_ends_the_wait_for_its_message(void **state) {
    (void)state;
    for (int from = LS_ANY_RANK; from < 2; from += 2) run_ranks(2, wait_for_who_left, &from);
    run_ranks(3, wait_for_who_left, &(int){1});
}

/* Rank 2 leaves: the message may still come from rank 1. */
static void wait_for_who_is_left(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int64_t value = rank->rank;
    int source = -1;
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 0) {
        assert_ok(ls_group_receive(group, &value, 1, LS_I64, LS_ANY_RANK, 3, &source, NULL));
        assert_int_equal(source, 1);
        assert_int_equal(value, 1);
    } else if (rank->rank == 1) {
        assert_ok(ls_store_wait(rank->store, "rank 2 left", 60000));
        ls_sleep_until(ls_now_ns() + 100 * LS_NS_PER_MS); /* while rank 0 looks who is there */
        assert_ok(ls_group_send(group, &value, 1, LS_I64, 0, 3, NULL));
    }
    ls_group_close(&group);
    if (rank->rank == 2) assert_ok(ls_store_set(rank->store, "rank 2 left", "", 0));
}

static void a_receive_from_any_rank_waits_for_those_that_are_left(void **state) {
    (void)state;
    run_ranks(3, wait_for_who_is_left, NULL);
}

/* Rank 1, which has asked for the message, looks whether rank 0 is there: just then rank 0 sends it and leaves. */
static const struct backend_points {
    const ls_backend *backend;
    const char *offered, *granted;
} points[] = {{&shm_backend, "shm.message.offered", "shm.message.granted"},
              {&tcp_backend, "tcp.message.offered", "tcp.message.granted"}};
static const struct backend_points *over;
static ls_store *meeting_place;

static ls_status examine_late(void *state, backend_op *op) {
    if (kind_is_message(op->call.kind) && ls_point_hits(over->granted) > 0) {
        assert_ok(ls_store_set(meeting_place, "looks", "", 0));
        assert_ok(ls_store_wait(meeting_place, "left", 60000));
    }
    return over->backend->examine(state, op);
}

static void await_look(void *store) {
    assert_ok(ls_store_wait(store, "looks", 60000));
}

static void send_and_leave(const ls_rank *rank) {
    ls_backend late = *over->backend;
    ls_group *group = NULL;
    const ls_group_options options = rank_options(rank);
    int64_t value = rank->rank == 0 ? 42 : 0;
    if (rank->rank == 1) {
        late.examine = examine_late;
        meeting_place = rank->store;
    }
    assert_ok(group_open_backend(&group, &options, &late));
    if (rank->rank == 0) ls_at_point(over->offered, 0, 1, await_look, rank->store);
    assert_ok(rank->rank == 0 ? ls_group_send(group, &value, 1, LS_I64, 1, 0, NULL)
                              : ls_group_receive(group, &value, 1, LS_I64, 0, 0, NULL, NULL));
    assert_int_equal(value, 42);
    ls_group_close(&group);
    if (rank->rank == 0) assert_ok(ls_store_set(rank->store, "left", "", 0));
}

static void what_is_sent_while_its_receiver_looks_for_the_sender_arrives(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        over = &points[i];
        ls_points_watch();
        run_ranks(2, send_and_leave, NULL);
    }
    ls_at_point(NULL, -1, 0, NULL, NULL);
}

/* Posted and not waited for: the receiver asks for both only when the sender is closing. */
static void post_and_close(const ls_rank *rank) {
    enum { LARGE = 300000 };
    const ls_group_options options = rank_options(rank);
    ls_group *group = NULL;
    int64_t value = rank->rank == 0 ? 42 : 0, *large = calloc(LARGE, sizeof *large);
    ls_work *works[2] = {NULL};
    assert_ok(group_open_backend(&group, &options, over->backend));
    if (rank->rank == 0) {
        large[LARGE - 1] = 43;
        assert_ok(ls_group_send(group, &value, 1, LS_I64, 1, 0, &works[0]));
        assert_ok(ls_group_send(group, large, LARGE, LS_I64, 1, 1, &works[1]));
        assert_ok(ls_store_set(rank->store, "closes", "", 0));
    } else {
        assert_ok(ls_store_wait(rank->store, "closes", 60000));
        ls_sleep_until(ls_now_ns() + 50 * LS_NS_PER_MS);
        assert_ok(ls_group_receive(group, large, LARGE, LS_I64, 0, 1, NULL, NULL));
        assert_ok(ls_group_receive(group, &value, 1, LS_I64, 0, 0, NULL, NULL));
    }
    ls_group_close(&group);
    for (int i = 0; i < 2 && rank->rank == 0; i++) wait_and_close(&works[i]);
    assert_int_equal(value, 42);
    assert_int_equal(large[LARGE - 1], 43);
    free(large);
}

static void what_is_sent_arrives_though_its_sender_closes_the_group(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        over = &points[i];
        run_ranks(2, post_and_close, NULL);
    }
}

static void wait_in_vain(void *argument) {
    ls_group *group = argument;
    int64_t value = 0;
    assert_int_equal(ls_group_receive(group, &value, 1, LS_I64, 1 - ls_group_rank(group), 0, NULL, NULL),
                     LS_ERR_ABORTED);
}

/* A second is far more than closing takes, and less than what is sent has. */
static void close_beside_a_receive(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    ls_thread thread = {0};
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 0) {
        assert_ok(ls_thread_start(&thread, "receives", wait_in_vain, group));
        while (!group_has_mail(group)) ls_yield();
        ls_sleep_until(ls_now_ns() + 20 * LS_NS_PER_MS);
        const int64_t start_ns = ls_now_ns();
        ls_group_close(&group);
        assert_true(ls_now_ns() - start_ns < LS_NS_PER_S);
        ls_thread_join(&thread);
        assert_ok(ls_store_set(rank->store, "closed", "", 0));
    } else {
        assert_ok(ls_store_wait(rank->store, "closed", 60000));
        ls_group_close(&group);
    }
}

static void closing_does_not_wait_for_what_is_to_be_received(void **state) {
    (void)state;
    run_ranks(2, close_beside_a_receive, NULL);
}

/* Nobody has taken it up when the group is lost. */
static void lose_what_is_posted(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int64_t value = 0;
    ls_work *work = NULL;
    if (rank->rank == 0) {
        while (!group_try_drive(group)) {}
        assert_ok(ls_group_send(group, &value, 1, LS_I64, 1, 3, &work));
        ls_group_abort(group, "enough");
        group_stop_driving(group);
        assert_int_equal(ls_work_wait(work, 0), LS_ERR_ABORTED);
        ls_work_close(&work);
    }
    ls_group_close(&group);
}

static void a_lost_group_ends_a_message_that_was_only_posted(void **state) {
    (void)state;
    run_ranks(2, lose_what_is_posted, NULL);
}

static void wait_too_long(const ls_rank *rank) {
    ls_group *group = NULL;
    ls_group_options options = rank_options(rank);
    options.timeout_ms = 200;
    assert_ok(ls_group_open(&group, &options));
    int64_t value = 0;
    if (rank->rank == 0) {
        assert_int_equal(ls_group_send(group, &value, 1, LS_I64, 1, 3, NULL), LS_ERR_ABORTED);
        assert_error_says("send of 1 i64 to rank 1 with tag 3, was not complete within 200 ms; missing: rank 1");
        assert_ok(ls_store_set(rank->store, "over", "", 0));
    } else {
        assert_ok(ls_store_wait(rank->store, "over", 60000));
    }
    ls_group_close(&group);
}

static void the_limit_ends_a_message_that_nobody_wants(void **state) {
    (void)state;
    run_ranks(2, wait_too_long, NULL);
}

static void refuse_peers(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int64_t value = 0;
    ls_work stale, *work = &stale;
    assert_int_equal(ls_group_send(group, &value, 1, LS_I64, rank->rank, 0, &work), LS_ERR_ARGUMENT);
    assert_error_says("a message is between two ranks of a group");
    assert_null(work);
    assert_int_equal(ls_group_send(group, &value, 1, LS_I64, LS_ANY_RANK, 0, &work), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_receive(group, &value, 1, LS_I64, rank->world_size, 0, NULL, &work), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_receive(group, NULL, 1, LS_I64, LS_ANY_RANK, 0, NULL, &work), LS_ERR_ARGUMENT);
    ls_group_close(&group);
}

static void a_message_to_nobody_is_refused(void **state) {
    (void)state;
    for (int world_size = 1; world_size <= 2; world_size++) run_ranks(world_size, refuse_peers, NULL);
}

/* --- at random --------------------------------------------------------------------------------------------------------- */

enum { PER_PEER = 4, MOST_ELEMENTS = 20000, MOST_MESSAGES = 2 * 4 * PER_PEER };

typedef struct parcel {
    uint64_t first; /* element j is first + j */
    size_t count;
    bool is_sent;
    int32_t *data;
    ls_work *work;
} parcel;

/* Message `which` of this rank in a round: a peer, a tag, and whether we send it or receive it. */
static void post_parcel(const ls_rank *rank, ls_group *group, uint64_t seed, int which, parcel *at) {
    const int peer = which / 2 / PER_PEER, tag = which / 2 % PER_PEER;
    const int from = which % 2 ? rank->rank : peer, to = which % 2 ? peer : rank->rank;
    *at = (parcel){.first = mix(seed ^ (uint64_t)((from * 8 + to) * 8 + tag)), .is_sent = which % 2};
    if (peer == rank->rank) return;
    at->count = at->first % 3 ? at->first % 50 : at->first % MOST_ELEMENTS;
    at->data = calloc(at->count + 1, sizeof *at->data);
    for (size_t i = 0; i < at->count && at->is_sent; i++) at->data[i] = (int32_t)(at->first + i);
    if (at->is_sent)
        assert_ok(ls_group_send(group, at->data, at->count, LS_I32, to, tag, &at->work));
    else
        assert_ok(ls_group_receive(group, at->data, at->count, LS_I32, from, tag, NULL, &at->work));
}

/* Every pair, both ways, posted in an order of each rank's own, with a collective in the middle. */
static void send_at_random(const ls_rank *rank) {
    const uint64_t seed = *(const uint64_t *)rank->argument;
    const int total = 2 * rank->world_size * PER_PEER;
    ls_group *group = open_rank(rank);
    for (uint64_t round = 0; round < 40; round++) {
        parcel parcels[MOST_MESSAGES];
        int32_t value = 1;
        ls_work *reduce = NULL;
        const int first = (int)(mix(seed + round * 8 + (uint64_t)rank->rank) % (uint64_t)total);
        for (int i = 0; i < total; i++) {
            post_parcel(rank, group, seed + round * 1000, (first + 7 * i) % total, &parcels[i]);
            if (i == total / 2) assert_ok(ls_group_all_reduce(group, &value, 1, LS_I32, LS_SUM, &reduce));
        }
        wait_and_close(&reduce);
        assert_int_equal(value, rank->world_size);
        for (int i = 0; i < total; i++) {
            if (!parcels[i].work) continue;
            wait_and_close(&parcels[i].work);
            for (size_t j = 0; j < parcels[i].count; j++)
                assert_int_equal(parcels[i].data[j], (int32_t)(parcels[i].first + j));
            free(parcels[i].data);
        }
    }
    ls_group_close(&group);
}

static void random_messages_between_all_pairs_arrive(void **state) {
    (void)state;
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int world_size = 2; world_size <= 4; world_size++) run_ranks(world_size, send_at_random, &seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_any_size_go_round_a_ring),
        cmocka_unit_test(messages_with_one_tag_arrive_in_order_and_tags_in_any),
        cmocka_unit_test(messages_posted_while_another_drives_keep_their_order),
        cmocka_unit_test(receives_that_wait_together_get_messages_in_the_order_of_their_calls),
        cmocka_unit_test(a_receive_from_any_rank_says_whose_it_was),
        cmocka_unit_test(a_message_never_waits_for_a_collective),
        cmocka_unit_test(a_message_goes_while_its_sender_computes),
        cmocka_unit_test(a_differing_count_or_type_names_both_calls),
        cmocka_unit_test(more_messages_than_may_be_offered_arrive),
        cmocka_unit_test(a_rank_that_leaves_ends_the_wait_for_its_message),
        cmocka_unit_test(a_receive_from_any_rank_waits_for_those_that_are_left),
        cmocka_unit_test(what_is_sent_while_its_receiver_looks_for_the_sender_arrives),
        cmocka_unit_test(what_is_sent_arrives_though_its_sender_closes_the_group),
        cmocka_unit_test(closing_does_not_wait_for_what_is_to_be_received),
        cmocka_unit_test(a_lost_group_ends_a_message_that_was_only_posted),
        cmocka_unit_test(the_limit_ends_a_message_that_nobody_wants),
        cmocka_unit_test(a_message_to_nobody_is_refused),
        cmocka_unit_test(random_messages_between_all_pairs_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
