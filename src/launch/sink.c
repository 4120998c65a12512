/* sink.c: the file descriptions behind 1 and 2 belong to the shell and others too, so O_NONBLOCK must not be set on
 * them, as libuv would. Instead the descriptor is watched by an epoll of its own, which the loop watches; a pipe or
 * terminal that is ready takes PIPE_BUF bytes at once without blocking. Files cannot be watched and are always ready.
 *
 * What is written at once ends with a line where it can, so that other writers of the same pipe tear none.           */
#include "launch/sink.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Twice what may be unwritten before a put, and the longest line with its label. */
#define SINK_BYTES (2 * LAUNCH_SINK_HIGH_BYTES + LAUNCH_LINE_BYTES + 4096)

struct launch_sink {
    uv_poll_t poll;
    int descriptor;
    int watch; /* the epoll; -1: a file, always ready */
    bool is_broken;
    void (*eased)(void *context);
    void *context;
    size_t start, end; /* unwritten: bytes [start, end) */
    char *bytes;       /* [SINK_BYTES] */
};

static bool is_ready(const launch_sink *sink) {
    struct pollfd polled = {.fd = sink->descriptor, .events = POLLOUT};
    /* Asked before each write: a blocking descriptor would else block the loop. */
    return sink->watch < 0 || poll(&polled, 1, 0) > 0;
}

/* How much goes out in one write. */
static size_t next_piece(const launch_sink *sink) {
    const size_t held = sink->end - sink->start;
    if (sink->watch < 0 || held <= PIPE_BUF) return held;
    const char *from = sink->bytes + sink->start;
    /* Up to PIPE_BUF the kernel keeps a write whole. */
    const char *newline = memrchr(from, '\n', PIPE_BUF);
    return newline ? (size_t)(newline + 1 - from) : PIPE_BUF;
}

static void when_ready(uv_poll_t *poll, int failure, int events);

static void flush(launch_sink *sink) {
    while (sink->start < sink->end && is_ready(sink)) {
        const ssize_t written = write(sink->descriptor, sink->bytes + sink->start, next_piece(sink));
        if (written >= 0) {
            sink->start += (size_t)written;
        } else if (errno == EAGAIN) {
            break; /* not blocking, by its owner's wish, and another writer was faster */
        } else if (errno != EINTR) {
            sink->is_broken = true;
            /* Dropped, so that whoever waits for the backlog to go does not wait for ever. */
            sink->start = sink->end;
        }
    }
    if (sink->watch >= 0) {
        if (sink->start < sink->end) /* Readable is what an epoll becomes when something in it is ready. */
            uv_poll_start(&sink->poll, UV_READABLE, when_ready);
        else
            uv_poll_stop(&sink->poll);
    }
}

static void when_ready(uv_poll_t *poll, int failure, int events) {
    (void)failure;
    (void)events;
    launch_sink *sink = poll->data;
    struct epoll_event event;
    epoll_wait(sink->watch, &event, 1, 0);
    flush(sink);
    sink->eased(sink->context);
}

static ls_status watch_descriptor(launch_sink *sink, uv_loop_t *loop) {
    sink->watch = LS_SYSCALL(EMFILE, epoll_create1(EPOLL_CLOEXEC));
    if (sink->watch < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot watch the output");
    struct epoll_event event = {.events = EPOLLOUT};
    /* EPERM: a file, or /dev/null, which is always ready. */
    if (epoll_ctl(sink->watch, EPOLL_CTL_ADD, sink->descriptor, &event) != 0) {
        close(sink->watch);
        sink->watch = -1;
        return LS_OK;
    }
    const int failure = ls_fault(LS_FAULT_SYSCALL) ? UV_ENOMEM : uv_poll_init(loop, &sink->poll, sink->watch);
    if (failure) {
        close(sink->watch);
        return ls_fail(LS_ERR_IO, "cannot watch the output: %s", uv_strerror(failure));
    }
    sink->poll.data = sink;
    return LS_OK;
}

ls_status launch_sink_open(launch_sink **opened, uv_loop_t *loop, int descriptor, void (*eased)(void *context),
                           void *context) {
    *opened = NULL;
    launch_sink *sink = ls_alloc(sizeof *sink);
    if (!sink) return LS_ERR_MEMORY;
    sink->descriptor = descriptor;
    sink->eased = eased;
    sink->context = context;
    sink->bytes = ls_alloc_raw(SINK_BYTES);
    const ls_status status = sink->bytes ? watch_descriptor(sink, loop) : LS_ERR_MEMORY;
    if (status == LS_OK) {
        *opened = sink;
        return LS_OK;
    }
    ls_free(sink->bytes);
    ls_free(sink);
    return status;
}

static void append(launch_sink *sink, const char *text, size_t bytes) {
    memcpy(sink->bytes + sink->end, text, bytes);
    sink->end += bytes;
}

void launch_sink_put(launch_sink *sink, const char *label, const char *text, size_t bytes, const char *end) {
    const size_t label_bytes = strlen(label), end_bytes = strlen(end), needed = label_bytes + bytes + end_bytes;
    if (sink->is_broken) return;
    /* Moved to the front now and then, rather than a ring: each write is one piece. */
    if (sink->end + needed > SINK_BYTES) {
        memmove(sink->bytes, sink->bytes + sink->start, sink->end - sink->start);
        sink->end -= sink->start;
        sink->start = 0;
    }
    append(sink, label, label_bytes);
    append(sink, text, bytes);
    append(sink, end, end_bytes);
    flush(sink);
}

size_t launch_sink_backlog(const launch_sink *sink) {
    return sink->end - sink->start;
}

bool launch_sink_is_broken(const launch_sink *sink) {
    return sink->is_broken;
}

static void sink_free(launch_sink *sink) {
    if (sink->watch >= 0) close(sink->watch);
    ls_free(sink->bytes);
    ls_free(sink);
}

static void when_closed(uv_handle_t *handle) {
    sink_free(handle->data);
}

void launch_sink_close(launch_sink **closing) {
    launch_sink *sink = *closing;
    *closing = NULL;
    if (!sink) return;
    if (sink->watch < 0)
        sink_free(sink);
    else
        uv_close((uv_handle_t *)&sink->poll, when_closed);
}
