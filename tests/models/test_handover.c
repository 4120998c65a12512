/* test_handover.c: who drives a group is handed over between its threads, and who sleeps is woken: shown for every
 * interleaving of the library's own code (library.c). And each barrier, wake and look taken out of it is found: so the
 * exploration sees what it is there to see.
 *
 *   one driver     at most one thread is in the backend at a time
 *   no sleeper is left    from every state the end is reached: all calls have returned, all work is complete. A sleep with a
 *                  limit (the slices of drive.c) counts as one without: the limit is there for ranks that die. Only the
 *                  progress thread's moment may pass, since it goes by time.                                           */
#include "models/scenes.h"

/* --- scenes ------------------------------------------------------------------------------------------------------------- */

static void arrive(void *argument) {
    ranks_arrive(argument, 2);
}

static void arrive_once(void *argument) {
    ranks_arrive(argument, 1);
}

static const ranks_plan driven_by_callers = {.drivers = DRIVEN_BY_CALLERS}, driven_by_all = {.drivers = DRIVEN_BY_ALL};

/* Each may sleep for the other, in each phase. */
static void begin_two_ranks(void) {
    ranks_make(&(ranks_plan){.drivers = DRIVEN_BY_CALLERS, .has_second_phase = true});
    ranks_add_caller("rank 0", scene_call_twice, ranks_group(0, 0));
    ranks_add_caller("rank 1", scene_call_twice, ranks_group(1, 0));
}

/* The waiter and the progress thread hand the driver to each other. */
static void begin_post_and_wait(void) {
    ranks_make(&driven_by_all);
    ranks_add_caller("rank 0", scene_post_and_wait, ranks_group(0, 0));
    ranks_add_caller("rank 1", arrive, ranks_group(1, 0));
}

/* Only the progress thread can end it. */
static void begin_post_alone(void) {
    ranks_make(&driven_by_all);
    ranks_add_caller("rank 0", scene_post, ranks_group(0, 0));
    ranks_add_caller("rank 1", arrive, ranks_group(1, 0));
}

/* Two threads of a rank call at once, and nobody else drives. */
static void begin_two_callers(void) {
    ranks_make(&driven_by_callers);
    ranks_add_caller("rank 0, A", scene_call, ranks_group(0, 0));
    ranks_add_caller("rank 0, B", scene_call, ranks_group(0, 0));
    ranks_add_caller("rank 1", arrive, ranks_group(1, 0));
}

/* A's call cannot end before B, whose work is before it, has returned: whoever drives both has to let B go at once. */
static int second_caller;

static void post_wait_and_let_on(void *argument) {
    static const group_call a_barrier = {.kind = GROUP_BARRIER, .dtype = LS_U8};
    ls_work *work = NULL;
    explore_claim(group_post(argument, &a_barrier, &work) == LS_OK, "a post fails");
    explore_start(second_caller, scene_call, argument);
    explore_claim(ls_work_wait(work, 0) == LS_OK, "a wait fails");
    ls_work_close(&work);
    ranks_arrive(ranks_group(1, 0), 2);
}

static void begin_dependent_callers(void) {
    ranks_make(&driven_by_callers);
    second_caller = ranks_add_caller("rank 0, A", NULL, ranks_group(0, 0));
    ranks_add_caller("rank 0, B", post_wait_and_let_on, ranks_group(0, 0));
    ranks_add_caller("rank 1", arrive_once, ranks_group(1, 0));
}

/* Who posts finds another thread driving, who will not look at the queue again: as one at the end of its own call. */
static void drive_for_a_moment(void *argument) {
    if (group_try_drive(argument)) group_stop_driving(argument);
}

static void begin_poster_beside_caller(void) {
    ranks_make(&driven_by_all);
    ranks_add_caller("rank 0, A", drive_for_a_moment, ranks_group(0, 0));
    ranks_add_caller("rank 0, B", scene_post, ranks_group(0, 0));
    ranks_have_arrived(ranks_group(1, 0), 2);
}

/* Rank 0 waits in one group first, rank 1 in the other: they would keep each other back, did rank 0 not poll both. */
static void wait_in_order(int rank, int first, int second) {
    ls_work *works[2] = {NULL, NULL};
    for (int which = 0; which < 2; which++)
        explore_claim(ls_group_barrier(ranks_group(rank, which), &works[which]) == LS_OK, "a post fails");
    explore_claim(ls_work_wait(works[first], 0) == LS_OK, "a wait fails");
    explore_claim(ls_work_wait(works[second], 0) == LS_OK, "a wait fails");
    ls_work_close(&works[0]);
    ls_work_close(&works[1]);
}

static void wait_in_the_first(void *argument) {
    (void)argument;
    wait_in_order(0, 0, 1);
}

static void wait_in_the_second(void *argument) {
    (void)argument;
    wait_in_order(1, 1, 0);
}

static void begin_two_groups(void) {
    ranks_make(&(ranks_plan){.drivers = DRIVEN_BY_CALLERS,
                             .groups = 2,
                             .has_second_phase = true,
                             .has_others = true,
                             .several = SEVERAL_NOWHERE});
    ranks_add_caller("rank 0", wait_in_the_first, NULL);
    ranks_add_caller("rank 1", wait_in_the_second, NULL);
}

static const explore_scene two_ranks = {begin_two_ranks, ranks_are_done, 1000000},
                           waiter = {begin_post_and_wait, ranks_are_done, 1000000},
                           poster = {begin_post_alone, ranks_are_done, 1000000},
                           two_callers = {begin_two_callers, ranks_are_done, 1000000},
                           dependent = {begin_dependent_callers, ranks_are_done, 1000000},
                           two_groups = {begin_two_groups, ranks_are_done, 1000000},
                           beside = {begin_poster_beside_caller, ranks_are_done, 1000000};

/* --- tests -------------------------------------------------------------------------------------------------------------- */

/* Each step of the hand-over, and a scene that misses it. Not among them: the wake of a driver who sleeps in the backend
 * (shm_wake), without which a waiter comes to drive later, but comes; test_closing.c and test_messages.c need it. */
static const needed_step steps[] = {
    {{"group_try_drive", "exchange", "driver"}, &two_callers},
    {{"group_stop_driving", "barrier", NULL}, &two_callers},
    {{"group_stop_driving", "advance", "event"}, &two_callers},
    {{"group_await_driver", "change", "waiters"}, &two_callers},
    {{"group_await_driver", "barrier", NULL}, &two_callers},
    {{"group_await_driver", "look", "event"}, &two_callers},
    {{"work_end", "barrier", NULL}, &dependent},
    {{"work_end", "advance", "event"}, &dependent},
    {{"wait_a_little", "barrier", NULL}, &two_ranks},
    {{"sleep_idle", "store", "progress_sleeps"}, &poster},
    {{"sleep_idle", "barrier", NULL}, &poster},
    {{"sleep_idle", "look", "posted"}, &poster},
    {{"progress_notice", "barrier", NULL}, &beside},
    {{"progress_notice", "advance", "posted"}, &poster},
    {{"shm_sleep", "store", "sleeping"}, &two_ranks},
    {{"shm_sleep", "barrier", NULL}, &two_ranks},
    {{"shm_sleep", "look", "bell"}, &two_ranks},
    {{"shm_nudge", "advance", "bell"}, &two_ranks},
    {{"is_left_to_callers", "load", "first"}, &two_groups},
    {.scene = NULL},
};

int main(void) {
    const struct CMUnitTest tests[] = {
        SHOWN(ranks_that_sleep_for_each_other_are_woken, two_ranks),
        SHOWN(a_waiter_and_the_progress_thread_hand_over, waiter),
        SHOWN(work_that_nobody_waits_for_is_driven_to_its_end, poster),
        SHOWN(work_posted_while_another_drives_is_driven_to_its_end, beside),
        SHOWN(callers_of_one_group_hand_over, two_callers),
        SHOWN(a_caller_goes_on_as_soon_as_its_work_is_complete, dependent),
        SHOWN(no_order_of_waits_in_two_groups_hangs, two_groups),
        NEEDED(no_step_of_the_hand_over_can_be_left_out, steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
