/* error.h: how a failure is described. Once, where it is first seen, by ls_fail; then passed up unchanged. */
#ifndef LS_BASE_ERROR_H
#define LS_BASE_ERROR_H

#include <lockstep/base.h>

#define LS_ERROR_TEXT_BYTES 1024

/* A failure that travels: from a helper thread to the thread that waits, or from one step to the next header. */
typedef struct ls_error {
    ls_status status;
    char text[LS_ERROR_TEXT_BYTES];
} ls_error;

/* Makes the formatted sentence this thread's last error and returns `status`. Long sentences are cut, never lost. */
ls_status ls_fail(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* ls_fail for a failed system call: appends ": " and the text of `error_number`. */
ls_status ls_fail_errno(ls_status status, int error_number, const char *format, ...) LS_PRINTF(3, 4);

/* Puts "prefix: " before this thread's sentence, for a caller that knows more (which file, which parameter); not twice. */
ls_status ls_fail_within(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* The status of this thread's last failure; LS_OK when nothing failed yet. */
ls_status ls_last_status(void);

/* Copies this thread's last sentence into `error`, under `status`. */
void ls_error_capture(ls_error *error, ls_status status);

/* Makes `error` this thread's last error and returns its status; LS_OK leaves the last sentence as it is. */
ls_status ls_error_raise(const ls_error *error);

/* Returns a failing status upward from a function that owns nothing. */
#define LS_TRY(call)                                      \
    do {                                                  \
        const ls_status ls_try_status = (call);           \
        if (ls_try_status != LS_OK) return ls_try_status; \
    } while (0)

#endif
