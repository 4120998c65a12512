/* test_user_op.c: ops with a backward of the user's own. */
#include "autograd/small.h"
#include "support/faults.h"

#include <string.h>

/* y = a^2 b, with what the callbacks saw. */
typedef struct cube {
    double a, b;
    int backwards, destroyed;
    bool had_gradient[2];
    ls_status answer;
    struct cube *newer; /* an op on top of this one: gone by the time this one's backward runs */
} cube;

static ls_status cube_backward(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    cube *op = context;
    op->backwards++;
    if (op->newer) assert_int_equal(op->newer->destroyed, 1);
    const double dy = ls_tensor_item(grad_output);
    for (int i = 0; i < 2; i++) {
        op->had_gradient[i] = grad_inputs[i] != NULL;
        if (!grad_inputs[i]) continue;
        assert_near(ls_tensor_item(grad_inputs[i]), 0, 0);
        *(double *)ls_tensor_data_mut(grad_inputs[i]) = i == 0 ? dy * 2 * op->a * op->b : dy * op->a * op->a;
    }
    return op->answer;
}

static void cube_destroy(void *context) {
    ((cube *)context)->destroyed++;
}

static ls_tensor *record(cube *op, ls_tensor *a, ls_tensor *b) {
    op->a = ls_tensor_item(a);
    op->b = ls_tensor_item(b);
    ls_tensor *y = number(false, op->a * op->a * op->b);
    return ls_op_record("cube", y, (ls_tensor *[]){a, b}, 2, cube_backward, op, cube_destroy);
}

static void a_users_op_takes_part_in_backward(void **state) {
    (void)state;
    ls_tensor *a = number(true, 3), *b = number(true, 5);
    cube op = {0};
    ls_step_begin();
    ls_tensor *loss = ls_scale(record(&op, a, b), 2);
    assert_near(ls_tensor_item(loss), 90, 0);
    assert_int_equal(ls_backward(loss), LS_OK);
    assert_int_equal(op.destroyed, 1);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(a), 60, 0);
    assert_near(grad_of(b), 18, 0);
    assert_int_equal(op.backwards, 1);
    assert_int_equal(op.destroyed, 1);
    ls_tensor_close(&a);
    ls_tensor_close(&b);
}

static void an_input_that_needs_no_gradient_gets_none(void **state) {
    (void)state;
    ls_tensor *a = number(false, 3), *b = number(true, 5);
    cube op = {0};
    ls_step_begin();
    assert_int_equal(ls_backward(record(&op, a, b)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_false(op.had_gradient[0]);
    assert_true(op.had_gradient[1]);
    assert_near(grad_of(b), 9, 0);
    ls_tensor_close(&a);
    ls_tensor_close(&b);
}

static void what_an_op_saved_goes_as_backward_passes_it(void **state) {
    (void)state;
    ls_tensor *a = number(true, 3), *b = number(true, 5);
    cube newer = {0}, older = {.newer = &newer};
    ls_step_begin();
    ls_tensor *y = record(&older, a, b);
    assert_int_equal(ls_backward(record(&newer, y, b)), LS_OK);
    assert_int_equal(older.backwards, 1);
    assert_int_equal(ls_step_end(), LS_OK);
    ls_tensor_close(&a);
    ls_tensor_close(&b);
}

static void an_error_of_a_users_backward_fails_the_step(void **state) {
    (void)state;
    ls_tensor *a = number(true, 3), *b = number(true, 5);
    cube op = {.answer = LS_ERR_FORMAT};
    ls_step_begin();
    assert_int_equal(ls_backward(record(&op, a, b)), LS_ERR_FORMAT);
    assert_int_equal(ls_step_status(), LS_ERR_FORMAT);
    assert_int_equal(ls_step_end(), LS_ERR_FORMAT);
    assert_int_equal(op.destroyed, 1);
    assert_null(ls_tensor_grad(a));
    ls_tensor_close(&a);
    ls_tensor_close(&b);
}

static void end_the_step(void *context) {
    *(ls_status *)context = ls_step_end();
}

static ls_status pass_on(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    (void)context;
    *(double *)ls_tensor_data_mut(grad_inputs[0]) = ls_tensor_item(grad_output);
    return LS_OK;
}

/* From what backward calls as it lets go of an op. */
static void a_step_does_not_end_inside_a_backward(void **state) {
    (void)state;
    ls_tensor *a = number(true, 3);
    ls_status inside = LS_OK;
    ls_step_begin();
    ls_tensor *y = ls_op_record("ending", number(false, 3), &a, 1, pass_on, &inside, end_the_step);
    assert_int_equal(ls_backward(y), LS_OK);
    assert_int_equal(inside, LS_ERR_STATE);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(a), 1, 0);
    ls_tensor_close(&a);
}

static void the_context_is_destroyed_once_in_every_case(void **state) {
    (void)state;
    ls_note_what_is_there(); /* a thread's arena keeps blocks until its last tensor is closed */
    ls_tensor *a = number(true, 3), *b = number(true, 5);
    cube unused = {0}, without = {0}, null = {0}, refused = {0};
    ls_step_begin();
    record(&unused, a, b);
    assert_int_equal(unused.destroyed, 0);
    ls_no_grad_begin();
    record(&without, a, b);
    assert_int_equal(without.destroyed, 1);
    ls_no_grad_end();
    assert_int_equal(ls_step_end(), LS_OK);
    assert_int_equal(unused.destroyed, 1);

    ls_step_begin();
    assert_null(
        ls_op_record("cube", number(false, 1), (ls_tensor *[]){a, NULL}, 2, cube_backward, &null, cube_destroy));
    assert_int_equal(null.destroyed, 1);
    assert_null(
        ls_op_record("cube", ls_tensor_keep(a), (ls_tensor *[]){a, b}, 2, cube_backward, &refused, cube_destroy));
    assert_int_equal(refused.destroyed, 1);
    assert_error_says("fresh tensor");
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
    ls_tensor_close(&a);
    ls_tensor_close(&b);
    assert_nothing_left();
}

/* ---- Inside a backward ---- */

static ls_status call_backward(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    (void)grad_output;
    (void)grad_inputs;
    return ls_backward(context);
}

static void a_backward_inside_a_backward_is_refused(void **state) {
    (void)state;
    ls_tensor *a = number(true, 3);
    ls_step_begin();
    ls_tensor *other = ls_scale(a, 2);
    ls_tensor *y = ls_op_record("nested", number(false, 1), &a, 1, call_backward, other, NULL);
    assert_int_equal(ls_backward(y), LS_ERR_STATE);
    assert_error_says("inside a backward");
    assert_int_equal(ls_step_end(), LS_ERR_STATE);
    ls_tensor_close(&a);
}

/* The gradient by ops of the library: dx = 2 dy, which neither records nor leaks. */
static ls_status use_ops(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    ls_tensor *copy = NULL;
    const int64_t one = 1;
    assert_false(ls_tensor_requires_grad(ls_scale(context, 2))); /* a leaf, and yet */
    ls_status status = ls_tensor_create(&copy, LS_F64, 1, &one);
    if (status == LS_OK) status = ls_tensor_copy_in(copy, ls_tensor_data(grad_output));
    ls_tensor *twice = ls_scale(copy, 2);
    if (status == LS_OK) status = ls_tensor_copy_in(grad_inputs[0], ls_tensor_data(twice));
    ls_tensor_close(&copy);
    return status;
}

static void a_users_backward_may_call_ops(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_tensor *a = number(true, 3);
    ls_tensor *y = ls_op_record("double", number(false, 6), &a, 1, use_ops, a, NULL);
    assert_int_equal(ls_backward(y), LS_OK);
    ls_tensor_close(&y);
    assert_near(grad_of(a), 2, 0);
    ls_tensor_close(&a);
    assert_nothing_left();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_users_op_takes_part_in_backward),
        cmocka_unit_test(an_input_that_needs_no_gradient_gets_none),
        cmocka_unit_test(what_an_op_saved_goes_as_backward_passes_it),
        cmocka_unit_test(an_error_of_a_users_backward_fails_the_step),
        cmocka_unit_test(a_step_does_not_end_inside_a_backward),
        cmocka_unit_test(the_context_is_destroyed_once_in_every_case),
        cmocka_unit_test(a_backward_inside_a_backward_is_refused),
        cmocka_unit_test(a_users_backward_may_call_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
