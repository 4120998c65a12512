/* Memory: a steady loop allocates nothing; whatever fails while wrapping leaves nothing and fails alike on all ranks. */
#include "ddp/rank_results.h"
#include "support/faults.h"

#include "base/memory.h"

#define STEPS 12

/* Rank 0 reads the allocator's counter at two moments between barriers, when all ranks are at the same step. */
static void steady_steps(ls_group *group, rank_result *result) {
    ls_module *module = NULL;
    ls_ddp *ddp = NULL;
    ls_optim *sgd = NULL;
    ls_tensor *x = NULL, *y = NULL;
    note(result, ls_mlp_create(&module, NULL));
    note(result, ls_ddp_wrap(&ddp, module, group, &(ls_ddp_options){.bucket_cap_bytes = 10000}));
    note(result, ls_sgd_create(&sgd, module, &(ls_sgd_options){.lr = 0.01, .momentum = 0.9}));
    ls_tensor_create(&x, LS_F32, 2, (int64_t[]){4, 784});
    ls_tensor_create(&y, LS_I64, 1, (int64_t[]){4});
    uint64_t before = 0;
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS / 2) {
            ls_group_barrier(group, NULL);
            before = ls_alloc_count();
            ls_group_barrier(group, NULL);
        }
        ls_step_begin();
        ls_backward(ls_cross_entropy_loss(ls_module_forward(module, x), y));
        ls_optim_step(sgd);
        ls_optim_zero_grad(sgd);
        note(result, ls_step_end());
    }
    ls_group_barrier(group, NULL);
    result->number = (int64_t)(ls_alloc_count() - before);
    ls_group_barrier(group, NULL);
    ls_tensor_close(&x);
    ls_tensor_close(&y);
    ls_optim_close(&sgd);
    ls_ddp_close(&ddp);
    ls_module_close(&module);
}

static void a_steady_loop_allocates_nothing(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, steady_steps, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].number, 0);
    }
}

static void open_and_wrap(const ls_rank *rank) {
    rank_result *result = (rank_result *)rank->argument + rank->rank;
    ls_group_options options = rank_options(rank);
    options.timeout_ms = 1000; /* where a rank's store fails it, it cannot tell the other why */
    ls_group *group = NULL;
    ls_ddp *ddp = NULL;
    scalar_model model = {0};
    ls_status status = scalar_model_create(&model, 2);
    const ls_status opened = ls_group_open(&group, &options);
    if (opened == LS_OK && status == LS_OK) status = ls_ddp_wrap(&ddp, model.module, group, NULL);
    note(result, opened == LS_OK ? status : opened);
    ls_ddp_close(&ddp);
    ls_module_close(&model.module);
    ls_group_close(&group);
}

static void a_fault_at_any_call_of_wrapping_fails_all_ranks_and_leaves_nothing(void **state) {
    (void)state;
    rank_result results[2];
    int failures = 0;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
        ls_store *store = NULL;
        memset(results, 0, sizeof results);
        if (ls_store_open_hash(&store) != LS_OK) continue;
        run_ranks_over(store, 2, open_and_wrap, results);
        ls_store_close(&store);
        const bool failed = results[0].status != LS_OK;
        assert_int_equal(failed, results[1].status != LS_OK);
        failures += failed;
        for (int rank = 0; rank < 2 && failed; rank++) { assert_true(results[rank].text[0] != 0); }
    }
    print_message("%d calls failed in turn\n", failures);
    assert_true(failures > 50);
    assert_nothing_left();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_steady_loop_allocates_nothing),
        cmocka_unit_test(a_fault_at_any_call_of_wrapping_fails_all_ranks_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
