/* segment.c: memfd objects and their mappings. */
#include "group/backend/shm/segment.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

size_t shm_round_to_pages(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes == 0 ? page : (bytes + page - 1) / page * page;
}

ls_status shm_segment_create(size_t bytes, int *descriptor) {
    *descriptor = -1;
    const size_t rounded = shm_round_to_pages(bytes);
    if (rounded < bytes || rounded > INT64_MAX)
        return ls_fail(LS_ERR_MEMORY, "cannot allocate %zu bytes of group memory: more than a file can have", bytes);
    const int memory = LS_SYSCALL(EMFILE, memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (memory < 0)
        return ls_fail_errno(
            LS_ERR_IO, errno,
            "cannot create a segment of shared memory (memfd_create; where a sandbox refuses that, set "
            "LOCKSTEP_BACKEND=tcp)");

    /* Nobody, not even a peer that errs, can cut the object under our mapping. */
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const int failed =
        LS_SYSCALL(EPERM, ftruncate(memory, (off_t)rounded) != 0 || fcntl(memory, F_ADD_SEALS, seals) != 0);
    if (failed) {
        const int failure = errno;
        close(memory);
        return ls_fail_errno(LS_ERR_IO, failure, "cannot seal a segment of shared memory of %zu bytes", rounded);
    }
    *descriptor = memory;
    return LS_OK;
}

ls_status shm_segment_allocate(int descriptor, size_t offset, size_t bytes) {
    int failure = ls_fault(LS_FAULT_SYSCALL) ? ENOSPC : 0;
    while (!failure && fallocate(descriptor, 0, (off_t)offset, (off_t)bytes) != 0)
        if (errno != EINTR) failure = errno;
    if (!failure) return LS_OK;
    return ls_fail_errno(LS_ERR_MEMORY, failure, "cannot allocate %zu bytes of group memory", bytes);
}

/* The mapping is gone in the child (MADV_DONTFORK), and the handle that holds this is marked. */
static void forked(ls_live *self) {
    ((shm_segment *)self)->base = NULL;
}

static shm_segment *find(const struct stat *facts) {
    for (ls_live *live = ls_live_first(); live; live = live->next) {
        shm_segment *segment = (shm_segment *)live;
        if (live->forked == forked && segment->inode == facts->st_ino && segment->device == facts->st_dev)
            return segment;
    }
    return NULL;
}

static ls_status map_object(shm_segment *segment, int descriptor) {
    void *base = ls_fault(LS_FAULT_SYSCALL)
                     ? (errno = ENOMEM, MAP_FAILED)
                     : mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (base == MAP_FAILED)
        return ls_fail_errno(LS_ERR_MEMORY, errno, "cannot map %zu bytes of group memory", segment->bytes);
    if (LS_SYSCALL(EAGAIN, madvise(base, segment->bytes, MADV_DONTFORK)) != 0) {
        const int failure = errno;
        munmap(base, segment->bytes);
        return ls_fail_errno(LS_ERR_IO, failure, "cannot keep group memory from forked children");
    }
    segment->base = base;
    return LS_OK;
}

static ls_status map_new(int descriptor, const struct stat *facts, shm_segment **segment) {
    shm_segment *fresh = ls_alloc(sizeof *fresh);
    if (!fresh) return LS_ERR_MEMORY;
    *fresh = (shm_segment){.live = {.forked = forked},
                           .bytes = (size_t)facts->st_size,
                           .device = facts->st_dev,
                           .inode = facts->st_ino,
                           .holders = 1};
    ls_status status = map_object(fresh, descriptor);
    if (status == LS_OK && (status = ls_live_add(&fresh->live))) munmap(fresh->base, fresh->bytes);
    if (status) {
        ls_free(fresh);
        return status;
    }
    *segment = fresh;
    return LS_OK;
}

ls_status shm_segment_map(int descriptor, size_t bytes, shm_segment **segment) {
    *segment = NULL;
    struct stat facts;
    if (LS_SYSCALL(EIO, fstat(descriptor, &facts)) != 0)
        return ls_fail_errno(LS_ERR_IO, errno, "cannot look at a segment of shared memory");
    if ((size_t)facts.st_size != shm_round_to_pages(bytes))
        return ls_fail(LS_ERR_MISMATCH,
                       "a peer's segment of shared memory has %lld bytes, ours %zu: all ranks ask alike",
                       (long long)facts.st_size, shm_round_to_pages(bytes));
    ls_status status = LS_OK;
    ls_live_lock();
    shm_segment *known = find(&facts);
    if (known)
        known->holders++;
    else
        status = map_new(descriptor, &facts, &known);
    ls_live_unlock();
    *segment = known;
    return status;
}

void shm_segment_fill_tables(const shm_segment *segment, size_t offset, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
    /* Older kernels refuse. */
    (void)madvise((char *)segment->base + offset, bytes, MADV_POPULATE_WRITE);
#endif
    (void)segment, (void)offset, (void)bytes;
}

void shm_segment_drop(shm_segment **segment) {
    shm_segment *held = *segment;
    if (!held) return;
    *segment = NULL;
    ls_live_lock();
    const bool is_last = --held->holders == 0;
    if (is_last) ls_live_remove(&held->live);
    ls_live_unlock();
    if (!is_last) return;
    if (held->base) munmap(held->base, held->bytes);
    ls_free(held);
}
