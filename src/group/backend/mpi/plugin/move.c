/* move.c: pieces of the collectives that move data: broadcast, gathers, scatter, all-to-all; and the uneven all-to-all,
 * which goes from rank to rank. Each function begins one and returns MPI's code. */
#include "group/backend/mpi/plugin/state.h"

#include <string.h>

int mpi_begin_barrier(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    (void)op;
    return MPI_Ibarrier(mpi->data, &s->requests[0]);
}

int mpi_begin_broadcast(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    return MPI_Ibcast((char *)op->call.data + s->offset, (int)s->piece_bytes, MPI_BYTE, op->call.root, mpi->data,
                      &s->requests[0]);
}

/* --- rows: each rank's data in one array ------------------------------------------------------------------------- */

/* A piece of every row, for MPI: rows lie op->bytes apart, however long the piece is. `count` of `type` is one of
 * them. */
static int make_rows(const backend_op *op, const mpi_scratch *s, MPI_Datatype *type, int *count) {
    *type = MPI_BYTE;
    *count = (int)s->piece_bytes;
    if (s->piece_bytes == op->bytes) return MPI_SUCCESS;
    MPI_Datatype piece;
    *count = 1;
    int code = MPI_Type_contiguous((int)s->piece_bytes, MPI_BYTE, &piece);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_create_resized(piece, 0, (MPI_Aint)op->bytes, type);
    MPI_Type_free(&piece);
    return code == MPI_SUCCESS ? MPI_Type_commit(type) : code;
}

/* MPI keeps it until the collective is done. */
static void drop_rows(MPI_Datatype *type) {
    if (*type != MPI_BYTE) MPI_Type_free(type);
}

static void copy_piece(const mpi_scratch *s, void *into, const void *from) {
    if (into != from && s->piece_bytes)
        memcpy((char *)into + s->offset, (const char *)from + s->offset, s->piece_bytes);
}

/* This rank's row of the output. */
static char *own_row(const mpi_group *mpi, const backend_op *op) {
    return (char *)op->call.data + (size_t)mpi->rank * op->bytes;
}

/* MPI wants all ranks to send from their place in the output, or none; ours may differ in that, and so all do. */
int mpi_begin_all_gather(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    MPI_Datatype type;
    int count, code = make_rows(op, s, &type, &count);
    if (code != MPI_SUCCESS) return code;
    copy_piece(s, own_row(mpi, op), op->call.send);
    code = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, (char *)op->call.data + s->offset, count, type, mpi->data,
                          &s->requests[0]);
    drop_rows(&type);
    return code;
}

int mpi_begin_gather(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    const int root = op->call.root;
    if (mpi->rank != root)
        return MPI_Igather((const char *)op->call.send + s->offset, (int)s->piece_bytes, MPI_BYTE, NULL, 0, MPI_BYTE,
                           root, mpi->data, &s->requests[0]);
    MPI_Datatype type;
    int count, code = make_rows(op, s, &type, &count);
    if (code != MPI_SUCCESS) return code;
    copy_piece(s, own_row(mpi, op), op->call.send);
    code = MPI_Igather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, (char *)op->call.data + s->offset, count, type, root,
                       mpi->data, &s->requests[0]);
    drop_rows(&type);
    return code;
}

int mpi_begin_scatter(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    const int root = op->call.root;
    if (mpi->rank != root)
        return MPI_Iscatter(NULL, 0, MPI_BYTE, (char *)op->call.data + s->offset, (int)s->piece_bytes, MPI_BYTE, root,
                            mpi->data, &s->requests[0]);
    MPI_Datatype type;
    int count, code = make_rows(op, s, &type, &count);
    if (code != MPI_SUCCESS) return code;
    copy_piece(s, op->call.data, (const char *)op->call.send + (size_t)mpi->rank * op->bytes);
    code = MPI_Iscatter((const char *)op->call.send + s->offset, count, type, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, root,
                        mpi->data, &s->requests[0]);
    drop_rows(&type);
    return code;
}

int mpi_begin_all_to_all(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    MPI_Datatype type;
    int count, code = make_rows(op, s, &type, &count);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Ialltoall((const char *)op->call.send + s->offset, count, type, (char *)op->call.data + s->offset, count,
                         type, mpi->data, &s->requests[0]);
    drop_rows(&type);
    return code;
}

int mpi_begin_rows(const mpi_group *mpi, const backend_op *op, mpi_scratch *s, void *into) {
    MPI_Datatype type;
    int count, code = make_rows(op, s, &type, &count);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Ialltoall((const char *)op->call.send + s->offset, count, type, into, (int)s->piece_bytes, MPI_BYTE,
                         mpi->data, &s->requests[0]);
    drop_rows(&type);
    return code;
}

/* --- from rank to rank ------------------------------------------------------------------------------------------- */

/* In part p a rank sends to the one p places behind it and receives from the one p before; part 0 is its own. MPI's own
 * all-to-all has offsets of an int. */
#define UNEVEN_TAG 1

static size_t rows_before(const size_t *counts, int rank) {
    size_t count = 0;
    for (int before = 0; before < rank; before++) count += counts[before];
    return count;
}

static size_t left_of(size_t bytes, size_t offset) {
    const size_t left = offset < bytes ? bytes - offset : 0;
    return left < MPI_PIECE_BYTES ? left : MPI_PIECE_BYTES;
}

/* Ranks may send more pieces than they receive, or fewer. */
int mpi_begin_uneven(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    const group_call *call = &op->call;
    const size_t element_bytes = mpi_here.services->dtype_size(call->dtype);
    const int to = (mpi->rank + s->part) % mpi->world_size;
    const int from = (mpi->rank - s->part + mpi->world_size) % mpi->world_size;
    const size_t send_bytes = call->send_counts[to] * element_bytes;
    const size_t receive_bytes = call->receive_counts[from] * element_bytes;
    const char *send = (const char *)call->send + rows_before(call->send_counts, to) * element_bytes;
    char *receive = (char *)call->data + rows_before(call->receive_counts, from) * element_bytes;
    s->part_bytes = send_bytes > receive_bytes ? send_bytes : receive_bytes;
    s->piece_bytes = left_of(s->part_bytes, s->offset);
    if (s->part == 0) {
        if (s->piece_bytes) memcpy(receive + s->offset, send + s->offset, s->piece_bytes);
        return MPI_SUCCESS;
    }
    const size_t sent = left_of(send_bytes, s->offset), received = left_of(receive_bytes, s->offset);
    int code = MPI_SUCCESS;
    if (received)
        code = MPI_Irecv(receive + s->offset, (int)received, MPI_BYTE, from, UNEVEN_TAG, mpi->control, &s->requests[0]);
    if (sent && code == MPI_SUCCESS)
        code = MPI_Isend(send + s->offset, (int)sent, MPI_BYTE, to, UNEVEN_TAG, mpi->control, &s->requests[1]);
    return code;
}
