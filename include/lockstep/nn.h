/* lockstep/nn.h: modules: trees of layers with named parameters and buffers.
 *
 * A module belongs to who created it, until it is given to a container (ls_sequential_create takes its children over).
 * Names are PyTorch's: "fc1.weight", "conv1.bias". Modules are used by one thread at a time.
 *
 * What creates a module returns LS_ERR_ARGUMENT, which says what of its sizes, types or names is wrong, or
 * LS_ERR_MEMORY; the handle is NULL then. */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include <lockstep/autograd.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_module ls_module;

/* What all layers take; NULL or zeroes mean f32, bias, PyTorch's initialisation from the thread's seed. */
typedef struct ls_layer_options {
    ls_dtype dtype; /* LS_F32 or LS_F64 */
    bool without_bias;
} ls_layer_options;

/* y = x w^T + b, weight [out, in]; both drawn from U(-1/sqrt(in), 1/sqrt(in)), as PyTorch does. `out` 0 works. */
LS_API ls_status ls_linear_create(ls_module **module, int64_t in, int64_t out, const ls_layer_options *options);

typedef struct ls_conv2d_options {
    ls_dtype dtype;
    bool without_bias;
    int stride; /* 0: 1 */
    int padding;
} ls_conv2d_options;

/* Convolution with a square kernel, weight [out, in, kernel, kernel]; drawn from U(-1/sqrt(fan in), 1/sqrt(fan in)). */
LS_API ls_status ls_conv2d_create(ls_module **module, int64_t in, int64_t out, int kernel,
                                  const ls_conv2d_options *options);

/* x [n, c, h, w] to [n, c, (h - kernel) / stride + 1, ...]; stride 0: the kernel's size. ReLU keeps the shape; flatten
 * makes [n, ...] into [n, product of the rest] in PyTorch's order. */
LS_API ls_status ls_max_pool2d_create(ls_module **module, int kernel, int stride);
LS_API ls_status ls_relu_create(ls_module **module);
LS_API ls_status ls_flatten_create(ls_module **module);

/* Zeroes each element with `probability`, in [0, 1), and scales the others up (see ls_dropout). Active in training only
 * (ls_module_train). */
LS_API ls_status ls_dropout_create(ls_module **module, double probability);

/* Runs its children in order, one input and one output each. `children` is ended by a row whose module is NULL; their
 * handles are taken over, also on error. A child's name prefixes its parameters' names; NULL names it by its index.
 * Errors: LS_ERR_STATE for a child that belongs to a module already. */
typedef struct ls_child {
    const char *name;
    ls_module *module;
} ls_child;
LS_API ls_status ls_sequential_create(ls_module **module, const ls_child *children);

/* A module whose forward is the user's. */
typedef struct ls_module_callbacks {
    /* Computes outputs[output_count] from inputs[input_count]; outputs are the step's. */
    ls_status (*forward)(void *context, ls_module *self, ls_tensor *const *inputs, int input_count, ls_tensor **outputs,
                         int output_count);
    void (*destroy)(void *context); /* called once when the module closes, not when its creation fails; may be NULL */
    void *context;
} ls_module_callbacks;

/* `children` (may be NULL) are taken over and can be run by the callback, which finds them by ls_module_child. */
LS_API ls_status ls_module_create(ls_module **module, const ls_module_callbacks *callbacks, const ls_child *children);

/* Adds a parameter or a buffer; the module takes over the caller's hold on `tensor`, also on error. Names are unique in
 * a module, not empty and without dots; the same tensor under two names is one (tied) parameter. A parameter (f32 or
 * f64) requires gradients from then on; ls_tensor_set_requires_grad(tensor, false) freezes it.
 * Errors: LS_ERR_ARGUMENT, LS_ERR_MEMORY. */
LS_API ls_status ls_module_add_parameter(ls_module *module, const char *name, ls_tensor *tensor);
LS_API ls_status ls_module_add_buffer(ls_module *module, const char *name, ls_tensor *tensor);

/* The direct child called `name`, owned by the module; NULL when there is none. */
LS_API ls_module *ls_module_child(ls_module *module, const char *name);

/* Letting a module go lets its parameters go; an optimizer or a wrap made from it holds what it needs. */
LS_API void ls_module_close(ls_module **module);

/* Runs the module on one input. NULL with the error set on failure, which the step keeps; a NULL input yields NULL.
 * The result is the step's, outside a step the caller's. */
LS_API ls_tensor *ls_module_forward(ls_module *module, ls_tensor *input);

/* Runs a module of several inputs and outputs; on error all outputs are NULL. Errors: those of its ops, of its
 * callback, and of the group where it is wrapped. */
LS_API ls_status ls_module_forward_many(ls_module *module, ls_tensor *const *inputs, int input_count,
                                        ls_tensor **outputs, int output_count);

/* Switches dropout and its like on (the default) or off, in the whole tree as it is now. */
LS_API void ls_module_train(ls_module *module, bool is_training);
LS_API bool ls_module_is_training(const ls_module *module);

/* The parameters of the whole tree, tied ones once, under their first name, in PyTorch's order: a module's own as they
 * were registered, then those of its children. Names and tensors are the module's, and hold until something is added
 * to the tree; NULL with the error set for an index out of range. */
LS_API int ls_module_parameter_count(const ls_module *module);
LS_API ls_tensor *ls_module_parameter(const ls_module *module, int index);
LS_API const char *ls_module_parameter_name(const ls_module *module, int index);

/* The same for buffers. */
LS_API int ls_module_buffer_count(const ls_module *module);
LS_API ls_tensor *ls_module_buffer(const ls_module *module, int index);
LS_API const char *ls_module_buffer_name(const ls_module *module, int index);

/* ---- Models ---- */

/* 784 - 256 - 128 - 10 with ReLU between; takes [n, 1, 28, 28] or [n, 784]. Parameters fc1, fc2, fc3. */
LS_API ls_status ls_mlp_create(ls_module **module, const ls_layer_options *options);

/* LeNet for 1x28x28: conv 32 5x5 pad 2, ReLU, pool 2, conv 64 5x5 pad 2, ReLU, pool 2, linear 3136 to 512, ReLU, linear
 * 512 to 10; 1,663,370 parameters: conv1, conv2, fc1, fc2. */
LS_API ls_status ls_lenet_create(ls_module **module, const ls_layer_options *options);

#ifdef __cplusplus
}
#endif
#endif
