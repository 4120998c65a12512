/* Where modes, failures and handles meet: which of two forwards holds, what a failed step leaves due, what a closed wrap
 * leaves behind. Ranks are threads. */
#include "ddp/rank_results.h"

#include "base/error.h"

#include <stdlib.h>

/* ---- Several forwards, one backward ---- */

/* One forward under no_sync and one outside, in either order, before the one backward. */
static void two_modes(ls_group *group, rank_result *result) {
    LEARN(2, &((ls_ddp_options){.bucket_cap_bytes = 1}));
    ls_tensor *batch = scalar_batch(&(double){rank + 1}, 1);
    model.is_upward = true;
    for (int last_skips = 0; last_skips < 2; last_skips++) {
        ls_step_begin();
        if (!last_skips) ls_ddp_no_sync_begin(ddp);
        ls_tensor *first = ls_mean(ls_module_forward(model.module, batch));
        if (!last_skips) ls_ddp_no_sync_end(ddp);
        if (last_skips) ls_ddp_no_sync_begin(ddp);
        ls_tensor *second = ls_mean(ls_module_forward(model.module, batch));
        if (last_skips) ls_ddp_no_sync_end(ddp);
        ls_backward(ls_add(first, second));
        note(result, ls_step_end());
        result->gradient[last_skips] = scalar_gradient(&model, 0);
        scalar_zero_gradients(&model);
    }
    ls_tensor_close(&batch);
    DONE;
}

static void the_last_of_several_forwards_decides_whether_backward_synchronises(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, two_modes, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_near(results[rank].gradient[0], 3);
        assert_near(results[rank].gradient[1], 2 * (rank + 1));
    }
}

/* A rebuild is due; rank 1 does its step under no_sync only when rank 0 is through with its own. */
static void skip_in_turn(ls_group *group, rank_result *result) {
    LEARN(2, &((ls_ddp_options){.bucket_cap_bytes = 1}));
    model.is_upward = true;
    note(result, scalar_step(&model, 1));
    scalar_zero_gradients(&model);
    ls_ddp_no_sync_begin(ddp);
    if (rank == 1) assert_ok(ls_group_barrier(group, NULL));
    note(result, scalar_step(&model, rank + 1));
    if (rank == 0) assert_ok(ls_group_barrier(group, NULL));
    ls_ddp_no_sync_end(ddp);
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void a_step_under_no_sync_waits_for_nobody_though_a_rebuild_is_due(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, skip_in_turn, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
        for (int i = 0; i < 2; i++) assert_near(results[rank].next_gradient[i], 3);
    }
}

/* ---- Failures ---- */

static ls_status fail_backward(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    (void)grad_output;
    (void)grad_inputs;
    return ls_fail(LS_ERR_MEMORY, "%s", (const char *)context);
}

/* A step whose backward fails after the header, before the model's gradients come. */
static ls_status failing_step(scalar_model *model, const char *reason) {
    ls_tensor *batch = scalar_batch(&(double){1}, 1), *y = NULL;
    char words[64];
    snprintf(words, sizeof words, "%s", reason);
    ls_step_begin();
    ls_tensor *inputs[] = {ls_mean(ls_module_forward(model->module, batch))};
    if (ls_tensor_create(&y, LS_F64, 0, NULL) == LS_OK)
        y = ls_op_record("failing", y, inputs, 1, fail_backward, words, NULL);
    ls_backward(y);
    const ls_status status = ls_step_end();
    ls_tensor_close(&batch);
    return status;
}

static void two_failures(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_ddp_no_sync_begin(ddp);
    for (int i = 0; i < 2; i++)
        rank == 1 ? failing_step(&model, i == 0 ? "the cause" : "its consequence") : scalar_step(&model, 1);
    ls_ddp_no_sync_end(ddp);
    note(result, scalar_step(&model, 1));
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void of_several_failures_under_no_sync_the_first_is_told(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, two_failures, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_said(&results[rank], LS_ERR_MEMORY, "rank 1: ");
        assert_non_null(strstr(results[rank].text, "the cause"));
        assert_goes_on(&results[rank]);
    }
}

/* Rank 1 takes a step more under no_sync, and then fails: that it is elsewhere is what the sentence has to say. */
static void elsewhere_and_failed(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    if (rank == 1) {
        ls_ddp_no_sync_begin(ddp);
        scalar_step(&model, 1);
        ls_ddp_no_sync_end(ddp);
        ls_step_begin();
        ls_backward(ls_mean(ls_module_forward(model.module, NULL)));
        note(result, ls_step_end());
    } else {
        note(result, scalar_step(&model, 1));
    }
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void ranks_in_different_steps_are_told_so_though_one_has_failed_as_well(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, elsewhere_and_failed, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_said(&results[rank], LS_ERR_MISMATCH, "rank 0 synchronises backward 1, rank 1 backward 2");
        assert_goes_on(&results[rank]);
    }
}

/* b is used in a step that fails, and not in the next: nobody has used it. */
static void use_in_a_failed_step(ls_group *group, rank_result *result) {
    LEARN(2, &((ls_ddp_options){.find_unused_parameters = true}));
    note(result, rank == 1 ? failing_step(&model, "no room") : scalar_step(&model, 1));
    model.used = A;
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void what_a_failed_step_used_is_forgotten(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, use_in_a_failed_step, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_ERR_MEMORY);
        assert_goes_on(&results[rank]);
        assert_true(isnan(results[rank].next_gradient[1])); /* none */
    }
}

/* After a failed step the next one lays no buckets out: its order lacks gradients. The one after that does. */
static void fail_then_train(ls_group *group, rank_result *result) {
    LEARN(3, &((ls_ddp_options){.bucket_cap_bytes = 1}));
    model.is_upward = true;
    ls_ddp_stats stats;
    note(result, rank == 1 ? failing_step(&model, "no room") : scalar_step(&model, 1));
    for (int step = 0; step < 2; step++) {
        note_next(result, scalar_step(&model, rank + 1));
        ls_ddp_last_stats(ddp, &stats);
        result->number = 10 * result->number + stats.has_rebuilt;
        note_next_gradients(result, &model);
        scalar_zero_gradients(&model);
    }
    DONE;
}

static void buckets_are_not_laid_out_by_a_step_that_failed(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, fail_then_train, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_ERR_MEMORY);
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_int_equal(results[rank].number, 1); /* 0, then 1 */
        for (int i = 0; i < 3; i++) assert_near(results[rank].next_gradient[i], 1.5);
    }
}

static void buffer_after_failure(ls_group *group, rank_result *result) {
    scalar_model model = {0};
    ls_ddp *ddp = NULL;
    const int rank = ls_group_rank(group);
    ls_tensor *buffer = NULL;
    assert_ok(scalar_model_create(&model, 1));
    assert_ok(ls_tensor_create(&buffer, LS_F64, 0, NULL));
    assert_ok(ls_module_add_buffer(model.module, "mean", buffer));
    assert_ok(ls_ddp_wrap(&ddp, model.module, group, NULL));
    note_next(result, scalar_step(&model, 1));
    note(result, rank == 1 ? failing_step(&model, "no room") : scalar_step(&model, 1));
    assert_ok(ls_tensor_copy_in(buffer, &(double){rank + 5}));
    note_next(result, scalar_step(&model, 1));
    result->gradient[0] = ls_tensor_item(buffer);
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
}

static void buffers_follow_rank_0_behind_a_failed_step_too(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, buffer_after_failure, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_ERR_MEMORY);
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_true(results[rank].gradient[0] == 5);
    }
}

/* ---- Closing ---- */

/* Closed between forward and backward: the tape names the wrap still. */
static void close_in_the_middle(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_tensor *batch = scalar_batch(&(double){rank + 1}, 1);
    note(result, scalar_step(&model, rank + 1));
    ls_step_begin();
    ls_tensor *loss = ls_mean(ls_module_forward(model.module, batch));
    ls_ddp_close(&ddp);
    result->number = ls_tensor_grad(ls_module_parameter(model.module, 0)) == NULL;
    assert_ok(ls_group_barrier(group, NULL)); /* all have closed: whoever still spoke to the group would speak alone */
    ls_backward(loss);
    note_next(result, ls_step_end());
    note_next_gradients(result, &model);
    ls_tensor_close(&batch);
    DONE;
}

static void a_closed_wrap_leaves_a_local_model_without_gradients(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, close_in_the_middle, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].number, 1);
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_near(results[rank].next_gradient[0], rank + 1);
    }
}

/* ---- Wrapping ---- */

/* Rank 1 has another value than rank 0 in each option in turn. */
static int odd_option;

static void one_option_differs(ls_group *group, rank_result *result) {
    const bool is_odd = ls_group_rank(group) == 1;
    const ls_ddp_options options = {.bucket_cap_bytes = is_odd && odd_option == 0 ? 100 : 0,
                                    .first_bucket_cap_bytes = is_odd && odd_option == 1 ? 100 : 0,
                                    .find_unused_parameters = is_odd && odd_option == 2,
                                    .find_nonfinite = is_odd && odd_option == 3,
                                    .keep_buckets = is_odd && odd_option == 4};
    scalar_model model = {0};
    ls_ddp *ddp = NULL;
    assert_ok(scalar_model_create(&model, 1));
    note(result, ls_ddp_wrap(&ddp, model.module, group, &options));
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
}

static void every_option_that_ranks_must_share_is_compared(void **state) {
    (void)state;
    rank_result results[2];
    for (odd_option = 0; odd_option < 5; odd_option++) {
        run_scenario(2, one_option_differs, results);
        for (int rank = 0; rank < 2; rank++) assert_said(&results[rank], LS_ERR_MISMATCH, "options");
    }
}

/* Names that differ behind what a message shows of them. */
static void long_names(ls_group *group, rank_result *result) {
    ls_module *module = NULL;
    ls_ddp *ddp = NULL;
    ls_tensor *weight = NULL;
    char name[300];
    const ls_module_callbacks callbacks = {.forward = scalar_forward};
    memset(name, 'w', sizeof name);
    snprintf(name + 250, 50, "%d", ls_group_rank(group));
    assert_ok(ls_module_create(&module, &callbacks, NULL));
    assert_ok(ls_tensor_create(&weight, LS_F64, 2, (int64_t[]){1, 1}));
    assert_ok(ls_module_add_parameter(module, name, weight));
    note(result, ls_ddp_wrap(&ddp, module, group, NULL));
    ls_ddp_close(&ddp);
    ls_module_close(&module);
}

static void names_are_compared_to_their_ends(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, long_names, results);
    for (int rank = 0; rank < 2; rank++) assert_int_equal(results[rank].status, LS_ERR_MISMATCH);
}

/* More than one message of the broadcast: 16 MiB. */
#define LARGE (((int64_t)20 << 20) / (int64_t)sizeof(double))

static void large_parameter(ls_group *group, rank_result *result) {
    scalar_model model = {0};
    ls_ddp *ddp = NULL;
    ls_tensor *large = NULL;
    const int rank = ls_group_rank(group);
    assert_ok(scalar_model_create(&model, 1));
    assert_ok(ls_tensor_create(&large, LS_F64, 1, (int64_t[]){LARGE}));
    double *values = ls_tensor_data_mut(large);
    for (int64_t i = 0; i < LARGE; i++) values[i] = (double)i + 0.25 * rank;
    assert_ok(ls_module_add_parameter(model.module, "large", large));
    assert_ok(ls_tensor_set_requires_grad(large, false));
    assert_ok(ls_tensor_copy_in(ls_module_parameter(model.module, 0), &(double){rank + 3}));
    note(result, ls_ddp_wrap(&ddp, model.module, group, NULL));
    for (int64_t i = 0; i < LARGE; i++) result->number += values[i] != (double)i;
    result->gradient[0] = ls_tensor_item(ls_module_parameter(model.module, 0));
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
}

static void a_parameter_larger_than_a_message_arrives_whole(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, large_parameter, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].number, 0);
        assert_true(results[rank].gradient[0] == 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_of_several_forwards_decides_whether_backward_synchronises),
        cmocka_unit_test(a_step_under_no_sync_waits_for_nobody_though_a_rebuild_is_due),
        cmocka_unit_test(of_several_failures_under_no_sync_the_first_is_told),
        cmocka_unit_test(ranks_in_different_steps_are_told_so_though_one_has_failed_as_well),
        cmocka_unit_test(what_a_failed_step_used_is_forgotten),
        cmocka_unit_test(buckets_are_not_laid_out_by_a_step_that_failed),
        cmocka_unit_test(buffers_follow_rank_0_behind_a_failed_step_too),
        cmocka_unit_test(a_closed_wrap_leaves_a_local_model_without_gradients),
        cmocka_unit_test(every_option_that_ranks_must_share_is_compared),
        cmocka_unit_test(names_are_compared_to_their_ends),
        cmocka_unit_test(a_parameter_larger_than_a_message_arrives_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
