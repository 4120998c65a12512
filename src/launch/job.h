/* job.h: the life of a job.
 *
 *             first failure                  linger over                grace over
 *   running ---------------> lingering -------------------> ending --------------> killing
 *      |                        |                             |                       |
 *      +------------------------+------- nobody is left ------+-----------------------+----> draining ----> done
 *                                                                          or what is left does not end
 *
 *   running     all is well; a signal to end (TERM, INT, HUP) is passed on and goes straight to ending
 *   lingering   a rank has failed: the others get a moment to end by themselves, with errors of their own
 *   ending      SIGTERM has gone to every process group (or the user's own signal has)
 *   killing     SIGKILL to all descendants, again and again until none is left; a second signal to end comes here at
 *               once. What the kernel does not end within a limit is named and left behind
 *   draining    no process is left: what they wrote is read to its end and written
 *
 * When the last rank has ended by itself and descendants are left, the job is ending too. The launcher is their
 * subreaper (PR_SET_CHILD_SUBREAPER): whatever a rank leaves behind becomes the launcher's child, also what made a
 * session of its own, so "a child is left" is a question with an exact answer. Sessions (each rank has one) stay known
 * to the watcher until their last process is gone.
 *
 *   run.c     a job starts, and the whole of it
 *   ends.c    what happens to it until nobody is left                                                                */
#ifndef LS_LAUNCH_JOB_H
#define LS_LAUNCH_JOB_H

#include "launch/launch.h"
#include "launch/output.h"
#include "launch/signals.h"
#include "launch/watcher.h"

#include "store/server.h"

#include <sys/resource.h>
#include <sys/types.h>
#include <uv.h>

typedef enum job_phase { RUNNING, LINGERING, ENDING, KILLING, DRAINING } job_phase;

typedef struct job_rank {
    pid_t pid; /* its session and process group too; 0: not started */
    bool is_running;
    bool has_group;  /* some process of its group may be there */
    int wait_status; /* once it has ended */
} job_rank;

typedef struct job {
    const launch_options *options;
    launch_result *result;
    job_phase phase;
    job_rank *ranks;
    int running; /* ranks that have not ended */
    int *failed; /* ranks that have ended badly, in the order of time */
    int failed_count, told_count;
    bool was_asked; /* a signal to end has come */
    bool is_reported;
    int descendants;      /* found by the last look */
    uint64_t kill_end_ms; /* killing: when what is left is given up; on the loop's clock */
    uv_loop_t loop;
    uv_timer_t timer, tell_timer;
    launch_signals signals;
    store_server *server;
    launch_output *output;
    launch_watcher watcher;
    pid_t left_behind; /* by a start that failed, which names it; 0: none is */
    char *path;
    int null;
    int was_subreaper;
    struct rlimit descriptors_before;
} job;

/* In the killing phase from now on. */
void job_kill(job *self);

/* A signal to the launcher has come. `context` is the job. */
void job_signal_received(void *context, int signal);

/* Output was written, or has ended: is the job done? `context` is the job. */
void job_check_done(void *context);

#endif
