/* signals.h: the launcher's signals as events of its loop, and the process put back as it was. */
#ifndef LS_LAUNCH_SIGNALS_H
#define LS_LAUNCH_SIGNALS_H

#include <lockstep/base.h>

#include <signal.h>
#include <uv.h>

typedef struct launch_signals {
    uv_poll_t poll;
    int descriptor; /* -1: not open */
    int ends;       /* readable while a signal to end (TERM, INT, HUP) has come and was not received; nobody reads it */
    bool is_polling;
    void (*received)(void *context, int signal);
    void *context;
    sigset_t mask_before;
    struct sigaction child_before, pipe_before;
} launch_signals;

/* From now on SIGCHLD and the signals that are passed on (TERM, INT, HUP, USR1, USR2, unless the launcher's parent had
 * them ignored) come as calls of received(context, signal) from the loop. SIGPIPE is ignored. Errors: LS_ERR_IO. */
ls_status launch_signals_open(launch_signals *signals, uv_loop_t *loop, void (*received)(void *context, int signal),
                              void *context);

/* Takes all signals to end that have come and were not received: the first one's number; 0 when there is none. */
int launch_signals_take_end(void);

/* Puts mask and dispositions back. The handle is closed by the loop. */
void launch_signals_close(launch_signals *signals);

/* "SIGTERM"; "signal" for one without a name. */
const char *launch_signal_name(int number, char *text, size_t bytes);

#endif
