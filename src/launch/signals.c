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

/* What `nohup` or a shell's `&` made the launcher ignore stays ignored. */
static void wanted_signals(sigset_t *wanted) {
    static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    sigemptyset(wanted);
    /* Always: the launcher lives by it, whatever its parent ignored. */
    sigaddset(wanted, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++) {
        struct sigaction now;
        if (sigaction(passed_on[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(wanted, passed_on[i]);
    }
}

static void put_back(const launch_signals *signals) {
    /* In the reverse order: unblocked last, so that no signal finds half of it. */
    sigaction(SIGPIPE, &signals->pipe_before, NULL);
    sigaction(SIGCHLD, &signals->child_before, NULL);
    pthread_sigmask(SIG_SETMASK, &signals->mask_before, NULL);
}

ls_status launch_signals_open(launch_signals *signals, uv_loop_t *loop, void (*received)(void *context, int signal),
                              void *context) {
    *signals = (launch_signals){.descriptor = -1, .received = received, .context = context};
    sigset_t wanted;
    wanted_signals(&wanted);
    pthread_sigmask(SIG_BLOCK, &wanted, &signals->mask_before);
    /* A reader that goes away is an error of write; a SIGCHLD that is ignored would let children vanish unseen. */
    const struct sigaction ignore = {.sa_handler = SIG_IGN}, standard = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &ignore, &signals->pipe_before);
    sigaction(SIGCHLD, &standard, &signals->child_before);

    signals->descriptor =
        ls_fault(LS_FAULT_SYSCALL) ? (errno = EMFILE, -1) : signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    int failure = signals->descriptor < 0 ? -errno : 0;
    if (!failure)
        failure = ls_fault(LS_FAULT_SYSCALL) ? UV_ENOMEM : uv_poll_init(loop, &signals->poll, signals->descriptor);
    if (failure) {
        if (signals->descriptor >= 0) close(signals->descriptor);
        signals->descriptor = -1;
        put_back(signals);
        return ls_fail(LS_ERR_IO, "the launcher cannot receive signals: %s", uv_strerror(failure));
    }
    signals->is_polling = true;
    signals->poll.data = signals;
    uv_poll_start(&signals->poll, UV_READABLE, ready);
    return LS_OK;
}

static void when_closed(uv_handle_t *handle) {
    launch_signals *signals = handle->data;
    close(signals->descriptor);
    signals->descriptor = -1;
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
