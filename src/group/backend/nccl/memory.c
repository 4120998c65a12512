/* memory.c: which memory a call's pointers are in; group memory, which is the GPU's; and the stage, through which small
 * host memory passes: agreements, the reducer's headers, what a split exchanges. The stage's host side is the GPU's to reach
 * (page-locked), because a copy from other memory would wait.                                                        */
#include "group/backend/nccl/state.h"

#include "base/clock.h"
#include "base/memory.h"

#include <unistd.h>

_Static_assert(sizeof(group_agreement) <= NCCL_STAGE_ROW_BYTES, "an agreement's record has to fit the stage");

/* --- what a call touches -------------------------------------------------------------------------------------------- */

static size_t sum(const size_t *counts, int ranks) {
    size_t total = 0;
    for (int rank = 0; rank < ranks; rank++) total += counts[rank];
    return total;
}

size_t nccl_send_bytes(const nccl_group *nccl, const group_call *call) {
    const size_t element_bytes = ls_dtype_size(call->dtype), row = call->count * element_bytes;
    switch ((int)call->kind) {
    case GROUP_ALL_GATHER:
    case GROUP_GATHER: return row;
    case GROUP_SCATTER: return call->root == nccl->rank ? (size_t)nccl->world_size * row : 0;
    case GROUP_REDUCE_SCATTER:
    case GROUP_ALL_TO_ALL: return (size_t)nccl->world_size * row;
    case GROUP_ALL_TO_ALL_UNEVEN: return sum(call->send_counts, nccl->world_size) * element_bytes;
    default: return 0;
    }
}

size_t nccl_data_bytes(const nccl_group *nccl, const group_call *call) {
    const size_t element_bytes = ls_dtype_size(call->dtype), row = call->count * element_bytes;
    switch ((int)call->kind) {
    case GROUP_ALL_REDUCE:
    case GROUP_BROADCAST:
    case GROUP_REDUCE:
    case GROUP_SCATTER:
    case GROUP_REDUCE_SCATTER: return row;
    case GROUP_GATHER: return call->root == nccl->rank ? (size_t)nccl->world_size * row : 0;
    case GROUP_ALL_GATHER:
    case GROUP_ALL_TO_ALL: return (size_t)nccl->world_size * row;
    case GROUP_ALL_TO_ALL_UNEVEN: return sum(call->receive_counts, nccl->world_size) * element_bytes;
    default: return 0;
    }
}

bool nccl_reads_data(const group_call *call) {
    return call->kind == GROUP_ALL_REDUCE || call->kind == GROUP_BROADCAST || call->kind == GROUP_REDUCE;
}

/* --- where it is ---------------------------------------------------------------------------------------------------- */

static cuda_pointer address(const void *pointer) {
    return (cuda_pointer)(uintptr_t)pointer;
}

/* CUDA knows nothing of memory that it has not allocated. */
bool nccl_is_on_device(const nccl_group *nccl, const void *pointer) {
    unsigned type = 0;
    const cuda_result result = nccl->cuda.pointer_attribute(&type, CUDA_POINTER_MEMORY_TYPE, address(pointer));
    return result == CUDA_SUCCESS_CODE && type == CUDA_MEMORY_OF_DEVICE;
}

static ls_status check_device(const nccl_group *nccl, const group_call *call, const void *pointer) {
    char text[CALL_TEXT_BYTES];
    int device = nccl->device;
    const cuda_result result = nccl->cuda.pointer_attribute(&device, CUDA_POINTER_DEVICE, address(pointer));
    if (result == CUDA_SUCCESS_CODE && device == nccl->device) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT,
                   "rank %d: %s: the data is in memory of GPU %d, and the group is on GPU %d; pass memory of that one, "
                   "or make GPU %d current before the group is opened",
                   nccl->rank, call_describe(call, text), device, nccl->device, device);
}

static ls_status check_memory(const nccl_group *nccl, const group_call *call, const void *pointer, size_t bytes) {
    char text[CALL_TEXT_BYTES];
    const size_t stage_bytes = (size_t)nccl->world_size * NCCL_STAGE_ROW_BYTES;
    if (bytes == 0) return LS_OK;
    if (nccl_is_on_device(nccl, pointer)) return check_device(nccl, call, pointer);
    if (bytes <= stage_bytes) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT,
                   "rank %d: %s: the data is %zu bytes of host memory, of which the backend nccl carries at most %zu "
                   "here; copy it to GPU %d first, or use a group over shm, tcp or mpi",
                   nccl->rank, call_describe(call, text), bytes, stage_bytes, nccl->device);
}

ls_status nccl_check(const void *state, const group_call *call) {
    const nccl_group *nccl = state;
    cuda_context none = NULL;
    CUDA_TRY(nccl, push_context(nccl->context), "making the GPU current");
    ls_status status = check_memory(nccl, call, call->send, nccl_send_bytes(nccl, call));
    if (status == LS_OK) status = check_memory(nccl, call, call->data, nccl_data_bytes(nccl, call));
    nccl->cuda.pop_context(&none);
    return status;
}

/* --- the stage ------------------------------------------------------------------------------------------------------ */

static ls_status open_stage(nccl_group *nccl, nccl_stage *stage) {
    const size_t bytes = (size_t)nccl->world_size * NCCL_STAGE_ROW_BYTES;
    CUDA_TRY(nccl, allocate(&stage->device, bytes), "allocating a stage");
    CUDA_TRY(nccl, allocate_host(&stage->host, bytes, CUDA_HOST_MEMORY_OF_ALL_CONTEXTS), "allocating a stage");
    return LS_OK;
}

static void close_stage(nccl_group *nccl, nccl_stage *stage) {
    if (stage->device) nccl->cuda.free(stage->device);
    if (stage->host) nccl->cuda.free_host(stage->host);
}

ls_status nccl_open_stages(nccl_group *nccl) {
    LS_TRY(open_stage(nccl, &nccl->sent));
    return open_stage(nccl, &nccl->moved);
}

/* --- group memory --------------------------------------------------------------------------------------------------- */

ls_status nccl_drain(nccl_group *nccl, const char *doing) {
    const int64_t deadline_ns = ls_deadline_after_ms(NCCL_LOCAL_LIMIT_MS);
    cuda_result result = CUDA_NOT_READY;
    CUDA_TRY(nccl, record_event(nccl->after, nccl->stream), doing);
    while ((result = nccl->cuda.query_event(nccl->after)) == CUDA_NOT_READY && ls_now_ns() < deadline_ns)
        ls_sleep_until(ls_now_ns() + LS_NS_PER_MS / 10);
    return result == CUDA_SUCCESS_CODE ? LS_OK : cuda_failed(nccl, result, doing);
}

/* CUDA's own alignment is less than a page. */
static ls_status allocate_cleared(nccl_group *nccl, nccl_memory *memory, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX - page) return ls_fail(LS_ERR_MEMORY, "rank %d: no GPU has %zu bytes", nccl->rank, bytes);
    if (nccl->cuda.allocate(&memory->block, bytes + page) != CUDA_SUCCESS_CODE)
        return ls_fail(LS_ERR_MEMORY, "rank %d: GPU %d has no %zu bytes left for group memory", nccl->rank,
                       nccl->device, bytes);
    memory->base = nccl_memory_at(memory->block + (page - memory->block % page) % page);
    CUDA_TRY(nccl, fill(memory->block, 0, bytes + page, nccl->stream), "clearing group memory");
    return nccl_drain(nccl, "clearing group memory");
}

static void free_memory(nccl_group *nccl, nccl_memory *memory) {
    if (memory->block) nccl->cuda.free(memory->block);
    ls_free(memory);
}

static void list_memory(nccl_group *nccl, nccl_memory *memory) {
    ls_mutex_lock(&nccl->lock);
    memory->next = nccl->memories;
    nccl->memories = memory;
    ls_mutex_unlock(&nccl->lock);
}

ls_status nccl_allocate(void *state, size_t bytes, void **base) {
    nccl_group *nccl = state;
    cuda_context none = NULL;
    uint64_t number = 0;
    CUDA_TRY(nccl, push_context(nccl->context), "making the GPU current");
    nccl_memory *memory = ls_alloc(sizeof *memory);
    ls_status status =
        memory ? allocate_cleared(nccl, memory, bytes) : ls_fail_within(LS_ERR_MEMORY, "rank %d", nccl->rank);
    status = group_agree_as_said(nccl->group, GROUP_ALLOCATE, bytes, status, &number);
    if (status == LS_OK && memory) {
        list_memory(nccl, memory);
        *base = memory->base;
    } else if (memory) {
        free_memory(nccl, memory);
    }
    nccl->cuda.pop_context(&none);
    return status;
}

void nccl_release(void *state, void *base) {
    nccl_group *nccl = state;
    cuda_context none = NULL;
    nccl_memory *found = NULL;
    ls_mutex_lock(&nccl->lock);
    for (nccl_memory **link = &nccl->memories; *link && !found;)
        if ((*link)->base == base) {
            found = *link;
            *link = found->next;
        } else {
            link = &(*link)->next;
        }
    ls_mutex_unlock(&nccl->lock);
    if (!found) return;
    nccl->cuda.push_context(nccl->context);
    free_memory(nccl, found);
    nccl->cuda.pop_context(&none);
}

void nccl_close_memory(nccl_group *nccl) {
    while (nccl->memories) {
        nccl_memory *next = nccl->memories->next;
        free_memory(nccl, nccl->memories);
        nccl->memories = next;
    }
    close_stage(nccl, &nccl->sent);
    close_stage(nccl, &nccl->moved);
}
