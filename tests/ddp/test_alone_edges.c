/* The reducer alone, where contents have to survive: a rebuild, a step that nobody uses a gradient in, marks in a step
 * that has failed already. Ranks are threads. */
#include "ddp/rank_results.h"

/* ---- A rebuild ---- */

enum { FEW = 3 };

static ls_status mark_upward(ls_reducer *reducer, double value) {
    ls_status status = ls_reducer_begin(reducer);
    for (int i = 0; i < FEW && status == LS_OK; i++) {
        *(double *)ls_reducer_gradient(reducer, i) = value + i;
        status = ls_reducer_ready(reducer, i);
    }
    return status == LS_OK ? ls_reducer_finish(reducer) : status;
}

/* `number`: 1 when gradient 0 lies in front of gradient 2. All are in one bucket. */
static bool is_upward(ls_reducer *reducer) {
    return (char *)ls_reducer_gradient(reducer, 0) < (char *)ls_reducer_gradient(reducer, 2);
}

static void marks_from_the_first(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const int rank = ls_group_rank(group);
    const ls_gradient gradients[FEW] = {
        {.name = "a", .dtype = LS_F64}, {.name = "b", .dtype = LS_F64}, {.name = "c", .dtype = LS_F64}};
    note(result, ls_reducer_create(&reducer, group, gradients, FEW, NULL));
    result->number = is_upward(reducer);
    note(result, mark_upward(reducer, rank));
    note_next(result, ls_reducer_begin(reducer));
    result->number = 10 * result->number + is_upward(reducer);
    for (int i = 0; i < FEW; i++) result->gradient[i] = *(double *)ls_reducer_gradient(reducer, i);
    for (int i = 0; i < FEW; i++) ls_reducer_ready(reducer, i);
    note_next(result, ls_reducer_finish(reducer));
    for (int i = 0; i < FEW; i++) result->next_gradient[i] = *(double *)ls_reducer_gradient(reducer, i);
    ls_reducer_close(&reducer);
}

static void gradients_lie_in_the_order_of_their_marks_from_the_second_step_and_keep_their_contents(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, marks_from_the_first, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_int_equal(results[rank].next_status, LS_OK);
        assert_int_equal(results[rank].number, 1); /* not at first, then so */
        for (int i = 0; i < FEW; i++) assert_near(results[rank].gradient[i], 0.5 + i);
        for (int i = 0; i < FEW; i++) assert_near(results[rank].next_gradient[i], 0.5 + i);
    }
}

/* ---- Used by nobody ---- */

/* "b" is marked in the first step alone; then the caller's memory holds something else. */
static void unmarked_memory_of_the_caller(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    double a = 0, b = 0;
    const ls_gradient gradients[] = {{.name = "a", .gradient = &a, .dtype = LS_F64},
                                     {.name = "b", .gradient = &b, .dtype = LS_F64}};
    const ls_reducer_options options = {.find_unused_parameters = true};
    note(result, ls_reducer_create(&reducer, group, gradients, 2, &options));
    for (int step = 0; step < 2; step++) {
        a = b = step == 0 ? 1 : 7;
        ls_reducer_begin(reducer);
        ls_reducer_ready(reducer, 0);
        if (step == 0) ls_reducer_ready(reducer, 1);
        note(result, ls_reducer_finish(reducer));
    }
    result->gradient[0] = a;
    result->gradient[1] = b;
    ls_reducer_close(&reducer);
}

static void what_no_rank_marks_is_not_written_into_the_callers_memory(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, unmarked_memory_of_the_caller, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(results[rank].status, LS_OK);
        assert_true(results[rank].gradient[0] == 7 && results[rank].gradient[1] == 7);
    }
}

/* ---- A step that has failed already ---- */

/* Rank 1 has failed before the step, so the header is bad; both mark on, far more often than there are gradients. */
static void mark_on(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const ls_gradient gradients[] = {{.name = "a", .dtype = LS_F64}, {.name = "b", .dtype = LS_F64}};
    note(result, ls_reducer_create(&reducer, group, gradients, 2, NULL));
    if (ls_group_rank(group) == 1) ls_reducer_fail(reducer, LS_ERR_IO, "no data");
    ls_reducer_begin(reducer);
    assert_ok(ls_group_barrier(group, NULL)); /* all headers are on their way */
    for (int i = 0; i < 100000; i++) ls_reducer_ready(reducer, i % 2);
    note(result, ls_reducer_finish(reducer));
    note_next(result, ls_reducer_begin(reducer));
    for (int i = 0; i < 2; i++) {
        *(double *)ls_reducer_gradient(reducer, i) = ls_group_rank(group) + 1;
        ls_reducer_ready(reducer, i);
    }
    note_next(result, ls_reducer_finish(reducer));
    for (int i = 0; i < 2; i++) result->next_gradient[i] = *(double *)ls_reducer_gradient(reducer, i);
    ls_reducer_close(&reducer);
}

static void marks_in_a_failed_step_change_nothing_however_many_they_are(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, mark_on, results);
    for (int rank = 0; rank < 2; rank++) {
        /* A second mark before the header is back is a failure of its own, and rank 0's comes first. */
        const bool is_early = results[rank].status == LS_ERR_STATE && strstr(results[rank].text, "marked ready twice");
        const bool is_told = results[rank].status == LS_ERR_IO && strstr(results[rank].text, "rank 1: no data");
        assert_true(is_early || is_told);
        assert_string_equal(results[rank].text, results[0].text);
        assert_int_equal(results[rank].next_status, LS_OK);
        for (int i = 0; i < 2; i++) assert_near(results[rank].next_gradient[i], 1.5);
    }
}

/* A peer that left fails each begin with the group's error: none of them leaves a step under way. */
static void begin_without_a_peer(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const ls_gradient gradients[] = {{.name = "a", .dtype = LS_F64}};
    note(result, ls_reducer_create(&reducer, group, gradients, 1, NULL));
    if (ls_group_rank(group) == 0) {
        for (int i = 0; i < 4; i++) {
            ls_status status = ls_reducer_begin(reducer);
            if (status == LS_OK) status = ls_reducer_finish(reducer);
            result->number += status == LS_ERR_PEER_LOST || status == LS_ERR_ABORTED;
        }
    }
    ls_reducer_close(&reducer);
}

static void a_begin_that_fails_leaves_no_step_under_way(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, begin_without_a_peer, results);
    assert_int_equal(results[0].status, LS_OK);
    assert_int_equal(results[0].number, 4);
}

/* ---- What is looked at, and what is said ---- */

enum { VALUES = 5 };
static int bad_place;

static void one_bad_value(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    const int rank = ls_group_rank(group);
    float narrow[VALUES];
    double wide[VALUES];
    const ls_gradient gradients[] = {
        {.name = "narrow", .gradient = narrow, .dtype = LS_F32, .ndim = 1, .dims = {VALUES}},
        {.name = "wide", .gradient = wide, .dtype = LS_F64, .ndim = 1, .dims = {VALUES}}};
    ls_reducer_create(&reducer, group, gradients, 2, &(ls_reducer_options){.find_nonfinite = true});
    for (int i = 0; i < VALUES; i++) narrow[i] = (float)(wide[i] = 1);
    if (rank == 1 && bad_place < VALUES) narrow[bad_place] = NAN;
    if (rank == 1 && bad_place >= VALUES) wide[bad_place - VALUES] = -INFINITY;
    ls_reducer_begin(reducer);
    ls_reducer_ready(reducer, 0);
    ls_reducer_ready(reducer, 1);
    note(result, ls_reducer_finish(reducer));
    ls_reducer_close(&reducer);
}

static void a_value_that_is_not_finite_is_found_wherever_it_stands(void **state) {
    (void)state;
    rank_result results[2];
    for (bad_place = 0; bad_place < 2 * VALUES; bad_place++) {
        run_scenario(2, one_bad_value, results);
        for (int rank = 0; rank < 2; rank++)
            assert_said(&results[rank], LS_ERR_NONFINITE, bad_place < VALUES ? "narrow on rank 1" : "wide on rank 1");
    }
}

enum { MANY = 30 };

static void many_missing(ls_group *group, rank_result *result) {
    ls_reducer *reducer = NULL;
    ls_gradient gradients[MANY];
    char names[MANY][16];
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "missing-%d.", i);
        gradients[i] = (ls_gradient){.name = names[i], .dtype = LS_F64};
    }
    ls_reducer_create(&reducer, group, gradients, MANY, NULL);
    ls_reducer_begin(reducer);
    note(result, ls_reducer_finish(reducer));
    ls_reducer_close(&reducer);
}

static void of_many_gradients_that_are_missing_a_few_are_named_for_each_rank(void **state) {
    (void)state;
    rank_result results[2];
    run_scenario(2, many_missing, results);
    for (int rank = 0; rank < 2; rank++) {
        assert_said(&results[rank], LS_ERR_UNUSED, "rank 0: missing-0.");
        assert_non_null(strstr(results[rank].text, "rank 1: missing-0."));
        assert_null(strstr(results[rank].text, "missing-8."));
        assert_non_null(strstr(results[rank].text, "find_unused_parameters")); /* what to do is not cut off */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_lie_in_the_order_of_their_marks_from_the_second_step_and_keep_their_contents),
        cmocka_unit_test(what_no_rank_marks_is_not_written_into_the_callers_memory),
        cmocka_unit_test(marks_in_a_failed_step_change_nothing_however_many_they_are),
        cmocka_unit_test(a_begin_that_fails_leaves_no_step_under_way),
        cmocka_unit_test(a_value_that_is_not_finite_is_found_wherever_it_stands),
        cmocka_unit_test(of_many_gradients_that_are_missing_a_few_are_named_for_each_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
