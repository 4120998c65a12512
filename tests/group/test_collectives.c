/* test_collectives.c: what comes out of the collectives, over random sizes, types, ops, memories and numbers of ranks. */
#include "group/oracle.h"
#include "support/threads.h"

#include <stdlib.h>
#include <time.h>

#define MOST_BYTES ((size_t)3 << 20)
#define MOST_RANKS 8

typedef struct sitting {
    uint64_t seed;
    int rounds;
} sitting;

static size_t draw_count(uint64_t bits) {
    static const size_t counts[] = {0,    1,    2,    3,    7,     15,    16,    17,     100,    511,    1000,  1020,
                                    1021, 2039, 2041, 4096, 10007, 16384, 65537, 100003, 262144, 300007, 393216};
    return counts[bits % (sizeof counts / sizeof counts[0])];
}

typedef struct round_plan {
    uint64_t seed;
    ls_dtype dtype;
    ls_op op;
    size_t count, shift; /* elements; `shift` moves the data off its alignment */
    bool in_group, is_async;
    int kind, root;
} round_plan;

static round_plan plan_round(uint64_t seed, int round, int world_size) {
    static const ls_dtype dtypes[] = {LS_F32, LS_F64, LS_I64, LS_U8};
    round_plan plan = {.seed = mix(seed + (uint64_t)round)};
    uint64_t bits = plan.seed;
    plan.dtype = dtypes[bits % 4];
    bits = mix(bits);
    plan.op = (ls_op)(bits % (plan.dtype == LS_I64 || plan.dtype == LS_U8 ? 3 : 2));
    plan.count = draw_count(bits = mix(bits));
    plan.shift = (bits = mix(bits)) % 3 ? 0 : bits % 17;
    plan.in_group = (bits = mix(bits)) % 2;
    plan.is_async = (bits = mix(bits)) % 2;
    plan.kind = (int)((bits = mix(bits)) % 5);
    plan.root = (int)(mix(bits) % (uint64_t)world_size);
    return plan;
}

/* Element `i` of the all-reduce. */
static void expect(char *into, size_t i, const round_plan *plan, int world_size) {
    int64_t drawn[MOST_RANKS];
    const void *elements[MOST_RANKS];
    for (int rank = 0; rank < world_size; rank++) {
        draw(&drawn[rank], 0, i, plan->dtype, plan->seed, rank);
        elements[rank] = &drawn[rank];
    }
    expect_element(into + i * ls_dtype_size(plan->dtype), plan->dtype, plan->op, elements, world_size);
}

static void run_call(ls_status status, ls_work **work, bool is_async) {
    assert_ok(status);
    if (!is_async) return;
    assert_ok(ls_work_wait(*work, 0));
    ls_work_close(work);
}

static void check_reduce(const ls_rank *rank, ls_group *group, const round_plan *plan, char *data, char *expected) {
    ls_work *work = NULL;
    for (size_t i = 0; i < plan->count; i++) draw(data, i, i, plan->dtype, plan->seed, rank->rank);
    for (size_t i = 0; i < plan->count; i++) expect(expected, i, plan, rank->world_size);
    run_call(ls_group_all_reduce(group, data, plan->count, plan->dtype, plan->op, plan->is_async ? &work : NULL), &work,
             plan->is_async);
    assert_memory_equal(data, expected, plan->count * ls_dtype_size(plan->dtype));
}

static void check_broadcast(const ls_rank *rank, ls_group *group, const round_plan *plan, char *data, char *expected) {
    ls_work *work = NULL;
    for (size_t i = 0; i < plan->count; i++) draw(data, i, i, plan->dtype, plan->seed, rank->rank);
    for (size_t i = 0; i < plan->count; i++) draw(expected, i, i, plan->dtype, plan->seed, plan->root);
    run_call(ls_group_broadcast(group, data, plan->count, plan->dtype, plan->root, plan->is_async ? &work : NULL),
             &work, plan->is_async);
    assert_memory_equal(data, expected, plan->count * ls_dtype_size(plan->dtype));
}

/* Gathers a part so small that all fit; from apart, or from this rank's place in the result. */
static void check_gather(const ls_rank *rank, ls_group *group, const round_plan *plan, char *data, char *expected) {
    ls_work *work = NULL;
    const size_t count = plan->count / (size_t)rank->world_size, bytes = count * ls_dtype_size(plan->dtype);
    char *own = malloc(bytes + 64), *send = data + (size_t)rank->rank * bytes;
    assert_non_null(own);
    for (int peer = 0; peer < rank->world_size; peer++)
        for (size_t i = 0; i < count; i++) draw(expected + (size_t)peer * bytes, i, i, plan->dtype, plan->seed, peer);
    if (plan->seed % 2) send = own;
    memset(data, 0, bytes * (size_t)rank->world_size);
    for (size_t i = 0; i < count; i++) draw(send, i, i, plan->dtype, plan->seed, rank->rank);
    run_call(ls_group_all_gather(group, send, data, count, plan->dtype, plan->is_async ? &work : NULL), &work,
             plan->is_async);
    assert_memory_equal(data, expected, bytes * (size_t)rank->world_size);
    free(own);
}

static void run_round(const ls_rank *rank, ls_group *group, const round_plan *plan, char *data, char *expected) {
    ls_work *work = NULL;
    switch (plan->kind) {
    case 0: check_broadcast(rank, group, plan, data, expected); break;
    case 1: check_gather(rank, group, plan, data, expected); break;
    case 2: run_call(ls_group_barrier(group, plan->is_async ? &work : NULL), &work, plan->is_async); break;
    default: check_reduce(rank, group, plan, data, expected); break;
    }
}

static void random_rounds(const ls_rank *rank) {
    const sitting *all = rank->argument;
    ls_group *group = open_rank(rank);
    void *shared = NULL;
    char *ordinary = malloc(MOST_BYTES + 256), *expected = malloc(MOST_BYTES + 256);
    assert_non_null(ordinary);
    assert_non_null(expected);
    assert_ok(ls_group_alloc(group, MOST_BYTES + 256, &shared));
    for (int round = 0; round < all->rounds; round++) {
        const round_plan plan = plan_round(all->seed, round, rank->world_size);
        /* In some rounds rank 0 alone has ordinary memory. */
        const bool in_group = plan.in_group && !(plan.seed % 5 == 0 && rank->rank == 0);
        char *data = (in_group ? (char *)shared : ordinary) + plan.shift * ls_dtype_size(plan.dtype);
        run_round(rank, group, &plan, data, expected);
    }
    free(ordinary);
    free(expected);
    ls_group_free(group, shared);
    ls_group_close(&group);
}

static void results_equal_the_serial_oracle(void **state) {
    (void)state;
    sitting all = {.seed = (uint64_t)time(NULL), .rounds = 60};
    print_message("seed %llu\n", (unsigned long long)all.seed);
    for (int world_size = 1; world_size <= 4; world_size++) run_ranks(world_size, random_rounds, &all);
    all.rounds = 20;
    run_ranks(MOST_RANKS, random_rounds, &all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_equal_the_serial_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
