/* The reducer without our autograd: gradients of the caller's own. Ranks are threads. */
#include "ddp/rank_results.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>

/* Five values that are the rank's number, in the caller's memory and in the reducer's. */
static void rank_numbers(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const int rank = ls_group_rank(group);
    float own[5];
    const ls_gradient gradients[] = {
        {.name = "own", .gradient = own, .dtype = LS_F32, .ndim = 1, .dims = {5}},
        {.name = "placed", .dtype = LS_F64, .ndim = 2, .dims = {2, 2}},
    };
    note(result, ls_reducer_create(&reducer, group, gradients, 2, NULL));
    for (int step = 0; step < 3 && reducer; step++) {
        note_next(result, ls_reducer_begin(reducer));
        double *placed = ls_reducer_gradient(reducer, 1);
        for (int i = 0; i < 5; i++) own[i] = (float)rank;
        for (int i = 0; i < 4; i++) placed[i] = rank + i;
        ls_reducer_ready(reducer, 1);
        ls_reducer_ready(reducer, 0);
        note_next(result, ls_reducer_finish(reducer));
        placed = ls_reducer_gradient(reducer, 1);
        for (int i = 0; i < 4; i++) result->gradient[i] = placed[i];
        for (int i = 0; i < 4; i++) result->next_gradient[i] = (double)own[i + 1];
    }
    ls_reducer_close(&reducer);
}

static void gradients_by_hand_are_averaged(void **state) {
    (void)state;
    rank_result results[MOST_RANKS];
    run_scenario(MOST_RANKS, rank_numbers, results);
    for (int rank = 0; rank < MOST_RANKS; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
        for (int i = 0; i < 4; i++) {
            assert_near(results[rank].gradient[i], 1.5 + i);
            assert_near(results[rank].next_gradient[i], 1.5);
        }
    }
}

/* A transposed view and every other element of a row. */
static void strided_memory(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const int rank = ls_group_rank(group);
    double matrix[6], row[6];
    for (int i = 0; i < 6; i++) matrix[i] = row[i] = i + rank;
    const ls_gradient gradients[] = {
        {.name = "transposed", .gradient = matrix, .dtype = LS_F64, .ndim = 2, .dims = {3, 2}, .strides = {1, 3}},
        {.name = "every other", .gradient = row, .dtype = LS_F64, .ndim = 1, .dims = {3}, .strides = {2}},
    };
    note(result, ls_reducer_create(&reducer, group, gradients, 2, NULL));
    ls_reducer_begin(reducer);
    ls_reducer_ready(reducer, 0);
    ls_reducer_ready(reducer, 1);
    note(result, ls_reducer_finish(reducer));
    for (int i = 0; i < 6; i++) result->gradient[i] = matrix[i];
    for (int i = 0; i < 6; i++) result->next_gradient[i] = row[i];
    ls_reducer_close(&reducer);
}

static void strided_gradients_are_read_and_written_where_they_lie(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, strided_memory, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        for (int i = 0; i < 6; i++) {
            assert_near(results[rank].gradient[i], i + 0.5);
            assert_near(results[rank].next_gradient[i], i % 2 ? i + rank : i + 0.5); /* between them nothing changes */
        }
    }
}

/* "b" is marked by nobody; "c" by rank 1 alone. Both lie in the reducer and hold 7 beforehand. */
static void marks_missing(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const int rank = ls_group_rank(group);
    const ls_gradient gradients[] = {{.name = "a", .dtype = LS_F64, .ndim = 0},
                                     {.name = "b", .dtype = LS_F64, .ndim = 0},
                                     {.name = "c", .dtype = LS_F64, .ndim = 0}};
    const ls_reducer_options options = {.find_unused_parameters = result->number == 1};
    note(result, ls_reducer_create(&reducer, group, gradients, 3, &options));
    ls_reducer_begin(reducer);
    for (int i = 0; i < 3; i++) *(double *)ls_reducer_gradient(reducer, i) = 7;
    *(double *)ls_reducer_gradient(reducer, 0) = rank;
    ls_reducer_ready(reducer, 0);
    if (rank == 1) ls_reducer_ready(reducer, 2);
    note(result, ls_reducer_finish(reducer));
    for (int i = 0; i < 3; i++) result->gradient[i] = *(double *)ls_reducer_gradient(reducer, i);
    ls_reducer_begin(reducer);
    for (int i = 0; i < 3; i++) {
        *(double *)ls_reducer_gradient(reducer, i) = rank + 1;
        ls_reducer_ready(reducer, i);
    }
    note_next(result, ls_reducer_finish(reducer));
    for (int i = 0; i < 3; i++) result->next_gradient[i] = *(double *)ls_reducer_gradient(reducer, i);
    ls_reducer_close(&reducer);
}

static void marks_missing_with_search(ls_group *group, rank_result *result) {
    result->number = 1;
    marks_missing(group, result);
}

static void a_missing_mark_is_an_error_on_all_ranks_or_with_search_left_as_it_was(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, marks_missing, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_said(&results[rank], LS_ERR_UNUSED, "rank 0: b, c; rank 1: b");
        assert_int_equal(results[rank].next_status, LS_OK);
        for (int i = 0; i < 3; i++) assert_near(results[rank].next_gradient[i], 1.5);
    }
    run_scenario(2, marks_missing_with_search, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_near(results[rank].gradient[0], 0.5);
        assert_true(results[rank].gradient[1] == 7); /* used by nobody */
        assert_near(results[rank].gradient[2], 3.5); /* rank 0 gave zero */
    }
}

static void marked_twice(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const int rank = ls_group_rank(group);
    const ls_gradient gradients[] = {{.name = "a", .dtype = LS_F64, .ndim = 0},
                                     {.name = "b", .dtype = LS_F64, .ndim = 0}};
    ls_reducer_create(&reducer, group, gradients, 2, NULL);
    ls_reducer_begin(reducer);
    ls_reducer_ready(reducer, 0);
    if (rank == 1) result->number = ls_reducer_ready(reducer, 0);
    ls_reducer_ready(reducer, 1);
    note(result, ls_reducer_finish(reducer));
    ls_reducer_begin(reducer);
    ls_reducer_ready(reducer, 0);
    ls_reducer_ready(reducer, 1);
    note_next(result, ls_reducer_finish(reducer));
    ls_reducer_close(&reducer);
}

static void a_second_mark_fails_the_step_on_all_ranks(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, marked_twice, results);
    assert_int_equal(results[1].number, LS_ERR_STATE);
    for (int rank = 0; rank < 2; rank++) {
        assert_said(&results[rank], LS_ERR_STATE, "rank 1: gradient \"a\": parameter 0 is marked ready twice");
        assert_int_equal(results[rank].next_status, LS_OK);
    }
}

static void failed_by_the_program(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const int rank = ls_group_rank(group);
    const ls_gradient gradients[] = {{.name = "a", .dtype = LS_F64, .ndim = 0}};
    ls_reducer_create(&reducer, group, gradients, 1, NULL);
    ls_reducer_begin(reducer);
    if (rank == 0)
        ls_reducer_ready(reducer, 0);
    else
        ls_reducer_fail(reducer, LS_ERR_MEMORY, "no room for the activations");
    note(result, ls_reducer_finish(reducer));
    ls_reducer_close(&reducer);
}

static void a_failure_of_the_program_reaches_all_ranks_in_its_own_words(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, failed_by_the_program, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_ERR_MEMORY);
        assert_string_equal(results[rank].text, "rank 1: no room for the activations");
    }
}

/* ---- From any thread, any order, any types, any bucket size ---- */

#define MANY 40

typedef struct marker_share {
    ls_reducer *reducer;
    const int *order;
    int first, last;
} marker_share;

static void *mark_some(void *argument) {
    const marker_share *marker = argument;
    for (int i = marker->first; i < marker->last; i++) ls_reducer_ready(marker->reducer, marker->order[i]);
    return NULL;
}

static void mark_from_threads(ls_reducer *reducer, const int *order) {
    pthread_t threads[4];
    marker_share markers[4];
    for (int i = 0; i < 4; i++) {
        markers[i] = (marker_share){reducer, order, i * MANY / 4, (i + 1) * MANY / 4};
        pthread_create(&threads[i], NULL, mark_some, &markers[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static int64_t numel_of(int index) {
    return index % 7 == 3 ? 0 : 1 + index * 13 % 50;
}

static void put(void *memory, ls_dtype dtype, int64_t at, double value) {
    if (dtype == LS_F32)
        ((float *)memory)[at] = (float)value;
    else
        ((double *)memory)[at] = value;
}

static double get(const void *memory, ls_dtype dtype, int64_t at) {
    return dtype == LS_F32 ? (double)((const float *)memory)[at] : ((const double *)memory)[at];
}

static void many_from_threads(ls_group *group, rank_result *result) {
    static const size_t caps[] = {1, 100, 1000, 0};
    const int rank = ls_group_rank(group);
    char names[MANY][16];
    ls_gradient gradients[MANY] = {0};
    int order[MANY];
    unsigned seed = (unsigned)rank + 1;
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "g%d", i);
        gradients[i] =
            (ls_gradient){.name = names[i], .dtype = i % 3 ? LS_F32 : LS_F64, .ndim = 1, .dims = {numel_of(i)}};
        order[i] = i;
    }
    for (size_t cap = 0; cap < sizeof caps / sizeof caps[0]; cap++) {
        ls_reducer *reducer = NULL;
        note(result,
             ls_reducer_create(&reducer, group, gradients, MANY, &(ls_reducer_options){.bucket_cap_bytes = caps[cap]}));
        if (!reducer) return;
        for (int step = 0; step < 5; step++) {
            for (int i = MANY - 1; i > 0; i--) { /* every rank and step in an order of its own */
                const int other = rand_r(&seed) % (i + 1), held = order[i];
                order[i] = order[other];
                order[other] = held;
            }
            ls_reducer_begin(reducer);
            for (int i = 0; i < MANY; i++)
                for (int64_t at = 0; at < numel_of(i); at++)
                    put(ls_reducer_gradient(reducer, i), gradients[i].dtype, at, (rank + 1) * (i + (double)at) + step);
            mark_from_threads(reducer, order);
            note(result, ls_reducer_finish(reducer));
            for (int i = 0; i < MANY; i++)
                for (int64_t at = 0; at < numel_of(i); at++)
                    result->number += get(ls_reducer_gradient(reducer, i), gradients[i].dtype, at) !=
                                      2 * (i + (double)at) + step; /* mean of 1, 2, 3 times it: exact */
        }
        ls_reducer_close(&reducer);
    }
}

static void any_thread_may_mark_in_any_order_with_any_buckets(void **state) {
    (void)state;
    rank_result results[3];
    run_scenario(3, many_from_threads, results);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].number, 0);
    }
}

static void misuse(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const ls_gradient good = {.name = "a", .dtype = LS_F64, .ndim = 0};
    const ls_gradient bad = {.name = "words", .dtype = LS_I64, .ndim = 0};
    note(result, ls_reducer_create(&reducer, group, &bad, 1, NULL));
    ls_reducer_create(&reducer, group, &good, 1, NULL);
    result->gradient[0] = ls_reducer_ready(reducer, 0); /* before begin */
    result->gradient[1] = ls_reducer_finish(reducer);   /* before begin */
    ls_reducer_begin(reducer);
    result->gradient[2] = ls_reducer_begin(reducer);    /* twice */
    result->gradient[3] = ls_reducer_ready(reducer, 1); /* no such gradient */
    ls_reducer_ready(reducer, 0);
    note_next(result, ls_reducer_finish(reducer));
    ls_reducer_close(&reducer);
}

static void misuse_is_an_error_that_spoils_nothing(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, misuse, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_said(&results[rank], LS_ERR_ARGUMENT, "\"words\" is i64");
        assert_true(results[rank].gradient[0] == LS_ERR_STATE);
        assert_true(results[rank].gradient[1] == LS_ERR_STATE);
        assert_true(results[rank].gradient[2] == LS_ERR_STATE);
        assert_true(results[rank].gradient[3] == LS_ERR_ARGUMENT);
        assert_int_equal(results[rank].next_status, LS_OK);
    }
}

static void close_within_a_step(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const ls_gradient gradients[] = {{.name = "a", .dtype = LS_F64, .ndim = 1, .dims = {200000}},
                                     {.name = "b", .dtype = LS_F64, .ndim = 0}};
    const ls_reducer_options options = {.bucket_cap_bytes = 1};
    note_next(result, ls_reducer_create(&reducer, group, gradients, 2, &options));
    ls_reducer_begin(reducer);
    ls_reducer_ready(reducer, 1);
    if (ls_group_rank(group) == 0) {
        ls_reducer_ready(reducer, 0);
        note(result, ls_reducer_finish(reducer));
    }
    ls_reducer_close(&reducer);
}

static void a_reducer_closed_within_a_step_leaves_nothing_and_the_others_hear_of_it(void **state) {
    (void)state;
    rank_result results[2];
    const uint64_t live = ls_alloc_live();
    run_scenario(2, close_within_a_step, results);
    assert_int_equal(ls_alloc_live(), live);
    assert_int_equal(results[0].next_status, LS_OK);
    assert_int_equal(results[0].status, LS_ERR_ABORTED);
    assert_non_null(strstr(results[0].text, "rank 1"));
    assert_non_null(strstr(results[0].text, "closed within a step"));
}

static void fail_before_begin(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    double gradient = ls_group_rank(group) + 1;
    const ls_gradient one = {.name = "a", .dtype = LS_F64, .ndim = 0, .gradient = &gradient};
    ls_reducer_create(&reducer, group, &one, 1, NULL);
    if (ls_group_rank(group) == 1) ls_reducer_fail(reducer, LS_ERR_IO, "the batch cannot be read");
    for (int step = 0; step < 2; step++) {
        gradient = ls_group_rank(group) + 1;
        ls_reducer_begin(reducer);
        ls_reducer_ready(reducer, 0);
        const ls_status status = ls_reducer_finish(reducer);
        step == 0 ? note(result, status) : note_next(result, status);
    }
    result->gradient[0] = gradient;
    ls_reducer_close(&reducer);
}

static void a_failure_told_between_steps_fails_the_next_one_on_all_ranks(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, fail_before_begin, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_ERR_IO);
        assert_string_equal(results[rank].text, "rank 1: the batch cannot be read");
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_near(results[rank].gradient[0], 1.5);
    }
}

static void past_what_memory_can_hold(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    ls_gradient huge = {.name = "a", .dtype = LS_F32, .ndim = 1, .dims = {(INT64_C(1) << 62) - 1}};
    note(result, ls_reducer_create(&reducer, group, &huge, 1, NULL));
    huge = (ls_gradient){.name = "a", .dtype = LS_F32, .ndim = 9};
    result->number = ls_reducer_create(&reducer, group, &huge, 1, NULL);
    huge = (ls_gradient){.name = "a", .dtype = LS_F32, .ndim = 3, .dims = {0, INT64_MAX, INT64_MAX}};
    note_next(result, ls_reducer_create(&reducer, group, &huge, 1, NULL));
    ls_reducer_close(&reducer);
}

static void dims_whose_product_no_memory_can_hold_are_refused(void **state) {
    (void)state;
    rank_result results[1];
    run_scenario(1, past_what_memory_can_hold, results);
    assert_int_equal(results[0].status, LS_ERR_ARGUMENT);
    assert_non_null(strstr(results[0].text, "past what memory can hold"));
    assert_int_equal(results[0].number, LS_ERR_ARGUMENT); /* more dims than there are */
    assert_int_equal(results[0].next_status, LS_OK);      /* a dim of 0: no elements */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_by_hand_are_averaged),
        cmocka_unit_test(strided_gradients_are_read_and_written_where_they_lie),
        cmocka_unit_test(a_missing_mark_is_an_error_on_all_ranks_or_with_search_left_as_it_was),
        cmocka_unit_test(a_second_mark_fails_the_step_on_all_ranks),
        cmocka_unit_test(a_failure_of_the_program_reaches_all_ranks_in_its_own_words),
        cmocka_unit_test(any_thread_may_mark_in_any_order_with_any_buckets),
        cmocka_unit_test(misuse_is_an_error_that_spoils_nothing),
        cmocka_unit_test(a_reducer_closed_within_a_step_leaves_nothing_and_the_others_hear_of_it),
        cmocka_unit_test(a_failure_told_between_steps_fails_the_next_one_on_all_ranks),
        cmocka_unit_test(dims_whose_product_no_memory_can_hold_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
