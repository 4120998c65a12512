/* oracle.h: what collectives should come to: random elements that every rank can draw for every other, and their serial
 * combination in rank order, written apart from the library's kernels. */
#ifndef LS_TEST_GROUP_ORACLE_H
#define LS_TEST_GROUP_ORACLE_H

#include <lockstep/group.h>

#include <math.h>
#include <string.h>

static inline uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* --- 16-bit floats by their definition ------------------------------------------------------------------------------ */

static inline double decode_half(uint16_t bits, int fraction_bits, int bias) {
    const int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    const int largest = (1 << (15 - fraction_bits)) - 1;
    double value = 0;
    if (exponent == largest)
        value = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - bias - fraction_bits);
    else
        value = ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return bits & 0x8000 ? -value : value;
}

/* Rounds to the nearest number of the grid at this size, ties to the even one. */
static inline uint16_t encode_half(double value, int fraction_bits, int bias) {
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const int largest = (1 << (15 - fraction_bits)) - 1;
    const double size = fabs(value);
    if (isnan(value)) return (uint16_t)(sign | largest << fraction_bits | 1 << (fraction_bits - 1));
    int exponent = size > 0 && isfinite(size) ? ilogb(size) : -bias;
    if (exponent < 1 - bias) exponent = 1 - bias;
    if (isinf(size)) return (uint16_t)(sign | largest << fraction_bits);
    /* Steps of the grid, counted from zero: a carry moves on to the next exponent by itself. */
    const double steps = nearbyint(ldexp(size, fraction_bits - exponent));
    const double code = steps + ldexp(exponent + bias - 1, fraction_bits);
    const double infinite = ldexp(largest, fraction_bits);
    return (uint16_t)(sign | (uint16_t)(code < infinite ? code : infinite));
}

static inline float decode_float(const void *at, ls_dtype dtype) {
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return (float)(dtype == LS_F16 ? decode_half(bits, 10, 15) : decode_half(bits, 7, 127));
}

static inline void encode_float(void *at, ls_dtype dtype, float value) {
    const uint16_t bits = dtype == LS_F16 ? encode_half(value, 10, 15) : encode_half(value, 7, 127);
    memcpy(at, &bits, sizeof bits);
}

/* --- random elements ------------------------------------------------------------------------------------------------- */

/* Element `index` of what rank `rank` has under `seed`. */
static inline void draw(void *data, size_t place, size_t index, ls_dtype dtype, uint64_t seed, int rank) {
    const uint64_t bits = mix(seed ^ mix(index * 64 + (uint64_t)rank));
    const double value = ((double)(bits >> 11) / 9007199254740992.0 - 0.5) * (bits % 7 ? 10.0 : 20000.0);
    void *at = (char *)data + place * ls_dtype_size(dtype);
    const float single = (float)value;
    const uint8_t truth = bits & 1;
    if (dtype == LS_F64)
        memcpy(at, &value, sizeof value);
    else if (dtype == LS_F32)
        memcpy(at, &single, sizeof single);
    else if (dtype == LS_F16 || dtype == LS_BF16)
        encode_float(at, dtype, single);
    else if (dtype == LS_BOOL)
        memcpy(at, &truth, sizeof truth);
    else
        memcpy(at, &bits, ls_dtype_size(dtype));
}

static inline bool is_defined(ls_dtype dtype, ls_op op) {
    const bool is_bitwise = op == LS_BITWISE_OR || op == LS_BITWISE_AND || op == LS_BITWISE_XOR;
    if (is_bitwise) return dtype == LS_I8 || dtype == LS_U8 || dtype == LS_I32 || dtype == LS_I64;
    return !(op == LS_AVERAGE && dtype == LS_BOOL);
}

/* --- their combination ----------------------------------------------------------------------------------------------- */

static inline float combine_f32(ls_op op, float a, float b) {
    return op == LS_PRODUCT ? a * b : op == LS_MAX ? (a > b ? a : b) : op == LS_MIN ? (a < b ? a : b) : a + b;
}

static inline double combine_f64(ls_op op, double a, double b) {
    return op == LS_PRODUCT ? a * b : op == LS_MAX ? (a > b ? a : b) : op == LS_MIN ? (a < b ? a : b) : a + b;
}

static inline int64_t combine_integer(ls_op op, int64_t a, int64_t b) {
    switch (op) {
    case LS_PRODUCT: return (int64_t)((uint64_t)a * (uint64_t)b);
    case LS_MAX: return a > b ? a : b;
    case LS_MIN: return a < b ? a : b;
    case LS_BITWISE_OR: return a | b;
    case LS_BITWISE_AND: return a & b;
    case LS_BITWISE_XOR: return a ^ b;
    default: return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

static inline int64_t read_integer(const void *at, ls_dtype dtype) {
    int64_t wide = 0;
    int32_t word = 0;
    switch (dtype) {
    case LS_I64: memcpy(&wide, at, 8); return wide;
    case LS_I32: memcpy(&word, at, 4); return word;
    case LS_I8: return *(const int8_t *)at;
    default: return *(const uint8_t *)at;
    }
}

/* Sums and products wrap at the end as they would on the way; a maximum never leaves the type. */
static inline void expect_integer(void *into, ls_dtype dtype, ls_op op, const void *const *sources, int ranks) {
    int64_t value = read_integer(sources[0], dtype);
    for (int rank = 1; rank < ranks; rank++) value = combine_integer(op, value, read_integer(sources[rank], dtype));
    if (op == LS_AVERAGE) value /= ranks;
    memcpy(into, &value, ls_dtype_size(dtype)); /* little endian */
}

/* One element of `ranks` sources, serially, in rank order. */
static inline void expect_element(void *into, ls_dtype dtype, ls_op op, const void *const *sources, int ranks) {
    if (dtype == LS_F64) {
        double value = 0, next = 0;
        memcpy(&value, sources[0], sizeof value);
        for (int rank = 1; rank < ranks; rank++) {
            memcpy(&next, sources[rank], sizeof next);
            value = combine_f64(op, value, next);
        }
        if (op == LS_AVERAGE) value /= ranks;
        memcpy(into, &value, sizeof value);
    } else if (dtype == LS_F32) {
        float value = 0, next = 0;
        /* There is at least one rank. NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage) */
        memcpy(&value, sources[0], sizeof value);
        for (int rank = 1; rank < ranks; rank++) {
            memcpy(&next, sources[rank], sizeof next);
            value = combine_f32(op, value, next);
        }
        if (op == LS_AVERAGE) value /= (float)ranks;
        memcpy(into, &value, sizeof value);
    } else if (dtype == LS_F16 || dtype == LS_BF16) {
        float value = decode_float(sources[0], dtype);
        for (int rank = 1; rank < ranks; rank++) value = combine_f32(op, value, decode_float(sources[rank], dtype));
        if (op == LS_AVERAGE) value /= (float)ranks;
        encode_float(into, dtype, value);
    } else if (dtype == LS_BOOL) {
        int set = 0;
        for (int rank = 0; rank < ranks; rank++) set += *(const uint8_t *)sources[rank];
        *(uint8_t *)into = op == LS_SUM || op == LS_MAX ? set > 0 : set == ranks;
    } else {
        expect_integer(into, dtype, op, sources, ranks);
    }
}

#endif
