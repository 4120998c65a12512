/* others.c: the groups beside the one that a thread waits in. Some backends have no thread of ours behind them (backend.h): what
 * was posted there moves in calls alone, and a rank that waits in one group would keep back the ranks that wait in another.
 * So who waits polls those too; then no legal order of calls on several groups hangs. */
#include "group/group.h"

/* More are polled the next time. */
#define MOST_AT_ONCE 16

static bool is_left_to_callers(ls_group *group) {
    if (group->drivers == DRIVEN_BY_ALL || atomic_load_explicit(&group->is_forked, memory_order_relaxed)) return false;
    if (group->drivers == DRIVEN_BY_OPENER && !pthread_equal(group->opener, pthread_self())) return false;
    return atomic_load_explicit(&group->first, memory_order_acquire) || group_has_mail(group);
}

/* Groups that close meanwhile keep their memory, and their backend until we are out. */
static int hold_others(const ls_group *waiting, ls_group *others[MOST_AT_ONCE]) {
    int count = 0;
    ls_live_lock();
    for (ls_live *live = ls_live_first(); live && count < MOST_AT_ONCE; live = live->next) {
        ls_group *group = group_of_live(live);
        if (!group || group == waiting || !is_left_to_callers(group)) continue;
        atomic_fetch_add_explicit(&group->users, 1, memory_order_relaxed);
        group_enter(group);
        others[count++] = group;
    }
    ls_live_unlock();
    return count;
}

bool group_poll_others(const ls_group *waiting) {
    ls_group *others[MOST_AT_ONCE];
    const int count = hold_others(waiting, others);
    for (int i = 0; i < count; i++) {
        ls_group_progress(others[i]);
        group_exit(others[i]);
        group_drop_user(others[i]);
    }
    return count > 0;
}
