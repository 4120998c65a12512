/* open.c: a group opens and closes, its memory, and the backend's table.
 *
 * The group of all ranks begins with a barrier that does not block, so that ranks which never come are a time-out and
 * not a hang; a duplicate begins after an operation in which all ranks agreed on it. Behind either, every rank is in
 * `open`, and MPI's blocking calls end. In the last of them each tells whether it could do its part. */
#include "group/backend/mpi/plugin/state.h"

#include "base/clock.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS (100 * 1000)

/* --- all ranks meet ---------------------------------------------------------------------------------------------- */

/* Waits for `request`, which all ranks have to begin. */
static ls_status await_all(MPI_Request *request, const backend_place *place) {
    ls_word nobody_wakes = 0;
    for (;;) {
        int is_complete = 0;
        MPI_TRY(MPI_Test(request, &is_complete, MPI_STATUS_IGNORE), "opening a group");
        if (is_complete) return LS_OK;
        const int64_t now_ns = ls_now_ns();
        if (now_ns >= place->deadline_ns) break;
        mpi_here.services->word_wait(&nobody_wakes, 0, now_ns + LOOK_NS);
    }
    atomic_fetch_add(&mpi_here.abandoned, 1);
    return mpi_here.services->fail(LS_ERR_TIMEOUT,
                                   "rank %d: not all of the %d ranks opened the group within %" PRId64
                                   " ms (MPI does not tell who is missing): see what they do, or raise timeout_ms",
                                   place->rank, place->world_size, place->timeout_ms);
}

static void say_who_drives(void) {
    if (mpi_here.level == MPI_THREAD_MULTIPLE || mpi_here.rank != 0) return;
    mpi_here.services->log(
        LS_LOG_WARNING, "MPI runs below MPI_THREAD_MULTIPLE: operations go on only while the program's own thread is "
                        "inside a call, so they overlap little with computation; initialise MPI with "
                        "MPI_THREAD_MULTIPLE, or leave it to Lockstep");
}

/* The first opening makes the communicator of notices; later ones meet over it. */
static ls_status meet(const backend_place *place) {
    MPI_Request request;
    if (mpi_here.root != MPI_COMM_NULL) {
        MPI_TRY(MPI_Ibarrier(mpi_here.root, &request), "opening a group");
        return await_all(&request, place);
    }
    static MPI_Comm root; /* MPI may still write it when we have given up */
    MPI_TRY(MPI_Comm_idup(MPI_COMM_WORLD, &root, &request), "opening a group");
    LS_TRY(await_all(&request, place));
    /* By default an error of MPI ends the process. All others are made from this one, and have it from there. */
    MPI_TRY(MPI_Comm_set_errhandler(root, MPI_ERRORS_RETURN), "opening a group");
    mpi_here.root = root;
    say_who_drives();
    return LS_OK;
}

/* --- one group's own --------------------------------------------------------------------------------------------- */

/* The tag tells duplicates apart that several threads make of one group at the same time. */
static ls_status make_control(MPI_Comm *control, const backend_place *place) {
    const mpi_group *parent = place->parent;
    const int tag = (int)(place->number % 32768); /* the least that any MPI allows as the largest */
    if (!parent) {
        MPI_TRY(MPI_Comm_dup(mpi_here.root, control), "a communicator of the group");
        return LS_OK;
    }
    MPI_Group all, ranks = MPI_GROUP_NULL;
    MPI_TRY(MPI_Comm_group(parent->control, &all), "the ranks of the group");
    int code = place->ranks ? MPI_Group_incl(all, place->world_size, place->ranks, &ranks) : MPI_SUCCESS;
    if (code == MPI_SUCCESS) code = MPI_Comm_create_group(parent->control, place->ranks ? ranks : all, tag, control);
    if (ranks != MPI_GROUP_NULL) MPI_Group_free(&ranks);
    MPI_Group_free(&all);
    MPI_TRY(code, "a communicator of the group");
    return LS_OK;
}

/* Processors of this host that ranks of `data` may use, less these ranks, who may be bound to a processor each. */
static ls_status count_spare_processors(MPI_Comm data, int *spare) {
    MPI_Comm here;
    int ranks_here = 1;
    cpu_set_t together;
    CPU_ZERO(&together);
    sched_getaffinity(0, sizeof together, &together);
    MPI_TRY(MPI_Comm_split_type(data, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here), "finding the host's ranks");
    MPI_Comm_size(here, &ranks_here);
    const int code = MPI_Allreduce(MPI_IN_PLACE, &together, (int)sizeof together, MPI_BYTE, MPI_BOR, here);
    MPI_Comm_free(&here);
    MPI_TRY(code, "counting the host's processors");
    *spare = CPU_COUNT(&together) - ranks_here;
    return LS_OK;
}

/* Notices find the group from here on. */
static void list(mpi_group *mpi) {
    pthread_mutex_lock(&mpi_here.lock);
    mpi->next = mpi_here.groups;
    mpi_here.groups = mpi;
    pthread_mutex_unlock(&mpi_here.lock);
}

static void unlist(const mpi_group *mpi) {
    pthread_mutex_lock(&mpi_here.lock);
    for (mpi_group **link = &mpi_here.groups; *link; link = &(*link)->next)
        if (*link == mpi) {
            *link = mpi->next;
            break;
        }
    pthread_mutex_unlock(&mpi_here.lock);
}

/* Whether every rank had the memory for its part, and all compare calls, or none. A rank without cannot go on, the others must
 * not. */
static ls_status agree(MPI_Comm data, const backend_place *place, bool has_memory) {
    enum { WITHOUT_MEMORY, COMPARES, DOES_NOT, CLAIMS };
    const int rank = place->rank, none = place->world_size;
    int first[CLAIMS] = {has_memory ? none : rank, mpi_here.checks_calls ? rank : none,
                         mpi_here.checks_calls ? none : rank};
    MPI_TRY(MPI_Allreduce(MPI_IN_PLACE, first, CLAIMS, MPI_INT, MPI_MIN, data), "opening a group");
    if (first[WITHOUT_MEMORY] != none)
        return mpi_here.services->fail(LS_ERR_MEMORY, "rank %d: no memory for a group over MPI of %d ranks",
                                       first[WITHOUT_MEMORY], place->world_size);
    if (first[COMPARES] == none || first[DOES_NOT] == none) return LS_OK;
    return mpi_here.services->fail(LS_ERR_ENVIRONMENT,
                                   "rank %d compares all calls, rank %d does not: LOCKSTEP_DEBUG has to be the same",
                                   first[COMPARES], first[DOES_NOT]);
}

static void free_memory_of(mpi_group *mpi) {
    while (mpi->memories) {
        mpi_memory *memory = mpi->memories;
        mpi->memories = memory->next;
        mpi_here.services->free(memory->block);
        mpi_here.services->free(memory);
    }
    mpi_free_deal(mpi);
    mpi_free_words(mpi);
    mpi_here.services->free(mpi->records);
    mpi_here.services->free(mpi->left);
    mpi_here.services->free(mpi->letter);
    mpi_here.services->free(mpi);
}

static mpi_group *prepare(const backend_place *place) {
    const mpi_services *services = mpi_here.services;
    mpi_group *mpi = services->alloc(sizeof *mpi);
    if (!mpi) return NULL;
    mpi->letter = services->alloc(sizeof *mpi->letter);
    mpi->records = services->alloc((size_t)place->world_size * sizeof *mpi->records);
    mpi->left = services->alloc((size_t)place->world_size * sizeof *mpi->left);
    if (!mpi->letter || !mpi->records || !mpi->left) {
        free_memory_of(mpi);
        return NULL;
    }
    mpi->group = place->group;
    mpi->rank = place->rank;
    mpi->world_size = place->world_size;
    atomic_init(&mpi->poller, pthread_self());
    return mpi;
}

ls_status mpi_find_ranks(MPI_Comm data, int count, const int *ranks, int *found) {
    MPI_Group own, all;
    MPI_TRY(MPI_Comm_group(data, &own), "the ranks of the group");
    MPI_TRY(MPI_Comm_group(mpi_here.root, &all), "the ranks of the group");
    const int code = MPI_Group_translate_ranks(own, count, ranks, all, found);
    MPI_Group_free(&own);
    MPI_Group_free(&all);
    MPI_TRY(code, "the ranks of the group");
    return LS_OK;
}

/* All ranks where they are few, else those at distances 1, 2, 4, ... both ways; as the communicator of notices counts
 * them. */
static ls_status find_neighbours(MPI_Comm data, const backend_place *place, mpi_letter *letter) {
    int ranks[MPI_NEIGHBOURS], count = 0;
    const bool are_few = place->world_size <= MPI_NEIGHBOURS;
    for (int distance = 1; distance < place->world_size; distance = are_few ? distance + 1 : distance * 2) {
        const int after = (place->rank + distance) % place->world_size;
        const int before = (place->rank - distance + place->world_size) % place->world_size;
        ranks[count++] = after;
        if (before != after && !are_few) ranks[count++] = before;
    }
    letter->neighbour_count = count;
    return mpi_find_ranks(data, count, ranks, letter->neighbours);
}

/* Every rank makes the same calls of MPI, whatever it lacks. */
static ls_status open_over(MPI_Comm control, MPI_Comm data, const backend_place *place, mpi_group **state) {
    int spare_processors = 0;
    /* Of its first rank's counting, so that groups of some ranks differ too. */
    uint64_t number = (uint64_t)mpi_here.rank << 40 | (atomic_fetch_add(&mpi_here.groups_opened, 1) + 1);
    LS_TRY(count_spare_processors(data, &spare_processors));
    MPI_TRY(MPI_Bcast(&number, 1, MPI_UINT64_T, 0, data), "numbering the group");
    mpi_group *mpi = prepare(place);
    if (mpi && find_neighbours(data, place, mpi->letter) != LS_OK) {
        free_memory_of(mpi);
        mpi = NULL;
    }
    if (mpi) {
        mpi->control = control;
        mpi->data = data;
        mpi->number = number;
        mpi->spare_processors = spare_processors;
        list(mpi); /* before the last call of opening, so before any rank can leave */
    }
    const ls_status status = agree(data, place, mpi != NULL);
    if (status != LS_OK && mpi) {
        unlist(mpi);
        free_memory_of(mpi);
    }
    *state = status == LS_OK ? mpi : NULL;
    return status;
}

static ls_status open_group(const backend_place *place, void **state) {
    MPI_Comm control = MPI_COMM_NULL, data = MPI_COMM_NULL;
    mpi_group *mpi = NULL;
    if (!place->parent) LS_TRY(meet(place));
    LS_TRY(make_control(&control, place));
    const int code = MPI_Comm_dup(control, &data);
    if (code == MPI_SUCCESS) {
        const ls_status status = open_over(control, data, place, &mpi);
        *state = mpi;
        if (status == LS_OK) return LS_OK;
        MPI_Comm_free(&data);
        MPI_Comm_free(&control);
        return status;
    }
    MPI_Comm_free(&control);
    return mpi_failed(code, "a communicator of the group");
}

/* Local. What MPI still works on stays: its communicators, and memory of the group that it may write to. */
static void close_group(void *state) {
    mpi_group *mpi = state;
    unlist(mpi);
    if (!mpi_is_running() || !mpi_may_call(mpi) || atomic_load(&mpi->in_flight) > 0) {
        atomic_fetch_add(&mpi_here.abandoned, 1);
        return;
    }
    mpi_post_letter(mpi);
    mpi_read_notices();
    MPI_Comm_free(&mpi->data);
    MPI_Comm_free(&mpi->control);
    free_memory_of(mpi);
}

/* --- memory: each rank's own, ordinary --------------------------------------------------------------------------- */

static mpi_memory *make_memory(size_t bytes) {
    const mpi_services *services = mpi_here.services;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    mpi_memory *memory = services->alloc(sizeof *memory);
    if (!memory) return NULL;
    memory->block = services->alloc(bytes + page < bytes ? SIZE_MAX : bytes + page);
    if (!memory->block) {
        services->free(memory);
        return NULL;
    }
    memory->base = (char *)memory->block + (page - (uintptr_t)memory->block % page) % page;
    return memory;
}

static ls_status allocate(void *state, size_t bytes, void **base) {
    mpi_group *mpi = state;
    uint64_t number = 0;
    mpi_memory *memory = make_memory(bytes);
    const ls_status status =
        mpi_here.services->agree(mpi->group, GROUP_ALLOCATE, bytes, memory ? LS_OK : LS_ERR_MEMORY, &number);
    if (!memory) return status;
    if (status != LS_OK) {
        mpi_here.services->free(memory->block);
        mpi_here.services->free(memory);
        return status;
    }
    pthread_mutex_lock(&mpi_here.lock);
    memory->next = mpi->memories;
    mpi->memories = memory;
    pthread_mutex_unlock(&mpi_here.lock);
    *base = memory->base;
    return LS_OK;
}

/* A lost group's operation may still write to it. */
static void release(void *state, void *base) {
    mpi_group *mpi = state;
    mpi_memory *found = NULL;
    if (atomic_load(&mpi->has_left) && atomic_load(&mpi->in_flight) > 0) return;
    pthread_mutex_lock(&mpi_here.lock);
    for (mpi_memory **link = &mpi->memories; *link; link = &(*link)->next) {
        if ((*link)->base != base) continue;
        found = *link;
        *link = found->next;
        break;
    }
    pthread_mutex_unlock(&mpi_here.lock);
    if (found) mpi_here.services->free(found->block);
    mpi_here.services->free(found);
}

/* --- the table --------------------------------------------------------------------------------------------------- */

static backend_drivers drivers(const void *state) {
    (void)state;
    if (mpi_here.level == MPI_THREAD_MULTIPLE) return DRIVEN_BY_ALL;
    return mpi_here.level == MPI_THREAD_SERIALIZED ? DRIVEN_BY_CALLERS : DRIVEN_BY_OPENER;
}

static int spare_processors(const void *state) {
    return ((const mpi_group *)state)->spare_processors;
}

static uint64_t number(const void *state) {
    return ((const mpi_group *)state)->number;
}

/* MPI tells peers by itself; and in a forked child nothing of it may be touched. */
static void nothing(void *state) {
    (void)state;
}

const ls_backend mpi_backend = {
    .version = LS_BACKEND_VERSION,
    .name = "mpi",
    .reach = LS_REACH_HOSTS,
    .survives_loss = false, /* MPI ends the job when a rank dies */
    .needs_no_store = true,
    .open = open_group,
    .close = close_group,
    .drivers = drivers,
    .spare_processors = spare_processors,
    .allocate = allocate,
    .release = release,
    .carries = mpi_carries,
    .start = mpi_start,
    .poll = mpi_poll,
    .examine = mpi_examine,
    .describe_missing = mpi_describe_missing,
    .bell = mpi_bell,
    .sleep = mpi_sleep,
    .wake = mpi_wake,
    .nudge = nothing,
    .leave = mpi_leave,
    .forked = nothing,
    .number = number,
    .tell = mpi_tell,
    .hear = mpi_hear,
};
