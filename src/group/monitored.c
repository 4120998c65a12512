/* monitored.c: a barrier that tells who did not come. What ranks say goes beside the group's queue, through the store or (where
 * the backend does without one) from rank to rank, so that it works while the queue hangs, and that somebody is late loses
 * nothing: each rank says that it has come, rank 0 hears all of them and says its verdict. */
#include "group/group.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>

/* Beyond the limit, for the verdict of a rank 0 that came at the same time. */
#define SLACK_MS 2000
/* How often we look whether the group is lost. */
#define SLICE_MS 200
/* How often we look for what comes from rank to rank, and whether all have heard. */
#define LOOK_NS LS_NS_PER_MS

/* What a rank says at a barrier, in this order. */
typedef enum said { COMES, VERDICT } said;

/* One rank's call. */
typedef struct visit {
    ls_group *group;
    uint64_t number; /* of the barrier, from 1 */
    int64_t timeout_ms, deadline_ns;
} visit;

/* --- saying and hearing -------------------------------------------------------------------------------------------------- */

static void name_key(const visit *here, uint64_t number, said what, int rank, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/b%" PRIu64 "/%s%d", here->group->prefix, number,
             what == VERDICT ? "verdict" : "", rank);
}

/* Rank 0 to all others, the others to rank 0. */
static ls_status say(const visit *here, said what, const ls_error *word) {
    const ls_group *group = here->group;
    char key[LS_STORE_KEY_BYTES];
    if (group->store) {
        name_key(here, here->number, what, group->rank, key);
        return ls_store_set(group->store, key, word, sizeof *word);
    }
    const int first = group->rank == 0 ? 1 : 0, end = group->rank == 0 ? group->world_size : 1;
    for (int to = first; to < end; to++) LS_TRY(group->backend->tell(group->state, to, here->number * 2 + what, word));
    return LS_OK;
}

static ls_status look_in_store(const visit *here, said what, int from, int64_t limit_ms, ls_error *word) {
    char key[LS_STORE_KEY_BYTES];
    size_t bytes = 0;
    name_key(here, here->number, what, from, key);
    LS_TRY(ls_store_get(here->group->store, key, word, sizeof *word, &bytes, limit_ms));
    return bytes == sizeof *word ? LS_OK : ls_fail(LS_ERR_FORMAT, "store key \"%s\" holds no word of a rank", key);
}

/* Groups that calls alone drive go on meanwhile: who did not come may wait for our part of what was posted there. */
static ls_status look_around(const visit *here, said what, int from, ls_error *word) {
    ls_group *group = here->group;
    if (group->backend->hear(group->state, from, here->number * 2 + what, word)) return LS_OK;
    ls_group_progress(group);
    group_poll_others(group);
    ls_sleep_until(ls_now_ns() + LOOK_NS);
    return LS_ERR_TIMEOUT;
}

/* Waits for what `from` says. LS_ERR_TIMEOUT, whose sentence does not count: it has not. */
static ls_status await_word(const visit *here, said what, int from, int64_t deadline_ns, ls_error *word) {
    for (;;) {
        const int64_t left_ms = (deadline_ns - ls_now_ns()) / LS_NS_PER_MS;
        const int64_t limit_ms = left_ms < 1 ? 1 : left_ms < SLICE_MS ? left_ms : SLICE_MS;
        const ls_status status =
            here->group->store ? look_in_store(here, what, from, limit_ms, word) : look_around(here, what, from, word);
        if (status != LS_ERR_TIMEOUT || ls_now_ns() >= deadline_ns) return status;
        LS_TRY(group_check(here->group));
    }
}

/* Keys that everyone has read are taken away. */
static void forget(const visit *here, uint64_t number, said what) {
    char key[LS_STORE_KEY_BYTES];
    if (!here->group->store) return;
    name_key(here, number, what, here->group->rank, key);
    ls_store_delete(here->group->store, key, NULL);
}

/* --- the barrier --------------------------------------------------------------------------------------------------------- */

/* Of who comes there is nothing more to say. */
static const ls_error coming = {.status = LS_OK};

/* Rank 0: who is there when the time is up. */
static ls_status collect(const visit *here) {
    char missing[512] = "";
    size_t used = 0;
    for (int rank = 1; rank < here->group->world_size; rank++) {
        ls_error unused;
        const ls_status status = await_word(here, COMES, rank, here->deadline_ns, &unused);
        if (status == LS_OK) continue;
        if (status != LS_ERR_TIMEOUT) return status;
        if (used + 1 < sizeof missing)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%srank %d", used ? ", " : "", rank);
    }
    if (!used) return LS_OK;
    return ls_fail(LS_ERR_TIMEOUT,
                   "%s did not come to monitored barrier %" PRIu64 " within %" PRId64 " ms; see what these ranks do",
                   missing, here->number, here->timeout_ms);
}

/* Where this process serves the store, which may end with it in a moment: whoever has heard takes its own word away. */
static void see_off(const visit *here) {
    const int64_t end_ns = ls_deadline_after_ms(SLACK_MS);
    for (int rank = 1; rank < here->group->world_size && ls_store_port(here->group->store) > 0; rank++) {
        char key[LS_STORE_KEY_BYTES];
        bool is_there = true;
        name_key(here, here->number, COMES, rank, key);
        while (ls_store_check(here->group->store, key, &is_there) == LS_OK && is_there && ls_now_ns() < end_ns)
            ls_sleep_until(ls_now_ns() + LOOK_NS);
    }
}

static ls_status lead(const visit *here) {
    ls_error verdict;
    if (here->number > 2) { /* who comes to this barrier is through with the one before */
        forget(here, here->number - 2, COMES);
        forget(here, here->number - 2, VERDICT);
    }
    LS_TRY(say(here, COMES, &coming));
    ls_point("monitored.barrier.come");
    ls_error_capture(&verdict, collect(here));
    ls_point("monitored.barrier.collected");
    LS_TRY(say(here, VERDICT, &verdict));
    ls_point("monitored.barrier.told");
    see_off(here);
    return ls_error_raise(&verdict);
}

static ls_status follow(const visit *here) {
    ls_error word;
    LS_TRY(say(here, COMES, &coming));
    ls_point("monitored.barrier.come");
    ls_status status = await_word(here, COMES, 0, here->deadline_ns, &word);
    if (status == LS_ERR_TIMEOUT)
        return ls_fail(LS_ERR_TIMEOUT,
                       "rank 0 did not come to monitored barrier %" PRIu64 " within %" PRId64 " ms; see what it does",
                       here->number, here->timeout_ms);
    LS_TRY(status);
    /* It has the limit from when it came, which may be just now. */
    const int64_t deadline_ns = ls_deadline_after_ms(here->timeout_ms < 0 ? -1 : here->timeout_ms + SLACK_MS);
    status = await_word(here, VERDICT, 0, deadline_ns, &word);
    if (status == LS_ERR_TIMEOUT)
        return ls_fail(LS_ERR_TIMEOUT,
                       "rank 0 came to monitored barrier %" PRIu64 " and did not say who else within %" PRId64
                       " ms; see what it does",
                       here->number, here->timeout_ms + SLACK_MS);
    LS_TRY(status);
    ls_point("monitored.barrier.told");
    forget(here, here->number, COMES);
    return ls_error_raise(&word);
}

ls_status ls_group_monitored_barrier(ls_group *group, int64_t timeout_ms) {
    if (!group) return ls_fail(LS_ERR_ARGUMENT, "the group is NULL");
    if (group->lanes) group = group->lanes[0];
    LS_TRY(group_check(group));
    if (group->world_size == 1) return LS_OK;
    if (timeout_ms == 0) timeout_ms = group->timeout_ms;
    const visit here = {.group = group,
                        .number = atomic_fetch_add_explicit(&group->monitored, 1, memory_order_relaxed) + 1,
                        .timeout_ms = timeout_ms,
                        .deadline_ns = ls_deadline_after_ms(timeout_ms)};
    const int64_t outer_ns = ls_context_limit(here.deadline_ns);
    const ls_status status = group->rank == 0 ? lead(&here) : follow(&here);
    ls_context_limit(outer_ns);
    /* Whoever waits elsewhere learns who is dead, and not that we gave up. */
    return status == LS_ERR_PEER_LOST ? group_lose(group, status) : status;
}
