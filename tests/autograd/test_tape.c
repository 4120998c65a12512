/* test_tape.c: what the tape records, how backward walks it, and what it refuses. */
#include "autograd/small.h"
#include "support/faults.h"

#include "autograd/observer.h"

#include <pthread.h>

/* ---- Sums ---- */

static void gradients_of_two_forwards_are_summed(void **state) {
    (void)state;
    ls_tensor *w = number(true, 7), *xs[4];
    for (int i = 0; i < 4; i++) xs[i] = number(false, i + 1);
    ls_step_begin();
    ls_tensor *first = ls_scale(ls_add(ls_mul(w, xs[0]), ls_mul(w, xs[1])), 0.5);
    ls_no_grad_begin();
    ls_tensor *between = ls_mul(w, xs[0]); /* changes nothing */
    assert_false(ls_tensor_requires_grad(between));
    ls_no_grad_end();
    ls_tensor *second = ls_scale(ls_add(ls_mul(w, xs[2]), ls_mul(w, xs[3])), 0.5);
    assert_int_equal(ls_backward(ls_add(first, second)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(w), 5, 0);
    for (int i = 0; i < 4; i++) ls_tensor_close(&xs[i]);
    ls_tensor_close(&w);
}

typedef struct hook_record {
    int calls;
    int order[8];
    ls_tensor *leaf;
    double grad; /* as the hook saw it */
} hook_record;

static void note_hook(void *context, int index) {
    hook_record *record = context;
    record->order[record->calls++] = index;
    if (record->leaf) record->grad = grad_of(record->leaf);
    if (record->leaf) assert_true(autograd_leaf_is_reached(record->leaf));
}

static void a_tied_weight_has_one_gradient_and_one_hook_call(void **state) {
    (void)state;
    ls_tensor *w = number(true, 3), *x = number(false, 1.0 / 3);
    hook_record record = {.leaf = w};
    assert_int_equal(autograd_leaf_set_hook(w, note_hook, &record, 4), LS_OK);
    ls_step_begin();
    ls_tensor *y = ls_mul(w, ls_mul(w, x));
    assert_int_equal(ls_backward(ls_mul(y, y)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(w), 12, 1e-14);
    assert_int_equal(record.calls, 1);
    assert_int_equal(record.order[0], 4);
    assert_near(record.grad, grad_of(w), 0);
    assert_false(autograd_leaf_is_reached(w));

    /* Without the hook nothing is called. */
    assert_int_equal(autograd_leaf_set_hook(w, NULL, NULL, 0), LS_OK);
    ls_step_begin();
    assert_int_equal(ls_backward(ls_mul(w, x)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_int_equal(record.calls, 1);
    ls_tensor_close(&w);
    ls_tensor_close(&x);
}

static void zero_grad_makes_the_next_backward_store(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *x = number(false, 5);
    assert_null(ls_tensor_grad(w));
    for (int round = 1; round <= 2; round++) {
        ls_step_begin();
        assert_int_equal(ls_backward(ls_mul(w, x)), LS_OK);
        assert_int_equal(ls_step_end(), LS_OK);
        assert_near(grad_of(w), 5 * round, 0);
    }
    ls_tensor_zero_grad(w);
    assert_null(ls_tensor_grad(w));
    ls_step_begin();
    assert_int_equal(ls_backward(ls_mul(w, x)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(w), 5, 0);
    ls_tensor_close(&w);
    ls_tensor_close(&x);
}

static void gradients_become_complete_from_the_newest_op_to_the_oldest(void **state) {
    (void)state;
    hook_record record = {0};
    ls_tensor *ws[4], *x = number(false, 2);
    ls_step_begin();
    ls_tensor *y = x;
    for (int i = 0; i < 4; i++) {
        ws[i] = number(true, i + 1);
        assert_int_equal(autograd_leaf_set_hook(ws[i], note_hook, &record, i), LS_OK);
        y = ls_mul(y, ws[i]);
    }
    assert_int_equal(ls_backward(y), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_int_equal(record.calls, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(record.order[i], 3 - i);
    for (int i = 0; i < 4; i++) ls_tensor_close(&ws[i]);
    ls_tensor_close(&x);
}

static void a_leaf_may_be_the_loss(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2);
    assert_int_equal(ls_backward(w), LS_OK);
    assert_int_equal(ls_backward(w), LS_OK);
    assert_near(grad_of(w), 2, 0);
    ls_tensor_close(&w);
}

static void a_leaf_closed_before_backward_does_no_harm(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *v = number(true, 3);
    ls_step_begin();
    ls_tensor *loss = ls_mul(w, v);
    ls_tensor_close(&w);
    assert_int_equal(ls_backward(loss), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(v), 2, 0);
    ls_tensor_close(&v);
}

/* ---- Refusals ---- */

static void a_second_backward_over_the_same_tape_is_refused(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *x = number(false, 5);
    ls_step_begin();
    ls_tensor *trunk = ls_mul(w, x), *loss = ls_scale(trunk, 2);
    assert_int_equal(ls_backward(loss), LS_OK);
    assert_int_equal(ls_backward(loss), LS_ERR_STATE);
    assert_error_says("earlier backward has freed the tape at scale");
    assert_int_equal(ls_step_end(), LS_ERR_STATE);
    assert_near(grad_of(w), 10, 0);

    /* Also where two losses share a part of it. */
    ls_step_begin();
    trunk = ls_mul(w, x);
    ls_tensor *other = ls_scale(trunk, 3);
    assert_int_equal(ls_backward(ls_scale(trunk, 2)), LS_OK);
    assert_int_equal(ls_backward(other), LS_ERR_STATE);
    assert_error_says("at mul");
    assert_int_equal(ls_step_end(), LS_ERR_STATE);
    ls_tensor_close(&w);
    ls_tensor_close(&x);
}

static void a_loss_that_is_no_scalar_or_has_no_tape_is_refused(void **state) {
    (void)state;
    ls_tensor *w = vector(true, 2, (double[]){1, 2}), *x = number(false, 5);
    ls_step_begin();
    assert_int_equal(ls_backward(ls_scale(w, 2)), LS_ERR_ARGUMENT);
    assert_error_says("f64 [2]");
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
    ls_step_begin();
    assert_int_equal(ls_backward(ls_scale(x, 2)), LS_ERR_ARGUMENT);
    assert_error_says("nothing that requires gradients");
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
    ls_step_begin();
    ls_no_grad_begin();
    ls_tensor *loss = ls_sum(w);
    ls_no_grad_end();
    assert_int_equal(ls_backward(loss), LS_ERR_ARGUMENT);
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
    assert_null(ls_tensor_grad(w));
    ls_tensor_close(&w);
    ls_tensor_close(&x);
}

static void only_float_tensors_of_the_users_own_become_leaves(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *labels = NULL;
    ls_tensor *y = ls_scale(w, 2);
    assert_int_equal(ls_tensor_set_requires_grad(y, true), LS_ERR_ARGUMENT);
    assert_error_says("scale");
    assert_true(ls_tensor_requires_grad(y));
    assert_int_equal(ls_tensor_create(&labels, LS_I64, 0, NULL), LS_OK);
    assert_int_equal(ls_tensor_set_requires_grad(labels, true), LS_ERR_ARGUMENT);
    assert_int_equal(ls_tensor_set_requires_grad(NULL, true), LS_ERR_ARGUMENT);
    assert_false(ls_tensor_requires_grad(NULL));
    ls_tensor_close(&y);
    ls_tensor_close(&labels);
    ls_tensor_close(&w);
}

static void a_saved_tensor_that_was_written_is_noticed(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *x = number(true, 5);
    ls_step_begin();
    ls_tensor *loss = ls_mul(w, x);
    *(double *)ls_tensor_data_mut(w) = 3;
    assert_int_equal(ls_backward(loss), LS_ERR_STATE);
    assert_error_says("mul needs its first input");
    assert_int_equal(ls_step_end(), LS_ERR_STATE);
    assert_null(ls_tensor_grad(x));

    /* What backward does not read may change. */
    ls_step_begin();
    loss = ls_scale(w, 4);
    *(double *)ls_tensor_data_mut(w) = 7;
    assert_int_equal(ls_backward(loss), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    ls_tensor_close(&w);
    ls_tensor_close(&x);
}

/* ---- Depth ---- */

#define DEEP 100000

static void *run_deep(void *unused) {
    (void)unused;
    ls_tensor *w = number(true, 2);
    for (int with_backward = 0; with_backward < 2; with_backward++) {
        ls_step_begin();
        ls_tensor *y = w;
        for (int i = 0; i < DEEP; i++) y = ls_scale(y, i % 2 ? 2 : 0.5);
        if (with_backward) assert_int_equal(ls_backward(y), LS_OK);
        assert_int_equal(ls_step_end(), LS_OK);
    }
    assert_near(grad_of(w), 1, 0);

    /* Held by its last tensor alone, the whole chain goes with it. */
    ls_tensor *y = ls_scale(w, 1);
    for (int i = 0; i < DEEP; i++) {
        ls_tensor *next = ls_scale(y, 1);
        ls_tensor_close(&y);
        y = next;
    }
    ls_tensor_close(&y);
    ls_tensor_close(&w);
    return NULL;
}

/* On a stack of 256 KiB, where a call an op would need megabytes. */
static void a_chain_of_100000_ops_needs_no_recursion(void **state) {
    (void)state;
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    assert_int_equal(pthread_create(&thread, &attributes, run_deep, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

/* ---- Threads ---- */

static void *square(void *leaf) {
    ls_tensor *y = ls_scale(leaf, 1);
    for (int i = 0; i < 100; i++) { /* ops of this thread's own, so that its numbers run ahead */
        ls_tensor *other = ls_scale(leaf, 1);
        ls_tensor_close(&other);
    }
    ls_tensor *result = ls_mul(y, y);
    ls_tensor_close(&y);
    return result;
}

static void a_tape_begun_on_another_thread_is_walked_in_its_order(void **state) {
    (void)state;
    ls_tensor *w = number(true, 3);
    pthread_t thread;
    void *begun = NULL;
    assert_int_equal(pthread_create(&thread, NULL, square, w), 0);
    pthread_join(thread, &begun);
    ls_tensor *middle = begun, *a = ls_scale(middle, 2), *b = ls_scale(middle, 3), *loss = ls_add(a, b);
    assert_int_equal(ls_backward(loss), LS_OK);
    assert_near(grad_of(w), 30, 0);
    ls_tensor_close(&loss);
    ls_tensor_close(&a);
    ls_tensor_close(&b);
    ls_tensor_close(&middle);
    ls_tensor_close(&w);
}

/* ---- Homes ---- */

static void a_gradient_moves_into_its_home_and_out_of_it(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *x = number(false, 5), *home = number(false, -1), *wrong = NULL;
    ls_step_begin();
    assert_int_equal(ls_backward(ls_mul(w, x)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_int_equal(autograd_leaf_set_home(w, home), LS_OK);
    assert_near(ls_tensor_item(home), 5, 0);
    assert_int_equal(autograd_leaf_set_home(w, home), LS_OK); /* again, the same */
    assert_near(grad_of(w), 5, 0);

    autograd_leaf_set_has_grad(w, false);
    assert_null(ls_tensor_grad(w));
    *(double *)ls_tensor_data_mut(home) = 9; /* a reduction writes */
    autograd_leaf_set_has_grad(w, true);
    assert_near(grad_of(w), 9, 0);

    assert_int_equal(autograd_leaf_set_home(w, NULL), LS_OK);
    assert_near(grad_of(w), 9, 0);
    assert_ptr_not_equal(ls_tensor_data(ls_tensor_grad(w)), ls_tensor_data(home));

    assert_int_equal(ls_tensor_create(&wrong, LS_F32, 1, (int64_t[]){1}), LS_OK);
    assert_int_equal(autograd_leaf_set_home(w, wrong), LS_ERR_ARGUMENT);
    assert_error_says("f32 [1]");
    assert_near(grad_of(w), 9, 0);
    ls_tensor_close(&wrong);
    ls_tensor_close(&home);
    ls_tensor_close(&w);
    ls_tensor_close(&x);
}

static void a_home_that_holds_no_gradient_is_written_and_not_read(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *x = number(false, 5), *home = number(false, 1e300);
    assert_int_equal(autograd_leaf_set_home(w, home), LS_OK);
    assert_null(ls_tensor_grad(w));
    ls_step_begin();
    assert_int_equal(ls_backward(ls_mul(w, x)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(ls_tensor_item(home), 5, 0);
    ls_tensor_close(&home);
    ls_tensor_close(&w);
    ls_tensor_close(&x);
}

/* Caches go by versions: whatever is written into a gradient's memory shows. */
static void a_gradient_has_a_new_version_after_each_backward_and_move(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *x = number(false, 5), *home = number(false, 0);
    uint64_t before = 0;
    for (int i = 0; i < 3; i++) {
        ls_step_begin();
        assert_int_equal(ls_backward(ls_mul(w, x)), LS_OK);
        assert_int_equal(ls_step_end(), LS_OK);
        assert_true(ls_tensor_version(ls_tensor_grad(w)) != before);
        before = ls_tensor_version(ls_tensor_grad(w));
    }
    before = ls_tensor_version(home);
    assert_int_equal(autograd_leaf_set_home(w, home), LS_OK);
    assert_near(ls_tensor_item(home), 15, 0);
    assert_true(ls_tensor_version(home) != before);
    ls_tensor_close(&home);
    ls_tensor_close(&w);
    ls_tensor_close(&x);
}

/* Declared of all leaves behind a reduction, of those without elements or memory as well. */
static void a_leaf_without_memory_holds_no_gradient_whatever_is_declared(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *x = number(false, 5);
    autograd_leaf_set_has_grad(w, true);
    assert_null(ls_tensor_grad(w));
    ls_step_begin();
    assert_int_equal(ls_backward(ls_mul(w, x)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(w), 5, 0);
    ls_tensor_close(&w);
    ls_tensor_close(&x);
}

static void an_end_too_many_leaves_gradients_on(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *y = NULL;
    ls_no_grad_end();
    y = ls_mul(w, w);
    assert_true(ls_tensor_requires_grad(y));
    ls_tensor_close(&y);
    ls_tensor_close(&w);
}

static ls_status fail_backward(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    (void)context;
    (void)grad_output;
    (void)grad_inputs;
    return LS_ERR_FORMAT;
}

static void a_failed_backward_frees_the_tape_too(void **state) {
    (void)state;
    ls_tensor *w = number(true, 2), *inner = ls_mul(w, w);
    ls_tensor *loss = ls_op_record("failing", number(false, 1), &inner, 1, fail_backward, NULL, NULL);
    assert_int_equal(ls_backward(loss), LS_ERR_FORMAT);
    assert_int_equal(ls_backward(inner), LS_ERR_STATE);
    assert_error_says("has freed the tape");
    ls_tensor_close(&loss);
    ls_tensor_close(&inner);
    ls_tensor_close(&w);
}

/* ---- The two that gave add its name in the trap list: nobody's gradient is anybody else's memory ---- */

static void inputs_of_add_do_not_share_their_gradients(void **state) {
    (void)state;
    ls_tensor *a = number(true, 1), *b = number(true, 2);
    ls_step_begin();
    ls_tensor *p = ls_scale(a, 1), *q = ls_scale(b, 1);
    ls_tensor *loss = ls_add(ls_add(p, q), ls_scale(p, 10)); /* p's gradient is added to, q's must not change */
    assert_int_equal(ls_backward(loss), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(a), 11, 0);
    assert_near(grad_of(b), 1, 0);
    assert_ptr_not_equal(ls_tensor_data(ls_tensor_grad(a)), ls_tensor_data(ls_tensor_grad(b)));
    ls_tensor_close(&a);
    ls_tensor_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_two_forwards_are_summed),
        cmocka_unit_test(a_tied_weight_has_one_gradient_and_one_hook_call),
        cmocka_unit_test(zero_grad_makes_the_next_backward_store),
        cmocka_unit_test(gradients_become_complete_from_the_newest_op_to_the_oldest),
        cmocka_unit_test(a_leaf_may_be_the_loss),
        cmocka_unit_test(a_leaf_closed_before_backward_does_no_harm),
        cmocka_unit_test(a_second_backward_over_the_same_tape_is_refused),
        cmocka_unit_test(a_loss_that_is_no_scalar_or_has_no_tape_is_refused),
        cmocka_unit_test(only_float_tensors_of_the_users_own_become_leaves),
        cmocka_unit_test(a_saved_tensor_that_was_written_is_noticed),
        cmocka_unit_test(a_chain_of_100000_ops_needs_no_recursion),
        cmocka_unit_test(a_tape_begun_on_another_thread_is_walked_in_its_order),
        cmocka_unit_test(a_gradient_moves_into_its_home_and_out_of_it),
        cmocka_unit_test(a_home_that_holds_no_gradient_is_written_and_not_read),
        cmocka_unit_test(a_gradient_has_a_new_version_after_each_backward_and_move),
        cmocka_unit_test(a_leaf_without_memory_holds_no_gradient_whatever_is_declared),
        cmocka_unit_test(an_end_too_many_leaves_gradients_on),
        cmocka_unit_test(a_failed_backward_frees_the_tape_too),
        cmocka_unit_test(inputs_of_add_do_not_share_their_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
