/* containers.c: children that run one after the other, and the models made of them. */
#include "nn/module.h"

#include "autograd/step.h"
#include "base/error.h"

/* What a child returned is let go as soon as the next one has run: what backward needs, the tape has saved. */
static ls_status sequential_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                    ls_tensor **outputs, int output_count) {
    (void)context;
    if (input_count != 1 || output_count != 1)
        return ls_fail(LS_ERR_ARGUMENT, "ls_sequential: one input and one output; %d and %d were given", input_count,
                       output_count);
    /* The input is the caller's and is never dropped. */
    ls_tensor *x = inputs[0];
    for (int i = 0; i < self->child_count && x; i++) {
        ls_tensor *y = ls_module_forward(self->children[i].module, x);
        if (i > 0) autograd_scope_drop(x);
        x = y;
    }
    outputs[0] = x;
    return LS_OK;
}

ls_status ls_sequential_create(ls_module **module, const ls_child *children) {
    return ls_module_create(module, &(ls_module_callbacks){.forward = sequential_forward}, children);
}

/* ---- Models ---- */

#define MOST_CHILDREN 12

/* The children made so far; a row without a module ends them. */
typedef struct builder {
    ls_child children[MOST_CHILDREN + 1];
    int count;
    ls_status status;
} builder;

/* Where the next child goes. */
static ls_module **place(builder *made) {
    return &made->children[made->count].module;
}

/* Names the child just made; false when it could not be. */
static bool add(builder *made, const char *name, ls_status status) {
    made->status = status;
    if (status != LS_OK) return false;
    /* Counted only now: `children` is closed up to here when a later one fails. */
    made->children[made->count++].name = name;
    return true;
}

/* Children made before one failed are closed. */
static ls_status build(builder *made, ls_module **module) {
    *module = NULL;
    if (made->status == LS_OK) return ls_sequential_create(module, made->children);
    for (int i = 0; i < made->count; i++) ls_module_close(&made->children[i].module);
    return made->status;
}

/* Layers without parameters have names too, which no file ever shows. */
ls_status ls_mlp_create(ls_module **module, const ls_layer_options *options) {
    builder made = {0};
    (void)(add(&made, "flatten", ls_flatten_create(place(&made))) &&
           add(&made, "fc1", ls_linear_create(place(&made), 784, 256, options)) &&
           add(&made, "relu1", ls_relu_create(place(&made))) &&
           add(&made, "fc2", ls_linear_create(place(&made), 256, 128, options)) &&
           add(&made, "relu2", ls_relu_create(place(&made))) &&
           add(&made, "fc3", ls_linear_create(place(&made), 128, 10, options)));
    return build(&made, module);
}

/* Two halvings take 28 to 7, so that fc1 sees 64 x 7 x 7 = 3136 values. */
ls_status ls_lenet_create(ls_module **module, const ls_layer_options *options) {
    /* Convolutions have options of their own; what the two have in common is handed on. */
    const ls_layer_options chosen = options ? *options : (ls_layer_options){0};
    const ls_conv2d_options conv = {.dtype = chosen.dtype, .without_bias = chosen.without_bias, .padding = 2};
    builder made = {0};
    (void)(add(&made, "conv1", ls_conv2d_create(place(&made), 1, 32, 5, &conv)) &&
           add(&made, "relu1", ls_relu_create(place(&made))) &&
           add(&made, "pool1", ls_max_pool2d_create(place(&made), 2, 2)) &&
           add(&made, "conv2", ls_conv2d_create(place(&made), 32, 64, 5, &conv)) &&
           add(&made, "relu2", ls_relu_create(place(&made))) &&
           add(&made, "pool2", ls_max_pool2d_create(place(&made), 2, 2)) &&
           add(&made, "flatten", ls_flatten_create(place(&made))) &&
           add(&made, "fc1", ls_linear_create(place(&made), 3136, 512, options)) &&
           add(&made, "relu3", ls_relu_create(place(&made))) &&
           add(&made, "fc2", ls_linear_create(place(&made), 512, 10, options)));
    return build(&made, module);
}
