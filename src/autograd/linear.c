/* linear.c: y = x w^T + b: dx = dy w, dw = dy^T x, db = sum of dy over the batch.
 *
 * The kernel writes dw and db where the leaf wants them, a bucket for instance, storing or adding.                   */
#include "autograd/op.h"

enum { INPUT_X, INPUT_WEIGHT, INPUT_BIAS };
enum { SAVED_X, SAVED_WEIGHT };

static ls_status backward_data(backward_call *call) {
    if (!op_is_wanted(call, INPUT_X)) return LS_OK;
    ls_tensor *gradient = op_make_gradient(call, INPUT_X);
    if (!gradient) return LS_ERR_MEMORY;
    const ls_status status = call->kernels->linear_backward_data(
        &call->node->attributes.linear, call->grad->data, call->node->saved[SAVED_WEIGHT].tensor->data, gradient->data);
    if (status == LS_OK) return op_give(call, INPUT_X, &gradient);
    ls_tensor_close(&gradient);
    return status;
}

/* Before the gradient of x: the parameters of this layer can be reduced while the layers below compute. */
static ls_status backward_weight(backward_call *call) {
    /* Asked for both before the kernel runs: it writes both, or what is refused here writes none. */
    kernels_target weight, bias;
    if (!op_is_wanted(call, INPUT_WEIGHT) && !op_is_wanted(call, INPUT_BIAS)) return LS_OK;
    LS_TRY(op_target(call, INPUT_WEIGHT, &weight));
    LS_TRY(op_target(call, INPUT_BIAS, &bias));
    LS_TRY(call->kernels->linear_backward_weight(
        &call->node->attributes.linear, call->node->saved[SAVED_X].tensor->data, call->grad->data, weight, bias));
    op_target_written(call, INPUT_WEIGHT);
    op_target_written(call, INPUT_BIAS);
    return LS_OK;
}

static ls_status linear_backward(backward_call *call) {
    LS_TRY(backward_weight(call));
    return backward_data(call);
}

static const autograd_op linear_op = {.name = "linear", .backward = linear_backward};

static bool check_shapes(op_call *call, const ls_tensor *x, const ls_tensor *weight, const ls_tensor *bias) {
    char found_x[TENSOR_TEXT_BYTES], found_weight[TENSOR_TEXT_BYTES], found_bias[TENSOR_TEXT_BYTES];
    if (x->ndim != 2 || weight->ndim != 2 || x->dims[1] != weight->dims[1])
        op_refuse(call, "x is %s and weight %s; expected [n, in] and [out, in]", tensor_describe(x, found_x),
                  tensor_describe(weight, found_weight));
    else if (bias && (bias->ndim != 1 || bias->dims[0] != weight->dims[0]))
        op_refuse(call, "bias is %s for a weight of %s; expected [out]", tensor_describe(bias, found_bias),
                  tensor_describe(weight, found_weight));
    return call->status == LS_OK;
}

ls_tensor *ls_linear(ls_tensor *x, ls_tensor *weight, ls_tensor *bias) {
    if (!x || !weight) return NULL;
    op_call call = op_begin(&linear_op, (ls_tensor *[]){x, weight, bias}, 3);
    if (!check_shapes(&call, x, weight, bias)) return op_end(&call);
    const kernels_linear shape = {.batch = x->dims[0], .in = x->dims[1], .out = weight->dims[0]};
    if (op_output(&call, 2, (int64_t[]){shape.batch, shape.out}, LS_LAYOUT_PLAIN))
        call.status =
            call.kernels->linear_forward(&shape, x->data, weight->data, bias ? bias->data : NULL, call.output->data);
    /* A bias alone would not need x, but its kernel is the weight's. */
    if (op_wants(&call, INPUT_WEIGHT) || op_wants(&call, INPUT_BIAS)) op_save(&call, SAVED_X, "input", x);
    if (op_wants(&call, INPUT_X)) op_save(&call, SAVED_WEIGHT, "weight", weight);
    if (call.node) call.node->attributes.linear = shape;
    return op_end(&call);
}
