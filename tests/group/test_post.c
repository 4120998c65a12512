/* test_post.c: what posting a call does to those who sleep, over a backend of the test's own in a world of one, where nobody
 * moves but whom the test lets; what is left of a call that lacked memory; and when the progress thread sleeps again. */
#include "support/faults.h"
#include "support/threads.h"

#include "base/clock.h"
#include "base/wait.h"
#include "group/group.h"

static _Atomic bool is_held;      /* no operation ends, */
static _Atomic bool poster_frees; /* until the test's own thread drives */
static _Atomic int woken;         /* how often the driver was */
static _Atomic int polls_of_progress;
static pthread_t poster;
static ls_backend backend;

static backend_progress poll_unless_held(void *state, backend_op *op) {
    if (!pthread_equal(pthread_self(), poster))
        atomic_fetch_add(&polls_of_progress, 1);
    else if (atomic_load(&poster_frees))
        atomic_store(&is_held, false);
    return atomic_load(&is_held) ? BACKEND_PENDING : solo_backend.poll(state, op);
}

static ls_status examine_nobody(void *state, backend_op *op) {
    (void)state;
    (void)op;
    return LS_OK;
}

static uint32_t bell_of_nobody(void *state) {
    (void)state;
    return 0;
}

static backend_progress sleep_a_little(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns) {
    (void)bell;
    (void)deadline_ns;
    ls_sleep_until(ls_now_ns() + LS_NS_PER_MS / 20);
    return poll_unless_held(state, op);
}

static void count_wake(void *state) {
    (void)state;
    atomic_fetch_add(&woken, 1);
}

/* One that reaches others has a progress thread. */
static ls_group *open_alone(backend_reach reach) {
    backend = solo_backend;
    backend.reach = reach;
    backend.poll = poll_unless_held;
    backend.examine = examine_nobody;
    backend.bell = bell_of_nobody;
    backend.sleep = sleep_a_little;
    backend.wake = count_wake;
    poster = pthread_self();
    atomic_store(&is_held, false);
    atomic_store(&poster_frees, false);
    atomic_store(&woken, 0);
    ls_group *group = NULL;
    const ls_group_options options = {.world_size = 1, .timeout_ms = 60000};
    assert_ok(group_open_backend(&group, &options, &backend));
    return group;
}

static ls_work *post(ls_group *group) {
    ls_work *work = NULL;
    assert_ok(ls_group_barrier(group, &work));
    return work;
}

static void end(ls_work *work) {
    assert_ok(ls_work_wait(work, 0));
    ls_work_close(&work);
}

static void posting_wakes_who_sleeps_until_peers_move(void **state) {
    (void)state;
    ls_group *group = open_alone(LS_REACH_SELF);
    atomic_store(&group->progress_sleeps, true); /* there is no such thread here: the test stands for it */
    const uint32_t before = atomic_load(&group->posted);

    /* What is complete at once concerns nobody. */
    end(post(group));
    assert_int_equal(atomic_load(&group->posted), before);
    assert_int_equal(atomic_load(&woken), 0);

    /* What is not is left to the progress thread; nobody else drives. */
    atomic_store(&is_held, true);
    ls_work *first = post(group);
    assert_true(atomic_load(&first->is_begun));
    assert_int_equal(atomic_load(&group->posted), before + 1);
    assert_int_equal(atomic_load(&woken), 0);
    atomic_store(&is_held, false);
    end(first);

    /* Who drives sleeps: it is woken for the next operation, not for one that stands behind it. */
    assert_true(group_try_drive(group));
    first = post(group);
    assert_int_equal(atomic_load(&woken), 1);
    ls_work *second = post(group);
    assert_int_equal(atomic_load(&woken), 1);
    assert_int_equal(atomic_load(&group->posted), before + 3);

    /* A message stands behind nothing. */
    const group_call call = {.kind = GROUP_RECEIVE, .dtype = LS_U8};
    ls_work *message = NULL, *posted = NULL;
    assert_ok(work_take(group, &call, &message));
    assert_ok(post_begin(group, message, message, &posted));
    assert_ptr_equal(posted, message);
    assert_int_equal(atomic_load(&woken), 2);
    work_end(message, LS_OK);
    group_stop_driving(group);
    end(posted);
    end(first);
    end(second);
    ls_group_close(&group);
}

static void a_call_that_blocks_leaves_no_work_behind(void **state) {
    (void)state;
    ls_group *group = open_alone(LS_REACH_SELF);
    const int users = atomic_load(&group->users);
    /* Something is queued, so it goes through the queue. */
    atomic_store(&is_held, true);
    ls_work *queued = post(group);
    atomic_store(&is_held, false);
    assert_ok(ls_group_barrier(group, NULL));
    end(queued);
    assert_int_equal(atomic_load(&group->users), users);
    ls_group_close(&group);
}

static void give_up(ls_status status, ls_work **work) {
    if (status == LS_OK) {
        end(*work);
    } else {
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_null(*work);
    }
    *work = NULL;
}

/* All or none is posted, on a group that goes on. */
static void a_call_that_lacks_memory_leaves_nothing(void **state) {
    (void)state;
    const ls_group_options options = {.world_size = 1, .timeout_ms = 60000};
    int64_t values[3] = {1, 2, 3}, copy = 0;
    void *const data[3] = {&values[0], &values[1], &values[2]};
    const size_t counts[3] = {1, 1, 1};
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        ls_group *group = NULL;
        ls_work stale, *work = &stale;
        if (group_open_backend(&group, &options, &solo_backend) != LS_OK) continue;
        const int users = atomic_load(&group->users);
        give_up(ls_group_all_reduce_many(group, data, counts, 3, LS_I64, LS_SUM, &work), &work);
        work = &stale;
        give_up(ls_group_all_to_all_uneven(group, values, counts, &copy, counts, LS_I64, &work), &work);
        assert_int_equal(atomic_load(&group->users), users);
        assert_ok(ls_group_barrier(group, NULL));
        ls_group_close(&group);
    }
    assert_nothing_left();
}

/* --- the progress thread's pace: where processors are shared, it looks after 0.1, 0.2, 0.4, 0.8 ms and so on, up to 5 ms --- */

static ls_group *open_shared(void) {
    ls_group *group = open_alone(LS_REACH_HOST);
    group->may_spin = true;
    group->progress_may_spin = false;
    return group;
}

static ls_work *post_held(ls_group *group) {
    atomic_store(&is_held, true);
    ls_work *work = post(group);
    atomic_store(&is_held, false);
    return work;
}

static void await_sleep(const ls_group *group) {
    while (!atomic_load(&group->progress_sleeps)) {}
}

#define HOPELESS_NS (30 * LS_NS_PER_S)
#define LEAST_TRIES 30

/* A part of the tries is in time: a busy machine takes its own now and then, as long as it is busy, and what looks late may
 * look at the right moment. */
static void assert_soon(int64_t (*time_once)(ls_group *group)) {
    ls_group *group = open_shared();
    const int64_t hopeless_ns = ls_now_ns() + HOPELESS_NS;
    for (int tries = 0, quick = 0; tries < LEAST_TRIES || quick < tries / 5; tries++) {
        quick += time_once(group) < LS_NS_PER_MS;
        assert_true(ls_now_ns() < hopeless_ns);
    }
    ls_group_close(&group);
}

/* How long an operation takes that nobody waits for. */
static int64_t time_alone(ls_group *group) {
    const int64_t start_ns = ls_now_ns();
    ls_work *work = post_held(group);
    while (!work_is_complete(work)) {}
    const int64_t took_ns = work->end_ns - start_ns;
    end(work);
    return took_ns;
}

/* Others drive, so that it looks ever more rarely. */
static void drive_for(ls_group *group, int64_t ns) {
    for (const int64_t until_ns = ls_now_ns() + ns; ls_now_ns() < until_ns;) {
        end(post_held(group));
        for (const int64_t next_ns = ls_now_ns() + LS_NS_PER_MS / 5; ls_now_ns() < next_ns;) {}
    }
}

static int64_t take_over_from_sleep(ls_group *group) {
    end(post_held(group));
    ls_sleep_until(ls_now_ns() + 3 * LS_NS_PER_MS); /* it looks in vain, ever more rarely, before it sleeps */
    await_sleep(group);
    return time_alone(group);
}

static void what_nobody_waits_for_is_soon_taken_over_from_sleep(void **state) {
    (void)state;
    assert_soon(take_over_from_sleep);
}

static int64_t take_over_after_a_hand_over(ls_group *group) {
    drive_for(group, 12 * LS_NS_PER_MS);
    atomic_store(&polls_of_progress, 0);
    ls_work *work = post_held(group);
    atomic_store(&is_held, true);
    while (!atomic_load(&polls_of_progress)) {}
    atomic_store(&poster_frees, true);
    end(work);
    atomic_store(&poster_frees, false);
    return time_alone(group);
}

static void what_nobody_waits_for_is_soon_taken_over_after_a_hand_over(void **state) {
    (void)state;
    assert_soon(take_over_after_a_hand_over);
}

/* Others drove, so that it looks rarely; and who sleeps is back before it looks. */
static int64_t help_a_sleeper(ls_group *group) {
    int64_t took_ns = 0;
    drive_for(group, 12 * LS_NS_PER_MS);
    for (int i = 0; i < 5; i++) {
        const int64_t start_ns = ls_now_ns();
        ls_work *work = post_held(group);
        ls_sleep_until(start_ns + 3 * LS_NS_PER_MS);
        took_ns = (work_is_complete(work) ? work->end_ns : ls_now_ns()) - start_ns;
        end(work);
    }
    return took_ns;
}

static void who_sleeps_is_soon_helped_where_each_rank_has_a_processor(void **state) {
    (void)state;
    assert_soon(help_a_sleeper);
}

static int64_t fall_asleep(ls_group *group) {
    ls_work *work = post_held(group);
    while (!work_is_complete(work)) {}
    await_sleep(group);
    const int64_t took_ns = ls_now_ns() - work->end_ns;
    end(work);
    return took_ns;
}

/* Else it would look in vain some times more, which last 1.5 ms together, each time taking the processor from who computes. */
static void the_progress_thread_sleeps_at_once_when_it_has_helped(void **state) {
    (void)state;
    assert_soon(fall_asleep);
}

/* Who soon waits for what it posts need not wake it each time. It has helped before, but not since it slept. */
static void the_progress_thread_looks_a_while_where_it_has_not_helped(void **state) {
    (void)state;
    ls_group *group = open_shared();
    const int64_t hopeless_ns = ls_now_ns() + HOPELESS_NS;
    for (bool looks = false; !looks;) {
        assert_true(ls_now_ns() < hopeless_ns);
        ls_work *work = post_held(group);
        while (!work_is_complete(work)) {}
        end(work);
        await_sleep(group);
        const int64_t start_ns = ls_now_ns();
        end(post_held(group));
        ls_sleep_until(start_ns + LS_NS_PER_MS);
        looks = !atomic_load(&group->progress_sleeps);
    }
    ls_group_close(&group);
}

/* A look costs nothing there, and each wake the thread that computes. */
static void beside_a_spare_processor_the_progress_thread_looks_a_while_though_it_has_helped(void **state) {
    (void)state;
    ls_group *group = open_alone(LS_REACH_HOST);
    group->progress_may_spin = true;
    const int64_t hopeless_ns = ls_now_ns() + HOPELESS_NS;
    for (bool looks = false; !looks;) {
        assert_true(ls_now_ns() < hopeless_ns);
        ls_work *work = post_held(group);
        while (!work_is_complete(work)) {}
        const int64_t end_ns = work->end_ns;
        end(work);
        ls_sleep_until(end_ns + 2 * LS_NS_PER_MS);
        looks = !atomic_load(&group->progress_sleeps);
    }
    await_sleep(group);
    ls_group_close(&group);
}

static void a_queue_that_others_keep_driving_is_left_to_them(void **state) {
    (void)state;
    ls_group *group = open_shared();
    const int64_t hopeless_ns = ls_now_ns() + HOPELESS_NS;
    bool was_left_alone = false, was_not_woken = false;
    while (!was_left_alone || !was_not_woken) {
        assert_true(ls_now_ns() < hopeless_ns);
        /* An operation that lasts, and is polled. */
        atomic_store(&polls_of_progress, 0);
        ls_work *work = post_held(group);
        atomic_store(&is_held, true);
        for (const int64_t until_ns = ls_now_ns() + 12 * LS_NS_PER_MS; ls_now_ns() < until_ns;)
            assert_false(ls_work_is_complete(work));
        if (atomic_load(&polls_of_progress) == 0) was_left_alone = true;
        atomic_store(&is_held, false);
        end(work);
        /* Short ones, each waited for: it does not sleep, or each post would have to wake it. */
        const uint32_t before = atomic_load(&group->posted);
        drive_for(group, 12 * LS_NS_PER_MS);
        if (atomic_load(&group->posted) - before <= 2) was_not_woken = true;
    }
    ls_group_close(&group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(posting_wakes_who_sleeps_until_peers_move),
        cmocka_unit_test(a_call_that_blocks_leaves_no_work_behind),
        cmocka_unit_test(a_call_that_lacks_memory_leaves_nothing),
        cmocka_unit_test(what_nobody_waits_for_is_soon_taken_over_from_sleep),
        cmocka_unit_test(what_nobody_waits_for_is_soon_taken_over_after_a_hand_over),
        cmocka_unit_test(who_sleeps_is_soon_helped_where_each_rank_has_a_processor),
        cmocka_unit_test(the_progress_thread_sleeps_at_once_when_it_has_helped),
        cmocka_unit_test(the_progress_thread_looks_a_while_where_it_has_not_helped),
        cmocka_unit_test(beside_a_spare_processor_the_progress_thread_looks_a_while_though_it_has_helped),
        cmocka_unit_test(a_queue_that_others_keep_driving_is_left_to_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
