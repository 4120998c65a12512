/* monitored.c: a barrier that tells who did not come. It goes through the store, so that it works while the group's queue
 * hangs, and that somebody is late loses nothing: each rank leaves a key, rank 0 collects them and leaves its verdict. */
#include "group/group.h"

#include "base/clock.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>

/* Beyond the limit, for the verdict of a rank 0 that came at the same time. */
#define SLACK_MS 2000
/* How often we look whether the group is lost. */
#define SLICE_MS 200

static void name_key(const ls_group *group, uint64_t number, const char *who, int rank, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/b%" PRIu64 "/%s%d", group->prefix, number, who, rank);
}

static ls_status await_key(ls_group *group, const char *key, int64_t deadline_ns) {
    for (;;) {
        const int64_t left_ms = (deadline_ns - ls_now_ns()) / LS_NS_PER_MS;
        const ls_status status = ls_store_wait(group->store, key,
                                               left_ms < 1          ? 1
                                               : left_ms < SLICE_MS ? left_ms
                                                                    : SLICE_MS);
        if (status != LS_ERR_TIMEOUT || ls_now_ns() >= deadline_ns) return status;
        LS_TRY(group_check(group));
    }
}

/* Rank 0: who is there when the time is up. */
static ls_status collect(ls_group *group, uint64_t number, int64_t timeout_ms, int64_t deadline_ns) {
    char key[LS_STORE_KEY_BYTES], missing[512] = "";
    size_t used = 0;
    for (int rank = 1; rank < group->world_size; rank++) {
        name_key(group, number, "", rank, key);
        const ls_status status = await_key(group, key, deadline_ns);
        if (status == LS_OK) continue;
        if (status != LS_ERR_TIMEOUT) return status;
        if (used + 1 < sizeof missing)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%srank %d", used ? ", " : "", rank);
    }
    if (!used) return LS_OK;
    return ls_fail(LS_ERR_TIMEOUT,
                   "%s did not come to monitored barrier %" PRIu64 " within %" PRId64 " ms; see what %s", missing,
                   number, timeout_ms, "these ranks do");
}

/* Keys that everyone has read are taken away: who comes to this barrier is through with the one before. */
static void sweep(const ls_group *group, uint64_t number) {
    char key[LS_STORE_KEY_BYTES];
    if (number < 3) return;
    name_key(group, number - 2, "", 0, key);
    ls_store_delete(group->store, key, NULL);
    name_key(group, number - 2, "verdict", 0, key);
    ls_store_delete(group->store, key, NULL);
}

static ls_status lead(ls_group *group, uint64_t number, int64_t timeout_ms, int64_t deadline_ns) {
    char key[LS_STORE_KEY_BYTES];
    ls_error verdict;
    sweep(group, number);
    name_key(group, number, "", 0, key);
    LS_TRY(ls_store_set(group->store, key, "", 0));
    ls_point("monitored.barrier.come");
    ls_error_capture(&verdict, collect(group, number, timeout_ms, deadline_ns));
    ls_point("monitored.barrier.collected");
    name_key(group, number, "verdict", 0, key);
    LS_TRY(ls_store_set(group->store, key, &verdict, sizeof verdict));
    ls_point("monitored.barrier.told");
    return ls_error_raise(&verdict);
}

static ls_status follow(ls_group *group, uint64_t number, int64_t timeout_ms, int64_t deadline_ns) {
    char key[LS_STORE_KEY_BYTES], own[LS_STORE_KEY_BYTES];
    ls_error verdict;
    size_t bytes = 0;
    name_key(group, number, "", group->rank, own);
    LS_TRY(ls_store_set(group->store, own, "", 0));
    ls_point("monitored.barrier.come");
    name_key(group, number, "", 0, key);
    if (await_key(group, key, deadline_ns) == LS_ERR_TIMEOUT)
        return ls_fail(LS_ERR_TIMEOUT,
                       "rank 0 did not come to monitored barrier %" PRIu64 " within %" PRId64 " ms; see what it does",
                       number, timeout_ms);
    name_key(group, number, "verdict", 0, key);
    LS_TRY(await_key(group, key, ls_deadline_after_ms(timeout_ms < 0 ? -1 : timeout_ms + SLACK_MS)));
    LS_TRY(ls_store_get(group->store, key, &verdict, sizeof verdict, &bytes, SLACK_MS));
    ls_point("monitored.barrier.told");
    ls_store_delete(group->store, own, NULL);
    if (bytes != sizeof verdict) return ls_fail(LS_ERR_FORMAT, "store key \"%s\" holds no verdict", key);
    return ls_error_raise(&verdict);
}

ls_status ls_group_monitored_barrier(ls_group *group, int64_t timeout_ms) {
    if (!group) return ls_fail(LS_ERR_ARGUMENT, "the group is NULL");
    if (group->lanes) group = group->lanes[0];
    LS_TRY(group_check(group));
    if (group->world_size == 1) return LS_OK;
    if (!group->store)
        return ls_fail(LS_ERR_UNSUPPORTED, "rank %d: a monitored barrier needs a store, which %s does without",
                       group->rank, group->backend->name);
    if (timeout_ms == 0) timeout_ms = group->timeout_ms;
    const uint64_t number = atomic_fetch_add_explicit(&group->monitored, 1, memory_order_relaxed) + 1;
    const int64_t deadline_ns = ls_deadline_after_ms(timeout_ms);
    const ls_status status = group->rank == 0 ? lead(group, number, timeout_ms, deadline_ns)
                                              : follow(group, number, timeout_ms, deadline_ns);
    /* Whoever waits elsewhere learns who is dead, and not that we gave up. */
    return status == LS_ERR_PEER_LOST ? group_lose(group, status) : status;
}
