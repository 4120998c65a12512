/* tables.c: MPI's types and ops for ours: a further type, or op, is a line.
 *
 * An op of our own stands where MPI's would differ from what lockstep/group.h promises. Such an op is symmetric in its
 * bits, since MPI may add in either order on either side, and replicas have to be equal.                              */
#include "group/backend/mpi/plugin/state.h"

#include <math.h>

typedef struct reduction {
    bool is_there;
    MPI_Datatype type;
    MPI_Op op;
    MPI_User_function *combine; /* NULL: `op` is MPI's own */
} reduction;

#define THEIRS(mpi_type, mpi_op) \
    { .is_there = true, .type = (mpi_type), .op = (mpi_op) }
#define OURS(mpi_type, function) \
    { .is_there = true, .type = (mpi_type), .combine = (function) }

#define SUM(a, b) ((a) + (b))
#define MAX_INTEGER(a, b) ((a) > (b) ? (a) : (b))
/* The larger, a NaN if there is one, and of two zeros the positive. */
#define MAX(a, b) ((a) != (a) || (b) != (b) ? NAN : (a) > (b) || ((a) == (b) && !signbit(a)) ? (a) : (b))

#define COMBINE(name, element, OP)                                            \
    static void name(void *in, void *inout, int *count, MPI_Datatype *type) { \
        const element *a = in;                                                \
        element *b = inout;                                                   \
        (void)type;                                                           \
        for (int i = 0; i < *count; i++) b[i] = (element)OP(a[i], b[i]);      \
    }

COMBINE(sum_u8, uint8_t, SUM)
COMBINE(max_u8, uint8_t, MAX_INTEGER)
COMBINE(max_f32, float, MAX)
COMBINE(max_f64, double, MAX)

static reduction reductions[LS_OP_COUNT][LS_DTYPE_COUNT] = {
    [LS_SUM] = {[LS_F32] = THEIRS(MPI_FLOAT, MPI_SUM),
                [LS_F64] = THEIRS(MPI_DOUBLE, MPI_SUM),
                [LS_I64] = THEIRS(MPI_UINT64_T, MPI_SUM), /* unsigned: it wraps around */
                [LS_U8] = OURS(MPI_UINT8_T, sum_u8)},     /* Open MPI 4.1 stops at 255 (AVX) */
    [LS_MAX] = {[LS_F32] = OURS(MPI_FLOAT, max_f32),      /* MPI's own loses a NaN */
                [LS_F64] = OURS(MPI_DOUBLE, max_f64),
                [LS_I64] = THEIRS(MPI_INT64_T, MPI_MAX),
                [LS_U8] = OURS(MPI_UINT8_T, max_u8)}, /* MPICH 4.0 takes 200 for negative */
    /* The sum; op.c divides it. */
    [LS_AVERAGE] = {[LS_F32] = THEIRS(MPI_FLOAT, MPI_SUM), [LS_F64] = THEIRS(MPI_DOUBLE, MPI_SUM)},
    [LS_BITWISE_OR] = {[LS_I64] = THEIRS(MPI_UINT64_T, MPI_BOR), [LS_U8] = THEIRS(MPI_UINT8_T, MPI_BOR)},
};

ls_status mpi_create_ops(void) {
    for (int op = 0; op < LS_OP_COUNT; op++)
        for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++) {
            reduction *entry = &reductions[op][dtype];
            if (entry->combine) MPI_TRY(MPI_Op_create(entry->combine, 1, &entry->op), "an op of ours");
        }
    return LS_OK;
}

bool mpi_reduction_for(ls_dtype dtype, ls_op op, MPI_Datatype *type, MPI_Op *combine) {
    if ((unsigned)dtype >= LS_DTYPE_COUNT || (unsigned)op >= LS_OP_COUNT) return false;
    const reduction *entry = &reductions[op][dtype];
    *type = entry->type;
    *combine = entry->op;
    return entry->is_there;
}
