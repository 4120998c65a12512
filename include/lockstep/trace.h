/* lockstep/trace.h: where the time of a step went, as a Chrome trace (chrome://tracing, Perfetto), one file a rank.
 *
 * With LOCKSTEP_TRACE=DIR in the environment ls_group_open starts a trace and ls_group_close ends it; a program that
 * wants a few steps only starts and stops by itself. Spans of forward, backward, each bucket's reduction and wait, and
 * the optimizer are written by the library.                                                                          */
#ifndef LOCKSTEP_TRACE_H
#define LOCKSTEP_TRACE_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts the trace of the calling thread's rank into DIRECTORY/rank-N.json; the directory is made when missing. Threads
 * that the library starts for this rank afterwards write into it too. LS_OK and nothing else when one is under way.
 * Errors: LS_ERR_IO, LS_ERR_MEMORY. Each rank calls for itself. */
LS_API ls_status ls_trace_start(const char *directory);

/* Ends the calling thread's trace and completes the file. Errors: LS_ERR_IO when events were lost, for instance to a
 * full disk. LS_OK when none is under way. */
LS_API ls_status ls_trace_stop(void);

/* The user's own spans: names a part of the step. `name` is copied. Begin and end nest, on one thread. Without a trace
 * both cost a load. */
LS_API void ls_span_begin(const char *name);
LS_API void ls_span_end(void);

#ifdef __cplusplus
}
#endif
#endif
