/* op.c: an operation: non-blocking calls of MPI, one piece of the data after the other.
 *
 *     start              all calls are alike           last piece of the last part
 *   ---------> comparing ------------------> moving -------------------------------> done
 *       \____________ not compared ___________/ ^___/ next piece, next part
 *
 * Calls are compared under LOCKSTEP_DEBUG=detail, and always where memory or a group is agreed on; so are the counts of
 * an uneven all-to-all. Else only what MPI itself notices is found, which is data of different sizes. Nothing of an
 * operation is done outside `poll`, so whoever drives makes all calls, and the progress thread tests when nobody else
 * does. */
#include "group/backend/mpi/plugin/state.h"

#include <string.h>

_Static_assert(sizeof(mpi_scratch) <= sizeof((backend_op *)0)->scratch, "an operation's scratch is too small");

typedef struct kind_of_call {
    int (*begin)(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
    /* When what was begun of a piece has ended: whether the piece is through, or is begun again. NULL: it is. */
    bool (*finish)(mpi_group *mpi, const backend_op *op, mpi_scratch *s);
    bool has_parts; /* one for each rank */
} kind_of_call;

/* A further kind is a line. */
static const kind_of_call kinds[GROUP_KIND_COUNT] = {
    [GROUP_ALL_REDUCE] = {mpi_begin_reduction, mpi_finish_reduction, false},
    [GROUP_REDUCE] = {mpi_begin_reduction, mpi_finish_reduction, false},
    [GROUP_REDUCE_SCATTER] = {mpi_begin_reduction, mpi_finish_reduction, false},
    [GROUP_BROADCAST] = {mpi_begin_broadcast, NULL, false},
    [GROUP_ALL_GATHER] = {mpi_begin_all_gather, NULL, false},
    [GROUP_GATHER] = {mpi_begin_gather, NULL, false},
    [GROUP_SCATTER] = {mpi_begin_scatter, NULL, false},
    [GROUP_ALL_TO_ALL] = {mpi_begin_all_to_all, NULL, false},
    [GROUP_ALL_TO_ALL_UNEVEN] = {mpi_begin_uneven, NULL, true},
    [GROUP_BARRIER] = {mpi_begin_barrier, NULL, false},
    [GROUP_ALLOCATE] = {mpi_begin_all_gather, NULL, false},
    [GROUP_DUPLICATE] = {mpi_begin_all_gather, NULL, false},
    [GROUP_SUBGROUP] = {mpi_begin_all_gather, NULL, false},
};

bool mpi_carries(const group_call *call) {
    return !kind_is_message(call->kind) || mpi_carries_tag(call);
}

/* --- comparing --------------------------------------------------------------------------------------------------- */

static bool is_compared(const group_call *call) {
    return mpi_here.checks_calls || kind_is_agreement(call->kind);
}

static int begin_comparing(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    mpi->records[mpi->rank] = call_record_of(&op->call);
    return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, mpi->records, (int)sizeof(call_record), MPI_BYTE,
                          mpi->data, &s->requests[0]);
}

/* How much each rank has for this one. The counts come into the records' memory, which holds more for each rank. */
static int begin_counting(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    return MPI_Ialltoall(op->call.send_counts, (int)sizeof(size_t), MPI_BYTE, mpi->records, (int)sizeof(size_t),
                         MPI_BYTE, mpi->data, &s->requests[0]);
}

static ls_status compare(const mpi_group *mpi, const backend_op *op, const mpi_scratch *s) {
    if (s->phase == MPI_COMPARING) return mpi_here.services->compare_records(mpi->records, mpi->world_size, op->number);
    return mpi_here.services->compare_counts((const size_t *)(const void *)mpi->records, mpi->rank, mpi->world_size,
                                             op);
}

/* --- the operation ----------------------------------------------------------------------------------------------- */

static mpi_phase phase_after(mpi_phase phase, const group_call *call) {
    if (phase == MPI_STARTED && is_compared(call)) return MPI_COMPARING;
    return phase < MPI_COUNTING && call->kind == GROUP_ALL_TO_ALL_UNEVEN ? MPI_COUNTING : MPI_MOVING;
}

void mpi_start(void *state, backend_op *op) {
    (void)state;
    mpi_scratch *s = (mpi_scratch *)(void *)op->scratch;
    *s = (mpi_scratch){.phase = phase_after(MPI_STARTED, &op->call), .part_bytes = op->bytes};
}

static backend_progress fail_op(backend_op *op, ls_status status) {
    op->status = status;
    return BACKEND_FAILED;
}

backend_progress mpi_fail_op(backend_op *op, int code) {
    char doing[CALL_TEXT_BYTES + 32];
    return fail_op(op, mpi_failed(code, mpi_here.services->describe_op(op, doing)));
}

static int begin(mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    s->requests[0] = s->requests[1] = MPI_REQUEST_NULL;
    s->is_begun = true;
    s->waits_since_ns = 0;
    atomic_fetch_add_explicit(&mpi->in_flight, 1, memory_order_relaxed);
    if (s->phase == MPI_COMPARING) return begin_comparing(mpi, op, s);
    if (s->phase == MPI_COUNTING) return begin_counting(mpi, op, s);
    const size_t left = op->bytes - s->offset, piece_bytes = mpi_piece_bytes(op->bytes, MPI_PIECE_BYTES);
    s->piece_bytes = left < piece_bytes ? left : piece_bytes;
    return kinds[op->call.kind].begin(mpi, op, s);
}

/* Behind a piece: whether another follows. */
static bool move_on(const mpi_group *mpi, const backend_op *op, mpi_scratch *s) {
    s->offset += s->piece_bytes;
    if (s->offset < s->part_bytes) return true;
    s->offset = 0;
    return kinds[op->call.kind].has_parts && ++s->part < mpi->world_size;
}

/* What was begun has ended. */
static backend_progress go_on(mpi_group *mpi, backend_op *op, mpi_scratch *s) {
    s->is_begun = false;
    atomic_fetch_sub_explicit(&mpi->in_flight, 1, memory_order_relaxed);
    if (s->phase != MPI_MOVING) {
        const ls_status status = compare(mpi, op, s);
        if (status != LS_OK) return fail_op(op, status);
        s->phase = phase_after(s->phase, &op->call);
        return BACKEND_MOVED;
    }
    const kind_of_call *kind = &kinds[op->call.kind];
    if ((kind->finish && !kind->finish(mpi, op, s)) || move_on(mpi, op, s)) return BACKEND_MOVED;
    /* Relaxed: tells peers, in a notice, which operations have our part. */
    atomic_store_explicit(&mpi->done, op->number, memory_order_relaxed);
    return BACKEND_DONE;
}

/* Asks for both even if the first is not through: MPI moves data only within its calls. */
static int test(mpi_scratch *s, bool *is_complete) {
    *is_complete = true;
    for (int i = 0; i < 2; i++) {
        int has_ended = 0;
        if (s->requests[i] == MPI_REQUEST_NULL) continue;
        const int code = MPI_Test(&s->requests[i], &has_ended, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) return code;
        *is_complete = *is_complete && has_ended;
    }
    return MPI_SUCCESS;
}

backend_progress mpi_poll(void *state, backend_op *op) {
    mpi_group *mpi = state;
    mpi_scratch *s = (mpi_scratch *)(void *)op->scratch;
    atomic_store_explicit(&mpi->poller, pthread_self(), memory_order_relaxed);
    if (kind_is_message(op->call.kind)) return mpi_poll_message(mpi, op);
    int code = MPI_SUCCESS;
    bool is_complete = false;
    if (!s->is_begun) code = begin(mpi, op, s);
    if (code == MPI_SUCCESS) code = test(s, &is_complete);
    if (code != MPI_SUCCESS) return mpi_fail_op(op, code);
    return is_complete ? go_on(mpi, op, s) : BACKEND_PENDING;
}
