/* arrays.h: what tests of kernels share: random numbers from a printed seed, and arrays that exist twice.
 *
 * An array holds the same values for two tables: side 0 for the table under test, in its dtype, at an address aligned
 * to the element and no more, and side 1 for the oracle, in f64. Both lie between guards that reveal a write outside.
 */
#ifndef LS_TEST_ARRAYS_H
#define LS_TEST_ARRAYS_H

#include "support/test.h"

#include "tensor/kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Random numbers: splitmix64 (Steele et al., 2014) ---- */

static uint64_t random_state;

/* Seeds from LOCKSTEP_TEST_SEED, else from the clock, and prints the seed. */
static inline void random_open(void) {
    const char *given = getenv("LOCKSTEP_TEST_SEED");
    random_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("LOCKSTEP_TEST_SEED=%llu\n", (unsigned long long)random_state);
}

static inline uint64_t random_bits(void) {
    uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* From [low, high]. */
static inline int64_t random_between(int64_t low, int64_t high) {
    return low + (int64_t)(random_bits() % (uint64_t)(high - low + 1));
}

/* From [-1, 1), a number that f32 holds exactly, so that both sides start from the same values. */
static inline double random_value(void) {
    return (double)(int64_t)(random_bits() >> 40) / (double)(1 << 23) - 1;
}

/* ---- Arrays ---- */

enum { TESTED = 0, ORACLE = 1, GUARD_BYTES = 128, MAX_ARRAYS = 32 };

typedef struct array {
    size_t count;
    ls_dtype dtype[2];
    void *side[2];
    unsigned char *block[2]; /* guard, elements, guard */
} array;

static array arrays[MAX_ARRAYS];
static int array_count;

static inline double element(const array *a, int side, size_t i) {
    if (a->dtype[side] == LS_F32) return (double)((const float *)a->side[side])[i];
    return ((const double *)a->side[side])[i];
}

static inline void set_element(array *a, size_t i, double value) {
    for (int side = 0; side < 2; side++) {
        if (a->dtype[side] == LS_F32) {
            ((float *)a->side[side])[i] = (float)value;
        } else {
            ((double *)a->side[side])[i] = value;
        }
    }
}

/* `count` values that nobody has written yet: NaN, which spreads if a kernel reads it. */
static inline array *array_of(ls_dtype dtype, size_t count) {
    assert_true(array_count < MAX_ARRAYS);
    array *a = &arrays[array_count++];
    *a = (array){.count = count, .dtype = {dtype, LS_F64}};
    for (int side = 0; side < 2; side++) {
        const size_t bytes = count * ls_dtype_size(a->dtype[side]);
        a->block[side] = malloc(bytes + 2 * GUARD_BYTES);
        assert_non_null(a->block[side]);
        memset(a->block[side], 0xA5, bytes + 2 * GUARD_BYTES);
        /* malloc aligns to 16 bytes, so this address is aligned to the element alone. */
        a->side[side] = a->block[side] + GUARD_BYTES - ls_dtype_size(a->dtype[side]);
    }
    for (size_t i = 0; i < count; i++) set_element(a, i, NAN);
    return a;
}

static inline array *random_array(ls_dtype dtype, size_t count) {
    array *a = array_of(dtype, count);
    for (size_t i = 0; i < count; i++) set_element(a, i, random_value());
    return a;
}

static inline double largest_of(const array *a, int side) {
    double largest = 0;
    for (size_t i = 0; i < a->count; i++) largest = fmax(largest, fabs(element(a, side, i)));
    return largest;
}

/* Both sides agree to rounding, measured against the largest value of the array or 1, which is what a drawn value may
 * be: where large terms cancel, their rounding stays. */
static inline void assert_agree(const array *a, const char *what) {
    const double tolerance = (a->dtype[TESTED] == LS_F32 ? 1e-5 : 1e-12) * fmax(largest_of(a, ORACLE), 1);
    for (size_t i = 0; i < a->count; i++) {
        const double tested = element(a, TESTED, i), oracle = element(a, ORACLE, i);
        if (!(fabs(tested - oracle) <= tolerance)) {
            fail_msg("%s: element %zu of %zu is %.9g, the oracle says %.9g", what, i, a->count, tested, oracle);
        }
    }
}

/* Frees all arrays, after a look at their guards. */
static inline void arrays_close(void) {
    for (int k = 0; k < array_count; k++) {
        for (int side = 0; side < 2; side++) {
            const size_t size = ls_dtype_size(arrays[k].dtype[side]);
            const unsigned char *block = arrays[k].block[side], *end = block + arrays[k].count * size + 2 * GUARD_BYTES;
            for (const unsigned char *byte = block; byte < (unsigned char *)arrays[k].side[side]; byte++) {
                assert_int_equal(*byte, 0xA5);
            }
            for (const unsigned char *byte = end - GUARD_BYTES - size; byte < end; byte++)
                assert_int_equal(*byte, 0xA5);
            free(arrays[k].block[side]);
        }
    }
    array_count = 0;
}

/* A target over one side of an array. */
static inline kernels_target target_of(const array *a, int side, bool accumulate) {
    return (kernels_target){.data = a ? a->side[side] : NULL, .accumulate = accumulate};
}

#endif
