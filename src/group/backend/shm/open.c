/* open.c: a group opens: every rank shares its board; and the backend's table. */
#include "group/backend/shm/messages.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/memory.h"
#include "group/group.h"

#include <errno.h>
#include <fcntl.h>
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
    shm_segment_drop(&shm->segment);
    for (int rank = 0; shm->processes && rank < shm->world_size; rank++)
        if (shm->processes[rank] >= 0) close(shm->processes[rank]);
    ls_mutex_destroy(&shm->lock);
    shm_mail_free(shm);
    ls_free(shm->boards);
    ls_free(shm->processes);
    ls_free(shm->copies);
    ls_free(shm->polled);
    ls_free(shm);
}

/* Those of a group's ranks are known to the group that it is made of. */
static ls_status inherit_processes(const shm_group *shm, const backend_place *place) {
    const shm_group *parent = place->parent;
    for (int rank = 0; rank < shm->world_size; rank++) {
        const int known = parent->processes[place->ranks ? place->ranks[rank] : rank];
        if (known < 0) continue;
        shm->processes[rank] = LS_SYSCALL(EMFILE, fcntl(known, F_DUPFD_CLOEXEC, 3));
        if (shm->processes[rank] < 0)
            return ls_fail_errno(LS_ERR_IO, errno, "cannot duplicate the descriptor of a rank's process");
    }
    return LS_OK;
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
    shm->copies = ls_alloc_array(world_size, sizeof *shm->copies);
    shm->polled = ls_alloc_array(world_size, sizeof *shm->polled);
    LS_TRY(shm->boards && shm->copies && shm->polled ? shm_mail_create(shm) : LS_ERR_MEMORY);
    return place->parent ? inherit_processes(shm, place) : LS_OK;
}

static size_t board_bytes(const shm_group *shm) {
    return sizeof(shm_board) + (size_t)shm->world_size * shm_lane_bytes(shm->world_size);
}

typedef struct opening {
    shm_group *shm;
    const backend_place *place;
} opening;

/* The segment is there: finds the boards in it, and fills ours. */
static ls_status fill_board(void *argument) {
    const shm_group *shm = ((opening *)argument)->shm;
    for (int rank = 0; rank < shm->world_size; rank++)
        shm->boards[rank] = shm_shared_part(shm->segment, board_bytes(shm), rank);
    shm_board *board = shm->boards[shm->rank];
    if (gethostname(board->host, sizeof board->host - 1) != 0) snprintf(board->host, sizeof board->host, "this host");
    board->process = getpid();
    const int failure = LS_SYSCALL(EPERM, sched_getaffinity(0, sizeof board->processors, &board->processors));
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

/* Where `rank` says who it is: here, or in the group that this one is made of; NULL: it has not said so yet. */
static const shm_board *find_board(const opening *self, int rank) {
    const shm_board *board = self->shm->boards[rank];
    const shm_group *parent = self->place->parent;
    if (board && board->process) return board;
    return parent ? parent->boards[self->place->ranks ? self->place->ranks[rank] : rank] : NULL;
}

/* Asked while the boards are shared: fails when a rank whose process we know of is dead. */
static ls_status examine_opening(void *argument) {
    const shm_group *shm = ((opening *)argument)->shm;
    for (int rank = 0; rank < shm->world_size; rank++) {
        if (rank == shm->rank || !shm_is_dead(shm, rank)) continue;
        const shm_board *board = find_board(argument, rank);
        if (!board)
            return ls_fail(LS_ERR_PEER_LOST,
                           "rank %d of this host died before it came into the group; start the job again",
                           rank_name(shm->names, rank));
        return ls_fail(LS_ERR_PEER_LOST,
                       "rank %d (%s, process %" PRId64 ") died while the group was opened; start the job again",
                       rank_name(shm->names, rank), board->host, board->process);
    }
    return LS_OK;
}

/* We fail after peers may have taken the group for open: they learn it at their first operation. */
static void opening_failed(void *argument, const ls_error *why) {
    const shm_group *shm = ((opening *)argument)->shm;
    shm_board *own = shm->boards[shm->rank];
    own->why = *why;
    atomic_store_explicit(&own->standing, SHM_HAS_LOST, memory_order_release);
}

static ls_status share_boards(shm_group *shm, const backend_place *place) {
    opening self = {.shm = shm, .place = place};
    const bool knows_processes = place->parent || store_is_in_process(place->store);
    shm_sharing sharing = {.store = place->store,
                           .rank = shm->rank,
                           .world_size = shm->world_size,
                           .names = shm->names,
                           .prefix = place->prefix,
                           .stale = place->stale_prefix,
                           .bytes = board_bytes(shm),
                           .fills_all = place->world_size <= MOST_FILLED,
                           .deadline_ns = place->deadline_ns,
                           .timeout_ms = place->timeout_ms,
                           .fill = fill_board,
                           .examine = examine_opening,
                           .failed = opening_failed,
                           .argument = &self,
                           .segment = &shm->segment,
                           .processes = knows_processes ? NULL : shm->processes};
    return shm_share(&sharing);
}

static ls_status shm_open(const backend_place *place, void **state) {
    shm_group *shm = NULL;
    ls_status status = prepare(place, &shm);
    if (status == LS_OK) {
        status = share_boards(shm, place);
    } else {
        shm_sharing refused = {
            .store = place->store, .rank = place->rank, .world_size = place->world_size, .prefix = place->prefix};
        ls_fail_within(status, "rank %d", rank_name(place->names, place->rank));
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
