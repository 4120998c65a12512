/* What a wrap's options, no_sync's nesting and its statistics promise, seen from outside. Ranks are threads. */
#include "ddp/rank_results.h"

/* Trains `steps` steps of a model of four weights; `used` gives the weights of each step, 0 standing for all. */
static void train(ls_group *group, rank_result *result, const ls_ddp_options *options, const int *used, int steps) {
    ls_ddp_stats stats = {0};
    LEARN(4, options);
    for (int step = 0; step < steps; step++) {
        model.used = used && used[step] ? used[step] : 15;
        note(result, scalar_step(&model, rank + 1));
        note_gradients(result, &model);
        scalar_zero_gradients(&model);
    }
    ls_ddp_last_stats(ddp, &stats);
    result->number = stats.bucket_count;
    result->next_gradient[0] = stats.has_rebuilt;
    result->next_gradient[1] = (double)stats.bytes;
    result->next_gradient[2] = (double)stats.step;
    DONE;
}

static void assert_trained(const rank_result results[2], int buckets, bool has_rebuilt) {
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        for (int i = 0; i < 4; i++) assert_near(results[rank].gradient[i], 1.5);
        assert_int_equal(results[rank].number, buckets);
        assert_true(results[rank].next_gradient[0] == has_rebuilt);
        assert_true(results[rank].next_gradient[1] == 4 * sizeof(double));
    }
}

/* ---- Buckets ---- */

static void with_defaults(ls_group *group, rank_result *result) {
    train(group, result, NULL, NULL, 3);
}

static void kept_as_laid_out(ls_group *group, rank_result *result) {
    train(group, result, &(ls_ddp_options){.keep_buckets = true}, NULL, 3);
}

static void first_of_one(ls_group *group, rank_result *result) {
    train(group, result, &(ls_ddp_options){.first_bucket_cap_bytes = 1}, NULL, 3);
}

static void two_a_bucket(ls_group *group, rank_result *result) {
    train(group, result, &(ls_ddp_options){.bucket_cap_bytes = 2 * sizeof(double)}, NULL, 3);
}

static void buckets_are_as_the_options_say(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, with_defaults, results);
    assert_trained(results, 1, true);
    run_scenario(2, kept_as_laid_out, results);
    assert_trained(results, 1, false);
    run_scenario(2, first_of_one, results);
    assert_trained(results, 2, true);
    run_scenario(2, two_a_bucket, results);
    assert_trained(results, 2, true);
}

/* The graph varies until the last two steps: the order of gradients says nothing before. */
static void varying(ls_group *group, rank_result *result) {
    static const int used[] = {A, B | C, A | B, C};
    train(group, result, &(ls_ddp_options){.bucket_cap_bytes = 1, .find_unused_parameters = true}, used, 4);
}

static void full_at_last(ls_group *group, rank_result *result) {
    static const int used[] = {A, B | C, 0, 0};
    train(group, result, &(ls_ddp_options){.bucket_cap_bytes = 1, .find_unused_parameters = true}, used, 4);
}

static void buckets_are_not_laid_out_by_a_step_that_did_not_use_all(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, varying, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_true(results[rank].next_gradient[0] == false);
        assert_true(results[rank].next_gradient[1] == sizeof(double)); /* what nobody uses is not sent */
        assert_true(results[rank].next_gradient[2] == 4);
    }
    run_scenario(2, full_at_last, results);
    assert_trained(results, 4, true);
}

/* ---- no_sync ---- */

static void nested_no_sync(ls_group *group, rank_result *result) {
    ls_ddp_stats stats = {0};
    LEARN(1, NULL);
    ls_ddp_no_sync_begin(ddp);
    ls_ddp_no_sync_begin(ddp);
    ls_ddp_no_sync_end(ddp);
    note(result, scalar_step(&model, rank + 1)); /* still inside */
    ls_ddp_last_stats(ddp, &stats);
    result->number = stats.step == 1 && stats.bytes == 0 && stats.communication_ns == 0;
    note_gradients(result, &model);
    ls_ddp_no_sync_end(ddp);
    ls_ddp_no_sync_end(ddp); /* one too many does no harm */
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void no_sync_nests(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, nested_no_sync, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].number, 1);
        assert_near(results[rank].gradient[0], rank + 1);
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_near(results[rank].next_gradient[0], 3);
    }
}

/* ---- Gradients between steps ---- */

/* Written to zero where they lie, in place of forgotten: the next step adds to zeros. */
static void zeroed_in_place(ls_group *group, rank_result *result) {
    LEARN(2, NULL);
    for (int step = 0; step < 3; step++) {
        note(result, scalar_step(&model, rank + 1));
        note_gradients(result, &model);
        for (int i = 0; i < 2; i++) {
            const ls_status zeroed =
                ls_tensor_copy_in(ls_tensor_grad(ls_module_parameter(model.module, i)), &(double){0});
            if (zeroed != LS_OK) note(result, zeroed);
        }
    }
    for (int step = 0; step < 2; step++) note_next(result, scalar_step(&model, rank + 1)); /* neither: they add up */
    note_next_gradients(result, &model);
    DONE;
}

static void gradients_may_be_zeroed_or_forgotten_or_left_to_add_up(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, zeroed_in_place, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
        for (int i = 0; i < 2; i++) {
            assert_near(results[rank].gradient[i], 1.5);
            assert_near(results[rank].next_gradient[i], 3); /* mean of (1.5 + 1) and (1.5 + 2) */
        }
    }
}

/* ---- Nothing to reduce ---- */

static void one_is_empty(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const ls_gradient gradients[] = {{.name = "a", .dtype = LS_F64, .ndim = 0},
                                     {.name = "empty", .dtype = LS_F64, .ndim = 2, .dims = {0, 10}}};
    note(result, ls_reducer_create(&reducer, group, gradients, 2, NULL));
    for (int step = 0; step < 2 && reducer; step++) {
        note(result, ls_reducer_begin(reducer));
        *(double *)ls_reducer_gradient(reducer, 0) = ls_group_rank(group);
        ls_reducer_ready(reducer, 0);
        note(result, ls_reducer_finish(reducer));
        result->gradient[step] = *(double *)ls_reducer_gradient(reducer, 0);
    }
    ls_reducer_close(&reducer);
}

static void a_gradient_without_elements_needs_no_mark(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, one_is_empty, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        for (int step = 0; step < 2; step++) assert_near(results[rank].gradient[step], 0.5);
    }
}

/* ---- Wrong calls, and times ---- */

static void wrong_calls(ls_group *group, rank_result *result) {
    ls_ddp *none = NULL;
    int64_t start_ns = 0, end_ns = 0, ready_ns = 0;
    LEARN(1, NULL);
    result->number += ls_ddp_wrap(NULL, model.module, group, NULL) != LS_ERR_ARGUMENT;
    result->number += ls_ddp_wrap(&none, NULL, group, NULL) != LS_ERR_ARGUMENT;
    result->number += ls_ddp_wrap(&none, model.module, NULL, NULL) != LS_ERR_ARGUMENT;
    result->number += none != NULL;
    ls_ddp_close(&none);
    ls_ddp_close(NULL);
    note_next(result, scalar_step(&model, 1));
    result->number += ls_ddp_ready_time(ddp, -1, &ready_ns) != LS_ERR_ARGUMENT;
    result->number += ls_ddp_ready_time(ddp, 1, &ready_ns) != LS_ERR_ARGUMENT;
    result->number += ls_ddp_bucket_times(ddp, -1, &start_ns, &end_ns) != LS_ERR_ARGUMENT;
    result->number += ls_ddp_bucket_times(ddp, 1, &start_ns, &end_ns) != LS_ERR_ARGUMENT;
    result->number += ls_ddp_bucket_times(ddp, 0, &start_ns, &end_ns) != LS_OK;
    result->number += ls_ddp_ready_time(ddp, 0, &ready_ns) != LS_OK;
    ls_ddp_stats stats;
    ls_ddp_last_stats(ddp, &stats);
    result->number += !(ready_ns > 0 && ready_ns <= start_ns && start_ns <= end_ns);
    result->number += !(stats.forward_ns > 0 && stats.backward_compute_ns > 0);
    result->number += !(stats.backward_ns >= stats.backward_compute_ns);
    result->number += stats.communication_ns != end_ns - start_ns;
    DONE;
}

static void wrong_calls_are_refused_and_times_are_in_order(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, wrong_calls, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_int_equal(results[rank].number, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_as_the_options_say),
        cmocka_unit_test(buckets_are_not_laid_out_by_a_step_that_did_not_use_all),
        cmocka_unit_test(no_sync_nests),
        cmocka_unit_test(gradients_may_be_zeroed_or_forgotten_or_left_to_add_up),
        cmocka_unit_test(a_gradient_without_elements_needs_no_mark),
        cmocka_unit_test(wrong_calls_are_refused_and_times_are_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
