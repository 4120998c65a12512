/* reduce.c: pieces of the collectives that combine: all-reduce, reduce, reduce-scatter.
 *
 * A reduce-scatter is a reduction to each rank in turn, of the row that is its: as many bytes move as at best, and rows
 * of any length come in pieces. What is widened passes through a buffer of the group's; what lands there is rounded
 * once. */
#include "group/backend/mpi/plugin/state.h"

#define WIDE_BYTES ((size_t)8)
#define WIDE_ELEMENTS ((size_t)64 << 10)

/* One piece: where it comes from, where its result goes, and to whom (negative: to all). */
typedef struct reduction_piece {
    const char *source;
    char *into;
    int root;
    bool lands_here;
} reduction_piece;

static reduction_piece piece_of(const mpi_group *mpi, const backend_op *op, const mpi_scratch *s) {
    const group_call *call = &op->call;
    reduction_piece piece = {.source = (const char *)call->data + s->offset, .into = (char *)call->data + s->offset};
    piece.root = call->kind == GROUP_REDUCE ? call->root : -1;
    if (call->kind == GROUP_REDUCE_SCATTER) {
        piece.source = (const char *)call->send + (size_t)s->part * op->bytes + s->offset;
        piece.root = s->part;
    }
    piece.lands_here = piece.root < 0 || piece.root == mpi->rank;
    return piece;
}

/* Behind the wide elements lie zeros, which are added to widen. They are needed by few, and so come with the first. */
static bool make_wide(mpi_group *mpi) {
    if (!mpi->wide) mpi->wide = mpi_here.services->alloc(2 * WIDE_ELEMENTS * WIDE_BYTES);
    return mpi->wide;
}

static int widen(mpi_group *mpi, const group_call *call, const void *source, size_t count) {
    if (!make_wide(mpi)) return MPI_ERR_NO_MEM;
    const void *zeros = (const char *)mpi->wide + WIDE_ELEMENTS * WIDE_BYTES;
    mpi_here.services->kernel_for(call->dtype, call->op)->begin(mpi->wide, source, zeros, count);
    return MPI_SUCCESS;
}

int mpi_begin_reduction(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    const mpi_reduction *reduction = mpi_reduction_for(op->call.dtype, op->call.op);
    const size_t element_bytes = mpi_here.services->dtype_size(op->call.dtype);
    if (reduction->is_widened && s->piece_bytes > WIDE_ELEMENTS * element_bytes)
        s->piece_bytes = WIDE_ELEMENTS * element_bytes;
    reduction_piece piece = piece_of(mpi, op, s);
    const int count = (int)(s->piece_bytes / element_bytes);
    if (reduction->is_widened) {
        const int code = widen(mpi, &op->call, piece.source, (size_t)count);
        if (code != MPI_SUCCESS) return code;
        piece.source = piece.into = mpi->wide;
    }
    const void *source = piece.lands_here && piece.source == piece.into ? MPI_IN_PLACE : piece.source;
    if (piece.root < 0)
        return MPI_Iallreduce(source, piece.into, count, reduction->type, reduction->op, mpi->data, &s->requests[0]);
    return MPI_Ireduce(source, piece.lands_here ? piece.into : NULL, count, reduction->type, reduction->op, piece.root,
                       mpi->data, &s->requests[0]);
}

/* MPI has no average: a sum, which is divided where it lands. */
void mpi_finish_reduction(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    const reduction_piece piece = piece_of(mpi, op, s);
    const reduce_kernel *kernel = mpi_here.services->kernel_for(op->call.dtype, op->call.op);
    const size_t count = s->piece_bytes / mpi_here.services->dtype_size(op->call.dtype);
    if (op->call.op != LS_AVERAGE || !piece.lands_here) return;
    const bool is_widened = mpi_reduction_for(op->call.dtype, op->call.op)->is_widened;
    kernel->end(piece.into, is_widened ? mpi->wide : piece.into, count, mpi->world_size);
}
