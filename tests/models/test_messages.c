/* test_messages.c: sends and receives, by tag and from any rank, beside collectives: shown for every interleaving of the
 * library's own code (library.c) and of the protocol of shared memory (src/group/backend/shm/messages.c).
 *
 *   each message arrives      where its tag says, in order, and its source is told
 *   none waits for another    nor for a collective, whoever drives: a driver that sleeps is woken for what is posted beside  */
#include "models/scenes.h"

/* What is received, and of whom. Not on a thread's stack, since another thread may be the one that drives. */
static struct {
    _Alignas(128) uint8_t data[2];
    int source[2];
} inbox;

/* --- threads ------------------------------------------------------------------------------------------------------------ */

static ls_work *start_send(ls_group *group, int to, int tag) {
    static const uint8_t data[] = {0, 1, 2}; /* its tag */
    ls_work *work = NULL;
    explore_claim(ls_group_send(group, &data[tag], 1, LS_U8, to, tag, &work) == LS_OK, "a send is not posted");
    return work;
}

static ls_work *start_receive(ls_group *group, int from, int tag, int place) {
    ls_work *work = NULL;
    explore_claim(ls_group_receive(group, &inbox.data[place], 1, LS_U8, from, tag, &inbox.source[place], &work) ==
                      LS_OK,
                  "a receive is not posted");
    return work;
}

static void finish(ls_work *work) {
    explore_claim(ls_work_wait(work, 0) == LS_OK, "a message fails");
    ls_work_close(&work);
}

static void receive_of_1(ls_group *group, int tag, int place) {
    finish(start_receive(group, 1, tag, place));
    explore_claim(inbox.data[place] == tag, "a message is not what was sent with its tag");
    explore_claim(inbox.source[place] == 1, "a message's source is not its sender");
}

static void send_two(void *argument) {
    ls_work *first = start_send(argument, 0, 1), *second = start_send(argument, 0, 2);
    finish(first);
    finish(second);
}

static void receive_the_second_first(void *argument) {
    receive_of_1(argument, 2, 1);
    receive_of_1(argument, 1, 0);
}

static void send_tag_1(void *argument) {
    finish(start_send(argument, 0, 1));
}

static int one_receiver;

static void receive_tag_1(void *argument) {
    receive_of_1(argument, 1, 0);
}

static void receive_tag_2(void *argument) {
    receive_of_1(argument, 2, 1);
}

static void receive_of_anyone(void *argument) {
    finish(start_receive(argument, LS_ANY_RANK, 1, 0));
    finish(start_receive(argument, LS_ANY_RANK, 1, 1));
    explore_claim(inbox.source[0] + inbox.source[1] == 3 && inbox.source[0] != 0 && inbox.source[1] != 0,
                  "two messages of two ranks are not one of each");
}

static void post_send(void *argument) {
    ls_work *work = start_send(argument, 1, 1);
    ls_work_close(&work);
}

static void receive_of_0(void *argument) {
    finish(start_receive(argument, 0, 1, 0));
}

static void abort_group(void *argument) {
    ls_group_abort(argument, NULL);
}

static int aborter;

static void receive_in_vain(void *argument) {
    ls_work *work = start_receive(argument, 1, 1, 0);
    explore_start(aborter, abort_group, argument);
    explore_claim(ls_work_wait(work, 0) == LS_ERR_ABORTED, "a message of an aborted group goes on");
    ls_work_close(&work);
}

/* --- scenes ------------------------------------------------------------------------------------------------------------- */

static void make(ranks_plan plan) {
    explore_share(&inbox, sizeof inbox);
    plan.has_messages = true;
    ranks_make(&plan);
}

static void begin_tags(void) {
    make((ranks_plan){.drivers = DRIVEN_BY_CALLERS, .several = SEVERAL_NOWHERE});
    ranks_add_caller("rank 0", receive_the_second_first, ranks_group(0, 0));
    ranks_add_caller("rank 1", send_two, ranks_group(1, 0));
}

static void begin_anyone(void) {
    make((ranks_plan){.drivers = DRIVEN_BY_CALLERS, .several = SEVERAL_NOWHERE, .ranks = 3});
    ranks_add_caller("rank 0", receive_of_anyone, ranks_group(0, 0));
    ranks_add_caller("rank 1", send_tag_1, ranks_group(1, 0));
    ranks_send_before(2, 1);
}

/* A's message does not come. */
static void begin_two_receivers(void) {
    make((ranks_plan){.drivers = DRIVEN_BY_CALLERS, .several = SEVERAL_IN_FIRST, .lanes_are_quiet = true});
    ranks_add_caller("rank 0, A", receive_tag_1, ranks_group(0, 0));
    one_receiver = ranks_add_caller("rank 0, B", receive_tag_2, ranks_group(0, 0));
    ranks_send_before(1, 2);
}

static bool one_has_received(void) {
    return explore_has_ended(one_receiver);
}

/* Rank 1 does not come: A sleeps, and has to be woken for what B posts. */
static void begin_beside_collective(void) {
    make((ranks_plan){.drivers = DRIVEN_BY_CALLERS, .several = SEVERAL_IN_FIRST, .lanes_are_quiet = true});
    ranks_add_caller("rank 0, A", scene_call, ranks_group(0, 0));
    ranks_add_caller("rank 0, B", post_send, ranks_group(0, 0));
}

static void begin_collective_beside(void) {
    make((ranks_plan){.drivers = DRIVEN_BY_CALLERS, .several = SEVERAL_IN_FIRST, .lanes_are_quiet = true});
    ranks_add_caller("rank 0, A", receive_tag_1, ranks_group(0, 0));
    ranks_add_caller("rank 0, B", scene_post, ranks_group(0, 0));
}

/* Only the progress thread can end it. */
static void begin_alone(void) {
    make((ranks_plan){.drivers = DRIVEN_BY_ALL, .several = SEVERAL_IN_FIRST, .lanes_are_quiet = true});
    ranks_add_caller("rank 0", post_send, ranks_group(0, 0));
    ranks_add_caller("rank 1", receive_of_0, ranks_group(1, 0));
}

static void begin_abort(void) {
    make((ranks_plan){.drivers = DRIVEN_BY_CALLERS, .has_failures = true});
    ranks_add_caller("rank 0, A", receive_in_vain, ranks_group(0, 0));
    aborter = ranks_add_caller("rank 0, B", NULL, NULL);
}

#define MOST_STATES 1000000
static const explore_scene tags = {begin_tags, ranks_are_done, MOST_STATES},
                           anyone = {begin_anyone, ranks_are_done, MOST_STATES},
                           two_receivers = {begin_two_receivers, one_has_received, MOST_STATES},
                           beside_collective = {begin_beside_collective, ranks_has_begun_message, MOST_STATES},
                           collective_beside = {begin_collective_beside, ranks_has_begun_collective, MOST_STATES},
                           alone = {begin_alone, ranks_are_done, MOST_STATES},
                           aborted = {begin_abort, ranks_are_done, MOST_STATES};

/* --- tests -------------------------------------------------------------------------------------------------------------- */

/* Each step, and a scene that misses it. */
static const needed_step steps[] = {
    {{"shm_wake", "advance", "bell"}, &beside_collective},
    {{"shm_wake", "advance", "bell"}, &collective_beside},
    {{"wait_a_little", "load", "first"}, &collective_beside},
    {{"group_has_mail", "load", "mail_count"}, &beside_collective},
    {{"append", "change", "mail_count"}, &alone},
    {{"progress_notice", "advance", "posted"}, &alone},
    {{"work_end", "advance", "event"}, &two_receivers},
    {{"publish", "advance", "bell"}, &tags},
    {{"publish", "store", "value"}, &tags},
    {{"shm_sleep", "look", "bell"}, &tags},
    {.scene = NULL},
};

int main(void) {
    const struct CMUnitTest tests[] = {
        SHOWN(messages_arrive_by_their_tags_in_any_order, tags),
        SHOWN(messages_of_any_rank_arrive_with_their_source, anyone),
        SHOWN(a_receiver_returns_whoever_drives, two_receivers),
        SHOWN(a_message_does_not_wait_for_a_collective, beside_collective),
        SHOWN(a_collective_does_not_wait_for_a_message, collective_beside),
        SHOWN(a_message_that_nobody_waits_for_is_driven_to_its_end, alone),
        SHOWN(an_abort_ends_messages, aborted),
        NEEDED(no_step_of_messages_can_be_left_out, steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
