/* notice.c: a rank that leaves a group, or loses it, says so in the store; and how a rank sleeps.
 *
 * NCCL sees no rank that leaves in good health, and often none that dies on this host. So whoever waits long looks into
 * the store now and then: for the notice under "lost", of those who left the one that hinders the earliest operation, and for
 * the store's own word on ranks that are gone. It also says there which operation it waits for: who has not said so by the
 * limit is who is missing. Operations that take no longer than the first look touch no store. */
#include "group/backend/nccl/state.h"

#include "base/clock.h"
#include "base/context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS (100 * LS_NS_PER_MS)
#define SHORTEST_NAP_NS (20 * 1000)
#define LONGEST_NAP_NS (1 * LS_NS_PER_MS)
/* A notice is put again when another came between; each of those hinders an earlier operation, so few do. */
#define NOTICE_TRIES 100

/* --- leaving -------------------------------------------------------------------------------------------------------- */

void nccl_abort(nccl_group *nccl) {
    cuda_context none = NULL;
    ls_mutex_lock(&nccl->lock);
    nccl_comm comm = nccl->comm;
    nccl->comm = NULL;
    ls_mutex_unlock(&nccl->lock);
    if (!comm) return;
    nccl->cuda.push_context(nccl->context);
    nccl->nccl.abort(comm);
    nccl->cuda.pop_context(&none);
}

static void shared_key(const nccl_group *nccl, const char *what, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/nccl/%s", nccl->prefix, what);
}

static ls_status get_notice(const nccl_group *nccl, nccl_notice *notice) {
    char key[LS_STORE_KEY_BYTES];
    size_t bytes = 0;
    shared_key(nccl, "lost", key);
    /* 1 ms is the shortest limit: 0 would be the store's own. Mostly there is no notice. */
    const ls_status status = ls_store_get(nccl->store, key, notice, sizeof *notice, &bytes, 1);
    if (status == LS_ERR_TIMEOUT) return LS_END;
    if (status == LS_OK && bytes != sizeof *notice)
        return ls_fail(LS_ERR_FORMAT, "rank %d: store key \"%s\" holds no notice", nccl->rank, key);
    return status;
}

static void post_notice(const nccl_group *nccl, const nccl_notice *ours) {
    char key[LS_STORE_KEY_BYTES];
    nccl_notice there;
    shared_key(nccl, "lost", key);
    bool was_set = false;
    for (int tries = 0; tries < NOTICE_TRIES && !was_set; tries++) {
        const ls_status status = get_notice(nccl, &there);
        const bool is_there = status == LS_OK;
        if ((!is_there && status != LS_END) || (is_there && there.done <= ours->done)) return;
        if (ls_store_compare_set(nccl->store, key, is_there ? &there : NULL, is_there ? sizeof there : 0, ours,
                                 sizeof *ours, &was_set) != LS_OK)
            return;
    }
}

/* The last to leave takes the keys away: until then somebody may look at who is missing, and why. */
static void clear_keys(const nccl_group *nccl) {
    char key[LS_STORE_KEY_BYTES];
    int64_t left = 0;
    shared_key(nccl, "left", key);
    if (ls_store_add(nccl->store, key, 1, &left) != LS_OK || left < nccl->world_size) return;
    ls_store_delete(nccl->store, key, NULL);
    shared_key(nccl, "lost", key);
    ls_store_delete(nccl->store, key, NULL);
    for (int rank = 0; rank < nccl->world_size; rank++) {
        nccl_key(nccl->prefix, "at", rank, key);
        ls_store_delete(nccl->store, key, NULL);
    }
}

/* The caller's last error is what it was. */
void nccl_leave(void *state, const ls_error *why) {
    nccl_group *nccl = state;
    ls_error last;
    if (atomic_exchange(&nccl->has_left, true)) return;
    nccl_notice notice = {
        .done = atomic_load_explicit(&nccl->done, memory_order_relaxed), .rank = nccl->rank, .why = *why};
    ls_error_capture(&last, LS_ERR_ABORTED);
    if (why->status != LS_OK)
        nccl_abort(nccl);
    else {
        char host[64] = "";
        gethostname(host, sizeof host - 1);
        snprintf(notice.why.text, sizeof notice.why.text, "rank %d (%s, process %d)", nccl->rank, host, (int)getpid());
    }
    /* The store may be stopped: who leaves does not wait for it. */
    const int64_t outer_ns = ls_context_limit(ls_now_ns());
    if (nccl->store) {
        post_notice(nccl, &notice);
        clear_keys(nccl);
    }
    ls_context_limit(outer_ns);
    ls_error_raise(&last);
}

/* --- looking -------------------------------------------------------------------------------------------------------- */

ls_status nccl_read_notice(nccl_group *nccl) {
    const ls_status status = get_notice(nccl, &nccl->notice);
    if (status == LS_OK) nccl->has_notice = true;
    return status;
}

void nccl_tell(nccl_group *nccl, uint64_t number) {
    char key[LS_STORE_KEY_BYTES];
    nccl->told = number;
    if (!nccl->store) return;
    nccl_key(nccl->prefix, "at", nccl->rank, key);
    ls_store_set(nccl->store, key, &number, sizeof number);
}

int nccl_list_missing(nccl_group *nccl, uint64_t number, char *text, size_t bytes) {
    int missing = 0;
    text[0] = '\0';
    for (int rank = 0; rank < nccl->world_size && nccl->store; rank++) {
        char key[LS_STORE_KEY_BYTES];
        uint64_t at = 0;
        size_t got = 0, used = strlen(text);
        nccl_key(nccl->prefix, "at", rank, key);
        const bool is_there = ls_store_get(nccl->store, key, &at, sizeof at, &got, 1) == LS_OK;
        if (rank == nccl->rank || (is_there && at >= number)) continue;
        missing++;
        snprintf(text + used, bytes - used, "%srank %d", used ? ", " : "", rank);
    }
    return missing;
}

static void look(nccl_group *nccl, const backend_op *op, int64_t now_ns) {
    if (!nccl->store || now_ns - op->start_ns < LOOK_NS || now_ns - nccl->looked_ns < LOOK_NS) return;
    nccl->looked_ns = now_ns;
    /* A store that is stopped holds up the operation's own limit only a little. */
    const int64_t outer_ns = ls_context_limit(now_ns);
    if (nccl->told != op->number) nccl_tell(nccl, op->number);
    ls_context_limit(outer_ns);
    const ls_status status = nccl_read_notice(nccl);
    if (status != LS_OK && status != LS_END) ls_error_capture(&nccl->store_failure, status);
}

/* What `look` has found. */
ls_status nccl_examine(void *state, backend_op *op) {
    const nccl_group *nccl = state;
    char call[CALL_TEXT_BYTES + 32];
    if (nccl->has_notice && nccl->notice.done < op->number) {
        if (nccl->notice.why.status != LS_OK) return ls_error_raise(&nccl->notice.why);
        return ls_fail(LS_ERR_PEER_LOST, "%s left the group before it had done its part of %s; close the group",
                       nccl->notice.why.text, op_describe(op, call));
    }
    return ls_error_raise(&nccl->store_failure);
}

void nccl_describe_missing(void *state, const backend_op *op, char *text, size_t bytes) {
    if (nccl_list_missing(state, op->number, text, bytes) == 0)
        snprintf(text, bytes, "no rank, all wait for NCCL, which does not tell why (NCCL_DEBUG=INFO does)");
}

/* --- sleeping ------------------------------------------------------------------------------------------------------- */

uint32_t nccl_bell(void *state) {
    return atomic_load_explicit(&((nccl_group *)state)->bell, memory_order_acquire);
}

void nccl_wake(void *state) {
    ls_word_advance(&((nccl_group *)state)->bell);
}

/* The GPU wakes nobody; pauses grow with the wait, by its 64th part. */
static int64_t nap_ns(const backend_op *op, int64_t now_ns) {
    const int64_t part_ns = (now_ns - op->start_ns) / 64;
    return part_ns < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : part_ns < LONGEST_NAP_NS ? part_ns : LONGEST_NAP_NS;
}

backend_progress nccl_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns) {
    nccl_group *nccl = state;
    int64_t now_ns = ls_now_ns();
    look(nccl, op, now_ns);
    const backend_progress progress = nccl_poll(nccl, op);
    if (progress != BACKEND_PENDING) return progress;
    now_ns = ls_now_ns();
    const int64_t end_ns = now_ns + nap_ns(op, now_ns);
    ls_word_wait(&nccl->bell, bell, end_ns < deadline_ns ? end_ns : deadline_ns);
    return BACKEND_PENDING;
}
