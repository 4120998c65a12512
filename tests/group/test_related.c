/* test_related.c: groups made of a group whose making fails, in a world of one: nothing is left, and the parent goes on; what
 * they take over from their parent; calls that name nothing. */
#include "support/faults.h"
#include "support/threads.h"

#include "group/group.h"

#include <string.h>

static const ls_group_options options = {.world_size = 1, .timeout_ms = 54321, .relaxed_order = true};

/* A handle that is no group: a call that fails takes it away. */
static ls_group *const no_group = (ls_group *)(void *)&options;

static ls_group *open_alone(const ls_backend *backend) {
    ls_group *group = NULL;
    assert_ok(group_open_backend(&group, &options, backend));
    return group;
}

/* The call's result: a group that works, or none. */
static void close_made(ls_status status, ls_group **made) {
    if (status == LS_OK) {
        assert_ok(ls_group_barrier(*made, NULL));
        ls_group_close(made);
    } else {
        assert_int_equal(status, LS_ERR_MEMORY);
        assert_null(*made);
    }
}

static void a_group_that_lacks_memory_leaves_nothing(void **state) {
    (void)state;
    const int alone = 0;
    LS_EACH_FAULT(LS_FAULT_MEMORY) {
        ls_group *group = NULL, *made = no_group, *turns = NULL;
        if (group_open_backend(&group, &options, &solo_backend) != LS_OK) continue;
        close_made(ls_group_duplicate(&made, group), &made);
        made = no_group;
        close_made(ls_group_subgroup(&made, group, &alone, 1), &made);
        made = no_group;
        close_made(ls_group_split(&made, group, 1, 0), &made);
        if (ls_group_round_robin(&turns, &group, 1) == LS_OK) {
            made = no_group;
            close_made(ls_group_duplicate(&made, turns), &made);
        } else {
            assert_null(turns);
        }
        ls_group_close(&turns);
        assert_ok(ls_group_barrier(group, NULL));
        ls_group_close(&group);
    }
    assert_nothing_left();
}

static int polls_left;

static backend_progress poll_some(void *state, backend_op *op) {
    if (--polls_left > 0) return solo_backend.poll(state, op);
    op->status = ls_fail(LS_ERR_IO, "broken");
    return BACKEND_FAILED;
}

/* The members have agreed, and the group is open: then the parent is lost before all know that. */
static void a_parent_lost_while_a_subgroup_opens_takes_it_along(void **state) {
    (void)state;
    ls_backend backend = solo_backend;
    backend.poll = poll_some;
    const int alone = 0;
    ls_fault_first(0); /* counts what there is: nothing is made to fail */
    ls_group *group = open_alone(&backend), *made = no_group;
    polls_left = 2;
    assert_int_equal(ls_group_subgroup(&made, group, &alone, 1), LS_ERR_IO);
    assert_error_says("broken");
    assert_null(made);
    ls_group_close(&group);
    assert_nothing_left();
}

static bool is_dead;

static ls_status open_unless_dead(const backend_place *place, void **state) {
    return is_dead ? ls_fail(LS_ERR_PEER_LOST, "rank 0 died") : solo_backend.open(place, state);
}

static void a_death_while_a_relative_opens_loses_the_parent(void **state) {
    (void)state;
    ls_backend backend = solo_backend;
    backend.open = open_unless_dead;
    is_dead = false;
    ls_group *group = open_alone(&backend), *made = no_group;
    is_dead = true;
    assert_int_equal(ls_group_duplicate(&made, group), LS_ERR_PEER_LOST);
    assert_null(made);
    assert_int_equal(ls_group_barrier(group, NULL), LS_ERR_PEER_LOST);
    assert_error_says("rank 0 died");
    ls_group_close(&group);
}

static void a_relative_has_its_parents_limit_and_order(void **state) {
    (void)state;
    const int alone = 0;
    ls_group *group = open_alone(&solo_backend), *made[2] = {NULL};
    assert_ok(ls_group_duplicate(&made[0], group));
    assert_ok(ls_group_subgroup(&made[1], group, &alone, 1));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(made[i]->timeout_ms, options.timeout_ms);
        assert_true(made[i]->relaxed_order);
        ls_group_close(&made[i]);
    }
    ls_group_close(&group);
}

/* Cut by a character, it would be another group's too. */
static void a_name_that_just_does_not_fit_is_refused(void **state) {
    (void)state;
    ls_group *group = open_alone(&solo_backend), *made = NULL;
    memset(group->prefix, 'x', sizeof group->prefix - strlen("/d1.0"));
    assert_int_equal(ls_group_duplicate(&made, group), LS_ERR_STATE);
    assert_error_says("too many times over");
    group->prefix[sizeof group->prefix - strlen("/d2.0") - 1] = '\0';
    assert_ok(ls_group_duplicate(&made, group));
    ls_group_close(&made);
    ls_group_close(&group);
}

static void calls_that_name_nothing_are_refused(void **state) {
    (void)state;
    const int below = -1;
    ls_group *group = open_alone(&solo_backend), *made = NULL;
    assert_int_equal(ls_group_duplicate(NULL, group), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_duplicate(&made, NULL), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_subgroup(&made, group, NULL, 1), LS_ERR_ARGUMENT);
    assert_int_equal(ls_group_subgroup(&made, group, &below, 1), LS_ERR_ARGUMENT);
    assert_error_says("a subgroup of rank -1, in a group of 1 ranks");
    assert_false(ls_group_is_member(NULL));
    ls_group_close(&group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_that_lacks_memory_leaves_nothing),
        cmocka_unit_test(a_parent_lost_while_a_subgroup_opens_takes_it_along),
        cmocka_unit_test(a_death_while_a_relative_opens_loses_the_parent),
        cmocka_unit_test(a_relative_has_its_parents_limit_and_order),
        cmocka_unit_test(a_name_that_just_does_not_fit_is_refused),
        cmocka_unit_test(calls_that_name_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
