/* test_faults.c: the tests' own tool for faults finds what it is meant to find. */
#include "support/faults.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>

static void *forgotten; /* by a careless make_two, for the test to free in the end */

/* Two allocations; forgets the first when the second fails if `is_careless`. */
static ls_status make_two(bool is_careless) {
    void *first = ls_alloc(8), *second = first ? ls_alloc(8) : NULL;
    const ls_status status = second ? LS_OK : LS_ERR_MEMORY;
    ls_free(second);
    if (!second && is_careless && first)
        forgotten = first;
    else
        ls_free(first);
    return status;
}

static void every_call_fails_once_and_then_none(void **state) {
    (void)state;
    int runs = 0, failed = 0;
    LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL) {
        const ls_status status = make_two(false);
        if (ls_fault_was_met()) assert_fault_reported(status);
        runs++;
        failed += status != LS_OK;
    }
    assert_int_equal(runs, 3);
    assert_int_equal(failed, 2);
    assert_nothing_left();
}

static void a_block_left_behind_is_seen(void **state) {
    (void)state;
    const uint64_t before = ls_alloc_live();
    LS_EACH_FAULT(LS_FAULT_MEMORY) make_two(true);
    assert_int_equal(ls_alloc_live(), before + 1);
    ls_free(forgotten);
}

static void fill_flag(void *flag) {
    *(int *)flag += 1;
}

static void a_point_is_counted_and_acted_on_at_the_wanted_hit(void **state) {
    (void)state;
    int flag = 0;
    ls_points_watch();
    ls_at_point("test.faults.here", -1, 2, fill_flag, &flag);
    for (int i = 0; i < 3; i++) ls_point("test.faults.here");
    assert_int_equal(ls_point_hits("test.faults.here"), 3);
    assert_int_equal(ls_point_hits("test.faults.elsewhere"), 0);
    assert_int_equal(flag, 1);
    ls_at_point(NULL, -1, 0, NULL, NULL);
}

int main(void) {
    unsetenv("RANK");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_once_and_then_none),
        cmocka_unit_test(a_block_left_behind_is_seen),
        cmocka_unit_test(a_point_is_counted_and_acted_on_at_the_wanted_hit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
