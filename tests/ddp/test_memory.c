/* Memory: a steady loop allocates nothing; whatever fails while wrapping leaves nothing and fails alike on all
 * ranks. */
#include "ddp/rank_results.h"
#include "support/faults.h"

#include "base/memory.h"

#include <unistd.h>

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

/* ---- The step that rebuilds ---- */

#define LAYERS 24
#define LAYER_NUMEL ((int64_t)64 << 10) /* 512 KiB: two layers a bucket */

/* Shared memory in use by this process. */
static size_t shared_bytes(void) {
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "RssShmem: %zu kB", &kib);
    if (file) fclose(file);
    return kib << 10;
}

static size_t largest_seen;

/* At every new bucket: those before it are full. */
static void look_at_memory(void *unused) {
    (void)unused;
    const size_t now = shared_bytes();
    if (now > largest_seen) largest_seen = now;
}

/* Gradients come in an order that takes one member of each new bucket from each half of the old ones. */
static void mark_interleaved(ls_reducer *reducer) {
    for (int i = 0; i < LAYERS; i++) {
        const int index = i % 2 ? LAYERS / 2 + i / 2 : i / 2;
        double *gradient = ls_reducer_gradient(reducer, index);
        for (int64_t at = 0; at < LAYER_NUMEL; at++) gradient[at] = 1;
        ls_reducer_ready(reducer, index);
    }
}

static void rebuild_interleaved(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    ls_gradient gradients[LAYERS] = {0};
    char names[LAYERS][8];
    for (int i = 0; i < LAYERS; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        gradients[i] = (ls_gradient){.name = names[i], .dtype = LS_F64, .ndim = 1, .dims = {LAYER_NUMEL}};
    }
    note(result,
         ls_reducer_create(&reducer, group, gradients, LAYERS, &(ls_reducer_options){.bucket_cap_bytes = 1 << 20}));
    note(result, ls_reducer_begin(reducer));
    mark_interleaved(reducer);
    note(result, ls_reducer_finish(reducer));
    note(result, ls_reducer_begin(reducer)); /* rebuilds */
    mark_interleaved(reducer);
    note_next(result, ls_reducer_finish(reducer));
    result->next_gradient[0] = ((double *)ls_reducer_gradient(reducer, 3))[LAYER_NUMEL - 1];
    ls_reducer_close(&reducer);
}

static void the_step_that_rebuilds_needs_one_bucket_more_and_two_pages_a_parameter(void **state) {
    (void)state;
    const size_t layer = (size_t)LAYER_NUMEL * sizeof(double), page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t ranks = 2, bucket = 1 << 20;
    rank_result results[2];
    const size_t before = shared_bytes();
    largest_seen = 0;
    ls_at_point("ddp.rebuild.allocated", 0, 0, look_at_memory, NULL);
    run_scenario((int)ranks, rebuild_interleaved, results);
    ls_at_point(NULL, 0, 0, NULL, NULL);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_true(results[rank].next_gradient[0] == 1);
    }
    /* The newest bucket is the one more; where the kernel fills page tables at once it is counted before it is touched. */
    const size_t boards = 4 << 20;
    print_message("%zu KiB of gradients a rank, at most %zu KiB in use\n", LAYERS * layer >> 10, largest_seen >> 10);
    assert_true(largest_seen > 0);
    assert_true(largest_seen - before <= ranks * (LAYERS * (layer + 2 * page) + bucket) + boards);
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
        cmocka_unit_test(the_step_that_rebuilds_needs_one_bucket_more_and_two_pages_a_parameter),
        cmocka_unit_test(a_fault_at_any_call_of_wrapping_fails_all_ranks_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
