/* rows.h: the four loops that linear and convolution come down to, each over contiguous rows so that compilers
 * vectorise it.
 *
 * A template: included once by each of f32.c and f64.c, after `real` has been defined there. */
#ifndef LS_REFERENCE_ROWS_H
#define LS_REFERENCE_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Partial sums of a dot product: as many as fill the vector registers, added up in a fixed order. */
enum { LANES = 16 };

/* sum_i a[i] b[i] */
static inline real dot(int64_t count, const real *restrict a, const real *restrict b) {
    real lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (int k = 0; k < LANES; k++) lanes[k] += a[i + k] * b[i + k];
    }
    real sum = 0;
    for (int k = 0; k < LANES; k++) sum += lanes[k];
    for (; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* y[i] += x[i] */
static inline void add_row(int64_t count, const real *restrict x, real *restrict y) {
    for (int64_t i = 0; i < count; i++) y[i] += x[i];
}

/* y[j] += sum_i x[i] m[i][j]: row after row, four at a time so that y stays in registers a little longer. */
static inline void add_vector_matrix(int64_t rows, int64_t columns, const real *restrict x, const real *restrict m,
                                     real *restrict y) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const real *const row = m + i * columns;
        const real x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
        for (int64_t j = 0; j < columns; j++) {
            y[j] += x0 * row[j] + x1 * row[columns + j] + x2 * row[2 * columns + j] + x3 * row[3 * columns + j];
        }
    }
    for (; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) y[j] += x[i] * m[i * columns + j];
    }
}

/* y[i] += sum_j m[i][j] x[j] */
static inline void add_matrix_vector(int64_t rows, int64_t columns, const real *restrict m, const real *restrict x,
                                     real *restrict y) {
    for (int64_t i = 0; i < rows; i++) y[i] += dot(columns, m + i * columns, x);
}

/* m[i][j] += a[i] b[j] */
static inline void add_outer_product(int64_t rows, int64_t columns, const real *restrict a, const real *restrict b,
                                     real *restrict m) {
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) m[i * columns + j] += a[i] * b[j];
    }
}

static inline void zero(int64_t count, real *y) {
    for (int64_t i = 0; i < count; i++) y[i] = 0;
}

/* The target as an array to add to: zeroed first where the gradient is to be stored; NULL where it is not wanted. */
static inline real *open_target(kernels_target target, int64_t count) {
    if (target.data && !target.accumulate) zero(count, target.data);
    return target.data;
}

#endif
