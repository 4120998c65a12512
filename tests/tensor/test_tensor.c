/* test_tensor.c: shapes, layouts, storage that is owned, borrowed or shared, versions. */
#include "support/faults.h"

#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

static void assert_error_says(const char *words) {
    if (strstr(ls_last_error(), words)) return;
    print_error("expected \"%s\" in \"%s\"\n", words, ls_last_error());
    fail();
}

static void a_tensor_knows_its_shape(void **state) {
    (void)state;
    ls_tensor *tensor = NULL;
    assert_int_equal(ls_tensor_create(&tensor, LS_F32, 3, (int64_t[]){2, 3, 4}), LS_OK);
    assert_int_equal(ls_tensor_dtype(tensor), LS_F32);
    assert_int_equal(ls_tensor_layout(tensor), LS_LAYOUT_PLAIN);
    assert_int_equal(ls_tensor_ndim(tensor), 3);
    assert_int_equal(ls_tensor_numel(tensor), 24);
    for (int i = 0; i < 3; i++) assert_int_equal(ls_tensor_dim(tensor, i), i + 2);
    assert_int_equal(ls_tensor_dim(tensor, -1), 4);
    assert_int_equal(ls_tensor_dim(tensor, -3), 2);
    assert_int_equal(ls_tensor_dim(tensor, 3), 0);
    assert_error_says("there is no dim 3");
    assert_int_equal((uintptr_t)ls_tensor_data(tensor) % 64, 0);
    for (int i = 0; i < 24; i++) assert_true(((const float *)ls_tensor_data(tensor))[i] == 0);
    ls_tensor_close(&tensor);
    assert_null(tensor);
    ls_tensor_close(&tensor);
    ls_tensor_close(NULL);
}

static void scalars_and_empty_tensors_work(void **state) {
    (void)state;
    ls_tensor *scalar = NULL, *empty = NULL;
    assert_int_equal(ls_tensor_create(&scalar, LS_F64, 0, NULL), LS_OK);
    assert_int_equal(ls_tensor_numel(scalar), 1);
    *(double *)ls_tensor_data_mut(scalar) = 2.5;
    assert_true(ls_tensor_item(scalar) == 2.5);
    assert_int_equal(ls_tensor_create(&empty, LS_F64, 2, (int64_t[]){10, 0}), LS_OK);
    assert_int_equal(ls_tensor_numel(empty), 0);
    assert_non_null(ls_tensor_data(empty));
    assert_int_equal(ls_tensor_copy_in(empty, NULL), LS_OK);
    assert_int_equal(ls_tensor_copy_out(empty, NULL), LS_OK);
    assert_true(isnan(ls_tensor_item(empty)));
    assert_error_says("expected one element, found f64 [10, 0]");
    ls_tensor_close(&scalar);
    ls_tensor_close(&empty);
}

static void shapes_that_cannot_be_are_refused(void **state) {
    (void)state;
    ls_tensor *tensor = NULL;
    const int64_t negative[2] = {3, -1}, huge[3] = {1, INT64_C(1) << 62, 4}, hidden[3] = {0, INT64_C(1) << 62, 4};
    const int64_t ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_int_equal(ls_tensor_create(&tensor, LS_F32, 2, negative), LS_ERR_ARGUMENT);
    assert_error_says("dim 1 is -1");
    assert_int_equal(ls_tensor_create(&tensor, LS_F32, 3, huge), LS_ERR_ARGUMENT);
    assert_int_equal(ls_tensor_create(&tensor, LS_F32, 3, hidden), LS_ERR_ARGUMENT);
    assert_int_equal(ls_tensor_create(&tensor, LS_F32, 9, ones), LS_ERR_ARGUMENT);
    assert_int_equal(ls_tensor_create(&tensor, LS_F32, 2, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_tensor_create(&tensor, LS_BF16, 1, ones), LS_ERR_ARGUMENT);
    assert_error_says("bf16");
    assert_int_equal(ls_tensor_create_layout(&tensor, LS_F32, 3, ones, LS_LAYOUT_NHWC), LS_ERR_ARGUMENT);
    assert_int_equal(ls_tensor_create(&tensor, LS_F64, 1, (int64_t[]){INT64_C(1) << 59}), LS_ERR_MEMORY);
    assert_null(tensor);
}

/* ---- Layouts ---- */

static void copies_are_in_logical_order_for_every_layout_and_type(void **state) {
    (void)state;
    const int64_t dims[4] = {3, 2, 4, 5};
    const ls_dtype dtypes[] = {LS_F32, LS_F64, LS_I64, LS_U8};
    for (int layout = 0; layout < 3; layout++) {
        for (int k = 0; k < 4; k++) {
            ls_tensor *tensor = NULL;
            unsigned char in[120 * 8], out[sizeof in];
            const size_t size = ls_dtype_size(dtypes[k]);
            for (size_t i = 0; i < sizeof in; i++) in[i] = (unsigned char)(i * 7 % 251);
            assert_int_equal(ls_tensor_create_layout(&tensor, dtypes[k], 4, dims, (ls_layout)layout), LS_OK);
            assert_int_equal(ls_tensor_copy_in(tensor, in), LS_OK);

            /* Element [a][b][c][d] lies where the layout says. */
            int64_t strides[LS_MAX_DIMS], logical = 0;
            tensor_strides(tensor, strides);
            for (int64_t a = 0; a < 3; a++)
                for (int64_t b = 0; b < 2; b++)
                    for (int64_t c = 0; c < 4; c++)
                        for (int64_t d = 0; d < 5; d++, logical++) {
                            const int64_t place = a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
                            assert_memory_equal((const char *)tensor->data + (size_t)place * size,
                                                in + (size_t)logical * size, size);
                        }
            memset(out, 0, sizeof out);
            assert_int_equal(ls_tensor_copy_out(tensor, out), LS_OK);
            assert_memory_equal(in, out, 120 * size);
            ls_tensor_close(&tensor);
        }
    }
}

static void strides_follow_the_layout(void **state) {
    (void)state;
    static const int64_t expected[3][4] = {{40, 20, 5, 1}, {40, 1, 10, 2}, {1, 3, 30, 6}};
    for (int layout = 0; layout < 3; layout++) {
        ls_tensor *tensor = NULL;
        int64_t strides[LS_MAX_DIMS];
        assert_int_equal(ls_tensor_create_layout(&tensor, LS_U8, 4, (int64_t[]){3, 2, 4, 5}, (ls_layout)layout), LS_OK);
        tensor_strides(tensor, strides);
        assert_memory_equal(strides, expected[layout], sizeof expected[layout]);
        assert_int_equal(tensor_is_plain(tensor), layout == 0);
        ls_tensor_close(&tensor);
    }
}

static void layouts_that_move_nothing_are_plain(void **state) {
    (void)state;
    const struct {
        int64_t dims[4];
        ls_layout layout;
        bool is_plain;
    } cases[] = {{{4, 1, 3, 5}, LS_LAYOUT_NHWC, true},  {{4, 3, 1, 1}, LS_LAYOUT_NHWC, true},
                 {{4, 3, 1, 2}, LS_LAYOUT_NHWC, false}, {{1, 1, 3, 5}, LS_LAYOUT_HWIO, true},
                 {{2, 1, 1, 1}, LS_LAYOUT_HWIO, true},  {{2, 2, 1, 1}, LS_LAYOUT_HWIO, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_tensor *tensor = NULL;
        assert_int_equal(ls_tensor_create_layout(&tensor, LS_U8, 4, cases[i].dims, cases[i].layout), LS_OK);
        assert_int_equal(tensor_is_plain(tensor), cases[i].is_plain);
        ls_tensor_close(&tensor);
    }
}

/* ---- Storage ---- */

static int released;

static void note_release(void *context) {
    released += *(int *)context;
}

static void borrowed_memory_is_released_once_by_the_last_holder(void **state) {
    (void)state;
    float memory[6] = {1, 2, 3, 4, 5, 6};
    int weight = 1;
    ls_tensor *tensor = NULL, *view = NULL;
    released = 0;
    assert_int_equal(
        ls_tensor_borrow(&tensor, LS_F32, 2, (int64_t[]){2, 3}, LS_LAYOUT_PLAIN, memory, note_release, &weight), LS_OK);
    assert_ptr_equal(ls_tensor_data(tensor), memory);
    assert_int_equal(tensor_create_view(&view, tensor, 1, (int64_t[]){6}, LS_LAYOUT_PLAIN), LS_OK);
    ls_tensor *same = ls_tensor_keep(tensor);
    ls_tensor_close(&tensor);
    ls_tensor_close(&same);
    assert_int_equal(released, 0);
    assert_ptr_equal(ls_tensor_data(view), memory);
    ls_tensor_close(&view);
    assert_int_equal(released, 1);
}

static void a_refused_borrow_releases_nothing(void **state) {
    (void)state;
    float memory[6];
    int weight = 1;
    released = 0;
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        ls_tensor *tensor = NULL;
        const ls_status status =
            ls_tensor_borrow(&tensor, LS_F32, 1, (int64_t[]){6}, LS_LAYOUT_PLAIN, memory, note_release, &weight);
        if (ls_fault_was_met()) {
            assert_fault_reported(status);
            assert_null(tensor);
            assert_int_equal(released, 0);
        }
        ls_tensor_close(&tensor);
    }
    assert_int_equal(released, 1);
    ls_tensor *tensor = NULL;
    assert_int_equal(ls_tensor_borrow(&tensor, LS_F32, 1, (int64_t[]){6}, LS_LAYOUT_PLAIN, NULL, note_release, &weight),
                     LS_ERR_ARGUMENT);
    assert_int_equal(released, 1);
    assert_nothing_left();
}

static void views_share_content_and_version(void **state) {
    (void)state;
    ls_tensor *tensor = NULL, *view = NULL, *wrong = NULL;
    assert_int_equal(ls_tensor_create(&tensor, LS_F64, 2, (int64_t[]){2, 3}), LS_OK);
    assert_int_equal(tensor_create_view(&view, tensor, 1, (int64_t[]){6}, LS_LAYOUT_PLAIN), LS_OK);
    assert_int_equal(ls_tensor_version(view), ls_tensor_version(tensor));
    ((double *)ls_tensor_data_mut(view))[4] = 7;
    assert_true(((const double *)ls_tensor_data(tensor))[4] == 7);
    assert_int_equal(ls_tensor_version(view), ls_tensor_version(tensor));
    assert_int_equal(tensor_create_view(&wrong, tensor, 1, (int64_t[]){5}, LS_LAYOUT_PLAIN), LS_ERR_ARGUMENT);
    ls_tensor_close(&tensor);
    ls_tensor_close(&view);
}

static void every_write_changes_the_version_and_no_version_comes_twice(void **state) {
    (void)state;
    ls_tensor *first = NULL, *second = NULL;
    assert_int_equal(ls_tensor_create(&first, LS_F64, 0, NULL), LS_OK);
    uint64_t version = ls_tensor_version(first);
    assert_true(version > 0);
    ls_tensor_data(first);
    assert_int_equal(ls_tensor_version(first), version);
    ls_tensor_data_mut(first);
    assert_true(ls_tensor_version(first) != version);
    version = ls_tensor_version(first);
    const double value = 1;
    assert_int_equal(ls_tensor_copy_in(first, &value), LS_OK);
    assert_true(ls_tensor_version(first) != version);
    version = ls_tensor_version(first);

    /* The same memory under another tensor has another version. */
    ls_tensor *holder = NULL;
    assert_int_equal(ls_tensor_create(&holder, LS_F64, 0, NULL), LS_OK);
    const void *address = ls_tensor_data(first);
    ls_tensor_close(&first);
    assert_int_equal(ls_tensor_create(&second, LS_F64, 0, NULL), LS_OK);
    assert_ptr_equal(ls_tensor_data(second), address);
    assert_true(ls_tensor_version(second) != version);
    ls_tensor_close(&second);
    ls_tensor_close(&holder);
}

static void null_tensors_answer_without_harm(void **state) {
    (void)state;
    assert_int_equal(ls_tensor_numel(NULL), 0);
    assert_int_equal(ls_tensor_ndim(NULL), 0);
    assert_int_equal(ls_tensor_dim(NULL, 0), 0);
    assert_null(ls_tensor_data(NULL));
    assert_null(ls_tensor_data_mut(NULL));
    assert_null(ls_tensor_keep(NULL));
    assert_int_equal(ls_tensor_version(NULL), 0);
    assert_int_equal(ls_tensor_copy_in(NULL, "x"), LS_ERR_ARGUMENT);
    assert_int_equal(ls_tensor_copy_out(NULL, (char[]){0}), LS_ERR_ARGUMENT);
    assert_true(isnan(ls_tensor_item(NULL)));
}

static void items_of_every_type_are_read(void **state) {
    (void)state;
    ls_tensor *tensor = NULL;
    const float narrow = 1.5f;
    const int64_t whole = -3;
    const uint8_t small = 200;
    const struct {
        ls_dtype dtype;
        const void *value;
        double expected;
    } cases[] = {{LS_F32, &narrow, 1.5}, {LS_I64, &whole, -3}, {LS_U8, &small, 200}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ls_tensor_create(&tensor, cases[i].dtype, 2, (int64_t[]){1, 1}), LS_OK);
        assert_int_equal(ls_tensor_copy_in(tensor, cases[i].value), LS_OK);
        assert_true(ls_tensor_item(tensor) == cases[i].expected);
        ls_tensor_close(&tensor);
    }
}

static void a_tensor_whose_memory_is_refused_leaves_nothing(void **state) {
    (void)state;
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        ls_tensor *tensor = NULL, *view = NULL;
        ls_status status = ls_tensor_create(&tensor, LS_F64, 1, (int64_t[]){100});
        if (status == LS_OK) status = tensor_create_view(&view, tensor, 2, (int64_t[]){10, 10}, LS_LAYOUT_PLAIN);
        if (ls_fault_was_met()) assert_fault_reported(status);
        ls_tensor_close(&view);
        ls_tensor_close(&tensor);
    }
    assert_nothing_left();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_knows_its_shape),
        cmocka_unit_test(scalars_and_empty_tensors_work),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
        cmocka_unit_test(copies_are_in_logical_order_for_every_layout_and_type),
        cmocka_unit_test(strides_follow_the_layout),
        cmocka_unit_test(layouts_that_move_nothing_are_plain),
        cmocka_unit_test(borrowed_memory_is_released_once_by_the_last_holder),
        cmocka_unit_test(a_refused_borrow_releases_nothing),
        cmocka_unit_test(views_share_content_and_version),
        cmocka_unit_test(every_write_changes_the_version_and_no_version_comes_twice),
        cmocka_unit_test(null_tensors_answer_without_harm),
        cmocka_unit_test(items_of_every_type_are_read),
        cmocka_unit_test(a_tensor_whose_memory_is_refused_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
