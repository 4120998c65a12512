/* processes.h: the processes of this host, as /proc lists them. */
#ifndef LS_LAUNCH_PROCESSES_H
#define LS_LAUNCH_PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct launch_process {
    pid_t pid, parent, session;
    bool is_zombie;
} launch_process;

/* Shows every process to `visit`; one that ends meanwhile may be missing. */
void launch_each_process(void (*visit)(void *context, const launch_process *process), void *context);

/* Whether the environment that `pid` was started with contains `text`. False for processes of other users. */
bool launch_process_carries(pid_t pid, const char *text);

/* Kills a child and reaps it. False: the kernel has held it back for a second, and it is left to be reaped later. */
bool launch_process_end(pid_t child);

#endif
