/* share.h: every rank of a host has a part of one segment, which all of them map: for the boards of a group, and for memory of
 * ls_group_alloc. Descriptors travel through the store.
 *
 * All or none: where one rank fails, all do, with its sentence (group/withdrawal.h). On error nothing is left.        */
#ifndef LS_GROUP_SHM_SHARE_H
#define LS_GROUP_SHM_SHARE_H

#include "base/error.h"
#include "group/backend/shm/segment.h"
#include "store/store.h"

typedef struct shm_sharing {
    ls_store *store;
    int rank, world_size;
    const int *names;   /* as in backend_place */
    const char *prefix; /* of the keys: used once */
    const char *stale;  /* as in backend_place; NULL: none */
    size_t bytes;       /* of each part, which begins on a page; the same on all ranks */
    bool fills_all;     /* all parts go into the page tables at once; else ours, and of the others' what is touched */
    int64_t deadline_ns;
    int64_t timeout_ms; /* for the message */

    /* Called when the segment and our part of it are there, before others see them. NULL: they stay zeroes. */
    ls_status (*fill)(void *argument);
    /* Asked now and then while we wait: fails when a rank cannot come any more. NULL: nobody knows. */
    ls_status (*examine)(void *argument);
    /* Called when we fail, while our filled part is still there: peers may hold the sharing for done. NULL: nothing. */
    void (*failed)(void *argument, const ls_error *why);
    void *argument;

    shm_segment **segment; /* NULL before */
    int *processes;        /* [world_size] descriptors of the ranks' processes, ours too, -1 before; NULL: not wanted */

    bool has_met; /* others may hold this sharing for done, even where shm_share fails */
} shm_sharing;

/* Returns when every rank has mapped all parts. */
ls_status shm_share(shm_sharing *sharing);

/* Instead of sharing: the others fail too, with this thread's last error. Returns `status`. */
ls_status shm_share_withdraw(shm_sharing *sharing, ls_status status);

static inline void *shm_shared_part(const shm_segment *segment, size_t bytes, int rank) {
    return (char *)segment->base + (size_t)rank * shm_round_to_pages(bytes);
}

#endif
