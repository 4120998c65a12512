/* table.h: the reference kernels of one element type. The templates beside this file are included here, once by each
 * of f32.c and f64.c, which define `real`. */
#ifndef LS_REFERENCE_TABLE_H
#define LS_REFERENCE_TABLE_H

#include "tensor/kernels/kernels.h"

#include "base/error.h"

#include "tensor/kernels/reference/conv2d.h"
#include "tensor/kernels/reference/elementwise.h"
#include "tensor/kernels/reference/linear.h"
#include "tensor/kernels/reference/losses.h"
#include "tensor/kernels/reference/optimizers.h"
#include "tensor/kernels/reference/pool2d.h"

static const ls_kernels table = {
    .name = "reference",
    .version = KERNELS_VERSION,
    /* A type has no name that a constant could be made of. */
    .dtype = sizeof(real) == sizeof(float) ? LS_F32 : LS_F64,
    .linear_forward = linear_forward,
    .linear_backward_data = linear_backward_data,
    .linear_backward_weight = linear_backward_weight,
    .conv2d_forward = conv2d_forward,
    .conv2d_backward_data = conv2d_backward_data,
    .conv2d_backward_weight = conv2d_backward_weight,
    .max_pool2d_forward = max_pool2d_forward,
    .max_pool2d_backward = max_pool2d_backward,
    .relu_forward = relu_forward,
    .relu_backward = relu_backward,
    .add = add,
    .mul = mul,
    .scale = scale,
    .axpy = axpy,
    .fill = fill,
    .mask_scale = mask_scale,
    .sum = sum,
    .mean = mean,
    .mse_forward = mse_forward,
    .mse_backward = mse_backward,
    .cross_entropy_forward = cross_entropy_forward,
    .cross_entropy_backward = cross_entropy_backward,
    .sgd_step = sgd_step,
    .adamw_step = adamw_step,
};

#endif
