/* declared.h: what the nccl backend calls of NCCL and of CUDA's driver, declared by ourselves: both are opened at run time,
 * so that the library builds where neither's headers are. Names, numbers and the layout of two structures are their
 * ABI; agreement.c, built where the headers are, proves that these are the same. */
#ifndef LS_GROUP_NCCL_DECLARED_H
#define LS_GROUP_NCCL_DECLARED_H

#include <stddef.h>
#include <stdint.h>

/* --- NCCL ----------------------------------------------------------------------------------------------------------- */

#define NCCL_LIBRARY "libnccl.so.2"

/* 2.14 is the first with communicators that do not block: without them no wait has a limit. Its code is 21400; before
 * 2.9 codes had one digit fewer, and are smaller. */
#define NCCL_OLDEST_VERSION 21400

typedef unsigned int nccl_result, nccl_type, nccl_op;
typedef struct ncclComm *nccl_comm;

typedef enum nccl_results {
    NCCL_SUCCESS = 0,
    NCCL_CUDA_ERROR,
    NCCL_SYSTEM_ERROR,
    NCCL_INTERNAL_ERROR,
    NCCL_INVALID_ARGUMENT,
    NCCL_INVALID_USAGE,
    NCCL_REMOTE_ERROR,
    NCCL_IN_PROGRESS
} nccl_results;

typedef enum nccl_types {
    NCCL_INT8 = 0,
    NCCL_UINT8 = 1,
    NCCL_INT32 = 2,
    NCCL_INT64 = 4,
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9
} nccl_types;

typedef enum nccl_ops { NCCL_SUM = 0, NCCL_PRODUCT, NCCL_MAX, NCCL_MIN, NCCL_AVERAGE } nccl_ops;

typedef struct nccl_unique_id {
    char bytes[128];
} nccl_unique_id;

/* As it was in 2.14; later ones take it for what its size and version say, and use their defaults for the rest. */
typedef struct nccl_config {
    size_t size;
    unsigned int magic, version;
    int blocking;
} nccl_config;

#define NCCL_CONFIG_MAGIC 0xcafebeefu

/* --- CUDA's driver -------------------------------------------------------------------------------------------------- */

#define CUDA_LIBRARY "libcuda.so.1"

typedef unsigned int cuda_result, cuda_attribute;
typedef int cuda_device;
typedef unsigned long long cuda_pointer;
typedef struct CUctx_st *cuda_context;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;

typedef enum cuda_numbers {
    CUDA_SUCCESS_CODE = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_READY = 600,
    CUDA_POINTER_MEMORY_TYPE = 2, /* attributes of a pointer */
    CUDA_POINTER_DEVICE = 9,
    CUDA_MEMORY_OF_HOST = 1, /* memory types */
    CUDA_MEMORY_OF_DEVICE = 2,
    CUDA_STREAM_IS_NON_BLOCKING = 1,
    CUDA_EVENT_HAS_NO_TIME = 2,
    CUDA_HOST_MEMORY_OF_ALL_CONTEXTS = 1
} cuda_numbers;

/* The default stream that waits for all others but the non-blocking ones. */
#define CUDA_DEFAULT_STREAM ((cuda_stream)1)

/* --- the functions -------------------------------------------------------------------------------------------------- */

/* X(member, symbol, result, parameters) for each function that has to be there. */
#define NCCL_FUNCTIONS(X)                                                                                            \
    X(get_version, ncclGetVersion, nccl_result, (int *))                                                             \
    X(get_unique_id, ncclGetUniqueId, nccl_result, (nccl_unique_id *))                                               \
    X(init, ncclCommInitRankConfig, nccl_result, (nccl_comm *, int, nccl_unique_id, int, nccl_config *))             \
    X(finalize, ncclCommFinalize, nccl_result, (nccl_comm))                                                          \
    X(destroy, ncclCommDestroy, nccl_result, (nccl_comm))                                                            \
    X(abort, ncclCommAbort, nccl_result, (nccl_comm))                                                                \
    X(get_async_error, ncclCommGetAsyncError, nccl_result, (nccl_comm, nccl_result *))                               \
    X(error_text, ncclGetErrorString, const char *, (nccl_result))                                                   \
    X(last_error, ncclGetLastError, const char *, (nccl_comm))                                                       \
    X(all_reduce, ncclAllReduce, nccl_result,                                                                        \
      (const void *, void *, size_t, nccl_type, nccl_op, nccl_comm, cuda_stream))                                    \
    X(broadcast, ncclBroadcast, nccl_result, (const void *, void *, size_t, nccl_type, int, nccl_comm, cuda_stream)) \
    X(reduce, ncclReduce, nccl_result,                                                                               \
      (const void *, void *, size_t, nccl_type, nccl_op, int, nccl_comm, cuda_stream))                               \
    X(all_gather, ncclAllGather, nccl_result, (const void *, void *, size_t, nccl_type, nccl_comm, cuda_stream))     \
    X(reduce_scatter, ncclReduceScatter, nccl_result,                                                                \
      (const void *, void *, size_t, nccl_type, nccl_op, nccl_comm, cuda_stream))                                    \
    X(send, ncclSend, nccl_result, (const void *, size_t, nccl_type, int, nccl_comm, cuda_stream))                   \
    X(receive, ncclRecv, nccl_result, (void *, size_t, nccl_type, int, nccl_comm, cuda_stream))                      \
    X(group_start, ncclGroupStart, nccl_result, (void))                                                              \
    X(group_end, ncclGroupEnd, nccl_result, (void))

#define CUDA_FUNCTIONS(X)                                                                            \
    X(init, cuInit, cuda_result, (unsigned int))                                                     \
    X(error_text, cuGetErrorString, cuda_result, (cuda_result, const char **))                       \
    X(count_devices, cuDeviceGetCount, cuda_result, (int *))                                         \
    X(get_device, cuDeviceGet, cuda_result, (cuda_device *, int))                                    \
    X(current_context, cuCtxGetCurrent, cuda_result, (cuda_context *))                               \
    X(current_device, cuCtxGetDevice, cuda_result, (cuda_device *))                                  \
    X(retain_context, cuDevicePrimaryCtxRetain, cuda_result, (cuda_context *, cuda_device))          \
    X(release_context, cuDevicePrimaryCtxRelease_v2, cuda_result, (cuda_device))                     \
    X(push_context, cuCtxPushCurrent_v2, cuda_result, (cuda_context))                                \
    X(pop_context, cuCtxPopCurrent_v2, cuda_result, (cuda_context *))                                \
    X(create_stream, cuStreamCreate, cuda_result, (cuda_stream *, unsigned int))                     \
    X(destroy_stream, cuStreamDestroy_v2, cuda_result, (cuda_stream))                                \
    X(await_event, cuStreamWaitEvent, cuda_result, (cuda_stream, cuda_event, unsigned int))          \
    X(create_event, cuEventCreate, cuda_result, (cuda_event *, unsigned int))                        \
    X(destroy_event, cuEventDestroy_v2, cuda_result, (cuda_event))                                   \
    X(record_event, cuEventRecord, cuda_result, (cuda_event, cuda_stream))                           \
    X(query_event, cuEventQuery, cuda_result, (cuda_event))                                          \
    X(allocate, cuMemAlloc_v2, cuda_result, (cuda_pointer *, size_t))                                \
    X(free, cuMemFree_v2, cuda_result, (cuda_pointer))                                               \
    X(allocate_host, cuMemHostAlloc, cuda_result, (void **, size_t, unsigned int))                   \
    X(free_host, cuMemFreeHost, cuda_result, (void *))                                               \
    X(fill, cuMemsetD8Async, cuda_result, (cuda_pointer, unsigned char, size_t, cuda_stream))        \
    X(copy_in, cuMemcpyHtoDAsync_v2, cuda_result, (cuda_pointer, const void *, size_t, cuda_stream)) \
    X(copy_out, cuMemcpyDtoHAsync_v2, cuda_result, (void *, cuda_pointer, size_t, cuda_stream))      \
    X(copy, cuMemcpyDtoDAsync_v2, cuda_result, (cuda_pointer, cuda_pointer, size_t, cuda_stream))    \
    X(pointer_attribute, cuPointerGetAttribute, cuda_result, (void *, cuda_attribute, cuda_pointer))

/* Types take no parentheses. */
#define LS_MEMBER(member, symbol, result, parameters) \
    result(*member) parameters; /* NOLINT(bugprone-macro-parentheses) */

typedef struct nccl_functions {
    NCCL_FUNCTIONS(LS_MEMBER)
} nccl_functions;

typedef struct cuda_functions {
    CUDA_FUNCTIONS(LS_MEMBER)
} cuda_functions;

#endif
