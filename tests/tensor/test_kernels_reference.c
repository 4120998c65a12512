/* test_kernels_reference.c: the oracle itself, in f64, against formulas written another way: textbook loops over
 * logical dims, finite differences, and values computed by hand. */
#include "tensor/arrays.h"

static const ls_kernels *reference;

static int open(void **state) {
    (void)state;
    reference = kernels_reference(LS_F64);
    random_open();
    return 0;
}

static double *draw(int64_t count) {
    return random_array(LS_F64, (size_t)count)->side[TESTED];
}

static void assert_near(double found, double expected, double tolerance) {
    if (!(fabs(found - expected) <= tolerance)) fail_msg("%.17g, expected %.17g", found, expected);
}

/* ---- Linear and convolution, from their definitions ---- */

static void linear_is_its_formula(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        const kernels_linear s = {random_between(1, 5), random_between(1, 50), random_between(1, 20)};
        double *x = draw(s.batch * s.in), *w = draw(s.out * s.in), *b = draw(s.out), *dy = draw(s.batch * s.out);
        double *y = draw(s.batch * s.out), *dx = draw(s.batch * s.in), *dw = draw(s.out * s.in), *db = draw(s.out);
        assert_int_equal(reference->linear_forward(&s, x, w, b, y), LS_OK);
        assert_int_equal(reference->linear_backward_data(&s, dy, w, dx), LS_OK);
        const kernels_target weight_target = {.data = dw}, bias_target = {.data = db};
        assert_int_equal(reference->linear_backward_weight(&s, x, dy, weight_target, bias_target), LS_OK);
        for (int64_t n = 0; n < s.batch; n++) {
            for (int64_t o = 0; o < s.out; o++) {
                double sum = b[o];
                for (int64_t i = 0; i < s.in; i++) sum += x[n * s.in + i] * w[o * s.in + i];
                assert_near(y[n * s.out + o], sum, 1e-12);
            }
            for (int64_t i = 0; i < s.in; i++) {
                double sum = 0;
                for (int64_t o = 0; o < s.out; o++) sum += dy[n * s.out + o] * w[o * s.in + i];
                assert_near(dx[n * s.in + i], sum, 1e-12);
            }
        }
        for (int64_t o = 0; o < s.out; o++) {
            double bias = 0;
            for (int64_t n = 0; n < s.batch; n++) bias += dy[n * s.out + o];
            assert_near(db[o], bias, 1e-12);
            for (int64_t i = 0; i < s.in; i++) {
                double sum = 0;
                for (int64_t n = 0; n < s.batch; n++) sum += dy[n * s.out + o] * x[n * s.in + i];
                assert_near(dw[o * s.in + i], sum, 1e-12);
            }
        }
        arrays_close();
    }
}

/* x[n][h][v][i], 0 outside the image. */
static double pixel(const kernels_conv2d *s, const double *x, int64_t n, int64_t h, int64_t v, int64_t i) {
    if (h < 0 || h >= s->in_height || v < 0 || v >= s->in_width) return 0;
    return x[((n * s->in_height + h) * s->in_width + v) * s->in_channels + i];
}

/* w, stored hwio, by its logical index. */
static double weight(const kernels_conv2d *s, const double *w, int64_t o, int64_t i, int64_t r, int64_t c) {
    return w[((r * s->kernel_width + c) * s->in_channels + i) * s->out_channels + o];
}

static void convolution_is_its_formula(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        const kernels_conv2d s = {random_between(1, 2), random_between(1, 6), random_between(3, 8),
                                  random_between(3, 8), random_between(1, 6), random_between(1, 5),
                                  random_between(1, 5), random_between(1, 3), random_between(1, 2)};
        const int64_t height = kernels_conv2d_out_height(&s), width = kernels_conv2d_out_width(&s);
        double *x = draw(s.batch * s.in_height * s.in_width * s.in_channels), *b = draw(s.out_channels);
        double *w = draw(s.kernel_height * s.kernel_width * s.in_channels * s.out_channels);
        double *y = draw(s.batch * height * width * s.out_channels);
        assert_int_equal(reference->conv2d_forward(&s, x, w, 0, b, y), LS_OK);
        for (int64_t at = 0; at < s.batch * height * width * s.out_channels; at++) {
            const int64_t o = at % s.out_channels, q = at / s.out_channels % width;
            const int64_t p = at / s.out_channels / width % height, n = at / s.out_channels / width / height;
            double sum = b[o];
            for (int64_t i = 0; i < s.in_channels; i++) {
                for (int64_t r = 0; r < s.kernel_height; r++) {
                    for (int64_t c = 0; c < s.kernel_width; c++) {
                        sum += pixel(&s, x, n, p * s.stride + r - s.padding, q * s.stride + c - s.padding, i) *
                               weight(&s, w, o, i, r, c);
                    }
                }
            }
            assert_near(y[at], sum, 1e-12);
        }
        arrays_close();
    }
}

static double inner_product(int64_t count, const double *a, const double *b) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* y is linear in x and in w, so <dy, y(x, w)> = <dx(dy, w), x> = <dw(x, dy), w> defines both gradients, given the
 * forward. */
static void convolution_gradients_are_adjoint_to_the_forward(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        const kernels_conv2d s = {random_between(1, 3), random_between(1, 6), random_between(3, 8),
                                  random_between(3, 8), random_between(1, 6), random_between(1, 5),
                                  random_between(1, 5), random_between(1, 3), random_between(1, 2)};
        const int64_t x_count = s.batch * s.in_height * s.in_width * s.in_channels;
        const int64_t w_count = s.kernel_height * s.kernel_width * s.in_channels * s.out_channels;
        const int64_t pixels = s.batch * kernels_conv2d_out_height(&s) * kernels_conv2d_out_width(&s);
        const int64_t y_count = pixels * s.out_channels;
        double *x = draw(x_count), *w = draw(w_count), *y = draw(y_count), *dy = draw(y_count);
        double *dx = draw(x_count), *dw = draw(w_count), *db = draw(s.out_channels);
        /* Earlier gradients, to which these are added. */
        memset(dw, 0, (size_t)w_count * sizeof *dw);
        assert_int_equal(reference->conv2d_forward(&s, x, w, 0, NULL, y), LS_OK);
        assert_int_equal(reference->conv2d_backward_data(&s, dy, w, 0, dx), LS_OK);
        assert_int_equal(
            reference->conv2d_backward_weight(&s, x, dy, (kernels_target){dw, true}, (kernels_target){.data = db}),
            LS_OK);
        assert_near(inner_product(x_count, dx, x), inner_product(y_count, dy, y), 1e-10);
        assert_near(inner_product(w_count, dw, w), inner_product(y_count, dy, y), 1e-10);
        for (int64_t o = 0; o < s.out_channels; o++) {
            double sum = 0;
            for (int64_t at = 0; at < pixels; at++) sum += dy[at * s.out_channels + o];
            assert_near(db[o], sum, 1e-12);
        }
        arrays_close();
    }
}

/* One sample of ones makes dw = dy in each column and db = dy: on top of 10, where asked for. */
static void gradients_are_stored_or_added_as_asked(void **state) {
    (void)state;
    const kernels_linear linear = {.batch = 1, .in = 2, .out = 3};
    const kernels_conv2d conv = {1, 2, 1, 1, 3, 1, 1, 1, 0};
    const double x[] = {1, 1}, dy[] = {1, 2, 3};
    for (int k = 0; k < 4; k++) {
        const bool adds_weight = k & 1, adds_bias = k & 2;
        for (int is_conv = 0; is_conv < 2; is_conv++) {
            double dw[6] = {10, 10, 10, 10, 10, 10}, db[3] = {10, 10, 10};
            const kernels_target weight_target = {dw, adds_weight}, bias_target = {db, adds_bias};
            assert_int_equal(is_conv ? reference->conv2d_backward_weight(&conv, x, dy, weight_target, bias_target)
                                     : reference->linear_backward_weight(&linear, x, dy, weight_target, bias_target),
                             LS_OK);
            for (int i = 0; i < 2; i++) {
                for (int o = 0; o < 3; o++) {
                    assert_near(is_conv ? dw[i * 3 + o] : dw[o * 2 + i], (adds_weight ? 10 : 0) + dy[o], 0);
                    assert_near(db[o], (adds_bias ? 10 : 0) + dy[o], 0);
                }
            }
        }
    }
}

/* ---- Max-pooling and ReLU ---- */

static void pooling_takes_the_first_of_equals(void **state) {
    (void)state;
    const kernels_pool2d s = {.batch = 1, .channels = 2, .in_height = 2, .in_width = 3, .kernel = 2, .stride = 1};
    /* Two channels side by side: {{1, 5, 5}, {5, 2, 0}} and {{-1, -1, -7}, {-1, -2, -3}}. */
    const double x[] = {1, -1, 5, -1, 5, -7, 5, -1, 2, -2, 0, -3};
    double y[4];
    int32_t argmax[4];
    assert_int_equal(reference->max_pool2d_forward(&s, x, y, argmax), LS_OK);
    assert_memory_equal(y, ((double[]){5, -1, 5, -1}), sizeof y);
    assert_memory_equal(argmax, ((int32_t[]){1, 0, 1, 1}), sizeof argmax);
    /* Overlapping windows add up where both chose the same pixel. */
    double dx[12];
    assert_int_equal(reference->max_pool2d_backward(&s, (double[]){1, 10, 2, 20}, argmax, dx), LS_OK);
    assert_memory_equal(dx, ((double[]){0, 10, 3, 20, 0, 0, 0, 0, 0, 0, 0, 0}), sizeof dx);
}

static void nan_passes_through_pooling_and_relu_in_every_table(void **state) {
    (void)state;
    const ls_kernels *all[] = {kernels_reference(LS_F32), kernels_for(LS_F32)};
    const kernels_pool2d s = {.batch = 1, .channels = 1, .in_height = 2, .in_width = 2, .kernel = 2, .stride = 2};
    for (size_t t = 0; t < 2; t++) {
        for (int place = 0; place < 4; place++) {
            float x[4] = {1, 2, 3, 4}, y[4];
            int32_t argmax;
            x[place] = NAN;
            assert_int_equal(all[t]->max_pool2d_forward(&s, x, y, &argmax), LS_OK);
            assert_true(isnan(y[0]));
            assert_int_equal(argmax, place);
            assert_int_equal(all[t]->relu_forward(4, x, y), LS_OK);
            assert_true(isnan(y[place]));
        }
    }
}

static void relu_has_no_gradient_at_zero(void **state) {
    (void)state;
    double dx[3];
    assert_int_equal(reference->relu_backward(3, (double[]){0, 1, 0}, (double[]){5, 6, 7}, dx), LS_OK);
    assert_memory_equal(dx, ((double[]){0, 6, 0}), sizeof dx);
}

/* ---- Losses ---- */

static double cross_entropy(const double *x, const int64_t *labels) {
    double probabilities[12], loss;
    assert_int_equal(reference->cross_entropy_forward(3, 4, x, LS_I64, labels, probabilities, &loss), LS_OK);
    return loss;
}

static void cross_entropy_gradient_is_the_slope_of_its_value(void **state) {
    (void)state;
    const int64_t labels[] = {3, 0, 2};
    double x[12], probabilities[12], loss, dx[12];
    for (int i = 0; i < 12; i++) x[i] = 3 * random_value();
    assert_int_equal(reference->cross_entropy_forward(3, 4, x, LS_I64, labels, probabilities, &loss), LS_OK);
    assert_int_equal(reference->cross_entropy_backward(3, 4, probabilities, LS_I64, labels, 0.5, dx), LS_OK);
    for (int i = 0; i < 12; i++) {
        const double here = x[i], step = 1e-5;
        x[i] = here + step;
        const double above = cross_entropy(x, labels);
        x[i] = here - step;
        const double below = cross_entropy(x, labels);
        x[i] = here;
        assert_near(dx[i], 0.5 * (above - below) / (2 * step), 1e-9);
    }
}

static void cross_entropy_of_equal_logits_is_the_log_of_the_classes(void **state) {
    (void)state;
    const int64_t labels[] = {1, 2, 3};
    assert_near(cross_entropy((double[12]){0}, labels), log(4), 1e-15);
    /* Large logits neither overflow nor lose the answer. */
    const double large[] = {1000, 0, 0, 0, 0, 1000, 0, 0, 0, 0, 1000, 0};
    assert_near(cross_entropy(large, labels), (1000 + 1000 + 1000) / 3.0, 1e-9);
}

static void a_label_outside_the_classes_is_named(void **state) {
    (void)state;
    double x[6] = {0}, probabilities[6], loss;
    assert_int_equal(reference->cross_entropy_forward(2, 3, x, LS_I64, (int64_t[]){0, 3}, probabilities, &loss),
                     LS_ERR_ARGUMENT);
    assert_non_null(strstr(ls_last_error(), "sample 1 is 3"));
    assert_int_equal(reference->cross_entropy_forward(2, 3, x, LS_I64, (int64_t[]){-1, 0}, probabilities, &loss),
                     LS_ERR_ARGUMENT);
    assert_non_null(strstr(ls_last_error(), "sample 0 is -1"));
    assert_int_equal(reference->cross_entropy_backward(2, 3, x, LS_F32, (int64_t[]){0, 0}, 1, x), LS_ERR_ARGUMENT);
    assert_non_null(strstr(ls_last_error(), "f32"));
}

static void mse_is_the_mean_of_squares(void **state) {
    (void)state;
    double loss, dx[2];
    const double x[] = {1, 5}, wanted[] = {2, 2};
    assert_int_equal(reference->mse_forward(2, x, wanted, &loss), LS_OK);
    assert_near(loss, 5, 0);
    assert_int_equal(reference->mse_backward(2, x, wanted, 0.5, dx), LS_OK);
    assert_memory_equal(dx, ((double[]){-0.5, 1.5}), sizeof dx);
}

static void means_over_nothing_are_nan_and_sums_zero(void **state) {
    (void)state;
    double value = 7;
    assert_int_equal(reference->sum(0, NULL, &value), LS_OK);
    assert_near(value, 0, 0);
    assert_int_equal(reference->mean(0, NULL, &value), LS_OK);
    assert_true(isnan(value));
    assert_int_equal(reference->cross_entropy_forward(0, 3, NULL, LS_U8, NULL, NULL, &value), LS_OK);
    assert_true(isnan(value));
}

/* ---- Moves ---- */

static void moves_between_layouts_keep_every_element(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 2, 4, 8};
    for (int round = 0; round < 100; round++) {
        const size_t size = sizes[round % 4];
        const int64_t a = random_between(0, 20), b = random_between(0, 40), c = random_between(0, 40);
        const size_t bytes = (size_t)(a * b * c) * size;
        unsigned char *from = malloc(bytes + 1), *to = malloc(bytes + 1), *back = malloc(bytes + 1);
        for (size_t i = 0; i < bytes; i++) from[i] = (unsigned char)random_bits();

        kernels_transpose(size, a, b, c, from, to);
        for (int64_t i = 0; i < a * b * c; i++) {
            const int64_t column = i % c, row = i / c % b, matrix = i / c / b;
            assert_memory_equal(to + (size_t)((matrix * c + column) * b + row) * size, from + (size_t)i * size, size);
        }
        kernels_transpose(size, a, c, b, to, back);
        assert_memory_equal(back, from, bytes);

        kernels_reverse_dims(size, a, b, c, from, to);
        for (int64_t i = 0; i < a * b * c; i++) {
            const int64_t k = i % c, j = i / c % b, first = i / c / b;
            assert_memory_equal(to + (size_t)((k * b + j) * a + first) * size, from + (size_t)i * size, size);
        }
        kernels_reverse_dims(size, c, b, a, to, back);
        assert_memory_equal(back, from, bytes);
        free(from);
        free(to);
        free(back);
    }
}

/* ---- The choice of a table ---- */

static void only_floats_have_kernels(void **state) {
    (void)state;
    assert_int_equal(kernels_for(LS_F32)->dtype, LS_F32);
    assert_int_equal(kernels_for(LS_F64)->dtype, LS_F64);
    assert_null(kernels_for(LS_I64));
    assert_non_null(strstr(ls_last_error(), "i64"));
    assert_null(kernels_reference(LS_BF16));
    assert_null(kernels_onednn(LS_F64));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_its_formula),
        cmocka_unit_test(convolution_is_its_formula),
        cmocka_unit_test(convolution_gradients_are_adjoint_to_the_forward),
        cmocka_unit_test(gradients_are_stored_or_added_as_asked),
        cmocka_unit_test(pooling_takes_the_first_of_equals),
        cmocka_unit_test(nan_passes_through_pooling_and_relu_in_every_table),
        cmocka_unit_test(relu_has_no_gradient_at_zero),
        cmocka_unit_test(cross_entropy_gradient_is_the_slope_of_its_value),
        cmocka_unit_test(cross_entropy_of_equal_logits_is_the_log_of_the_classes),
        cmocka_unit_test(a_label_outside_the_classes_is_named),
        cmocka_unit_test(mse_is_the_mean_of_squares),
        cmocka_unit_test(means_over_nothing_are_nan_and_sums_zero),
        cmocka_unit_test(moves_between_layouts_keep_every_element),
        cmocka_unit_test(only_floats_have_kernels),
    };
    return cmocka_run_group_tests_name("kernels_reference", tests, open, NULL);
}
