/* related.c: groups made of a group: a duplicate, some of its ranks, or several taken in turn.
 *
 * All ranks of the parent agree first, so that they fail alike and share a number that no other group of theirs has. A rank
 * that is left out gets a handle too, which is lost from its beginning and says so: programs need no two ways to go on. The
 * parent stays claimed until all is open: its other threads can post no agreement of their own between two of ours. */
#include "group/group.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/fault.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A round-robin group's operations of its own go to its first. */
static ls_group *agreeing(ls_group *group) {
    return group->lanes ? group->lanes[0] : group;
}

/* `kind` and a text tell keys of relatives apart. Who is dead is a rank of the parent too: all its ranks learn of that, those
 * that are left out as well, and learn the cause and not what became of the members after it. */
static ls_status open_relative(ls_group *copy, ls_group *parent, const group_origin *origin, char kind) {
    const int length = snprintf(copy->prefix, sizeof copy->prefix, "%s/%c%" PRIu64 ".%d", parent->prefix, kind,
                                origin->number, origin->ranks ? origin->ranks[0] : 0);
    if ((size_t)length >= sizeof copy->prefix)
        return ls_fail(LS_ERR_STATE, "rank %d: a group made of a group, too many times over", parent->rank);
    ls_point("related.group.agreed");
    const int64_t outer_ns = ls_context_limit(ls_deadline_after_ms(copy->timeout_ms));
    const ls_status status = group_open_state(copy, NULL, origin);
    ls_context_limit(outer_ns);
    ls_point("related.group.open");
    return status == LS_ERR_PEER_LOST ? group_lose(parent, status) : status;
}

static ls_status duplicate_lanes(ls_group **duplicate, ls_group *group) {
    ls_group **copies = ls_alloc_array((size_t)group->lane_count, sizeof(ls_group *));
    ls_status status = copies ? LS_OK : LS_ERR_MEMORY;
    for (int i = 0; i < group->lane_count && status == LS_OK; i++)
        status = ls_group_duplicate(&copies[i], group->lanes[i]);
    if (status == LS_OK) status = ls_group_round_robin(duplicate, copies, group->lane_count);
    for (int i = 0; copies && i < group->lane_count; i++) ls_group_close(&copies[i]);
    ls_free(copies);
    return status;
}

static ls_status open_duplicate(ls_group **duplicate, ls_group *group) {
    const ls_group_options options = {.store = group->store,
                                      .rank = group->rank,
                                      .world_size = group->world_size,
                                      .timeout_ms = group->timeout_ms,
                                      .relaxed_order = group->relaxed_order};
    ls_group *copy = group_create(&options, group->backend);
    group_origin origin = {.parent = group};
    ls_status status = group_agree(group, GROUP_DUPLICATE, 0, copy ? LS_OK : LS_ERR_MEMORY, &origin.number);
    if (!copy) return status;
    if (status == LS_OK) status = open_relative(copy, group, &origin, 'd');
    if (status == LS_OK)
        *duplicate = copy;
    else
        group_drop_user(copy);
    return status;
}

ls_status ls_group_duplicate(ls_group **duplicate, ls_group *group) {
    if (!duplicate || !group)
        return ls_fail(LS_ERR_ARGUMENT, "cannot duplicate a group: the group or the handle is NULL");
    *duplicate = NULL;
    LS_TRY(group_check(group));
    if (group->lanes) return duplicate_lanes(duplicate, group);
    LS_TRY(group_claim(group));
    const ls_status status = open_duplicate(duplicate, group);
    group_unclaim(group);
    return status;
}

/* --- some ranks ------------------------------------------------------------------------------------------------------- */

/* "0, 2, 5" */
static void list_ranks(const int *ranks, int count, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count && used + 1 < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", i ? ", " : "", ranks[i]);
}

static ls_status check_ranks(const ls_group *group, const int *ranks, int count) {
    if (!ranks || count < 1) return ls_fail(LS_ERR_ARGUMENT, "rank %d: a subgroup needs a rank", group->rank);
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= group->world_size)
            return ls_fail(LS_ERR_ARGUMENT, "rank %d: a subgroup of rank %d, in a group of %d ranks", group->rank,
                           ranks[i], group->world_size);
        for (int j = 0; j < i; j++)
            if (ranks[i] == ranks[j])
                return ls_fail(LS_ERR_ARGUMENT, "rank %d: a subgroup with rank %d twice", group->rank, ranks[i]);
    }
    return LS_OK;
}

static int index_of(const int *ranks, int count, int rank) {
    for (int i = 0; i < count; i++)
        if (ranks[i] == rank) return i;
    return -1;
}

/* The handle of who is left out: lost, and it says why. */
static void make_stranger(ls_group *sub, const ls_group *parent, const int *ranks, int count) {
    char list[512];
    list_ranks(ranks, count, list, sizeof list);
    sub->is_stranger = true;
    group_lose(sub, ls_fail(LS_ERR_STATE, "rank %d is no member of this group%s%s; only members may call", parent->rank,
                            count ? ": its ranks are, of the group it was made of, " : "", list));
}

/* The members find each other through the store, which ends with the rank that serves it: so nobody goes on, and those
 * that are left out may go home, before all have. Also where they have not: all of them know by then. */
static ls_status open_together(ls_group **sub, ls_group *parent, const group_origin *origin) {
    ls_error outcome;
    const ls_status opened = open_relative(*sub, parent, origin, 's');
    ls_error_capture(&outcome, opened);
    const ls_status met = ls_group_barrier(parent, NULL);
    if (opened != LS_OK) return ls_error_raise(&outcome);
    if (met != LS_OK) ls_group_close(sub);
    return met;
}

/* Collective in `parent`. This rank is ranks[own]; negative: it is left out. `said` is a digest of what all ranks should
 * have said alike: group_agree compares it, so that ranks which name other ranks are found. */
static ls_status open_subgroup(ls_group **result, ls_group *parent, const int *ranks, int count, int own,
                               uint64_t said) {
    const ls_group_options options = {.store = parent->store,
                                      .rank = own,
                                      .world_size = count,
                                      .timeout_ms = parent->timeout_ms,
                                      .relaxed_order = parent->relaxed_order};
    const bool is_alone = own < 0 || (count == 1 && !parent->backend->has_device_memory);
    ls_group *sub = group_create(&options, is_alone ? &solo_backend : parent->backend);
    group_origin origin = {.parent = parent, .ranks = ranks};
    ls_status status = group_agree(parent, GROUP_SUBGROUP, (size_t)said, sub ? LS_OK : LS_ERR_MEMORY, &origin.number);
    if (!sub) return status;
    if (status == LS_OK) status = open_together(&sub, parent, &origin);
    if (status != LS_OK) {
        if (sub) group_drop_user(sub);
        return status;
    }
    if (own < 0) make_stranger(sub, parent, ranks, count);
    *result = sub;
    return LS_OK;
}

ls_status ls_group_subgroup(ls_group **subgroup, ls_group *group, const int *ranks, int count) {
    if (!subgroup || !group) return ls_fail(LS_ERR_ARGUMENT, "cannot make a subgroup: the group or the handle is NULL");
    *subgroup = NULL;
    group = agreeing(group);
    LS_TRY(group_check(group));
    LS_TRY(check_ranks(group, ranks, count));
    LS_TRY(group_claim(group));
    const ls_status status = open_subgroup(subgroup, group, ranks, count, index_of(ranks, count, group->rank),
                                           ls_digest(LS_DIGEST_START, ranks, (size_t)count * sizeof *ranks));
    group_unclaim(group);
    return status;
}

/* What a rank says to ls_group_split. */
typedef struct choice {
    int64_t colour, key, rank;
} choice;

static int by_key(const void *left, const void *right) {
    const choice *a = left, *b = right;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static ls_status open_split(ls_group **subgroup, ls_group *group, int colour, int key) {
    const size_t world_size = (size_t)group->world_size;
    choice *choices = ls_alloc_array(world_size, sizeof *choices);
    int *ranks = ls_alloc_array(world_size, sizeof *ranks), count = 0;
    uint64_t number = 0;
    /* Who was refused memory cannot gather: the others learn it before they wait for that. */
    ls_status status = group_agree(group, GROUP_SUBGROUP, 0, choices && ranks ? LS_OK : LS_ERR_MEMORY, &number);
    const choice own = {.colour = colour, .key = key, .rank = group->rank};
    if (status == LS_OK) status = ls_group_all_gather(group, &own, choices, 3, LS_I64, NULL);
    if (status == LS_OK && choices && ranks) {
        ls_point("related.split.gathered");
        const uint64_t said = ls_digest(LS_DIGEST_START, choices, world_size * sizeof *choices);
        qsort(choices, world_size, sizeof *choices, by_key);
        /* Who has no colour takes part all the same: making a group is collective. */
        for (size_t i = 0; i < world_size; i++)
            if (colour >= 0 && choices[i].colour == colour) ranks[count++] = (int)choices[i].rank;
        status = open_subgroup(subgroup, group, ranks, count, index_of(ranks, count, group->rank), said);
    }
    ls_free(choices);
    ls_free(ranks);
    return status;
}

ls_status ls_group_split(ls_group **subgroup, ls_group *group, int colour, int key) {
    if (!subgroup || !group) return ls_fail(LS_ERR_ARGUMENT, "cannot split a group: the group or the handle is NULL");
    *subgroup = NULL;
    group = agreeing(group);
    LS_TRY(group_check(group));
    LS_TRY(group_claim(group));
    const ls_status status = open_split(subgroup, group, colour, key);
    group_unclaim(group);
    return status;
}

bool ls_group_is_member(const ls_group *group) {
    return group && !group->is_stranger;
}

/* --- several, in turn -------------------------------------------------------------------------------------------------- */

static ls_status check_lane(const ls_group *first, ls_group *group, int i) {
    if (group->lanes) return ls_fail(LS_ERR_ARGUMENT, "group %d of a round-robin group is one itself", i);
    LS_TRY(group_check(group));
    if (group->rank == first->rank && group->world_size == first->world_size) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT,
                   "group %d of a round-robin group has this process as rank %d of %d, group 0 as rank %d of %d; they "
                   "have to be of the same ranks",
                   i, group->rank, group->world_size, first->rank, first->world_size);
}

ls_status ls_group_round_robin(ls_group **group, ls_group *const *groups, int count) {
    if (!group) return ls_fail(LS_ERR_ARGUMENT, "cannot make a round-robin group: the handle is NULL");
    *group = NULL;
    if (!groups || count < 1) return ls_fail(LS_ERR_ARGUMENT, "a round-robin group needs a group");
    for (int i = 0; i < count; i++) {
        if (!groups[i]) return ls_fail(LS_ERR_ARGUMENT, "group %d of a round-robin group is NULL", i);
        LS_TRY(check_lane(groups[0], groups[i], i));
    }
    const ls_group_options options = {
        .rank = groups[0]->rank, .world_size = groups[0]->world_size, .timeout_ms = groups[0]->timeout_ms};
    /* Its own backend never carries anything, so it needs no peers to open. */
    ls_group *made = group_create(&options, &solo_backend);
    if (!made) return LS_ERR_MEMORY;
    ls_status status = group_open_state(made, NULL, NULL);
    if (status == LS_OK && !(made->lanes = ls_alloc_array((size_t)count, sizeof(ls_group *)))) {
        ls_group_close(&made);
        return LS_ERR_MEMORY;
    }
    if (status != LS_OK) {
        group_drop_user(made);
        return status;
    }
    made->lane_count = count;
    for (int i = 0; i < count; i++) made->lanes[i] = group_keep(groups[i]);
    *group = made;
    return LS_OK;
}

ls_group *group_next_lane(ls_group *group) {
    if (!group->lanes) return group;
    const uint64_t turn = atomic_fetch_add_explicit(&group->next_lane, 1, memory_order_relaxed);
    return group->lanes[turn % (uint64_t)group->lane_count];
}
