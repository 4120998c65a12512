/* test_handover.c: who drives a group is handed over between its threads, and who sleeps is woken: shown for every
 * interleaving of the library's own code, compiled here over explore.h. And each barrier, wake and look taken out of it is
 * found: so the exploration sees what it is there to see.
 *
 *   one driver     at most one thread is in the backend at a time
 *   no sleeper is left    from every state the end is reached: all calls have returned, all work is complete. A sleep with a
 *                  limit (the slices of drive.c) counts as one without: the limit is there for ranks that die. Only the
 *                  progress thread's moment may pass, since it goes by time.
 *
 * Two ranks live in one process here, each with a group of its own; the backend is the real one's sleeping and waking
 * (shm/peers.c) over an operation that is done when all ranks have come to it. */
#include "support/test.h"

#include "models/shared.h"

#include "base/context.h"
#include "base/live.h"
#include "base/log.h"
#include "base/memory.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "group/group.h"

#include "group/backend/shm/shm.h"
#include "group/describe.h"

/* --- in place of what is not shown here --------------------------------------------------------------------------------- */

#undef LS_ASSERT_DRIVER
#undef LS_ASSERT_NONE_HELD
#define LS_ASSERT_DRIVER(group) ((void)0)
#define LS_ASSERT_NONE_HELD() ((void)0)
#define ls_alloc_raw(bytes) take_block(bytes)
#define ls_free(block) ((void)(block))
/* Of polls in vain only the last: those before read the same. Spinning takes no time. */
#define ls_spin_hint() ((void)(waited->polls = UINT32_MAX / 2))
#undef LS_NS_PER_MS
#define LS_NS_PER_MS a_millisecond
static int64_t a_millisecond;

static void *take_block(size_t bytes);

#define WAIT(word, seen, until, expires) \
    ((void)(seen), (void)(until), explore_word_wait(HERE(#word), (void *)(word), expires))
#define ls_word_wait(word, seen, until) WAIT(word, seen, until, false)
/* The code itself. NOLINTBEGIN(bugprone-suspicious-include) */
#include "../../src/group/backend/shm/peers.c"
#include "../../src/group/drive.c"
#include "../../src/group/post.c"
#include "../../src/group/work.c"
/* The moment of the progress thread passes; its idle sleep has no limit. */
#undef ls_word_wait
#define ls_word_wait(word, seen, until) WAIT(word, seen, until, (until) != LS_DEADLINE_NEVER)
#undef ls_thread_start
#define ls_thread_start(thread, name, body, argument) start_progress(thread, body, argument)
#define ls_thread_join(thread) join_progress(thread)
static ls_status start_progress(ls_thread *thread, void (*body)(void *argument), void *argument);
static void join_progress(ls_thread *thread);
#include "../../src/group/progress.c"
/* NOLINTEND(bugprone-suspicious-include) */

uint64_t flight_begin(flight_recorder *recorder, const backend_op *op, int64_t posted_ns) {
    (void)recorder, (void)op, (void)posted_ns;
    return 0;
}
void flight_started(flight_recorder *recorder, uint64_t record, int64_t started_ns) {
    (void)recorder, (void)record, (void)started_ns;
}
void flight_end(flight_recorder *recorder, uint64_t record, int64_t started_ns, int64_t ended_ns, bool is_done) {
    (void)recorder, (void)record, (void)started_ns, (void)ended_ns, (void)is_done;
}
void flight_write(ls_group *group) {
    (void)group;
}
bool flight_is_wanted(flight_recorder *recorder) {
    (void)recorder;
    return false;
}
void mail_fail(ls_group *group) {
    (void)group;
}
backend_progress mail_poll(ls_group *group) {
    (void)group;
    return BACKEND_PENDING;
}
void mail_complete(ls_work **link, ls_status status) {
    (void)link, (void)status;
}
bool group_poll_others(const ls_group *waiting) {
    (void)waiting;
    return false;
}
ls_group *group_next_lane(ls_group *group) {
    return group;
}
ls_status group_lose(ls_group *group, ls_status status) {
    (void)group, (void)status;
    explore_claim(false, "a group is lost");
    return LS_ERR_INTERNAL;
}
ls_status group_check(ls_group *group) {
    (void)group;
    return LS_OK;
}
ls_status group_check_thread(const ls_group *group) {
    (void)group;
    return LS_OK;
}
void group_drop_user(ls_group *group) {
    (void)group;
}

/* --- a backend ---------------------------------------------------------------------------------------------------------- */

#define RANKS 2
#define MOST_WORKS 2

typedef struct model_rank {
    shm_group shm;
    int inside; /* threads in the backend */
    int works;  /* blocks of `memory` that are taken */
    ls_work memory[MOST_WORKS];
} model_rank;

/* What ranks see of each other: the last operation that each has come to, and the last that each is through with. */
static _Atomic uint64_t *arrived[RANKS], *finished[RANKS];
static model_rank *ranks[RANKS];
static ls_group *groups[RANKS];
static int progress_threads[RANKS];
static bool has_second_phase; /* operations end when all are through, as those in place do */

static model_rank *rank_of(void *state) {
    return (model_rank *)((char *)state - offsetof(model_rank, shm));
}

static void model_start(void *state, backend_op *op) {
    const shm_group *shm = state;
    explore_claim(rank_of(state)->inside == 0, "two threads drive one group");
    op->scratch[0] = 0; /* the phase */
    atomic_store_explicit(arrived[shm->rank], op->number, memory_order_release);
}

static bool have_all_come(_Atomic uint64_t *const counts[], const shm_group *shm, uint64_t number) {
    for (int peer = 0; peer < RANKS; peer++)
        if (peer != shm->rank && atomic_load_explicit(counts[peer], memory_order_acquire) < number) return false;
    return true;
}

static backend_progress go_on(const shm_group *shm, backend_op *op) {
    if (op->scratch[0] == 1) return have_all_come(finished, shm, op->number) ? BACKEND_DONE : BACKEND_PENDING;
    if (!have_all_come(arrived, shm, op->number)) return BACKEND_PENDING;
    if (!has_second_phase) return BACKEND_DONE;
    op->scratch[0] = 1;
    atomic_store_explicit(finished[shm->rank], op->number, memory_order_release);
    return BACKEND_MOVED;
}

backend_progress shm_poll(void *state, backend_op *op) {
    model_rank *rank = rank_of(state);
    explore_claim(++rank->inside == 1, "two threads drive one group");
    const backend_progress progress = go_on(&rank->shm, op);
    rank->inside--;
    return progress;
}

bool shm_waits_for(const shm_group *shm, const backend_op *op, int peer) {
    (void)shm, (void)op, (void)peer;
    return false;
}

static int spare_processors(const void *state) {
    (void)state;
    return -1;
}

static ls_status examine_nobody(void *state, backend_op *op) {
    (void)state, (void)op;
    return LS_OK;
}

static const ls_backend model_backend = {.name = "model",
                                         .reach = LS_REACH_HOST,
                                         .spare_processors = spare_processors,
                                         .start = model_start,
                                         .poll = shm_poll,
                                         .examine = examine_nobody,
                                         .describe_missing = shm_describe_missing,
                                         .bell = shm_bell,
                                         .sleep = shm_sleep,
                                         .wake = shm_wake,
                                         .nudge = shm_nudge,
                                         .leave = shm_leave};

static void *take_block(size_t bytes) {
    for (int i = 0; i < RANKS; i++)
        if (ranks[i]->works < MOST_WORKS && bytes == sizeof(ls_work)) return &ranks[i]->memory[ranks[i]->works++];
    explore_claim(false, "a scene needs more operations than there are");
    return NULL;
}

static ls_status start_progress(ls_thread *thread, void (*body)(void *argument), void *argument) {
    const ls_group *group = argument;
    thread->is_started = true;
    explore_start(progress_threads[group->rank], body, argument);
    return LS_OK;
}

static void join_progress(ls_thread *thread) {
    (void)thread;
}

/* Only this line of a board is there. */
static shm_board *make_board(void) {
    char *line = explore_alloc(128);
    shm_board *board = (shm_board *)(void *)(line - offsetof(shm_board, standing));
    explore_mark(&board->bell, EXPLORE_WORD);
    return board;
}

static void make_ranks(void) {
    shm_board **boards = explore_alloc(RANKS * sizeof(shm_board *));
    for (int i = 0; i < RANKS; i++) {
        boards[i] = make_board();
        arrived[i] = explore_alloc(2 * sizeof(uint64_t));
        finished[i] = arrived[i] + 1;
    }
    for (int i = 0; i < RANKS; i++) {
        ls_group *group = groups[i] = explore_alloc(sizeof *group);
        ranks[i] = explore_alloc(sizeof *ranks[i]);
        ranks[i]->shm = (shm_group){.group = group, .rank = i, .world_size = RANKS, .boards = boards};
        group->backend = &model_backend;
        group->state = &ranks[i]->shm;
        group->rank = i;
        group->world_size = RANKS;
        group->timeout_ms = -1;
        explore_mark(&group->event, EXPLORE_WORD);
        explore_mark(&group->posted, EXPLORE_WORD);
        explore_mark(&group->turns, EXPLORE_HINT);
        explore_mark(&group->users, EXPLORE_QUIET);
        for (int j = 0; j < MOST_WORKS; j++) {
            explore_mark(&ranks[i]->memory[j].holders, EXPLORE_QUIET);
            explore_mark(&ranks[i]->memory[j].is_begun, EXPLORE_QUIET);
        }
        explore_mark(&group->is_lost, EXPLORE_QUIET);
        explore_mark(&group->is_forked, EXPLORE_QUIET);
        explore_mark(&group->mail_count, EXPLORE_QUIET);
    }
}

/* --- scenes ------------------------------------------------------------------------------------------------------------- */

static const group_call a_barrier = {.kind = GROUP_BARRIER, .dtype = LS_U8};

static void call_once(void *argument) {
    explore_claim(group_run(argument, &a_barrier) == LS_OK, "a call fails");
}

static void call_twice(void *argument) {
    call_once(argument);
    call_once(argument);
}

static void post_and_wait(void *argument) {
    ls_work *work = NULL;
    explore_claim(group_post(argument, &a_barrier, &work) == LS_OK, "a post fails");
    explore_claim(ls_work_wait(work, 0) == LS_OK, "a wait fails");
    ls_work_close(&work);
}

static void post_alone(void *argument) {
    ls_work *work = NULL;
    explore_claim(group_post(argument, &a_barrier, &work) == LS_OK, "a post fails");
    ls_work_close(&work);
}

/* A rank comes to its operations up to `number`, without waiting for ours: what ours see of its driver (drive.c). */
static void arrive_at(ls_group *group, uint64_t number) {
    atomic_store_explicit(arrived[group->rank], number, memory_order_release);
    ls_full_barrier();
    group->backend->nudge(group->state);
}

static void arrive(void *argument) {
    arrive_at(argument, 2);
}

static void arrive_once(void *argument) {
    arrive_at(argument, 1);
}

static int callers[3], caller_count;

static int add_caller(const char *name, void (*body)(void *argument), int rank) {
    const int thread = callers[caller_count++] = explore_dormant_thread(name);
    if (body) explore_start(thread, body, groups[rank]);
    return thread;
}

/* All calls have returned, no work is left, and nobody drives. */
static bool is_all_done(void) {
    for (int i = 0; i < caller_count; i++)
        if (!explore_has_ended(callers[i])) return false;
    for (int i = 0; i < RANKS; i++)
        if (explore_peek(&groups[i]->first, sizeof(void *)) || explore_peek(&groups[i]->driver, sizeof(uint32_t)))
            return false;
    return true;
}

/* `drivers` as in backend.h: without DRIVEN_BY_ALL there is no progress thread. */
static void make_ranks_driven(backend_drivers drivers) {
    make_ranks();
    caller_count = 0;
    has_second_phase = false;
    groups[0]->drivers = drivers;
    if (drivers == DRIVEN_BY_ALL) progress_threads[0] = explore_dormant_thread("progress");
}

/* Each may sleep for the other, in each phase. */
static void begin_two_ranks(void) {
    make_ranks_driven(DRIVEN_BY_CALLERS);
    has_second_phase = true;
    add_caller("rank 0", call_twice, 0);
    add_caller("rank 1", call_twice, 1);
}

/* The waiter and the progress thread hand the driver to each other. */
static void begin_post_and_wait(void) {
    make_ranks_driven(DRIVEN_BY_ALL);
    add_caller("rank 0", post_and_wait, 0);
    add_caller("rank 1", arrive, 1);
}

/* Only the progress thread can end it. */
static void begin_post_alone(void) {
    make_ranks_driven(DRIVEN_BY_ALL);
    add_caller("rank 0", post_alone, 0);
    add_caller("rank 1", arrive, 1);
}

/* Two threads of a rank call at once, and nobody else drives. */
static void begin_two_callers(void) {
    make_ranks_driven(DRIVEN_BY_CALLERS);
    add_caller("rank 0, A", call_once, 0);
    add_caller("rank 0, B", call_once, 0);
    add_caller("rank 1", arrive, 1);
}

/* A's call cannot end before B, whose work is before it, has returned: whoever drives both has to let B go at once. */
static int second_caller;

static void post_wait_and_let_on(void *argument) {
    ls_work *work = NULL;
    explore_claim(group_post(argument, &a_barrier, &work) == LS_OK, "a post fails");
    explore_start(second_caller, call_once, argument);
    explore_claim(ls_work_wait(work, 0) == LS_OK, "a wait fails");
    ls_work_close(&work);
    arrive_at(groups[1], 2);
}

static void begin_dependent_callers(void) {
    make_ranks_driven(DRIVEN_BY_CALLERS);
    second_caller = add_caller("rank 0, A", NULL, 0);
    add_caller("rank 0, B", post_wait_and_let_on, 0);
    add_caller("rank 1", arrive_once, 1);
}

/* Who posts finds another thread driving, who will not look at the queue again: as one at the end of its own call. */
static void drive_for_a_moment(void *argument) {
    if (group_try_drive(argument)) group_stop_driving(argument);
}

static void begin_poster_beside_caller(void) {
    make_ranks_driven(DRIVEN_BY_ALL);
    add_caller("rank 0, A", drive_for_a_moment, 0);
    add_caller("rank 0, B", post_alone, 0);
    *(uint64_t *)(void *)arrived[1] = 2;
}

static const explore_scene two_ranks = {begin_two_ranks, is_all_done, 1000000},
                           waiter = {begin_post_and_wait, is_all_done, 1000000},
                           poster = {begin_post_alone, is_all_done, 1000000},
                           two_callers = {begin_two_callers, is_all_done, 1000000},
                           dependent = {begin_dependent_callers, is_all_done, 1000000},
                           beside = {begin_poster_beside_caller, is_all_done, 1000000};

/* --- tests -------------------------------------------------------------------------------------------------------------- */

static explore_result result;

static void assert_no_end_is_missed(const explore_scene *scene) {
    explore(scene, NULL, &result);
    print_message("%zu states, %zu steps\n", result.states, result.steps);
    if (result.is_violated) print_error("%s\n", result.text);
    assert_false(result.is_violated);
    assert_true(result.states > 1000);
}

static void ranks_that_sleep_for_each_other_are_woken(void **state) {
    (void)state;
    assert_no_end_is_missed(&two_ranks);
}

static void a_waiter_and_the_progress_thread_hand_over(void **state) {
    (void)state;
    assert_no_end_is_missed(&waiter);
}

static void work_that_nobody_waits_for_is_driven_to_its_end(void **state) {
    (void)state;
    assert_no_end_is_missed(&poster);
}

static void work_posted_while_another_drives_is_driven_to_its_end(void **state) {
    (void)state;
    assert_no_end_is_missed(&beside);
}

static void callers_of_one_group_hand_over(void **state) {
    (void)state;
    assert_no_end_is_missed(&two_callers);
}

static void a_caller_goes_on_as_soon_as_its_work_is_complete(void **state) {
    (void)state;
    assert_no_end_is_missed(&dependent);
}

/* Each step of the hand-over, and a scene that misses it. Not among them: the wake of a driver who sleeps in the backend (shm_wake),
 * without which a waiter comes to drive later, but comes. */
static const struct {
    explore_mutation step;
    const explore_scene *scene;
} steps[] = {
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
};

static void no_step_of_the_hand_over_can_be_left_out(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        explore(steps[i].scene, &steps[i].step, &result);
        if (!result.is_violated || !explore_was_met())
            print_error("without the %s in %s: nothing is found in %zu states (met: %d)\n", steps[i].step.what,
                        steps[i].step.where, result.states, explore_was_met());
        assert_true(explore_was_met());
        assert_true(result.is_violated);
        assert_null(strstr(result.text, "more than")); /* states: that proves nothing */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_sleep_for_each_other_are_woken),
        cmocka_unit_test(a_waiter_and_the_progress_thread_hand_over),
        cmocka_unit_test(work_that_nobody_waits_for_is_driven_to_its_end),
        cmocka_unit_test(work_posted_while_another_drives_is_driven_to_its_end),
        cmocka_unit_test(callers_of_one_group_hand_over),
        cmocka_unit_test(a_caller_goes_on_as_soon_as_its_work_is_complete),
        cmocka_unit_test(no_step_of_the_hand_over_can_be_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
