/* losses.c: cross-entropy over classes, mean squared error. */
#include "autograd/op.h"

/* ---- loss = mean_n(-log softmax(x[n])[label[n]]): dx = dloss (softmax(x) - onehot(label)) / n ---- */

enum { SAVED_PROBABILITIES, SAVED_LABELS };

/* The probabilities are nobody else's: they become the gradient in place. */
static ls_status cross_entropy_backward(backward_call *call) {
    autograd_saved *saved = &call->node->saved[SAVED_PROBABILITIES];
    const ls_tensor *labels = call->node->saved[SAVED_LABELS].tensor;
    const ls_tensor *probabilities = saved->tensor;
    LS_TRY(call->kernels->cross_entropy_backward(probabilities->dims[0], probabilities->dims[1], probabilities->data,
                                                 labels->dtype, labels->data, ls_tensor_item(call->grad),
                                                 saved->tensor->data));
    return op_give(call, 0, &saved->tensor);
}

static const autograd_op cross_entropy_op = {.name = "cross_entropy_loss", .backward = cross_entropy_backward};

/* Their values are looked at by the kernel, which names the sample. */
static bool check_labels(op_call *call, const ls_tensor *logits, const ls_tensor *labels) {
    char found[TENSOR_TEXT_BYTES], found_labels[TENSOR_TEXT_BYTES];
    const bool is_label_type = labels->dtype == LS_I64 || labels->dtype == LS_U8;
    if (logits->ndim != 2 || labels->ndim != 1 || labels->dims[0] != logits->dims[0] || !is_label_type)
        op_refuse(call, "logits are %s and labels %s; expected [n, classes], and i64 or u8 [n]",
                  tensor_describe(logits, found), tensor_describe(labels, found_labels));
    return call->status == LS_OK;
}

ls_tensor *ls_cross_entropy_loss(ls_tensor *logits, const ls_tensor *labels) {
    if (!logits || !labels) return NULL;
    op_call call = op_begin(&cross_entropy_op, &logits, 1);
    ls_tensor *probabilities = NULL;
    /* The softmax is computed for the loss anyway; kept, it is the gradient but for a subtraction. */
    if (check_labels(&call, logits, labels) && op_output_scalar(&call))
        call.status = tensor_create_raw(&probabilities, logits->dtype, 2, logits->dims, LS_LAYOUT_PLAIN);
    if (probabilities)
        call.status = call.kernels->cross_entropy_forward(logits->dims[0], logits->dims[1], logits->data, labels->dtype,
                                                          labels->data, probabilities->data, call.output->data);
    if (probabilities) op_save(&call, SAVED_PROBABILITIES, "probabilities", probabilities);
    op_save(&call, SAVED_LABELS, "labels", labels);
    /* The node has its alias. */
    ls_tensor_close(&probabilities);
    return op_end(&call);
}

/* ---- loss = mean((x - y)^2): dx = dloss 2 (x - y) / numel ---- */

enum { SAVED_X, SAVED_Y };

/* Both are read again: neither is ours to write into. */
static ls_status mse_backward(backward_call *call) {
    const ls_tensor *x = call->node->saved[SAVED_X].tensor, *y = call->node->saved[SAVED_Y].tensor;
    ls_tensor *gradient = op_make_gradient(call, 0);
    if (!gradient) return LS_ERR_MEMORY;
    const ls_status status =
        call->kernels->mse_backward((size_t)x->numel, x->data, y->data, ls_tensor_item(call->grad), gradient->data);
    if (status == LS_OK) return op_give(call, 0, &gradient);
    ls_tensor_close(&gradient);
    return status;
}

static const autograd_op mse_op = {.name = "mse_loss", .backward = mse_backward};

ls_tensor *ls_mse_loss(ls_tensor *x, const ls_tensor *y) {
    if (!x || !y) return NULL;
    op_call call = op_begin(&mse_op, &x, 1);
    char found_x[TENSOR_TEXT_BYTES], found_y[TENSOR_TEXT_BYTES];
    if (!tensor_is_alike(x, y))
        op_refuse(&call, "x is %s and y %s; expected the same type, shape and layout", tensor_describe(x, found_x),
                  tensor_describe(y, found_y));
    if (op_output_scalar(&call))
        call.status = call.kernels->mse_forward((size_t)x->numel, x->data, y->data, call.output->data);
    op_save(&call, SAVED_X, "input", x);
    op_save(&call, SAVED_Y, "target", y);
    return op_end(&call);
}
