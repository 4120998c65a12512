/* test_closing.c: a group is closed or aborted while its threads drive it, wait in it, or poll it from another group: shown
 * for every interleaving of the library's own code (library.c).
 *
 *   every call returns        whoever waits is woken, without the help of a limit
 *   nothing is used late      the backend is not called after it was closed, no memory is used after it was freed
 *   nothing is left           the group's memory goes with the last who holds it                                      */
#include "models/scenes.h"

static const group_call a_barrier = {.kind = GROUP_BARRIER, .dtype = LS_U8};

static int other_caller; /* whom a thread starts when it has posted */

/* --- threads ------------------------------------------------------------------------------------------------------------ */

static ls_work *post(ls_group *group) {
    ls_work *work = NULL;
    explore_claim(group_post(group, &a_barrier, &work) == LS_OK, "a post fails");
    return work;
}

/* No peer comes: only the group's end ends it. */
static void wait_for_the_end(ls_work *work) {
    explore_claim(ls_work_wait(work, 0) == LS_ERR_ABORTED, "work of a group that has ended is not aborted");
    ls_work_close(&work);
}

static void close_group(void *argument) {
    ls_group *group = argument;
    ls_group_close(&group);
}

static void abort_group(void *argument) {
    ls_group_abort(argument, NULL);
}

static void post_and_close(void *argument) {
    ls_work *work = post(argument);
    close_group(argument);
    wait_for_the_end(work);
}

static void wait_while_it_closes(void *argument) {
    ls_work *work = post(argument);
    explore_start(other_caller, close_group, argument);
    wait_for_the_end(work);
}

static void look_while_it_closes(void *argument) {
    ls_work *work = post(argument);
    explore_start(other_caller, close_group, argument);
    ls_work_is_complete(work);
    ls_work_close(&work);
}

/* Its wait has ended because of the abort: so it may close, whatever the thread that aborts still does. */
static void wait_and_close(void *argument) {
    ls_work *work = post(argument);
    explore_start(other_caller, abort_group, argument);
    wait_for_the_end(work);
    close_group(argument);
}

static ls_work *posted; /* before the scene begins */

static void wait_for_posted(void *argument) {
    (void)argument;
    wait_for_the_end(posted);
}

/* The abort comes before, while or after it is posted. */
static void try_to_call(void *argument) {
    explore_claim(group_post(argument, &a_barrier, NULL) == LS_ERR_ABORTED,
                  "a call goes on in a group that is aborted");
}

static void find_that_the_peer_left(void *argument) {
    explore_claim(group_post(argument, &a_barrier, NULL) == LS_ERR_PEER_LOST, "a call goes on without its peer");
}

/* As who waits in the second group does between two sleeps. */
static void poll_beside(void *argument) {
    group_poll_others(argument);
}

static void close_with_posted(void *argument) {
    close_group(argument);
    wait_for_the_end(posted);
}

/* --- scenes ------------------------------------------------------------------------------------------------------------- */

static const ranks_plan by_callers = {.drivers = DRIVEN_BY_CALLERS, .has_failures = true, .has_closing = true},
                        by_all = {.drivers = DRIVEN_BY_ALL, .has_failures = true, .has_closing = true},
                        by_all_to_abort = {.drivers = DRIVEN_BY_ALL, .has_failures = true};

static bool is_freed(void) {
    return ranks_are_done() && ranks_have_freed(ranks_group(0, 0));
}

/* A begins, and starts B. */
static void begin_two(const ranks_plan *plan, void (*body)(void *argument)) {
    ranks_make(plan);
    other_caller = ranks_add_caller("rank 0, B", NULL, NULL);
    ranks_add_caller("rank 0, A", body, ranks_group(0, 0));
}

static void begin_close_driven(void) {
    ranks_make(&by_all);
    ranks_add_caller("rank 0", post_and_close, ranks_group(0, 0));
}

static void begin_close_waited(void) {
    begin_two(&by_callers, wait_while_it_closes);
}

static void begin_close_looked_at(void) {
    begin_two(&by_callers, look_while_it_closes);
}

static void begin_close_before_peer(void) {
    ranks_make(&by_callers);
    ranks_add_caller("rank 0", close_group, ranks_group(0, 0));
    ranks_add_caller("rank 1", find_that_the_peer_left, ranks_group(1, 0));
}

static void begin_close_polled(void) {
    ranks_make(&(ranks_plan){.drivers = DRIVEN_BY_CALLERS,
                             .groups = 2,
                             .has_failures = true,
                             .has_closing = true,
                             .has_others = true,
                             .several = SEVERAL_IN_FIRST});
    ranks_add_caller("rank 0, A", poll_beside, ranks_group(0, 1));
    ranks_add_caller("rank 0, B", close_with_posted, ranks_group(0, 0));
    posted = ranks_post_before(ranks_group(0, 0));
}

static void begin_abort(void) {
    begin_two(&by_callers, wait_and_close);
}

static void begin_abort_driven(void) {
    ranks_make(&by_all_to_abort);
    posted = ranks_post_before(ranks_group(0, 0));
    ranks_add_caller("rank 0, A", wait_for_posted, NULL);
    ranks_add_caller("rank 0, B", abort_group, ranks_group(0, 0));
}

static void begin_abort_called(void) {
    ranks_make(&by_callers);
    ranks_add_caller("rank 0, A", try_to_call, ranks_group(0, 0));
    ranks_add_caller("rank 0, B", abort_group, ranks_group(0, 0));
}

#define MOST_STATES 500000
static const explore_scene close_driven = {begin_close_driven, is_freed, MOST_STATES},
                           close_waited = {begin_close_waited, is_freed, MOST_STATES},
                           close_looked_at = {begin_close_looked_at, is_freed, MOST_STATES},
                           close_before_peer = {begin_close_before_peer, is_freed, MOST_STATES},
                           close_polled = {begin_close_polled, is_freed, MOST_STATES},
                           abort_and_close = {begin_abort, is_freed, MOST_STATES},
                           abort_driven = {begin_abort_driven, ranks_are_done, MOST_STATES},
                           abort_called = {begin_abort_called, ranks_are_done, MOST_STATES};

/* --- tests -------------------------------------------------------------------------------------------------------------- */

/* Each step, and a scene that misses it. Not among them: the barrier of await_empty, since on the way there a word is advanced,
 * which here is a barrier too. */
static const needed_step steps[] = {
    {{"group_enter", "change", "inside"}, &close_waited},
    {{"group_enter", "change", "inside"}, &close_looked_at},
    {{"group_enter", "change", "inside"}, &close_polled},
    {{"group_enter", "change", "inside"}, &abort_and_close},
    {{"group_exit", "barrier", NULL}, &close_looked_at},
    {{"group_exit", "advance", "event"}, &close_waited},
    {{"group_exit", "load", "is_lost"}, &abort_and_close},
    {{"await_empty", "load", "inside"}, &close_waited},
    {{"await_empty", "look", "event"}, &close_waited},
    {{"hold_next", "change", "users"}, &close_polled},
    {{"ls_group_abort", "change", "users"}, &abort_and_close},
    {{"work_take", "change", "users"}, &close_waited},
    {{"work_drop", "change", "holders"}, &close_waited},
    {{"shm_wake", "advance", "bell"}, &close_waited},
    {{"shm_wake", "advance", "bell"}, &abort_called},
    {{"wait_a_little", "load", "is_lost"}, &abort_called},
    {{"shm_leave", "advance", "bell"}, &close_before_peer},
    {{"shm_leave", "store", "standing"}, &close_before_peer},
    {{"progress_stop", "store", "is_closing"}, &close_driven},
    {{"progress_stop", "advance", "posted"}, &close_driven},
    {{"progress_stop", "join", NULL}, &close_driven},
    {{"sleep_idle", "load", "is_closing"}, &close_driven},
    {.scene = NULL},
};

int main(void) {
    const struct CMUnitTest tests[] = {
        SHOWN(a_group_closes_while_its_progress_thread_drives, close_driven),
        SHOWN(a_group_closes_while_another_thread_waits, close_waited),
        SHOWN(a_group_closes_while_another_thread_looks_at_its_work, close_looked_at),
        SHOWN(a_group_closes_while_another_thread_polls_it_beside_its_own, close_polled),
        SHOWN(a_peer_that_waits_learns_that_we_left, close_before_peer),
        SHOWN(an_abort_ends_a_wait_and_the_waiter_may_close, abort_and_close),
        SHOWN(an_abort_ends_a_wait_beside_the_progress_thread, abort_driven),
        SHOWN(an_abort_ends_a_call_whenever_it_comes, abort_called),
        NEEDED(no_step_of_closing_can_be_left_out, steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
