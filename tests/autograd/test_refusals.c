/* test_refusals.c: calls that cannot be made say which op, what was expected and what was found. */
#include "autograd/small.h"
#include "support/faults.h"

static ls_tensor *tensor(ls_dtype dtype, int ndim, const int64_t *dims, ls_layout layout) {
    ls_tensor *made = NULL;
    assert_int_equal(ls_tensor_create_layout(&made, dtype, ndim, dims, layout), LS_OK);
    return made;
}

#define PLAIN(dtype, ...) \
    tensor(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}, LS_LAYOUT_PLAIN)

/* The step failed with the words; its tensors, given here, are closed. */
static void assert_refused(const ls_tensor *result, const char *words, int count, ls_tensor **tensors) {
    assert_null(result);
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
    assert_error_says(words);
    for (int i = 0; i < count; i++) ls_tensor_close(&tensors[i]);
}

static void shapes_that_do_not_fit_are_refused(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_tensor *t[3];

    ls_step_begin();
    t[0] = PLAIN(LS_F32, 2, 3), t[1] = PLAIN(LS_F32, 3, 2);
    assert_refused(ls_mul(t[0], t[1]), "mul: inputs are f32 [2, 3] and f32 [3, 2]; expected the same shape", 2, t);

    ls_step_begin();
    t[0] = PLAIN(LS_F32, 2, 3), t[1] = PLAIN(LS_F64, 2, 3);
    assert_refused(ls_add(t[0], t[1]), "add: inputs of type f32 and f64; expected one type", 2, t);

    ls_step_begin();
    t[0] = PLAIN(LS_I64, 2);
    assert_refused(ls_relu(t[0]), "relu: elements of type i64; expected f32 or f64", 1, t);

    ls_step_begin();
    t[0] = tensor(LS_F32, 4, (int64_t[]){1, 2, 3, 4}, LS_LAYOUT_NHWC), t[1] = PLAIN(LS_F32, 1, 2, 3, 4);
    assert_refused(ls_add(t[0], t[1]), "f32 [1, 2, 3, 4] nhwc and f32 [1, 2, 3, 4]; expected", 2, t);

    ls_step_begin();
    t[0] = PLAIN(LS_F32, 5, 4), t[1] = PLAIN(LS_F32, 2, 3);
    assert_refused(ls_linear(t[0], t[1], NULL), "linear: x is f32 [5, 4] and weight f32 [2, 3]", 2, t);

    ls_step_begin();
    t[0] = PLAIN(LS_F32, 5, 3), t[1] = PLAIN(LS_F32, 2, 3), t[2] = PLAIN(LS_F32, 3);
    assert_refused(ls_linear(t[0], t[1], t[2]), "linear: bias is f32 [3]", 3, t);

    ls_step_begin();
    t[0] = PLAIN(LS_F32, 5, 3), t[1] = PLAIN(LS_F32, 3, 5);
    assert_refused(ls_mse_loss(t[0], t[1]), "mse_loss: x is f32 [5, 3] and y f32 [3, 5]", 2, t);

    ls_step_begin();
    t[0] = tensor(LS_F32, 0, NULL, LS_LAYOUT_PLAIN);
    assert_refused(ls_flatten(t[0]), "flatten: a scalar", 1, t);
    assert_nothing_left();
}

static void images_that_do_not_fit_are_refused(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_tensor *t[3];
    const int64_t image[4] = {1, 2, 5, 5}, kernel[4] = {3, 2, 3, 3}, large[4] = {3, 2, 8, 3}, other[4] = {3, 1, 3, 3};

    ls_step_begin();
    t[0] = tensor(LS_F32, 4, image, LS_LAYOUT_NHWC), t[1] = tensor(LS_F32, 4, kernel, LS_LAYOUT_PLAIN);
    assert_refused(ls_conv2d(t[0], t[1], NULL, 1, 0), "stored hwio", 2, t);

    ls_step_begin();
    t[0] = tensor(LS_F32, 4, image, LS_LAYOUT_PLAIN), t[1] = tensor(LS_F32, 4, other, LS_LAYOUT_HWIO);
    assert_refused(ls_conv2d(t[0], t[1], NULL, 1, 0), "weight f32 [3, 1, 3, 3] hwio", 2, t);

    ls_step_begin();
    t[0] = tensor(LS_F32, 4, image, LS_LAYOUT_NHWC), t[1] = tensor(LS_F32, 4, large, LS_LAYOUT_HWIO);
    assert_refused(ls_conv2d(t[0], t[1], NULL, 1, 1),
                   "a kernel of 8x3 with stride 1 and padding 1 does not fit on images of 5x5", 2, t);

    ls_step_begin();
    t[0] = tensor(LS_F32, 4, image, LS_LAYOUT_NHWC), t[1] = tensor(LS_F32, 4, kernel, LS_LAYOUT_HWIO);
    assert_refused(ls_conv2d(t[0], t[1], NULL, 0, 1), "stride 0", 2, t);

    ls_step_begin();
    t[0] = tensor(LS_F32, 4, image, LS_LAYOUT_NHWC), t[1] = tensor(LS_F32, 4, kernel, LS_LAYOUT_HWIO);
    t[2] = PLAIN(LS_F32, 2);
    assert_refused(ls_conv2d(t[0], t[1], t[2], 1, 1), "bias is f32 [2] for 3 output channels", 3, t);

    ls_step_begin();
    t[0] = PLAIN(LS_F32, 5, 5);
    assert_refused(ls_max_pool2d(t[0], 2, 2), "images are f32 [5, 5]; expected [n, c, h, w]", 1, t);

    ls_step_begin();
    t[0] = tensor(LS_F32, 4, image, LS_LAYOUT_NHWC);
    assert_refused(ls_max_pool2d(t[0], 6, 2), "a window of 6", 1, t);
    assert_nothing_left();
}

static void a_label_out_of_range_is_named(void **state) {
    (void)state;
    ls_tensor *logits = PLAIN(LS_F64, 3, 4), *labels = PLAIN(LS_I64, 3), *few = PLAIN(LS_I64, 2),
              *none = PLAIN(LS_F64, 3);
    ls_step_begin();
    ((int64_t *)ls_tensor_data_mut(labels))[2] = 4;
    assert_null(ls_cross_entropy_loss(logits, labels));
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
    assert_error_says("the label of sample 2 is 4, outside the 4 classes");
    ls_step_begin();
    ((int64_t *)ls_tensor_data_mut(labels))[2] = -1;
    assert_null(ls_cross_entropy_loss(logits, labels));
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
    assert_error_says("the label of sample 2 is -1");
    ls_step_begin();
    assert_refused(ls_cross_entropy_loss(logits, few), "cross_entropy_loss: logits are f64 [3, 4] and labels i64 [2]",
                   1, &few);
    ls_step_begin();
    assert_refused(ls_cross_entropy_loss(logits, none), "labels f64 [3]", 1, &none);
    ls_tensor_close(&logits);
    ls_tensor_close(&labels);
}

static void a_probability_out_of_range_is_refused(void **state) {
    (void)state;
    const double wrong[] = {-0.1, 1, NAN};
    for (int i = 0; i < 3; i++) {
        ls_tensor *x = PLAIN(LS_F32, 3);
        ls_step_begin();
        assert_refused(ls_dropout(x, wrong[i], 0), "expected [0, 1)", 1, &x);
    }
    ls_tensor *weight = NULL; /* its first dim is no sample */
    assert_int_equal(ls_tensor_create_layout(&weight, LS_F32, 4, (int64_t[]){2, 3, 2, 2}, LS_LAYOUT_HWIO), LS_OK);
    ls_step_begin();
    assert_refused(ls_dropout(weight, 0.5, 0), "expected samples", 1, &weight);
}

/* ---- Dims of 0 ---- */

static void empty_batches_and_outputs_work(void **state) {
    (void)state;
    ls_tensor *x = PLAIN(LS_F64, 0, 3), *w = PLAIN(LS_F64, 2, 3), *to_none = PLAIN(LS_F64, 0, 3),
              *y = PLAIN(LS_F64, 4, 3);
    assert_int_equal(ls_tensor_set_requires_grad(w, true), LS_OK);
    assert_int_equal(ls_tensor_set_requires_grad(to_none, true), LS_OK);
    ls_step_begin();
    assert_int_equal(ls_backward(ls_sum(ls_linear(x, w, NULL))), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    const double *grad = ls_tensor_data(ls_tensor_grad(w));
    for (int i = 0; i < 6; i++) assert_near(grad[i], 0, 0);
    ls_step_begin();
    assert_int_equal(ls_backward(ls_sum(ls_linear(y, to_none, NULL))), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_int_equal(ls_tensor_numel(ls_tensor_grad(to_none)), 0);
    ls_tensor_close(&x);
    ls_tensor_close(&w);
    ls_tensor_close(&to_none);
    ls_tensor_close(&y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_that_do_not_fit_are_refused), cmocka_unit_test(images_that_do_not_fit_are_refused),
        cmocka_unit_test(a_label_out_of_range_is_named),      cmocka_unit_test(a_probability_out_of_range_is_refused),
        cmocka_unit_test(empty_batches_and_outputs_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
