/* segment.h: one piece of shared memory: a memfd object, full size from the start and sealed, mapped once a process.
 *
 * Descriptors travel; whoever gets one maps it. Ranks that are threads of one process find the mapping that is there
 * already, so that ThreadSanitizer sees one memory.                                                                 */
#ifndef LS_GROUP_SHM_SEGMENT_H
#define LS_GROUP_SHM_SEGMENT_H

#include "base/live.h"

#include <sys/types.h>

typedef struct shm_segment {
    ls_live live;
    void *base;
    size_t bytes;
    dev_t device; /* with `inode`: which object it is */
    ino_t inode;
    int holders; /* under the list's lock */
} shm_segment;

/* Makes an object of `bytes` (rounded up to pages), which has no memory yet. `descriptor` is close-on-exec and the caller's. */
ls_status shm_segment_create(size_t bytes, int *descriptor);

/* Takes the memory of some whole pages, zeroes, now: lack of it is an error here, not a signal at some later store. */
ls_status shm_segment_allocate(int descriptor, size_t offset, size_t bytes);

/* Maps the object, or takes hold of this process's mapping of it. A forked child does not get it.
 * Errors: LS_ERR_MISMATCH when its size is not `bytes` rounded up, LS_ERR_MEMORY. */
ls_status shm_segment_map(int descriptor, size_t bytes, shm_segment **segment);
void shm_segment_drop(shm_segment **segment);

/* Fills this process's page tables for some whole pages now, where the kernel can, rather than as they are touched. The memory
 * of those is taken. */
void shm_segment_fill_tables(const shm_segment *segment, size_t offset, size_t bytes);

/* Fails with the sizes when `bytes` more would be past what the cgroup or the machine has left: past those the kernel
 * kills rather than refuses. */
ls_status shm_memory_check(size_t bytes);

size_t shm_round_to_pages(size_t bytes);

#endif
