/* trace.c: one trace a rank, written by all threads that work for it.
 *
 * The trace is a counted object (base/context.h): the thread that starts it and every thread that ls_thread_start makes
 * afterwards hold it. Stop completes the file and marks the trace; a thread that still refers to it sees the mark at
 * its next span and lets go. So a helper thread may outlive any number of traces.
 *
 * Times are the monotonic clock's, the same for all ranks of a host: their files can be opened side by side.        */
#include "trace/trace.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "trace/sink.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 160
#define EVENT_BYTES 1024
#define LINE_LIMIT 64
#define SPAN_LIMIT 64

/* A line of the picture: a thread, or a track for what overlaps the threads. Its place in the table is its "tid". */
typedef struct line {
    pid_t thread; /* 0: a track */
    char name[64];
} line;

/*   lock        guards sink and lines
 *   is_stopped  written under the lock; read without it as a hint, and again under it before anything is written
 *   rank, owner fixed before the trace is shared: no lock                                                            */
typedef struct trace {
    ls_held held; /* first: contexts point here */
    ls_mutex lock;
    trace_sink sink;
    line lines[LINE_LIMIT];
    int line_count;
    atomic_bool is_stopped;
    int rank;
    pid_t owner; /* a forked child must not write into its parent's file */
} trace;

/* The user's open spans on this thread. */
static _Thread_local struct {
    int64_t start_ns[SPAN_LIMIT];
    char name[SPAN_LIMIT][NAME_BYTES];
    int depth; /* may exceed SPAN_LIMIT: those are counted, not recorded */
} spans;

static void free_trace(ls_held *held) {
    trace *self = (trace *)held;
    ls_mutex_destroy(&self->lock);
    ls_free(self);
}

/* This thread's trace, NULL when none is under way; forgets one that has been stopped or that belongs to the parent. */
static trace *trace_here(void) {
    ls_context *context = ls_context_here();
    trace *self = (trace *)context->trace;
    if (!self) return NULL;
    /* A system call, but a short one; and only where a trace is under way. */
    const bool is_forked = self->owner != getpid();
    /* Relaxed: a hint that orders nothing. */
    if (!is_forked && !atomic_load_explicit(&self->is_stopped, memory_order_relaxed)) return self;
    /* In a forked child the lock may be held by a thread that does not exist there: leave all of it alone. */
    if (!is_forked) ls_held_release(context->trace);
    context->trace = NULL;
    spans.depth = 0;
    return NULL;
}

bool trace_is_on(void) {
    return trace_here() != NULL;
}

/* Writes a metadata event: the name of the process (no line) or of a line. */
static void write_name(trace *self, const char *kind, int tid, const char *name) {
    char event[EVENT_BYTES], escaped[NAME_BYTES];
    const int bytes =
        snprintf(event, sizeof event, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}",
                 self->rank, tid, kind, trace_escape(escaped, sizeof escaped, name));
    trace_sink_add(&self->sink, event, (size_t)bytes);
}

/* The line of this thread, or of `track`; made at its first event. When the table is full, the last line takes all. */
static int find_line(trace *self, const char *track) {
    LS_ASSERT_HELD(&self->lock);
    const pid_t thread = track ? 0 : gettid();
    char name[sizeof self->lines[0].name] = "";
    /* Cut to what the table keeps, so that it is compared as it stands there. */
    if (track) snprintf(name, sizeof name, "%s", track);
    for (int i = 0; i < self->line_count; i++) {
        const line *known = &self->lines[i];
        if (known->thread == thread && (!track || strcmp(known->name, name) == 0)) return i;
    }
    /* A program of very many threads: its picture is crowded, but nothing is lost. */
    if (self->line_count == LINE_LIMIT) return LINE_LIMIT - 1;

    line *fresh = &self->lines[self->line_count];
    fresh->thread = thread;
    if (!track) pthread_getname_np(pthread_self(), name, sizeof name);
    memcpy(fresh->name, name, sizeof name);
    write_name(self, "thread_name", self->line_count, name);
    return self->line_count++;
}

/* The time of the span is over, so writing it costs the next one: some microseconds, into memory mostly. */
static void write_span(const char *track, const char *category, const char *name, int64_t start_ns, int64_t end_ns) {
    trace *self = trace_here();
    if (!self) return;
    const int64_t lasted_ns = end_ns > start_ns ? end_ns - start_ns : 0;
    char event[EVENT_BYTES], escaped_name[NAME_BYTES], escaped_category[NAME_BYTES];
    trace_escape(escaped_name, sizeof escaped_name, name);
    trace_escape(escaped_category, sizeof escaped_category, category);

    ls_mutex_lock(&self->lock);
    if (!atomic_load_explicit(&self->is_stopped, memory_order_relaxed)) {
        /* Microseconds, with the nanoseconds behind the point. */
        const int bytes = snprintf(event, sizeof event,
                                   "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRId64 ".%03d,\"dur\":%" PRId64
                                   ".%03d,\"cat\":\"%s\",\"name\":\"%s\"}",
                                   self->rank, find_line(self, track), start_ns / 1000, (int)(start_ns % 1000),
                                   lasted_ns / 1000, (int)(lasted_ns % 1000), escaped_category, escaped_name);
        trace_sink_add(&self->sink, event, (size_t)bytes);
    }
    ls_mutex_unlock(&self->lock);
}

void trace_span(const char *category, const char *name, int64_t start_ns, int64_t end_ns) {
    write_span(NULL, category, name, start_ns, end_ns);
}

void trace_span_on(const char *track, const char *category, const char *name, int64_t start_ns, int64_t end_ns) {
    write_span(track, category, name, start_ns, end_ns);
}

ls_status ls_trace_start(const char *directory) {
    if (!directory || !*directory)
        return ls_fail(LS_ERR_ARGUMENT, "ls_trace_start: the directory is missing; name one, for instance \"trace\"");
    if (trace_here()) return LS_OK;
    ls_context *context = ls_context_here();
    trace *self = ls_alloc(sizeof *self);
    if (!self) return LS_ERR_MEMORY;

    self->rank = context->rank < 0 ? 0 : context->rank;
    const ls_status status = trace_sink_open(&self->sink, directory, self->rank);
    if (status != LS_OK) {
        ls_free(self);
        return status;
    }
    self->held.free = free_trace;
    ls_held_keep(&self->held);
    ls_mutex_init(&self->lock);
    self->owner = getpid();

    char name[32];
    snprintf(name, sizeof name, "rank %d", self->rank);
    write_name(self, "process_name", 0, name);
    context->trace = &self->held;
    return LS_OK;
}

ls_status ls_trace_stop(void) {
    trace *self = trace_here();
    if (!self) return LS_OK;
    ls_mutex_lock(&self->lock);
    /* Another thread of this rank may have stopped it since the look above. */
    const bool is_first = !atomic_exchange_explicit(&self->is_stopped, true, memory_order_relaxed);
    const ls_status status = is_first ? trace_sink_close(&self->sink) : LS_OK;
    ls_mutex_unlock(&self->lock);

    ls_context_here()->trace = NULL;
    /* Spans that are open when the trace stops have no end in it. */
    spans.depth = 0;
    ls_held_release(&self->held);
    return status;
}

void ls_span_begin(const char *name) {
    if (!trace_here()) return;
    if (spans.depth < SPAN_LIMIT) {
        spans.start_ns[spans.depth] = ls_now_ns();
        snprintf(spans.name[spans.depth], NAME_BYTES, "%s", name ? name : "");
    }
    spans.depth++;
}

void ls_span_end(void) {
    /* An end without a beginning began before the trace did. */
    if (!trace_here() || spans.depth == 0) return;
    spans.depth--;
    if (spans.depth < SPAN_LIMIT) trace_span("user", spans.name[spans.depth], spans.start_ns[spans.depth], ls_now_ns());
}
