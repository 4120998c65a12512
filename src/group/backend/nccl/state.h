/* state.h: the nccl backend's own: a group is one communicator, one stream and one GPU. Chosen by name alone.
 *
 *   declared.h    NCCL and CUDA as far as they are called; agreement.c compares it with their headers
 *   load.c        both are opened; what is missing
 *   failed.c      their failures as ours
 *   open.c        a group opens and closes; the table
 *   meet.c        ranks meet in the store; the communicator is made
 *   memory.c      group memory; staging of small host memory; which memory a pointer is in
 *   op.c          an operation: its parts, one after the other
 *   issue.c       each kind of collective as calls of NCCL
 *   notice.c      ranks tell each other, through the store, that they leave or have lost the group; sleeping
 *
 * What no test has shown yet: its data path has not run on a GPU. All of it runs against a stand-in for NCCL and CUDA
 * (tests/nccl), and its declarations are compared with the real headers.
 *
 * NCCL waits for nobody here: communicators do not block, so every call returns at once and the state is asked for.
 * Work of a stream that CUDA knows as blocking, the default stream's above all, is done before an operation reads or writes
 * memory; what runs on a non-blocking stream the caller has waited for. An operation is complete when its result is in
 * memory.                                                                                                             */
#ifndef LS_GROUP_NCCL_STATE_H
#define LS_GROUP_NCCL_STATE_H

#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "group/backend.h"
#include "group/backend/nccl/declared.h"
#include "group/compare.h"
#include "group/describe.h"

/* Host memory is carried up to this many bytes a rank, by way of a stage: what ranks tell each other beside their data.
 * An agreement's record fits. */
#define NCCL_STAGE_ROW_BYTES 4096

/* How long we wait for what the GPU does by itself: memory to be cleared, a communicator to end. */
#define NCCL_LOCAL_LIMIT_MS 5000

/* Rows of all ranks, in memory of the host that the GPU reaches and in the GPU's. */
typedef struct nccl_stage {
    void *host;
    cuda_pointer device;
} nccl_stage;

/* One ls_group_alloc. */
typedef struct nccl_memory {
    struct nccl_memory *next;
    cuda_pointer block;
    void *base;
} nccl_memory;

/* What a rank says when it leaves the group, or loses it. A later operation than `done` cannot have its part. */
typedef struct nccl_notice {
    uint64_t done;
    int32_t rank;
    ls_error why; /* LS_OK: it left, and the text says who */
} nccl_notice;

/* A rank's view of its group.
 *   lock                     guards comm, which leaving takes away, and memories; NCCL's calls on comm are made under it
 *   under the driver         records, counts, stages, looked_ns, told, has_notice, notice, store_failure
 *   fixed when open returns  everything else                                                                          */
typedef struct nccl_group {
    ls_group *group;
    ls_store *store; /* borrowed; NULL in a world of one */
    char prefix[LS_STORE_KEY_BYTES / 2];
    int rank, world_size;
    bool checks_calls;
    nccl_functions nccl;
    cuda_functions cuda;
    int device_count;
    cuda_device device;
    cuda_context context; /* the device's own, which NCCL and the CUDA runtime use */
    cuda_stream stream;
    cuda_event before, after; /* what an operation waits for, and its end */
    nccl_stage sent, moved;   /* of `send` and `data` */

    ls_mutex lock;
    nccl_comm comm; /* NULL: aborted */
    nccl_memory *memories;

    call_record *records; /* [world_size] */
    size_t *counts;       /* [world_size] */
    int64_t looked_ns;    /* when the store was last asked */
    uint64_t told;        /* the operation that the store knows us to wait for */
    bool has_notice;
    nccl_notice notice;
    ls_error store_failure; /* LS_OK: none */

    _Atomic uint64_t done; /* operations complete here */
    _Atomic bool has_left; /* the first leaving counts */
    ls_word bell;
} nccl_group;

/* CUDA's addresses are numbers. */
static inline void *nccl_memory_at(cuda_pointer address) {
    return (void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr) */
}

/* load.c: opens both libraries and finds a GPU. Errors: LS_ERR_UNSUPPORTED names what is missing and how to get it. */
ls_status nccl_load(nccl_group *nccl);

/* failed.c: a code of NCCL's or CUDA's as this thread's error. The caller holds the lock, or has the group alone. */
ls_status nccl_failed(const nccl_group *nccl, nccl_result result, const char *doing) __attribute__((cold));
ls_status cuda_failed(const nccl_group *nccl, cuda_result result, const char *doing) __attribute__((cold));
const char *cuda_text(const cuda_functions *cuda, cuda_result result);

#define CUDA_TRY(nccl, call, doing)                                                                 \
    do {                                                                                            \
        const cuda_result cuda_try_result = (nccl)->cuda.call;                                      \
        if (cuda_try_result != CUDA_SUCCESS_CODE) return cuda_failed(nccl, cuda_try_result, doing); \
    } while (0)

/* meet.c: all ranks say in the store how their part went so far and whether they compare calls, rank 0 puts `id` there, and
 * all fail alike, or make the communicator. Errors: LS_ERR_TIMEOUT names who is missing; LS_ERR_ENVIRONMENT who compares
 * and who does not; what any rank said. */
ls_status nccl_meet(const backend_place *place, ls_status status, bool checks_calls, nccl_unique_id *id);
ls_status nccl_connect(nccl_group *nccl, const backend_place *place, const nccl_unique_id *id);

/* "prefix/nccl/WHAT/RANK", the key of a rank. */
void nccl_key(const char *prefix, const char *what, int rank, char key[LS_STORE_KEY_BYTES]);

/* memory.c */
ls_status nccl_open_stages(nccl_group *nccl);
void nccl_close_memory(nccl_group *nccl);
/* Waits until the stream is through; no operation is under way, or it was aborted. Errors: LS_ERR_IO at the limit too. */
ls_status nccl_drain(nccl_group *nccl, const char *doing);
ls_status nccl_allocate(void *state, size_t bytes, void **memory);
void nccl_release(void *state, void *memory);
ls_status nccl_check(const void *state, const group_call *call);
/* Bytes of `send` and `data` that this rank has in a call; and whether what is in `data` before counts. */
size_t nccl_send_bytes(const nccl_group *nccl, const group_call *call);
size_t nccl_data_bytes(const nccl_group *nccl, const group_call *call);
bool nccl_reads_data(const group_call *call);
/* Whether the GPU can use the memory where it is. */
bool nccl_is_on_device(const nccl_group *nccl, const void *pointer);

/* issue.c: puts the calls of `call`, a part of `op` whose memory is the GPU's, on the stream. The caller holds the lock. */
ls_status nccl_issue(nccl_group *nccl, const group_call *call, const backend_op *op);
bool nccl_carries(const group_call *call);

/* op.c */
void nccl_start(void *state, backend_op *op);
backend_progress nccl_poll(void *state, backend_op *op);

/* notice.c */
ls_status nccl_examine(void *state, backend_op *op);
void nccl_describe_missing(void *state, const backend_op *op, char *text, size_t bytes);
uint32_t nccl_bell(void *state);
backend_progress nccl_sleep(void *state, backend_op *op, uint32_t bell, int64_t deadline_ns);
void nccl_wake(void *state);
void nccl_leave(void *state, const ls_error *why);
/* Reads whether a rank has left or lost the group; LS_END: none has said so. Errors: the store's own. */
ls_status nccl_read_notice(nccl_group *nccl);
/* Says in the store that this rank waits for operation `number`; 0: for the communicator. */
void nccl_tell(nccl_group *nccl, uint64_t number);
/* Writes "rank 1, rank 3", those that do not wait for operation `number`, into `text`; returns how many. */
int nccl_list_missing(nccl_group *nccl, uint64_t number, char *text, size_t bytes);
/* Ends what runs on the GPU. Any thread. */
void nccl_abort(nccl_group *nccl);

#endif
