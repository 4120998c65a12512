/* log.h: a line on standard error, whole, with the time, the level and the rank. */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include <lockstep/base.h>

/* Writes one line in one system call, so that lines of several ranks never mix. Keeps errno. Any thread. */
void ls_log(ls_log_level level, const char *format, ...) LS_PRINTF(2, 3);

#endif
