/* shm.h: the shm backend: ranks of one host, which read and write each other's memory.
 *
 *   open.c       a group's boards are shared, its table of functions
 *   op.c         an operation begins: all ranks meet, compare their calls, and choose how to go on
 *   flow.c       who gets what of whom in it
 *   small.c      one phase: the data came with the call, everyone combines everything
 *   in_place.c   memory of the group: each rank combines its share over all copies, and writes all copies
 *   staged.c     ordinary memory: the same, through a small stage, chunk by chunk
 *   messages.c   send and receive
 *   peers.c      who is there, who has gone, sleeping and waking
 *   memory.c     ls_group_alloc                                                                                    */
#ifndef LS_GROUP_SHM_SHM_H
#define LS_GROUP_SHM_SHM_H

#include "base/thread.h"
#include "base/wait.h"
#include "group/backend.h"
#include "group/backend/shm/board.h"
#include "group/backend/shm/share.h"
#include "group/reduce.h"

/* One ls_group_alloc: each rank's copy is its part of the segment. */
typedef struct shm_memory {
    struct shm_memory *next;
    uint64_t number; /* of the operation that allocated it: the same on all ranks, never used again */
    size_t bytes;    /* of a copy */
    size_t stride;   /* from one copy to the next */
    shm_segment *segment;
} shm_memory;

static inline char *shm_memory_copy(const shm_memory *memory, int rank) {
    return (char *)memory->segment->base + (size_t)rank * memory->stride;
}

/* The memory that was found last, and where it lies on this rank: as long as none came or went since, it is still there. */
typedef struct shm_recent {
    shm_memory *memory;
    uintptr_t base;
    size_t bytes;
    uint64_t change;
} shm_recent;

/* A rank's view of its group. Whoever drives the group (group/group.h) calls `start`, `poll`, `examine` and `sleep`; fields
 * without a note are fixed before the group is handed out. */
typedef struct shm_group {
    ls_group *group;
    ls_store *store;
    int rank, world_size;
    const int *names; /* as in backend_place */
    int spare_processors;
    char prefix[LS_STORE_KEY_BYTES / 2]; /* of keys in the store */
    shm_board **boards;                  /* [world_size] */
    shm_segment *segment;                /* of the boards */
    int *processes;                      /* [world_size] pidfds; -1 where ranks are threads of one process */
    struct pollfd *polled;               /* [world_size]; the driver's */

    void **copies;   /* [world_size]: where the copies of an operation in place begin; the driver's */
    uint64_t chunks; /* staged so far by this group, the same on all ranks; the driver's */
    ls_mutex lock;   /* guards memories */
    shm_memory *memories;
    _Atomic uint64_t memories_changed; /* how often: under the lock, read by all */
    shm_recent recent;                 /* the driver's */
    struct shm_mail *mail;             /* [world_size]; the driver's */
} shm_group;

typedef enum shm_phase { SHM_MEETING, SHM_COMBINING, SHM_COPYING, SHM_FINISHING, SHM_STAGING } shm_phase;

/* An operation's scratch. */
typedef struct shm_op {
    shm_phase phase;
    int peer; /* ranks before it are known to be through this phase */
    int from; /* in place: the rank whose part is being copied */
    const reduce_kernel *kernel;
    shm_memory *memory;        /* that holds our data; NULL: ordinary */
    uint64_t offset;           /* of our data within it */
    size_t next, end;          /* bytes of our share, or of a part, that are left to do */
    uint64_t chunk, chunk_end; /* staged: this operation's first chunk and the one after its last */
    size_t chunk_bytes;
    uint64_t staged, combined, taken; /* chunks we have put in, combined and taken out */
} shm_op;

_Static_assert(sizeof(shm_op) <= sizeof((backend_op *)0)->scratch, "an operation's scratch is too small");

static inline shm_op *shm_op_of(backend_op *op) {
    return (shm_op *)(void *)op->scratch;
}

static inline shm_slot *shm_slot_of(const shm_group *shm, int rank, uint64_t number) {
    return &shm->boards[rank]->slots[number % 2];
}

static inline shm_board *shm_own_board(const shm_group *shm) {
    return shm->boards[shm->rank];
}

/* A rank may have come to this operation and then lost patience with another, or aborted: then it fails for all. But a rank
 * that was through with it, and lost the group later, has done all that we need. Messages have no number. */
static inline bool shm_has_given_up(const shm_group *shm, const backend_op *op, int peer) {
    const shm_board *board = shm->boards[peer];
    return atomic_load_explicit(&board->standing, memory_order_acquire) == SHM_HAS_LOST &&
           (op->number == 0 || atomic_load_explicit(&board->done.value, memory_order_relaxed) < op_posted(op)->number);
}

/* Relaxed: what counts stands elsewhere; `standing`, which is looked at first, comes later. */
static inline void shm_say_done(const shm_group *shm, uint64_t posted) {
    atomic_store_explicit(&shm_own_board(shm)->done.value, posted, memory_order_relaxed);
}

/* op.c */
void shm_start(void *state, backend_op *op);
backend_progress shm_poll(void *state, backend_op *op);
bool shm_slot_has_place(const shm_slot *slot); /* in memory of the group */
/* Whether `op` cannot go on before `peer` has done something. */
bool shm_waits_for(const shm_group *shm, const backend_op *op, int peer);

/* small.c */
void shm_small_publish(const shm_group *shm, const backend_op *op, unsigned char *payload);
void shm_small_finish(const shm_group *shm, const backend_op *op);

/* in_place.c: bytes that each poll does at most keep a poll short. */
bool shm_in_place_is_possible(const shm_group *shm, const backend_op *op);
void shm_in_place_start(shm_group *shm, backend_op *op);
backend_progress shm_in_place_combine(shm_group *shm, backend_op *op);
backend_progress shm_in_place_copy(shm_group *shm, backend_op *op);
backend_progress shm_in_place_finish(shm_group *shm, backend_op *op);
bool shm_in_place_waits_for(const shm_group *shm, const backend_op *op, int peer);

/* staged.c */
void shm_staged_start(shm_group *shm, backend_op *op);
backend_progress shm_staged_poll(shm_group *shm, backend_op *op);
bool shm_staged_waits_for(const shm_group *shm, const backend_op *op, int peer);

/* peers.c */
bool shm_is_dead(const shm_group *shm, int peer); /* its process; false for ranks that are our threads */
ls_status shm_examine(void *state, backend_op *op);
void shm_describe_missing(void *state, const backend_op *op, char *text, size_t bytes);
uint32_t shm_bell(void *state);
backend_progress shm_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns);
void shm_wake(void *state);
void shm_nudge(void *state);
void shm_leave(void *state, const ls_error *why);
ls_status shm_examine_all(void *state); /* of all peers, whatever they are waited for */

/* memory.c */
ls_status shm_allocate(void *state, size_t bytes, void **memory);
void shm_release(void *state, void *memory);
void shm_release_all(shm_group *shm);
/* The memory of the group that holds `bytes` bytes at `data`, and where; NULL: ordinary memory. */
shm_memory *shm_memory_find(shm_group *shm, const void *data, size_t bytes, uint64_t *offset);

#endif
