/* log.c: levelled lines; and the thread's context, whose rank stands in each. */
#include "base/log.h"

#include "base/context.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Here, at the bottom of all rooms, since every line of the log names the rank. */
static _Thread_local ls_context context = {.rank = -1};

ls_context *ls_context_here(void) {
    return &context;
}

static const char *const level_names[] = {"error", "warning", "info", "debug"};

bool ls_log_level_named(const char *name, ls_log_level *level) {
    for (int each = LS_LOG_ERROR; each <= LS_LOG_DEBUG; each++) {
        if (strcmp(name, level_names[each]) != 0) continue;
        *level = (ls_log_level)each;
        return true;
    }
    return false;
}

/* Read anew each time: lines are rare, and a cached level would be process-wide state. */
static ls_log_level wanted_level(void) {
    const char *name = getenv("LOCKSTEP_LOG");
    ls_log_level level = LS_LOG_WARNING;
    if (name) ls_log_level_named(name, &level);
    return level;
}

void ls_log(ls_log_level level, const char *format, ...) {
    if (level > wanted_level()) return;
    const int saved_errno = errno;
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);

    char line[2048], rank[24] = "";
    if (context.rank >= 0) snprintf(rank, sizeof rank, " rank %d:", context.rank);
    size_t used = strftime(line, sizeof line, "%H:%M:%S", &parts);
    used += (size_t)snprintf(line + used, sizeof line - used, ".%03ld lockstep %s:%s ", now.tv_nsec / 1000000,
                             level_names[level], rank);
    va_list arguments;
    va_start(arguments, format);
    const int wanted = vsnprintf(line + used, sizeof line - used - 1, format, arguments);
    va_end(arguments);
    /* A line that is too long is cut; the byte for the newline is set aside. */
    if (wanted > 0) used += (size_t)wanted < sizeof line - used - 1 ? (size_t)wanted : sizeof line - used - 2;
    line[used++] = '\n';
    /* A log line that cannot be written has nowhere to be reported. */
    (void)!write(STDERR_FILENO, line, used);
    errno = saved_errno;
}
