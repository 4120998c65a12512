/* others.c: the groups beside the one that a thread waits in. Some backends have no thread of ours behind them (backend.h): what
 * was posted there moves in calls alone, and a rank that waits in one group would keep back the ranks that wait in another.
 * So who waits polls those too; then no legal order of calls on several groups hangs. */
#include "group/group.h"

static bool is_left_to_callers(ls_group *group) {
    if (group->drivers == DRIVEN_BY_ALL || atomic_load_explicit(&group->is_forked, memory_order_relaxed)) return false;
    if (group->drivers == DRIVEN_BY_OPENER && !pthread_equal(group->opener, pthread_self())) return false;
    return atomic_load_explicit(&group->first, memory_order_acquire) || group_has_mail(group);
}

/* The first from place `*at` of the list on, which then is the place behind it; NULL: there is none. A group that closes
 * meanwhile keeps its memory, and its backend until we are out. The list may change from one to the next, so one may be
 * passed over: who waits comes again. */
static ls_group *hold_next(const ls_group *waiting, int *at) {
    ls_group *held = NULL;
    int place = 0;
    ls_live_lock();
    for (ls_live *live = ls_live_first(); live && !held; live = live->next) {
        ls_group *group = group_of_live(live);
        if (place++ < *at || !group || group == waiting || !is_left_to_callers(group)) continue;
        atomic_fetch_add_explicit(&group->users, 1, memory_order_relaxed);
        group_enter(group);
        held = group;
    }
    ls_live_unlock();
    *at = place;
    return held;
}

bool group_poll_others(const ls_group *waiting) {
    ls_group *other = NULL;
    bool are_there = false;
    for (int at = 0; (other = hold_next(waiting, &at)); are_there = true) {
        ls_group_progress(other);
        group_exit(other);
        group_drop_user(other);
    }
    return are_there;
}
