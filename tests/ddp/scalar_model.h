/* scalar_model.h: y = sum of w x over some of three scalar weights "a", "b", "c": small enough to check by hand. The
 * loss is the mean of y over the batch, so each used weight's gradient is the mean of x. */
#ifndef LS_TEST_SCALAR_MODEL_H
#define LS_TEST_SCALAR_MODEL_H

#include <lockstep/ddp.h>
#include <lockstep/nn.h>

#include <math.h>

enum { A = 1, B = 2, C = 4 };

typedef struct scalar_model {
    ls_module *module;
    int used; /* the weights that the next forward uses */
    bool
        is_upward; /* gradients come from the first weight to the last: another order than buckets are laid out in at first */
} scalar_model;

static inline ls_status scalar_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                       ls_tensor **outputs, int output_count) {
    const scalar_model *model = context;
    (void)input_count;
    (void)output_count;
    ls_tensor *sum = NULL;
    const int count = ls_module_parameter_count(self);
    for (int k = 0; k < count; k++) {
        const int i = model->is_upward ? count - 1 - k : k;
        if (!(model->used & 1 << i)) continue;
        ls_tensor *term = ls_linear(inputs[0], ls_module_parameter(self, i), NULL);
        sum = sum ? ls_add(sum, term) : term;
    }
    outputs[0] = sum;
    return sum ? LS_OK : ls_step_status();
}

/* `count` weights called a, b, c, ... all 3, all used. */
static inline ls_status scalar_model_create(scalar_model *model, int count) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    const ls_module_callbacks callbacks = {.forward = scalar_forward, .context = model};
    ls_status status = ls_module_create(&model->module, &callbacks, NULL);
    for (int i = 0; i < count && status == LS_OK; i++) {
        ls_tensor *weight = NULL;
        status = ls_tensor_create(&weight, LS_F64, 2, (int64_t[]){1, 1});
        if (status == LS_OK) status = ls_tensor_copy_in(weight, &(double){3});
        if (status == LS_OK) status = ls_module_add_parameter(model->module, names[i], weight);
    }
    model->used = (1 << count) - 1;
    return status;
}

/* A batch [count, 1], the caller's. */
static inline ls_tensor *scalar_batch(const double *values, int64_t count) {
    ls_tensor *batch = NULL;
    if (ls_tensor_create(&batch, LS_F64, 2, (int64_t[]){count, 1}) == LS_OK) ls_tensor_copy_in(batch, values);
    return batch;
}

/* One step on the batch `x`; returns its verdict. The optimizer is the caller's matter. */
static inline ls_status scalar_step(scalar_model *model, double x) {
    ls_tensor *batch = scalar_batch(&x, 1);
    ls_step_begin();
    ls_backward(ls_mean(ls_module_forward(model->module, batch)));
    const ls_status status = ls_step_end();
    ls_tensor_close(&batch);
    return status;
}

/* The gradient of weight `index`; NAN when there is none. */
static inline double scalar_gradient(const scalar_model *model, int index) {
    const ls_tensor *gradient = ls_tensor_grad(ls_module_parameter(model->module, index));
    return gradient ? ls_tensor_item(gradient) : NAN;
}

static inline void scalar_zero_gradients(const scalar_model *model) {
    for (int i = 0; i < ls_module_parameter_count(model->module); i++)
        ls_tensor_zero_grad(ls_module_parameter(model->module, i));
}

#endif
