/* Models and loops that trip other libraries up: tied weights, types in turn, seeds that differ, dropout, uneven
 * batches. Ranks are threads. */
#include "ddp/rank_results.h"

#include "base/digest.h"
#include "base/error.h"

#include <lockstep/data.h>

#include <stdlib.h>

/* ---- One weight in two modules ---- */

static ls_status child_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                               ls_tensor **outputs, int output_count) {
    (void)context;
    (void)input_count;
    (void)output_count;
    outputs[0] = ls_linear(inputs[0], ls_module_parameter(self, 0), NULL);
    return outputs[0] ? LS_OK : ls_step_status();
}

/* y = w (w x), each product by a child of its own. */
static ls_module *tied_module(void) {
    const ls_module_callbacks callbacks = {.forward = child_forward};
    ls_module *children[2] = {NULL, NULL}, *whole = NULL;
    ls_tensor *weight = NULL;
    assert_ok(ls_tensor_create(&weight, LS_F64, 2, (int64_t[]){1, 1}));
    assert_ok(ls_tensor_copy_in(weight, &(double){3}));
    for (int i = 0; i < 2; i++) {
        assert_ok(ls_module_create(&children[i], &callbacks, NULL));
        assert_ok(ls_module_add_parameter(children[i], "weight", ls_tensor_keep(weight)));
    }
    ls_tensor_close(&weight);
    assert_ok(ls_sequential_create(&whole, (ls_child[]){{"one", children[0]}, {"other", children[1]}, {NULL, NULL}}));
    return whole;
}

/* The loss is y^2. A second mark of the one slot would fail the step. */
static void tied_weight(ls_group *group, rank_result *result) {
    ls_module *module = tied_module();
    ls_ddp *ddp = NULL;
    ls_ddp_stats stats = {0};
    ls_tensor *x = scalar_batch(&(double){1.0 / 3}, 1), *zero = scalar_batch(&(double){0}, 1);
    note(result, ls_ddp_wrap(&ddp, module, group, &(ls_ddp_options){.bucket_cap_bytes = 1}));
    for (int step = 0; step < 3; step++) { /* buckets are laid out anew in between */
        ls_step_begin();
        ls_backward(ls_mse_loss(ls_module_forward(module, x), zero));
        note_next(result, ls_step_end());
        const ls_tensor *gradient = ls_tensor_grad(ls_module_parameter(module, 0));
        result->gradient[step] = gradient ? ls_tensor_item(gradient) : NAN;
        ls_tensor_zero_grad(ls_module_parameter(module, 0));
    }
    ls_ddp_last_stats(ddp, &stats);
    result->number = stats.bucket_count;
    result->next_gradient[0] = (double)stats.bytes;
    ls_tensor_close(&x);
    ls_tensor_close(&zero);
    ls_ddp_close(&ddp);
    ls_module_close(&module);
}

static void a_weight_of_two_modules_has_one_slot_and_one_mark_a_step(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, tied_weight, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
        for (int step = 0; step < 3; step++) assert_near(results[rank].gradient[step], 12);
        assert_int_equal(results[rank].number, 1);
        assert_true(results[rank].next_gradient[0] == sizeof(double));
    }
}

/* ---- Types in turn ---- */

/* f32 and f64 in turn, among them a scalar, one without elements and one above the capacity; the last is frozen. */
static const struct {
    const char *name;
    ls_dtype dtype;
    int ndim;
    int64_t dims[2];
} mixed[] = {
    {"a", LS_F32, 1, {3}}, {"b", LS_F64, 0, {0}}, {"c", LS_F32, 2, {2, 2}},    {"d", LS_F64, 2, {0, 10}},
    {"e", LS_F64, 1, {5}}, {"f", LS_F32, 0, {0}}, {"g", LS_F32, 2, {10, 100}}, {"frozen", LS_F64, 1, {3}},
};

enum { MIXED = sizeof mixed / sizeof *mixed, TRAINED = MIXED - 1 };

/* d loss / d parameter i at j, on this rank. */
static ls_status mixed_backward(void *context, const ls_tensor *grad_output, ls_tensor **grad_inputs) {
    (void)grad_output;
    for (int i = 0; i < TRAINED; i++) {
        double wide[1000];
        float narrow[1000];
        for (int64_t j = 0; j < ls_tensor_numel(grad_inputs[i]); j++) {
            wide[j] = (*(const int *)context + 1) * (double)(i + 1 + j);
            narrow[j] = (float)wide[j];
        }
        const ls_status status =
            ls_tensor_copy_in(grad_inputs[i], ls_tensor_dtype(grad_inputs[i]) == LS_F64 ? (void *)wide : narrow);
        if (status != LS_OK) return status;
    }
    return LS_OK;
}

static ls_status mixed_forward(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                               ls_tensor **outputs, int output_count) {
    (void)input_count;
    (void)output_count;
    ls_tensor *parameters[TRAINED];
    for (int i = 0; i < TRAINED; i++) parameters[i] = ls_module_parameter(self, i);
    ls_no_grad_begin();
    ls_tensor *loss = ls_sum(inputs[0]);
    ls_no_grad_end();
    outputs[0] = ls_op_record("mixed", loss, parameters, TRAINED, mixed_backward, context, NULL);
    return outputs[0] ? LS_OK : ls_step_status();
}

static ls_module *mixed_module(int *rank) {
    const ls_module_callbacks callbacks = {.forward = mixed_forward, .context = rank};
    ls_module *module = NULL;
    assert_ok(ls_module_create(&module, &callbacks, NULL));
    for (int i = 0; i < MIXED; i++) {
        ls_tensor *tensor = NULL;
        assert_ok(ls_tensor_create(&tensor, mixed[i].dtype, mixed[i].ndim, mixed[i].dims));
        char *bytes = ls_tensor_data_mut(tensor);
        const size_t count = (size_t)ls_tensor_numel(tensor) * ls_dtype_size(mixed[i].dtype);
        if (count > 0) memset(bytes, *rank + 1, count);
        assert_ok(ls_module_add_parameter(module, mixed[i].name, tensor));
        if (i == TRAINED) assert_ok(ls_tensor_set_requires_grad(tensor, false));
    }
    return module;
}

static double element(const ls_tensor *tensor, int64_t at) {
    const void *data = ls_tensor_data(tensor);
    return ls_tensor_dtype(tensor) == LS_F64 ? ((const double *)data)[at] : (double)((const float *)data)[at];
}

/* Counts in `number` the gradients that are not the average of both ranks', and the values that are not rank 0's. */
static void count_wrong(const ls_module *module, rank_result *result) {
    for (int i = 0; i < MIXED; i++) {
        const ls_tensor *parameter = ls_module_parameter(module, i), *gradient = ls_tensor_grad(parameter);
        const unsigned char *bytes = ls_tensor_data(parameter);
        const int64_t numel = ls_tensor_numel(parameter);
        for (size_t at = 0; at < (size_t)numel * ls_dtype_size(mixed[i].dtype); at++) result->number += bytes[at] != 1;
        result->number += i == TRAINED ? gradient != NULL : numel > 0 && !gradient;
        for (int64_t j = 0; gradient && j < numel; j++)
            result->number += element(gradient, j) != 1.5 * (double)(i + 1 + j);
    }
}

static void mixed_steps(ls_group *group, rank_result *result) {
    static const size_t caps[] = {1, 16, 1000, 0};
    int rank = ls_group_rank(group);
    ls_tensor *x = scalar_batch(&(double){1}, 1);
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
        ls_module *module = mixed_module(&rank);
        ls_ddp *ddp = NULL;
        note(result, ls_ddp_wrap(&ddp, module, group, &(ls_ddp_options){.bucket_cap_bytes = caps[i]}));
        for (int step = 0; step < 3 && result->status == LS_OK; step++) {
            ls_step_begin();
            ls_backward(ls_module_forward(module, x));
            note(result, ls_step_end());
            count_wrong(module, result);
            for (int p = 0; p < MIXED; p++) ls_tensor_zero_grad(ls_module_parameter(module, p));
        }
        ls_ddp_close(&ddp);
        ls_module_close(&module);
        if (result->status != LS_OK) break;
    }
    ls_tensor_close(&x);
}

static void types_in_turn_with_a_frozen_one_last_are_each_averaged_in_their_own(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, mixed_steps, results);
    for (int rank = 0; rank < 2; rank++) {
        if (results[rank].status != LS_OK) print_error("%s\n", results[rank].text);
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].number, 0);
    }
}

/* ---- Seeds that differ ---- */

static uint64_t digest_of(const ls_module *module) {
    uint64_t digest = LS_DIGEST_START;
    for (int i = 0; i < ls_module_parameter_count(module); i++) {
        const ls_tensor *tensor = ls_module_parameter(module, i);
        const size_t bytes = (size_t)ls_tensor_numel(tensor) * ls_dtype_size(ls_tensor_dtype(tensor));
        digest = ls_digest(digest, ls_tensor_data(tensor), bytes);
    }
    return digest;
}

static void net_of_its_own_seed(ls_group *group, rank_result *result) {
    ls_module *net = NULL;
    ls_ddp *ddp = NULL;
    ls_seed_set((uint64_t)ls_group_rank(group) + 1);
    assert_ok(ls_lenet_create(&net, NULL));
    const uint64_t before = digest_of(net);
    note(result, ls_ddp_wrap(&ddp, net, group, NULL));
    const uint64_t after = digest_of(net);
    memcpy(&result->gradient[0], &before, sizeof before);
    memcpy(&result->gradient[1], &after, sizeof after);
    ls_ddp_close(&ddp);
    ls_module_close(&net);
}

static void weights_are_equal_after_the_wrap_though_seeds_differ(void **state) {
    (void)state;
    rank_result results[3];
    run_scenario(3, net_of_its_own_seed, results);
    assert_memory_not_equal(&results[0].gradient[0], &results[1].gradient[0], sizeof(double));
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_memory_equal(&results[rank].gradient[1], &results[0].gradient[0], sizeof(double));
    }
}

/* ---- Dropout ---- */

enum { SAMPLES = 24, FEATURES = 6, HIDDEN = 16, DROPOUT_STEPS = 10, WEIGHTS = HIDDEN * FEATURES + 2 * HIDDEN + 1 };

/* Trains with batch `batch` a rank; what the parameters come to goes into `weights`. `group` NULL: one process, no
 * wrap. */
static void train_with_dropout(ls_group *group, int64_t batch, double *weights) {
    static double x[SAMPLES][FEATURES], y[SAMPLES];
    ls_module *in = NULL, *drop = NULL, *out = NULL, *net = NULL;
    ls_ddp *ddp = NULL;
    ls_optim *sgd = NULL;
    ls_loader *loader = NULL;
    ls_dataset set = {.count = SAMPLES, .x_dtype = LS_F64, .y_dtype = LS_F64, .x_ndim = 1, .x_dims = {FEATURES}};
    set.y_ndim = 1;
    set.y_dims[0] = 1;
    const int rank = group ? ls_group_rank(group) : 0;
    if (!group) /* the first run fills in the data, before ranks are started */
        for (int i = 0; i < SAMPLES; i++) {
            for (int j = 0; j < FEATURES; j++) x[i][j] = sin(7.0 * i + j);
            y[i] = cos(3.0 * i);
        }
    ls_seed_set(5);
    ls_step_number_set(0);
    assert_ok(ls_linear_create(&in, FEATURES, HIDDEN, &(ls_layer_options){.dtype = LS_F64}));
    assert_ok(ls_dropout_create(&drop, 0.5));
    assert_ok(ls_linear_create(&out, HIDDEN, 1, &(ls_layer_options){.dtype = LS_F64}));
    assert_ok(ls_sequential_create(&net, (ls_child[]){{"in", in}, {"drop", drop}, {"out", out}, {NULL, NULL}}));
    if (group) assert_ok(ls_ddp_wrap(&ddp, net, group, NULL));
    assert_ok(ls_sgd_create(&sgd, net, &(ls_sgd_options){.lr = 0.05, .momentum = 0.9}));
    assert_ok(ls_dataset_from_arrays(&set, x, y));
    const ls_loader_options options = {
        .batch = batch, .rank = rank, .world_size = group ? ls_group_world_size(group) : 1, .seed = 3};
    assert_ok(ls_loader_create(&loader, &set, &options));
    for (int step = 0; step < DROPOUT_STEPS;) {
        ls_batch taken;
        if (ls_loader_next(loader, &taken) == LS_END) continue;
        ls_step_begin();
        ls_backward(ls_mse_loss(ls_module_forward(net, taken.x), taken.y));
        ls_optim_step(sgd);
        ls_optim_zero_grad(sgd);
        assert_ok(ls_step_end());
        step++;
    }
    for (int i = 0; i < ls_module_parameter_count(net); i++) {
        assert_ok(ls_tensor_copy_out(ls_module_parameter(net, i), weights));
        weights += ls_tensor_numel(ls_module_parameter(net, i));
    }
    ls_loader_close(&loader);
    ls_dataset_close(&set);
    ls_optim_close(&sgd);
    ls_ddp_close(&ddp);
    ls_module_close(&net);
}

static double dropout_weights[MOST_RANKS][WEIGHTS];

static void rank_with_dropout(ls_group *group, rank_result *result) {
    (void)result;
    train_with_dropout(group, 12 / ls_group_world_size(group), dropout_weights[ls_group_rank(group)]);
}

static void ranks_drop_what_one_process_drops(void **state) {
    (void)state;
    double alone[WEIGHTS];
    rank_result results[MOST_RANKS];
    train_with_dropout(NULL, 12, alone);
    for (int world_size = 2; world_size <= MOST_RANKS; world_size += 2) {
        run_scenario(world_size, rank_with_dropout, results);
        for (int rank = 0; rank < world_size; rank++) {
            assert_memory_equal(dropout_weights[rank], dropout_weights[0], sizeof alone);
            for (int i = 0; i < WEIGHTS; i++) assert_near(dropout_weights[rank][i], alone[i]);
        }
    }
}

/* ---- A sample that cannot be read ---- */

static ls_status read_all_but_5(void *context, int64_t index, void *x, void *y) {
    (void)context;
    *(double *)x = *(double *)y = 1;
    return index == 5 ? ls_fail(LS_ERR_IO, "the disk is gone") : LS_OK;
}

/* Sample 5 belongs to rank 1 alone; its batch is NULL there. */
static void unreadable_sample(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    const ls_dataset set = {
        .count = 8, .x_dtype = LS_F64, .y_dtype = LS_F64, .x_ndim = 1, .x_dims = {1}, .read = read_all_but_5};
    const ls_loader_options options = {.batch = 2, .rank = rank, .world_size = 2, .without_shuffle = true};
    ls_loader *loader = NULL;
    assert_ok(ls_loader_create(&loader, &set, &options));
    for (int step = 0; step < 2; step++) {
        ls_batch batch;
        result->number += ls_loader_next(loader, &batch) == LS_OK;
        scalar_zero_gradients(&model);
        ls_step_begin();
        ls_backward(ls_mean(ls_module_forward(model.module, batch.x)));
        note(result, ls_step_end());
    }
    ls_loader_close(&loader);
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void a_sample_that_one_rank_cannot_read_fails_the_step_on_all_in_its_own_words(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, unreadable_sample, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].number, 2);
        assert_int_not_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].status, results[0].status);
        assert_non_null(strstr(results[rank].text, "rank 1: "));
        assert_non_null(strstr(results[rank].text, "sample 5"));
        assert_non_null(strstr(results[rank].text, "the disk is gone"));
        assert_goes_on(&results[rank]);
    }
}

/* ---- Uneven numbers of batches ---- */

/* Three batches on rank 0, two on rank 1, which leaves; `number` counts the steps that went well. */
static void three_and_two_batches(ls_group *group, rank_result *result) {
    LEARN(1, NULL);
    for (int step = 0; step < 3 - rank; step++) {
        note(result, scalar_step(&model, 1));
        result->number += result->status == LS_OK;
    }
    DONE;
}

static void the_step_that_a_rank_has_no_batch_for_fails_and_no_earlier_one(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, three_and_two_batches, results);
    for (int rank = 0; rank < 2; rank++) assert_int_equal(results[rank].number, 2);
    assert_int_equal(results[0].status, LS_ERR_PEER_LOST);
    assert_non_null(strstr(results[0].text, "rank 1 ("));
    assert_int_equal(results[1].status, LS_OK);
}

/* Rank 1 does not leave: it goes on to what follows the epoch, where rank 0 never comes. */
static void rank_1_goes_on_to_the_sum(const ls_rank *rank) {
    rank_result *result = (rank_result *)rank->argument + rank->rank;
    ls_group_options options = rank_options(rank);
    ls_group *group = NULL;
    scalar_model model = {0};
    ls_ddp *ddp = NULL;
    double loss = 1;
    options.timeout_ms = 500;
    assert_ok(ls_group_open(&group, &options));
    assert_ok(scalar_model_create(&model, 1));
    assert_ok(ls_ddp_wrap(&ddp, model.module, group, NULL));
    ls_status status = LS_OK;
    for (int step = 0; step < 3 - rank->rank && status == LS_OK; step++) status = scalar_step(&model, 1);
    if (status == LS_OK) status = ls_group_all_reduce(group, &loss, 1, LS_F64, LS_SUM, NULL);
    note(result, status);
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
    ls_group_close(&group);
}

static void ranks_that_wait_for_each_other_in_different_places_end_at_the_limit_with_names(void **state) {
    (void)state;
    rank_result results[2] = {0};
    run_ranks(2, rank_1_goes_on_to_the_sum, results);
    for (int rank = 0; rank < 2; rank++) { /* whose limit ends first leaves, which the other may see before its own */
        assert_true(results[rank].status == LS_ERR_ABORTED || results[rank].status == LS_ERR_PEER_LOST);
        assert_non_null(strstr(results[rank].text, rank == 0 ? "(\"header\"" : "all-reduce of 1 f64 sum"));
        assert_non_null(strstr(results[rank].text, rank == 0 ? "rank 1 (" : "rank 0 ("));
    }
}

/* Evaluation of three and two batches, of unequal sizes; what each rank found is summed at the end. */
static void evaluate_unevenly(ls_group *group, rank_result *result) {
    static const double values[2][3] = {{1, 2, 3}, {10, 20, 0}};
    static const int64_t sizes[2][3] = {{4, 4, 4}, {4, 2, 0}};
    LEARN(1, NULL);
    double sums[2] = {0};
    note(result, scalar_step(&model, 1));
    ls_no_grad_begin();
    for (int i = 0; i < 3 - rank; i++) {
        const double value = values[rank][i], batch_values[] = {value, value, value, value};
        ls_tensor *batch = scalar_batch(batch_values, sizes[rank][i]);
        ls_step_begin();
        sums[0] += ls_tensor_item(ls_mean(ls_module_forward(model.module, batch))) * (double)sizes[rank][i];
        sums[1] += (double)sizes[rank][i];
        note(result, ls_step_end());
        ls_tensor_close(&batch);
    }
    ls_no_grad_end();
    note(result, ls_group_all_reduce(group, sums, 2, LS_F64, LS_SUM, NULL));
    result->gradient[0] = sums[0] / sums[1];
    scalar_zero_gradients(&model);
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    DONE;
}

static void an_uneven_evaluation_ends_and_its_mean_is_weighted_by_samples(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, evaluate_unevenly, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_near(results[rank].gradient[0], 3 * (4 * (1 + 2 + 3 + 10) + 2 * 20) / 18.0);
        assert_goes_on(&results[rank]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_of_two_modules_has_one_slot_and_one_mark_a_step),
        cmocka_unit_test(types_in_turn_with_a_frozen_one_last_are_each_averaged_in_their_own),
        cmocka_unit_test(weights_are_equal_after_the_wrap_though_seeds_differ),
        cmocka_unit_test(ranks_drop_what_one_process_drops),
        cmocka_unit_test(a_sample_that_one_rank_cannot_read_fails_the_step_on_all_in_its_own_words),
        cmocka_unit_test(the_step_that_a_rank_has_no_batch_for_fails_and_no_earlier_one),
        cmocka_unit_test(ranks_that_wait_for_each_other_in_different_places_end_at_the_limit_with_names),
        cmocka_unit_test(an_uneven_evaluation_ends_and_its_mean_is_weighted_by_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
