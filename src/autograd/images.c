/* images.c: convolution and max-pooling, on nhwc images. */
#include "autograd/op.h"
#include "autograd/reorder.h"
#include "autograd/step.h"

#include "tensor/arena.h"

/* ---- Convolution: formulas in tensor/kernels/kernels.h ---- */

enum { INPUT_X, INPUT_WEIGHT, INPUT_BIAS };
enum { SAVED_X, SAVED_WEIGHT };

/* The version lets the kernels keep a packed copy of the weight. */
static ls_status conv2d_backward_data(backward_call *call) {
    if (!op_is_wanted(call, INPUT_X)) return LS_OK;
    /* As the forward saw it: node_check_saved has made sure. */
    const ls_tensor *weight = call->node->saved[SAVED_WEIGHT].tensor;
    ls_tensor *gradient = op_make_gradient(call, INPUT_X);
    if (!gradient) return LS_ERR_MEMORY;
    const ls_status status = call->kernels->conv2d_backward_data(
        &call->node->attributes.conv2d, call->grad->data, weight->data, ls_tensor_version(weight), gradient->data);
    if (status == LS_OK) return op_give(call, INPUT_X, &gradient);
    ls_tensor_close(&gradient);
    return status;
}

/* Straight into the leaves' memory, a bucket for instance. */
static ls_status conv2d_backward_weight(backward_call *call) {
    kernels_target weight, bias;
    if (!op_is_wanted(call, INPUT_WEIGHT) && !op_is_wanted(call, INPUT_BIAS)) return LS_OK;
    LS_TRY(op_target(call, INPUT_WEIGHT, &weight));
    LS_TRY(op_target(call, INPUT_BIAS, &bias));
    LS_TRY(call->kernels->conv2d_backward_weight(
        &call->node->attributes.conv2d, call->node->saved[SAVED_X].tensor->data, call->grad->data, weight, bias));
    op_target_written(call, INPUT_WEIGHT);
    op_target_written(call, INPUT_BIAS);
    return LS_OK;
}

/* Parameters first, as in linear.c. */
static ls_status conv2d_backward(backward_call *call) {
    LS_TRY(conv2d_backward_weight(call));
    return conv2d_backward_data(call);
}

static const autograd_op conv2d_op = {.name = "conv2d", .backward = conv2d_backward};

static bool check_shapes(op_call *call, const ls_tensor *x, const ls_tensor *weight, const ls_tensor *bias) {
    char found_x[TENSOR_TEXT_BYTES], found[TENSOR_TEXT_BYTES];
    if (weight->ndim != 4 || weight->layout != LS_LAYOUT_HWIO || x->dims[1] != weight->dims[1])
        op_refuse(call, "x is %s and weight %s; expected [n, in, h, w] and [out, in, kh, kw] stored hwio",
                  tensor_describe(x, found_x), tensor_describe(weight, found));
    else if (bias && (bias->ndim != 1 || bias->dims[0] != weight->dims[0]))
        op_refuse(call, "bias is %s for %lld output channels; expected [out]", tensor_describe(bias, found),
                  (long long)weight->dims[0]);
    return call->status == LS_OK;
}

/* On images that are nhwc already. */
static ls_tensor *conv2d_nhwc(ls_tensor *x, ls_tensor *weight, ls_tensor *bias, int stride, int padding) {
    if (!x) return NULL;
    op_call call = op_begin(&conv2d_op, (ls_tensor *[]){x, weight, bias}, 3);
    if (!check_shapes(&call, x, weight, bias)) return op_end(&call);
    const kernels_conv2d shape = {.batch = x->dims[0],
                                  .in_channels = x->dims[1],
                                  .in_height = x->dims[2],
                                  .in_width = x->dims[3],
                                  .out_channels = weight->dims[0],
                                  .kernel_height = weight->dims[2],
                                  .kernel_width = weight->dims[3],
                                  .stride = stride,
                                  .padding = padding};
    /* A stride of 0 would divide by it. */
    const int64_t height = stride > 0 ? kernels_conv2d_out_height(&shape) : 0;
    const int64_t width = stride > 0 ? kernels_conv2d_out_width(&shape) : 0;
    if (padding < 0 || height <= 0 || width <= 0)
        op_refuse(&call, "a kernel of %lldx%lld with stride %d and padding %d does not fit on images of %lldx%lld",
                  (long long)shape.kernel_height, (long long)shape.kernel_width, stride, padding,
                  (long long)shape.in_height, (long long)shape.in_width);
    if (op_output(&call, 4, (int64_t[]){shape.batch, shape.out_channels, height, width}, LS_LAYOUT_NHWC))
        call.status = call.kernels->conv2d_forward(&shape, x->data, weight->data, ls_tensor_version(weight),
                                                   bias ? bias->data : NULL, call.output->data);
    /* x for the gradient of the weight, the weight for that of x: a frozen layer saves less. */
    if (op_wants(&call, INPUT_WEIGHT) || op_wants(&call, INPUT_BIAS)) op_save(&call, SAVED_X, "input", x);
    if (op_wants(&call, INPUT_X)) op_save(&call, SAVED_WEIGHT, "weight", weight);
    if (call.node) call.node->attributes.conv2d = shape;
    return op_end(&call);
}

ls_tensor *ls_conv2d(ls_tensor *x, ls_tensor *weight, ls_tensor *bias, int stride, int padding) {
    if (!x || !weight) return NULL;
    if (x->layout == LS_LAYOUT_NHWC) return conv2d_nhwc(x, weight, bias, stride, padding);
    /* The permuted images belong to this call and its place on the tape. */
    const int scope = autograd_scope_open();
    ls_tensor *y = conv2d_nhwc(autograd_to_nhwc(x), weight, bias, stride, padding);
    autograd_fail(autograd_scope_close(scope, &y, 1));
    return y;
}

/* ---- Max-pooling: the gradient goes to where the largest value was ---- */

/* From the places alone: neither input nor output is saved. */
static ls_status max_pool2d_backward(backward_call *call) {
    ls_tensor *gradient = op_make_gradient(call, 0);
    if (!gradient) return LS_ERR_MEMORY;
    const ls_status status = call->kernels->max_pool2d_backward(&call->node->attributes.pool2d, call->grad->data,
                                                                call->node->memory, gradient->data);
    if (status == LS_OK) return op_give(call, 0, &gradient);
    ls_tensor_close(&gradient);
    return status;
}

static const autograd_op max_pool2d_op = {.name = "max_pool2d", .backward = max_pool2d_backward};

static ls_tensor *max_pool2d_nhwc(ls_tensor *x, int kernel, int stride) {
    if (!x) return NULL;
    op_call call = op_begin(&max_pool2d_op, &x, 1);
    const kernels_pool2d shape = {.batch = x->dims[0],
                                  .channels = x->dims[1],
                                  .in_height = x->dims[2],
                                  .in_width = x->dims[3],
                                  .kernel = kernel,
                                  .stride = stride};
    /* As above: what does not fit is refused before the output is made. */
    const int64_t height = stride > 0 ? kernels_pool2d_out_height(&shape) : 0;
    const int64_t width = stride > 0 ? kernels_pool2d_out_width(&shape) : 0;
    if (kernel < 1 || height <= 0 || width <= 0)
        op_refuse(&call, "a window of %d with stride %d does not fit on images of %lldx%lld", kernel, stride,
                  (long long)shape.in_height, (long long)shape.in_width);
    void *argmax = NULL;
    if (op_output(&call, 4, (int64_t[]){shape.batch, shape.channels, height, width}, LS_LAYOUT_NHWC)) {
        /* Kept by the node, or given back below when nothing is recorded. */
        argmax = arena_take((size_t)call.output->numel * sizeof(int32_t));
        call.status =
            argmax ? call.kernels->max_pool2d_forward(&shape, x->data, call.output->data, argmax) : LS_ERR_MEMORY;
    }
    if (call.node) {
        call.node->attributes.pool2d = shape;
        call.node->memory = argmax;
    } else {
        arena_give(argmax);
    }
    return op_end(&call);
}

ls_tensor *ls_max_pool2d(ls_tensor *x, int kernel, int stride) {
    if (!x) return NULL;
    if (x->layout == LS_LAYOUT_NHWC) return max_pool2d_nhwc(x, kernel, stride);
    const int scope = autograd_scope_open();
    ls_tensor *y = max_pool2d_nhwc(autograd_to_nhwc(x), kernel, stride);
    autograd_fail(autograd_scope_close(scope, &y, 1));
    return y;
}
