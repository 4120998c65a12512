/* wait.c: timed futexes and timed poll. Futexes are not the private kind, since words also live in shared memory. */
#include "base/wait.h"

#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec to_timespec(int64_t ns) {
    return (struct timespec){.tv_sec = ns / LS_NS_PER_S, .tv_nsec = ns % LS_NS_PER_S};
}

bool ls_word_wait(ls_word *word, uint32_t seen, int64_t deadline_ns) {
    LS_ASSERT_NONE_HELD();
    /* FUTEX_WAIT_BITSET takes an absolute time on the monotonic clock; NULL waits without end. */
    const struct timespec deadline = to_timespec(deadline_ns);
    const struct timespec *limit = deadline_ns == LS_DEADLINE_NEVER ? NULL : &deadline;
    const long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, limit, NULL, FUTEX_BITSET_MATCH_ANY);
    /* Woken, interrupted, or the word had moved already: in each case the caller looks again. */
    return !(result == -1 && errno == ETIMEDOUT);
}

void ls_word_advance(ls_word *word) {
    atomic_fetch_add_explicit(word, 1, memory_order_release);
    ls_word_wake(word);
}

void ls_word_wake(ls_word *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* As poll() and epoll_wait() want it. */
static int timeout_until(int64_t deadline_ns) {
    if (deadline_ns == LS_DEADLINE_NEVER) return -1;
    if (deadline_ns == 0) return 0;
    const int64_t left_ns = deadline_ns - ls_now_ns();
    /* Rounded up: rounded down, the last part of a millisecond would be spun away in calls that return at once. */
    const int64_t left_ms = left_ns <= 0 ? 0 : (left_ns + LS_NS_PER_MS - 1) / LS_NS_PER_MS;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

int ls_descriptors_wait(struct pollfd *descriptors, size_t count, int64_t deadline_ns) {
    LS_ASSERT_NONE_HELD();
    for (;;) {
        const int ready = poll(descriptors, count, timeout_until(deadline_ns));
        /* More descriptors than the process may have are refused so; the reason is the same as where one cannot be made. */
        if (ready < 0 && errno == EINVAL) errno = EMFILE;
        /* Signals are the program's own matter; the deadline is absolute, so that waiting again waits no longer. */
        if (ready >= 0 || errno != EINTR) return ready;
    }
}

int ls_events_wait(int events, struct epoll_event *found, int most, int64_t deadline_ns) {
    LS_ASSERT_NONE_HELD();
    const int count = epoll_wait(events, found, most, timeout_until(deadline_ns));
    return count > 0 ? count : 0;
}

void ls_yield(void) {
    sched_yield();
}

void ls_sleep_until(int64_t deadline_ns) {
    LS_ASSERT_NONE_HELD();
    const struct timespec deadline = to_timespec(deadline_ns);
    /* Towards a moment, not for a time: an interruption costs nothing. */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) == EINTR) {}
}
