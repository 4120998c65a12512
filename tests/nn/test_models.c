/* test_models.c: layers and models: shapes, initialisations, training, memory, faults in turn. */
#include "support/faults.h"

#include "base/memory.h"

#include <lockstep/nn.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ls_layer_options f64 = {.dtype = LS_F64};

static ls_tensor *images(ls_dtype dtype, int64_t count) {
    ls_tensor *x = NULL;
    assert_int_equal(ls_tensor_create_layout(&x, dtype, 4, (int64_t[]){count, 1, 28, 28}, LS_LAYOUT_NHWC), LS_OK);
    for (int64_t i = 0; i < count * 784; i++) {
        const double value = sin((double)i * 0.37);
        if (dtype == LS_F64)
            ((double *)ls_tensor_data_mut(x))[i] = value;
        else
            ((float *)ls_tensor_data_mut(x))[i] = (float)value;
    }
    return x;
}

static ls_tensor *labels(int64_t count) {
    ls_tensor *y = NULL;
    assert_int_equal(ls_tensor_create(&y, LS_I64, 1, &count), LS_OK);
    for (int64_t i = 0; i < count; i++) ((int64_t *)ls_tensor_data_mut(y))[i] = i % 10;
    return y;
}

/* ---- Shapes ---- */

static void assert_parameters(const ls_module *module, const char *const *names, const int64_t (*dims)[4], int count,
                              int64_t total) {
    assert_int_equal(ls_module_parameter_count(module), count);
    for (int i = 0; i < count; i++) {
        const ls_tensor *parameter = ls_module_parameter(module, i);
        assert_string_equal(ls_module_parameter_name(module, i), names[i]);
        for (int k = 0; k < ls_tensor_ndim(parameter); k++) assert_int_equal(ls_tensor_dim(parameter, k), dims[i][k]);
        total -= ls_tensor_numel(parameter);
    }
    assert_int_equal(total, 0);
}

static void mlp_has_the_parameters_it_promises(void **state) {
    (void)state;
    static const char *const names[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"};
    static const int64_t dims[][4] = {{256, 784}, {256}, {128, 256}, {128}, {10, 128}, {10}};
    ls_module *net = NULL;
    assert_int_equal(ls_mlp_create(&net, NULL), LS_OK);
    assert_parameters(net, names, dims, 6, 784 * 256 + 256 + 256 * 128 + 128 + 1280 + 10);
    assert_int_equal(ls_tensor_dtype(ls_module_parameter(net, 0)), LS_F32);
    ls_module_close(&net);
}

static void lenet_has_the_parameters_it_promises(void **state) {
    (void)state;
    static const char *const names[] = {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                        "fc1.weight",   "fc1.bias",   "fc2.weight",   "fc2.bias"};
    static const int64_t dims[][4] = {{32, 1, 5, 5}, {32}, {64, 32, 5, 5}, {64}, {512, 3136}, {512}, {10, 512}, {10}};
    ls_module *net = NULL;
    assert_int_equal(ls_lenet_create(&net, NULL), LS_OK);
    assert_parameters(net, names, dims, 8, 1663370);
    assert_int_equal(ls_tensor_layout(ls_module_parameter(net, 2)), LS_LAYOUT_HWIO);
    ls_module_close(&net);
}

static void mlp_takes_images_and_vectors_alike(void **state) {
    (void)state;
    ls_module *net = NULL;
    ls_seed_set(5);
    assert_int_equal(ls_mlp_create(&net, &f64), LS_OK);
    ls_tensor *x = images(LS_F64, 3), *flat = ls_flatten(x);
    ls_step_begin();
    ls_tensor *from_images = ls_module_forward(net, x), *from_vectors = ls_module_forward(net, flat);
    assert_int_equal(ls_tensor_dim(from_images, 1), 10);
    assert_memory_equal(ls_tensor_data(from_images), ls_tensor_data(from_vectors), 30 * sizeof(double));
    assert_int_equal(ls_step_end(), LS_OK);
    ls_tensor_close(&flat);
    ls_tensor_close(&x);
    ls_module_close(&net);
}

/* fc1's columns follow c, h, w: channel c of pool2 alone reaches columns [49 c, 49 c + 49). */
static void lenets_fc1_takes_channels_then_rows_then_columns(void **state) {
    (void)state;
    ls_module *net = NULL;
    ls_seed_set(5);
    assert_int_equal(ls_lenet_create(&net, &f64), LS_OK);
    /* Only output channel 3 of conv2 lives. */
    ls_tensor *weight = ls_module_parameter(net, 2), *bias = ls_module_parameter(net, 3),
              *fc1 = ls_module_parameter(net, 4);
    memset(ls_tensor_data_mut(weight), 0, (size_t)ls_tensor_numel(weight) * sizeof(double));
    memset(ls_tensor_data_mut(bias), 0, 64 * sizeof(double));
    ((double *)ls_tensor_data_mut(bias))[3] = 1;
    ls_tensor *x = images(LS_F64, 2), *y = labels(2);
    ls_step_begin();
    assert_int_equal(ls_backward(ls_cross_entropy_loss(ls_module_forward(net, x), y)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    const double *grad = ls_tensor_data(ls_tensor_grad(fc1));
    double inside = 0, outside = 0;
    for (int64_t i = 0; i < 512 * 3136; i++) {
        const int64_t column = i % 3136;
        if (column >= 3 * 49 && column < 4 * 49)
            inside += fabs(grad[i]);
        else
            outside += fabs(grad[i]);
    }
    assert_true(inside > 0);
    assert_true(outside == 0);
    ls_tensor_close(&x);
    ls_tensor_close(&y);
    ls_module_close(&net);
}

/* ---- Initialisations ---- */

static void assert_uniform(const ls_tensor *tensor, double bound) {
    const int64_t count = ls_tensor_numel(tensor);
    double *values = malloc((size_t)count * sizeof(double)), largest = 0, mean = 0, square = 0;
    assert_int_equal(ls_tensor_copy_out(tensor, values), LS_OK);
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(values[i]));
        mean += values[i] / (double)count;
        square += values[i] * values[i] / (double)count;
    }
    assert_true(largest <= bound && largest > 0.99 * bound);
    assert_true(fabs(mean) < 0.05 * bound);
    assert_true(fabs(square - bound * bound / 3) < 0.05 * bound * bound);
    free(values);
}

static void initial_values_are_uniform_by_fan_in(void **state) {
    (void)state;
    ls_module *linear = NULL, *conv = NULL;
    ls_seed_set(11);
    assert_int_equal(ls_linear_create(&linear, 100, 200, &f64), LS_OK);
    assert_uniform(ls_module_parameter(linear, 0), 1 / sqrt(100));
    assert_true(fabs(((const double *)ls_tensor_data(ls_module_parameter(linear, 1)))[0]) <= 1 / sqrt(100));
    assert_int_equal(ls_conv2d_create(&conv, 20, 30, 5, &(ls_conv2d_options){.dtype = LS_F64}), LS_OK);
    assert_uniform(ls_module_parameter(conv, 0), 1 / sqrt(20 * 25));
    ls_module_close(&linear);
    ls_module_close(&conv);
}

static void one_seed_yields_one_net_in_either_precision(void **state) {
    (void)state;
    ls_module *wide = NULL, *narrow = NULL, *other = NULL;
    ls_seed_set(11);
    assert_int_equal(ls_lenet_create(&wide, &f64), LS_OK);
    assert_int_equal(ls_lenet_create(&other, &f64), LS_OK);
    ls_seed_set(11);
    assert_int_equal(ls_lenet_create(&narrow, NULL), LS_OK);
    for (int i = 0; i < 8; i++) {
        const ls_tensor *a = ls_module_parameter(wide, i), *b = ls_module_parameter(narrow, i);
        for (int64_t k = 0; k < ls_tensor_numel(a); k++)
            assert_true(((const float *)ls_tensor_data(b))[k] == (float)((const double *)ls_tensor_data(a))[k]);
        assert_memory_not_equal(ls_tensor_data(a), ls_tensor_data(ls_module_parameter(other, i)), sizeof(double));
    }
    ls_module_close(&wide);
    ls_module_close(&narrow);
    ls_module_close(&other);
}

static void options_of_layers_are_heard(void **state) {
    (void)state;
    ls_module *module = NULL;
    assert_int_equal(ls_linear_create(&module, 4, 3, &(ls_layer_options){.without_bias = true}), LS_OK);
    assert_int_equal(ls_module_parameter_count(module), 1);
    ls_module_close(&module);
    assert_int_equal(
        ls_conv2d_create(&module, 1, 2, 3, &(ls_conv2d_options){.stride = 2, .padding = 1, .dtype = LS_F64}), LS_OK);
    ls_tensor *x = images(LS_F64, 1);
    ls_step_begin();
    ls_tensor *y = ls_module_forward(module, x);
    assert_int_equal(ls_tensor_dim(y, 1), 2);
    assert_int_equal(ls_tensor_dim(y, 2), 14);
    assert_int_equal(ls_step_end(), LS_OK);
    ls_module_close(&module);
    assert_int_equal(ls_max_pool2d_create(&module, 3, 0), LS_OK); /* stride: the kernel's size */
    ls_step_begin();
    assert_int_equal(ls_tensor_dim(ls_module_forward(module, x), 2), 9);
    assert_int_equal(ls_step_end(), LS_OK);
    ls_module_close(&module);
    assert_int_equal(ls_linear_create(&module, 4, 3, &(ls_layer_options){.dtype = LS_U8}), LS_ERR_ARGUMENT);
    assert_int_equal(ls_linear_create(&module, -4, 3, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_conv2d_create(&module, 1, 2, 0, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_max_pool2d_create(&module, 2, -1), LS_ERR_ARGUMENT);
    assert_null(module);
    ls_tensor_close(&x);
}

/* ---- Training ---- */

static void descend(ls_module *net, double rate) {
    for (int i = 0; i < ls_module_parameter_count(net); i++) {
        ls_tensor *parameter = ls_module_parameter(net, i);
        const void *grad = ls_tensor_data(ls_tensor_grad(parameter));
        void *data = ls_tensor_data_mut(parameter);
        const int64_t count = ls_tensor_numel(parameter);
        for (int64_t k = 0; k < count; k++) {
            if (ls_tensor_dtype(parameter) == LS_F64)
                ((double *)data)[k] -= rate * ((const double *)grad)[k];
            else
                ((float *)data)[k] -= (float)rate * ((const float *)grad)[k];
        }
        ls_tensor_zero_grad(parameter);
    }
}

static double train_step(ls_module *net, ls_tensor *x, ls_tensor *y) {
    ls_step_begin();
    ls_tensor *loss = ls_cross_entropy_loss(ls_module_forward(net, x), y);
    const double value = ls_tensor_item(loss);
    ls_backward(loss);
    const ls_status status = ls_step_end();
    if (status != LS_OK) return NAN;
    descend(net, 0.1);
    return value;
}

static void check_training(ls_dtype dtype, ls_status (*create)(ls_module **, const ls_layer_options *), int batch,
                           int steps) {
    ls_module *net = NULL;
    ls_tensor *x = images(dtype, batch), *y = labels(batch);
    ls_seed_set(1);
    assert_int_equal(create(&net, &(ls_layer_options){.dtype = dtype}), LS_OK);
    const double first = train_step(net, x, y);
    for (int i = 0; i < 2; i++) train_step(net, x, y);
    const uint64_t before = ls_alloc_count();
    double last = first;
    for (int i = 0; i < steps; i++) last = train_step(net, x, y);
    assert_true(last < 0.8 * first);
    assert_int_equal(ls_alloc_count(), before); /* a shape seen before allocates nothing */
    ls_tensor_close(&x);
    ls_tensor_close(&y);
    ls_module_close(&net);
}

static void training_lowers_the_loss_and_allocates_nothing(void **state) {
    (void)state;
    check_training(LS_F32, ls_mlp_create, 20, 30);
    check_training(LS_F64, ls_mlp_create, 10, 30);
    check_training(LS_F32, ls_lenet_create, 10, 20);
}

/* f32, by oneDNN where it is built in, against the reference loops in f64. */
static void gradients_in_f32_are_those_in_f64(void **state) {
    (void)state;
    ls_module *wide = NULL, *narrow = NULL;
    ls_tensor *x = images(LS_F64, 4), *y = labels(4), *small = images(LS_F32, 4);
    ls_seed_set(2);
    assert_int_equal(ls_lenet_create(&wide, &f64), LS_OK);
    ls_seed_set(2);
    assert_int_equal(ls_lenet_create(&narrow, NULL), LS_OK);
    ls_step_begin();
    assert_int_equal(ls_backward(ls_cross_entropy_loss(ls_module_forward(wide, x), y)), LS_OK);
    assert_int_equal(ls_backward(ls_cross_entropy_loss(ls_module_forward(narrow, small), y)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    for (int i = 0; i < 8; i++) {
        const double *a = ls_tensor_data(ls_tensor_grad(ls_module_parameter(wide, i)));
        const float *b = ls_tensor_data(ls_tensor_grad(ls_module_parameter(narrow, i)));
        const int64_t count = ls_tensor_numel(ls_module_parameter(wide, i));
        double largest = 0, difference = 0;
        for (int64_t k = 0; k < count; k++) {
            largest = fmax(largest, fabs(a[k]));
            difference = fmax(difference, fabs(a[k] - (double)b[k]));
        }
        if (difference > 1e-4 * largest)
            print_error("%s: %g of %g\n", ls_module_parameter_name(wide, i), difference, largest);
        assert_true(difference <= 1e-4 * largest);
    }
    ls_tensor_close(&x);
    ls_tensor_close(&small);
    ls_tensor_close(&y);
    ls_module_close(&wide);
    ls_module_close(&narrow);
}

/* ---- Faults in turn ---- */

static ls_status create_and_run(ls_status (*create)(ls_module **module), ls_tensor *x) {
    ls_module *net = NULL;
    ls_step_begin();
    ls_status status = create(&net);
    if (status == LS_OK) ls_backward(ls_sum(ls_module_forward(net, x)));
    const ls_status step_status = ls_step_end();
    ls_module_close(&net);
    return status == LS_OK ? step_status : status;
}

static ls_status create_small(ls_module **module) {
    ls_child children[6] = {{"conv", NULL},    {"relu", NULL}, {"pool", NULL},
                            {"flatten", NULL}, {"drop", NULL}, {NULL, NULL}};
    *module = NULL;
    ls_status status = ls_conv2d_create(&children[0].module, 1, 2, 3, &(ls_conv2d_options){.dtype = LS_F64});
    if (status == LS_OK) status = ls_relu_create(&children[1].module);
    if (status == LS_OK) status = ls_max_pool2d_create(&children[2].module, 2, 0);
    if (status == LS_OK) status = ls_flatten_create(&children[3].module);
    if (status == LS_OK) status = ls_dropout_create(&children[4].module, 0.5);
    if (status == LS_OK) return ls_sequential_create(module, children);
    for (int i = 0; i < 5; i++) ls_module_close(&children[i].module);
    return status;
}

static ls_status create_mlp(ls_module **module) {
    return ls_mlp_create(module, &f64);
}

static void a_fault_at_every_allocation_leaves_nothing(void **state) {
    (void)state;
    ls_status (*const creators[2])(ls_module **) = {create_small, create_mlp};
    for (int i = 0; i < 2; i++) {
        LS_EACH_FAULT(LS_FAULT_MEMORY) {
            ls_tensor *x = NULL;
            ls_status status = ls_tensor_create_layout(&x, LS_F64, 4, (int64_t[]){1, 1, 28, 28}, LS_LAYOUT_NHWC);
            if (status == LS_OK) status = create_and_run(creators[i], x);
            if (ls_fault_was_met())
                assert_fault_reported(status);
            else
                assert_int_equal(status, LS_OK);
            ls_tensor_close(&x);
        }
        assert_nothing_left();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_has_the_parameters_it_promises),
        cmocka_unit_test(lenet_has_the_parameters_it_promises),
        cmocka_unit_test(mlp_takes_images_and_vectors_alike),
        cmocka_unit_test(lenets_fc1_takes_channels_then_rows_then_columns),
        cmocka_unit_test(initial_values_are_uniform_by_fan_in),
        cmocka_unit_test(one_seed_yields_one_net_in_either_precision),
        cmocka_unit_test(options_of_layers_are_heard),
        cmocka_unit_test(training_lowers_the_loss_and_allocates_nothing),
        cmocka_unit_test(gradients_in_f32_are_those_in_f64),
        cmocka_unit_test(a_fault_at_every_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
