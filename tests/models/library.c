/* library.c: the library's own code under exploration: compiled here with the names by which it reaches shared memory, locks
 * and sleeps given to the explorer (shared.h). What it calls beside them does nothing here, or stands in ranks.c. */
#include "models/shared.h"

#include "base/context.h"
#include "base/error.h"
#include "base/live.h"
#include "base/memory.h"
#include "models/ranks.h"
#include "trace/trace.h"

#include "group/backend/shm/messages.h"
#include "group/describe.h"

#include <stdlib.h>

/* --- in place of what is not shown here --------------------------------------------------------------------------------- */

#undef LS_ASSERT_DRIVER
#undef LS_ASSERT_NONE_HELD
#undef LS_ASSERT_HELD
#define LS_ASSERT_DRIVER(group) ((void)0)
#define LS_ASSERT_NONE_HELD() ((void)0)
#define LS_ASSERT_HELD(mutex) ((void)0)
#define ls_mutex_init(mutex) ((void)0)
#define ls_mutex_destroy(mutex) ((void)0)

/* A thread's last sentence is no part of a state: errors are their statuses. */
#define ls_fail(status, ...) fail_quietly(status, __VA_ARGS__)
#define ls_error_capture(error, status_now) ((void)((error)->status = (status_now)))
#define ls_error_raise(error) raise_quietly(error)

LS_PRINTF(2, 3) static ls_status fail_quietly(ls_status status, const char *format, ...) {
    (void)format;
    return status;
}

static ls_status raise_quietly(const ls_error *error) {
    return error->status;
}

#define ls_alloc(bytes) ranks_take_block(bytes)
#define ls_alloc_raw(bytes) ranks_take_block(bytes)
#define ls_free(block) explore_free(block)

/* The list of live groups (base/live.c) is a state's part too. */
#define ls_live_lock() explore_lock(HERE("live"), ranks_live_lock())
#define ls_live_unlock() explore_unlock(HERE("live"), ranks_live_lock())
#define ls_live_first() (*ranks_live_first())
#define ls_live_remove(live) ranks_live_remove(live)

/* Of polls in vain only the last: those before read the same. Spinning takes no time, and no count of it makes a state. */
#define ls_spin_hint() ((void)(waited->polls = UINT32_MAX / 2))
#define ls_yield() ls_spin_hint()
/* Less than nothing, so that no spin lasts, and slices can be told from each other. */
#undef LS_NS_PER_MS
#define LS_NS_PER_MS a_millisecond
static int64_t a_millisecond = -1;

/* Of the sleeps with a limit only those come to it that are there to: short ones, beside other groups that have bells of their
 * own; and the progress thread's moment, but not its idle sleep. */
#define WAIT(word, seen, until, expires) \
    ((void)(seen), (void)(until), explore_word_wait(HERE(#word), (void *)(word), expires))
#define ls_word_wait(word, seen, until) WAIT(word, seen, until, (until) == ls_now_ns() + LS_NS_PER_MS)

/* The code itself. NOLINTBEGIN(bugprone-suspicious-include) */
#define message message_scratch /* a type here, a variable of the other file of that name */
#include "../../src/group/backend/shm/messages.c"
#undef message
#define poll(processes, count, limit_ms) ((void)(processes), (void)(count), (void)(limit_ms), 0) /* no process dies */
#include "../../src/group/backend/shm/peers.c"
#undef poll
#include "../../src/group/agree.c"
#include "../../src/group/drive.c"
#include "../../src/group/group.c"
#include "../../src/group/messages.c"
#define group_poll_others group_poll_listed /* the list's lock costs states: not where there are no others */
#include "../../src/group/others.c"
#undef group_poll_others
#include "../../src/group/post.c"
#include "../../src/group/work.c"
#undef ls_word_wait
#define ls_word_wait(word, seen, until) WAIT(word, seen, until, (until) != LS_DEADLINE_NEVER)
#undef LS_NS_PER_MS
#define LS_NS_PER_MS INT64_C(0) /* its moment grows to nothing, and no further */
#undef ls_thread_start
#define ls_thread_start(thread, name, body, argument) ranks_start_progress(thread, body, argument)
#define ls_thread_join(thread) explore_join(HERE("progress"), ranks_progress_of(thread))
#include "../../src/group/progress.c"
/* NOLINTEND(bugprone-suspicious-include) */

/* Rank 0's groups are listed: those of a process. */
bool group_poll_others(const ls_group *waiting) {
    return ranks_have_others() && waiting->rank == 0 && group_poll_listed(waiting);
}

void library_list_group(ls_group *group) {
    group->live.forked = forked;
    group->live.next = *ranks_live_first();
    *ranks_live_first() = &group->live;
}

void library_start_progress(ls_group *group) {
    ranks_start_progress(&group->progress, run, group);
}

/* --- the flight recorder, stores, lanes --------------------------------------------------------------------------------- */

ls_status flight_open(flight_recorder *recorder) {
    (void)recorder;
    return LS_OK;
}
void flight_close(flight_recorder *recorder) {
    (void)recorder;
}
uint64_t flight_begin(flight_recorder *recorder, const backend_op *op, int64_t posted_ns) {
    (void)recorder, (void)op, (void)posted_ns;
    return 0;
}
void flight_started(flight_recorder *recorder, uint64_t record, int64_t started_ns) {
    (void)recorder, (void)record, (void)started_ns;
}
void flight_end(flight_recorder *recorder, uint64_t record, int64_t started_ns, int64_t ended_ns, bool is_done) {
    (void)recorder, (void)record, (void)started_ns, (void)ended_ns, (void)is_done;
}
void flight_write(ls_group *group) {
    (void)group;
}
void flight_watch(ls_group *group) {
    (void)group;
}
void flight_unwatch(flight_recorder *recorder) {
    (void)recorder;
}
ls_group *group_next_lane(ls_group *group) {
    return group;
}
ls_status group_choose(const ls_group_options *options, ls_group_options *found, const ls_backend **backend) {
    (void)options, (void)found, (void)backend;
    return LS_ERR_UNSUPPORTED;
}
