/* linear.h: y = x w^T + b and its gradients. A template as rows.h. */
#ifndef LS_REFERENCE_LINEAR_H
#define LS_REFERENCE_LINEAR_H

#include "tensor/kernels/reference/rows.h"

static ls_status linear_forward(const kernels_linear *shape, const void *x, const void *w, const void *b, void *y) {
    const int64_t in = shape->in, out = shape->out;
    for (int64_t n = 0; n < shape->batch; n++) {
        real *const y_row = (real *)y + n * out;
        /* Outputs come unzeroed from the arena. */
        zero(out, y_row);
        if (b) add_row(out, b, y_row);
        add_matrix_vector(out, in, w, (const real *)x + n * in, y_row);
    }
    return LS_OK;
}

static ls_status linear_backward_data(const kernels_linear *shape, const void *dy, const void *w, void *dx) {
    const int64_t in = shape->in, out = shape->out;
    for (int64_t n = 0; n < shape->batch; n++) {
        real *const dx_row = (real *)dx + n * in;
        zero(in, dx_row);
        add_vector_matrix(out, in, (const real *)dy + n * out, w, dx_row);
    }
    return LS_OK;
}

static ls_status linear_backward_weight(const kernels_linear *shape, const void *x, const void *dy, kernels_target dw,
                                        kernels_target db) {
    const int64_t in = shape->in, out = shape->out;
    real *const weight = open_target(dw, out * in);
    real *const bias = open_target(db, out);
    for (int64_t n = 0; n < shape->batch; n++) {
        const real *const x_row = (const real *)x + n * in;
        const real *const dy_row = (const real *)dy + n * out;
        /* Sample after sample: the order of the sum is the batch's, in every run. */
        if (weight) add_outer_product(out, in, dy_row, x_row, weight);
        if (bias) add_row(out, dy_row, bias);
    }
    return LS_OK;
}

#endif
