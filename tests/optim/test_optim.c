/* test_optim.c: the update rules against sequences computed by hand from PyTorch's formulas, and what an optimizer
 * keeps. */
#include "support/faults.h"
#include "support/test.h"

#include "base/memory.h"

#include <lockstep/optim.h>
#include <lockstep/trace.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- A module of parameters alone, whose gradients are whatever a test says ---- */

static ls_status forward_nothing(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                 ls_tensor **outputs, int output_count) {
    (void)context, (void)self, (void)inputs, (void)input_count, (void)outputs, (void)output_count;
    return LS_OK;
}

/* A module with parameters "a" and "b" of `numel` elements, all 1. */
static ls_module *make_module(ls_dtype dtype, int64_t numel) {
    ls_module *module = NULL;
    assert_int_equal(ls_module_create(&module, &(ls_module_callbacks){.forward = forward_nothing}, NULL), LS_OK);
    for (int k = 0; k < 2; k++) {
        ls_tensor *parameter = NULL;
        assert_int_equal(ls_tensor_create(&parameter, dtype, 1, &numel), LS_OK);
        for (int64_t i = 0; i < numel; i++) {
            if (dtype == LS_F32) {
                ((float *)ls_tensor_data_mut(parameter))[i] = 1;
            } else {
                ((double *)ls_tensor_data_mut(parameter))[i] = 1;
            }
        }
        assert_int_equal(ls_module_add_parameter(module, k == 0 ? "a" : "b", parameter), LS_OK);
    }
    return module;
}

static double value(ls_module *module, int parameter) {
    const ls_tensor *tensor = ls_module_parameter(module, parameter);
    if (ls_tensor_dtype(tensor) == LS_F32) return (double)((const float *)ls_tensor_data(tensor))[0];
    return ((const double *)ls_tensor_data(tensor))[0];
}

/* The gradient of parameter a becomes `gradient` in each element, b's stays absent: the loss is the sum of gradient *
 * a. */
static void backward(ls_module *module, double gradient) {
    assert_int_equal(ls_backward(ls_sum(ls_scale(ls_module_parameter(module, 0), gradient))), LS_OK);
}

static void step(ls_optim *optim, ls_module *module, double gradient) {
    ls_step_begin();
    backward(module, gradient);
    assert_int_equal(ls_optim_step(optim), LS_OK);
    ls_optim_zero_grad(optim);
    assert_int_equal(ls_step_end(), LS_OK);
}

/* Three steps from 1 with gradients 0.5, -0.25, 1 give `expected`, in both types; b, without gradient, stays. */
typedef ls_status optim_maker(ls_optim **optim, ls_module *module, const void *options);

static void assert_sequence(optim_maker *make, const void *options, const double *expected) {
    static const double gradients[] = {0.5, -0.25, 1};
    static const ls_dtype dtypes[] = {LS_F64, LS_F32};
    for (int d = 0; d < 2; d++) {
        ls_module *module = make_module(dtypes[d], 5);
        ls_optim *optim = NULL;
        assert_int_equal(make(&optim, module, options), LS_OK);
        for (int t = 0; t < 3; t++) {
            step(optim, module, gradients[t]);
            const double tolerance = dtypes[d] == LS_F64 ? 1e-14 : 3e-7;
            if (!(fabs(value(module, 0) - expected[t]) <= tolerance)) {
                fail_msg("%s, step %d: %.17g, expected %.17g", ls_dtype_name(dtypes[d]), t + 1, value(module, 0),
                         expected[t]);
            }
            assert_true(value(module, 1) == 1);
        }
        ls_optim_close(&optim);
        ls_module_close(&module);
    }
}

static ls_status make_sgd(ls_optim **optim, ls_module *module, const void *options) {
    return ls_sgd_create(optim, module, options);
}

static ls_status make_adamw(ls_optim **optim, ls_module *module, const void *options) {
    return ls_adamw_create(optim, module, options);
}

/* ---- The rules ---- */

static void sgd_subtracts_the_gradient(void **state) {
    (void)state;
    assert_sequence(make_sgd, &(ls_sgd_options){.lr = 0.1}, (double[]){0.95, 0.975, 0.875});
}

static void sgd_decays_weights_through_the_gradient(void **state) {
    (void)state;
    /* g + 0.1 w: 0.6, -0.156, 1.09556 */
    assert_sequence(make_sgd, &(ls_sgd_options){.lr = 0.1, .weight_decay = 0.1}, (double[]){0.94, 0.9556, 0.846044});
}

static void momentum_starts_as_the_first_gradient(void **state) {
    (void)state;
    /* m: 0.5, 0.2, 1.18 */
    assert_sequence(make_sgd, &(ls_sgd_options){.lr = 0.1, .momentum = 0.9}, (double[]){0.95, 0.93, 0.812});
}

static void momentum_holds_decayed_gradients(void **state) {
    (void)state;
    /* g: 0.6, -0.156, 1.09016; m: 0.6, 0.384, 1.43576 */
    assert_sequence(make_sgd, &(ls_sgd_options){.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1},
                    (double[]){0.94, 0.9016, 0.758024});
}

static void nesterov_looks_ahead(void **state) {
    (void)state;
    /* m: 0.5, 0.2, 1.18; g + 0.9 m: 0.95, -0.07, 2.062 */
    assert_sequence(make_sgd, &(ls_sgd_options){.lr = 0.1, .momentum = 0.9, .nesterov = true},
                    (double[]){0.905, 0.912, 0.7058});
}

static void adamw_corrects_its_bias_and_decays_apart(void **state) {
    (void)state;
    /* m: 0.05, 0.02, 0.118; v: 0.00025, 0.00031225, 0.00131193775; defaults for betas and eps */
    assert_sequence(make_adamw, &(ls_adamw_options){.lr = 0.1, .weight_decay = 0.01},
                    (double[]){0.89900000199999996, 0.87146729870584616, 0.80478467237638397});
}

static void adamw_takes_other_betas_and_eps(void **state) {
    (void)state;
    /* m: 0.25, 0, 0.5; v: 0.0625, 0.0625, 0.296875 */
    assert_sequence(make_adamw, &(ls_adamw_options){.lr = 0.1, .beta1 = 0.5, .beta2 = 0.75, .eps = 0.125},
                    (double[]){0.92, 0.92, 0.85210200321356864});
}

/* ---- What is left alone ---- */

static void a_parameter_without_gradient_keeps_its_version_and_momentum(void **state) {
    (void)state;
    ls_module *module = make_module(LS_F64, 3);
    ls_optim *optim = NULL;
    assert_int_equal(ls_sgd_create(&optim, module, &(ls_sgd_options){.lr = 0.1, .momentum = 0.9, .weight_decay = 0.5}),
                     LS_OK);
    const uint64_t version_a = ls_tensor_version(ls_module_parameter(module, 0));
    const uint64_t version_b = ls_tensor_version(ls_module_parameter(module, 1));
    step(optim, module, 1);
    assert_int_not_equal(ls_tensor_version(ls_module_parameter(module, 0)), version_a);
    assert_int_equal(ls_tensor_version(ls_module_parameter(module, 1)), version_b);
    /* a: g = 1 + 0.5; b: nothing at all. */
    assert_true(((const double *)ls_tensor_data(ls_optim_state(optim, 0)))[2] == 1.5);
    assert_true(((const double *)ls_tensor_data(ls_optim_state(optim, 1)))[2] == 0);
    int64_t counts[2];
    ls_optim_update_counts(optim, counts);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 0);
    ls_optim_close(&optim);
    ls_module_close(&module);
}

static void a_failed_step_changes_nothing(void **state) {
    (void)state;
    ls_module *module = make_module(LS_F64, 3);
    ls_optim *optim = NULL;
    assert_int_equal(ls_sgd_create(&optim, module, &(ls_sgd_options){.lr = 0.1}), LS_OK);
    ls_step_begin();
    backward(module, 1);
    /* An op fails after the gradient is there: three elements and one are not added. */
    assert_null(ls_add(ls_module_parameter(module, 0), ls_sum(ls_module_parameter(module, 0))));
    assert_int_equal(ls_optim_step(optim), LS_ERR_ARGUMENT);
    assert_int_equal(ls_step_end(), LS_ERR_ARGUMENT);
    assert_true(value(module, 0) == 1);
    int64_t counts[2];
    ls_optim_update_counts(optim, counts);
    assert_int_equal(counts[0], 0);
    ls_optim_zero_grad(optim);
    assert_null(ls_tensor_grad(ls_module_parameter(module, 0)));
    step(optim, module, 1);
    assert_true(fabs(value(module, 0) - 0.9) < 1e-15);
    ls_optim_close(&optim);
    ls_module_close(&module);
}

static void the_optimizer_outlives_the_module(void **state) {
    (void)state;
    ls_module *module = make_module(LS_F64, 3);
    ls_tensor *parameter = ls_tensor_keep(ls_module_parameter(module, 0));
    ls_optim *optim = NULL;
    assert_int_equal(ls_adamw_create(&optim, module, &(ls_adamw_options){.lr = 0.1}), LS_OK);
    ls_module_close(&module);
    ls_tensor_close(&parameter);
    ls_step_begin();
    assert_int_equal(ls_optim_step(optim), LS_OK);
    assert_int_equal(ls_step_end(), LS_OK);
    ls_optim_close(&optim);
    assert_null(optim);
    ls_optim_close(&optim);
    ls_optim_close(NULL);
}

/* ---- State ---- */

static void state_has_names_and_the_shape_of_its_parameter(void **state) {
    (void)state;
    ls_module *module = NULL;
    ls_optim *optim = NULL;
    assert_int_equal(ls_conv2d_create(&module, 3, 5, 2, NULL), LS_OK);
    assert_int_equal(ls_adamw_create(&optim, module, &(ls_adamw_options){.lr = 0.1}), LS_OK);
    static const char *const names[] = {"weight.exp_avg", "weight.exp_avg_sq", "bias.exp_avg", "bias.exp_avg_sq"};
    assert_int_equal(ls_optim_state_count(optim), 4);
    for (int i = 0; i < 4; i++) {
        const ls_tensor *parameter = ls_module_parameter(module, i / 2), *tensor = ls_optim_state(optim, i);
        assert_string_equal(ls_optim_state_name(optim, i), names[i]);
        assert_int_equal(ls_tensor_layout(tensor), ls_tensor_layout(parameter));
        assert_int_equal(ls_tensor_ndim(tensor), ls_tensor_ndim(parameter));
        for (int d = 0; d < ls_tensor_ndim(tensor); d++) {
            assert_int_equal(ls_tensor_dim(tensor, d), ls_tensor_dim(parameter, d));
        }
        const float *elements = ls_tensor_data(tensor);
        for (int64_t k = 0; k < ls_tensor_numel(tensor); k++) assert_true(elements[k] == 0);
    }
    assert_null(ls_optim_state(optim, 4));
    assert_null(ls_optim_state_name(optim, -1));
    ls_optim_close(&optim);

    assert_int_equal(ls_sgd_create(&optim, module, &(ls_sgd_options){.lr = 0.1}), LS_OK);
    assert_int_equal(ls_optim_state_count(optim), 0);
    ls_optim_close(&optim);
    assert_int_equal(ls_sgd_create(&optim, module, &(ls_sgd_options){.lr = 0.1, .momentum = 0.5}), LS_OK);
    assert_string_equal(ls_optim_state_name(optim, 1), "bias.momentum");
    ls_optim_close(&optim);
    ls_module_close(&module);
}

/* State and counts moved into a second optimizer continue the first one's sequence to the bit. */
static void moved_state_continues_the_sequence(void **state) {
    (void)state;
    ls_module *module = make_module(LS_F64, 3), *other = make_module(LS_F64, 3);
    ls_optim *optim = NULL, *resumed = NULL;
    assert_int_equal(ls_adamw_create(&optim, module, &(ls_adamw_options){.lr = 0.1}), LS_OK);
    assert_int_equal(ls_adamw_create(&resumed, other, &(ls_adamw_options){.lr = 0.1}), LS_OK);
    step(optim, module, 0.5);
    step(optim, module, -0.25);

    int64_t counts[2];
    ls_optim_update_counts(optim, counts);
    assert_int_equal(ls_optim_parameter_count(optim), 2);
    ls_optim_set_update_counts(resumed, counts);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ls_tensor_copy_in(ls_optim_state(resumed, i), ls_tensor_data(ls_optim_state(optim, i))),
                         LS_OK);
    }
    assert_int_equal(ls_tensor_copy_in(ls_module_parameter(other, 0), ls_tensor_data(ls_module_parameter(module, 0))),
                     LS_OK);
    step(optim, module, 1);
    step(resumed, other, 1);
    assert_true(value(module, 0) == value(other, 0));
    ls_optim_close(&optim);
    ls_optim_close(&resumed);
    ls_module_close(&module);
    ls_module_close(&other);
}

/* ---- The learning rate ---- */

static void a_step_schedule_drops_the_rate_every_few_epochs(void **state) {
    (void)state;
    ls_module *module = make_module(LS_F64, 1);
    ls_optim *optim = NULL;
    assert_int_equal(ls_sgd_create(&optim, module, &(ls_sgd_options){.lr = 0.5}), LS_OK);
    assert_true(ls_optim_lr(optim) == 0.5);
    const ls_step_schedule schedule = {.base_lr = 0.5, .gamma = 0.5, .step_epochs = 2};
    static const double expected[] = {0.5, 0.5, 0.25, 0.25, 0.125};
    for (int epoch = 0; epoch < 5; epoch++) {
        ls_step_schedule_apply(&schedule, optim, epoch);
        assert_true(ls_optim_lr(optim) == expected[epoch]);
    }
    step(optim, module, 1);
    assert_true(value(module, 0) == 1 - 0.125);
    ls_step_schedule_apply(&(ls_step_schedule){.base_lr = 0.75, .gamma = 0.5}, optim, 7);
    assert_true(ls_optim_lr(optim) == 0.75);
    ls_optim_close(&optim);
    ls_module_close(&module);
}

/* ---- Refusals ---- */

static void assert_refused(ls_status status, const ls_optim *optim, const char *option, const char *found) {
    assert_int_equal(status, LS_ERR_ARGUMENT);
    assert_null(optim);
    if (!strstr(ls_last_error(), option) || !strstr(ls_last_error(), found)) fail_msg("\"%s\"", ls_last_error());
}

static void bad_options_are_refused_by_name_and_value(void **state) {
    (void)state;
    static const struct {
        ls_sgd_options options;
        const char *option, *found;
    } sgd[] = {
        {{.lr = 0}, "lr is 0", "positive"},
        {{.lr = -0.5}, "lr is -0.5", "positive"},
        {{.lr = NAN}, "lr is nan", "positive"},
        {{.lr = INFINITY}, "lr is inf", "positive"},
        {{.lr = 1, .momentum = -0.5}, "momentum is -0.5", "positive"},
        {{.lr = 1, .weight_decay = -2}, "weight_decay is -2", "positive"},
        {{.lr = 1, .nesterov = true}, "nesterov", "momentum is 0"},
    };
    static const struct {
        ls_adamw_options options;
        const char *option, *found;
    } adamw[] = {
        {{.lr = -1}, "lr is -1", "positive"},
        {{.lr = 1, .beta1 = 1}, "beta1 is 1", "between 0 and 1"},
        {{.lr = 1, .beta1 = -0.5}, "beta1 is -0.5", "between 0 and 1"},
        {{.lr = 1, .beta2 = 1.5}, "beta2 is 1.5", "between 0 and 1"},
        {{.lr = 1, .eps = -1}, "eps is -1", "positive"},
        {{.lr = 1, .weight_decay = NAN}, "weight_decay is nan", "positive"},
    };
    ls_module *module = make_module(LS_F64, 1);
    ls_optim *optim = NULL;
    for (size_t i = 0; i < sizeof sgd / sizeof sgd[0]; i++) {
        assert_refused(ls_sgd_create(&optim, module, &sgd[i].options), optim, sgd[i].option, sgd[i].found);
    }
    for (size_t i = 0; i < sizeof adamw / sizeof adamw[0]; i++) {
        assert_refused(ls_adamw_create(&optim, module, &adamw[i].options), optim, adamw[i].option, adamw[i].found);
    }
    assert_refused(ls_sgd_create(&optim, module, NULL), optim, "options", "lr");
    assert_refused(ls_adamw_create(&optim, NULL, &(ls_adamw_options){.lr = 1}), optim, "AdamW", "module is NULL");
    assert_int_equal(ls_optim_step(NULL), LS_ERR_ARGUMENT);
    ls_module_close(&module);
}

static void create_with_every_fault(ls_module *module) {
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        ls_optim *optim = NULL;
        const ls_status status = ls_adamw_create(&optim, module, &(ls_adamw_options){.lr = 0.1});
        if (ls_fault_was_met()) {
            assert_fault_reported(status);
            assert_null(optim);
        }
        ls_optim_close(&optim);
    }
}

static void refused_memory_is_an_error_and_leaves_nothing(void **state) {
    (void)state;
    ls_module *module = make_module(LS_F32, 3);
    /* The first round leaves blocks of tensors with the thread's arena, which keeps them; the second nothing more. */
    create_with_every_fault(module);
    create_with_every_fault(module);
    assert_nothing_left();
    ls_module_close(&module);
}

/* ---- The trace ---- */

static void a_step_is_a_span_of_the_trace(void **state) {
    (void)state;
    char directory[] = "/tmp/lockstep-optim-XXXXXX", path[64], text[8192] = "";
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/rank-0.json", directory);
    ls_module *module = make_module(LS_F64, 3);
    ls_optim *optim = NULL;
    assert_int_equal(ls_sgd_create(&optim, module, &(ls_sgd_options){.lr = 0.1}), LS_OK);
    assert_int_equal(ls_trace_start(directory), LS_OK);
    step(optim, module, 1);
    assert_int_equal(ls_trace_stop(), LS_OK);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_non_null(strstr(text, "\"optimizer\""));
    unlink(path);
    rmdir(directory);
    ls_optim_close(&optim);
    ls_module_close(&module);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_subtracts_the_gradient),
        cmocka_unit_test(sgd_decays_weights_through_the_gradient),
        cmocka_unit_test(momentum_starts_as_the_first_gradient),
        cmocka_unit_test(momentum_holds_decayed_gradients),
        cmocka_unit_test(nesterov_looks_ahead),
        cmocka_unit_test(adamw_corrects_its_bias_and_decays_apart),
        cmocka_unit_test(adamw_takes_other_betas_and_eps),
        cmocka_unit_test(a_parameter_without_gradient_keeps_its_version_and_momentum),
        cmocka_unit_test(a_failed_step_changes_nothing),
        cmocka_unit_test(the_optimizer_outlives_the_module),
        cmocka_unit_test(state_has_names_and_the_shape_of_its_parameter),
        cmocka_unit_test(moved_state_continues_the_sequence),
        cmocka_unit_test(a_step_schedule_drops_the_rate_every_few_epochs),
        cmocka_unit_test(bad_options_are_refused_by_name_and_value),
        cmocka_unit_test(refused_memory_is_an_error_and_leaves_nothing),
        cmocka_unit_test(a_step_is_a_span_of_the_trace),
    };
    return cmocka_run_group_tests_name("optim", tests, NULL, NULL);
}
