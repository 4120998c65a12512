/* Buffers, and what is sent for them: counted by a backend that is shm's but for the count. Ranks are threads. */
#include "ddp/rank_results.h"

#include "group/backend.h"

#include <stdatomic.h>

enum { BUFFERS = 3 };

/* Operations that all ranks together have started, on all groups. */
static _Atomic int operations, broadcasts;

static void counted_start(void *state, backend_op *op) {
    atomic_fetch_add(&operations, 1);
    if (op->call.kind == GROUP_BROADCAST) atomic_fetch_add(&broadcasts, 1);
    shm_backend.start(state, op);
}

static void counted_body(const ls_rank *rank) {
    const rank_results_job *job = rank->argument;
    ls_group_options options = rank_options(rank);
    options.timeout_ms = 20000;
    ls_backend counted = shm_backend;
    counted.start = counted_start;
    ls_group *group = NULL;
    assert_ok(group_open_backend(&group, &options, &counted));
    job->run(group, &job->results[rank->rank]);
    ls_group_close(&group);
}

static void run_counted(rank_scenario run, rank_result results[2]) {
    memset(results, 0, 2 * sizeof *results);
    atomic_store(&operations, 0);
    atomic_store(&broadcasts, 0);
    rank_results_job job = {run, results};
    run_ranks(2, counted_body, &job);
}

/* A scalar model with buffers of several types, all RANK + 10 at first. */
static ls_status buffered_model(scalar_model *model, int weights, int rank) {
    static const ls_dtype dtypes[BUFFERS] = {LS_F64, LS_I64, LS_F64};
    static const char *const names[BUFFERS] = {"mean", "count", "variance"};
    ls_status status = scalar_model_create(model, weights);
    for (int i = 0; i < BUFFERS && status == LS_OK; i++) {
        ls_tensor *buffer = NULL;
        status = ls_tensor_create(&buffer, dtypes[i], 2, (int64_t[]){1, 1});
        if (status != LS_OK) break;
        const double wide = rank + 10;
        const int64_t whole = rank + 10;
        ls_tensor_copy_in(buffer, dtypes[i] == LS_F64 ? (const void *)&wide : &whole);
        status = ls_module_add_buffer(model->module, names[i], buffer);
    }
    return status;
}

static double buffer(const scalar_model *model, int index) {
    return ls_tensor_item(ls_module_buffer(model->module, index));
}

/* ---- How often ---- */

#define WRAP_BUFFERED(weights, options)                                                              \
    scalar_model model = {0};                                                                        \
    ls_ddp *ddp = NULL;                                                                              \
    const int rank = ls_group_rank(group);                                                           \
    ls_status status = buffered_model(&model, weights, rank);                                        \
    if (status == LS_OK) status = ls_ddp_wrap(&ddp, model.module, group, options);                   \
    note(result, status);                                                                            \
    if (status != LS_OK) goto out;                                                                   \
    assert_ok(ls_group_barrier(group, NULL)); /* all have wrapped: from here on steps are counted */ \
    const int before = atomic_load(&broadcasts);                                                     \
    assert_ok(ls_group_barrier(group, NULL))

/* Synchronised, skipped, synchronised, synchronised: buffers are due in the first, behind the first and behind the
 * third. */
static void four_steps(ls_group *group, rank_result *result, const ls_ddp_options *options) {
    WRAP_BUFFERED(1, options);
    for (int step = 0; step < 4; step++) {
        if (step == 1) ls_ddp_no_sync_begin(ddp);
        note(result, scalar_step(&model, 1));
        if (step == 1) ls_ddp_no_sync_end(ddp);
    }
    assert_ok(ls_group_barrier(group, NULL));
    result->number = atomic_load(&broadcasts) - before;
    for (int i = 0; i < BUFFERS; i++) result->gradient[i] = buffer(&model, i);
    assert_ok(ls_group_barrier(group, NULL));
    DONE;
}

static void four_steps_following(ls_group *group, rank_result *result) {
    four_steps(group, result, &(ls_ddp_options){.keep_buckets = true});
}

static void four_steps_local(ls_group *group, rank_result *result) {
    four_steps(group, result, &(ls_ddp_options){.keep_buckets = true, .keep_local_buffers = true});
}

static void all_buffers_travel_in_one_message_behind_each_synchronised_step(void **state) {
    (void)state;
    rank_result results[2];
    run_counted(four_steps_following, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].number, 2 * 3); /* of both ranks */
        for (int i = 0; i < BUFFERS; i++) assert_true(results[rank].gradient[i] == 10);
    }
}

static void buffers_kept_local_are_broadcast_at_the_wrap_alone(void **state) {
    (void)state;
    rank_result results[2];
    run_counted(four_steps_local, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].number, 0);
        for (int i = 0; i < BUFFERS; i++) assert_true(results[rank].gradient[i] == 10);
    }
}

/* ---- Two forwards ---- */

/* y = w x * buffer: the tape holds the buffer, so a broadcast between the forwards would spoil the first. */
static ls_status forward_by_buffer(void *context, ls_module *self, ls_tensor *const *inputs, int input_count,
                                   ls_tensor **outputs, int output_count) {
    (void)context;
    (void)input_count;
    (void)output_count;
    outputs[0] = ls_mul(ls_linear(inputs[0], ls_module_parameter(self, 0), NULL), ls_module_buffer(self, 0));
    return outputs[0] ? LS_OK : ls_step_status();
}

static ls_module *module_by_buffer(void) {
    const ls_module_callbacks callbacks = {.forward = forward_by_buffer};
    ls_module *module = NULL;
    ls_tensor *weight = scalar_batch(&(double){3}, 1), *factor = scalar_batch(&(double){1}, 1);
    assert_ok(ls_module_create(&module, &callbacks, NULL));
    assert_ok(ls_module_add_parameter(module, "weight", weight));
    assert_ok(ls_module_add_buffer(module, "factor", factor));
    return module;
}

static void two_forwards(ls_group *group, rank_result *result) {
    ls_module *module = module_by_buffer();
    ls_ddp *ddp = NULL;
    const int rank = ls_group_rank(group);
    const double factor = rank == 0 ? 2 : 100;
    ls_tensor *x = scalar_batch(&(double){1}, 1);
    note(result, ls_ddp_wrap(&ddp, module, group, NULL));
    for (int step = 0; step < 3 && result->status == LS_OK; step++) {
        ls_tensor_copy_in(ls_module_buffer(module, 0), &factor);
        ls_step_begin();
        ls_tensor *sum = ls_mean(ls_module_forward(module, x)); /* buffers follow rank 0 here */
        ls_backward(ls_add(sum, ls_mean(ls_module_forward(module, x))));
        note(result, ls_step_end());
        result->gradient[step] = ls_tensor_item(ls_tensor_grad(ls_module_parameter(module, 0)));
        ls_tensor_zero_grad(ls_module_parameter(module, 0));
    }
    ls_tensor_close(&x);
    ls_ddp_close(&ddp);
    ls_module_close(&module);
}

static void two_forwards_sync_buffers_in_the_first_alone(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, two_forwards, results);
    for (int rank = 0; rank < 2; rank++) {
        if (results[rank].status != LS_OK) print_error("%s\n", results[rank].text);
        assert_int_equal(results[rank].status, LS_OK);
        for (int step = 0; step < 3; step++) assert_near(results[rank].gradient[step], 4);
    }
}

/* ---- Evaluation ---- */

static void train_around(ls_group *group, rank_result *result, bool evaluates) {
    WRAP_BUFFERED(2, &((ls_ddp_options){.bucket_cap_bytes = 1}));
    note(result, scalar_step(&model, 1)); /* now buffers and a rebuild are due */
    scalar_zero_gradients(&model);
    ls_no_grad_begin();
    for (int i = 0; i < 3 && evaluates && rank == 0; i++) {
        ls_tensor *batch = scalar_batch(&(double){1}, 1);
        ls_step_begin();
        ls_module_forward(model.module, batch);
        note(result, ls_step_end());
        ls_tensor_close(&batch);
    }
    ls_no_grad_end();
    note(result, ls_group_barrier(group, NULL)); /* rank 1 does not help rank 0 to evaluate */
    note_next(result, scalar_step(&model, rank + 1));
    note_next_gradients(result, &model);
    (void)before;
    DONE;
}

static void without_evaluation(ls_group *group, rank_result *result) {
    train_around(group, result, false);
}

static void with_evaluation(ls_group *group, rank_result *result) {
    train_around(group, result, true);
}

static void an_evaluation_on_rank_0_alone_sends_nothing_though_buffers_and_a_rebuild_are_due(void **state) {
    (void)state;
    rank_result results[2];
    run_counted(without_evaluation, results);
    const int expected = atomic_load(&operations);
    run_counted(with_evaluation, results);
    assert_int_equal(atomic_load(&operations), expected);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
        for (int i = 0; i < 2; i++) assert_near(results[rank].next_gradient[i], 1.5);
    }
}

/* ---- Names to be ignored ---- */

static void ignore_some(ls_group *group, rank_result *result) {
    static const char *const ignored[] = {"b", "count", NULL};
    scalar_model model = {0};
    ls_ddp *ddp = NULL;
    const int rank = ls_group_rank(group);
    assert_ok(buffered_model(&model, 2, rank));
    for (int i = 0; i < 2; i++) ls_tensor_copy_in(ls_module_parameter(model.module, i), &(double){rank + 5});
    note(result, ls_ddp_wrap(&ddp, model.module, group, &(ls_ddp_options){.ignored = ignored}));
    note(result, scalar_step(&model, 1));
    for (int i = 0; i < 2; i++) result->gradient[i] = ls_tensor_item(ls_module_parameter(model.module, i));
    for (int i = 0; i < BUFFERS; i++) result->gradient[2 + i] = buffer(&model, i);
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
}

static void ignored_parameters_and_buffers_stay_as_each_rank_has_them(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, ignore_some, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        const double expected[] = {5, rank + 5, 10, rank + 10, 10};
        for (int i = 0; i < 5; i++) assert_true(results[rank].gradient[i] == expected[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_buffers_travel_in_one_message_behind_each_synchronised_step),
        cmocka_unit_test(buffers_kept_local_are_broadcast_at_the_wrap_alone),
        cmocka_unit_test(two_forwards_sync_buffers_in_the_first_alone),
        cmocka_unit_test(an_evaluation_on_rank_0_alone_sends_nothing_though_buffers_and_a_rebuild_are_due),
        cmocka_unit_test(ignored_parameters_and_buffers_stay_as_each_rank_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
