/* output.c: a stream for each pipe of a rank, and two sinks, or one where standard output and error are the same file.
 *
 * A line goes to its sink whole, label and newline included, so lines of ranks never mix. A sink whose reader is slow
 * stops the streams that feed it, and through their pipes the ranks, as a terminal would; the loop goes on. When a
 * reader is gone the streams are closed, and the ranks learn it as they would without a launcher: by SIGPIPE.        */
#include "launch/output.h"

#include "launch/sink.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 16384, TAIL_BYTES = 2048, LABEL_BYTES = 16 };

typedef struct stream {
    uv_poll_t poll;
    struct launch_output *output;
    struct stream *next;
    int rank, descriptor;
    bool is_error;
    char *line; /* the beginning of a line whose end has not come */
    size_t used, capacity;
} stream;

/* The last lines of a rank, whole, each with its newline. */
typedef struct tail {
    size_t used;
    char bytes[TAIL_BYTES];
} tail;

struct launch_output {
    uv_loop_t *loop;
    const launch_options *options;
    launch_sink *sinks[2]; /* standard output, standard error; [1] may be [0] */
    stream *streams;       /* open ones */
    tail *tails;           /* [ranks] */
    int last_rank;         /* whose line came last */
    bool is_holding_up;    /* some stream waits for its sink */
    bool is_draining;
    void (*changed)(void *context);
    void *context;
    char buffer[READ_BYTES];
};

static launch_sink *sink_of(const launch_output *output, bool is_error) {
    return output->sinks[is_error ? 1 : 0];
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

/* Keeps a line for the report, at the cost of the oldest. */
static void keep(tail *kept, const char *text, size_t bytes) {
    if (bytes > TAIL_BYTES / 4) { /* of a long line its end */
        text += bytes - TAIL_BYTES / 4;
        bytes = TAIL_BYTES / 4;
    }
    while (kept->used + bytes + 1 > TAIL_BYTES) {
        /* A tail has whole lines alone, so the search always finds one. */
        const char *second = (const char *)memchr(kept->bytes, '\n', kept->used) + 1;
        kept->used -= (size_t)(second - kept->bytes);
        memmove(kept->bytes, second, kept->used);
    }
    memcpy(kept->bytes + kept->used, text, bytes);
    kept->used += bytes;
    kept->bytes[kept->used++] = '\n';
}

static const char *label_of(const launch_output *output, int rank, char *label) {
    label[0] = '\0';
    if (output->options->ranks > 1 && !output->options->without_labels) snprintf(label, LABEL_BYTES, "[%d] ", rank);
    return label;
}

static void emit(const stream *from, const char *text, size_t bytes, bool is_whole) {
    launch_output *output = from->output;
    const launch_observer *observer = &output->options->observer;
    char label[LABEL_BYTES];
    /* Before it is written: a sink whose reader is gone drops it, the report should not. */
    keep(&output->tails[from->rank], text, bytes);
    output->last_rank = from->rank;
    if (observer->line)
        observer->line(observer->context, from->rank, from->is_error, text, bytes, is_whole);
    else
        launch_sink_put(sink_of(output, from->is_error), label_of(output, from->rank, label), text, bytes, "\n");
}

/* Adds to the line that has begun. Past the longest line, or without memory, it is broken here rather than lost. */
static void append(stream *from, const char *text, size_t bytes) {
    if (from->used + bytes > from->capacity && from->used + bytes <= LAUNCH_LINE_BYTES) {
        /* Doubled: a line that comes in pieces is copied few times. */
        const size_t capacity = 2 * (from->used + bytes);
        char *line = ls_alloc_raw(capacity);
        if (line) {
            if (from->used > 0) memcpy(line, from->line, from->used);
            ls_free(from->line);
            from->line = line;
            from->capacity = capacity;
        }
    }
    if (from->used + bytes > from->capacity || from->used + bytes > LAUNCH_LINE_BYTES) {
        if (from->used > 0) emit(from, from->line, from->used, true);
        from->used = 0;
    }
    if (bytes > from->capacity) {
        emit(from, text, bytes, true);
        return;
    }
    memcpy(from->line + from->used, text, bytes);
    from->used += bytes;
}

static void take(stream *from, const char *text, size_t bytes) {
    while (bytes > 0) {
        const char *newline = memchr(text, '\n', bytes);
        const size_t length = newline ? (size_t)(newline - text) : bytes;
        /* The usual case: a line that lies whole in what was read is never copied. */
        if (newline && from->used == 0) {
            emit(from, text, length, true);
        } else {
            append(from, text, length);
            if (newline && from->used > 0) emit(from, from->line, from->used, true);
            if (newline) from->used = 0;
        }
        if (!newline) return;
        text = newline + 1;
        bytes -= length + 1;
    }
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static void stream_free(uv_handle_t *handle) {
    stream *closed = handle->data;
    close(closed->descriptor);
    ls_free(closed->line);
    ls_free(closed);
}

static void stream_end(stream *ending) {
    launch_output *output = ending->output;
    if (ending->used > 0) emit(ending, ending->line, ending->used, false);
    stream **link = &output->streams;
    while (*link != ending) link = &(*link)->next;
    *link = ending->next;
    uv_close((uv_handle_t *)&ending->poll, stream_free);
    output->changed(output->context);
}

static bool is_held_up(const stream *from) {
    return launch_sink_backlog(sink_of(from->output, from->is_error)) > LAUNCH_SINK_HIGH_BYTES;
}

static void stream_ready(uv_poll_t *poll, int failure, int events);

/* Reads once. False when there is nothing more to read now, or ever. */
static bool stream_read(stream *from) {
    launch_output *output = from->output;
    const ssize_t bytes = read(from->descriptor, output->buffer, READ_BYTES);
    if (bytes < 0 && errno == EINTR) return true;
    /* In draining nobody writes any more: what is not there now will not come. */
    if (bytes < 0 && errno == EAGAIN && !output->is_draining) return false;
    if (bytes > 0) take(from, output->buffer, (size_t)bytes);
    if (bytes <= 0 || launch_sink_is_broken(sink_of(output, from->is_error))) {
        stream_end(from);
        return false;
    }
    if (!is_held_up(from)) return true;
    /* The pipe fills and its rank waits in write(), as it would for a slow terminal. */
    output->is_holding_up = true;
    uv_poll_stop(&from->poll);
    return false;
}

static void stream_ready(uv_poll_t *poll, int failure, int events) {
    (void)failure; /* the read says it too */
    (void)events;
    (void)stream_read(poll->data);
}

ls_status launch_output_add(launch_output *output, int rank, bool is_error, int descriptor) {
    stream *made = ls_alloc(sizeof *made);
    ls_status status = made ? LS_OK : LS_ERR_MEMORY;
    if (made) {
        const int failure =
            ls_fault(LS_FAULT_SYSCALL) ? UV_ENOMEM : uv_poll_init(output->loop, &made->poll, descriptor);
        if (failure) status = ls_fail(LS_ERR_IO, "cannot watch a rank's output: %s", uv_strerror(failure));
    }
    if (status != LS_OK) {
        close(descriptor);
        ls_free(made);
        return status;
    }
    made->poll.data = made;
    made->output = output;
    made->rank = rank;
    made->is_error = is_error;
    made->descriptor = descriptor;
    made->next = output->streams;
    output->streams = made;
    uv_poll_start(&made->poll, UV_READABLE, stream_ready);
    return LS_OK;
}

/* A reader takes what was held back: once it has caught up, the streams go on. */
static void eased(void *context) {
    launch_output *output = context;
    const size_t backlog = launch_sink_backlog(output->sinks[0]) + launch_sink_backlog(output->sinks[1]);
    if (output->is_holding_up && backlog < LAUNCH_SINK_HIGH_BYTES / 2) {
        output->is_holding_up = false;
        for (stream *each = output->streams; each; each = each->next)
            uv_poll_start(&each->poll, UV_READABLE, stream_ready);
        if (output->is_draining) launch_output_drain(output);
    }
    output->changed(output->context);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static bool is_same_file(int a, int b) {
    struct stat left, right;
    return fstat(a, &left) == 0 && fstat(b, &right) == 0 && left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

ls_status launch_output_open(launch_output **opened, uv_loop_t *loop, const launch_options *options,
                             void (*changed)(void *context), void *context) {
    *opened = NULL;
    launch_output *output = ls_alloc(sizeof *output);
    if (!output) return LS_ERR_MEMORY;
    output->loop = loop;
    output->options = options;
    output->last_rank = -1;
    output->changed = changed;
    output->context = context;
    output->tails = ls_alloc_array((size_t)options->ranks, sizeof(tail));
    ls_status status = output->tails ? LS_OK : LS_ERR_MEMORY;
    if (status == LS_OK) status = launch_sink_open(&output->sinks[0], loop, STDOUT_FILENO, eased, output);
    if (status == LS_OK && is_same_file(STDOUT_FILENO, STDERR_FILENO))
        output->sinks[1] = output->sinks[0];
    else if (status == LS_OK)
        status = launch_sink_open(&output->sinks[1], loop, STDERR_FILENO, eased, output);
    if (status != LS_OK) launch_output_close(&output);
    *opened = output;
    return status;
}

void launch_output_say(launch_output *output, const char *format, ...) {
    char line[LS_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    /* Through the sink as all else, so that it stands where it was said. */
    launch_sink_put(output->sinks[1], "lockstep: ", line, strlen(line), "\n");
}

void launch_output_repeat_last(launch_output *output, int rank) {
    const tail *last = &output->tails[rank];
    /* Where they stand last on the screen anyway, twice would be once too often. */
    if (output->options->observer.line || last->used == 0 || output->last_rank == rank) return;
    launch_output_say(output, "the last lines of rank %d:", rank);
    char label[LABEL_BYTES];
    for (const char *line = last->bytes, *end; line < last->bytes + last->used; line = end + 1) {
        end = memchr(line, '\n', (size_t)(last->bytes + last->used - line));
        launch_sink_put(output->sinks[1], label_of(output, rank, label), line, (size_t)(end - line), "\n");
    }
}

void launch_output_drain(launch_output *output) {
    output->is_draining = true;
    for (stream *next, *each = output->streams; each; each = next) {
        next = each->next;
        while (!is_held_up(each) && stream_read(each)) {}
        if (is_held_up(each)) output->is_holding_up = true;
    }
}

bool launch_output_has_ended(const launch_output *output) {
    return !output->streams;
}

bool launch_output_is_done(const launch_output *output) {
    return !output->streams && launch_sink_backlog(output->sinks[0]) + launch_sink_backlog(output->sinks[1]) == 0;
}

void launch_output_close(launch_output **closing) {
    launch_output *output = *closing;
    *closing = NULL;
    if (!output) return;
    /* Streams that are still open here are of a job that did not start: nobody waits for their end. */
    for (stream *next, *each = output->streams; each; each = next) {
        next = each->next;
        uv_close((uv_handle_t *)&each->poll, stream_free);
    }
    if (output->sinks[1] != output->sinks[0]) launch_sink_close(&output->sinks[1]);
    launch_sink_close(&output->sinks[0]);
    ls_free(output->tails);
    ls_free(output);
}
