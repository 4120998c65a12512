/* progress.c: the thread that drives a group's queue when nobody else does.
 *
 * It is there so that an asynchronous operation ends even if its rank never waits: a queue that nobody has driven for a
 * moment is taken over, and handed back as soon as someone waits. It starts with the first asynchronous call.         */
#include "group/group.h"

#include "base/clock.h"

#include <pthread.h>

/* How long nobody must have driven: from the shortest, up to the longest for a queue that others keep driving. And for how
 * long we look by the clock, though nothing is to be done, before we sleep until a post wakes us: who posts soon again need not.
 * A processor to spare lets us be quick, and patient. Without one each look takes time from the computation: who left us a call
 * to carry on computes now, so that we sleep at once. */
typedef struct pace {
    int64_t shortest_ns, longest_ns, patience_ns, patience_once_helped_ns;
} pace;
static const pace beside_a_spare_processor = {20 * 1000, 100 * 1000, 10 * LS_NS_PER_MS, 10 * LS_NS_PER_MS};
static const pace on_shared_processors = {100 * 1000, 5 * LS_NS_PER_MS, LS_NS_PER_MS, 0};

/* What the thread that posted last had used of its processor at the last look. */
typedef struct usage {
    clockid_t poster;
    int64_t now_ns, used_ns;
} usage;

/* Who sleeps instead of computing, say until a device has computed, spares its processor. Where ranks share processors, a rank that
 * waits for one looks the same: there nobody is taken for asleep. Nor is a thread that has ended, or was not the last to post. */
static bool is_beside_a_spare_processor(ls_group *group, usage *last) {
    if (group->progress_may_spin || !group->may_spin) return group->progress_may_spin;
    struct timespec used = {0};
    usage now = {.poster = atomic_load_explicit(&group->poster, memory_order_relaxed), .now_ns = ls_now_ns()};
    const bool is_known = clock_gettime(now.poster, &used) == 0 && now.poster == last->poster;
    now.used_ns = used.tv_sec * LS_NS_PER_S + used.tv_nsec;
    const bool slept = is_known && now.used_ns - last->used_ns < (now.now_ns - last->now_ns) / 2;
    *last = now;
    return slept;
}

static bool has_work(const ls_group *group) {
    return atomic_load_explicit(&group->first, memory_order_acquire) != NULL || group_has_mail(group);
}

/* Sleeps until something is posted. We say that we sleep, then look for work; who posts does so, then looks whether we sleep
 * (progress_notice), each with a barrier in between. Closing advances the word whether we sleep or not. */
static void sleep_idle(ls_group *group) {
    const uint32_t seen = atomic_load_explicit(&group->posted, memory_order_acquire);
    atomic_store_explicit(&group->progress_sleeps, true, memory_order_relaxed);
    ls_full_barrier();
    if (!has_work(group) && !atomic_load_explicit(&group->is_closing, memory_order_acquire))
        ls_word_wait(&group->posted, seen, LS_DEADLINE_NEVER);
    atomic_store_explicit(&group->progress_sleeps, false, memory_order_relaxed);
}

static void run(void *argument) {
    ls_group *group = argument;
    const pace *moments = &on_shared_processors;
    int64_t moment_ns = moments->longest_ns, worked_ns = 0, patience_ns = 0;
    usage last = {0};
    while (!atomic_load_explicit(&group->is_closing, memory_order_acquire)) {
        if (!has_work(group) && ls_now_ns() - worked_ns >= patience_ns) {
            sleep_idle(group);
            worked_ns = ls_now_ns();
            moment_ns = moments->shortest_ns;
            patience_ns = moments->patience_ns;
        }
        /* Hints, all relaxed: read wrong, they make us early or late by a moment. */
        const uint64_t turns = atomic_load_explicit(&group->turns, memory_order_relaxed);
        const uint32_t seen = atomic_load_explicit(&group->posted, memory_order_acquire);
        ls_word_wait(&group->posted, seen, ls_now_ns() + moment_ns);
        const bool was_driven = turns != atomic_load_explicit(&group->turns, memory_order_relaxed) ||
                                atomic_load_explicit(&group->driver, memory_order_relaxed) ||
                                atomic_load_explicit(&group->waiters, memory_order_relaxed) > 0;
        moments = is_beside_a_spare_processor(group, &last) ? &beside_a_spare_processor : &on_shared_processors;
        if (was_driven) worked_ns = ls_now_ns();
        if (!was_driven && has_work(group) && group_try_drive(group)) {
            drive_queue(group, NULL, LS_DEADLINE_NEVER);
            group_stop_driving(group);
            worked_ns = ls_now_ns();
            moment_ns = moments->shortest_ns;
            patience_ns = moments->patience_once_helped_ns;
        } else {
            moment_ns = moment_ns * 2 < moments->longest_ns ? moment_ns * 2 : moments->longest_ns;
        }
    }
}

/* Under the lock, so that two first calls start one thread. It takes no lock of ours before it runs. */
ls_status progress_start(ls_group *group) {
    ls_status status = LS_OK;
    ls_mutex_lock(&group->lock);
    if (!group->progress.is_started) status = ls_thread_start(&group->progress, "ls-progress", run, group);
    ls_mutex_unlock(&group->lock);
    return status;
}

void progress_notice(ls_group *group) {
    clockid_t poster = 0;
    if (pthread_getcpuclockid(pthread_self(), &poster) == 0)
        atomic_store_explicit(&group->poster, poster, memory_order_relaxed);
    ls_full_barrier();
    if (atomic_load_explicit(&group->progress_sleeps, memory_order_relaxed)) ls_word_advance(&group->posted);
}

/* The caller has the driver for good: so the thread is not driving, and cannot begin to. */
void progress_stop(ls_group *group) {
    atomic_store_explicit(&group->is_closing, true, memory_order_release);
    ls_word_advance(&group->posted);
    ls_thread_join(&group->progress);
}
