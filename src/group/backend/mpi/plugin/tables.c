/* tables.c: MPI's types and ops for ours: a further type, or op, is a line.
 *
 * An element goes through MPI in one of three ways: as a type and op of MPI's; as a type of MPI's and an op of ours,
 * where MPI's own would break what lockstep/group.h promises, or MPI has none (16-bit floats, combined in f32 pair by
 * pair); or widened, where even a sum of two does not fit the type (averages of narrow types).
 *
 * Replicas have to be equal bit for bit, and MPI may take either operand first on either side. Where that shows in the
 * bits (the zeros and NaNs of a maximum), the op is declared not to commute: then MPI keeps the ranks' order. */
#include "group/backend/mpi/plugin/state.h"

#define BLOCK_ELEMENTS 512

/* inout = in op inout, by the library's own loops. */
static void combine(ls_op op, ls_dtype dtype, const void *in, void *inout, size_t count) {
    const reduce_kernel *kernel = mpi_here.services->kernel_for(dtype, op);
    if (!kernel->next) {
        kernel->begin(inout, in, inout, count);
        return;
    }
    const size_t element_bytes = mpi_here.services->dtype_size(dtype);
    uint64_t wide[BLOCK_ELEMENTS];
    for (size_t done = 0; done < count; done += BLOCK_ELEMENTS) {
        const size_t now = count - done < BLOCK_ELEMENTS ? count - done : BLOCK_ELEMENTS;
        char *into = (char *)inout + done * element_bytes;
        kernel->begin(wide, (const char *)in + done * element_bytes, into, now);
        kernel->end(into, wide, now, 1);
    }
}

/* MPI tells an op's function neither op nor, for 16-bit floats, type: so there is one for each. */
#define FUNCTION(op, dtype)                                                           \
    static void op##_##dtype(void *in, void *inout, int *count, MPI_Datatype *type) { \
        (void)type;                                                                   \
        combine(LS_##op, LS_##dtype, in, inout, (size_t)*count);                      \
    }
#define FUNCTIONS(dtype) FUNCTION(SUM, dtype) FUNCTION(PRODUCT, dtype) FUNCTION(MAX, dtype) FUNCTION(MIN, dtype)

FUNCTIONS(F16)
FUNCTIONS(BF16)
FUNCTIONS(I8)
FUNCTIONS(U8)
FUNCTION(MAX, F32)
FUNCTION(MIN, F32)
FUNCTION(MAX, F64)
FUNCTION(MIN, F64)

#define THEIRS(mpi_type, mpi_op) \
    { .is_there = true, .type = (mpi_type), .op = (mpi_op) }
#define OURS(mpi_type, op, dtype) \
    { .is_there = true, .type = (mpi_type), .function = op##_##dtype, .commutes = true }
#define ORDERED(mpi_type, op, dtype) \
    { .is_there = true, .type = (mpi_type), .function = op##_##dtype }
#define WIDENED(mpi_type, mpi_op) \
    { .is_there = true, .type = (mpi_type), .op = (mpi_op), .is_widened = true }

/* Sums and products of integers are unsigned: they wrap around. */
static mpi_reduction reductions[LS_DTYPE_COUNT][LS_OP_COUNT] = {
    [LS_F32] = {[LS_SUM] = THEIRS(MPI_FLOAT, MPI_SUM),
                [LS_PRODUCT] = THEIRS(MPI_FLOAT, MPI_PROD),
                [LS_MAX] = ORDERED(MPI_FLOAT, MAX, F32), /* MPI's own loses a NaN */
                [LS_MIN] = ORDERED(MPI_FLOAT, MIN, F32),
                [LS_AVERAGE] = THEIRS(MPI_FLOAT, MPI_SUM)},
    [LS_F64] = {[LS_SUM] = THEIRS(MPI_DOUBLE, MPI_SUM),
                [LS_PRODUCT] = THEIRS(MPI_DOUBLE, MPI_PROD),
                [LS_MAX] = ORDERED(MPI_DOUBLE, MAX, F64),
                [LS_MIN] = ORDERED(MPI_DOUBLE, MIN, F64),
                [LS_AVERAGE] = THEIRS(MPI_DOUBLE, MPI_SUM)},
    [LS_F16] = {[LS_SUM] = OURS(MPI_UINT16_T, SUM, F16),
                [LS_PRODUCT] = OURS(MPI_UINT16_T, PRODUCT, F16),
                [LS_MAX] = ORDERED(MPI_UINT16_T, MAX, F16),
                [LS_MIN] = ORDERED(MPI_UINT16_T, MIN, F16),
                [LS_AVERAGE] = WIDENED(MPI_FLOAT, MPI_SUM)},
    [LS_BF16] = {[LS_SUM] = OURS(MPI_UINT16_T, SUM, BF16),
                 [LS_PRODUCT] = OURS(MPI_UINT16_T, PRODUCT, BF16),
                 [LS_MAX] = ORDERED(MPI_UINT16_T, MAX, BF16),
                 [LS_MIN] = ORDERED(MPI_UINT16_T, MIN, BF16),
                 [LS_AVERAGE] = WIDENED(MPI_FLOAT, MPI_SUM)},
    /* Bytes: Open MPI 4.1 adds them with saturation (in AVX), MPICH 4.0 compares unsigned ones as signed. */
    [LS_I8] = {[LS_SUM] = OURS(MPI_INT8_T, SUM, I8),
               [LS_PRODUCT] = OURS(MPI_INT8_T, PRODUCT, I8),
               [LS_MAX] = OURS(MPI_INT8_T, MAX, I8),
               [LS_MIN] = OURS(MPI_INT8_T, MIN, I8),
               [LS_AVERAGE] = WIDENED(MPI_UINT64_T, MPI_SUM),
               [LS_BITWISE_OR] = THEIRS(MPI_UINT8_T, MPI_BOR),
               [LS_BITWISE_AND] = THEIRS(MPI_UINT8_T, MPI_BAND),
               [LS_BITWISE_XOR] = THEIRS(MPI_UINT8_T, MPI_BXOR)},
    [LS_U8] = {[LS_SUM] = OURS(MPI_UINT8_T, SUM, U8),
               [LS_PRODUCT] = OURS(MPI_UINT8_T, PRODUCT, U8),
               [LS_MAX] = OURS(MPI_UINT8_T, MAX, U8),
               [LS_MIN] = OURS(MPI_UINT8_T, MIN, U8),
               [LS_AVERAGE] = WIDENED(MPI_UINT64_T, MPI_SUM),
               [LS_BITWISE_OR] = THEIRS(MPI_UINT8_T, MPI_BOR),
               [LS_BITWISE_AND] = THEIRS(MPI_UINT8_T, MPI_BAND),
               [LS_BITWISE_XOR] = THEIRS(MPI_UINT8_T, MPI_BXOR)},
    [LS_I32] = {[LS_SUM] = THEIRS(MPI_UINT32_T, MPI_SUM),
                [LS_PRODUCT] = THEIRS(MPI_UINT32_T, MPI_PROD),
                [LS_MAX] = THEIRS(MPI_INT32_T, MPI_MAX),
                [LS_MIN] = THEIRS(MPI_INT32_T, MPI_MIN),
                [LS_AVERAGE] = WIDENED(MPI_UINT64_T, MPI_SUM),
                [LS_BITWISE_OR] = THEIRS(MPI_UINT32_T, MPI_BOR),
                [LS_BITWISE_AND] = THEIRS(MPI_UINT32_T, MPI_BAND),
                [LS_BITWISE_XOR] = THEIRS(MPI_UINT32_T, MPI_BXOR)},
    [LS_I64] = {[LS_SUM] = THEIRS(MPI_UINT64_T, MPI_SUM),
                [LS_PRODUCT] = THEIRS(MPI_UINT64_T, MPI_PROD),
                [LS_MAX] = THEIRS(MPI_INT64_T, MPI_MAX),
                [LS_MIN] = THEIRS(MPI_INT64_T, MPI_MIN),
                [LS_AVERAGE] = THEIRS(MPI_UINT64_T, MPI_SUM),
                [LS_BITWISE_OR] = THEIRS(MPI_UINT64_T, MPI_BOR),
                [LS_BITWISE_AND] = THEIRS(MPI_UINT64_T, MPI_BAND),
                [LS_BITWISE_XOR] = THEIRS(MPI_UINT64_T, MPI_BXOR)},
    [LS_BOOL] = {[LS_SUM] = THEIRS(MPI_UINT8_T, MPI_BOR),
                 [LS_PRODUCT] = THEIRS(MPI_UINT8_T, MPI_BAND),
                 [LS_MAX] = THEIRS(MPI_UINT8_T, MPI_BOR),
                 [LS_MIN] = THEIRS(MPI_UINT8_T, MPI_BAND)},
};

ls_status mpi_create_ops(void) {
    for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++)
        for (int op = 0; op < LS_OP_COUNT; op++) {
            mpi_reduction *entry = &reductions[dtype][op];
            if (entry->function)
                MPI_TRY(MPI_Op_create(entry->function, entry->commutes, &entry->op), "an op of the library's");
        }
    return LS_OK;
}

const mpi_reduction *mpi_reduction_for(ls_dtype dtype, ls_op op) {
    if ((unsigned)dtype >= LS_DTYPE_COUNT || (unsigned)op >= LS_OP_COUNT) return NULL;
    return reductions[dtype][op].is_there ? &reductions[dtype][op] : NULL;
}
