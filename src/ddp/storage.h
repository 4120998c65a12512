/* storage.h: the memory of gradients: one block of group memory a bucket, laid out by a plan. */
#ifndef LS_DDP_STORAGE_H
#define LS_DDP_STORAGE_H

#include "ddp/buckets.h"
#include "group/post.h"

typedef struct gradient_storage {
    ls_group *group; /* borrowed */
    bucket_plan plan;
    void **memory;    /* [plan.bucket_count] of ls_group_alloc; NULL for a bucket of no bytes */
    void **abandoned; /* [abandoned_count] new buckets of a rebuild that failed: gradients may lie in them */
    int abandoned_count;
} gradient_storage;

/* Takes `plan` and `memory` (zeroed, for the addresses of its buckets) over and allocates the buckets, zeroed.
 * Collective; on error, which is alike on all ranks, nothing is held. */
ls_status storage_init(gradient_storage *storage, ls_group *group, bucket_plan *plan, void ***memory);
void storage_clear(gradient_storage *storage);

/* Where the gradient of a parameter lies. */
void *storage_gradient(const gradient_storage *storage, int parameter);

/* Moves one gradient while both places exist. */
typedef ls_status (*storage_move)(void *context, int parameter, void *from, void *to);

/* Lays the gradients out anew by `plan` (taken over with `memory`, as above), bucket by bucket: each new one is
 * allocated and its members, of `bytes` [parameter_count], are moved; their old pages go back at once, and an old
 * bucket as soon as it has no member left. So at any moment memory holds the gradients, one bucket more, and at most
 * two pages a parameter. (Buckets are idle: a rank's memory is its own between reductions.) Collective. After an error
 * some gradients lie in each layout; all memory in use stays until the storage is cleared, which is all that it is good
 * for. `scratch` [parameter_count] is overwritten. */
ls_status storage_rebuild(gradient_storage *storage, bucket_plan *plan, void ***memory, const size_t *bytes,
                          int *scratch, storage_move move, void *context);

/* A stretch of a bucket that is reduced by one operation. */
typedef struct storage_run {
    void *data;
    size_t count; /* elements, padding between parameters included */
} storage_run;

/* Finds the next run of neighbours in `bucket` that are in `used` (NULL: all are), starting at member *cursor (0 at
 * first), and advances the cursor. False when there is none. All ranks find the same runs, since `used` is the same. */
bool storage_next_run(const gradient_storage *storage, int bucket, const uint64_t *used, const size_t *bytes,
                      int *cursor, storage_run *run);

#endif
