/* op.h: how an op is written: a forward that fills in an op_call, a backward that answers a backward_call.
 *
 *     static ls_status relu_backward(backward_call *call) {                   static const autograd_op relu_op = {
 *         ...the gradient of input 0 from call->grad, then op_give(...)            .name = "relu", .backward = relu_backward};
 *     }
 *     ls_tensor *ls_relu(ls_tensor *a) {
 *         if (!a) return NULL;
 *         op_call call = op_begin(&relu_op, (ls_tensor *[]){a}, 1);           records the inputs where gradients are wanted
 *         if (op_output_like(&call, a)) call.status = call.kernels->relu_forward(...);
 *         op_save(&call, 0, "output", call.output);
 *         return op_end(&call);                                               the result, or NULL with the failure kept
 *     }
 *
 * A call's status sticks: after a failure every function here does nothing. */
#ifndef LS_AUTOGRAD_OP_H
#define LS_AUTOGRAD_OP_H

#include "autograd/node.h"
#include "base/error.h"

typedef struct op_call {
    const autograd_op *op;
    const ls_kernels *kernels; /* for the inputs' dtype */
    ls_tensor *output;
    autograd_node *node; /* NULL when nothing is recorded */
    ls_status status;
} op_call;

/* Checks that the inputs (NULLs are skipped, the first is none) have one dtype, f32 or f64, and makes the node if
 * needed. */
op_call op_begin(const autograd_op *op, ls_tensor *const *inputs, int count);

/* Makes the output. True when the call is fine so far, so that the kernel may run. */
bool op_output(op_call *call, int ndim, const int64_t *dims, ls_layout layout);
bool op_output_like(op_call *call, const ls_tensor *tensor);
bool op_output_scalar(op_call *call);

/* Describes why the call cannot be made; the op's name goes before the sentence. */
void op_refuse(op_call *call, const char *format, ...) LS_PRINTF(2, 3);

/* Whether the gradient of an input will be wanted: what only it needs is not saved otherwise. */
bool op_wants(const op_call *call, int input);

/* Saves a tensor for backward (slots from 0, fewer than NODE_MOST_SAVED), if a node is recorded. */
void op_save(op_call *call, int slot, const char *name, const ls_tensor *tensor);

/* The result, owned by the innermost scope or else by the caller; NULL on failure, which the step keeps. */
ls_tensor *op_end(op_call *call);

/* ---- Backward ---- */

typedef struct backward_call {
    autograd_node *node;
    const ls_kernels *kernels; /* for the gradient's dtype; NULL in ops whose output has no kernels */
    ls_tensor *grad;           /* the output's gradient; nobody else's: may be changed, or given on and set to NULL */
} backward_call;

bool op_is_wanted(const backward_call *call, int input);

/* Fresh memory for the gradient of an input, not zeroed; NULL with the error set: LS_ERR_MEMORY. */
ls_tensor *op_make_gradient(const backward_call *call, int input);

/* Contributes `*gradient`, of the input's shape and nobody else's, and takes it over: it is NULL afterwards, also on
 * error. */
ls_status op_give(const backward_call *call, int input, ls_tensor **gradient);

/* Contributes the output's own gradient to an input of the same shape, if it is wanted. */
ls_status op_pass(backward_call *call, int input, bool is_last_use);

/* For kernels that store or add where they are told: where the gradient of an input goes ({NULL} when it is not
 * wanted), and that it is there now. */
ls_status op_target(const backward_call *call, int input, kernels_target *target);
void op_target_written(const backward_call *call, int input);

#endif
