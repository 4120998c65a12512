/* op.c: what all ops share: checking, recording, handing out the result, delivering gradients. */
#include "autograd/op.h"

#include "autograd/leaf.h"
#include "autograd/state.h"
#include "autograd/step.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

op_call op_begin(const autograd_op *op, ls_tensor *const *inputs, int count) {
    op_call call = {.op = op};
    if (inputs[0]->dtype != LS_F32 && inputs[0]->dtype != LS_F64) {
        op_refuse(&call, "elements of type %s; expected f32 or f64", ls_dtype_name(inputs[0]->dtype));
        return call;
    }
    call.kernels = kernels_for(inputs[0]->dtype);
    if (!call.kernels) { /* a choice of kernels in the environment that cannot be met */
        call.status = LS_ERR_ENVIRONMENT;
        return call;
    }
    for (int i = 1; i < count; i++) {
        if (!inputs[i] || inputs[i]->dtype == inputs[0]->dtype) continue;
        op_refuse(&call, "inputs of type %s and %s; expected one type", ls_dtype_name(inputs[0]->dtype),
                  ls_dtype_name(inputs[i]->dtype));
        return call;
    }
    /* Without a node nothing is saved, and op_save and op_wants have nothing to do. */
    if (!node_is_needed(inputs, count)) return call;
    call.node = node_create(op, inputs, count, 0);
    if (!call.node) call.status = LS_ERR_MEMORY;
    return call;
}

/* The elements are not zeroed: every kernel stores all of them. */
bool op_output(op_call *call, int ndim, const int64_t *dims, ls_layout layout) {
    if (call->status == LS_OK) /* The type of the kernels is the inputs' own. */
        call->status = tensor_create_raw(&call->output, call->kernels->dtype, ndim, dims, layout);
    return call->status == LS_OK;
}

bool op_output_like(op_call *call, const ls_tensor *tensor) {
    return op_output(call, tensor->ndim, tensor->dims, tensor->layout);
}

bool op_output_scalar(op_call *call) {
    return op_output(call, 0, NULL, LS_LAYOUT_PLAIN);
}

void op_refuse(op_call *call, const char *format, ...) {
    /* The first reason is the one that is told. */
    if (call->status != LS_OK) return;
    char text[LS_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    call->status = ls_fail(LS_ERR_ARGUMENT, "%s: %s", call->op->name, text);
}

/* A gradient flows where there is an edge. */
bool op_wants(const op_call *call, int input) {
    return call->node && (call->node->edges[input].node || call->node->edges[input].leaf);
}

void op_save(op_call *call, int slot, const char *name, const ls_tensor *tensor) {
    /* Without a node nothing will read it: an evaluation keeps no activations. */
    if (call->status == LS_OK && call->node) call->status = node_save(call->node, slot, name, tensor);
}

ls_tensor *op_end(op_call *call) {
    if (call->status == LS_OK) {
        /* From here on the output holds the node, and the scope the output. */
        if (call->node) node_attach(call->node, call->output);
        call->node = NULL; /* the output's */
        /* From a step, or a module's forward, it is let go at that one's end; outside, by the caller. */
        call->output = autograd_hold(call->output);
        if (!call->output) call->status = LS_ERR_MEMORY;
    } else {
        /* The node was never attached: letting go of it frees what it saved. */
        ls_tensor_close(&call->output);
        node_let_go(call->node);
    }
    autograd_fail(call->status);
    return call->output;
}

/* ---- Backward ---- */

bool op_is_wanted(const backward_call *call, int input) {
    return call->node->edges[input].node || call->node->edges[input].leaf;
}

ls_tensor *op_make_gradient(const backward_call *call, int input) {
    const autograd_node *node = call->node->edges[input].node;
    const ls_tensor *leaf = call->node->edges[input].leaf;
    ls_tensor *gradient = NULL;
    const ls_status status = node ? tensor_create_raw(&gradient, node->dtype, node->ndim, node->dims, node->layout)
                                  : tensor_create_raw(&gradient, leaf->dtype, leaf->ndim, leaf->dims, leaf->layout);
    return status == LS_OK ? gradient : NULL;
}

/* The first contribution is taken as it is; later ones are added to it, in the order of the walk. */
static ls_status node_contribute(autograd_node *node, ls_tensor **gradient) {
    if (!node->grad) {
        node->grad = *gradient;
        *gradient = NULL;
        return LS_OK;
    }
    const ls_kernels *kernels = kernels_for(node->dtype);
    if (!kernels) return LS_ERR_UNSUPPORTED;
    /* In place: what the node has is nobody else's. */
    return kernels->axpy((size_t)node->grad->numel, 1, (*gradient)->data, node->grad->data);
}

ls_status op_give(const backward_call *call, int input, ls_tensor **gradient) {
    /* Closed in any case: a node that took it has set it to NULL. */
    const autograd_edge *edge = &call->node->edges[input];
    const ls_status status =
        edge->node ? node_contribute(edge->node, gradient) : leaf_contribute(leaf_of(edge->leaf), gradient);
    ls_tensor_close(gradient);
    return status;
}

ls_status op_pass(backward_call *call, int input, bool is_last_use) {
    if (!op_is_wanted(call, input)) return LS_OK;
    if (is_last_use) return op_give(call, input, &call->grad);
    /* Two inputs never share a gradient's memory: adding to one would change the other. */
    ls_tensor *copy = op_make_gradient(call, input);
    if (!copy) return LS_ERR_MEMORY;
    memcpy(copy->data, call->grad->data, tensor_bytes(copy));
    return op_give(call, input, &copy);
}

ls_status op_target(const backward_call *call, int input, kernels_target *target) {
    autograd_node *node = call->node->edges[input].node;
    ls_tensor *leaf = call->node->edges[input].leaf;
    *target = (kernels_target){0};
    if (leaf) return leaf_target(leaf_of(leaf), target);
    if (!node) return LS_OK;
    /* A weight that is itself computed: its gradient is an intermediate one. */
    target->accumulate = node->grad != NULL;
    ls_tensor *gradient = node->grad ? node->grad : op_make_gradient(call, input);
    if (!gradient) return LS_ERR_MEMORY;
    node->grad = gradient;
    target->data = gradient->data;
    return LS_OK;
}

void op_target_written(const backward_call *call, int input) {
    const autograd_edge *edge = &call->node->edges[input];
    /* A leaf counts its contributions; a node's turn comes by its sequence. */
    if (edge->leaf) leaf_contributed(leaf_of(edge->leaf));
}
