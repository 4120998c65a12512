/* share.c: one object for all ranks, a part for each, which rank 0 makes and all map: so a group costs each rank one mapping and
 * one descriptor, and the store N answers, where an object a rank would cost N of each to each of N ranks.
 *
 *     part of rank 0 | part of rank 1 | ... | head
 *
 * Each rank takes the memory of its part itself: it lies on that rank's side of the machine and counts as its own. Keys, until all
 * have mapped the object: PREFIX/<rank> has a rank's process and, rank 0's, the object before it; PREFIX/from<rank> the
 * processes of some ranks from that one on, gathered by rank 0. */
#include "group/backend/shm/share.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/wait.h"
#include "group/backend.h"
#include "group/withdrawal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How long we wait before we look whether another rank has failed: longer each time, so that those who ask again do not keep
 * a store from answering that many ask at once. */
#define LOOK_AGAIN_MS 50
#define LOOK_AGAIN_MOST_MS 400

/* What is there comes within that, or has been taken away. */
#define FETCH_LIMIT_MS 1000

enum { IS_WAITED_FOR, HAS_COME, HAS_MAPPED, HAS_FAILED };

#define SOMEONE_FAILED UINT32_C(0x80000000)

/* Behind the parts, on pages of its own. */
typedef struct sharing_head {
    ls_word mapped; /* how many ranks have mapped all; all sleep on it, and who completes it wakes them */
    _Atomic uint32_t standings[];
} sharing_head;

static size_t parts_bytes(const shm_sharing *sharing) {
    return (size_t)sharing->world_size * shm_round_to_pages(sharing->bytes);
}

static size_t head_bytes(const shm_sharing *sharing) {
    return shm_round_to_pages(sizeof(sharing_head) + (size_t)sharing->world_size * sizeof(uint32_t));
}

static sharing_head *head_of(const shm_sharing *sharing) {
    return (sharing_head *)((char *)(*sharing->segment)->base + parts_bytes(sharing));
}

static uint32_t standing_of(const shm_sharing *sharing, int rank) {
    return atomic_load_explicit(&head_of(sharing)->standings[rank], memory_order_relaxed);
}

static void key_of_rank(const shm_sharing *sharing, int rank, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/%d", sharing->prefix, rank);
}

static void key_of_bundle(const shm_sharing *sharing, int first, char key[LS_STORE_KEY_BYTES]) {
    snprintf(key, LS_STORE_KEY_BYTES, "%s/from%d", sharing->prefix, first);
}

/* --- failing together ----------------------------------------------------------------------------------------------- */

static ls_status within_rank(const shm_sharing *sharing, ls_status status) {
    return status == LS_OK ? LS_OK : ls_fail_within(status, "rank %d", rank_name(sharing->names, sharing->rank));
}

/* Fails with the sentence of the rank that failed first, if one has. */
static ls_status look_for_failure(const shm_sharing *sharing) {
    char key[LS_STORE_KEY_BYTES];
    withdrawal_key(sharing->prefix, key);
    bool is_set = false;
    LS_TRY(ls_store_check(sharing->store, key, &is_set));
    ls_error said = {.status = LS_OK};
    if (is_set) LS_TRY(withdrawal_read(sharing->store, sharing->prefix, LOOK_AGAIN_MS, &said));
    return ls_error_raise(&said);
}

static void set_standing(const shm_sharing *sharing, uint32_t standing) {
    atomic_store_explicit(&head_of(sharing)->standings[sharing->rank], standing, memory_order_relaxed);
}

/* Counts this rank, or says that one has failed; wakes the others when they have nothing more to wait for. */
static void count(const shm_sharing *sharing, uint32_t standing) {
    ls_word *mapped = &head_of(sharing)->mapped;
    set_standing(sharing, standing);
    const uint32_t now = standing == HAS_FAILED
                             ? atomic_fetch_or_explicit(mapped, SOMEONE_FAILED, memory_order_acq_rel) | SOMEONE_FAILED
                             : atomic_fetch_add_explicit(mapped, 1, memory_order_acq_rel) + 1;
    if (now >= (uint32_t)sharing->world_size) ls_word_wake(mapped);
}

static void delete_keys(const shm_sharing *sharing) {
    char key[LS_STORE_KEY_BYTES];
    if (sharing->processes || sharing->rank == 0) {
        key_of_rank(sharing, sharing->rank, key);
        ls_store_delete(sharing->store, key, NULL);
    }
    if (!sharing->processes || sharing->rank != 0) return;
    for (int first = 0; first < sharing->world_size; first += STORE_MOST_DESCRIPTORS) {
        key_of_bundle(sharing, first, key);
        ls_store_delete(sharing->store, key, NULL);
    }
}

ls_status shm_share_withdraw(shm_sharing *sharing, ls_status status) {
    ls_error error;
    withdrawal_say(sharing->store, sharing->prefix, sharing->world_size, status);
    ls_error_capture(&error, status);
    if (sharing->segment && *sharing->segment) {
        if (sharing->failed && standing_of(sharing, sharing->rank) != IS_WAITED_FOR)
            sharing->failed(sharing->argument, &error);
        count(sharing, HAS_FAILED);
    }
    delete_keys(sharing);
    if (sharing->segment) shm_segment_drop(sharing->segment);
    for (int rank = 0; sharing->processes && rank < sharing->world_size; rank++) {
        if (sharing->processes[rank] >= 0) close(sharing->processes[rank]);
        sharing->processes[rank] = -1;
    }
    return ls_error_raise(&error); /* the store's own failures matter less */
}

/* --- waiting -------------------------------------------------------------------------------------------------------- */

/* Before there is the object, those are there who have said so, and of those who say nothing nothing is known; nor of a store
 * that fails. */
static bool has_come(const shm_sharing *sharing, int rank) {
    char key[LS_STORE_KEY_BYTES];
    bool is_set = false;
    if (*sharing->segment) return standing_of(sharing, rank) != IS_WAITED_FOR;
    if (rank != 0 && !sharing->processes) return true;
    key_of_rank(sharing, rank, key);
    return ls_store_check(sharing->store, key, &is_set) != LS_OK || is_set;
}

static bool has_mapped(const shm_sharing *sharing, int rank) {
    return !*sharing->segment || standing_of(sharing, rank) == HAS_MAPPED;
}

/* "rank 2, rank 5": those who have not come. When all have, those who have not mapped the others' parts: they are slow; otherwise
 * they wait, as we do. */
static void describe_missing(const shm_sharing *sharing, char *text, size_t bytes) {
    bool (*const is_there[])(const shm_sharing *sharing, int rank) = {has_come, has_mapped};
    size_t used = 0;
    text[0] = '\0';
    for (int look = 0; look < 2 && used == 0; look++)
        for (int rank = 0; rank < sharing->world_size && used < bytes; rank++) {
            if (rank == sharing->rank || is_there[look](sharing, rank)) continue;
            used += (size_t)snprintf(text + used, bytes - used, "%srank %d", used ? ", " : "",
                                     rank_name(sharing->names, rank));
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
                   rank_name(sharing->names, sharing->rank), sharing->timeout_ms, missing);
}

/* The store says that a rank has ended; before, the rank itself may have said why. */
static ls_status fail_with_cause(const shm_sharing *sharing, ls_status status) {
    ls_error end;
    ls_error_capture(&end, status);
    if (status == LS_ERR_PEER_LOST) LS_TRY(look_for_failure(sharing));
    return within_rank(sharing, ls_error_raise(&end));
}

static int64_t longer(int64_t slice_ms) {
    return slice_ms < LOOK_AGAIN_MOST_MS ? 2 * slice_ms : slice_ms;
}

static ls_status await(shm_sharing *sharing, const char *key, int *descriptors, int count) {
    for (int64_t slice_ms = LOOK_AGAIN_MS;; slice_ms = longer(slice_ms)) {
        ls_status status = ls_store_wait(sharing->store, key, slice_ms);
        if (status == LS_OK) status = store_get_descriptors(sharing->store, key, descriptors, count, FETCH_LIMIT_MS);
        if (status == LS_OK) return LS_OK;
        if (status != LS_ERR_TIMEOUT) return fail_with_cause(sharing, status);
        LS_TRY(look_around(sharing));
    }
}

/* A rank that failed has said why before it set the word; unless the store refused its sentence. One that finished may have
 * died since. */
static ls_status wait_for_all(shm_sharing *sharing) {
    ls_word *mapped = &head_of(sharing)->mapped;
    const uint32_t wanted = (uint32_t)sharing->world_size;
    for (int64_t slice_ms = LOOK_AGAIN_MS;; slice_ms = longer(slice_ms)) {
        const uint32_t seen = atomic_load_explicit(mapped, memory_order_acquire);
        if (seen == wanted) return LS_OK;
        const bool has_failed = seen & SOMEONE_FAILED;
        if (!has_failed && ls_word_wait(mapped, seen, ls_now_ns() + slice_ms * LS_NS_PER_MS)) continue;
        const ls_status status = look_around(sharing);
        if (atomic_load_explicit(mapped, memory_order_acquire) == wanted) return LS_OK;
        LS_TRY(status);
        int rank = 0;
        while (rank < sharing->world_size - 1 && standing_of(sharing, rank) != HAS_FAILED) rank++;
        if (has_failed)
            return ls_fail(LS_ERR_PEER_LOST, "rank %d could not share its memory", rank_name(sharing->names, rank));
    }
}

/* --- the exchange --------------------------------------------------------------------------------------------------- */

/* Peers learn of our death by it, even where a forked child of ours keeps every socket open. */
static ls_status open_own_process(const shm_sharing *sharing) {
    int *own = &sharing->processes[sharing->rank];
    *own = LS_SYSCALL(EMFILE, (int)syscall(SYS_pidfd_open, getpid(), 0));
    return *own >= 0 ? LS_OK
                     : ls_fail_errno(LS_ERR_IO, errno,
                                     "cannot open a descriptor of this process (pidfd_open; where a sandbox or an "
                                     "old kernel refuses that, set LOCKSTEP_BACKEND=tcp)");
}

/* What a rank has to offer at its key: the object, if it has one, and its process, if that is wanted. */
static ls_status publish(const shm_sharing *sharing, int object) {
    char key[LS_STORE_KEY_BYTES];
    int descriptors[2], count = 0;
    if (object >= 0) descriptors[count++] = object;
    if (sharing->processes) descriptors[count++] = sharing->processes[sharing->rank];
    key_of_rank(sharing, sharing->rank, key);
    return count ? store_set_descriptors(sharing->store, key, descriptors, count) : LS_OK;
}

static ls_status map_own_part(const shm_sharing *sharing, int object) {
    const size_t part = shm_round_to_pages(sharing->bytes);
    LS_TRY(shm_segment_map(object, parts_bytes(sharing) + head_bytes(sharing), sharing->segment));
    LS_TRY(shm_segment_allocate(object, (size_t)sharing->rank * part, part));
    if (sharing->fill) LS_TRY(sharing->fill(sharing->argument));
    set_standing(sharing, HAS_COME);
    return LS_OK;
}

/* Rank 0. */
static ls_status make_object(const shm_sharing *sharing, int *object) {
    const size_t parts = parts_bytes(sharing), head = head_bytes(sharing);
    LS_TRY(shm_memory_check(parts + head));
    LS_TRY(shm_segment_create(parts + head, object));
    LS_TRY(shm_segment_allocate(*object, parts, head));
    LS_TRY(map_own_part(sharing, *object));
    return publish(sharing, *object);
}

/* The others; of rank 0 they learn at once whether it lives. */
static ls_status take_object(shm_sharing *sharing, int *object) {
    char key[LS_STORE_KEY_BYTES];
    int descriptors[2] = {-1, -1};
    key_of_rank(sharing, 0, key);
    const ls_status published = publish(sharing, -1);
    if (published != LS_OK) return within_rank(sharing, published);
    LS_TRY(await(sharing, key, descriptors, sharing->processes ? 2 : 1));
    *object = descriptors[0];
    if (sharing->processes) sharing->processes[0] = descriptors[1];
    ls_status status = shm_memory_check(shm_round_to_pages(sharing->bytes));
    if (status == LS_OK) status = map_own_part(sharing, *object);
    return within_rank(sharing, status);
}

static ls_status offer(shm_sharing *sharing) {
    int object = -1;
    ls_status status = sharing->processes ? open_own_process(sharing) : LS_OK;
    if (status != LS_OK) return within_rank(sharing, status);
    if (sharing->rank == 0)
        status = within_rank(sharing, make_object(sharing, &object));
    else
        status = take_object(sharing, &object);
    if (object >= 0) close(object);
    return status;
}

/* Rank 0: asks some ranks for their processes, and offers them to all under one key. */
static ls_status bundle(shm_sharing *sharing, int first, int end) {
    char key[LS_STORE_KEY_BYTES];
    for (int rank = first; rank < end; rank++) {
        key_of_rank(sharing, rank, key);
        if (rank != 0) LS_TRY(await(sharing, key, &sharing->processes[rank], 1));
    }
    ls_point("shm.share.gathered");
    key_of_bundle(sharing, first, key);
    return within_rank(sharing, store_set_descriptors(sharing->store, key, sharing->processes + first, end - first));
}

/* The others take them; those of rank 0 and of themselves they have. */
static ls_status unbundle(shm_sharing *sharing, int first, int end) {
    int descriptors[STORE_MOST_DESCRIPTORS] = {0};
    char key[LS_STORE_KEY_BYTES];
    key_of_bundle(sharing, first, key);
    LS_TRY(await(sharing, key, descriptors, end - first));
    for (int rank = first; rank < end; rank++) {
        if (sharing->processes[rank] < 0)
            sharing->processes[rank] = descriptors[rank - first];
        else
            close(descriptors[rank - first]);
    }
    return LS_OK;
}

static ls_status exchange_processes(shm_sharing *sharing) {
    for (int first = 0, end = 0; first < sharing->world_size; first = end) {
        end = first + STORE_MOST_DESCRIPTORS;
        if (end > sharing->world_size) end = sharing->world_size;
        LS_TRY(sharing->rank == 0 ? bundle(sharing, first, end) : unbundle(sharing, first, end));
    }
    return LS_OK;
}

static ls_status share(shm_sharing *sharing) {
    LS_TRY(offer(sharing));
    ls_point("shm.share.published");
    if (sharing->processes) LS_TRY(exchange_processes(sharing));
    ls_point("shm.share.mapped");
    sharing->has_met = true;
    count(sharing, HAS_MAPPED);
    LS_TRY(wait_for_all(sharing));
    ls_point("shm.share.met");
    return LS_OK;
}

ls_status shm_share(shm_sharing *sharing) {
    const ls_status status = share(sharing);
    if (status != LS_OK) return shm_share_withdraw(sharing, status);
    const size_t part = shm_round_to_pages(sharing->bytes);
    if (sharing->fills_all)
        shm_segment_fill_tables(*sharing->segment, 0, part * (size_t)sharing->world_size);
    else
        shm_segment_fill_tables(*sharing->segment, part * (size_t)sharing->rank, part);

    /* The descriptors have served, and what an earlier attempt left has no reader. */
    delete_keys(sharing);
    if (sharing->stale && sharing->rank == 0) withdrawal_forget(sharing->store, sharing->stale);
    return LS_OK;
}
