/* open.c: a group opens: every rank shares its board; and the backend's table. */
#include "group/backend/shm/messages.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/memory.h"
#include "group/group.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* All boards in all ranks' page tables: with many ranks that would take most of an opening's time, and of a board of 300 KB
 * a small operation touches two pages. */
enum { MOST_FILLED = 16 };

static void shm_close(void *state) {
    shm_group *shm = state;
    if (!shm) return;
    shm_release_all(shm);
    for (int rank = 0; rank < shm->world_size; rank++) {
        if (shm->segments) shm_segment_drop(&shm->segments[rank]);
        if (shm->processes && shm->processes[rank] >= 0) close(shm->processes[rank]);
    }
    ls_mutex_destroy(&shm->lock);
    shm_mail_free(shm);
    ls_free(shm->boards);
    ls_free(shm->segments);
    ls_free(shm->processes);
    ls_free(shm->copies);
    ls_free(shm);
}

static ls_status prepare(const backend_place *place, shm_group **state) {
    shm_group *shm = *state = ls_alloc(sizeof *shm);
    if (!shm) return LS_ERR_MEMORY;
    const size_t world_size = (size_t)place->world_size;
    shm->group = place->group;
    shm->store = place->store;
    shm->rank = place->rank;
    shm->names = place->names;
    shm->world_size = place->world_size;
    ls_mutex_init(&shm->lock);
    snprintf(shm->prefix, sizeof shm->prefix, "%s", place->prefix);
    shm->processes = ls_alloc_array(world_size, sizeof *shm->processes);
    if (!shm->processes) return LS_ERR_MEMORY;
    for (size_t rank = 0; rank < world_size; rank++) shm->processes[rank] = -1;
    shm->boards = ls_alloc_array(world_size, sizeof(shm_board *));
    shm->segments = ls_alloc_array(world_size, sizeof(shm_segment *));
    shm->copies = ls_alloc_array(world_size, sizeof *shm->copies);
    return shm->boards && shm->segments && shm->copies ? shm_mail_create(shm) : LS_ERR_MEMORY;
}

static ls_status fill_board(shm_board *board) {
    if (gethostname(board->host, sizeof board->host - 1) != 0) snprintf(board->host, sizeof board->host, "this host");
    board->process = getpid();
    const int failure = ls_fault(LS_FAULT_SYSCALL) ? (errno = EPERM, -1)
                                                   : sched_getaffinity(0, sizeof board->processors, &board->processors);
    if (failure) return ls_fail_errno(LS_ERR_IO, errno, "cannot ask which processors this rank may use");
    return LS_OK;
}

/* Ranks may be bound to a processor each, so only all masks together tell whether there are enough. */
static int count_spare_processors(const shm_group *shm) {
    cpu_set_t together;
    CPU_ZERO(&together);
    for (int rank = 0; rank < shm->world_size; rank++) CPU_OR(&together, &together, &shm->boards[rank]->processors);
    return CPU_COUNT(&together) - shm->world_size;
}

/* Asked while the boards are shared: fails when a rank whose process we know of is dead. */
static ls_status examine_opening(void *argument) {
    const shm_group *shm = argument;
    for (int rank = 0; rank < shm->world_size; rank++) {
        if (rank == shm->rank || !shm_is_dead(shm, rank)) continue;
        const shm_board *board = shm->segments[rank] ? shm->segments[rank]->base : NULL;
        return ls_fail(LS_ERR_PEER_LOST,
                       "rank %d (%s, process %" PRId64 ") died while the group was opened; start the job again",
                       shm_name(shm, rank), board ? board->host : "this host", board ? board->process : -1);
    }
    return LS_OK;
}

/* We fail after peers may have taken the group for open: they learn it at their first operation. */
static void opening_failed(void *argument, const ls_error *why) {
    const shm_group *shm = argument;
    shm_board *own = shm->segments[shm->rank]->base;
    own->why = *why;
    atomic_store_explicit(&own->standing, SHM_HAS_LOST, memory_order_release);
}

static ls_status share_boards(shm_group *shm, const backend_place *place) {
    shm_sharing sharing = {.store = place->store,
                           .rank = shm->rank,
                           .world_size = shm->world_size,
                           .prefix = place->prefix,
                           .stale = place->stale_prefix,
                           .bytes = sizeof(shm_board) + (size_t)shm->world_size * shm_lane_bytes(shm->world_size),
                           .is_touched_late = place->world_size > MOST_FILLED,
                           .deadline_ns = place->deadline_ns,
                           .timeout_ms = place->timeout_ms,
                           .examine = examine_opening,
                           .failed = opening_failed,
                           .argument = shm,
                           .segments = shm->segments,
                           .processes = store_is_in_process(place->store) ? NULL : shm->processes};
    LS_TRY(shm_share_offer(&sharing));
    shm_board *own = shm->boards[shm->rank] = shm->segments[shm->rank]->base;
    const ls_status filled = fill_board(own);
    if (filled != LS_OK)
        return shm_share_withdraw(&sharing, ls_fail_within(filled, "rank %d", shm_name(shm, shm->rank)));
    LS_TRY(shm_share_complete(&sharing));
    for (int rank = 0; rank < shm->world_size; rank++) shm->boards[rank] = shm->segments[rank]->base;
    return LS_OK;
}

static ls_status shm_open(const backend_place *place, void **state) {
    shm_group *shm = NULL;
    ls_status status = prepare(place, &shm);
    if (status == LS_OK) {
        status = share_boards(shm, place);
    } else {
        shm_sharing refused = {.store = place->store, .rank = place->rank, .prefix = place->prefix, .descriptor = -1};
        ls_fail_within(status, "rank %d", place->rank);
        shm_share_withdraw(&refused, status);
    }
    if (status != LS_OK) {
        shm_close(shm);
        return status;
    }
    shm->spare_processors = count_spare_processors(shm);
    *state = shm;
    return LS_OK;
}

static int shm_spare_processors(const void *state) {
    return ((const shm_group *)state)->spare_processors;
}

/* In a forked child. Mappings are gone already, and locks may be held by threads that are no more. */
static void shm_forked(void *state) {
    const shm_group *shm = state;
    for (int rank = 0; rank < shm->world_size; rank++)
        if (shm->processes[rank] >= 0) close(shm->processes[rank]);
}

const ls_backend shm_backend = {
    .version = LS_BACKEND_VERSION,
    .name = "shm",
    .reach = LS_REACH_HOST,
    .survives_loss = true,
    .open = shm_open,
    .close = shm_close,
    .spare_processors = shm_spare_processors,
    .allocate = shm_allocate,
    .release = shm_release,
    .start = shm_start,
    .poll = shm_poll,
    .examine = shm_examine,
    .describe_missing = shm_describe_missing,
    .bell = shm_bell,
    .sleep = shm_sleep,
    .wake = shm_wake,
    .nudge = shm_nudge,
    .leave = shm_leave,
    .forked = shm_forked,
};
