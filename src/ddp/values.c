/* values.c: loops that the compiler turns into vectors. */
#include "ddp/values.h"

#include <string.h>

/* Infinity and NaN have all bits of the exponent set. Counting instead of leaving early keeps the loop a vector
 * loop. */
static bool f32_are_finite(const float *values, size_t count) {
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & UINT32_C(0x7f800000)) == UINT32_C(0x7f800000);
    }
    return found == 0;
}

static bool f64_are_finite(const double *values, size_t count) {
    uint64_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & UINT64_C(0x7ff0000000000000)) == UINT64_C(0x7ff0000000000000);
    }
    return found == 0;
}

bool values_are_finite(ls_dtype dtype, const void *values, size_t count) {
    return dtype == LS_F32 ? f32_are_finite(values, count) : f64_are_finite(values, count);
}
