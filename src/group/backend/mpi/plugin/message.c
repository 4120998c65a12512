/* message.c: send and receive: each is one message of MPI, beside the collectives and beside each other, so that MPI
 * keeps their order. A send is synchronous: it is complete when its message is being received. */
#include "group/backend/mpi/plugin/state.h"

#include <inttypes.h>
#include <limits.h>

/* Bytes beyond an int are blocks of 1 MiB and a rest, together one message. */
#define BLOCK_BYTES (1 << 20)

static int make_large(size_t bytes, MPI_Datatype *type) {
    const int lengths[] = {(int)(bytes / BLOCK_BYTES), (int)(bytes % BLOCK_BYTES)};
    const MPI_Aint places[] = {0, (MPI_Aint)(bytes - bytes % BLOCK_BYTES)};
    MPI_Datatype types[] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int code = MPI_Type_contiguous(BLOCK_BYTES, MPI_BYTE, &types[0]);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_create_struct(2, lengths, places, types, type);
    MPI_Type_free(&types[0]);
    return code == MPI_SUCCESS ? MPI_Type_commit(type) : code;
}

/* MPI's tags begin at 0, and have an end. */
bool mpi_carries_tag(const group_call *call) {
    const int tag = (int)(uint32_t)call->tag;
    return tag >= 0 && tag <= mpi_here.largest_tag;
}

static int begin(const mpi_group *mpi, const backend_op *op, MPI_Request *request) {
    const group_call *call = &op->call;
    const int tag = (int)(uint32_t)call->tag;
    MPI_Datatype type = MPI_BYTE;
    int count = (int)op->bytes, code = MPI_SUCCESS;
    if (op->bytes > INT_MAX) {
        count = 1;
        code = make_large(op->bytes, &type);
        if (code != MPI_SUCCESS) return code;
    }
    if (call->kind == GROUP_SEND)
        code = MPI_Issend(call->send, count, type, call->root, tag, mpi->data, request);
    else
        code = MPI_Irecv(call->data, count, type, call->root == LS_ANY_RANK ? MPI_ANY_SOURCE : call->root, tag,
                         mpi->data, request);
    if (type != MPI_BYTE) MPI_Type_free(&type); /* goes when the message is through */
    return code;
}

/* A longer message is an error of MPI's; a shorter one it takes. */
static ls_status check_received(const backend_op *op, const MPI_Status *status) {
    MPI_Count bytes = 0;
    MPI_TRY(MPI_Get_elements_x(status, MPI_BYTE, &bytes), "receiving a message");
    if (op->call.source) *op->call.source = status->MPI_SOURCE;
    if ((size_t)bytes == op->bytes) return LS_OK;
    char call[CALL_TEXT_BYTES];
    return mpi_here.services->fail(LS_ERR_MISMATCH, "rank %d: %s: a message of %lld bytes came from rank %d, not %zu",
                                   mpi_here.rank, mpi_here.services->describe_call(&op->call, call), (long long)bytes,
                                   status->MPI_SOURCE, op->bytes);
}

backend_progress mpi_poll_message(mpi_group *mpi, backend_op *op) {
    mpi_scratch *s = (mpi_scratch *)(void *)op->scratch;
    MPI_Status status;
    int code = MPI_SUCCESS, is_complete = 0;
    if (!s->is_begun) {
        s->is_begun = true;
        atomic_fetch_add_explicit(&mpi->in_flight, 1, memory_order_relaxed);
        code = begin(mpi, op, &s->requests[0]);
    }
    if (code == MPI_SUCCESS) code = MPI_Test(&s->requests[0], &is_complete, &status);
    if (code != MPI_SUCCESS) return mpi_fail_op(op, code);
    if (!is_complete) return BACKEND_PENDING;
    atomic_fetch_sub_explicit(&mpi->in_flight, 1, memory_order_relaxed);
    if (op->call.kind == GROUP_RECEIVE && (op->status = check_received(op, &status)) != LS_OK) return BACKEND_FAILED;
    return BACKEND_DONE;
}

/* `left` [world size]: who has left. A message of any rank may come from those who have not. */
int mpi_awaited_and_gone(const mpi_group *mpi, const backend_op *op, const bool *left) {
    if (op->call.root != LS_ANY_RANK) return left[op->call.root] ? op->call.root : -1;
    int gone = 0, last = -1;
    for (int rank = 0; rank < mpi->world_size; rank++)
        if (left[rank]) {
            gone++;
            last = rank;
        }
    return gone == mpi->world_size - 1 ? last : -1;
}
