/* issue.c: each kind of collective as calls of NCCL. What NCCL has no call for moves by sends and receives of one group;
 * a rank's own row is copied. All memory is the GPU's by now. */
#include "group/backend/nccl/state.h"

/* --- types and ops -------------------------------------------------------------------------------------------------- */

static const nccl_type types[LS_DTYPE_COUNT] = {
    [LS_F32] = NCCL_FLOAT32,   [LS_F64] = NCCL_FLOAT64, [LS_F16] = NCCL_FLOAT16,
    [LS_BF16] = NCCL_BFLOAT16, [LS_I8] = NCCL_INT8,     [LS_U8] = NCCL_UINT8,
    [LS_I32] = NCCL_INT32,     [LS_I64] = NCCL_INT64,   [LS_BOOL] = NCCL_UINT8,
};

/* An op of NCCL's and whether there is one that keeps our promise. NCCL has no booleans: of bytes that are 0 or 1 the
 * larger says whether any is set, the smaller whether all are. */
typedef struct op_of_ours {
    bool is_there;
    nccl_op op, of_bools;
} op_of_ours;

static const op_of_ours ops[LS_OP_COUNT] = {
    [LS_SUM] = {true, NCCL_SUM, NCCL_MAX},         [LS_MAX] = {true, NCCL_MAX, NCCL_MAX},
    [LS_MIN] = {true, NCCL_MIN, NCCL_MIN},         [LS_PRODUCT] = {true, NCCL_PRODUCT, NCCL_MIN},
    [LS_AVERAGE] = {true, NCCL_AVERAGE, NCCL_MAX},
};

static nccl_op op_for(const group_call *call) {
    return call->dtype == LS_BOOL ? ops[call->op].of_bools : ops[call->op].op;
}

static bool is_float(ls_dtype dtype) {
    return dtype == LS_F32 || dtype == LS_F64 || dtype == LS_F16 || dtype == LS_BF16;
}

/* --- one call of NCCL's --------------------------------------------------------------------------------------------- */

static nccl_result reduce_all(const nccl_group *nccl, const group_call *call) {
    return nccl->nccl.all_reduce(call->data, call->data, call->count, types[call->dtype], op_for(call), nccl->comm,
                                 nccl->stream);
}

static nccl_result broadcast(const nccl_group *nccl, const group_call *call) {
    return nccl->nccl.broadcast(call->data, call->data, call->count, types[call->dtype], call->root, nccl->comm,
                                nccl->stream);
}

/* NCCL writes at the root alone. */
static nccl_result reduce_to_root(const nccl_group *nccl, const group_call *call) {
    return nccl->nccl.reduce(call->data, call->data, call->count, types[call->dtype], op_for(call), call->root,
                             nccl->comm, nccl->stream);
}

static nccl_result gather_all(const nccl_group *nccl, const group_call *call) {
    return nccl->nccl.all_gather(call->send, call->data, call->count, types[call->dtype], nccl->comm, nccl->stream);
}

static nccl_result reduce_and_scatter(const nccl_group *nccl, const group_call *call) {
    return nccl->nccl.reduce_scatter(call->send, call->data, call->count, types[call->dtype], op_for(call), nccl->comm,
                                     nccl->stream);
}

/* NCCL has no barrier: a sum of one byte a rank, of the stage. */
static nccl_result barrier(const nccl_group *nccl, const group_call *call) {
    (void)call;
    void *byte = nccl_memory_at(nccl->moved.device);
    return nccl->nccl.all_reduce(byte, byte, 1, NCCL_UINT8, NCCL_SUM, nccl->comm, nccl->stream);
}

/* --- rows from rank to rank ----------------------------------------------------------------------------------------- */

static size_t sent_to(const nccl_group *nccl, const group_call *call, int peer) {
    switch ((int)call->kind) {
    case GROUP_GATHER: return peer == call->root ? call->count : 0;
    case GROUP_SCATTER: return nccl->rank == call->root ? call->count : 0;
    case GROUP_ALL_TO_ALL_UNEVEN: return call->send_counts[peer];
    default: return call->count;
    }
}

static size_t received_from(const nccl_group *nccl, const group_call *call, int peer) {
    switch ((int)call->kind) {
    case GROUP_GATHER: return nccl->rank == call->root ? call->count : 0;
    case GROUP_SCATTER: return peer == call->root ? call->count : 0;
    case GROUP_ALL_TO_ALL_UNEVEN: return call->receive_counts[peer];
    default: return call->count;
    }
}

/* Rows lie one behind the other in both arrays. */
static nccl_result exchange_rows(const nccl_group *nccl, const group_call *call) {
    const size_t element_bytes = ls_dtype_size(call->dtype);
    const char *send = call->send;
    char *data = call->data;
    nccl_result result = nccl->nccl.group_start();
    if (result != NCCL_SUCCESS) return result;
    for (int peer = 0; peer < nccl->world_size && result == NCCL_SUCCESS; peer++) {
        const size_t sent = sent_to(nccl, call, peer), received = received_from(nccl, call, peer);
        if (peer != nccl->rank && sent)
            result = nccl->nccl.send(send, sent, types[call->dtype], peer, nccl->comm, nccl->stream);
        if (peer != nccl->rank && received && result == NCCL_SUCCESS)
            result = nccl->nccl.receive(data, received, types[call->dtype], peer, nccl->comm, nccl->stream);
        if (sent) send += sent * element_bytes;
        if (received) data += received * element_bytes;
    }
    /* Whatever came of it: an open group would take the thread's next calls in. */
    const nccl_result ended = nccl->nccl.group_end();
    return result == NCCL_SUCCESS ? ended : result;
}

/* This rank's row for itself, which a gather's or a scatter's root may have in its place. */
static cuda_result copy_own_row(const nccl_group *nccl, const group_call *call) {
    const size_t element_bytes = ls_dtype_size(call->dtype);
    const size_t bytes = sent_to(nccl, call, nccl->rank) * element_bytes;
    size_t from = 0, to = 0;
    for (int peer = 0; peer < nccl->rank; peer++) {
        from += sent_to(nccl, call, peer) * element_bytes;
        to += received_from(nccl, call, peer) * element_bytes;
    }
    if (bytes == 0 || (const char *)call->send + from == (char *)call->data + to) return CUDA_SUCCESS_CODE;
    return nccl->cuda.copy((cuda_pointer)(uintptr_t)call->data + to, (cuda_pointer)(uintptr_t)call->send + from, bytes,
                           nccl->stream);
}

/* --- the kinds ------------------------------------------------------------------------------------------------------ */

typedef struct kind_of_call {
    nccl_result (*issue)(const nccl_group *nccl, const group_call *call);
    bool combines, has_rows;
} kind_of_call;

static const kind_of_call kinds[GROUP_KIND_COUNT] = {
    [GROUP_ALL_REDUCE] = {reduce_all, true, false},
    [GROUP_REDUCE] = {reduce_to_root, true, false},
    [GROUP_REDUCE_SCATTER] = {reduce_and_scatter, true, false},
    [GROUP_BROADCAST] = {broadcast, false, false},
    [GROUP_ALL_GATHER] = {gather_all, false, false},
    [GROUP_BARRIER] = {barrier, false, false},
    [GROUP_GATHER] = {exchange_rows, false, true},
    [GROUP_SCATTER] = {exchange_rows, false, true},
    [GROUP_ALL_TO_ALL] = {exchange_rows, false, true},
    [GROUP_ALL_TO_ALL_UNEVEN] = {exchange_rows, false, true},
};

/* Bitwise ops NCCL has not. Its average of integers forms the sum in their own type, where it wraps; ours does not.
 * Messages it orders with the collectives, and knows neither tags nor "from any rank". */
bool nccl_carries(const group_call *call) {
    const kind_of_call *kind = &kinds[call->kind];
    if (!kind->issue) return false;
    if (!kind->combines) return true;
    return ops[call->op].is_there && (call->op != LS_AVERAGE || is_float(call->dtype));
}

ls_status nccl_issue(nccl_group *nccl, const group_call *call, const backend_op *op) {
    const kind_of_call *kind = &kinds[call->kind];
    char doing[CALL_TEXT_BYTES + 32];
    if (kind->has_rows) {
        const cuda_result copied = copy_own_row(nccl, call);
        if (copied != CUDA_SUCCESS_CODE) return cuda_failed(nccl, copied, op_describe(op, doing));
    }
    if (call->count == 0 && call->kind != GROUP_BARRIER && call->kind != GROUP_ALL_TO_ALL_UNEVEN) return LS_OK;
    const nccl_result result = kind->issue(nccl, call);
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) return LS_OK;
    return nccl_failed(nccl, result, op_describe(op, doing));
}
