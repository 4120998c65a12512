/* output.h: the ranks' standard output and error, line by line, to the launcher's own. */
#ifndef LS_LAUNCH_OUTPUT_H
#define LS_LAUNCH_OUTPUT_H

#include "launch/launch.h"

#include <uv.h>

typedef struct launch_output launch_output;

/* `changed(context)` is called from the loop when a stream has ended or something was written. `options` is borrowed.
 * Errors: LS_ERR_MEMORY, LS_ERR_IO. */
ls_status launch_output_open(launch_output **output, uv_loop_t *loop, const launch_options *options,
                             void (*changed)(void *context), void *context);

/* Reads lines of `rank` from `descriptor`, which is the output's from now on, also on an error. */
ls_status launch_output_add(launch_output *output, int rank, bool is_error, int descriptor);

/* A line of the launcher itself, on standard error. */
void launch_output_say(launch_output *output, const char *format, ...) LS_PRINTF(2, 3);

/* Repeats the last lines of `rank`, unless nothing came after them. */
void launch_output_repeat_last(launch_output *output, int rank);

/* All writers are gone: what is in the pipes is read to its end, without waiting for more, and the streams end. */
void launch_output_drain(launch_output *output);

/* Whether all streams have ended. */
bool launch_output_has_ended(const launch_output *output);

/* Whether all streams have ended and all that they brought is written. */
bool launch_output_is_done(const launch_output *output);

/* Closes everything and sets *output to NULL; memory goes as the loop closes the handles. */
void launch_output_close(launch_output **output);

#endif
