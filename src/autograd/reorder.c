/* reorder.c: flatten, and plain images to nhwc: the logical order stays, dims and layout change.
 *
 * Where the elements lie in that order already, the result is a view; else one pass moves them. Backward is the same
 * the other way round.                                                                                               */
#include "autograd/reorder.h"

#include "autograd/op.h"

/* Whether `a` and a tensor of the given shape both keep their elements in logical order. */
static bool is_view(const ls_tensor *a, int ndim, const int64_t *dims, ls_layout layout) {
    /* Only to ask how it would lie: no storage. */
    ls_tensor shape = {.ndim = ndim, .layout = layout};
    for (int i = 0; i < ndim; i++) shape.dims[i] = dims[i];
    return tensor_is_plain(a) && tensor_is_plain(&shape);
}

/* Moves between two tensors of which at least one is plain. */
static ls_status move(const ls_tensor *from, ls_tensor *to) {
    return to->layout == LS_LAYOUT_PLAIN ? ls_tensor_copy_out(from, to->data) : ls_tensor_copy_in(to, from->data);
}

static ls_status reorder_backward(backward_call *call) {
    const autograd_edge *edge = &call->node->edges[0];
    const ls_tensor *leaf = edge->leaf;
    const int ndim = leaf ? leaf->ndim : edge->node->ndim;
    const int64_t *dims = leaf ? leaf->dims : edge->node->dims;
    const ls_layout layout = leaf ? leaf->layout : edge->node->layout;
    ls_tensor *gradient = NULL;
    if (is_view(call->grad, ndim, dims, layout)) {
        LS_TRY(tensor_create_view(&gradient, call->grad, ndim, dims, layout));
    } else {
        gradient = op_make_gradient(call, 0);
        if (!gradient) return LS_ERR_MEMORY;
        LS_TRY(move(call->grad, gradient)); /* cannot fail */
    }
    ls_tensor_close(&call->grad); /* the view owns the memory alone now */
    return op_give(call, 0, &gradient);
}

static ls_tensor *reorder(op_call *call, const ls_tensor *a, int ndim, const int64_t *dims, ls_layout layout) {
    if (call->status != LS_OK) return op_end(call);
    if (is_view(a, ndim, dims, layout))
        call->status = tensor_create_view(&call->output, a, ndim, dims, layout);
    else if (op_output(call, ndim, dims, layout))
        call->status = move(a, call->output);
    return op_end(call);
}

static const autograd_op flatten_op = {.name = "flatten", .backward = reorder_backward};
static const autograd_op to_nhwc_op = {.name = "to nhwc", .backward = reorder_backward};

ls_tensor *ls_flatten(ls_tensor *a) {
    if (!a) return NULL;
    op_call call = op_begin(&flatten_op, &a, 1);
    if (a->ndim == 0) op_refuse(&call, "a scalar has no first dim to keep; expected [n, ...]");
    int64_t rest = 1;
    for (int i = 1; i < a->ndim; i++) rest *= a->dims[i];
    return reorder(&call, a, 2, (int64_t[]){a->dims[0], rest}, LS_LAYOUT_PLAIN);
}

ls_tensor *autograd_to_nhwc(ls_tensor *a) {
    if (!a) return NULL;
    op_call call = op_begin(&to_nhwc_op, &a, 1);
    char text[TENSOR_TEXT_BYTES];
    if (a->ndim != 4 || a->layout != LS_LAYOUT_PLAIN)
        op_refuse(&call, "images are %s; expected [n, c, h, w], nhwc or plain", tensor_describe(a, text));
    return reorder(&call, a, a->ndim, a->dims, LS_LAYOUT_NHWC);
}
