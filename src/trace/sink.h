/* sink.h: the file under a trace: a JSON array of events that grows by whole events alone. */
#ifndef LS_TRACE_SINK_H
#define LS_TRACE_SINK_H

#include <lockstep/base.h>

typedef struct trace_sink {
    char *path;
    char *buffer;    /* whole events on their way to the file */
    size_t used;     /* bytes of the buffer */
    int64_t written; /* bytes of the file, all of them whole events */
    int buffered;    /* events in the buffer */
    int64_t lost;    /* events that the file did not take */
    int failure;     /* errno of the first write that failed; from then on events are only counted */
    int file;        /* -1: not open */
} trace_sink;

/* Opens DIRECTORY/rank-RANK.json anew, making the directory when missing. On error nothing is left open.
 * Errors: LS_ERR_IO, LS_ERR_MEMORY. */
ls_status trace_sink_open(trace_sink *sink, const char *directory, int rank);

/* Adds one event: the text of a JSON object, without the comma. Never fails: what cannot be written is counted as
 * lost. */
void trace_sink_add(trace_sink *sink, const char *event, size_t bytes);

/* Completes the array and closes the file. Errors: LS_ERR_IO when events were lost. */
ls_status trace_sink_close(trace_sink *sink);

/* Writes `text` as the inside of a JSON string into `escaped` [bytes], cut between characters where it does not fit.
 * What is no UTF-8 becomes question marks. Returns `escaped`. */
const char *trace_escape(char *escaped, size_t bytes, const char *text);

#endif
