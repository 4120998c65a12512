/* leaf.h: leaves: tensors of the user's that require gradients, and where these accumulate. */
#ifndef LS_AUTOGRAD_LEAF_H
#define LS_AUTOGRAD_LEAF_H

#include "autograd/observer.h"
#include "tensor/kernels/kernels.h"
#include "tensor/tensor.h"

typedef struct autograd_leaf {
    tensor_attachment attachment; /* first: a tensor's attachment is its node or its leaf record */
    ls_tensor *tensor;            /* the leaf itself, not held */
    ls_tensor *grad;              /* held: the home, or memory of its own; NULL before the first gradient */
    bool has_grad;                /* `grad` holds a gradient */
    bool requires_grad;

    /* The backward under way. */
    bool is_reached;
    int pending; /* contributions still to come */
    struct autograd_leaf *next;

    autograd_leaf_hook hook;
    void *hook_context;
    int hook_index;
} autograd_leaf;

/* The record of a leaf; NULL for other tensors. */
autograd_leaf *leaf_of(const ls_tensor *tensor);

/* Contributions to the gradient, by one of two ways:
 *   leaf_target, a kernel that writes or adds there, leaf_contributed
 *   leaf_contribute, which copies or adds `gradient`, or takes it over and sets it to NULL
 * The hook is called when the last pending one is in. Errors: LS_ERR_MEMORY. */
ls_status leaf_target(autograd_leaf *leaf, kernels_target *target);
void leaf_contributed(autograd_leaf *leaf);
ls_status leaf_contribute(autograd_leaf *leaf, ls_tensor **gradient);

#endif
