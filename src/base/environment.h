/* environment.h: reading variables with errors that name the variable, its value and what was expected. */
#ifndef LS_BASE_ENVIRONMENT_H
#define LS_BASE_ENVIRONMENT_H

#include <lockstep/base.h>

/* The value of `name`, NULL when unset or empty. */
const char *ls_env_text(const char *name);

/* Reads a decimal integer in [minimum, maximum] into `value`; LS_END leaves it as it was when unset or empty.
 * Errors: LS_ERR_ENVIRONMENT for anything else. */
ls_status ls_env_integer(const char *name, int64_t minimum, int64_t maximum, int64_t *value);

/* Warns in the log of each variable that begins like ours and is none of them, and of a LOCKSTEP_LOG that names no level: what
 * is misspelt has no effect, and nothing else would say so. */
void ls_env_warn_unknown(void);

#endif
