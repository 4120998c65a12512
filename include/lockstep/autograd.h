/* lockstep/autograd.h: the tape, backward, the scope of a step, and the differentiable ops.
 *
 * An op records itself on the tape when gradients are on and an input needs them. ls_backward walks the tape from the
 * loss. Leaves (tensors made by the user that require gradients) accumulate into ls_tensor_grad().
 *
 * In a step an op's failure is kept: the op returns NULL, NULL flows through the ops that follow and through
 * ls_backward, and ls_step_end returns the first error. All of this belongs to the calling thread: a tape is built, run
 * backward and let go on one thread.                                                                                 */
#ifndef LOCKSTEP_AUTOGRAD_H
#define LOCKSTEP_AUTOGRAD_H

#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the thread's step. Tensors that ops return until ls_step_end belong to the step. Steps do not nest: a begin
 * inside a step is an error that ls_step_end reports. */
LS_API void ls_step_begin(void);

/* Closes the step: lets go of its tensors and memory (kept for the next step), returns the step's first error (its
 * sentence in ls_last_error) and forgets it. LS_ERR_STATE when no step is open, or inside a module's forward or a
 * backward. */
LS_API ls_status ls_step_end(void);

/* The first error of the step so far; LS_OK outside a step. */
LS_API ls_status ls_step_status(void);

/* Computes gradients of every leaf that `loss` (one element, f32 or f64) depends on, adding to what is there, and frees
 * the tape. NULL stands for a failed forward: wrapped modules then tell their peers, so that all ranks fail alike.
 * Returns the step's status. After an error gradients are undefined: forget them (ls_tensor_zero_grad,
 * ls_optim_zero_grad).
 * Errors: LS_ERR_ARGUMENT (not a scalar, nothing requires gradients), LS_ERR_STATE (a second backward over the same
 * tape; a saved tensor was written since the forward), LS_ERR_MEMORY, and those of the group under a wrapped module. */
LS_API ls_status ls_backward(ls_tensor *loss);

/* Whether a leaf takes gradients, from the next forward on. Only for tensors that no op returned; f32 and f64. The
 * question is also answered for results: whether the tape has them. Errors: LS_ERR_ARGUMENT, LS_ERR_MEMORY. */
LS_API ls_status ls_tensor_set_requires_grad(ls_tensor *tensor, bool requires_grad);
LS_API bool ls_tensor_requires_grad(const ls_tensor *tensor);

/* The gradient of a leaf, same shape and layout, owned by the leaf; NULL when there is none. Under a wrapped module the
 * pointer holds until the next forward. */
LS_API ls_tensor *ls_tensor_grad(const ls_tensor *leaf);

/* Forgets a leaf's gradient: the next backward stores instead of adding. */
LS_API void ls_tensor_zero_grad(ls_tensor *leaf);

/* Regions of the calling thread in which ops record nothing, for evaluation; they nest. */
LS_API void ls_no_grad_begin(void);
LS_API void ls_no_grad_end(void);

/* A user's own op. The caller has computed `output` (a fresh tensor) from `inputs`; this records how gradients flow
 * back.
 * backward   writes the gradient of each input that needs one into grad_inputs[i] (zeroed, the input's shape; NULL
 *            where none is needed). grad_output has the output's shape. `context` is what was given here.
 * destroy    called once when the tape lets go of the op (also when nothing needed recording, and on error); may be
 *            NULL
 * Takes over the caller's hold on `output`, also on error (what ops without gradients returned in this step is the
 * step's already): like any op's result it belongs to the step, outside a step to the caller. A NULL among output and
 * inputs flows through.
 * Returns `output`, now a member of the tape, or NULL with the error set. */
typedef ls_status (*ls_backward_function)(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs);
LS_API ls_tensor *ls_op_record(const char *name, ls_tensor *output, ls_tensor *const *inputs, int input_count,
                               ls_backward_function backward, void *context, void (*destroy)(void *context));

/* ---- Ops ----
 *
 * Inputs f32 or f64, all of one dtype; they stay the caller's, and what backward needs of them the tape holds. Each
 * returns a new tensor, or NULL with the error set: LS_ERR_ARGUMENT names the op and the shapes it got, LS_ERR_MEMORY,
 * LS_ERR_ENVIRONMENT for a LOCKSTEP_KERNELS that is not there. A NULL among the inputs yields NULL and leaves the error
 * as it is. */

/* a + b, a * b: same shape and layout. */
LS_API ls_tensor *ls_add(ls_tensor *a, ls_tensor *b);
LS_API ls_tensor *ls_mul(ls_tensor *a, ls_tensor *b);

/* factor * a. */
LS_API ls_tensor *ls_scale(ls_tensor *a, double factor);

/* The sum and the mean of all elements, a scalar. */
LS_API ls_tensor *ls_sum(ls_tensor *a);
LS_API ls_tensor *ls_mean(ls_tensor *a);

/* max(a, 0); the gradient at 0 is 0. */
LS_API ls_tensor *ls_relu(ls_tensor *a);

/* [n, ...] to [n, product of the rest], in PyTorch's order (c, h, w) whatever the layout. */
LS_API ls_tensor *ls_flatten(ls_tensor *a);

/* x w^T + b: x [n, in], weight [out, in], bias [out] or NULL; gives [n, out]. */
LS_API ls_tensor *ls_linear(ls_tensor *x, ls_tensor *weight, ls_tensor *bias);

/* Convolution (cross-correlation, as in PyTorch): x [n, in, h, w] in nhwc, weight [out, in, kh, kw] in hwio, bias [out]
 * or NULL; gives [n, out, (h + 2 pad - kh) / stride + 1, ...] in nhwc. A plain x is taken too and permuted first. */
LS_API ls_tensor *ls_conv2d(ls_tensor *x, ls_tensor *weight, ls_tensor *bias, int stride, int padding);

/* The largest value of each window of `kernel` x `kernel`; ties go to the first. x [n, c, h, w] in nhwc; a plain x is
 * taken too and permuted first. */
LS_API ls_tensor *ls_max_pool2d(ls_tensor *x, int kernel, int stride);

/* Zeroes each element with `probability` in [0, 1) and scales the others by 1 / (1 - probability). Counter-based
 * (Philox 4x32-10, Salmon et al. 2011): the draw depends on the seed, `layer`, the step's number, the sample's global
 * index and the element alone, so that N ranks draw what one process draws. Sample indices come from the loader's batch
 * (ls_batch); without one, or with one of another size than x's first dim, they are position + rank * 2^32. */
LS_API ls_tensor *ls_dropout(ls_tensor *x, double probability, uint32_t layer);

/* Mean over the batch of -log softmax(logits)[label]: logits [n, classes], labels i64 or u8 [n] in [0, classes). */
LS_API ls_tensor *ls_cross_entropy_loss(ls_tensor *logits, const ls_tensor *labels);

/* Mean over all elements of (x - y)^2: same shape; y takes no gradient. */
LS_API ls_tensor *ls_mse_loss(ls_tensor *x, const ls_tensor *y);

/* ---- Random numbers of the calling thread ---- */

/* Seeds initialisations and dropout of this thread; initialisations begin anew. 0 at first. */
LS_API void ls_seed_set(uint64_t seed);
LS_API uint64_t ls_seed(void);

/* The number of the step, which dropout draws depend on: ls_step_end adds one. Set it when resuming. */
LS_API uint64_t ls_step_number(void);
LS_API void ls_step_number_set(uint64_t number);

#ifdef __cplusplus
}
#endif
#endif
