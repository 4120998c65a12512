/* sink.h: writes lines to standard output or error without ever making the launcher wait for a slow reader. */
#ifndef LS_LAUNCH_SINK_H
#define LS_LAUNCH_SINK_H

#include <lockstep/base.h>

#include <uv.h>

/* Past this much unwritten, nothing more should be put; a put may take as much again, and a line of the longest. */
#define LAUNCH_SINK_HIGH_BYTES ((size_t)512 << 10)
#define LAUNCH_LINE_BYTES ((size_t)1 << 20)

typedef struct launch_sink launch_sink;

/* `eased(context)` is called from the loop when some of what had to wait was written. The descriptor stays the
 * caller's.
 * Errors: LS_ERR_MEMORY, LS_ERR_IO. */
ls_status launch_sink_open(launch_sink **sink, uv_loop_t *loop, int descriptor, void (*eased)(void *context),
                           void *context);

/* Appends three pieces as one: a label, a text, an end. Written as soon as the reader takes it. */
void launch_sink_put(launch_sink *sink, const char *label, const char *text, size_t bytes, const char *end);

/* How much is not written yet. */
size_t launch_sink_backlog(const launch_sink *sink);

/* Whether the reader is gone (or the disk full): all that is put is dropped. */
bool launch_sink_is_broken(const launch_sink *sink);

/* Lets go of the sink; memory goes when the loop has closed its handle. */
void launch_sink_close(launch_sink **sink);

#endif
