/* live.h: the one list of what is live in this process: groups, the segments that they map, and stores. It is the only
 * state of the library that belongs to the process, and it is there for what concerns the process: fork, and ranks that
 * are threads and share one mapping of a segment. */
#ifndef LS_BASE_LIVE_H
#define LS_BASE_LIVE_H

#include <lockstep/base.h>

#include <stddef.h>

/* Embedded in what is listed. `forked` runs in a forked child, on its only thread, with the list locked: it may close
 * descriptors and set marks; other locks may be held by threads that are no more. Then the list is empty there. */
typedef struct ls_live {
    struct ls_live *next;
    void (*forked)(struct ls_live *self);
} ls_live;

/* The object of `type` whose member `live` is listed as `self`. */
#define LS_LIVE_OWNER(type, self) ((type *)(void *)((char *)(self)-offsetof(type, live)))

/* The list's lock. It is held over fork(), so that a child never finds the list half changed. */
void ls_live_lock(void);
void ls_live_unlock(void);

/* Adds and removes; the caller holds the lock. Removing what is not listed is harmless. Errors: LS_ERR_MEMORY when fork
 * handlers cannot be registered. */
ls_status ls_live_add(ls_live *self);
void ls_live_remove(ls_live *self);

/* The same, taking the lock. */
ls_status ls_live_enlist(ls_live *self);
void ls_live_delist(ls_live *self);

/* The first that is listed, then follow `next`; the caller holds the lock. */
ls_live *ls_live_first(void);

/* How often this process got SIGUSR2 since somebody began to watch for it: what wants the flight recorders written. A
 * program that has a handler of its own, or ignores the signal, keeps it. Any thread. */
void ls_live_watch_signal(void);
uint32_t ls_live_signals(void);

#endif
