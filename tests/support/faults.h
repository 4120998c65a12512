/* faults.h: failing calls on purpose, stopping at named points, and proof that nothing is left behind.
 *
 *     static void a_group_that_failed_to_open_leaves_nothing(void **state) {
 *         LS_EACH_FAULT(LS_FAULT_MEMORY | LS_FAULT_SYSCALL | LS_FAULT_THREAD) {
 *             ls_group *group = NULL;
 *             ls_status status = ls_group_open(&group, NULL);
 *             if (ls_fault_was_met()) { assert_fault_reported(status); assert_null(group); }
 *             ls_group_close(&group);
 *         }
 *         assert_nothing_left();
 *     }
 *
 * The loop's first run fails the first call of the given kinds, the second run the second, and so on; the last run is
 * the first that meets no fault. Faults count over all threads of the process. Ranks as threads call the assertions
 * after they were joined.
 *
 * The hooks are installed at the first use of anything here: before the library starts threads.                      */
#ifndef LS_TEST_FAULTS_H
#define LS_TEST_FAULTS_H

#include "support/test.h"

#include "base/fault.h"

#include <lockstep/base.h>

#define LS_EACH_FAULT(kinds) for (ls_fault_first(kinds); ls_fault_next(__FILE__, __LINE__);)

/* The two halves of LS_EACH_FAULT: take the baseline of assert_nothing_left and arm the loop; go to the next run. */
void ls_fault_first(int kinds);
bool ls_fault_next(const char *file, int line);

/* Whether this run's fault has struck. */
bool ls_fault_was_met(void);

/* Ends the injection before the loop's end, for instance for clean-up that cannot report. */
void ls_fault_disarm(void);

/* The status is an error and has a sentence. */
#define assert_fault_reported(status) ls_assert_fault_reported(status, __FILE__, __LINE__)
void ls_assert_fault_reported(ls_status status, const char *file, int line);

/* Remembers the descriptors, mapped segments, threads and blocks that there are. LS_EACH_FAULT does it by itself. */
void ls_note_what_is_there(void);

/* Fails, saying what, unless there is as much as at the last ls_note_what_is_there (threads get a moment to end). */
#define assert_nothing_left() ls_assert_nothing_left(__FILE__, __LINE__)
void ls_assert_nothing_left(const char *file, int line);

/* How many entries a folder has, and sockets this process (below number 256): for what is compared before and after. */
int ls_count_entries(const char *folder);
int ls_count_sockets(void);

/* How often `point` was reached since ls_points_watch, by any thread. */
void ls_points_watch(void);
int ls_point_hits(const char *point);

/* Calls action(argument) on the thread that reaches `point` as rank `rank` for the count-th time (the first is 1; 0: every
 * time). NULL ends it. */
void ls_at_point(const char *point, int rank, int count, void (*action)(void *argument), void *argument);

/* For the worker programs of tests, called first in main: with LOCKSTEP_TEST_KILL="point:rank:count:signal" in the
 * environment, this process, if it is that rank, sends itself the signal (SIGKILL where there is none) when it reaches the
 * point for the count-th time. */
void ls_kill_at_point_from_environment(void);

#endif
