/* reduce.c: plain loops, which the compiler turns into vector code. The order of additions is the ranks' order, so the
 * same bits come out whatever the vector length. */
#include "group/reduce.h"

#include <string.h>

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
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define SUM(a, b) ((a) + (b))
#define MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b)) /* a NaN stays */
#define MAX_INTEGER(a, b) ((a) > (b) ? (a) : (b))
#define BITWISE_OR(a, b) ((a) | (b))

#define KERNEL(name, type, OP)                                                                \
    VECTOR_CLONES static void name(void *into, const void *a, const void *b, size_t count) {  \
        __typeof__(type) *to = into;                                                          \
        const type *x = a, *y = b;                                                            \
        INDEPENDENT for (size_t i = 0; i < count; i++) to[i] = (type)OP(x[i], y[i]);          \
    }                                                                                         \
    VECTOR_CLONES static void name##_both(void *restrict a, void *restrict b, size_t count) { \
        __typeof__(type) *restrict x = a, *restrict y = b;                                    \
        INDEPENDENT for (size_t i = 0; i < count; i++) x[i] = y[i] = (type)OP(x[i], y[i]);    \
    }

KERNEL(sum_f32, float, SUM)
KERNEL(sum_f64, double, SUM)
KERNEL(sum_u8, uint8_t, SUM)
KERNEL(sum_i64, uint64_t, SUM) /* unsigned: a sum past the range wraps, as the header promises */
KERNEL(max_f32, float, MAX)
KERNEL(max_f64, double, MAX)
KERNEL(max_u8, uint8_t, MAX_INTEGER)
KERNEL(max_i64, int64_t, MAX_INTEGER)
KERNEL(or_u8, uint8_t, BITWISE_OR)
KERNEL(or_i64, uint64_t, BITWISE_OR)

#define BOTH(name) \
    { name, name##_both }

static const reduce_kernel kernels[LS_OP_COUNT][LS_DTYPE_COUNT] = {
    [LS_SUM] = {[LS_F32] = BOTH(sum_f32), [LS_F64] = BOTH(sum_f64), [LS_U8] = BOTH(sum_u8), [LS_I64] = BOTH(sum_i64)},
    [LS_MAX] = {[LS_F32] = BOTH(max_f32), [LS_F64] = BOTH(max_f64), [LS_U8] = BOTH(max_u8), [LS_I64] = BOTH(max_i64)},
    [LS_BITWISE_OR] = {[LS_U8] = BOTH(or_u8), [LS_I64] = BOTH(or_i64)},
};

const reduce_kernel *reduce_kernel_for(ls_dtype dtype, ls_op op) {
    if ((unsigned)dtype >= LS_DTYPE_COUNT || (unsigned)op >= LS_OP_COUNT) return NULL;
    const reduce_kernel *kernel = &kernels[op][dtype];
    return kernel->combine ? kernel : NULL;
}

/* Fits the first-level cache beside the sources' lines. */
#define BLOCK_BYTES 8192

/* The sum of one block, in `block`. */
static void combine_block(const reduce_kernel *kernel, void *const *sources, int source_count, size_t at, size_t count,
                          char *block) {
    kernel->combine(block, (char *)sources[0] + at, (char *)sources[1] + at, count);
    for (int i = 2; i < source_count; i++) kernel->combine(block, block, (char *)sources[i] + at, count);
}

void reduce_in_place(const reduce_kernel *kernel, size_t element_bytes, void *const *sources, int source_count,
                     size_t offset_bytes, size_t count) {
    if (source_count == 2) {
        kernel->combine_both((char *)sources[0] + offset_bytes, (char *)sources[1] + offset_bytes, count);
        return;
    }
    _Alignas(64) char block[BLOCK_BYTES];
    const size_t most = BLOCK_BYTES / element_bytes;
    for (size_t done = 0, now; done < count; done += now) {
        now = count - done < most ? count - done : most;
        const size_t at = offset_bytes + done * element_bytes;
        combine_block(kernel, sources, source_count, at, now, block);
        for (int i = 0; i < source_count; i++) memcpy((char *)sources[i] + at, block, now * element_bytes);
    }
}

void reduce_into(const reduce_kernel *kernel, size_t element_bytes, void *const *sources, int source_count,
                 size_t offset_bytes, size_t count, void *into) {
    if (source_count == 2) {
        kernel->combine(into, (char *)sources[0] + offset_bytes, (char *)sources[1] + offset_bytes, count);
        return;
    }
    _Alignas(64) char block[BLOCK_BYTES];
    const size_t most = BLOCK_BYTES / element_bytes;
    for (size_t done = 0, now; done < count; done += now) {
        now = count - done < most ? count - done : most;
        combine_block(kernel, sources, source_count, offset_bytes + done * element_bytes, now, block);
        memcpy((char *)into + done * element_bytes, block, now * element_bytes);
    }
}

#define LINE_BYTES 64
#define AHEAD_BYTES ((size_t)1024)

static void fetch_for_writing(char *at, size_t bytes) {
    for (size_t line = 0; line < bytes; line += LINE_BYTES) {
#if defined(__x86_64__)
        __asm__ volatile("prefetchw %0" : : "m"(at[line])); /* the compiler's own builtin would fetch for reading */
#else
        __builtin_prefetch(&at[line], 1);
#endif
    }
}

/* A call of the C library's memcpy: in line, the compiler's string move is slower, and unseen by ThreadSanitizer. */
#if defined(__clang__)
#define OPAQUE __attribute__((noinline))
#else
#define OPAQUE __attribute__((noipa))
#endif

OPAQUE static void copy(void *restrict into, const void *restrict from, size_t bytes) {
    memcpy(into, from, bytes);
}

void copy_for_peers(void *into, const void *from, size_t bytes) {
    char *to = into;
    const char *data = from;
    fetch_for_writing(to, bytes < AHEAD_BYTES ? bytes : AHEAD_BYTES);
    while (bytes > 0) {
        const size_t now = bytes < AHEAD_BYTES ? bytes : AHEAD_BYTES, next = bytes - now;
        fetch_for_writing(to + now, next < AHEAD_BYTES ? next : AHEAD_BYTES);
        copy(to, data, now);
        to += now;
        data += now;
        bytes = next;
    }
}
