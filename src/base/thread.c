/* thread.c: pthreads with names, and mutexes whose holder assertions can read. */
#include "base/thread.h"

#include "base/context.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <signal.h>

#ifndef NDEBUG
/* How many locks this thread holds: what "no lock is held across a wait" is asserted with. */
static _Thread_local int held_here;

int ls_mutexes_held_here(void) {
    return held_here;
}

bool ls_mutex_is_held_here(const ls_mutex *mutex) {
    return mutex->is_held && pthread_equal(mutex->holder, pthread_self());
}

static void note_locked(ls_mutex *mutex) {
    mutex->holder = pthread_self();
    mutex->is_held = true;
    held_here++;
}

static void note_unlocking(ls_mutex *mutex) {
    assert(ls_mutex_is_held_here(mutex));
    /* Under the mutex still: after it, another thread may write these fields. */
    mutex->is_held = false;
    held_here--;
}
#else
static void note_locked(ls_mutex *mutex) {
    (void)mutex;
}
static void note_unlocking(ls_mutex *mutex) {
    (void)mutex;
}
#endif

void ls_mutex_init(ls_mutex *mutex) {
    *mutex = (ls_mutex)LS_MUTEX_INITIALIZER;
}

void ls_mutex_destroy(ls_mutex *mutex) {
    pthread_mutex_destroy(&mutex->mutex);
}

void ls_mutex_lock(ls_mutex *mutex) {
    pthread_mutex_lock(&mutex->mutex);
    note_locked(mutex);
}

bool ls_mutex_try_lock(ls_mutex *mutex) {
    if (pthread_mutex_trylock(&mutex->mutex) != 0) return false;
    note_locked(mutex);
    return true;
}

void ls_mutex_unlock(ls_mutex *mutex) {
    note_unlocking(mutex);
    pthread_mutex_unlock(&mutex->mutex);
}

/* On its way from the thread that starts to the one that runs; the latter frees it. */
typedef struct start_record {
    void (*body)(void *argument);
    void *argument;
    ls_context context;
    char name[16];
} start_record;

static void *run(void *argument) {
    start_record record = *(start_record *)argument;
    ls_free(argument);
    /* The kernel keeps 15 characters; traces and debuggers show them. */
    pthread_setname_np(pthread_self(), record.name);
    *ls_context_here() = record.context;
    record.body(record.argument);
    /* What the thread refers to now: it may have let go of the trace it was started with. */
    ls_held_release(ls_context_here()->trace);
    return NULL;
}

ls_status ls_thread_start(ls_thread *thread, const char *name, void (*body)(void *argument), void *argument) {
    start_record *record = ls_alloc(sizeof *record);
    if (!record) return LS_ERR_MEMORY;
    *record = (start_record){.body = body, .argument = argument, .context = *ls_context_here()};
    /* Before the thread exists: the starter's own trace may end before it has run. */
    ls_held_keep(record->context.trace);
    record->context.deadline_ns = 0; /* of the starter's call, which the thread outlives */
    for (size_t i = 0; i + 1 < sizeof record->name && name[i]; i++) record->name[i] = name[i];

    /* Signals belong to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failure = ls_fault(LS_FAULT_THREAD) ? EAGAIN : pthread_create(&thread->thread, NULL, run, record);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure) {
        ls_held_release(record->context.trace);
        ls_free(record);
        return ls_fail_errno(LS_ERR_IO, failure, "cannot start the thread \"%s\"%s", name,
                             failure == EAGAIN ? "; raise the limit on processes (ulimit -u)" : "");
    }
    thread->is_started = true;
    return LS_OK;
}

void ls_thread_join(ls_thread *thread) {
    if (!thread->is_started) return;
    pthread_join(thread->thread, NULL);
    thread->is_started = false;
}
