/* rounds.h: random collectives on one group of processes, each against an oracle; for the worker programs of this
 * folder. */
#ifndef LS_TEST_MPI_ROUNDS_H
#define LS_TEST_MPI_ROUNDS_H

#include <lockstep/group.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                                              \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "%s:%d: not so: %s; last error: %s\n", __FILE__, __LINE__, #condition, ls_last_error()); \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

/* The call fails with `status`, and its sentence contains `text`. */
#define MUST_FAIL(call, expected, text)                                                                 \
    do {                                                                                                \
        const ls_status must_fail_status = (call);                                                      \
        if (must_fail_status != (expected) || !strstr(ls_last_error(), text)) {                         \
            fprintf(stderr, "%s:%d: expected %s with \"%s\", found %s: %s\n", __FILE__, __LINE__,       \
                    ls_status_name(expected), text, ls_status_name(must_fail_status), ls_last_error()); \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

/* A small generator, so that every rank can draw what any other rank has. */
static inline uint64_t rounds_mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

typedef struct rounds_plan {
    uint64_t seed;
    ls_dtype dtype;
    ls_op op;
    size_t count;
    int kind, root;
    bool is_async, in_group, from_place;
} rounds_plan;

static inline uint64_t rounds_bits(const rounds_plan *plan, size_t index, int rank) {
    return rounds_mix(plan->seed ^ rounds_mix(index * 64 + (uint64_t)rank));
}

/* Floating-point values are small whole numbers: their sums are exact in any order, which MPI chooses. */
static inline double rounds_value(uint64_t bits) {
    return (double)(bits % 2001) - 1000.0;
}

static inline void rounds_draw(void *data, size_t index, const rounds_plan *plan, int rank) {
    const uint64_t bits = rounds_bits(plan, index, rank);
    switch (plan->dtype) {
    case LS_F32: ((float *)data)[index] = (float)rounds_value(bits); break;
    case LS_F64: ((double *)data)[index] = rounds_value(bits); break;
    case LS_I64: ((uint64_t *)data)[index] = bits; break;
    default: ((uint8_t *)data)[index] = (uint8_t)bits; break;
    }
}

/* One element of the all-reduce, serially. */
static inline void rounds_expect(void *into, size_t index, const rounds_plan *plan, int world_size) {
    for (int rank = 0; rank < world_size; rank++) {
        const uint64_t bits = rounds_bits(plan, index, rank);
        uint64_t *wide = &((uint64_t *)into)[index];
        uint8_t *narrow = &((uint8_t *)into)[index];
        const double value = rounds_value(bits);
        if (plan->dtype == LS_F32) {
            float *to = &((float *)into)[index], mine = (float)value;
            *to = rank == 0 ? mine : plan->op == LS_SUM ? *to + mine : *to > mine ? *to : mine;
        } else if (plan->dtype == LS_F64) {
            double *to = &((double *)into)[index];
            *to = rank == 0 ? value : plan->op == LS_SUM ? *to + value : *to > value ? *to : value;
        } else if (plan->dtype == LS_I64) {
            const bool is_larger = rank == 0 || (int64_t)bits > (int64_t)*wide;
            *wide = rank == 0            ? bits
                    : plan->op == LS_SUM ? *wide + bits
                    : plan->op == LS_MAX ? (is_larger ? bits : *wide)
                                         : *wide | bits;
        } else {
            const uint8_t mine = (uint8_t)bits;
            *narrow = rank == 0            ? mine
                      : plan->op == LS_SUM ? (uint8_t)(*narrow + mine)
                      : plan->op == LS_MAX ? (*narrow > mine ? *narrow : mine)
                                           : (uint8_t)(*narrow | mine);
        }
    }
}

static inline rounds_plan rounds_draw_plan(uint64_t seed, int world_size) {
    static const size_t counts[] = {0, 1, 2, 3, 17, 255, 1000, 4097, 65536, 100003};
    static const ls_dtype dtypes[] = {LS_F32, LS_F64, LS_I64, LS_U8};
    uint64_t bits = rounds_mix(seed);
    rounds_plan plan = {.seed = bits, .dtype = dtypes[bits % 4]};
    plan.op = (ls_op)((bits = rounds_mix(bits)) % (plan.dtype == LS_I64 || plan.dtype == LS_U8 ? 3 : 2));
    plan.count = counts[(bits = rounds_mix(bits)) % (sizeof counts / sizeof counts[0])];
    plan.kind = (int)((bits = rounds_mix(bits)) % 5);
    plan.root = (int)((bits = rounds_mix(bits)) % (uint64_t)world_size);
    plan.is_async = (bits = rounds_mix(bits)) % 2;
    plan.in_group = (bits = rounds_mix(bits)) % 2;
    plan.from_place = rounds_mix(bits) % 2;
    return plan;
}

/* data and expected: room for 100003 elements of 8 bytes of every rank. */
static inline void rounds_run(ls_group *group, const rounds_plan *plan, char *data, char *expected) {
    const int rank = ls_group_rank(group), world_size = ls_group_world_size(group);
    const size_t bytes = plan->count * ls_dtype_size(plan->dtype);
    size_t result_bytes = bytes;
    ls_work *work = NULL, **handle = plan->is_async ? &work : NULL;
    char *own = malloc(bytes + 1), *send = data + (size_t)rank * bytes;
    if (plan->from_place != (rank == 0)) send = own; /* ranks differ in it */
    switch (plan->kind) {
    case 0:
        for (size_t i = 0; i < plan->count; i++) rounds_draw(data, i, plan, rank);
        for (size_t i = 0; i < plan->count; i++) rounds_draw(expected, i, plan, plan->root);
        MUST(ls_group_broadcast(group, data, plan->count, plan->dtype, plan->root, handle) == LS_OK);
        break;
    case 1:
        for (size_t i = 0; i < plan->count; i++) rounds_draw(send, i, plan, rank);
        for (int peer = 0; peer < world_size; peer++)
            for (size_t i = 0; i < plan->count; i++) rounds_draw(expected + (size_t)peer * bytes, i, plan, peer);
        result_bytes *= (size_t)world_size;
        MUST(ls_group_all_gather(group, send, data, plan->count, plan->dtype, handle) == LS_OK);
        break;
    case 2:
        result_bytes = 0;
        MUST(ls_group_barrier(group, handle) == LS_OK);
        break;
    default:
        for (size_t i = 0; i < plan->count; i++) rounds_draw(data, i, plan, rank);
        for (size_t i = 0; i < plan->count; i++) rounds_expect(expected, i, plan, world_size);
        MUST(ls_group_all_reduce(group, data, plan->count, plan->dtype, plan->op, handle) == LS_OK);
        break;
    }
    if (plan->is_async) MUST(ls_work_wait(work, 0) == LS_OK);
    ls_work_close(&work);
    if (result_bytes && memcmp(data, expected, result_bytes) != 0) {
        fprintf(stderr, "rank %d: wrong result: kind %d, %zu %s, %s, root %d, plan's seed %llx\n", rank, plan->kind,
                plan->count, ls_dtype_name(plan->dtype), ls_op_name(plan->op), plan->root,
                (unsigned long long)plan->seed);
        exit(1);
    }
    free(own);
}

/* `count` random rounds on `group`, in memory of the group and in ordinary memory. */
static inline void rounds_run_many(ls_group *group, uint64_t seed, int count) {
    const size_t most_bytes = (size_t)ls_group_world_size(group) * 100003 * 8;
    void *in_group = NULL;
    char *plain = malloc(most_bytes), *expected = malloc(most_bytes);
    MUST(plain && expected && ls_group_alloc(group, most_bytes, &in_group) == LS_OK);
    for (int round = 0; round < count; round++) {
        const rounds_plan plan = rounds_draw_plan(seed + (uint64_t)round, ls_group_world_size(group));
        rounds_run(group, &plan, plan.in_group ? in_group : plain, expected);
    }
    ls_group_free(group, in_group);
    free(plain);
    free(expected);
}

#endif
