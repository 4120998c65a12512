/* log.h: a line on standard error, whole, with the time, the level and the rank. */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include <lockstep/base.h>

#include <stdbool.h>

/* Writes one line in one system call, so that lines of several ranks never mix. Keeps errno. Any thread. */
void ls_log(ls_log_level level, const char *format, ...) LS_PRINTF(2, 3);

/* Whether LOCKSTEP_LOG may be `name`: then `level` is set to what it means. */
bool ls_log_level_named(const char *name, ls_log_level *level);

#endif
