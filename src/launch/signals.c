/* signals.c: blocked and read from a signalfd, so that none is lost between a fork and the loop, and nothing runs in a
 * handler. */
#include "launch/signals.h"

#include "base/error.h"
#include "base/fault.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void ready(uv_poll_t *poll, int failure, int events) {
    (void)failure;
    (void)events;
    launch_signals *signals = poll->data;
    struct signalfd_siginfo about;
    /* Several may have come; of one kind the kernel keeps one. */
    while (read(signals->descriptor, &about, sizeof about) == (ssize_t)sizeof about)
        signals->received(signals->context, (int)about.ssi_signo);
}

static void close_descriptors(launch_signals *signals) {
    if (signals->descriptor >= 0) close(signals->descriptor);
    if (signals->ends >= 0) close(signals->ends);
    signals->descriptor = signals->ends = -1;
}

static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
enum { TO_END = 3, PASSED_ON = 5 }; /* the first TO_END of them end the job */

/* What `nohup` or a shell's `&` made the launcher ignore stays ignored. */
static void wanted_signals(sigset_t *wanted, int count) {
    sigemptyset(wanted);
    for (int i = 0; i < count; i++) {
        struct sigaction now;
        if (sigaction(passed_on[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(wanted, passed_on[i]);
    }
}

int launch_signals_take_end(void) {
    sigset_t wanted;
    wanted_signals(&wanted, TO_END);
    /* Without a wait. All are taken here, or the rest would end this process when the mask is put back. */
    int first = 0, taken;
    while ((taken = sigtimedwait(&wanted, NULL, &(struct timespec){0})) > 0 || errno == EINTR)
        if (taken > 0 && first == 0) first = taken;
    return first;
}

static int make_descriptor(const sigset_t *wanted) {
    return LS_SYSCALL(EMFILE, signalfd(-1, wanted, SFD_CLOEXEC | SFD_NONBLOCK));
}

/* On an error nothing is open. */
static ls_status open_descriptors(launch_signals *signals, const sigset_t *wanted, uv_loop_t *loop) {
    sigset_t to_end;
    wanted_signals(&to_end, TO_END);
    signals->descriptor = make_descriptor(wanted);
    if (signals->descriptor >= 0) signals->ends = make_descriptor(&to_end);
    int failure = signals->ends < 0 ? -errno : 0;
    if (!failure)
        failure = ls_fault(LS_FAULT_SYSCALL) ? UV_ENOMEM : uv_poll_init(loop, &signals->poll, signals->descriptor);
    if (!failure) return LS_OK;
    close_descriptors(signals);
    return ls_fail(LS_ERR_IO, "the launcher cannot receive signals: %s", uv_strerror(failure));
}

static void put_back(const launch_signals *signals) {
    /* In the reverse order: unblocked last, so that no signal finds half of it. */
    sigaction(SIGPIPE, &signals->pipe_before, NULL);
    sigaction(SIGCHLD, &signals->child_before, NULL);
    pthread_sigmask(SIG_SETMASK, &signals->mask_before, NULL);
}

ls_status launch_signals_open(launch_signals *signals, uv_loop_t *loop, void (*received)(void *context, int signal),
                              void *context) {
    *signals = (launch_signals){.descriptor = -1, .ends = -1, .received = received, .context = context};
    sigset_t wanted;
    wanted_signals(&wanted, PASSED_ON);
    /* Always: the launcher lives by it, whatever its parent ignored. */
    sigaddset(&wanted, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &wanted, &signals->mask_before);
    /* A reader that goes away is an error of write; a SIGCHLD that is ignored would let children vanish unseen. */
    const struct sigaction ignore = {.sa_handler = SIG_IGN}, standard = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &ignore, &signals->pipe_before);
    sigaction(SIGCHLD, &standard, &signals->child_before);

    const ls_status status = open_descriptors(signals, &wanted, loop);
    if (status != LS_OK) {
        put_back(signals);
        return status;
    }
    signals->is_polling = true;
    signals->poll.data = signals;
    uv_poll_start(&signals->poll, UV_READABLE, ready);
    return LS_OK;
}

static void when_closed(uv_handle_t *handle) {
    close_descriptors(handle->data);
}

void launch_signals_close(launch_signals *signals) {
    if (!signals->is_polling) return;
    signals->is_polling = false;
    uv_close((uv_handle_t *)&signals->poll, when_closed);
    put_back(signals);
}

const char *launch_signal_name(int number, char *text, size_t bytes) {
    const char *name = sigabbrev_np(number);
    if (name)
        snprintf(text, bytes, "SIG%s", name);
    else
        snprintf(text, bytes, "signal");
    return text;
}
