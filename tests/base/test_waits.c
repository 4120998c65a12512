/* Locks that know their holder, waits that end, threads with a name and a rank. */
#include "support/test.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/thread.h"
#include "base/wait.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Locks ---- */

static ls_mutex mutex = LS_MUTEX_INITIALIZER;

static void sleep_under_lock(void) {
    ls_mutex_lock(&mutex);
    ls_sleep_until(ls_now_ns());
}

static void wait_for_word_under_lock(void) {
    ls_word word = 0;
    ls_mutex_lock(&mutex);
    ls_word_wait(&word, 0, ls_now_ns());
}

static void poll_under_lock(void) {
    ls_mutex_lock(&mutex);
    ls_descriptors_wait(NULL, 0, ls_now_ns());
}

static void unlock_what_is_not_held(void) {
    ls_mutex_unlock(&mutex);
}

static void need_a_lock(void) {
    LS_ASSERT_HELD(&mutex);
}

/* Whether `body` ends a child of this process by an assertion. */
static bool aborts(void (*body)(void)) {
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        signal(SIGABRT, SIG_DFL);
        body();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void hold_rightly(void) {
    ls_mutex_lock(&mutex);
    LS_ASSERT_HELD(&mutex);
    ls_mutex_unlock(&mutex);
    if (!ls_mutex_try_lock(&mutex) || ls_mutex_try_lock(&mutex)) abort();
    ls_mutex_unlock(&mutex);
    LS_ASSERT_NONE_HELD();
    ls_sleep_until(ls_now_ns());
}

static void no_lock_is_held_across_a_wait(void **state) {
    (void)state;
    assert_false(aborts(hold_rightly));
#ifdef NDEBUG
    LS_SKIP("built without assertions");
#endif
    assert_true(aborts(sleep_under_lock));
    assert_true(aborts(wait_for_word_under_lock));
    assert_true(aborts(poll_under_lock));
    assert_true(aborts(unlock_what_is_not_held));
    assert_true(aborts(need_a_lock));
}

/* ---- Waits ---- */

static void a_wait_ends_at_its_deadline_and_not_before(void **state) {
    (void)state;
    ls_word word = 3;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct pollfd polled = {.fd = ends[0], .events = POLLIN};
    for (int kind = 0; kind < 3; kind++) {
        const int64_t deadline_ns = ls_now_ns() + 30 * LS_NS_PER_MS;
        if (kind == 0)
            while (ls_word_wait(&word, 3, deadline_ns)) {}
        else if (kind == 1)
            assert_int_equal(ls_descriptors_wait(&polled, 1, deadline_ns), 0);
        else
            ls_sleep_until(deadline_ns);
        assert_true(ls_now_ns() >= deadline_ns);
        assert_true(ls_now_ns() < deadline_ns + 10 * LS_NS_PER_S);
    }
    /* What has come already is not waited for, whatever the deadline. */
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(ls_descriptors_wait(&polled, 1, ls_now_ns() - LS_NS_PER_S), 1);
    assert_int_equal(ls_descriptors_wait(&polled, 1, LS_DEADLINE_NEVER), 1);
    assert_true(ls_word_wait(&word, 2, LS_DEADLINE_NEVER));
    close(ends[0]);
    close(ends[1]);
}

/* 0 would be the default of the call it is passed to, which is far more than nothing. */
static void what_is_left_of_a_limit_is_never_nothing(void **state) {
    (void)state;
    const int64_t now_ns = ls_now_ns();
    assert_int_equal(ls_left_ms(now_ns), 1);
    assert_int_equal(ls_left_ms(now_ns - LS_NS_PER_S), 1);
    assert_int_equal(ls_left_ms(now_ns + 1), 1);
    assert_in_range(ls_left_ms(now_ns + 100 * LS_NS_PER_S), 90000, 100000);
    assert_int_equal(ls_left_ms(LS_DEADLINE_NEVER), LS_FOREVER);
}

static void a_limit_of_centuries_is_none(void **state) {
    (void)state;
    assert_true(ls_deadline_after_ms(LS_FOREVER) == LS_DEADLINE_NEVER);
    assert_true(ls_deadline_after_ms(INT64_MAX) == LS_DEADLINE_NEVER);
    assert_true(ls_deadline_after_ms(INT64_MAX / LS_NS_PER_MS) == LS_DEADLINE_NEVER); /* now and so long overflow */
    const int64_t now_ns = ls_now_ns(), deadline_ns = ls_deadline_after_ms(0);
    assert_in_range(deadline_ns - now_ns, 0, 10 * LS_NS_PER_S);
}

static ls_word passed; /* counts the turns taken */

static void ring(int number) {
    (void)number;
}

/* A signal of the program's own, whose handler asks for no restart. */
static void a_signal_does_not_end_a_wait_for_descriptors(void **state) {
    (void)state;
    int ends[2];
    struct sigaction before, ringing = {.sa_handler = ring};
    const struct itimerval soon = {.it_value = {.tv_usec = 20000}}, never = {0};
    assert_int_equal(pipe(ends), 0);
    struct pollfd polled = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(sigaction(SIGALRM, &ringing, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    const int64_t deadline_ns = ls_deadline_after_ms(100);
    assert_int_equal(ls_descriptors_wait(&polled, 1, deadline_ns), 0);
    assert_true(ls_now_ns() >= deadline_ns);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    close(ends[0]);
    close(ends[1]);
}

static void take_turns(void *argument) {
    const uint32_t own = *(const uint32_t *)argument;
    for (uint32_t turn = own; turn < 20000; turn += 2) {
        uint32_t seen;
        while ((seen = atomic_load(&passed)) != turn) ls_word_wait(&passed, seen, LS_DEADLINE_NEVER);
        ls_word_advance(&passed);
    }
}

static void no_wake_is_lost(void **state) {
    (void)state;
    ls_thread threads[2] = {0};
    uint32_t own[2] = {0, 1};
    for (int i = 0; i < 2; i++) assert_int_equal(ls_thread_start(&threads[i], "turns", take_turns, &own[i]), LS_OK);
    for (int i = 0; i < 2; i++) ls_thread_join(&threads[i]);
    assert_int_equal(atomic_load(&passed), 20000);
}

/* ---- Threads ---- */

typedef struct look {
    char name[16];
    int rank;
    bool blocks_signals;
} look;

static void look_at_itself(void *argument) {
    look *seen = argument;
    sigset_t blocked;
    pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    seen->rank = ls_context_here()->rank;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    seen->blocks_signals = sigismember(&blocked, SIGINT) == 1 && sigismember(&blocked, SIGTERM) == 1;
}

static void a_thread_has_a_name_its_makers_rank_and_no_signals(void **state) {
    (void)state;
    ls_thread thread = {0};
    look seen = {.rank = -7};
    sigset_t blocked;
    ls_context_here()->rank = 6;
    assert_int_equal(ls_thread_start(&thread, "a-name-that-is-far-too-long", look_at_itself, &seen), LS_OK);
    ls_thread_join(&thread);
    ls_thread_join(&thread); /* once more does nothing */
    ls_context_here()->rank = -1;
    assert_string_equal(seen.name, "a-name-that-is-");
    assert_int_equal(seen.rank, 6);
    assert_true(seen.blocks_signals);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    assert_int_equal(sigismember(&blocked, SIGINT), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_lock_is_held_across_a_wait),
        cmocka_unit_test(a_wait_ends_at_its_deadline_and_not_before),
        cmocka_unit_test(a_signal_does_not_end_a_wait_for_descriptors),
        cmocka_unit_test(what_is_left_of_a_limit_is_never_nothing),
        cmocka_unit_test(a_limit_of_centuries_is_none),
        cmocka_unit_test(no_wake_is_lost),
        cmocka_unit_test(a_thread_has_a_name_its_makers_rank_and_no_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
