/* test_modules.c: trees of modules: names, tied parameters, who owns whom. */
#include "nn/small.h"
#include "support/faults.h"

#include "base/memory.h"
#include "nn/hooks.h"

/* ---- Names ---- */

static void assert_names(const ls_module *module, const char *const *names, int count) {
    assert_int_equal(ls_module_parameter_count(module), count);
    for (int i = 0; i < count; i++) assert_string_equal(ls_module_parameter_name(module, i), names[i]);
}

static void parameters_have_pytorchs_names_and_order(void **state) {
    (void)state;
    script wish = {0};
    ls_module *inner = NULL;
    assert_int_equal(
        ls_sequential_create(&inner,
                             (ls_child[]){{NULL, linear(2, 3)}, {NULL, relu()}, {"out", linear(3, 2)}, {NULL, NULL}}),
        LS_OK);
    ls_module *net = scripted(&wish, (ls_child[]){{"body", inner}, {"head", linear(2, 1)}, {NULL, NULL}});
    static const char *const names[] = {"body.0.weight", "body.0.bias", "body.out.weight",
                                        "body.out.bias", "head.weight", "head.bias"};
    assert_names(net, names, 6);
    assert_ptr_equal(ls_module_parameter(net, 4), ls_module_parameter(ls_module_child(net, "head"), 0));
    assert_null(ls_module_child(net, "tail"));
    assert_null(ls_module_parameter(net, 6));
    assert_error_says("there is no parameter 6; the module has 6");
    assert_null(ls_module_parameter_name(net, -1));

    /* A module's own come before its children's; adding to a child shows everywhere above. */
    assert_int_equal(ls_module_add_parameter(net, "gain", tensor(1, 1, 1)), LS_OK);
    assert_int_equal(ls_module_add_buffer(ls_module_child(inner, "out"), "count", tensor(1, 1, 1)), LS_OK);
    assert_int_equal(ls_module_add_parameter(ls_module_child(inner, "out"), "extra", tensor(1, 1, 1)), LS_OK);
    assert_string_equal(ls_module_parameter_name(net, 0), "gain");
    assert_string_equal(ls_module_parameter_name(net, 5), "body.out.extra");
    assert_int_equal(ls_module_buffer_count(net), 1);
    assert_string_equal(ls_module_buffer_name(net, 0), "body.out.count");
    assert_false(ls_tensor_requires_grad(ls_module_buffer(net, 0)));
    assert_true(ls_tensor_requires_grad(ls_module_parameter(net, 0)));
    assert_null(ls_module_buffer(net, 1));
    ls_module_close(&net);
    assert_int_equal(wish.destroyed, 1);
}

static void a_tied_parameter_counts_once_under_its_first_name(void **state) {
    (void)state;
    ls_module *first = linear(2, 2), *second = NULL, *net = NULL;
    assert_int_equal(ls_relu_create(&second), LS_OK);
    assert_int_equal(ls_module_add_parameter(second, "weight", ls_tensor_keep(ls_module_parameter(first, 0))), LS_OK);
    assert_int_equal(ls_module_add_parameter(second, "again", ls_tensor_keep(ls_module_parameter(first, 0))), LS_OK);
    assert_int_equal(ls_module_parameter_count(second), 1);
    assert_int_equal(ls_sequential_create(&net, (ls_child[]){{"a", first}, {"b", second}, {NULL, NULL}}), LS_OK);
    static const char *const names[] = {"a.weight", "a.bias"};
    assert_names(net, names, 2);
    ls_module_close(&net);
}

static void names_that_would_mislead_are_refused(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_module *net = linear(2, 2), *none = NULL;
    assert_int_equal(ls_module_add_parameter(net, "weight", tensor(1, 1, 0)), LS_ERR_ARGUMENT);
    assert_error_says("\"weight\" is taken");
    assert_int_equal(ls_module_add_buffer(net, "bias", tensor(1, 1, 0)), LS_ERR_ARGUMENT);
    assert_int_equal(ls_module_add_buffer(net, "a.b", tensor(1, 1, 0)), LS_ERR_ARGUMENT);
    assert_int_equal(ls_module_add_buffer(net, "", tensor(1, 1, 0)), LS_ERR_ARGUMENT);
    assert_int_equal(ls_module_add_buffer(net, NULL, tensor(1, 1, 0)), LS_ERR_ARGUMENT);
    assert_int_equal(ls_module_add_parameter(net, "none", NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_module_add_parameter(NULL, "x", tensor(1, 1, 0)), LS_ERR_ARGUMENT);
    ls_tensor *labels = NULL;
    assert_int_equal(ls_tensor_create(&labels, LS_I64, 0, NULL), LS_OK);
    assert_int_equal(ls_module_add_parameter(net, "labels", labels), LS_ERR_ARGUMENT);
    assert_error_says("i64");
    assert_int_equal(ls_module_parameter_count(net), 2);
    assert_int_equal(ls_sequential_create(&none, (ls_child[]){{"x", net}, {"x", relu()}, {NULL, NULL}}),
                     LS_ERR_ARGUMENT);
    assert_null(none);
    assert_nothing_left();
}

static void a_child_belongs_to_one_module(void **state) {
    (void)state;
    ls_note_what_is_there();
    ls_module *child = linear(2, 2), *net = NULL, *second = NULL;
    assert_int_equal(ls_sequential_create(&net, (ls_child[]){{"a", child}, {NULL, NULL}}), LS_OK);
    assert_int_equal(
        ls_sequential_create(&second, (ls_child[]){{"b", relu()}, {"a", child}, {"c", relu()}, {NULL, NULL}}),
        LS_ERR_STATE);
    assert_error_says("\"a\" already belongs to a module");
    assert_int_equal(ls_module_parameter_count(net), 2);
    ls_module *twice = relu();
    assert_int_equal(ls_sequential_create(&second, (ls_child[]){{"a", twice}, {"b", twice}, {NULL, NULL}}),
                     LS_ERR_STATE);
    const uint64_t live = ls_alloc_live();
    assert_int_equal(ls_module_create(&second, NULL, (ls_child[]){{"a", relu()}, {"b", child}, {NULL, NULL}}),
                     LS_ERR_ARGUMENT);
    assert_int_equal(ls_alloc_live(), live); /* "b" is another's child still */
    ls_module_close(&net);
    assert_nothing_left();
}

static void a_kept_module_outlives_its_parent(void **state) {
    (void)state;
    ls_module *child = linear(2, 2), *net = NULL;
    assert_int_equal(ls_sequential_create(&net, (ls_child[]){{"a", child}, {NULL, NULL}}), LS_OK);
    nn_module_keep(child);
    ls_module_close(&net);
    assert_string_equal(ls_module_parameter_name(child, 0), "weight");
    assert_int_equal(ls_module_add_buffer(child, "count", tensor(1, 1, 0)), LS_OK); /* no parent to tell any more */
    ls_module_close(&child);
    ls_module_close(&child);
    ls_module_close(NULL);
}

static void unusual_parameters_work(void **state) {
    (void)state;
    ls_module *none = relu(), *empty = linear(10, 0);
    ls_tensor *scalar = NULL, *x = tensor(4, 10, 1);
    assert_int_equal(ls_module_parameter_count(none), 0);
    assert_int_equal(ls_tensor_create(&scalar, LS_F64, 0, NULL), LS_OK);
    assert_int_equal(ls_module_add_parameter(empty, "scalar", scalar), LS_OK);
    ls_step_begin();
    ls_tensor *y = ls_module_forward(empty, x);
    assert_int_equal(ls_tensor_dim(y, 0), 4);
    assert_int_equal(ls_tensor_dim(y, 1), 0);
    assert_int_equal(ls_backward(ls_add(ls_sum(y), scalar)), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    assert_non_null(ls_tensor_grad(ls_module_parameter(empty, 0)));
    assert_true(ls_tensor_item(ls_tensor_grad(scalar)) == 1);
    ls_module_close(&none);
    ls_module_close(&empty);
    ls_tensor_close(&x);

    ls_module *of_nothing = linear(0, 3); /* a fan-in of 0 is no bound to draw by */
    const double *bias = ls_tensor_data(ls_module_parameter(of_nothing, 1));
    for (int i = 0; i < 3; i++) assert_true(bias[i] == 0);
    ls_module_close(&of_nothing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_have_pytorchs_names_and_order),
        cmocka_unit_test(a_tied_parameter_counts_once_under_its_first_name),
        cmocka_unit_test(names_that_would_mislead_are_refused),
        cmocka_unit_test(a_child_belongs_to_one_module),
        cmocka_unit_test(a_kept_module_outlives_its_parent),
        cmocka_unit_test(unusual_parameters_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
