/* work.c: operations in the queue, taken from a pool, so that a training loop allocates nothing once it has warmed up.
 *
 *           work_take       work_append (many at once: a chain)      work_begin            work_complete, mail_complete
 *   pool -------------> taken --------------------------> queued -------------> begun --------------------------> complete
 *   complete ---- both holders have let go (work_drop) ----> pool
 *
 * Until it is appended a work is the poster's; then the queue's links are the lock's, `op` the driver's. What a waiter reads
 * stands before `is_complete`. Of the two holders one is the queue, one the user's handle; the last gives it back. */
#include "group/group.h"

#include "base/clock.h"
#include "base/memory.h"

#include <string.h>

size_t call_bytes(const group_call *call) {
    if (kind_is_agreement(call->kind)) return sizeof(group_agreement);
    return call->kind == GROUP_BARRIER ? 0 : call->count * ls_dtype_size(call->dtype);
}

/* The caller's arrays may go as soon as the call is posted. */
static ls_status copy_counts(ls_work *work) {
    group_call *call = &work->op.call;
    if (call->kind != GROUP_ALL_TO_ALL_UNEVEN) return LS_OK;
    const size_t world_size = (size_t)work->group->world_size;
    if (!(work->counts = ls_alloc_array(2 * world_size, sizeof *work->counts))) return LS_ERR_MEMORY;
    memcpy(work->counts, call->send_counts, world_size * sizeof *work->counts);
    memcpy(work->counts + world_size, call->receive_counts, world_size * sizeof *work->counts);
    call->send_counts = work->counts;
    call->receive_counts = work->counts + world_size;
    return LS_OK;
}

ls_status work_take(ls_group *group, const group_call *call, ls_work **result) {
    ls_mutex_lock(&group->lock);
    ls_work *work = group->pool;
    if (work) group->pool = work->next;
    ls_mutex_unlock(&group->lock);
    if (!work && !(work = ls_alloc_raw(sizeof *work))) return LS_ERR_MEMORY;
    work->op.call = *call;
    work->op.bytes = call_bytes(call);
    work->op.whole = NULL;
    work->counts = NULL;
    work->group = group;
    work->next = NULL;
    work->status = LS_OK;
    work->op.start_ns = work->end_ns = 0;
    work->posted_ns = ls_now_ns();
    atomic_init(&work->is_begun, false);
    if (copy_counts(work) != LS_OK) {
        ls_free(work);
        return LS_ERR_MEMORY;
    }
    atomic_init(&work->is_complete, false);
    atomic_init(&work->holders, 2);
    /* Relaxed: the caller's handle keeps the group meanwhile. */
    atomic_fetch_add_explicit(&group->users, 1, memory_order_relaxed);
    *result = work;
    return LS_OK;
}

void work_append(ls_work *first, ls_work *last) {
    ls_group *group = first->group;
    ls_mutex_lock(&group->lock);
    if (group->tail)
        group->tail->next = first;
    else /* release: drivers read it without the lock */
        atomic_store_explicit(&group->first, first, memory_order_release);
    group->tail = last;
    ls_mutex_unlock(&group->lock);
}

void work_complete(ls_work *work, ls_status status) {
    ls_group *group = work->group;
    LS_ASSERT_DRIVER(group);
    ls_mutex_lock(&group->lock);
    atomic_store_explicit(&group->first, work->next, memory_order_release);
    if (!work->next) group->tail = NULL;
    ls_mutex_unlock(&group->lock);
    if (group->current == work) group->current = NULL;
    work_end(work, status);
}

void work_end(ls_work *work, ls_status status) {
    ls_group *group = work->group;
    work->end_ns = ls_now_ns();
    if (atomic_load_explicit(&work->is_begun, memory_order_relaxed))
        flight_end(&group->flight, work->op.record, work->op.start_ns, work->end_ns, status == LS_OK);
    work->status = status;
    atomic_store_explicit(&work->is_complete, true, memory_order_release);
    /* A waiter counts itself, then looks whether its work is complete (group_await_driver). */
    ls_full_barrier();
    if (atomic_load_explicit(&group->waiters, memory_order_relaxed)) ls_word_advance(&group->event);
    work_drop(work);
}

static void give_to_pool(ls_group *group, ls_work *work) {
    ls_mutex_lock(&group->lock);
    work->next = group->pool;
    group->pool = work;
    ls_mutex_unlock(&group->lock);
}

void work_drop(ls_work *work) {
    /* The last holder has to see what the other did. */
    if (atomic_fetch_sub_explicit(&work->holders, 1, memory_order_acq_rel) != 1) return;
    ls_group *group = work->group;
    ls_free(work->counts);
    give_to_pool(group, work);
    group_drop_user(group); /* last: the pool's memory goes with the group's */
}

ls_status work_fill_pool(ls_group *group, int count) {
    for (int i = 0; i < count; i++) {
        ls_work *work = ls_alloc_raw(sizeof *work);
        if (!work) return LS_ERR_MEMORY;
        give_to_pool(group, work);
    }
    return LS_OK;
}

void work_free_pool(ls_group *group) {
    while (group->pool) {
        ls_work *next = group->pool->next;
        ls_free(group->pool);
        group->pool = next;
    }
}

void work_times(const ls_work *work, int64_t *start_ns, int64_t *end_ns) {
    *start_ns = work->op.start_ns;
    *end_ns = work->end_ns;
}

/* A wait of the caller's own expired; the operation goes on. */
static ls_status expired(const ls_work *work, int64_t timeout_ms) {
    return ls_fail(LS_ERR_TIMEOUT, "rank %d: the operation waited for is not complete after %lld ms; it goes on",
                   work->group->rank, (long long)timeout_ms);
}

/* Drives, or waits for who does; the caller has entered the group. */
static ls_status await(ls_work *work, int64_t timeout_ms) {
    ls_group *group = work->group;
    const int64_t deadline_ns = timeout_ms > 0 ? ls_deadline_after_ms(timeout_ms) : LS_DEADLINE_NEVER;
    while (!work_is_complete(work)) {
        /* Whoever finds nobody driving drives, what was posted earlier first; the others sleep until it stops. */
        if (group_try_drive(group)) {
            drive_queue(group, work, deadline_ns);
            group_stop_driving(group);
        } else {
            group_await_driver(group, work, deadline_ns);
        }
        if (deadline_ns != LS_DEADLINE_NEVER && !work_is_complete(work) && ls_now_ns() >= deadline_ns)
            return expired(work, timeout_ms);
    }
    return LS_OK;
}

ls_status ls_work_wait(ls_work *work, int64_t timeout_ms) {
    if (!work) return ls_fail(LS_ERR_ARGUMENT, "cannot wait for work that is NULL");
    ls_group *group = work->group;
    if (atomic_load_explicit(&group->is_forked, memory_order_relaxed)) return group_check(group);
    if (!work_is_complete(work)) {
        LS_TRY(group_check_thread(group));
        group_enter(group);
        const ls_status status = await(work, timeout_ms);
        group_exit(group);
        LS_TRY(status);
    }
    return work->status == LS_OK ? LS_OK : ls_error_raise(&group->failure);
}

ls_status ls_work_wait_all(ls_work *const *works, int count, int64_t timeout_ms) {
    if (count > 0 && !works) return ls_fail(LS_ERR_ARGUMENT, "cannot wait for works that are NULL");
    const int64_t deadline_ns = timeout_ms > 0 ? ls_deadline_after_ms(timeout_ms) : LS_DEADLINE_NEVER;
    ls_error first = {.status = LS_OK};
    for (int i = 0; i < count; i++) {
        if (!works[i]) continue;
        const ls_status status = ls_work_wait(works[i], ls_left_ms(deadline_ns));
        if (status == LS_ERR_TIMEOUT) return expired(works[i], timeout_ms);
        if (status != LS_OK && first.status == LS_OK) ls_error_capture(&first, status);
    }
    return ls_error_raise(&first);
}

void work_begin(ls_work *work, uint64_t number) {
    work->op.number = number;
    work->op.start_ns = ls_now_ns();
    work->op.record = flight_begin(&work->group->flight, &work->op, work->posted_ns);
    atomic_store_explicit(&work->is_begun, true, memory_order_relaxed);
    work->group->backend->start(work->group->state, &work->op);
}

bool ls_work_is_complete(ls_work *work) {
    if (!work || work_is_complete(work)) return true;
    group_enter(work->group);
    ls_group_progress(work->group);
    group_exit(work->group);
    return work_is_complete(work);
}

void ls_work_close(ls_work **work) {
    if (!work || !*work) return;
    ls_work *held = *work;
    *work = NULL;
    if (!atomic_load_explicit(&held->group->is_forked, memory_order_relaxed)) work_drop(held);
}
