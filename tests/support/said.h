/* said.h: what the library says on standard error, at the level that users have. */
#ifndef LS_TEST_SAID_H
#define LS_TEST_SAID_H

#include "support/test.h"

#include <fcntl.h>
#include <unistd.h>

/* What stands on standard error from here on goes into a pipe, which holds some 60,000 bytes. */
static inline void catch_log(int kept[2]) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    kept[0] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    kept[1] = ends[0];
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
}

/* What stood there goes into `text`; from here on it is seen again. */
static inline void release_log(const int kept[2], char *text, size_t bytes) {
    dup2(kept[0], STDERR_FILENO);
    close(kept[0]);
    size_t used = 0;
    for (ssize_t part = 0; (part = read(kept[1], text + used, bytes - 1 - used)) > 0;) used += (size_t)part;
    text[used] = '\0';
    close(kept[1]);
}

#endif
