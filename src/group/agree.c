/* agree.c: what all ranks set up together, memory or a group made of theirs: each says how its part went, and all fail alike with
 * the sentence of the first that failed.
 *
 * Whatever such a call posts on one rank it posts on all, or later operations would meet others. So a thread claims the group
 * for all of the call, and one that comes meanwhile is refused before it has posted anything. */
#include "group/group.h"

#include <assert.h>
#include <stdio.h>

ls_status group_claim(ls_group *group) {
    if (!atomic_exchange_explicit(&group->is_claimed, true, memory_order_acquire)) return LS_OK;
    return ls_fail(LS_ERR_STATE,
                   "rank %d: another thread allocates memory of this group or makes a group of it: one at a time",
                   group->rank);
}

void group_unclaim(ls_group *group) {
    /* Release: who claims next finds `agreed` and the records as we leave them. */
    atomic_store_explicit(&group->is_claimed, false, memory_order_release);
}

/* The record of the first rank that failed, as an error; LS_OK when none has. */
static ls_status first_failure(const ls_group *group) {
    for (int rank = 0; rank < group->world_size; rank++) {
        const group_agreement *said = &group->agreements[rank];
        if (said->status != LS_OK) return ls_fail((ls_status)said->status, "%.*s", (int)sizeof said->text, said->text);
    }
    return LS_OK;
}

ls_status group_agree_as_said(ls_group *group, group_kind kind, size_t count, ls_status status, uint64_t *number) {
    assert(atomic_load(&group->is_claimed));
    group_agreement ours = {.status = status};
    if (status != LS_OK) snprintf(ours.text, sizeof ours.text, "%s", ls_last_error());
    const group_call call = {.kind = kind, .dtype = LS_U8, .count = count, .send = &ours, .data = group->agreements};
    LS_TRY(group_check(group));
    *number = ++group->agreed;
    LS_TRY(group_run(group, &call));
    return first_failure(group);
}

ls_status group_agree(ls_group *group, group_kind kind, size_t count, ls_status status, uint64_t *number) {
    if (status != LS_OK) ls_fail_within(status, "rank %d", group->rank);
    return group_agree_as_said(group, kind, count, status, number);
}
