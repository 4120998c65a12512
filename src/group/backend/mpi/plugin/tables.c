/* tables.c: MPI's types and ops for ours: a further one is a line. What is not here reduce.c combines.
 *
 * Missing are those that would break what lockstep/group.h promises, or that MPI has not: 16-bit floats; maxima and minima of
 * floats, of which MPI loses a NaN; averages whose sum may not fit the type; bytes, but for bitwise ops: Open MPI 4.1
 * adds them with saturation (in AVX), MPICH 4.0 compares unsigned ones as signed. */
#include "group/backend/mpi/plugin/state.h"

#define THEIRS(mpi_type, mpi_op) \
    { .is_there = true, .type = (mpi_type), .op = (mpi_op) }
#define BITWISE(mpi_type)                                                                       \
    [LS_BITWISE_OR] = THEIRS(mpi_type, MPI_BOR), [LS_BITWISE_AND] = THEIRS(mpi_type, MPI_BAND), \
    [LS_BITWISE_XOR] = THEIRS(mpi_type, MPI_BXOR)

/* An average is a sum, divided where it lands. Sums and products of integers are unsigned: they wrap around. */
static const mpi_reduction reductions[LS_DTYPE_COUNT][LS_OP_COUNT] = {
    [LS_F32] = {[LS_SUM] = THEIRS(MPI_FLOAT, MPI_SUM),
                [LS_PRODUCT] = THEIRS(MPI_FLOAT, MPI_PROD),
                [LS_AVERAGE] = THEIRS(MPI_FLOAT, MPI_SUM)},
    [LS_F64] = {[LS_SUM] = THEIRS(MPI_DOUBLE, MPI_SUM),
                [LS_PRODUCT] = THEIRS(MPI_DOUBLE, MPI_PROD),
                [LS_AVERAGE] = THEIRS(MPI_DOUBLE, MPI_SUM)},
    [LS_I8] = {BITWISE(MPI_UINT8_T)},
    [LS_U8] = {BITWISE(MPI_UINT8_T)},
    [LS_I32] = {[LS_SUM] = THEIRS(MPI_UINT32_T, MPI_SUM),
                [LS_PRODUCT] = THEIRS(MPI_UINT32_T, MPI_PROD),
                [LS_MAX] = THEIRS(MPI_INT32_T, MPI_MAX),
                [LS_MIN] = THEIRS(MPI_INT32_T, MPI_MIN),
                BITWISE(MPI_UINT32_T)},
    [LS_I64] = {[LS_SUM] = THEIRS(MPI_UINT64_T, MPI_SUM),
                [LS_PRODUCT] = THEIRS(MPI_UINT64_T, MPI_PROD),
                [LS_MAX] = THEIRS(MPI_INT64_T, MPI_MAX),
                [LS_MIN] = THEIRS(MPI_INT64_T, MPI_MIN),
                [LS_AVERAGE] = THEIRS(MPI_UINT64_T, MPI_SUM),
                BITWISE(MPI_UINT64_T)},
    [LS_BOOL] = {[LS_SUM] = THEIRS(MPI_UINT8_T, MPI_BOR),
                 [LS_PRODUCT] = THEIRS(MPI_UINT8_T, MPI_BAND),
                 [LS_MAX] = THEIRS(MPI_UINT8_T, MPI_BOR),
                 [LS_MIN] = THEIRS(MPI_UINT8_T, MPI_BAND)},
};

const mpi_reduction *mpi_reduction_for(ls_dtype dtype, ls_op op) {
    return reductions[dtype][op].is_there ? &reductions[dtype][op] : NULL;
}
