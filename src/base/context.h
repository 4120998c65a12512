/* context.h: what a thread knows of its rank. A rank may be a process or a thread of one; threads started by
 * ls_thread_start work for the rank of the thread that started them. */
#ifndef LS_BASE_CONTEXT_H
#define LS_BASE_CONTEXT_H

#include <stdatomic.h>
#include <stdint.h>

/* The head of an object that several threads' contexts refer to. Whoever lets go last frees it. */
typedef struct ls_held {
    _Atomic uint32_t holders;
    void (*free)(struct ls_held *held);
} ls_held;

typedef struct ls_context {
    int rank;            /* -1 before a group is opened */
    int world_size;      /* 0 before a group is opened */
    int64_t deadline_ns; /* of what the thread is about to do; 0: none. Steps without a limit of their own go by it */
    ls_held *trace;      /* the trace room's, kept for each thread that refers to it; NULL: no trace is written */
} ls_context;

/* The calling thread's context: read and written by that thread alone. */
ls_context *ls_context_here(void);

/* Sets the deadline of what the calling thread is about to do, and returns the one before, to be put back after. */
static inline int64_t ls_context_limit(int64_t deadline_ns) {
    ls_context *context = ls_context_here();
    const int64_t before_ns = context->deadline_ns;
    context->deadline_ns = deadline_ns;
    return before_ns;
}

/* Adds a holder, and lets one go; NULL is harmless. */
static inline ls_held *ls_held_keep(ls_held *held) {
    if (held) atomic_fetch_add_explicit(&held->holders, 1, memory_order_relaxed);
    return held;
}
static inline void ls_held_release(ls_held *held) {
    /* The last one sees what all others did to the object before they let go. */
    if (held && atomic_fetch_sub_explicit(&held->holders, 1, memory_order_acq_rel) == 1) held->free(held);
}

#endif
