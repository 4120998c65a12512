/* test_collectives.c: what comes out of the collectives, over random sizes, types, ops, memories and numbers of ranks. */
#include "support/threads.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- an oracle and its data ------------------------------------------------------------------------------------------ */

/* A small generator, so that every rank can draw what any other rank has. */
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void draw(void *data, size_t index, ls_dtype dtype, uint64_t seed, int rank) {
    const uint64_t bits = mix(seed ^ mix(index * 64 + (uint64_t)rank));
    const double value = ((double)(bits >> 11) / 9007199254740992.0 - 0.5) * 1000.0;
    switch (dtype) {
    case LS_F32: ((float *)data)[index] = (float)value; break;
    case LS_F64: ((double *)data)[index] = value; break;
    case LS_I64: ((int64_t *)data)[index] = (int64_t)bits; break;
    default: ((uint8_t *)data)[index] = (uint8_t)bits; break;
    }
}

/* One element of the all-reduce, added serially in rank order. */
static void expect(void *into, size_t index, ls_dtype dtype, ls_op op, uint64_t seed, int world_size) {
    for (int rank = 0; rank < world_size; rank++) {
        const uint64_t bits = mix(seed ^ mix(index * 64 + (uint64_t)rank));
        const double value = ((double)(bits >> 11) / 9007199254740992.0 - 0.5) * 1000.0;
        if (dtype == LS_F32) {
            float *to = &((float *)into)[index], mine = (float)value;
            *to = rank == 0 ? mine : op == LS_SUM ? *to + mine : *to > mine ? *to : mine;
        } else if (dtype == LS_F64) {
            double *to = &((double *)into)[index];
            *to = rank == 0 ? value : op == LS_SUM ? *to + value : *to > value ? *to : value;
        } else if (dtype == LS_I64) {
            int64_t *to = &((int64_t *)into)[index], mine = (int64_t)bits;
            *to = rank == 0      ? mine
                  : op == LS_SUM ? (int64_t)((uint64_t)*to + (uint64_t)mine)
                  : op == LS_MAX ? (*to > mine ? *to : mine)
                                 : *to | mine;
        } else {
            uint8_t *to = &((uint8_t *)into)[index], mine = (uint8_t)bits;
            *to = rank == 0      ? mine
                  : op == LS_SUM ? (uint8_t)(*to + mine)
                  : op == LS_MAX ? (*to > mine ? *to : mine)
                                 : (uint8_t)(*to | mine);
        }
    }
}

/* --- random operations ------------------------------------------------------------------------------------------------ */

#define MOST_BYTES ((size_t)3 << 20)

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

static void run_call(ls_status status, ls_work **work, bool is_async) {
    assert_ok(status);
    if (!is_async) return;
    assert_ok(ls_work_wait(*work, 0));
    ls_work_close(work);
}

static void check_reduce(const ls_rank *rank, ls_group *group, const round_plan *plan, char *data, char *expected) {
    ls_work *work = NULL;
    for (size_t i = 0; i < plan->count; i++) draw(data, i, plan->dtype, plan->seed, rank->rank);
    for (size_t i = 0; i < plan->count; i++) expect(expected, i, plan->dtype, plan->op, plan->seed, rank->world_size);
    run_call(ls_group_all_reduce(group, data, plan->count, plan->dtype, plan->op, plan->is_async ? &work : NULL), &work,
             plan->is_async);
    assert_memory_equal(data, expected, plan->count * ls_dtype_size(plan->dtype));
}

static void check_broadcast(const ls_rank *rank, ls_group *group, const round_plan *plan, char *data, char *expected) {
    ls_work *work = NULL;
    for (size_t i = 0; i < plan->count; i++) draw(data, i, plan->dtype, plan->seed, rank->rank);
    for (size_t i = 0; i < plan->count; i++) draw(expected, i, plan->dtype, plan->seed, plan->root);
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
        for (size_t i = 0; i < count; i++) draw(expected + (size_t)peer * bytes, i, plan->dtype, plan->seed, peer);
    if (plan->seed % 2) send = own;
    memset(data, 0, bytes * (size_t)rank->world_size);
    for (size_t i = 0; i < count; i++) draw(send, i, plan->dtype, plan->seed, rank->rank);
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
    sitting all = {.seed = (uint64_t)time(NULL), .rounds = 150};
    print_message("seed %llu\n", (unsigned long long)all.seed);
    for (int world_size = 1; world_size <= 4; world_size++) run_ranks(world_size, random_rounds, &all);
    all.rounds = 40;
    run_ranks(8, random_rounds, &all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_equal_the_serial_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
