/* What happens when a step fails: the same verdict on all ranks, the group in step, the next step right. Ranks are
 * threads. */
#include "ddp/rank_results.h"

#include "base/error.h"

static const ls_ddp_options search = {.find_unused_parameters = true};

static rank_result results[2];

static void assert_next_step_is_right(double average) {
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_near(results[rank].next_gradient[0], average);
    }
}

/* Two ranks' step fails with one sentence, which holds `text`, and the next one is right. */
static void assert_step_fails(rank_scenario scenario, ls_status status, const char *text, double next_average) {
    run_scenario(2, scenario, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, status);
        assert_non_null(strstr(results[rank].text, text));
        assert_string_equal(results[rank].text, results[0].text);
    }
    assert_next_step_is_right(next_average);
}

/* A failed step leaves no gradients behind. */
static void assert_no_gradient(void) {
    for (int rank = 0; rank < 2; rank++) assert_true(isnan(results[rank].gradient[0]));
}

static void b_unused_everywhere(ls_group *group, rank_result *result) {
    LEARN(2, NULL);
    model.used = A;
    note(result, scalar_step(&model, rank == 0 ? 1 : 3));
    note_gradients(result, &model);
    model.used = A | B;
    note_next(result, scalar_step(&model, rank == 0 ? 1 : 3));
    note_next_gradients(result, &model);
    DONE;
}

static void an_unused_parameter_is_an_error_of_the_same_backward_on_all_ranks(void **state) {
    (void)state;
    assert_step_fails(b_unused_everywhere, LS_ERR_UNUSED, "rank 0: b", 2);
    assert_non_null(strstr(results[0].text, "rank 1: b"));
    assert_non_null(strstr(results[0].text, "find_unused_parameters"));
    assert_no_gradient();
}

static void b_unused_on_rank_1(ls_group *group, rank_result *result) {
    LEARN(2, NULL);
    model.used = rank == 1 ? A : A | B;
    note(result, scalar_step(&model, 1));
    model.used = A | B;
    note_next(result, scalar_step(&model, 1));
    note_next_gradients(result, &model);
    DONE;
}

static void the_error_names_the_ranks_on_which_a_parameter_is_unused(void **state) {
    (void)state;
    assert_step_fails(b_unused_on_rank_1, LS_ERR_UNUSED, "rank 1: b", 1);
    assert_null(strstr(results[0].text, "rank 0:"));
}

/* The forward of rank 1 fails: its loss is NULL. */
static void no_loss_on_rank_1(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    model.used = rank == 1 ? 0 : A;
    if (rank == 1) {
        ls_step_begin();
        ls_backward(ls_mean(ls_module_forward(model.module, NULL)));
        note(result, ls_step_end());
    } else {
        note(result, scalar_step(&model, 1));
    }
    model.used = A;
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void a_rank_without_a_loss_fails_the_step_on_all_and_the_next_is_right(void **state) {
    (void)state;
    assert_step_fails(no_loss_on_rank_1, LS_ERR_ARGUMENT, "rank 1", 1.5);
}

static ls_status refuse_memory(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    (void)context;
    (void)grad_output;
    (void)grad_inputs;
    return ls_fail(LS_ERR_MEMORY, "no memory for the activations");
}

static ls_status pass_on(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    (void)context;
    return ls_tensor_copy_in(grad_inputs[0], ls_tensor_data(grad_output));
}

/* Backward fails on rank 1 after the header has gone out well: behind the first of two weights. */
static void backward_fails_on_rank_1(ls_group *group, rank_result *result) {
    LEARN(2, &((ls_ddp_options){.bucket_cap_bytes = 1}));
    ls_tensor *batch = scalar_batch(&(double){rank + 1}, 1);
    ls_step_begin();
    ls_tensor *y = ls_module_forward(model.module, batch);
    ls_no_grad_begin();
    ls_tensor *copy = ls_scale(y, 1);
    ls_no_grad_end();
    copy = ls_op_record("planted", copy, &y, 1, rank == 1 ? refuse_memory : pass_on, NULL, NULL);
    ls_backward(ls_mean(copy));
    note(result, ls_step_end());
    note_gradients(result, &model);
    scalar_zero_gradients(&model);
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    ls_tensor_close(&batch);
    DONE;
}

static void a_rank_that_fails_in_backward_still_posts_the_rest_so_that_all_fail_alike(void **state) {
    (void)state;
    assert_step_fails(backward_fails_on_rank_1, LS_ERR_MEMORY, "rank 1", 1.5);
    assert_no_gradient();
}

static void failure_under_no_sync(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_ddp_no_sync_begin(ddp);
    if (rank == 1) {
        ls_step_begin();
        ls_backward(ls_mean(ls_module_forward(model.module, NULL)));
        ls_step_end();
    } else {
        scalar_step(&model, 1);
    }
    ls_ddp_no_sync_end(ddp);
    note(result, scalar_step(&model, 1));
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void a_failure_under_no_sync_is_told_by_the_next_header(void **state) {
    (void)state;
    assert_step_fails(failure_under_no_sync, LS_ERR_ARGUMENT, "rank 1", 1.5);
}

static void rank_1_skips_alone(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    if (rank == 1) {
        ls_ddp_no_sync_begin(ddp);
        scalar_step(&model, 1);
        ls_ddp_no_sync_end(ddp);
    }
    note(result, scalar_step(&model, 1));
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void ranks_that_disagree_on_synchronising_get_a_named_error_and_go_on(void **state) {
    (void)state;
    assert_step_fails(rank_1_skips_alone, LS_ERR_MISMATCH, "rank 0 synchronises backward 1, rank 1 backward 2", 1.5);
}

/* Three batches on rank 0, two on rank 1, which then leaves. */
static void uneven_batches(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    for (int step = 0; step < (rank == 0 ? 3 : 2); step++) note(result, scalar_step(&model, 1));
    DONE;
}

static void a_rank_that_runs_out_of_batches_is_named(void **state) {
    (void)state;
    run_scenario(2, uneven_batches, results);
    assert_int_equal(results[0].status, LS_ERR_PEER_LOST);
    assert_non_null(strstr(results[0].text, "rank 1"));
    assert_int_equal(results[1].status, LS_OK);
}

static void evaluation_on_rank_0_alone(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    if (rank == 0) {
        ls_tensor *batch = scalar_batch(&(double){1}, 1);
        ls_no_grad_begin();
        for (int i = 0; i < 3; i++) {
            ls_step_begin();
            ls_module_forward(model.module, batch);
            note(result, ls_step_end());
        }
        ls_no_grad_end();
        ls_tensor_close(&batch);
    }
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void forwards_without_gradients_send_nothing(void **state) {
    (void)state;
    run_scenario(2, evaluation_on_rank_0_alone, results);
    assert_int_equal(results[0].status, LS_OK);
    assert_next_step_is_right(1.5);
}

static void thawed_after_wrapping(ls_group *group, rank_result *result) {
    scalar_model model = {0};
    ls_ddp *ddp = NULL;
    ls_status status = scalar_model_create(&model, 2);
    ls_tensor *b = model.module ? ls_module_parameter(model.module, 1) : NULL;
    if (status == LS_OK) status = ls_tensor_set_requires_grad(b, false);
    if (status == LS_OK) status = ls_ddp_wrap(&ddp, model.module, group, NULL);
    if (status == LS_OK) status = scalar_step(&model, 1);
    result->number = status;
    if (status == LS_OK && ls_group_rank(group) == 1) ls_tensor_set_requires_grad(b, true);
    note(result, scalar_step(&model, 1));
    ls_tensor_set_requires_grad(b, false);
    note_next(result, scalar_step(&model, ls_group_rank(group) + 1));
    note_next_gradients(result, &model);
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
}

static void a_parameter_thawed_on_one_rank_is_named_on_all(void **state) {
    (void)state;
    assert_step_fails(thawed_after_wrapping, LS_ERR_STATE, "\"b\"", 1.5);
    for (int rank = 0; rank < 2; rank++) assert_int_equal(results[rank].number, LS_OK);
}

static void frozen_after_wrapping(ls_group *group, rank_result *result) {
    LEARN(2, result->number == 1 ? &search : NULL);
    ls_tensor_set_requires_grad(ls_module_parameter(model.module, 1), false);
    note(result, scalar_step(&model, rank + 1));
    note_gradients(result, &model);
    DONE;
}

static void frozen_after_wrapping_with_search(ls_group *group, rank_result *result) {
    result->number = 1;
    frozen_after_wrapping(group, result);
}

static void a_parameter_frozen_after_wrapping_is_an_error_or_with_search_left_out(void **state) {
    (void)state;
    run_scenario(2, frozen_after_wrapping, results);
    for (int rank = 0; rank < 2; rank++) assert_int_equal(results[rank].status, LS_ERR_UNUSED);
    run_scenario(2, frozen_after_wrapping_with_search, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_near(results[rank].gradient[0], 1.5);
        assert_true(isnan(results[rank].gradient[1]));
    }
}

static void nan_on_rank_1(ls_group *group, rank_result *result) {
    LEARN(2, &((ls_ddp_options){.find_nonfinite = true}));
    ls_optim *sgd = NULL;
    ls_sgd_create(&sgd, model.module, &(ls_sgd_options){.lr = 0.1});
    note(result, scalar_step(&model, rank == 1 ? NAN : 1));
    ls_optim_step(sgd);
    ls_optim_zero_grad(sgd);
    result->gradient[0] = ls_tensor_item(ls_module_parameter(model.module, 0));
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    ls_optim_close(&sgd);
    DONE;
}

static void infinity_accumulated_on_rank_0(ls_group *group, rank_result *result) {
    LEARN(2, &((ls_ddp_options){.find_nonfinite = true, .find_unused_parameters = true}));
    ls_ddp_no_sync_begin(ddp);
    model.used = B;
    note(result, scalar_step(&model, rank == 0 ? INFINITY : 1));
    ls_ddp_no_sync_end(ddp);
    model.used = A;
    note(result, scalar_step(&model, 1));
    model.used = A | B;
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void a_gradient_that_is_not_finite_is_named_on_all_ranks_and_nobody_updates(void **state) {
    (void)state;
    assert_step_fails(nan_on_rank_1, LS_ERR_NONFINITE, "backward 1: the gradient of b on rank 1", 1.5);
    for (int rank = 0; rank < 2; rank++) assert_true(results[rank].gradient[0] == 3);
    assert_step_fails(infinity_accumulated_on_rank_0, LS_ERR_NONFINITE, "the gradient of b on rank 0", 1.5);
}

/* Two forwards, the second fails on rank 1; two backwards. */
static void two_losses_one_missing_on_rank_1(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_tensor *batch = scalar_batch(&(double){rank + 1}, 1);
    for (int step = 0; step < 2; step++) {
        ls_step_begin();
        ls_tensor *first = ls_mean(ls_module_forward(model.module, batch));
        ls_tensor *second = ls_mean(ls_module_forward(model.module, rank == 1 && step == 0 ? NULL : batch));
        ls_backward(first);
        ls_backward(second);
        status = ls_step_end();
        step == 0 ? note(result, status) : note_next(result, status);
    }
    note_next_gradients(result, &model);
    ls_tensor_close(&batch);
    DONE;
}

static void a_second_loss_missing_on_one_rank_fails_that_step_and_no_other(void **state) {
    (void)state;
    /* 1.5 of each loss. */
    assert_step_fails(two_losses_one_missing_on_rank_1, LS_ERR_ARGUMENT, "", 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unused_parameter_is_an_error_of_the_same_backward_on_all_ranks),
        cmocka_unit_test(the_error_names_the_ranks_on_which_a_parameter_is_unused),
        cmocka_unit_test(a_rank_without_a_loss_fails_the_step_on_all_and_the_next_is_right),
        cmocka_unit_test(a_rank_that_fails_in_backward_still_posts_the_rest_so_that_all_fail_alike),
        cmocka_unit_test(a_failure_under_no_sync_is_told_by_the_next_header),
        cmocka_unit_test(ranks_that_disagree_on_synchronising_get_a_named_error_and_go_on),
        cmocka_unit_test(a_rank_that_runs_out_of_batches_is_named),
        cmocka_unit_test(forwards_without_gradients_send_nothing),
        cmocka_unit_test(a_parameter_thawed_on_one_rank_is_named_on_all),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_named_on_all_ranks_and_nobody_updates),
        cmocka_unit_test(a_second_loss_missing_on_one_rank_fails_that_step_and_no_other),
        cmocka_unit_test(a_parameter_frozen_after_wrapping_is_an_error_or_with_search_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
