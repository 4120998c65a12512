/* reduce.c: pieces of the collectives that combine: all-reduce, reduce, reduce-scatter.
 *
 * Where MPI's own type and op keep what lockstep/group.h promises, MPI combines (tables.c). Elsewhere, and in every
 * reduce-scatter, it moves elements, and the library's loops combine them: in rank order, rounded once.
 *
 *             dealing                          combining             spreading
 *   a piece ----------> each rank has a share ----------> a share ----------> all ranks, or the root, have the piece
 *                       of it from every rank             of the result
 *
 * A reduce-scatter is dealt row by row and needs no spreading. As many bytes travel as at best ("Optimization of
 * collective communication operations in MPICH", Thakur and others, 2005), and 16-bit floats travel as such. */
#include "group/backend/mpi/plugin/state.h"

#include <string.h>

/* Few enough to lie in a cache while they are combined; a share is whole lines, and worth a message. */
#define DEALT_BYTES ((size_t)1 << 20)
#define LEAST_SHARE_BYTES ((size_t)1 << 10)
#define LINE_BYTES ((size_t)64)

/* How a piece is dealt. Lengths and places are in bytes, as MPI takes them. */
struct mpi_deal {
    char *memory;          /* [world_size * most_bytes] this rank's share of every rank's piece */
    size_t most_bytes;     /* of one share */
    void **sources;        /* [world_size] where they lie */
    int *bytes_in, *at_in; /* [world_size] */
    int *bytes, *at;       /* [world_size] every rank's share within the piece */
};

/* One block, which begins with the shares. Those who need it are few, so the first piece makes it. NULL: memory was
 * refused. */
static mpi_deal *deal_of(mpi_group *mpi) {
    if (mpi->deal) return mpi->deal;
    const size_t ranks = (size_t)mpi->world_size, fair_bytes = DEALT_BYTES / ranks / LINE_BYTES * LINE_BYTES;
    const size_t most_bytes = fair_bytes > LEAST_SHARE_BYTES ? fair_bytes : LEAST_SHARE_BYTES;
    char *memory = mpi_here.services->alloc(ranks * (most_bytes + sizeof(void *) + 4 * sizeof(int)) + sizeof(mpi_deal));
    if (!memory) return NULL;
    mpi_deal *deal = (mpi_deal *)(void *)(memory + ranks * most_bytes);
    deal->memory = memory;
    deal->most_bytes = most_bytes;
    deal->sources = (void **)(deal + 1);
    deal->bytes_in = (int *)(deal->sources + ranks);
    deal->at_in = deal->bytes_in + ranks;
    deal->bytes = deal->at_in + ranks;
    deal->at = deal->bytes + ranks;
    mpi->deal = deal;
    return deal;
}

void mpi_free_deal(mpi_group *mpi) {
    if (mpi->deal) mpi_here.services->free(mpi->deal->memory);
}

/* Among all ranks, or where the piece is small, among the first. */
static void divide(const mpi_group *mpi, mpi_deal *deal, size_t piece_bytes) {
    const size_t lines_bytes = LINE_BYTES * (size_t)mpi->world_size;
    size_t share_bytes = (piece_bytes + lines_bytes - 1) / lines_bytes * LINE_BYTES, at = 0;
    if (share_bytes < LEAST_SHARE_BYTES) share_bytes = LEAST_SHARE_BYTES;
    for (int rank = 0; rank < mpi->world_size; rank++, at += share_bytes) {
        const size_t left = at < piece_bytes ? piece_bytes - at : 0;
        deal->at[rank] = (int)(piece_bytes - left);
        deal->bytes[rank] = (int)(left < share_bytes ? left : share_bytes);
    }
}

static int begin_dealing(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    mpi_deal *deal = mpi->deal;
    const bool is_scatter = op->call.kind == GROUP_REDUCE_SCATTER;
    if (!is_scatter) divide(mpi, deal, s->piece_bytes);
    const size_t share_bytes = is_scatter ? s->piece_bytes : (size_t)deal->bytes[mpi->rank];
    for (int rank = 0; rank < mpi->world_size; rank++) {
        deal->bytes_in[rank] = (int)share_bytes;
        deal->at_in[rank] = rank * (int)share_bytes;
        deal->sources[rank] = deal->memory + (size_t)rank * share_bytes;
    }
    if (is_scatter) return mpi_begin_rows(mpi, op, s, deal->memory);
    return MPI_Ialltoallv((const char *)op->call.data + s->offset, deal->bytes, deal->at, MPI_BYTE, deal->memory,
                          deal->bytes_in, deal->at_in, MPI_BYTE, mpi->data, &s->requests[0]);
}

static int begin_spreading(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    const mpi_deal *deal = mpi->deal;
    const void *share = deal->sources[mpi->rank];
    char *piece = (char *)op->call.data + s->offset;
    if (op->call.kind == GROUP_REDUCE)
        return MPI_Igatherv(share, deal->bytes[mpi->rank], MPI_BYTE, piece, deal->bytes, deal->at, MPI_BYTE,
                            op->call.root, mpi->data, &s->requests[0]);
    return MPI_Iallgatherv(share, deal->bytes[mpi->rank], MPI_BYTE, piece, deal->bytes, deal->at, MPI_BYTE, mpi->data,
                           &s->requests[0]);
}

/* The share takes its own place among those of which it is made, or is a reduce-scatter's result. */
static void combine(const mpi_group *mpi, const backend_op *op, const mpi_scratch *s) {
    const mpi_deal *deal = mpi->deal;
    const group_call *call = &op->call;
    const size_t share_bytes = (size_t)deal->bytes_in[0], element_bytes = mpi_here.services->dtype_size(call->dtype);
    void *into = deal->sources[mpi->rank];
    if (call->kind == GROUP_REDUCE_SCATTER) into = (char *)call->data + s->offset;
    if (mpi->world_size > 1)
        mpi_here.services->reduce_into(mpi_here.services->kernel_for(call->dtype, call->op), element_bytes,
                                       deal->sources, mpi->world_size, 0, share_bytes / element_bytes, into);
    else if (into != deal->memory)
        memcpy(into, deal->memory, share_bytes);
}

/* MPI's own; NULL: the library combines. */
static const mpi_reduction *reduction_of(const group_call *call) {
    return call->kind == GROUP_REDUCE_SCATTER ? NULL : mpi_reduction_for(call->dtype, call->op);
}

int mpi_begin_reduction(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    const group_call *call = &op->call;
    const mpi_reduction *reduction = reduction_of(call);
    char *data = (char *)call->data + s->offset;
    if (!reduction) {
        const mpi_deal *deal = deal_of(mpi);
        if (!deal) return MPI_ERR_NO_MEM;
        /* A row is dealt whole, so its piece has to be a share; another piece is divided into as many as ranks. */
        const size_t shares = call->kind == GROUP_REDUCE_SCATTER ? 1 : (size_t)mpi->world_size;
        const size_t piece_bytes = mpi_piece_bytes(op->bytes, shares * deal->most_bytes);
        if (s->piece_bytes > piece_bytes) s->piece_bytes = piece_bytes;
        return s->is_dealt ? begin_spreading(mpi, op, s) : begin_dealing(mpi, op, s);
    }
    const int count = (int)(s->piece_bytes / mpi_here.services->dtype_size(call->dtype));
    const bool is_root = call->root == mpi->rank;
    if (call->kind == GROUP_ALL_REDUCE)
        return MPI_Iallreduce(MPI_IN_PLACE, data, count, reduction->type, reduction->op, mpi->data, &s->requests[0]);
    return MPI_Ireduce(is_root ? MPI_IN_PLACE : data, is_root ? data : NULL, count, reduction->type, reduction->op,
                       call->root, mpi->data, &s->requests[0]);
}

/* MPI has no average: its sum is divided where it lands. */
static void divide_sum(const mpi_group *mpi, const backend_op *op, const mpi_scratch *s) {
    const group_call *call = &op->call;
    char *data = (char *)call->data + s->offset;
    const size_t count = s->piece_bytes / mpi_here.services->dtype_size(call->dtype);
    if (call->op == LS_AVERAGE && (call->kind == GROUP_ALL_REDUCE || call->root == mpi->rank))
        mpi_here.services->kernel_for(call->dtype, call->op)->end(data, data, count, mpi->world_size);
}

bool mpi_finish_reduction(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    if (reduction_of(&op->call)) {
        divide_sum(mpi, op, s);
        return true;
    }
    /* Dealing has ended, then spreading: each piece is begun twice, a reduce-scatter's once. */
    s->is_dealt = !s->is_dealt;
    if (s->is_dealt) combine(mpi, op, s);
    if (op->call.kind == GROUP_REDUCE_SCATTER) s->is_dealt = false;
    return !s->is_dealt;
}
