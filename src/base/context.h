/* context.h: what a thread knows of its rank. A rank may be a process or a thread of one; threads started by
 * ls_thread_start work for the rank of the thread that started them. */
#ifndef LS_BASE_CONTEXT_H
#define LS_BASE_CONTEXT_H

#include <stdint.h>

struct ls_trace;

typedef struct ls_context {
    int rank;               /* -1 before a group is opened */
    int world_size;         /* 0 before a group is opened */
    struct ls_trace *trace; /* owned by the trace room; NULL: no trace is written */
} ls_context;

/* The calling thread's context: read and written by that thread alone. */
ls_context *ls_context_here(void);

#endif
