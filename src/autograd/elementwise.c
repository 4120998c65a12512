/* elementwise.c: ops that work element by element, and sums over all elements. */
#include "autograd/op.h"

/* The second of two inputs that must look alike. */
static bool check_alike(op_call *call, const ls_tensor *a, const ls_tensor *b) {
    char first[TENSOR_TEXT_BYTES], second[TENSOR_TEXT_BYTES];
    if (!tensor_is_alike(a, b))
        op_refuse(call, "inputs are %s and %s; expected the same shape and layout", tensor_describe(a, first),
                  tensor_describe(b, second));
    return call->status == LS_OK;
}

/* ---- y = a + b: da = dy, db = dy ---- */

static ls_status add_backward(backward_call *call) {
    /* Copied for the first unless nobody wants the second, which takes the gradient itself. */
    LS_TRY(op_pass(call, 0, !op_is_wanted(call, 1)));
    return op_pass(call, 1, true);
}

static const autograd_op add_op = {.name = "add", .backward = add_backward};

ls_tensor *ls_add(ls_tensor *a, ls_tensor *b) {
    if (!a || !b) return NULL;
    op_call call = op_begin(&add_op, (ls_tensor *[]){a, b}, 2);
    if (check_alike(&call, a, b) && op_output_like(&call, a))
        call.status = call.kernels->add((size_t)a->numel, a->data, b->data, call.output->data);
    return op_end(&call);
}

/* ---- y = a b: da = dy b, db = dy a ---- */

/* The gradient of one factor, from the other. */
static ls_status mul_by(backward_call *call, int input, const ls_tensor *other) {
    if (!op_is_wanted(call, input)) return LS_OK;
    ls_tensor *gradient = op_make_gradient(call, input);
    if (!gradient) return LS_ERR_MEMORY;
    const ls_status status = call->kernels->mul((size_t)gradient->numel, call->grad->data, other->data, gradient->data);
    if (status == LS_OK) return op_give(call, input, &gradient);
    ls_tensor_close(&gradient);
    return status;
}

static ls_status mul_backward(backward_call *call) {
    LS_TRY(mul_by(call, 0, call->node->saved[1].tensor));
    return mul_by(call, 1, call->node->saved[0].tensor);
}

static const autograd_op mul_op = {.name = "mul", .backward = mul_backward};

ls_tensor *ls_mul(ls_tensor *a, ls_tensor *b) {
    if (!a || !b) return NULL;
    op_call call = op_begin(&mul_op, (ls_tensor *[]){a, b}, 2);
    if (check_alike(&call, a, b) && op_output_like(&call, a))
        call.status = call.kernels->mul((size_t)a->numel, a->data, b->data, call.output->data);
    /* Each factor is saved for the other's sake alone. */
    if (op_wants(&call, 1)) op_save(&call, 0, "first input", a);
    if (op_wants(&call, 0)) op_save(&call, 1, "second input", b);
    return op_end(&call);
}

/* ---- y = factor a: da = factor dy ---- */

/* In place: nobody else has the output's gradient. */
static ls_status scale_backward(backward_call *call) {
    ls_tensor *grad = call->grad;
    LS_TRY(call->kernels->scale((size_t)grad->numel, call->node->attributes.factor, grad->data, grad->data));
    return op_pass(call, 0, true);
}

static const autograd_op scale_op = {.name = "scale", .backward = scale_backward};

ls_tensor *ls_scale(ls_tensor *a, double factor) {
    if (!a) return NULL;
    op_call call = op_begin(&scale_op, (ls_tensor *[]){a}, 1);
    if (op_output_like(&call, a))
        call.status = call.kernels->scale((size_t)a->numel, factor, a->data, call.output->data);
    if (call.node) call.node->attributes.factor = factor;
    return op_end(&call);
}

/* ---- y = max(a, 0): da = y > 0 ? dy : 0, from the output alone, so that the input need not live on ---- */

static ls_status relu_backward(backward_call *call) {
    ls_tensor *grad = call->grad;
    LS_TRY(
        call->kernels->relu_backward((size_t)grad->numel, call->node->saved[0].tensor->data, grad->data, grad->data));
    return op_pass(call, 0, true);
}

static const autograd_op relu_op = {.name = "relu", .backward = relu_backward};

ls_tensor *ls_relu(ls_tensor *a) {
    if (!a) return NULL;
    op_call call = op_begin(&relu_op, (ls_tensor *[]){a}, 1);
    if (op_output_like(&call, a))
        call.status = call.kernels->relu_forward((size_t)a->numel, a->data, call.output->data);
    op_save(&call, 0, "output", call.output);
    return op_end(&call);
}

/* ---- y = factor sum(a), with factor 1 or 1 / numel: da = factor dy in every element ---- */

static ls_status sum_backward(backward_call *call) {
    ls_tensor *gradient = op_make_gradient(call, 0);
    if (!gradient) return LS_ERR_MEMORY;
    const double value = call->node->attributes.factor * ls_tensor_item(call->grad);
    const ls_status status = call->kernels->fill((size_t)gradient->numel, value, gradient->data);
    if (status == LS_OK) return op_give(call, 0, &gradient);
    ls_tensor_close(&gradient);
    return status;
}

static const autograd_op sum_op = {.name = "sum", .backward = sum_backward};
static const autograd_op mean_op = {.name = "mean", .backward = sum_backward};

ls_tensor *ls_sum(ls_tensor *a) {
    if (!a) return NULL;
    op_call call = op_begin(&sum_op, (ls_tensor *[]){a}, 1);
    if (op_output_scalar(&call)) call.status = call.kernels->sum((size_t)a->numel, a->data, call.output->data);
    /* The same backward serves both. */
    if (call.node) call.node->attributes.factor = 1;
    return op_end(&call);
}

ls_tensor *ls_mean(ls_tensor *a) {
    if (!a) return NULL;
    op_call call = op_begin(&mean_op, (ls_tensor *[]){a}, 1);
    if (op_output_scalar(&call)) call.status = call.kernels->mean((size_t)a->numel, a->data, call.output->data);
    if (call.node) call.node->attributes.factor = 1 / (double)a->numel;
    return op_end(&call);
}
