/* live.c: the list, and the handlers of fork that walk it. */
#include "base/live.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>

static ls_mutex lock = LS_MUTEX_INITIALIZER;
static ls_live *first;     /* under lock */
static bool is_registered; /* under lock: handlers are registered once and cannot be taken back */

static _Atomic uint32_t signals;

void ls_live_lock(void) {
    ls_mutex_lock(&lock);
}

void ls_live_unlock(void) {
    ls_mutex_unlock(&lock);
}

ls_live *ls_live_first(void) {
    LS_ASSERT_HELD(&lock);
    return first;
}

static void forked(void) {
    /* In the child only the thread that called fork is left, and the lock is its own: ls_live_lock ran before the
     * fork. */
    for (ls_live *live = first; live; live = live->next) live->forked(live);
    first = NULL;
    ls_live_unlock();
}

ls_status ls_live_add(ls_live *self) {
    LS_ASSERT_HELD(&lock);
    if (!is_registered) {
        const int failure = ls_fault(LS_FAULT_SYSCALL) ? ENOMEM : pthread_atfork(ls_live_lock, ls_live_unlock, forked);
        if (failure) return ls_fail_errno(LS_ERR_MEMORY, failure, "cannot register what a forked child has to forget");
        is_registered = true;
    }
    self->next = first;
    first = self;
    return LS_OK;
}

void ls_live_remove(ls_live *self) {
    LS_ASSERT_HELD(&lock);
    for (ls_live **link = &first; *link; link = &(*link)->next) {
        if (*link != self) continue;
        *link = self->next;
        return;
    }
}

ls_status ls_live_enlist(ls_live *self) {
    ls_live_lock();
    const ls_status status = ls_live_add(self);
    ls_live_unlock();
    return status;
}

void ls_live_delist(ls_live *self) {
    ls_live_lock();
    ls_live_remove(self);
    ls_live_unlock();
}

/* All that a handler may do: group/flight.c looks. */
static void count_signal(int number) {
    (void)number;
    atomic_fetch_add_explicit(&signals, 1, memory_order_relaxed);
}

void ls_live_watch_signal(void) {
    /* SA_RESTART: a program that never asked for the signal's handling must not see its calls interrupted. */
    struct sigaction before, ours = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    sigemptyset(&ours.sa_mask);
    ls_live_lock();
    if (sigaction(SIGUSR2, NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL)
        sigaction(SIGUSR2, &ours, NULL);
    ls_live_unlock();
}

uint32_t ls_live_signals(void) {
    return atomic_load_explicit(&signals, memory_order_relaxed);
}
