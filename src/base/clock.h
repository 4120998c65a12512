/* clock.h: the monotonic clock, in nanoseconds, and deadlines on it. */
#ifndef LS_BASE_CLOCK_H
#define LS_BASE_CLOCK_H

#include <lockstep/base.h>
#include <stdint.h>
#include <time.h>

#define LS_NS_PER_MS INT64_C(1000000)
#define LS_NS_PER_S INT64_C(1000000000)

/* A deadline that never comes. */
#define LS_DEADLINE_NEVER INT64_MAX

static inline int64_t ls_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * LS_NS_PER_S + now.tv_nsec;
}

/* The moment `timeout_ms` from now; a negative timeout never expires. */
static inline int64_t ls_deadline_after_ms(int64_t timeout_ms) {
    if (timeout_ms < 0 || timeout_ms > INT64_MAX / LS_NS_PER_MS / 2) return LS_DEADLINE_NEVER;
    return ls_now_ns() + timeout_ms * LS_NS_PER_MS;
}

/* What is left until then, for calls that take a limit: at least 1, since 0 is their default. */
static inline int64_t ls_left_ms(int64_t deadline_ns) {
    if (deadline_ns == LS_DEADLINE_NEVER) return LS_FOREVER;
    const int64_t left_ms = (deadline_ns - ls_now_ns()) / LS_NS_PER_MS;
    return left_ms > 0 ? left_ms : 1;
}

#endif
