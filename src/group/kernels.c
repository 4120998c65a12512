/* kernels.c: the table of loops that combine elements. Plain loops, which the compiler turns into vector code; what is added
 * to what is the ranks' order, so the same bits come out whatever the vector length. */
#include "group/half.h"
#include "group/reduce.h"

/* One copy of each loop for every generation of vector units, chosen when the program is loaded. Sanitizers are not ready
 * when that happens, clang 14 does not know it. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTOR_CLONES
#endif

/* Operands are the same array or apart: no element depends on an earlier one. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#pragma clang diagnostic ignored "-Wpass-failed" /* sanitizers keep loops from becoming vector code */
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define SUM(a, b) ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))
#define MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b)) /* a NaN on either side stays: it compares false */
#define MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define MAX_INTEGER(a, b) ((a) > (b) ? (a) : (b))
#define MIN_INTEGER(a, b) ((a) < (b) ? (a) : (b))
#define BITWISE_OR(a, b) ((a) | (b))
#define BITWISE_AND(a, b) ((a) & (b))
#define BITWISE_XOR(a, b) ((a) ^ (b))
#define EITHER(a, b) (((a) | (b)) != 0)
#define BOTH_SET(a, b) (((a) != 0) & ((b) != 0))
/* The same bits as a sum and then an average over two ranks, in one pass. */
#define MEAN_OF_TWO(a, b) (((a) + (b)) / 2)

/* into = a op b. */
#define INTO(name, type, OP)                                                                 \
    VECTOR_CLONES static void name(void *into, const void *a, const void *b, size_t count) { \
        __typeof__(type) *to = into;                                                         \
        const type *x = a, *y = b;                                                           \
        INDEPENDENT for (size_t i = 0; i < count; i++) to[i] = (type)OP(x[i], y[i]);         \
    }

/* a = b = a op b, all that two ranks need. */
#define BOTH(name, type, OP)                                                               \
    VECTOR_CLONES static void name(void *restrict a, void *restrict b, size_t count) {     \
        __typeof__(type) *restrict x = a, *restrict y = b;                                 \
        INDEPENDENT for (size_t i = 0; i < count; i++) x[i] = y[i] = (type)OP(x[i], y[i]); \
    }

#define PLAIN(name, type, OP) INTO(name, type, OP) BOTH(name##_both, type, OP)

/* Elements that are combined in a wider type: the first two, and each that follows. */
#define WIDE(name, type, wider, WIDEN, OP)                                                                 \
    VECTOR_CLONES static void name##_begin(void *wide, const void *a, const void *b, size_t count) {       \
        __typeof__(wider) *to = wide;                                                                      \
        const type *x = a, *y = b;                                                                         \
        INDEPENDENT for (size_t i = 0; i < count; i++) to[i] = OP((wider)WIDEN(x[i]), (wider)WIDEN(y[i])); \
    }                                                                                                      \
    VECTOR_CLONES static void name##_next(void *wide, const void *b, size_t count) {                       \
        __typeof__(wider) *to = wide;                                                                      \
        const type *y = b;                                                                                 \
        INDEPENDENT for (size_t i = 0; i < count; i++) to[i] = OP(to[i], (wider)WIDEN(y[i]));              \
    }

/* What was combined becomes the result. */
#define END(name, type, wider, NARROW)                                                      \
    VECTOR_CLONES static void name(void *into, const void *wide, size_t count, int ranks) { \
        __typeof__(type) *to = into;                                                        \
        const wider *from = wide;                                                           \
        (void)ranks;                                                                        \
        INDEPENDENT for (size_t i = 0; i < count; i++) to[i] = (type)NARROW(from[i]);       \
    }

#define AS_IT_IS(a) (a)

PLAIN(sum_f32, float, SUM)
PLAIN(sum_f64, double, SUM)
PLAIN(sum_8, uint8_t, SUM) /* unsigned: a sum or product past the range wraps, as the header promises */
PLAIN(sum_32, uint32_t, SUM)
PLAIN(sum_64, uint64_t, SUM)
PLAIN(product_f32, float, PRODUCT)
PLAIN(product_f64, double, PRODUCT)
PLAIN(product_8, uint8_t, PRODUCT)
PLAIN(product_32, uint32_t, PRODUCT)
PLAIN(product_64, uint64_t, PRODUCT)
PLAIN(max_f32, float, MAX)
PLAIN(max_f64, double, MAX)
PLAIN(max_i8, int8_t, MAX_INTEGER)
PLAIN(max_u8, uint8_t, MAX_INTEGER)
PLAIN(max_i32, int32_t, MAX_INTEGER)
PLAIN(max_i64, int64_t, MAX_INTEGER)
PLAIN(min_f32, float, MIN)
PLAIN(min_f64, double, MIN)
PLAIN(min_i8, int8_t, MIN_INTEGER)
PLAIN(min_u8, uint8_t, MIN_INTEGER)
PLAIN(min_i32, int32_t, MIN_INTEGER)
PLAIN(min_i64, int64_t, MIN_INTEGER)
PLAIN(or_8, uint8_t, BITWISE_OR)
PLAIN(or_32, uint32_t, BITWISE_OR)
PLAIN(or_64, uint64_t, BITWISE_OR)
PLAIN(and_8, uint8_t, BITWISE_AND)
PLAIN(and_32, uint32_t, BITWISE_AND)
PLAIN(and_64, uint64_t, BITWISE_AND)
PLAIN(xor_8, uint8_t, BITWISE_XOR)
PLAIN(xor_32, uint32_t, BITWISE_XOR)
PLAIN(xor_64, uint64_t, BITWISE_XOR)
PLAIN(or_bool, uint8_t, EITHER)
PLAIN(and_bool, uint8_t, BOTH_SET)

WIDE(sum_f16, uint16_t, float, f16_widen, SUM)
WIDE(product_f16, uint16_t, float, f16_widen, PRODUCT)
WIDE(max_f16, uint16_t, float, f16_widen, MAX)
WIDE(min_f16, uint16_t, float, f16_widen, MIN)
WIDE(sum_bf16, uint16_t, float, bf16_widen, SUM)
WIDE(product_bf16, uint16_t, float, bf16_widen, PRODUCT)
WIDE(max_bf16, uint16_t, float, bf16_widen, MAX)
WIDE(min_bf16, uint16_t, float, bf16_widen, MIN)
END(end_f16, uint16_t, float, f16_narrow)
END(end_bf16, uint16_t, float, bf16_narrow)

/* Averages of integers: the sum in 64 bits, then cut toward zero. */
WIDE(wide_i8, int8_t, int64_t, AS_IT_IS, SUM)
WIDE(wide_u8, uint8_t, int64_t, AS_IT_IS, SUM)
WIDE(wide_i32, int32_t, int64_t, AS_IT_IS, SUM)

/* DIVIDED_F64 of int64_t is the division of integers. */
#define DIVIDED(a) ((a) / (float)ranks)
#define DIVIDED_F64(a) ((a) / ranks)
#define DIVIDED_F16(a) f16_narrow((a) / (float)ranks)
#define DIVIDED_BF16(a) bf16_narrow((a) / (float)ranks)
END(average_f32, float, float, DIVIDED)
END(average_f64, double, double, DIVIDED_F64)
END(average_f16, uint16_t, float, DIVIDED_F16)
END(average_bf16, uint16_t, float, DIVIDED_BF16)
END(average_i8, int8_t, int64_t, DIVIDED_F64)
END(average_u8, uint8_t, int64_t, DIVIDED_F64)
END(average_i32, int32_t, int64_t, DIVIDED_F64)
END(average_i64, int64_t, int64_t, DIVIDED_F64)
BOTH(average_f32_both, float, MEAN_OF_TWO)
BOTH(average_f64_both, double, MEAN_OF_TWO)

/* Combined in its own type, or in a wider one that `finish` rounds. */
#define P(size, name) \
    { .wide_bytes = (size), .begin = (name), .both = name##_both }
#define W(size, name, finish) \
    { .wide_bytes = (size), .begin = name##_begin, .next = name##_next, .end = (finish) }

static const reduce_kernel kernels[LS_DTYPE_COUNT][LS_OP_COUNT] = {
    [LS_F32] = {[LS_SUM] = P(4, sum_f32),
                [LS_PRODUCT] = P(4, product_f32),
                [LS_MAX] = P(4, max_f32),
                [LS_MIN] = P(4, min_f32),
                [LS_AVERAGE] = {.wide_bytes = 4, .begin = sum_f32, .end = average_f32, .both = average_f32_both}},
    [LS_F64] = {[LS_SUM] = P(8, sum_f64),
                [LS_PRODUCT] = P(8, product_f64),
                [LS_MAX] = P(8, max_f64),
                [LS_MIN] = P(8, min_f64),
                [LS_AVERAGE] = {.wide_bytes = 8, .begin = sum_f64, .end = average_f64, .both = average_f64_both}},
    [LS_F16] = {[LS_SUM] = W(4, sum_f16, end_f16),
                [LS_PRODUCT] = W(4, product_f16, end_f16),
                [LS_MAX] = W(4, max_f16, end_f16),
                [LS_MIN] = W(4, min_f16, end_f16),
                [LS_AVERAGE] = W(4, sum_f16, average_f16)},
    [LS_BF16] = {[LS_SUM] = W(4, sum_bf16, end_bf16),
                 [LS_PRODUCT] = W(4, product_bf16, end_bf16),
                 [LS_MAX] = W(4, max_bf16, end_bf16),
                 [LS_MIN] = W(4, min_bf16, end_bf16),
                 [LS_AVERAGE] = W(4, sum_bf16, average_bf16)},
    [LS_I8] = {[LS_SUM] = P(1, sum_8),
               [LS_PRODUCT] = P(1, product_8),
               [LS_MAX] = P(1, max_i8),
               [LS_MIN] = P(1, min_i8),
               [LS_AVERAGE] = W(8, wide_i8, average_i8),
               [LS_BITWISE_OR] = P(1, or_8),
               [LS_BITWISE_AND] = P(1, and_8),
               [LS_BITWISE_XOR] = P(1, xor_8)},
    [LS_U8] = {[LS_SUM] = P(1, sum_8),
               [LS_PRODUCT] = P(1, product_8),
               [LS_MAX] = P(1, max_u8),
               [LS_MIN] = P(1, min_u8),
               [LS_AVERAGE] = W(8, wide_u8, average_u8),
               [LS_BITWISE_OR] = P(1, or_8),
               [LS_BITWISE_AND] = P(1, and_8),
               [LS_BITWISE_XOR] = P(1, xor_8)},
    [LS_I32] = {[LS_SUM] = P(4, sum_32),
                [LS_PRODUCT] = P(4, product_32),
                [LS_MAX] = P(4, max_i32),
                [LS_MIN] = P(4, min_i32),
                [LS_AVERAGE] = W(8, wide_i32, average_i32),
                [LS_BITWISE_OR] = P(4, or_32),
                [LS_BITWISE_AND] = P(4, and_32),
                [LS_BITWISE_XOR] = P(4, xor_32)},
    [LS_I64] = {[LS_SUM] = P(8, sum_64),
                [LS_PRODUCT] = P(8, product_64),
                [LS_MAX] = P(8, max_i64),
                [LS_MIN] = P(8, min_i64),
                [LS_AVERAGE] = {.wide_bytes = 8, .begin = sum_64, .end = average_i64},
                [LS_BITWISE_OR] = P(8, or_64),
                [LS_BITWISE_AND] = P(8, and_64),
                [LS_BITWISE_XOR] = P(8, xor_64)},
    /* Whether any is true, and whether all are: the result is 0 or 1 whatever a true one was stored as. */
    [LS_BOOL] =
        {[LS_SUM] = P(1, or_bool), [LS_PRODUCT] = P(1, and_bool), [LS_MAX] = P(1, or_bool), [LS_MIN] = P(1, and_bool)},
};

const reduce_kernel *reduce_kernel_for(ls_dtype dtype, ls_op op) {
    if ((unsigned)dtype >= LS_DTYPE_COUNT || (unsigned)op >= LS_OP_COUNT) return NULL;
    const reduce_kernel *kernel = &kernels[dtype][op];
    return kernel->begin ? kernel : NULL;
}

const reduce_kernel *reduce_kernel_of(const group_call *call) {
    return kind_combines(call->kind) ? reduce_kernel_for(call->dtype, call->op) : NULL;
}
