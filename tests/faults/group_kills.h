/* group_kills.h: what holds of a group over any backend when its ranks are processes that die, wait, fork, stop or exit: the tests
 * of each backend call these with its points, and what it says. */
#ifndef LS_TEST_GROUP_KILLS_H
#define LS_TEST_GROUP_KILLS_H

#include "faults/kills.h"
#include "group/points.h"

/* Rank `rank` also leaves at the end, so that it reaches the points of leaving. */
static inline void kill_rounds_at(const char *point, int rank, int count) {
    char closer[8];
    snprintf(closer, sizeof closer, "%d", rank);
    kill_at("worker_group", (const char *[]){"rounds", "3", closer, NULL}, point, rank, count);
}

static inline void kill_relatives_at(const char *point, int rank, int count) {
    kill_one_of(3, "worker_group", (const char *[]){"relatives", NULL}, point, rank, count);
}

/* Each rank at each point of making groups of a group and of monitored barriers, the first time and the second; at `steps`,
 * the backend's own of opening and leaving, in the second group it opens and in the third. */
static inline void kill_while_relatives_form(const char *const *steps, int step_count) {
    for (int rank = 0; rank < 3; rank++) {
        for (int i = 0; i < RELATED_POINT_COUNT; i++) kill_relatives_at(related_points[i], rank, 1);
        for (int i = 1; i < RELATED_POINT_COUNT; i++) kill_relatives_at(related_points[i], rank, 2);
        for (int i = 0; i < step_count; i++)
            for (int count = 2; count <= 3; count++) kill_relatives_at(steps[i], rank, count);
    }
    for (int count = 1; count <= 2; count++) kill_relatives_at("monitored.barrier.collected", 0, count);
}

static inline void kill_at_random_moments(int times) {
    const unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < times; i++)
        kill_at_some_moment("worker_group", (const char *[]){"rounds", "1000000", "-1", NULL}, 30000);
}

static inline ls_ranks *run_mode(const char *mode, int count) {
    const char *arguments[] = {mode, NULL};
    return ls_ranks_run(&(ls_ranks_options){.ranks = count, .program = "worker_group", .arguments = arguments});
}

static inline void run_between_processes(const char *rounds) {
    const char *arguments[] = {"rounds", rounds, "-1", NULL};
    for (int count = 2; count <= 4; count++) {
        const ls_ranks_options options = {.ranks = count, .program = "worker_group", .arguments = arguments};
        ls_ranks *ranks = ls_ranks_run(&options);
        assert_ranks_succeeded(ranks);
        for (int rank = 0; rank < count; rank++) assert_says(ranks, rank, "done");
        ls_ranks_close(&ranks);
    }
}

/* Rank 1 dies while a child that it forked lives on. */
static inline void fork_and_die(const char *child_says) {
    const int64_t start_ns = ls_now_ns();
    ls_ranks *ranks = run_mode("forks", 2);
    assert_survivor_names(ranks, 0, 1);
    assert_says(ranks, 1, child_says);
    assert_true(ls_now_ns() - start_ns < AT_ONCE_NS);
    ls_ranks_close(&ranks);
}

/* Rank 1 is stopped past the limit, and goes on when the others have a new group. Who waits for it may be missed too. */
static inline void stop_and_go_on(const char *last_seen) {
    ls_ranks *ranks = run_mode("stops", 3);
    for (int rank = 0; rank < 3; rank += 2) {
        assert_says(ranks, rank, "status LS_ERR_ABORTED");
        assert_says(ranks, rank, "; missing: ");
        assert_says(ranks, rank, "rank 1 (");
        assert_says(ranks, rank, last_seen);
        assert_says(ranks, rank, "new group untouched");
    }
    assert_says(ranks, 1, "status LS_ERR_ABORTED");
    assert_ranks_succeeded(ranks);
    ls_ranks_close(&ranks);
}

/* The same where only one of several groups is lost: what the others have made of theirs stays, and all go on together. */
static inline void stop_in_one_of_several_groups(void) {
    ls_ranks *ranks = run_mode("stops-in-one", 3);
    for (int rank = 0; rank < 3; rank++) assert_says(ranks, rank, "status LS_ERR_ABORTED");
    for (int rank = 0; rank < 3; rank += 2) {
        assert_says(ranks, rank, "; missing: ");
        assert_says(ranks, rank, "rank 1 (");
        assert_says(ranks, rank, "other groups untouched");
    }
    assert_ranks_succeeded(ranks);
    ls_ranks_close(&ranks);
}

static inline void a_long_wait_takes_under_a_twentieth_of_a_processor(void **state) {
    (void)state;
    ls_ranks *ranks = run_mode("waits", 2);
    assert_ranks_succeeded(ranks);
    long waited_ms = 0, used_us = 0;
    assert_int_equal(sscanf(ls_ranks_output(ranks, 0), "waited %ld ms, used %ld us", &waited_ms, &used_us), 2);
    assert_true(waited_ms > 900);
    assert_true(used_us * 20 < waited_ms * 1000);
    ls_ranks_close(&ranks);
}

static inline void an_exit_without_a_close_is_clean(void **state) {
    (void)state;
    ls_ranks *ranks = run_mode("exits", 2);
    assert_ranks_succeeded(ranks);
    ls_ranks_close(&ranks);
}

#endif
