/* test_memory.c: which memory a group over NCCL takes; group memory; groups made of it. */
#include "nccl/on_gpus.h"

#include "group/post.h"

#include <lockstep/ddp.h>
#include <lockstep/nn.h>

#include <string.h>
#include <unistd.h>

/* --- host memory ------------------------------------------------------------------------------------------------------- */

#define SMALL 100

static void pass_small_host_memory(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    const size_t ranks = (size_t)rank->world_size, me = (size_t)rank->rank;
    int32_t own[SMALL], rows[STAND_IN_RANKS * SMALL], sum[SMALL];
    for (size_t i = 0; i < SMALL; i++) sum[i] = own[i] = (int32_t)(me * 1000 + i);
    assert_ok(ls_group_all_reduce(group, sum, SMALL, LS_I32, LS_SUM, NULL));
    for (size_t i = 0; i < SMALL; i++) assert_int_equal(sum[i], ranks * i + 1000 * ranks * (ranks - 1) / 2);
    assert_ok(ls_group_all_gather(group, own, rows, SMALL, LS_I32, NULL));
    for (size_t from = 0; from < ranks; from++) assert_int_equal(rows[from * SMALL + 7], from * 1000 + 7);
    /* One side of the host, one of the GPU. */
    void *gathered = on_gpu(rank->rank, NULL, sizeof rows);
    assert_ok(ls_group_all_gather(group, own, gathered, SMALL, LS_I32, NULL));
    assert_gpu_holds(gathered, rows, ranks * SMALL * sizeof *rows);
    assert_ok(ls_group_reduce(group, own, SMALL, LS_I32, LS_MAX, 0, NULL));
    for (size_t i = 0; i < SMALL; i++) assert_int_equal(own[i], (rank->rank ? me : ranks - 1) * 1000 + i);
    stand_in_free(gathered);
    ls_group_close(&group);
}

static void small_host_memory_passes_through_the_stage(void **state) {
    (void)state;
    run_ranks(3, pass_small_host_memory, NULL);
}

static void pass_large_host_memory(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    const size_t bytes = 100 * 1024;
    char *data = calloc(1, bytes);
    assert_non_null(data);
    assert_int_equal(ls_group_broadcast(group, data, bytes, LS_U8, 0, NULL), LS_ERR_ARGUMENT);
    assert_error_says("102400 bytes of host memory");
    assert_error_says("at most 8192 here");
    char text[64];
    snprintf(text, sizeof text, "rank %d: broadcast of 102400 u8 from rank 0", rank->rank);
    assert_error_says(text);
    snprintf(text, sizeof text, "copy it to GPU %d first", rank->rank);
    assert_error_says(text);
    /* Nothing was posted. */
    assert_ok(ls_group_barrier(group, NULL));
    free(data);
    ls_group_close(&group);
}

static void large_host_memory_is_refused_with_what_to_do(void **state) {
    (void)state;
    run_ranks(2, pass_large_host_memory, NULL);
}

static void pass_memory_of_another_gpu(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    void *data = on_gpu(rank->rank + 1, NULL, 64);
    char text[64];
    assert_int_equal(ls_group_all_reduce(group, data, 8, LS_F32, LS_SUM, NULL), LS_ERR_ARGUMENT);
    snprintf(text, sizeof text, "memory of GPU %d, and the group is on GPU %d", rank->rank + 1, rank->rank);
    assert_error_says(text);
    assert_ok(ls_group_barrier(group, NULL));
    stand_in_free(data);
    ls_group_close(&group);
}

static void memory_of_another_gpu_is_refused(void **state) {
    (void)state;
    run_ranks(2, pass_memory_of_another_gpu, NULL);
}

/* --- group memory ------------------------------------------------------------------------------------------------------ */

static void use_group_memory(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    static const char zeros[4096];
    void *memory = NULL, *kept = NULL;
    const float one = 1, sum = (float)rank->world_size;
    assert_ok(ls_group_alloc(group, sizeof zeros, &memory));
    assert_int_equal((uintptr_t)memory % (size_t)sysconf(_SC_PAGESIZE), 0);
    assert_gpu_holds(memory, zeros, sizeof zeros);
    stand_in_write(memory, &one, sizeof one);
    assert_ok(ls_group_all_reduce(group, memory, 1, LS_F32, LS_SUM, NULL));
    assert_gpu_holds(memory, &sum, sizeof sum);
    ls_group_free(group, memory);
    assert_ok(ls_group_alloc(group, 10, &kept)); /* closing frees it */
    assert_int_equal(group_check_host_memory(group), LS_ERR_UNSUPPORTED);
    assert_error_says("is a GPU's");
    ls_group_close(&group);
}

static void group_memory_is_the_gpus_cleared_and_on_a_page(void **state) {
    (void)state;
    run_ranks(2, use_group_memory, NULL);
}

static void allocate_unlike(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    void *memory = NULL;
    assert_int_equal(ls_group_alloc(group, rank->rank ? 64 : 128, &memory), LS_ERR_MISMATCH);
    assert_error_says("rank 0 called allocation of 128 bytes, rank 1 allocation of 64 bytes");
    assert_null(memory);
    ls_group_close(&group);
}

static void allocations_of_different_sizes_are_named(void **state) {
    (void)state;
    run_ranks(2, allocate_unlike, NULL);
}

static void allocate_in_vain(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    void *memory = NULL;
    assert_ok(ls_group_barrier(group, NULL));
    if (rank->rank == 1) stand_in_fail("cuMemAlloc_v2", 1, CUDA_OUT_OF_MEMORY);
    assert_ok(ls_group_monitored_barrier(group, 10000));
    assert_int_equal(ls_group_alloc(group, 1 << 20, &memory), LS_ERR_MEMORY);
    assert_error_says("no 1048576 bytes left for group memory");
    assert_memory_equal(ls_last_error() + strlen("rank 0"), ": GPU", 5); /* the rank that allocates first, once */
    /* The group goes on. */
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
}

static void a_gpu_without_memory_is_an_error_on_all_ranks(void **state) {
    (void)state;
    run_ranks(2, allocate_in_vain, NULL);
    assert_true(stand_in_has_failed());
}

/* --- groups of groups -------------------------------------------------------------------------------------------------- */

static void sum_ranks(ls_group *group, int device, float expected) {
    const float value = (float)device;
    void *data = on_gpu(device, &value, sizeof value);
    assert_ok(ls_group_all_reduce(group, data, 1, LS_F32, LS_SUM, NULL));
    assert_gpu_holds(data, &expected, sizeof expected);
    stand_in_free(data);
}

static void make_relatives(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank), *copy = NULL, *half = NULL, *alone = NULL, *turns = NULL;
    assert_ok(ls_group_duplicate(&copy, group));
    sum_ranks(copy, rank->rank, 6);
    /* 0 and 2, 1 and 3. */
    assert_ok(ls_group_split(&half, group, rank->rank % 2, 0));
    sum_ranks(half, rank->rank, rank->rank % 2 ? 4 : 2);
    /* One of a single rank is on its GPU too. */
    const int last[] = {3};
    assert_ok(ls_group_subgroup(&alone, group, last, 1));
    if (rank->rank == 3)
        sum_ranks(alone, 3, 3);
    else
        assert_false(ls_group_is_member(alone));
    ls_group *const lanes[] = {group, copy};
    assert_ok(ls_group_round_robin(&turns, lanes, 2));
    for (int i = 0; i < 4; i++) sum_ranks(turns, rank->rank, 6);
    assert_int_equal(group_check_host_memory(turns), LS_ERR_UNSUPPORTED);
    ls_group_close(&turns);
    ls_group_close(&alone);
    ls_group_close(&half);
    ls_group_close(&copy);
    ls_group_close(&group);
}

static void groups_made_of_a_group_are_on_its_gpus(void **state) {
    (void)state;
    run_ranks(4, make_relatives, NULL);
}

static void wrap_a_model(const ls_rank *rank) {
    ls_group *group = open_on_gpu(rank);
    ls_module *net = NULL;
    assert_ok(ls_linear_create(&net, 2, 2, NULL));
    ls_ddp *ddp = NULL;
    assert_int_equal(ls_ddp_wrap(&ddp, net, group, NULL), LS_ERR_UNSUPPORTED);
    assert_error_says("gradients are computed on the host");
    assert_null(ddp);
    ls_module_close(&net);
    ls_group_close(&group);
}

static void a_wrap_over_gpus_is_refused(void **state) {
    (void)state;
    run_ranks(2, wrap_a_model, NULL);
}

/* Every rank counts how often it has opened: those keys are as many as there are ranks. */
static void open_and_close_often(const ls_rank *rank) {
    for (int i = 0; i < 5; i++) {
        ls_group *group = open_on_gpu(rank), *copy = NULL;
        assert_ok(ls_group_duplicate(&copy, group));
        assert_ok(ls_group_barrier(copy, NULL));
        ls_group_close(&copy);
        ls_group_close(&group);
    }
}

static void groups_leave_no_keys_in_the_store(void **state) {
    (void)state;
    ls_store *store = NULL;
    int64_t keys = 0;
    assert_ok(ls_store_open_hash(&store));
    run_ranks_over(store, 3, open_and_close_often, NULL);
    assert_ok(ls_store_count(store, &keys));
    assert_int_equal(keys, 3);
    ls_store_close(&store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        gpu_test(small_host_memory_passes_through_the_stage), gpu_test(large_host_memory_is_refused_with_what_to_do),
        gpu_test(memory_of_another_gpu_is_refused),           gpu_test(group_memory_is_the_gpus_cleared_and_on_a_page),
        gpu_test(allocations_of_different_sizes_are_named),   gpu_test(a_gpu_without_memory_is_an_error_on_all_ranks),
        gpu_test(groups_made_of_a_group_are_on_its_gpus),     gpu_test(a_wrap_over_gpus_is_refused),
        gpu_test(groups_leave_no_keys_in_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
