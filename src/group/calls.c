/* calls.c: the collectives of the interface, each a call to post. */
#include "group/post.h"

ls_status ls_group_all_reduce(ls_group *group, void *data, size_t count, ls_dtype dtype, ls_op op, ls_work **work) {
    const group_call call = {.kind = GROUP_ALL_REDUCE, .dtype = dtype, .op = op, .count = count, .data = data};
    return group_post(group, &call, work);
}

ls_status ls_group_broadcast(ls_group *group, void *data, size_t count, ls_dtype dtype, int root, ls_work **work) {
    const group_call call = {.kind = GROUP_BROADCAST, .dtype = dtype, .root = root, .count = count, .data = data};
    return group_post(group, &call, work);
}

ls_status ls_group_all_gather(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                              ls_work **work) {
    const group_call call = {.kind = GROUP_ALL_GATHER, .dtype = dtype, .count = count, .send = send, .data = receive};
    return group_post(group, &call, work);
}

ls_status ls_group_barrier(ls_group *group, ls_work **work) {
    const group_call call = {.kind = GROUP_BARRIER, .dtype = LS_U8};
    return group_post(group, &call, work);
}

ls_status ls_group_reduce(ls_group *group, void *data, size_t count, ls_dtype dtype, ls_op op, int root,
                          ls_work **work) {
    const group_call call = {
        .kind = GROUP_REDUCE, .dtype = dtype, .op = op, .root = root, .count = count, .data = data};
    return group_post(group, &call, work);
}

ls_status ls_group_gather(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype, int root,
                          ls_work **work) {
    const group_call call = {
        .kind = GROUP_GATHER, .dtype = dtype, .root = root, .count = count, .send = send, .data = receive};
    return group_post(group, &call, work);
}

ls_status ls_group_scatter(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype, int root,
                           ls_work **work) {
    const group_call call = {
        .kind = GROUP_SCATTER, .dtype = dtype, .root = root, .count = count, .send = send, .data = receive};
    return group_post(group, &call, work);
}

ls_status ls_group_reduce_scatter(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                                  ls_op op, ls_work **work) {
    const group_call call = {
        .kind = GROUP_REDUCE_SCATTER, .dtype = dtype, .op = op, .count = count, .send = send, .data = receive};
    return group_post(group, &call, work);
}

ls_status ls_group_all_to_all(ls_group *group, const void *send, void *receive, size_t count, ls_dtype dtype,
                              ls_work **work) {
    const group_call call = {.kind = GROUP_ALL_TO_ALL, .dtype = dtype, .count = count, .send = send, .data = receive};
    return group_post(group, &call, work);
}

ls_status ls_group_all_to_all_uneven(ls_group *group, const void *send, const size_t *send_counts, void *receive,
                                     const size_t *receive_counts, ls_dtype dtype, ls_work **work) {
    const group_call call = {.kind = GROUP_ALL_TO_ALL_UNEVEN,
                             .dtype = dtype,
                             .send = send,
                             .data = receive,
                             .send_counts = send_counts,
                             .receive_counts = receive_counts};
    return group_post(group, &call, work);
}
