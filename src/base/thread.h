/* thread.h: threads with names, locks that know their holder.
 *
 * LS_ASSERT_HELD, LS_ASSERT_NONE_HELD stand wherever a rule on locks does, and vanish in release builds (NDEBUG). */
#ifndef LS_BASE_THREAD_H
#define LS_BASE_THREAD_H

#include <lockstep/base.h>

#include <assert.h>
#include <pthread.h>

typedef struct ls_mutex {
    pthread_mutex_t mutex;
#ifndef NDEBUG
    pthread_t holder; /* meaningful while is_held; written under the mutex */
    bool is_held;
#endif
} ls_mutex;

#define LS_MUTEX_INITIALIZER \
    { .mutex = PTHREAD_MUTEX_INITIALIZER }

void ls_mutex_init(ls_mutex *mutex);
void ls_mutex_destroy(ls_mutex *mutex);
void ls_mutex_lock(ls_mutex *mutex);
bool ls_mutex_try_lock(ls_mutex *mutex);
void ls_mutex_unlock(ls_mutex *mutex);

#ifdef NDEBUG
#define LS_ASSERT_HELD(mutex) ((void)0)
#define LS_ASSERT_NONE_HELD() ((void)0)
#else
int ls_mutexes_held_here(void);
bool ls_mutex_is_held_here(const ls_mutex *mutex);
#define LS_ASSERT_HELD(mutex) assert(ls_mutex_is_held_here(mutex))
#define LS_ASSERT_NONE_HELD() assert(ls_mutexes_held_here() == 0)
#endif

/* A thread of ours. `is_started` is the mark that clean-up looks at: join on a thread never started does nothing. */
typedef struct ls_thread {
    pthread_t thread;
    bool is_started;
} ls_thread;

/* Starts a thread that runs body(argument), named `name` (15 characters at most), all signals blocked, working for the
 * caller's rank. Errors: LS_ERR_MEMORY, LS_ERR_IO. */
ls_status ls_thread_start(ls_thread *thread, const char *name, void (*body)(void *argument), void *argument);

/* Waits until the thread has returned; the caller must have made sure that it will. */
void ls_thread_join(ls_thread *thread);

#endif
