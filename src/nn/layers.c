/* layers.c: the layers: parameters with PyTorch's names and initialisations, forwards that call one op. */
#include "nn/module.h"

#include "autograd/random.h"
#include "base/error.h"
#include "base/memory.h"

#include <math.h>

ls_status nn_draw_uniform(ls_tensor *tensor, double bound) {
    /* Drawn in logical order, whatever the layout: the same seed yields the same net everywhere. */
    const int64_t count = ls_tensor_numel(tensor);
    void *values = ls_alloc_array((size_t)count, ls_dtype_size(ls_tensor_dtype(tensor)));
    if (!values) return LS_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        /* Drawn in double for either type: one seed gives one net, rounded or not. */
        const double value = bound * (2 * random_next_uniform() - 1);
        if (ls_tensor_dtype(tensor) == LS_F32)
            ((float *)values)[i] = (float)value;
        else
            ((double *)values)[i] = value;
    }
    const ls_status status = ls_tensor_copy_in(tensor, values);
    ls_free(values);
    return status;
}

/* The module takes the tensor over, also when it refuses it. */
static ls_status add_drawn(ls_module *module, const char *name, ls_dtype dtype, int ndim, const int64_t *dims,
                           ls_layout layout, double bound) {
    ls_tensor *tensor = NULL;
    LS_TRY(ls_tensor_create_layout(&tensor, dtype, ndim, dims, layout));
    const ls_status status = nn_draw_uniform(tensor, bound);
    if (status == LS_OK) return ls_module_add_parameter(module, name, tensor);
    ls_tensor_close(&tensor);
    return status;
}

/* A layer's weight and bias [out], both from U(-1/sqrt(fan_in), 1/sqrt(fan_in)). */
static ls_status add_weight_and_bias(ls_module *module, ls_dtype dtype, int ndim, const int64_t *dims, ls_layout layout,
                                     bool has_bias) {
    /* What one output sums over: all dims of the weight but the first. */
    double fan_in = 1;
    for (int i = 1; i < ndim; i++) fan_in *= (double)dims[i];
    const double bound = fan_in > 0 ? 1 / sqrt(fan_in) : 0;
    LS_TRY(add_drawn(module, "weight", dtype, ndim, dims, layout, bound));
    if (!has_bias) return LS_OK;
    return add_drawn(module, "bias", dtype, 1, dims, LS_LAYOUT_PLAIN, bound);
}

static ls_status check_dtype(const char *layer, ls_dtype dtype) {
    if (dtype == LS_F32 || dtype == LS_F64) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT, "%s: parameters of type %s; expected f32 or f64", layer, ls_dtype_name(dtype));
}

/* Ends a layer's creation: hands it out, or closes it. */
static ls_status finish(ls_status status, ls_module *made, ls_module **module) {
    if (status != LS_OK) ls_module_close(&made);
    *module = made;
    return status;
}

/* The callbacks of layers take one input and give one output. */
static ls_status check_counts(int input_count, int output_count) {
    if (input_count == 1 && output_count == 1) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT, "module: a layer has one input and one output; %d and %d were given", input_count,
                   output_count);
}

/* ---- Linear ---- */

/* Parameters in the order in which they were added: weight, then bias, which may be absent. */
static ls_status linear_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                ls_tensor **outputs, int output_count) {
    (void)context;
    LS_TRY(check_counts(input_count, output_count));
    outputs[0] = ls_linear(inputs[0], nn_own_parameter(self, 0), nn_own_parameter(self, 1));
    return LS_OK;
}

ls_status ls_linear_create(ls_module **module, int64_t in, int64_t out, const ls_layer_options *options) {
    const ls_layer_options chosen = options ? *options : (ls_layer_options){0};
    /* On every way out but the last the handle is NULL. */
    *module = NULL;
    ls_module *made = NULL;
    LS_TRY(check_dtype("ls_linear_create", chosen.dtype));
    /* No context: all that a linear layer needs to know are its parameters' shapes. */
    LS_TRY(nn_module_create_layer(&made, linear_forward, NULL, 0));
    const ls_status status =
        add_weight_and_bias(made, chosen.dtype, 2, (int64_t[]){out, in}, LS_LAYOUT_PLAIN, !chosen.without_bias);
    return finish(status, made, module);
}

/* ---- Convolution and pooling ---- */

/* Square, in both dims alike. */
typedef struct window {
    int kernel, stride, padding;
} window;

static ls_status conv2d_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                ls_tensor **outputs, int output_count) {
    const window *shape = context;
    LS_TRY(check_counts(input_count, output_count));
    outputs[0] =
        ls_conv2d(inputs[0], nn_own_parameter(self, 0), nn_own_parameter(self, 1), shape->stride, shape->padding);
    return LS_OK;
}

/* At creation, where the mistake is, rather than in the first forward. */
static ls_status check_window(const char *layer, const window *shape) {
    if (shape->kernel > 0 && shape->stride > 0 && shape->padding >= 0) return LS_OK;
    return ls_fail(LS_ERR_ARGUMENT,
                   "%s: kernel %d, stride %d, padding %d; expected positive ones and padding not negative", layer,
                   shape->kernel, shape->stride, shape->padding);
}

ls_status ls_conv2d_create(ls_module **module, int64_t in, int64_t out, int kernel, const ls_conv2d_options *options) {
    const ls_conv2d_options chosen = options ? *options : (ls_conv2d_options){0};
    const window shape = {.kernel = kernel, .stride = chosen.stride ? chosen.stride : 1, .padding = chosen.padding};
    *module = NULL;
    ls_module *made = NULL;
    LS_TRY(check_dtype("ls_conv2d_create", chosen.dtype));
    LS_TRY(check_window("ls_conv2d_create", &shape));
    LS_TRY(nn_module_create_layer(&made, conv2d_forward, &shape, sizeof shape));
    const ls_status status = add_weight_and_bias(made, chosen.dtype, 4, (int64_t[]){out, in, kernel, kernel},
                                                 LS_LAYOUT_HWIO, !chosen.without_bias);
    return finish(status, made, module);
}

static ls_status max_pool2d_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                    ls_tensor **outputs, int output_count) {
    (void)self;
    const window *shape = context;
    LS_TRY(check_counts(input_count, output_count));
    outputs[0] = ls_max_pool2d(inputs[0], shape->kernel, shape->stride);
    return LS_OK;
}

ls_status ls_max_pool2d_create(ls_module **module, int kernel, int stride) {
    /* By default windows do not overlap. */
    const window shape = {.kernel = kernel, .stride = stride ? stride : kernel};
    *module = NULL;
    LS_TRY(check_window("ls_max_pool2d_create", &shape));
    return nn_module_create_layer(module, max_pool2d_forward, &shape, sizeof shape);
}

/* ---- Layers without parameters ---- */

static ls_status relu_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                              ls_tensor **outputs, int output_count) {
    (void)context;
    (void)self;
    LS_TRY(check_counts(input_count, output_count));
    outputs[0] = ls_relu(inputs[0]);
    return LS_OK;
}

ls_status ls_relu_create(ls_module **module) {
    return nn_module_create_layer(module, relu_forward, NULL, 0);
}

static ls_status flatten_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                 ls_tensor **outputs, int output_count) {
    (void)context;
    (void)self;
    LS_TRY(check_counts(input_count, output_count));
    outputs[0] = ls_flatten(inputs[0]);
    return LS_OK;
}

ls_status ls_flatten_create(ls_module **module) {
    return nn_module_create_layer(module, flatten_forward, NULL, 0);
}

static ls_status dropout_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                 ls_tensor **outputs, int output_count) {
    LS_TRY(check_counts(input_count, output_count));
    const double probability = *(const double *)context;
    /* The place in the tree keeps two layers' draws apart. In evaluation the input itself is handed on. */
    outputs[0] = self->is_training ? ls_dropout(inputs[0], probability, self->order) : inputs[0];
    return LS_OK;
}

ls_status ls_dropout_create(ls_module **module, double probability) {
    *module = NULL;
    if (!(probability >= 0 && probability < 1))
        return ls_fail(LS_ERR_ARGUMENT, "ls_dropout_create: a probability of %g; expected [0, 1)", probability);
    return nn_module_create_layer(module, dropout_forward, &probability, sizeof probability);
}
