/* test_async.c: asynchronous operations: they go on while the rank computes, end though nobody waits, keep their order
 * whoever posts, and no legal order of calls on several groups hangs. */
#include "support/threads.h"

#include "base/clock.h"
#include "base/wait.h"
#include "group/group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* --- progress --------------------------------------------------------------------------------------------------------- */

static void post_and_sleep(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    float value = 1;
    ls_work *work = NULL;
    if (rank->rank == 1) ls_sleep_until(ls_now_ns() + 50 * LS_NS_PER_MS);
    assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, &work));
    /* No call of ours for a while: it has ended long before the first one. */
    const int64_t first_call_ns = ls_now_ns() + 500 * LS_NS_PER_MS;
    ls_sleep_until(first_call_ns);
    int64_t start_ns = 0, end_ns = 0;
    assert_true(ls_work_is_complete(work));
    work_times(work, &start_ns, &end_ns);
    assert_true(end_ns < first_call_ns);
    assert_true(value == (float)rank->world_size);
    ls_work_close(&work);
    ls_group_close(&group);
}

static void work_ends_though_nobody_waits(void **state) {
    (void)state;
    run_ranks(3, post_and_sleep, NULL);
}

/* A rank's steps are short, and each ends with a wait that finds work to do: the next is taken up in time all the same, where
 * a processor is to spare (here it is the sleeper's). Half of some ten in a row: a busy machine takes its time now and then. */
static void take_short_steps(const ls_rank *rank) {
    enum { in_a_row = 500, steps = 100, run = 10, step_ns = 3 * LS_NS_PER_MS, count = 1 << 12 };
    ls_group *group = open_rank(rank);
    float *data = calloc(count, sizeof *data);
    int complete = 0, most = 0;
    group->progress_may_spin = true;
    for (int i = -in_a_row; i < steps; i++) {
        ls_work *work = NULL;
        assert_ok(ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, &work)); /* more than its post does */
        if (i % run == 0) complete = 0;
        if (i >= 0) {
            ls_sleep_until(ls_now_ns() + step_ns);
            complete += ls_work_is_complete(work);
        }
        if (complete > most) most = complete;
        assert_ok(ls_work_wait(work, 0));
        ls_work_close(&work);
        /* What a step ends with: the wait drives. */
        assert_ok(ls_group_barrier(group, NULL));
    }
    assert_in_range(most, run / 2, run);
    free(data);
    ls_group_close(&group);
}

static void short_steps_are_overlapped_where_a_processor_is_to_spare(void **state) {
    (void)state;
    run_ranks(2, take_short_steps, NULL);
}

/* Between two steps a rank computes for longer than the progress thread's shortest looks, and for less than it waits idle: a step
 * that a busy machine made longer than that does not count. */
static void wait_for_what_it_posts(const ls_rank *rank) {
    enum { steps = 100, compute_ns = 700 * 1000, idle_ns = LS_NS_PER_MS, count = 1 << 14 };
    ls_group *group = open_rank(rank);
    float *data = calloc(count, sizeof *data);
    uint32_t woken = 0;
    for (int i = 0; i < steps; i++) {
        const int64_t start_ns = ls_now_ns();
        while (ls_now_ns() < start_ns + compute_ns) {}
        const uint32_t before = atomic_load(&group->posted);
        ls_work *work = NULL;
        assert_ok(ls_group_all_reduce(group, data, count, LS_F32, LS_SUM, &work)); /* more than its post does */
        if (ls_now_ns() < start_ns + idle_ns) woken += atomic_load(&group->posted) - before;
        assert_ok(ls_work_wait(work, 0));
        ls_work_close(&work);
    }
    assert_in_range(woken, 0, steps / 4);
    free(data);
    ls_group_close(&group);
}

/* Waking a thread at each post costs as much as many an operation. */
static void who_waits_for_what_it_posts_wakes_nobody(void **state) {
    (void)state;
    run_ranks(2, wait_for_what_it_posts, NULL);
}

static void post_and_poll(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    float *data = calloc(1 << 18, sizeof *data);
    ls_work *work = NULL;
    data[5] = 1;
    assert_ok(ls_group_all_reduce(group, data, 1 << 18, LS_F32, LS_SUM, &work));
    while (!ls_work_is_complete(work)) {}
    assert_true(data[5] == 2);
    ls_work_close(&work);
    ls_work_close(&work); /* NULL is harmless */
    free(data);
    ls_group_close(&group);
}

static void polling_is_enough(void **state) {
    (void)state;
    run_ranks(2, post_and_poll, NULL);
}

/* --- order ------------------------------------------------------------------------------------------------------------ */

#define QUEUED 200

static void post_many(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    int64_t values[QUEUED];
    ls_work *works[QUEUED];
    void *shared = NULL;
    assert_ok(ls_group_alloc(group, 1 << 18, &shared));
    memset(shared, 0, 1 << 18);
    for (int i = 0; i < QUEUED; i++) {
        values[i] = i;
        /* Small ones in between large ones, blocking ones behind what is queued. */
        works[i] = NULL;
        if (i % 10 == 3)
            assert_ok(ls_group_all_reduce(group, shared, 1 << 16, LS_F32, LS_SUM, &works[i]));
        else
            assert_ok(ls_group_all_reduce(group, &values[i], 1, LS_I64, LS_SUM, i % 10 == 7 ? NULL : &works[i]));
    }
    for (int i = QUEUED - 1; i >= 0; i--) {
        if (works[i]) assert_ok(ls_work_wait(works[i], 0));
        ls_work_close(&works[i]);
        if (i % 10 != 3) assert_int_equal(values[i], i * rank->world_size);
    }
    ls_group_close(&group);
}

static void operations_run_in_the_order_of_posting(void **state) {
    (void)state;
    for (int world_size = 2; world_size <= 4; world_size++) run_ranks(world_size, post_many, NULL);
}

typedef struct posting {
    ls_group *group;
    int wait_first; /* whether the thread waits for each call, or for all at the end */
} posting;

static void *post_barriers(void *argument) {
    const posting *ours = argument;
    ls_work *works[50];
    for (int i = 0; i < 50; i++) assert_ok(ls_group_barrier(ours->group, ours->wait_first ? NULL : &works[i]));
    for (int i = 0; i < 50 && !ours->wait_first; i++) {
        assert_ok(ls_work_wait(works[i], 0));
        ls_work_close(&works[i]);
    }
    return NULL;
}

/* Four threads of each rank post at once, some blocking. All calls are alike, so any order is the same order. */
static void post_from_threads(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    pthread_t threads[4];
    posting postings[4];
    for (int i = 0; i < 4; i++) {
        postings[i] = (posting){.group = group, .wait_first = i % 2};
        assert_int_equal(pthread_create(&threads[i], NULL, post_barriers, &postings[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    ls_group_close(&group);
}

static void any_thread_posts(void **state) {
    (void)state;
    run_ranks(2, post_from_threads, NULL);
}

/* Rank 0 waits for A's work first, rank 1 for B's, though each posted both; then blocking calls cross asynchronous ones. */
static void wait_crosswise(const ls_rank *rank) {
    ls_group *groups[2] = {open_rank(rank), NULL};
    assert_ok(ls_group_duplicate(&groups[1], groups[0]));
    const int first = rank->rank;
    for (int round = 0; round < 200; round++) {
        float values[2] = {1, 2};
        ls_work *works[2];
        for (int i = 0; i < 2; i++) {
            const int g = (first + i) % 2;
            assert_ok(ls_group_all_reduce(groups[g], &values[g], 1, LS_F32, LS_SUM, &works[g]));
        }
        assert_ok(ls_work_wait(works[first], 0));
        assert_ok(ls_work_wait(works[1 - first], 0));
        for (int i = 0; i < 2; i++) ls_work_close(&works[i]);
        assert_true(values[0] == 2 && values[1] == 4);
        /* Rank 0: A in the background, B blocks. Rank 1: B in the background, A blocks. */
        ls_work *background = NULL;
        assert_ok(ls_group_barrier(groups[first], &background));
        assert_ok(ls_group_barrier(groups[1 - first], NULL));
        assert_ok(ls_work_wait(background, 0));
        ls_work_close(&background);
    }
    ls_group_close(&groups[0]);
    assert_ok(ls_group_barrier(groups[1], NULL)); /* a duplicate outlives the group it was made of */
    ls_group_close(&groups[1]);
}

static void groups_may_be_used_in_different_orders(void **state) {
    (void)state;
    run_ranks(2, wait_crosswise, NULL);
}

/* The same over a backend without a progress thread: nothing moves but in calls, and what each rank waits for needs the other
 * to go on with what it does not wait for. */
#define SEVERAL_STAGES ((size_t)1 << 18)

static backend_drivers callers_alone(const void *state) {
    (void)state;
    return DRIVEN_BY_CALLERS;
}

static void wait_crosswise_alone(const ls_rank *rank) {
    ls_backend alone = shm_backend;
    alone.drivers = callers_alone;
    ls_group *groups[2] = {NULL, NULL};
    ls_group_options options = rank_options(rank);
    options.timeout_ms = 20000;
    assert_ok(group_open_backend(&groups[0], &options, &alone));
    assert_ok(ls_group_duplicate(&groups[1], groups[0]));
    float *data[2];
    ls_work *works[2];
    for (int i = 0; i < 2; i++) data[i] = calloc(SEVERAL_STAGES, sizeof(float));
    for (int i = 0; i < 2; i++) data[i][SEVERAL_STAGES - 1] = (float)(i + 1);
    for (int i = 0; i < 2; i++)
        assert_ok(ls_group_all_reduce(groups[i], data[i], SEVERAL_STAGES, LS_F32, LS_SUM, &works[i]));
    for (int i = 0; i < 2; i++) assert_ok(ls_work_wait(works[(rank->rank + i) % 2], 0));
    for (int i = 0; i < 2; i++) {
        assert_true(data[i][SEVERAL_STAGES - 1] == (float)(2 * (i + 1)));
        ls_work_close(&works[i]);
        ls_group_close(&groups[i]);
        free(data[i]);
    }
}

static void groups_may_be_waited_for_in_different_orders_without_a_progress_thread(void **state) {
    (void)state;
    run_ranks(2, wait_crosswise_alone, NULL);
}

/* No thread of ours moves them, and nobody waits. */
static void only_look_at_work(const ls_rank *rank) {
    ls_backend alone = shm_backend;
    alone.drivers = callers_alone;
    ls_group *group = NULL;
    ls_group_options options = rank_options(rank);
    ls_work *work = NULL;
    float *data = calloc(SEVERAL_STAGES, sizeof *data);
    const int64_t end_ns = ls_now_ns() + 20 * LS_NS_PER_S; /* for hangs */
    assert_ok(group_open_backend(&group, &options, &alone));
    for (int looks = 0; looks < 2; looks++) {
        data[SEVERAL_STAGES - 1] = 1;
        assert_ok(ls_group_all_reduce(group, data, SEVERAL_STAGES, LS_F32, LS_SUM, &work));
        if (looks)
            while (!ls_work_is_complete(work)) assert_true(ls_now_ns() < end_ns);
        else /* looks, and does not drive */
            for (; !work_is_complete(work); ls_group_progress(group)) assert_true(ls_now_ns() < end_ns);
        assert_true(data[SEVERAL_STAGES - 1] == 2);
        ls_work_close(&work);
    }
    ls_group_close(&group);
    free(data);
}

static void who_looks_at_work_or_makes_progress_carries_it_on(void **state) {
    (void)state;
    run_ranks(2, only_look_at_work, NULL);
}

/* However many they are: rank 1 waits for the first before it posts to the others, rank 0 for the last. */
#define MANY 20

static void wait_among_many(const ls_rank *rank) {
    ls_backend alone = shm_backend;
    alone.drivers = callers_alone;
    ls_group *groups[MANY] = {NULL};
    ls_work *works[MANY] = {NULL};
    ls_group_options options = rank_options(rank);
    options.timeout_ms = 20000;
    float *data = calloc(SEVERAL_STAGES, sizeof *data);
    assert_ok(group_open_backend(&groups[0], &options, &alone));
    for (int i = 1; i < MANY; i++) assert_ok(ls_group_duplicate(&groups[i], groups[0]));
    assert_ok(ls_group_all_reduce(groups[0], data, SEVERAL_STAGES, LS_F32, LS_SUM, &works[0]));
    if (rank->rank == 1) assert_ok(ls_work_wait(works[0], 0));
    for (int i = 1; i < MANY; i++) assert_ok(ls_group_barrier(groups[i], &works[i]));
    for (int i = MANY - 1; i >= 0; i--) {
        assert_ok(ls_work_wait(works[i], 0));
        ls_work_close(&works[i]);
        ls_group_close(&groups[i]);
    }
    free(data);
}

static void of_many_groups_each_goes_on_while_another_is_waited_for(void **state) {
    (void)state;
    run_ranks(2, wait_among_many, NULL);
}

/* --- a backend of the test's own: overlap ----------------------------------------------------------------------------- */

#define SLOW_NS (50 * LS_NS_PER_MS)

/* The shm backend, but no operation ends before 50 ms are over. */
static backend_progress slow_poll(void *state, backend_op *op) {
    if (op->start_ns == 0) op->start_ns = ls_now_ns();
    if (ls_now_ns() - op->start_ns < SLOW_NS) return BACKEND_PENDING;
    return shm_backend.poll(state, op);
}

static backend_progress slow_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns) {
    (void)bell;
    (void)deadline_ns;
    ls_sleep_until(ls_now_ns() + LS_NS_PER_MS);
    return slow_poll(state, op);
}

static void compute_meanwhile(const ls_rank *rank) {
    ls_backend slow = shm_backend;
    slow.poll = slow_poll;
    slow.sleep = slow_sleep;
    ls_group *group = NULL;
    const ls_group_options options = rank_options(rank);
    assert_ok(group_open_backend(&group, &options, &slow));
    float values[3] = {1, 1, 1};
    ls_work *works[3];
    const int64_t begin_ns = ls_now_ns();
    for (int i = 0; i < 3; i++) assert_ok(ls_group_all_reduce(group, &values[i], 1, LS_F32, LS_SUM, &works[i]));
    const int64_t posted_ns = ls_now_ns();
    assert_true(posted_ns - begin_ns < SLOW_NS); /* posting waits for none of them */
    ls_sleep_until(begin_ns + 4 * SLOW_NS);      /* stands for the computation */
    for (int i = 0; i < 3; i++) {
        int64_t start_ns = 0, end_ns = 0;
        assert_ok(ls_work_wait(works[i], 0));
        work_times(works[i], &start_ns, &end_ns);
        assert_true(end_ns - start_ns >= SLOW_NS);
        if (i == 0) assert_true(start_ns < begin_ns + 2 * SLOW_NS); /* while we computed, not when we waited */
        ls_work_close(&works[i]);
        assert_true(values[i] == 2);
    }
    ls_group_close(&group);
}

static void operations_run_while_the_rank_computes(void **state) {
    (void)state;
    run_ranks(2, compute_meanwhile, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_ends_though_nobody_waits),
        cmocka_unit_test(short_steps_are_overlapped_where_a_processor_is_to_spare),
        cmocka_unit_test(who_waits_for_what_it_posts_wakes_nobody),
        cmocka_unit_test(polling_is_enough),
        cmocka_unit_test(operations_run_in_the_order_of_posting),
        cmocka_unit_test(any_thread_posts),
        cmocka_unit_test(groups_may_be_used_in_different_orders),
        cmocka_unit_test(groups_may_be_waited_for_in_different_orders_without_a_progress_thread),
        cmocka_unit_test(who_looks_at_work_or_makes_progress_carries_it_on),
        cmocka_unit_test(of_many_groups_each_goes_on_while_another_is_waited_for),
        cmocka_unit_test(operations_run_while_the_rank_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
