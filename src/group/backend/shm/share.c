/* share.c: the exchange of segments. Keys, until all have mapped them: PREFIX/<rank> has the descriptors of a rank,
 * PREFIX/from<rank> those of some ranks from that one on, gathered by rank 0; and PREFIX/failed the error of the first rank
 * that failed. */
#include "group/backend/shm/share.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/wait.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How long we wait before we look whether another rank has failed. */
#define LOOK_AGAIN_MS 50

/* Whose descriptors travel together. */
#define RANKS_AT_ONCE (STORE_MOST_DESCRIPTORS / 2)

/* On a page behind the segment's memory, so that the memory itself begins on one. */
typedef struct trailer {
    _Atomic uint32_t standing; /* of this rank */
    ls_word mapped; /* rank 0's: how many ranks have mapped all; all sleep on it, who completes it wakes them */
} trailer;

enum { IS_WAITED_FOR, HAS_MAPPED, HAS_FAILED };

#define SOMEONE_FAILED UINT32_C(0x80000000)

static trailer *trailer_of(const shm_sharing *sharing, int rank) {
    return (trailer *)((char *)sharing->segments[rank]->base + shm_round_to_pages(sharing->bytes));
}

static size_t whole_bytes(const shm_sharing *sharing) {
    return shm_round_to_pages(sharing->bytes) + shm_round_to_pages(sizeof(trailer));
}

static void key_of_rank(const shm_sharing *sharing, int rank, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/%d", sharing->prefix, rank);
}

static void key_of_bundle(const shm_sharing *sharing, int first, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/from%d", sharing->prefix, first);
}

/* Its segment, and its process. */
static int descriptors_a_rank(const shm_sharing *sharing) {
    return sharing->processes ? 2 : 1;
}

static void key_of_failure(const char *prefix, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/failed", prefix);
}

/* Fails with the sentence of the rank that failed first, if one has. */
static ls_status look_for_failure(const shm_sharing *sharing) {
    char key[LS_STORE_KEY_BYTES];
    key_of_failure(sharing->prefix, key);
    bool is_set = false;
    LS_TRY(ls_store_check(sharing->store, key, &is_set));
    if (!is_set) return LS_OK;
    ls_error error = {.status = LS_OK};
    size_t bytes = 0;
    LS_TRY(ls_store_get(sharing->store, key, &error, sizeof error, &bytes, LOOK_AGAIN_MS));
    if (bytes != sizeof error || error.status == LS_OK)
        return ls_fail(LS_ERR_FORMAT, "store key \"%s\" does not hold an error", key);
    error.text[sizeof error.text - 1] = '\0';
    return ls_error_raise(&error);
}

/* Takes back what we mapped and offered, but for the sentence. */
static void drop_all(shm_sharing *sharing) {
    for (int rank = 0; rank < sharing->world_size; rank++) {
        shm_segment_drop(&sharing->segments[rank]);
        if (!sharing->processes || sharing->processes[rank] < 0) continue;
        close(sharing->processes[rank]);
        sharing->processes[rank] = -1;
    }
    if (sharing->descriptor >= 0) close(sharing->descriptor);
    sharing->descriptor = -1;
}

/* Where we have not mapped rank 0's segment, nobody takes the sharing for done, nor waits for long without a look around. */
static void set_standing(const shm_sharing *sharing, uint32_t standing) {
    atomic_store_explicit(&trailer_of(sharing, sharing->rank)->standing, standing, memory_order_relaxed);
    if (!sharing->segments[0]) return;
    ls_word *mapped = &trailer_of(sharing, 0)->mapped;
    const uint32_t now = standing == HAS_FAILED
                             ? atomic_fetch_or_explicit(mapped, SOMEONE_FAILED, memory_order_acq_rel) | SOMEONE_FAILED
                             : atomic_fetch_add_explicit(mapped, 1, memory_order_acq_rel) + 1;
    if (now >= (uint32_t)sharing->world_size) ls_word_wake(mapped);
}

static void take_back_offers(const shm_sharing *sharing) {
    char key[LS_STORE_KEY_BYTES];
    key_of_rank(sharing, sharing->rank, key);
    ls_store_delete(sharing->store, key, NULL);
    for (int first = 0; sharing->rank == 0 && first < sharing->world_size; first += RANKS_AT_ONCE) {
        key_of_bundle(sharing, first, key);
        ls_store_delete(sharing->store, key, NULL);
    }
}

ls_status shm_share_withdraw(shm_sharing *sharing, ls_status status) {
    char key[LS_STORE_KEY_BYTES];
    ls_error error;
    ls_error_capture(&error, status);
    key_of_failure(sharing->prefix, key);
    ls_store_compare_set(sharing->store, key, NULL, 0, &error, sizeof error, NULL);
    if (sharing->segments && sharing->segments[sharing->rank]) {
        if (sharing->failed) sharing->failed(sharing->argument, &error);
        set_standing(sharing, HAS_FAILED);
    }
    take_back_offers(sharing);
    if (sharing->segments) drop_all(sharing);
    return ls_error_raise(&error); /* the store's own failures matter less */
}

static ls_status within_rank(const shm_sharing *sharing, ls_status status) {
    return ls_fail_within(status, "rank %d", sharing->rank);
}

ls_status shm_share_offer(shm_sharing *sharing) {
    sharing->descriptor = -1;
    sharing->has_met = false;
    ls_status status = shm_memory_check(whole_bytes(sharing) * (size_t)sharing->world_size);
    if (status == LS_OK) status = shm_segment_create(whole_bytes(sharing), &sharing->descriptor);
    if (status == LS_OK)
        status = shm_segment_map(sharing->descriptor, whole_bytes(sharing), !sharing->is_touched_late,
                                 &sharing->segments[sharing->rank]);
    return status == LS_OK ? LS_OK : shm_share_withdraw(sharing, within_rank(sharing, status));
}

/* Publishes our segment, and a descriptor of our process: so that peers learn of our death even where a forked child of
 * ours keeps every socket open. */
static ls_status publish(shm_sharing *sharing) {
    char key[LS_STORE_KEY_BYTES];
    int descriptors[2] = {sharing->descriptor, -1};
    key_of_rank(sharing, sharing->rank, key);
    if (sharing->processes) {
        descriptors[1] = ls_fault(LS_FAULT_SYSCALL) ? (errno = EMFILE, -1) : (int)syscall(SYS_pidfd_open, getpid(), 0);
        if (descriptors[1] < 0)
            return ls_fail_errno(LS_ERR_IO, errno, "cannot open a descriptor of this process (pidfd)");
        sharing->processes[sharing->rank] = descriptors[1];
    }
    return store_set_descriptors(sharing->store, key, descriptors, descriptors_a_rank(sharing));
}

static bool has_come(const shm_sharing *sharing, int rank) {
    char key[LS_STORE_KEY_BYTES];
    bool is_set = false;
    key_of_rank(sharing, rank, key);
    /* Of a store that fails nothing is known, so nobody is blamed. */
    return sharing->segments[rank] || ls_store_check(sharing->store, key, &is_set) != LS_OK || is_set;
}

static bool has_mapped(const shm_sharing *sharing, int rank) {
    return !sharing->segments[rank] ||
           atomic_load_explicit(&trailer_of(sharing, rank)->standing, memory_order_relaxed) != IS_WAITED_FOR;
}

/* "rank 2, rank 5": those who have not come. When all have, those who have not mapped the others: they are slow; otherwise
 * they wait, as we do. */
static void describe_missing(const shm_sharing *sharing, char *text, size_t bytes) {
    bool (*const is_there[])(const shm_sharing *sharing, int rank) = {has_come, has_mapped};
    size_t used = 0;
    text[0] = '\0';
    for (int look = 0; look < 2 && used == 0; look++)
        for (int rank = 0; rank < sharing->world_size && used < bytes; rank++) {
            if (rank == sharing->rank || is_there[look](sharing, rank)) continue;
            used += (size_t)snprintf(text + used, bytes - used, "%srank %d", used ? ", " : "", rank);
        }
}

/* Between two waits: fails when another rank has, when one cannot come, or when time is up. */
static ls_status look_around(shm_sharing *sharing) {
    LS_TRY(look_for_failure(sharing));
    if (sharing->examine) LS_TRY(sharing->examine(sharing->argument));
    if (ls_now_ns() < sharing->deadline_ns) return LS_OK;
    char missing[512];
    describe_missing(sharing, missing, sizeof missing);
    /* Who gave up meanwhile is not missing: a rank says why before it takes its key away. */
    LS_TRY(look_for_failure(sharing));
    return ls_fail(LS_ERR_TIMEOUT,
                   "rank %d: the ranks did not meet within %" PRId64
                   " ms; missing: %s; see whether they were started and what they said last",
                   sharing->rank, sharing->timeout_ms, missing);
}

/* The store says that a rank has ended; before, the rank itself may have said why. */
static ls_status fail_with_cause(const shm_sharing *sharing, ls_status status) {
    ls_error end;
    ls_error_capture(&end, status);
    if (status == LS_ERR_PEER_LOST) LS_TRY(look_for_failure(sharing));
    return within_rank(sharing, ls_error_raise(&end));
}

static ls_status await(shm_sharing *sharing, const char *key, int *descriptors, int count) {
    for (;;) {
        const ls_status status = store_get_descriptors(sharing->store, key, descriptors, count, LOOK_AGAIN_MS);
        if (status == LS_OK) return LS_OK;
        if (status != LS_ERR_TIMEOUT) return fail_with_cause(sharing, status);
        LS_TRY(look_around(sharing));
    }
}

/* Maps the segment of `rank`; its process, if there is one, is the sharing's from now on. */
static ls_status take(shm_sharing *sharing, int rank, const int *descriptors) {
    if (sharing->processes) sharing->processes[rank] = descriptors[1];
    const ls_status status =
        shm_segment_map(descriptors[0], whole_bytes(sharing), !sharing->is_touched_late, &sharing->segments[rank]);
    return status == LS_OK ? LS_OK : within_rank(sharing, status);
}

/* Rank 0: takes what the ranks of a bundle offer, and offers it to all under one key. */
static ls_status bundle(shm_sharing *sharing, int first, int end) {
    int descriptors[STORE_MOST_DESCRIPTORS], *at = descriptors;
    char key[LS_STORE_KEY_BYTES];
    ls_status status = LS_OK;
    for (int rank = first; rank < end && status == LS_OK; rank++) {
        at[0] = sharing->descriptor;
        if (sharing->processes) at[1] = sharing->processes[rank];
        key_of_rank(sharing, rank, key);
        if (rank != sharing->rank) {
            status = await(sharing, key, at, descriptors_a_rank(sharing));
            if (status != LS_OK) break;
            status = take(sharing, rank, at);
        }
        at += descriptors_a_rank(sharing);
    }
    if (status == LS_OK) {
        ls_point("shm.share.gathered");
        key_of_bundle(sharing, first, key);
        status = store_set_descriptors(sharing->store, key, descriptors, (int)(at - descriptors));
        if (status != LS_OK) within_rank(sharing, status);
    }
    for (const int *each = descriptors; each < at; each += descriptors_a_rank(sharing))
        if (*each != sharing->descriptor) close(*each);
    return status;
}

/* The others: take what is in it. */
static ls_status unbundle(shm_sharing *sharing, int first, int end) {
    int descriptors[STORE_MOST_DESCRIPTORS];
    const int each = descriptors_a_rank(sharing);
    char key[LS_STORE_KEY_BYTES];
    key_of_bundle(sharing, first, key);
    LS_TRY(await(sharing, key, descriptors, (end - first) * each));
    ls_status status = LS_OK;
    for (int rank = first; rank < end; rank++) {
        const int *of_rank = descriptors + (rank - first) * each;
        const bool is_wanted = status == LS_OK && !sharing->segments[rank];
        if (is_wanted) status = take(sharing, rank, of_rank);
        for (int i = 0; i < each; i++)
            if (i == 0 || !is_wanted) close(of_rank[i]);
    }
    return status;
}

/* All segments go through rank 0: so the store is asked N times, and not N times by each of N ranks. */
static ls_status map_all(shm_sharing *sharing) {
    for (int first = 0, end = 0; first < sharing->world_size; first = end) {
        end = first + RANKS_AT_ONCE < sharing->world_size ? first + RANKS_AT_ONCE : sharing->world_size;
        LS_TRY(sharing->rank == 0 ? bundle(sharing, first, end) : unbundle(sharing, first, end));
    }
    return LS_OK;
}

/* The store refused its sentence. */
static ls_status fail_unsaid(const shm_sharing *sharing) {
    int rank = 0;
    while (rank < sharing->world_size - 1 &&
           atomic_load_explicit(&trailer_of(sharing, rank)->standing, memory_order_relaxed) != HAS_FAILED)
        rank++;
    return ls_fail(LS_ERR_PEER_LOST, "rank %d could not share its memory", rank);
}

/* A rank that failed has said why before it set the word. One that finished may have died since. */
static ls_status wait_for_all(shm_sharing *sharing) {
    ls_word *mapped = &trailer_of(sharing, 0)->mapped;
    const uint32_t wanted = (uint32_t)sharing->world_size;
    for (;;) {
        const uint32_t seen = atomic_load_explicit(mapped, memory_order_acquire);
        if (seen == wanted) return LS_OK;
        const bool has_failed = seen & SOMEONE_FAILED;
        if (!has_failed && ls_word_wait(mapped, seen, ls_now_ns() + LOOK_AGAIN_MS * LS_NS_PER_MS)) continue;
        const ls_status status = look_around(sharing);
        if (atomic_load_explicit(mapped, memory_order_acquire) == wanted) return LS_OK;
        LS_TRY(status);
        if (has_failed) return fail_unsaid(sharing);
    }
}

static ls_status complete(shm_sharing *sharing) {
    const ls_status published = publish(sharing);
    if (published != LS_OK) return within_rank(sharing, published);
    ls_point("shm.share.published");
    LS_TRY(map_all(sharing));
    ls_point("shm.share.mapped");
    sharing->has_met = true;
    set_standing(sharing, HAS_MAPPED);
    LS_TRY(wait_for_all(sharing));
    ls_point("shm.share.met");
    return LS_OK;
}

ls_status shm_share_complete(shm_sharing *sharing) {
    const ls_status status = complete(sharing);
    if (status != LS_OK) return shm_share_withdraw(sharing, status);

    /* Everyone has mapped everything: the descriptors have served, and what an earlier attempt left has no reader. */
    take_back_offers(sharing);
    if (sharing->stale) {
        char key[LS_STORE_KEY_BYTES];
        key_of_failure(sharing->stale, key);
        ls_store_delete(sharing->store, key, NULL);
    }
    close(sharing->descriptor);
    sharing->descriptor = -1;
    return LS_OK;
}
