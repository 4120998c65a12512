/* What gradients are after a step, by hand: averages, whoever used what. Ranks are threads; the model is scalar. */
#include "ddp/rank_results.h"

static const ls_ddp_options search = {.find_unused_parameters = true};

static void average_of_rank_numbers(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    note(result, scalar_step(&model, rank));
    note_gradients(result, &model);
    DONE;
}

static void a_gradient_is_the_average_over_ranks(void **state) {
    (void)state;
    rank_result results[MOST_RANKS];
    for (int world_size = 1; world_size <= MOST_RANKS; world_size++) {
        run_scenario(world_size, average_of_rank_numbers, results);
        for (int rank = 0; rank < world_size; rank++) {
            assert_int_equal(results[rank].status, LS_OK);
            assert_near(results[rank].gradient[0], (world_size - 1) / 2.0);
        }
    }
}

static void batches_of_unequal_size(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_tensor *batch = rank == 0 ? scalar_batch((double[]){1, 1, 1}, 3) : scalar_batch((double[]){5}, 1);
    ls_step_begin();
    ls_backward(ls_mean(ls_module_forward(model.module, batch)));
    note(result, ls_step_end());
    note_gradients(result, &model);
    ls_tensor_close(&batch);
    DONE;
}

static void unequal_batches_give_the_mean_of_means(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, batches_of_unequal_size, results);
    for (int rank = 0; rank < 2; rank++) assert_near(results[rank].gradient[0], 3);
}

static void each_rank_its_own_branch(ls_group *group, rank_result *result) {
    LEARN(2, &search);
    note(result, scalar_step(&model, 100)); /* what a bucket held before must not count */
    scalar_zero_gradients(&model);
    model.used = rank == 0 ? A : B;
    note(result, scalar_step(&model, rank == 0 ? 2 : 4));
    note_gradients(result, &model);
    DONE;
}

static void ranks_may_take_different_branches_in_a_step(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, each_rank_its_own_branch, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_near(results[rank].gradient[0], 1);
        assert_near(results[rank].gradient[1], 2);
    }
}

static void accumulated_on_one_rank_only(ls_group *group, rank_result *result) {
    LEARN(2, &search);
    ls_ddp_no_sync_begin(ddp);
    model.used = rank == 1 ? A | B : A;
    note(result, scalar_step(&model, 4));
    ls_ddp_no_sync_end(ddp);
    model.used = A;
    note_next(result, scalar_step(&model, 4));
    note_gradients(result, &model);
    DONE;
}

static void what_one_rank_accumulated_under_no_sync_is_averaged_though_nobody_uses_it_now(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, accumulated_on_one_rank_only, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_near(results[rank].gradient[0], 8);
        assert_near(results[rank].gradient[1], 2);
    }
}

static void one_weight_a_micro_step(ls_group *group, rank_result *result) {
    LEARN(2, &search);
    ls_ddp_no_sync_begin(ddp);
    model.used = A;
    note(result, scalar_step(&model, rank + 1));
    ls_ddp_no_sync_end(ddp);
    model.used = B;
    note_next(result, scalar_step(&model, rank + 1));
    note_gradients(result, &model);
    DONE;
}

static void use_in_skipped_steps_counts_in_the_synchronised_one(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, one_weight_a_micro_step, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_near(results[rank].gradient[0], 1.5);
        assert_near(results[rank].gradient[1], 1.5);
    }
}

/* c has the gradient 7 before the wrap, or none; nobody uses it in two steps. */
static void c_unused_everywhere(ls_group *group, rank_result *result) {
    scalar_model model = {0};
    ls_ddp *ddp = NULL;
    ls_optim *sgd = NULL;
    ls_status status = scalar_model_create(&model, 3);
    model.used = C;
    const bool is_preset = result->number == 7;
    if (status == LS_OK && is_preset) status = scalar_step(&model, 7);
    if (status == LS_OK) status = ls_ddp_wrap(&ddp, model.module, group, &search);
    if (status == LS_OK)
        status = ls_sgd_create(&sgd, model.module, &(ls_sgd_options){.lr = 1, .momentum = 0.9, .weight_decay = 0.5});
    model.used = A | B;
    for (int step = 0; step < 2 && status == LS_OK; step++) {
        status = scalar_step(&model, 1);
        note_gradients(result, &model);
        if (status == LS_OK && !is_preset) status = ls_optim_step(sgd);
    }
    note(result, status);
    result->next_gradient[0] = model.module ? ls_tensor_item(ls_module_parameter(model.module, 2)) : NAN;
    ls_optim_close(&sgd);
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
}

static void c_preset_and_unused(ls_group *group, rank_result *result) {
    result->number = 7;
    c_unused_everywhere(group, result);
}

static void what_nobody_uses_keeps_its_gradient_and_its_value(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, c_preset_and_unused, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_true(results[rank].gradient[2] == 7);
    }
    run_scenario(2, c_unused_everywhere, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_true(isnan(results[rank].gradient[2]));    /* none stays none */
        assert_true(results[rank].next_gradient[0] == 3); /* no momentum, no decay */
    }
}

static void two_forwards_one_backward(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_tensor *first = scalar_batch(&(double){rank == 0 ? 1 : 3}, 1),
              *second = scalar_batch(&(double){rank == 0 ? 2 : 4}, 1);
    ls_step_begin();
    ls_tensor *sum = ls_mean(ls_module_forward(model.module, first));
    ls_no_grad_begin();
    ls_module_forward(model.module, second);
    ls_no_grad_end();
    sum = ls_add(sum, ls_mean(ls_module_forward(model.module, second)));
    ls_backward(sum);
    note(result, ls_step_end());
    note_gradients(result, &model);
    ls_tensor_close(&first);
    ls_tensor_close(&second);
    DONE;
}

static void two_forwards_and_one_without_gradients_make_one_backward(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, two_forwards_one_backward, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_near(results[rank].gradient[0], 5);
    }
}

static void skipped_then_synchronised(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_ddp_no_sync_begin(ddp);
    note(result, scalar_step(&model, rank + 1));
    note_gradients(result, &model); /* local so far */
    ls_ddp_no_sync_end(ddp);
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void no_sync_accumulates_locally_and_the_next_backward_reduces_the_sum(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, skipped_then_synchronised, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_near(results[rank].gradient[0], rank + 1);
        assert_near(results[rank].next_gradient[0], 3);
    }
}

/* The forward's mode holds, wherever backward runs. */
static void forward_skips_backward_outside(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_tensor *batch = scalar_batch(&(double){rank + 1}, 1);
    ls_ddp_no_sync_begin(ddp);
    ls_step_begin();
    ls_tensor *loss = ls_mean(ls_module_forward(model.module, batch));
    ls_ddp_no_sync_end(ddp);
    ls_backward(loss);
    note(result, ls_step_end());
    note_gradients(result, &model);
    scalar_zero_gradients(&model);
    ls_step_begin();
    loss = ls_mean(ls_module_forward(model.module, batch));
    ls_ddp_no_sync_begin(ddp);
    ls_backward(loss);
    ls_ddp_no_sync_end(ddp);
    note_next(result, ls_step_end());
    note_next_gradients(result, &model);
    ls_tensor_close(&batch);
    DONE;
}

static void the_forwards_mode_decides_whether_backward_synchronises(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, forward_skips_backward_outside, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_near(results[rank].gradient[0], rank + 1);
        assert_near(results[rank].next_gradient[0], 1.5);
    }
}

static void one_weight_used_twice(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_tensor *weight = ls_module_parameter(model.module, 0), *batch = scalar_batch(&(double){(rank + 1) / 3.0}, 1);
    ls_step_begin();
    ls_tensor *y = ls_linear(ls_module_forward(model.module, batch), weight, NULL); /* w (w x) */
    ls_backward(ls_mean(y));
    note(result, ls_step_end());
    note_gradients(result, &model);
    ls_tensor_close(&batch);
    DONE;
}

static void a_weight_used_twice_is_reduced_once_with_both_contributions(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, one_weight_used_twice, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_near(results[rank].gradient[0], 2 * 3 * 0.5); /* mean of 2 w x */
    }
}

static void several_steps_in_tiny_buckets(ls_group *group, rank_result *result) {
    LEARN(3, &((ls_ddp_options){.bucket_cap_bytes = 1}));
    ls_ddp_stats stats;
    for (int step = 0; step < 4; step++) {
        note(result, scalar_step(&model, rank + step));
        note_gradients(result, &model);
        scalar_zero_gradients(&model);
    }
    ls_ddp_last_stats(ddp, &stats);
    result->number = stats.bucket_count * 10 + stats.has_rebuilt;
    DONE;
}

static void buckets_are_rebuilt_once_and_gradients_stay_right(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, several_steps_in_tiny_buckets, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        for (int i = 0; i < 3; i++) assert_near(results[rank].gradient[i], 3.5);
        assert_int_equal(results[rank].number, 31);
    }
}

/* Gradients that exist when buckets are rebuilt: accumulated since, under no_sync. */
static void accumulated_over_a_rebuild(ls_group *group, rank_result *result) {
    LEARN(3, &((ls_ddp_options){.bucket_cap_bytes = 1}));
    note(result, scalar_step(&model, rank)); /* the order is known now */
    scalar_zero_gradients(&model);
    ls_ddp_no_sync_begin(ddp);
    note(result, scalar_step(&model, rank)); /* accumulates in the old buckets */
    ls_ddp_no_sync_end(ddp);
    note_next(result, scalar_step(&model, rank)); /* rebuilds first */
    note_gradients(result, &model);
    DONE;
}

static void gradients_accumulated_before_a_rebuild_move_with_it(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, accumulated_over_a_rebuild, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].next_status, LS_OK);
        for (int i = 0; i < 3; i++) assert_near(results[rank].gradient[i], 1);
    }
}

static void ignored_weight(ls_group *group, rank_result *result) {
    static const char *const ignored[] = {"b", NULL};
    LEARN(2, &((ls_ddp_options){.ignored = ignored}));
    note(result, scalar_step(&model, rank + 1));
    note_gradients(result, &model);
    DONE;
}

static void ignored_parameters_take_no_part(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, ignored_weight, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_near(results[rank].gradient[0], 1.5);
        assert_near(results[rank].gradient[1], rank + 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gradient_is_the_average_over_ranks),
        cmocka_unit_test(unequal_batches_give_the_mean_of_means),
        cmocka_unit_test(ranks_may_take_different_branches_in_a_step),
        cmocka_unit_test(what_one_rank_accumulated_under_no_sync_is_averaged_though_nobody_uses_it_now),
        cmocka_unit_test(use_in_skipped_steps_counts_in_the_synchronised_one),
        cmocka_unit_test(what_nobody_uses_keeps_its_gradient_and_its_value),
        cmocka_unit_test(two_forwards_and_one_without_gradients_make_one_backward),
        cmocka_unit_test(no_sync_accumulates_locally_and_the_next_backward_reduces_the_sum),
        cmocka_unit_test(the_forwards_mode_decides_whether_backward_synchronises),
        cmocka_unit_test(a_weight_used_twice_is_reduced_once_with_both_contributions),
        cmocka_unit_test(buckets_are_rebuilt_once_and_gradients_stay_right),
        cmocka_unit_test(gradients_accumulated_before_a_rebuild_move_with_it),
        cmocka_unit_test(ignored_parameters_take_no_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
