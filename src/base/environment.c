/* environment.c: variables of the environment. */
#include "base/environment.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

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
