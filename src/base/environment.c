/* environment.c: variables of the environment. */
#include "base/environment.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *ls_env_text(const char *name) {
    const char *text = getenv(name);
    /* `NAME= program` is how a shell takes a variable back for one call: the same as unset. */
    return text && *text ? text : NULL;
}

ls_status ls_env_integer(const char *name, int64_t minimum, int64_t maximum, int64_t *value) {
    const char *text = ls_env_text(name);
    if (!text) return LS_END;
    char *end = NULL;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    /* What strtoll skips or stops at is found by *end; a number past 64 bits by errno. */
    if (errno || *end || number < minimum || number > maximum)
        return ls_fail(LS_ERR_ENVIRONMENT,
                       "%s is \"%s\": expected a whole number from %" PRId64 " to %" PRId64 "; set it so or unset it",
                       name, text, minimum, maximum);
    *value = number;
    return LS_OK;
}

/* LOCKSTEP_TEST_... are the tests' own. */
static bool is_known(const char *name, size_t bytes) {
    static const char *const known[] = {"LOCKSTEP_ALLOW_UNAUTHENTICATED",
                                        "LOCKSTEP_BACKEND",
                                        "LOCKSTEP_DATA",
                                        "LOCKSTEP_DEBUG",
                                        "LOCKSTEP_FLIGHT_DIR",
                                        "LOCKSTEP_JOB",
                                        "LOCKSTEP_KERNELS",
                                        "LOCKSTEP_LAUNCHER_PID",
                                        "LOCKSTEP_LOG",
                                        "LOCKSTEP_MPI",
                                        "LOCKSTEP_NCCL",
                                        "LOCKSTEP_PLACE",
                                        "LOCKSTEP_SECRET_FILE",
                                        "LOCKSTEP_SOCKET_IFNAME",
                                        "LOCKSTEP_STORE_FD",
                                        "LOCKSTEP_STORE_SOCKET",
                                        "LOCKSTEP_TLS",
                                        "LOCKSTEP_TRACE"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == bytes && memcmp(name, known[i], bytes) == 0) return true;
    return strncmp(name, "LOCKSTEP_TEST_", strlen("LOCKSTEP_TEST_")) == 0;
}

void ls_env_warn_unknown(void) {
    const char *name = ls_env_text("LOCKSTEP_LOG");
    ls_log_level level = LS_LOG_WARNING;
    if (name && !ls_log_level_named(name, &level))
        ls_log(LS_LOG_WARNING, "LOCKSTEP_LOG is \"%s\": expected error, warning, info or debug; taken as warning",
               name);
    for (char **each = environ; each && *each; each++) {
        const size_t bytes = strcspn(*each, "=");
        if (strncmp(*each, "LOCKSTEP_", strlen("LOCKSTEP_")) == 0 && !is_known(*each, bytes))
            ls_log(LS_LOG_WARNING,
                   "the variable %.*s has no effect: no variable of Lockstep has this name; is it misspelt?",
                   (int)bytes, *each);
    }
}
