/* load.c: opens NCCL and CUDA's driver, and says what is missing and where it comes from. */
#include "group/backend/nccl/state.h"

#include "base/environment.h"

#include <dlfcn.h>
#include <string.h>

#define CODE_MAJOR(code) ((code) / 10000)
#define CODE_MINOR(code) ((code) / 100 % 100)
#define CODE_PATCH(code) ((code) % 100)

/* Open for the rest of the process: neither library takes being closed well. */
static ls_status open_library(const char *name, const char *source, void **library) {
    *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (*library) return LS_OK;
    return ls_fail(LS_ERR_UNSUPPORTED, "the nccl backend needs %s, which cannot be opened (%s); %s", name, dlerror(),
                   source);
}

/* ISO C has no cast from an object's pointer to a function's. */
static ls_status find_function(void *library, const char *name, const char *symbol, void *function) {
    void *found = dlsym(library, symbol);
    if (!found)
        return ls_fail(LS_ERR_UNSUPPORTED, "the nccl backend needs %s of %s, which has none: install a newer one",
                       symbol, name);
    memcpy(function, &found, sizeof found);
    return LS_OK;
}

#define FIND(member, symbol, result, parameters) LS_TRY(find_function(library, name, #symbol, &functions->member));

static ls_status find_nccl(void *library, const char *name, nccl_functions *functions) {
    NCCL_FUNCTIONS(FIND)
    return LS_OK;
}

static ls_status find_cuda(void *library, const char *name, cuda_functions *functions) {
    CUDA_FUNCTIONS(FIND)
    return LS_OK;
}

/* Asked before other functions are looked for: an old library lacks some. */
static ls_status check_version(void *library, const char *name, nccl_functions *functions) {
    int code = 0;
    LS_TRY(find_function(library, name, "ncclGetVersion", &functions->get_version));
    if (functions->get_version(&code) != NCCL_SUCCESS)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s does not tell its version: is it an NCCL?", name);
    if (code >= NCCL_OLDEST_VERSION) return LS_OK;
    const bool is_short = code < 10000;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "%s is NCCL %d.%d.%d; 2.14 or newer is needed, the first whose calls do not block, so that every "
                   "wait can have a limit",
                   name, is_short ? code / 1000 : CODE_MAJOR(code), is_short ? code / 100 % 10 : CODE_MINOR(code),
                   CODE_PATCH(code));
}

static ls_status open_nccl(nccl_functions *functions) {
    const char *named = ls_env_text("LOCKSTEP_NCCL"), *name = named ? named : NCCL_LIBRARY;
    void *library = NULL;
    LS_TRY(open_library(name,
                        named ? "LOCKSTEP_NCCL names this file"
                              : "NVIDIA's NCCL brings it (packages libnccl2 and nvidia-nccl-cu12); where the loader "
                                "does not find it, LOCKSTEP_NCCL names the file",
                        &library));
    LS_TRY(check_version(library, name, functions));
    return find_nccl(library, name, functions);
}

static ls_status open_cuda(cuda_functions *functions) {
    void *library = NULL;
    LS_TRY(open_library(CUDA_LIBRARY,
                        "NVIDIA's driver brings it, on a machine with a GPU; without one choose shm, tcp or mpi",
                        &library));
    return find_cuda(library, CUDA_LIBRARY, functions);
}

static ls_status find_gpu(const cuda_functions *cuda, int *count) {
    *count = 0;
    cuda_result result = cuda->init(0);
    if (result == CUDA_SUCCESS_CODE) result = cuda->count_devices(count);
    if (result == CUDA_SUCCESS_CODE && *count > 0) return LS_OK;
    return ls_fail(
        LS_ERR_UNSUPPORTED,
        "the nccl backend needs a GPU, and this process has none (CUDA counts %d, with code %u, \"%s\"); see "
        "nvidia-smi and CUDA_VISIBLE_DEVICES, or choose shm, tcp or mpi",
        *count, result, result == CUDA_SUCCESS_CODE ? "no error" : cuda_text(cuda, result));
}

ls_status nccl_load(nccl_group *nccl) {
    LS_TRY(open_nccl(&nccl->nccl));
    LS_TRY(open_cuda(&nccl->cuda));
    return find_gpu(&nccl->cuda, &nccl->device_count);
}
