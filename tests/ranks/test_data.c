/* Data and ranks together: what the loader's failures and uneven ends come to on all ranks. Ranks are threads. */
#include "support/threads.h"

#include <lockstep/lockstep.h>

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Sample i is x = i / 100, y = 2 x + 1; rank 1 cannot read sample `broken`, once. */
typedef struct line {
    int rank;
    int64_t broken;
    atomic_bool has_failed;
} line;

static ls_status read_line(void *context, int64_t index, void *x, void *y) {
    line *self = context;
    if (self->rank == 1 && index == self->broken && !atomic_exchange(&self->has_failed, true)) return LS_ERR_IO;
    *(double *)x = (double)index / 100;
    *(double *)y = 2 * *(double *)x + 1;
    return LS_OK;
}

static ls_dataset make_line(line *context, int64_t count) {
    return (ls_dataset){.count = count,
                        .x_dtype = LS_F64,
                        .y_dtype = LS_F64,
                        .x_ndim = 1,
                        .y_ndim = 1,
                        .x_dims = {1},
                        .y_dims = {1},
                        .read = read_line,
                        .context = context};
}

static ls_status train_step(ls_module *net, ls_optim *sgd, const ls_batch *batch) {
    ls_step_begin();
    ls_tensor *loss = ls_mse_loss(ls_module_forward(net, batch->x), batch->y);
    ls_backward(loss);
    ls_optim_step(sgd);
    ls_optim_zero_grad(sgd);
    return ls_step_end();
}

static void assert_replicas_are_equal(ls_group *group, ls_module *net) {
    double mine[2], all[4];
    for (int i = 0; i < 2; i++) mine[i] = ls_tensor_item(ls_module_parameter(net, i));
    assert_ok(ls_group_all_gather(group, mine, all, 2, LS_F64, NULL));
    assert_memory_equal(all, all + 2, sizeof mine);
}

static void meet_a_sample_that_cannot_be_read(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    line context = {.rank = rank->rank, .broken = 7};
    const ls_dataset set = make_line(&context, 40);
    ls_module *net = NULL;
    ls_ddp *ddp = NULL;
    ls_optim *sgd = NULL;
    ls_loader *loader = NULL;
    ls_batch batch;
    assert_ok(ls_linear_create(&net, 1, 1, &(ls_layer_options){.dtype = LS_F64}));
    assert_ok(ls_ddp_wrap(&ddp, net, group, NULL));
    assert_ok(ls_sgd_create(&sgd, net, &(ls_sgd_options){.lr = 0.1}));
    assert_ok(ls_loader_create(
        &loader, &set, &(ls_loader_options){.batch = 2, .rank = rank->rank, .world_size = 2, .without_shuffle = true}));

    /* Rank 1 reads 1, 3 | 5, 7 | 9, 11 | ...: its second batch is spoilt. */
    for (int step = 0; step < 10; step++) {
        assert_ok(ls_loader_next(loader, &batch));
        const double before = ls_tensor_item(ls_module_parameter(net, 0));
        const ls_status status = train_step(net, sgd, &batch);
        if (step != 1)
            assert_ok(status);
        else {
            assert_int_equal(status, LS_ERR_IO);
            assert_error_says("sample 7"); /* also rank 0 is told */
            assert_true(before == ls_tensor_item(ls_module_parameter(net, 0)));
        }
        assert_replicas_are_equal(group, net);
    }
    assert_int_equal(ls_loader_next(loader, &batch), LS_END);
    ls_loader_close(&loader);
    ls_optim_close(&sgd);
    ls_ddp_close(&ddp);
    ls_module_close(&net);
    ls_group_close(&group);
}

static void a_sample_that_cannot_be_read_fails_its_step_on_all_ranks_and_no_other(void **state) {
    (void)state;
    run_ranks(2, meet_a_sample_that_cannot_be_read, NULL);
}

/* Nine samples in batches of two: rank 0 has 5 samples in 3 batches, rank 1 has 4 in 2. */
static void evaluate_unevenly(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    line context = {.rank = rank->rank, .broken = -1};
    const ls_dataset set = make_line(&context, 9);
    ls_module *net = NULL;
    ls_ddp *ddp = NULL;
    ls_loader *loader = NULL;
    ls_batch batch;
    assert_ok(ls_linear_create(&net, 1, 1, &(ls_layer_options){.dtype = LS_F64}));
    assert_ok(ls_ddp_wrap(&ddp, net, group, NULL));
    assert_ok(ls_loader_create(&loader, &set,
                               &(ls_loader_options){.batch = 2, .rank = rank->rank, .world_size = 2, .uneven = true}));
    double sums[2] = {0}, batches = 0;
    ls_module_train(net, false);
    ls_no_grad_begin();
    while (ls_loader_next(loader, &batch) == LS_OK) {
        ls_step_begin();
        const ls_tensor *loss = ls_mse_loss(ls_module_forward(net, batch.x), batch.y);
        sums[0] += ls_tensor_item(loss) * (double)batch.count;
        sums[1] += (double)batch.count;
        assert_ok(ls_step_end());
        batches++;
    }
    ls_no_grad_end();
    assert_int_equal(batches, rank->rank == 0 ? 3 : 2);
    assert_ok(ls_group_all_reduce(group, sums, 2, LS_F64, LS_SUM, NULL));

    const double w = ls_tensor_item(ls_module_parameter(net, 0)), b = ls_tensor_item(ls_module_parameter(net, 1));
    double expected = 0;
    for (int i = 0; i < 9; i++) expected += pow(w * i / 100 + b - (2.0 * i / 100 + 1), 2) / 9;
    assert_true(sums[1] == 9);
    assert_true(fabs(sums[0] / sums[1] - expected) < 1e-12);
    ls_loader_close(&loader);
    ls_ddp_close(&ddp);
    ls_module_close(&net);
    ls_group_close(&group);
}

static void evaluation_of_three_and_two_batches_ends_with_a_mean_over_samples(void **state) {
    (void)state;
    run_ranks(2, evaluate_unevenly, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_that_cannot_be_read_fails_its_step_on_all_ranks_and_no_other),
        cmocka_unit_test(evaluation_of_three_and_two_batches_ends_with_a_mean_over_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
