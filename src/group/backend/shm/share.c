/* share.c: the exchange of segments. Keys: PREFIX/<rank> has the descriptors of a rank until all have mapped them,
 * PREFIX/failed the error of the first rank that failed. */
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

/* On a page behind the segment's memory, so that the memory itself begins on one. */
typedef struct trailer {
    ls_word mapped; /* 1: this rank has mapped all segments; 2: it failed */
} trailer;

enum { IS_WAITED_FOR, HAS_MAPPED, HAS_FAILED };

static trailer *trailer_of(const shm_sharing *sharing, int rank) {
    return (trailer *)((char *)sharing->segments[rank]->base + shm_round_to_pages(sharing->bytes));
}

static size_t whole_bytes(const shm_sharing *sharing) {
    return shm_round_to_pages(sharing->bytes) + shm_round_to_pages(sizeof(trailer));
}

static void key_of_rank(const shm_sharing *sharing, int rank, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/%d", sharing->prefix, rank);
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

ls_status shm_share_withdraw(shm_sharing *sharing, ls_status status) {
    char key[LS_STORE_KEY_BYTES];
    ls_error error;
    ls_error_capture(&error, status);
    key_of_failure(sharing->prefix, key);
    ls_store_compare_set(sharing->store, key, NULL, 0, &error, sizeof error, NULL);
    if (sharing->segments && sharing->segments[sharing->rank]) {
        trailer *own = trailer_of(sharing, sharing->rank);
        if (sharing->failed) sharing->failed(sharing->argument, &error);
        atomic_store_explicit(&own->mapped, HAS_FAILED, memory_order_release);
        ls_word_wake(&own->mapped);
    }
    key_of_rank(sharing, sharing->rank, key);
    ls_store_delete(sharing->store, key, NULL);
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
    key_of_rank(sharing, sharing->rank, key);
    if (!sharing->processes) return store_set_descriptors(sharing->store, key, &sharing->descriptor, 1);
    const int process = ls_fault(LS_FAULT_SYSCALL) ? (errno = EMFILE, -1) : (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (process < 0) return ls_fail_errno(LS_ERR_IO, errno, "cannot open a descriptor of this process (pidfd)");
    const int descriptors[2] = {sharing->descriptor, process};
    const ls_status status = store_set_descriptors(sharing->store, key, descriptors, 2);
    close(process);
    return status;
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
           atomic_load_explicit(&trailer_of(sharing, rank)->mapped, memory_order_relaxed) != IS_WAITED_FOR;
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

static ls_status map_peer(shm_sharing *sharing, int peer) {
    char key[LS_STORE_KEY_BYTES];
    int descriptors[2] = {-1, -1};
    const int count = sharing->processes ? 2 : 1;
    key_of_rank(sharing, peer, key);
    for (;;) {
        const ls_status status = store_get_descriptors(sharing->store, key, descriptors, count, LOOK_AGAIN_MS);
        if (status == LS_OK) break;
        if (status != LS_ERR_TIMEOUT) return within_rank(sharing, status);
        LS_TRY(look_around(sharing));
    }
    if (sharing->processes) sharing->processes[peer] = descriptors[1];
    const ls_status status =
        shm_segment_map(descriptors[0], whole_bytes(sharing), !sharing->is_touched_late, &sharing->segments[peer]);
    close(descriptors[0]);
    return status == LS_OK ? LS_OK : within_rank(sharing, status);
}

static ls_status wait_for_peer(shm_sharing *sharing, int peer) {
    ls_word *mapped = &trailer_of(sharing, peer)->mapped;
    for (;;) {
        const uint32_t seen = atomic_load_explicit(mapped, memory_order_acquire);
        if (seen == HAS_MAPPED) return LS_OK;
        if (seen == IS_WAITED_FOR && ls_word_wait(mapped, seen, ls_now_ns() + LOOK_AGAIN_MS * LS_NS_PER_MS)) continue;
        /* A rank that failed has said why before it set the word. One that finished may have died since. */
        const ls_status status = look_around(sharing);
        if (atomic_load_explicit(mapped, memory_order_acquire) == HAS_MAPPED) return LS_OK;
        LS_TRY(status);
        if (seen == HAS_FAILED) return ls_fail(LS_ERR_PEER_LOST, "rank %d could not share its memory", peer);
    }
}

static ls_status complete(shm_sharing *sharing) {
    const ls_status published = publish(sharing);
    if (published != LS_OK) return within_rank(sharing, published);
    ls_point("shm.share.published");
    for (int rank = 0; rank < sharing->world_size; rank++)
        if (rank != sharing->rank) LS_TRY(map_peer(sharing, rank));
    trailer *own = trailer_of(sharing, sharing->rank);
    ls_point("shm.share.mapped");
    sharing->has_met = true;
    atomic_store_explicit(&own->mapped, HAS_MAPPED, memory_order_release);
    ls_word_wake(&own->mapped);
    for (int rank = 0; rank < sharing->world_size; rank++)
        if (rank != sharing->rank) LS_TRY(wait_for_peer(sharing, rank));
    ls_point("shm.share.met");
    return LS_OK;
}

ls_status shm_share_complete(shm_sharing *sharing) {
    const ls_status status = complete(sharing);
    if (status != LS_OK) return shm_share_withdraw(sharing, status);

    /* Everyone has mapped everything: the descriptors have served, and what an earlier attempt left has no reader. */
    char key[LS_STORE_KEY_BYTES];
    key_of_rank(sharing, sharing->rank, key);
    ls_store_delete(sharing->store, key, NULL);
    if (sharing->stale) {
        key_of_failure(sharing->stale, key);
        ls_store_delete(sharing->store, key, NULL);
    }
    close(sharing->descriptor);
    sharing->descriptor = -1;
    return LS_OK;
}
