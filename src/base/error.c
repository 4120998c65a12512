/* error.c: status names, and the thread's last failure. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The thread's own: ranks may be threads, and no call of another may take the sentence away before it is read. */
static _Thread_local ls_error last;

const char *ls_version(void) {
    return "0.1.0";
}

const char *ls_last_error(void) {
    return last.text;
}

ls_status ls_last_status(void) {
    return last.status;
}

const char *ls_status_name(ls_status status) {
    /* Without a default, so that the compiler names a status that was forgotten here. */
    switch (status) {
    case LS_OK: return "LS_OK";
    case LS_END: return "LS_END";
    case LS_ERR_ARGUMENT: return "LS_ERR_ARGUMENT";
    case LS_ERR_STATE: return "LS_ERR_STATE";
    case LS_ERR_MEMORY: return "LS_ERR_MEMORY";
    case LS_ERR_ENVIRONMENT: return "LS_ERR_ENVIRONMENT";
    case LS_ERR_IO: return "LS_ERR_IO";
    case LS_ERR_FORMAT: return "LS_ERR_FORMAT";
    case LS_ERR_UNSUPPORTED: return "LS_ERR_UNSUPPORTED";
    case LS_ERR_TIMEOUT: return "LS_ERR_TIMEOUT";
    case LS_ERR_UNUSED: return "LS_ERR_UNUSED";
    case LS_ERR_NONFINITE: return "LS_ERR_NONFINITE";
    case LS_ERR_PEER_LOST: return "LS_ERR_PEER_LOST";
    case LS_ERR_MISMATCH: return "LS_ERR_MISMATCH";
    case LS_ERR_ABORTED: return "LS_ERR_ABORTED";
    case LS_ERR_FORKED: return "LS_ERR_FORKED";
    case LS_ERR_INTERNAL: return "LS_ERR_INTERNAL";
    }
    return "unknown status";
}

/* Formats into a local buffer first: an argument may be the last error itself. */
static void describe(ls_status status, const char *format, va_list arguments, const char *suffix) {
    char text[LS_ERROR_TEXT_BYTES];
    vsnprintf(text, sizeof text, format, arguments);
    /* A sentence that is too long loses its middle: the suffix holds the cause. */
    snprintf(last.text, sizeof last.text, "%.*s%s", (int)(sizeof last.text - 1 - strlen(suffix)), text, suffix);
    last.status = status;
}

ls_status ls_fail(ls_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    describe(status, format, arguments, "");
    va_end(arguments);
    return status;
}

/* What to do where the reason alone says it, whatever the call was. */
static const char *cure_of(int error_number) {
    return error_number == EMFILE ? "; raise the limit on open files (ulimit -n)" : "";
}

ls_status ls_fail_errno(ls_status status, int error_number, const char *format, ...) {
    char reason[128], suffix[224];
    /* glibc's strerror_r, which returns the text and may leave `reason` alone; strerror itself is not for threads. */
    snprintf(suffix, sizeof suffix, ": %s%s", strerror_r(error_number, reason, sizeof reason), cure_of(error_number));
    va_list arguments;
    va_start(arguments, format);
    describe(status, format, arguments, suffix);
    va_end(arguments);
    return status;
}

ls_status ls_fail_within(ls_status status, const char *format, ...) {
    /* Half of the room each, so that neither is squeezed out by the other. */
    char prefix[LS_ERROR_TEXT_BYTES / 2], before[LS_ERROR_TEXT_BYTES / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    const size_t length = strlen(prefix);
    if (strncmp(last.text, prefix, length) == 0 && last.text[length] == ':') {
        last.status = status; /* who failed further in knew as much */
        return status;
    }
    snprintf(before, sizeof before, "%.*s", (int)(sizeof before - 1), last.text);
    return ls_fail(status, "%s: %s", prefix, before);
}

void ls_error_capture(ls_error *error, ls_status status) {
    /* The status is the caller's: it may know a better group for what was lost than who described it. */
    *error = last;
    error->status = status;
}

ls_status ls_error_raise(const ls_error *error) {
    if (error->status != LS_OK) last = *error;
    return error->status;
}
