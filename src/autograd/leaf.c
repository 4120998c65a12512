/* leaf.c: where gradients end: a leaf's own memory, or the home that data parallelism gave it. */
#include "autograd/leaf.h"

#include "autograd/node.h"
#include "base/error.h"
#include "tensor/arena.h"

#include <string.h>

static void release_attachment(tensor_attachment *attachment) {
    autograd_leaf *leaf = (autograd_leaf *)attachment;
    ls_tensor_close(&leaf->grad);
    arena_give(leaf);
}

autograd_leaf *leaf_of(const ls_tensor *tensor) {
    tensor_attachment *attachment = tensor ? tensor->attachment : NULL;
    return attachment && attachment->release == release_attachment ? (autograd_leaf *)attachment : NULL;
}

/* The record, made when there is none yet; NULL with `*status` set when memory is refused or the tensor cannot be a
 * leaf. */
static autograd_leaf *record_of(ls_tensor *tensor, ls_status *status) {
    if (!tensor) {
        *status = ls_fail(LS_ERR_ARGUMENT, "autograd: the leaf is NULL");
        return NULL;
    }
    if (node_of(tensor)) {
        *status = ls_fail(LS_ERR_ARGUMENT,
                          "autograd: an op (%s) returned this tensor; only tensors of the user's own are leaves",
                          node_name(node_of(tensor)));
        return NULL;
    }
    *status = LS_OK;
    if (tensor->attachment) return leaf_of(tensor);
    autograd_leaf *made = arena_take_zeroed(sizeof *made);
    if (!made) {
        *status = LS_ERR_MEMORY;
        return NULL;
    }
    made->attachment.release = release_attachment;
    /* Not held: the record goes with its tensor. */
    made->tensor = tensor;
    tensor->attachment = &made->attachment;
    return made;
}

ls_status ls_tensor_set_requires_grad(ls_tensor *tensor, bool requires_grad) {
    if (tensor && tensor->dtype != LS_F32 && tensor->dtype != LS_F64 && requires_grad)
        return ls_fail(LS_ERR_ARGUMENT, "ls_tensor_set_requires_grad: gradients are f32 or f64, the tensor is %s",
                       ls_dtype_name(tensor->dtype));
    ls_status status = LS_OK;
    autograd_leaf *leaf = record_of(tensor, &status);
    if (!leaf) return status;
    /* A tape that was built before keeps its edge: a leaf is frozen from the next forward on. */
    leaf->requires_grad = requires_grad;
    return LS_OK;
}

/* For a result of an op: whether it was recorded. */
bool ls_tensor_requires_grad(const ls_tensor *tensor) {
    if (!tensor) return false;
    const autograd_leaf *leaf = leaf_of(tensor);
    return leaf ? leaf->requires_grad : node_of(tensor) != NULL;
}

ls_tensor *ls_tensor_grad(const ls_tensor *tensor) {
    const autograd_leaf *leaf = leaf_of(tensor);
    return leaf && leaf->has_grad ? leaf->grad : NULL;
}

/* The memory stays: the next backward stores into it. */
void ls_tensor_zero_grad(ls_tensor *tensor) {
    autograd_leaf *leaf = leaf_of(tensor);
    if (leaf) leaf->has_grad = false;
}

/* ---- Contributions ---- */

/* A leaf without a home gets memory with its first gradient, and keeps it. */
static ls_status make_memory(autograd_leaf *leaf) {
    const ls_tensor *like = leaf->tensor;
    if (leaf->grad) return LS_OK;
    return tensor_create_raw(&leaf->grad, like->dtype, like->ndim, like->dims, like->layout);
}

ls_status leaf_target(autograd_leaf *leaf, kernels_target *target) {
    LS_TRY(make_memory(leaf));
    *target = (kernels_target){.data = leaf->grad->data, .accumulate = leaf->has_grad};
    return LS_OK;
}

void leaf_contributed(autograd_leaf *leaf) {
    /* The kernel wrote through a bare pointer: say so to whoever caches by version. */
    leaf->has_grad = true;
    tensor_touch(leaf->grad);
    if (--leaf->pending == 0 && leaf->hook) leaf->hook(leaf->hook_context, leaf->hook_index);
}

ls_status leaf_contribute(autograd_leaf *leaf, ls_tensor **gradient) {
    /* Added, copied into the memory there is, or taken over as that memory. */
    if (leaf->has_grad) {
        const ls_kernels *kernels = kernels_for(leaf->grad->dtype);
        /* Leaves are f32 or f64, so this is a choice of kernels that cannot be met. */
        if (!kernels) return LS_ERR_UNSUPPORTED;
        LS_TRY(kernels->axpy((size_t)leaf->grad->numel, 1, (*gradient)->data, leaf->grad->data));
    } else if (leaf->grad) {
        memcpy(leaf->grad->data, (*gradient)->data, tensor_bytes(leaf->grad));
    } else {
        leaf->grad = *gradient;
        *gradient = NULL;
    }
    leaf_contributed(leaf);
    return LS_OK;
}

/* ---- What data parallelism asks for ---- */

ls_status autograd_leaf_set_hook(ls_tensor *tensor, autograd_leaf_hook hook, void *context, int index) {
    ls_status status = LS_OK;
    autograd_leaf *leaf = record_of(tensor, &status);
    if (!leaf) return status;
    /* Two averages of one gradient cannot be. */
    if (hook && leaf->hook)
        return ls_fail(LS_ERR_STATE, "its gradient is averaged by another wrap already; close that one first");
    leaf->hook = hook;
    leaf->hook_context = context;
    leaf->hook_index = index;
    return LS_OK;
}

/* Outside a backward no leaf is. */
bool autograd_leaf_is_reached(const ls_tensor *tensor) {
    const autograd_leaf *leaf = leaf_of(tensor);
    return leaf && leaf->is_reached;
}

ls_status autograd_leaf_set_home(ls_tensor *tensor, ls_tensor *home) {
    ls_status status = LS_OK;
    autograd_leaf *leaf = record_of(tensor, &status);
    if (!leaf) return status;
    if (home && !tensor_is_alike(tensor, home)) {
        char expected[TENSOR_TEXT_BYTES], found[TENSOR_TEXT_BYTES];
        return ls_fail(LS_ERR_ARGUMENT, "autograd: the home of a gradient is %s, the leaf is %s",
                       tensor_describe(home, found), tensor_describe(tensor, expected));
    }
    /* Memory of its own is made only for a gradient that has to go somewhere. */
    ls_tensor *place = ls_tensor_keep(home);
    if (!place && leaf->has_grad)
        LS_TRY(tensor_create_raw(&place, tensor->dtype, tensor->ndim, tensor->dims, tensor->layout));
    /* The same memory twice happens when a home is set again. */
    if (leaf->has_grad && place->data != leaf->grad->data) memcpy(place->data, leaf->grad->data, tensor_bytes(place));
    if (place) tensor_touch(place);
    ls_tensor_close(&leaf->grad);
    leaf->grad = place;
    return LS_OK;
}

void autograd_leaf_set_has_grad(ls_tensor *tensor, bool has_grad) {
    autograd_leaf *leaf = leaf_of(tensor);
    /* Without memory there is nothing that could hold one. */
    if (leaf && leaf->grad) leaf->has_grad = has_grad;
}
