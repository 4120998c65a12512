/* sink.c: Chrome's trace file: "[", events with commas between, "]".
 *
 * Chrome and Perfetto accept an array whose end is missing, so a trace is readable after a crash as long as every event
 * in it is whole. Therefore the buffer is flushed between events only, and after a write that took a part of them (a
 * full disk) the file is cut back to the last whole flush; events after that are counted, not written. */
#include "trace/sink.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)64 << 10)

/* mkdir -p: `path` is changed while it runs and is as before afterwards. */
static ls_status make_directories(char *path) {
    for (char *end = path + 1;; end++) {
        if (*end != '/' && *end != '\0') continue;
        /* Parent by parent, in the text itself. */
        const char after = *end;
        *end = '\0';
        const int result = LS_SYSCALL(ENOSPC, mkdir(path, 0777));
        const int failure = errno;
        struct stat found;
        /* Another rank may have made it a moment ago, which is as good. */
        const bool is_there = result == 0 || (stat(path, &found) == 0 && S_ISDIR(found.st_mode));
        if (!is_there)
            return ls_fail_errno(LS_ERR_IO, failure,
                                 "trace: cannot make the directory \"%s\"; name one that can be written", path);
        *end = after;
        if (after == '\0') return LS_OK;
    }
}

ls_status trace_sink_open(trace_sink *sink, const char *directory, int rank) {
    *sink = (trace_sink){.file = -1};
    ls_status status = LS_ERR_MEMORY;
    const size_t path_bytes = strlen(directory) + 32;
    sink->path = ls_alloc(path_bytes);
    sink->buffer = ls_alloc_raw(BUFFER_BYTES);
    if (!sink->path || !sink->buffer) goto out;

    memcpy(sink->path, directory, strlen(directory));
    if ((status = make_directories(sink->path))) goto out;
    snprintf(sink->path, path_bytes, "%s/rank-%d.json", directory, rank);
    sink->file = LS_SYSCALL(EMFILE, open(sink->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (sink->file >= 0) return LS_OK;
    status =
        ls_fail_errno(LS_ERR_IO, errno, "trace: cannot write \"%s\"; name a directory that can be written", sink->path);
out:
    ls_free(sink->buffer);
    ls_free(sink->path);
    return status;
}

/* Writes all or nothing: after a failure the file is cut back to where it was. */
static void write_whole(trace_sink *sink, const char *bytes, size_t count) {
    size_t done = 0;
    while (done < count && !sink->failure) {
        const ssize_t part = LS_SYSCALL(ENOSPC, write(sink->file, bytes + done, count - done));
        if (part > 0)
            done += (size_t)part;
        else if (part == 0 || errno != EINTR)
            sink->failure = part == 0 ? ENOSPC : errno;
    }
    if (done == count) sink->written += (int64_t)count;
    /* A file that cannot even be shortened is reported as the failure that it has already. */
    else if (ftruncate(sink->file, sink->written) == 0)
        (void)lseek(sink->file, sink->written, SEEK_SET);
}

/* Hands what is buffered to the file; after a failure it is counted as lost. */
static void flush(trace_sink *sink) {
    if (!sink->failure) write_whole(sink, sink->buffer, sink->used);
    if (sink->failure) sink->lost += sink->buffered;
    sink->used = 0;
    sink->buffered = 0;
}

void trace_sink_add(trace_sink *sink, const char *event, size_t bytes) {
    const bool is_first = sink->written == 0 && sink->used == 0;
    /* Events are far smaller than the buffer. */
    if (sink->used + bytes + 2 > BUFFER_BYTES) flush(sink);
    memcpy(sink->buffer + sink->used, is_first ? "[\n" : ",\n", 2);
    memcpy(sink->buffer + sink->used + 2, event, bytes);
    sink->used += bytes + 2;
    sink->buffered++;
}

ls_status trace_sink_close(trace_sink *sink) {
    flush(sink);
    /* Cut back, the file has room again for its end: so it is complete JSON even after a full disk. */
    const int failure = sink->failure;
    sink->failure = 0;
    write_whole(sink, sink->written ? "\n]\n" : "[]\n", 3);
    if (failure) sink->failure = failure;
    const int result = ls_fault(LS_FAULT_SYSCALL) ? (errno = EIO, close(sink->file), -1) : close(sink->file);
    if (result != 0 && !sink->failure) sink->failure = errno;

    ls_status status = LS_OK;
    if (sink->failure)
        status =
            ls_fail_errno(LS_ERR_IO, sink->failure,
                          "trace: %" PRId64 " events are missing from \"%s\", which could not be written; make room",
                          sink->lost, sink->path);
    ls_free(sink->buffer);
    ls_free(sink->path);
    return status;
}

/* Bytes of the UTF-8 character at `text`, 0 when it is none (RFC 3629: no overlong forms, no surrogates). */
static size_t utf8_length(const unsigned char *text) {
    if (text[0] < 0x80) return 1;
    const size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    static const uint32_t smallest[] = {[2] = 0x80, [3] = 0x800, [4] = 0x10000};
    if (text[0] < 0xc2 || text[0] > 0xf4) return 0;
    uint32_t code = text[0] & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < smallest[length] || is_surrogate || code > 0x10ffff ? 0 : length;
}

const char *trace_escape(char *escaped, size_t bytes, const char *text) {
    size_t used = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        /* One character: escaped where JSON wants it, copied where it is UTF-8, else the question mark. */
        char one[8] = "?";
        const size_t length = utf8_length(c);
        if (*c == '"' || *c == '\\')
            snprintf(one, sizeof one, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            snprintf(one, sizeof one, "\\u%04x", *c);
        else if (length)
            snprintf(one, sizeof one, "%.*s", (int)length, (const char *)c);

        const size_t wanted = strlen(one);
        if (used + wanted >= bytes) break;
        memcpy(escaped + used, one, wanted);
        used += wanted;
        c += length ? length : 1;
    }
    escaped[used] = '\0';
    return escaped;
}
