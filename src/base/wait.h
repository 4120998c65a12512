/* wait.h: the one place where the library sleeps. Every wait has a deadline; none is made with a lock held.
 *
 * A word is a 32-bit counter that whoever changes a condition advances: read the word, look at the condition, then
 * sleep unless the word has moved. So no wake is lost, and the same call serves threads and, in shared memory,
 * processes. */
#ifndef LS_BASE_WAIT_H
#define LS_BASE_WAIT_H

#include <lockstep/base.h>

#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#if defined(__SANITIZE_THREAD__)
#define LS_UNDER_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LS_UNDER_THREAD_SANITIZER 1
#endif
#endif
#ifndef LS_UNDER_THREAD_SANITIZER
#define LS_UNDER_THREAD_SANITIZER 0
#endif

typedef _Atomic uint32_t ls_word;

/* Sleeps while `*word == seen`, until it is woken or `deadline_ns` (base/clock.h) comes. May return early: look again.
 * Returns false when the deadline has passed. */
bool ls_word_wait(ls_word *word, uint32_t seen, int64_t deadline_ns);

/* Advances `*word` (release) and wakes all its sleepers, in every process that maps it. */
void ls_word_advance(ls_word *word);

/* Wakes the sleepers of `*word` without changing it: for a word that its writer stores itself. */
void ls_word_wake(ls_word *word);

/* poll() on descriptors until one is ready, an error or `deadline_ns`; retries when interrupted by a signal.
 * Returns the number of ready descriptors, 0 at the deadline, -1 with errno. */
int ls_descriptors_wait(struct pollfd *descriptors, size_t count, int64_t deadline_ns);

/* epoll_wait() on the set `events` until something has happened, an error or `deadline_ns` (0: only looks). Returns
 * the number of events in `found`, 0 at the deadline and when interrupted by a signal. */
int ls_events_wait(int events, struct epoll_event *found, int most, int64_t deadline_ns);

/* Sleeps until `deadline_ns`. */
void ls_sleep_until(int64_t deadline_ns);

/* Orders our earlier stores before our later loads, where each of two sides writes one word and then reads the other's:
 * "I have published; do you sleep?" against "I sleep; have you published?". */
static inline void ls_full_barrier(void) {
#if LS_UNDER_THREAD_SANITIZER
    /* It does not know fences; a thread's own word orders as much and hides no race between threads. */
    static _Thread_local _Atomic int own;
    atomic_fetch_add(&own, 1);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Lets the others go first who want this processor, for one turn; for spinning where there are more threads than
 * processors. */
void ls_yield(void);

/* Tells the processor that this is a spinning loop. */
static inline void ls_spin_hint(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
