/* many.c: several collectives posted as one: they stand one behind the other in the queue, and the last one's work is the
 * caller's. The queue is in order, and a group that loses one loses all, so that one tells of all. */
#include "group/group.h"

#include "base/memory.h"

/* What all of them share, and the arrays that differ. */
typedef struct many {
    group_call call;
    const void *const *send; /* NULL: in place */
    void *const *data;
    const size_t *counts;
    int n;
} many;

static group_call call_of(const many *all, int i) {
    group_call call = all->call;
    call.send = all->send ? all->send[i] : NULL;
    call.data = all->data[i];
    call.count = all->counts[i];
    return call;
}

static ls_status check_all(ls_group *group, const many *all) {
    if (all->n < 1 || !all->data || !all->counts)
        return ls_fail(LS_ERR_ARGUMENT, "rank %d: several operations at once: %s", group->rank,
                       all->n < 1 ? "there is none" : "an array is NULL");
    for (int i = 0; i < all->n; i++) {
        const group_call call = call_of(all, i);
        const ls_status status = post_check(group, &call);
        if (status != LS_OK) return ls_fail_within(status, "number %d of %d at once", i, all->n);
    }
    return LS_OK;
}

/* A chain of works; the last is held for the caller. All or none: what was taken goes back, so that a rank that lacks memory
 * posts nothing. */
static ls_status take_chain(ls_group *group, const many *all, ls_work **first, ls_work **last) {
    for (int i = 0; i < all->n; i++) {
        const group_call call = call_of(all, i);
        ls_work *work = NULL;
        const ls_status status = work_take(group, &call, &work);
        if (status != LS_OK) {
            for (ls_work *next = NULL; *first; *first = next) {
                next = (*first)->next;
                if (*first == *last) work_drop(*first);
                work_drop(*first);
            }
            return status;
        }
        if (*last) {
            work_drop(*last); /* the caller's hold */
            (*last)->next = work;
        } else {
            *first = work;
        }
        *last = work;
    }
    return LS_OK;
}

static ls_status post_chain(ls_group *group, const many *all, ls_work **work) {
    LS_TRY(group_check(group));
    ls_work *first = NULL, *last = NULL;
    LS_TRY(post_prepare(group));
    LS_TRY(take_chain(group, all, &first, &last));
    work_append(first, last);
    return post_begin(group, first, last, work);
}

static ls_status post_many(ls_group *group, const many *all, ls_work **work) {
    if (work) *work = NULL;
    if (!group) return ls_fail(LS_ERR_ARGUMENT, "the group is NULL");
    LS_TRY(group_check(group));
    LS_TRY(check_all(group->lanes ? group->lanes[0] : group, all));
    return post_chain(group_next_lane(group), all, work); /* after the check, as in post.c */
}

ls_status ls_group_all_reduce_many(ls_group *group, void *const *data, const size_t *counts, int n, ls_dtype dtype,
                                   ls_op op, ls_work **work) {
    const many all = {
        .call = {.kind = GROUP_ALL_REDUCE, .dtype = dtype, .op = op}, .data = data, .counts = counts, .n = n};
    return post_many(group, &all, work);
}

ls_status ls_group_broadcast_many(ls_group *group, void *const *data, const size_t *counts, int n, ls_dtype dtype,
                                  int root, ls_work **work) {
    const many all = {
        .call = {.kind = GROUP_BROADCAST, .dtype = dtype, .root = root}, .data = data, .counts = counts, .n = n};
    return post_many(group, &all, work);
}

ls_status ls_group_all_gather_many(ls_group *group, const void *const *send, void *const *receive, const size_t *counts,
                                   int n, ls_dtype dtype, ls_work **work) {
    const many all = {
        .call = {.kind = GROUP_ALL_GATHER, .dtype = dtype}, .send = send, .data = receive, .counts = counts, .n = n};
    return post_many(group, &all, work);
}

ls_status ls_group_reduce_scatter_many(ls_group *group, const void *const *send, void *const *receive,
                                       const size_t *counts, int n, ls_dtype dtype, ls_op op, ls_work **work) {
    const many all = {.call = {.kind = GROUP_REDUCE_SCATTER, .dtype = dtype, .op = op},
                      .send = send,
                      .data = receive,
                      .counts = counts,
                      .n = n};
    return post_many(group, &all, work);
}
