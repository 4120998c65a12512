/* test_forward.c: running modules: who owns what they made, hooks, training and evaluation. */
#include "nn/small.h"
#include "support/faults.h"

#include "autograd/observer.h"
#include "autograd/step.h"
#include "nn/hooks.h"

/* ---- Forward ---- */

static void a_module_of_several_inputs_and_outputs_runs(void **state) {
    (void)state;
    ls_note_what_is_there();
    script wish = {0};
    ls_module *net = scripted(&wish, NULL);
    ls_tensor *inputs[2] = {tensor(1, 1, 3), tensor(1, 1, 5)}, *outputs[3];
    for (int in_step = 0; in_step < 2; in_step++) {
        if (in_step) ls_step_begin();
        assert_int_equal(ls_module_forward_many(net, inputs, 2, outputs, 3), LS_OK);
        assert_true(ls_tensor_item(outputs[0]) == 6);
        assert_true(ls_tensor_item(outputs[1]) == 15);
        assert_true(ls_tensor_item(outputs[2]) == 12);
        if (in_step) assert_int_equal(ls_step_end(), LS_OK);
        for (int i = 0; i < 3 && !in_step; i++) ls_tensor_close(&outputs[i]); /* outside a step they are ours */
    }
    for (int i = 0; i < 2; i++) ls_tensor_close(&inputs[i]);
    ls_module_close(&net);
    assert_nothing_left();
}

static void a_module_may_return_its_input(void **state) {
    (void)state;
    ls_note_what_is_there();
    script wish = {.returns_input = true}, outer = {0};
    ls_module *net = scripted(&wish, NULL), *sequence = NULL;
    ls_tensor *x = tensor(1, 1, 3);
    ls_tensor *y = ls_module_forward(net, x);
    assert_ptr_equal(y, x);
    ls_tensor_close(&y); /* a hold of its own */
    assert_true(ls_tensor_item(x) == 3);
    assert_int_equal(
        ls_sequential_create(&sequence,
                             (ls_child[]){{"a", scripted(&outer, NULL)}, {"b", net}, {"c", relu()}, {NULL, NULL}}),
        LS_OK);
    ls_step_begin();
    assert_true(ls_tensor_item(ls_module_forward(sequence, x)) == 6);
    assert_int_equal(ls_step_end(), LS_OK);
    ls_tensor_close(&x);
    ls_module_close(&sequence);
    assert_int_equal(wish.destroyed + outer.destroyed, 2);
    assert_nothing_left();
}

/* ---- What a forward made and did not return ---- */

static int released;

static void note_release(void *context) {
    (void)context;
    released++;
}

/* Squares its input by way of a tensor whose end is noticed. */
static ls_status watched_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                 ls_tensor **outputs, int output_count) {
    (void)self;
    if (input_count != 1 || output_count != 1) return ls_fail(LS_ERR_ARGUMENT, "one input and one output");
    ls_tensor *constant = NULL;
    LS_TRY(ls_tensor_borrow(&constant, LS_F64, 2, (int64_t[]){1, 1}, LS_LAYOUT_PLAIN, context, note_release, NULL));
    ls_tensor *inner = ls_flatten(constant); /* shares the memory */
    ls_tensor_close(&constant);
    outputs[0] = ls_mul(inputs[0], inner);
    return LS_OK;
}

static void what_a_forward_does_not_return_goes_with_the_tape(void **state) {
    (void)state;
    double memory = 3;
    ls_module *net = NULL;
    ls_tensor *x = tensor(1, 1, 5);
    assert_int_equal(
        ls_module_create(&net, &(ls_module_callbacks){.forward = watched_forward, .context = &memory}, NULL), LS_OK);
    released = 0;
    ls_step_begin();
    ls_module_forward(net, x); /* nothing to save for */
    assert_int_equal(released, 1);
    assert_int_equal(ls_tensor_set_requires_grad(x, true), LS_OK);
    ls_tensor *y = ls_module_forward(net, x);
    assert_int_equal(released, 1); /* mul needs it */
    assert_int_equal(ls_backward(y), LS_OK);
    assert_int_equal(released, 2); /* backward has passed it */
    assert_true(ls_tensor_item(y) == 15);
    assert_int_equal(ls_step_end(), LS_OK);
    ls_tensor_close(&x);
    ls_module_close(&net);
}

/* In a chain each child's output goes when the next child has run, not at the end of the whole. */
typedef struct probe {
    double memory;
    int released_before; /* as this child's forward began */
} probe;

static ls_status probe_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                               ls_tensor **outputs, int output_count) {
    (void)self;
    if (input_count != 1 || output_count != 1 || !inputs[0])
        return ls_fail(LS_ERR_ARGUMENT, "one input and one output");
    probe *self_context = context;
    self_context->released_before = released;
    ls_tensor *constant = NULL;
    LS_TRY(ls_tensor_borrow(&constant, LS_F64, 2, (int64_t[]){1, 1}, LS_LAYOUT_PLAIN, &self_context->memory,
                            note_release, NULL));
    outputs[0] = ls_flatten(constant);
    ls_tensor_close(&constant);
    return LS_OK;
}

static void a_sequence_lets_go_of_what_its_next_child_has_read(void **state) {
    (void)state;
    probe probes[3] = {{0}};
    ls_child children[4] = {{NULL, NULL}};
    for (int i = 0; i < 3; i++)
        assert_int_equal(ls_module_create(&children[i].module,
                                          &(ls_module_callbacks){.forward = probe_forward, .context = &probes[i]},
                                          NULL),
                         LS_OK);
    ls_module *net = NULL;
    ls_tensor *x = tensor(1, 1, 5);
    assert_int_equal(ls_sequential_create(&net, children), LS_OK);
    released = 0;
    ls_step_begin();
    ls_module_forward(net, x);
    assert_int_equal(probes[2].released_before, 1);
    assert_int_equal(released, 2);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_int_equal(released, 3);
    ls_tensor_close(&x);
    ls_module_close(&net);
}

static void a_failed_forward_yields_null_and_fails_the_step(void **state) {
    (void)state;
    ls_note_what_is_there();
    script wish = {.status = LS_ERR_IO};
    ls_module *net = scripted(&wish, NULL);
    ls_tensor *x = tensor(1, 1, 3), *outputs[2] = {x, x}, *inputs[1] = {x};
    ls_step_begin();
    assert_int_equal(ls_module_forward_many(net, inputs, 1, outputs, 2), LS_ERR_IO);
    assert_null(outputs[0]);
    assert_null(outputs[1]);
    assert_null(ls_module_forward(net, NULL));
    assert_int_equal(wish.forwards, 1); /* NULL flows past it */
    assert_int_equal(ls_step_end(), LS_ERR_IO);
    assert_error_says("the script said so");

    wish = (script){.fails_late = true};
    assert_int_equal(ls_module_forward_many(net, inputs, 1, outputs, 2), LS_ERR_FORMAT);
    assert_null(outputs[0]); /* and nobody owes its end */

    wish = (script){.returns_nothing = true};
    ls_step_begin();
    assert_null(ls_module_forward(net, x));
    assert_int_not_equal(ls_step_end(), LS_OK);
    assert_null(ls_module_forward(NULL, x));
    ls_tensor_close(&x);
    ls_module_close(&net);
    assert_nothing_left();
}

static void layers_take_one_input(void **state) {
    (void)state;
    ls_module *layers[2] = {linear(1, 1), NULL};
    ls_tensor *x = tensor(1, 1, 3), *inputs[2] = {x, x}, *output = NULL;
    assert_int_equal(ls_sequential_create(&layers[1], (ls_child[]){{"a", relu()}, {NULL, NULL}}), LS_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ls_module_forward_many(layers[i], inputs, 2, &output, 1), LS_ERR_ARGUMENT);
        assert_error_says("one input and one output");
        ls_module_close(&layers[i]);
    }
    ls_tensor_close(&x);
}

/* ---- Hooks ---- */

typedef struct hooked {
    ls_status before_answer;
    bool after_fails;
    int before, after;
    autograd_observer observer;
} hooked;

static ls_status hook_before(void *context) {
    hooked *self = context;
    self->before++;
    return self->before_answer == LS_OK ? LS_OK : ls_fail(self->before_answer, "the hook said so");
}

static ls_tensor *hook_after(void *context, ls_tensor *output) {
    hooked *self = context;
    self->after++;
    if (!self->after_fails) return autograd_observer_mark(&self->observer, output);
    autograd_fail(ls_fail(LS_ERR_MISMATCH, "the hook after said so"));
    return NULL;
}

static ls_status observe(void *context, ls_status failure) {
    (void)context;
    return failure;
}

static void hooks_run_around_each_forward(void **state) {
    (void)state;
    ls_note_what_is_there();
    hooked seen = {.observer = {.begin = observe, .finish = observe}};
    const nn_hooks hooks = {.before = hook_before, .after = hook_after, .context = &seen};
    ls_module *net = NULL, *child = linear(1, 1);
    ls_tensor *x = tensor(1, 1, 3);
    assert_int_equal(ls_sequential_create(&net, (ls_child[]){{"a", child}, {NULL, NULL}}), LS_OK);
    assert_int_equal(nn_module_set_hooks(net, &hooks), LS_OK);
    assert_int_equal(nn_module_set_hooks(net, &hooks), LS_ERR_STATE);
    for (int in_step = 0; in_step < 2; in_step++) {
        if (in_step) ls_step_begin();
        ls_tensor *y = ls_module_forward(net, x);
        assert_int_equal(ls_backward(y), LS_OK);
        if (in_step)
            assert_int_equal(ls_step_end(), LS_OK);
        else
            ls_tensor_close(&y);
    }
    assert_int_equal(seen.before, 2);
    assert_int_equal(seen.after, 2);
    ls_step_begin();
    ls_module_forward(child, x); /* not around the child's */
    assert_int_equal(ls_step_end(), LS_OK);
    assert_int_equal(seen.before, 2);
    assert_int_equal(nn_module_set_hooks(net, NULL), LS_OK);
    assert_int_equal(nn_module_set_hooks(net, NULL), LS_OK);
    ls_step_begin();
    ls_module_forward(net, x);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_int_equal(seen.before, 2);
    ls_module_close(&net);
    ls_tensor_close(&x);
    assert_nothing_left();
}

static void the_hook_before_runs_for_a_null_input_too(void **state) {
    (void)state;
    hooked seen = {0};
    const nn_hooks hooks = {.before = hook_before, .after = hook_after, .context = &seen};
    ls_module *net = linear(1, 1);
    assert_int_equal(nn_module_set_hooks(net, &hooks), LS_OK);
    ls_step_begin();
    assert_null(ls_module_forward(net, NULL));
    assert_int_not_equal(ls_step_end(), LS_OK);
    assert_int_equal(seen.before, 1);
    assert_int_equal(seen.after, 0);
    ls_module_close(&net);
}

static void a_failed_hook_fails_the_forward(void **state) {
    (void)state;
    ls_note_what_is_there();
    script wish = {0};
    hooked seen = {.before_answer = LS_ERR_TIMEOUT};
    const nn_hooks hooks = {.before = hook_before, .after = hook_after, .context = &seen};
    ls_module *net = scripted(&wish, NULL);
    ls_tensor *x = tensor(1, 1, 3);
    assert_int_equal(nn_module_set_hooks(net, &hooks), LS_OK);
    ls_step_begin();
    assert_null(ls_module_forward(net, x));
    assert_int_equal(ls_step_end(), LS_ERR_TIMEOUT);
    assert_int_equal(wish.forwards, 0);

    seen = (hooked){.after_fails = true};
    for (int in_step = 0; in_step < 2; in_step++) {
        if (in_step) ls_step_begin();
        ls_tensor *outputs[2] = {NULL};
        assert_int_equal(ls_module_forward_many(net, &x, 1, outputs, 2), LS_ERR_MISMATCH);
        assert_null(outputs[0]);
        assert_null(outputs[1]);
        if (in_step) assert_int_equal(ls_step_end(), LS_ERR_MISMATCH);
    }
    assert_int_equal(seen.after, 2); /* the first output's only */
    wish.status = LS_ERR_IO;
    assert_null(ls_module_forward(net, x));
    assert_int_equal(seen.after, 2); /* not after a forward that failed */
    ls_module_close(&net);
    ls_tensor_close(&x);
    assert_nothing_left();
}

/* ---- Training and evaluation ---- */

static void dropout_is_active_in_training_alone(void **state) {
    (void)state;
    ls_module *dropout = NULL, *net = NULL;
    assert_int_equal(ls_dropout_create(&dropout, 1), LS_ERR_ARGUMENT);
    assert_int_equal(ls_dropout_create(&dropout, 0.5), LS_OK);
    assert_int_equal(ls_sequential_create(&net, (ls_child[]){{"drop", dropout}, {NULL, NULL}}), LS_OK);
    ls_tensor *x = tensor(1, 100, 1);
    for (int is_training = 1; is_training >= 0; is_training--) {
        ls_module_train(net, is_training);
        assert_int_equal(ls_module_is_training(dropout), is_training);
        ls_tensor *y = ls_module_forward(net, x);
        int zeroes = 0;
        for (int i = 0; i < 100; i++) zeroes += ((const double *)ls_tensor_data(y))[i] == 0;
        assert_int_equal(zeroes > 0, is_training);
        ls_tensor_close(&y);
    }
    ls_module_close(&net);
    ls_tensor_close(&x);
}

static void two_dropouts_of_a_tree_draw_differently(void **state) {
    (void)state;
    ls_module *first = NULL, *second = NULL, *net = NULL;
    assert_int_equal(ls_dropout_create(&first, 0.5), LS_OK);
    assert_int_equal(ls_dropout_create(&second, 0.5), LS_OK);
    assert_int_equal(ls_sequential_create(&net, (ls_child[]){{"a", first}, {"b", second}, {NULL, NULL}}), LS_OK);
    ls_tensor *x = tensor(1, 100, 1);
    ls_step_begin();
    ls_tensor *a = ls_module_forward(first, x), *b = ls_module_forward(second, x), *c = ls_module_forward(first, x);
    assert_memory_not_equal(ls_tensor_data(a), ls_tensor_data(b), 100 * sizeof(double));
    assert_memory_equal(ls_tensor_data(a), ls_tensor_data(c), 100 * sizeof(double));
    assert_int_equal(ls_step_end(), LS_OK);
    ls_module_close(&net);
    ls_tensor_close(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_of_several_inputs_and_outputs_runs),
        cmocka_unit_test(a_module_may_return_its_input),
        cmocka_unit_test(what_a_forward_does_not_return_goes_with_the_tape),
        cmocka_unit_test(a_sequence_lets_go_of_what_its_next_child_has_read),
        cmocka_unit_test(a_failed_forward_yields_null_and_fails_the_step),
        cmocka_unit_test(layers_take_one_input),
        cmocka_unit_test(hooks_run_around_each_forward),
        cmocka_unit_test(the_hook_before_runs_for_a_null_input_too),
        cmocka_unit_test(a_failed_hook_fails_the_forward),
        cmocka_unit_test(dropout_is_active_in_training_alone),
        cmocka_unit_test(two_dropouts_of_a_tree_draw_differently),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
