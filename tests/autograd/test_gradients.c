/* test_gradients.c: the gradients of every op, over random shapes, layouts, strides and paddings. */
#include "autograd/gradient_check.h"

#define ROUNDS 6

static check_input plain(int ndim, const int64_t *dims) {
    check_input input = {.ndim = ndim};
    for (int i = 0; i < ndim; i++) input.dims[i] = dims[i];
    return input;
}

/* Up to 4 dims in any layout. */
static check_input any_shape(void) {
    const int ndim = (int)check_between(0, 4);
    int64_t dims[4];
    for (int i = 0; i < 4; i++) dims[i] = check_between(1, 4);
    check_input input = plain(ndim, dims);
    if (ndim == 4) input.layout = (ls_layout)check_between(0, 2);
    return input;
}

static check_input images(int64_t channels) {
    check_input input = plain(4, (int64_t[]){check_between(1, 3), channels, check_between(3, 6), check_between(3, 6)});
    input.layout = check_between(0, 1) ? LS_LAYOUT_NHWC : LS_LAYOUT_PLAIN;
    return input;
}

/* ---- Element by element, and sums ---- */

static ls_tensor *apply_add(ls_tensor *const *inputs, const void *config) {
    (void)config;
    return ls_add(inputs[0], inputs[1]);
}
static ls_tensor *apply_mul(ls_tensor *const *inputs, const void *config) {
    (void)config;
    return ls_mul(inputs[0], inputs[1]);
}
static ls_tensor *apply_square(ls_tensor *const *inputs, const void *config) {
    (void)config;
    return ls_mul(inputs[0], inputs[0]);
}
static ls_tensor *apply_twice(ls_tensor *const *inputs, const void *config) {
    (void)config;
    return ls_add(inputs[0], inputs[0]);
}
static ls_tensor *apply_scale(ls_tensor *const *inputs, const void *config) {
    return ls_scale(inputs[0], *(const double *)config);
}
static ls_tensor *apply_relu(ls_tensor *const *inputs, const void *config) {
    (void)config;
    return ls_relu(inputs[0]);
}
static ls_tensor *apply_sum(ls_tensor *const *inputs, const void *config) {
    (void)config;
    return ls_sum(inputs[0]);
}
static ls_tensor *apply_mean(ls_tensor *const *inputs, const void *config) {
    (void)config;
    return ls_mean(inputs[0]);
}

static void elementwise_ops_have_the_gradients_of_finite_differences(void **state) {
    (void)state;
    check_seed();
    for (int round = 0; round < ROUNDS; round++) {
        const check_input shape = any_shape();
        check_input kinked = shape;
        kinked.is_distinct = true;
        const double factor = check_uniform();
        const check_case cases[] = {
            {.name = "add", .input_count = 2, .inputs = {shape, shape}, .apply = apply_add},
            {.name = "mul", .input_count = 2, .inputs = {shape, shape}, .apply = apply_mul},
            {.name = "square", .input_count = 1, .inputs = {shape}, .apply = apply_square},
            {.name = "twice", .input_count = 1, .inputs = {shape}, .apply = apply_twice},
            {.name = "scale", .input_count = 1, .inputs = {shape}, .apply = apply_scale, .config = &factor},
            {.name = "relu", .input_count = 1, .inputs = {kinked}, .apply = apply_relu},
            {.name = "sum", .input_count = 1, .inputs = {shape}, .apply = apply_sum},
            {.name = "mean", .input_count = 1, .inputs = {shape}, .apply = apply_mean}};
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_gradients(&cases[i]);
    }
}

/* ---- Linear ---- */

static ls_tensor *apply_linear(ls_tensor *const *inputs, const void *config) {
    return ls_linear(inputs[0], inputs[1], *(const bool *)config ? inputs[2] : NULL);
}

static void linear_has_the_gradients_of_finite_differences(void **state) {
    (void)state;
    check_seed();
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t batch = check_between(1, 6), in = check_between(1, 6), out = check_between(1, 6);
        const bool has_bias = round % 2 == 0;
        const check_case test = {
            .name = "linear",
            .input_count = has_bias ? 3 : 2,
            .inputs = {plain(2, (int64_t[]){batch, in}), plain(2, (int64_t[]){out, in}), plain(1, (int64_t[]){out})},
            .apply = apply_linear,
            .config = &has_bias};
        check_gradients(&test);
    }
}

/* ---- Images ---- */

typedef struct window {
    int kernel, stride, padding;
    bool has_bias;
} window;

static ls_tensor *apply_conv2d(ls_tensor *const *inputs, const void *config) {
    const window *shape = config;
    return ls_conv2d(inputs[0], inputs[1], shape->has_bias ? inputs[2] : NULL, shape->stride, shape->padding);
}

static void check_conv2d(int stride, int padding) {
    const int64_t in = check_between(1, 3), out = check_between(1, 4);
    const window shape = {.stride = stride, .padding = padding, .has_bias = check_between(0, 1)};
    check_input weight = plain(4, (int64_t[]){out, in, check_between(1, 3), check_between(1, 3)});
    weight.layout = LS_LAYOUT_HWIO;
    const check_case test = {.name = "conv2d",
                             .input_count = shape.has_bias ? 3 : 2,
                             .inputs = {images(in), weight, plain(1, (int64_t[]){out})},
                             .apply = apply_conv2d,
                             .config = &shape};
    check_gradients(&test);
}

static void conv2d_has_the_gradients_of_finite_differences(void **state) {
    (void)state;
    check_seed();
    for (int stride = 1; stride <= 3; stride++)
        for (int padding = 0; padding <= 2; padding++) check_conv2d(stride, padding);
}

static ls_tensor *apply_max_pool2d(ls_tensor *const *inputs, const void *config) {
    const window *shape = config;
    return ls_max_pool2d(inputs[0], shape->kernel, shape->stride);
}

static void max_pool2d_has_the_gradients_of_finite_differences(void **state) {
    (void)state;
    check_seed();
    for (int kernel = 1; kernel <= 3; kernel++) {
        for (int stride = 1; stride <= 3; stride++) {
            const window shape = {.kernel = kernel, .stride = stride};
            check_case test = {.name = "max_pool2d",
                               .input_count = 1,
                               .inputs = {images(check_between(1, 3))},
                               .apply = apply_max_pool2d,
                               .config = &shape};
            test.inputs[0].is_distinct = true;
            check_gradients(&test);
        }
    }
}

static ls_tensor *apply_flatten(ls_tensor *const *inputs, const void *config) {
    (void)config;
    return ls_flatten(inputs[0]);
}

/* Behind an op, so that the gradient of a view is one more time passed on. */
static ls_tensor *apply_flatten_scaled(ls_tensor *const *inputs, const void *config) {
    (void)config;
    return ls_flatten(ls_scale(inputs[0], 2));
}

static void flatten_has_the_gradients_of_finite_differences(void **state) {
    (void)state;
    check_seed();
    for (int round = 0; round < ROUNDS; round++) {
        check_input shape = any_shape();
        if (shape.ndim == 0) shape = images(2);
        check_gradients(&(check_case){.name = "flatten", .input_count = 1, .inputs = {shape}, .apply = apply_flatten});
        check_gradients(&(check_case){
            .name = "flatten of scale", .input_count = 1, .inputs = {shape}, .apply = apply_flatten_scaled});
    }
}

static void flatten_yields_the_logical_order(void **state) {
    (void)state;
    ls_tensor *x = NULL;
    assert_int_equal(ls_tensor_create_layout(&x, LS_F32, 4, (int64_t[]){2, 3, 2, 2}, LS_LAYOUT_NHWC), LS_OK);
    float values[24];
    for (int i = 0; i < 24; i++) values[i] = (float)i;
    assert_int_equal(ls_tensor_copy_in(x, values), LS_OK);
    ls_tensor *y = ls_flatten(x);
    assert_int_equal(ls_tensor_ndim(y), 2);
    assert_int_equal(ls_tensor_dim(y, 1), 12);
    assert_memory_equal(ls_tensor_data(y), values, sizeof values);
    ls_tensor_close(&y);
    ls_tensor_close(&x);
}

static void flatten_of_a_plain_tensor_is_a_view(void **state) {
    (void)state;
    ls_tensor *x = NULL;
    assert_int_equal(ls_tensor_create(&x, LS_F32, 4, (int64_t[]){2, 3, 2, 2}), LS_OK);
    ls_tensor *y = ls_flatten(x);
    assert_ptr_equal(ls_tensor_data(y), ls_tensor_data(x));
    ls_tensor_close(&y);
    ls_tensor_close(&x);
}

/* ---- Dropout: the mask depends on the step, so the function is taken in one step number ---- */

static ls_tensor *apply_dropout(ls_tensor *const *inputs, const void *config) {
    ls_step_number_set(5);
    return ls_dropout(inputs[0], *(const double *)config, 3);
}

static void dropout_has_the_gradients_of_finite_differences(void **state) {
    (void)state;
    check_seed();
    for (int round = 0; round < ROUNDS; round++) {
        const double probability = (double)check_between(0, 9) / 10;
        check_input shape = any_shape();
        if (shape.layout == LS_LAYOUT_HWIO) shape.layout = LS_LAYOUT_NHWC;
        check_gradients(&(check_case){
            .name = "dropout", .input_count = 1, .inputs = {shape}, .apply = apply_dropout, .config = &probability});
    }
}

/* ---- Losses ---- */

static ls_tensor *apply_cross_entropy(ls_tensor *const *inputs, const void *config) {
    return ls_cross_entropy_loss(inputs[0], config);
}

static void cross_entropy_has_the_gradients_of_finite_differences(void **state) {
    (void)state;
    check_seed();
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t batch = check_between(1, 5), classes = check_between(1, 6);
        ls_tensor *labels = NULL;
        assert_int_equal(ls_tensor_create(&labels, round % 2 ? LS_U8 : LS_I64, 1, &batch), LS_OK);
        for (int64_t n = 0; n < batch; n++) {
            const int64_t label = check_between(0, classes - 1);
            if (round % 2)
                ((uint8_t *)ls_tensor_data_mut(labels))[n] = (uint8_t)label;
            else
                ((int64_t *)ls_tensor_data_mut(labels))[n] = label;
        }
        check_gradients(&(check_case){.name = "cross entropy",
                                      .input_count = 1,
                                      .inputs = {plain(2, (int64_t[]){batch, classes})},
                                      .apply = apply_cross_entropy,
                                      .config = labels});
        ls_tensor_close(&labels);
    }
}

static ls_tensor *apply_mse(ls_tensor *const *inputs, const void *config) {
    (void)config;
    return ls_mse_loss(inputs[0], inputs[1]);
}

static void mse_has_the_gradients_of_finite_differences(void **state) {
    (void)state;
    check_seed();
    for (int round = 0; round < ROUNDS; round++) {
        const check_input x = any_shape();
        check_input y = x;
        y.without_grad = true;
        check_gradients(&(check_case){.name = "mse", .input_count = 2, .inputs = {x, y}, .apply = apply_mse});
    }
}

/* ---- A net without kinks, where gradients meet ---- */

static ls_tensor *apply_net(ls_tensor *const *inputs, const void *config) {
    (void)config;
    ls_tensor *h = ls_conv2d(inputs[0], inputs[1], NULL, 2, 1);
    h = ls_add(h, ls_scale(h, 0.5)); /* used twice */
    h = ls_linear(ls_flatten(h), inputs[2], NULL);
    return ls_mul(h, h);
}

static void gradients_that_meet_are_added(void **state) {
    (void)state;
    check_seed();
    for (int round = 0; round < ROUNDS; round++) {
        check_input x = plain(4, (int64_t[]){2, 2, 4, 4}), weight = plain(4, (int64_t[]){3, 2, 3, 3});
        x.layout = LS_LAYOUT_NHWC;
        weight.layout = LS_LAYOUT_HWIO;
        check_gradients(&(check_case){
            .name = "net", .input_count = 3, .inputs = {x, weight, plain(2, (int64_t[]){4, 12})}, .apply = apply_net});
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_ops_have_the_gradients_of_finite_differences),
        cmocka_unit_test(linear_has_the_gradients_of_finite_differences),
        cmocka_unit_test(conv2d_has_the_gradients_of_finite_differences),
        cmocka_unit_test(max_pool2d_has_the_gradients_of_finite_differences),
        cmocka_unit_test(flatten_has_the_gradients_of_finite_differences),
        cmocka_unit_test(flatten_yields_the_logical_order),
        cmocka_unit_test(flatten_of_a_plain_tensor_is_a_view),
        cmocka_unit_test(dropout_has_the_gradients_of_finite_differences),
        cmocka_unit_test(cross_entropy_has_the_gradients_of_finite_differences),
        cmocka_unit_test(mse_has_the_gradients_of_finite_differences),
        cmocka_unit_test(gradients_that_meet_are_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
