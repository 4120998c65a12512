/* threads.h: ranks as threads of one process, over a store within the process. ThreadSanitizer sees all they do.
 *
 *     static void rank_says_its_number(const ls_rank *rank) {
 *         ls_group *group = open_rank(rank);
 *         assert_int_equal(ls_group_rank(group), rank->rank);
 *         ls_group_close(&group);
 *     }
 *     run_ranks(4, rank_says_its_number, NULL);
 *
 * An assertion that fails in a rank's thread prints its place and aborts the program: cmocka's way for threads that are
 * not the test's own.                                                                                                */
#ifndef LS_TEST_THREADS_H
#define LS_TEST_THREADS_H

#include "support/test.h"

#include <lockstep/group.h>

typedef struct ls_rank {
    int rank, world_size;
    ls_store *store; /* borrowed */
    void *argument;  /* of run_ranks, shared by all ranks */
} ls_rank;

/* Runs body(rank) on a thread for each of `world_size` ranks, and waits for all. */
void run_ranks(int world_size, void (*body)(const ls_rank *rank), void *argument);

/* As run_ranks over a store of the caller's, which lives on. */
void run_ranks_over(ls_store *store, int world_size, void (*body)(const ls_rank *rank), void *argument);

/* The options with which `rank` opens its group. A limit of a minute, so that a hang is a failed test. */
ls_group_options rank_options(const ls_rank *rank);

/* Opens the group of all ranks; a failure fails the test. */
ls_group *open_rank(const ls_rank *rank);

/* Fails with the sentence of the last error unless the call succeeds. */
#define assert_ok(call)                                                                 \
    do {                                                                                \
        const ls_status assert_ok_status = (call);                                      \
        if (assert_ok_status != LS_OK) {                                                \
            print_error("%s: %s\n", ls_status_name(assert_ok_status), ls_last_error()); \
            assert_int_equal(assert_ok_status, LS_OK);                                  \
        }                                                                               \
    } while (0)

/* The last error of this thread contains `text`. */
#define assert_error_says(text) assert_error_says_at(text, __FILE__, __LINE__)
void assert_error_says_at(const char *text, const char *file, int line);

#endif
