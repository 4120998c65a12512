/* messages.c: send and receive beside the queue of collectives: each message is begun when it is posted, and whoever drives
 * the group polls all of them, so that none waits for another or for a collective.
 *
 * There are two lists: `mail_posted`, under the lock, where any thread appends; and `mail`, the driver's alone, to which it
 * moves what was posted. `mail_count` counts both, so that a driver without messages looks at one word. A driver that sleeps
 * is woken for what is posted (post_begin); it looks at the count after it has read its bell. */
#include "group/group.h"

#include "base/clock.h"
#include "base/wait.h"
#include "group/describe.h"

/* How long a rank that leaves waits for those who have not received yet what it sent, and how often it looks. */
#define SEEN_OFF_MS 2000
#define LOOK_NS (LS_NS_PER_MS / 10)

/* --- posting ----------------------------------------------------------------------------------------------------------- */

static ls_status check_peer(const ls_group *group, const group_call *call) {
    const bool is_any = call->kind == GROUP_RECEIVE && call->root == LS_ANY_RANK;
    if (group->world_size > 1 &&
        (is_any || (call->root >= 0 && call->root < group->world_size && call->root != group->rank)))
        return LS_OK;
    char text[CALL_TEXT_BYTES];
    return ls_fail(LS_ERR_ARGUMENT, "rank %d: %s: a message is between two ranks of a group, which has %d", group->rank,
                   call_describe(call, text), group->world_size);
}

static void append(ls_work *work) {
    ls_group *group = work->group;
    ls_mutex_lock(&group->lock);
    ls_work **link = &group->mail_posted;
    while (*link) link = &(*link)->next;
    *link = work;
    /* Release: whoever sees the count finds the message. */
    if (work->op.call.kind == GROUP_SEND) atomic_fetch_add_explicit(&group->sends, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&group->mail_count, 1, memory_order_release);
    ls_mutex_unlock(&group->lock);
}

static ls_status post_message(ls_group *group, const group_call *call, ls_work **work) {
    if (work) *work = NULL;
    if (!group) return ls_fail(LS_ERR_ARGUMENT, "the group is NULL");
    LS_TRY(group_check(group));
    /* Messages have no common order: a round-robin group's all go one way. */
    if (group->lanes) return post_message(group->lanes[0], call, work);
    LS_TRY(check_peer(group, call));
    LS_TRY(post_check(group, call));
    ls_work *message = NULL;
    LS_TRY(post_prepare(group));
    LS_TRY(work_take(group, call, &message));
    append(message);
    return post_begin(group, message, message, work);
}

ls_status ls_group_send(ls_group *group, const void *data, size_t count, ls_dtype dtype, int to, int tag,
                        ls_work **work) {
    const group_call call = {
        .kind = GROUP_SEND, .dtype = dtype, .count = count, .send = data, .root = to, .tag = (uint32_t)tag};
    return post_message(group, &call, work);
}

ls_status ls_group_receive(ls_group *group, void *data, size_t count, ls_dtype dtype, int from, int tag, int *source,
                           ls_work **work) {
    const group_call call = {.kind = GROUP_RECEIVE,
                             .dtype = dtype,
                             .count = count,
                             .data = data,
                             .root = from,
                             .source = source,
                             .tag = (uint32_t)tag};
    return post_message(group, &call, work);
}

/* --- driving ----------------------------------------------------------------------------------------------------------- */

/* What was posted since comes behind the rest. Returns it. */
static ls_work *take_posted(ls_group *group) {
    ls_mutex_lock(&group->lock);
    ls_work *posted = group->mail_posted;
    group->mail_posted = NULL;
    ls_mutex_unlock(&group->lock);
    ls_work **link = &group->mail;
    while (*link) link = &(*link)->next;
    *link = posted;
    return posted;
}

static void start_posted(ls_group *group) {
    for (ls_work *work = take_posted(group); work; work = work->next) work_begin(work, 0);
}

void mail_complete(ls_work **link, ls_status status) {
    ls_work *work = *link;
    LS_ASSERT_DRIVER(work->group);
    *link = work->next;
    /* Relaxed: only drivers take messages off, one after the other. */
    if (work->op.call.kind == GROUP_SEND) atomic_fetch_sub_explicit(&work->group->sends, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&work->group->mail_count, 1, memory_order_relaxed);
    work_end(work, status);
}

backend_progress mail_poll(ls_group *group) {
    LS_ASSERT_DRIVER(group);
    backend_progress result = BACKEND_PENDING;
    start_posted(group);
    for (ls_work **link = &group->mail; *link;) {
        const backend_progress progress = drive_poll(group, &(*link)->op);
        if (progress == BACKEND_FAILED) return BACKEND_FAILED;
        if (progress != BACKEND_PENDING) result = BACKEND_MOVED;
        if (progress == BACKEND_DONE)
            mail_complete(link, LS_OK);
        else
            link = &(*link)->next;
    }
    return result;
}

void mail_fail(ls_group *group) {
    take_posted(group);
    while (group->mail) mail_complete(&group->mail, group->failure.status);
}

/* Relaxed: our own posts we see, and others do not post while we close. Where another thread drives, it gets them on. */
void mail_see_off(ls_group *group) {
    const int64_t end_ns = ls_deadline_after_ms(SEEN_OFF_MS);
    while (atomic_load_explicit(&group->sends, memory_order_relaxed) > 0 && ls_now_ns() < end_ns) {
        drive_unless_driven(group);
        ls_sleep_until(ls_now_ns() + LOOK_NS);
    }
}
