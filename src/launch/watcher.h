/* watcher.h: a process that outlives the launcher and ends what the launcher, killed, could not. */
#ifndef LS_LAUNCH_WATCHER_H
#define LS_LAUNCH_WATCHER_H

#include <lockstep/base.h>

#include <sys/types.h>

typedef struct launch_watcher {
    pid_t pid;   /* 0: none runs */
    int control; /* -1: none; when it closes, a watcher that lives strikes */
} launch_watcher;

#define LAUNCH_NO_WATCHER ((launch_watcher){.pid = 0, .control = -1})

/* Starts it for the job of that identity, before any worker. Errors: LS_ERR_IO. */
ls_status launch_watcher_start(launch_watcher *watcher, const char *job);

/* Tells it that the session (and process group) `session` has begun, or that no process is left of it. */
void launch_watcher_begun(const launch_watcher *watcher, pid_t session);
void launch_watcher_over(const launch_watcher *watcher, pid_t session);

/* Ends it, also one that is stopped. */
void launch_watcher_dismiss(launch_watcher *watcher);

#endif
