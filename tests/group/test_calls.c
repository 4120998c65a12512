/* test_calls.c: what follows from a call alone: what its kind is, what combines its elements, and the sentences when ranks'
 * calls differ. */
#include "support/threads.h"

#include "group/compare.h"
#include "group/group.h"
#include "group/reduce.h"

#include <stdlib.h>

/* --- kinds ------------------------------------------------------------------------------------------------------------- */

typedef struct kind_row {
    group_kind kind;
    bool is_message, combines, is_agreement;
} kind_row;

static const kind_row kinds[] = {
    {.kind = GROUP_ALL_REDUCE, .combines = true},
    {.kind = GROUP_BROADCAST},
    {.kind = GROUP_ALL_GATHER},
    {.kind = GROUP_BARRIER},
    {.kind = GROUP_ALLOCATE, .is_agreement = true},
    {.kind = GROUP_DUPLICATE, .is_agreement = true},
    {.kind = GROUP_REDUCE, .combines = true},
    {.kind = GROUP_GATHER},
    {.kind = GROUP_SCATTER},
    {.kind = GROUP_REDUCE_SCATTER, .combines = true},
    {.kind = GROUP_ALL_TO_ALL},
    {.kind = GROUP_ALL_TO_ALL_UNEVEN},
    {.kind = GROUP_SUBGROUP, .is_agreement = true},
    {.kind = GROUP_SEND, .is_message = true},
    {.kind = GROUP_RECEIVE, .is_message = true},
};

static void a_kind_says_what_a_call_is(void **state) {
    (void)state;
    assert_int_equal(sizeof kinds / sizeof *kinds, GROUP_KIND_COUNT - 1);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const group_kind kind = kinds[i].kind;
        assert_int_equal(kind, i + 1); /* none is missing */
        assert_int_equal(kind_is_message(kind), kinds[i].is_message);
        assert_int_equal(kind_combines(kind), kinds[i].combines);
        assert_int_equal(kind_is_agreement(kind), kinds[i].is_agreement);
        /* Only what combines has something that combines: an op of 0 is a sum's, which a call without one has too. */
        const group_call call = {.kind = kind, .dtype = LS_F32, .op = LS_SUM};
        assert_ptr_equal(reduce_kernel_of(&call), kinds[i].combines ? reduce_kernel_for(LS_F32, LS_SUM) : NULL);
    }
}

static void what_there_is_not_has_no_kernel(void **state) {
    (void)state;
    assert_null(reduce_kernel_for(LS_DTYPE_COUNT, LS_SUM));
    assert_null(reduce_kernel_for((ls_dtype)-1, LS_SUM));
    assert_null(reduce_kernel_for(LS_F32, LS_OP_COUNT));
    assert_null(reduce_kernel_for(LS_F32, (ls_op)-1));
}

static void every_op_has_its_name(void **state) {
    (void)state;
    static const char *const names[LS_OP_COUNT] = {"sum",     "max",     "bitwise or",  "min",
                                                   "product", "average", "bitwise and", "bitwise xor"};
    for (int op = 0; op < LS_OP_COUNT; op++) assert_string_equal(ls_op_name((ls_op)op), names[op]);
    assert_string_equal(ls_op_name(LS_OP_COUNT), "unknown op");
    assert_string_equal(ls_op_name((ls_op)-1), "unknown op");
}

static void a_round_over_messages_begins_with_the_first(void **state) {
    (void)state;
    ls_work first = {0}, second = {0};
    backend_op collective = {0};
    ls_group group = {0};
    assert_false(mail_begins_with(&group, &collective)); /* no messages: no round */
    first.next = &second;
    group.mail = &first;
    assert_true(mail_begins_with(&group, &first.op));
    assert_false(mail_begins_with(&group, &second.op));
    assert_false(mail_begins_with(&group, &collective));
}

/* --- calls that differ ------------------------------------------------------------------------------------------------- */

static void both_calls_are_named_the_lower_rank_first(void **state) {
    (void)state;
    const rank_call low = {.rank = 2, .number = 7, .call = {.kind = GROUP_BARRIER}};
    const rank_call high = {
        .rank = 5, .number = 7, .call = {.kind = GROUP_BROADCAST, .dtype = LS_U8, .count = 3, .root = 1}};
    const char *sentence = "rank 2 called barrier, rank 5 broadcast of 3 u8 from rank 1, operation 7; all ranks";
    assert_int_equal(calls_differ(&low, &high), LS_ERR_MISMATCH);
    assert_error_says(sentence);
    assert_int_equal(calls_differ(&high, &low), LS_ERR_MISMATCH);
    assert_error_says(sentence);
}

static void a_rank_that_is_ahead_is_named_with_its_number(void **state) {
    (void)state;
    const rank_call behind = {.rank = 0, .number = 7, .call = {.kind = GROUP_BARRIER}};
    const rank_call ahead = {.rank = 1, .number = 9, .call = {.kind = GROUP_BARRIER}};
    assert_int_equal(calls_differ(&ahead, &behind), LS_ERR_MISMATCH);
    assert_error_says("rank 0 called barrier, operation 7, rank 1 barrier, operation 9; all ranks");
}

/* What one rank said, where the others said reduce of 10 f32 max to rank 3, with tag 0x1002. */
typedef struct other_record {
    int rank;
    call_record said;
    const char *sentence;
} other_record;

static const other_record others[] = {
    {1, {.kind = GROUP_BARRIER}, "rank 0 called reduce of 10 f32 max to rank 3 (tag 0x1002), rank 1 barrier, oper"},
    {3,
     {.kind = GROUP_REDUCE, .dtype = LS_F64, .op = LS_MAX, .root = 3, .count = 10, .tag = 0x1002},
     "rank 3 reduce of 10 f64 max to rank 3 (tag 0x1002), operation 8;"},
    {2,
     {.kind = GROUP_REDUCE, .dtype = LS_F32, .op = LS_MIN, .root = 3, .count = 10, .tag = 0x1002},
     "rank 2 reduce of 10 f32 min to rank 3 (tag 0x1002), operation 8;"},
    {2,
     {.kind = GROUP_REDUCE, .dtype = LS_F32, .op = LS_MAX, .root = 1, .count = 10, .tag = 0x1002},
     "rank 2 reduce of 10 f32 max to rank 1 (tag 0x1002), operation 8;"},
    {2,
     {.kind = GROUP_REDUCE, .dtype = LS_F32, .op = LS_MAX, .root = 3, .count = 11, .tag = 0x1002},
     "rank 2 reduce of 11 f32 max to rank 3 (tag 0x1002), operation 8;"},
    {2,
     {.kind = GROUP_REDUCE, .dtype = LS_F32, .op = LS_MAX, .root = 3, .count = 10, .tag = 0x1102},
     "rank 2 reduce of 10 f32 max to rank 3 (tag 0x1102), operation 8;"},
};

static void whatever_differs_in_records_is_said(void **state) {
    (void)state;
    const group_call call = {
        .kind = GROUP_REDUCE, .dtype = LS_F32, .op = LS_MAX, .root = 3, .count = 10, .tag = 0x1002};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        call_record records[4];
        for (int rank = 0; rank < 4; rank++) records[rank] = call_record_of(&call);
        assert_ok(compare_records(records, 4, 8));
        records[others[i].rank] = others[i].said;
        assert_int_equal(compare_records(records, 4, 8), LS_ERR_MISMATCH);
        assert_error_says(others[i].sentence);
    }
}

static void counts_that_differ_name_who_sends_and_who_expects(void **state) {
    (void)state;
    const size_t expected[3] = {4, 5, 6}, alike[3] = {4, 5, 6}, first[3] = {9, 5, 6}, last[3] = {4, 5, 7};
    const backend_op op = {.number = 12, .call = {.kind = GROUP_ALL_TO_ALL_UNEVEN, .receive_counts = expected}};
    assert_ok(compare_counts(alike, 1, 3, &op));
    assert_int_equal(compare_counts(first, 1, 3, &op), LS_ERR_MISMATCH);
    assert_error_says("rank 0 sends 9 elements to rank 1, which expects 4 of it, operation 12, uneven all-to-all");
    assert_int_equal(compare_counts(last, 1, 3, &op), LS_ERR_MISMATCH);
    assert_error_says("rank 2 sends 7 elements to rank 1, which expects 6 of it, operation 12, uneven all-to-all");
}

static void calls_are_compared_first_where_detail_is_asked_for(void **state) {
    (void)state;
    static const struct {
        const char *asked;
        ls_status status;
        bool compares;
    } cases[] = {{"", LS_OK, false},
                 {"off", LS_OK, false},
                 {"OFF", LS_OK, false},
                 {"detail", LS_OK, true},
                 {"DETAIL", LS_OK, true},
                 {"details", LS_ERR_ENVIRONMENT, false},
                 {"info", LS_ERR_ENVIRONMENT, false},
                 {"1", LS_ERR_ENVIRONMENT, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool compares = !cases[i].compares;
        setenv("LOCKSTEP_DEBUG", cases[i].asked, 1);
        assert_int_equal(read_compares_all_calls(&compares), cases[i].status);
        assert_int_equal(compares, cases[i].compares);
    }
    assert_error_says("LOCKSTEP_DEBUG is \"1\": expected \"detail\" or \"off\"");
    unsetenv("LOCKSTEP_DEBUG");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kind_says_what_a_call_is),
        cmocka_unit_test(what_there_is_not_has_no_kernel),
        cmocka_unit_test(every_op_has_its_name),
        cmocka_unit_test(a_round_over_messages_begins_with_the_first),
        cmocka_unit_test(both_calls_are_named_the_lower_rank_first),
        cmocka_unit_test(a_rank_that_is_ahead_is_named_with_its_number),
        cmocka_unit_test(whatever_differs_in_records_is_said),
        cmocka_unit_test(counts_that_differ_name_who_sends_and_who_expects),
        cmocka_unit_test(calls_are_compared_first_where_detail_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
