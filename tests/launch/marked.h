/* marked.h: which processes of a test are left: each carries a text of its own in its environment, sessions or not. */
#ifndef LS_TEST_MARKED_H
#define LS_TEST_MARKED_H

#include "support/test.h"

#include "base/clock.h"
#include "base/wait.h"
#include "launch/processes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static char the_mark[64]; /* "LS_TEST_MARK=..." */

/* A test's set-up: marks all that is started from now on; nothing that carries the mark runs yet. */
static inline int mark_processes(void **state) {
    (void)state;
    static int count;
    snprintf(the_mark, sizeof the_mark, "LS_TEST_MARK=%d-%d-%lld", (int)getpid(), ++count, (long long)ls_now_ns());
    return putenv(the_mark);
}

static inline void count_marked(void *context, const launch_process *process) {
    int *count = context;
    *count += !process->is_zombie && launch_process_carries(process->pid, the_mark);
}

static inline int marked_processes(void) {
    int count = 0;
    launch_each_process(count_marked, &count);
    return count;
}

/* Waits until there are that many; false after `limit_ms`. */
static inline bool marked_become(int count, int64_t limit_ms) {
    const int64_t deadline_ns = ls_deadline_after_ms(limit_ms);
    while (marked_processes() != count) {
        if (ls_now_ns() > deadline_ns) return false;
        ls_sleep_until(ls_now_ns() + 5 * LS_NS_PER_MS);
    }
    return true;
}

#endif
