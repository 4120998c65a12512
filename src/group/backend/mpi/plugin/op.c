/* op.c: an operation: non-blocking collectives of MPI, one piece of the data after the other.
 *
 *     start              all calls are alike           last piece
 *   ---------> comparing ------------------> moving ---------------> done
 *       \____________ not compared ___________/ ^___/ next piece
 *
 * Calls are compared under LOCKSTEP_DEBUG=detail, and always where memory or a duplicate is agreed on; else only what MPI
 * itself notices is found, which is data of different sizes. Nothing of an operation is done outside `poll`, so whoever
 * drives makes all calls, and the progress thread tests when nobody else does.                                        */
#include "group/backend/mpi/plugin/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The most bytes of a rank in one collective. MPI counts in int; and Open MPI takes a buffer as large as the piece, which
 * the C library, past 32 MiB, has from the kernel anew each time. A multiple of every element. */
#define PIECE_BYTES ((size_t)16 << 20)

typedef enum mpi_phase { MPI_COMPARING, MPI_MOVING } mpi_phase;

/* An operation's scratch. */
typedef struct mpi_scratch {
    mpi_phase phase;
    bool is_issued; /* `request` is under way */
    MPI_Request request;
    size_t offset, piece_bytes; /* of the piece under way, or next */
} mpi_scratch;

_Static_assert(sizeof(mpi_scratch) <= sizeof((backend_op *)0)->scratch, "an operation's scratch is too small");

/* --- pieces: begin one collective, return MPI's code ---------------------------------------------------------------- */

static int begin_barrier(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    (void)op;
    return MPI_Ibarrier(mpi->data, &s->request);
}

static int begin_broadcast(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    return MPI_Ibcast((char *)op->call.data + s->offset, (int)s->piece_bytes, MPI_BYTE, op->call.root, mpi->data,
                      &s->request);
}

static int begin_all_reduce(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    const size_t element_bytes = op->call.count ? op->bytes / op->call.count : 1;
    MPI_Datatype type;
    MPI_Op combine;
    if (!mpi_reduction_for(op->call.dtype, op->call.op, &type, &combine)) return MPI_ERR_OP;
    return MPI_Iallreduce(MPI_IN_PLACE, (char *)op->call.data + s->offset, (int)(s->piece_bytes / element_bytes), type,
                          combine, mpi->data, &s->request);
}

/* Ranks' pieces lie op->bytes apart, however long a piece is. */
static int begin_gather_of_pieces(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    MPI_Datatype piece, spread;
    int code = MPI_Type_contiguous((int)s->piece_bytes, MPI_BYTE, &piece);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_create_resized(piece, 0, (MPI_Aint)op->bytes, &spread);
    MPI_Type_free(&piece);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_commit(&spread);
    if (code == MPI_SUCCESS)
        code = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, (char *)op->call.data + s->offset, 1, spread,
                              mpi->data, &s->request);
    MPI_Type_free(&spread); /* goes when the collective is done */
    return code;
}

/* MPI wants all ranks to send from their place in the output, or none; ours may differ in that. */
static int begin_all_gather(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    char *place = (char *)op->call.data + (size_t)mpi->rank * op->bytes;
    if (place != op->call.send && s->piece_bytes)
        memcpy(place + s->offset, (const char *)op->call.send + s->offset, s->piece_bytes);
    if (s->piece_bytes < op->bytes) return begin_gather_of_pieces(mpi, op, s);
    return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, op->call.data, (int)op->bytes, MPI_BYTE, mpi->data,
                          &s->request);
}

typedef int (*begin_piece)(const mpi_group *mpi, const backend_op *op, mpi_scratch *s);

/* A further kind is a line. */
static const begin_piece beginnings[GROUP_KIND_COUNT] = {
    [GROUP_ALL_REDUCE] = begin_all_reduce, [GROUP_BROADCAST] = begin_broadcast, [GROUP_ALL_GATHER] = begin_all_gather,
    [GROUP_BARRIER] = begin_barrier,       [GROUP_ALLOCATE] = begin_all_gather, [GROUP_DUPLICATE] = begin_all_gather,
};

bool mpi_carries(const group_call *call) {
    MPI_Datatype type;
    MPI_Op combine;
    return beginnings[call->kind] &&
           (call->kind != GROUP_ALL_REDUCE || mpi_reduction_for(call->dtype, call->op, &type, &combine));
}

/* MPI has no average: a sum, divided. */
static void divide(const mpi_group *mpi, const backend_op *op, const mpi_scratch *s) {
    char *piece = (char *)op->call.data + s->offset;
    if (op->call.dtype == LS_F32)
        for (size_t i = 0; i < s->piece_bytes / sizeof(float); i++)
            ((float *)(void *)piece)[i] /= (float)mpi->world_size;
    else
        for (size_t i = 0; i < s->piece_bytes / sizeof(double); i++) ((double *)(void *)piece)[i] /= mpi->world_size;
}

/* --- comparing ------------------------------------------------------------------------------------------------------ */

static mpi_record record_of(const group_call *call) {
    return (mpi_record){.tag = call->tag,
                        .count = call->count,
                        .kind = (int32_t)call->kind,
                        .dtype = (int32_t)call->dtype,
                        .op = (int32_t)call->op,
                        .root = call->root};
}

static group_call call_of(const mpi_record *record) {
    return (group_call){.kind = (group_kind)record->kind,
                        .dtype = (ls_dtype)record->dtype,
                        .op = (ls_op)record->op,
                        .root = record->root,
                        .count = record->count,
                        .tag = record->tag};
}

static int begin_comparing(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    mpi->records[mpi->rank] = record_of(&op->call);
    return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, mpi->records, (int)sizeof(mpi_record), MPI_BYTE,
                          mpi->data, &s->request);
}

/* All ranks say the same sentence: the first rank whose call differs from rank 0's, and both calls. */
static ls_status compare(const mpi_group *mpi, const backend_op *op) {
    int other = 1;
    while (other < mpi->world_size && memcmp(&mpi->records[0], &mpi->records[other], sizeof(mpi_record)) == 0) other++;
    if (other >= mpi->world_size) return LS_OK;
    char text[CALL_TEXT_BYTES], other_text[CALL_TEXT_BYTES];
    const group_call first = call_of(&mpi->records[0]), differing = call_of(&mpi->records[other]);
    const mpi_services *services = mpi_here.services;
    return services->fail(
        LS_ERR_MISMATCH,
        "rank 0 called %s, rank %d %s, operation %" PRIu64 "; all ranks have to call alike, in the same order",
        services->describe_call(&first, text), other, services->describe_call(&differing, other_text), op->number);
}

/* --- the operation -------------------------------------------------------------------------------------------------- */

void mpi_start(void *state, backend_op *op) {
    (void)state;
    mpi_scratch *s = (mpi_scratch *)(void *)op->scratch;
    const bool is_compared =
        mpi_here.checks_calls || op->call.kind == GROUP_ALLOCATE || op->call.kind == GROUP_DUPLICATE;
    *s = (mpi_scratch){.phase = is_compared ? MPI_COMPARING : MPI_MOVING};
}

static backend_progress fail_op(backend_op *op, ls_status status) {
    op->status = status;
    return BACKEND_FAILED;
}

static backend_progress fail_by(backend_op *op, int code) {
    char call[CALL_TEXT_BYTES], doing[CALL_TEXT_BYTES + 64];
    snprintf(doing, sizeof doing, "operation %" PRIu64 ", %s", op->number,
             mpi_here.services->describe_call(&op->call, call));
    return fail_op(op, mpi_failed(code, doing));
}

static int begin(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    const size_t left = op->bytes - s->offset;
    s->piece_bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    const int code = s->phase == MPI_COMPARING ? begin_comparing(mpi, op, s) : beginnings[op->call.kind](mpi, op, s);
    s->is_issued = code == MPI_SUCCESS;
    atomic_store_explicit(&mpi->in_flight, s->is_issued, memory_order_relaxed);
    return code;
}

/* What is under way has ended. */
static backend_progress go_on(mpi_group *mpi, backend_op *op, mpi_scratch *s) {
    s->is_issued = false;
    atomic_store_explicit(&mpi->in_flight, false, memory_order_relaxed);
    if (s->phase == MPI_COMPARING) {
        const ls_status status = compare(mpi, op);
        if (status != LS_OK) return fail_op(op, status);
        s->phase = MPI_MOVING;
        return BACKEND_MOVED;
    }
    if (op->call.kind == GROUP_ALL_REDUCE && op->call.op == LS_AVERAGE) divide(mpi, op, s);
    s->offset += s->piece_bytes;
    if (s->offset < op->bytes) return BACKEND_MOVED;
    /* Relaxed: tells peers, in a notice, which operations have our part. */
    atomic_store_explicit(&mpi->done, op->number, memory_order_relaxed);
    return BACKEND_DONE;
}

backend_progress mpi_poll(void *state, backend_op *op) {
    mpi_group *mpi = state;
    mpi_scratch *s = (mpi_scratch *)(void *)op->scratch;
    atomic_store_explicit(&mpi->poller, pthread_self(), memory_order_relaxed);
    int code = MPI_SUCCESS, is_complete = 0;
    if (!s->is_issued) code = begin(mpi, op, s);
    if (code == MPI_SUCCESS) code = MPI_Test(&s->request, &is_complete, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return fail_by(op, code);
    return is_complete ? go_on(mpi, op, s) : BACKEND_PENDING;
}
