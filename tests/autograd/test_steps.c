/* test_steps.c: who owns what ops return, the step's first error, memory that is asked for once, faults in turn. */
#include "autograd/small.h"
#include "support/faults.h"

#include "autograd/step.h"
#include "base/error.h"
#include "base/memory.h"

#include <lockstep/trace.h>

#include <pthread.h>
#include <stdlib.h>

/* ---- Errors ---- */

static void the_first_error_is_kept_and_cleared_at_the_end(void **state) {
    (void)state;
    ls_tensor *a = number(true, 1), *b = vector(false, 2, (double[]){1, 2});
    ls_step_begin();
    assert_int_equal(ls_step_status(), LS_OK);
    assert_null(ls_add(a, b));
    assert_int_equal(ls_step_status(), LS_ERR_ARGUMENT);
    ls_tensor *labels = NULL;
    assert_int_equal(ls_tensor_create(&labels, LS_F64, 9, NULL), LS_ERR_ARGUMENT); /* another sentence */
    assert_null(ls_dropout(a, 2, 0));                                              /* and a later op that fails */
    assert_int_equal(ls_backward(ls_mul(NULL, a)), LS_ERR_ARGUMENT);
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
    assert_error_says("add: inputs are f64 [1] and f64 [2]");
    assert_int_equal(ls_step_status(), LS_OK);

    ls_step_begin();
    assert_int_equal(ls_backward(ls_mul(a, a)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(a), 2, 0);
    ls_tensor_close(&a);
    ls_tensor_close(&b);
}

static void steps_do_not_nest(void **state) {
    (void)state;
    ls_tensor *a = number(true, 1);
    ls_step_begin();
    ls_tensor *y = ls_scale(a, 3);
    ls_step_begin();
    assert_near(ls_tensor_item(y), 3, 0);
    assert_int_equal(ls_step_end(), LS_ERR_STATE);
    assert_error_says("ls_step_begin");
    assert_int_equal(ls_step_end(), LS_ERR_STATE);
    assert_error_says("no step is open");
    ls_tensor_close(&a);
}

static void a_null_loss_without_a_failed_op_tells_the_last_failure(void **state) {
    (void)state;
    ls_fail(LS_ERR_IO, "sample 7 cannot be read");
    ls_step_begin();
    assert_int_equal(ls_backward(NULL), LS_ERR_IO);
    assert_int_equal(ls_step_end(), LS_ERR_IO);
    assert_error_says("sample 7 cannot be read");
}

static void each_step_has_the_next_number(void **state) {
    (void)state;
    ls_step_number_set(41);
    ls_step_begin();
    assert_int_equal(ls_step_number(), 41);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_int_equal(ls_step_number(), 42);
    ls_step_number_set(0);
}

static void null_flows_through_every_op(void **state) {
    (void)state;
    ls_tensor *a = number(true, 1);
    ls_step_begin();
    assert_null(ls_add(NULL, a));
    assert_null(ls_add(a, NULL));
    assert_null(ls_mul(NULL, a));
    assert_null(ls_mul(a, NULL));
    assert_null(ls_scale(NULL, 1));
    assert_null(ls_sum(NULL));
    assert_null(ls_mean(NULL));
    assert_null(ls_relu(NULL));
    assert_null(ls_flatten(NULL));
    assert_null(ls_linear(NULL, a, NULL));
    assert_null(ls_linear(a, NULL, NULL));
    assert_null(ls_conv2d(NULL, a, NULL, 1, 0));
    assert_null(ls_conv2d(a, NULL, NULL, 1, 0));
    assert_null(ls_max_pool2d(NULL, 1, 1));
    assert_null(ls_dropout(NULL, 0.5, 0));
    assert_null(ls_cross_entropy_loss(NULL, a));
    assert_null(ls_cross_entropy_loss(a, NULL));
    assert_null(ls_mse_loss(NULL, a));
    assert_null(ls_mse_loss(a, NULL));
    assert_int_equal(ls_step_end(), LS_OK); /* whoever made the NULL told why */
    ls_tensor_close(&a);
}

/* A step under a trace shows where backward ran. */
static void backward_is_a_span_of_the_trace(void **state) {
    (void)state;
    char directory[] = "/tmp/lockstep-span-XXXXXX", path[64], text[4096] = {0};
    assert_non_null(mkdtemp(directory));
    assert_int_equal(ls_trace_start(directory), LS_OK);
    ls_tensor *a = number(true, 1), *y = ls_mul(a, a);
    assert_int_equal(ls_backward(y), LS_OK);
    assert_int_equal(ls_trace_stop(), LS_OK);
    ls_tensor_close(&y);
    ls_tensor_close(&a);

    snprintf(path, sizeof path, "%s/rank-0.json", directory);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_non_null(strstr(text, "\"backward\""));
    remove(path);
    remove(directory);
}

/* ---- Ownership ---- */

static int released;

static void note_release(void *context) {
    (void)context;
    released++;
}

static void what_ops_return_lives_to_the_end_of_the_step(void **state) {
    (void)state;
    static double values[4] = {1, 2, 3, 4};
    ls_tensor *x = NULL;
    released = 0;
    assert_int_equal(ls_tensor_borrow(&x, LS_F64, 2, (int64_t[]){2, 2}, LS_LAYOUT_PLAIN, values, note_release, NULL),
                     LS_OK);
    ls_step_begin();
    ls_tensor *view = ls_flatten(x);
    ls_tensor_close(&x);
    assert_int_equal(released, 0);
    assert_ptr_equal(ls_tensor_data(view), values);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_int_equal(released, 1);
}

static void a_kept_result_outlives_the_step(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_tensor *a = number(false, 4);
    ls_step_begin();
    ls_tensor *kept = ls_tensor_keep(ls_scale(a, 2));
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(ls_tensor_item(kept), 8, 0);
    ls_tensor_close(&kept);
    ls_tensor_close(&a);
    assert_nothing_left();
}

static void outside_a_step_a_result_is_the_callers(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_tensor *a = number(true, 4);
    ls_tensor *y = ls_mul(a, a);
    assert_int_equal(ls_backward(y), LS_OK);
    assert_near(grad_of(a), 8, 0);
    ls_tensor_close(&y);
    ls_tensor *lost = ls_mul(a, a); /* a tape that no backward passes */
    ls_tensor_close(&a);
    ls_tensor_close(&lost);
    assert_nothing_left();
}

static void a_scope_hands_down_its_outputs_and_lets_the_rest_go(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_tensor *a = number(true, 4);
    ls_step_begin();
    const int outer = autograd_scope_open();
    const int inner = autograd_scope_open();
    ls_tensor *outputs[4] = {ls_scale(a, 1), NULL, a, NULL};
    ls_scale(a, 2);
    outputs[3] = outputs[0]; /* twice the same, one that is not the scope's, and a NULL */
    assert_int_equal(autograd_scope_close(inner, outputs, 4), LS_OK);
    ls_tensor_close(&a);
    assert_near(ls_tensor_item(outputs[0]), 4, 0);
    assert_near(ls_tensor_item(outputs[2]), 4, 0);
    autograd_scope_drop(outputs[0]);
    assert_near(ls_tensor_item(outputs[0]), 4, 0); /* it was held twice */
    assert_int_equal(ls_step_end(), LS_ERR_STATE); /* not from within */
    assert_int_equal(autograd_scope_close(outer, outputs, 1), LS_OK);
    assert_near(ls_tensor_item(outputs[0]), 4, 0);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_nothing_left();
}

static void *end_within_a_step(void *unused) {
    (void)unused;
    ls_tensor *a = number(true, 4);
    ls_step_begin();
    for (int i = 0; i < 100; i++) ls_scale(a, 2);
    ls_tensor_close(&a);
    return NULL;
}

static void a_thread_that_ends_within_a_step_leaves_nothing(void **state) {
    (void)state;
    pthread_t thread;
    ls_note_what_is_there();
    assert_int_equal(pthread_create(&thread, NULL, end_within_a_step, NULL), 0);
    pthread_join(thread, NULL);
    assert_nothing_left();
}

/* ---- A whole small training step ---- */

typedef struct net {
    ls_tensor *x, *conv, *bias, *weight, *labels;
} net;

static ls_status make(ls_tensor **tensor, ls_dtype dtype, int ndim, const int64_t *dims, ls_layout layout,
                      bool is_leaf) {
    LS_TRY(ls_tensor_create_layout(tensor, dtype, ndim, dims, layout));
    const int64_t numel = ls_tensor_numel(*tensor);
    void *data = ls_tensor_data_mut(*tensor);
    for (int64_t i = 0; i < numel && dtype == LS_F64; i++) ((double *)data)[i] = sin((double)i);
    for (int64_t i = 0; i < numel && dtype == LS_F32; i++) ((float *)data)[i] = (float)sin((double)i);
    return is_leaf ? ls_tensor_set_requires_grad(*tensor, true) : LS_OK;
}

static ls_status open_net(net *made, ls_dtype dtype) {
    *made = (net){0};
    LS_TRY(make(&made->x, dtype, 4, (int64_t[]){2, 2, 6, 6}, LS_LAYOUT_PLAIN, false));
    LS_TRY(make(&made->conv, dtype, 4, (int64_t[]){3, 2, 3, 3}, LS_LAYOUT_HWIO, true));
    LS_TRY(make(&made->bias, dtype, 1, (int64_t[]){3}, LS_LAYOUT_PLAIN, true));
    LS_TRY(make(&made->weight, dtype, 2, (int64_t[]){4, 27}, LS_LAYOUT_PLAIN, true));
    return make(&made->labels, LS_U8, 1, (int64_t[]){2}, LS_LAYOUT_PLAIN, false);
}

static void close_net(net *made) {
    ls_tensor_close(&made->x);
    ls_tensor_close(&made->conv);
    ls_tensor_close(&made->bias);
    ls_tensor_close(&made->weight);
    ls_tensor_close(&made->labels);
}

static ls_status pass_on(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    (void)context;
    return ls_tensor_copy_in(grad_inputs[0], ls_tensor_data(grad_output));
}

/* The user's own identity. */
static ls_tensor *identity(ls_tensor *x) {
    ls_tensor *y = NULL;
    int64_t dims[2] = {ls_tensor_dim(x, 0), ls_tensor_dim(x, 1)};
    if (!x || autograd_fail(ls_tensor_create(&y, ls_tensor_dtype(x), 2, dims)) != LS_OK) return NULL;
    ls_tensor_copy_in(y, ls_tensor_data(x));
    return ls_op_record("identity", y, &x, 1, pass_on, NULL, NULL);
}

static ls_status train_step(net *made) {
    ls_step_number_set(3); /* the same draws in every step */
    ls_step_begin();
    ls_tensor *h = ls_max_pool2d(ls_relu(ls_conv2d(made->x, made->conv, made->bias, 1, 1)), 2, 2);
    h = ls_dropout(ls_add(h, ls_mul(h, h)), 0.25, 1);
    ls_tensor *logits = identity(ls_linear(ls_flatten(h), made->weight, NULL));
    ls_backward(ls_add(ls_cross_entropy_loss(logits, made->labels), ls_scale(ls_mean(logits), 0.1)));
    return ls_step_end();
}

static void zero_grads(net *made) {
    ls_tensor_zero_grad(made->conv);
    ls_tensor_zero_grad(made->bias);
    ls_tensor_zero_grad(made->weight);
}

static void steps_after_the_first_allocate_nothing(void **state) {
    (void)state;
    for (int is_f32 = 0; is_f32 < 2; is_f32++) {
        net made;
        assert_int_equal(open_net(&made, is_f32 ? LS_F32 : LS_F64), LS_OK);
        for (int i = 0; i < 3; i++) assert_int_equal(train_step(&made), LS_OK);
        const uint64_t before = ls_alloc_count();
        for (int i = 0; i < 20; i++) {
            zero_grads(&made);
            assert_int_equal(train_step(&made), LS_OK);
        }
        assert_int_equal(ls_alloc_count(), before);
        close_net(&made);
    }
}

/* Every allocation of a step fails once: the step says so, and the next one is right. */
static void a_fault_at_every_allocation_fails_the_step_and_the_next_is_right(void **state) {
    (void)state;
    double expected[12 * 9] = {0};
    net made;
    assert_int_equal(open_net(&made, LS_F64), LS_OK);
    assert_int_equal(train_step(&made), LS_OK);
    const size_t bytes = sizeof(double) * (size_t)ls_tensor_numel(made.weight);
    assert_int_equal(bytes, sizeof expected);
    memcpy(expected, ls_tensor_data(ls_tensor_grad(made.weight)), bytes);
    close_net(&made);

    int runs = 0;
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        ls_status status = open_net(&made, LS_F64);
        if (status == LS_OK) status = train_step(&made);
        if (ls_fault_was_met())
            assert_fault_reported(status);
        else
            assert_int_equal(status, LS_OK);
        ls_fault_disarm();
        if (made.labels) {
            zero_grads(&made);
            assert_int_equal(train_step(&made), LS_OK);
            assert_memory_equal(ls_tensor_data(ls_tensor_grad(made.weight)), expected, bytes);
        }
        close_net(&made);
        runs++;
    }
    assert_nothing_left();
    assert_true(runs > 60);
}

static void *do_nothing(void *unused) {
    return unused;
}

/* With the first thread ThreadSanitizer starts one of its own, which is not left behind by the library. */
static int start_a_thread(void **state) {
    (void)state;
    pthread_t thread;
    return pthread_create(&thread, NULL, do_nothing, NULL) || pthread_join(thread, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_error_is_kept_and_cleared_at_the_end),
        cmocka_unit_test(steps_do_not_nest),
        cmocka_unit_test(a_null_loss_without_a_failed_op_tells_the_last_failure),
        cmocka_unit_test(each_step_has_the_next_number),
        cmocka_unit_test(null_flows_through_every_op),
        cmocka_unit_test(backward_is_a_span_of_the_trace),
        cmocka_unit_test(what_ops_return_lives_to_the_end_of_the_step),
        cmocka_unit_test(a_kept_result_outlives_the_step),
        cmocka_unit_test(outside_a_step_a_result_is_the_callers),
        cmocka_unit_test(a_scope_hands_down_its_outputs_and_lets_the_rest_go),
        cmocka_unit_test(a_thread_that_ends_within_a_step_leaves_nothing),
        cmocka_unit_test(steps_after_the_first_allocate_nothing),
        cmocka_unit_test(a_fault_at_every_allocation_fails_the_step_and_the_next_is_right),
    };
    return cmocka_run_group_tests(tests, start_a_thread, NULL);
}
