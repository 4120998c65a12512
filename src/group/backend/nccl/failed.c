/* failed.c: failures of NCCL and CUDA as errors of ours: rank, what was being done, their own text, what to do. */
#include "group/backend/nccl/state.h"

/* What a code of NCCL's means here. */
typedef struct meaning {
    ls_status status;
    const char *cure;
} meaning;

static const meaning meanings[] = {
    [NCCL_CUDA_ERROR] = {LS_ERR_IO, "a CUDA call failed within NCCL, often in a kernel of the program's own"},
    [NCCL_SYSTEM_ERROR] = {LS_ERR_IO, "a system call failed within NCCL, often in the network: see "
                                      "NCCL_SOCKET_IFNAME and the limits of locked and shared memory"},
    [NCCL_INTERNAL_ERROR] = {LS_ERR_IO, "NCCL found itself in a state that it does not know"},
    [NCCL_INVALID_ARGUMENT] = {LS_ERR_ARGUMENT, "NCCL refused an argument"},
    [NCCL_INVALID_USAGE] = {LS_ERR_STATE, "NCCL refused the call; two ranks on one GPU are a usual cause: start one "
                                          "rank a GPU, each with its own LOCAL_RANK"},
    [NCCL_REMOTE_ERROR] = {LS_ERR_PEER_LOST, "a rank that NCCL talks to is gone: see what the others say"},
};

#define MEANING_COUNT (sizeof meanings / sizeof meanings[0])

const char *cuda_text(const cuda_functions *cuda, cuda_result result) {
    const char *text = NULL;
    if (cuda->error_text(result, &text) == CUDA_SUCCESS_CODE && text) return text;
    return "a code that this driver does not know";
}

ls_status nccl_failed(const nccl_group *nccl, nccl_result result, const char *doing) {
    static const meaning unknown = {LS_ERR_IO, "this version of Lockstep does not know the code"};
    const meaning *found = result < MEANING_COUNT && meanings[result].cure ? &meanings[result] : &unknown;
    const char *text = nccl->nccl.error_text(result), *last = nccl->nccl.last_error(nccl->comm);
    return ls_fail(found->status, "rank %d: %s: NCCL failed with code %u, \"%s\"%s%s; %s; NCCL_DEBUG=WARN tells more",
                   nccl->rank, doing, result, text ? text : "no text", last && *last ? ": " : "", last ? last : "",
                   found->cure);
}

ls_status cuda_failed(const nccl_group *nccl, cuda_result result, const char *doing) {
    return ls_fail(result == CUDA_OUT_OF_MEMORY ? LS_ERR_MEMORY : LS_ERR_IO,
                   "rank %d: %s: CUDA failed on GPU %d with code %u, \"%s\"", nccl->rank, doing, nccl->device, result,
                   cuda_text(&nccl->cuda, result));
}
