/* lockstep/base.h: what every room shares: status codes, the sentence of the last failure, element types, the log.
 *
 * Every function that can fail returns an ls_status and leaves a sentence behind, which ls_last_error() returns.
 * Handles are opaque; every ..._close takes the handle's address, sets it to NULL, and does nothing on NULL.
 *
 * Threads: status, sentence and rank belong to the calling thread. Ranks may be processes, or threads of one
 * process. */
#ifndef LOCKSTEP_BASE_H
#define LOCKSTEP_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LS_API __attribute__((visibility("default")))
#define LS_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define LS_API
#define LS_PRINTF(text, first)
#endif

#define LS_VERSION_MAJOR 0
#define LS_VERSION_MINOR 1
#define LS_VERSION_PATCH 0

/* The version of the library that runs, for instance "0.1.0". Never fails; any thread. */
LS_API const char *ls_version(void);

/* What a call came to. Errors are negative and grouped by what is lost, so that the group tells the cure. */
typedef enum ls_status {
    LS_OK = 0,
    LS_END = 1, /* an orderly end, for instance of an epoch: not an error */

    /* The call is lost, nothing else: correct it and call again. */
    LS_ERR_ARGUMENT = -1,    /* an argument outside what the function's comment allows */
    LS_ERR_STATE = -2,       /* the call does not fit what was called before */
    LS_ERR_MEMORY = -3,      /* memory was refused, or would have been past a limit */
    LS_ERR_ENVIRONMENT = -4, /* a variable of the environment is missing or wrong */
    LS_ERR_IO = -5,          /* a system call failed */
    LS_ERR_FORMAT = -6,      /* a file or message is not what it claims to be */
    LS_ERR_UNSUPPORTED = -7, /* valid, but not built in or not present here */

    /* The operation is lost, on all ranks alike: the group is in step and goes on. A rank's own failure in a
     * synchronised step (LS_ERR_MEMORY, say) is returned on all ranks too, with a sentence that names the rank. */
    LS_ERR_TIMEOUT = -20,   /* a wait expired; waiting again is allowed */
    LS_ERR_UNUSED = -21,    /* a parameter got no gradient and unused-parameter search is off */
    LS_ERR_NONFINITE = -22, /* a gradient holds NaN or infinity */

    /* The group is lost: close it; survivors may open a new one. (A mismatch of models at a wrap, of step numbers in a
     * header or of a file's content loses that call alone.) */
    LS_ERR_PEER_LOST = -40, /* a rank died or left */
    LS_ERR_MISMATCH = -41,  /* ranks called different things */
    LS_ERR_ABORTED = -42,   /* the group was aborted, or its time limit ran out */

    /* The process is lost to the library. */
    LS_ERR_FORKED = -60,  /* a handle made before fork was used in the child */
    LS_ERR_INTERNAL = -61 /* a bug of ours */
} ls_status;

/* The name of a status as it is written above, for instance "LS_ERR_TIMEOUT"; "unknown status" for others. */
LS_API const char *ls_status_name(ls_status status);

/* The sentence of the last failure on this thread: rank, operation, what was expected, what was found, what to do.
 * Empty when nothing failed yet. Owned by the library; valid until the next failure on this thread. */
LS_API const char *ls_last_error(void);

/* Element types of tensors, collectives and files. */
typedef enum ls_dtype {
    LS_F32 = 0,
    LS_F64,
    LS_F16,
    LS_BF16,
    LS_I8,
    LS_U8,
    LS_I32,
    LS_I64,
    LS_BOOL,
    LS_DTYPE_COUNT
} ls_dtype;

/* Bytes of one element; 0 for a value that is no type. */
LS_API size_t ls_dtype_size(ls_dtype dtype);

/* The short name of a type: "f32", "bf16", ...; "unknown" for a value that is no type. */
LS_API const char *ls_dtype_name(ls_dtype dtype);

/* How much is written to standard error: LOCKSTEP_LOG=error|warning|info|debug, warning by default. */
typedef enum ls_log_level { LS_LOG_ERROR = 0, LS_LOG_WARNING, LS_LOG_INFO, LS_LOG_DEBUG } ls_log_level;

/* An unlimited wait, wherever a time limit in milliseconds is asked for and 0 means the default. */
#define LS_FOREVER ((int64_t)-1)

#ifdef __cplusplus
}
#endif
#endif
