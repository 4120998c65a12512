/* Wrapping a module: replicas start equal, or all ranks hear what differs. Ranks are threads. */
#include "ddp/rank_results.h"

#include "base/memory.h"

/* What may differ between ranks, by rank. */
typedef struct model_variation {
    int weights;
    bool swapped;  /* a and b registered in the other order */
    int64_t width; /* of the first weight */
    bool second_frozen;
    ls_dtype dtype;
} model_variation;

static ls_module *varied_module(const model_variation *variation) {
    ls_module *module = NULL;
    const ls_module_callbacks callbacks = {.forward = scalar_forward};
    if (ls_module_create(&module, &callbacks, NULL) != LS_OK) return NULL;
    for (int i = 0; i < variation->weights; i++) {
        ls_tensor *weight = NULL;
        const char name[2] = {(char)('a' + (variation->swapped && i < 2 ? 1 - i : i)), 0};
        const int64_t dims[] = {1, i == 0 ? variation->width : 1};
        if (ls_tensor_create(&weight, variation->dtype, 2, dims) != LS_OK) return module;
        ls_module_add_parameter(module, name, weight);
        if (i == 1 && variation->second_frozen) ls_tensor_set_requires_grad(weight, false);
    }
    return module;
}

static model_variation variations[MOST_RANKS];

static void wrap_varied(ls_group *group, rank_result *result) {
    ls_module *module = varied_module(&variations[ls_group_rank(group)]);
    ls_ddp *ddp = NULL;
    note(result, ls_ddp_wrap(&ddp, module, group, NULL));
    result->number = ddp != NULL;
    ls_ddp_close(&ddp);
    ls_module_close(&module);
}

static const model_variation plain = {.weights = 2, .width = 1, .dtype = LS_F64};

/* All ranks are plain but the last. */
static void wrap_with_odd_one(rank_result *results, model_variation odd) {
    for (int rank = 0; rank < MOST_RANKS; rank++) variations[rank] = plain;
    variations[2] = odd;
    run_scenario(3, wrap_varied, results);
}

static void assert_all_hear(const rank_result *results, const char *first, const char *second) {
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(results[rank].status, LS_ERR_MISMATCH);
        assert_int_equal(results[rank].number, 0);
        assert_non_null(strstr(results[rank].text, "rank 0"));
        assert_non_null(strstr(results[rank].text, "rank 2"));
        assert_non_null(strstr(results[rank].text, first));
        assert_non_null(strstr(results[rank].text, second));
    }
}

static void models_that_differ_are_named_by_their_first_difference_on_all_ranks(void **state) {
    (void)state;
    rank_result results[3];
    wrap_with_odd_one(results, plain);
    for (int rank = 0; rank < 3; rank++) assert_int_equal(results[rank].status, LS_OK);

    wrap_with_odd_one(results, (model_variation){.weights = 3, .width = 1, .dtype = LS_F64});
    assert_all_hear(results, "parameter 2", "\"c\"");
    wrap_with_odd_one(results, (model_variation){.weights = 1, .width = 1, .dtype = LS_F64});
    assert_all_hear(results, "\"b\"", "only 1");
    wrap_with_odd_one(results, (model_variation){.weights = 2, .width = 5, .dtype = LS_F64});
    assert_all_hear(results, "\"a\" f64 [1, 1]", "\"a\" f64 [1, 5]");
    wrap_with_odd_one(results, (model_variation){.weights = 2, .width = 1, .dtype = LS_F32});
    assert_all_hear(results, "\"a\" f64", "\"a\" f32");
    wrap_with_odd_one(results, (model_variation){.weights = 2, .width = 1, .dtype = LS_F64, .swapped = true});
    assert_all_hear(results, "\"a\"", "\"b\"");
    wrap_with_odd_one(results, (model_variation){.weights = 2, .width = 1, .dtype = LS_F64, .second_frozen = true});
    assert_all_hear(results, "parameter 1", "frozen");
}

static void nothing_to_train_is_refused(void **state) {
    (void)state;
    rank_result results[2];
    for (int rank = 0; rank < 2; rank++) variations[rank] = (model_variation){.width = 1, .dtype = LS_F64};
    run_scenario(2, wrap_varied, results);
    for (int rank = 0; rank < 2; rank++) assert_said(&results[rank], LS_ERR_ARGUMENT, "needs a gradient");
}

/* Weights and buffers start as rank 0's; buffers follow it before the forward that comes after a synchronised step. */
static void state_of_rank_0(ls_group *group, rank_result *result) {
    scalar_model model = {0};
    ls_ddp *ddp = NULL;
    const int rank = ls_group_rank(group);
    ls_tensor *buffer = NULL, *frozen = NULL;
    scalar_model_create(&model, 1);
    ls_tensor_create(&buffer, LS_I64, 0, NULL);
    ls_tensor_create(&frozen, LS_F32, 0, NULL);
    ls_tensor_copy_in(ls_module_parameter(model.module, 0), &(double){rank + 1});
    ls_tensor_copy_in(buffer, &(int64_t){rank + 10});
    ls_tensor_copy_in(frozen, &(float){(float)rank + 20});
    ls_tensor_keep(buffer);
    ls_tensor_keep(frozen);
    ls_module_add_buffer(model.module, "count", buffer);
    ls_module_add_parameter(model.module, "frozen", frozen);
    ls_tensor_set_requires_grad(frozen, false);
    note(result, ls_ddp_wrap(&ddp, model.module, group, NULL));
    result->gradient[0] = ls_tensor_item(ls_module_parameter(model.module, 0));
    result->gradient[1] = ls_tensor_item(buffer);
    result->gradient[2] = ls_tensor_item(frozen);
    note_next(result, scalar_step(&model, 1));
    ls_tensor_copy_in(buffer, &(int64_t){rank + 30});
    note_next(result, scalar_step(&model, 1));
    result->gradient[3] = ls_tensor_item(buffer);
    ls_tensor_close(&buffer);
    ls_tensor_close(&frozen);
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
}

static void replicas_start_as_rank_0_and_buffers_follow_it(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, state_of_rank_0, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_true(results[rank].gradient[0] == 1);
        assert_true(results[rank].gradient[1] == 10);
        assert_true(results[rank].gradient[2] == 20);
        assert_true(results[rank].gradient[3] == 30);
    }
}

/* Every handle is closed in an order of its own: the wrap holds its group and its module. */
static void closing_in_an_order(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_optim *sgd = NULL;
    ls_group *duplicate = NULL;
    note(result, ls_sgd_create(&sgd, model.module, &(ls_sgd_options){.lr = 0.1}));
    note(result, ls_group_duplicate(&duplicate, group));
    ls_group_close(&duplicate);
    ls_module *module = model.module;
    note_next(result, scalar_step(&model, 1));
    ls_module_close(&model.module);
    (void)module;
    note(result, ls_optim_step(sgd));
    ls_ddp_close(&ddp);
    note(result, ls_optim_step(sgd)); /* no gradients any more: nothing to do */
    ls_optim_close(&sgd);
    DONE;
}

static void handles_close_in_any_order(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, closing_in_an_order, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
    }
}

static void wrapped_twice(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_ddp *second = NULL;
    note(result, ls_ddp_wrap(&second, model.module, group, NULL));
    ls_ddp_close(&second);
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void a_second_wrap_is_refused_and_the_first_goes_on(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, wrapped_twice, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_ERR_STATE);
        assert_goes_on(&results[rank]);
    }
}

static void empty_layer(ls_group *group, rank_result *result) {
    ls_module *module = NULL;
    ls_ddp *ddp = NULL;
    ls_linear_create(&module, 10, 0, NULL);
    note(result, ls_ddp_wrap(&ddp, module, group, NULL));
    ls_tensor *x = NULL;
    ls_tensor_create(&x, LS_F32, 2, (int64_t[]){4, 10});
    ls_step_begin();
    ls_backward(ls_sum(ls_module_forward(module, x)));
    note_next(result, ls_step_end());
    ls_tensor_close(&x);
    ls_ddp_close(&ddp);
    ls_module_close(&module);
}

static void a_layer_without_elements_trains(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, empty_layer, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
    }
}

/* The child of a wrapped module shares its leaves, whichever is wrapped first. */
static void wrap_a_part(ls_group *group, rank_result *result) {
    ls_module *layer = NULL, *net = NULL;
    ls_ddp *whole = NULL, *part = NULL;
    assert_ok(ls_linear_create(&layer, 1, 1, NULL));
    assert_ok(ls_sequential_create(&net, (ls_child[]){{.module = layer}, {0}}));
    assert_ok(ls_ddp_wrap(&whole, net, group, NULL));
    note(result, ls_ddp_wrap(&part, ls_module_child(net, "0"), group, NULL));
    ls_ddp_close(&part);
    ls_tensor *batch = NULL;
    assert_ok(ls_tensor_create(&batch, LS_F32, 2, (int64_t[]){1, 1}));
    ls_tensor_copy_in(batch, &(float){(float)ls_group_rank(group) + 1});
    ls_step_begin();
    ls_backward(ls_mean(ls_module_forward(net, batch)));
    note_next(result, ls_step_end());
    result->gradient[0] = ls_tensor_item(ls_tensor_grad(ls_module_parameter(net, 0)));
    ls_tensor_close(&batch);
    ls_ddp_close(&whole);
    ls_module_close(&net);
}

static void wrapping_a_part_of_a_wrapped_module_is_refused_and_the_first_wrap_goes_on(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, wrap_a_part, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_said(&results[rank], LS_ERR_STATE, "another wrap");
        assert_non_null(strstr(results[rank].text, "parameter \"weight\"")); /* as the part calls it */
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_near(results[rank].gradient[0], 1.5);
    }
}

static void grow_after_wrapping(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    ls_tensor *late = NULL;
    assert_ok(ls_tensor_create(&late, LS_F64, 2, (int64_t[]){1, 1}));
    assert_ok(ls_module_add_parameter(model.module, "late", late));
    model.used = A | B;
    note(result, scalar_step(&model, rank + 1));
    DONE;
}

static void a_parameter_added_after_wrapping_is_an_error(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, grow_after_wrapping, results);
    for (int rank = 0; rank < 2; rank++)
        assert_said(&results[rank], LS_ERR_STATE, "had 1 parameters when it was wrapped and has 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_that_differ_are_named_by_their_first_difference_on_all_ranks),
        cmocka_unit_test(nothing_to_train_is_refused),
        cmocka_unit_test(replicas_start_as_rank_0_and_buffers_follow_it),
        cmocka_unit_test(handles_close_in_any_order),
        cmocka_unit_test(a_second_wrap_is_refused_and_the_first_goes_on),
        cmocka_unit_test(a_layer_without_elements_trains),
        cmocka_unit_test(wrapping_a_part_of_a_wrapped_module_is_refused_and_the_first_wrap_goes_on),
        cmocka_unit_test(a_parameter_added_after_wrapping_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
