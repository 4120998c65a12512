/* memory.c: ls_group_alloc: a part of one segment for each rank, mapped by all. A rank's page tables hold its own part, and of
 * the others' what it has touched: of an all-reduce its share. All of it on all ranks would be an eighth of the memory at 64. */
#include "group/backend/shm/shm.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/fault.h"
#include "base/memory.h"
#include "group/group.h"

#include <stdio.h>

static void drop(shm_memory *memory) {
    if (memory) shm_segment_drop(&memory->segment);
    ls_free(memory);
}

static ls_status share(shm_group *shm, shm_memory *memory) {
    char prefix[LS_STORE_KEY_BYTES];
    snprintf(prefix, sizeof prefix, "%s/m%llu", shm->prefix, (unsigned long long)memory->number);
    shm_sharing sharing = {.store = shm->store,
                           .rank = shm->rank,
                           .world_size = shm->world_size,
                           .names = shm->names,
                           .prefix = prefix,
                           .bytes = memory->bytes,
                           .timeout_ms = shm->group->timeout_ms,
                           .deadline_ns = ls_deadline_after_ms(shm->group->timeout_ms),
                           .examine = shm_examine_all,
                           .argument = shm,
                           .segment = &memory->segment};
    const int64_t outer_ns = ls_context_limit(sharing.deadline_ns);
    const ls_status status = shm_share(&sharing);
    ls_context_limit(outer_ns);
    /* Some ranks may hold the memory for theirs: then the ranks are no longer in step. */
    if (status != LS_OK && sharing.has_met) group_lose(shm->group, status);
    return status;
}

ls_status shm_allocate(void *state, size_t bytes, void **result) {
    shm_group *shm = state;
    *result = NULL;
    const size_t world_size = (size_t)shm->world_size;
    /* Before anyone takes any: all look at the same state. */
    size_t together = 0;
    ls_status status = LS_OK;
    if (__builtin_mul_overflow(shm_round_to_pages(bytes), world_size, &together) || together < bytes)
        status = ls_fail(LS_ERR_MEMORY, "%zu bytes of group memory on each of %zu ranks: more than there can be", bytes,
                         world_size);
    else
        status = shm_memory_check(together);
    shm_memory *memory = NULL;
    if (status == LS_OK && !(memory = ls_alloc(sizeof *memory))) status = LS_ERR_MEMORY;

    uint64_t number = 0;
    status = group_agree(shm->group, GROUP_ALLOCATE, bytes, status, &number);
    ls_point("shm.allocate.agreed");
    if (status == LS_OK && memory) {
        memory->number = number;
        memory->bytes = bytes;
        memory->stride = shm_round_to_pages(bytes);
        status = share(shm, memory);
    }
    if (status != LS_OK || !memory) {
        drop(memory);
        return status;
    }
    ls_mutex_lock(&shm->lock);
    memory->next = shm->memories;
    shm->memories = memory;
    atomic_fetch_add_explicit(&shm->memories_changed, 1, memory_order_relaxed);
    ls_mutex_unlock(&shm->lock);
    *result = shm_memory_copy(memory, shm->rank);
    return LS_OK;
}

void shm_release(void *state, void *base) {
    shm_group *shm = state;
    shm_memory *found = NULL;
    ls_mutex_lock(&shm->lock);
    for (shm_memory **link = &shm->memories; *link; link = &(*link)->next) {
        if (shm_memory_copy(*link, shm->rank) != base) continue;
        found = *link;
        *link = found->next;
        atomic_fetch_add_explicit(&shm->memories_changed, 1, memory_order_relaxed);
        break;
    }
    ls_mutex_unlock(&shm->lock);
    drop(found);
}

void shm_release_all(shm_group *shm) {
    while (shm->memories) {
        shm_memory *next = shm->memories->next;
        drop(shm->memories);
        shm->memories = next;
    }
}

static bool lies_in(uintptr_t base, size_t whole, uintptr_t at, size_t bytes) {
    return at >= base && at - base <= whole && bytes <= whole - (at - base);
}

/* Under the lock, whose change it notes. */
static shm_recent search(const shm_group *shm, uintptr_t at, size_t bytes) {
    shm_recent found = {.change = atomic_load_explicit(&shm->memories_changed, memory_order_relaxed)};
    for (shm_memory *memory = shm->memories; memory && !found.memory; memory = memory->next) {
        const uintptr_t base = (uintptr_t)shm_memory_copy(memory, shm->rank);
        if (!lies_in(base, memory->bytes, at, bytes)) continue;
        found.memory = memory;
        found.base = base;
        found.bytes = memory->bytes;
    }
    return found;
}

shm_memory *shm_memory_find(shm_group *shm, const void *data, size_t bytes, uint64_t *offset) {
    const uintptr_t at = (uintptr_t)data;
    shm_recent *recent = &shm->recent;
    *offset = 0;
    /* Relaxed: whoever posts after an allocation or a release has seen it, and so have we, who see the post. */
    if (recent->change != atomic_load_explicit(&shm->memories_changed, memory_order_relaxed) ||
        !lies_in(recent->base, recent->bytes, at, bytes)) {
        ls_mutex_lock(&shm->lock);
        *recent = search(shm, at, bytes);
        ls_mutex_unlock(&shm->lock);
    }
    if (recent->memory) *offset = at - recent->base;
    return recent->memory;
}
