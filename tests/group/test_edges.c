/* test_edges.c: values that are no numbers, as many ranks as a host may have, ranks that come late to an opening, duplicates of duplicates. */
#include "base/clock.h"
#include "base/wait.h"
#include "support/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- values ----------------------------------------------------------------------------------------------------------- */

static void put(void *data, ls_dtype dtype, size_t at, double value) {
    if (dtype == LS_F32)
        ((float *)data)[at] = (float)value;
    else
        ((double *)data)[at] = value;
}

static double get(const void *data, ls_dtype dtype, size_t at) {
    return dtype == LS_F32 ? (double)((const float *)data)[at] : ((const double *)data)[at];
}

/* Element i of rank r is special when i % 5 says so: NaN on one rank, infinity, opposite infinities, else r + 1. */
static double value_of(size_t i, int rank) {
    switch (i % 5) {
    case 0: return rank == 1 ? (double)NAN : 1;
    case 1: return rank == 2 ? (double)INFINITY : 1;
    case 2: return rank == 0 ? (double)INFINITY : rank == 1 ? (double)-INFINITY : 1;
    case 3: return rank == 0 ? (double)NAN : (double)INFINITY;
    default: return rank + 1;
    }
}

static bool is_expected(double found, size_t i, ls_op op) {
    switch (i % 5) {
    case 0:
    case 3: return isnan(found);
    case 1: return isinf(found) && found > 0;
    case 2: return op == LS_SUM ? isnan(found) : isinf(found) && found > 0;
    default: return found == (op == LS_SUM ? 6 : 3);
    }
}

/* Small, large in place and large staged: each path has a loop of its own. */
static void reduce_what_is_no_number(const ls_rank *rank) {
    static const size_t counts[] = {5, 100, 70001};
    ls_group *group = open_rank(rank);
    void *shared = NULL, *ordinary = malloc(70001 * sizeof(double));
    assert_non_null(ordinary);
    assert_ok(ls_group_alloc(group, 70001 * sizeof(double), &shared));
    for (int round = 0; round < 24; round++) {
        const ls_dtype dtype = round % 2 ? LS_F32 : LS_F64;
        const ls_op op = round / 2 % 2 ? LS_SUM : LS_MAX;
        void *data = round / 4 % 2 ? shared : ordinary;
        const size_t count = counts[round / 8];
        for (size_t i = 0; i < count; i++) put(data, dtype, i, value_of(i, rank->rank));
        assert_ok(ls_group_all_reduce(group, data, count, dtype, op, NULL));
        for (size_t i = 0; i < count; i++) assert_true(is_expected(get(data, dtype, i), i, op));
    }
    free(ordinary);
    ls_group_close(&group);
}

static void nan_and_infinity_propagate_on_every_path(void **state) {
    (void)state;
    run_ranks(3, reduce_what_is_no_number, NULL);
}

/* --- many ranks ------------------------------------------------------------------------------------------------------- */

enum { MANY_RANKS = 64, PIECE = 301, LARGE = MANY_RANKS * PIECE }; /* past what travels with a call, and not even */

/* What rank `from` has at `i`: small whole numbers, so that every sum is exact. */
static float element(int from, size_t i) {
    return (float)(from + (int)(i % 1000));
}

static float sum_at(size_t i) {
    const int sum_of_ranks = MANY_RANKS * (MANY_RANKS - 1) / 2, sum = sum_of_ranks + MANY_RANKS * (int)(i % 1000);
    return (float)sum;
}

static void move_much(const ls_rank *rank) {
    ls_group *group = open_rank(rank);
    void *shared = NULL;
    float *ordinary = malloc(LARGE * sizeof(float)), *result = malloc(LARGE * sizeof(float));
    assert_true(ordinary && result);
    assert_ok(ls_group_alloc(group, LARGE * sizeof(float), &shared));
    for (int round = 0; round < 2; round++) {
        float *data = round ? shared : ordinary;
        const size_t first = (size_t)rank->rank * PIECE;
        for (size_t i = 0; i < LARGE; i++) data[i] = element(rank->rank, i);
        assert_ok(ls_group_reduce_scatter(group, data, result, PIECE, LS_F32, LS_SUM, NULL));
        for (size_t i = 0; i < PIECE; i++) assert_true(result[i] == sum_at(first + i));
        assert_ok(ls_group_all_to_all(group, data, result, PIECE, LS_F32, NULL));
        for (size_t i = 0; i < LARGE; i++) assert_true(result[i] == element((int)(i / PIECE), first + i % PIECE));
        assert_ok(ls_group_all_gather(group, data + first, result, PIECE, LS_F32, NULL));
        for (size_t i = 0; i < LARGE; i++) assert_true(result[i] == element((int)(i / PIECE), i));
        assert_ok(ls_group_all_reduce(group, data, LARGE, LS_F32, LS_SUM, NULL));
        for (size_t i = 0; i < LARGE; i++) assert_true(data[i] == sum_at(i));
    }
    free(ordinary);
    free(result);
    ls_group_close(&group);
}

static void sixty_four_ranks_move_what_is_large(void **state) {
    (void)state;
    run_ranks(MANY_RANKS, move_much, NULL);
}

/* --- late ranks ------------------------------------------------------------------------------------------------------- */

static ls_status try_to_open(const ls_rank *rank, int64_t timeout_ms) {
    ls_group *group = NULL;
    ls_group_options options = rank_options(rank);
    options.timeout_ms = timeout_ms;
    const ls_status status = ls_group_open(&group, &options);
    if (status == LS_OK) {
        float value = 1;
        assert_ok(ls_group_all_reduce(group, &value, 1, LS_F32, LS_SUM, NULL));
        assert_true(value == (float)rank->world_size);
    } else {
        assert_null(group);
    }
    ls_group_close(&group);
    return status;
}

static void all_but_rank_1(const ls_rank *rank) {
    if (rank->rank == 1) return;
    assert_int_equal(try_to_open(rank, 200), LS_ERR_TIMEOUT);
    assert_error_says("did not meet within 200 ms; missing: rank 1;");
}

static void rank_1_alone(const ls_rank *rank) {
    if (rank->rank != 1) return;
    assert_int_equal(try_to_open(rank, 60000), LS_ERR_TIMEOUT); /* at once: the others have given up */
    assert_error_says("missing: rank 1;");
}

static void all_together(const ls_rank *rank) {
    assert_ok(try_to_open(rank, 60000));
}

static void a_rank_that_comes_too_late_is_named_and_told_and_all_may_try_again(void **state) {
    (void)state;
    ls_store *store = NULL;
    assert_ok(ls_store_open_hash(&store));
    for (int i = 0; i < 2; i++) {
        run_ranks_over(store, 3, all_but_rank_1, NULL);
        run_ranks_over(store, 3, rank_1_alone, NULL);
        run_ranks_over(store, 3, all_together, NULL);
    }
    ls_store_close(&store);
}

/* --- duplicates of duplicates ------------------------------------------------------------------------------------------ */

#define DEEP 200

static void duplicate_deeply(const ls_rank *rank) {
    ls_group *groups[DEEP] = {open_rank(rank)};
    int depth = 1;
    ls_status status = LS_OK;
    while (depth < DEEP && (status = ls_group_duplicate(&groups[depth], groups[depth - 1])) == LS_OK) depth++;
    assert_int_equal(status, LS_ERR_STATE); /* names of keys have an end */
    assert_error_says("a group made of a group");
    assert_true(depth > 20);
    for (int i = 0; i < depth; i++) {
        float value = 1;
        assert_ok(ls_group_all_reduce(groups[i], &value, 1, LS_F32, LS_SUM, NULL));
        assert_true(value == 2);
    }
    for (int i = 0; i < depth; i++) ls_group_close(&groups[i]);
}

static void duplicates_of_duplicates_work_until_an_error_says_that_it_is_too_much(void **state) {
    (void)state;
    run_ranks(2, duplicate_deeply, NULL);
}

static void wait_with_a_limit_of_centuries(const ls_rank *rank) {
    ls_group_options options = rank_options(rank);
    options.timeout_ms = INT64_MAX;
    ls_group *group = NULL;
    assert_ok(ls_group_open(&group, &options));
    /* Late enough that rank 0 has to sleep, and so to look at its limit. */
    if (rank->rank == 1) ls_sleep_until(ls_now_ns() + 50 * LS_NS_PER_MS);
    assert_ok(ls_group_barrier(group, NULL));
    ls_group_close(&group);
}

static void a_limit_of_centuries_is_none(void **state) {
    (void)state;
    run_ranks(2, wait_with_a_limit_of_centuries, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_of_centuries_is_none),
        cmocka_unit_test(nan_and_infinity_propagate_on_every_path),
        cmocka_unit_test(sixty_four_ranks_move_what_is_large),
        cmocka_unit_test(a_rank_that_comes_too_late_is_named_and_told_and_all_may_try_again),
        cmocka_unit_test(duplicates_of_duplicates_work_until_an_error_says_that_it_is_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
