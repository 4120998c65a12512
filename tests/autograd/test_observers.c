/* test_observers.c: whoever listens to backward gets one begin and one finish, whatever fails. */
#include "autograd/small.h"
#include "support/faults.h"

#include "autograd/observer.h"
#include "autograd/step.h"
#include "base/error.h"

#include <stdio.h>

/* What happened, as a line: "begin a 0; hook 1; finish a 0;" */
static char events[512];

static void note(const char *format, ...) LS_PRINTF(1, 2);
static void note(const char *format, ...) {
    const size_t length = strlen(events);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(events + length, sizeof events - length, format, arguments);
    va_end(arguments);
}

static void assert_events(const char *expected) {
    assert_string_equal(events, expected);
    events[0] = 0;
}

/* What the sentence of a failure must say when observers hear of it. */
static const char *sentence = "because";

typedef struct listener {
    char name;
    ls_status begin_answer, finish_answer;
    ls_tensor *watched; /* a leaf: reached from begin to finish? */
    autograd_observer observer;
} listener;

static ls_status answer(const listener *self, const char *moment, ls_status failure, ls_status status) {
    note("%s %c %d; ", moment, self->name, (int)failure);
    if (self->watched) assert_true(autograd_leaf_is_reached(self->watched));
    if (failure != LS_OK) assert_error_says(sentence);
    return status == LS_OK ? LS_OK : ls_fail(status, "%s of %c failed because it was told to", moment, self->name);
}

static ls_status listen_begin(void *context, ls_status failure) {
    const listener *self = context;
    return answer(self, "begin", failure, self->begin_answer);
}

static ls_status listen_finish(void *context, ls_status failure) {
    const listener *self = context;
    return answer(self, "finish", failure, self->finish_answer);
}

static void listen(listener *self, char name) {
    *self = (listener){.name = name};
    self->observer = (autograd_observer){.begin = listen_begin, .finish = listen_finish, .context = self};
}

static void note_hook(void *context, int index) {
    (void)context;
    note("hook %d; ", index);
}

static ls_status fail_backward(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    (void)context;
    (void)grad_output;
    (void)grad_inputs;
    return ls_fail(LS_ERR_FORMAT, "the op failed because it was told to");
}

/* ---- Two wrapped "modules" a and b, each a product with a weight of its own ---- */

typedef struct fixture {
    listener a, b;
    ls_tensor *wa, *wb, *x;
} fixture;

static int set_up(void **state) {
    static fixture made;
    events[0] = 0;
    sentence = "because";
    listen(&made.a, 'a');
    listen(&made.b, 'b');
    made.wa = number(true, 2);
    made.wb = number(true, 3);
    made.x = number(false, 5);
    assert_int_equal(autograd_leaf_set_hook(made.wa, note_hook, NULL, 1), LS_OK);
    assert_int_equal(autograd_leaf_set_hook(made.wb, note_hook, NULL, 2), LS_OK);
    *state = &made;
    return 0;
}

static int tear_down(void **state) {
    fixture *made = *state;
    ls_tensor_close(&made->wa);
    ls_tensor_close(&made->wb);
    ls_tensor_close(&made->x);
    return 0;
}

static ls_tensor *forward(listener *module, ls_tensor *weight, ls_tensor *x) {
    assert_int_equal(autograd_observer_list(&module->observer), LS_OK);
    return autograd_observer_mark(&module->observer, ls_mul(weight, x));
}

/* Forward of a, then of b. */
static ls_tensor *forward_both(fixture *f) {
    ls_tensor *a = forward(&f->a, f->wa, f->x), *b = forward(&f->b, f->wb, f->x);
    return ls_add(a, b);
}

static void observers_hear_of_backward_in_the_order_of_listing(void **state) {
    fixture *f = *state;
    f->a.watched = f->wa;
    f->b.watched = f->wb;
    ls_step_begin();
    ls_tensor *loss = forward_both(f);
    assert_int_equal(ls_backward(loss), LS_OK);
    assert_events("begin a 0; begin b 0; hook 2; hook 1; finish a 0; finish b 0; ");
    assert_false(autograd_leaf_is_reached(f->wa));
    assert_int_equal(ls_step_end(), LS_OK);
}

static void only_those_that_the_loss_reaches_are_called(void **state) {
    fixture *f = *state;
    ls_step_begin();
    forward(&f->a, f->wa, f->x);
    assert_int_equal(ls_backward(forward(&f->b, f->wb, f->x)), LS_OK);
    assert_events("begin b 0; hook 2; finish b 0; ");
    /* a is still listed: a failed forward after this one calls it. */
    sentence = "NULL";
    assert_int_equal(ls_backward(NULL), LS_ERR_ARGUMENT);
    assert_non_null(strstr(events, "begin a"));
    assert_null(strstr(events, "begin b"));
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
}

static void several_forwards_list_an_observer_once(void **state) {
    fixture *f = *state;
    ls_step_begin();
    ls_tensor *loss = ls_add(forward(&f->a, f->wa, f->x), forward(&f->a, f->wa, f->x));
    assert_int_equal(ls_backward(loss), LS_OK);
    assert_events("begin a 0; hook 1; finish a 0; ");
    assert_int_equal(ls_step_end(), LS_OK);
}

static void a_failed_forward_is_told_to_all_listed(void **state) {
    fixture *f = *state;
    ls_step_begin();
    forward(&f->a, f->wa, f->x);
    assert_int_equal(autograd_observer_list(&f->b.observer), LS_OK);
    ls_fail(LS_ERR_FORMAT, "stopped because of a test");
    autograd_fail(LS_ERR_FORMAT);
    assert_null(autograd_observer_mark(&f->b.observer, NULL));
    assert_int_equal(ls_backward(NULL), LS_ERR_FORMAT);
    assert_events("begin a -6; begin b -6; finish a -6; finish b -6; ");
    /* They have left the list. */
    assert_int_equal(ls_backward(NULL), LS_ERR_FORMAT);
    assert_events("");
    assert_int_equal(ls_step_end(), LS_ERR_FORMAT);
    assert_error_says("because of a test");
    assert_null(ls_tensor_grad(f->wa));
}

static void a_step_that_failed_elsewhere_computes_no_gradients(void **state) {
    fixture *f = *state;
    ls_step_begin();
    ls_tensor *loss = forward(&f->a, f->wa, f->x);
    forward(&f->b, f->wb, f->x);
    ls_fail(LS_ERR_IO, "stopped because of a test");
    autograd_fail(LS_ERR_IO);
    assert_int_equal(ls_backward(loss), LS_ERR_IO);
    assert_events("begin a -5; finish a -5; ");
    assert_null(ls_tensor_grad(f->wa));
    assert_int_equal(ls_step_end(), LS_ERR_IO);
}

static void a_failed_begin_stops_the_gradients(void **state) {
    fixture *f = *state;
    f->a.begin_answer = LS_ERR_TIMEOUT;
    ls_step_begin();
    ls_tensor *loss = forward_both(f);
    assert_int_equal(ls_backward(loss), LS_ERR_TIMEOUT);
    assert_events("begin a 0; begin b -20; finish a -20; finish b -20; ");
    assert_int_equal(ls_step_end(), LS_ERR_TIMEOUT);
    assert_error_says("begin of a failed");
    assert_null(ls_tensor_grad(f->wa));
    assert_null(ls_tensor_grad(f->wb));
}

static void a_failed_gradient_is_told_at_finish(void **state) {
    fixture *f = *state;
    ls_step_begin();
    ls_tensor *y = forward(&f->a, f->wa, f->x), *z = forward(&f->b, f->wb, f->x);
    y = ls_op_record("failing", number(false, 1), &y, 1, fail_backward, NULL, NULL);
    assert_int_equal(ls_backward(ls_add(y, z)), LS_ERR_FORMAT);
    assert_events("begin a 0; begin b 0; finish a -6; finish b -6; "); /* the op is newer than what b marked */
    assert_int_equal(ls_step_end(), LS_ERR_FORMAT);

    /* The next step is right. */
    ls_step_begin();
    assert_int_equal(ls_backward(forward_both(f)), LS_OK);
    assert_events("begin a 0; begin b 0; hook 2; hook 1; finish a 0; finish b 0; ");
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(f->wa), 5, 0);
    assert_near(grad_of(f->wb), 5, 0);
}

static void an_error_of_finish_takes_the_place_of_an_earlier_one(void **state) {
    fixture *f = *state;
    f->a.finish_answer = LS_ERR_PEER_LOST;
    ls_step_begin();
    ls_tensor *y = forward(&f->a, f->wa, f->x);
    y = ls_op_record("failing", number(false, 1), &y, 1, fail_backward, NULL, NULL);
    assert_int_equal(ls_backward(y), LS_ERR_PEER_LOST);
    assert_int_equal(ls_step_status(), LS_ERR_PEER_LOST);
    assert_int_equal(ls_step_end(), LS_ERR_PEER_LOST);
    assert_error_says("finish of a failed");

    /* Also of one that the step had before backward. */
    ls_step_begin();
    forward(&f->a, f->wa, f->x);
    assert_null(ls_linear(f->wa, f->wb, NULL));
    sentence = "linear: ";
    assert_int_equal(ls_backward(NULL), LS_ERR_PEER_LOST);
    assert_int_equal(ls_step_end(), LS_ERR_PEER_LOST);
    assert_error_says("finish of a failed");
}

static void a_failed_finish_is_the_steps_error(void **state) {
    fixture *f = *state;
    f->a.finish_answer = LS_ERR_UNUSED;
    f->b.finish_answer = LS_ERR_NONFINITE;
    ls_step_begin();
    ls_tensor *loss = forward_both(f);
    assert_int_equal(ls_backward(loss), LS_ERR_UNUSED);
    assert_events("begin a 0; begin b 0; hook 2; hook 1; finish a 0; finish b 0; ");
    assert_int_equal(ls_step_end(), LS_ERR_UNUSED);
    assert_error_says("finish of a failed");
}

static void a_loss_that_is_refused_is_told_too(void **state) {
    fixture *f = *state;
    ls_step_begin();
    sentence = "ls_backward: the loss";
    ls_tensor *wide = vector(false, 2, (double[]){1, 2}), *w = vector(true, 2, (double[]){1, 2});
    assert_int_equal(autograd_observer_list(&f->b.observer), LS_OK);
    assert_int_equal(autograd_observer_list(&f->a.observer), LS_OK);
    ls_tensor *y = autograd_observer_mark(&f->a.observer, ls_mul(w, wide));
    assert_int_equal(ls_backward(y), LS_ERR_ARGUMENT);
    assert_non_null(strstr(events, "begin a -1; finish a -1; ")); /* the tape tells that b takes no part */
    events[0] = 0;
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);

    /* Where the tape cannot tell, all listed take part. */
    ls_step_begin();
    forward(&f->a, f->wa, f->x);
    assert_int_equal(ls_backward(f->x), LS_ERR_ARGUMENT);
    assert_non_null(strstr(events, "begin a -1; finish a -1; "));
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
    ls_tensor_close(&wide);
    ls_tensor_close(&w);
}

static void two_backwards_of_two_forwards_are_both_heard(void **state) {
    fixture *f = *state;
    ls_step_begin();
    ls_tensor *first = forward(&f->a, f->wa, f->x), *second = forward(&f->a, f->wa, f->x);
    assert_int_equal(ls_backward(first), LS_OK);
    assert_int_equal(ls_backward(second), LS_OK);
    assert_events("begin a 0; hook 1; finish a 0; begin a 0; hook 1; finish a 0; ");
    assert_int_equal(ls_step_end(), LS_OK);
    assert_near(grad_of(f->wa), 10, 0);
}

static void a_forgotten_observer_is_not_called(void **state) {
    fixture *f = *state;
    ls_step_begin();
    ls_tensor *loss = forward_both(f);
    autograd_observer_forget(&f->a.observer);
    assert_int_equal(ls_backward(loss), LS_OK);
    assert_events("begin b 0; hook 2; hook 1; finish b 0; ");
    assert_int_equal(ls_step_end(), LS_OK);
}

/* The mark that goes first is not the one that was made last. */
static void an_observer_is_forgotten_whichever_marks_went_before(void **state) {
    fixture *f = *state;
    ls_step_begin();
    ls_tensor *first = forward(&f->a, f->wa, f->x), *second = forward(&f->b, f->wb, f->x);
    assert_int_equal(ls_backward(first), LS_OK);
    autograd_observer_forget(&f->b.observer);
    assert_int_equal(ls_backward(second), LS_OK);
    assert_events("begin a 0; hook 1; finish a 0; hook 2; ");
    assert_int_equal(ls_step_end(), LS_OK);
}

static void the_end_of_a_step_empties_the_list(void **state) {
    fixture *f = *state;
    ls_step_begin();
    forward(&f->a, f->wa, f->x);
    assert_int_equal(ls_step_end(), LS_OK);
    ls_step_begin();
    assert_int_not_equal(ls_backward(NULL), LS_OK);
    assert_events("");
    assert_int_not_equal(ls_step_end(), LS_OK);
}

static void observers_are_listed_outside_a_step_too(void **state) {
    fixture *f = *state;
    assert_int_equal(autograd_observer_list(&f->a.observer), LS_OK);
    ls_tensor *x = ls_mul(f->wa, f->x), *y = autograd_observer_mark(&f->a.observer, x);
    assert_int_equal(ls_backward(y), LS_OK);
    ls_tensor_close(&y); /* the hold on x has passed to it */
    assert_events("begin a 0; hook 1; finish a 0; ");

    assert_int_equal(autograd_observer_list(&f->b.observer), LS_OK);
    ls_fail(LS_ERR_FORMAT, "lost because of a test");
    assert_int_not_equal(ls_backward(NULL), LS_OK);
    assert_non_null(strstr(events, "begin b"));
    assert_non_null(strstr(events, "finish b"));
}

static void without_gradients_the_output_is_handed_out_as_it_is(void **state) {
    fixture *f = *state;
    ls_step_begin();
    ls_no_grad_begin();
    assert_false(autograd_grad_is_on());
    ls_tensor *y = ls_mul(f->wa, f->x);
    assert_ptr_equal(autograd_observer_mark(&f->a.observer, y), y);
    ls_no_grad_end();
    assert_true(autograd_grad_is_on());
    y = ls_mul(f->x, f->x);
    assert_ptr_equal(autograd_observer_mark(&f->a.observer, y), y);
    assert_int_equal(ls_step_end(), LS_OK);
}

static void a_refused_mark_leaves_nothing(void **state) {
    (void)state;
    listener a;
    listen(&a, 'a');
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        ls_tensor *w = NULL;
        ls_status status = ls_tensor_create(&w, LS_F64, 0, NULL);
        if (status == LS_OK) status = ls_tensor_set_requires_grad(w, true);
        ls_tensor *y = status == LS_OK ? autograd_observer_mark(&a.observer, ls_scale(w, 2)) : NULL;
        if (ls_fault_was_met())
            assert_null(y);
        else
            assert_non_null(y);
        ls_tensor_close(&y);
        ls_tensor_close(&w);
    }
    assert_nothing_left();
}

int main(void) {
#define OBSERVER_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        OBSERVER_TEST(observers_hear_of_backward_in_the_order_of_listing),
        OBSERVER_TEST(only_those_that_the_loss_reaches_are_called),
        OBSERVER_TEST(several_forwards_list_an_observer_once),
        OBSERVER_TEST(a_failed_forward_is_told_to_all_listed),
        OBSERVER_TEST(a_step_that_failed_elsewhere_computes_no_gradients),
        OBSERVER_TEST(a_failed_begin_stops_the_gradients),
        OBSERVER_TEST(a_failed_gradient_is_told_at_finish),
        OBSERVER_TEST(an_error_of_finish_takes_the_place_of_an_earlier_one),
        OBSERVER_TEST(a_failed_finish_is_the_steps_error),
        OBSERVER_TEST(a_loss_that_is_refused_is_told_too),
        OBSERVER_TEST(two_backwards_of_two_forwards_are_both_heard),
        OBSERVER_TEST(a_forgotten_observer_is_not_called),
        OBSERVER_TEST(an_observer_is_forgotten_whichever_marks_went_before),
        OBSERVER_TEST(the_end_of_a_step_empties_the_list),
        OBSERVER_TEST(observers_are_listed_outside_a_step_too),
        OBSERVER_TEST(without_gradients_the_output_is_handed_out_as_it_is),
        cmocka_unit_test(a_refused_mark_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
