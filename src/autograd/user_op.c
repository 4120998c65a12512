/* user_op.c: an op whose backward is the user's. */
#include "autograd/op.h"
#include "autograd/step.h"

#include "tensor/arena.h"

#include <string.h>

/* Zeroed gradients for the inputs that want one, NULL for the others. */
static ls_status make_gradients(backward_call *call, ls_tensor **gradients) {
    for (int i = 0; i < call->node->edge_count; i++) {
        /* NULL tells the callback that it may spare itself that gradient. */
        if (!op_is_wanted(call, i)) continue;
        gradients[i] = op_make_gradient(call, i);
        if (!gradients[i]) return LS_ERR_MEMORY;
        memset(gradients[i]->data, 0, tensor_bytes(gradients[i]));
    }
    return LS_OK;
}

/* Runs the callback: ops that it calls record nothing, and their results end with it. */
static ls_status run_callback(backward_call *call, ls_tensor **gradients) {
    const int scope = autograd_scope_open();
    /* Gradients of gradients are not recorded: a callback's ops are arithmetic here. */
    ls_no_grad_begin();
    const ls_status status =
        call->node->attributes.user.backward(call->node->attributes.user.context, call->grad, gradients);
    ls_no_grad_end();
    autograd_scope_close(scope, NULL, 0);
    return status;
}

static ls_status user_backward(backward_call *call) {
    const int count = call->node->edge_count;
    ls_tensor **gradients = arena_take_zeroed((size_t)count * sizeof(ls_tensor *));
    if (!gradients) return LS_ERR_MEMORY;
    ls_status status = make_gradients(call, gradients);
    if (status == LS_OK) status = run_callback(call, gradients);
    for (int i = 0; i < count && status == LS_OK; i++)
        if (gradients[i]) status = op_give(call, i, &gradients[i]);
    for (int i = 0; i < count; i++) ls_tensor_close(&gradients[i]);
    arena_give(gradients);
    return status;
}

/* When backward has passed the op, or its tape is let go. */
static void user_destroy(autograd_node *node) {
    if (node->attributes.user.destroy) node->attributes.user.destroy(node->attributes.user.context);
}

static const autograd_op user_op = {.backward = user_backward, .destroy = user_destroy};

static ls_status check(const char *name, const ls_tensor *output, ls_tensor *const *inputs, int input_count,
                       ls_backward_function backward) {
    if (!name || !backward || input_count < 1)
        return ls_fail(LS_ERR_ARGUMENT, "ls_op_record: %s: expected a name, a backward function and at least one input",
                       name ? name : "(no name)");
    for (int i = 0; i < input_count; i++) /* The tape would hold itself. */
        if (inputs[i] == output)
            return ls_fail(LS_ERR_ARGUMENT, "ls_op_record: %s: output is input %d; expected a fresh tensor", name, i);
    if (output->attachment)
        return ls_fail(LS_ERR_ARGUMENT, "ls_op_record: %s: output is a leaf or another op's; expected a fresh tensor",
                       name);
    return LS_OK;
}

/* Records the op on the output's tape; `*is_recorded` tells whether the node has the context now. */
static ls_status record(const char *name, ls_tensor *output, ls_tensor *const *inputs, int input_count,
                        ls_backward_function backward, void *context, void (*destroy)(void *context),
                        bool *is_recorded) {
    LS_TRY(check(name, output, inputs, input_count, backward));
    /* Nothing to record is no error: evaluation runs the same code. */
    if (!node_is_needed(inputs, input_count)) return LS_OK;
    /* The name is copied: errors may quote it long after the call. */
    const size_t name_bytes = strlen(name) + 1;
    autograd_node *node = node_create(&user_op, inputs, input_count, name_bytes);
    if (!node) return LS_ERR_MEMORY;
    node->attributes.user.name = memcpy(node_extra(node), name, name_bytes);
    node->attributes.user.backward = backward;
    node->attributes.user.context = context;
    node->attributes.user.destroy = destroy;
    node_attach(node, output);
    *is_recorded = true;
    return LS_OK;
}

static bool has_null(ls_tensor *const *inputs, int count) {
    for (int i = 0; i < count; i++)
        if (!inputs[i]) return true;
    return false;
}

ls_tensor *ls_op_record(const char *name, ls_tensor *output, ls_tensor *const *inputs, int input_count,
                        ls_backward_function backward, void *context, void (*destroy)(void *context)) {
    bool is_recorded = false;
    ls_status status = LS_OK;
    const bool is_null = !output || has_null(inputs, input_count); /* an earlier op failed */
    const bool is_held = output && autograd_is_held(output);       /* ops without gradients have made it, say */
    if (!is_null) status = record(name, output, inputs, input_count, backward, context, destroy, &is_recorded);
    /* With no node to do it later. */
    if (!is_recorded && destroy) destroy(context);
    if (is_null || status != LS_OK) {
        if (!is_held) ls_tensor_close(&output);
        autograd_fail(status);
        return NULL;
    }
    ls_tensor *result = is_held ? output : autograd_hold(output);
    if (!result) autograd_fail(LS_ERR_MEMORY);
    return result;
}
