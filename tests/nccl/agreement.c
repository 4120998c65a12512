/* agreement.c: proves, by being compiled, that the nccl backend's declarations are those of NCCL's and CUDA's own headers:
 * numbers, sizes, and the type of every function that it calls. Built where both headers are; never run.            */
#include <cuda.h>
#include <nccl.h>

/* Our names for the same tags and numbers. */
#include "group/backend/nccl/declared.h"

#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs)
/* Types take no parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
#define SAME_TYPE(ours, theirs) _Static_assert(_Generic((theirs){0}, ours : 1, default : 0), #ours " is not " #theirs)

SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_INT8, ncclInt8);
SAME(NCCL_UINT8, ncclUint8);
SAME(NCCL_INT32, ncclInt32);
SAME(NCCL_INT64, ncclInt64);
SAME(NCCL_FLOAT16, ncclFloat16);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(NCCL_FLOAT64, ncclFloat64);
SAME(NCCL_BFLOAT16, ncclBfloat16);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_PRODUCT, ncclProd);
SAME(NCCL_MAX, ncclMax);
SAME(NCCL_MIN, ncclMin);
SAME(NCCL_AVERAGE, ncclAvg);
SAME(sizeof(nccl_unique_id), sizeof(ncclUniqueId));
SAME(_Alignof(nccl_unique_id), _Alignof(ncclUniqueId));
SAME(NCCL_OLDEST_VERSION, NCCL_VERSION(2, 14, 0));

/* The fields of the configuration that there were in 2.14 lie where they lay. */
SAME(offsetof(nccl_config, size), offsetof(ncclConfig_t, size));
SAME(offsetof(nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(nccl_config, blocking), offsetof(ncclConfig_t, blocking));
_Static_assert(sizeof(nccl_config) <= sizeof(ncclConfig_t), "the configuration has shrunk");

SAME(CUDA_SUCCESS_CODE, CUDA_SUCCESS);
SAME(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CUDA_POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CUDA_MEMORY_OF_HOST, CU_MEMORYTYPE_HOST);
SAME(CUDA_MEMORY_OF_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(CUDA_STREAM_IS_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CUDA_EVENT_HAS_NO_TIME, CU_EVENT_DISABLE_TIMING);
SAME(CUDA_HOST_MEMORY_OF_ALL_CONTEXTS, CU_MEMHOSTALLOC_PORTABLE);

SAME_TYPE(nccl_result, ncclResult_t);
SAME_TYPE(nccl_type, ncclDataType_t);
SAME_TYPE(nccl_op, ncclRedOp_t);
SAME_TYPE(nccl_comm, ncclComm_t);
SAME_TYPE(cuda_result, CUresult);
SAME_TYPE(cuda_attribute, CUpointer_attribute);
SAME_TYPE(cuda_device, CUdevice);
SAME_TYPE(cuda_pointer, CUdeviceptr);
SAME_TYPE(cuda_context, CUcontext);
SAME_TYPE(cuda_stream, CUstream);
SAME_TYPE(cuda_event, CUevent);

/* Functions have the types that we declare once the two structures have the same names. Which symbol a name of CUDA's stands for
 * (cuMemAlloc: cuMemAlloc_v2) is a macro of its header, so both names are the same function here. */
#define nccl_unique_id ncclUniqueId
#define nccl_config ncclConfig_t
#define CHECK(member, symbol, result, parameters)    \
    extern result(*const check_##symbol) parameters; \
    result(*const check_##symbol) parameters = symbol;

NCCL_FUNCTIONS(CHECK)
CUDA_FUNCTIONS(CHECK)
/* NOLINTEND(bugprone-macro-parentheses) */
