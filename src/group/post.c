/* post.c: calls are checked and posted. A blocking call on a group whose queue is empty is run here and now, on the caller's
 * thread and stack; everything else goes through the queue. */
#include "group/group.h"

#include "group/describe.h"
#include "group/reduce.h"

static ls_status refuse(const ls_group *group, const group_call *call, const char *why) {
    char text[CALL_TEXT_BYTES];
    return ls_fail(LS_ERR_ARGUMENT, "rank %d: %s: %s", group->rank, call_describe(call, text), why);
}

static ls_status check_carried(const ls_group *group, const group_call *call) {
    char text[CALL_TEXT_BYTES];
    if (group->backend->carries && !group->backend->carries(call))
        return ls_fail(LS_ERR_UNSUPPORTED, "rank %d: %s: the backend %s does not carry it yet; shm does, on one host",
                       group->rank, call_describe(call, text), group->backend->name);
    return group->backend->check ? group->backend->check(group->state, call) : LS_OK;
}

static bool has_root(group_kind kind) {
    return kind == GROUP_BROADCAST || kind == GROUP_REDUCE || kind == GROUP_GATHER || kind == GROUP_SCATTER;
}

/* Whether this rank has to pass `send` and `data`, apart. */
static bool needs_send(const ls_group *group, const group_call *call) {
    if (call->kind == GROUP_SCATTER) return call->root == group->rank;
    return call->kind != GROUP_ALL_REDUCE && call->kind != GROUP_BROADCAST && call->kind != GROUP_REDUCE &&
           call->kind != GROUP_RECEIVE;
}

static bool needs_data(const ls_group *group, const group_call *call) {
    if (call->kind == GROUP_SEND) return false;
    return call->kind != GROUP_GATHER || call->root == group->rank;
}

static ls_status check_counts(const ls_group *group, const group_call *call) {
    size_t sent = 0, received = 0;
    if (!call->send_counts || !call->receive_counts) return refuse(group, call, "the counts are NULL");
    for (int rank = 0; rank < group->world_size; rank++)
        if (__builtin_add_overflow(sent, call->send_counts[rank], &sent) ||
            __builtin_add_overflow(received, call->receive_counts[rank], &received))
            return refuse(group, call, "the counts are past what memory can hold");
    if ((sent | received) > SIZE_MAX / 2 / ls_dtype_size(call->dtype))
        return refuse(group, call, "the counts are past what memory can hold");
    if ((sent && !call->send) || (received && !call->data)) return refuse(group, call, "the data is NULL");
    if (call->send_counts[group->rank] != call->receive_counts[group->rank])
        return refuse(group, call, "what this rank sends to itself is not what it expects of itself");
    return check_carried(group, call);
}

ls_status post_check(const ls_group *group, const group_call *call) {
    const size_t element_bytes = ls_dtype_size(call->dtype);
    size_t bytes = 0;
    if (call->kind == GROUP_BARRIER) return LS_OK;
    if (element_bytes == 0) return refuse(group, call, "there is no such element type");
    if (__builtin_mul_overflow(call->count, element_bytes * (size_t)group->world_size, &bytes))
        return refuse(group, call, "the count is past what memory can hold");
    if (has_root(call->kind) && (call->root < 0 || call->root >= group->world_size))
        return refuse(group, call, "there is no such rank");
    if (call->count && ((needs_data(group, call) && !call->data) || (needs_send(group, call) && !call->send)))
        return refuse(group, call, "the data is NULL");
    if ((uintptr_t)call->data % element_bytes || (uintptr_t)call->send % element_bytes)
        return refuse(group, call, "the data is not aligned to its elements");
    if (kind_combines(call->kind) && !reduce_kernel_for(call->dtype, call->op))
        return refuse(group, call,
                      "this op is not defined for this type: bitwise ops are for integers, an average is for all but "
                      "bool");
    return call->kind == GROUP_ALL_TO_ALL_UNEVEN ? check_counts(group, call) : check_carried(group, call);
}

static inline bool queue_is_empty(const ls_group *group) {
    return !atomic_load_explicit(&group->first, memory_order_acquire);
}

/* The caller drives, and nothing is before it. */
static ls_status run_here(ls_group *group, const group_call *call) {
    backend_op op;
    op.call = *call;
    op.bytes = call_bytes(call);
    op.start_ns = 0;
    op.whole = NULL;
    const ls_status status = drive_alone(group, &op);
    group_stop_driving(group);
    return status;
}

ls_status post_prepare(ls_group *group) {
    LS_ASSERT_NONE_HELD();
    if (group->backend->reach == LS_REACH_SELF || group->drivers != DRIVEN_BY_ALL) return LS_OK;
    return progress_start(group);
}

ls_status group_prepare(ls_group *group, int count) {
    for (int i = 0; i < group->lane_count; i++) LS_TRY(group_prepare(group->lanes[i], count));
    if (group->lanes) return LS_OK;
    LS_TRY(group_check(group));
    LS_TRY(post_prepare(group));
    return work_fill_pool(group, count);
}

static void begin(ls_group *group, const ls_work *first, const ls_work *last) {
    /* Begun at once if nobody drives: peers see our part, and may have theirs ready. */
    const bool is_driven = !drive_unless_driven(group);
    if (work_is_complete(last)) return;
    progress_notice(group);
    /* Who drives may sleep until peers move, who may be waiting for this. What stands behind other work can wait: whoever ends
     * that comes to this. `first` may be complete and another's by now, so it is compared, not looked into. */
    const bool is_next =
        kind_is_message(last->op.call.kind) || atomic_load_explicit(&group->first, memory_order_relaxed) == first;
    if (is_driven && is_next) group->backend->wake(group->state);
}

ls_status post_begin(ls_group *group, const ls_work *first, ls_work *last, ls_work **work) {
    begin(group, first, last);
    if (work) {
        *work = last;
        return LS_OK;
    }
    const ls_status status = ls_work_wait(last, 0);
    ls_work_close(&last);
    return status;
}

static ls_status post_to_queue(ls_group *group, const group_call *call, ls_work **work) {
    ls_work *taken = NULL;
    LS_TRY(post_prepare(group));
    LS_TRY(work_take(group, call, &taken));
    work_append(taken, taken);
    return post_begin(group, taken, taken, work);
}

ls_status group_run(ls_group *group, const group_call *call) {
    if (group_try_drive(group)) {
        if (queue_is_empty(group)) return run_here(group, call);
        group_stop_driving(group);
    }
    return post_to_queue(group, call, NULL);
}

ls_status group_post(ls_group *group, const group_call *call, ls_work **work) {
    if (work) *work = NULL;
    if (!group) return ls_fail(LS_ERR_ARGUMENT, "the group is NULL");
    LS_TRY(group_check(group));
    LS_TRY(post_check(group->lanes ? group->lanes[0] : group, call));
    /* After the check: a call that is refused on one rank alone takes no turn, or its later calls would meet other calls. */
    if (group->lanes) return group_post(group_next_lane(group), call, work);
    return work ? post_to_queue(group, call, work) : group_run(group, call);
}
