/* kills.h: killing ranks, and looking at who is left and what remains. */
#ifndef LS_TEST_KILLS_H
#define LS_TEST_KILLS_H

#include "support/ranks.h"

#include "base/clock.h"
#include "base/wait.h"

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

/* Points TMPDIR there; called first in main, and at its end remove_temporary. */
static inline bool make_temporary(void) {
    return mkdtemp(temporary) && setenv("TMPDIR", temporary, 1) == 0;
}

static inline void remove_temporary(void) {
    rmdir(temporary);
}

static inline int count_entries(const char *folder, const char *with) {
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

static inline scene look(void) {
    return (scene){.shared_memory = count_entries("/dev/shm", "lockstep")};
}

/* No process of the ranks, no file. Sockets go with the processes. */
static inline void assert_scene_is_clean(const scene *before) {
    for (int rank = 0; rank < 3; rank++) {
        if (!before->ranks[rank]) continue;
        assert_int_equal(kill(before->ranks[rank], 0), -1);
        assert_int_equal(errno, ESRCH);
    }
    assert_int_equal(count_entries("/dev/shm", "lockstep"), before->shared_memory);
    assert_int_equal(count_entries(temporary, ""), 0);
}

/* `rank`'s output has `text`; if not, shows everything. */
static inline void assert_says(ls_ranks *ranks, int rank, const char *text) {
    if (!strstr(ls_ranks_output(ranks, rank), text)) {
        print_error("rank %d does not say \"%s\"\n", rank, text);
        ls_ranks_print(ranks);
    }
    assert_non_null(strstr(ls_ranks_output(ranks, rank), text));
}

static inline void assert_survivor_names(ls_ranks *ranks, int survivor, int dead) {
    char text[32];
    snprintf(text, sizeof text, "process %d)", (int)ls_ranks_pid(ranks, dead));
    assert_says(ranks, survivor, "error LS_ERR_PEER_LOST");
    assert_says(ranks, survivor, text);
    if (ls_ranks_exit_code(ranks, survivor) != 3) ls_ranks_print(ranks);
    assert_int_equal(ls_ranks_exit_code(ranks, survivor), 3);
}

/* Where the group is of all ranks: in one of some ranks the dead one has another number. */
static inline void assert_names_rank(ls_ranks *ranks, int survivor, int dead) {
    char text[32];
    snprintf(text, sizeof text, "rank %d (", dead);
    assert_says(ranks, survivor, text);
}

/* Runs `program` on some ranks, at most three, kills `rank` when it reaches `point` for the count-th time, and asserts that all
 * others name it at once and that nothing remains. */
static inline void kill_one_of(int world_size, const char *program, const char *const *arguments, const char *point,
                               int rank, int count) {
    char wish[128];
    snprintf(wish, sizeof wish, "LOCKSTEP_TEST_KILL=%s:%d:%d", point, rank, count);
    const char *environment[] = {wish, NULL};
    scene before = look();
    const ls_ranks_options options = {
        .ranks = world_size, .program = program, .arguments = arguments, .environment = environment};
    ls_ranks *ranks = ls_ranks_start(&options);
    for (int i = 0; i < world_size; i++) before.ranks[i] = ls_ranks_pid(ranks, i);
    const int64_t start_ns = ls_now_ns();
    ls_ranks_finish(ranks);
    if (ls_ranks_exit_code(ranks, rank) != 128 + SIGKILL)
        print_error("%s was not reached by rank %d %d times\n", point, rank, count);
    assert_int_equal(ls_ranks_exit_code(ranks, rank), 128 + SIGKILL);
    for (int i = 0; i < world_size; i++)
        if (i != rank) assert_survivor_names(ranks, i, rank);
    if (world_size == 2) assert_names_rank(ranks, 1 - rank, rank);
    assert_true(ls_now_ns() - start_ns < AT_ONCE_NS);
    ls_ranks_close(&ranks);
    assert_scene_is_clean(&before);
}

static inline void kill_at(const char *program, const char *const *arguments, const char *point, int rank, int count) {
    kill_one_of(2, program, arguments, point, rank, count);
}

/* Runs `program`, which says "ready" and then runs on, kills one of two ranks after a random moment, and asserts the
 * same. */
static inline void kill_at_some_moment(const char *program, const char *const *arguments, int longest_us) {
    const int rank = rand() % 2;
    scene before = look();
    const ls_ranks_options options = {.ranks = 2, .program = program, .arguments = arguments};
    ls_ranks *ranks = ls_ranks_start(&options);
    for (int peer = 0; peer < 2; peer++) before.ranks[peer] = ls_ranks_pid(ranks, peer);
    ls_ranks_wait_for(ranks, 1 - rank, "ready");
    ls_sleep_until(ls_now_ns() + rand() % longest_us * INT64_C(1000));
    const int64_t start_ns = ls_now_ns();
    ls_ranks_kill(ranks, rank, SIGKILL);
    ls_ranks_finish(ranks);
    assert_survivor_names(ranks, 1 - rank, rank);
    assert_names_rank(ranks, 1 - rank, rank);
    assert_true(ls_now_ns() - start_ns < AT_ONCE_NS);
    ls_ranks_close(&ranks);
    assert_scene_is_clean(&before);
}

#endif
