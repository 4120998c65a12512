/* elementwise.h: one element at a time. Outputs may be inputs: no pointer is `restrict`. A template as rows.h. */
#ifndef LS_REFERENCE_ELEMENTWISE_H
#define LS_REFERENCE_ELEMENTWISE_H

#include <stddef.h>
#include <stdint.h>

static ls_status relu_forward(size_t count, const void *x, void *y) {
    const real *const from = x;
    real *const to = y;
    /* Compared this way round, NaN stays NaN. */
    for (size_t i = 0; i < count; i++) to[i] = from[i] < 0 ? 0 : from[i];
    return LS_OK;
}

static ls_status relu_backward(size_t count, const void *y, const void *dy, void *dx) {
    const real *const output = y, *const above = dy;
    real *const to = dx;
    for (size_t i = 0; i < count; i++) {
        const real gradient = above[i]; /* read in any case, so that the loop has no branch */
        /* Compared this way round, a NaN of the forward lets the gradient through, as in PyTorch. */
        to[i] = output[i] <= 0 ? 0 : gradient;
    }
    return LS_OK;
}

static ls_status add(size_t count, const void *a, const void *b, void *y) {
    const real *const left = a, *const right = b;
    real *const to = y;
    for (size_t i = 0; i < count; i++) to[i] = left[i] + right[i];
    return LS_OK;
}

static ls_status mul(size_t count, const void *a, const void *b, void *y) {
    const real *const left = a, *const right = b;
    real *const to = y;
    for (size_t i = 0; i < count; i++) to[i] = left[i] * right[i];
    return LS_OK;
}

static ls_status scale(size_t count, double factor, const void *x, void *y) {
    const real *const from = x;
    real *const to = y;
    for (size_t i = 0; i < count; i++) to[i] = (real)factor * from[i];
    return LS_OK;
}

static ls_status axpy(size_t count, double factor, const void *x, void *y) {
    const real *const from = x;
    real *const to = y;
    /* With a factor of 1 the product is exact: how gradients are added up. */
    for (size_t i = 0; i < count; i++) to[i] += (real)factor * from[i];
    return LS_OK;
}

static ls_status fill(size_t count, double value, void *y) {
    real *const to = y;
    for (size_t i = 0; i < count; i++) to[i] = (real)value;
    return LS_OK;
}

static ls_status mask_scale(size_t count, double factor, const void *x, const uint8_t *mask, void *y) {
    const real *const from = x;
    real *const to = y;
    for (size_t i = 0; i < count; i++) {
        /* Computed in any case: a choice between two values is a vector instruction, a branch is not. */
        const real scaled = (real)factor * from[i];
        to[i] = mask[i] ? scaled : 0;
    }
    return LS_OK;
}

#endif
