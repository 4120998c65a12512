/* agreement.c: one verdict for all ranks, by an all-gather of what each has to say. */
#include "ddp/agreement.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* As errors and the flight recorder call the private group's operations, in the user's words. */
static const char *const names[] = {
    [AGREE_VERIFY] = "comparison of parameters",
    [AGREE_BROADCAST] = "broadcast from rank 0",
    [AGREE_REBUILD] = "rebuild of buckets",
    [AGREE_HEADER] = "header of a step",
    [AGREE_BUCKET] = "bucket",
    [AGREE_FOOTER] = "footer of a step",
    [AGREE_FAILURE] = "exchange of failures",
};

ls_status agreement_init(ls_agreement *agreement, ls_group *group) {
    agreement->group = group;
    agreement->world_size = ls_group_world_size(group);
    /* Once, for all failures to come: see agreement.h. */
    agreement->notices = ls_alloc_array((size_t)agreement->world_size, sizeof *agreement->notices);
    return agreement->notices ? LS_OK : LS_ERR_MEMORY;
}

void agreement_clear(ls_agreement *agreement) {
    ls_free(agreement->notices);
    agreement->notices = NULL;
}

ls_status agreement_gather(ls_agreement *agreement, const void *own, void *all, size_t bytes, uint64_t step,
                           agreement_kind kind) {
    /* The tag travels with the call: a rank that is elsewhere in the protocol is found out, not paired with. */
    const group_call call = {.kind = GROUP_ALL_GATHER,
                             .dtype = LS_U8,
                             .count = bytes,
                             .send = own,
                             .data = all,
                             .tag = agreement_tag(step, kind),
                             .name = names[kind]};
    return group_post(agreement->group, &call, NULL);
}

ls_status agreement_broadcast(ls_agreement *agreement, void *data, size_t bytes, uint64_t step, agreement_kind kind) {
    const group_call call = {.kind = GROUP_BROADCAST,
                             .dtype = LS_U8,
                             .count = bytes,
                             .data = data,
                             .tag = agreement_tag(step, kind),
                             .name = names[kind]};
    return group_post(agreement->group, &call, NULL);
}

ls_status agreement_reach(ls_agreement *agreement, ls_status status, uint64_t step, agreement_kind kind) {
    agreement_notice *own = &agreement->own;
    /* The whole record, since the bytes behind the text travel too. */
    memset(own, 0, sizeof *own);
    own->status = status;
    if (status != LS_OK) snprintf(own->text, sizeof own->text, "%.*s", AGREEMENT_TEXT_BYTES, ls_last_error());
    LS_TRY(agreement_gather(agreement, own, agreement->notices, sizeof *own, step, kind));
    /* The lowest rank's failure, on every rank: one sentence to read, wherever the user looks. */
    for (int rank = 0; rank < agreement->world_size; rank++) {
        const agreement_notice *notice = &agreement->notices[rank];
        if (notice->status != LS_OK)
            return ls_fail((ls_status)notice->status, "rank %d: %.*s", rank, AGREEMENT_TEXT_BYTES, notice->text);
    }
    return LS_OK;
}
