/* test_group.c: ranks as processes that die, leave, stop and fork: who is left ends at once with an error that names who is
 * gone, and nothing remains. */
#include "support/ranks.h"

#include "base/clock.h"
#include "base/wait.h"
#include "group/points.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Far above what a survivor takes, far under the group's limit of half an hour. */
#define AT_ONCE_NS (10 * LS_NS_PER_S)

/* Where ranks and launcher would put temporary files: ours alone, since others use the usual place meanwhile. */
static char temporary[] = "/tmp/lockstep-test-XXXXXX";

static int count_entries(const char *folder, const char *with) {
    DIR *entries = opendir(folder);
    int count = 0;
    for (const struct dirent *entry = NULL; entries && (entry = readdir(entries));)
        count += entry->d_name[0] != '.' && strstr(entry->d_name, with);
    if (entries) closedir(entries);
    return count;
}

typedef struct scene {
    int shared_memory;
    pid_t ranks[3];
} scene;

static scene look(void) {
    return (scene){.shared_memory = count_entries("/dev/shm", "lockstep")};
}

/* No process of the ranks, no file. Sockets go with the processes. */
static void assert_scene_is_clean(const scene *before) {
    for (int rank = 0; rank < 3; rank++) {
        if (!before->ranks[rank]) continue;
        assert_int_equal(kill(before->ranks[rank], 0), -1);
        assert_int_equal(errno, ESRCH);
    }
    assert_int_equal(count_entries("/dev/shm", "lockstep"), before->shared_memory);
    assert_int_equal(count_entries(temporary, ""), 0);
}

/* `rank`'s output says that `text` happened to rank `peer`; if not, shows everything. */
static void assert_says(ls_ranks *ranks, int rank, const char *text) {
    if (!strstr(ls_ranks_output(ranks, rank), text)) {
        print_error("rank %d does not say \"%s\"\n", rank, text);
        ls_ranks_print(ranks);
    }
    assert_non_null(strstr(ls_ranks_output(ranks, rank), text));
}

static void assert_survivor_names(ls_ranks *ranks, int survivor, int dead) {
    char text[32];
    snprintf(text, sizeof text, "rank %d (", dead);
    assert_says(ranks, survivor, "error LS_ERR_PEER_LOST");
    assert_says(ranks, survivor, text);
    assert_int_equal(ls_ranks_exit_code(ranks, survivor), 3);
}

static void kill_at(const char *point, int rank, int count) {
    char wish[128], closer[8];
    snprintf(wish, sizeof wish, "LOCKSTEP_TEST_KILL=%s:%d:%d", point, rank, count);
    snprintf(closer, sizeof closer, "%d", rank);
    const char *arguments[] = {"rounds", "3", closer, NULL}, *environment[] = {wish, NULL};
    scene before = look();
    ls_ranks *ranks = ls_ranks_start(
        &(ls_ranks_options){.ranks = 2, .program = "worker_group", .arguments = arguments, .environment = environment});
    for (int i = 0; i < 2; i++) before.ranks[i] = ls_ranks_pid(ranks, i);
    const int64_t start_ns = ls_now_ns();
    ls_ranks_finish(ranks);
    if (ls_ranks_exit_code(ranks, rank) != 128 + SIGKILL) print_error("%s was not reached by rank %d\n", point, rank);
    assert_int_equal(ls_ranks_exit_code(ranks, rank), 128 + SIGKILL);
    assert_survivor_names(ranks, 1 - rank, rank);
    assert_true(ls_now_ns() - start_ns < AT_ONCE_NS);
    ls_ranks_close(&ranks);
    assert_scene_is_clean(&before);
}

static void a_rank_killed_at_any_point_is_named_at_once(void **state) {
    (void)state;
    for (int i = 0; i < GROUP_POINT_COUNT; i++)
        for (int rank = 0; rank < 2; rank++) kill_at(group_points[i], rank, 1);
}

/* The second sharing is of memory, the third of a duplicate. */
static void a_rank_killed_while_memory_or_a_duplicate_is_shared_is_named(void **state) {
    (void)state;
    static const char *const points[] = {"shm.share.published", "shm.share.mapped", "shm.share.met"};
    for (int i = 0; i < 3; i++)
        for (int count = 2; count <= 3; count++) kill_at(points[i], i % 2, count);
}

static void a_rank_killed_at_any_moment_is_named_at_once(void **state) {
    (void)state;
    const unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < 50; i++) {
        const int rank = rand() % 2;
        const char *arguments[] = {"rounds", "1000000", "-1", NULL};
        scene before = look();
        ls_ranks *ranks =
            ls_ranks_start(&(ls_ranks_options){.ranks = 2, .program = "worker_group", .arguments = arguments});
        for (int peer = 0; peer < 2; peer++) before.ranks[peer] = ls_ranks_pid(ranks, peer);
        ls_ranks_wait_for(ranks, 1 - rank, "ready");
        ls_sleep_until(ls_now_ns() + rand() % 30000 * INT64_C(1000));
        const int64_t start_ns = ls_now_ns();
        ls_ranks_kill(ranks, rank, SIGKILL);
        ls_ranks_finish(ranks);
        assert_survivor_names(ranks, 1 - rank, rank);
        assert_true(ls_now_ns() - start_ns < AT_ONCE_NS);
        ls_ranks_close(&ranks);
        assert_scene_is_clean(&before);
    }
}

static ls_ranks *run_mode(const char *mode, int count) {
    const char *arguments[] = {mode, NULL};
    return ls_ranks_run(&(ls_ranks_options){.ranks = count, .program = "worker_group", .arguments = arguments});
}

static void every_algorithm_runs_between_processes(void **state) {
    (void)state;
    const char *arguments[] = {"rounds", "20", "-1", NULL};
    for (int count = 2; count <= 4; count++) {
        ls_ranks *ranks =
            ls_ranks_run(&(ls_ranks_options){.ranks = count, .program = "worker_group", .arguments = arguments});
        assert_ranks_succeeded(ranks);
        for (int rank = 0; rank < count; rank++) assert_says(ranks, rank, "done");
        ls_ranks_close(&ranks);
    }
}

static void a_long_wait_takes_under_a_twentieth_of_a_processor(void **state) {
    (void)state;
    ls_ranks *ranks = run_mode("waits", 2);
    assert_ranks_succeeded(ranks);
    long waited_ms = 0, used_us = 0;
    assert_int_equal(sscanf(ls_ranks_output(ranks, 0), "waited %ld ms, used %ld us", &waited_ms, &used_us), 2);
    assert_true(waited_ms > 900);
    assert_true(used_us * 20 < waited_ms * 1000);
    ls_ranks_close(&ranks);
}

static void a_forked_child_holds_nothing_and_hides_no_death(void **state) {
    (void)state;
    const int64_t start_ns = ls_now_ns();
    ls_ranks *ranks = run_mode("forks", 2);
    assert_survivor_names(ranks, 0, 1);
    assert_says(ranks, 1, "child: LS_ERR_FORKED, 0 descriptors, 0 mappings: rank 1: this group was opened before fork");
    assert_true(ls_now_ns() - start_ns < AT_ONCE_NS);
    ls_ranks_close(&ranks);
}

static void a_stopped_rank_that_wakes_touches_nothing_of_the_new_group(void **state) {
    (void)state;
    ls_ranks *ranks = run_mode("stops", 3);
    for (int rank = 0; rank < 3; rank += 2) {
        assert_says(ranks, rank, "status LS_ERR_ABORTED");
        assert_says(ranks, rank, "missing: rank 1 (");
        assert_says(ranks, rank, "last done operation 2)");
        assert_says(ranks, rank, "new group untouched");
    }
    assert_says(ranks, 1, "status LS_ERR_ABORTED");
    assert_ranks_succeeded(ranks);
    ls_ranks_close(&ranks);
}

static void an_exit_without_a_close_is_clean(void **state) {
    (void)state;
    ls_ranks *ranks = run_mode("exits", 2);
    assert_ranks_succeeded(ranks);
    ls_ranks_close(&ranks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_runs_between_processes),
        cmocka_unit_test(a_rank_killed_at_any_point_is_named_at_once),
        cmocka_unit_test(a_rank_killed_while_memory_or_a_duplicate_is_shared_is_named),
        cmocka_unit_test(a_rank_killed_at_any_moment_is_named_at_once),
        cmocka_unit_test(a_long_wait_takes_under_a_twentieth_of_a_processor),
        cmocka_unit_test(a_forked_child_holds_nothing_and_hides_no_death),
        cmocka_unit_test(a_stopped_rank_that_wakes_touches_nothing_of_the_new_group),
        cmocka_unit_test(an_exit_without_a_close_is_clean),
    };
    if (!mkdtemp(temporary) || setenv("TMPDIR", temporary, 1) != 0) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(temporary);
    return failed;
}
