/* flow.h: who gets what of whom in an operation. The three ways on (small, in place, staged) only ask here. */
#ifndef LS_GROUP_SHM_FLOW_H
#define LS_GROUP_SHM_FLOW_H

#include "group/backend/shm/shm.h"

/* What rank `to` needs of the data that rank `from` sends, in bytes. */
typedef struct shm_part {
    size_t at;    /* where it begins in what `from` sends */
    size_t into;  /* and where it belongs in the result of `to`; nowhere in an operation that combines */
    size_t bytes; /* 0: nothing */
} shm_part;

shm_part shm_part_of(const shm_group *shm, const backend_op *op, int from, int to);

/* Others need something of `rank`; `rank` needs something of others. Its own part aside. */
bool shm_sends(const backend_op *op, int rank);
bool shm_receives(const backend_op *op, int rank);
/* All read from all, and each rank combines a share: an all-reduce's for all ranks, a reduce's for its root. */
bool shm_has_shares(const backend_op *op);
/* Combines `bytes` bytes of a share, from `at` on, of all `copies`, for whom it is. */
void shm_combine_share(const shm_group *shm, const backend_op *op, const reduce_kernel *kernel, size_t at,
                       size_t bytes);
/* What a rank sends has a slice for each rank; else all get the same. */
bool shm_has_slices(const backend_op *op);

/* What this rank sends, and how much of it others need; 0 for who sends nothing. */
const void *shm_sent(const backend_op *op);
size_t shm_sent_bytes(const shm_group *shm, const backend_op *op, int rank);
/* The longest part of all; for who has met everyone. */
size_t shm_longest_part(const shm_group *shm, const backend_op *op);

/* The uneven all-to-all: its counts stand in the slot's payload before the data, this many bytes with the place. Then what
 * `from` says to send to `to`, and what `to` says to get of `from`, in elements. */
size_t shm_head_bytes(const shm_group *shm, const backend_op *op);
uint64_t shm_count_for(const shm_group *shm, const backend_op *op, int from, int to);
uint64_t shm_count_from(const shm_group *shm, const backend_op *op, int to, int from);

#endif
