/* trace.h: spans from inside the library. Without a trace each call costs a load of the thread's context. */
#ifndef LS_TRACE_TRACE_H
#define LS_TRACE_TRACE_H

#include <lockstep/trace.h>

/* Records that `name` ran from start_ns to end_ns (base/clock.h) on this thread, under `category` ("forward",
 * "backward", "bucket", "wait", "optimizer", "user"). Names are copied. */
void trace_span(const char *category, const char *name, int64_t start_ns, int64_t end_ns);

/* As trace_span on a line of its own called `track`, for what overlaps the thread's own work (a bucket under way). */
void trace_span_on(const char *track, const char *category, const char *name, int64_t start_ns, int64_t end_ns);

/* Whether a trace is under way here: spares building names when none is. */
bool trace_is_on(void);

#endif
