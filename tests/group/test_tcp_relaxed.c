/* All-reduces in relaxed order over tcp: right, alike on all ranks and in every run; ranks that differ in it are named. */
#include "group/tcp_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST ((size_t)300000)

static float value(int rank, size_t i) {
    return (float)((i * 7919 + (size_t)rank * 104729) % 1000) / 7.0F - 60.0F;
}

static ls_group *open_relaxed(const ls_rank *rank, bool is_relaxed, ls_status *status) {
    ls_group *group = NULL;
    ls_group_options options = rank_options(rank);
    options.timeout_ms = 60000;
    options.relaxed_order = is_relaxed;
    *status = group_open_backend(&group, &options, &tcp_backend);
    return group;
}

/* Small, middle and large: each has an algorithm of its own. */
static const size_t sizes[] = {1, 100, 5000, 70001, MOST};
#define SIZE_COUNT (sizeof sizes / sizeof sizes[0])

static float *results[8][2][SIZE_COUNT]; /* of each rank, in each of two runs */

static void reduce_all(const ls_rank *rank) {
    ls_status status = LS_OK;
    ls_group *group = open_relaxed(rank, true, &status);
    assert_ok(status);
    for (int run = 0; run < 2; run++)
        for (size_t s = 0; s < SIZE_COUNT; s++) {
            float *data = results[rank->rank][run][s] = malloc(sizes[s] * sizeof *data);
            for (size_t i = 0; i < sizes[s]; i++) data[i] = value(rank->rank, i);
            assert_ok(ls_group_all_reduce(group, data, sizes[s], LS_F32, LS_SUM, NULL));
        }
    ls_group_close(&group);
}

static void check(int world_size) {
    for (size_t s = 0; s < SIZE_COUNT; s++) {
        const size_t bytes = sizes[s] * sizeof(float);
        for (size_t i = 0; i < sizes[s]; i++) {
            double sum = 0, scale = 0;
            for (int rank = 0; rank < world_size; rank++) {
                sum += (double)value(rank, i);
                scale += fabs((double)value(rank, i));
            }
            assert_true(fabs((double)results[0][0][s][i] - sum) <= 1e-6 * scale);
        }
        for (int rank = 0; rank < world_size; rank++)
            for (int run = 0; run < 2; run++) {
                assert_memory_equal(results[rank][run][s], results[0][0][s], bytes);
                if (rank + run) free(results[rank][run][s]);
            }
        free(results[0][0][s]);
    }
}

static void sums_in_relaxed_order_are_right_and_alike(void **state) {
    (void)state;
    for (int world_size = 2; world_size <= 8; world_size += world_size == 5 ? 3 : 1) {
        run_ranks(world_size, reduce_all, NULL);
        check(world_size);
    }
}

static void differ(const ls_rank *rank) {
    ls_status status = LS_OK;
    ls_group *group = open_relaxed(rank, rank->rank == 1, &status);
    assert_null(group);
    assert_int_equal(status, LS_ERR_MISMATCH);
    assert_error_says("rank 1 and rank 0 do not agree on relaxed_order");
}

static void ranks_that_differ_in_it_are_named(void **state) {
    (void)state;
    run_ranks(3, differ, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_in_relaxed_order_are_right_and_alike),
        cmocka_unit_test(ranks_that_differ_in_it_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
