/* explore_threads.c: threads are coroutines that give way before each step that others can see; here is what they wait for:
 * a lock, a word, another thread's end, or their own stores. */
#undef _FORTIFY_SOURCE /* its longjmp does not go from stack to stack */
#include "models/explore_inside.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

_Alignas(4096) thread_state threads[MOST_THREADS];
coroutine coroutines[MOST_THREADS];
int thread_count, running;

static jmp_buf explorer;
static ucontext_t maker;

/* --- coroutines ------------------------------------------------------------------------------------------------------- */

static unsigned char *stack_pointer(void) {
    unsigned char *pointer;
#if defined(__x86_64__)
    __asm__ volatile("mov %%rsp, %0" : "=r"(pointer));
#else
    __asm__ volatile("mov %0, sp" : "=r"(pointer));
#endif
    return pointer;
}

/* Back to the explorer, until it chooses this thread again. */
static __attribute__((noinline)) void give_way(void) {
    coroutines[running].own.stack_bytes = (size_t)(coroutines[running].stack + STACK_BYTES - stack_pointer());
    if (_setjmp(coroutines[running].own.registers) == 0) _longjmp(explorer, 1);
}

static void run_thread(void) {
    coroutines[running].own.stack_bytes = (size_t)(coroutines[running].stack + STACK_BYTES - stack_pointer());
    if (_setjmp(coroutines[running].own.registers) == 0) setcontext(&maker);
    thread_state *self = &threads[running];
    self->body(self->argument);
    self = &threads[running];
    self->status = HAS_ENDED;
    give_way();
    abort();
}

int explore_dormant_thread(const char *name) {
    ucontext_t context;
    running = thread_count++;
    if (thread_count > MOST_THREADS || getcontext(&context) != 0) abort();
    coroutines[running].name = name;
    context.uc_stack.ss_sp = coroutines[running].stack;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, run_thread, 0);
    swapcontext(&maker, &context);
    return thread_count - 1;
}

void resume(int thread) {
    running = thread;
    if (_setjmp(explorer) == 0) _longjmp(coroutines[thread].own.registers, 1);
}

thread_state *pause_for(thread_status status, void *awaited, bool needs_drained) {
    thread_state *self = &threads[running];
    self->status = status;
    self->awaited = awaited;
    self->needs_drained = needs_drained;
    give_way();
    self = &threads[running];
    self->status = IS_READY;
    self->awaited = NULL;
    self->needs_drained = false;
    return self;
}

bool may_run(const thread_state *thread) {
    if (thread->needs_drained && thread->stores) return false;
    switch (thread->status) {
    case IS_DORMANT:
    case HAS_ENDED: return false;
    case IS_LOCKING: return !has_store_at(thread, thread->awaited) && !read_memory(thread->awaited, sizeof(uint32_t));
    case IS_ASLEEP: return thread->is_woken || thread->expires;
    case IS_JOINING: return threads[thread->joined].status == HAS_ENDED && !threads[thread->joined].stores;
    case IS_READY:
        return !thread->awaited || (!has_store_at(thread, thread->awaited) && !is_being_changed(thread->awaited));
    }
    return false;
}

void threads_forget(void) {
    memset(threads, 0, sizeof threads);
    memset(coroutines, 0, sizeof coroutines);
    thread_count = 0;
}

/* --- a thread's life ---------------------------------------------------------------------------------------------------- */

void explore_start(int thread, void (*body)(void *argument), void *argument) {
    threads[thread].body = body;
    threads[thread].argument = argument;
    threads[thread].status = IS_READY;
}

void explore_join(explore_place place, int thread) {
    if (thread < 0 || is_left_out(place, "join")) return; /* it was never started */
    threads[running].joined = thread;
    pause_for(IS_JOINING, NULL, true);
    tell(place, "joins", 0);
}

bool explore_has_ended(int thread) {
    return threads[thread].status == HAS_ENDED && !threads[thread].stores;
}

/* --- locks -------------------------------------------------------------------------------------------------------------- */

void explore_lock(explore_place place, void *mutex) {
    if (is_kind(mutex, EXPLORE_QUIET)) return;
    pause_for(IS_LOCKING, mutex, false);
    check_is_live(mutex);
    tell(place, "locks", 0);
    write_memory(mutex, sizeof(uint32_t), 1);
}

/* Nobody can tell an unlock with nothing before it in the buffer from one that has left it. */
void explore_unlock(explore_place place, void *mutex) {
    if (is_kind(mutex, EXPLORE_QUIET)) return;
    check_is_live(mutex);
    if (!threads[running].stores) {
        write_memory(mutex, sizeof(uint32_t), 0);
        return;
    }
    explore_store(place, mutex, sizeof(uint32_t), 0, memory_order_release);
}

/* --- sleeping and waking ------------------------------------------------------------------------------------------------ */

/* The kernel makes a barrier before it compares. */
void explore_word_wait(explore_place place, void *word, bool expires) {
    thread_state *self = pause_for(IS_READY, NULL, true);
    const bool has_moved = self->moved & bit_of(word);
    check_is_live(word);
    tell(place, has_moved ? "does not sleep on" : "sleeps on", 0);
    if (!has_moved || is_left_out(place, "look")) {
        self->expires = expires;
        self->is_woken = false;
        self = pause_for(IS_ASLEEP, word, false);
        tell(place, self->is_woken ? "is woken on" : "its time is up on", 0);
        self->expires = self->is_woken = false;
    }
    self->watched &= ~bit_of(word);
    self->moved &= ~bit_of(word);
}

static void wake_sleepers(const void *word) {
    for (int i = 0; i < thread_count; i++)
        if (threads[i].status == IS_ASLEEP && threads[i].awaited == word) threads[i].is_woken = true;
}

void explore_word_wake(explore_place place, void *word) {
    pause_for(IS_READY, NULL, true);
    tell(place, "wakes", 0);
    wake_sleepers(word);
}

/* Its value does not matter, but whether it is what somebody read. One step: who comes between the advance and the wake does not
 * sleep, and who is woken at once may go on as late as if it had been later. */
void explore_word_advance(explore_place place, void *word) {
    if (is_left_out(place, "advance")) return;
    pause_for(IS_READY, NULL, true);
    check_is_live(word);
    tell(place, "advances", 0);
    for (int i = 0; i < thread_count; i++) threads[i].moved |= threads[i].watched & bit_of(word);
    wake_sleepers(word);
}
